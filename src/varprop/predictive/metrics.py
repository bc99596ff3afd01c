"""How good predictive distributions are: scores and calibration. NumPy only.

Every function takes targets of the public shape ``(n,)`` or ``(n, d)`` of the prediction.
``sample_weight`` of shape ``(n,)`` weighs rows: a weight of 2 counts a row twice.
``multioutput="uniform_average"`` averages over outputs and returns a float,
``multioutput="raw_values"`` returns one value per output, an array ``(d,)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from varprop.predictive import mixtures
from varprop.predictive.checks import (
    as_columns,
    as_float,
    as_levels,
    as_targets,
    as_weights,
    check_share,
)
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.mixtures import Array, ArrayLike, Mask

__all__ = [
    "calibration_error",
    "crps",
    "crps_rows",
    "interval_coverage",
    "interval_score",
    "interval_width",
    "mae",
    "nll",
    "pit",
    "r2",
    "rmse",
    "sharpness",
]

Multioutput = Literal["uniform_average", "raw_values"]
Interval = AbstractNumeric | tuple[ArrayLike, ArrayLike]


def _over_rows(values: Array | Mask, sample_weight: ArrayLike | None) -> Array:
    """Weighted mean of ``(n, ...)`` over rows."""
    if sample_weight is not None:
        sample_weight = as_weights(sample_weight, "sample_weight", (len(values),))
    mean: Array = np.average(values, axis=0, weights=sample_weight)
    return mean


def _root_mean_square(values: Array, sample_weight: ArrayLike | None) -> Array:
    # Scaling first lets values beyond 1e154 pass without overflow.
    top = np.where((peak := np.abs(values).max(axis=0)) > 0, peak, 1.0)
    root: Array = top * np.sqrt(_over_rows((values / top) ** 2, sample_weight))
    return root


def _over_outputs(values: Array, multioutput: Multioutput) -> float | Array:
    if multioutput == "raw_values":
        return values
    if multioutput != "uniform_average":
        raise ValueError(
            f"multioutput must be 'uniform_average' or 'raw_values', not {multioutput!r}."
        )
    return float(values.mean())


def _mean(
    values: Array | Mask, sample_weight: ArrayLike | None, multioutput: Multioutput
) -> float | Array:
    return _over_outputs(_over_rows(values, sample_weight), multioutput)


def check_order(y: ArrayLike, prediction: object) -> None:
    """Refuse arguments the other way round, and points where a distribution is needed."""
    if isinstance(y, AbstractNumeric) or not isinstance(prediction, AbstractNumeric):
        raise TypeError(
            "The observed values come first and a Predictive (as of predict_dist) second, not "
            f"{type(y).__name__} and {type(prediction).__name__}."
        )


def _targets(y_true: ArrayLike, prediction: AbstractNumeric) -> Array:
    check_order(y_true, prediction)
    return as_targets(y_true, "y_true", prediction.shape)


def _errors(y_true: ArrayLike, prediction: AbstractNumeric | ArrayLike) -> tuple[Array, Array]:
    """Return targets and errors ``(n, d)`` of the mean, or of plain point predictions."""
    if isinstance(prediction, AbstractNumeric) or isinstance(y_true, AbstractNumeric):
        check_order(y_true, prediction)
    point = prediction.mean if isinstance(prediction, AbstractNumeric) else prediction
    y = as_targets(y_true, "y_true", np.shape(point))
    return y, y - as_columns(point, "prediction")


def held(y: Array, prediction: AbstractNumeric, levels: Array) -> Iterator[Array]:
    """Yield, level by level, which ``(n, d)`` lie in the central interval, as 1 or 0.

    Ends are included. An interval of counts therefore holds more than its level says, and how much
    more differs from row to row. So a count on an end is held in part, by as much of its
    probability as makes the interval hold exactly what it says: a perfect model's average is the
    level again (the randomized PIT of Czado, Gneiting and Held, averaged over what is drawn there).
    """
    # y >= quantile(a) if and only if cdf(y) >= a, and y <= quantile(b) if and only if
    # P(Y < y) <= b: two evaluations of the cdf replace a root search per level.
    below, at = jump(y, prediction)
    for level in levels:
        low, high = (1.0 - level) / 2.0, (1.0 + level) / 2.0
        inside = ((at >= low) & (below <= high)).astype(np.float64)
        if prediction.is_discrete:
            size = at - below
            part = np.clip(np.minimum(at, high) - np.maximum(below, low), 0.0, None)
            inside = np.where(size > 0, part / np.where(size > 0, size, 1.0), inside)
        yield inside


def jump(y: Array, prediction: AbstractNumeric) -> tuple[Array, Array]:
    """Return ``P(Y < y)`` and ``P(Y <= y)`` of targets ``(n, d)``, of the same shape."""
    public = y.reshape(prediction.shape)
    below, at = (prediction.cdf(public, left=left).reshape(y.shape) for left in (True, False))
    return below, at


def _bounds(y_true: ArrayLike, interval: Interval, coverage: float) -> tuple[Array, Array, Array]:
    """Return targets, lower and upper bounds, each ``(n, d)``."""
    if isinstance(interval, AbstractNumeric) or isinstance(y_true, AbstractNumeric):
        check_order(y_true, interval)
        lower, upper = interval.interval(coverage)
    else:
        lower, upper = (as_float(bound, "interval") for bound in interval)
        check_share(coverage, "coverage")
        if lower.shape != upper.shape or (lower > upper).any():
            raise ValueError(
                "lower and upper must have one shape, and lower must not exceed upper."
            )
        if np.isnan(lower).any() or np.isnan(upper).any():
            raise ValueError("The interval holds NaN.")
    y = as_targets(y_true, "y_true", lower.shape)
    return y, lower.reshape(y.shape), upper.reshape(y.shape)


def nll(
    y_true: ArrayLike, prediction: AbstractNumeric, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean negative log density per row, joint over the outputs; lower is better.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)
    >>> round(nll([0.0, 1.0], p), 4)
    1.1689
    """
    _targets(y_true, prediction)
    return float(_over_rows(-prediction.logpdf(y_true)[:, None], sample_weight)[0])


