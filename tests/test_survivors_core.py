"""What mutants of the core survived: values, where only shapes, types or signs had been looked at."""

import jax.numpy as jnp
import numpy as np
import pytest

from varprop import Gaussian
from varprop.moments.checks import as_float_array


@pytest.mark.parametrize("value", [jnp.array([-3, 0, 2]), jnp.array([True, False])])
def test_whole_numbers_and_truth_values_keep_their_value(value):
    for dtype in (None, jnp.float32):
        array = as_float_array(value, "x", dtype)
        assert array.dtype == jnp.float32
        np.testing.assert_array_equal(array, np.asarray(value).astype(float))
    np.testing.assert_array_equal(Gaussian(value).mean, np.asarray(value).astype(float))
