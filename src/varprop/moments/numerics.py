"""Float-safe scalar maths: the Gaussian tail, the rectifier's moments, log-densities.

Everything here is elementwise, works in float32 and float64 (following its inputs), and gives no
NaN in value or gradient for any finite mean and any variance from 0 to 1e18, both included.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
LOG_2PI = math.log(2.0 * math.pi)

# Mills's ratio R(x) = Phi(-x) / phi(x) = R / D and M(x) = 1 - x R(x) = M / D for x >= 0, ascending
# coefficients, made by tools/fit_mills_ratio.py. Worst relative error 1.1e-8 on [0, 18] (float32,
# whose tail underflows at 15.4 even when scaled by a variance of 1e12) and 2e-18 on [0, 40]
# (float64).
_TAIL_32: dict[str, Any] = {
    "x_max": 15.9,
    "R": (1.253314123, 1.42826575, 0.77778606, 0.2464315965, 0.04568800345, 0.004183068514),
    "M": (0.9999999891, 0.6841608839, 0.238207074, 0.04568294548, 0.004183145355),
    "D": (
        1.0,
        1.93747502,
        1.666472523,
        0.8234694571,
        0.2506145453,
        0.04568803108,
        0.004183067426,
    ),
}
_TAIL_64: dict[str, Any] = {
    "x_max": 38.0,
    "R": (
        1.253314137315500249,
        2.299640891267344374,
        2.087862072265455047,
        1.221236502509997269,
        0.507573588967542843,
        0.1568082576230741958,
        0.03670127128023765539,
        0.006514082461285886598,
        0.0008618475998971805858,
        0.00008139683733250679815,
        4.983567586517102732e-6,
        1.522070037873823694e-7,
    ),
    "M": (
        1.000000000000000002,
        1.379418386020519505,
        0.9668486543725341128,
        0.442420513265586484,
        0.1445828086081104044,
        0.03502741134489742864,
        0.006352810868572761541,
        0.0008518804644714005354,
        0.00008109242332861128009,
        4.983567586484444774e-6,
        1.522070037875149826e-7,
    ),
    "D": (
        1.0,
        2.632732523336019815,
        3.266489545639878267,
        2.530282585531041416,
        1.365819311118109021,
        0.542601000312438266,
        0.1631610684916482637,
        0.03755315174470861779,
        0.006595174884614577681,
        0.000866831167483657063,
        0.00008154904433629473744,
        4.983567586517091662e-6,
        1.52207003787382479e-7,
    ),
}

# float32 carries exp(-x^2 / 2) times 2^64, so that products with a large variance are formed before
# anything underflows; beyond x_max even those are below the smallest normal number.
_KEEP_32 = 2.0**64

# 2^f on [-1/2, 1/2], the minimax fit that is exact at f = 0; relative error 1.1e-7.
_EXP2 = (1.0, 0.693146978, 0.240222421, 0.0555073374, 0.00967151269, 0.00132647272)


def polynomial(
    coefficients: tuple[float, ...], x: Float[Array, "*shape"], scale: float = 1.0
) -> Float[Array, "*shape"]:
    """Evaluate scale times a polynomial with ascending coefficients by Horner's rule."""
    value = jnp.full_like(x, scale * coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * x + scale * coefficient
    return value


@jax.custom_jvp
def _kept_bell(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """exp(-x^2 / 2) for 0 <= x <= x_max, times 2^64 in float32.

    XLA's own `exp` took a quarter of a training step on the CPU; here two to the integer part is
    made from the bits of the float. The rounded exponent must be read from the bits: the usual
    float subtraction (z + c) - c is simplified away by the compiler.
    """
    if x.dtype != jnp.float32:
        return jnp.exp(-0.5 * x * x)
    bits = jax.lax.bitcast_convert_type
    z = x * x * (-0.5 / math.log(2))
    rounded = bits(z + 1.5 * 2.0**23, jnp.int32)
    fraction = z - (rounded - 0x4B400000).astype(jnp.float32)
    return polynomial(_EXP2, fraction) / bits(((127 - 64) << 23) - (rounded << 23), jnp.float32)


@_kept_bell.defjvp
def _kept_bell_jvp(primals, tangents):
    value = _kept_bell(*primals)
    return value, -primals[0] * value * tangents[0]


def kept_bell_by_exp(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Return the same without a look at bits, for runtimes that are given arithmetic only.

    Examples
    --------
    >>> x = jnp.linspace(0, 15.9, 50, dtype=jnp.float32)
    >>> bool(jnp.allclose(kept_bell_by_exp(x), _kept_bell(x), rtol=1e-5))
    True
    """
    # The factor is split, since its square root keeps both halves of the product in range.
    root = jnp.exp(-0.25 * x * x) * (_KEEP_32**0.5 if x.dtype == jnp.float32 else 1.0)
    return root * root


class _Tail(NamedTuple):
    """What the far side of zero contributes, for a ~ N(mean, var) and x = |mean| / std.

    XLA on the CPU computes cheap results anew in each consumer, but keeps those that end in a
    division or a square root. The four arrays here each end in one, and all the rest is a few
    products away.
    """

    inv_std: Float[Array, "..."]  # 1 / std, finite also at var = 0
    bell: Float[Array, "..."]  # exp(-x^2 / 2) / keep
    mass: Float[Array, "..."]  # Phi(-x) / keep, with the sign of the mean
    mean: Float[Array, "..."]  # std (phi(x) - x Phi(-x)) / keep, the mean of what lies beyond zero
    keep: float


def _tail(mean: Float[Array, "..."], var: Float[Array, "..."]) -> _Tail:
    fit = _TAIL_64 if mean.dtype == jnp.float64 else _TAIL_32
    # The floor stands inside the square root only: products use var itself, so that var = 0 gives
    # exactly the plain rectifier. `where` instead of max and min also keeps a NaN a NaN.
    tiny = float(jnp.finfo(var.dtype).tiny)
    inv_std = jax.lax.rsqrt(jnp.where(var < tiny, tiny, var))
    x = jnp.abs(mean * inv_std)
    x = jnp.where(x > fit["x_max"], fit["x_max"], x)
    bell = _kept_bell(x)
    denominator = polynomial(fit["D"], x)
    mass = jnp.where(mean > 0, bell, -bell) * polynomial(fit["R"], x, INV_SQRT_2PI) / denominator
    tail_mean = (var * inv_std) * bell * polynomial(fit["M"], x, INV_SQRT_2PI) / denominator
    keep = 1 / _KEEP_32 if mean.dtype == jnp.float32 else 1.0
    return _Tail(inv_std, bell, mass, tail_mean, keep)


def _rectified(mean, var, tail: _Tail):
    out_mean = jnp.maximum(mean, 0) + tail.mean * tail.keep
    lost = var * tail.mass + tail.mean * (jnp.abs(mean) + tail.mean * tail.keep)
    out_var = jnp.where(mean > 0, var, 0) - lost * tail.keep
    # The difference is positive but for rounding of numbers near the smallest there are.
    return out_mean, jnp.maximum(out_var, 0)


def rectifier_moments(
    mean: Float[Array, "*shape"], var: Float[Array, "*shape"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    r"""Mean and variance of max(a, 0) for a ~ N(mean, var), elementwise.

    With :math:`x = |\mu|/\sigma`, tail mean :math:`t = \sigma(\varphi(x) - x\Phi(-x))`:
    :math:`E = \max(\mu, 0) + t` and :math:`V = v\,\Phi(r) - t(|\mu| + t)`, which subtracts nothing
    of nearly equal size (the textbook difference of two moments loses all digits).

    Parameters
    ----------
    mean, var
        Arrays of equal shape; 0 <= var <= 1e18 (beyond, float32 overflows).

    Returns
    -------
    tuple of arrays
        Mean and variance. Relative error of both in float32 below 1e-4 wherever the true value is
        a normal number (below 3e-6 for mean / std > -3); never negative; at var = 0 exactly
        (max(mean, 0), 0).

    Notes
    -----
    The partial derivatives are given in closed form. At var = 0 and mean = 0, where dE/dvar is
    infinite, a huge finite number is returned; at var = 0 and any mean beyond 1e-16 they are the
    limits.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> mean, var = rectifier_moments(jnp.array(0.0), jnp.array(1.0))
    >>> print(f"{mean:.4f} {var:.4f}")
    0.3989 0.3408
    """
    return rectifier_line(mean, var)[:2]


@jax.custom_jvp
def rectifier_line(
    mean: Float[Array, "*shape"], var: Float[Array, "*shape"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Return `rectifier_moments`, and the slope of the best line through max(a, 0): P(a > 0).

    The three share one evaluation of the tail, and so do their partial derivatives, all given in
    closed form; what is not used of them costs nothing in a compiled program.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> rectifier_line(jnp.array(0.0), jnp.array(1.0))[2].item()
    0.5
    """
    tail = _tail(mean, var)
    return *_rectified(mean, var, tail), _above(mean, tail)


def _above(mean, tail: _Tail):
    return jnp.where(mean > 0, 1, 0) - tail.mass * tail.keep  # Phi(r)


@rectifier_line.defjvp
def _rectifier_line_jvp(primals, tangents):
    mean, var = primals
    dmean, dvar = tangents
    tail = _tail(mean, var)
    out_mean, out_var = _rectified(mean, var, tail)
    above = _above(mean, tail)
    below = jnp.where(mean > 0, tail.mass, 1 / tail.keep + tail.mass)  # Phi(-r) / keep
    density = tail.bell * tail.inv_std * (INV_SQRT_2PI * tail.keep)  # phi(r) / std
    return (out_mean, out_var, above), (
        above * dmean + 0.5 * density * dvar,
        out_mean * below * (2 * tail.keep) * dmean + (above - out_mean * density) * dvar,
        _probability_change(mean, var, tail, dmean, dvar),
    )


def _probability_change(mean, var, tail: _Tail, dmean, dvar):
    """Return the tangent of P(a > 0); at var = 0 that of the plain step, which is 0."""
    inv_std = jnp.where(var == 0, 0.0, tail.inv_std)
    density = tail.bell * inv_std * (INV_SQRT_2PI * tail.keep)
    # d Phi(mean / std) = phi (dmean / std - mean dvar / (2 std^3)); the second factor is taken as
    # (density * r) * inv_std, in which neither part overflows where the product does not. The bound
    # on r, beyond which the density is 0, keeps 0 * inf out.
    r = jnp.clip(mean * inv_std, -1e4, 1e4)
    return density * dmean - 0.5 * (density * r) * inv_std * dvar


@jax.custom_jvp
def step_probability(
    mean: Float[Array, "*shape"], var: Float[Array, "*shape"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """P(a > 0) and P(a <= 0) for a ~ N(mean, var), each accurate however small it is.

    At var = 0 exactly (mean > 0, mean <= 0), with zero derivatives (those of the plain step).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> above, below = step_probability(jnp.array(-5.0), jnp.array(1.0))
    >>> print(f"{above:.3e} {below:.3f}")
    2.867e-07 1.000
    """
    tail = _tail(mean, var)
    far = jnp.where(var == 0, 0.0, jnp.abs(tail.mass) * tail.keep)  # a NaN variance stays NaN
    positive = mean > 0
    return jnp.where(positive, 1 - far, far), jnp.where(positive, far, 1 - far)


@step_probability.defjvp
def _step_probability_jvp(primals, tangents):
    mean, var = primals
    change = _probability_change(mean, var, _tail(mean, var), *tangents)
    return step_probability(mean, var), (change, -change)


@jax.custom_jvp
def normal_log_density(
    error: Float[Array, "*shape"], var: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Log-density of N(0, var) at `error`, elementwise.

    At var = 0 it is +inf where the error is 0 and -inf elsewhere, with zero gradients; at a
    negative variance it is NaN.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> print(f"{normal_log_density(jnp.array(1.0), jnp.array(4.0)):.4f}")
    -1.7371
    """
    safe = jnp.where(var > 0, var, 1.0)
    density = -0.5 * (LOG_2PI + jnp.log(safe) + error / safe * error)
    degenerate = jnp.where(error == 0, jnp.inf, -jnp.inf).astype(density.dtype)
    # Negative and NaN variances: a comparison with 0 must not turn them into a density.
    return jnp.where(var > 0, density, jnp.where(var == 0, degenerate, jnp.nan))


@normal_log_density.defjvp
def _normal_log_density_jvp(primals, tangents):
    error, var = primals
    safe = jnp.where(var > 0, var, 1.0)
    # The differentiator would divide by var^2, which underflows long before var does.
    slope = jnp.where(var > 0, error / safe, 0.0)
    by_var = 0.5 * (slope * slope - jnp.where(var > 0, 1 / safe, 0.0))
    return normal_log_density(error, var), by_var * tangents[1] - slope * tangents[0]


def square_root(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Square root whose derivative at 0 is 0 instead of infinite.

    Examples
    --------
    >>> import jax
    >>> float(jax.grad(square_root)(0.0))
    0.0
    """
    positive = x > 0
    root = jnp.sqrt(jnp.where(positive, x, 1.0))
    return jnp.where(positive, root, jnp.where(x == 0, 0.0, jnp.nan))


@functools.cache
def hermite_nodes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights with E[f(z)] ~ sum_i w_i f(z_i) for z ~ N(0, 1), exact to degree 2n - 1.

    Examples
    --------
    >>> z, w = hermite_nodes(3)
    >>> round(float(w @ z**4), 12)
    3.0
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


@functools.cache
def legendre_nodes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of Gauss-Legendre quadrature on [0, 1].

    Examples
    --------
    >>> t, w = legendre_nodes(4)
    >>> round(float(w @ t**3), 12)
    0.25
    """
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return 0.5 * (nodes + 1), 0.5 * weights


def erf_moments(
    mean: Float[Array, "*shape"], var: Float[Array, "*shape"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    r"""Mean and variance of erf(a) for a ~ N(mean, var).

    The mean is erf(mean / sqrt(1 + 2 var)). The variance is a difference of two values of Owen's T,
    :math:`8\,[T(h, 1) - T(h, k)]` with :math:`h = \sqrt2\,\mu/\sqrt{1 + 2v}` and
    :math:`k = 1/\sqrt{1 + 4v}`, written as one integral over [k, 1] of a positive function, so that
    it is never negative and loses nothing at small variance.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> mean, var = erf_moments(jnp.array(0.0), jnp.array(0.5))
    >>> print(f"{mean:.3f} {var:.3f}")  # erf(a) is uniform on (-1, 1) here
    0.000 0.333
    """
    h_squared = 2 * mean**2 / (1 + 2 * var)
    k = jax.lax.rsqrt(1 + 4 * var)
    length = 4 * var / ((1 + 4 * var) * (1 + k))  # 1 - k without the cancellation
    total = jnp.zeros_like(mean)
    for node, weight in zip(*legendre_nodes(24), strict=True):
        t_squared = (k + float(node) * length) ** 2
        total = total + float(weight) * jnp.exp(-0.5 * h_squared * (1 + t_squared)) / (
            1 + t_squared
        )
    return jax.lax.erf(mean * jax.lax.rsqrt(1 + 2 * var)), (4 / math.pi) * length * total
