"""Where rows come from: the contract of a source, arrays in memory, which are one, and parts.

A source hands out rows as they are, in the user's units; `varprop.data.statistics` looks at every
number once and says how to scale, and training scales when a buffer is filled.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from varprop.errors import InputError

#: Rows that a source reads from a file at a time; what is beyond a buffer's end waits in memory.
PIECE_ROWS = 2**16

# A source of no more bytes than this is read into memory.
_MEMORY_BYTES = 2**28


class SourceError(InputError):
    """A source cannot be read as asked; the message is one sentence that says what to do.

    Examples
    --------
    >>> str(SourceError("b.parquet is damaged."))
    'b.parquet is damaged.'
    """


class Rows(NamedTuple):
    """Some rows of floats, of either precision.

    Attributes
    ----------
    x, y
        Shapes (rows, inputs) and (rows, outputs).
    weight
        Shape (rows,), or None if every row counts once.
    x_var
        Variance of the inputs' error, shape of x, or its covariance, (rows, inputs, inputs), or
        None if they are exactly known.
    """

    x: Any
    y: Any
    weight: Any = None
    x_var: Any = None

    def part(self, rows: Any) -> Rows:
        """Return some of the rows, by a slice, a mask or their numbers."""
        return Rows(*(None if array is None else array[rows] for array in self))

    @staticmethod
    def joined(pieces: Iterable[Rows]) -> Rows:
        """Return the rows of several pieces, one after the other; of one they are not copied."""
        pieces = list(pieces)
        if len(pieces) == 1:
            return pieces[0]
        columns = zip(*pieces, strict=True)
        return Rows(*(None if part[0] is None else np.concatenate(part) for part in columns))


class AbstractSource(ABC):
    """Rows in blocks that can be read in any order; an author gives three methods.

    A block is what is read as a whole: a row group of a Parquet file, a partition of a data frame,
    all rows of an array. The order of blocks is shuffled in training, and so are the rows of
    several blocks in a buffer.

    Attributes
    ----------
    features, targets
        Names of the columns that are inputs and outputs.
    weight_name
        Name of the column of sample weights, or None.
    exposure_name
        Name of the last of the targets, if it is no target but the exposure of counts; else None.
    uncertain
        Whether rows come with the variance of their inputs' error.
    correlated
        Whether that is a covariance, a matrix for every row.
    sound
        Whether every number was looked at already: it is not done again.
    repeated
        Whether equal rows were merged into one, which has the sum of their weights.
    """

    features: tuple[str, ...]
    targets: tuple[str, ...]
    weight_name: str | None
    uncertain: bool
    exposure_name: str | None = None
    correlated: bool = False
    sound: bool = False
    repeated: bool = False

    @property
    @abstractmethod
    def block_rows(self) -> tuple[int, ...]:
        """Number of rows in every block."""

    @abstractmethod
    def read(self, block: int) -> Iterator[Rows]:
        """Yield the rows of a block in order, in pieces of bounded size."""

    @abstractmethod
    def where(self, block: int, row: int) -> str:
        """Say where a row of a block stands, for errors."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Features, targets and, if there is one, the weight."""
        weight = () if self.weight_name is None else (self.weight_name,)
        return (*self.features, *self.targets, *weight)

    @property
    def error_shape(self) -> tuple[int, ...] | None:
        """Shape of what a row says of its inputs' error; None if they are exactly known."""
        if not self.uncertain:
            return None
        return (len(self.features),) * (2 if self.correlated else 1)

    @property
    def row_numbers(self) -> int:
        """How many numbers a row has."""
        error = 0 if self.error_shape is None else math.prod(self.error_shape)
        return len(self.columns) + error

    @property
    def n_rows(self) -> int:
        """Number of rows in all blocks."""
        return sum(self.block_rows)

    @property
    def fits_memory(self) -> bool:
        """Whether there are few enough rows to be read at once, where lanes can pick some."""
        return 8 * self.row_numbers * self.n_rows <= _MEMORY_BYTES


