"""Assumed-density filtering against exact posteriors, quadrature and the formulas of the paper."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from varprop import nn
from varprop.baselines import adf
from varprop.baselines.adf import Beliefs, Factors, Gamma, Layer
from varprop.moments.gaussian import Gaussian
from varprop.moments.numerics import hermite_nodes

RNG = np.random.RandomState(0)


def scalar(value):
    return jnp.asarray(np.float64(value))


def gamma(shape, rate):
    return Gamma(scalar(shape), scalar(rate))


def slopes_of(by_mean, by_var):
    """A tree of derivatives, built as `jax.grad` builds it: without the check of variances."""
    structure = jax.tree.structure(Gaussian(jnp.zeros(1), 1.0))
    return jax.tree.unflatten(structure, [jnp.asarray(by_mean), jnp.asarray(by_var)])


def random_network(sizes, seed=0):
    """Beliefs as they are after a while: different means and variances everywhere."""
    rng = np.random.RandomState(seed)
    network = adf.first_beliefs(sizes, rng).network
    return jax.tree.map(
        lambda leaf: jnp.asarray(np.asarray(leaf) * rng.uniform(0.2, 1.0, leaf.shape)), network
    )


# ---- the network ----------------------------------------------------------------------------


def test_moments_are_those_of_the_librarys_layers(x64):
    """Dividing what comes in by sqrt(inputs + 1) is the same as dividing weights and biases."""
    network = random_network([3, 7, 5, 1])

    def scaled(part, fan_in):
        return nn.GaussianWeights(part.mean / fan_in**0.5, (part.var / fan_in) ** 0.5)

    layers = []
    for weight, bias in network:
        fan_in = weight.shape[1] + 1
        layers += [nn.ReLU(), nn.Dense(scaled(weight, fan_in), scaled(bias, fan_in))]
    x = Gaussian(jnp.asarray(RNG.standard_normal((4, 3))), jnp.asarray(RNG.uniform(size=(4, 3))))
    for given in (x, Gaussian(x.mean)):
        ours = jax.jit(adf.network_moments)(network, given)
        theirs = jax.jit(lambda x: nn.Sequential(layers[1:], "independent").moments(x))(given)
        np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-12)
        np.testing.assert_allclose(ours.var, theirs.var, rtol=1e-12)


def test_slopes_of_the_log_evidence_by_finite_differences(x64):
    network = random_network([2, 4, 3, 1])
    leaves, structure = jax.tree.flatten(network)
    flat, sizes = (
        np.concatenate([np.ravel(leaf) for leaf in leaves]),
        [leaf.size for leaf in leaves],
    )
    x, y, noise_var = jnp.asarray([0.3, -1.2]), scalar(0.7), scalar(0.4)

    @jax.jit
    def log_z(vector):
        parts = jnp.split(vector, np.cumsum(sizes)[:-1].tolist())
        shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
        return adf.log_evidence(jax.tree.unflatten(structure, shaped), noise_var, x, y)[0]

    slopes = jax.grad(log_z)(jnp.asarray(flat))
    step = 1e-5
    for index in range(len(flat)):
        shift = step * np.eye(len(flat))[index]
        difference = (log_z(flat + shift) - log_z(flat - shift)) / (2 * step)
        np.testing.assert_allclose(slopes[index], difference, rtol=1e-5, atol=1e-8)


# ---- Gaussian beliefs -----------------------------------------------------------------------


def test_one_weight_of_a_linear_model_has_the_exact_posterior(x64):
    """With known noise, filtering row by row is Bayesian linear regression."""
    mean, var, noise_var = 0.3, 1.7, 0.25
    x, y = RNG.standard_normal(20), RNG.standard_normal(20)
    bias = Gaussian(jnp.zeros(1), jnp.zeros(1))
    layer = Layer(Gaussian(jnp.full((1, 1), mean), jnp.full((1, 1), var)), bias)
    slope = jax.jit(jax.grad(adf.log_evidence, has_aux=True))
    for one_x, one_y in zip(x, y, strict=True):
        slopes, _ = slope((layer,), scalar(noise_var), jnp.asarray([one_x]), scalar(one_y))
        layer = Layer(adf.updated_gaussian(layer.weight, slopes[0].weight), bias)
    feature = x / np.sqrt(2)  # the library divides by the root of one input and the bias
    precision = 1 / var + feature @ feature / noise_var
    posterior_mean = (mean / var + feature @ y / noise_var) / precision
    np.testing.assert_allclose(layer.weight.var[0, 0], 1 / precision, rtol=1e-10)
    np.testing.assert_allclose(layer.weight.mean[0, 0], posterior_mean, rtol=1e-10)


def test_a_row_updates_weights_and_noise_together(x64):
    """`see_row` is the Gaussian update with the slopes, and the gamma update with the output."""
    network, noise = random_network([2, 3, 1]), gamma(9.0, 3.0)
    x, y = jnp.asarray([0.5, -0.4]), scalar(1.1)
    new, new_noise = jax.jit(adf.see_row)(network, noise, x, y)
    slope = jax.jit(jax.grad(adf.log_evidence, has_aux=True))
    slopes, out = slope(network, scalar(3.0 / 8.0), x, y)
    for old, slope, belief in zip(network, slopes, new, strict=True):
        for name in ("weight", "bias"):
            expected = adf.updated_gaussian(getattr(old, name), getattr(slope, name))
            np.testing.assert_allclose(getattr(belief, name).mean, expected.mean, rtol=1e-12)
            np.testing.assert_allclose(getattr(belief, name).var, expected.var, rtol=1e-12)
    expected = adf.matched_gamma(noise, y - out.mean[0], out.var[0])
    np.testing.assert_allclose(new_noise, expected, rtol=1e-12)


def test_the_update_has_the_moments_of_belief_times_likelihood(x64):
    """For any likelihood; here that of a smoothly rectified weight, all integrals by quadrature."""
    nodes, weights = (jnp.asarray(part) for part in hermite_nodes(100))

    def likelihood(w):
        return jnp.exp(-((0.8 - jnp.logaddexp(0.0, 2 * w)) ** 2))

    def log_z(mean, var):
        return jnp.log(weights @ likelihood(mean + jnp.sqrt(var) * nodes))

    mean, var = scalar(-0.3), scalar(0.6)
    slope = slopes_of(*jax.grad(log_z, argnums=(0, 1))(mean, var))
    new = adf.updated_gaussian(Gaussian(mean, var), slope)

    w = mean + jnp.sqrt(var) * nodes
    posterior = weights * likelihood(w) / (weights @ likelihood(w))
    np.testing.assert_allclose(new.mean, posterior @ w, rtol=1e-8)
    np.testing.assert_allclose(new.var, posterior @ (w - new.mean) ** 2, rtol=1e-8)


def test_updates_without_a_positive_finite_variance_are_rejected_weight_by_weight(x64):
    belief = Gaussian(jnp.asarray([1.0, 2.0, 3.0, 4.0, 5.0]), 0.5)
    slope = slopes_of([0.1, 2.0, np.nan, 0.1, 0.1], [0.0, 0.0, 0.0, np.nan, np.inf])
    new = adf.updated_gaussian(belief, slope)
    # 0.5 - 0.25 * 4 < 0, NaN, NaN, inf: only the first is taken.
    np.testing.assert_allclose(new.mean, [1.05, 2.0, 3.0, 4.0, 5.0])
    np.testing.assert_allclose(new.var, [0.5 - 0.25 * 0.01, 0.5, 0.5, 0.5, 0.5])


# ---- gamma beliefs --------------------------------------------------------------------------


def papers_gamma(a, b, error, var):
    """The paper's formulas as they stand, with 60 digits."""
    with mpmath.workdps(60):
        a, b, error, var = (mpmath.mpf(float(value)) for value in (a, b, error, var))

        def log_z(shape):
            spread = var + b / (shape - 1)
            return -(mpmath.log(spread) + error**2 / spread) / 2

        first, second, third = log_z(a), log_z(a + 1), log_z(a + 2)
        new_a = 1 / (mpmath.exp(third - 2 * second + first) * (a + 1) / a - 1)
        new_b = 1 / (mpmath.exp(third - second) * (a + 1) / b - mpmath.exp(second - first) * a / b)
        return float(new_a), float(new_b)