def rmse(
    y_true: ArrayLike,
    prediction: AbstractNumeric | ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Multioutput = "uniform_average",
) -> float | Array:
    """Root mean squared error of the mean, per output and then averaged; lower is better.

    Examples
    --------
    >>> rmse([0.0, 0.0], [3.0, 3.0])
    3.0
    """
    _, error = _errors(y_true, prediction)
    return _over_outputs(_root_mean_square(error, sample_weight), multioutput)


def mae(
    y_true: ArrayLike,
    prediction: AbstractNumeric | ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Multioutput = "uniform_average",
) -> float | Array:
    """Mean absolute error of the mean (not of the median); lower is better.

    Examples
    --------
    >>> mae([0.0, 0.0], [1.0, 3.0])
    2.0
    """
    _, error = _errors(y_true, prediction)
    return _mean(np.abs(error), sample_weight, multioutput)


def r2(
    y_true: ArrayLike,
    prediction: AbstractNumeric | ArrayLike,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Multioutput = "uniform_average",
) -> float | Array:
    """Coefficient of determination of the mean; 1 is perfect, 0 is as good as a constant.

    A constant target gives 1 if predicted exactly and 0 if not, as in scikit-learn.

    Examples
    --------
    >>> r2([0.0, 1.0, 2.0], [0.0, 1.0, 1.0])
    0.5
    """
    y, error = _errors(y_true, prediction)
    if len(y) < 2:
        raise ValueError("r2 needs at least two rows.")
    apart = y - _over_rows(y, sample_weight)
    top = np.where((peak := np.abs(apart).max(axis=0)) > 0, peak, 1.0)
    with mixtures.quiet():
        residual = _over_rows((error / top) ** 2, sample_weight)
        total = _over_rows((apart / top) ** 2, sample_weight)
        score = np.where(total > 0, 1.0 - residual / total, np.where(residual == 0, 1.0, 0.0))
    return _over_outputs(score, multioutput)


def crps_rows(y_true: ArrayLike, prediction: AbstractNumeric) -> Array:
    """Continuous ranked probability score of each row and output, in the units of the target.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)
    >>> crps_rows([0.0, 2.0], p).round(4).tolist()
    [0.2337, 1.4528]
    """
    _targets(y_true, prediction)
    return prediction.crps(y_true)


def crps(
    y_true: ArrayLike,
    prediction: AbstractNumeric,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Multioutput = "uniform_average",
) -> float | Array:
    """Mean continuous ranked probability score of each output by itself; lower is better.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> round(crps([0.0], Predictive.gaussian([0.0], [1.0], 0.0)), 4)
    0.2337
    """
    scores = as_columns(crps_rows(y_true, prediction), "The score")
    return _mean(scores, sample_weight, multioutput)


def interval_coverage(
    y_true: ArrayLike,
    interval: Interval,
    *,
    coverage: float = 0.9,
    sample_weight: ArrayLike | None = None,
    multioutput: Multioutput = "uniform_average",
) -> float | Array:
    """Share of targets inside their intervals, ends included; ideally `coverage`.

    ``interval`` is a `Predictive` (its central interval is taken) or a pair ``(lower, upper)``.
    Intervals of counts hold more than `coverage`, since they end at whole numbers: judge them by
    `calibration_error`, the scorecard or `diagnostics.judge`, which make up for it.

    Examples
    --------
    >>> interval_coverage([0.0, 5.0], ([-1.0, -1.0], [1.0, 1.0]))
    0.5
    """
    y, lower, upper = _bounds(y_true, interval, coverage)
    return _mean((lower <= y) & (y <= upper), sample_weight, multioutput)


