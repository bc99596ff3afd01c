"""The Gaussian likelihood against quadrature, sampling and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import tiny
from truth import sampling_z, threshold
from varprop import Gaussian, GaussianLikelihood, JointGaussian
from varprop.nn.parameters import count_parameters

pytestmark = pytest.mark.usefixtures("strict_promotion")

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(5)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@pytest.fixture
def rows():
    """Outputs of four rows with two entries each, targets, and noise of two sizes."""
    rng = np.random.default_rng(0)
    mean, y = rng.normal(size=(2, 4, 2))
    var = rng.uniform(0.1, 2.0, size=(4, 2))
    return mean, var, y, np.array([0.3, 1.7])


def joint_output(mean, var, correlation=0.6):
    std = np.sqrt(var)
    cov = std[..., :, None] * std[..., None, :] * np.array([[1.0, correlation], [correlation, 1.0]])
    return JointGaussian(jnp.asarray(mean), jnp.asarray(cov)), cov


def test_expected_log_prob_agrees_with_quadrature(rows, x64):
    """The integrand is a parabola in f, which five Gauss-Hermite nodes integrate exactly."""
    mean, var, y, std = rows
    f = mean[..., None] + np.sqrt(var)[..., None] * NODES
    truth = (stats.norm.logpdf(y[..., None], f, std[:, None]) @ WEIGHTS).sum(axis=-1)
    claimed = GaussianLikelihood(std).expected_log_prob(Gaussian(mean, var), jnp.asarray(y))
    np.testing.assert_allclose(claimed, truth, rtol=1e-13)


@given(
    error=st.floats(-100, 100), var=st.floats(0, 1e4), std=st.floats(1e-2, 1e2), n=st.integers(1, 3)
)
def test_expected_log_prob_is_the_papers_formula(error, var, std, n):
    """Log-density at the mean minus V / (2 std^2): the paper's extra term of VI."""
    with jax.enable_x64(True):
        y, f = jnp.full((1, n), error), Gaussian(jnp.zeros((1, n)), jnp.array(var))
        claimed = GaussianLikelihood(jnp.full(n, std)).expected_log_prob(f, y)[0]
        truth = n * (stats.norm.logpdf(error, 0.0, std) - var / (2 * std**2))
        np.testing.assert_allclose(claimed, truth, rtol=1e-10, atol=1e-10)


def test_expected_log_prob_ignores_covariances(rows, x64):
    """The noise is independent, so only marginals matter."""
    mean, var, y, std = rows
    likelihood = GaussianLikelihood(std)
    joint, _ = joint_output(mean, var)
    np.testing.assert_allclose(
        likelihood.expected_log_prob(joint, jnp.asarray(y)),
        likelihood.expected_log_prob(Gaussian(mean, var), jnp.asarray(y)),
        rtol=1e-13,
    )


def test_log_predictive_agrees_with_scipy(rows, x64):
    mean, var, y, std = rows
    truth = stats.norm.logpdf(y, mean, np.sqrt(var + std**2)).sum(axis=-1)
    claimed = GaussianLikelihood(std).log_predictive(Gaussian(mean, var), jnp.asarray(y))
    np.testing.assert_allclose(claimed, truth, rtol=1e-13)


def test_joint_log_predictive_agrees_with_scipy(rows, x64):
    mean, var, y, std = rows
    joint, cov = joint_output(mean, var)
    truth = [
        stats.multivariate_normal(mean[i], cov[i] + np.diag(std**2)).logpdf(y[i]) for i in range(4)
    ]
    claimed = GaussianLikelihood(std).log_predictive(joint, jnp.asarray(y))
    np.testing.assert_allclose(claimed, truth, rtol=1e-12)


def test_joint_equals_diagonal_without_correlation(rows, x64):
    mean, var, y, std = rows
    likelihood, y = GaussianLikelihood(std), jnp.asarray(y)
    diagonal, joint = Gaussian(mean, var), Gaussian(mean, var).to_joint()
    for method in (likelihood.expected_log_prob, likelihood.log_predictive):
        np.testing.assert_allclose(method(joint, y), method(diagonal, y), rtol=1e-13)


def test_correlation_changes_the_joint_log_predictive(rows, x64):
    mean, var, y, std = rows
    likelihood, y = GaussianLikelihood(std), jnp.asarray(y)
    joint, _ = joint_output(mean, var)
    difference = likelihood.log_predictive(joint, y) - likelihood.log_predictive(
        Gaussian(mean, var), y
    )
    assert np.all(np.abs(difference) > 1e-3)


def test_predictive_agrees_with_sampling(rows, x64):
    """Draws of output plus noise; one false alarm in a million runs over all entries."""
    mean, var, _, std = rows
    predictive = GaussianLikelihood(std).predictive(Gaussian(mean, var))[0].total
    rng = np.random.default_rng(1)
    draws = rng.normal(mean, np.sqrt(var), (20_000, 4, 2)) + rng.normal(0, std, (20_000, 4, 2))
    mean_z, var_z = sampling_z(draws, predictive.mean, predictive.var)
    limit = threshold(1e-6, mean_z.size + var_z.size)
    assert np.abs(mean_z).max() < limit
    assert np.abs(var_z).max() < limit


