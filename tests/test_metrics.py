"""Metrics checked against scikit-learn, integration, other definitions and simulation."""

from __future__ import annotations

import doctest
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn import metrics as sk
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from varprop import metrics, scoring
from varprop.predictive import Predictive
from varprop.predictive.scoring import scorers

# A two-sided z-test at 6 standard errors: a false alarm in 2e-9 of the comparisons.
Z_LIMIT = 6.0


def make_mixture(rng, n=5, d=2, k=3):
    members = [
        Predictive.gaussian(
            rng.standard_normal((n, d)), rng.uniform(0.1, 2.0, (n, d)), rng.uniform(0.1, 1.0, d)
        )
        for _ in range(k)
    ]
    return Predictive.mixture(members, rng.uniform(0.2, 1.0, k))


def test_doctests():
    assert doctest.testmod(metrics).failed == 0
    assert doctest.testmod(scoring).failed == 0


# ---- point errors -----------------------------------------------------------------------------


@pytest.mark.parametrize("multioutput", ["uniform_average", "raw_values"])
@pytest.mark.parametrize("weighted", [False, True])
def test_point_metrics_equal_sklearn(multioutput, weighted):
    rng = np.random.default_rng(0)
    p = make_mixture(rng, n=30)
    y = p.sample(1, rng)[..., 0]
    options = {
        "multioutput": multioutput,
        "sample_weight": rng.uniform(0, 2, 30) if weighted else None,
    }
    pairs = [
        (metrics.rmse, sk.root_mean_squared_error),
        (metrics.mae, sk.mean_absolute_error),
        (metrics.r2, sk.r2_score),
    ]
    for ours, theirs in pairs:
        expected = theirs(y, p.mean, **options)
        np.testing.assert_allclose(ours(y, p, **options), expected, rtol=1e-12)
        np.testing.assert_allclose(ours(y, p.mean, **options), expected, rtol=1e-12)


def test_r2_of_constant_targets_follows_sklearn():
    assert metrics.r2([2.0, 2.0], [2.0, 2.0]) == 1.0
    assert metrics.r2([2.0, 2.0], [2.0, 3.0]) == 0.0
    with pytest.raises(ValueError, match="two rows"):
        metrics.r2([2.0], [2.0])


def test_rmse_of_huge_errors():
    assert metrics.rmse([0.0, 0.0], [1e200, 1e200]) == pytest.approx(1e200)
    assert metrics.rmse([0.0, 0.0], [1e-200, 1e-200]) == pytest.approx(1e-200)
    assert metrics.rmse([1.0], [1.0]) == 0.0


# ---- scores -----------------------------------------------------------------------------------


def test_nll_is_joint():
    p = Predictive.joint([[0.0, 0.0]], [[[1.0, 0.9], [0.9, 1.0]]], 0.5)
    y = [[1.0, -1.0]]
    expected = -stats.multivariate_normal([0, 0], [[1.5, 0.9], [0.9, 1.5]]).logpdf(y[0])
    assert metrics.nll(y, p) == pytest.approx(expected, rel=1e-12)


def test_crps_equals_the_integral():
    rng = np.random.default_rng(1)
    for k in (1, 2, 5):
        p = make_mixture(rng, n=1, d=1, k=k)
        y = 3 * rng.standard_normal((1, 1))

        def squared(x, p=p, y=y):
            return (p.cdf(x)[0, 0] - (x >= y[0, 0])) ** 2

        left, _ = integrate.quad(squared, -40, y[0, 0], limit=400, epsabs=1e-12)
        right, _ = integrate.quad(squared, y[0, 0], 40, limit=400, epsabs=1e-12)
        assert metrics.crps(y, p) == pytest.approx(left + right, abs=1e-9)