def interval_width(
    interval: Interval,
    *,
    coverage: float = 0.9,
    sample_weight: ArrayLike | None = None,
    multioutput: Multioutput = "uniform_average",
) -> float | Array:
    """Mean width of the intervals (see `interval_coverage`).

    Examples
    --------
    >>> interval_width(([-1.0, -1.0], [1.0, 3.0]))
    3.0
    """
    shape_of = interval.mean if isinstance(interval, AbstractNumeric) else interval[0]
    _, lower, upper = _bounds(np.zeros(np.shape(shape_of)), interval, coverage)
    return _mean(upper - lower, sample_weight, multioutput)


def interval_score(
    y_true: ArrayLike,
    interval: Interval,
    *,
    coverage: float = 0.9,
    sample_weight: ArrayLike | None = None,
    multioutput: Multioutput = "uniform_average",
) -> float | Array:
    """Winkler's interval score: width plus ``2 / (1 - coverage)`` per unit missed; lower is better.

    Proper: the true central interval has the lowest expectation. Pairs as in `interval_coverage`.

    Examples
    --------
    >>> round(interval_score([0.0, 2.0], ([-1.0, -1.0], [1.0, 1.0]), coverage=0.8), 6)
    7.0
    """
    y, lower, upper = _bounds(y_true, interval, coverage)
    missed = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    score = (upper - lower) + 2.0 / (1.0 - coverage) * missed
    return _mean(score, sample_weight, multioutput)


def pit(y_true: ArrayLike, prediction: AbstractNumeric) -> Array:
    """Probability integral transform ``cdf(y)``, of the shape of `y_true`; ideally uniform.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> pit([0.0, 1.0], Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)).round(4).tolist()
    [0.5, 0.8413]
    """
    _targets(y_true, prediction)
    return prediction.cdf(y_true)


def calibration_error(
    y_true: ArrayLike,
    prediction: AbstractNumeric,
    *,
    levels: ArrayLike | None = None,
    kind: Literal["rms", "max"] = "rms",
    sample_weight: ArrayLike | None = None,
    multioutput: Multioutput = "uniform_average",
) -> float | Array:
    """Distance between nominal and empirical coverage of central intervals; lower is better.

    For each output and each level ``c`` the empirical coverage ``e(c)`` is the weighted share of
    targets inside the central interval of coverage ``c``, ends included (of counts in part, so
    that a perfect model's share is ``c``; see `held`). The error is
    ``sqrt(mean((e(c) - c)**2))`` or ``max(abs(e(c) - c))`` over the levels. A perfect model has
    an error of about ``0.4 / sqrt(n)`` (rms) on n rows, not zero.

    Parameters
    ----------
    y_true : array of shape (n,) or (n, d)
    prediction : AbstractNumeric
    levels : array of shape (m,), optional
        Nominal coverages strictly between 0 and 1; 0.01, 0.02, ..., 0.99 by default.
    kind : {"rms", "max"}
        Root mean square, or largest deviation.
    sample_weight : array of shape (n,), optional
    multioutput : {"uniform_average", "raw_values"}

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)
    >>> round(calibration_error([0.0, 9.0], p, levels=[0.5, 0.9], kind="max"), 6)
    0.4
    """
    y = _targets(y_true, prediction)
    c = as_levels(levels, 100)
    if kind not in ("rms", "max"):
        raise ValueError(f"kind must be 'rms' or 'max', not {kind!r}.")
    shares = [_over_rows(inside, sample_weight) for inside in held(y, prediction, c)]
    gap = np.stack(shares) - c[:, None]
    error = np.sqrt((gap**2).mean(axis=0)) if kind == "rms" else np.abs(gap).max(axis=0)
    return _over_outputs(error, multioutput)


def sharpness(
    prediction: AbstractNumeric,
    *,
    sample_weight: ArrayLike | None = None,
    multioutput: Multioutput = "uniform_average",
) -> float | Array:
    """Root mean predictive variance: what `rmse` would be if the spread told the truth.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> sharpness(Predictive.gaussian([0.0, 0.0], [4.0, 4.0], 0.0))
    2.0
    """
    check_order((), prediction)
    std = as_columns(prediction.std, "The standard deviation")
    return _over_outputs(_root_mean_square(std, sample_weight), multioutput)
