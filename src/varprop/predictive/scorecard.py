"""How good a predictive distribution is, beside two simple ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from varprop.predictive import metrics
from varprop.predictive.distribution import Predictive

#: The rows of a scorecard, in the order they are shown.
MODEL, LINEAR, CONSTANT = "this model", "linear model", "constant Gaussian"

#: Scores, and whether greater is better (None: the nearer to the number in the name the better).
SCORES: dict[str, bool | None] = {
    "NLL": False,
    "RMSE": False,
    "R2": True,
    "CRPS": False,
    "coverage 50 %": None,
    "coverage 90 %": None,
}

Scorecard = dict[str, dict[str, float]]


def scores(y: np.ndarray, prediction: Predictive) -> dict[str, float]:
    """Return the scores of one prediction, averaged over outputs (NLL is joint over them).

    Parameters
    ----------
    y
        Targets, of the prediction's public shape.
    prediction
        Of the same rows.

    Examples
    --------
    >>> y = np.array([0.0, 1.0, 2.0])
    >>> card = scores(y, Predictive.gaussian(y, np.zeros(3), 1.0))
    >>> card["RMSE"], card["R2"], card["coverage 90 %"]
    (0.0, 1.0, 1.0)
    """
    found = {
        "NLL": metrics.nll(y, prediction),
        "RMSE": metrics.rmse(y, prediction),
        "R2": metrics.r2(y, prediction),
        "CRPS": metrics.crps(y, prediction),
        "coverage 50 %": metrics.interval_coverage(y, prediction, coverage=0.5),
        "coverage 90 %": metrics.interval_coverage(y, prediction),
    }
    return {name: float(value) for name, value in found.items()}


@dataclasses.dataclass(frozen=True)
class LinearModel:
    """Bayesian ridge regression of each target by itself.

    Attributes
    ----------
    center, scale
        Of the inputs, shape (features,).
    coef
        In standardized units, shape (targets, features).
    intercept, noise_var
        Shape (targets,).
    cov
        Posterior covariance of the coefficients, shape (targets, features, features).

    Examples
    --------
    >>> X = np.linspace(0, 1, 50)[:, None]
    >>> model = LinearModel.fit(X, 3 * X + 1)
    >>> model.predict_dist(X[:1]).mean.round(2).tolist()
    [1.0]
    """

    center: np.ndarray
    scale: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    noise_var: np.ndarray
    cov: np.ndarray

    @classmethod
    def fit(cls, X: np.ndarray, y: np.ndarray) -> LinearModel:
        """Fit to targets of shape (rows, targets)."""
        from sklearn.linear_model import BayesianRidge

        center, scale = X.mean(axis=0), X.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        Z = (X - center) / scale
        fits = []
        for target in y.T:
            # Its priors are not scale-free: standardized targets are what they are meant for.
            shift, spread = target.mean(), target.std() or 1.0
            fit = BayesianRidge().fit(Z, (target - shift) / spread)
            coef, intercept = fit.coef_ * spread, fit.intercept_ * spread + shift
            fits.append((coef, intercept, spread**2 / fit.alpha_, fit.sigma_ * spread**2))
        stacked = (np.array(part, np.float64) for part in zip(*fits, strict=True))
        return cls(center, scale, *stacked)

    def predict_dist(self, X: np.ndarray) -> Predictive:
        """Return the predictive distribution; one target gives a one-dimensional result."""
        Z = (X - self.center) / self.scale
        mean = Z @ self.coef.T + self.intercept
        var = np.stack([np.einsum("ij,ij->i", Z @ cov, Z) for cov in self.cov], axis=1)
        var = np.maximum(var, 0.0)  # rounding
        return _of_columns(mean, var, self.noise_var)


def constant_gaussian(mean: np.ndarray, std: np.ndarray, n_rows: int) -> Predictive:
    """Return the same Gaussian for all rows: the training targets' mean and standard deviation.

    Parameters
    ----------
    mean, std
        Shape (targets,).
    n_rows
        How many rows.

    Examples
    --------
    >>> constant_gaussian(np.array([2.0]), np.array([1.0]), 3).mean.tolist()
    [2.0, 2.0, 2.0]
    """
    means = np.tile(mean, (n_rows, 1))
    return _of_columns(means, np.zeros(means.shape), std**2)


def _of_columns(mean: np.ndarray, var: np.ndarray, noise_var: np.ndarray) -> Predictive:
    """Return Gaussians; one target gives a one-dimensional result."""
    prediction = Predictive.gaussian(mean, var, noise_var)
    return prediction.marginal(0) if mean.shape[1] == 1 else prediction


def scorecard(y: np.ndarray, predictions: Mapping[str, Predictive]) -> Scorecard:
    """Return the scores of several predictions of the same rows, by their names.

    Examples
    --------
    >>> y = np.array([0.0, 1.0, 2.0])
    >>> list(scorecard(y, {CONSTANT: constant_gaussian(np.array([1.0]), np.array([1.0]), 3)}))
    ['constant Gaussian']
    """
    return {name: scores(y, prediction) for name, prediction in predictions.items()}


def verdict(y: np.ndarray, predictions: Mapping[str, Predictive]) -> str:
    """Say in one sentence whether the model beats the better of the simple ones, by NLL.

    The difference is taken row by row and counts as clear beyond two standard errors.

    Parameters
    ----------
    y
        Targets.
    predictions
        Of this model and at least one other.

    Examples
    --------
    >>> y = np.linspace(-1, 1, 50)
    >>> sure = Predictive.gaussian(y, np.zeros(50), 0.01)
    >>> verdict(y, {MODEL: sure, CONSTANT: Predictive.gaussian(0 * y, np.zeros(50), 0.5)})
    'This model is clearly better than the constant Gaussian: NLL lower by 2.30 ± 0.04.'
    """
    losses = {name: -prediction.logpdf(y) for name, prediction in predictions.items()}
    best = min((name for name in losses if name != MODEL), key=lambda name: losses[name].mean())
    gain = losses[best] - losses[MODEL]
    mean = float(gain.mean())
    error = float(gain.std(ddof=1)) / np.sqrt(len(gain))
    by = f"by {abs(mean):.2f} ± {error:.2f}"
    if mean > 2 * error:
        return f"This model is clearly better than the {best}: NLL lower {by}."
    if mean < -2 * error:
        return f"The {best} is clearly better here: NLL lower {by}; use it instead."
    word = "lower" if mean > 0 else "higher"
    return f"No clear difference from the {best}: NLL {word} {by}."
