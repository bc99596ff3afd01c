"""Integrals over uncertain rates of counts: probabilities and sums of them. NumPy and SciPy only.

A count is Poisson with rate ``exp(f)``, or negative binomial with variance ``mu + c mu^2`` (``c``
the dispersion), and f is Gaussian. All arguments are float64 arrays that broadcast. As functions of
f or its like all integrands are log-concave, so that a panel on either side of the largest value,
out to where it has fallen by e^-36, holds all there is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from scipy.special import betaln, gammaln, ndtr

from varprop.predictive.mixtures import Array, blocks_of, quiet, standardize

_DROP = 36.0  # nats below the largest value at which integrals end
_BLOCK = 2_048
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_FINE_NODES, _FINE_WEIGHTS = np.polynomial.legendre.leggauss(24)
# Where panels are cut around the middle of a step, in standard deviations of f.
_STEPS = (-8.0, -3.5, 0.0, 3.5, 8.0)
_TINY = 1e-12  # a dispersion too small for Gamma functions of its inverse


def _log_kernel(f: Array, a: Array, c: Array) -> Array:
    """Return ``log p(a | f)`` but for what does not depend on f."""
    with quiet():
        rate = np.exp(f)
        t = c * rate
        ratio = np.where(t > 0, np.log1p(t) / np.where(t > 0, t, 1.0), 1.0)
        return np.where(a > 0, a * (f - np.log1p(t)), 0.0) - rate * ratio


def _log_rise(a: Array, c: Array) -> Array:
    """Return ``log(1 (1 + c) (1 + 2 c) ...)`` of a factors, for whole a and in between."""
    small = c < _TINY
    r = 1.0 / np.where(small, 1.0, c)
    with quiet():
        whole = gammaln(a) - betaln(r, a) - a * np.log(r)
    return np.where(a == 0, 0.0, np.where(small, 0.5 * c * a * (a - 1.0), whole))


def log_pmf(y: Array, m: Array, s: Array, c: Array) -> Array:
    """Return the log probability of whole numbers `y`, f ~ N(m, s^2); to a relative 1e-9.

    Examples
    --------
    >>> one = np.ones(1)
    >>> log_pmf(2 * one, 0 * one, 0 * one, 0 * one).round(4).tolist()
    [-1.6931]
    """
    y, m, s, c = np.broadcast_arrays(y, m, s, c)
    out = np.full(y.shape, -np.inf)
    whole = (y >= 0) & (y == np.floor(y)) & np.isfinite(y)
    out[np.isnan(y)] = np.nan
    y, m, s, c = (a[whole] for a in (y, m, s, c))
    found = np.empty(len(y))
    for block in blocks_of(len(y), _BLOCK):
        found[block] = _log_pmf(y[block], m[block], s[block], c[block])
    out[whole] = found + _log_rise(y, c) - gammaln(y + 1.0)
    return out


def _log_pmf(y: Array, m: Array, s: Array, c: Array) -> Array:
    known = s == 0
    s = np.where(known, 1.0, s)

    def height(f: Array) -> Array:
        return _log_kernel(f, y, c) - 0.5 * ((f - m) / s) ** 2

    top = _largest(y, m, s, c)
    peak = height(top)
    # The Gaussian alone has fallen far enough at this distance, and curvature says how near.
    far = np.log(s * np.sqrt(2 * _DROP))
    with quiet():
        rate = np.exp(top)
        near = -0.5 * np.log(1 / s**2 + (1 + c * y) * rate / (1 + c * rate) ** 2) - 4.0

    def drop(side: float, t: Array) -> Array:
        return peak - height(top + side * t)

    total = np.zeros(y.shape)
    for side in (-1.0, 1.0):
        reach = side * _reach(functools.partial(drop, side), near, far)
        f = top + reach * 0.5 * (1.0 + _FINE_NODES[:, None])
        total += 0.5 * np.abs(reach) * (_FINE_WEIGHTS @ np.exp(height(f) - peak))
    with quiet():
        spread = peak + np.log(total) - np.log(s) - 0.5 * np.log(2 * np.pi)
    return np.where(known, _log_kernel(m, y, c), spread)


def _largest(y: Array, m: Array, s: Array, c: Array) -> Array:
    """Return about where the density of f and y together is largest: Newton within a bracket."""
    with quiet():
        log_y = np.log(y)
        low = np.where(y > 0, np.minimum(m, log_y), m - s**2 * np.minimum(np.exp(m), 1 / c))
        low = np.maximum(low, np.minimum(m, -700.0))
        high = np.maximum(m, log_y)
        f = np.where(y > 0, (log_y + m) / 2, m)
        for _ in range(60):
            rate = np.exp(np.minimum(f, 700.0))
            slope = y - (1 + c * y) * rate / (1 + c * rate) - (f - m) / s**2
            curve = (1 + c * y) * rate / (1 + c * rate) ** 2 + 1 / s**2
            low, high = np.where(slope > 0, f, low), np.where(slope > 0, high, f)
            step = f + slope / curve
            new = np.where((step >= low) & (step <= high), step, (low + high) / 2)
            # A tenth of the width is as good a place to cut the integral as the top itself.
            if (np.abs(new - f) * np.sqrt(curve) < 0.1).all():
                return new
            f = new
    return f


def _reach(drop: Callable[[Array], Array], near: Array, far: Array) -> Array:
    """Return about how far away a convex `drop` reaches `_DROP`, between two logarithms."""
    for _ in range(12):
        middle = 0.5 * (near + far)
        with quiet():
            beyond = ~(drop(np.exp(middle)) < _DROP)
        near, far = np.where(beyond, near, middle), np.where(beyond, middle, far)
    return np.exp(far)


def tail(k: Array, m: Array, s: Array, c: Array, *, upper: bool = False) -> Array:
    """Return ``P(Y <= k)``, or ``P(Y > k)`` if `upper`, f ~ N(m, s^2); to an absolute 1e-7.

    A count is at most k if and only if f is below the logarithm x of a Gamma variable of shape
    k + 1 (with a dispersion: a ratio of two): what is integrated is the density of x times a
    Gaussian cdf, in panels that resolve both. Smooth in k, which need not be whole.

    Examples
    --------
    >>> one = np.ones(1)
    >>> tail(1 * one, 0 * one, 0 * one, 0 * one).round(4).tolist()
    [0.7358]
    """
    k, m, s, c = np.broadcast_arrays(k, m, s, c)
    out = np.full(k.shape, 1.0 if upper else 0.0)
    out[np.isposinf(k)] = 0.0 if upper else 1.0
    out[np.isnan(k)] = np.nan
    at = (k > -1) & np.isfinite(k)
    k, m, s, c = (a[at] for a in (k, m, s, c))
    found = np.empty(len(k))
    for block in blocks_of(len(k), _BLOCK):
        found[block] = _tail(k[block] + 1.0, m[block], s[block], c[block], upper)
    out[at] = np.clip(found, 0.0, 1.0)
    return out


def _tail(a: Array, m: Array, s: Array, c: Array, upper: bool) -> Array:
    top, u = np.log(a), c * a
    peak = _log_kernel(top, a, c)
    near = 0.5 * np.log(1 / a + c) - 4.0
    with quiet():
        # Bounds of where the density's tails, which are exponential, have fallen far enough.
        left = _DROP / a + np.where(u > 0, np.log1p(u) * (1 + u) / np.where(u > 0, u, 1.0), 1.0)
        right = np.where(u > 0, _DROP * c + (1 + u) * np.log1p(1 / u), np.sqrt(2 * _DROP / a))
    low = _reach(lambda t: peak - _log_kernel(top - t, a, c), near, np.log(left))
    high = _reach(lambda t: peak - _log_kernel(top + t, a, c), near, np.log(right))
    edges = [top, *[np.clip(m + step * s, top - low, top + high) for step in _STEPS]]
    for side, size in ((-1.0, low), (1.0, high)):
        # However long the tails, what lies between them is of size 1 at most.
        near = np.minimum(0.4 * size, 4.0)
        steps = (np.minimum(0.15 * size, 1.0), near, np.sqrt(near * size), size)
        edges += [top + side * step for step in steps]
    edge = np.sort(np.stack(edges), axis=0)
    width = np.diff(edge, axis=0)
    total = np.zeros(a.shape)
    scale = np.exp(peak + _log_rise(a, c) - gammaln(a))
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        x = edge[:-1] + 0.5 * width * (1.0 + node)
        z = standardize(x, m, s)
        density = np.exp(_log_kernel(x, a, c) - peak)
        total += 0.5 * weight * (density * ndtr(-z if upper else z) * width).sum(axis=0)
    return scale * total


def sum_rule(count: Array, n_nodes: int = 8) -> tuple[Array, Array]:
    """Return nodes and weights with ``sum(f(i) for i in range(count))`` ~ ``weights @ f(nodes)``.

    Gauss's rule for the sum: exact for polynomials of degree 15, and for any function if there are
    no more terms than nodes.

    Parameters
    ----------
    count
        Whole numbers of terms, shape (m,).
    n_nodes
        Of the rule.

    Returns
    -------
    nodes, weights
        Shape (m, nodes).

    Examples
    --------
    >>> nodes, weights = sum_rule(np.array([101.0]))
    >>> float((weights * nodes**2).sum().round(6))  # 100 * 101 * 201 / 6
    338350.0
    """
    terms, inverse = np.unique(count, return_inverse=True)
    j = np.arange(1.0, n_nodes)
    # The recurrence of the polynomials that are orthogonal over 0, 1, ..., count - 1.
    between = j**2 * np.maximum(terms[:, None] ** 2 - j**2, 0.0) / (4 * (4 * j**2 - 1))
    matrix = np.zeros((len(terms), n_nodes, n_nodes))
    at = np.arange(n_nodes - 1)
    matrix[:, at, at + 1] = matrix[:, at + 1, at] = np.sqrt(between)
    values, vectors = np.linalg.eigh(matrix)
    nodes = values + 0.5 * (terms[:, None] - 1.0)
    weights = terms[:, None] * vectors[:, 0, :] ** 2
    return nodes[inverse], weights[inverse]
