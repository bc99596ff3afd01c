"""Dask data frames as a source: a block is a partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from varprop.data.source import PIECE_ROWS, AbstractSource, Rows, SourceError, check_roles


class DaskSource(AbstractSource):
    """A Dask DataFrame with columns of numbers, computed one partition at a time.

    A partition must fit into memory beside the buffers, and computing it must give the same rows
    every time. The number of rows of every partition is computed when this is made.

    Parameters
    ----------
    frame
        A ``dask.dataframe.DataFrame``.
    features, targets, weight
        As in `ParquetSource`.

    Examples
    --------
    >>> import dask.dataframe, pandas
    >>> frame = pandas.DataFrame({"x": np.arange(6.0), "y": np.arange(6)})
    >>> source = DaskSource(dask.dataframe.from_pandas(frame, npartitions=3), targets="y")
    >>> source.block_rows, next(source.read(1)).x.tolist()
    ((2, 2, 2), [[2.0], [3.0]])
    """

    def __init__(
        self,
        frame: Any,
        *,
        features: Sequence[str] | None = None,
        targets: Sequence[str] | str,
        weight: str | None = None,
    ):
        if not hasattr(frame, "map_partitions"):
            raise TypeError(f"frame must be a Dask DataFrame, but is {type(frame).__name__}.")
        frame = frame.rename(columns=str)
        names = list(frame.columns)
        self.features, self.targets = check_roles(names, features, targets, weight, "the frame")
        self.weight_name, self.uncertain = weight, False
        for name in self.columns:
            kind = frame.dtypes[name]
            if getattr(kind, "kind", "O") not in "fiub":
                raise SourceError(
                    f"column {name!r} holds {kind}, not numbers: encode it as numbers first, or "
                    "leave it out."
                )
        self._frame = frame[list(self.columns)]
        counts = self._frame.map_partitions(len).compute()
        self._block_rows = tuple(int(count) for count in counts)
        if not self.n_rows:
            raise SourceError("the frame has no rows.")

    @property
    def block_rows(self) -> tuple[int, ...]:
        """Number of rows in every partition."""
        return self._block_rows

    def where(self, block: int, row: int) -> str:
        """Name the partition and the row in it, both from 0 as Dask counts them."""
        return f"row {row} of partition {block}"

    def read(self, block: int) -> Iterator[Rows]:
        """Compute a partition and yield its rows; a missing value is NaN."""
        part = self._frame.partitions[block].compute()
        if len(part) != self._block_rows[block]:
            raise SourceError(
                f"partition {block} had {self._block_rows[block]} rows and now has {len(part)}: "
                "the frame must give the same rows every time."
            )
        numbers = part.to_numpy(dtype=np.float64, na_value=np.nan)
        n, d = len(self.features), len(self.targets)
        weight = None if self.weight_name is None else numbers[:, -1]
        whole = Rows(numbers[:, :n], numbers[:, n : n + d], weight)
        for start in range(0, len(numbers), PIECE_ROWS):
            yield whole.part(slice(start, start + PIECE_ROWS))