def test_crps_against_scoringrules():
    import scoringrules as rules

    rng = np.random.default_rng(2)
    p = make_mixture(rng, n=50, d=1)
    y = p.sample(1, rng)[..., 0]
    w = np.broadcast_to(p.weights, (3, 50)).T
    s = p._member_std()[..., 0].T
    expected = rules.crps_mixnorm(y[:, 0], p.member_mean[..., 0].T, s, w)
    np.testing.assert_allclose(metrics.crps_rows(y, p)[:, 0], expected, rtol=1e-10)
    one = Predictive.gaussian(p.mean[:, 0], p.var[:, 0], 0.0)
    expected = rules.crps_normal(y[:, 0], one.mean, one.std)
    np.testing.assert_allclose(metrics.crps_rows(y[:, 0], one), expected, rtol=1e-10)


def test_crps_of_point_masses_and_extreme_scales():
    point = Predictive.gaussian([1.0], [0.0], 0.0)
    assert metrics.crps([3.0], point) == 2.0
    pair = Predictive.mixture([point, Predictive.gaussian([2.0], [0.0], 0.0)])
    # E|X - y| - E|X - X'| / 2 = 1.5 - 0.25
    assert metrics.crps([3.0], pair) == pytest.approx(1.25)
    unit = metrics.crps([0.7], Predictive.gaussian([0.0], [1.0], 0.0))
    for scale in (1e-150, 1e150):
        p = Predictive.gaussian([0.0], [scale**2], 0.0)
        assert metrics.crps([0.7 * scale], p) == pytest.approx(unit * scale, rel=1e-12)
    far = Predictive.gaussian([0.0], [1e-300], 0.0)
    assert metrics.crps([1e10], far) == pytest.approx(1e10)


def test_interval_metrics():
    p = Predictive.gaussian([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], 0.0)
    y = [0.0, 3.0, -1.0]
    z = stats.norm.ppf(0.9)
    assert metrics.interval_coverage(y, p, coverage=0.8) == pytest.approx(2 / 3)
    assert metrics.interval_width(p, coverage=0.8) == pytest.approx(2 * z)
    expected = 2 * z + 10 * (3 - z) / 3
    assert metrics.interval_score(y, p, coverage=0.8) == pytest.approx(expected)
    pair = p.interval(0.8)
    assert metrics.interval_score(y, pair, coverage=0.8) == pytest.approx(expected)
    assert metrics.interval_coverage(y, pair) == pytest.approx(2 / 3)
    endless = (np.full(3, -np.inf), np.full(3, np.inf))
    assert metrics.interval_coverage(y, endless) == 1.0


@pytest.mark.parametrize("name", ["nll", "crps", "interval_score"])
def test_proper_scores_prefer_the_truth(name):
    rng = np.random.default_rng(3)
    n = 20_000
    mean = rng.standard_normal(n)
    truth = Predictive.gaussian(mean, np.full(n, 1.0), 0.0)
    y = truth.sample(1, rng)[..., 0]
    score = getattr(metrics, name)
    rivals = [
        Predictive.gaussian(mean, np.full(n, 0.6), 0.0),
        Predictive.gaussian(mean, np.full(n, 1.6), 0.0),
        Predictive.gaussian(mean + 0.3, np.full(n, 1.0), 0.0),
    ]
    assert all(score(y, truth) < score(y, rival) for rival in rivals)


# ---- calibration ------------------------------------------------------------------------------


def test_calibrated_predictions_look_calibrated():
    rng = np.random.default_rng(4)
    n = 20_000
    p = make_mixture(rng, n=n, d=1)
    y = p.sample(1, rng)[..., 0]
    # False alarms: 1e-9 for the first, 2e-9 for each of the others.
    assert stats.kstest(metrics.pit(y, p)[:, 0], "uniform").pvalue > 1e-9
    for coverage in (0.5, 0.9):
        z = (metrics.interval_coverage(y, p, coverage=coverage) - coverage) * np.sqrt(
            n / (coverage * (1 - coverage))
        )
        assert abs(z) < Z_LIMIT
    # By the Dvoretzky-Kiefer-Wolfowitz inequality: P(max > e) <= 2 exp(-2 n e^2) = 1e-9.
    assert metrics.calibration_error(y, p, kind="max") < np.sqrt(np.log(2e9) / (2 * n))
    assert metrics.calibration_error(y, p) <= metrics.calibration_error(y, p, kind="max")
    residual = (y - p.mean) ** 2 - p.var
    z = residual.mean() / residual.std() * np.sqrt(n)
    assert abs(z) < Z_LIMIT
    assert metrics.sharpness(p) == pytest.approx(np.sqrt(p.var.mean()), rel=1e-12)


