"""What becomes of a network's outputs: one small rule for each likelihood, by name.

A rule takes the outputs and the likelihood's numbers, and gives the Gaussians that the predictive
distribution mixes, perhaps behind a transform, or the probabilities of classes. One more likelihood
is one more entry of `ENDS` or of `CLASS_ENDS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from varprop.moments.constants import hermite_nodes
from varprop.plans.class_ends import (
    Numbers,
    Probabilities,
    ordered_classes,
    ordered_numbers,
    several_classes,
    several_numbers,
    two_classes,
    two_numbers,
)
from varprop.plans.propagation import Outputs
from varprop.predictive.normal import normal_cdf

# Of the noise's log-variance, to either side of its constant; as `varprop.learning` has it.
_LOG_VAR_BOUND = 6.0
# Of Student's t as a mixture of Gaussians; as `StudentT` has it.
_LEAST_NU, _MOST_NU, _N_NODES, _STEP, _FIRST = 2.0, 200.0, 20, 1.8, 2.0

# Of the odds of a power, as `YeoJohnsonLikelihood` has it.
_MOST_ODDS = 15.0


class Component(NamedTuple):
    """One Gaussian of the targets, in standardized units.

    Attributes
    ----------
    weight
        Those of a network sum to 1.
    mean, var
        Of the targets without noise, shape (rows, d).
    cov
        Their covariance, (rows, d, d), where it is modeled.
    noise
        Variance of the noise, (d,) or (rows, d).
    power
        Of the transform of Yeo and Johnson behind which the targets are Gaussian, (d,), if any.
    """

    weight: float
    mean: Any
    var: Any
    cov: Any
    noise: Any
    power: np.ndarray | None = None


class End(NamedTuple):
    """What is done for a likelihood.

    Attributes
    ----------
    numbers
        Takes its fields and the number of targets (or classes), returns what `parts` needs, and how
        many outputs a network must have; a ValueError if the fields do not fit.
    parts
        Takes outputs and these numbers, returns what is predicted.
    """

    numbers: Callable[[Mapping[str, Any], int], tuple[Numbers, int]]
    parts: Callable[[Outputs, Numbers], Sequence[Component | Probabilities]]


def _gaussian_numbers(fields: Mapping[str, Any], d: int) -> tuple[Numbers, int]:
    numbers = _in_shape(fields, d, "log_std")
    floor = numbers.get("floor", np.zeros(()))
    return {"noise_var": np.exp(2 * numbers["log_std"]) + np.square(floor)}, d


def _gaussian(out: Outputs, numbers: Numbers) -> list[Component]:
    return [Component(1.0, *out, numbers["noise_var"])]


def _student_numbers(fields: Mapping[str, Any], d: int) -> tuple[Numbers, int]:
    """Weights and variances of the Gaussians that the t-distribution is taken as."""
    numbers = _in_shape({k: v for k, v in fields.items() if k != "shape"}, d, "log_scale")
    odds = float(np.asarray(fields["shape"]))
    half = 0.5 * (_LEAST_NU + (_MOST_NU - _LEAST_NU) * 0.5 * (1 + math.tanh(0.5 * odds)))
    step, places = _STEP / math.sqrt(half + 1.5), np.arange(_N_NODES)
    log = _FIRST / math.sqrt(half) - step * places
    precision = np.exp(log)
    log_weight = half * (log - precision)
    log_weight[-1] -= math.log(-math.expm1(-half * step))
    weight = np.exp(log_weight - log_weight.max())
    square = np.exp(2 * numbers["log_scale"]) + np.square(numbers.get("floor", np.zeros(())))
    return {"weight": weight / weight.sum(), "noise_var": square / precision[:, None]}, d


def _student(out: Outputs, numbers: Numbers) -> list[Component]:
    pairs = zip(numbers["weight"].tolist(), numbers["noise_var"], strict=True)
    return [Component(weight, *out, noise) for weight, noise in pairs]


def _heteroscedastic_numbers(fields: Mapping[str, Any], d: int) -> tuple[Numbers, int]:
    return _in_shape(fields, d, "log_std"), 2 * d


def _heteroscedastic(out: Outputs, numbers: Numbers) -> list[Component]:
    """Half of the outputs are means, the others say how the noise's log-variance differs."""
    d = len(numbers["log_std"])
    mean, at, at_var = out.mean[:, :d], out.mean[:, d:], out.var[:, d:]
    c = 0.5 * math.sqrt(math.pi) / _LOG_VAR_BOUND
    wide = 1 / np.sqrt(1 + 2 * c**2 * at_var)
    at = c * at * wide
    slope = np.exp(-np.square(at)) * wide
    middle = 2 * normal_cdf(at * math.sqrt(2)) - 1
    size = np.absolute(middle)
    ends = np.log(0.5 * (1 + size) + 0.5 * (1 - size) * math.exp(-2 * _LOG_VAR_BOUND))
    most = 2 * np.maximum(ends + _LOG_VAR_BOUND * (1 - size), 1e-6)
    log_var = _LOG_VAR_BOUND * middle + 2 * numbers["log_std"]
    noise = np.exp(log_var + 0.5 * np.minimum(np.square(slope) * at_var, most))
    if "floor" in numbers:
        noise = noise + np.square(numbers["floor"])
    cov = None if out.cov is None or d == 1 else out.cov[:, :d, :d]
    return [Component(1.0, mean, out.var[:, :d], cov, noise)]


