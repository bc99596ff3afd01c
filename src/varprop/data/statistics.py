"""One pass over all rows: is every number finite, and how are the columns scaled.

This is the one place that looks at every number, and `Scaling` is the one that standardizes: in
float64, on the host, before anything is rounded to a network's precision. A column of Unix times
keeps its digits then, and training does not depend on the units of the data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from varprop.brief import brief
from varprop.data.source import AbstractSource, Rows, SourceError, check_columns

#: The noise's least standard deviation, as a share of the step between recorded targets. Rounding
#: has 0.29 of a step; this is well below, so that exact numbers on a grid may be learned.
NOISE_PER_STEP = 0.1
# Targets with more values than this are taken as continuous.
_MANY_VALUES = 2**16
# The share of rows on values that repeat from which on a column counts as recorded in steps.
_SHARE_ON_GRID = 0.9
# Numbers worked on at a time.
_BLOCK_NUMBERS = 2**20
# Of units. Differences of 2**1020 and more (1.1e307) are refused: where values are that far apart,
# a mean plus some standard deviations, as predictions are, may be larger than any float.
_LEAST_EXPONENT, _MOST_EXPONENT = -1021, 1020


@dataclasses.dataclass(frozen=True, repr=False)
class Scaling:
    """Shift and scale of every column, such that training rows have mean 0 and variance 1.

    Parameters
    ----------
    x_shift, x_scale
        Shape (inputs,).
    y_shift, y_scale
        Shape (outputs,).

    Examples
    --------
    >>> from varprop.data.source import Data
    >>> scaling = Scaling.of(Data(np.array([[1.0], [3.0]]), np.array([10.0, 10.0])))
    >>> scaling.x_shift.tolist(), scaling.x_scale.tolist(), scaling.y_scale.tolist()
    ([2.0], [1.0], [1.0])
    >>> scaling.inputs(np.array([[5.0]]), None, np.float32)[0].tolist()
    [[3.0]]
    """

    x_shift: np.ndarray
    x_scale: np.ndarray
    y_shift: np.ndarray
    y_scale: np.ndarray
    __repr__ = brief

    @classmethod
    def identity(cls, n_inputs: int, n_outputs: int) -> Scaling:
        """Return the scaling that changes nothing."""
        x, y = np.zeros(n_inputs), np.zeros(n_outputs)
        return cls(x, x + 1, y, y + 1)

    @classmethod
    def of(cls, source: AbstractSource) -> Scaling:
        """Return weighted mean and standard deviation of a source's rows."""
        return Statistics.of(source).scaling

    def of_columns(self, scaled: tuple[bool, ...]) -> Scaling:
        """Return the scaling of y's columns, as blocks: those of the targets come first.

        Parameters
        ----------
        scaled
            For each block, whether it has the targets' shift and scale, or is taken as it is.

        Examples
        --------
        >>> found = Scaling(np.zeros(1), np.ones(1), np.array([5.0, 7.0]), np.array([2.0, 3.0]))
        >>> found.of_columns((True, False)).y_shift.tolist()
        [5.0, 0.0]
        """
        if scaled == (True,):
            return self
        d = len(self.y_shift) // len(scaled)
        shift = [self.y_shift[:d] if one else np.zeros(d) for one in scaled]
        scale = [self.y_scale[:d] if one else np.ones(d) for one in scaled]
        return Scaling(self.x_shift, self.x_scale, np.concatenate(shift), np.concatenate(scale))

    def of_targets(self, n_targets: int) -> Scaling:
        """Return the scaling of the first columns of y alone, which are the targets."""
        return dataclasses.replace(
            self, y_shift=self.y_shift[:n_targets], y_scale=self.y_scale[:n_targets]
        )

    def inputs(self, x: np.ndarray, x_var: np.ndarray | None, dtype: Any) -> tuple[Any, Any]:
        """Standardize inputs, and the variance of their error, and only then round to a dtype.

        Of errors that are correlated the covariance, (rows, inputs, inputs), likewise.
        """
        if len(x.shape) != 2 or x.shape[1] != len(self.x_shift):
            raise ValueError(f"x has shape {x.shape}, but needs (rows, {len(self.x_shift)}).")
        if x_var is not None and x_var.shape not in (x.shape, (*x.shape, x.shape[1])):
            raise ValueError(f"x_var has shape {x_var.shape}, but x has {x.shape}.")
        with np.errstate(over="ignore"):  # what the precision cannot hold gives no finite result
            x = standardized(x, self.x_shift, self.x_scale).astype(dtype)
            if x_var is not None:
                # One factor at a time: the square of a large one overflows.
                other = self.x_scale if x_var.ndim == 2 else self.x_scale[:, None]
                x_var = (x_var / self.x_scale / other).astype(dtype)
        return x, x_var

    def rows(self, rows: Rows, dtype: Any) -> Rows:
        """Standardize rows to train on."""
        x, x_var = self.inputs(rows.x, rows.x_var, dtype)
        with np.errstate(over="ignore"):
            y = standardized(rows.y, self.y_shift, self.y_scale).astype(dtype)
        return Rows(x, y, None if rows.weight is None else rows.weight.astype(dtype), x_var)


