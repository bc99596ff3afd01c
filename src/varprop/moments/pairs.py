r"""Covariance of a function of two correlated Gaussians, by the series in their correlation.

With :math:`a, b` Gaussian of correlation :math:`\rho` and :math:`D_k = \sigma^k E[f^{(k)}(a)] /
\sqrt{k!}`, the coefficients of f in Hermite polynomials, Mehler's formula gives

.. math:: Cov[f(a), f(b)] = \sum_{k \ge 1} \rho^k D_k(a) D_k(b), \qquad V[f(a)] = \sum_k D_k(a)^2.

Cut off after K terms, the rest of the variance, :math:`R = V - \sum_{k \le K} D_k^2`, is given to
one more term, :math:`\rho^{K + 1} \sqrt{R(a) R(b)}`. Every term is a product of positive
semidefinite kernels, and so is the sum; at :math:`\rho = 1` and a = b it is the variance exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from varprop.moments.gaussian import Gaussian
from varprop.moments.numerics import INV_SQRT_2PI, rectifier_line, square_root

Coefficients = Callable[[Gaussian], tuple[list[Float[Array, "..."]], Float[Array, "..."]]]
#: Terms of the series in closed form, and where derivatives are traced.
N_TERMS, N_TRACED = 16, 4


def series_covariance(
    coefficients: Coefficients, a: Gaussian, b: Gaussian, cov: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Return Cov[f(a), f(b)], elementwise; a and b broadcast against one another.

    Parameters
    ----------
    coefficients
        Maps a Gaussian to D_1, ..., D_K and the variance of f.
    a, b
        The two Gaussians.
    cov
        Their covariance.

    Examples
    --------
    >>> a = Gaussian(jnp.array(0.0), 1.0)
    >>> print(f"{series_covariance(rectifier_coefficients, a, a, jnp.array(1.0)):.4f}")
    0.3408
    """
    scale = square_root(a.variances()) * square_root(b.variances())
    # A known value has no covariance with anything; rounding must not make a correlation of 1.01.
    rho = jnp.clip(jnp.where(scale > 0, cov / jnp.where(scale > 0, scale, 1.0), 0.0), -1, 1)
    (terms, left), (others, other_left) = (_with_rest(*coefficients(part)) for part in (a, b))
    # Horner's rule, from the last term.
    total = square_root(left) * square_root(other_left)
    for term, other in zip(reversed(terms), reversed(others), strict=True):
        total = total * rho + term * other
    return total * rho


def _with_rest(terms: list[Array], var: Array) -> tuple[list[Array], Array]:
    return terms, jnp.maximum(var - sum(term * term for term in terms), 0)


def rectifier_coefficients(
    a: Gaussian, n_terms: int = N_TERMS
) -> tuple[list[Float[Array, "..."]], Float[Array, "..."]]:
    r"""Return the rectifier's coefficients, in closed form.

    :math:`D_1 = \sigma \Phi(m)` and :math:`D_k = \sigma \varphi(m) (-1)^k He_{k-2}(m) / \sqrt{k!}`
    with m = mean / std.

    Examples
    --------
    >>> terms, var = rectifier_coefficients(Gaussian(jnp.array(0.0), 1.0), 2)
    >>> [round(term.item(), 4) for term in terms]
    [0.5, 0.2821]
    """
    var = a.variances()
    std = square_root(var)
    m = jnp.where(var > 0, a.mean / jnp.where(var > 0, std, 1.0), 0.0)
    _, out_var, slope = rectifier_line(a.mean, var)
    terms = [std * slope]
    # (-1)^n He_n(m) phi(m) / sqrt(n!) by the recursion of the normalized polynomials.
    before, now = jnp.zeros_like(m), jnp.exp(-0.5 * m * m) * INV_SQRT_2PI
    for k in range(2, n_terms + 1):
        terms.append(std * now / math.sqrt(k * (k - 1)))
        n = k - 2
        before, now = now, -(m * now + math.sqrt(n) * before) / math.sqrt(n + 1)
    return terms, out_var


def traced_coefficients(
    moments: Callable[[Array, Array], tuple[Array, Array]], a: Gaussian, n_terms: int = N_TRACED
) -> tuple[list[Float[Array, "..."]], Float[Array, "..."]]:
    """Return the coefficients of any function from its mean's derivatives.

    Parameters
    ----------
    moments
        Mean and variance of f for a Gaussian's mean and variance.
    a
        The Gaussian.
    n_terms
        Derivatives to take.
    """
    std, derivative = square_root(a.variances()), lambda mean: moments(mean, a.variances())[0]
    terms = []
    for k in range(1, n_terms + 1):
        derivative = _derivative(derivative)
        terms.append(std**k * derivative(a.mean) / math.sqrt(math.factorial(k)))
    return terms, moments(a.mean, a.variances())[1]


def _derivative(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: jax.jvp(function, (x,), (jnp.ones_like(x),))[1]