@pytest.mark.parametrize("shape", [1.5, 6.0, 1e3, 1e7])
def test_gamma_moments_are_the_papers(shape, dtype):
    """Also after ten million rows, in either precision."""
    for noise_var in (1e-4, 1.0):
        for error, var in ((0.0, 0.0), (0.7, 0.3), (1.5, 0.0), (0.02, 1e-3), (-1.0, 2.0)):
            values = [
                dtype.type(v) for v in (shape, shape * noise_var, error * noise_var**0.5, var)
            ]
            expected = papers_gamma(*values)
            if not (expected[0] > 1 and expected[1] > 0):
                expected = values[:2]  # rejected
            a, b, error_, var_ = (jnp.asarray(v) for v in values)
            new = adf.matched_gamma(Gamma(a, b), error_, var_)
            np.testing.assert_allclose(new, expected, rtol=32 * jnp.finfo(dtype).eps)


@pytest.mark.parametrize(("error", "var"), [(0.4, 0.0), (2.0, 0.5), (0.1, 1.0)])
def test_gamma_moments_approach_the_integrals(error, var, x64):
    """What a row says about the precision's mean, up to the Gaussian approximation's O(1/a)."""
    misses = []
    for shape in (100.0, 1000.0):
        prior = stats.gamma(shape, scale=1 / shape)
        low, high = prior.ppf([1e-13, 1 - 1e-13])

        def moment(power, low=low, high=high, prior=prior):
            def integrand(p):
                spread = np.sqrt(var + 1 / p)
                return p**power * prior.pdf(p) * stats.norm.pdf(error, scale=spread)

            return integrate.quad(integrand, low, high, epsabs=0, epsrel=1e-11, limit=200)[0]

        change = moment(1) / moment(0) - 1
        new = adf.matched_gamma(gamma(shape, shape), scalar(error), scalar(var))
        misses.append(abs((new.shape / new.rate - 1) / change - 1))
    assert misses[0] < 0.05
    assert misses[1] < misses[0] / 7