@dataclasses.dataclass(frozen=True, repr=False)
class Statistics:
    """What one pass over a source tells; training makes it unless it is given one.

    Attributes
    ----------
    n_rows
        Rows in all blocks.
    total_weight
        Sum of their weights; the number of rows without weights.
    scaling
        Weighted mean and standard deviation of every column, whatever its size. A constant column
        becomes 0 instead of noise: its scale is 1, or more if rounding of that size is in it.
    std
        Standard deviations of the inputs, also those that are 0.
    noise_floor
        For each target, in its units, a standard deviation that its noise should not fall below.

        Where targets repeat, as whole numbers do, a network can output one of the values exactly
        for many rows, and the density there has no bound: the training objective then rewards
        certainty that held-out rows refute (on the wine data a loss 0.2 lower came with a held-out
        NLL of 4,000). So where at least 90 % of the rows lie on values that occur more than once,
        the noise keeps a tenth of the smallest step between those values. It is 0 for targets that
        are continuous but for a spike (many zeros), where all that repeats is one value, and where
        there are more than 65,536 different ones. Rows of weight 0 are not counted; rows that a
        source merged (`AbstractSource.repeated`) count as often as they occurred.

    Examples
    --------
    >>> from varprop.data.source import Data
    >>> y = np.array([[5.0, 0.1], [5.0, 0.2], [6.0, 0.3], [6.0, 0.4]])
    >>> found = Statistics.of(Data(y[:, :1], y))
    >>> found.n_rows, found.scaling.x_shift.tolist(), found.noise_floor.tolist()
    (4, [5.5], [0.1, 0.0])
    """

    n_rows: int
    total_weight: float
    scaling: Scaling
    std: np.ndarray
    noise_floor: np.ndarray
    __repr__ = brief

    @classmethod
    def of(cls, source: AbstractSource) -> Statistics:
        """Read all rows once, and stop at the first that cannot be trained on.

        Raises
        ------
        SourceError
            Naming row and column of a number that is missing, infinite or too large (about 1e307),
            or of a negative weight or variance; or the block that is not as the source says.
        """
        inputs, outputs = Moments(), Moments()
        grids = [_Grid() for _ in source.targets]
        for block, start, piece in sound_rows(source):
            places = np.arange(start, start + len(piece.x))
            if piece.weight is not None and not piece.weight.all():
                places, piece = places[piece.weight > 0], piece.part(piece.weight > 0)
            weight = np.ones(len(piece.x)) if piece.weight is None else piece.weight
            for moments, part, names in (
                (inputs, piece.x, source.features),
                (outputs, piece.y, source.targets),
            ):
                moments.add(part, weight.astype(np.float64, copy=False))
                if not np.isfinite(moments.squares).all():
                    column = int(np.argmin(np.isfinite(moments.squares)))
                    row = int(np.argmax(np.abs(part[:, column])))
                    raise SourceError(
                        f"column {names[column]!r} is {part[row, column]:g} in "
                        f"{source.where(block, int(places[row]))}, too large to be squared: "
                        "remove it or choose another unit."
                    )
            times = np.ones(len(weight))
            if source.repeated:
                # Merged rows of weight 1 were one each. Weights that are no counts hide how many.
                times = np.where((weight >= 1) & (weight == np.round(weight)), weight, 2.0)
            for grid, column in zip(grids, piece.y.T, strict=True):
                grid.add(column, times)
        if inputs.weight == 0:
            raise SourceError(f"column {source.weight_name!r} gives no row a positive weight.")
        (x_shift, x_std), (y_shift, y_std) = inputs.result(), outputs.result()
        scaling = Scaling(x_shift, inputs.scale(x_std), y_shift, outputs.scale(y_std))
        floors = np.array([NOISE_PER_STEP * grid.step() for grid in grids])
        return cls(source.n_rows, inputs.weight, scaling, x_std, floors)


