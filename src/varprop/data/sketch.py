"""A small sketch of where a column's values lie, and how far new values lie elsewhere."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

#: Cells of a sketch, each with about as many of the values.
N_CELLS = 32
# Of the bound for each side: 1, and a twelfth more for two samples of few rows.
_SIDE = 1.085
# Rows that stand for those of an exactly known distribution.
_ENDLESS = 2**52


@dataclasses.dataclass(frozen=True)
class Sketch:
    """Where the values of a column lie: the cumulative distribution at a few values of it.

    Attributes
    ----------
    values
        At most 33 of the column's values, rising: its quantiles, of which none is there twice.
    less, upto
        How many of the column's values are less than each of them, and how many no larger.
    n
        Values in the column.
    missing
        Rows without a value, besides.

    Examples
    --------
    >>> seen = Sketch.of(np.array([1.0, 1.0, 2.0, 5.0]), missing=1)
    >>> seen.values, seen.less, seen.upto
    ((1.0, 2.0, 5.0), (0, 2, 3), (2, 3, 4))
    >>> moved = seen.moved(np.array([5.0, 5.0, 6.0]))
    >>> moved.up, moved.down, round(moved.p, 2)
    (0.75, 0.0, 0.32)
    """

    values: tuple[float, ...]
    less: tuple[int, ...]
    upto: tuple[int, ...]
    n: int
    missing: int = 0

    @classmethod
    def of(cls, values: np.ndarray, *, missing: int = 0) -> Sketch:
        """Return the sketch of finite values, shape (rows,), of which there is at least one."""
        ordered = np.sort(np.asarray(values, np.float64))
        places = np.linspace(0, len(ordered) - 1, N_CELLS + 1).round().astype(int)
        at = np.unique(ordered[places])
        less, upto = (np.searchsorted(ordered, at, side).tolist() for side in ("left", "right"))
        return cls(tuple(at.tolist()), tuple(less), tuple(upto), len(ordered), missing)

    @classmethod
    def uniform(cls) -> Sketch:
        """Return that of numbers that are known to be spread evenly over [0, 1]."""
        at = [k / N_CELLS for k in range(N_CELLS + 1)]
        below = tuple(round(value * _ENDLESS) for value in at)
        return cls(tuple(at), below, below, _ENDLESS)

    @property
    def is_sound(self) -> bool:
        """Whether it can be one: a file may say anything."""
        parts = (self.values, self.less, self.upto)
        counts = (*self.less, *self.upto, self.n, self.missing)
        if not self.values or not len(self.values) == len(self.less) == len(self.upto):
            return False
        if any(type(part) is not tuple for part in parts):
            return False
        if any(type(count) is not int or not 0 <= count < 2**53 for count in counts):
            return False
        if any(type(value) is not float or not math.isfinite(value) for value in self.values):
            return False
        pairs = zip(self.less, self.upto, strict=True)
        steps = [count for pair in pairs for count in pair]
        rising = steps == sorted(steps) and 0 < steps[-1] <= self.n
        return rising and list(self.values) == sorted(set(self.values))

    def quantile(self, level: float) -> float:
        """Return about where a share of the values lies below."""
        place = np.searchsorted(np.array(self.upto), level * self.n)
        return self.values[min(int(place), len(self.values) - 1)]

    def moved(self, values: np.ndarray) -> Moved:
        """Compare new values, shape (rows,), at least one, with these."""
        ordered = np.sort(values)
        m, n = len(ordered), self.n
        less = np.array(self.less) / n - np.searchsorted(ordered, self.values, "left") / m
        upto = np.array(self.upto) / n - np.searchsorted(ordered, self.values, "right") / m
        gaps = np.concatenate([less, upto])
        up, down = max(0.0, float(gaps.max())), max(0.0, float(-gaps.min()))
        size = n * m / (n + m)
        one, other = (_SIDE * math.exp(-2 * size * gap**2) for gap in (up, max(up, down)))
        return Moved(up, down, min(1.0, 2 * other), min(1.0, one))

    def cells(self, values: np.ndarray, most: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return cuts between cells, and the shares of these and of new values in each of them.

        Values on a cut are below it; there is one cell more than cuts.
        """
        inner = np.array(self.upto[:-1])
        levels = np.arange(1, most) / most * self.n
        places = np.unique(np.searchsorted(inner, levels)) if len(inner) else np.empty(0, int)
        places = places[places < len(inner)]
        cuts = np.array(self.values)[places]
        now = np.searchsorted(np.sort(values), cuts, "right") / len(values)
        shares = (np.diff(v, prepend=0.0, append=1.0) for v in (inner[places] / self.n, now))
        return cuts, *shares


@dataclasses.dataclass(frozen=True)
class Moved:
    """How far two distributions differ, by the test of Kolmogorov and Smirnov.

    Probabilities are the bound of Dvoretzky, Kiefer, Wolfowitz and Massart for two samples, with
    the constant that Wei and Dudley (2012) found to be enough for few rows.

    Attributes
    ----------
    up, down
        The largest share of rows that lie higher, and lower, than they did.
    p
        Probability of the larger of the two, or more, by chance.
    p_up
        Probability of `up`, or more, by chance.
    """

    up: float
    down: float
    p: float
    p_up: float

    @property
    def size(self) -> float:
        """The larger share."""
        return max(self.up, self.down)


def least_moved(level: float, n: int, n_new: int) -> float:
    """Return the share of rows that must lie elsewhere before `Moved.p` is below a level.

    Examples
    --------
    >>> round(least_moved(0.002, 1000, 500), 3)
    0.102
    """
    return min(1.0, math.sqrt(math.log(2 * _SIDE / level) * (1 / n + 1 / n_new) / 2))
