"""Targets of any size, the two parts of a variance, and arguments the other way round."""

import warnings

import jax
import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

import made_up
from varprop.data.source import Data
from varprop.data.statistics import Scaling, Statistics
from varprop.estimators.methods import Interval
from varprop.estimators.stack import StackedRegressor
from varprop.learning.model import regression_model
from varprop.predictive import Predictive, diagnostics, metrics
from varprop.predictive.conformal import Conformal
from varprop.predictive.importance import feature_importance
from varprop.tables.columns import NumberColumn, Preprocessing
from varprop.tables.model import TableModel, TableRows
from varprop.tables.prediction import predict_table
from varprop.tables.source import Source
from varprop.training.result import propagate

SIZES = [1e-300, 2.0**-990, 1e-120, 1e120, 2.0**990, 1e300]


def mixture(k=2, n=40, d=2, *, joint=False, seed=0):
    rng = np.random.default_rng(seed)
    members = []
    for _ in range(k):
        mean, noise = rng.normal(size=(n, d)), rng.uniform(0.1, 1, d)
        root = rng.normal(size=(n, d, d))
        cov = root @ root.swapaxes(-1, -2)
        if joint:
            members.append(Predictive.joint(mean, cov, noise))
        else:
            members.append(Predictive.gaussian(mean, np.einsum("nii->ni", cov), noise))
    return Predictive.mixture(members)


