"""How good predicted probabilities of classes are: scores and calibration.

Every function takes labels of shape ``(n,)`` and a `Categories` of as many rows.
``sample_weight`` of shape ``(n,)`` weighs rows: a weight of 2 counts a row twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from varprop.predictive.categories import Categories
from varprop.predictive.checks import as_weights
from varprop.predictive.mixtures import Array, ArrayLike

__all__ = [
    "accuracy",
    "brier",
    "calibration_error",
    "calibration_error_debiased",
    "log_loss",
    "roc_auc",
]


def _share(prediction: Categories, sample_weight: ArrayLike | None) -> Array:
    """Return what each row counts, with sum 1."""
    if not isinstance(prediction, Categories):
        raise TypeError(f"prediction must be Categories, not {type(prediction).__name__}.")
    n = prediction.n_rows
    weight = np.ones(n) if sample_weight is None else as_weights(sample_weight, "weights", (n,))
    return weight / weight.sum()


def log_loss(
    y_true: Any, prediction: Categories, *, sample_weight: ArrayLike | None = None
) -> float:
    """Mean negative log probability of the labels; lower is better, infinite where it was 0.

    Examples
    --------
    >>> round(log_loss([1], Categories([[0.5, 0.5]])), 4)
    0.6931
    """
    return float(-_share(prediction, sample_weight) @ prediction.logpdf(y_true))


def accuracy(
    y_true: Any, prediction: Categories, *, sample_weight: ArrayLike | None = None
) -> float:
    """Share of rows whose most probable class is theirs.

    Examples
    --------
    >>> accuracy([1, 1], Categories([[0.4, 0.6], [0.9, 0.1]]))
    0.5
    """
    right = prediction.proba.argmax(axis=1) == prediction.codes(y_true)
    return float(_share(prediction, sample_weight) @ right)


def brier(y_true: Any, prediction: Categories, *, sample_weight: ArrayLike | None = None) -> float:
    """Mean of ``sum_k (p_k - [y = k])^2``, between 0 and 2; lower is better.

    Examples
    --------
    >>> brier([1], Categories([[0.5, 0.5]]))
    0.5
    """
    error = prediction.proba - np.eye(prediction.n_classes)[prediction.codes(y_true)]
    return float(_share(prediction, sample_weight) @ np.sum(error**2, axis=1))


def calibration_error(
    y_true: Any,
    prediction: Categories,
    *,
    n_bins: int = 15,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Calibration error (ECE) of the most probable class.

    Rows are put into bins of equal width by the probability of their most probable class; in each,
    the mean of this is compared with the share of rows that have the class. The mean over bins is
    above 0 for a perfect prediction too, by the chance of few rows: see
    `calibration_error_debiased`.

    Examples
    --------
    >>> round(calibration_error([1, 1], Categories([[0.2, 0.8], [0.2, 0.8]])), 4)
    0.2
    """
    top = prediction.proba.max(axis=1)
    right = prediction.proba.argmax(axis=1) == prediction.codes(y_true)
    share = _share(prediction, sample_weight)
    where = _bins(top, n_bins)
    return float(np.abs(np.bincount(where, share * (right - top))).sum())


def calibration_error_debiased(y_true: Any, prediction: Categories, *, n_bins: int = 15) -> float:
    """Root mean square calibration error of all classes, less what chance alone would give.

    Each class's probability is put into bins of equal width; the squared difference between its
    mean and the share of rows of the class is lessened by that share's variance (Kumar et al.,
    2019). It is 0 where nothing but chance is seen.

    Examples
    --------
    >>> calibration_error_debiased([0, 1, 0, 1], Categories(np.full((4, 2), 0.5)))
    0.0
    """
    observed = np.eye(prediction.n_classes)[prediction.codes(y_true)]
    total = 0.0
    for p, seen in zip(prediction.proba.T, observed.T, strict=True):
        where = _bins(p, n_bins)
        count = np.bincount(where)
        kept = count > 1  # one row has no variance to take off
        count = count[kept]
        found, stated = (np.bincount(where, v)[kept] / count for v in (seen, p))
        square = (found - stated) ** 2 - found * (1 - found) / (count - 1)
        total += float(count @ square) / len(p)
    return float(np.sqrt(max(total / prediction.n_classes, 0.0)))


def _bins(p: Array, n_bins: int) -> np.ndarray:
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, but is {n_bins}.")
    return np.minimum((p * n_bins).astype(int), n_bins - 1)


def roc_auc(
    y_true: Any, prediction: Categories, *, sample_weight: ArrayLike | None = None
) -> float:
    """Area under the ROC curve, one class against the rest and averaged; needs scikit-learn.

    Examples
    --------
    >>> float(roc_auc([0, 1], Categories([[0.7, 0.3], [0.4, 0.6]])))
    1.0
    """
    from sklearn.metrics import roc_auc_score

    codes, proba = prediction.codes(y_true), prediction.proba
    if prediction.n_classes == 2:
        return float(roc_auc_score(codes, proba[:, 1], sample_weight=sample_weight))
    areas = [
        roc_auc_score(codes == k, proba[:, k], sample_weight=sample_weight)
        for k in np.unique(codes)
    ]
    return float(np.mean(areas))
