"""Gaussians behind a transform: densities by change of variables, against SciPy and numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import tiny
from varprop import Gaussian, GaussianLikelihood, Scaling
from varprop.data.targets import TargetError
from varprop.learning.likelihoods import LogNormal, YeoJohnsonLikelihood
from varprop.learning.likelihoods.given import exponentials, logarithms

pytestmark = pytest.mark.usefixtures("strict_promotion")
POWERS = [1e-6, 0.4, 1.0, 1.7, 2 - 1e-6]


def behind(power, std=0.6):
    odds = jnp.log(jnp.asarray([power])) - jnp.log(2 - jnp.asarray([power]))
    return YeoJohnsonLikelihood(GaussianLikelihood(np.array([std])), odds)


@pytest.mark.parametrize("power", POWERS)
def test_the_transform_is_yeo_and_johnsons(x64, power):
    """SciPy's, whose slope by differences is what the density is multiplied by."""
    y = np.linspace(-6, 6, 41)
    z, log_slope = behind(power).transformed(jnp.asarray(y[:, None]))
    np.testing.assert_allclose(z[:, 0], stats.yeojohnson(y, power), rtol=1e-5, atol=1e-12)
    step = 1e-6
    slope = (stats.yeojohnson(y + step, power) - stats.yeojohnson(y - step, power)) / (2 * step)
    np.testing.assert_allclose(np.exp(log_slope[:, 0]), slope, rtol=1e-4)


@pytest.mark.parametrize("power", POWERS)
def test_the_density_has_mass_one_and_is_that_of_the_prediction(x64, power):
    """ROPD's density integrates to 1, and the NumPy side gives the same numbers, in its units."""
    likelihood = behind(power)
    f = Gaussian(jnp.array([[0.3]]), jnp.array([[0.2]]))

    def density(y):
        rows = Gaussian(jnp.full((len(y), 1), 0.3), jnp.full((len(y), 1), 0.2))
        return np.exp(np.asarray(likelihood.log_predictive(rows, jnp.asarray(y[:, None]))))

    grid = np.concatenate([-np.geomspace(1e3, 1e-4, 20001), np.geomspace(1e-4, 1e3, 20001)])
    np.testing.assert_allclose(integrate.trapezoid(density(grid), grid), 1, atol=2e-4)
    parts = jax.tree.map(
        lambda part: (
            (np.asarray(part.mean), np.asarray(part.var))
            if isinstance(part, Gaussian)
            else np.asarray(part)
        ),
        likelihood.predictive(f),
        is_leaf=lambda part: isinstance(part, Gaussian),
    )
    scaling = Scaling(np.zeros(1), np.ones(1), np.array([5.0]), np.array([2.0]))
    prediction = likelihood.distribution(parts, scaling, squeeze=True)
    y = np.array([-2.0, 0.1, 3.0])
    found = [prediction.logpdf(np.array([5 + 2 * at]))[0] + np.log(2) for at in y]
    np.testing.assert_allclose(found, np.log(density(y)), rtol=1e-6)


@pytest.mark.parametrize("power", [0.4, 1.7])
def test_vi_is_the_expected_log_density(x64, power):
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    y = np.array([-1.5, 0.2, 2.5])
    claimed = behind(power).expected_log_prob(
        Gaussian(jnp.full((3, 1), 0.3), 0.2), jnp.asarray(y[:, None])
    )
    z, step = stats.yeojohnson(y, power), 1e-6
    slope = (stats.yeojohnson(y + step, power) - stats.yeojohnson(y - step, power)) / (2 * step)
    at = 0.3 + np.sqrt(0.2) * nodes
    truth = stats.norm.logpdf(z[:, None], at, 0.6) @ weights / weights.sum() + np.log(slope)
    np.testing.assert_allclose(claimed, truth, rtol=1e-7)


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
def test_gradients_agree_with_finite_differences(x64, method):
    y = jnp.array([[-1.5], [0.2], [2.5]])

    def total(v):
        likelihood = YeoJohnsonLikelihood(
            GaussianLikelihood(0.6 * jnp.exp(v[:1])), jnp.array([0.4]) + v[1:2]
        )
        f = Gaussian(jnp.full((3, 1), 0.3) + v[2], 0.2 * jnp.exp(v[3]) * jnp.ones((3, 1)))
        return jnp.sum(getattr(likelihood, method)(f, y))

    numeric = tiny.finite_differences(tiny.quick_jit(total), np.zeros(4), 1e-5)
    gradient = tiny.quick_jit(jax.grad(total))(jnp.zeros(4))
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-7)


def test_powers_at_their_ends_are_finite_in_single_precision():
    y = jnp.array([[-1e4], [-1.0], [0.0], [1.0], [1e4]])
    for odds in (-100.0, 100.0):
        likelihood = YeoJohnsonLikelihood(GaussianLikelihood(jnp.ones(1)), jnp.array([odds]))
        gradient = jax.grad(lambda model, y: jnp.sum(model.transformed(y)[0]))(likelihood, y)
        assert np.isfinite(likelihood.transformed(y)[0]).all()
        assert np.isfinite(gradient.odds).all()


