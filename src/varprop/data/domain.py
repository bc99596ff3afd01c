"""What inputs were seen in training, so that a prediction elsewhere can say so."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from varprop.data.fingerprints import row_hashes
from varprop.data.statistics import Moments, standardized

#: With more columns than this a model file keeps no correlations: their number is the square.
MOST_CORRELATED = 512
# Rows from which distances are learned, and numbers in them.
_MOST_ROWS, _MOST_NUMBERS = 2**14, 2**23
# The tail that is continued, and how far: to where this share of rows would lie.
_TAIL, _BEYOND = 0.1, 1e-4
# How far beyond the seen range any value may lie, as a share of it.
_MARGIN = 0.25
# Fewer rows than this say nothing about combinations.
_FEWEST_ROWS = 20
# Training rows that may be further away than the limit.
_RARE = 0.005
# What is added to the variance of 1 in every direction, besides a part that falls with the rows.
_RIDGE, _RIDGE_PER_COLUMN = 1e-3, 0.01
_LARGEST = float(np.finfo(np.float64).max)


@dataclasses.dataclass(frozen=True)
class Outside:
    """Where rows leave what was seen.

    Attributes
    ----------
    far
        Shape (rows,): whether the row is an unusual combination, though each value may be usual.
    beyond
        Shape (rows, columns): whether the value is beyond the range that was seen.
    """

    far: np.ndarray
    beyond: np.ndarray

    @property
    def rows(self) -> np.ndarray:
        """Whether anything about a row is outside, shape (rows,)."""
        return self.far | self.beyond.any(axis=1)


@dataclasses.dataclass(frozen=True)
class Domain:
    """Ranges and correlations of the inputs that were seen.

    **A value is beyond the range** not as soon as it is a new extreme, as 2 of n rows are in every
    column. It must be more than a quarter of the range away from it, and lie where hardly any row
    would: the outermost tenth of the rows, on either side, is continued as an exponential tail (its
    scale from the tail's median, which one outlier does not move) to where it holds one row in
    10,000. Skewed columns are widened more than those that end sharply. So no value that was seen
    is beyond, and in a constant column any other is. Of new values of the same kind, at 50 rows
    about 0.1 % are beyond if they are normal and 0.4 % if they are lognormal, at 200 rows 0.01 and
    0.2 %.

    **A row is far** if its squared Mahalanobis distance is above a limit. The correlations are
    those of the columns scaled to variance 1, plus a small multiple of the identity: collinear,
    one-hot or too many columns are no difficulty, and a row that breaks a relation that held in all
    rows is found. Values beyond the continued tails are put at their ends first, so that an outlier
    cannot hide others; that leaves out columns where 95 % of the rows have one value, as rare
    levels of a category. The limit is the end of the tail of the training rows' distances, each
    measured without the row itself, and at most one in 200 of them is above it. From 50 rows on, of
    new rows of the same kind less than 1 % are far. Fewer than 20 different rows, or one column,
    are never far. With more than 512 columns the distance ignores correlations, to keep files
    small.

    Equal rows count once. Distances and tails are learned from at most 16,384 rows, fewer with more
    than 512 columns, drawn by their content; smallest and largest values are those of all rows.

    Attributes
    ----------
    low, high
        Smallest and largest value seen, shape (columns,).
    least, most
        Ends of the continued tails; they may lie within low and high if there are outliers.
    shift, scale
        Mean and standard deviation within these ends.
    whitening
        Shape (columns, columns), or (columns,) for a distance without correlations.
    limit
        Of the squared distance.

    Examples
    --------
    >>> depth = np.linspace(43, 79, 60)
    >>> domain = Domain.of(np.stack([depth, 2 * depth + np.sin(9 * depth)], 1))
    >>> x = np.array([[50.0, 100.0], [6000.0, 100.0], [45.0, 158.0]])
    >>> found = domain.outside(x)
    >>> found.beyond.tolist(), found.far.tolist()[::2]
    ([[False, False], [True, False], [False, False]], [False, True])
    >>> [domain.words(row, ["depth", "length"]) for row in x]
    ['', 'depth is 6000, seen 43 to 79', 'an unusual combination of inputs']
    """

    low: np.ndarray
    high: np.ndarray
    least: np.ndarray
    most: np.ndarray
    shift: np.ndarray
    scale: np.ndarray
    whitening: np.ndarray
    limit: float

    @classmethod
    def of(cls, x: np.ndarray, weight: np.ndarray | None = None) -> Domain:
        """Learn from finite inputs, shape (rows, columns); rows of weight 0 were not seen."""
        return cls.of_blocks([x if weight is None else x[weight > 0]])

    @classmethod
    def of_blocks(cls, blocks: Iterable[np.ndarray]) -> Domain:
        """Learn from inputs that come in several arrays, in one pass and bounded memory."""
        lows: list[np.ndarray] = []
        highs: list[np.ndarray] = []
        keys, rows = np.empty(0, dtype=np.uint64), np.empty((0, 0))
        for x in blocks:
            if not len(x):
                continue
            lows.append(x.min(axis=0))
            highs.append(x.max(axis=0))
            most = _most_rows(x.shape[1])
            # The smallest hashes: a random choice that depends on nothing but the rows.
            new, first = np.unique(row_hashes(x), return_index=True)
            picked = x[first[:most]].astype(np.float64)
            joined = np.concatenate([keys, new[:most]])
            keys, first = np.unique(joined, return_index=True)
            keys, first = keys[:most], first[:most]
            rows = (np.concatenate([rows, picked]) if len(rows) else picked)[first]
        if not lows:
            raise ValueError("there are no rows to learn a range from.")
        least, end = -_reach(-rows), _reach(rows)
        rows = np.clip(rows, least, end)
        moments = Moments()
        moments.add(rows, np.ones(len(rows)))
        shift, std = moments.result()
        scale = moments.scale(std)
        low, high = (np.array(ends, dtype=np.float64) for ends in (lows, highs))
        whitening, limit = _distances(standardized(rows, shift, scale))
        return cls(low.min(0), high.max(0), least, end, shift, scale, whitening, limit)

    def outside(self, x: np.ndarray) -> Outside:
        """Compare rows with what was seen."""
        with np.errstate(over="ignore"):
            more = _MARGIN * self.high - _MARGIN * self.low
            beyond = x < np.minimum(self.low - more, self.least)
            beyond |= x > np.maximum(self.high + more, self.most)
        z = standardized(np.clip(x, self.least, self.most), self.shift, self.scale)
        return Outside(_squared(z, self.whitening) > self.limit, beyond)

    @staticmethod
    def learned_from(n_rows: int, n_columns: int) -> tuple[int, int]:
        """Return from how many rows the limit is learned, and the rank of the largest distances.

        Of so many different training rows, and at most these below the rank are above the limit.
        """
        n = min(n_rows, _most_rows(n_columns))
        return n, int(_RARE * n) + 1

    def words(self, row: np.ndarray, names: Sequence[str]) -> str:
        """Say in words what is unusual about a row, given the columns' names; "" if nothing is.

        At most three values are named, and the combination only where no value is beyond.
        """
        found = self.outside(np.asarray(row)[None])
        columns = np.flatnonzero(found.beyond[0])
        if not len(columns):
            return "an unusual combination of inputs" if found.far[0] else ""
        said = [self._value(names[i], float(row[i]), i) for i in columns[:3].tolist()]
        if len(columns) > 3:
            said.append(f"and {len(columns) - 3} more")
        return "; ".join(said)

    def _value(self, name: str, value: float, column: int) -> str:
        numbers = [value, float(self.low[column]), float(self.high[column])]
        for digits in (6, 9, 12, 15, 17):  # as many as tell them apart
            is_, low, high = (_text(number, digits) for number in numbers)
            if len({is_, low, high}) == len(set(numbers)):
                break
        return f"{name} is {is_}, seen {f'only {low}' if low == high else f'{low} to {high}'}"


def _most_rows(n_columns: int) -> int:
    return min(_MOST_ROWS, max(64, _MOST_NUMBERS // n_columns))


def _text(number: float, digits: int) -> str:
    whole = abs(number) < 1e15 and number == round(number)
    return f"{number:.0f}" if whole else f"{number:.{digits}g}"


def _reach(values: np.ndarray) -> np.ndarray:
    """Return where the upper tails, shape (columns,), end if they are continued."""
    n = len(values)
    if n == 1:
        return values[0]
    k = max(1, min(math.ceil(_TAIL * n), n - 1))
    top = np.partition(values, n - 1 - k, axis=0)[n - 1 - k :]
    start, tail = top.min(axis=0), np.median(top[1:], axis=0)
    with np.errstate(over="ignore"):
        end = start + (tail - start) * (math.log(k / n / _BEYOND) / math.log(2))
    return np.minimum(end, _LARGEST)


def _squared(z: np.ndarray, whitening: np.ndarray) -> np.ndarray:
    return ((z @ whitening if whitening.ndim == 2 else z * whitening) ** 2).sum(axis=1)


def _distances(z: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the whitening and the limit, from standardized rows."""
    n, d = z.shape
    if n < _FEWEST_ROWS or z.any(axis=0).sum() < 2:  # a single column is no combination
        return np.zeros(d), 0.0
    ridge = _RIDGE + _RIDGE_PER_COLUMN * d / n
    if d > MOST_CORRELATED:
        whitening = np.full(d, 1 / math.sqrt(1 + ridge))
        squared = (_left_out((z * whitening) ** 2, n)).sum(axis=1)
    else:
        factor = np.linalg.cholesky(z.T @ z / n + ridge * np.eye(d))
        whitening = np.linalg.inv(factor).T
        squared = _left_out(_squared(z, whitening), n)
    rare = np.sort(squared)[-1 - int(_RARE * n)]
    return whitening, float(max(_reach(squared[:, None])[0], rare))


def _left_out(squared: np.ndarray, n: int) -> np.ndarray:
    """Return squared distances from all other rows, given those from all (Sherman-Morrison)."""
    leverage = (1 + squared) / n
    return n * leverage / np.maximum(1 - leverage, 1e-12) - 1