class _Grid:
    """How often each value of a column occurs."""

    def __init__(self) -> None:
        self.values: np.ndarray = np.empty(0)
        self.times: np.ndarray = np.empty(0)
        self.many = False

    def add(self, column: np.ndarray, times: np.ndarray) -> None:
        """Count some rows, given how often each occurred."""
        for start in range(0, len(column), _BLOCK_NUMBERS):
            if self.many:
                return
            part = slice(start, start + _BLOCK_NUMBERS)
            both = np.concatenate([self.values, column[part]])
            self.values, where = np.unique(both, return_inverse=True)
            self.times = np.bincount(where.ravel(), np.concatenate([self.times, times[part]]))
            self.many = len(self.values) > _MANY_VALUES

    def step(self) -> float:
        """Return the smallest step between values that repeat; 0 if too few rows are on them."""
        often = self.times > 1
        on_grid = self.times[often].sum() >= _SHARE_ON_GRID * self.times.sum()
        if self.many or often.sum() < 2 or not on_grid:
            return 0.0
        return float(np.diff(self.values[often]).min())


class Moments:
    """Weighted mean and sum of squares per column, merged a piece at a time in float64.

    The update of Chan, Golub and LeVeque (1979): no difference of large sums. All values are taken
    relative to the first row, which keeps digits where a column is large and nearly constant, and
    in a unit of each column's own, the power of two above the largest difference so far: squares
    neither overflow nor vanish, and no digit depends on the unit. Where values are 1.1e307 or more
    away from the first, the results are NaN.
    """

    def __init__(self) -> None:
        self.weight, self.mean, self.squares = 0.0, np.zeros(()), np.zeros(())
        self.unit = np.ldexp(1.0, _LEAST_EXPONENT)
        self.origin: np.ndarray | None = None
        self.rounding = 1e-14

    def add(self, values: np.ndarray, weight: np.ndarray) -> None:
        """Merge the moments of some rows."""
        if values.dtype == np.float32:
            self.rounding = float(np.finfo(np.float32).eps)
        size = max(1, _BLOCK_NUMBERS // values.shape[1])
        for start in range(0, len(values), size):
            part, w = values[start : start + size], weight[start : start + size]
            if self.origin is None:
                self.origin = part[0].astype(np.float64)
            total = float(w.sum())
            with np.errstate(over="ignore", invalid="ignore"):  # the caller looks at the result
                away = part - self.origin
                self._enlarge_unit(np.maximum(away.max(axis=0), -away.min(axis=0)))
                inverse = 1 / self.unit
                away *= inverse
                mean = w @ away / total
                np.subtract(part, self.origin + mean * self.unit, out=away)
                away *= inverse
                away *= away
                squares = w @ away
                both = self.weight + total
                delta = mean - self.mean
                self.mean = self.mean + delta * (total / both)
                self.squares = self.squares + squares + delta**2 * (self.weight * total / both)
            self.weight = both

    def _enlarge_unit(self, largest: np.ndarray) -> None:
        exponent = np.frexp(largest)[1]
        too_large = (exponent > _MOST_EXPONENT) | ~np.isfinite(largest)
        unit = np.ldexp(1.0, np.clip(exponent, _LEAST_EXPONENT, _MOST_EXPONENT))
        unit = np.maximum(self.unit, np.where(too_large, np.nan, unit))
        ratio = self.unit / unit
        self.mean, self.squares, self.unit = self.mean * ratio, self.squares * ratio**2, unit

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation."""
        assert self.origin is not None
        std = np.sqrt(self.squares / self.weight) * self.unit
        return self.origin + self.mean * self.unit, std

    def scale(self, std: np.ndarray) -> np.ndarray:
        """Return what to divide by: where a column is constant but for rounding, 1 or more."""
        constant = std <= self.rounding * np.abs(self.result()[0])
        # The rounding of 1e300 is large, and must become small.
        return np.where(constant, np.maximum(1.0, 1000 * np.where(constant, std, 0.0)), std)


def standardized(values: np.ndarray, shift: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return (values - shift) / scale in float64, also where the difference overflows.

    Examples
    --------
    >>> standardized(np.array([-1.6e308, 0.8e308]), np.array(0.8e308), np.array(0.8e308)).tolist()
    [-3.0, 0.0]
    """
    # Halves cannot overflow, and are exact.
    return (values * 0.5 - shift * 0.5) / (scale * 0.5)


def sound_rows(source: AbstractSource) -> Iterator[tuple[int, int, Rows]]:
    """Read all rows once, and stop at the first that cannot be trained on.

    Yields
    ------
    block, start, piece
        Where the piece begins, and its rows.

    Raises
    ------
    SourceError
        As in `Statistics.of`.
    """
    names = {"x": source.features, "y": source.targets, "x_var": source.features}
    for block, n_rows in enumerate(source.block_rows):
        start = 0
        for piece in source.read(block):
            check_columns(source, piece, block)
            for kind, array in () if source.sound else piece._asdict().items():
                if array is None:
                    continue
                bad, problem = first_nonfinite(array), "remove or impute it first"
                if bad is None and array.ndim == 3:
                    if (wrong := no_covariance(array)).any():
                        raise SourceError(
                            f"the covariance of the inputs' errors in "
                            f"{source.where(block, start + int(np.argmax(wrong)))} is none: it "
                            "must be symmetric and positive semidefinite."
                        )
                elif bad is None and kind in ("weight", "x_var") and (array < 0).any():
                    bad, problem = np.argwhere(array < 0)[0], "it must not be negative"
                if bad is not None:
                    column = source.weight_name if kind == "weight" else names[kind][bad[1]]
                    what = "the variance of column" if kind == "x_var" else "column"
                    raise SourceError(
                        f"{what} {column!r} is {_name(array[tuple(bad)])} in "
                        f"{source.where(block, start + int(bad[0]))}: {problem}."
                    )
            yield block, start, piece
            start += len(piece.x)
        if start != n_rows:
            raise SourceError(f"block {block} has {start} rows, but its source says {n_rows}.")


def first_nonfinite(values: np.ndarray) -> np.ndarray | None:
    """Return the place of the first NaN or infinity, or None.

    Examples
    --------
    >>> first_nonfinite(np.array([[0.0, 1.0], [np.nan, 1.0]])).tolist()
    [1, 0]
    """
    # A sum is finite if all entries are, and needs no copy; it may overflow, so look closely then.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(values.sum(dtype=np.float64)):
            return None
    bad = np.argwhere(~np.isfinite(values))
    return bad[0] if len(bad) else None


def no_covariance(cov: np.ndarray) -> np.ndarray:
    """Say which finite matrices (..., n, n) are not symmetric and positive semidefinite.

    Examples
    --------
    >>> no_covariance(np.array([[[1.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]]])).tolist()
    [False, True]
    """
    # Of correlations, so that columns of any units are judged alike.
    var = np.diagonal(cov, axis1=-2, axis2=-1)
    scale = np.sqrt(np.where(var > 0, var, 1.0))
    corr = cov / scale[..., None] / scale[..., None, :]
    bad = np.abs(corr - np.swapaxes(corr, -1, -2)).max(axis=(-2, -1)) > 1e-6
    # An error of no size has no units, and nothing in common with others.
    bad |= (var < 0).any(axis=-1) | ((cov != 0) & (var == 0)[..., None]).any(axis=(-2, -1))
    return np.asarray(bad | (np.linalg.eigvalsh(corr).min(axis=-1) < -1e-6))


def _name(value: float) -> str:
    if np.isnan(value):
        return "NaN"
    return f"infinite ({value})" if np.isinf(value) else f"{value:g}"