def test_the_noise_of_known_values_counts_rows(x64):
    """Without model variance the posterior is conjugate: half a count and half a square per row."""
    belief = gamma(6.0, 6.0)
    errors = RNG.standard_normal(3000) * 0.5
    step = jax.jit(adf.matched_gamma)
    for error in errors:
        belief = step(belief, scalar(error), scalar(0.0))
    np.testing.assert_allclose(belief.shape, 6 + len(errors) / 2, rtol=0.01)
    np.testing.assert_allclose(belief.rate, 6 + errors @ errors / 2, rtol=0.01)


def test_a_gamma_without_a_variance_is_rejected(x64):
    """An outlier so far out that the matched shape falls to 1 or below."""
    old = gamma(1.2, 0.1)
    assert papers_gamma(1.2, 0.1, 6.0, 1.0)[0] <= 1
    new = adf.matched_gamma(old, scalar(6.0), scalar(1.0))
    np.testing.assert_array_equal(new, old)
    for error, var in ((np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0)):
        np.testing.assert_array_equal(adf.matched_gamma(old, scalar(error), scalar(var)), old)


# ---- the prior ------------------------------------------------------------------------------


def papers_refinement(mean, var, prior, factor):
    """One prior factor by the general update of expectation propagation, as the paper has it."""
    precision = 1 / var - factor[0]
    shape, rate = prior[0] - factor[1], prior[1] - factor[2]
    cavity_mean, cavity_var = mean / var / precision, 1 / precision
    spread = cavity_var + rate / (shape - 1)
    by_mean = -cavity_mean / spread
    by_var = -0.5 / spread + 0.5 * cavity_mean**2 / spread**2
    new_mean = cavity_mean + cavity_var * by_mean
    new_var = cavity_var - cavity_var**2 * (by_mean**2 - 2 * by_var)
    new_prior = papers_gamma(shape, rate, cavity_mean, cavity_var)
    new_factor = (1 / new_var - precision, new_prior[0] - shape, new_prior[1] - rate)
    return new_mean, new_var, new_prior, new_factor


