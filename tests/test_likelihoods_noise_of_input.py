"""Noise that depends on the input stays stable in wide and deep networks.

A trial with an unbounded log-variance, started anywhere, diverged: rows far out are given noise of
any size, and the step that follows has no bound either.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from varprop import FAWNRegressor, Gaussian, HeteroscedasticGaussian
from varprop.learning.likelihoods.gaussian import _LOG_VAR_BOUND, _most_var

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
@pytest.mark.parametrize("a", [-1e4, -50.0, 0.0, 50.0, 1e4])
@pytest.mark.parametrize("var", [0.0, 1.0, 1e4])
def test_gradients_are_finite_wherever_the_network_is(method, a, var):
    """In single precision, at what the second output may be early in training; exp(50) is 5e21."""
    likelihood = HeteroscedasticGaussian(jnp.ones(1))

    def loss(mean, var):
        return jnp.sum(getattr(likelihood, method)(Gaussian(mean, var), jnp.array([[3.0]])))

    value, gradients = jax.value_and_grad(loss, argnums=(0, 1))(
        jnp.array([[0.5, a]]), jnp.array([[1.0, var]])
    )
    assert np.isfinite(value)
    assert abs(float(value)) < 1e4
    assert all(np.isfinite(gradient).all() for gradient in gradients)
    assert max(float(jnp.abs(gradient).max()) for gradient in gradients) < 1e5


def table(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 3))
    f = np.sin(2 * X[:, 0]) + X[:, 1]
    if name == "outlying input":
        X[0] = 40.0
        return X, f + 0.1 * rng.normal(size=160)
    if name == "cauchy":
        return X, f + 0.1 * rng.standard_cauchy(160)
    return X, f + 0.3 * np.exp(X[:, 2]) * rng.normal(size=160)


@pytest.mark.parametrize("objective", ["vi", "ropd"])
@pytest.mark.parametrize("sizes", [(100, 100), (50, 50, 50)], ids=["wide", "deep"])
@pytest.mark.parametrize("name", ["noise of the input", "outlying input", "cauchy"])
def test_wide_and_deep_networks_learn(name, sizes, objective):
    """Training rows are described as well as by a constant, nearly, after so few steps."""
    X, y = table(name)
    model = FAWNRegressor(
        sizes,
        likelihood="heteroscedastic",
        objective=objective,
        validation=None,
        learning_rate_init=0.01,
        max_iter=300,
        random_state=0,
    ).fit(X, y)
    constant = -0.5 * np.log(2 * np.pi * y.var()) - 0.5
    assert np.isfinite(model.loss_curve_).all()
    assert model.log_score(X, y) > constant - 0.1
    assert (model.predict_dist(X).std < 25 * y.std()).all()


@pytest.mark.parametrize("a", [-8.0, -3.0, 0.0, 1.0, 6.0])
@pytest.mark.parametrize("var", [0.1, 10.0, 1e3, 1e5])
def test_an_unknown_output_has_no_noise_beyond_the_bounds(x64, a, var):
    """E exp(l) and E exp(-l), l on a grid: ours are at most those of the two ends."""
    likelihood = HeteroscedasticGaussian(np.ones(1))
    f = Gaussian(jnp.array([[0.0, a]]), jnp.array([[0.0, var]]))
    z = np.linspace(-9, 9, 20_001)
    weight = stats.norm.pdf(z) * (z[1] - z[0])
    log = 6 * special.erf(np.sqrt(np.pi) * (a + np.sqrt(var) * z) / 12)
    mean = weight @ log
    ends = np.log(np.cosh(6) + mean / 6 * np.sinh(6)), np.log(np.cosh(6) - mean / 6 * np.sinh(6))
    found = np.log(float(likelihood.predictive(f)[0].noise_var[0, 0]))
    # With f known to be 0 and y = 1 the expected log-density tells E exp(-l).
    value = float(likelihood.expected_log_prob(f, jnp.array([[1.0]]))[0])
    precision = np.log(-2 * value - np.log(2 * np.pi) - mean)
    assert found < ends[0] + 1e-3
    assert precision < ends[1] + 1e-3
    if var <= 0.1:  # and as they are where the line is good
        assert abs(found - np.log(weight @ np.exp(log))) < 0.01
        assert abs(precision - np.log(weight @ np.exp(-log))) < 0.01


@pytest.mark.parametrize("middle", [-0.99, -0.5, 0.0, 0.2, 0.9])
def test_log_variances_vary_no_more_than_between_their_bounds(middle, x64):
    """E exp(l) and E exp(-l) are at most those of the two ends with the same mean."""
    bound, up = _LOG_VAR_BOUND, 0.5 * (1 + middle)  # probability of the upper end
    ends = [np.log(up * np.exp(s * bound) + (1 - up) * np.exp(-s * bound)) for s in (1, -1)]
    # Of a Gaussian of that mean and variance V they are exp(V / 2 + mean) and exp(V / 2 - mean).
    allowed = 2 * min(ends[0] - bound * middle, ends[1] + bound * middle)
    found = float(_most_var(jnp.float64(middle)))
    assert found == pytest.approx(allowed, rel=1e-10)  # the far end counts for a millionth


def test_outputs_and_targets_must_fit():
    f = Gaussian(jnp.zeros((3, 2)), jnp.ones((3, 2)))
    likelihood = HeteroscedasticGaussian(jnp.ones(1))
    for method in (likelihood.expected_log_prob, likelihood.log_predictive):
        with pytest.raises(ValueError, match="1 targets and needs 2 outputs of the network, but"):
            method(f, jnp.zeros((3, 2)))
