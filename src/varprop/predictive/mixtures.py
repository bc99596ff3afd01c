"""Float-safe numerics for mixtures of Gaussians: NumPy, and SciPy where scores are wanted.

Importing SciPy takes longer than predicting, so what predictions need does without it.

Arrays put the members first: weights ``w``, means ``m`` and standard deviations ``s`` have shape
``(K, ...)`` and broadcast against each other. A standard deviation of zero is a point mass.
Loops run over members, outputs and blocks of rows, never over rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from varprop.predictive.normal import mills, normal_quantile

if TYPE_CHECKING:
    from numpy.typing import ArrayLike as ArrayLike
else:
    # Runtime checkers read NumPy's ArrayLike literally and refuse a plain float (it says complex).
    ArrayLike = Any

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

LOG_2PI = math.log(2.0 * math.pi)
_SQRT_2PI = math.sqrt(2.0 * math.pi)
# Standard deviations at which integrals over a Gaussian are cut into panels.
KNOTS = np.arange(-9.0, 9.1, 1.5)
_EPS = float(np.finfo(np.float64).eps)
_BLOCK = 16_384  # rows worked on at once: temporaries stay in cache and memory stays bounded


def quiet() -> np.errstate:
    """Silence the overflows and zero divisions whose limits (0, inf) are the right answers."""
    return np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")


def safe_unit(scale: Array) -> Array:
    """Return what to store targets of this scale in multiples of, so that squares are numbers.

    That is 1 wherever squares are safe, and else a power of two near the scale, by which
    multiplication is exact.
    """
    far = (scale > 0) & ((scale < 1e-100) | (scale > 1e100))
    return np.where(far, np.ldexp(1.0, np.frexp(scale)[1] - 1), 1.0)


def standardize(x: Array, m: Array, s: Array, *, left: bool = False) -> Array:
    """Return ``(x - m) / s``; a point mass gives +inf from its mean on (after it if ``left``)."""
    with quiet():
        z = (x - m) / s
    if np.all(s > 0):
        return z
    reached = x > m if left else x >= m
    return np.where(s > 0, z, np.where(reached, np.inf, -np.inf))


def log_normal(x: Array, m: Array, s: Array) -> Array:
    """Log density of ``N(m, s**2)`` at ``x``; a point mass has density inf at ``m``, else 0."""
    with quiet():
        z = (x - m) / s
        out = -0.5 * (z * z + LOG_2PI) - np.log(s)
    if np.all(s > 0):
        return out
    return np.where(s > 0, out, np.where(x == m, np.inf, -np.inf))


def log_sum_exp(a: Array) -> Array:
    """Stable ``log(sum(exp(a), axis=0))`` that lets infinite terms through."""
    total: Array = np.logaddexp.reduce(a, axis=0)
    return total


def mixture_cdf(x: Array, w: Array, m: Array, s: Array, *, left: bool = False) -> Array:
    """Return ``P(Y <= x)``, or ``P(Y < x)`` if ``left``; the two differ only at point masses."""
    from scipy.special import ndtr

    if len(m) == 1:
        return ndtr(standardize(x, m[0], s[0], left=left))
    out = np.zeros(np.broadcast_shapes(x.shape, m.shape[1:]))
    for w_k, m_k, s_k in zip(w, m, s, strict=True):
        out += w_k * ndtr(standardize(x, m_k, s_k, left=left))
    # The weights sum to one only up to rounding.
    return np.minimum(out, 1.0)


def absolute_moment(m: Array, s: Array) -> Array:
    """Return ``E|X|`` for ``X ~ N(m, s**2)``, written as ``|m|`` plus a positive correction."""
    from scipy.special import ndtr

    z = np.abs(standardize(m, np.zeros(()), s))
    with quiet():
        # For large z the two terms cancel, but both are then negligible beside |m|.
        excess = 2.0 * s * (np.exp(-0.5 * z * z) / _SQRT_2PI - z * ndtr(-z))
    return np.abs(m) + np.where(np.isfinite(z), excess, 0.0)


def mixture_crps(y: Array, w: Array, m: Array, s: Array) -> Array:
    """Continuous ranked probability score by the exact double sum ``E|X-y| - E|X-X'|/2``.

    ``y`` is ``(n, d)``, ``w`` is ``(K, n, 1)`` or ``(K, 1, 1)``. Members that weigh nothing in a
    row cost nothing there: rows may differ in how many they have.
    """
    out = np.empty(m.shape[1:])
    w = np.broadcast_to(w, (*m.shape[:2], 1))
    live = w[..., 0] > 0
    count = live.sum(axis=0)
    for number in np.unique(count):
        alike = np.flatnonzero(count == number)
        for block in blocks_of(len(alike), _BLOCK // 16):
            rows = alike[block]
            keep = live[:, rows].any(axis=1)
            out[rows] = _crps_block(y[rows], *(a[keep][:, rows] for a in (w, m, s)))
    # The true score is never negative; far members can leave a rounding error below zero.
    return np.maximum(out, 0.0)


def _crps_block(y: Array, w: Array, m: Array, s: Array) -> Array:
    out = np.zeros(y.shape)
    for i in range(len(m)):
        # E|X - X'| of a member with itself is 2 s / sqrt(pi).
        out += w[i] * (absolute_moment(y - m[i], s[i]) - w[i] * s[i] / math.sqrt(math.pi))
        others = absolute_moment(m[i] - m[:i], np.hypot(s[i], s[:i]))
        out -= w[i] * (w[:i] * others).sum(axis=0)
    return out


def chosen(w: Array, u: Array) -> NDArray[np.intp]:
    """Return which member, of weights (K, n) or (K, 1), uniform numbers (..., n) choose."""
    edges = np.cumsum(w, axis=0)
    # Dividing makes the last edge exactly one, so that a member of weight zero is never drawn.
    edges = edges[:-1] / edges[-1]
    found = np.zeros(u.shape, dtype=np.intp)
    for edge in edges:
        found += u >= edge
    return found


def blocks_of(width: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size`."""
    for start in range(0, width, size):
        yield slice(start, min(start + size, width))


