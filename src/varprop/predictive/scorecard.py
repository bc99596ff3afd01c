"""How good a predictive distribution is, beside two simple ones."""

from __future__ import annotations

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


def scorecard(y: np.ndarray, predictions: Mapping[str, Predictive]) -> Scorecard:
    """Return the scores of several predictions of the same rows, by their names.

    Examples
    --------
    >>> y = np.array([0.0, 1.0, 2.0])
    >>> list(scorecard(y, {CONSTANT: Predictive.gaussian(0 * y + 1, 0 * y, 1.0)}))
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
