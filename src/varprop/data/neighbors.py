"""Whether rows, in the order in which they are given, look like a trajectory."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from varprop.data.source import AbstractSource

# Pairs of rows that are compared at most, and columns; rows below which nothing is said.
_PAIRS, _COLUMNS, _LEAST_ROWS = 2000, 64, 40
# Blocks of a source that are looked into.
_BLOCKS = 4
# Distance of neighbors, in that of rows at random, below which they are nearly equal.
_ALIKE = 0.2
# Share of the changes of a column that go one way where rows are sorted by it; and share of the
# pairs that must be tied in all columns that rows are sorted by, for them to be sorted by one more.
_ONE_WAY, _TIED = 0.95, 0.1
# Different values of a column, at least, that may drift.
_MANY_VALUES = 20


def neighbors_alike(source: AbstractSource, *, n_targets: int) -> bool:
    """Return whether neighboring rows are nearly equal, in inputs and targets, though not sorted.

    Values are replaced by their ranks, so that neither units nor outliers matter. Columns by which
    the table is sorted (one within the ties of the other) say nothing: a sorted table is no
    trajectory. Of the rest the sums of differences are compared, those of neighbors with those of
    rows at random, by their medians. At least one input must be left that has many values and
    mostly moves from row to row.

    Parameters
    ----------
    source
        Rows in the order in which the user has them. A few thousand are looked at.
    n_targets
        Columns of y that are compared; 0 for those that are no numbers.

    Examples
    --------
    >>> from varprop.data.source import Data
    >>> walk = np.random.default_rng(0).normal(size=(500, 3)).cumsum(axis=0)
    >>> shuffled = np.random.default_rng(1).permutation(walk)
    >>> [neighbors_alike(Data(x[:, :2], x[:, 2]), n_targets=1) for x in (walk, shuffled)]
    [True, False]
    """
    random = np.random.default_rng(0)
    pairs = list(_pairs(source, n_targets, random))
    first, second = (np.concatenate(side) for side in zip(*pairs, strict=True))
    known = np.isfinite(first).all(axis=1) & np.isfinite(second).all(axis=1)
    first, second = first[known], second[known]
    n, n_inputs = len(first), min(len(source.features), _COLUMNS)
    if n + 1 < _LEAST_ROWS:
        return False
    steps = second - first
    if ((steps >= 0).all(axis=0) | (steps <= 0).all(axis=0))[n_inputs:].any():
        return False  # sorted by a target, which moves the inputs along
    left = _unsorted(steps[:, :n_inputs])
    values = np.concatenate([first, second])
    moves = (first != second).mean(axis=0) > 0.5
    drift = [i for i in left if moves[i] and len(np.unique(values[:, i])) > _MANY_VALUES]
    if not drift:
        return False
    columns = [*left, *range(n_inputs, values.shape[1])]
    ranks = np.stack([_ranks(values[:, i]) for i in columns], axis=1)
    near = np.abs(ranks[:n] - ranks[n:]).sum(axis=1)
    others = random.permutation(n)
    far = np.abs(ranks[:n] - ranks[n:][others]).sum(axis=1)
    return bool(np.median(near) < _ALIKE * np.median(far))


def _pairs(
    source: AbstractSource, n_targets: int, random: np.random.Generator
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rows, inputs and targets, and the ones after them, of some blocks."""
    columns = np.unique(np.linspace(0, len(source.features) - 1, _COLUMNS).astype(int))
    blocks = np.unique(np.linspace(0, len(source.block_rows) - 1, _BLOCKS).astype(int))
    yield (np.empty((0, len(columns) + n_targets)),) * 2
    for block in blocks.tolist():
        if source.block_rows[block] < 2:
            continue
        piece = next(iter(source.read(block)))
        at = np.arange(len(piece.x) - 1)
        most = _PAIRS // len(blocks)
        if len(at) > most:
            at = np.sort(random.choice(at, most, replace=False))
        parts = piece.x[:, columns], piece.y[:, :n_targets]
        sides = (np.hstack([part[rows] for part in parts]) for rows in (at, at + 1))
        first, second = (side.astype(np.float64) for side in sides)
        yield first, second


def _unsorted(steps: np.ndarray) -> list[int]:
    """Return the columns that vary and by which rows are not sorted, given their steps."""
    left = [i for i in range(steps.shape[1]) if steps[:, i].any()]
    tied = np.ones(len(steps), bool)
    while tied.mean() > _TIED:
        for i in left:
            changes = np.sign(steps[tied, i])
            changes = changes[changes != 0]
            if len(changes) and abs(changes.mean()) >= 2 * _ONE_WAY - 1:
                left.remove(i)
                tied &= steps[:, i] == 0
                break
        else:
            break
    return left


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return where values stand among all, from 0 to 1; equal ones are in the middle of theirs."""
    _, where, counts = np.unique(values, return_inverse=True, return_counts=True)
    return ((np.cumsum(counts) - 0.5 * counts) / len(values))[where.ravel()]
