"""Rows with unknown categories: the mixture of the predictions with every level in their place.

The one-hot inputs of a category are never independent: exactly one of them is 1. So an unknown
category (missing, or one that training has not seen) is no input with an error, but each of the
levels in turn, weighted by its share of the training rows. That is exact at any depth.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from varprop.tables.columns import CategoryColumn, Encoded, Preprocessing

if TYPE_CHECKING:  # SciPy comes with it, and what is wrong with a table is said before
    from varprop.predictive.distribution import Predictive
    from varprop.predictive.kernels import UnknownKernel

#: Combinations of levels that stand for the unknown categories of a row, at most.
COMBINATIONS = 64
_MIXED = (
    "What rows have in common, and where their variance comes from, is not known once rows with "
    "unknown categories are mixtures: `total_table` and `budget_table` of `varprop.tables` know it."
)
# Rows with unknown categories, and numbers of their inputs, that are looked at together.
_ROWS, _INPUTS = 1024, 2**22


def combinations(
    shares: Sequence[np.ndarray], *, most: int = COMBINATIONS, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return combinations of levels of several categories and their weights.

    Parameters
    ----------
    shares
        Of the levels of each category in the training rows.
    most
        All combinations are returned if there are no more, weighted by the product of their shares.
        Of more, so many are drawn from that product, as a Latin hypercube: every one is a fair
        draw, and together they keep each category's own shares nearly as they are.
    seed
        Of the draws: always the same, so that a row's prediction depends on nothing but the row.

    Returns
    -------
    levels, weights
        Shapes (combinations, categories) and (combinations,).

    Examples
    --------
    >>> levels, weights = combinations([np.array([0.2, 0.8]), np.array([0.5, 0.5])])
    >>> levels.tolist(), weights.round(9).tolist()
    ([[0, 0], [0, 1], [1, 0], [1, 1]], [0.1, 0.1, 0.4, 0.4])
    >>> len(combinations([np.full(100, 0.01)])[1])  # 64 draws, some of them the same
    58
    """
    sizes = [len(share) for share in shares]
    if math.prod(sizes) <= most:
        levels = np.indices(sizes).reshape(len(sizes), -1).T
        chances = [share[level] for share, level in zip(shares, levels.T, strict=True)]
        return levels, np.prod(chances, axis=0)
    rng = np.random.default_rng(seed)
    drawn = []
    for share in shares:
        at = (rng.permutation(most) + rng.uniform(size=most)) / most
        # Shares sum to one only up to rounding.
        drawn.append(np.minimum(np.cumsum(share).searchsorted(at, "right"), len(share) - 1))
    levels, counts = np.unique(np.stack(drawn, axis=1), axis=0, return_counts=True)
    return levels, counts / most


