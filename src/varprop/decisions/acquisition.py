"""What it is worth to try each row next, in closed form from its predictive distribution.

All take the distribution of *what counts*. That of the next measurement has the noise in it; the
one to improve usually is that of the function under the noise, `without_noise(prediction)`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, TypeVar

import numpy as np

from varprop.moments.constants import LOG_2PI, TAIL_64
from varprop.predictive import mixtures
from varprop.predictive.blend import Blend
from varprop.predictive.checks import check_share
from varprop.predictive.contract import AbstractContinuous
from varprop.predictive.distribution import Predictive
from varprop.predictive.mixtures import Array
from varprop.predictive.normal import polynomial
from varprop.predictive.warped import Warped

P = TypeVar("P", bound=AbstractContinuous)

# 1 - x R(x), R being Mills's ratio, is M / D up to here, and beyond x^-2 times a series in x^-2.
_FAR = float(TAIL_64["x_max"])
_SERIES = (1.0, -3.0, 15.0, -105.0, 945.0, -10395.0)
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)
# Where integrals beyond a point are cut, in lengths over which the density falls there.
_CUTS = np.array([0.0, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 40.0])


def without_noise(dist: P) -> P:
    """Return the distribution of the targets without their noise: what the model is unsure of.

    Behind a transform of the target it is that of its median.

    Parameters
    ----------
    dist
        A prediction of real numbers that tells the model's doubt from noise.

    Raises
    ------
    ValueError
        If it does not: see docs/how-to/objective.md.

    Examples
    --------
    >>> without_noise(Predictive.gaussian([0.0], [4.0], 5.0)).std.tolist()
    [2.0]
    """
    if isinstance(dist, Blend):
        return dataclasses.replace(dist, parts=tuple(without_noise(part) for part in dist.parts))
    if isinstance(dist, Warped):
        return dataclasses.replace(dist, latent=without_noise(dist.latent))
    if not isinstance(dist, Predictive):
        raise ValueError(
            f"decisions are for predictions of real numbers, but this one is a "
            f"{type(dist).__name__}."
        )
    if not dist.identified:
        raise ValueError(
            "this prediction does not tell the model's doubt from noise, which can therefore not "
            "be taken away: train with objective='vi', or take the part of a stack that was."
        )
    return dataclasses.replace(dist, member_noise=np.zeros_like(dist.member_noise))


def log_expected_improvement(
    dist: AbstractContinuous, best: float, *, maximize: bool = True
) -> Array:
    """Return the logarithm of `expected_improvement`, which is safe where that is below 1e-308.

    Parameters
    ----------
    dist, best, maximize
        As there.

    Returns
    -------
    array of shape (n,)
        -inf where no improvement is possible.

    Examples
    --------
    >>> log_expected_improvement(Predictive.gaussian([0.0], [1.0], 0.0), 100.0).round(4).tolist()
    [-5010.1296]
    """
    one, best = _single(dist), _finite(best)
    if isinstance(one, Blend):
        parts = [log_expected_improvement(part, best, maximize=maximize) for part in one.parts]
        return _summed(one.weights, np.stack(parts))
    if isinstance(one, Warped):
        return _summed(one.latent.weights, _log_improvement_behind(one, best, maximize=maximize))
    mean, std = (values[..., 0] for values in one.member_moments())
    gap = mean - best if maximize else best - mean
    with mixtures.quiet():
        found = np.log(std) + log_tail_moment(gap / std)
        sure = np.log(np.maximum(gap, 0.0))  # what has no spread is what it is
    return _summed(one.weights, np.where(std > 0, found, sure))


def expected_improvement(dist: AbstractContinuous, best: float, *, maximize: bool = True) -> Array:
    """Return by how much each row is expected to be better than the best so far.

    E[max(f - best, 0)], or of best - f. Of a mixture it is the weighted sum over its members, and
    exact. Behind a transform it is integrated, to a relative error of 1e-8 or better.

    Parameters
    ----------
    dist
        Of one target; `without_noise` of a prediction if values under the noise count.
    best
        What is to be improved, in the units of the target.
    maximize
        Whether more is better.

    Returns
    -------
    array of shape (n,)
        In the units of the target.

    Examples
    --------
    >>> p = Predictive.gaussian([0.0, 3.0], [1.0, 0.0], 0.0)
    >>> expected_improvement(p, 1.0).round(4).tolist()
    [0.0833, 2.0]
    """
    return np.exp(log_expected_improvement(dist, best, maximize=maximize))


def probability_of_improvement(
    dist: AbstractContinuous, best: float, *, maximize: bool = True
) -> Array:
    """Return the probability that each row is better than the best so far.

    Parameters
    ----------
    dist, best, maximize
        As in `expected_improvement`.

    Examples
    --------
    >>> probability_of_improvement(Predictive.gaussian([0.0], [1.0], 0.0), 0.0).tolist()
    [0.5]
    """
    one, best = _single(dist), _finite(best)
    found = one.survival(best) if maximize else one.cdf(best, left=True)
    return found.reshape(one.n_rows)


def confidence_bound(
    dist: AbstractContinuous, *, share: float = 0.9, maximize: bool = True
) -> Array:
    """Return what each row may reach: the upper (or lower) end of what is credible of it.

    Parameters
    ----------
    dist, maximize
        As in `expected_improvement`.
    share
        Probability on this side of the bound; 0.977 is two standard deviations of a Gaussian.

    Examples
    --------
    >>> p = Predictive.gaussian([1.0], [4.0], 0.0)
    >>> confidence_bound(p).round(3).tolist(), confidence_bound(p, maximize=False).round(3).tolist()
    ([3.563], [-1.563])
    """
    check_share(share, "share")
    one = _single(dist)
    return one.quantile(share if maximize else 1.0 - share).reshape(one.n_rows)


def information_gain(dist: AbstractContinuous) -> Array:
    """Return what one measurement of each row would tell of the model, in nats.

    1/2 log(1 + model variance / noise variance): exact for Gaussians; of a mixture it is that of
    the Gaussian with its two variances, and an upper bound of it where the noise is the same in all
    members. With several targets, the sum over them.

    Parameters
    ----------
    dist
        A prediction that tells the model's doubt from noise.

    Examples
    --------
    >>> information_gain(Predictive.gaussian([0.0], [3.0], 1.0)).round(4).tolist()
    [0.6931]
    """
    if not dist.identified:
        without_noise(dist)  # says what to do
    with mixtures.quiet():
        gain = 0.5 * np.log1p(dist.model_var / dist.noise_var)
    return gain.reshape(dist.n_rows, -1).sum(axis=1)


def log_tail_moment(z: Any) -> Array:
    """Return log(phi(z) + z Phi(z)): the expected improvement of a standard normal, in logarithms.

    To 1e-14 relative to the larger of 1 and itself, wherever it is a number.

    Examples
    --------
    >>> log_tail_moment([-1e8, 0.0, 3.0]).round(6).tolist()
    [-5000000000000038.0, -0.918939, 1.09874]
    """
    z = np.asarray(z, np.float64)
    with mixtures.quiet():
        x = np.abs(z)
        near = np.minimum(x, _FAR)
        inverse = np.maximum(x, _FAR) ** -2.0
        # phi(x) - x Phi(-x) = phi(x) (1 - x R(x)): both factors are far from cancellation.
        rest = np.where(
            x <= _FAR,
            polynomial(TAIL_64["M"], near) / polynomial(TAIL_64["D"], near),
            inverse * polynomial(_SERIES, inverse),
        )
        log_below = -0.5 * x * x - 0.5 * LOG_2PI + np.log(rest)
        return np.where(z > 0, np.log(x + np.exp(log_below)), log_below)


def _log_improvement_behind(dist: Warped, best: float, *, maximize: bool) -> Array:
    """Return log E[max(g(z) - best, 0)] of every member, (K, n), by quadrature over z."""
    side = 1.0 if maximize else -1.0
    mean, std = (side * dist.latent.member_moments()[0], dist.latent.member_moments()[1])
    mean, std = mean[..., 0], std[..., 0]
    where = np.broadcast_to(best, (1, 1, 1))
    with mixtures.quiet():
        turn = side * float(dist.warp.forward(where).item())
        u = (turn - mean) / np.where(std > 0, std, 1.0)  # where improvement begins, standardized
        # Beyond it the density falls within 1 / u; before it, the whole of the Gaussian counts.
        from_u = np.maximum(u, -9.0)
        length = 1.0 / np.maximum(1.0, from_u)
        top = np.maximum(9.0, from_u + _CUTS[-1] * length)
        cuts = from_u + _CUTS[:, None, None] * length
        even = from_u + np.linspace(0.0, 1.0, 25)[:, None, None] * (top - from_u)
        edges = np.sort(np.concatenate([np.minimum(cuts, top), even]), axis=0)
        half = 0.5 * np.diff(edges, axis=0)
        terms = []
        for node, weight in zip(_NODES, _NODE_WEIGHTS, strict=True):
            t = edges[:-1] + half * (1.0 + node)
            value = dist.warp.inverse((side * (mean + std * t))[..., None])[..., 0]
            gain = np.log(np.maximum(side * (value - best), 0.0))
            terms.append(np.log(weight * half) + gain - 0.5 * t * t - 0.5 * LOG_2PI)
        found = mixtures.log_sum_exp(np.concatenate(terms))
        sure = dist.warp.inverse((side * mean)[..., None])[..., 0]
        found = np.where(u < np.inf, found, -np.inf)  # no target lies there
        return np.where(std > 0, found, np.log(np.maximum(side * (sure - best), 0.0)))


def _summed(weights: Array, logs: Array) -> Array:
    """Return log sum_k w_k exp(a_k) for weights (K, n) or (K, 1) and logarithms (K, n)."""
    with mixtures.quiet():
        terms = np.where(weights > 0, np.log(weights) + logs, -np.inf)
    return mixtures.log_sum_exp(terms)


def _single(dist: Any) -> Any:
    """Return a prediction of one target that is a real number; say what to do if it is not."""
    if not isinstance(dist, Predictive | Warped | Blend):
        raise ValueError(
            "decisions are for predictions of real numbers, but this one is a "
            f"{type(dist).__name__}."
        )
    if dist.n_outputs != 1:
        raise ValueError(
            f"the prediction has {dist.n_outputs} targets: choose the one that counts, by "
            "prediction.marginal(i)."
        )
    return dist


def _finite(best: float) -> float:
    if not math.isfinite(best):
        raise ValueError(f"best must be a finite number, but is {best}.")
    return float(best)