# ---- units ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("k", [1, 3])
def test_a_distribution_in_any_unit_is_the_same_one(size, joint, k):
    p = mixture(k, joint=joint)
    unit = np.array([size, 1.0])
    q = p.times(unit)
    y = p.sample(3, random_state=1)
    many = unit[:, None]
    near = {"rtol": 1e-12}
    np.testing.assert_allclose(q.mean, p.mean * unit, **near)
    np.testing.assert_allclose(q.std, p.std * unit, **near)
    np.testing.assert_allclose(q.model_std, p.model_std * unit, **near)
    np.testing.assert_allclose(q.noise_std, p.noise_std * unit, **near)
    np.testing.assert_allclose(q.quantile([0.1, 0.9]), p.quantile([0.1, 0.9]) * many, **near)
    np.testing.assert_allclose(q.interval(0.8)[1], p.interval(0.8)[1] * unit, **near)
    np.testing.assert_allclose(q.sample(3, random_state=1), y * many, **near)
    np.testing.assert_allclose(q.cdf(y * many), p.cdf(y), rtol=1e-9)
    np.testing.assert_allclose(q.logpdf(y * many), p.logpdf(y) - np.log(size), rtol=1e-9)
    each = p.marginal_logpdf(y) - np.log(many)
    np.testing.assert_allclose(q.marginal_logpdf(y * many), each, rtol=1e-9)
    np.testing.assert_allclose(
        q.marginal(0).entropy(), p.marginal(0).entropy() + np.log(size), rtol=1e-9
    )
    first = y[:, 0, 0]
    told, known = q.conditional({0: first * size}), p.conditional({0: first})
    np.testing.assert_allclose(told.mean, known.mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(told.std, known.std, rtol=1e-9)
    other, back = q.conditional({1: y[:, 1, 0]}), p.conditional({1: y[:, 1, 0]})
    np.testing.assert_allclose(other.std, back.std * size, rtol=1e-9)
    np.testing.assert_allclose(q[3:5].mean, q.mean[3:5], **near)
    np.testing.assert_allclose(q.member_moments()[0][0], p.member_mean[0] * unit, **near)


def test_variances_are_honest_where_they_have_no_number():
    p = Predictive.gaussian([[1.0, 1.0]], [[4.0, 0.0]], [0.0, 9.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert p.times(1e300).var.tolist() == [[np.inf, np.inf]]
        assert p.times(1e300).model_var.tolist() == [[np.inf, 0.0]]
        assert p.times(1e300).output_cov.tolist() == [[[np.inf, 0.0], [0.0, np.inf]]]
        assert p.times(1e-300).var.tolist() == [[0.0, 0.0]]
    assert p.times(1e-300).std.tolist() == [[2e-300, 3e-300]]


def test_a_unit_of_one_changes_no_bit():
    p = mixture(3, joint=True)
    q = p.times(1.0)
    for name in ("mean", "var", "std", "output_cov"):
        assert (getattr(p, name) == getattr(q, name)).all()
    with pytest.raises(ValueError, match="unit must be positive"):
        p.times(0.0)
    with pytest.raises(ValueError, match="one per output"):
        p.times([1.0, 1.0, 1.0])


@pytest.mark.parametrize("joint", [False, True])
def test_a_mixture_brings_its_members_to_one_unit(joint):
    a, b = mixture(1, joint=joint, seed=1), mixture(1, joint=joint, seed=2)
    unit = np.array([2.0**900, 2.0**-900])
    factor = np.array([2.0**5, 2.0**-3])
    # b is stored in other multiples than a, but is the same distribution.
    other = b._in_unit(factor).times(unit)
    assert (other.unit != a.times(unit).unit).all()
    mixed, plain = Predictive.mixture([a.times(unit), other]), Predictive.mixture([a, b])
    y = plain.mean
    np.testing.assert_allclose(mixed.std, plain.std * unit, rtol=1e-12)
    np.testing.assert_allclose(mixed.logpdf(y * unit), plain.logpdf(y), rtol=1e-9)
    # One whose own unit is 1 takes part in one that is not.
    wide = Predictive.gaussian(np.full((40, 2), 0.5), np.full((40, 2), 0.25), 0.0)
    assert np.isfinite(Predictive.mixture([wide, a.times(2.0**400)]).std).all()


@pytest.mark.parametrize("size", SIZES)
def test_metrics_at_any_size(size):
    p = mixture(2, n=60)
    y = p.sample(random_state=2)[..., 0]
    q, z = p.times(size), y * size
    weight = np.linspace(1, 2, 60)
    for name in ("rmse", "mae", "crps", "interval_score"):
        for options in ({}, {"sample_weight": weight, "multioutput": "raw_values"}):
            score = getattr(metrics, name)
            np.testing.assert_allclose(score(z, q, **options), score(y, p, **options) * size, 1e-9)
    for name in ("r2", "interval_coverage", "calibration_error"):
        score = getattr(metrics, name)
        np.testing.assert_allclose(score(z, q), score(y, p), rtol=1e-9)
    np.testing.assert_allclose(metrics.pit(z, q), metrics.pit(y, p), rtol=1e-9)
    np.testing.assert_allclose(metrics.crps_rows(z, q), metrics.crps_rows(y, p) * size, rtol=1e-9)
    assert metrics.nll(z, q) == pytest.approx(metrics.nll(y, p) + 2 * np.log(size))
    assert metrics.sharpness(q) == pytest.approx(metrics.sharpness(p) * size)
    assert metrics.interval_width(q) == pytest.approx(metrics.interval_width(p) * size)
    one, at = p.marginal(1), y[:, 1]
    for name in ("calibration_curve", "pit_histogram"):
        found = getattr(diagnostics, name)
        for left, right in zip(found(at * size, one.times(size)), found(at, one), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-9)
    groups = diagnostics.error_by_std(at * size, one.times(size))
    np.testing.assert_allclose(groups.error, diagnostics.error_by_std(at, one).error * size)


@pytest.mark.parametrize("size", SIZES)
def test_simple_models_importance_and_conformal_at_any_size(size):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 2))
    y = X @ np.array([[2.0], [0.3]]) + 1 + 0.1 * rng.normal(size=(80, 1))
    plain, large = made_up.line(X, y), made_up.line(X / size, y * size)
    p, q = plain.predict_dist(X), large.predict_dist(X / size)
    np.testing.assert_allclose(q.mean, p.mean * size, rtol=1e-6)
    np.testing.assert_allclose(q.std, p.std * size, rtol=1e-6)
    c = made_up.flat(np.array([size]), np.array([2 * size]), 3)
    assert c.mean.tolist() == [size] * 3
    np.testing.assert_allclose(c.std, 2 * size)

    class Known:
        def predict_dist(self, X):
            return plain.predict_dist(X).times(size)

    here = feature_importance(Known(), X, n_repeats=2, random_state=0)
    there = feature_importance(plain, X, n_repeats=2, random_state=0)
    np.testing.assert_allclose(here.mean, there.mean, rtol=1e-6)
    np.testing.assert_allclose(here.spread, there.spread, rtol=1e-6, atol=1e-12)
    covered = Conformal.calibrate(Known(), X, y[:, 0] * size).predict_interval(X, 0.9)
    expected = Conformal.calibrate(plain, X, y[:, 0]).predict_interval(X, 0.9)
    np.testing.assert_allclose(covered[0], expected[0] * size, rtol=1e-9)


@pytest.mark.parametrize("size", [*SIZES, 1e-90, 1e90])
def test_a_network_predicts_targets_of_any_size(size):
    model = regression_model(3, 2, key=jax.random.key(0))
    x = np.random.default_rng(0).normal(size=(5, 3))
    none = Scaling.identity(3, 2)
    one = Scaling(none.x_shift, none.x_scale, np.array([3.0, 0.0]), np.array([2.0, 5.0]))
    far = Scaling(none.x_shift, none.x_scale, one.y_shift * size, one.y_scale * size)
    p, q = (propagate(model, x, scaling=scaling) for scaling in (one, far))
    np.testing.assert_allclose(q.mean, p.mean * size, rtol=1e-9)
    np.testing.assert_allclose(q.std, p.std * size, rtol=1e-9)
    assert (q.std > 0).all()
    if 1e-100 < size < 1e100:
        assert (q.unit == 1).all()


# ---- model and noise part ---------------------------------------------------------------------


@pytest.mark.parametrize("joint", [False, True])
def test_parts_that_are_not_told_apart_are_not_told(joint):
    p = mixture(2, joint=joint)
    q = p.unsplit()
    assert p.identified
    assert not q.identified
    y = p.mean
    for name in ("mean", "var", "std", "output_cov"):
        assert (getattr(p, name) == getattr(q, name)).all()
    assert (q.logpdf(y) == p.logpdf(y)).all()
    assert metrics.sharpness(q) == metrics.sharpness(p)
    some = [q, q[:3], q.marginal(0), q.marginal([1]), q.conditional({0: 0.0}), q.times(2.0)]
    some += [Predictive.mixture([p, q]), Predictive.mixture([q, p]).marginal(1)]
    for one in some:
        assert not one.identified
        for name in ("model_var", "noise_var", "model_std", "noise_std"):
            assert not hasattr(one, name)
            with pytest.raises(AttributeError, match="objective='vi'"):
                getattr(one, name)
    for one in (p[:3], p.marginal(0), p.conditional({0: 0.0}), Predictive.mixture([p, p])):
        assert one.identified
        assert hasattr(one, "model_var")


@pytest.mark.parametrize("split", [False, True])
def test_tables_have_columns_of_the_parts_only_if_told_apart(split, monkeypatch):
    n = 6
    table = pa.table({"size": [None, None, *np.arange(4.0)], "price": np.arange(n) + 0.5})
    source = Source.of_table(table)
    regressor = StackedRegressor([]).fit(np.arange(n)[:, None], np.arange(n))
    column = NumberColumn("size", 0.5, 0.1)
    model = TableModel(regressor, Preprocessing((column,), ("price",), (), (), "drop"))
    asked = []

    def known(self, X, X_std=None, *, model=None):
        asked.append(len(X))
        p = Predictive.gaussian(X[:, 0], np.full(len(X), 9.0), 16.0)
        return p if split else p.unsplit()

    monkeypatch.setattr(StackedRegressor, "predict_dist", known)
    rows = TableRows(source, model.preprocessing, targets=False)
    found = pa.Table.from_batches(predict_table(model, rows, quantiles=(0.5,))).to_pydict()
    parts = ["model_std", "noise_std"] if split else []
    assert list(found) == ["row", "mean", "std", *parts, "lower", "upper", "q0.5", "outside"]
    assert found["mean"] == found["q0.5"] == [None, None, 0.0, 1.0, 2.0, 3.0]
    assert found["std"][2:] == [5.0] * 4
    if split:
        assert (found["model_std"][2], found["noise_std"][2]) == (3.0, 4.0)
    assert sum(asked) == 4  # every row once


# ---- arguments the other way round, and what is printed ------------------------------------------

PAIRED = ["nll", "rmse", "mae", "r2", "crps", "crps_rows", "pit", "calibration_error"]
PAIRED += ["interval_coverage", "interval_score"]


@pytest.mark.parametrize("name", PAIRED)
def test_metrics_say_which_argument_comes_first(name, as_users_run_it):
    p = Predictive.gaussian([0.0, 1.0], [1.0, 1.0], 0.0)
    y = np.array([0.0, 1.0])
    with pytest.raises(TypeError, match="observed values come first and a Predictive"):
        getattr(metrics, name)(p, y)


def test_metrics_of_distributions_say_what_they_want(as_users_run_it):
    p = Predictive.gaussian([0.0, 1.0], [1.0, 1.0], 0.0)
    for call in (
        lambda: metrics.nll([0.0, 1.0], [0.0, 1.0]),
        lambda: metrics.sharpness([0.0, 1.0]),
        lambda: diagnostics.pit_histogram(p, [0.0, 1.0]),
    ):
        with pytest.raises(TypeError, match="a Predictive"):
            call()


def test_reprs_are_short():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 20)), rng.normal(size=300)
    data = Data(X, y, np.ones(300), np.ones((300, 20)))
    p = Predictive.gaussian(y, y**2, 0.1)
    linear = made_up.line(X, y[:, None])
    things = [data, Statistics.of(data), Statistics.of(data).scaling, p, linear]
    things += [Interval(*p.interval()), Conformal.calibrate(linear, X, y)]
    things += [diagnostics.calibration_curve(y, p), diagnostics.pit_histogram(y, p)]
    things += [diagnostics.error_by_std(y, p)]
    things += [feature_importance(linear, X, n_repeats=2)]
    for thing in things:
        assert repr(thing).startswith(type(thing).__name__)
        assert len(repr(thing)) <= 240, repr(thing)


def test_a_normal_of_scipy_agrees_at_the_ends_of_the_numbers():
    for size in (1e-280, 1e280):
        p = Predictive.gaussian([1.0], [0.5], 0.5).times(size)
        ref = stats.norm(1.0, 1.0)
        np.testing.assert_allclose(p.logpdf(2 * size), ref.logpdf(2) - np.log(size), rtol=1e-12)
        np.testing.assert_allclose(p.quantile(0.3), ref.ppf(0.3) * size, rtol=1e-12)
