"""Mixtures of different kinds, against mixtures of Gaussians, quadrature, SciPy and draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import ndtr

from truth import sampling_z, threshold
from varprop.predictive import (
    Blend,
    Log,
    Predictive,
    Warped,
    YeoJohnson,
    diagnostics,
    mixture,
    scorecard,
)
from varprop.predictive.conformal import Conformal
from varprop.predictive.importance import feature_importance

ALPHA = np.array([1e-9, 0.03, 0.5, 0.92, 1 - 1e-9])


def gaussians(d=1):
    shape = (3,) if d == 1 else (3, d)
    rng = np.random.default_rng(0)
    return [
        Predictive.gaussian(rng.normal(2, 1, shape), rng.uniform(0.1, 1, shape), noise)
        for noise in (0.3, 0.9)
    ]


def warped(d=1, shift=0.0):
    return Warped(gaussians(d)[0], Log(0.6, shift))


def blend(weights=(0.2, 0.5, 0.3)):
    """Two Gaussians and a log-normal of three rows."""
    return mixture([*gaussians(), warped()], weights)


def by_scipy(row):
    """The same as lists of SciPy's distributions and weights."""
    parts = []
    for p in gaussians():
        parts.append(stats.norm(p.mean[row], p.std[row]))
    z = gaussians()[0]
    parts.append(stats.lognorm(0.6 * z.std[row], scale=np.exp(0.6 * z.mean[row])))
    return parts, (0.2, 0.5, 0.3)


def test_a_blend_of_gaussians_is_their_mixture():
    """As parts of their own, which `mixture` would have made one."""
    parts = gaussians(2)
    weights = np.array([[0.3, 0.9, 0.0], [0.7, 0.1, 1.0]])
    found, truth = Blend(tuple(parts), weights), Predictive.mixture(parts, weights)
    for name in ("mean", "std", "var", "model_var", "noise_var", "model_std", "noise_std"):
        np.testing.assert_allclose(getattr(found, name), getattr(truth, name), rtol=1e-12)
    y = truth.quantile(ALPHA)
    np.testing.assert_allclose(found.quantile(ALPHA), y, rtol=1e-13)
    for name in ("cdf", "survival", "logpdf", "marginal_logpdf"):
        np.testing.assert_allclose(getattr(found, name)(y), getattr(truth, name)(y), rtol=1e-11)
    for i in range(len(ALPHA)):
        np.testing.assert_allclose(found.crps(y[..., i]), truth.crps(y[..., i]), rtol=1e-11)
    np.testing.assert_allclose(found.crps(1e6 + 0 * y[..., 0]), truth.crps(1e6 + 0 * y[..., 0]))


