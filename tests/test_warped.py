"""Targets that are Gaussian on another scale, against SciPy, mpmath, quadrature and draws."""

import mpmath as mp
import numpy as np
import pytest
import scoringrules
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from truth import sampling_z, threshold
from varprop.predictive import Blend, Log, Predictive, Warped, YeoJohnson, mixture
from varprop.predictive.warps import hermite_moments

ALPHA = np.array([1e-6, 0.05, 0.5, 0.9, 0.999])
POWERS = (0.0, 1e-9, 0.3, 1.0, 1.7, 2.0 - 1e-9, 2.0)


def lognormal(mean=(0.5, -1.0, 3.0), model=0.3, noise=0.7, scale=1.5, shift=0.2):
    """A prediction and the same by SciPy."""
    mean = np.asarray(mean)
    p = Warped(Predictive.gaussian(mean, np.full(len(mean), model), noise), Log(scale, shift))
    s = scale * np.sqrt(model + noise)
    return p, stats.lognorm(s, scale=np.exp(shift + scale * mean))


def two_outputs():
    latent = Predictive.mixture(
        [
            Predictive.joint([[0.0, 1.0]] * 2, [[[1.0, 0.6], [0.6, 0.8]]] * 2, 0.3),
            Predictive.gaussian([[2.0, -1.0]] * 2, [[0.2, 0.1]] * 2, [0.3, 0.4]),
        ],
        [0.7, 0.3],
    )
    return Warped(latent, YeoJohnson([0.3, 1.4], [1.0, -2.0], [2.0, 0.5]))


def yeo_johnson(y, power):
    """The definition, in 50 digits."""
    with mp.workdps(50):
        y, power = mp.mpf(float(y)), mp.mpf(float(power))
        p, sign = (power, 1) if y >= 0 else (2 - power, -1)
        size = abs(y)
        return float(sign * (mp.log1p(size) if p == 0 else ((1 + size) ** p - 1) / p))


@pytest.mark.parametrize("power", [*POWERS, -0.5, 2.5])
def test_yeo_johnson_is_its_definition_at_any_size(power):
    y = np.array([-1e12, -3.0, -1e-9, 0.0, 1e-12, 0.7, 40.0, 1e15])
    warp = YeoJohnson(power, 0.0, 1.0)
    truth = np.array([yeo_johnson(one, power) for one in y])
    np.testing.assert_allclose(warp.forward(y[:, None])[:, 0], truth, rtol=1e-13, atol=0)
    near = np.abs(y) < 1e6  # farther out a bounded z has no digits left to tell y from
    back = warp.inverse(truth[near][:, None])[:, 0]
    np.testing.assert_allclose(back, y[near], rtol=1e-9 if 0 <= power <= 2 else 1e-6, atol=0)
    step = 1e-6 * np.maximum(np.abs(y[near]), 1.0)
    slope = [
        (yeo_johnson(one + h, power) - yeo_johnson(one - h, power)) / (2 * h)
        for one, h in zip(y[near], step, strict=True)
    ]
    np.testing.assert_allclose(
        np.exp(warp.log_slope(y[near][:, None])[:, 0]), slope, rtol=1e-7, atol=0
    )


def test_a_bounded_scale_ends_in_infinity():
    warp = YeoJohnson(-0.5, 0.0, 1.0)  # z < 2
    assert warp.inverse(np.array([2.0, 5.0, -5.0]))[:2].tolist() == [np.inf, np.inf]
    p = Warped(Predictive.gaussian([0.0], [1.0], 0.0), warp)
    assert np.isfinite(p.quantile(0.97)).all()
    assert p.quantile(0.98).tolist() == [np.inf] == p.mean.tolist() == p.std.tolist()
    mirrored = Warped(Predictive.gaussian([0.0], [1.0], 0.0), YeoJohnson(2.5, 0.0, 1.0))
    assert mirrored.quantile(0.02).tolist() == [-np.inf] == mirrored.mean.tolist()


def test_a_log_normal_is_scipys():
    p, truth = lognormal()
    np.testing.assert_allclose(p.quantile(ALPHA).T, truth.ppf(ALPHA[:, None]), rtol=1e-12)
    np.testing.assert_allclose(p.mean, truth.mean(), rtol=1e-13)
    np.testing.assert_allclose(p.var, truth.var(), rtol=1e-13)
    np.testing.assert_allclose(p.std, truth.std(), rtol=1e-13)
    y = p.quantile([0.01, 0.4, 0.99])
    np.testing.assert_allclose(p.logpdf(y).T, truth.logpdf(y.T), rtol=1e-12)
    np.testing.assert_allclose(p.marginal_logpdf(y).T, truth.logpdf(y.T), rtol=1e-12)
    np.testing.assert_allclose(p.cdf(y).T, truth.cdf(y.T), rtol=1e-12)
    far = p.quantile(1 - 1e-9)
    np.testing.assert_allclose(p.survival(10 * far), truth.sf(10 * far), rtol=1e-10)
    for y in (0.0, -1.0):
        assert p.cdf(y).tolist() == [0.0] * 3 == p.pdf(y).tolist()
        assert p.survival(y).tolist() == [1.0] * 3
    assert p.pdf(np.inf).tolist() == [0.0] * 3


