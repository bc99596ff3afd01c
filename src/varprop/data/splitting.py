"""Random parts of a source: rows held out, none of which is read for it, and rows in memory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from varprop.data.source import AbstractSource, Rows


def split_source(
    source: AbstractSource, *, share: float, seed: int
) -> tuple[AbstractSource, AbstractSource]:
    """Return two sources: the rows to train on, and about this share of them held out.

    Whether a row is held out depends on the seed and its place alone, so both parts can be read as
    often as needed and no list of rows is kept.

    Parameters
    ----------
    source
        What to split.
    share
        Part of the rows to hold out, between 0 and 1.
    seed
        Of the draw.

    Examples
    --------
    >>> import pathlib, tempfile, pyarrow, pyarrow.parquet
    >>> from varprop.data.parquet import ParquetSource
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.parquet"
    >>> pyarrow.parquet.write_table(pyarrow.table({"x": np.arange(99.0), "y": np.ones(99)}), path)
    >>> train, held = split_source(ParquetSource(path, targets="y"), share=0.2, seed=0)
    >>> train.n_rows + held.n_rows
    99
    """
    if not 0 < share < 1:
        raise ValueError(f"share must lie between 0 and 1, but is {share}.")
    return _Part(source, share, seed, held=False), _Part(source, share, seed, held=True)


class _Part(AbstractSource):
    """The rows of another source that a random mask picks."""

    def __init__(self, source: AbstractSource, share: float, seed: int, *, held: bool):
        self.features, self.targets = source.features, source.targets
        self.weight_name, self.uncertain = source.weight_name, source.uncertain
        self._source, self._share, self._seed, self._held = source, share, seed, held
        self._whole = source.block_rows
        self._block_rows = tuple(int(self._mask(i).sum()) for i in range(len(self._whole)))

    def _mask(self, block: int) -> np.ndarray:
        draws = np.random.default_rng([self._seed, block]).random(self._whole[block])
        return (draws < self._share) == self._held

    @property
    def block_rows(self) -> tuple[int, ...]:
        """Number of picked rows in every block."""
        return self._block_rows

    def where(self, block: int, row: int) -> str:
        """As the whole source says it."""
        return self._source.where(block, int(np.flatnonzero(self._mask(block))[row]))

    def read(self, block: int) -> Iterator[Rows]:
        """Yield the picked rows of a block."""
        mask = self._mask(block)
        start = 0
        for piece in self._source.read(block):
            picked = piece.part(mask[start : start + len(piece.x)])
            start += len(piece.x)
            if len(picked.x):
                yield picked


def gather(source: AbstractSource, *, most: int | None = None, seed: int = 0) -> Rows:
    """Return the rows of a source in memory: all of them, or about so many, drawn at random.

    Parameters
    ----------
    source
        What to read.
    most
        Rows to draw if there are more.
    seed
        Of the draw.

    Examples
    --------
    >>> from varprop.data.source import Data
    >>> gather(Data(np.ones((4, 2)), np.zeros(4))).x.shape
    (4, 2)
    """
    if most is not None and source.n_rows > most:
        _, source = split_source(source, share=most / source.n_rows, seed=seed + 1)
    pieces = [piece for block in range(len(source.block_rows)) for piece in source.read(block)]
    if len(pieces) == 1:
        return pieces[0]
    columns = zip(*pieces, strict=True)
    return Rows(*(None if part[0] is None else np.concatenate(part) for part in columns))
