"""Is a difference between training rows and new ones more than chance? Tests for few rows too.

All compare two samples, and neither is taken for the truth: with few training rows little can be
called a change. Their probabilities are exact or too large, never too small, whatever the
distribution, as long as rows are independent. `Sketch.moved` is the one of whole distributions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats


def counts_differ(count: int, n: int, new: int, n_new: int) -> float:
    """Return the probability of counts as different as these, of n rows and of new ones: exact.

    Fisher's test, twice the smaller side.

    Examples
    --------
    >>> counts_differ(10, 100, 10, 100), round(counts_differ(10, 100, 30, 100), 5)
    (1.0, 0.00065)
    """
    law = stats.hypergeom(n + n_new, count + new, n_new)
    return float(min(1.0, 2 * min(law.cdf(new), law.sf(new - 1))))


def count_is_off(new: int, n_new: int, share: float) -> float:
    """Return the probability of a count as far from a known share as this one: exact, two-sided.

    Examples
    --------
    >>> count_is_off(50, 100, 0.5), round(count_is_off(70, 100, 0.5), 5)
    (1.0, 8e-05)
    """
    law = stats.binom(n_new, share)
    return float(min(1.0, 2 * min(law.cdf(new), law.sf(new - 1))))


def more_extreme(rank: int, n: int, new: int, n_new: int) -> float:
    """Return the probability that so many new values are beyond one of the old: exact.

    Parameters
    ----------
    rank
        Of the old value: 1 for the most extreme. With both ends, 2 for the two of them together.
    n
        Old values.
    new, n_new
        How many of how many new values are beyond it, or more.

    Examples
    --------
    >>> more_extreme(1, 1, 1, 1), more_extreme(1, 99, 0, 10)
    (0.5, 1.0)
    """
    if not new:
        return 1.0
    # Of all values in their order, the first new + rank - 1 have fewer than `rank` old ones.
    return float(stats.hypergeom(n + n_new, n, new + rank - 1).cdf(rank - 1))


def together(probabilities: Sequence[float]) -> list[float]:
    """Return probabilities that are corrected for their number, by the method of Holm.

    If none of the tests has anything to find, one of these is below a level at most with the
    probability of that level, however the tests depend on each other.

    Examples
    --------
    >>> together([0.01, 0.5, 0.03])
    [0.03, 0.5, 0.06]
    """
    order, found, largest = np.argsort(probabilities), [1.0] * len(probabilities), 0.0
    for place, number in enumerate(order.tolist()):
        largest = max(largest, min(1.0, (len(order) - place) * probabilities[number]))
        found[number] = largest
    return found
