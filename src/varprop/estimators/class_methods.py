"""All that scikit-learn's users expect of a classifier, from its predictive distribution alone."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d

from varprop.predictive.categories import Categories

# Below any probability of a network, so that logarithms are numbers.
_LEAST = np.finfo(np.float64).tiny


class ClassMethods(ClassifierMixin):
    """Classes, probabilities and scores; authors give `predict_dist`."""

    classes_: np.ndarray

    @abstractmethod
    def predict_dist(self, X: Any, X_std: Any = None, *, X_cov: Any = None) -> Categories:
        """Return the predictive distribution of every row."""

    def predict(self, X: Any, X_std: Any = None) -> np.ndarray:
        """Return the most probable class of every row, shape (n_rows,)."""
        return self.predict_dist(X, X_std).mode

    def predict_proba(self, X: Any, X_std: Any = None) -> np.ndarray:
        """Return probabilities, shape (n_rows, n_classes), in the order of `classes_`."""
        return self.predict_dist(X, X_std).proba

    def predict_log_proba(self, X: Any, X_std: Any = None) -> np.ndarray:
        """Return the logarithm of `predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X, X_std), _LEAST))

    def decision_function(self, X: Any, X_std: Any = None) -> np.ndarray:
        """Return log-odds of the second of two classes, (n_rows,), or all log-probabilities."""
        found = self.predict_log_proba(X, X_std)
        return found[:, 1] - found[:, 0] if len(self.classes_) == 2 else found

    def log_score(self, X: Any, y: Any, sample_weight: Any = None, X_std: Any = None) -> float:
        """Return the mean log probability of the classes; greater is better."""
        log_p = self.predict_dist(X, X_std).logpdf(column_or_1d(y))
        return float(np.average(log_p, weights=sample_weight))
