"""Conformal intervals keep their promise, measured by simulation in standard errors."""

import math

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from varprop import FAWNRegressor
from varprop.predictive import Predictive
from varprop.predictive.conformal import Conformal


class Wrong:
    """A model that is biased and far too sure of itself, the more so the larger x."""

    def predict_dist(self, X):
        return Predictive.gaussian(0.8 * X[:, 0], 0.01 * np.ones(len(X)), 0.0)


class WrongPair:
    def predict_dist(self, X):
        mean = np.column_stack([X[:, 0], np.zeros(len(X))])
        return Predictive.gaussian(mean, np.full_like(mean, 0.1), 0.0)


def draw(rng, n):
    X = rng.normal(size=(n, 1))
    return X, X[:, 0] + (0.5 + np.abs(X[:, 0])) * rng.standard_t(3, size=n)


@pytest.mark.parametrize(("n", "coverage"), [(9, 0.9), (30, 0.8), (99, 0.95)])
def test_coverage_is_what_theory_says(n, coverage):
    # Exact for continuous targets: coverage k / (n + 1) on average over held-out sets.
    rng = np.random.default_rng(n)
    runs, fresh = 800, 40
    shares = np.empty(runs)
    for i in range(runs):
        conformal = Conformal.calibrate(Wrong(), *draw(rng, n))
        X, y = draw(rng, fresh)
        lower, upper = conformal.predict_interval(X, coverage)
        shares[i] = ((lower <= y) & (y <= upper)).mean()
    expected = math.ceil((n + 1) * coverage - 1e-9) / (n + 1)
    error = shares.std(ddof=1) / np.sqrt(runs)
    assert coverage - 1e-9 <= expected <= coverage + 1 / (n + 1)
    assert abs(shares.mean() - expected) < 4.5 * error  # false alarm in 7 of a million runs


@pytest.mark.parametrize("joint", [False, True])
def test_several_outputs(joint):
    rng = np.random.default_rng(0)
    n, runs = 39, 600
    each, both = np.empty((runs, 2)), np.empty(runs)
    for i in range(runs):
        X, y = rng.normal(size=(n + 20, 1)), rng.standard_t(4, size=(n + 20, 2))
        conformal = Conformal.calibrate(WrongPair(), X[:n], y[:n], joint=joint)
        lower, upper = conformal.predict_interval(X[n:], 0.9)
        inside = (lower <= y[n:]) & (y[n:] <= upper)
        each[i], both[i] = inside.mean(axis=0), inside.all(axis=1).mean()
    for share in [both] if joint else each.T:
        assert abs(share.mean() - 36 / 40) < 4.5 * share.std(ddof=1) / np.sqrt(runs)


@pytest.mark.usefixtures("as_users_run_it")
def test_with_a_pipeline():
    rng = np.random.default_rng(1)
    X, y = draw(rng, 120)
    pipe = make_pipeline(StandardScaler(), FAWNRegressor(5, max_iter=20)).fit(X[:60], y[:60])
    conformal = Conformal.calibrate(pipe, X[60:], y[60:])
    lower, upper = conformal.predict_interval(X[60:], 0.9)
    assert ((lower <= y[60:]) & (y[60:] <= upper)).mean() >= 0.9
    assert conformal.factor(0.9) > conformal.factor(0.5)


def test_bad_input():
    X, y = draw(np.random.default_rng(0), 8)
    conformal = Conformal.calibrate(Wrong(), X, y)
    with pytest.raises(ValueError, match="needs at least 9 held-out rows, but there are 8"):
        conformal.predict_interval(X, 0.9)
    with pytest.raises(ValueError, match="strictly between"):
        conformal.factor(1.0)
    with pytest.raises(ValueError, match="y has shape"):
        Conformal.calibrate(Wrong(), X, y[:3])
    y[2] = np.nan
    with pytest.raises(ValueError, match="row 2"):
        Conformal.calibrate(Wrong(), X, y)