def test_calibration_error_is_the_gap_of_interval_coverage():
    rng = np.random.default_rng(5)
    a, b = (
        make_mixture(rng, n=200),
        Predictive.gaussian(np.zeros((200, 2)), np.zeros((200, 2)), 0.0),
    )
    p = Predictive.mixture([a, b])  # with point masses at zero
    y = p.sample(1, rng)[..., 0]
    w = rng.uniform(0, 1, 200)
    levels = np.array([0.1, 0.37, 0.8, 0.95])
    options = {"sample_weight": w, "multioutput": "raw_values"}
    gaps = np.array([metrics.interval_coverage(y, p, coverage=c, **options) - c for c in levels])
    got = metrics.calibration_error(y, p, levels=levels, **options)
    np.testing.assert_allclose(got, np.sqrt((gaps**2).mean(axis=0)), atol=1e-12)
    got = metrics.calibration_error(y, p, levels=levels, kind="max", **options)
    np.testing.assert_allclose(got, np.abs(gaps).max(axis=0), atol=1e-12)


def test_exact_point_predictions_count_as_covered():
    p = Predictive.gaussian([1.0, 2.0], [0.0, 0.0], 0.0)
    assert metrics.interval_coverage([1.0, 2.0], p) == 1.0
    assert metrics.calibration_error([1.0, 2.0], p, levels=[0.9]) == pytest.approx(0.1)


# ---- weights and shapes -----------------------------------------------------------------------

WITH_TARGETS = ["nll", "rmse", "mae", "r2", "crps", "interval_coverage", "interval_score"]
WITH_TARGETS += ["calibration_error"]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_a_weight_of_two_is_the_row_twice(seed):
    rng = np.random.default_rng(seed)
    p = make_mixture(rng, n=6)
    y = p.sample(1, rng)[..., 0]
    count = rng.integers(0, 4, 6)
    count[:2] = 1
    rows = np.repeat(np.arange(6), count)
    for name in WITH_TARGETS:
        f = getattr(metrics, name)
        weighted = f(y, p, sample_weight=count)
        assert weighted == pytest.approx(f(y[rows], p[rows]), rel=1e-10, abs=1e-12), name
    for f in (metrics.sharpness, metrics.interval_width):
        assert f(p, sample_weight=count) == pytest.approx(f(p[rows]), rel=1e-10)


@pytest.mark.parametrize("shape", [(1,), (4,), (1, 1), (4, 1), (4, 3)])
def test_shapes(shape):
    p = Predictive.gaussian(np.zeros(shape), np.ones(shape), 0.0)
    y = np.ones(shape)
    assert metrics.pit(y, p).shape == shape
    assert metrics.crps_rows(y, p).shape == shape
    for name in WITH_TARGETS:
        if name == "r2" and shape[0] == 1:
            continue
        assert type(getattr(metrics, name)(y, p)) is float
        if name != "nll":
            raw = getattr(metrics, name)(y, p, multioutput="raw_values")
            assert raw.shape == (shape[1] if len(shape) == 2 else 1,)


P = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.nll([[0.0], [0.0]], P), r"y_true has shape \(2, 1\)"),
        (lambda: metrics.rmse([0.0], P), "y_true has shape"),
        (lambda: metrics.crps([0.0, np.nan], P), "y_true is not finite at row 1"),
        (lambda: metrics.rmse([], []), "at least one row"),
        (lambda: metrics.mae([0.0, 0.0], P, sample_weight=[1.0]), "sample_weight has shape"),
        (lambda: metrics.mae([0.0, 0.0], P, sample_weight=[1.0, -1.0]), "not negative"),
        (lambda: metrics.mae([0.0, 0.0], P, sample_weight=[0.0, 0.0]), "all zero"),
        (lambda: metrics.interval_score([0.0, 0.0], P, coverage=0.0), "strictly between"),
        (lambda: metrics.interval_score([0.0], ([1.0], [0.0])), "lower must not exceed upper"),
        (lambda: metrics.interval_score([0.0], ([0.0], [1.0]), coverage=2.0), "strictly between"),
        (lambda: metrics.interval_coverage([0.0], ([np.nan], [1.0])), "NaN"),
        (lambda: metrics.calibration_error([0.0, 0.0], P, levels=[1.0]), "levels"),
        (lambda: scorers(coverage=1.0), "strictly between"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- scorers ----------------------------------------------------------------------------------


class DistRegressor(RegressorMixin, BaseEstimator):
    """Least squares with a constant spread: the smallest estimator with predict_dist."""

    def __init__(self, inflate=1.0):
        self.inflate = inflate

    def fit(self, X, y):
        self.line_ = LinearRegression().fit(X, y)
        self.noise_ = self.inflate * np.mean((y - self.line_.predict(X)) ** 2)
        return self

    def predict(self, X):
        return self.line_.predict(X)

    def predict_dist(self, X):
        mean = self.predict(X)
        return Predictive.gaussian(mean, np.zeros_like(mean), self.noise_)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(6)
    X = rng.standard_normal((120, 3))
    return X, X @ [1.0, 2.0, 3.0] + rng.standard_normal(120)


def test_scorers_in_cross_validation(data):
    X, y = data
    scores = cross_validate(DistRegressor(), X, y, cv=3, scoring=scorers(coverage=0.8))
    for name in scorers():
        assert np.isfinite(scores[f"test_{name}"]).all()
    r2 = cross_val_score(DistRegressor(), X, y, cv=3, scoring="r2")
    np.testing.assert_allclose(scores["test_r2"], r2)
    fitted = DistRegressor().fit(X, y)
    p = fitted.predict_dist(X)
    every = scorers(coverage=0.8)
    assert every["nll"](fitted, X, y) == -metrics.nll(y, p)
    assert every["interval_width"](fitted, X, y) == -metrics.interval_width(p, coverage=0.8)
    assert every["interval_coverage"](fitted, X, y) == metrics.interval_coverage(y, p, coverage=0.8)


def test_scorers_select_pickle_and_weigh(data):
    X, y = data
    scorer = pickle.loads(pickle.dumps(scorers()["nll"]))
    search = GridSearchCV(DistRegressor(), {"inflate": [0.01, 1.0, 100.0]}, scoring=scorer).fit(
        X, y
    )
    assert search.best_params_ == {"inflate": 1.0}
    pipe = make_pipeline(StandardScaler(), DistRegressor()).fit(X, y)
    assert scorer(pipe, X, y) == pytest.approx(scorer(DistRegressor().fit(X, y), X, y))
    assert scorer(search, X, y) == scorer(search.best_estimator_, X, y)
    w = np.arange(120.0)
    expected = -metrics.nll(y, pipe[-1].predict_dist(pipe[0].transform(X)), sample_weight=w)
    assert scorer(pipe, X, y, sample_weight=w) == pytest.approx(expected)
    with pytest.raises(TypeError, match="LinearRegression has no predict_dist"):
        scorer(LinearRegression().fit(X, y), X, y)


def test_scorers_take_part_in_metadata_routing(data):
    from sklearn import config_context

    X, y = data
    w = np.linspace(0, 1, 120)
    scorer = scorers()["crps"].set_score_request(sample_weight=True)
    with config_context(enable_metadata_routing=True):
        got = cross_val_score(
            DistRegressor(), X, y, cv=2, scoring=scorer, params={"sample_weight": w}
        )
    half = DistRegressor().fit(X[60:], y[60:]).predict_dist(X[:60])
    assert got[0] == pytest.approx(-metrics.crps(y[:60], half, sample_weight=w[:60]))