def beliefs_with(network, factors=None):
    n = sum(leaf.size for leaf in jax.tree.leaves(network)) // 2
    if factors is None:
        factors = Factors(jnp.full(n, 1 / 1.2), jnp.zeros(n), jnp.zeros(n))
    return Beliefs(network, gamma(6.0, 6.0), gamma(6.0, 6.0), factors)


def flat(network):
    parts = jax.tree.leaves(network, is_leaf=lambda node: isinstance(node, Gaussian))
    return (
        np.concatenate([np.ravel(part.mean) for part in parts]),
        np.concatenate([np.ravel(part.var) for part in parts]),
    )


def test_the_prior_is_refined_as_in_the_paper(x64):
    """Two sweeps, weight after weight, the beliefs about the prior handed on."""
    beliefs = beliefs_with(random_network([2, 3, 1]))
    mean, var = flat(beliefs.network)
    prior = (6.0, 6.0)
    factors = [(1 / 1.2, 0.0, 0.0)] * len(mean)
    refine = jax.jit(adf.refine_prior)
    for _ in range(2):
        for i in range(len(mean)):
            mean[i], var[i], prior, factors[i] = papers_refinement(
                mean[i], var[i], prior, factors[i]
            )
        beliefs = refine(beliefs)
        np.testing.assert_allclose(flat(beliefs.network), (mean, var), rtol=1e-9)
        np.testing.assert_allclose(beliefs.prior, prior, rtol=1e-9)
        np.testing.assert_allclose(np.stack(beliefs.factors, 1), factors, rtol=1e-7, atol=1e-12)
    # The belief is the hyper-prior with all factors on it: nothing is counted twice or lost.
    np.testing.assert_allclose(beliefs.prior.shape, 6 + beliefs.factors.shape.sum(), rtol=1e-9)
    np.testing.assert_allclose(beliefs.prior.rate, 6 + beliefs.factors.rate.sum(), rtol=1e-9)


@pytest.mark.parametrize(
    "factor",
    [
        (3.0, 0.0, 0.0),  # the cavity's precision is negative
        (2.0 - 1e-7, 0.0, 0.0),  # it is nearly flat
        (1.0, 5.5, 0.0),  # the prior's shape would be below 1
        (1.0, 0.0, 6.5),  # its rate would be negative
    ],
)
def test_a_factor_without_a_cavity_stays(factor, x64):
    belief, prior = Gaussian(scalar(0.7), scalar(0.5)), gamma(6.0, 6.0)
    factor = Factors(*map(scalar, factor))
    new = adf.refined(belief, prior, factor)
    for one, other in zip(
        jax.tree.leaves(new), jax.tree.leaves((belief, prior, factor)), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_pass_sees_the_rows_in_order_and_no_padding(x64):
    beliefs = beliefs_with(random_network([2, 3, 1]))
    x, y = jnp.asarray(RNG.standard_normal((5, 2))), jnp.asarray(RNG.standard_normal(5))
    order = jnp.asarray([3, 0, 4, 2, 1])
    passed = jax.jit(adf.one_pass)(beliefs, x, y, order, jnp.asarray(3))
    network, noise = beliefs.network, beliefs.noise
    see = jax.jit(adf.see_row)
    for row in (3, 0, 4):
        network, noise = see(network, noise, x[row], y[row])
    expected = jax.jit(adf.refine_prior)(beliefs._replace(network=network, noise=noise))
    for one, other in zip(jax.tree.leaves(passed), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
