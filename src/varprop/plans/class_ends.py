"""What becomes of a network's outputs where the target is a class; see `plans.ends`.

Formulas are those of `varprop.learning.likelihoods`, whose docstrings explain them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from varprop.moments.constants import LOGISTIC_P, LOGISTIC_S, SURPRISE_BELLS
from varprop.plans.propagation import Outputs
from varprop.predictive.normal import normal_cdf

# As the likelihoods have them: see there.
_STEPS, _ENDS = 128, 5.5
_FAR_ABOVE, _NOTHING, _OPEN = 1e-3, -1e30, 1e3
_BEYOND = 1e100
_TINY = np.finfo(np.float64).tiny

Numbers = Mapping[str, np.ndarray]


class Probabilities(NamedTuple):
    """What a network says of classes.

    Attributes
    ----------
    weight
        Of the network's parts; there is one.
    probability
        Of every class, shape (rows, classes).
    aleatoric
        Mean entropy given the outputs, shape (rows, 1).
    """

    weight: float
    probability: Any
    aleatoric: Any


def two_numbers(fields: Mapping[str, Any], n_classes: int) -> tuple[Numbers, int]:
    """Return the numbers of `BernoulliLikelihood`, and one output; a ValueError if they are not."""
    offset = np.asarray(fields["offset"], np.float64)
    if n_classes != 2 or offset.shape != () or fields["link"] not in ("logit", "probit"):
        raise ValueError
    return {"offset": offset, "probit": np.array(fields["link"] == "probit")}, 1


def two_classes(out: Outputs, numbers: Numbers) -> list[Probabilities]:
    """Return both probabilities, by either link."""
    signs = np.array([-1.0, 1.0])
    both, var = (out.mean + numbers["offset"]) * signs, out.var * np.ones(2)
    if not numbers["probit"]:
        aleatoric = np.sum(_surprise_mean(-both, var), axis=-1)
        return [Probabilities(1.0, _logistic_mean(both, var), aleatoric[..., None])]

    def entropy(a: Any) -> Any:
        p = normal_cdf(a)
        return _surprise(p) + _surprise(1 - p)

    aleatoric = _averaged(entropy, out.mean + numbers["offset"], out.var)
    return [Probabilities(1.0, normal_cdf(both / np.sqrt(1 + var)), aleatoric)]


def several_numbers(fields: Mapping[str, Any], n_classes: int) -> tuple[Numbers, int]:
    """Return the numbers of `Categorical`, and an output for each class."""
    offset = np.asarray(fields["offset"], np.float64)
    if offset.shape != (n_classes,):
        raise ValueError
    return {"offset": offset}, n_classes


def several_classes(out: Outputs, numbers: Numbers) -> list[Probabilities]:
    """Return the probabilities of `Categorical`."""
    mean, var = _log_odds(out, numbers["offset"])
    every = _logistic_mean(-mean, var)
    total = np.sum(every, axis=-1)[..., None]
    aleatoric = np.sum(_surprise_mean(mean, var), axis=-1)[..., None] / total
    return [Probabilities(1.0, every / total, aleatoric)]


def _log_odds(out: Outputs, offset: np.ndarray) -> tuple[Any, Any]:
    """Return moments of the log-odds against each class, (rows, classes)."""
    mean, var, eye = out.mean + offset, out.var, np.eye(len(offset))
    others = 1 - eye
    top = np.max(mean, axis=-1)[..., None]
    size = np.exp(mean - top)
    far, first = size @ others < _FAR_ABOVE, mean == top
    second = np.max(np.where(first, _NOTHING, mean), axis=-1)[..., None]
    below = np.where(first, 0.0, np.exp(np.where(first, second, mean) - second))

    def over_others(of_all: Any, of_lower: Any) -> Any:
        return np.where(far, np.sum(of_lower, axis=-1)[..., None], of_all @ others)

    rest = over_others(size, below)
    log_odds = np.where(far, second, top) + np.log(rest) - mean
    if out.cov is None:
        of_rest = over_others(np.square(size) * var, np.square(below) * var) / np.square(rest)
        spread = var + of_rest
    else:
        share = np.where(far[..., None], below[:, None], size[:, None] * others) / rest[..., None]
        of_rest = np.sum((share @ out.cov) * share, axis=-1)
        slope = share - eye
        spread = np.sum((slope @ out.cov) * slope, axis=-1)
    curved = np.maximum(over_others(size * var, below * var) / rest - of_rest, 0)
    return log_odds + 0.5 * curved / np.sqrt(1 + curved), np.maximum(spread, 0)


def ordered_numbers(fields: Mapping[str, Any], n_classes: int) -> tuple[Numbers, int]:
    """Return the thresholds of `Ordinal`, and one output."""
    first = np.asarray(fields["first"], np.float64)
    gaps = np.asarray(fields["log_gaps"], np.float64)
    if first.shape != () or gaps.shape != (n_classes - 2,):
        raise ValueError
    return {"thresholds": first + np.cumsum(np.append(0.0, np.exp(gaps)))}, 1


def ordered_classes(out: Outputs, numbers: Numbers) -> list[Probabilities]:
    """Return the probabilities of `Ordinal`."""
    thresholds = numbers["thresholds"]
    lower, upper = np.append(-_BEYOND, thresholds), np.append(thresholds, _BEYOND)

    def between(mean: Any, width: Any) -> Any:
        ends = ((edge - mean) / width for edge in (lower, upper))
        low, high = (np.maximum(np.minimum(end, _OPEN), -_OPEN) for end in ends)
        # On the side where the two are small.
        sign = np.where(low + high > 0, -1.0, 1.0)
        return np.absolute(normal_cdf(sign * high) - normal_cdf(sign * low))

    def entropy(a: Any) -> Any:
        return np.sum(_surprise(between(a[..., None], 1.0)), axis=-1)

    probability = between(out.mean, np.sqrt(1 + out.var))
    return [Probabilities(1.0, probability, _averaged(entropy, out.mean, out.var))]


def _logistic_mean(mean: Any, var: Any) -> Any:
    total: Any = 0.0
    for p, s in zip(LOGISTIC_P, LOGISTIC_S, strict=True):
        total = total + p * normal_cdf(mean * s / np.sqrt(1 + s**2 * var))
    return total


def _surprise_mean(mean: Any, var: Any) -> Any:
    total: Any = 0.0
    for a, c, b in SURPRISE_BELLS:
        wide = var + b
        total = total + a * math.sqrt(b) * np.exp(-0.5 * np.square(mean - c) / wide) / np.sqrt(wide)
    return np.maximum(total, 0.0)


def _surprise(p: Any) -> Any:
    """Return -p log p."""
    return -p * np.log(np.maximum(p, _TINY))


def _averaged(function: Callable[[Any], Any], mean: Any, var: Any) -> Any:
    """Average a function of the one output, (rows, 1), over its distribution."""
    z = np.linspace(-_ENDS, _ENDS, _STEPS)
    w = np.exp(-0.5 * z**2)
    return (function(mean + np.sqrt(var) * z) @ (w / w.sum()))[..., None]
