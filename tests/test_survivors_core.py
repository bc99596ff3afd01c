"""What mutants of the core had survived: values where only shapes and types were looked at."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from varprop import (
    ROPD,
    VI,
    Gaussian,
    GaussianLikelihood,
    HeteroscedasticGaussian,
    JointGaussian,
    MaximumLikelihood,
    SampledVI,
    nn,
    priors,
)
from varprop.learning.likelihoods import AbstractPointwise
from varprop.moments.checks import as_float_array


@pytest.mark.parametrize("value", [jnp.array([-3, 0, 2]), jnp.array([True, False])])
def test_whole_numbers_and_truth_values_keep_their_value(value):
    for dtype in (None, jnp.float32):
        array = as_float_array(value, "x", dtype)
        assert array.dtype == jnp.float32
        np.testing.assert_array_equal(array, np.asarray(value).astype(float))
    np.testing.assert_array_equal(Gaussian(value).mean, np.asarray(value).astype(float))


@pytest.mark.parametrize(
    "integrator",
    [
        nn.GaussHermite(jnp.tanh),
        nn.Unscented(jnp.tanh),
        nn.MonteCarlo(jnp.tanh, n_samples=1000, key=jax.random.key(0)),
        nn.Table(jnp.tanh),
    ],
    ids=lambda integrator: type(integrator).__name__,
)
def test_an_integrator_is_an_argument_of_a_compiled_function(integrator):
    """Its function is part of its structure and no leaf, which `jax.jit` would refuse."""
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(integrator))
    found = jax.jit(lambda layer, x: layer.moments(x))(integrator, Gaussian(jnp.ones(2), 0.25))
    z = stats.norm.ppf((np.arange(10_000) + 0.5) / 10_000)
    np.testing.assert_allclose(found.mean, np.tanh(1 + 0.5 * z).mean(), rtol=0.02)


def test_which_objectives_are_known_without_sampling():
    """One pass gives their final value; of a sampled one sixteen are averaged."""
    sampled = {kind.__name__: kind.sampled for kind in (VI, ROPD, MaximumLikelihood, SampledVI)}
    assert [name for name, is_sampled in sampled.items() if is_sampled] == ["SampledVI"]


WEIGHTS = nn.GaussianWeights(np.ones((2, 2)), np.ones((2, 2)))


@pytest.mark.parametrize(
    "prior", [priors.LearnedGaussian(), priors.LearnedGaussianPerLayer(2)], ids=["one", "per layer"]
)
def test_where_learned_priors_start(prior):
    for layer in (0, 1):
        found = prior.distribution(layer, WEIGHTS)
        assert (float(found.mean), float(found.var)) == (0.0, pytest.approx(0.04))
    fixed = priors.FixedGaussian()
    assert (fixed.distribution(0, WEIGHTS).mean, fixed.log_std) == (0, 0)
    assert priors.LearnedBernoulli().logit == priors.FixedBernoulli().logit == 0


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda key: nn.Normal(1.0, 2.0).sample(key, (4000,), jnp.float32), stats.norm(1, 2)),
        (lambda key: nn.Uniform(-1.0, 3.0).sample(key, (4000,), jnp.float32), stats.uniform(-1, 4)),
        (lambda key: Gaussian(jnp.ones(1), 4.0).sample(key, (4000,)), stats.norm(1, 2)),
        (
            lambda key: nn.GaussianWeights(jnp.ones((80, 50)), 2.0).sample(key),
            stats.norm(1, 2),
        ),
        (
            lambda key: JointGaussian(jnp.ones(1), jnp.full((1, 1), 4.0)).sample(key, (4000,)),
            stats.norm(1, 2),
        ),
        (
            lambda key: nn.AdditiveNoise(nn.Normal(1.0, 2.0)).corrupt(key, jnp.zeros((80, 50))),
            stats.norm(1, 2),
        ),
    ],
    ids=["normal", "uniform", "gaussian", "weights", "joint", "noise"],
)
def test_draws_have_the_whole_distribution(draw, law):
    """Moments alone do not tell: where tails are heavy their standard errors forgive anything.

    By Kolmogorov and Smirnov, at a false-alarm rate of 1e-6 for one fixed key each.
    """
    draws = np.ravel(draw(jax.random.key(3))).astype(float)
    assert draws.size == 4000
    assert stats.kstest(draws, law.cdf).pvalue > 1e-6


class UnitNoise(AbstractPointwise):
    """y = f + a standard Gaussian, by quadrature."""

    @classmethod
    def start(cls, n_targets, *, noise_std=0.5, y=None):
        return cls()

    @property
    def n_targets(self):
        return 2

    def log_prob(self, f, y):
        return jax.scipy.stats.norm.logpdf(y, f)

    def predictive(self, f):
        raise NotImplementedError


@pytest.mark.parametrize("batch", [(), (3,), (4, 3)], ids=str)
def test_targets_are_summed_whatever_the_batch(batch):
    rng = np.random.default_rng(0)
    mean, var, y = rng.normal(size=(3, *batch, 2))
    f = Gaussian(jnp.asarray(mean, jnp.float32), jnp.asarray(var**2, jnp.float32))
    y = jnp.asarray(y, jnp.float32)
    expected = (stats.norm.logpdf(y, mean) - 0.5 * var**2).sum(axis=-1)
    np.testing.assert_allclose(UnitNoise().expected_log_prob(f, y), expected, rtol=1e-4)
    density = stats.norm.logpdf(y, mean, np.sqrt(1 + var**2)).sum(axis=-1)
    np.testing.assert_allclose(UnitNoise().log_predictive(f, y), density, rtol=1e-4)


def test_a_floor_is_put_under_the_noise_and_taken_into_it():
    """The noise stays what it was as far as it can; the floor holds while it is learned."""
    plain = GaussianLikelihood(np.array([0.5, 0.05], np.float32))
    raised = plain.floored(np.array([0.3, 0.2]))
    np.testing.assert_allclose(raised.floor, [0.3, 0.2], rtol=1e-6)
    np.testing.assert_allclose(raised.noise_var, [0.25, 0.04], rtol=1e-4)
    lower = eqx.tree_at(lambda noise: noise.log_std, raised, raised.log_std - 20)
    np.testing.assert_allclose(lower.noise_var, [0.09, 0.04], rtol=1e-5)
    kept = lower.floored(None)
    assert kept.floor is None
    np.testing.assert_allclose(kept.noise_var, [0.09, 0.04], rtol=1e-5)


@pytest.mark.parametrize("kind", [GaussianLikelihood, HeteroscedasticGaussian])
def test_a_likelihood_takes_numbers_of_any_kind(kind):
    for std in ([1, 2], np.array([1, 2]), (1.0, 2.0)):
        np.testing.assert_allclose(kind(std).log_std, np.log([1.0, 2.0]), rtol=1e-6)


def test_bits_ask_for_a_prior_of_bits_whatever_the_biases_are():
    bits = nn.BernoulliWeights(jnp.full((1, 2), 0.5))
    layer = nn.Dense(bits, nn.PointWeights(jnp.zeros(1)))
    assert isinstance(priors.default_prior(layer), priors.LearnedBernoulli)
    points = nn.Dense(nn.PointWeights(jnp.zeros((1, 2))), None)
    assert isinstance(priors.default_prior(points), priors.LearnedGaussian)


@pytest.mark.parametrize("kind", [priors.FixedBernoulli, priors.LearnedBernoulli])
def test_a_probability_that_is_no_number_is_named(kind):
    with pytest.raises(TypeError, match="p must be an array of real numbers, but is str"):
        kind("half")
