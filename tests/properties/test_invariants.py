"""Properties that hold for every input, searched by Hypothesis over many scales."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from varprop import Gaussian, JointGaussian, nn
from varprop.moments.covariance import DiagonalPlusLowRank
from varprop.moments.numerics import rectifier_moments, step_probability

pytestmark = pytest.mark.usefixtures("strict_promotion")

# One shape for everything: each function compiles once and then runs for all examples.
SIZE = 16
rectify = jax.jit(rectifier_moments)
step = jax.jit(step_probability)


def floats(low, high):
    # XLA flushes subnormal numbers to zero, which is no property of the library.
    elements = st.floats(low, high, width=32, allow_subnormal=False)
    return arrays(np.float32, SIZE, elements=elements)


means = floats(-(2.0**40), 2.0**40)
exponents = arrays(np.int32, SIZE, elements=st.integers(-100, 40))
mantissas = floats(1.0, 2.0)
ratios = floats(-12.0, 64.0)


def variances(mantissa, exponent):
    """Variances from 1e-30 to 1e12, as likely small as large."""
    return mantissa * np.exp2(exponent.astype(np.float32))


@given(means, mantissas, exponents)
@example(np.zeros(SIZE, np.float32), np.ones(SIZE, np.float32), np.full(SIZE, -100, np.int32))
def test_rectifier_bounds(mean, mantissa, exponent):
    """max(m, 0) <= E <= max(m, 0) + std / sqrt(2 pi), 0 <= V <= v, and E^2 + V <= m^2 + v."""
    var = variances(mantissa, exponent)
    e, v = (np.float64(part) for part in rectify(mean, var))
    m, std = np.float64(mean), np.sqrt(np.float64(var))
    assert np.all(e >= np.maximum(m, 0))
    assert np.all(e <= (np.maximum(m, 0) + std / np.sqrt(2 * np.pi)) * (1 + 1e-6))
    assert np.all(v >= 0)
    assert np.all(v <= var)
    assert np.all(e**2 + v <= (m**2 + std**2) * (1 + 1e-6))


@given(ratios, mantissas, exponents, st.integers(-10, 10))
def test_rectifier_scaling(r, mantissa, exponent, power):
    """By a power of 2 the moments scale to the bit, wherever nothing underflows."""
    var = variances(mantissa, np.maximum(exponent, -60))
    mean = (r * np.sqrt(var)).astype(np.float32)
    c = np.float32(2.0**power)
    e, v = rectify(mean, var)
    scaled_e, scaled_v = rectify(c * mean, c * c * var)
    normal = np.asarray(v) * min(float(c * c), 1.0) > 1e-30
    np.testing.assert_array_equal(np.asarray(scaled_e)[normal], np.asarray(c * e)[normal])
    np.testing.assert_array_equal(np.asarray(scaled_v)[normal], np.asarray(c * c * v)[normal])


@given(ratios, mantissas, exponents)
def test_rectifier_reflection(r, mantissa, exponent):
    """max(a, 0) - max(-a, 0) = a: the means differ by m, and the variances sum to v - 2 E E'."""
    var = variances(mantissa, np.maximum(exponent, -60))
    mean = (r * np.sqrt(var)).astype(np.float32)
    up, up_var = (np.float64(part) for part in rectify(mean, var))
    down, down_var = (np.float64(part) for part in rectify(-mean, var))
    scale = np.abs(np.float64(mean)) + np.sqrt(np.float64(var))
    assert np.all(np.abs(up - down - mean) <= 4e-7 * scale)
    assert np.all(np.abs(up_var + down_var + 2 * up * down - var) <= 4e-6 * np.float64(var))


@given(arrays(np.float32, 2, elements=st.floats(-8, 64, width=32)), mantissas, exponents)
def test_rectifier_is_monotonic_in_the_mean(pair, mantissa, exponent):
    """Mean and variance both rise with the mean: dE/dm = Phi(r), dV/dm = 2 E Phi(-r)."""
    var = variances(mantissa, np.maximum(exponent, -60))
    low, high = np.sort(pair)
    assume(high - low > 1e-3)
    std = np.sqrt(var)
    below, above = (rectify((r * std).astype(np.float32), var) for r in (low, high))
    assert np.all(np.asarray(below[0]) <= np.asarray(above[0]) * (1 + 1e-5))
    assert np.all(np.asarray(below[1]) <= np.asarray(above[1]) * (1 + 1e-5))