@pytest.mark.parametrize("std", [0.1, 1.0, 3.0])
def test_crps_of_a_log_normal_is_closed(std, monkeypatch):
    y = np.array([-2.0, 0.0, 1e-3, 0.5, 1.6, 30.0, 1e9])
    z = np.full(len(y), 0.5)
    p = Warped(Predictive.gaussian(z, 0 * z, std**2), Log(1.0, 0.0))
    truth = scoringrules.crps_lognormal(np.maximum(y, 1e-300), 0.5, std)
    truth = truth + np.maximum(-y, 0.0)  # all of the distribution is above
    np.testing.assert_allclose(p.crps(y), truth, rtol=1e-8)
    with monkeypatch.context() as patch:  # however little memory there is: row by row
        patch.setattr("varprop.predictive.warped._VALUES", 1)
        np.testing.assert_allclose(p.crps(y), truth, rtol=1e-8)
    alone = Blend((p,), np.ones((1, 1)))  # on the target's own scale
    np.testing.assert_allclose(alone.crps(y), truth, rtol=1e-6)


def test_power_one_is_the_gaussian():
    mean, var = np.array([[0.3, -5.0], [2.0, 1e3]]), np.array([[0.2, 1.0], [0.1, 50.0]])
    shift, scale = np.array([1.0, -3.0]), np.array([2.0, 5.0])
    z = Predictive.gaussian(mean, var, [0.3, 0.5])
    p = Warped(z, YeoJohnson(1.0, shift, scale))
    truth = Predictive.gaussian(shift + scale * mean, scale**2 * var, scale**2 * [0.3, 0.5])
    y = truth.quantile([0.01, 0.3, 0.999])
    for name in ("mean", "std", "var", "model_var", "noise_var", "model_std", "noise_std"):
        np.testing.assert_allclose(getattr(p, name), getattr(truth, name), rtol=1e-10)
    np.testing.assert_allclose(p.quantile([0.01, 0.3, 0.999]), y, rtol=1e-12)
    for name in ("cdf", "survival", "logpdf", "marginal_logpdf"):
        np.testing.assert_allclose(getattr(p, name)(y), getattr(truth, name)(y), rtol=1e-9)
    np.testing.assert_allclose(p.crps(y[..., 0]), truth.crps(y[..., 0]), rtol=1e-9)
    np.testing.assert_allclose(p.interval(0.8), truth.interval(0.8), rtol=1e-12)


@pytest.mark.parametrize("power", [0.0, 0.3, 1.7, 2.0])
@pytest.mark.parametrize(("mean", "std"), [(0.0, 0.3), (-2.0, 1.0), (0.7, 2.0)])
def test_moments_are_those_of_quadrature(power, mean, std):
    """The stated error: 1e-4 of the standard deviation and of the variances."""
    warp, share = YeoJohnson(power, 0.0, 1.0), 0.4
    model, noise = share * std**2, (1 - share) * std**2

    def inverse(z):
        return float(warp.inverse(np.array([z]))[0])

    def expected(function, center, spread):
        low, high = center - 12 * spread, center + 12 * spread
        points = [min(max(0.0, low), high)]
        return integrate.quad(
            lambda z: function(z) * stats.norm.pdf(z, center, spread),
            low,
            high,
            points=points,
            limit=200,
            epsabs=0,
            epsrel=1e-9,
        )[0]

    first = expected(inverse, mean, std)
    var = expected(lambda z: (inverse(z) - first) ** 2, mean, std)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    given_model = [
        expected(inverse, mean + np.sqrt(model) * node, np.sqrt(noise)) for node in nodes
    ]
    model_var = weights @ (np.array(given_model) - first) ** 2 / weights.sum()
    p = Warped(Predictive.gaussian([mean], [model], noise), warp)
    assert abs(p.mean[0] - first) < 1e-4 * np.sqrt(var)
    np.testing.assert_allclose(p.var, [var], rtol=1e-4)
    np.testing.assert_allclose(p.model_var, [model_var], rtol=2e-4)
    np.testing.assert_allclose(p.model_var + p.noise_var, p.var, rtol=1e-12)


@pytest.mark.parametrize(("model", "noise"), [(0.0, 0.5), (0.5, 0.0), (0.3, 0.2), (0.0, 0.0)])
def test_closed_and_numeric_moments_of_a_log_normal_agree(model, noise):
    warp = Log(1.3, 0.4)
    parts = [np.array([[value, value]]) for value in (0.7, model, noise)]
    numeric = hermite_moments(warp.inverse, *parts)
    for exact, other in zip(warp.moments(*parts), numeric, strict=True):
        np.testing.assert_allclose(other, exact, rtol=1e-9, atol=1e-15)


