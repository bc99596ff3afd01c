"""Hashes of rows by their content: which rows are the same, without keeping the rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from varprop.data.together import Together

_BITS = 52  # whole numbers below 2**52 are exact as float64, which is what a model file holds
_GOLDEN = 0x9E3779B97F4A7C15


def row_hashes(*columns: np.ndarray | None) -> np.ndarray:
    """Return a hash of every row, the same wherever and whenever the same numbers stand in it.

    Parameters
    ----------
    *columns
        Arrays of numbers, shape (rows, columns) or (rows, columns, columns) each, as inputs,
        targets and input variances; None stands for an array that is not there. All are hashed as
        float64, so that a number rounded to float32 is another one unless float32 holds it. 0 and
        -0 are equal, and so are all NaNs.

    Returns
    -------
    np.ndarray
        Shape (rows,), 64-bit whole numbers. Rows that differ share one with a chance of 2**-64.

    Examples
    --------
    >>> x = np.array([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0]])
    >>> a, b, c = row_hashes(x, None)
    >>> bool(a == b), bool(a == c)
    (False, True)
    """
    arrays = [array for array in columns if array is not None]
    hashes = np.full(len(arrays[0]), _GOLDEN, dtype=np.uint64)
    for place, array in enumerate(columns):
        if array is None:
            continue
        for column in array.reshape(len(array), math.prod(array.shape[1:])).T:
            numbers = column.astype(np.float64) + 0.0  # -0 becomes 0
            numbers[np.isnan(numbers)] = np.nan
            hashes = _mixed(hashes ^ numbers.view(np.uint64))
        hashes = _mixed(hashes + np.uint64(place + 1))  # where an array ends matters, too
    return hashes


def fold_numbers(
    hashes: np.ndarray, n_folds: int, seed: int, together: Together | None = None
) -> np.ndarray:
    """Deal rows into folds such that equal rows share one.

    The fold of a row follows from the seed and from how many different rows stand before the first
    one like it, not from how often rows are repeated, nor from their units. Folds hold equally many
    different rows, up to one.

    Parameters
    ----------
    hashes
        Of the rows, see `row_hashes`.
    n_folds
        Folds to make, at least 2. With fewer different rows than that, each is a fold of its own;
        with a single one all rows are in fold 0, which leaves none to train on.
    seed
        Of the draw.
    together
        What else keeps rows together, groups or time: equal rows still share a fold then.

    Returns
    -------
    np.ndarray
        Shape (rows,): the numbers of the folds, from 0, none of them empty.

    Examples
    --------
    >>> fold_numbers(row_hashes(np.array([[1.0], [2.0], [1.0], [3.0]])), 5, seed=0).tolist()
    [2, 0, 2, 1]
    """
    if n_folds < 2:
        raise ValueError(f"n_folds must be at least 2, but is {n_folds}.")
    _, first, where = np.unique(hashes, return_index=True, return_inverse=True)
    place = np.argsort(np.argsort(first))  # among the different rows, by where they first stand
    if together is not None:
        return together.fold_numbers(place[where.ravel()], n_folds, seed)
    dealt = np.random.default_rng(seed).permutation(len(first)) % n_folds
    return dealt[place][where.ravel()]


def uniform(hashes: np.ndarray, seed: int) -> np.ndarray:
    """Return a number of [0, 1) for every row that follows from the seed and its content alone.

    Examples
    --------
    >>> a, b, c = uniform(row_hashes(np.array([[1.0], [2.0], [1.0]])), seed=0)
    >>> bool(a == c), bool(a == b)
    (True, False)
    """
    return (_seeded(hashes, seed) >> np.uint64(64 - _BITS)) / 2.0**_BITS


@dataclasses.dataclass(frozen=True)
class Fingerprints:
    """What a model file keeps of its training rows, to tell later which rows it has seen.

    Rows cannot be computed back from their hashes. Whoever can guess a row can check the guess,
    though: where a row takes few values (a yes or no and an age), all of them can be tried. Do not
    take this for anonymous.

    Of many rows only those with the smallest hashes are kept. Whether a row is among them depends
    on its content alone, as chance would have it, so in another table just the rows below the same
    threshold are compared, and their share stands for that of all rows.

    Attributes
    ----------
    values
        Hashes of different rows, sorted: whole numbers below 2**52, as float64, all of those that
        are below the threshold.
    threshold
        2**52 if no hash was cut.

    Examples
    --------
    >>> x = np.arange(10.0)[:, None]
    >>> trained = Fingerprints.of(row_hashes(x[:6]))
    >>> trained.share_seen(row_hashes(x)), trained.seen(row_hashes(x)).tolist()[4:7]
    (0.6, [True, True, False])
    """

    values: np.ndarray
    threshold: float

    @classmethod
    def of(cls, hashes: np.ndarray, *, most: int = 65_536) -> Fingerprints:
        """Keep at most so many of the hashes of `row_hashes`."""
        return cls.of_blocks([hashes], most=most)

    @classmethod
    def of_blocks(cls, blocks: Iterable[np.ndarray], *, most: int = 65_536) -> Fingerprints:
        """Keep at most so many of the hashes of rows that come in several arrays."""
        values, threshold = np.empty(0), 2.0**_BITS
        for hashes in blocks:
            new = _shortened(hashes)
            values = np.unique(np.concatenate([values, new[new < threshold]]))
            if len(values) > most:
                values, threshold = values[:most], float(values[most])
        return cls(values, threshold)

    def share_seen(self, hashes: np.ndarray) -> float:
        """Return the share of rows that were trained on: NaN if no row of them can be compared.

        It is exact if no hash was cut. Otherwise it is an estimate without bias from the rows
        below the threshold, with the error of a sample of `threshold / 2**52` of all rows.
        """
        short = _shortened(hashes)
        short = short[short < self.threshold]
        return float(np.isin(short, self.values).mean()) if len(short) else float("nan")

    def seen(self, hashes: np.ndarray) -> np.ndarray | None:
        """Return for every row whether it was trained on; None if hashes were cut.

        A row that was not is taken for one that was with a chance of `len(values) / 2**52`.
        """
        whole = self.threshold == 2.0**_BITS
        return np.isin(_shortened(hashes), self.values) if whole else None


def _shortened(hashes: np.ndarray) -> np.ndarray:
    return (hashes >> np.uint64(64 - _BITS)).astype(np.float64)


def _seeded(hashes: np.ndarray, seed: int) -> np.ndarray:
    return _mixed(hashes ^ _mixed(np.array([seed % 2**64], dtype=np.uint64)))


def _mixed(bits: np.ndarray) -> np.ndarray:
    """Return the bits mixed one to one: the finalizer of SplitMix64 (Steele et al. 2014)."""
    bits = bits + np.uint64(_GOLDEN)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
