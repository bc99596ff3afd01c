"""scikit-learn's quantile boosting as a distribution: many quantiles, and a density through them.

A booster of quantiles states no density. What is assumed to make one is written at the class.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy import stats
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from varprop.baselines.rows import one_target
from varprop.predictive.distribution import Predictive

#: Probabilities whose quantiles are boosted, one model for each; the 90 % interval among them.
LEVELS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
#: Share of the constant Gaussian in the mixture.
CONSTANT = 0.01
#: Least standard deviation of a Gaussian in the mixture, in those of the training targets.
NARROWEST = 1e-3
#: Gaussians in the place of the uniform density between two quantiles.
EACH = 4


@dataclasses.dataclass(eq=False, kw_only=True)
class QuantileBoosting:
    """A HistGradientBoostingRegressor for each of eleven quantiles, from 5 % to 95 %.

    With scikit-learn's own settings. Quantiles of a row that cross are put in order. Then the
    distribution is taken to be

    - uniform between neighboring quantiles, with the probability between their levels;
    - below the first and above the last that of a Gaussian's tail of 5 %, whose spread is that of
      a Gaussian with this outermost quantile and the median of the row;
    - in one case of a hundred none of these, but a Gaussian with mean and standard deviation of the
      training targets: a row far outside costs at most log(100) nats more than knowing nothing.

    The density is a mixture of Gaussians: four in a row for each uniform piece, with a standard
    deviation of half their distance, which leaves no waves; one with mean and variance of the tail
    for each tail. So it is smooth, and near to the pieces but not the same: its own 5 % and 95 %
    quantiles differ a little from the boosted ones. No Gaussian is narrower than a thousandth of
    the training targets' standard deviation: quantiles that coincide make no infinite density.

    It runs on one thread: on a busy machine several wait for each other longer than they work.

    Parameters
    ----------
    max_trees : int, default=100
        Of each quantile.
    learning_rate : float, default=0.1
        Shrinkage.
    random_state : int, default=0
        Seed.

    Examples
    --------
    >>> x = np.repeat(np.linspace(-1, 1, 20), 20)[:, None]
    >>> y = x[:, 0] + np.tile(np.linspace(-1, 1, 20), 20)
    >>> found = QuantileBoosting(max_trees=20).fit(x, y).predict_dist([[0.0]])
    >>> found.n_members, bool(abs(found.mean[0]) < 0.2), bool(0.4 < found.std[0] < 0.8)
    (43, True, True)
    """

    max_trees: int = 100
    learning_rate: float = 0.1
    random_state: int = 0

    def fit(self, X: Any, y: Any) -> QuantileBoosting:
        """Fit to inputs (rows, features) and targets (rows,)."""
        X, y = one_target(self, X, y)
        options = {"max_iter": self.max_trees, "learning_rate": self.learning_rate}
        with threadpool_limits(1):
            self._models = [
                HistGradientBoostingRegressor(
                    loss="quantile", quantile=level, random_state=self.random_state, **options
                ).fit(X, y)
                for level in LEVELS
            ]
        self._mean, self._std = float(y.mean()), float(y.std())
        self.n_iter_ = max(model.n_iter_ for model in self._models)
        self.outcome_ = "all trees"
        return self

    def predict_dist(self, X: Any) -> Predictive:
        """Return the predictive distribution of every row; all of its variance is noise."""
        X = np.asarray(X, np.float64)
        with threadpool_limits(1):
            found = np.sort([model.predict(X) for model in self._models], axis=0)
        return through_quantiles(found, LEVELS, self._mean, self._std)


def through_quantiles(
    quantiles: np.ndarray, levels: tuple[float, ...], mean: float, std: float
) -> Predictive:
    """Return the mixture that `QuantileBoosting` describes.

    Parameters
    ----------
    quantiles
        In order, shape (levels, rows).
    levels
        Their probabilities: odd in number, symmetric around 0.5.
    mean, std
        Of the training targets.

    Examples
    --------
    >>> known = stats.norm.ppf(LEVELS)[:, None]
    >>> found = through_quantiles(known, LEVELS, 0.0, 1.0)
    >>> bool(abs(found.mean[0]) < 1e-9), found.std.round(1).tolist()
    (True, [1.0])
    """
    median, tail = quantiles[len(levels) // 2], levels[0]
    z = float(-stats.norm.ppf(tail))
    excess = float(stats.norm.pdf(z)) / tail  # mean of a standard Gaussian beyond z
    narrow = float(np.sqrt(1 - excess * (excess - z)))  # and its standard deviation there
    low, high = (median - quantiles[0]) / z, (quantiles[-1] - median) / z
    means, stds, shares = [quantiles[0] - (excess - z) * low], [narrow * low], [tail]
    for width, left, share in zip(
        np.diff(quantiles, axis=0), quantiles[:-1], np.diff(levels), strict=True
    ):
        for place in (np.arange(EACH) + 0.5) / EACH:
            means.append(left + place * width)
            stds.append(width / (2 * EACH))
            shares.append(share / EACH)
    means.append(quantiles[-1] + (excess - z) * high)
    stds.append(narrow * high)
    shares.append(tail)
    parts = [
        Predictive.gaussian(m, np.maximum(s, NARROWEST * std) ** 2, 0.0)
        for m, s in zip(means, stds, strict=True)
    ]
    rows = np.full(quantiles.shape[1], mean)
    parts.append(Predictive.gaussian(rows, np.full(rows.shape, std**2), 0.0))
    return Predictive.mixture(parts, [*((1 - CONSTANT) * np.array(shares)), CONSTANT])