def _transformed_numbers(fields: Mapping[str, Any], d: int) -> tuple[Numbers, int]:
    """Take the noise of the Gaussian behind the transform, and the power."""
    odds = np.asarray(fields["odds"], np.float64)
    kind, inner = fields["noise"]
    if kind != "GaussianLikelihood" or odds.shape != (d,):
        raise ValueError("these are no numbers of a transform")
    numbers, n_outputs = _gaussian_numbers(inner, d)
    odds = np.clip(odds, -_MOST_ODDS, _MOST_ODDS)
    return {**numbers, "power": 1 + np.tanh(0.5 * odds)}, n_outputs


def _transformed(out: Outputs, numbers: Numbers) -> list[Component]:
    return [Component(1.0, *out, numbers["noise_var"], numbers["power"])]


def target_moments(part: Component) -> tuple[Any, Any]:
    """Return mean and variance, with noise, of the targets of a component, in standardized units.

    Behind a transform by the Gauss-Hermite rule that `warps.hermite_moments` has.
    """
    var = part.var + part.noise
    if part.power is None:
        return part.mean, var
    nodes, weights = hermite_nodes(64)
    z = part.mean[..., None] + np.sqrt(var)[..., None] * nodes
    size, power = np.absolute(z), part.power[:, None]
    x = np.where(z < 0, 2.0 - power, power) * size
    none = x < 1e-150
    ratio = np.where(none, 1.0, np.log1p(x) / np.where(none, 1.0, x))
    values = np.sign(z) * np.expm1(size * ratio)
    mean = values @ weights
    return mean, np.square(values - mean[..., None]) @ weights


def _in_shape(fields: Mapping[str, Any], d: int, needed: str) -> dict[str, np.ndarray]:
    """Return the numbers of a likelihood: an entry per target, of a floor perhaps one for all."""
    found = {k: np.asarray(v, np.float64) for k, v in fields.items() if v is not None}
    for name, value in found.items():
        if value.shape != (d,) and not (name == "floor" and value.shape == ()):
            raise ValueError(f"{name} has shape {value.shape}")
    if needed not in found:
        raise ValueError(f"{needed} is missing")
    return found


#: By the class's name in a model file.
ENDS: dict[str, End] = {
    "GaussianLikelihood": End(_gaussian_numbers, _gaussian),
    "HeteroscedasticGaussian": End(_heteroscedastic_numbers, _heteroscedastic),
    "StudentT": End(_student_numbers, _student),
    "YeoJohnsonLikelihood": End(_transformed_numbers, _transformed),
}
#: The same, where the target is a class.
CLASS_ENDS: dict[str, End] = {
    "BernoulliLikelihood": End(two_numbers, two_classes),
    "Categorical": End(several_numbers, several_classes),
    "Ordinal": End(ordered_numbers, ordered_classes),
}
