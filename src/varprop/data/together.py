"""Rows that belong together, by groups or by time: which of them are set aside with which."""

from __future__ import annotations

import dataclasses
import heapq
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Together:
    """What the user said of rows that belong together.

    Attributes
    ----------
    codes
        Shape (rows,), whole numbers: that of the row's group, or the rank of its time.
    in_time
        Whether these are ranks of times, so that neighbors belong together, or else groups.

    Examples
    --------
    >>> rows = Together(np.array([0, 0, 1, 1, 2, 2]))
    >>> rows.fold_numbers(np.arange(6), 5, seed=0).tolist()
    [1, 1, 0, 0, 2, 2]
    >>> Together(np.array([5, 4, 3, 2, 1, 0]), in_time=True).fold_numbers(np.arange(6), 3).tolist()
    [0, 0, 1, 1, 2, 2]
    """

    codes: np.ndarray
    in_time: bool = False

    @property
    def name(self) -> str:
        """What `fit` calls it."""
        return "times" if self.in_time else "groups"

    def part(self, rows: Any) -> Together:
        """Return some of the rows, by a mask or their numbers."""
        return dataclasses.replace(self, codes=self.codes[rows])

    def merged(self, where: np.ndarray, n_rows: int) -> Together:
        """Return the same of rows of which some are merged into one.

        One that is in several groups makes one of these; one that was there at several times is at
        the first.

        Parameters
        ----------
        where
            Number of the merged row, for every row.
        n_rows
            How many merged rows there are.
        """
        codes = np.full(n_rows, np.iinfo(np.int64).max)
        own = self.codes if self.in_time else _joined(self.codes, where)
        np.minimum.at(codes, where, own)
        return dataclasses.replace(self, codes=codes)

    def fold_numbers(self, same: np.ndarray, n_folds: int, seed: int = 0) -> np.ndarray:
        """Deal rows into folds; see `varprop.data.fingerprints.fold_numbers`.

        Groups, joined where they share a row, are dealt from the largest to the smallest, each into
        the fold that has the fewest different rows. Folds in time are blocks of it, from the last,
        which is fold 0, to the first; rows of one time share a fold.

        Parameters
        ----------
        same
            Shape (rows,): equal numbers from 0 for identical rows.
        n_folds
            At most.
        seed
            Of the draw; blocks of time are not drawn.
        """
        n_different = int(same.max()) + 1
        whole = self.merged(same, n_different)
        if self.in_time:
            ordered = np.sort(whole.codes)
            left = np.searchsorted(ordered, whole.codes, "left")
            right = np.searchsorted(ordered, whole.codes, "right")
            middle = 0.5 * (left + right - 1)  # of the rows of one time
            blocks = (middle * n_folds / n_different).astype(int)
            _, found = np.unique(-blocks, return_inverse=True)
            return found.ravel()[same]
        _, group = np.unique(whole.codes, return_inverse=True)
        sizes = np.bincount(group.ravel())
        random = np.random.default_rng(seed)
        order = random.permutation(len(sizes))
        order = order[np.argsort(-sizes[order], kind="stable")]
        n_folds = min(n_folds, len(sizes))
        names = random.permutation(n_folds).tolist()  # else the largest group were in fold 0
        smallest = [(0, place, fold) for place, fold in enumerate(names)]
        dealt = np.empty(len(sizes), int)
        for one in order.tolist():
            rows, place, fold = smallest[0]
            dealt[one] = fold
            heapq.heapreplace(smallest, (rows + int(sizes[one]), place, fold))
        return dealt[group.ravel()][same]

    def held_out(self, n_held: int, least: int, seed: int) -> np.ndarray:
        """Choose whole groups, or the last rows in time, of which there are about so many rows.

        Parameters
        ----------
        n_held
            Rows wanted.
        least
            Rows needed.
        seed
            Of the draw among groups.

        Returns
        -------
        np.ndarray
            Shape (rows,), a mask. None are chosen if fewer than two groups, or times, or fewer
            rows than are held out, would be left.
        """
        _, group, sizes = np.unique(self.codes, return_inverse=True, return_counts=True)
        if self.in_time:
            taken = np.cumsum(sizes[::-1])  # by how many of the last times
            n_times = int(np.argmin(np.abs(taken - n_held))) + 1
            n_times = max(n_times, int(np.searchsorted(taken, least)) + 1)
            chosen = np.arange(len(sizes))[::-1][:n_times]
        else:
            order, picked, rest = np.random.default_rng(seed).permutation(len(sizes)), [], n_held
            for one in order.tolist():
                if sizes[one] < 2 * rest:  # which brings the sum nearer
                    picked.append(one)
                    rest -= int(sizes[one])
            others = order[~np.isin(order, picked)]
            for one in others[np.argsort(sizes[others], kind="stable")].tolist():
                if n_held - rest >= least:
                    break
                picked.append(one)
                rest -= int(sizes[one])
            chosen = np.array(picked, int)
        held = np.isin(group.ravel(), chosen)
        enough = len(sizes) - len(chosen) >= 2 and least <= held.sum() <= 0.5 * len(held)
        return held if enough else np.zeros(len(held), bool)


def _joined(group: np.ndarray, same: np.ndarray) -> np.ndarray:
    """Return a number for every row: equal for rows of one group, for identical rows, and so on."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    _, group = np.unique(group, return_inverse=True)
    n_groups = int(group.max()) + 1
    shape = (n_groups + int(same.max()) + 1,) * 2
    links = coo_array((np.ones(len(same), bool), (group.ravel(), n_groups + same)), shape=shape)
    return connected_components(links, directed=False)[1][group.ravel()].astype(np.int64)


def check_together(groups: Any, times: Any, n_rows: int) -> Together | None:
    """Return what keeps rows together: groups of any labels, or times, which are put in order.

    Examples
    --------
    >>> check_together(["b", "a", "b"], None, 3).codes.tolist()
    [1, 0, 1]
    >>> check_together(None, np.array(["2024-02", "2024-01"], "datetime64"), 2).codes.tolist()
    [1, 0]
    """
    if groups is None and times is None:
        return None
    if groups is not None and times is not None:
        raise ValueError("groups and times both say which rows are set aside together: give one.")
    name, given = ("times", times) if groups is None else ("groups", groups)
    try:
        labels = np.asarray(given)
    except ValueError as error:  # of different lengths
        raise ValueError(f"{name} must hold one value per row.") from error
    if labels.shape != (n_rows,):
        raise ValueError(f"{name} has shape {labels.shape}, but needs ({n_rows},): one per row.")
    missing = np.array([label is None or label != label for label in labels.tolist()], bool)
    if labels.dtype.kind in "mM":
        missing = np.isnat(labels)
    if missing.any():
        raise ValueError(f"{name} has no value in row {int(np.argmax(missing))}: fill it in.")
    if times is not None and labels.dtype.kind not in "fiubmMO":
        raise ValueError(f"times must hold numbers or dates, but has dtype {labels.dtype}.")
    try:
        if groups is not None and labels.dtype.kind == "O":
            known = {label: code for code, label in enumerate(dict.fromkeys(labels))}
            return Together(np.array([known[label] for label in labels], np.int64))
        codes = np.unique(labels, return_inverse=True)[1].ravel().astype(np.int64)
    except TypeError as error:
        kind = "labels" if times is None else "numbers or dates that can be put in order"
        raise ValueError(f"{name} must hold {kind}, one per row.") from error
    if times is not None and labels.dtype.kind == "O" and isinstance(labels[0], str):
        raise ValueError("times must hold numbers or dates, but holds text.")
    return Together(codes, in_time=times is not None)
