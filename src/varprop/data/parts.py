"""Parts of a source: rows held out, by their place or by their content, and rows in memory."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator

import numpy as np

from varprop.data.fingerprints import fold_numbers, row_hashes, uniform
from varprop.data.source import AbstractSource, Rows, SourceError
from varprop.data.together import Together


def split_source(
    source: AbstractSource,
    *,
    share: float,
    seed: int,
    by_content: bool = False,
    together: Together | None = None,
) -> tuple[AbstractSource, AbstractSource]:
    """Return two sources: the rows to train on, and about this share of them held out.

    Whether a row is held out depends on the seed and its place alone, or on what stands in it, so
    both parts can be read as often as needed and no list of rows is kept.

    Parameters
    ----------
    source
        What to split.
    share
        Part of the rows to hold out, between 0 and 1.
    seed
        Of the draw.
    by_content
        Whether identical rows are kept together, which takes a pass over all rows to count them.
    together
        What else keeps rows together: whole groups are held out then, of which the smallest part is
        one group, or the last rows in time; and so are rows identical to these.

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
    chosen = _Chosen(source, share, seed, by_content, together)
    parts = _Part(chosen, held=False), _Part(chosen, held=True)
    if not parts[0].n_rows or not parts[1].n_rows:
        raise SourceError(
            f"share {share:g} of {source.n_rows} rows leaves a part without any: choose another."
        )
    return parts


@dataclasses.dataclass(frozen=True)
class _Chosen:
    """Which rows of a source a draw picks: by their place, or by what stands in them."""

    source: AbstractSource
    share: float
    seed: int
    by_content: bool
    together: Together | None = None

    @functools.cached_property
    def _whole(self) -> np.ndarray:
        """Which rows are picked, where that does not follow from each row alone."""
        blocks = range(len(self.source.block_rows))
        pieces = (piece for block in blocks for piece in self.source.read(block))
        hashes = np.concatenate([row_hashes(p.x, p.y, p.x_var) for p in pieces])
        n_folds = max(2, math.ceil(1 / self.share))
        return fold_numbers(hashes, n_folds, self.seed, self.together) == 0

    def pieces(self, block: int) -> Iterator[tuple[Rows, np.ndarray]]:
        """Yield the rows of a block, and which of them are picked."""
        random = np.random.default_rng([self.seed, block])
        first = sum(self.source.block_rows[:block])
        for piece in self.source.read(block):
            if self.together is not None:
                yield piece, self._whole[first : first + len(piece.x)]
                first += len(piece.x)
                continue
            if self.by_content:
                draws = uniform(row_hashes(piece.x, piece.y, piece.x_var), self.seed)
            else:
                draws = random.random(len(piece.x))
            yield piece, draws < self.share

    @functools.cached_property
    def block_rows(self) -> tuple[int, ...]:
        """Number of picked rows in every block."""
        whole = self.source.block_rows
        if self.together is not None:
            masks = np.split(self._whole, np.cumsum(whole)[:-1])
            found = ([mask.sum()] for mask in masks)
        elif self.by_content:
            found = ([mask.sum() for _, mask in self.pieces(i)] for i in range(len(whole)))
        else:  # without reading
            draws = (np.random.default_rng([self.seed, i]).random(n) for i, n in enumerate(whole))
            found = ([(draw < self.share).sum()] for draw in draws)
        return tuple(int(sum(counts)) for counts in found)


class _Part(AbstractSource):
    """The rows of another source that a draw picks, or the others."""

    def __init__(self, chosen: _Chosen, *, held: bool):
        source = chosen.source
        self.features, self.targets = source.features, source.targets
        self.weight_name, self.uncertain = source.weight_name, source.uncertain
        self.correlated = source.correlated
        self.sound, self.repeated = source.sound, source.repeated
        self._chosen, self._held = chosen, held

    @property
    def block_rows(self) -> tuple[int, ...]:
        """Number of rows of this part in every block."""
        picked = self._chosen.block_rows
        if self._held:
            return picked
        return tuple(n - k for n, k in zip(self._chosen.source.block_rows, picked, strict=True))

    def where(self, block: int, row: int) -> str:
        """As the whole source says it."""
        masks = [mask == self._held for _, mask in self._chosen.pieces(block)]
        place = np.flatnonzero(np.concatenate(masks))[row]
        return self._chosen.source.where(block, int(place))

    def read(self, block: int) -> Iterator[Rows]:
        """Yield the rows of this part of a block."""
        for piece, mask in self._chosen.pieces(block):
            picked = piece.part(mask == self._held)
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
    return Rows.joined(piece for i in range(len(source.block_rows)) for piece in source.read(i))
