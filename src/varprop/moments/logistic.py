"""Means of logistic functions of a Gaussian, in closed form: sigmoid, softplus, surprise.

The logistic distribution is a mixture of normal ones: sigmoid(x) ~ sum_i p_i Phi(s_i x). With five
of them the largest error is 9.2e-7. Each term has its mean under a Gaussian in closed form, and so
has its integral, a softplus.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from varprop.moments.constants import INV_SQRT_2PI, LOGISTIC_P, LOGISTIC_S, SURPRISE_BELLS

# Standard deviations from 0 beyond which the flattest term's logarithm goes on as its tangent: far
# below any probability that matters, and far above those that single precision cannot hold.
_FAR = 9.0
_ROOT_HALF = math.sqrt(0.5)


def logistic_mean(
    mean: Float[Array, "*shape"], var: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """E sigmoid(a) for a ~ N(mean, var), off by at most 9.2e-7 for any mean and variance.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> print(f"{logistic_mean(jnp.array(1.0), jnp.array(4.0)):.4f}")
    0.6477
    """
    return _mixed(mean, var)


def log_logistic_mean(
    mean: Float[Array, "*shape"], var: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Return log E sigmoid(a) for a ~ N(mean, var), with a gradient wherever the mean lies.

    It is the logarithm of `logistic_mean`: near enough where the probability is above 1e-5 (2 % of
    it), and steeper than the logistic's further out; its tangent from 9 standard deviations on.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> print(f"{log_logistic_mean(jnp.array(-3.0), jnp.array(0.0)):.3f}")
    -3.049
    """
    flattest = LOGISTIC_S[0] * jax.lax.rsqrt(1 + LOGISTIC_S[0] ** 2 * var)
    beyond = jnp.minimum(mean * flattest + _FAR, 0)
    return jnp.log(_mixed(mean - beyond / flattest, var)) + _FAR * beyond


def _mixed(mean: Array, var: Array) -> Array:
    total = jnp.zeros_like(mean)
    for p, s in zip(LOGISTIC_P, LOGISTIC_S, strict=True):
        r = mean * (s * _ROOT_HALF * jax.lax.rsqrt(1 + s**2 * var))
        total = total + (0.5 * p) * jax.lax.erfc(-r)
    return total


def softplus_mean(
    mean: Float[Array, "*shape"], var: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """E log(1 + exp(a)) for a ~ N(mean, var), off by at most 3.3e-6 for any mean and variance.

    The integral of Phi(s x) is a rectifier smoothed by a Gaussian of variance 1 / s^2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> print(f"{softplus_mean(jnp.array(0.0), jnp.array(0.0)):.4f}")
    0.6931
    """
    total = jnp.zeros_like(mean)
    for p, s in zip(LOGISTIC_P, LOGISTIC_S, strict=True):
        narrow = jax.lax.rsqrt(var + s**-2)
        r = mean * narrow
        above = 0.5 * jax.lax.erfc(-r * _ROOT_HALF)
        total = total + p * (mean * above + INV_SQRT_2PI * jnp.exp(-0.5 * r * r) / narrow)
    return total


def surprise_mean(
    mean: Float[Array, "*shape"], var: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """E[-p log p] of the probability p = sigmoid(-a) for a ~ N(mean, var), off by at most 6e-6.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> print(f"{surprise_mean(jnp.array(0.0), jnp.array(0.0)):.4f}")  # log(2) / 2
    0.3466
    """
    total = jnp.zeros_like(mean)
    for a, c, b in SURPRISE_BELLS:
        wide = b + var
        total = total + a * jnp.sqrt(b / wide) * jnp.exp(-0.5 * (mean - c) ** 2 / wide)
    return jnp.maximum(total, 0)