def test_the_log_normal_density_is_scipys(x64):
    """From training's columns to the prediction in the target's units."""
    y = np.array([[0.5], [2.0], [9.0]])
    columns = logarithms(y, LogNormal.column_scaling)
    shift, scale = columns.mean(), columns.std()
    scaling = Scaling(np.zeros(1), np.ones(1), np.array([shift]), np.array([scale]))
    likelihood = LogNormal(GaussianLikelihood(np.array([0.7])))
    f = Gaussian(jnp.full((3, 1), 0.4), 0.3)
    trained = likelihood.log_predictive(f, jnp.asarray((columns - shift) / scale))
    mean, std = shift + scale * 0.4, scale * np.sqrt(0.3 + 0.49)
    truth = stats.lognorm.logpdf(y[:, 0], std, scale=np.exp(mean))
    # Training sees the density of the standardized logarithm.
    np.testing.assert_allclose(np.asarray(trained) - np.log(scale * y[:, 0]), truth, rtol=1e-9)
    (part,) = likelihood.predictive(f)
    moments = (np.asarray(part.model.mean), np.asarray(part.model.variances()))
    given = part._replace(model=moments, noise_var=np.asarray(part.noise_var))
    prediction = likelihood.distribution([given], scaling, squeeze=True)
    np.testing.assert_allclose(prediction.logpdf(y[:, 0]), truth, rtol=1e-9)
    upper = stats.lognorm.ppf(0.9, std, scale=np.exp(mean))
    np.testing.assert_allclose(prediction.quantile(0.9), upper)
    np.testing.assert_allclose(exponentials(columns, (True,)), y, rtol=1e-14)


def test_the_constant_is_the_log_normal_of_all_targets(x64):
    y = np.random.default_rng(0).lognormal(1.0, 0.5, (500, 1))
    numbers = LogNormal.constant_numbers(np.log(y), None)
    plain = Scaling.identity(1, 1)
    constant = LogNormal.constant(numbers, plain, n_seen=None, squeeze=True)
    truth = stats.lognorm.logpdf(y[:1, 0], np.log(y).std(), scale=np.exp(np.log(y).mean()))
    np.testing.assert_allclose(constant.logpdf(y[:1, 0]), truth, rtol=1e-9)


def test_the_constant_of_equal_targets_has_a_width():
    """A spread of 0 would make every other target impossible."""
    numbers = LogNormal.constant_numbers(np.log(np.full((5, 1), 3.0)), None)
    np.testing.assert_allclose(numbers, [np.log(3.0), 1.0], rtol=1e-12)


@pytest.mark.parametrize("squeeze", [True, False])
@pytest.mark.parametrize("kind", [LogNormal, YeoJohnsonLikelihood])
def test_the_constant_has_the_shape_of_the_targets(kind, squeeze):
    numbers = kind.constant_numbers(np.array([[0.5], [1.0], [2.5]]), None)
    constant = kind.constant(numbers, Scaling.identity(1, 1), n_seen=3, squeeze=squeeze)
    assert constant.mean.shape == ((1,) if squeeze else (1, 1))


def test_what_has_no_logarithm_is_named():
    with pytest.raises(TargetError, match=r"^the target is -2 in row 1: a logarithm needs"):
        logarithms(np.array([[1.0], [-2.0]]), (True,))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_transform_is_worth_trying_by_scipys_likelihood(weighted):
    """SciPy's own log-likelihood of the power says what a transform is worth to a constant."""
    rng = np.random.default_rng(0)
    for skew in (0.01, 0.15, 0.25, 0.6, 1.0):
        y = np.sinh(skew * rng.normal(size=400) + skew)
        times = rng.integers(1, 4, 400) if weighted else np.ones(400, int)
        whole = np.repeat(y, times)
        y = (y - whole.mean()) / whole.std()
        whole = np.repeat(y, times)
        worth = max(stats.yeojohnson_llf(power, whole) for power in np.linspace(0, 2, 21))
        worth = (worth - stats.yeojohnson_llf(1.0, whole)) / len(whole)
        assert abs(worth - 0.02) > 1e-3  # else powers on a grid could not tell
        weight = times.astype(float) if weighted else None
        assert YeoJohnsonLikelihood.worth_trying(y[:, None], weight) == (worth > 0.02), worth
        both = np.column_stack([np.linspace(-1, 1, 400), -y])  # one skewed target is enough
        assert YeoJohnsonLikelihood.worth_trying(both, weight) == (worth > 0.02)


def test_other_likelihoods_are_always_tried():
    assert LogNormal.worth_trying(np.ones((3, 1)), None)
