"""The rectifier's moments and the step's probabilities hold over the whole range that is promised.

The issue asks of float32: r = mean / std from -30 to 1e4, variance from 0 to 1e12, a relative error
of at most 1e-3 in the variance wherever the true value is a normal number. 4e-5 was measured.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import truth
from varprop.moments.numerics import rectifier_line, rectifier_moments, step_probability

pytestmark = pytest.mark.usefixtures("strict_promotion")

R = np.concatenate([np.linspace(-30, 30, 1201), np.geomspace(31, 1e4, 40)])
VARS = np.array([1e-30, 1e-12, 1.0, 1e6, 1e12])
TINY = float(np.finfo(np.float32).tiny)

# Hostile points of the gradient, as (mean, var).
HOSTILE_R = np.array([-1e4, -30.0, -3.0, -1.0, 0.0, 1.0, 3.0, 30.0, 1e4])
HOSTILE_VARS = np.array([1e-30, 1.0, 1e12])
EXTREME_MEANS = np.array([0.0, 1e-45, 1e-38, 1e-30, 1e-10, 1.0, 1e4, 1e10, 1e19, 1e30, 3e38])
EXTREME_VARS = np.array([0.0, 1e-45, 1e-38, 1e-30, 1e-10, 1.0, 1e12, 1e18])


def grid(r, variances):
    """Means and variances that float32 holds exactly: the truth is asked the same question."""
    r, var = np.meshgrid(r, variances.astype(np.float32), indexing="ij")
    return (r * np.sqrt(var)).astype(np.float32), var


def extremes():
    means = np.concatenate([EXTREME_MEANS, -EXTREME_MEANS])
    mean, var = np.meshgrid(means, EXTREME_VARS, indexing="ij")
    return jnp.asarray(mean, jnp.float32), jnp.asarray(var, jnp.float32)


@pytest.fixture(scope="module")
def dense():
    mean, var = grid(R, VARS)
    return mean, var, truth.rectifier(mean, var)


def partials(function, mean, var):
    """d(first)/dmean, d(first)/dvar, d(second)/dmean, d(second)/dvar, elementwise."""

    @jax.jit
    def both(mean, var):
        _, pullback = jax.vjp(function, mean, var)
        one, zero = jnp.ones_like(mean), jnp.zeros_like(mean)
        return *pullback((one, zero)), *pullback((zero, one))

    return [np.asarray(part, np.float64) for part in both(mean, var)]


def rounding_bound(mean, var, dtype, factor):
    """Relative error that rounding of r alone explains: the tail's log moves by r dr = r^2 eps."""
    r = np.float64(mean) / np.sqrt(np.float64(var))
    return factor * float(jnp.finfo(dtype).eps) * (1 + np.minimum(r, 0) ** 2)


def test_moments_against_mpmath(dense, dtype):
    mean, var, exact = dense
    found = jax.jit(rectifier_moments)(jnp.asarray(mean, dtype), jnp.asarray(var, dtype))
    smallest = TINY if dtype == jnp.float32 else 1e-290
    limit = 1e-4 if dtype == jnp.float32 else 1e-12
    bound = np.minimum(rounding_bound(mean, var, dtype, 6), limit)
    for value, expected in zip(found, exact, strict=True):
        seen = expected > smallest
        error = truth.relative_error(value, np.where(seen, expected, 1))
        assert np.all((error <= bound)[seen])


def test_moments_are_never_negative_nor_nan(dense):
    mean, var, _ = dense
    for m, v in ((jnp.asarray(mean), jnp.asarray(var)), extremes()):
        out_mean, out_var = rectifier_moments(m, v)
        assert np.all(np.isfinite(out_mean))
        assert np.all(np.isfinite(out_var))
        assert np.all(out_mean >= jnp.maximum(m, 0))
        assert np.all(out_var >= 0)
        # V[max(a, 0)] <= V[a]: beyond zero the rectifier only contracts.
        assert np.all(out_var <= v)


def test_textbook_formula_would_fail(dense):
    """The bound has teeth: in float32 the difference of moments has lost every digit at r = 1e4."""
    mean, var, (_, exact) = dense
    m, v = jnp.asarray(mean), jnp.asarray(var)
    r = m / jnp.sqrt(v)
    cdf, pdf = jax.scipy.stats.norm.cdf(r), jax.scipy.stats.norm.pdf(r)
    first = m * cdf + jnp.sqrt(v) * pdf
    textbook = (m * m + v) * cdf + m * jnp.sqrt(v) * pdf - first * first
    far = R > 1000
    assert np.any(truth.relative_error(textbook, exact)[far] > 1e-3)