def test_the_simplest_class_comes_out():
    a, b = gaussians()
    w, v = warped(), warped(shift=1.0)
    assert mixture([w]) is w
    assert isinstance(mixture([a, b]), Predictive)
    assert isinstance(mixture([w, w]), Warped)
    assert len(mixture([w, v]).parts) == 2
    nested = mixture([mixture([a, w], [0.2, 0.8]), mixture([b, v, w], [1, 2, 1]), b], [1, 2, 1])
    assert [type(part).__name__ for part in nested.parts] == ["Predictive", "Warped", "Warped"]
    y = np.array([0.5, 2.0, 4.0])
    truth = 0.05 * a.cdf(y) + 0.2 * w.cdf(y) + 0.5 * (b.cdf(y) + 2 * v.cdf(y) + w.cdf(y)) / 4
    np.testing.assert_allclose(nested.cdf(y), truth + 0.25 * b.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(Blend.mixture([nested, nested]).cdf(y), nested.cdf(y), rtol=1e-12)
    # Rows have weights of their own, and some parts none.
    rows = mixture([a, w, b], [[1.0, 0.0, 0.5], [0.0, 2.0, 0.5], [0.0, 0.0, 1.0]])
    expected = [a.cdf(y)[0], w.cdf(y)[1], (0.5 * a.cdf(y) + 0.5 * w.cdf(y) + b.cdf(y))[2] / 2]
    np.testing.assert_allclose(rows.cdf(y), expected, rtol=1e-12)
    np.testing.assert_allclose(rows.mean[:2], [a.mean[0], w.mean[1]], rtol=1e-12)
    np.testing.assert_allclose(rows.quantile(0.2)[:2], [a.quantile(0.2)[0], w.quantile(0.2)[1]])


def test_it_is_the_weighted_sum_of_its_parts():
    p = blend()
    y = np.array([-1.0, 0.7, 5.0])
    for row in range(3):
        parts, weights = by_scipy(row)

        def average(name, at, parts=parts, weights=weights):
            return sum(w * getattr(q, name)(at) for w, q in zip(weights, parts, strict=True))

        for at in y:
            assert p.cdf(at)[row] == pytest.approx(average("cdf", at), rel=1e-11)
            assert p.survival(at)[row] == pytest.approx(average("sf", at), rel=1e-11)
            assert p.pdf(at)[row] == pytest.approx(average("pdf", at), rel=1e-11)
            assert p.marginal_logpdf(at)[row] == pytest.approx(np.log(average("pdf", at)))
        mean = sum(w * q.mean() for w, q in zip(weights, parts, strict=True))
        second = sum(w * (q.var() + q.mean() ** 2) for w, q in zip(weights, parts, strict=True))
        assert p.mean[row] == pytest.approx(mean, rel=1e-12)
        assert p.var[row] == pytest.approx(second - mean**2, rel=1e-10)
        noise = 0.2 * 0.3 + 0.5 * 0.9 + 0.3 * warped().noise_var[row]
        assert p.noise_var[row] == pytest.approx(noise, rel=1e-12)
        for at in y:
            low = integrate.quad(lambda x: average("cdf", x) ** 2, -30, at, limit=300)[0]
            high = integrate.quad(lambda x: average("sf", x) ** 2, at, at + 5, limit=300)[0]
            high += integrate.quad(lambda x: average("sf", x) ** 2, at + 5, 2e3, limit=500)[0]
            assert p.crps(np.full(3, at))[row] == pytest.approx(low + high, rel=1e-6)


def test_outputs_are_joint_within_a_part():
    a = Predictive.joint([[0.0, 1.0]], [[[1.0, 0.9], [0.9, 1.0]]], 0.1)
    b = Warped(a, Log(0.5, [0.0, 1.0]))
    p = mixture([a, b], [0.4, 0.6])
    y = np.array([[0.8, 1.7]])
    truth = np.log(0.4 * a.pdf(y) + 0.6 * b.pdf(y))
    np.testing.assert_allclose(p.logpdf(y), truth, rtol=1e-12)
    assert abs(p.logpdf(y)[0] - p.marginal_logpdf(y).sum()) > 0.1
    np.testing.assert_allclose(p.marginal(1).cdf(y[:, 1]), p.cdf(y)[:, 1], rtol=1e-13)
    np.testing.assert_allclose(p.marginal([1, 0]).logpdf(y[:, ::-1]), p.logpdf(y), rtol=1e-12)
    drawn = p.sample(20_000, random_state=0)
    assert drawn.shape == (1, 2, 20_000)
    inside = (drawn <= y[..., None]).all(axis=1).mean()
    n = 20_000
    first, second = a.sample(10 * n, 1), b.sample(10 * n, 2)
    share = 0.4 * (first <= y[..., None]).all(axis=1).mean()
    share += 0.6 * (second <= y[..., None]).all(axis=1).mean()
    assert abs(inside - share) < 5 * np.sqrt(1.1 * share * (1 - share) / n)


def test_draws_have_the_stated_moments_and_quantiles():
    """False alarms: 1e-4 in all."""
    p, n = blend(), 40_000
    drawn = p.sample(n, random_state=7)
    z_mean, z_var = sampling_z(drawn.T, p.mean, p.var)
    alpha = np.array([0.05, 0.5, 0.95])
    share = (drawn[..., None] <= p.quantile(alpha)[:, None]).mean(axis=1)
    z = np.concatenate(
        [z_mean, z_var, np.ravel((share - alpha) / np.sqrt(alpha * (1 - alpha) / n))]
    )
    assert np.abs(z).max() < threshold(1e-4, len(z))


def test_quantiles_stop_at_point_masses():
    spike = Predictive.gaussian([0.0, 0.1, 1e-7], [0.0] * 3, 0.0)
    smooth = Warped(Predictive.gaussian([0.0] * 3, [1.0] * 3, 0.0), YeoJohnson(0.5, 0.0, 1.0))
    p = mixture([spike, smooth], [0.5, 0.5])
    for alpha in (0.3, 0.5, 0.7):
        assert p.quantile(alpha).tolist() == [0.0, 0.1, 1e-7]
    assert (p.quantile(0.1) < 0).all()
    np.testing.assert_allclose(p.cdf(p.quantile(0.9)), 0.9, rtol=1e-13)
    y = spike.mean
    np.testing.assert_allclose(p.cdf(y) - p.cdf(y, left=True), 0.5, rtol=1e-13)
    assert (p.logpdf(y) == np.inf).all()

    def gap(x, m):
        """What is squared, half of it a step."""
        z = 2 * (np.sqrt(1 + x) - 1) if x > 0 else -((1 - x) ** 1.5 - 1) / 1.5
        return 0.5 * (x >= m) + 0.5 * ndtr(z) - (x >= 1.0)

    cuts = {"points": [0.0, 1.0, 3.0], "limit": 500}
    truth = [integrate.quad(lambda x, m=m: gap(x, m) ** 2, -30, 60, **cuts)[0] for m in y]
    np.testing.assert_allclose(p.crps(np.ones(3)), truth, rtol=1e-6)


def test_quantiles_far_apart_and_endless():
    far = Warped(Predictive.gaussian([20.0], [0.01], 0.0), Log(1.0, 0.0))
    near = Predictive.gaussian([0.0], [1.0], 0.0)
    p = mixture([near, far], [0.9, 0.1])
    np.testing.assert_allclose(p.quantile(0.45), [0.0], atol=1e-12)
    np.testing.assert_allclose(p.quantile(0.95), far.quantile(0.5), rtol=1e-12)
    endless = Warped(Predictive.gaussian([0.0], [1.0], 0.0), YeoJohnson(-1.0, 0.0, 1.0))
    q = mixture([near, endless])
    assert q.quantile(0.999).tolist() == [np.inf]
    np.testing.assert_allclose(q.cdf(q.quantile(0.9)), 0.9, rtol=1e-12)
    # With room between: the part that ends is not in the way of what lies below it.
    low = mixture([near, endless], [0.99, 0.01]).quantile(0.99)
    assert np.isfinite(low).all()


def test_rows_and_parts_told_apart():
    p = blend()
    y = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(p[1:].crps(y[1:]), p.crps(y)[1:])
    np.testing.assert_array_equal(p[0].quantile(0.3), p.quantile(0.3)[:1])
    refused = p.unsplit()
    assert not refused.identified
    assert not hasattr(refused, "model_var")
    np.testing.assert_allclose(refused.var, p.var, rtol=1e-12)
    half = mixture([gaussians()[0].unsplit(), warped()], [0.5, 0.5])
    assert not half.identified
    with pytest.raises(ValueError, match=r"Member 1 has shape \(2,\)"):
        mixture([p, p[1:]])


def test_the_rest_of_the_house_takes_it():
    """Scorecard, judgement, verdict, conformal intervals and importances."""
    rng = np.random.default_rng(1)
    n = 400
    x = rng.uniform(0, 1, (n, 2))

    class Model:
        """Log-normal with a mean that the first column moves, mixed with a wide Gaussian."""

        def predict_dist(self, X):
            m = 1 + np.asarray(X)[:, 0]
            skewed = Warped(Predictive.gaussian(m, 0 * m + 0.01, 0.15), Log(1.0, 0.0))
            return mixture([skewed, Predictive.gaussian(m + 3, 0 * m, 4.0)], [0.8, 0.2])

    p = Model().predict_dist(x)
    y = p.sample(1, random_state=2)[:, 0]
    card = scorecard.scores(y, p)
    assert abs(card["coverage 90 %"] - 0.9) < 4 * np.sqrt(0.09 / n)
    assert abs(card["coverage 50 %"] - 0.5) < 4 * np.sqrt(0.25 / n)
    assert diagnostics.judge(y, p) == diagnostics.Judgement("good", "")
    wide = Predictive.gaussian(np.full(n, y.mean()), np.zeros(n), 4 * y.var())
    said = scorecard.verdict(y, {scorecard.MODEL: p, scorecard.CONSTANT: wide})
    assert said.startswith("This model is clearly better")
    conformal = Conformal.calibrate(Model(), x[:200], y[:200])
    lower, upper = conformal.predict_interval(x[200:], coverage=0.9)
    held = ((lower <= y[200:]) & (y[200:] <= upper)).mean()
    assert abs(held - 0.9) < 4 * np.sqrt(0.09 / 100)
    importance = feature_importance(Model(), x, random_state=0)
    np.testing.assert_allclose(importance.mean, [1.0, 0.0], atol=0.1)


def test_conformal_refuses_endless_predictions():
    p = Warped(Predictive.gaussian([0.0], [1.0], 0.0), YeoJohnson(-1.0, 0.0, 1.0))
    with pytest.raises(ValueError, match="not finite at row 0"):
        Conformal.of(p, [1.0])


@given(
    means=st.tuples(st.floats(-50, 50), st.floats(-3, 3)),
    stds=st.tuples(st.floats(1e-3, 10), st.floats(1e-3, 2)),
    weight=st.floats(0.01, 0.99),
    alpha=st.floats(1e-6, 1 - 1e-6),
)
def test_quantile_and_cdf_undo_each_other(means, stds, weight, alpha):
    a = Predictive.gaussian([means[0]], [stds[0] ** 2], 0.0)
    b = Warped(Predictive.gaussian([means[1]], [stds[1] ** 2], 0.0), Log(1.0, 0.0))
    p = mixture([a, b], [weight, 1 - weight])
    x = p.quantile(alpha)
    slack = p.pdf(x)[0] * np.spacing(abs(x[0])) * 4
    # Where all there is has been passed to the last digit, the cdf is flat.
    assert abs(p.cdf(x)[0] - alpha) < 1e-12 + slack
