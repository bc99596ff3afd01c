"""Several rows at a time: what one of them tells of the others is taken into account.

Rows have in common what the model is unsure of (its weights), and a mixture which of its members
is right. A measurement of one row therefore lowers the doubt of those like it, whatever it will be:
the variances that remain are known before it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from varprop.decisions.acquisition import _single, log_expected_improvement, without_noise
from varprop.predictive.distribution import Predictive
from varprop.predictive.mixtures import Array

# Noise below this share of the largest doubt is taken as this share: a gain is then finite.
_LEAST_NOISE = 1e-12


class Selected(NamedTuple):
    """Rows that were chosen, and what each is worth once those before it are measured.

    Attributes
    ----------
    rows
        Their numbers, in the order of choice.
    gains
        Of `select_informative` nats, of `select_improving` the logarithm of the expected
        improvement, of `select_spread` the distance to what is nearest.
    """

    rows: np.ndarray
    gains: np.ndarray


def select_informative(dist: Any, n: int) -> Selected:
    """Choose rows whose measurements together tell most of the model, one after the other.

    The joint information gain of rows S is 1/2 log det(I + C_SS / noise variance), C being the
    covariance between rows of what the model is unsure of. Greedy choice, which reaches 1 - 1/e of
    the best at least, since what a row adds only falls as others are chosen. For Gaussians it is
    exact; a mixture is taken by its mean and covariance (between its members too).

    Parameters
    ----------
    dist
        Of one target; a prediction that tells the model's doubt from noise.
    n
        How many rows to choose.

    Returns
    -------
    Selected
        Gains in nats, which sum to the joint gain.

    Examples
    --------
    >>> p = Predictive.gaussian([0.0, 0.0, 0.0], [1.0, 3.0, 0.0], 1.0)
    >>> found = select_informative(p, 2)
    >>> found.rows.tolist(), found.gains.round(4).tolist()
    ([1, 0], [0.6931, 0.3466])
    """
    second = _members(dist, n)
    weights, mean = second.weights[:, 0], second.member_moments()[0][..., 0]
    apart = mean - weights @ mean

    def column(row: int) -> Array:
        return (weights @ (second.model_column(row)[..., 0] + apart * apart[:, row, None]))[None]

    var = second.model_var.reshape(1, -1)
    doubt = _Doubt(var, _at_least(second.noise_var.reshape(1, -1), var), column)
    return _greedy(n, lambda: 0.5 * np.log1p(doubt.var[0] / doubt.noise[0]), doubt.observe)


def select_improving(dist: Any, n: int, best: float, *, maximize: bool = True) -> Selected:
    """Choose rows by expected improvement, each as if those before it had been measured.

    A row that was chosen takes the doubt of those like it away, and what it is predicted to be
    counts as found: the next has to be better, and elsewhere. Exact for mixtures of Gaussians; a
    target behind a transform is taken by the means and covariances of its members.

    Parameters
    ----------
    dist
        Of one target; a prediction that tells the model's doubt from noise.
    n
        How many rows to choose.
    best, maximize
        As in `expected_improvement`.

    Examples
    --------
    >>> p = Predictive.gaussian([0.0, 0.5, 0.0], [1.0, 1.0, 9.0], 1.0)
    >>> select_improving(p, 2, 0.0).rows.tolist()
    [2, 1]
    """
    second = _members(dist, n)
    mean = second.member_moments()[0][..., 0]
    var = second.unit**2 * second._member_model_var()[..., 0]
    noise = np.broadcast_to(second.unit**2 * second.member_noise[..., 0], var.shape)
    doubt = _Doubt(var, _at_least(noise, var), lambda row: second.model_column(row)[..., 0])
    found, ahead = best, second.mean.reshape(-1)

    def score() -> Array:
        now = Predictive(
            mean[..., None], doubt.var[..., None], np.zeros((len(mean), 1, 1)), second.weights, True
        )
        return log_expected_improvement(now, found, maximize=maximize)

    def observe(row: int) -> None:
        nonlocal found
        doubt.observe(row)
        found = max(found, ahead[row]) if maximize else min(found, ahead[row])

    return _greedy(n, score, observe)


def select_spread(features: Array, n: int, *, seen: Array | None = None) -> Selected:
    """Choose rows that spread over where rows are, and are unlike those that were measured.

    Largest cluster, maximum distance (Holzmüller et al., 2023): every row belongs to the nearest of
    those chosen or seen; of the cluster with the largest sum of squared distances the farthest row
    is next. Distances in the space of `linear_features` are those of functions that the model holds
    possible.

    Parameters
    ----------
    features
        Shape (rows, p).
    n
        How many rows to choose.
    seen
        Features of rows that were measured before; without any, the longest is first.

    Examples
    --------
    >>> x = np.array([[0.0], [0.1], [0.2], [5.0], [9.0]])
    >>> select_spread(x, 2, seen=x[:1]).rows.tolist()
    [4, 3]
    """
    x = np.asarray(features, np.float64)
    _check_number(n, len(x))
    nearest, owner = np.full(len(x), np.inf), np.zeros(len(x), int)

    def take(center: Array, number: int) -> None:
        distance = ((x - center) ** 2).sum(axis=1)
        closer = distance < nearest
        nearest[closer], owner[closer] = distance[closer], number

    for number, center in enumerate(np.empty((0, x.shape[1])) if seen is None else seen):
        take(center, number)
    n_seen = 0 if seen is None else len(seen)
    if not n_seen:
        nearest[:] = (x**2).sum(axis=1)  # as if the function that knows nothing were seen

    def score() -> Array:
        sizes = np.bincount(owner, weights=nearest)
        return np.where(owner == sizes.argmax(), nearest, -1.0)

    numbers = iter(range(n_seen or 1, len(x) + n_seen + 1))
    found = _greedy(n, score, lambda row: take(x[row], next(numbers)))
    return Selected(found.rows, np.sqrt(np.maximum(found.gains, 0.0)))


class _Doubt:
    """Variances of what members are unsure of in all rows, as measurements take them away."""

    def __init__(self, var: Array, noise: Array, column: Callable[[int], Array]):
        self.var, self.noise, self._column = var.copy(), noise, column
        self._known = np.zeros((*var.shape, 0))

    def observe(self, row: int) -> None:
        """Measure a row, of whatever value: one column more of a Cholesky factor."""
        left = self._column(row) - np.einsum("knt,kt->kn", self._known, self._known[:, row])
        step = left / np.sqrt(self.var[:, row] + self.noise[:, row])[:, None]
        self._known = np.concatenate([self._known, step[..., None]], axis=-1)
        self.var = np.maximum(self.var - step**2, 0.0)


def _greedy(n: int, score: Callable[[], Array], observe: Callable[[int], None]) -> Selected:
    """Choose the row with the highest score, n times; none twice."""
    rows: list[int] = []
    gains: list[float] = []
    for _ in range(n):
        scores = score()
        scores[rows] = -np.inf
        left = np.setdiff1d(np.arange(len(scores)), rows)
        row = int(left[np.argmax(scores[left])])  # also where nothing is worth anything
        rows.append(row)
        gains.append(float(scores[row]))
        observe(row)
    return Selected(np.array(rows), np.array(gains))


def _members(dist: Any, n: int) -> Predictive:
    """Return a prediction as a mixture of Gaussians whose doubt is known."""
    second: Predictive = _single(dist).second_order()
    without_noise(second)  # says what to do if it is not
    second._check_one_mixture()
    _check_number(n, second.n_rows)
    return second


def _check_number(n: int, n_rows: int) -> None:
    if not 1 <= n <= n_rows:
        raise ValueError(f"n must lie between 1 and the number of rows, {n_rows}, but is {n}.")


def _at_least(noise: Array, var: Array) -> Array:
    return np.maximum(noise, _LEAST_NOISE * max(float(var.max()), np.finfo(float).tiny))
