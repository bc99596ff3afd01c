"""The parts under the rectifier, and the other scalar functions of `varprop.moments.numerics`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import truth
from varprop.moments import numerics

pytestmark = pytest.mark.usefixtures("strict_promotion")


@pytest.mark.parametrize(("table", "bound"), [("TAIL_32", 1.2e-8), ("TAIL_64", 4e-16)])
def test_rational_tables_against_mpmath(table, bound):
    """Both fits, evaluated in float64: the second cannot be seen below float64's own rounding."""
    fit = getattr(numerics, table)
    x = np.linspace(0, fit["x_max"], 2001)
    ratio, mean = truth.mills(x, 1.0)
    denominator = np.polynomial.Polynomial(fit["D"])(x)
    for name, expected in (("R", ratio), ("M", mean)):
        value = np.polynomial.Polynomial(fit[name])(x) / denominator
        assert truth.relative_error(value, expected).max() <= bound + 16 * 2.0**-53


def test_kept_bell(dtype):
    """The exponential made from the bits of a float32, over all it is ever asked for."""
    x_max = (numerics.TAIL_32 if dtype == jnp.float32 else numerics.TAIL_64)["x_max"]
    x = jnp.linspace(0, x_max, 100_001, dtype=dtype)
    keep = 2.0**64 if dtype == jnp.float32 else 1.0
    found = np.asarray(jax.jit(numerics._kept_bell)(x), np.float64) / keep
    exact = np.exp(-0.5 * np.asarray(x, np.float64) ** 2)
    # x^2 / 2 is rounded before it is exponentiated: a relative error of x^2 / 2 times eps.
    bound = float(jnp.finfo(dtype).eps) * (2 + 0.6 * np.asarray(x, np.float64) ** 2)
    assert np.all(np.abs(found - exact) <= bound * exact + np.finfo(np.float64).tiny)
    assert found[0] == 1
    slope = jax.vmap(jax.grad(numerics._kept_bell))(x[::1000])
    np.testing.assert_allclose(slope, -x[::1000] * numerics._kept_bell(x[::1000]), rtol=1e-6)


def test_normal_log_density(dtype):
    z, var = np.meshgrid([0.0, 0.3, -2.0, 1e3], [1e-30, 1e-3, 1.0, 7.0, 1e12], indexing="ij")
    error, var = jnp.asarray(z * np.sqrt(var), dtype), jnp.asarray(var, dtype)
    eps = float(jnp.finfo(dtype).eps)
    found = numerics.normal_log_density(error, var)
    expected = stats.norm.logpdf(np.float64(error), scale=np.sqrt(np.float64(var)))
    np.testing.assert_allclose(found, expected, rtol=8 * eps, atol=60 * eps)
    by_error, by_var = jax.grad(lambda e, v: jnp.sum(numerics.normal_log_density(e, v)), (0, 1))(
        error, var
    )
    e, v = np.asarray(error, np.float64), np.asarray(var, np.float64)
    np.testing.assert_allclose(by_error, -e / v, rtol=8 * eps)
    np.testing.assert_allclose(by_var, 0.5 * (e**2 / v - 1) / v, rtol=8 * eps)


def test_normal_log_density_of_points():
    error, var = jnp.array([0.0, 1.0, 1.0, 1.0]), jnp.array([0.0, 0.0, -1.0, jnp.nan])
    np.testing.assert_array_equal(
        numerics.normal_log_density(error, var), [np.inf, -np.inf, np.nan, np.nan]
    )
    for part in jax.grad(lambda e, v: jnp.sum(numerics.normal_log_density(e, v)), (0, 1))(
        error, var
    ):
        np.testing.assert_array_equal(part[:2], 0.0)


def test_square_root(dtype):
    x = jnp.asarray([0.0, 1e-30, 4.0, 1e30], dtype)
    np.testing.assert_allclose(
        numerics.square_root(x), np.sqrt(np.asarray(x)), rtol=2 * float(jnp.finfo(dtype).eps)
    )
    slope = jax.vmap(jax.grad(numerics.square_root))(x)
    assert slope[0] == 0
    np.testing.assert_allclose(slope[1:], 0.5 / np.sqrt(np.asarray(x[1:])), rtol=1e-6)
    assert np.isnan(numerics.square_root(jnp.asarray(-1.0, dtype)))
    assert np.isnan(numerics.square_root(jnp.asarray(jnp.nan, dtype)))


@pytest.mark.parametrize("n", [1, 2, 5, 20, 64])
def test_hermite_nodes_integrate_polynomials(n):
    """Exact to degree 2n - 1, and no further: E[z^2k] = (2k - 1)!!."""
    z, w = numerics.hermite_nodes(n)
    assert np.all(w >= 0)
    degree = min(2 * n - 2, 24)
    expected = np.prod(np.arange(degree - 1, 0, -2, dtype=float))
    assert w @ z**degree == pytest.approx(expected, rel=1e-12)
    assert w @ z ** (degree + 1) == pytest.approx(0, abs=1e-9 * max(expected, 1) * z.max(initial=1))
    if n <= 5:
        assert w @ z ** (2 * n) != pytest.approx(np.prod(np.arange(2 * n - 1, 0, -2, dtype=float)))


@pytest.mark.parametrize("n", [1, 4, 24])
def test_legendre_nodes_integrate_polynomials(n):
    t, w = numerics.legendre_nodes(n)
    for degree in range(2 * n):
        assert w @ t**degree == pytest.approx(1 / (degree + 1), rel=1e-13)
