"""How good predictions of classes are, as numbers, beside what chance allows. NumPy only.

Everywhere ``y`` are the observed labels, shape (n,), and ``prediction`` are `Categories` that know
these labels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from varprop.brief import brief
from varprop.predictive.categories import Categories
from varprop.predictive.diagnostics import chance_range, equal_groups
from varprop.predictive.mixtures import Array, Mask

__all__ = [
    "ROC",
    "Reliability",
    "class_scores",
    "confusion",
    "judge_classes",
    "reliability",
    "roc",
]

_FEW = 10  # rows of which nothing is said


class Reliability(NamedTuple):
    """How often what was stated with some probability came true, in groups of rows.

    Attributes
    ----------
    stated
        Mean stated probability of each group.
    observed
        Share of its rows in which it came true.
    lower, upper
        Where that share falls with the stated probability if the stated ones are right: the range
        of a binomial share, which is a little wide where probabilities of a group differ.
    counts
        Rows per group.
    """

    stated: Array
    observed: Array
    lower: Array
    upper: Array
    counts: Array

    def __repr__(self) -> str:
        """Return sizes in place of large arrays."""
        return brief(self)


class ROC(NamedTuple):
    """What a threshold of the stated probability of a class would find.

    Attributes
    ----------
    false
        Of the rows of other classes, the share above the threshold; from 0 to 1.
    true
        The same of the rows of the class.
    area
        Probability that a row of the class is given a higher probability than one of the others,
        ties counting half; NaN if there are none of either.
    """

    false: Array
    true: Array
    area: float

    def __repr__(self) -> str:
        """Return sizes in place of large arrays."""
        return brief(self)


def _stated(y: Any, prediction: Categories, label: Any) -> tuple[Array, Mask]:
    """Return a stated probability of each row and whether it came true."""
    codes = prediction.codes(y)
    if label is None and prediction.n_classes > 2:
        return prediction.proba.max(axis=1), prediction.proba.argmax(axis=1) == codes
    which = 1 if label is None else int(_code(prediction, label))
    return prediction.proba[:, which], codes == which


def _code(prediction: Categories, label: Any) -> int:
    places = np.flatnonzero(prediction.classes == label)
    if len(places) != 1:
        raise ValueError(f"label must be one of the classes, but is {label!r}.")
    return int(places[0])


def reliability(
    y: Any,
    prediction: Categories,
    *,
    label: Any = None,
    n_bins: int | None = None,
    probability: float = 0.95,
) -> Reliability:
    """Return how often stated probabilities came true.

    Parameters
    ----------
    y, prediction
        Labels and what was predicted.
    label
        The class whose probability is looked at. Unless given the second of two classes, and of
        more the predicted class of each row.
    n_bins
        Groups of equally many rows; about 20 rows in each, at most 10, unless given. Rows with the
        same probability stay together.
    probability
        Of the range that chance allows.

    Examples
    --------
    >>> found = reliability([0, 1, 1, 1], Categories([[0.5, 0.5]] * 4), n_bins=1)
    >>> found.stated.tolist(), found.observed.tolist(), found.upper.tolist()
    ([0.5], [0.75], [1.0])
    """
    stated, true = _stated(y, prediction, label)
    bins = int(np.clip(len(stated) // 20, 1, 10)) if n_bins is None else n_bins
    if bins < 1:
        raise ValueError(f"n_bins must be at least 1, not {n_bins}.")
    groups = equal_groups(stated, bins)
    counts = np.array([rows.sum() for rows in groups], dtype=np.float64)
    mean = np.array([stated[rows].mean() for rows in groups])
    ranges = [chance_range(int(n), p, probability) for n, p in zip(counts, mean, strict=True)]
    lower, upper = (np.array(side) for side in zip(*ranges, strict=True))
    observed = np.array([true[rows].mean() for rows in groups])
    return Reliability(mean, observed, lower, upper, counts)


def roc(y: Any, prediction: Categories, *, label: Any = None) -> ROC:
    """Return the ROC curve of a class against all others.

    Parameters
    ----------
    y, prediction
        Labels and what was predicted.
    label
        The class; the second of two, or the last of more, unless given.

    Examples
    --------
    >>> p = Categories([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]])
    >>> roc([0, 0, 1, 1], p).area
    0.75
    """
    codes = prediction.codes(y)
    which = prediction.n_classes - 1 if label is None else _code(prediction, label)
    stated, own = prediction.proba[:, which], codes == which
    order = np.argsort(-stated, kind="stable")
    last = np.append(np.flatnonzero(np.diff(stated[order])), len(stated) - 1)  # ties move together
    hits = np.append(0, np.cumsum(own[order])[last]).astype(np.float64)
    misses = np.append(0, np.cumsum(~own[order])[last]).astype(np.float64)
    if not hits[-1] or not misses[-1]:
        return ROC(np.array([0.0, 1.0]), np.array([0.0, 1.0]), float("nan"))
    true, false = hits / hits[-1], misses / misses[-1]
    area = float(np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2))
    return ROC(false, true, area)


def confusion(y: Any, prediction: Categories) -> np.ndarray:
    """Count rows by observed class (first axis) and predicted class, shape (c, c).

    Examples
    --------
    >>> confusion([0, 1, 1], Categories([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])).tolist()
    [[1, 0], [1, 1]]
    """
    c = prediction.n_classes
    flat = prediction.codes(y) * c + prediction.proba.argmax(axis=1)
    return np.bincount(flat, minlength=c * c).reshape(c, c)


def calibration_error(y: Any, prediction: Categories, *, n_bins: int = 15) -> float:
    """Return the expected calibration error: the mean distance of stated from observed shares.

    Of the predicted class, in equally wide groups of its probability, weighted by rows.

    Examples
    --------
    >>> calibration_error([0, 1, 1, 1], Categories([[0.5, 0.5]] * 4))
    0.25
    """
    top = prediction.proba.max(axis=1)
    true = prediction.proba.argmax(axis=1) == prediction.codes(y)
    group = np.minimum((top * n_bins).astype(int), n_bins - 1)
    gap = np.bincount(group, top - true, minlength=n_bins)
    return float(np.abs(gap).sum() / len(top))


def class_scores(y: Any, prediction: Categories) -> dict[str, Any]:
    """Return log-loss, accuracy, Brier score and calibration error.

    Examples
    --------
    >>> class_scores([0, 1], Categories([[0.5, 0.5], [0.5, 0.5]]))["accuracy"]
    0.5
    """
    codes = prediction.codes(y)
    missed = prediction.proba - np.eye(prediction.n_classes)[codes]
    return {
        "log-loss": float(-prediction.logpdf(y).mean()),
        "accuracy": float((prediction.proba.argmax(axis=1) == codes).mean()),
        "Brier": float((missed**2).sum(axis=1).mean()),
        "calibration error": calibration_error(y, prediction),
    }


def judge_classes(y: Any, prediction: Categories) -> str:
    """Judge the stated probabilities of predicted classes, once.

    Returns
    -------
    str
        "over" if predictions come true less often than stated, "under" if more often, "shape" if
        some groups of rows do this and some that, "good" if chance allows what is seen, and
        "unknown" with fewer than ten rows. Rows together have a 99 % range, groups 95 % together.

    Examples
    --------
    >>> sure = Categories([[0.99, 0.01]] * 40)
    >>> judge_classes([0, 1] * 20, sure)
    'over'
    """
    n = len(prediction)
    if n < _FEW:
        return "unknown"
    top = prediction.proba.max(axis=1)
    true = prediction.proba.argmax(axis=1) == prediction.codes(y)
    low, high = chance_range(n, top.mean(), 0.99)
    if not low <= true.mean() <= high:
        return "over" if true.mean() < low else "under"
    bins = int(np.clip(n // 20, 1, 10))
    found = reliability(y, prediction, n_bins=bins, probability=1 - 0.05 / bins)
    outside = (found.observed < found.lower) | (found.observed > found.upper)
    return "shape" if outside.any() else "good"
