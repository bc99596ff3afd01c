"""Student's t as a mixture of Gaussians, against SciPy, quadrature, sampling and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import tiny
from truth import threshold
from varprop import Gaussian, JointGaussian
from varprop.learning.likelihoods import StudentT

pytestmark = pytest.mark.usefixtures("strict_promotion")


def noise_of_scale(scale, nu):
    return StudentT.of(np.asarray(scale) * np.sqrt(nu / (nu - 2)), nu=nu)


# How far out the stated 0.01 nats hold, as the docstring says.
REACH = {2.01: 7000, 3.0: 7000, 5.0: 3500, 15.0: 500, 30.0: 200, 199.0: 60}


@pytest.mark.parametrize("nu", REACH)
def test_the_mixture_is_t_to_a_hundredth(x64, nu):
    z = np.concatenate([np.linspace(0, 5, 101), np.geomspace(5, REACH[nu], 300)])
    likelihood = noise_of_scale([2.0], nu)
    f = Gaussian(jnp.zeros((len(z), 1)))
    claimed = likelihood.log_predictive(f, jnp.asarray(2.0 * z[:, None]))
    error = np.abs(np.asarray(claimed) - stats.t.logpdf(2.0 * z, nu, scale=2.0))
    assert 1e-5 < error.max() < 0.01


@pytest.mark.parametrize("nu", [3.0, 5.0, 30.0, 199.0])
def test_the_tails_are_finite_and_fall(nu):
    """Up to 10,000 scales, in single precision: no density overflows, and it never rises."""
    z = np.geomspace(1, 1e4, 200)[:, None]
    f = Gaussian(jnp.zeros(z.shape), 0.1)
    for method in ("log_predictive", "expected_log_prob"):
        found = np.asarray(getattr(noise_of_scale([1.0], nu), method)(f, jnp.asarray(z, float)))
        assert np.isfinite(found).all()
        assert (np.diff(found) < 0).all()


def test_the_noise_variance_is_that_of_t(x64):
    """Within a percent where the fourth power has a mean; always finite."""
    for nu in (4.5, 8.0, 50.0):
        var = float(noise_of_scale([1.5], nu).noise_var[0])
        np.testing.assert_allclose(var, 1.5**2 * nu / (nu - 2), rtol=0.01)
    assert np.isfinite(noise_of_scale([1.0], 2.001).noise_var).all()


@pytest.fixture
def rows(x64):
    rng = np.random.default_rng(0)
    mean, y = rng.normal(size=(2, 5, 2))
    return mean, rng.uniform(0.05, 1.0, (5, 2)), 3 * y


def test_ropd_is_the_integral_over_f(rows):
    """One target: t and f are independent, and the integral is SciPy's, to the stated error."""
    mean, var, y = (part[:, :1] for part in rows)
    claimed = noise_of_scale([0.7], 4.0).log_predictive(Gaussian(mean, var), jnp.asarray(y))
    for row in range(5):
        m, s, at = mean[row, 0], np.sqrt(var[row, 0]), y[row, 0]
        density, _ = integrate.quad(
            lambda f, m=m, s=s, at=at: stats.t.pdf(at, 4, f, 0.7) * stats.norm.pdf(f, m, s),
            m - 9 * s,
            m + 9 * s,
            points=sorted([m, min(max(at, m - 8 * s), m + 8 * s)]),
        )
        assert abs(float(claimed[row]) - np.log(density)) < 0.01


