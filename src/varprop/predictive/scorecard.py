"""How good a predictive distribution is, beside two simple ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from varprop.predictive import metrics
from varprop.predictive.distribution import Predictive
from varprop.predictive.mixtures import safe_unit

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


@dataclasses.dataclass(frozen=True, repr=False)
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
        Posterior covariance of the coefficients, shape (targets, features, features). Of targets
        so large or small that squares are no numbers, `noise_var` and `cov` are in squares of the
        power of two at the largest of coefficients and intercept.

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

        center, scale = _mean_and_std(X)
        Z = (X - center) / scale
        shift, spread = _mean_and_std(y)
        # Its priors are not scale-free: standardized targets are what they are meant for.
        fits = [BayesianRidge().fit(Z, target) for target in ((y - shift) / spread).T]
        coef, intercept, precision, cov = (
            np.array([getattr(fit, name) for fit in fits], np.float64)
            for name in ("coef_", "intercept_", "alpha_", "sigma_")
        )
        coef, intercept = coef * spread[:, None], intercept * spread + shift
        square = (spread / _unit(coef, intercept)) ** 2
        return cls(center, scale, coef, intercept, square / precision, cov * square[:, None, None])

    def predict_dist(self, X: np.ndarray) -> Predictive:
        """Return the predictive distribution; one target gives a one-dimensional result."""
        Z = (X - self.center) / self.scale
        unit = _unit(self.coef, self.intercept)
        mean = Z @ (self.coef / unit[:, None]).T + self.intercept / unit
        var = np.stack([np.einsum("ij,ij->i", Z @ cov, Z) for cov in self.cov], axis=1)
        var = np.maximum(var, 0.0)  # rounding
        return _of_columns(mean, var, self.noise_var, unit)

    def __repr__(self) -> str:
        """Return sizes, not values."""
        targets, features = self.coef.shape
        return f"LinearModel(n_features={features}, n_targets={targets})"


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
    unit = safe_unit(std)
    means = np.tile(mean / unit, (n_rows, 1))
    return _of_columns(means, np.zeros(means.shape), (std / unit) ** 2, unit)


def _mean_and_std(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both for every column; a constant one has a standard deviation of 1."""
    size = np.abs(values).max(axis=0)  # so that no square overflows or vanishes
    size = np.where(safe_unit(size) != 1.0, size, 1.0)
    std = size * (values / size).std(axis=0)
    return size * (values / size).mean(axis=0), np.where(std > 0, std, 1.0)


def _unit(coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Return what variances are in squares of: 1 unless targets are very large or small."""
    return safe_unit(np.maximum(np.abs(coef).max(axis=-1), np.abs(intercept)))


def _of_columns(
    mean: np.ndarray, var: np.ndarray, noise_var: np.ndarray, unit: np.ndarray
) -> Predictive:
    """Return Gaussians; one target gives a one-dimensional result."""
    prediction = Predictive.gaussian(mean, var, noise_var).times(unit)
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