@dataclasses.dataclass(frozen=True)
class Part:
    """Some rows, with every unknown category replaced by known ones.

    Attributes
    ----------
    index
        Which rows, shape (rows,).
    filled
        What to predict: one of the rows or, in several combinations, several for each.
    place
        Which of these belong to each row, shape (combinations, rows); None if each is a row.
    weight
        Of the combinations, of the same shape; 0 where a row has fewer.
    """

    index: np.ndarray
    filled: Encoded
    place: np.ndarray | None = None
    weight: np.ndarray | None = None

    def mixed(self, found: Predictive) -> Predictive:
        """Return the prediction of the rows, given that of the filled ones."""
        place, weight = self.place, self.weight
        if place is None or weight is None:
            return found
        from varprop.predictive.blend import mixture
        from varprop.predictive.distribution import Predictive

        if not isinstance(found, Predictive):
            return mixture([found[rows] for rows in place], weight)

        def gathered(values: np.ndarray) -> np.ndarray:
            if values.shape[1] == 1:  # the same for all rows
                return np.repeat(values, len(place), axis=0)
            return values[:, place].reshape(-1, place.shape[1], *values.shape[2:])

        return dataclasses.replace(
            found,
            member_mean=gathered(found.member_mean),
            member_model=gathered(found.member_model),
            member_noise=gathered(found.member_noise),
            weights=gathered(found.weights) * np.tile(weight, (found.n_members, 1)),
            between=_untold(len(self.index), found.n_members * len(place)),
        )

    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Return of everything filled the row it belongs to, and its share of that row."""
        if self.place is None or self.weight is None:
            return self.index, np.ones(len(self.index))
        owner, share = np.zeros(len(self.filled.X), int), np.zeros(len(self.filled.X))
        live = self.weight > 0
        owner[self.place[live]] = np.broadcast_to(self.index, live.shape)[live]
        share[self.place[live]] = self.weight[live]
        return owner, share


def _untold(n_rows: int, n_members: int) -> tuple[UnknownKernel, ...]:
    """Return, for all members of mixtures over levels, that rows have nothing in common to tell."""
    from varprop.predictive.kernels import UnknownKernel

    return (UnknownKernel(np.zeros((n_rows, 0)), None, None, _MIXED),) * n_members


def in_parts(rows: Encoded, pre: Preprocessing, *, most: int = COMBINATIONS) -> Iterator[Part]:
    """Split rows into those without unknown categories and, in parts of bounded size, the others.

    Parameters
    ----------
    rows
        As `pre` has encoded them: an unknown category has an uncertainty in all its inputs.
    pre
        Knows the categories and their shares.
    most
        As in `combinations`.
    """
    columns = zip(pre.inputs, pre.slices, strict=True)
    categories = [(c.moments[0], at) for c, at in columns if isinstance(c, CategoryColumn)]
    std, n = rows.X_std, len(rows.X)
    unknown = np.zeros((n, len(categories)), bool)
    if std is not None:
        for number, (_, at) in enumerate(categories):
            unknown[:, number] = (std[:, at] > 0).any(axis=1)
    some = unknown.any(axis=1)
    if not some.all():
        index = np.flatnonzero(~some)
        yield Part(index, _with(rows, rows.X[index], None if std is None else std[index], index))
    index = np.flatnonzero(some)
    size = max(1, min(_ROWS, _INPUTS // (most * rows.X.shape[1])))
    for start in range(0, len(index), size):
        yield _filled(rows, index[start : start + size], unknown, categories, most)


def _filled(
    rows: Encoded,
    index: np.ndarray,
    unknown: np.ndarray,
    categories: Sequence[tuple[np.ndarray, slice]],
    most: int,
) -> Part:
    """Return a part of the rows, with the levels in the place of unknown categories."""
    assert rows.X_std is not None
    patterns, which = np.unique(unknown[index], axis=0, return_inverse=True)
    X, std, numbers, blocks, begin = [], [], [], [], 0
    for number, pattern in enumerate(patterns):
        missing = [category for category, is_so in zip(categories, pattern, strict=True) if is_so]
        levels, weights = combinations([share for share, _ in missing], most=most)
        own = np.flatnonzero(which.ravel() == number)
        chosen = np.repeat(index[own], len(weights))
        x, x_std = rows.X[chosen], rows.X_std[chosen]
        for (share, at), level in zip(missing, levels.T, strict=True):
            x[:, at] = np.tile(np.eye(len(share))[level], (len(own), 1))
            x_std[:, at] = 0.0
        X.append(x)
        std.append(x_std)
        numbers.append(chosen)
        blocks.append((own, begin + np.arange(len(chosen)).reshape(len(own), -1).T, weights))
        begin += len(chosen)
    shape = max(len(weights) for *_, weights in blocks), len(index)
    # What stands under a weight of 0 must be a distribution as well, and the first one is.
    place, weight = np.zeros(shape, int), np.zeros(shape)
    for own, at_rows, weights in blocks:
        place[: len(weights), own], weight[: len(weights), own] = at_rows, weights[:, None]
    joined = np.concatenate(X), np.concatenate(std), np.concatenate(numbers)
    return Part(index, _with(rows, *joined), place, weight)


def _with(rows: Encoded, X: np.ndarray, std: np.ndarray | None, index: np.ndarray) -> Encoded:
    known = std is None or not std.any()
    return dataclasses.replace(rows, X=X, X_std=None if known else std, numbers=rows.numbers[index])


def one_part(parts: Sequence[Part]) -> Part:
    """Return several parts, of all rows in the end, as one."""
    index = np.concatenate([part.index for part in parts])
    most = max(1 if part.place is None else len(part.place) for part in parts)
    place, weight = np.zeros((most, len(index)), int), np.zeros((most, len(index)))
    X, std, numbers, begin, at = [], [], [], 0, 0
    for part in parts:
        rows, filled = slice(at, at + len(part.index)), part.filled
        if part.place is None or part.weight is None:
            place[:, rows], weight[0, rows] = begin + np.arange(len(part.index)), 1.0
        else:
            place[:, rows] = begin
            place[: len(part.place), rows] = begin + part.place
            weight[: len(part.place), rows] = part.weight
        X.append(filled.X)
        std.append(np.zeros_like(filled.X) if filled.X_std is None else filled.X_std)
        numbers.append(filled.numbers)
        begin, at = begin + len(filled.X), rows.stop
    order = np.argsort(index)
    spread = np.concatenate(std)
    filled = dataclasses.replace(
        parts[0].filled,
        X=np.concatenate(X),
        X_std=spread if spread.any() else None,
        numbers=np.concatenate(numbers),
    )
    return Part(index[order], filled, place[:, order], weight[:, order])


def together(parts: Iterable[tuple[np.ndarray, Predictive]]) -> Predictive:
    """Put predictions of some rows each together again.

    Parameters
    ----------
    parts
        Which rows, and their prediction; all rows once. Rows of fewer members than others get
        more, of weight 0.

    Examples
    --------
    >>> from varprop.predictive.distribution import Predictive
    >>> one = Predictive.gaussian([1.0], [0.0], 1.0)
    >>> two = Predictive.mixture([one, Predictive.gaussian([5.0], [0.0], 1.0)])
    >>> found = together([(np.array([1]), one), (np.array([0]), two)])
    >>> found.mean.tolist(), found.n_members
    ([3.0, 1.0], 2)
    """
    indices, predictions = zip(*parts, strict=True)
    order, first = np.argsort(np.concatenate(indices)), predictions[0]
    if len(predictions) == 1:
        return first if (np.diff(indices[0]) > 0).all() else first[order]
    members = np.arange(max(p.n_members for p in predictions))

    def joined(name: str) -> np.ndarray:
        found = []
        for p in predictions:
            values = getattr(p, name)
            values = np.broadcast_to(values, (p.n_members, p.n_rows, *values.shape[2:]))
            own = members < p.n_members
            values = values[np.where(own, members, 0)]
            found.append(np.where(own[:, None], values, 0.0) if name == "weights" else values)
        return np.concatenate(found, axis=1)[:, order]

    names = ("member_mean", "member_model", "member_noise", "weights")
    between = _untold(len(order), len(members))
    return dataclasses.replace(first, **{name: joined(name) for name in names}, between=between)
