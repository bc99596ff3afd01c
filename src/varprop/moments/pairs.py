r"""Covariance of a function of two correlated Gaussians, by the series in their correlation.

With :math:`a, b` Gaussian of correlation :math:`\rho` and :math:`D_k = \sigma^k E[f^{(k)}(a)] /
\sqrt{k!}`, the coefficients of f in Hermite polynomials, Mehler's formula gives

.. math:: Cov[f(a), f(b)] = \sum_{k \ge 1} \rho^k D_k(a) D_k(b), \qquad V[f(a)] = \sum_k D_k(a)^2.

Cut off after K terms, the rest of the variance, :math:`R = V - \sum_{k \le K} D_k^2`, is given to
one more term, :math:`\rho^{K + 1} \sqrt{R(a) R(b)}`. Every term is a product of positive
semidefinite kernels, and so is the sum; at :math:`\rho = 1` and a = b it is the variance exactly.

Measured against quadrature in two dimensions, means from N(0, 1.2^2), standard deviations from 0.05
to 3, in units of the product of the two standard deviations of f (`tests/test_pairs.py`):

================  ======================  ======================  ====================
largest error     up to abs(rho) = 0.5    up to abs(rho) = 0.9    up to abs(rho) = 1
================  ======================  ======================  ====================
ReLU              3e-7                    5e-3                    0.08
LeakyReLU(0.1)    2e-7                    1e-3                    0.01
abs(a)            2e-7                    2e-3                    0.02
Tanh              5e-5                    2e-3                    0.02
Sigmoid           3e-6                    1e-4                    1e-3
Erf               2e-5                    3e-3                    0.03
Heaviside         1e-5                    0.08                    0.5
GELU              1e-3                    2e-3                    3e-3
SiLU              2e-4                    3e-4                    3e-4
Softplus          2e-5                    3e-5                    3e-5
================  ======================  ======================  ====================

The largest are of pairs whose standard deviations differ by far, or, of the rectifier, whose mean
lies far below 0 for one of the two; of one variable at two nearly equal places little is left.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop.moments.gaussian import Gaussian
from varprop.moments.numerics import (
    INV_SQRT_2PI,
    hermite_nodes,
    rectifier_line,
    square_root,
    step_probability,
)

Coefficients = Callable[[Gaussian], tuple[list[Float[Array, "..."]], Float[Array, "..."]]]
#: Terms of the series, and nodes of the quadrature where they have no closed form.
N_TERMS, N_NODES = 16, 64


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
    std, other_std = (
        square_root(jnp.where(part > 0, part, 1.0)) for part in (a.variances(), b.variances())
    )
    # A known value has no covariance with anything; rounding must not make a correlation of 1.01.
    # One divisor after the other: their product may underflow.
    known = (a.variances() == 0) | (b.variances() == 0)
    rho = jnp.clip(jnp.where(known, 0.0, cov / std / other_std), -1, 1)
    (terms, left), (others, other_left) = (_with_rest(*coefficients(part)) for part in (a, b))
    # Horner's rule, from the last term.
    total = square_root(left) * square_root(other_left)
    for term, other in zip(reversed(terms), reversed(others), strict=True):
        total = total * rho + term * other
    return total * rho


def _with_rest(terms: list[Array], var: Array) -> tuple[list[Array], Array]:
    return terms, jnp.maximum(var - sum(term * term for term in terms), 0)


def product(a: Gaussian, b: Gaussian, cov: Float[Array, "..."] | None = None) -> Gaussian:
    r"""Return mean and variance of a b, elementwise, exact where the two are jointly Gaussian.

    :math:`E = E_a E_b + C` and :math:`V = V_a V_b + E_a^2 V_b + E_b^2 V_a + 2 E_a E_b C + C^2`.

    Parameters
    ----------
    a, b
        The two Gaussians.
    cov
        Their covariance C; None for independents.

    Examples
    --------
    >>> a = Gaussian(jnp.array(1.0), 4.0)
    >>> square = product(a, a, jnp.array(4.0))  # of one variable
    >>> square.mean.item(), square.var.item()
    (5.0, 48.0)
    """
    out = a * b
    if cov is None:
        return out
    return Gaussian(out.mean + cov, out.variances() + cov * (2 * a.mean * b.mean + cov))


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
    std = square_root(a.variances())
    _, out_var, slope, _ = rectifier_line(a.mean, a.variances())
    bells = _bells(a, n_terms - 1)
    terms = [std * bell / math.sqrt(k * (k - 1)) for k, bell in enumerate(bells, 2)]
    return [std * slope, *terms], out_var


def step_coefficients(
    a: Gaussian, n_terms: int = N_TERMS
) -> tuple[list[Float[Array, "..."]], Float[Array, "..."]]:
    r"""Return those of the step function, in closed form.

    :math:`D_k = \varphi(m) (-1)^{k-1} He_{k-1}(m) / \sqrt{k!}` with m = mean / std.

    Examples
    --------
    >>> terms, var = step_coefficients(Gaussian(jnp.array(0.0), 1.0), 3)
    >>> [round(term.item(), 4) for term in terms[::2]], var.item()
    ([0.3989, -0.1629], 0.25)
    """
    above, below = step_probability(a.mean, a.variances())
    bells = _bells(a, n_terms)
    return [bell / math.sqrt(k) for k, bell in enumerate(bells, 1)], above * below


def _bells(a: Gaussian, n: int) -> list[Float[Array, "..."]]:
    """Return (-1)^k He_k(m) phi(m) / sqrt(k!) for k < n, m = mean / std."""
    var = a.variances()
    std = square_root(jnp.where(var > 0, var, 1.0))
    # Beyond 1e4 all are 0; without a bound they would be 0 * inf.
    m = jnp.clip(jnp.where(var > 0, a.mean / std, 0.0), -1e4, 1e4)
    bells = [jnp.exp(-0.5 * m * m) * INV_SQRT_2PI]
    before = jnp.zeros_like(m)
    for k in range(n - 1):
        now = bells[-1]
        bells.append(-(m * now + math.sqrt(k) * before) / math.sqrt(k + 1))
        before = now
    return bells


def quadrature_coefficients(
    function: Callable[[Array], Array], a: Gaussian, n_terms: int = N_TERMS
) -> list[Float[Array, "..."]]:
    r"""Return D_1, ..., D_K of any function, by Gauss-Hermite quadrature.

    :math:`D_k = E[f(a) He_k(z)] / \sqrt{k!}` with a = mean + std z: values of the function are all
    that is needed of it.

    Parameters
    ----------
    function
        Maps an array to an array of the same shape, elementwise.
    a
        The Gaussian.
    n_terms
        How many.

    Examples
    --------
    >>> found = quadrature_coefficients(jnp.square, Gaussian(jnp.array(1.0), 4.0), 3)
    >>> [round(float(term), 3) for term in found]  # 2 mean std, sqrt(2) var, 0
    [4.0, 5.657, 0.0]
    """
    z, by = _hermite_rule(n_terms)
    std = square_root(a.variances())
    values = function(a.mean[..., None] + std[..., None] * jnp.asarray(z, a.dtype))
    # Differences from the plain value: no digits are lost where the mean is large.
    found = (values - function(a.mean)[..., None]) @ jnp.asarray(by, a.dtype)
    return [found[..., k] for k in range(n_terms)]


@functools.cache
def _hermite_rule(n_terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes, and weights times normalized polynomials, shape (nodes, n_terms)."""
    z, w = hermite_nodes(N_NODES)
    factorials = [math.factorial(k) for k in range(1, n_terms + 1)]
    polynomials = np.polynomial.hermite_e.hermevander(z, n_terms)[:, 1:]
    return z, w[:, None] * polynomials / np.sqrt(np.array(factorials, np.float64))
