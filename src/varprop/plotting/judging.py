"""Whether predictions can be trusted: held-out targets against what was stated."""

from __future__ import annotations

import numpy as np

from varprop.plotting.style import (
    BLUE,
    GREY,
    IDEAL,
    MARKS,
    ORANGE,
    Axes,
    Look,
    area,
    axes,
    chance,
    finish,
)
from varprop.predictive import diagnostics
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.diagnostics import of_one_output
from varprop.predictive.mixtures import ArrayLike


def plot_predicted_observed(
    y: ArrayLike, prediction: AbstractNumeric, *, coverage: float = 0.9, ax: Axes | None = None
) -> Axes:
    """Draw predicted values with intervals over observed ones; diamonds fell outside.

    Parameters
    ----------
    y, prediction, ax
        See `varprop.plotting`.
    coverage : float, default 0.9
        Of the intervals.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([1.0, 2.0, 3.0], [0.1, 0.1, 0.1], 0.2)
    >>> plot_predicted_observed([1.2, 5.0, 2.9], p).get_xlabel()
    'observed'
    """
    y, prediction = of_one_output(y, prediction)
    mean = prediction.mean
    lower, upper = prediction.interval(coverage)
    outside = (y < lower) | (y > upper)
    ax = axes(ax)
    for rows, color, marker, label in (
        (~outside, BLUE, "o", f"inside the {coverage:.0%} interval"),
        (outside, ORANGE, "D", "outside"),
    ):
        if rows.any():
            ax.vlines(y[rows], lower[rows], upper[rows], color=color, alpha=0.3, linewidth=1)
            ax.plot(y[rows], mean[rows], marker, color=color, label=label, **MARKS)
    ends = [min(y.min(), mean.min()), max(y.max(), mean.max())]
    ax.plot(ends, ends, label="exact prediction", **IDEAL)
    return finish(ax, "observed", "predicted")


def plot_calibration(
    y: ArrayLike,
    prediction: AbstractNumeric,
    *,
    levels: ArrayLike | None = None,
    probability: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw observed over stated coverage, with the range that chance allows at each level.

    Below the dashed line the model is overconfident, above it too cautious.

    Parameters
    ----------
    y, prediction, probability, ax
        See `varprop.plotting`.
    levels : array of shape (m,), optional
        Stated coverages; 0.02, 0.04, ..., 0.98 by default.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian(np.zeros(9), np.ones(9), 0.0)
    >>> plot_calibration(np.linspace(-1.5, 1.5, 9), p).get_ylabel()
    'observed values inside'
    """
    curve = diagnostics.calibration_curve(y, prediction, levels=levels, probability=probability)
    ax = axes(ax)
    ax.fill_between(curve.level, curve.lower, curve.upper, **area(GREY, 0.2, chance(probability)))
    ax.plot([0, 1], [0, 1], label="ideal", **IDEAL)
    ax.plot(curve.level, curve.observed, color=BLUE, linewidth=2, label="observed")
    ax.set(xlim=(0, 1), ylim=(0, 1))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:.0%}")
    return finish(ax, "stated coverage", "observed values inside", loc="upper left")


def plot_pit(
    y: ArrayLike,
    prediction: AbstractNumeric,
    *,
    n_bins: int | None = None,
    probability: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw the PIT histogram, flat for a perfect model, with the range that chance allows.

    Parameters
    ----------
    y, prediction, probability, ax
        See `varprop.plotting`.
    n_bins : int, optional
        See `varprop.diagnostics.pit_histogram`.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian(np.zeros(9), np.ones(9), 0.0)
    >>> len(plot_pit(np.linspace(-1.5, 1.5, 9), p, n_bins=4).patches)
    4
    """
    found = diagnostics.pit_histogram(y, prediction, n_bins=n_bins, probability=probability)
    ax = axes(ax)
    bars: Look = {"color": BLUE, "alpha": 0.55, "edgecolor": "white", "label": "rows"}
    ax.bar(found.edges[:-1], found.counts, width=np.diff(found.edges), align="edge", **bars)
    ax.fill_between([0, 1], found.lower, found.upper, **area(GREY, 0.3, chance(probability)))
    ax.plot([0, 1], [found.counts.mean()] * 2, label="ideal", **IDEAL)
    top = 1.3 * max(found.counts.max(), found.upper)  # room for the legend
    ax.set(xlim=(0, 1), ylim=(0, top))
    legend: Look = {"loc": "upper center", "ncols": 3, "handlelength": 1.2, "columnspacing": 1.0}
    return finish(ax, "stated probability of a lower value", "rows", **legend)


def plot_error_by_std(
    y: ArrayLike,
    prediction: AbstractNumeric,
    *,
    n_bins: int | None = None,
    probability: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw errors over stated standard deviations, row by row and for groups of rows.

    The root mean square error of a group should lie on the dashed line; its bar is the range that
    chance allows.

    Parameters
    ----------
    y, prediction, probability, ax
        See `varprop.plotting`.
    n_bins : int, optional
        Number of groups; see `varprop.diagnostics.error_by_std`.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([0.0] * 4, [1.0, 1.0, 4.0, 4.0], 0.0)
    >>> plot_error_by_std([1.0, -1.0, 3.0, -3.0], p, n_bins=2).get_ylabel()
    'size of the error'
    """
    groups = diagnostics.error_by_std(y, prediction, n_bins=n_bins, probability=probability)
    y, prediction = of_one_output(y, prediction)
    std = prediction.std
    ax = axes(ax)
    rows: Look = {"color": BLUE, "alpha": 0.5, "markersize": 4, "label": "row"}
    ax.plot(std, np.abs(y - prediction.mean), ".", **rows)
    bars: Look = {"color": GREY, "alpha": 0.4, "linewidth": 7, "label": chance(probability)}
    ax.vlines(groups.stated, groups.lower, groups.upper, **bars)
    squares: Look = {"color": "white", "markeredgecolor": "black", "markersize": 6}
    ax.plot(groups.stated, groups.error, "s", label="group of rows", **squares)
    ends = [std.min(), std.max()]
    ax.plot(ends, ends, label="as stated", **IDEAL)
    ax.set_ylim(bottom=0)
    return finish(ax, "stated standard deviation", "size of the error")