def mixture_quantile(alpha: float, w: Array, m: Array, s: Array) -> Array:
    """Return ``inf{x: cdf(x) >= alpha}`` column by column; ``w``, ``m``, ``s`` are ``(K, N)``."""
    if len(m) == 1:
        # The quantile is finite inside (0, 1), so a point mass gives its mean.
        return m[0] + s[0] * normal_quantile(alpha)
    out = np.empty(m.shape[1])
    for block in blocks_of(m.shape[1], 1 + 4 * _BLOCK // len(m)):
        out[block] = _solve(alpha, w[:, block], m[:, block], s[:, block])
    return out


def _solve(alpha: float, w: Array, m: Array, s: Array) -> Array:
    """Find roots to the last digits inside brackets of the members' quantiles."""
    out = np.full(m.shape[1], np.nan)
    for w_k, m_k, s_k in zip(w, m, s, strict=True):
        # A jump that spans alpha is the answer itself.
        at = np.flatnonzero((s_k == 0) & (w_k > 0))
        if not len(at):
            continue
        parts = m_k[at], w[:, at], m[:, at], s[:, at]
        spans = (mixture_cdf(*parts) >= alpha) & (mixture_cdf(*parts, left=True) < alpha)
        out[at[spans]] = m_k[at[spans]]
    todo = np.flatnonzero(np.isnan(out))
    # Quarters, since the distance of two members may be twice the largest float.
    w, m, s = w[:, todo], m[:, todo] / 4, s[:, todo] / 4
    # A little wider than the quantiles themselves: at these the sign would be one of rounding.
    z = normal_quantile(alpha)
    below, above = (m + s * (z + room) for room in (-1e-8, 1e-8))
    low = np.nextafter(np.where(w > 0, below, np.inf).min(axis=0), -np.inf)
    high = np.nextafter(np.where(w > 0, above, -np.inf).max(axis=0), np.inf)
    # Newton's steps from the members' mean quantile; halves of the bracket where these leave it or
    # do not shrink, as they do between members that are far apart.
    x = np.clip((w * below).sum(axis=0) / w.sum(axis=0), low, high)
    last = high - low
    # An error of e in units of the narrowest member is one of e^2 after the next step.
    narrow = 1e-8 * np.where((w > 0) & (s > 0), s, np.inf).min(axis=0)
    while len(todo):
        excess, density = _excess(x, alpha, w, m, s)
        low, high = np.where(excess < 0, x, low), np.where(excess < 0, high, x)
        with quiet():
            step = excess / density
        after = x - step
        slow = np.abs(2 * excess) > np.abs(last * density)
        half = slow | ~((after > low) & (after < high))
        after = np.where(half, low + 0.5 * (high - low), after)
        last = np.abs(after - x)
        done = (excess == 0) | (~half & (last <= narrow)) | np.isnan(excess)
        done |= (high - low <= 2 * _EPS * np.abs(x)) | (after == low) | (after == high)
        x = np.where(excess == 0, x, after)
        if done.any():
            out[todo[done]] = 4 * x[done]
            keep = ~done
            todo, x, low, high = todo[keep], x[keep], low[keep], high[keep]
            last, narrow = last[keep], narrow[keep]
            w, m, s = (a[:, keep] for a in (w, m, s))
    return out


def _excess(x: Array, alpha: float, w: Array, m: Array, s: Array) -> tuple[Array, Array]:
    """Return ``cdf(x) - alpha`` of each column, exact in both tails and between members.

    And the density, without that of point masses.
    """
    z = standardize(x, m, s)
    left = z >= 0
    with quiet():
        ratio, bell = mills(np.abs(z))
        bell *= w / _SQRT_2PI
        tail = bell * ratio
        density = np.where(s > 0, bell / s, 0.0).sum(axis=0)
    # Adding whole weights first keeps the small tails, which have crossed x, exact.
    if alpha < 0.5:
        offset = np.where(left, w, 0.0).sum(axis=0) - alpha
    else:
        offset = (1.0 - alpha) - np.where(left, 0.0, w).sum(axis=0)
    excess: Array = offset + np.where(left, -tail, tail).sum(axis=0)
    # A gap so wide that both tails underflow: logarithms still tell which of them is larger.
    flat = (offset == 0) & (tail.max(axis=0) < 1e-280)
    if flat.any():
        from scipy.special import log_ndtr

        with quiet():
            logs = np.log(w[:, flat]) + log_ndtr(-np.abs(z[:, flat]))
            come = log_sum_exp(np.where(left[:, flat], -np.inf, logs))
            gone = log_sum_exp(np.where(left[:, flat], logs, -np.inf))
            excess[flat] = 1e-290 * np.nan_to_num(come - gone)
    return excess, density


_CRPS_NODES, _CRPS_WEIGHTS = np.polynomial.legendre.leggauss(8)


def panels(knots: Array, apart: Array) -> Array:
    """Return knots in their order, (m, ...), without those that are not needed.

    Of many members that are alike most are: a panel need not be narrower than is said by `apart`,
    of the same shape, at any knot that it holds. The last ones may be equal.
    """
    shape, n_knots = knots.shape[1:], len(knots)
    order = np.argsort(knots, axis=0, kind="stable")
    x = np.take_along_axis(knots, order, axis=0).reshape(n_knots, -1)
    limit = np.take_along_axis(apart, order, axis=0).reshape(n_knots, -1)
    keep = np.ones(x.shape, dtype=np.bool_)
    start, least = x[0], limit[0]
    for i in range(1, n_knots - 1):
        least = np.minimum(least, limit[i])
        with quiet():
            keep[i] = x[i + 1] - start > np.minimum(least, limit[i + 1])
        start, least = np.where(keep[i], x[i], start), np.where(keep[i], limit[i], least)
    count = keep.sum(axis=0)
    out = np.broadcast_to(x[-1], (count.max(), x.shape[1])).copy()
    place = np.cumsum(keep, axis=0) - 1
    out[place[keep], np.nonzero(keep)[1]] = x[keep]
    return out.reshape(-1, *shape)


def panel_crps(
    at: Array, edges: Array, cdf: Callable[[Array], Array], slope: Callable[[Array], Array]
) -> Array:
    """Return the integral of the squared distance from the cdf to the step at `at`, (n, d).

    Gauss-Legendre quadrature with 8 nodes in panels between `edges`, (m, n, d) in their order,
    outside which the cdf is 0 or 1 and nothing is added. `cdf` and `slope`, what the integration
    variable is multiplied by, take arrays (..., n, d).
    """
    edges = np.sort(np.concatenate([edges, np.clip(at, edges[0], edges[-1])[None]]), axis=0)
    width = np.diff(edges, axis=0)
    total = np.zeros(at.shape)
    for node, weight in zip(_CRPS_NODES, _CRPS_WEIGHTS, strict=True):
        x = edges[:-1] + 0.5 * width * (1.0 + node)
        reached = cdf(x)
        gap = np.where(edges[:-1] < at, reached, 1.0 - reached)
        with quiet():
            piece = gap**2 * slope(x) * width
        total += 0.5 * weight * np.where(gap > 0, piece, 0.0).sum(axis=0)
    return total


# Panels one standard deviation wide out to nine, with 16 nodes each: the integrand's nearest
# complex singularities then leave an error near 1e-9 (tests compare with mpmath).
_OFFSETS = np.arange(-9.0, 10.0)
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)


