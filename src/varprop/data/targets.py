"""The same rows with other columns of targets: what was observed, as a model is trained on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from varprop.data.source import AbstractSource, Data, Rows, SourceError


class TargetError(ValueError):
    """A row whose target cannot be; what reads it knows where the row stands."""

    def __init__(self, row: int, what: str, advice: str):
        super().__init__(f"{what} in row {row}: {advice}.")
        self.row, self.what, self.advice = row, what, advice


@dataclasses.dataclass(frozen=True, repr=False)
class _Changed(AbstractSource):
    source: AbstractSource
    change: Callable[[np.ndarray], np.ndarray]
    targets: tuple[str, ...]
    features: tuple[str, ...] = dataclasses.field(init=False)
    weight_name: str | None = dataclasses.field(init=False)
    uncertain: bool = dataclasses.field(init=False)
    sound: bool = dataclasses.field(init=False)
    repeated: bool = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        for name in ("features", "weight_name", "uncertain", "sound", "repeated"):
            object.__setattr__(self, name, getattr(self.source, name))

    @property
    def block_rows(self) -> tuple[int, ...]:
        """Number of rows in every block."""
        return self.source.block_rows

    def where(self, block: int, row: int) -> str:
        """Say where a row of a block stands, for errors."""
        return self.source.where(block, row)

    def read(self, block: int) -> Iterator[Rows]:
        """Yield the rows of a block, their targets changed."""
        start = 0
        for piece in self.source.read(block):
            yield piece._replace(y=_changed(self, block, start, piece.y))
            start += len(piece.x)


def _changed(source: _Changed, block: int, start: int, y: np.ndarray) -> np.ndarray:
    try:
        return source.change(np.asarray(y, np.float64))
    except TargetError as error:
        where = source.where(block, start + error.row)
        raise SourceError(f"{error.what} in {where}: {error.advice}.") from error


def with_targets(
    source: AbstractSource, change: Callable[[np.ndarray], np.ndarray], names: Sequence[str]
) -> AbstractSource:
    """Return the same rows with other columns of y.

    Parameters
    ----------
    source
        The rows.
    change
        From columns to columns, shapes (rows, columns); it may raise `TargetError`.
    names
        Of the new columns.

    Examples
    --------
    >>> rows = Data(np.ones((2, 1)), np.array([1.0, 4.0]))
    >>> with_targets(rows, np.sqrt, ["root"]).y.ravel().tolist()
    [1.0, 2.0]
    """
    changed = _Changed(source, change, tuple(names))
    if not isinstance(source, Data):
        return changed
    y = _changed(changed, 0, 0, source.y)
    rows = (source.x, y, source.weight, source.x_var)
    return Data(
        *rows,
        names=[*source.features, *names],
        numbers=source.numbers,
        weight_name=source.weight_name,
        sound=source.sound,
        repeated=source.repeated,
    )
