"""Whether predictions can be trusted: held-out targets against what was stated."""

from __future__ import annotations

import numpy as np

from varprop.plotting.style import BLUE, CHANCE, GREY, IDEAL, LEGEND, ORANGE, Axes, axes
from varprop.predictive import diagnostics
from varprop.predictive.diagnostics import one_output
from varprop.predictive.distribution import Predictive
from varprop.predictive.mixtures import ArrayLike

__all__ = ["plot_calibration", "plot_error_by_std", "plot_pit", "plot_predicted_observed"]


def plot_predicted_observed(
    y: ArrayLike, prediction: Predictive, *, coverage: float = 0.9, ax: Axes | None = None
) -> Axes:
    """Draw predicted values with intervals over observed ones; diamonds fell outside.

    Parameters
    ----------
    y : array of shape (n,)
    prediction : Predictive
        Of one output.
    coverage : float, default 0.9
        Of the intervals.
    ax : Axes, optional

    Examples
    --------
    >>> p = Predictive.gaussian([1.0, 2.0, 3.0], [0.1, 0.1, 0.1], 0.2)
    >>> plot_predicted_observed([1.2, 5.0, 2.9], p).get_xlabel()
    'observed'
    """
    y = one_output(y, prediction)
    mean = prediction.mean.reshape(-1)
    lower, upper = (bound.reshape(-1) for bound in prediction.interval(coverage))
    outside = (y < lower) | (y > upper)
    ax = axes(ax)
    for rows, color, marker, label in (
        (~outside, BLUE, "o", f"inside the {coverage:.0%} interval"),
        (outside, ORANGE, "D", "outside"),
    ):
        if rows.any():
            ax.vlines(y[rows], lower[rows], upper[rows], color=color, alpha=0.3, linewidth=1)
            ax.plot(
                y[rows],
                mean[rows],
                marker,
                color=color,
                markersize=4,
                alpha=0.8,
                markeredgewidth=0,
                label=label,
            )
    ends = [min(y.min(), mean.min()), max(y.max(), mean.max())]
    ax.plot(ends, ends, label="exact prediction", **IDEAL)
    ax.set(xlabel="observed", ylabel="predicted")
    ax.legend(**LEGEND)
    return ax


def plot_calibration(
    y: ArrayLike,
    prediction: Predictive,
    *,
    levels: ArrayLike | None = None,
    probability: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw observed over stated coverage, with the range that chance allows at each level.

    Below the dashed line the model is overconfident, above it too cautious. See
    `varprop.diagnostics.calibration_curve` for the numbers.

    Parameters
    ----------
    y : array of shape (n,)
    prediction : Predictive
        Of one output.
    levels : array of shape (m,), optional
        Stated coverages; 0.02, 0.04, ..., 0.98 by default.
    probability : float, default 0.95
        Of the exact binomial range of chance.
    ax : Axes, optional

    Examples
    --------
    >>> p = Predictive.gaussian(np.zeros(9), np.ones(9), 0.0)
    >>> plot_calibration(np.linspace(-1.5, 1.5, 9), p).get_ylabel()
    'observed values inside'
    """
    curve = diagnostics.calibration_curve(y, prediction, levels=levels, probability=probability)
    ax = axes(ax)
    ax.fill_between(
        curve.level, curve.lower, curve.upper, label=f"{probability:.0%} range of chance", **CHANCE
    )
    ax.plot([0, 1], [0, 1], label="ideal", **IDEAL)
    ax.plot(curve.level, curve.observed, color=BLUE, linewidth=2, label="observed")
    ax.set(xlabel="stated coverage", ylabel="observed values inside", xlim=(0, 1), ylim=(0, 1))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:.0%}")
    ax.legend(loc="upper left", **LEGEND)
    return ax


def plot_pit(
    y: ArrayLike,
    prediction: Predictive,
    *,
    n_bins: int | None = None,
    probability: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Draw the PIT histogram, flat for a perfect model, with the range that chance allows.

    Parameters
    ----------
    y : array of shape (n,)
    prediction : Predictive
        Of one output.
    n_bins : int, optional
        See `varprop.diagnostics.pit_histogram`.
    probability : float, default 0.95
        Of the exact binomial range of chance.
    ax : Axes, optional

    Examples
    --------
    >>> p = Predictive.gaussian(np.zeros(9), np.ones(9), 0.0)
    >>> len(plot_pit(np.linspace(-1.5, 1.5, 9), p, n_bins=4).patches)
    4
    """
    histogram = diagnostics.pit_histogram(y, prediction, n_bins=n_bins, probability=probability)
    ax = axes(ax)
    width = np.diff(histogram.edges)
    ax.bar(
        histogram.edges[:-1],
        histogram.counts,
        width=width,
        align="edge",
        color=BLUE,
        alpha=0.55,
        edgecolor="white",
        label="rows",
    )
    ax.fill_between(
        [0.0, 1.0],
        histogram.lower,
        histogram.upper,
        label=f"{probability:.0%} range of chance",
        **{**CHANCE, "alpha": 0.3},
    )
    expected = histogram.counts.sum() / len(histogram.counts)
    ax.plot([0, 1], [expected, expected], label="ideal", **IDEAL)
    ax.set(xlabel="stated probability of a lower value", ylabel="rows", xlim=(0, 1))
    ax.set_ylim(0, 1.3 * max(histogram.counts.max(), histogram.upper))  # room for the legend
    ax.legend(loc="upper center", ncols=3, handlelength=1.2, columnspacing=1.0, **LEGEND)
    return ax


def plot_error_by_std(
    y: ArrayLike,
    prediction: Predictive,
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
    y : array of shape (n,)
    prediction : Predictive
        Of one output.
    n_bins : int, optional
        Number of groups; see `varprop.diagnostics.error_by_std`.
    probability : float, default 0.95
        Of the range of chance.
    ax : Axes, optional

    Examples
    --------
    >>> p = Predictive.gaussian([0.0] * 4, [1.0, 1.0, 4.0, 4.0], 0.0)
    >>> plot_error_by_std([1.0, -1.0, 3.0, -3.0], p, n_bins=2).get_ylabel()
    'size of the error'
    """
    groups = diagnostics.error_by_std(y, prediction, n_bins=n_bins, probability=probability)
    error = np.abs(one_output(y, prediction) - prediction.mean.reshape(-1))
    std = prediction.std.reshape(-1)
    ax = axes(ax)
    ax.plot(std, error, ".", color=BLUE, alpha=0.5, markersize=4, label="row")
    ax.vlines(
        groups.stated,
        groups.lower,
        groups.upper,
        color=GREY,
        alpha=0.4,
        linewidth=7,
        label=f"{probability:.0%} range of chance",
    )
    ax.plot(
        groups.stated,
        groups.error,
        "s",
        color="white",
        markeredgecolor="black",
        markersize=6,
        label="group of rows",
    )
    ends = np.array([std.min(), std.max()])
    ax.plot(ends, ends, label="as stated", **IDEAL)
    ax.set(xlabel="stated standard deviation", ylabel="size of the error")
    ax.set_ylim(bottom=0)
    ax.legend(**LEGEND)
    return ax
