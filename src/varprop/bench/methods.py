"""The methods of the tables, each run live: what it is called, its settings, how it is trained."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from varprop.bench.protocol import PROTOCOLS
from varprop.bench.registry import Task, known
from varprop.predictive.distribution import Predictive

Settings = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Split:
    """The numbers of one split, float64: x (rows, inputs), y (rows, outputs)."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    seed: int


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a method says of the test rows, and how its training went."""

    prediction: Predictive
    outcome: str
    epochs: int | None = None
    steps: int | None = None
    loss: float | None = None


@dataclasses.dataclass(frozen=True)
class Method:
    """One column of a table.

    Attributes
    ----------
    name, title
        For the command line and for the table.
    protocols
        The protocols it can follow; ``("own",)`` if it has one of its own.
    settings
        From a protocol's name: everything that decides the result, as JSON.
    train
        From a split and the settings.
    multi_output
        Whether it predicts several targets at once.
    max_rows
        Training rows it can be asked to take.
    cost
        Rough seconds per cell at a thousand rows, for the order of work and the time left.
    needs
        A package that may be absent.
    """

    name: str
    title: str
    protocols: tuple[str, ...]
    settings: Callable[[str], Settings]
    train: Callable[[Split, Settings], Trained]
    multi_output: bool = True
    max_rows: int | None = None
    cost: float = 2.0
    needs: str | None = None

    def refuses(self, task: Task) -> str | None:
        """Return why the method cannot be run on a task, or None if it can."""
        if len(task.targets) > 1 and not self.multi_output:
            return "it has one output"
        if self.max_rows is not None and task.dataset.n > self.max_rows:
            return f"{task.dataset.n:,} rows are too many for it"
        return None


def _train_fawn(split: Split, settings: Settings) -> Trained:
    """Train the library's own estimator, with arguments that anyone can write down."""
    from varprop.estimators.regressor import FAWNRegressor
    from varprop.training.recipe import Recipe, StopRule

    options = dict(settings)
    recipe = options.pop("recipe")
    recipe = Recipe(**{**recipe, "stop": StopRule(**recipe["stop"])})
    model = FAWNRegressor(**options, recipe=recipe, random_state=split.seed % 2**31)
    y = split.y_train
    model.fit(split.x_train, y if y.shape[1] > 1 else y[:, 0])
    return Trained(
        model.predict_dist(split.x_test), model.outcome_, epochs=model.n_iter_, loss=model.loss_
    )


def _train_pbp(split: Split, settings: Settings) -> Trained:
    from varprop.baselines.pbp import PBPRegressor

    model = PBPRegressor(**_tuples(settings), random_state=split.seed % 2**31)
    model.fit(split.x_train, split.y_train[:, 0])
    return Trained(model.predict_dist(split.x_test), "max_epochs", epochs=model.n_iter_)


def _train_gp(split: Split, settings: Settings) -> Trained:
    from varprop.baselines.gp import GaussianProcess

    model = GaussianProcess(**settings, random_state=split.seed % 2**31)
    model.fit(split.x_train, split.y_train[:, 0])
    loss = -model.log_marginal_likelihood_ / len(split.y_train)
    return Trained(model.predict_dist(split.x_test), "converged", loss=loss)


def _train_ngboost(split: Split, settings: Settings) -> Trained:
    from varprop.baselines.boosting import NGBoost

    model = NGBoost(**settings, random_state=split.seed % 2**31)
    model.fit(split.x_train, split.y_train[:, 0])
    return Trained(model.predict_dist(split.x_test), "stopped early", epochs=model.n_trees_)


def _train_engine_baseline(name: str, split: Split, settings: Settings) -> Trained:
    from varprop.baselines import networks

    model = getattr(networks, name)(**settings, random_state=split.seed % 2**31)
    model.fit(split.x_train, split.y_train[:, 0])
    fits = model.fits_
    return Trained(
        model.predict_dist(split.x_test),
        ", ".join(sorted({fit.outcome.value for fit in fits})),
        epochs=max(fit.n_epochs for fit in fits),
        steps=sum(fit.n_steps for fit in fits),
        loss=float(np.mean([fit.loss for fit in fits])),
    )


def _tuples(settings: Settings) -> Settings:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}


def _fawn(name: str, title: str, *, cost: float = 3.0, **changes: Any) -> Method:
    settings = functools.partial(_fawn_settings, tuple(sorted(changes.items())))
    return Method(name, title, ("paper", "ours"), settings, _train_fawn, cost=cost)


def _fawn_settings(changes: tuple[tuple[str, Any], ...], protocol: str) -> Settings:
    """Return arguments of `FAWNRegressor`: a protocol's, the paper's network, the method's own."""
    chosen = PROTOCOLS[protocol]
    settings: Settings = {
        "hidden_layer_sizes": [50],
        "objective": "ropd",
        "recipe": dataclasses.asdict(chosen.recipe),
        "n_restarts": chosen.n_restarts,
    }
    return settings | dict(changes)


def _own(**settings: Any) -> Callable[[str], Settings]:
    return lambda protocol: dict(settings)


METHODS = {
    method.name: method
    for method in [
        _fawn("fawn-vi", "FAWN-VI", objective="vi"),
        _fawn("fawn-ropd", "FAWN-ROPD"),
        _fawn("fawn-bern", "FAWN-BERN", weights="bernoulli"),
        _fawn("co-fawn", "Co-FAWN", output_covariance=True, cost=5.0),
        dataclasses.replace(
            # Members differ by their start, so each needs only one.
            _fawn("fawn-ropd-5", "FAWN-ROPD, 5 members", n_members=5, n_restarts=1, cost=7.0),
            protocols=("ours",),
        ),
        _fawn("vi", "VI (sampled)", objective="sampled-vi", cost=6.0),
        Method(
            "pbp",
            "PBP",
            ("own",),
            _own(hidden_layer_sizes=[50], n_epochs=40),
            _train_pbp,
            multi_output=False,
            cost=5.0,
        ),
        Method(
            "gp",
            "GP",
            ("own",),
            _own(n_restarts=3),
            _train_gp,
            multi_output=False,
            max_rows=1500,
            cost=60.0,
        ),
        Method(
            "ngboost",
            "NGBoost",
            ("own",),
            _own(max_trees=2000, learning_rate=0.01),
            _train_ngboost,
            multi_output=False,
            cost=20.0,
            needs="ngboost",
        ),
        Method(
            "mc-dropout",
            "MC dropout",
            ("own",),
            _own(dropout=0.05, n_epochs=400, batch_size=32, learning_rate=1e-3, n_samples=100),
            functools.partial(_train_engine_baseline, "MCDropout"),
            multi_output=False,
        ),
        Method(
            "deep-ensemble",
            "Deep ensemble",
            ("own",),
            _own(n_members=5, n_epochs=40, batch_size=100, learning_rate=0.03),
            functools.partial(_train_engine_baseline, "DeepEnsemble"),
            multi_output=False,
        ),
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