def test_draws_have_the_stated_moments_and_quantiles():
    """False alarms: 1e-4 in all."""
    p, n = two_outputs(), 40_000
    drawn = p.sample(n, random_state=3)
    assert drawn.shape == (2, 2, n)
    z_mean, z_var = sampling_z(np.moveaxis(drawn, -1, 0), p.mean, p.var)
    alpha = np.array([0.05, 0.5, 0.95])
    share = (drawn[..., None] <= p.quantile(alpha)[:, :, None]).mean(axis=2)
    z_share = (share - alpha) / np.sqrt(alpha * (1 - alpha) / n)
    z = np.concatenate([np.ravel(a) for a in (z_mean, z_var, z_share)])
    assert np.abs(z).max() < threshold(1e-4, len(z))
    # What outputs have in common is in the joint density: its mean is minus the entropy.
    q = p.sample(n, random_state=4)
    gap = p.logpdf(q) - p.marginal_logpdf(q).sum(axis=1)  # mutual information, positive
    error = gap.std(axis=1) / np.sqrt(n)
    assert (gap.mean(axis=1) > 10 * error).all()


def test_the_joint_density_integrates_to_one():
    p = two_outputs()[0]
    ends = p.quantile([1e-7, 1 - 1e-7])[0]
    grids = [np.linspace(*end, 1500) for end in ends]
    a, b = np.meshgrid(*grids, indexing="ij")
    density = p.pdf(np.stack([a, b])[None])[0]
    total = integrate.simpson(integrate.simpson(density, x=grids[1]), x=grids[0])
    assert abs(total - 1) < 1e-4


def test_rows_outputs_and_mixtures():
    p = two_outputs()
    assert p.shape == (2, 2)
    y = p.quantile(0.3)
    one, both = p.marginal(1), p.marginal([1, 0])
    assert one.shape == (2,)
    assert both.shape == (2, 2)
    np.testing.assert_allclose(one.mean, p.mean[:, 1], rtol=1e-14)
    np.testing.assert_allclose(both.logpdf(y[:, ::-1]), p.logpdf(y), rtol=1e-12)
    np.testing.assert_array_equal(p[1].quantile(0.3), y[1:])
    np.testing.assert_array_equal(p[[True, False]].std, p.std[:1])
    q = Warped(Predictive.gaussian([[0.0, 0.0]] * 2, [[1.0, 1.0]] * 2, 0.0), p.warp)
    mixed = mixture([p, q], [0.25, 0.75])
    assert isinstance(mixed, Warped)
    np.testing.assert_allclose(mixed.cdf(y), 0.25 * p.cdf(y) + 0.75 * q.cdf(y), rtol=1e-13)
    np.testing.assert_allclose(mixed.mean, 0.25 * p.mean + 0.75 * q.mean, rtol=1e-12)
    second = 0.25 * (p.var + p.mean**2) + 0.75 * (q.var + q.mean**2)
    np.testing.assert_allclose(mixed.var, second - mixed.mean**2, rtol=1e-9)
    np.testing.assert_allclose(mixed.noise_var, 0.25 * p.noise_var + 0.75 * q.noise_var, rtol=1e-12)
    with pytest.raises(ValueError, match="different scales"):
        Warped.mixture([p, Warped(q.latent, Log(1.0, [0.0, 0.0]))])
    refused = p.unsplit()
    assert not refused.identified
    assert not hasattr(refused, "model_var")
    assert not hasattr(refused, "noise_std")
    np.testing.assert_array_equal(refused.var, p.var)


def test_point_masses_stay_points():
    p = Warped(Predictive.gaussian([0.0, 1.0], [0.0, 0.0], 0.0), Log(1.0, 0.0))
    np.testing.assert_allclose(p.mean, [1.0, np.e])
    assert p.var.tolist() == [0.0, 0.0]
    assert p.cdf([1.0, 2.0]).tolist() == [1.0, 0.0]
    assert p.cdf([1.0, 2.0], left=True).tolist() == [0.0, 0.0]
    np.testing.assert_allclose(p.crps([3.0, 1.0]), [2.0, np.e - 1.0])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: YeoJohnson(np.nan, 0.0, 1.0), "power must be a finite number"),
        (lambda: YeoJohnson(1.0, 0.0, 0.0), "scale must be positive"),
        (lambda: Log([1.0, -1.0], 0.0), "scale must be positive"),
    ],
)
def test_what_makes_no_scale_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@given(
    power=st.floats(0.0, 2.0),
    mean=st.floats(-3, 3),
    std=st.floats(1e-3, 3.0),
    shift=st.floats(-1e3, 1e3),
    scale=st.floats(1e-3, 1e3),
)
def test_quantile_and_cdf_undo_each_other(power, mean, std, shift, scale):
    warp = YeoJohnson(power, shift, scale)
    p = Warped(Predictive.gaussian([mean], [0.0], std**2), warp)
    y = p.quantile(ALPHA)
    assert (np.diff(y) >= 0).all()
    # What rounding y costs, in z.
    slack = np.exp(warp.log_slope(y)) * np.spacing(np.abs(y) + abs(shift)) * 4 / std
    np.testing.assert_allclose((p.cdf(y) - ALPHA) / (1e-9 + slack), 0.0, atol=1.0)
