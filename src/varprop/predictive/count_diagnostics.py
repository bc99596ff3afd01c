"""How often each count occurs, beside how often it was stated to. NumPy only."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from varprop.brief import brief
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.diagnostics import of_one_output
from varprop.predictive.mixtures import Array, ArrayLike

__all__ = ["Rootogram", "rootogram"]

# Values with a bar of their own; all above are one more.
_MOST = 40


class Rootogram(NamedTuple):
    """Rows by their count, observed and expected.

    Attributes
    ----------
    value
        Counts, from 0 on; the last stands for itself and all above if `open_ended`.
    observed
        Rows that had them.
    expected
        The sum of their stated probabilities over all rows.
    lower, upper
        Where the number of rows falls with the stated probability, if the model is right.
    open_ended
        Whether the last bar holds all larger counts as well.
    """

    value: Array
    observed: Array
    expected: Array
    lower: Array
    upper: Array
    open_ended: bool

    def __repr__(self) -> str:
        """Return sizes in place of large arrays."""
        return brief(self)


def rootogram(
    y: ArrayLike, prediction: AbstractNumeric, *, most: int = _MOST, probability: float = 0.95
) -> Rootogram:
    """Return how many rows had each count, and how many should have.

    The range that chance allows is that of a binomial count with the same mean, a little wide where
    rows differ.

    Parameters
    ----------
    y : array of shape (n,)
        Observed counts.
    prediction : Counts
        Of one output.
    most : int, default 40
        Bars at most.
    probability : float, default 0.95
        Of the range that chance allows.

    Examples
    --------
    >>> from varprop.predictive.counts import Counts
    >>> from varprop.predictive import Predictive
    >>> p = Counts(Predictive.gaussian(np.zeros(50), np.zeros(50), 0.0))
    >>> found = rootogram(np.arange(50) % 3, p)
    >>> found.observed[:3].tolist(), found.expected[:3].round(2).tolist()
    ([17.0, 17.0, 16.0], [18.39, 18.39, 9.2])
    """
    if most < 2:
        raise ValueError(f"most must be at least 2, not {most}.")
    y, prediction = of_one_output(y, prediction)
    n, top = len(y), float(max(y.max(), np.max(prediction.quantile(0.99))))
    bars = int(min(top + 2, most))
    value = np.arange(bars, dtype=np.float64)
    steps = np.stack([prediction.cdf(np.full(n, k)) for k in value[:-1]])
    share = np.diff(np.vstack([np.zeros(n), steps, np.ones(n)]), axis=0)
    observed = np.bincount(np.minimum(y, bars - 1).astype(int), minlength=bars)
    expected = np.maximum(share.sum(axis=1), 0.0)
    tail = (1.0 - probability) / 2.0
    chance = np.clip(expected / n, 0.0, 1.0)
    lower, upper = (stats.binom.ppf(q, n, chance) for q in (tail, 1.0 - tail))
    return Rootogram(value, observed.astype(np.float64), expected, lower, upper, open_ended=True)
