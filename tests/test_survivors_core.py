"""What mutants of the core had survived: values where only shapes and types were looked at."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from varprop import Gaussian, nn
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