@dataclasses.dataclass(frozen=True, repr=False)
class Data(AbstractSource):
    """Arrays in memory: a source of one block. float32 and float64 arrays are not copied.

    Parameters
    ----------
    x
        Inputs, shape (rows, inputs).
    y
        Targets, shape (rows, outputs) or (rows,).
    weight
        Sample weights >= 0, shape (rows,); 2 means the row counts twice. All 1 unless given.
    x_var
        Known variance of the inputs' measurement error, shape of x; or its covariance, shape (rows,
        inputs, inputs), where errors of a row are correlated. None unless given.
    names
        Names of the inputs and then of the targets, for errors.
    numbers
        What errors call the rows, shape (rows,); 0, 1, ... unless given.
    weight_name
        What errors call the weights.
    sound
        Whether every number is known to be finite, and no weight or variance negative.
    repeated
        Whether rows stand for several equal ones, with the sum of their weights.

    Examples
    --------
    >>> Data(np.ones((4, 2)), np.zeros(4)).n_rows
    4
    """

    x: Any
    y: Any
    weight: Any = None
    x_var: Any = None
    names: Sequence[str] | None = dataclasses.field(default=None, kw_only=True)
    numbers: np.ndarray | None = dataclasses.field(default=None, kw_only=True)
    weight_name: str | None = dataclasses.field(default="weight", kw_only=True)
    sound: bool = dataclasses.field(default=False, kw_only=True)
    repeated: bool = dataclasses.field(default=False, kw_only=True)
    features: tuple[str, ...] = dataclasses.field(init=False)
    targets: tuple[str, ...] = dataclasses.field(init=False)
    uncertain: bool = dataclasses.field(init=False)
    correlated: bool = dataclasses.field(init=False)

    def __post_init__(self):
        parts = {name: getattr(self, name) for name in ("x", "y", "weight", "x_var")}
        for name, value in parts.items():
            if value is None:
                continue
            array = np.asarray(value)
            if array.dtype.kind not in "fiub":
                raise ValueError(f"{name} must hold numbers, but has dtype {array.dtype}.")
            if array.dtype not in (np.float32, np.float64):
                array = array.astype(np.float64)
            if name == "y" and array.ndim == 1:
                array = array[:, None]
            if array.ndim != (1 if name == "weight" else 2) and (name, array.ndim) != ("x_var", 3):
                raise ValueError(f"{name} must have shape (rows, columns), not {array.shape}.")
            object.__setattr__(self, name, array)
        if len(self.x) != len(self.y):
            raise ValueError(f"x has {len(self.x)} rows, but y has {len(self.y)}.")
        if not len(self.x):
            raise ValueError("there are no rows to train on.")
        if not self.x.shape[1]:
            raise ValueError("x has no columns.")
        if self.weight is not None and self.weight.shape != (len(self.x),):
            raise ValueError(f"weight has shape {self.weight.shape}, but needs ({len(self.x)},).")
        n, d = self.x.shape[1], self.y.shape[1]
        if self.x_var is not None and self.x_var.shape not in (self.x.shape, (len(self.x), n, n)):
            raise ValueError(f"x_var has shape {self.x_var.shape}, but x has {self.x.shape}.")
        names = [f"x[:, {i}]" for i in range(n)] + [f"y[:, {i}]" for i in range(d)]
        names = names if self.names is None else [str(name) for name in self.names]
        if len(names) != n + d:
            raise ValueError(f"names has {len(names)} entries, but there are {n + d} columns.")
        object.__setattr__(self, "features", tuple(names[:n]))
        object.__setattr__(self, "targets", tuple(names[n:]))
        if self.weight is None:
            object.__setattr__(self, "weight_name", None)
        object.__setattr__(self, "uncertain", self.x_var is not None)
        object.__setattr__(self, "correlated", self.uncertain and self.x_var.ndim == 3)

    def __repr__(self) -> str:
        """Return sizes, not values."""
        targets = len(self.targets)
        return f"Data(n_rows={self.n_rows}, n_features={len(self.features)}, n_targets={targets})"

    @property
    def block_rows(self) -> tuple[int, ...]:
        """All rows in one block."""
        return (len(self.x),)

    def read(self, block: int) -> Iterator[Rows]:
        """Yield all rows at once."""
        yield Rows(self.x, self.y, self.weight, self.x_var)

    def where(self, block: int, row: int) -> str:
        """Return the number of the row."""
        return f"row {row if self.numbers is None else self.numbers[row]}"

    def take(self, rows: np.ndarray | None) -> Data:
        """Return some of the rows, those of weight 0 left out: they are no rows."""
        if self.weight is not None and not self.weight.all():
            rows = np.arange(self.n_rows) if rows is None else rows
            rows = rows[self.weight[rows] != 0]  # a weight that is none is not left out in silence
        if rows is None:
            return self
        parts = Rows(self.x, self.y, self.weight, self.x_var).part(rows)
        numbers = rows if self.numbers is None else self.numbers[rows]
        return dataclasses.replace(self, **parts._asdict(), numbers=numbers)


def check_roles(
    names: Sequence[str],
    features: Sequence[str] | None,
    targets: Sequence[str] | str,
    weight: str | None,
    label: str,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return features and targets as tuples, all of them found among the names, each once.

    Parameters
    ----------
    names
        Columns there are.
    features
        Names of the inputs; all columns but the targets and the weight unless given.
    targets
        Name or names of the outputs.
    weight
        Name of the weights or None.
    label
        What errors call the source.

    Examples
    --------
    >>> check_roles(["a", "b", "y"], None, "y", None, "data")
    (('a', 'b'), ('y',))
    """
    chosen = (targets,) if isinstance(targets, str) else tuple(targets)
    if isinstance(features, str):
        features = (features,)
    others = {*chosen, weight}
    inputs = tuple(name for name in names if name not in others) if features is None else features
    inputs = tuple(inputs)
    if not chosen:
        raise SourceError("targets names no column: name at least one.")
    if not inputs:
        raise SourceError(f"{label} has no column besides the targets: inputs are needed.")
    wanted = [*inputs, *chosen, *(() if weight is None else (weight,))]
    for name in wanted:
        if name not in names:
            listed = ", ".join(map(repr, list(names)[:12])) + (", ..." if len(names) > 12 else "")
            raise SourceError(f"{label} has no column {name!r}: it has {listed}.")
    for name, count in Counter(wanted).items():
        if count > 1:
            raise SourceError(
                f"column {name!r} is named {count} times among features, targets and weight: "
                "a column has one role."
            )
    return inputs, chosen


def check_columns(source: AbstractSource, piece: Rows, block: int) -> None:
    """Raise SourceError unless rows have the columns that their source promises.

    Examples
    --------
    >>> data = Data(np.ones((4, 2)), np.ones(4))
    >>> check_columns(data, Rows(np.ones((4, 3)), data.y), 0)
    Traceback (most recent call last):
    ...
    varprop.data.source.SourceError: block 0 has x of shape (4, 3), but its source promises (4, 2).
    """
    n = len(piece.x)
    weights = None if source.weight_name is None else (n,)
    error = None if source.error_shape is None else (n, *source.error_shape)
    promised = ((n, len(source.features)), (n, len(source.targets)), weights, error)
    for name, array, shape in zip(Rows._fields, piece, promised, strict=True):
        found = None if array is None else array.shape
        if found != shape:
            raise SourceError(
                f"block {block} has {name} of shape {found}, but its source promises {shape}."
            )
