"""What targets that are known up to bounds say of how long things last. NumPy only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from varprop.brief import brief
from varprop.predictive.checks import check_share
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.mixtures import Array, Mask

__all__ = ["Survival", "bounded_pit", "stated_survival", "survival_curve"]

# Steps of the estimate for ranges, and what is small there.
_STEPS, _SMALL = 2000, 1e-7


class Survival(NamedTuple):
    """Share of targets above each value, a step function.

    Attributes
    ----------
    at
        Values at which it steps, rising.
    share
        Estimated share above, from there on to the next value.
    lower, upper
        Range of the true share with the stated probability, for each value by itself; NaN where
        targets are ranges, of which it is not known.
    """

    at: Array
    share: Array
    lower: Array
    upper: Array

    def __repr__(self) -> str:
        """Return sizes in place of large arrays."""
        return brief(self)


def survival_curve(lower: Array, upper: Array, *, probability: float = 0.95) -> Survival:
    """Estimate the share of targets above any value, whatever the inputs.

    With exact and right-censored targets by Kaplan and Meier, with the variance of Greenwood; with
    exact and left-censored ones by the same from the other end; with others by Turnbull's
    self-consistent estimate (expectation-maximization).

    Parameters
    ----------
    lower, upper : array of shape (n,)
        Bounds: equal where a target is known, -inf and inf where there is none.
    probability : float, default 0.95
        Of the range.

    Examples
    --------
    >>> known = np.array([1.0, 2.0, 3.0, 4.0])
    >>> survival_curve(known, np.array([1.0, np.inf, 3.0, 4.0])).share.tolist()
    [0.75, 0.375, 0.0]
    """
    check_share(probability, "probability")
    lower, upper = np.asarray(lower, np.float64), np.asarray(upper, np.float64)
    exact = lower == upper
    if np.isposinf(upper[~exact]).all() and np.isfinite(lower).all():
        return _kaplan_meier(lower, exact, probability)
    if np.isneginf(lower[~exact]).all() and np.isfinite(upper).all():
        turned = _kaplan_meier(-upper, exact, probability)
        # P(T > t) = 1 - P(-T >= -t): the steps are the same, counted from the other end.
        before = [np.append(1.0, side[:-1])[::-1] for side in turned[1:]]
        share, high, low = (1.0 - side for side in before)
        return Survival(-turned.at[::-1], share, low, high)
    return _turnbull(lower, upper)


def _kaplan_meier(time: Array, event: Mask, probability: float) -> Survival:
    at, index = np.unique(time[event], return_inverse=True)
    events = np.bincount(index, minlength=len(at)).astype(np.float64)
    risk = len(time) - np.searchsorted(np.sort(time), at, "left").astype(np.float64)
    share = np.cumprod(1.0 - events / risk, dtype=np.float64)
    left = risk - events
    with np.errstate(divide="ignore", invalid="ignore"):
        sum_ = np.cumsum(np.where(left > 0, events / (risk * left), 0.0))
    reach = ndtri((1.0 + probability) / 2.0) * share * np.sqrt(sum_)
    return Survival(at, share, np.clip(share - reach, 0, 1), np.clip(share + reach, 0, 1))


def _turnbull(lower: Array, upper: Array) -> Survival:
    # Mass can only lie where a lower bound is directly followed by an upper one; an exact value is
    # a range of no width. At most 400 such places, by quantiles.
    ends = np.unique(upper[np.isfinite(upper)])
    if len(ends) > 400:
        ends = np.unique(np.quantile(ends, np.linspace(0, 1, 400), method="nearest"))
    places = np.append(ends, np.inf)
    first = np.searchsorted(places, lower, "left")
    exact = lower == upper
    first = np.where(exact, first, np.searchsorted(places, lower, "right"))
    last = np.searchsorted(places, upper, "left")
    first = np.minimum(first, last)
    pairs, counts = np.unique(np.stack([first, last], axis=1), axis=0, return_counts=True)
    inside = np.arange(len(places))
    mask = (inside >= pairs[:, :1]) & (inside <= pairs[:, 1:])
    mass = np.full(len(places), 1.0 / len(places))
    for _ in range(_STEPS):
        total = mask @ mass
        new = mass * (mask.T @ (counts / total)) / counts.sum()
        done = np.abs(new - mass).max() < _SMALL
        mass = new
        if done:
            break
    share = 1.0 - np.cumsum(mass)[:-1]
    unknown = np.full(len(ends), np.nan)
    return Survival(ends, np.clip(share, 0.0, 1.0), unknown, unknown)


def stated_survival(prediction: AbstractNumeric, at: Array) -> Array:
    """Return the stated share of targets above each value, averaged over rows; shape of `at`.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([0.0, 2.0], [1.0, 1.0], 0.0)
    >>> stated_survival(p, np.array([0.0, 2.0])).round(3).tolist()
    [0.739, 0.261]
    """
    return np.array([float(1.0 - np.mean(prediction.cdf(float(value)))) for value in at])


def bounded_pit(lower: Array, upper: Array, prediction: AbstractNumeric) -> tuple[Array, Array]:
    """Return the cdf at both bounds: the targets' own lie evenly between, if all is right.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)
    >>> bounded_pit(np.array([0.0, 0.0]), np.array([0.0, np.inf]), p)[1].tolist()
    [0.5, 1.0]
    """
    finite = [np.where(np.isfinite(side), side, 0.0) for side in (lower, upper)]
    low, high = (prediction.cdf(side) for side in finite)
    return np.where(np.isneginf(lower), 0.0, low), np.where(np.isposinf(upper), 1.0, high)
