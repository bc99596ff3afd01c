"""Split conformal recalibration: intervals that cover with a guarantee, whatever the model.

Held-out rows say how many of its own standard deviations a model is off; the interval is
mean ± q standard deviations with q an order statistic of these numbers. If the held-out rows and
the new row are exchangeable (drawn from one population, in any order), then

    coverage <= P(y lies in its interval) <= coverage + 1 / (n + 1),

the upper bound for continuous targets. The probability is over held-out rows and new row together;
it is an average over all x, no promise for each x.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from varprop.brief import brief
from varprop.predictive.checks import as_targets, check_finite, check_share
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.scoring import predict_dist

__all__ = ["Conformal"]


@dataclasses.dataclass(frozen=True, repr=False)
class Conformal:
    """A fitted estimator with recalibrated intervals; make one with `calibrate`.

    Parameters
    ----------
    estimator
        Anything with ``predict_dist``, or a pipeline or search that ends in it.
    scores
        Sorted ``|y - mean| / std`` of the held-out rows, shape (n, outputs), or (n, 1) if joint.
    joint
        Whether an interval must hold for all outputs of a row at once.

    Examples
    --------
    >>> from varprop.predictive import Predictive
    >>> class Known:
    ...     "Predicts a standard normal for every row."
    ...     def predict_dist(self, X):
    ...         return Predictive.gaussian(np.zeros(len(X)), np.zeros(len(X)), 1.0)
    >>> y = np.linspace(-3, 3, 99)
    >>> conformal = Conformal.calibrate(Known(), y[:, None], y)
    >>> lower, upper = conformal.predict_interval(np.zeros((1, 1)), coverage=0.5)
    >>> print(lower.round(2), upper.round(2))
    [-1.53] [1.53]
    """

    estimator: Any
    scores: np.ndarray
    joint: bool
    __repr__ = brief

    @classmethod
    def calibrate(cls, estimator: Any, X: Any, y: Any, *, joint: bool = False) -> Conformal:
        """Compare a fitted estimator with rows it was not fitted on.

        Parameters
        ----------
        estimator
            Fitted, with ``predict_dist``.
        X, y
            Held-out rows. Rows it was trained on void the guarantee.
        joint
            Cover all outputs of a row at once with the given probability, instead of each output by
            itself.
        """
        return dataclasses.replace(
            cls.of(predict_dist(estimator, X), y, joint=joint), estimator=estimator
        )

    @classmethod
    def of(cls, dist: AbstractNumeric, y: Any, *, joint: bool = False) -> Conformal:
        """Compare predictions with what was observed: for `factor` alone, without an estimator."""
        y = as_targets(y, "y", dist.shape)
        mean, std = dist.mean.reshape(y.shape), dist.std.reshape(y.shape)
        if not (std > 0).all():
            row = int(np.argwhere(std == 0)[0][0])
            raise ValueError(f"The predicted standard deviation is zero in row {row}.")
        check_finite(mean + std, "The predicted mean or standard deviation")
        scores = np.abs(y - mean) / std
        if joint:
            scores = scores.max(axis=1, keepdims=True)
        return cls(None, np.sort(scores, axis=0), joint)

    def factor(self, coverage: float) -> np.ndarray:
        """Return how many standard deviations an interval of this coverage reaches either way.

        Returns
        -------
        array of shape (outputs,), or (1,) if joint
            A well calibrated Gaussian model has about 1.64 at a coverage of 0.9.
        """
        check_share(coverage, "coverage")
        n = len(self.scores)
        # 0.9 * 10 is a little above 9 in floating point; its ceiling must still be 9.
        rank = math.ceil((n + 1) * coverage - 1e-9)
        if rank > n:
            need = math.ceil(coverage / (1 - coverage) - 1e-9)
            raise ValueError(
                f"A coverage of {coverage} needs at least {need} held-out rows, but there are {n}."
            )
        return self.scores[rank - 1]

    def predict_interval(self, X: Any, coverage: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """Return intervals with guaranteed coverage.

        Parameters
        ----------
        X
            New rows.
        coverage
            Probability inside, strictly between 0 and 1.

        Returns
        -------
        lower, upper
            Arrays of the mean's shape.
        """
        factor = self.factor(coverage)
        dist = predict_dist(self.estimator, X)
        reach = dist.std * (factor if dist.mean.ndim == 2 else factor[0])
        return dist.mean - reach, dist.mean + reach