def test_known_input_is_the_plain_rectifier(dtype):
    mean = jnp.asarray([-1e30, -1e4, -1.0, -1e-30, 0.0, 1e-30, 1.0, 1e4, 1e30], dtype)
    out_mean, out_var = rectifier_moments(mean, jnp.zeros_like(mean))
    np.testing.assert_array_equal(out_mean, np.maximum(mean, 0))
    np.testing.assert_array_equal(out_var, 0.0)


def test_gradients_against_exact_partials(dtype):
    mean, var = grid(np.concatenate([HOSTILE_R, np.linspace(-14, 14, 57)]), HOSTILE_VARS)
    exact = truth.rectifier_partials(mean, var)
    found = partials(rectifier_moments, jnp.asarray(mean, dtype), jnp.asarray(var, dtype))
    smallest = TINY if dtype == jnp.float32 else 1e-290
    bound = np.minimum(
        # dE/dvar and dV/dmean decay on both sides, hence |r| and not only the negative side.
        rounding_bound(-np.abs(mean), var, dtype, 6),
        1e-4 if dtype == jnp.float32 else 1e-12,
    )
    for value, expected in zip(found, exact, strict=True):
        seen = np.abs(expected) > smallest
        error = truth.relative_error(value, np.where(seen, expected, 1))
        assert np.all((error <= bound)[seen])
        assert np.all(np.abs(value[~seen]) <= 2 * smallest)  # what is below underflows to nothing


@pytest.mark.usefixtures("x64")
def test_gradients_against_finite_differences():
    mean, var = grid(HOSTILE_R, HOSTILE_VARS)
    mean, var = jnp.asarray(mean, jnp.float64), jnp.asarray(var, jnp.float64)
    # Steps in units of the standard deviation, shorter in the tail, where the scale is 1 / |r|.
    r = np.abs(mean) / np.sqrt(var)
    h_mean, h_var = 1e-4 * np.sqrt(var) / np.maximum(r, 1), 1e-4 * var / np.maximum(r, 1) ** 2
    found = partials(rectifier_moments, mean, var)
    for k in (0, 1):
        by_mean = (
            rectifier_moments(mean + h_mean, var)[k] - rectifier_moments(mean - h_mean, var)[k]
        )
        by_var = rectifier_moments(mean, var + h_var)[k] - rectifier_moments(mean, var - h_var)[k]
        # What cancels in the difference: rounding of the two values, over the step.
        noise = 4e-16 * np.abs(rectifier_moments(mean, var)[k])
        for value, slope, step in (
            (found[2 * k], by_mean / (2 * h_mean), h_mean),
            (found[2 * k + 1], by_var / (2 * h_var), h_var),
        ):
            np.testing.assert_array_less(
                np.abs(value - slope), 1e-7 * np.abs(value) + 4 * noise / step + 1e-300
            )


def test_gradients_at_zero_variance_are_the_limits(dtype):
    mean = jnp.asarray([-1e20, -1e4, -1.0, -1e-10, 1e-10, 1.0, 1e4, 1e20], dtype)
    by_mean, by_var, var_by_mean, var_by_var = partials(
        rectifier_moments, mean, jnp.zeros_like(mean)
    )
    positive = np.asarray(mean > 0, np.float64)
    np.testing.assert_array_equal(by_mean, positive)
    np.testing.assert_allclose(by_var, 0.0, atol=1e-30)
    np.testing.assert_allclose(var_by_mean, 0.0, atol=1e-20)
    np.testing.assert_array_equal(var_by_var, positive)


@pytest.mark.parametrize("function", [rectifier_moments, step_probability])
def test_no_gradient_is_nan_or_infinite(function):
    mean, var = extremes()
    for part in partials(function, mean, var):
        assert np.all(np.isfinite(part))


@jax.jit
@jax.vmap
def second_derivatives(mean, var):
    """The Hessians of E and V, elementwise, shape (n, 2, 2, 2)."""
    return jax.jacrev(jax.jacrev(lambda a: jnp.stack(rectifier_moments(a[0], a[1]))))(
        jnp.stack([mean, var])
    )


