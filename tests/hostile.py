"""Tables that make a model far too sure: spikes, copies, weights, tails, outliers, few rows, sizes.

Each case makes training rows, weights (or None) and test rows of the same kind from a generator;
most have 200 rows of 5 columns, so that few programs are compiled. `judge` fits to one of them and
scores it beside the constant Gaussian, which knows nothing but the training targets.
"""

import dataclasses
import warnings
from collections.abc import Callable

import numpy as np

from varprop import metrics
from varprop.predictive import Predictive

N_ROWS, N_TEST = 200, 500


def friedman(rng, n, *, noise=1.0, columns=5):
    X = rng.uniform(size=(n, columns))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    return X, y + 10 * X[:, 3] + 5 * X[:, 4] + noise * rng.normal(size=n)


@dataclasses.dataclass(frozen=True)
class Case:
    """A table, and by how much a model may be worse than the constant Gaussian in nats."""

    make: Callable
    n_rows: int = N_ROWS
    copies: int = 1
    weight: Callable | None = None
    spoil: Callable | None = None  # of the training rows alone
    nats: float = 0.1

    def tables(self, seed):
        """Return X, y, weights, and X, y to test on."""
        rng = np.random.default_rng(seed)
        X, y = self.make(rng, self.n_rows)
        if self.spoil is not None:
            X, y = self.spoil(X, y)
        X, y = np.repeat(X, self.copies, axis=0), np.repeat(y, self.copies)
        weight = None if self.weight is None else self.weight(len(X))
        return X, y, weight, *self.make(np.random.default_rng(1000 + seed), N_TEST)


def changed(change, **options):
    """Return what makes Friedman's table with its targets changed."""

    def make(rng, n):
        X, y = friedman(rng, n, **options)
        return X, change(rng, y)

    return make


def mostly(value, share):
    """Replace a share of the targets by one value, at random."""
    return changed(lambda rng, y: np.where(rng.uniform(size=len(y)) < share, value, y))


def two_spikes(rng, y):
    u = rng.uniform(size=len(y))
    return np.where(u < 0.4, 0.0, np.where(u < 0.8, 30.0, y))


def collinear(rng, n):
    X, _ = friedman(rng, n)
    X[:, 3], X[:, 4] = 2 * X[:, 0] - X[:, 1], 7.0
    return X, 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 5 * X[:, 2] + rng.normal(size=n)


def wide(rng, n):
    X = rng.normal(size=(n, 500))
    return X, 2 * X[:, 0] - X[:, 1] + X[:, 2] + rng.normal(size=n)


def scaled(x, y):
    def make(rng, n):
        X, target = friedman(rng, n)
        return X * x, target * y

    return make


def outlier_in_x(X, y):
    X = X.copy()
    X[7, 2] = 1e6
    return X, y


def outlier_in_y(X, y):
    y = y.copy()
    y[7] = 1e6
    return X, y


CASES = {
    **{f"{share:.0%} zeros": Case(mostly(0.0, share)) for share in (0.5, 0.9, 0.95, 0.99)},
    "clipped at 0": Case(changed(lambda rng, y: np.maximum(y - 20, 0))),
    "two spikes": Case(changed(two_spikes)),
    "rounded to 1": Case(changed(lambda rng, y: np.round(y))),
    "rounded to 10": Case(changed(lambda rng, y: 10 * np.round(y / 10))),
    "yes or no": Case(changed(lambda rng, y: (y > 14).astype(float))),
    **{f"rows {k} times": Case(friedman, copies=k) for k in (2, 10, 100)},
    "weights 1/n": Case(friedman, weight=lambda n: np.full(n, 1 / n)),
    "weights 1e6": Case(friedman, weight=lambda n: np.full(n, 1e6)),
    "Cauchy noise": Case(changed(lambda rng, y: y + rng.standard_cauchy(len(y)), noise=0)),
    "t noise, 2 degrees": Case(changed(lambda rng, y: y + rng.standard_t(2, len(y)), noise=0)),
    "outlier in x": Case(friedman, spoil=outlier_in_x),
    "outlier in y": Case(friedman, spoil=outlier_in_y),
    "2 rows": Case(friedman, n_rows=2, nats=0.5),
    "3 rows": Case(friedman, n_rows=3, nats=0.5),
    "20 rows": Case(friedman, n_rows=20),
    "100 rows, 500 columns": Case(wide, n_rows=100),
    "collinear, constant columns": Case(collinear),
    **{f"targets of {size:g}": Case(scaled(1.0, size)) for size in (1e-300, 1e-200, 1e200, 1e300)},
    **{f"inputs of {size:g}": Case(scaled(size, 1.0)) for size in (1e-300, 1e-200, 1e200, 1e300)},
    "function of one column": Case(lambda rng, n: (X := rng.normal(size=(n, 5)), 3 * X[:, 0])),
    "pure noise": Case(lambda rng, n: (rng.normal(size=(n, 5)), rng.normal(size=n))),
    "no trap": Case(friedman),
}


@dataclasses.dataclass(frozen=True)
class Judgement:
    """Scores on test rows: of the model, and of the constant Gaussian."""

    nll: float
    constant_nll: float
    crps: float
    constant_crps: float
    coverage: float
    told: tuple[str, ...]

    @property
    def behind(self):
        """Nats by which the model is worse than knowing nothing."""
        return self.nll - self.constant_nll

    @property
    def crps_ratio(self):
        return self.crps / self.constant_crps


def constant(y, n_rows):
    """The training targets' mean and standard deviation, by hand and without overflow."""
    unit = np.abs(y).max()
    z = y / unit
    mean, std = np.full(n_rows, z.mean()), z.std()
    return Predictive.gaussian(mean, 0 * mean, std**2).times(unit)


def judge(model, case, seed):
    """Fit a model to a case and score it on new rows."""
    X, y, weight, X_test, y_test = case.tables(seed)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X, y, weight)
        found = model.predict_dist(X_test)
    nothing = constant(y, len(y_test))
    return Judgement(
        metrics.nll(y_test, found),
        metrics.nll(y_test, nothing),
        metrics.crps(y_test, found),
        metrics.crps(y_test, nothing),
        metrics.interval_coverage(y_test, found),
        tuple(str(warning.message) for warning in told),
    )