def mixture_entropy(w: Array, m: Array, s: Array) -> Array:
    """Differential entropy of each column of a univariate mixture ``(K, N)`` by quadrature.

    Gauss-Legendre panels start at each member's mean plus whole standard deviations, so that
    every member is resolved at its own scale. A point mass gives -inf.
    """
    out = np.empty(m.shape[1])
    nodes = len(m) * len(_OFFSETS) * len(_NODES)
    for block in blocks_of(m.shape[1], max(1, 2_000_000 // nodes)):
        out[block] = _entropy_block(w[:, block], m[:, block], s[:, block])
    return out


def _entropy_block(w: Array, m: Array, s: Array) -> Array:
    atom = ((s == 0) & (w > 0)).any(axis=0)
    s = np.where(s > 0, s, 1.0)
    n_members, n = m.shape
    offset = (s[:, None, :] * _OFFSETS[:, None]).reshape(-1, n)
    base = np.repeat(np.arange(n_members), len(_OFFSETS))[:, None]
    order = np.argsort((m - m[0])[base[:, 0]] + offset, axis=0, kind="stable")
    # A node is kept as (mean of a member) + (offset): a member far narrower than the spacing of
    # float64 numbers around its mean is then still integrated to full accuracy.
    offset = np.take_along_axis(offset, order, axis=0)
    start = np.take_along_axis(m, base[order, 0], axis=0)
    width = np.diff(start, axis=0) + np.diff(offset, axis=0)
    delta = offset[:-1, None, :] + 0.5 * width[:, None, :] * (1.0 + _NODES[:, None])
    density = np.zeros_like(delta)
    with quiet():
        for w_k, m_k, s_k in zip(w, m, s, strict=True):
            z = ((start[:-1] - m_k)[:, None, :] + delta) / s_k
            density += w_k / s_k / _SQRT_2PI * np.exp(-0.5 * z * z)
    from scipy.special import xlogy

    panels = np.einsum("ign,g->in", xlogy(density, density), _NODE_WEIGHTS)
    return np.where(atom, -np.inf, -0.5 * (panels * width).sum(axis=0))


def scaled_cholesky(cov: Array, what: str) -> tuple[Array, Array]:
    """Return standard deviations ``(n, d)`` and the Cholesky factor of the correlations.

    Scaling first makes the factorization indifferent to the units of the outputs.
    """
    sd, corr = correlation(cov)
    d = cov.shape[-1]
    try:
        factor: Array = np.linalg.cholesky(corr).astype(np.float64, copy=False)
        smallest = np.diagonal(factor, axis1=-2, axis2=-1).min(axis=-1) ** 2
        singular = bool(smallest.min() <= 4 * d * _EPS)
    except np.linalg.LinAlgError:
        smallest = np.linalg.eigvalsh(corr)[:, 0]
        singular = True
    if singular:
        raise ValueError(
            f"The {what} is singular at row {int(np.argmin(smallest))}, so no joint density "
            f"exists; give every output a positive noise variance."
        )
    return sd, factor


def correlation(cov: Array) -> tuple[Array, Array]:
    """Split covariances ``(..., d, d)`` into standard deviations and correlations."""
    sd: Array = np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1))
    safe = np.where(sd > 0, sd, 1.0)
    return sd, cov / safe[..., :, None] / safe[..., None, :]