@given(means, mantissas, exponents)
def test_step_probabilities(mean, mantissa, exponent):
    """They sum to 1, mirror each other, and agree with the sign of the mean."""
    var = variances(mantissa, exponent)
    above, below = (np.asarray(part) for part in step(mean, var))
    mirrored_above, mirrored_below = (np.asarray(part) for part in step(-mean, var))
    np.testing.assert_allclose(above + below, 1.0, rtol=2e-7)
    np.testing.assert_allclose(above, mirrored_below, rtol=1e-6)
    np.testing.assert_allclose(below, mirrored_above, rtol=1e-6)
    assert np.all((above >= 0.5) == (mean >= 0) | (above == 0.5))


moderate = floats(-100.0, 100.0)
spreads = floats(0.0, 100.0)


@given(moderate, spreads, moderate, spreads, moderate, spreads)
def test_gaussian_algebra(a, va, b, vb, c, vc):
    """Sums commute and associate, products commute, variances stay non-negative."""
    pairs, neutral = algebra(a, va, b, vb, c, vc)
    for left, right in pairs:
        # Sums of up to three numbers below 100 and products of two, of either sign.
        np.testing.assert_allclose(left.mean, right.mean, rtol=1e-6, atol=1e-4)
        np.testing.assert_allclose(left.var, right.var, rtol=1e-6)
        assert np.all(left.var >= 0)
    for same in neutral:  # to the bit
        np.testing.assert_array_equal(same.mean, a)
        np.testing.assert_array_equal(same.var, va)


@jax.jit
def algebra(a, va, b, vb, c, vc):
    x, y, z = Gaussian(a, va), Gaussian(b, vb), Gaussian(c, vc)
    one, zero = Gaussian(jnp.ones(SIZE)), Gaussian(jnp.zeros(SIZE))
    pairs = [
        (x + y, y + x),
        ((x + y) + z, x + (y + z)),
        (x * y, y * x),
        (x - y, -(y - x)),
        (x * 2.0, x + Gaussian(a) + Gaussian(jnp.zeros(SIZE), 3.0 * va)),
    ]
    return pairs, [x * one, x + zero, one * x, zero + x]


WEIGHT_MEAN = jax.random.normal(jax.random.key(0), (3, SIZE))
LAYERS = {
    kind: kind(nn.GaussianWeights(WEIGHT_MEAN, 0.5), nn.GaussianWeights(jnp.zeros(3), 0.1))
    for kind in (nn.Dense, nn.JointDense)
}
dense = jax.jit(lambda mean, var: LAYERS[nn.Dense].moments(Gaussian(mean, var)))
joint = jax.jit(lambda mean, var: LAYERS[nn.JointDense].moments(Gaussian(mean, var)))


@given(moderate, moderate, spreads)
def test_dense_is_linear_in_the_mean(a, b, var):
    """E[W (a + b)] = E[W a] + E[W b]; the variance grows with the inputs'."""
    whole, first, second = (dense(m, var).mean for m in (a + b, a, b))
    np.testing.assert_allclose(whole, first + second, rtol=1e-5, atol=1e-2)
    wider = dense(a, var + 1)
    assert np.all(wider.var >= dense(a, var).var)


@given(moderate, spreads)
def test_joint_dense_is_a_covariance(mean, var):
    """Symmetric, positive semi-definite, and its diagonal is Dense's variance."""
    out = joint(mean, var)
    cov = np.float64(out.dense_cov())
    np.testing.assert_array_equal(cov, cov.T)
    eigenvalues = np.linalg.eigvalsh(cov)
    assert eigenvalues.min() >= -1e-5 * eigenvalues.max()
    np.testing.assert_allclose(np.diagonal(cov), dense(mean, var).var, rtol=1e-5)


@given(
    arrays(np.float32, 3, elements=st.floats(0.25, 4, width=32)),
    arrays(np.float32, 2, elements=st.floats(0, 4, width=32)),
    arrays(np.float32, (2, 3), elements=st.floats(-2, 2, width=32)),
    arrays(np.float32, 3, elements=st.floats(-4, 4, width=32)),
)
def test_log_densities_agree(diagonal, weight, factor, error):
    """Any matrix of this form: all methods agree, and the peak is at the mean.

    Condition numbers stay below 500, so float32 keeps four digits.
    """
    values, peak = log_densities(diagonal, weight, factor, error)
    assert np.ptp(values) <= 1e-3 * (1 + np.abs(values).max())
    assert np.all(values <= peak + 1e-3)


METHODS = ("woodbury", "cholesky", "sherman-morrison")


@jax.jit
def log_densities(diagonal, weight, factor, error):
    cov = DiagonalPlusLowRank(diagonal, weight, factor)
    low_rank = JointGaussian(jnp.zeros(3), cov)
    values = [low_rank.log_prob(error, method=m) for m in METHODS]
    return jnp.stack(values), low_rank.log_prob(jnp.zeros(3), method="woodbury")
