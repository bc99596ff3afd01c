"""The contract of a source: named columns, blocks of rows, and reading one block at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

#: Rows that `read` hands over at a time; what is read beyond a buffer's end waits in memory.
PIECE_ROWS = 2**16


class SourceError(ValueError):
    """A source cannot be read as asked; the message is one sentence that says what to do.

    Examples
    --------
    >>> str(SourceError("b.parquet is damaged."))
    'b.parquet is damaged.'
    """


class AbstractSource(ABC):
    """Rows in blocks that can be read in any order; an author gives three methods.

    A block is what is read as a whole: a row group of a Parquet file, a partition of a data frame.
    The order of blocks is shuffled in training, and so are the rows of several blocks in a buffer.

    Attributes
    ----------
    features, targets
        Names of the columns that are inputs and outputs.
    weight
        Name of the column of sample weights, or None.
    """

    features: tuple[str, ...]
    targets: tuple[str, ...]
    weight: str | None

    @property
    @abstractmethod
    def block_rows(self) -> tuple[int, ...]:
        """Number of rows in every block."""

    @abstractmethod
    def read(self, block: int, dtype: np.dtype) -> Iterator[np.ndarray]:
        """Yield the rows of a block in order, in pieces of at most `PIECE_ROWS` rows.

        Each has shape (rows, columns), with the columns in the order of `columns`. What the dtype
        cannot hold becomes infinite; the pass for the statistics names it.
        """

    @abstractmethod
    def where(self, block: int, row: int) -> str:
        """Say where a row of a block stands, for errors."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Features, targets and, if there is one, the weight."""
        return (*self.features, *self.targets, *(() if self.weight is None else (self.weight,)))

    @property
    def n_rows(self) -> int:
        """Number of rows in all blocks."""
        return sum(self.block_rows)


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


def pieces(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield an array in pieces of at most `PIECE_ROWS` rows.

    Examples
    --------
    >>> [len(piece) for piece in pieces(np.ones((PIECE_ROWS + 1, 1)))]
    [65536, 1]
    """
    for start in range(0, len(rows), PIECE_ROWS):
        yield rows[start : start + PIECE_ROWS]
