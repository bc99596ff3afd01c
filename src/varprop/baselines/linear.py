"""The linear model that a stack falls back on, as a method of its own."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from varprop.baselines.rows import one_target
from varprop.data.source import Data
from varprop.data.statistics import Scaling
from varprop.predictive.distribution import Predictive
from varprop.predictive.simple import LinearModel


@dataclasses.dataclass(eq=False, kw_only=True)
class Linear:
    """Bayesian ridge regression on standardized inputs and targets, with Gaussian noise.

    Parameters
    ----------
    random_state : int, default=0
        Not looked at: nothing is random.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 100)[:, None]
    >>> Linear().fit(x, 3 * x[:, 0] + 1).predict_dist([[2.0]]).mean.round(2).tolist()
    [7.0]
    """

    random_state: int = 0

    def fit(self, X: Any, y: Any) -> Linear:
        """Fit to inputs (rows, features) and targets (rows,)."""
        X, y = one_target(self, X, y)
        self._model = LinearModel.fit(X, y[:, None], scaling=Scaling.of(Data(X, y)))
        self.outcome_ = "converged"
        return self

    def predict_dist(self, X: Any) -> Predictive:
        """Return the predictive distribution of every row, noise included."""
        return self._model.predict_dist(np.asarray(X, np.float64))
