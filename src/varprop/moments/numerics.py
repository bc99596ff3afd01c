"""Float-safe scalar maths: the Gaussian tail, the rectifier's moments, log-densities.

Everything here is elementwise, works in float32 and float64 (following its inputs), and gives no
NaN in value or gradient for any finite mean and any variance from 0 to 1e18, both included.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from varprop.moments.constants import INV_SQRT_2PI as INV_SQRT_2PI
from varprop.moments.constants import LOG_2PI as LOG_2PI
from varprop.moments.constants import TAIL_32, TAIL_64, legendre_nodes
from varprop.moments.constants import hermite_nodes as hermite_nodes

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
    fit = TAIL_64 if mean.dtype == jnp.float64 else TAIL_32
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
) -> tuple[
    Float[Array, "*shape"], Float[Array, "*shape"], Float[Array, "*shape"], Float[Array, "*shape"]
]:
    """Return `rectifier_moments`, and the derivatives of the mean by `mean` and by `var`.

    They are P(a > 0), the slope of the best line through max(a, 0), and phi(mean / std) / (2 std),
    which is taken as 0 for variances too small for its own derivatives (1e-19 in float32). The four
    share one evaluation of the tail, and so do their partial derivatives, all given in closed form;
    what is not used of them costs nothing in a compiled program.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> print([f"{x:.4f}" for x in rectifier_line(jnp.array(0.0), jnp.array(1.0))[2:]])
    ['0.5000', '0.1995']
    """
    tail = _tail(mean, var)
    return *_rectified(mean, var, tail), _above(mean, tail), _bend(var, tail)


def _above(mean, tail: _Tail):
    return jnp.where(mean > 0, 1, 0) - tail.mass * tail.keep  # Phi(r)


def _bend(var, tail: _Tail):
    """Return phi(r) / (2 std), or 0 for a variance that is too small."""
    tiny = float(jnp.finfo(var.dtype).tiny)
    bend = tail.bell * tail.inv_std * (0.5 * INV_SQRT_2PI * tail.keep)
    return jnp.where(var < math.sqrt(tiny), 0.0, bend)


@rectifier_line.defjvp
def _rectifier_line_jvp(primals, tangents):
    mean, var = primals
    dmean, dvar = tangents
    tail = _tail(mean, var)
    out_mean, out_var = _rectified(mean, var, tail)
    above = _above(mean, tail)
    below = jnp.where(mean > 0, tail.mass, 1 / tail.keep + tail.mass)  # Phi(-r) / keep
    density = tail.bell * tail.inv_std * (INV_SQRT_2PI * tail.keep)  # phi(r) / std
    bend = _bend(var, tail)
    r = jnp.clip(mean * tail.inv_std, -1e4, 1e4)  # beyond, the density is 0
    by_mean = -(bend * r) * tail.inv_std
    by_var = 0.5 * (bend * (r * r - 1)) * tail.inv_std * tail.inv_std
    return (out_mean, out_var, above, bend), (
        above * dmean + 0.5 * density * dvar,
        out_mean * below * (2 * tail.keep) * dmean + (above - out_mean * density) * dvar,
        _probability_change(mean, var, tail, dmean, dvar),
        by_mean * dmean + by_var * dvar,
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