@pytest.mark.parametrize(("ratio", "gap"), [(0.1, 0.042), (1.0, 0.26)])
def test_vi_bounds_the_integral_from_below(x64, ratio, gap):
    """By no more than the docstring says, wherever the target lies."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(100)
    y = np.linspace(-8, 8, 33)[:, None]
    f = Gaussian(jnp.zeros((33, 1)), ratio)
    claimed = np.asarray(noise_of_scale([1.0], 5.0).expected_log_prob(f, jnp.asarray(y)))
    values = stats.t.logpdf(y - np.sqrt(ratio) * nodes, 5)
    below = values @ weights / weights.sum() - claimed
    assert below.min() > -0.01  # the mixture's own error
    assert 0.8 * gap < below.max() < gap


def test_components_are_what_ropd_is_of(rows):
    """And draws of them have their densities' mean, in standard errors."""
    mean, var, y = rows
    likelihood = noise_of_scale([0.7, 1.4], 5.0)
    for f in (
        Gaussian(jnp.asarray(mean), jnp.asarray(var)),
        JointGaussian(jnp.asarray(mean), jnp.asarray(var[:, :, None] * np.eye(2))),
    ):
        parts = likelihood.predictive(f)
        weights = np.array([float(part.weight) for part in parts])
        np.testing.assert_allclose(weights.sum(), 1, rtol=1e-12)
        density = sum(
            w * np.prod(stats.norm.pdf(y, mean, np.sqrt(var + np.asarray(part.noise_var))), axis=1)
            for w, part in zip(weights, parts, strict=True)
        )
        np.testing.assert_allclose(
            likelihood.log_predictive(f, jnp.asarray(y)), np.log(density), rtol=1e-9
        )


def test_draws_of_t_agree(x64):
    """The share of draws within some scales; one false alarm in a million."""
    n, at = 200_000, np.array([0.5, 1.0, 2.0, 5.0, 20.0])
    draws = np.random.default_rng(1).standard_t(4, n)
    f = Gaussian(jnp.zeros((1, 1)))
    parts = noise_of_scale([1.0], 4.0).predictive(f)
    claimed = sum(
        float(p.weight) * (2 * stats.norm.cdf(at / np.sqrt(float(p.noise_var[0]))) - 1)
        for p in parts
    )
    seen = (np.abs(draws)[:, None] < at).mean(axis=0)
    z = (seen - claimed) / np.sqrt(claimed * (1 - claimed) / n)
    # The rule's own error is a few thousandths of a density, far less in probabilities.
    assert np.abs(z).max() < threshold(1e-6, len(at)) + 1


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
def test_gradients_agree_with_finite_differences(rows, method):
    mean, var, y = rows

    def total(vector):
        likelihood = StudentT(jnp.log(jnp.array([0.7, 1.4])) + vector[:2], vector[2] - 3.0)
        f = Gaussian(mean + vector[3:5], var * jnp.exp(vector[5]))
        return jnp.sum(getattr(likelihood, method)(f, jnp.asarray(y)))

    numeric = tiny.finite_differences(tiny.quick_jit(total), np.zeros(6), 1e-5)
    gradient = tiny.quick_jit(jax.grad(total))(jnp.zeros(6))
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-7)


def test_a_floor_holds_the_scale_and_can_be_released(x64):
    likelihood = StudentT.of(np.array([1.0]))
    floor = np.array([0.3])
    above = likelihood.floored(floor)
    np.testing.assert_allclose(above.noise_var, likelihood.noise_var, rtol=1e-12)
    sunk = StudentT(above.log_scale - 50, above.shape, above.floor)
    narrow = StudentT(jnp.log(jnp.asarray(floor)), above.shape)
    np.testing.assert_allclose(sunk.noise_var, narrow.noise_var, rtol=1e-12)
    np.testing.assert_allclose(sunk.floored(None).noise_var, narrow.noise_var, rtol=1e-12)
    assert sunk.floored(None).floor is None


@pytest.mark.parametrize("nu", [2.0, 200.0, 1.0])
def test_degrees_of_freedom_have_a_range(nu):
    with pytest.raises(ValueError, match=r"nu must lie between 2 and 200, but is"):
        StudentT.of(np.ones(1), nu=nu)


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
def test_sizes_that_differ_are_named(method):
    """Else they would be broadcast, and summed over targets that are none."""
    f, y = Gaussian(jnp.zeros((3, 1)), 1.0), jnp.zeros((3, 2))
    with pytest.raises(ValueError, match=r"1 targets and needs 1 outputs .* the targets are 2"):
        getattr(noise_of_scale([1.0], 5.0), method)(f, y)
