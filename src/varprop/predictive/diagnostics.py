"""What calibration plots show, as numbers, beside what chance allows. NumPy only.

Each function looks at one output at a time and gives, beside what was observed, the range in which
a perfect model would fall with the stated probability. Coverages and histograms of ``n`` rows are
binomial counts, so these ranges are exact (each level and each bin by itself).

A count lies on a jump of its cdf, from ``P(Y < y)`` to ``P(Y <= y)``, and is spread evenly over it:
what is observed has the expectation it should have, and ranges of chance are a little wide.

Everywhere ``y`` are the targets, an array of shape (n,), ``prediction`` is a `Predictive` (or
`Warped`, `Counts`, `Blend`) of one output, and ``probability`` is that of the range which chance
allows, 0.95 by default.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
from scipy import stats
from scipy.special import ndtri

from varprop.brief import brief
from varprop.predictive.checks import as_levels, as_targets, check_share
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.metrics import check_order, held, jump
from varprop.predictive.mixtures import Array, ArrayLike, Mask, quiet

__all__ = [
    "CalibrationCurve",
    "ErrorByStd",
    "Judgement",
    "PITHistogram",
    "calibration_curve",
    "chance_range",
    "error_by_std",
    "judge",
    "pit_histogram",
]


N = TypeVar("N", bound=AbstractNumeric)

_FEW = 10  # rows of which nothing is said
_ABOVE_HALF = float(np.nextafter(0.5, 1.0))


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

    def __repr__(self) -> str:
        """Return sizes in place of large arrays."""
        return brief(self)


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

    def __repr__(self) -> str:
        """Return sizes in place of large arrays."""
        return brief(self)


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

    def __repr__(self) -> str:
        """Return sizes in place of large arrays."""
        return brief(self)


class Judgement(NamedTuple):
    """What is said of the stated uncertainty of one output; see `judge`.

    Attributes
    ----------
    spread
        "good"; "over" (intervals too narrow), "under" (too wide), "shape" (too narrow here and too
        wide there), "tails" (intervals hold, but some rows lie much farther out than stated); or
        "unknown" with fewer than ten rows.
    bias
        "high" or "low" if predictions tend to be that; empty if not, or unknown.
    """

    spread: str
    bias: str


def of_one_output(y: ArrayLike, prediction: N) -> tuple[Array, N]:
    """Return both of shape ``(n,)``, refusing several outputs and targets that are not finite."""
    check_order(y, prediction)
    if prediction.n_outputs != 1:
        raise ValueError(
            f"The prediction has {prediction.n_outputs} outputs: choose one by "
            "prediction.marginal(i)."
        )
    n = prediction.n_rows
    return as_targets(y, "y", (n,), (n, 1))[:, 0], prediction.marginal(0)


def middle_pit(y: Array, prediction: AbstractNumeric) -> Array:
    """Return ``cdf(y)`` of one output; the middle of the jump where `y` is on a point mass."""
    below, at = jump(y, prediction)
    middle: Array = (at + below) / 2.0
    return middle


def _spread_pit(y: Array, prediction: AbstractNumeric) -> tuple[Array, Array]:
    """Return between what numbers the PIT is spread evenly: equal ones unless targets are counts.

    A point mass of a target that is a number otherwise stands for its middle.
    """
    if prediction.is_discrete:
        return jump(y, prediction)
    middle = middle_pit(y, prediction)
    return middle, middle


def shares_up_to(edges: Array, low: Array, high: Array) -> Array:
    """Return how much of the numbers spread between low and high, (n,), is below edges, (m, n)."""
    width = high - low
    part = np.clip((edges[:, None] - low) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    shares: Array = np.where(width > 0, part, edges[:, None] > low)
    return shares


def _square_scores(low: Array, high: Array) -> Array:
    """Return the mean square of the normal scores of numbers spread between low and high, (n,)."""
    middle = ndtri((low + high) / 2.0) ** 2
    with quiet():
        ends = [
            q - np.nan_to_num(z * np.exp(-0.5 * z * z)) / np.sqrt(2 * np.pi)
            for q, z in ((q, ndtri(q)) for q in (low, high))
        ]
        spread = (ends[1] - ends[0]) / (high - low)
    # Of a short jump the difference would be rounding, and the middle is as good.
    found: Array = np.where(high - low > 1e-5, spread, middle)
    return found


def equal_groups(values: Array, n_groups: int) -> list[Mask]:
    """Cut rows at quantiles of ``values``; rows with the same value stay together."""
    cuts = np.quantile(values, np.arange(1, n_groups) / n_groups, method="lower")
    group = np.searchsorted(np.unique(cuts), values, side="left")
    return [group == key for key in np.unique(group)]


def _ends(probability: float) -> tuple[float, float]:
    """Return the levels between which a central range lies."""
    check_share(probability, "probability")
    tail = (1.0 - probability) / 2.0
    return tail, 1.0 - tail


def _bins(n_bins: int | None, default: int, least: int, most: int) -> int:
    bins = int(np.clip(default, least, most)) if n_bins is None else n_bins
    if bins < 1:
        raise ValueError(f"n_bins must be at least 1, not {n_bins}.")
    return bins


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
    lower, upper = (np.asarray(stats.binom.ppf(q, n, share) / n) for q in _ends(probability))
    return lower, upper


def calibration_curve(
    y: ArrayLike,
    prediction: AbstractNumeric,
    *,
    levels: ArrayLike | None = None,
    probability: float = 0.95,
) -> CalibrationCurve:
    """Share of targets inside the central intervals of every level.

    Parameters
    ----------
    levels : array of shape (m,), optional
        Stated coverages strictly between 0 and 1; 0.02, 0.04, ..., 0.98 by default.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)
    >>> calibration_curve([0.5, 9.0], p, levels=[0.5, 0.9]).observed.tolist()
    [0.5, 0.5]
    """
    y, prediction = of_one_output(y, prediction)
    level = as_levels(levels, 50)
    observed = np.array([inside.mean() for inside in held(y[:, None], prediction, level)])
    return CalibrationCurve(level, observed, *chance_range(len(y), level, probability))


def pit_histogram(
    y: ArrayLike,
    prediction: AbstractNumeric,
    *,
    n_bins: int | None = None,
    probability: float = 0.95,
) -> PITHistogram:
    """Histogram of ``cdf(y)``: flat if the stated distributions are right.

    A target on a point mass counts with the middle of its jump, a count with parts of one in all
    bins that its jump passes.

    Parameters
    ----------
    n_bins : int, optional
        Between 5 and 20, about the square root of the rows, by default.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)
    >>> pit_histogram([-3.0, 0.1], p, n_bins=4).counts.tolist()
    [1.0, 0.0, 1.0, 0.0]
    """
    y, prediction = of_one_output(y, prediction)
    low, high = _spread_pit(y, prediction)
    return histogram_of(low, high, n_bins=n_bins, probability=probability)


def histogram_of(
    low: Array, high: Array, *, n_bins: int | None = None, probability: float = 0.95
) -> PITHistogram:
    """Return the histogram of numbers, each spread evenly between two, that should be uniform.

    Examples
    --------
    >>> low, high = np.array([0.1, 0.5]), np.array([0.1, 1.0])
    >>> histogram_of(low, high, n_bins=4).counts.tolist()
    [1.0, 0.0, 0.5, 0.5]
    """
    n = len(low)
    bins = _bins(n_bins, round(n**0.5), 5, 20)
    edges = np.linspace(0.0, 1.0, bins + 1)
    inner = shares_up_to(edges[1:-1], low, high).sum(axis=1)
    count = np.diff(inner, prepend=0.0, append=float(n))
    lower, upper = chance_range(n, 1.0 / bins, probability)
    return PITHistogram(edges, count, float(lower) * n, float(upper) * n)


def error_by_std(
    y: ArrayLike,
    prediction: AbstractNumeric,
    *,
    n_bins: int | None = None,
    probability: float = 0.95,
) -> ErrorByStd:
    """Errors of rows grouped by stated standard deviation; ideally equal to it.

    Groups hold equally many rows; rows with the same stated deviation stay together. The range is
    that of a sum of squared Gaussian errors, as a chi-square with matched variance.

    Parameters
    ----------
    n_bins : int, optional
        At most 10 by default, with about 20 rows or more in each.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([0.0] * 4, [1.0, 1.0, 4.0, 4.0], 0.0)
    >>> error_by_std([1.0, -1.0, 3.0, -3.0], p, n_bins=2).error.tolist()
    [1.0, 3.0]
    """
    y, prediction = of_one_output(y, prediction)
    std = prediction.std
    error = y - prediction.mean
    rows = equal_groups(std, _bins(n_bins, len(y) // 20, 1, 10))
    size = max(float(np.abs(error).max()), float(std.max())) or 1.0
    count = np.array([r.sum() for r in rows], dtype=np.float64)
    stated = np.array([np.sqrt(np.mean((std[r] / size) ** 2)) for r in rows])
    observed = np.array([np.sqrt(np.mean((error[r] / size) ** 2)) for r in rows])
    # Satterthwaite: a weighted sum of chi-squares has fewer degrees of freedom than terms.
    ratio = [std[r] / top if (top := std[r].max()) > 0 else np.ones(r.sum()) for r in rows]
    freedom = np.array([np.sum(q**2) ** 2 / np.sum(q**4) for q in ratio])
    lower, upper = (np.sqrt(stats.chi2.ppf(q, freedom) / freedom) for q in _ends(probability))
    return ErrorByStd(
        stated * size, observed * size, stated * lower * size, stated * upper * size, count
    )


def judge(y: ArrayLike, prediction: AbstractNumeric) -> Judgement:
    """Judge the stated uncertainty once, so that all that is said about it agrees.

    Intervals of 50 and 90 % each have the 95 % range of chance that curves and reports show. Tails,
    the bars of the PIT histogram and the bias have a 99 % range. A perfect model is judged "good"
    and without bias about nine times in ten or more.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> y = np.linspace(-2, 2, 100)
    >>> judge(y, Predictive.gaussian(0 * y, 0 * y + 0.01, 0.0))
    Judgement(spread='over', bias='')
    """
    y, prediction = of_one_output(y, prediction)
    n = len(y)
    if n < _FEW:
        return Judgement("unknown", "")
    pit = _spread_pit(y, prediction)
    _, most = chance_range(n, 0.5, 0.99)
    below, up_to = (shares_up_to(np.array([half]), *pit).mean() for half in (0.5, _ABOVE_HALF))
    bias = "high" if below > most else "low" if 1.0 - up_to > most else ""
    held = calibration_curve(y, prediction, levels=[0.5, 0.9])
    below, above = (held.observed < held.lower).any(), (held.observed > held.upper).any()
    # Normal scores: squares of a perfect model's are chi-square, also of a mixture.
    far = np.sum(_square_scores(*pit)) > stats.chi2.ppf(0.99, n)
    if above:
        return Judgement("shape" if below or far else "under", bias)
    if below or far:
        return Judgement("over" if below else "tails", bias)
    bars = pit_histogram(y, prediction, probability=0.95)
    outside = np.mean((bars.counts < bars.lower) | (bars.counts > bars.upper))
    rare = outside > chance_range(len(bars.counts), 0.05, 0.98)[1]
    return Judgement("shape" if rare and not bias else "good", bias)