def test_second_derivatives(dtype):
    """Against the derivatives of the exact partials, at regular points."""
    mean = jnp.asarray([-3.0, -1.0, -0.1, 0.3, 1.0, 3.0, 6.0], dtype)
    var = jnp.asarray([2.0, 1.0, 0.25, 4.0, 1.0, 0.5, 9.0], dtype)
    found = np.asarray(second_derivatives(mean, var), np.float64)
    m, v, h = np.asarray(mean, np.float64), np.asarray(var, np.float64), 1e-5
    for axis, (plus, minus) in enumerate((((m + h, v), (m - h, v)), ((m, v + h), (m, v - h)))):
        up, down = truth.rectifier_partials(*plus), truth.rectifier_partials(*minus)
        slopes = [(a - b) / (2 * h) for a, b in zip(up, down, strict=True)]
        expected = np.array([[slopes[0], slopes[1]], [slopes[2], slopes[3]]])
        bound = 1e-4 if dtype == jnp.float32 else 1e-7
        np.testing.assert_allclose(
            np.moveaxis(found[..., axis], 0, -1), expected, rtol=bound, atol=bound
        )


def test_second_derivatives_are_finite_in_the_tails():
    mean, var = grid(np.array([-30.0, -10.0, 10.0, 30.0, 1e4]), np.array([1e-4, 1.0, 1e4]))
    found = second_derivatives(jnp.asarray(mean.ravel()), jnp.asarray(var.ravel()))
    assert np.all(np.isfinite(found))


def test_jit_and_vmap_change_nothing(dense, dtype):
    mean, var = (jnp.asarray(part[::20], dtype) for part in dense[:2])
    plain = rectifier_moments(mean, var)
    # Fusing a multiplication with an addition rounds r^2 differently.
    bound = rounding_bound(mean, var, dtype, 6)
    for other in (jax.jit(rectifier_moments), jax.vmap(rectifier_moments)):
        for a, b in zip(plain, other(mean, var), strict=True):
            seen = np.asarray(a) > TINY
            relative = truth.relative_error(b, np.where(seen, a, 1))
            assert np.all((relative <= bound)[seen])


def test_scaling(dense, dtype):
    """Scaling a by c scales the mean by c and the variance by c^2; by a power of 2, to the bit."""
    mean, var = (jnp.asarray(part[:, 2], dtype) for part in dense[:2])  # the column of variance 1
    out_mean, out_var = rectifier_moments(mean, var)
    for c in (2.0**-20, 0.5, 8.0, 2.0**19):
        scaled_mean, scaled_var = rectifier_moments(c * mean, c**2 * var)
        seen = np.asarray(out_var * min(c**2, 1)) > 1e3 * TINY
        np.testing.assert_array_equal(np.asarray(scaled_mean)[seen], np.asarray(c * out_mean)[seen])
        np.testing.assert_array_equal(
            np.asarray(scaled_var)[seen], np.asarray(c**2 * out_var)[seen]
        )


def test_step_probabilities_against_mpmath(dtype):
    mean, var = grid(np.linspace(-35, 35, 701), np.array([1e-30, 1.0, 1e12]))
    above, below, _ = truth.step(mean, var)
    found = step_probability(jnp.asarray(mean, dtype), jnp.asarray(var, dtype))
    smallest = TINY if dtype == jnp.float32 else 1e-290
    bound = np.minimum(
        rounding_bound(-np.abs(mean), var, dtype, 6), 1e-4 if dtype == jnp.float32 else 1e-12
    )
    for value, expected in zip(found, (above, below), strict=True):
        seen = expected > smallest
        assert np.all((truth.relative_error(value, np.where(seen, expected, 1)) <= bound)[seen])
        assert np.all(np.asarray(value) >= 0)
        assert np.all(np.asarray(value) <= 1)


def test_step_gradients_against_exact_partials(dtype):
    mean, var = grid(np.linspace(-9, 9, 37), np.array([1e-10, 1.0, 1e10]))
    by_mean, by_var = truth.step_partials(mean, var)
    found = partials(step_probability, jnp.asarray(mean, dtype), jnp.asarray(var, dtype))
    bound = np.minimum(
        rounding_bound(-np.abs(mean), var, dtype, 6), 1e-4 if dtype == jnp.float32 else 1e-12
    )
    for value, expected in zip(found, (by_mean, by_var, -by_mean, -by_var), strict=True):
        assert np.all(np.abs(value - expected) <= bound * np.abs(expected))


def test_step_of_a_known_input(dtype):
    mean = jnp.asarray([-1e30, -1.0, -1e-30, 0.0, 1e-30, 1.0, 1e30], dtype)
    zero = jnp.zeros_like(mean)
    above, below = step_probability(mean, zero)
    np.testing.assert_array_equal(above, np.asarray(mean) > 0)
    np.testing.assert_array_equal(below, np.asarray(mean) <= 0)
    for part in partials(step_probability, mean, zero):
        np.testing.assert_array_equal(part, 0.0)


# ---- the slope of the line -----------------------------------------------------------------------


def slope(mean, var):
    return rectifier_line(mean, var)[2]


