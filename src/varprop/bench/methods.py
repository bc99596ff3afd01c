"""The methods of the tables, each run live: what it is called, and which estimator with what."""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from varprop.bench.protocol import PROTOCOLS
from varprop.bench.registry import Task, known
from varprop.training.recipe import Recipe

Settings = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Method:
    """One column of a table.

    Attributes
    ----------
    name, title
        For the command line and for the table.
    estimator
        Module of this package, and class. It has `fit`, `predict_dist` and, once fitted,
        `outcome_`; where they make sense also `n_iter_`, `n_steps_` and `loss_`.
    options
        Arguments of the estimator that are the method's own.
    protocols
        The protocols it can follow; ``("own",)`` if it has one of its own.
    multi_output
        Whether it predicts several targets at once.
    max_rows
        Training rows it can be asked to take.
    cost
        Rough seconds per cell at a thousand rows, for the order of work and the time left.
    """

    name: str
    title: str
    estimator: str
    options: Settings
    protocols: tuple[str, ...] = ("own",)
    multi_output: bool = False
    max_rows: int | None = None
    cost: float = 2.0

    def refuses(self, task: Task) -> str | None:
        """Return why the method cannot be run on a task, or None if it can."""
        if len(task.targets) > 1 and not self.multi_output:
            return "it has one output"
        if self.max_rows is not None and task.dataset.n > self.max_rows:
            return f"{task.dataset.n:,} rows are too many for it"
        return None

    def settings(self, protocol: str) -> Settings:
        """Return the estimator's arguments as JSON: everything that decides the result."""
        if protocol == "own":
            return dict(self.options)
        training = PROTOCOLS[protocol]
        return {**training, "recipe": dataclasses.asdict(training["recipe"]), **self.options}

    def model(self, settings: Settings, seed: int) -> Any:
        """Return the estimator with these settings, not yet fitted.

        Examples
        --------
        >>> method("fawn-vi").model(method("fawn-vi").settings("paper"), 0).recipe.learning_rate
        0.001
        """
        module, name = self.estimator.split(":")
        options = dict(settings)
        if "recipe" in options:
            options["recipe"] = Recipe.from_dict(options["recipe"])
        return getattr(importlib.import_module(f"varprop.{module}"), name)(
            **options, random_state=seed
        )


def _fawn(
    name: str, title: str, *, protocols: tuple[str, ...] = ("paper", "ours"), **options: Any
) -> Method:
    """Return the library's own estimator with the paper's network."""
    cost = options.pop("cost", 3.0)
    options = {"hidden_layer_sizes": [50], "objective": "ropd", **options}
    estimator = "estimators.regressor:FAWNRegressor"
    return Method(name, title, estimator, options, protocols, multi_output=True, cost=cost)


def _other(
    name: str, title: str, estimator: str, *, max_rows: int | None = None, **options: Any
) -> Method:
    """Return a method to compare with, which is trained in its own way and has one output."""
    cost = options.pop("cost", 2.0)
    return Method(name, title, f"baselines.{estimator}", options, max_rows=max_rows, cost=cost)


# Members of an ensemble differ by their start, so each needs only one.
_FIVE: Settings = {"n_members": 5, "n_restarts": 1}
# As their authors train them.
_DROPOUT: Settings = {"dropout": 0.05, "n_epochs": 400, "batch_size": 32, "learning_rate": 1e-3}
_BOOSTING: Settings = {"max_trees": 2000, "learning_rate": 0.01}
_ENSEMBLE: Settings = {"n_members": 5, "n_epochs": 40, "batch_size": 100, "learning_rate": 0.03}

METHODS = {
    method.name: method
    for method in [
        _fawn("fawn-vi", "FAWN-VI", objective="vi"),
        _fawn("fawn-ropd", "FAWN-ROPD"),
        _fawn("fawn-bern", "FAWN-BERN", weights="bernoulli"),
        _fawn("co-fawn", "Co-FAWN", output_covariance=True, cost=5.0),
        _fawn("fawn-ropd-5", "FAWN-ROPD, 5 members", protocols=("ours",), cost=7.0, **_FIVE),
        _fawn("vi", "VI (sampled)", objective="sampled-vi", cost=6.0),
        Method(
            "stack", "Stack", "estimators.stack:StackedRegressor", {}, multi_output=True, cost=20.0
        ),
        _other("pbp", "PBP", "pbp:PBPRegressor", hidden_layer_sizes=[50], n_epochs=40, cost=5.0),
        _other("gp", "GP", "gp:GaussianProcess", n_restarts=3, max_rows=1500, cost=60.0),
        _other("ngboost", "NGBoost", "boosting:NGBoost", cost=20.0, **_BOOSTING),
        _other("mc-dropout", "MC dropout", "networks:MCDropout", n_samples=100, **_DROPOUT),
        _other("deep-ensemble", "Deep ensemble", "networks:DeepEnsemble", **_ENSEMBLE),
    ]
}


def method(name: str) -> Method:
    """Return the method of this name, or say which is nearest.

    Examples
    --------
    >>> method("fawn-ropd").title
    'FAWN-ROPD'
    """
    return METHODS[known(name, METHODS, "method")]
