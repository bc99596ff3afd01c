"""One pass over a source: scaling, total weight, and whether every number is finite."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from varprop.data.arrays import NOISE_PER_STEP, Scaling, shift_and_scale
from varprop.data.source import AbstractSource, SourceError

# Targets with more values than this are taken as continuous.
_MANY_VALUES = 2**16
# Numbers worked on at a time: 256 kB in float64.
_CACHED_NUMBERS = 2**15


class _Moments:
    """Weighted mean and sum of squares per column, merged a piece at a time in float64.

    The update of Chan, Golub and LeVeque (1979): no difference of large sums. All values are taken
    relative to the first row, which keeps digits where a column is large and nearly constant.
    """

    def __init__(self, n_columns: int):
        self.weight = 0.0
        self.mean = np.zeros(n_columns)
        self.squares = np.zeros(n_columns)
        self.origin: np.ndarray | None = None

    def add(self, values: np.ndarray, weight: np.ndarray) -> None:
        """Merge the moments of some rows, float64."""
        total = float(weight.sum())
        if total == 0:
            return
        if self.origin is None:
            self.origin = values[np.argmax(weight > 0)].copy()
        values = values - self.origin
        mean = weight @ values / total
        values -= mean
        squares = weight @ np.square(values, out=values)
        both = self.weight + total
        delta = mean - self.mean
        self.mean += delta * (total / both)
        self.squares += squares + delta**2 * (self.weight * total / both)
        self.weight = both

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation."""
        assert self.origin is not None
        return self.origin + self.mean, np.sqrt(self.squares / self.weight)


class _Steps:
    """The values of one target as long as they are few: how close they lie, if they repeat."""

    def __init__(self) -> None:
        self.values: np.ndarray | None = np.empty(0)
        self.n_rows = 0

    def add(self, column: np.ndarray) -> None:
        """Look at some more rows."""
        self.n_rows += len(column)
        if self.values is not None:
            column = np.unique(column).astype(np.float64)
            self.values = np.unique(np.concatenate([self.values, column]))
            if len(self.values) > _MANY_VALUES:
                self.values = None

    def floor(self) -> float:
        """As `varprop.data.noise_floor`, and 0 where there are many values."""
        if self.values is None or not 1 < len(self.values) < self.n_rows:
            return 0.0
        return float(NOISE_PER_STEP * np.diff(self.values).min())


@dataclasses.dataclass(frozen=True)
class Statistics:
    """What one pass over a source tells; `fit_stream` makes it unless it is given one.

    Attributes
    ----------
    n_rows
        Rows in all blocks.
    total_weight
        Sum of their weights; the number of rows without a column of weights.
    scaling
        Weighted mean and standard deviation of every column, as `Scaling.of` has them.
    noise_floor
        As `varprop.data.noise_floor`, in the units of the targets; 0 for a target of more than
        65,536 values.
    dtype
        Of the numbers as they are trained on.
    center, std
        Mean and standard deviation of all features and targets, not rounded.

    Examples
    --------
    >>> import pathlib, tempfile, pyarrow, pyarrow.parquet
    >>> from varprop.data.parquet import ParquetSource
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.parquet"
    >>> pyarrow.parquet.write_table(pyarrow.table({"x": [1.0, 3.0], "y": [5.0, 5.0]}), path)
    >>> found = Statistics.of(ParquetSource(path, targets="y"))
    >>> found.n_rows, found.scaling.x_shift.tolist(), found.scaling.x_scale.tolist()
    (2, [2.0], [1.0])
    """

    n_rows: int
    total_weight: float
    scaling: Scaling
    noise_floor: np.ndarray
    dtype: np.dtype
    center: np.ndarray
    std: np.ndarray

    @classmethod
    def of(cls, source: AbstractSource, *, dtype: Any = np.float32) -> Statistics:
        """Read all rows once, and stop at the first that cannot be trained on.

        Parameters
        ----------
        source
            What to read.
        dtype
            In which it will be trained: float32 or float64.

        Raises
        ------
        SourceError
            Naming file, row and column of a number that is missing, infinite or out of range, or of
            a negative weight.
        """
        dtype = np.dtype(dtype)
        n_inputs, n_outputs = len(source.features), len(source.targets)
        n_numbers = n_inputs + n_outputs
        moments = _Moments(n_numbers)
        steps = [_Steps() for _ in range(n_outputs)]
        for block in range(len(source.block_rows)):
            start = 0
            for piece in source.read(block, dtype):
                _check(source, piece, block, start)
                for part in _small(piece):
                    weight = np.ones(len(part)) if source.weight is None else part[:, -1]
                    moments.add(part[:, :n_numbers].astype(np.float64), weight.astype(np.float64))
                for step, column in zip(steps, piece[:, n_inputs:n_numbers].T, strict=True):
                    step.add(column)
                start += len(piece)
        if moments.weight == 0:
            raise SourceError(f"column {source.weight!r} gives no row a positive weight.")
        center, std = moments.result()
        shift, scale = shift_and_scale(center, std, dtype)
        return cls(
            n_rows=source.n_rows,
            total_weight=moments.weight,
            scaling=Scaling(shift[:n_inputs], scale[:n_inputs], shift[n_inputs:], scale[n_inputs:]),
            noise_floor=np.array([step.floor() for step in steps]),
            dtype=dtype,
            center=center,
            std=std,
        )


def _small(piece: np.ndarray) -> Iterator[np.ndarray]:
    """Yield parts that stay in the processor's cache while they are worked on."""
    size = max(1, _CACHED_NUMBERS // piece.shape[1])
    for start in range(0, len(piece), size):
        yield piece[start : start + size]


def _check(source: AbstractSource, piece: np.ndarray, block: int, start: int) -> None:
    # A sum is finite when all entries are (or overflows, then look closely); it needs no copy.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(piece.sum(dtype=np.float64))
    bad = np.empty((0, 2), int) if finite else np.argwhere(~np.isfinite(piece))
    if len(bad):
        row, column = bad[0].tolist()
        raise SourceError(
            f"column {source.columns[column]!r} holds {piece[row, column]} (as {piece.dtype}) in "
            f"{source.where(block, start + row)}: remove or replace it first."
        )
    if source.weight is not None and (piece[:, -1] < 0).any():
        row = int(np.argmax(piece[:, -1] < 0))
        raise SourceError(
            f"column {source.weight!r} is negative in {source.where(block, start + row)}, but a "
            "weight must not be."
        )
