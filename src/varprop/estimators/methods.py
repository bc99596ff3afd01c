"""All that scikit-learn's users expect of a regressor, from its predictive distribution alone."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state

from varprop.brief import brief
from varprop.estimators.inputs import check_exposure
from varprop.learning.likelihoods import AbstractLikelihood, GaussianLikelihood
from varprop.learning.likelihoods.given import logarithms
from varprop.predictive import metrics
from varprop.predictive.budget import Budget
from varprop.predictive.contract import AbstractContinuous, AbstractNumeric


class Interval(NamedTuple):
    """Lower and upper ends, each of the shape of `predict`'s result."""

    lower: np.ndarray
    upper: np.ndarray

    def __repr__(self) -> str:
        """Return sizes in place of large arrays."""
        return brief(self)


def _continuous(dist: AbstractNumeric) -> AbstractContinuous:
    """Return what is of real numbers, which alone know of covariances."""
    if not isinstance(dist, AbstractContinuous):
        raise TypeError(
            "Covariances and budgets are those of predictions of real numbers, but this one is a "
            f"{type(dist).__name__}: draw from it by `sample_y`."
        )
    return dist


def _more(exposure: Any) -> dict[str, Any]:
    return {} if exposure is None else {"exposure": exposure}


class PredictiveMethods:
    """Means, spreads, intervals, quantiles, draws and scores; authors give `predict_dist`."""

    @property
    def _kind(self) -> type[AbstractLikelihood]:
        """How targets are observed."""
        return GaussianLikelihood

    @abstractmethod
    def predict_dist(self, X: Any, X_std: Any = None, *, X_cov: Any = None) -> AbstractNumeric:
        """Return the predictive distribution of every row."""

    def predict(
        self,
        X: Any,
        return_std: bool = False,
        return_cov: bool = False,
        X_std: Any = None,
        *,
        X_cov: Any = None,
        exposure: Any = None,
        return_output_cov: bool = False,
    ) -> Any:
        """Return the mean of every row, with its standard deviation or covariance if asked for.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Inputs.
        return_std : bool, default=False
            Also return standard deviations (of model and noise together), of the mean's shape.
        return_cov : bool, default=False
            Also return the covariance between rows, of shape (n_rows, n_rows), or
            (n_rows, n_rows, n_outputs) for several targets, as scikit-learn's Gaussian process
            does. ``predict_dist(X).total()`` and ``.combine(weights)`` need no such matrix.
        X_std, X_cov, exposure : array-like, default=None
            As in `predict_dist`.
        return_output_cov : bool, default=False
            Also return the covariance between the outputs of each row, of shape
            (n_rows, n_outputs, n_outputs).

        Returns
        -------
        ndarray, or tuple of two
            Means of shape (n_rows,) or (n_rows, n_outputs), as the targets were.
        """
        if return_std + return_cov + return_output_cov > 1:
            raise RuntimeError(
                "At most one of return_std, return_cov or return_output_cov can be requested."
            )
        dist = self.predict_dist(X, X_std, X_cov=X_cov, **_more(exposure))
        if return_std:
            return dist.mean, dist.std
        if return_output_cov:
            return dist.mean, _continuous(dist).output_cov
        return (dist.mean, _continuous(dist).rows_cov()) if return_cov else dist.mean

    def uncertainty_budget(self, X: Any, X_std: Any = None, *, X_cov: Any = None) -> Budget:
        """Return where the variance of every prediction comes from.

        Parameters
        ----------
        X, X_std, X_cov
            As in `predict_dist`.

        Returns
        -------
        Budget
            The error of each input, the weights of each layer, the distance between members, the
            noise: variances that sum to the predicted one. Where the objective does not tell
            weights from noise, as ROPD, the two are one part.
        """
        names = getattr(self, "feature_names_in_", None)
        return _continuous(self.predict_dist(X, X_std, X_cov=X_cov)).budget(names)

    @property
    def predict_proba(self) -> Any:
        """Not there: numbers have no probabilities of classes."""
        raise AttributeError(
            f"{type(self).__name__} predicts numbers, which have no predict_proba: take "
            "FAWNClassifier for classes, or predict_dist(X).cdf(y) for that of a value or less."
        )

    def predict_var(self, X: Any, X_std: Any = None) -> np.ndarray:
        """Return the variance of every row, model and noise together, of the mean's shape."""
        return self.predict_dist(X, X_std).var

    def predict_interval(
        self, X: Any, coverage: float = 0.9, X_std: Any = None, *, exposure: Any = None
    ) -> Interval:
        """Return central intervals.

        Parameters
        ----------
        X, X_std, exposure
            As in `predict_dist`.
        coverage : float, default=0.9
            Probability inside, strictly between 0 and 1.

        Returns
        -------
        Interval
            A pair (lower, upper) of arrays of the mean's shape.
        """
        return Interval(*self.predict_dist(X, X_std, **_more(exposure)).interval(coverage))

    def predict_quantiles(
        self, X: Any, alpha: Any, X_std: Any = None, *, exposure: Any = None
    ) -> np.ndarray:
        """Return quantiles.

        Parameters
        ----------
        X, X_std, exposure
            As in `predict_dist`.
        alpha : float or array-like of shape (n_alpha,)
            Probabilities strictly between 0 and 1.

        Returns
        -------
        ndarray
            Of the mean's shape, with one more axis at the end if `alpha` is a list.
        """
        return self.predict_dist(X, X_std, **_more(exposure)).quantile(alpha)

    def sample_y(
        self,
        X: Any,
        n_samples: int = 1,
        random_state: Any = 0,
        X_std: Any = None,
        *,
        exposure: Any = None,
    ) -> np.ndarray:
        """Draw targets, independently for every row.

        Returns
        -------
        ndarray
            Of the mean's shape with one more axis at the end, of length `n_samples`, as
            scikit-learn's Gaussian process has it.
        """
        dist = self.predict_dist(X, X_std, **_more(exposure))
        return dist.sample(n_samples, check_random_state(random_state))

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_std: Any = None,
        *,
        exposure: Any = None,
    ) -> float:
        """Return R² of the mean, averaged over outputs; 1 is perfect.

        Where targets are given as bounds, of the rows in which they are known exactly; `log_score`
        has a use for all rows.
        """
        mean = self.predict(X, X_std=X_std, exposure=exposure)
        if self._kind.given.blocks == 2:
            lower, upper = np.split(np.asarray(y, np.float64), 2, axis=1)
            known = (lower == upper).all(axis=1)
            if known.sum() < 2:
                raise ValueError(
                    "R² needs two rows whose targets are known exactly: use log_score, which takes "
                    "bounds."
                )
            y, mean = lower[known], mean[known]
            sample_weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(r2_score(y, mean, sample_weight=sample_weight))

    def log_score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_std: Any = None,
        *,
        exposure: Any = None,
    ) -> float:
        """Return the mean log density of what was observed; greater is better.

        It is joint over outputs; of counts and of bounds it is the logarithm of a probability.
        """
        kind, y = self._kind, np.asarray(y, np.float64)
        dist = self.predict_dist(X, X_std)
        if y.size != kind.given.blocks * dist.mean.size:
            raise ValueError(f"y_true has shape {y.shape}, but targets {dist.mean.shape}.")
        columns = kind.given.columns(
            y.reshape(len(y), -1), check_exposure(exposure, len(y), kind.given)
        )
        if kind.logged:
            columns = logarithms(columns, kind.column_scaling)
        observed, y = kind.as_observed(dist, columns)
        y = y[:, 0] if observed.squeeze else y
        if isinstance(observed, AbstractNumeric):
            return -metrics.nll(y, observed, sample_weight=sample_weight)
        return float(np.average(observed.logpdf(y), weights=sample_weight))