def test_the_slope_and_its_partials_against_mpmath(dtype):
    """P(a > 0), and its derivatives, where the second order of training takes them."""
    mean, var = grid(np.concatenate([HOSTILE_R, np.linspace(-14, 14, 57)]), HOSTILE_VARS)
    m, v = jnp.asarray(mean, dtype), jnp.asarray(var, dtype)

    @jax.jit
    def all_three(m, v):
        value, pullback = jax.vjp(slope, m, v)
        return value, *pullback(jnp.ones_like(m))

    smallest = TINY if dtype == jnp.float32 else 1e-290
    limit = 1e-4 if dtype == jnp.float32 else 1e-12
    bound = np.minimum(rounding_bound(-np.abs(mean), var, dtype, 6), limit)
    exact = truth.step(mean, var)[0], *truth.step_partials(mean, var)
    # The value once more without a derivative, which is another program.
    found, exact = (*all_three(m, v), jax.jit(slope)(m, v)), (*exact, exact[0])
    for value, expected in zip(found, exact, strict=True):
        seen = np.abs(expected) > smallest
        error = truth.relative_error(value, np.where(seen, expected, 1))
        assert np.all((error <= bound)[seen])
        assert np.all(np.abs(np.asarray(value)[~seen]) <= 2 * smallest)


def test_the_slope_at_known_and_extreme_inputs():
    """The plain step and no derivative at var = 0; nothing but finite numbers anywhere."""
    for m, v in (extremes(), map(jnp.asarray, grid(R, VARS))):
        value, pullback = jax.jit(lambda m, v: jax.vjp(slope, m, v))(m, v)
        by_mean, by_var = pullback(jnp.ones_like(m))
        assert np.all((np.asarray(value) >= 0) & (np.asarray(value) <= 1))
        assert np.all(np.isfinite(by_mean))
        assert np.all(np.isfinite(by_var))
        assert np.all(np.asarray(by_mean) >= 0)
        known = (np.asarray(v) == 0) & (np.abs(m) > 1e-16)
        np.testing.assert_array_equal(np.asarray(value)[known], np.asarray(m > 0)[known])
        assert not np.any(np.asarray(by_mean)[np.asarray(v) == 0])


@pytest.mark.usefixtures("x64")
def test_the_four_share_one_derivative():
    """Second derivatives of the mean are slope's and bend's: by differences, where not flat."""
    mean, var = jnp.asarray([-2.0, -0.3, 0.0, 0.7, 3.0]), jnp.asarray([0.5, 1.0, 2.0, 0.1, 4.0])
    h = 1e-6

    def of(name, m, v):
        return np.asarray(rectifier_line(m, v)[name])

    _, tangent = jax.jvp(rectifier_line, (mean, var), (jnp.ones(5), jnp.zeros(5)))
    _, by_var = jax.jvp(rectifier_line, (mean, var), (jnp.zeros(5), jnp.ones(5)))
    for i in range(4):
        difference = (of(i, mean + h, var) - of(i, mean - h, var)) / (2 * h)
        np.testing.assert_allclose(tangent[i], difference, rtol=1e-7, atol=1e-9)
        difference = (of(i, mean, var + h) - of(i, mean, var - h)) / (2 * h)
        np.testing.assert_allclose(by_var[i], difference, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(tangent[0], of(2, mean, var), rtol=1e-14)
    np.testing.assert_allclose(by_var[0], of(3, mean, var), rtol=1e-14)


def bend(mean, var):
    return rectifier_line(mean, var)[3]


def test_the_bend_against_the_density(dtype):
    """phi(mean / std) / (2 std), by SciPy; 0 where its own derivatives would overflow."""
    mean, var = grid(np.linspace(-8, 8, 33), np.array([1e-12, 1e-3, 1.0, 1e6]))
    found = np.asarray(bend(jnp.asarray(mean, dtype), jnp.asarray(var, dtype)), np.float64)
    std = np.sqrt(np.asarray(jnp.asarray(var, dtype), np.float64))
    exact = scipy.stats.norm.pdf(np.asarray(jnp.asarray(mean, dtype), np.float64) / std) / (2 * std)
    np.testing.assert_allclose(found, exact, rtol=1e-4 if dtype == jnp.float32 else 1e-11)


def test_the_bend_at_known_and_extreme_inputs():
    for m, v in (extremes(), map(jnp.asarray, grid(R, VARS))):
        value, pullback = jax.jit(lambda m, v: jax.vjp(bend, m, v))(m, v)
        for part in (value, *pullback(jnp.ones_like(m))):
            assert np.all(np.isfinite(part))
        assert np.all(np.asarray(value) >= 0)
        assert not np.any(np.asarray(value)[np.asarray(v) == 0])
