"""What mutants of the core had survived: values where only shapes and types were looked at."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from varprop import ROPD, VI, Gaussian, MaximumLikelihood, SampledVI, nn, priors
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


@pytest.mark.parametrize(
    "prior", [priors.LearnedGaussian(), priors.LearnedGaussianPerLayer(2)], ids=["one", "per layer"]
)
def test_where_learned_priors_start(prior):
    for layer in (0, 1):
        found = prior.distribution(layer)
        assert (float(found.mean), float(found.var)) == (0.0, pytest.approx(0.04))
    assert (priors.FixedGaussian().distribution(0).mean, priors.FixedGaussian().log_std) == (0, 0)
    assert priors.LearnedBernoulli().logit == priors.FixedBernoulli().logit == 0
