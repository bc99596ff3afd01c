"""The methods of the tables, each run live: what it is called, and which estimator with what."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
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
    package, extra
        What must be installed for it, and the extra of varprop that has it; empty if nothing.
    compared
        Whether `varprop compare` runs it unless told otherwise.
    uncertain_inputs
        Whether `fit` and `predict_dist` take the inputs' uncertainty, `X_std`.
    """

    name: str
    title: str
    estimator: str
    options: Settings
    protocols: tuple[str, ...] = ("own",)
    multi_output: bool = False
    max_rows: int | None = None
    cost: float = 2.0
    package: str = ""
    extra: str = ""
    compared: bool = False
    uncertain_inputs: bool = False

    def refuses(self, task: Task) -> str | None:
        """Return why the method cannot be run on a task, or None if it can."""
        if len(task.targets) > 1 and not self.multi_output:
            return "it has one output"
        return self.too_many(task.dataset.n)

    def too_many(self, n_rows: int) -> str | None:
        """Return that so many rows are too many for it, or None if they are not.

        Examples
        --------
        >>> method("gp").too_many(2000), method("linear").too_many(2000)
        ('2,000 rows are too many for it', None)
        """
        many = self.max_rows is not None and n_rows > self.max_rows
        return f"{n_rows:,} rows are too many for it" if many else None

    def not_installed(self) -> str | None:
        """Return how to install what it needs, or None if that is there.

        Examples
        --------
        >>> method("linear").not_installed() is None
        True
        """
        if not self.package or importlib.util.find_spec(self.package) is not None:
            return None
        return f"not installed: pip install 'varprop[{self.extra}]'"

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


def _ours(name: str, title: str, estimator: str, cost: float, **options: Any) -> Method:
    """Return an estimator of the library as it comes, without the paper's settings."""
    every: Settings = {"multi_output": True, "compared": True, "uncertain_inputs": True}
    return Method(name, title, f"estimators.{estimator}", options, cost=cost, **every)


def _other(name: str, title: str, estimator: str, **options: Any) -> Method:
    """Return a method to compare with, which is trained in its own way and has one output."""
    known = ("cost", "max_rows", "package", "extra", "compared")
    facts = {key: options.pop(key) for key in known if key in options}
    return Method(name, title, f"baselines.{estimator}", options, **facts)


# Members of an ensemble differ by their start, so each needs only one.
_FIVE: Settings = {"n_members": 5, "n_restarts": 1}
# As their authors train them.
_DROPOUT: Settings = {"dropout": 0.05, "n_epochs": 400, "batch_size": 32, "learning_rate": 1e-3}
_NGBOOST: Settings = {"max_trees": 2000, "learning_rate": 0.01}
_QUANTILES: Settings = {"max_trees": 100, "learning_rate": 0.1}
_ENSEMBLE: Settings = {"n_members": 5, "n_epochs": 40, "batch_size": 100, "learning_rate": 0.03}
# Those that users would pick instead, and where they are to be had.
_PICKED: Settings = {"compared": True}
_BENCH: Settings = {"package": "ngboost", "extra": "bench", "compared": True}
_CATBOOST: Settings = {"package": "catboost", "extra": "catboost", "compared": True}

_STACK = "stack:StackedRegressor"

METHODS = {
    method.name: method
    for method in [
        _fawn("fawn-vi", "FAWN-VI", objective="vi"),
        _fawn("fawn-ropd", "FAWN-ROPD"),
        _fawn("fawn-bern", "FAWN-BERN", weights="bernoulli"),
        _fawn("co-fawn", "Co-FAWN", output_covariance=True, cost=5.0),
        _fawn("fawn-ropd-5", "FAWN-ROPD, 5 members", protocols=("ours",), cost=7.0, **_FIVE),
        _fawn("vi", "VI (sampled)", objective="sampled-vi", cost=6.0),
        _ours("stack", "varprop stack", _STACK, 20.0),
        _ours("stack-quick", "varprop quick stack", _STACK, 4.0, effort="quick"),
        _ours("stack-thorough", "varprop thorough stack", _STACK, 80.0, effort="thorough"),
        _ours("network", "varprop network", "regressor:FAWNRegressor", 4.0),
        _other("linear", "Linear", "linear:Linear", cost=0.1, **_PICKED),
        _other("pbp", "PBP", "pbp:PBPRegressor", hidden_layer_sizes=[50], n_epochs=40, cost=5.0),
        _other("gp", "GP", "gp:GaussianProcess", n_restarts=3, max_rows=1500, cost=60.0, **_PICKED),
        _other("ngboost", "NGBoost", "boosting:NGBoost", cost=20.0, **_BENCH, **_NGBOOST),
        _other("catboost", "CatBoost", "boosting:CatBoost", max_trees=1000, **_CATBOOST),
        _other(
            "quantiles",
            "Quantile boosting",
            "quantiles:QuantileBoosting",
            cost=4.0,
            **_PICKED,
            **_QUANTILES,
        ),
        _other("mc-dropout", "MC dropout", "networks:MCDropout", n_samples=100, **_DROPOUT),
        _other("deep-ensemble", "Deep ensemble", "networks:DeepEnsemble", **_PICKED, **_ENSEMBLE),
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
