"""Counts and censored targets: how often, and how many last how long."""

from __future__ import annotations

import numpy as np

from varprop.plotting.style import BLUE, GREY, ORANGE, Axes, Look, area, axes, chance, finish
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.count_diagnostics import rootogram
from varprop.predictive.mixtures import ArrayLike
from varprop.predictive.survival import stated_survival, survival_curve


def plot_rootogram(
    y: ArrayLike, prediction: AbstractNumeric, *, probability: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw how many rows had each count beside how many should have, on a scale of square roots.

    Parameters
    ----------
    y, prediction, probability, ax
        See `varprop.plotting`; `prediction` is of counts.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> from varprop.predictive.counts import Counts
    >>> p = Counts(Predictive.gaussian(np.zeros(9), np.zeros(9), 0.0))
    >>> plot_rootogram(np.arange(9) % 3, p).get_xlabel()
    'count'
    """
    found = rootogram(y, prediction, probability=probability)
    ax = axes(ax)
    ax.set_yscale("function", functions=(_root, np.square))
    ax.bar(found.value, found.observed, color=BLUE, alpha=0.55, label="rows")
    bars: Look = {"color": GREY, "alpha": 0.4, "linewidth": 5, "label": chance(probability)}
    ax.vlines(found.value, found.lower, found.upper, **bars)
    squares: Look = {"color": "white", "markeredgecolor": "black", "markersize": 5}
    ax.plot(found.value, found.expected, "s", label="expected", **squares)
    ax.set_ylim(bottom=0)
    return finish(ax, "count", "rows")


def _root(values: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(values, 0.0))


def plot_survival(
    y: ArrayLike, prediction: AbstractNumeric, *, probability: float = 0.95, ax: Axes | None = None
) -> Axes:
    """Draw the share of rows above each value, observed and as stated on the average.

    Parameters
    ----------
    y : array of shape (n, 2) or (n,)
        Lower and upper bounds, equal where the target is known and infinite where there is none; or
        targets that are all known.
    prediction, probability, ax
        See `varprop.plotting`.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([1.0, 2.0], [1.0, 1.0], 0.0)
    >>> plot_survival([[0.5, 0.5], [1.5, np.inf]], p).get_ylabel()
    'share above'
    """
    bounds = np.asarray(y, np.float64)
    bounds = np.stack([bounds, bounds], axis=1) if bounds.ndim == 1 else bounds
    if bounds.shape != (prediction.n_rows, 2) or np.isnan(bounds).any():
        raise ValueError(
            f"y must hold a lower and an upper bound for each of {prediction.n_rows} rows."
        )
    lower, upper = bounds.T
    found = survival_curve(lower, upper, probability=probability)
    finite = bounds[np.isfinite(bounds)]
    grid = np.linspace(finite.min(), finite.max(), 100)
    ax = axes(ax)
    at = np.concatenate([grid[:1], found.at, grid[-1:]])

    def steps(values: np.ndarray) -> np.ndarray:
        return np.concatenate([[1.0], values, values[-1:]])

    if np.isfinite(found.lower).all():
        style = area(GREY, 0.25, chance(probability))
        ax.fill_between(at, steps(found.lower), steps(found.upper), step="post", **style)
    ax.step(at, steps(found.share), where="post", color=BLUE, linewidth=2, label="observed")
    stated = stated_survival(prediction.marginal(0), grid)
    ax.plot(grid, stated, "--", color=ORANGE, linewidth=1.8, label="stated, on average")
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter("{x:.0%}")
    return finish(ax, "value", "share above")