def test_joint_predictive_adds_noise_to_the_diagonal_only(rows, x64):
    mean, var, _, std = rows
    joint, cov = joint_output(mean, var)
    predictive = GaussianLikelihood(std).predictive(joint)[0].total
    np.testing.assert_allclose(predictive.dense_cov(), cov + np.diag(std**2), rtol=1e-14)


def test_an_exactly_known_output_leaves_the_noise_alone(rows, x64):
    """A plain network: expectation and predictive are the same density."""
    mean, _, y, std = rows
    likelihood, f, y = GaussianLikelihood(std), Gaussian(mean), jnp.asarray(y)
    truth = stats.norm.logpdf(y, mean, std).sum(axis=-1)
    np.testing.assert_allclose(likelihood.expected_log_prob(f, y), truth, rtol=1e-13)
    np.testing.assert_allclose(likelihood.log_predictive(f, y), truth, rtol=1e-13)
    (component,) = likelihood.predictive(f)
    np.testing.assert_allclose(component.total.var, np.tile(std**2, (4, 1)), rtol=1e-14)


def test_jensen_orders_the_two(rows, x64):
    """The log of an expectation exceeds the expectation of the log wherever f varies."""
    mean, var, y, std = rows
    likelihood, f, y = GaussianLikelihood(std), Gaussian(mean, var), jnp.asarray(y)
    assert np.all(likelihood.log_predictive(f, y) > likelihood.expected_log_prob(f, y))


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
@pytest.mark.parametrize("joint", [False, True])
def test_gradients_agree_with_finite_differences(rows, method, joint, x64):
    """In noise, means and variances at once."""
    mean, var, y, std = (jnp.asarray(part) for part in rows)

    def total(vector):
        log_std, shift, log_var = vector[:2], vector[2:4], vector[4:6]
        f = Gaussian(mean + shift, var * jnp.exp(log_var))
        likelihood = GaussianLikelihood(std * jnp.exp(log_std))
        return jnp.sum(getattr(likelihood, method)(f.to_joint() if joint else f, y))

    numeric = tiny.finite_differences(tiny.quick_jit(total), np.zeros(6), 1e-5)
    np.testing.assert_allclose(
        tiny.quick_jit(jax.grad(total))(jnp.zeros(6)), numeric, rtol=1e-7, atol=1e-7
    )


def test_the_noise_is_learned():
    likelihood = GaussianLikelihood(jnp.array([0.5, 2.0]))
    assert count_parameters(likelihood) == 2
    np.testing.assert_allclose(likelihood.noise_var, [0.25, 4.0], rtol=1e-6)


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
def test_sizes_that_differ_are_named(method):
    likelihood = GaussianLikelihood(jnp.ones(2))
    f, y = Gaussian(jnp.zeros((3, 2)), 1.0), jnp.zeros((3, 1))
    with pytest.raises(
        ValueError, match=r"2 targets and needs 2 outputs of .* gives 2 and the targets are 1"
    ):
        getattr(likelihood, method)(f, y)
    f, y = Gaussian(jnp.zeros((3, 1)), 1.0), jnp.zeros((3, 2))
    with pytest.raises(
        ValueError, match=r"2 targets and needs 2 outputs of .* gives 1 and the targets are 2"
    ):
        getattr(likelihood, method)(f, y)


@pytest.mark.parametrize(
    ("std", "message"),
    [
        (jnp.array(1.0), "std must have one entry per target, but has shape"),
        (jnp.array([1.0, 0.0]), "std must be positive, but is 0 at index 1"),
        (jnp.array([jnp.nan]), "std must be positive, but is nan"),
    ],
)
def test_impossible_noise_is_refused(std, message):
    with pytest.raises(ValueError, match=message):
        GaussianLikelihood(std)


def test_a_floor_adds_its_variance_to_the_noise(rows, x64):
    """All three methods are those of a likelihood with the summed variance."""
    mean, var, y, std = rows
    floor = np.array([0.2, 0.0])
    f = Gaussian(jnp.asarray(mean), jnp.asarray(var))
    raised = GaussianLikelihood(jnp.asarray(std), floor=jnp.asarray(floor))
    plain = GaussianLikelihood(jnp.asarray(np.sqrt(std**2 + floor**2)))
    for name in ("expected_log_prob", "log_predictive"):
        np.testing.assert_allclose(
            getattr(raised, name)(f, jnp.asarray(y)), getattr(plain, name)(f, jnp.asarray(y))
        )
    np.testing.assert_allclose(raised.predictive(f)[0].total.var, plain.predictive(f)[0].total.var)
    assert count_parameters(raised) == count_parameters(plain)  # the floor is not learned


def test_noise_cannot_fall_below_its_floor():
    likelihood = GaussianLikelihood(jnp.array([1e-20]), floor=jnp.array([0.1]))
    assert float(likelihood.noise_var[0]) == pytest.approx(0.01)
    with pytest.raises(ValueError, match="floor"):
        GaussianLikelihood(jnp.ones(1), floor=jnp.array([-0.1]))
