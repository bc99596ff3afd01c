"""Which features move the prediction's mean, and which its spread.

The measure is the total-effect index of variance-based sensitivity analysis (Sobol; Jansen's
estimator): half the mean squared change of a prediction g when one feature is shuffled, over the
variance of g. It needs no targets, has no unit, and is the same for mean and spread. With
independent features it is the share of g's variance that is left, on average, once all other
features are known. A permutation importance of a score would mix mean and spread, and gradients
would miss what a feature does far away.

With correlated features shuffling makes rows that do not occur; read the numbers together then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from varprop.brief import brief
from varprop.predictive.scoring import predict_dist

__all__ = ["Importance", "feature_importance"]


class Importance(NamedTuple):
    """Total-effect indices, each of shape (n_features,) or (n_features, n_outputs).

    Attributes
    ----------
    mean
        Share of the predicted mean's variance that involves the feature, from 0 to about 1.
    spread
        The same for the predicted standard deviation.
    mean_error, spread_error
        Standard errors over the repeats.
    """

    mean: np.ndarray
    spread: np.ndarray
    mean_error: np.ndarray
    spread_error: np.ndarray

    def __repr__(self) -> str:
        """Return sizes in place of large arrays."""
        return brief(self)


def feature_importance(
    estimator: Any, X: Any, *, n_repeats: int = 10, random_state: Any = None
) -> Importance:
    """Return the importance of every feature for the mean and for the spread.

    Parameters
    ----------
    estimator
        Fitted, with ``predict_dist``; or a pipeline or search that ends in such a one, whose
        features are then those that go into the pipeline.
    X
        Rows of the population of interest, shape (n_rows, n_features), an array or a data frame.
    n_repeats
        Shuffles of each feature, at least 2.
    random_state
        Source of the shuffles.

    Returns
    -------
    Importance
        Indices sum to 1 if effects are additive and features independent, and to more if they
        interact. A prediction that is constant has 0 throughout.

    Examples
    --------
    >>> from varprop.predictive.distribution import Predictive
    >>> class Known:
    ...     "The mean depends on feature 0, the spread on feature 1."
    ...     def predict_dist(self, X):
    ...         return Predictive.gaussian(X[:, 0], X[:, 1] ** 2, 0.0)
    >>> X = np.random.default_rng(0).uniform(1, 2, size=(1000, 2))
    >>> importance = feature_importance(Known(), X, random_state=0)
    >>> importance.mean.round(1).tolist(), importance.spread.round(1).tolist()
    ([1.0, 0.0], [0.0, 1.0])
    """
    if n_repeats < 2:
        raise ValueError(f"n_repeats must be at least 2, but is {n_repeats}.")
    frame = hasattr(X, "iloc")
    X = X if frame else np.asarray(X)
    if len(X) < 2:
        raise ValueError("X needs at least two rows to shuffle.")
    rng = check_random_state(random_state)
    base = predict_dist(estimator, X)
    truth = np.stack([base.mean, base.std])  # (2, n_rows, ...)
    # Shares have no unit; in this one no square overflows or vanishes.
    size = np.abs(truth).max(axis=1, keepdims=True)
    size = np.where(size > 0, size, 1.0)
    truth = truth / size
    variance = truth.var(axis=1)
    constant = truth.max(axis=1) == truth.min(axis=1)
    effects = np.empty((X.shape[1], n_repeats, *variance.shape))
    for feature in range(X.shape[1]):
        for repeat in range(n_repeats):
            shuffled = _with_shuffled_column(X, feature, rng.permutation(len(X)), frame)
            other = predict_dist(estimator, shuffled)
            change = np.stack([other.mean, other.std]) / size - truth
            effects[feature, repeat] = 0.5 * (change**2).mean(axis=1)
    index = np.where(constant, 0.0, effects / np.where(constant, 1.0, variance))
    value = index.mean(axis=1)
    error = index.std(axis=1, ddof=1) / np.sqrt(n_repeats)
    return Importance(value[:, 0], value[:, 1], error[:, 0], error[:, 1])


def _with_shuffled_column(X: Any, feature: int, order: np.ndarray, frame: bool) -> Any:
    shuffled = X.copy()
    if frame:
        shuffled[X.columns[feature]] = X.iloc[order, feature].to_numpy()
    else:
        shuffled[:, feature] = X[order, feature]
    return shuffled
