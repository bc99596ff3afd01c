"""What calibration plots show, as numbers, beside what chance allows. NumPy only.

Each function looks at one output at a time and gives, beside what was observed, the range in which
a perfect model would fall with the stated probability. Coverages and histograms of ``n`` rows are
binomial counts, so these ranges are exact (each level and each bin by itself).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from varprop.predictive.checks import as_float, check_finite
from varprop.predictive.distribution import Predictive
from varprop.predictive.mixtures import Array, ArrayLike

__all__ = [
    "CalibrationCurve",
    "ErrorByStd",
    "PITHistogram",
    "calibration_curve",
    "chance_range",
    "error_by_std",
    "pit_histogram",
]


class CalibrationCurve(NamedTuple):
    """Observed coverage of central intervals, and the range that chance allows.

    Attributes
    ----------
    level
        Stated coverages.
    observed
        Shares of targets inside, ends included.
    lower, upper
        Where the observed share of a perfect model falls with the stated probability.
    """

    level: Array
    observed: Array
    lower: Array
    upper: Array


class PITHistogram(NamedTuple):
    """Counts of the probability integral transform in equal bins of [0, 1].

    Attributes
    ----------
    edges
        Bin edges, one more than bins.
    counts
        Rows per bin.
    lower, upper
        Where each count of a perfect model falls with the stated probability.
    """

    edges: Array
    counts: Array
    lower: float
    upper: float


class ErrorByStd(NamedTuple):
    """Root mean squared error of rows grouped by their stated standard deviation.

    Attributes
    ----------
    stated
        Root mean stated variance of each group.
    error
        Root mean squared error of each group.
    lower, upper
        Where the error of a perfect Gaussian model falls with the stated probability, about.
    counts
        Rows per group.
    """

    stated: Array
    error: Array
    lower: Array
    upper: Array
    counts: Array


def one_output(y: ArrayLike, prediction: Predictive) -> Array:
    """Return the targets as ``(n,)``, refusing several outputs and non-finite values."""
    if prediction.n_outputs != 1:
        raise ValueError(
            f"The prediction has {prediction.n_outputs} outputs: choose one by "
            "prediction.marginal(i)."
        )
    values = as_float(y, "y")
    if values.shape not in ((prediction.n_rows,), (prediction.n_rows, 1)):
        raise ValueError(f"y has shape {values.shape}, not ({prediction.n_rows},).")
    check_finite(values, "y")
    return values.reshape(-1)


def middle_pit(y: Array, prediction: Predictive) -> Array:
    """Return ``cdf(y)`` of one output; the middle of the jump where `y` is on a point mass."""
    at, below = (prediction._cdf(y[:, None], left=left)[:, 0] for left in (False, True))
    middle: Array = (at + below) / 2.0
    return middle


def _tail(probability: float) -> float:
    """Return the probability on either side of a central range."""
    if not 0 < probability < 1:
        raise ValueError(f"probability must lie strictly between 0 and 1, not {probability}.")
    return (1.0 - probability) / 2.0


def chance_range(n: int, share: ArrayLike, probability: float = 0.95) -> tuple[Array, Array]:
    """Smallest central range that holds a binomial share with at least the given probability.

    Parameters
    ----------
    n : int
        Number of independent trials.
    share : float or array
        Probability of success of each.
    probability : float, default 0.95
        Of the range.

    Examples
    --------
    >>> lower, upper = chance_range(120, 0.9)
    >>> print(lower.round(3), upper.round(3))
    0.842 0.95
    """
    tail = _tail(probability)
    lower, upper = (np.asarray(stats.binom.ppf(q, n, share)) / n for q in (tail, 1.0 - tail))
    return np.asarray(lower), np.asarray(upper)


def calibration_curve(
    y: ArrayLike,
    prediction: Predictive,
    *,
    levels: ArrayLike | None = None,
    probability: float = 0.95,
) -> CalibrationCurve:
    """Share of targets inside the central intervals of every level.

    Parameters
    ----------
    y : array of shape (n,)
    prediction : Predictive
        Of one output.
    levels : array of shape (m,), optional
        Stated coverages strictly between 0 and 1; 0.02, 0.04, ..., 0.98 by default.
    probability : float, default 0.95
        Of the range that chance allows, at each level by itself.

    Examples
    --------
    >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)
    >>> calibration_curve([0.5, 9.0], p, levels=[0.5, 0.9]).observed.tolist()
    [0.5, 0.5]
    """
    y = one_output(y, prediction)
    level = np.arange(1, 50) / 50.0 if levels is None else as_float(levels, "levels")
    if level.ndim != 1 or not level.size or not np.all((level > 0) & (level < 1)):
        raise ValueError("levels must be a non-empty list of numbers strictly between 0 and 1.")
    at, below = (prediction._cdf(y[:, None], left=left)[:, 0] for left in (False, True))
    low, high = (1.0 - level[:, None]) / 2.0, (1.0 + level[:, None]) / 2.0
    observed = ((at >= low) & (below <= high)).mean(axis=1)
    return CalibrationCurve(level, observed, *chance_range(len(y), level, probability))


def pit_histogram(
    y: ArrayLike,
    prediction: Predictive,
    *,
    n_bins: int | None = None,
    probability: float = 0.95,
) -> PITHistogram:
    """Histogram of ``cdf(y)``: flat if the stated distributions are right.

    A target on a point mass counts with the middle of its jump.

    Parameters
    ----------
    y : array of shape (n,)
    prediction : Predictive
        Of one output.
    n_bins : int, optional
        Between 5 and 20, about the square root of the rows, by default.
    probability : float, default 0.95
        Of the range that chance allows, for each bin by itself.

    Examples
    --------
    >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)
    >>> pit_histogram([-3.0, 0.1], p, n_bins=4).counts.tolist()
    [1.0, 0.0, 1.0, 0.0]
    """
    y = one_output(y, prediction)
    n = len(y)
    bins = int(np.clip(round(n**0.5), 5, 20)) if n_bins is None else n_bins
    if bins < 1:
        raise ValueError(f"n_bins must be at least 1, not {n_bins}.")
    count, edges = np.histogram(middle_pit(y, prediction), bins=bins, range=(0.0, 1.0))
    lower, upper = chance_range(n, 1.0 / bins, probability)
    return PITHistogram(edges, count.astype(np.float64), float(lower) * n, float(upper) * n)


def error_by_std(
    y: ArrayLike,
    prediction: Predictive,
    *,
    n_bins: int | None = None,
    probability: float = 0.95,
) -> ErrorByStd:
    """Errors of rows grouped by stated standard deviation; ideally equal to it.

    Groups hold equally many rows; rows with the same stated deviation stay together. The range is
    that of a sum of squared Gaussian errors, as a chi-square with matched variance.

    Parameters
    ----------
    y : array of shape (n,)
    prediction : Predictive
        Of one output.
    n_bins : int, optional
        At most 10 by default, with about 20 rows or more in each.
    probability : float, default 0.95
        Of the range.

    Examples
    --------
    >>> p = Predictive.gaussian([0.0] * 4, [1.0, 1.0, 4.0, 4.0], 0.0)
    >>> error_by_std([1.0, -1.0, 3.0, -3.0], p, n_bins=2).error.tolist()
    [1.0, 3.0]
    """
    y = one_output(y, prediction)
    std = prediction.std.reshape(-1)
    n = len(y)
    bins = int(np.clip(n // 20, 1, 10)) if n_bins is None else n_bins
    if bins < 1:
        raise ValueError(f"n_bins must be at least 1, not {n_bins}.")
    cuts = np.unique(np.quantile(std, np.arange(1, bins) / bins, method="lower"))
    group = np.searchsorted(cuts, std, side="left")
    keys = np.unique(group)
    size = max(float(np.abs(y - prediction.mean.reshape(-1)).max()), float(std.max())) or 1.0
    error = (y - prediction.mean.reshape(-1)) / size
    rows = [group == key for key in keys]
    count = np.array([r.sum() for r in rows], dtype=np.float64)
    stated = np.array([np.sqrt(np.mean((std[r] / size) ** 2)) for r in rows])
    observed = np.array([np.sqrt(np.mean(error[r] ** 2)) for r in rows])
    # Satterthwaite: a weighted sum of chi-squares has fewer degrees of freedom than terms.
    ratio = [std[r] / top if (top := std[r].max()) > 0 else np.ones(r.sum()) for r in rows]
    freedom = np.array([np.sum(q**2) ** 2 / np.sum(q**4) for q in ratio])
    tail = _tail(probability)
    lower, upper = (np.sqrt(stats.chi2.ppf(q, freedom) / freedom) for q in (tail, 1.0 - tail))
    return ErrorByStd(
        stated * size, observed * size, stated * lower * size, stated * upper * size, count
    )