def covariance_root(cov: Array) -> Array:
    """Return ``A`` with ``A @ A.T == cov`` for any positive semi-definite ``cov``."""
    sd, corr = correlation(cov)
    try:
        root = np.linalg.cholesky(corr)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(corr)
        root = vectors * np.sqrt(np.maximum(values, 0.0))[..., None, :]
    return sd[..., :, None] * root


def forward_solve(factor: Array, b: Array) -> Array:
    """Solve ``factor @ x = b`` for lower triangular ``(..., d, d)`` and ``b`` of ``(..., d)``."""
    x = np.empty(np.broadcast_shapes(factor.shape[:-1], b.shape))
    with quiet():
        for i in range(b.shape[-1]):
            known = (factor[..., i, :i] * x[..., :i]).sum(axis=-1)
            x[..., i] = (b[..., i] - known) / factor[..., i, i]
    return x


def joint_log_normal(residual: Array, sd: Array, factor: Array) -> tuple[Array, Array]:
    """Joint log density ``(..., n)`` and whitened residual, from `scaled_cholesky`'s parts."""
    with quiet():
        u = forward_solve(factor, residual / sd)
        pivots = np.diagonal(factor, axis1=-2, axis2=-1)
        constant = (np.log(sd) + np.log(pivots) + 0.5 * LOG_2PI).sum(axis=-1)
        return -0.5 * (u * u).sum(axis=-1) - constant, u
