"""Moments of activations in NumPy, by name: the same rules as in `varprop.nn`, without JAX.

All of it is float64 and uses only functions that NumPy hands on to other kinds of arrays, so that
the export to ONNX runs the very same lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from varprop.moments.constants import (
    INV_SQRT_2PI,
    LOGISTIC_NODES,
    LOGISTIC_P,
    LOGISTIC_S,
    hermite_nodes,
    legendre_nodes,
)
from varprop.plans.steps import Elementwise, Operand, PlanError, Program, Quadrature, Traced
from varprop.predictive.normal import mills, normal_cdf

_TINY = float(np.finfo(np.float64).tiny)


class Partials(NamedTuple):
    """Moments after a function, and their derivatives, as `varprop.nn.contract.Partials` has them.

    Attributes
    ----------
    mean, var
        Of f(x).
    slope, bend
        Derivatives of the mean by the mean and by the variance of x.
    tilt, gain
        Those of the variance.
    """

    mean: Any
    var: Any
    slope: Any
    bend: Any
    tilt: Any
    gain: Any


class Rule(NamedTuple):
    """What is known of an activation.

    Attributes
    ----------
    plain
        Maps x to f(x).
    partials
        Maps mean and variance of x to those of f(x) and their derivatives.
    """

    plain: Callable[[Any], Any]
    partials: Callable[[Any, Any], Partials]


def rule_of(step: Elementwise) -> Rule:
    """Return the rule of a step."""
    if isinstance(step, Traced):
        known, uncertain = step.known, step.uncertain
        return Rule(
            lambda x: run(known, x)[0], lambda mean, var: Partials(*run(uncertain, mean, var))
        )
    if isinstance(step, Quadrature):
        both, nodes = step.function, (step.nodes, step.weights)
        return Rule(
            lambda x: run(both, x)[0],
            lambda mean, var: _at_nodes(lambda x: run(both, x), mean, var, nodes),
        )
    if step.name not in RULES:
        raise PlanError(f"there is no rule for the activation {step.name!r}.")
    return RULES[step.name](step.numbers)


# ---- rectifiers ---------------------------------------------------------------------------------


def _tail(mean: Any, var: Any) -> tuple[Any, Any, Any]:
    """Return Phi(-x) and phi(x) / std for x = |mean| / std, and the mean of what lies beyond 0."""
    inv_std = 1 / np.sqrt(np.maximum(var, _TINY))
    x = np.abs(mean * inv_std)
    ratio, bell = mills(x)
    density = bell * INV_SQRT_2PI
    # 1 - x R loses at most x^2 units of the last digit, where the bell is as small.
    return density * ratio, density * inv_std, var * inv_std * density * (1 - x * ratio)


def _rectifier(mean: Any, var: Any) -> Partials:
    mass, density, beyond = _tail(mean, var)
    positive = mean > 0
    out_mean = np.maximum(mean, 0) + beyond
    above, below = np.where(positive, 1 - mass, mass), np.where(positive, mass, 1 - mass)
    return Partials(
        out_mean,
        np.maximum(var * above - beyond * (np.abs(mean) + beyond), 0),
        above,
        np.where(var > 0, 0.5 * density, 0.0),
        2 * out_mean * below,
        np.where(var > 0, above - out_mean * density, above),
    )


def _leaky(numbers: Mapping[str, float]) -> Rule:
    slope = numbers["negative_slope"]

    def partials(mean: Any, var: Any) -> Partials:
        up, down = _rectifier(mean, var), _rectifier(-mean, var)
        out_var = up.var + slope**2 * down.var + 2 * slope * up.mean * down.mean
        crossed = up.slope * down.mean - up.mean * down.slope
        return Partials(
            up.mean - slope * down.mean,
            np.maximum(out_var, 0),
            up.slope + slope * down.slope,
            up.bend - slope * down.bend,
            up.tilt - slope**2 * down.tilt + 2 * slope * crossed,
            up.gain
            + slope**2 * down.gain
            + 2 * slope * (up.bend * down.mean + up.mean * down.bend),
        )

    return Rule(lambda x: np.where(x > 0, x, slope * x), partials)


def _step(mean: Any, var: Any) -> Partials:
    mass, density, _ = _tail(mean, var)
    known, positive = var <= 0, mean > 0
    far = np.where(known, 0.0, mass)
    above, slope = np.where(positive, 1 - far, far), np.where(known, 0.0, density)
    bend = slope * mean / np.where(known, -1.0, -2 * var)
    return Partials(
        above, far * (1 - far), slope, bend, (1 - 2 * above) * slope, (1 - 2 * above) * bend
    )


# ---- smooth functions ---------------------------------------------------------------------------


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _erf(x: Any) -> Any:
    return 2 * normal_cdf(x * math.sqrt(2)) - 1


def _erf_partials(mean: Any, var: Any) -> Partials:
    wide = 1 / np.sqrt(1 + 2 * var)
    at, k = mean * wide, 1 / np.sqrt(1 + 4 * var)
    length = 4 * var / ((1 + 4 * var) * (1 + k))
    nodes, weights = legendre_nodes(24)
    square = np.square(k[..., None] + nodes * length[..., None]) + 1
    total = (np.exp(-np.square(at)[..., None] * square) / square) @ weights
    slope = (2 / math.sqrt(math.pi)) * np.exp(-np.square(at)) * wide
    bend = -at * wide * slope
    # Times a bell, a Gaussian stays one: E[f f'] = E[f'] erf(at k).
    out, ahead = _erf(at), _erf(at * k)
    steep = (2 / math.sqrt(math.pi)) * k * wide * np.exp(-np.square(at * k))
    return Partials(
        out,
        (4 / math.pi) * length * total,
        slope,
        bend,
        2 * slope * (ahead - out),
        2 * bend * (ahead - out) + slope * steep,
    )


def _at_nodes(
    function: Callable[[Any], Sequence[Any]], mean: Any, var: Any, nodes: tuple[Any, Any]
) -> Partials:
    """Return moments by sums over nodes, given a function with its derivative."""
    z, w = nodes
    std = np.sqrt(var)
    plain = function(mean)[0]
    values, slopes = function(mean[..., None] + std[..., None] * z)
    values = values - plain[..., None]
    change = values @ w
    values = values - change[..., None]
    # The nodes move with the standard deviation, whose derivative by the variance is 1 / (2 std).
    half = np.where(var > 0, 0.5, 0.0) / np.where(var > 0, std, 1.0)
    return Partials(
        plain + change,
        np.square(values) @ w,
        slopes @ w,
        (slopes @ (w * z)) * half,
        2 * ((values * slopes) @ w),
        2 * ((values * slopes) @ (w * z)) * half,
    )


def _sigmoid_and_slope(x: Any) -> tuple[Any, Any]:
    value = _sigmoid(x)
    return value, value * (1 - value)


def _logistic(mean: Any, var: Any) -> Partials:
    """As `varprop.nn.activations` has it: by quadrature if var < 1, else by a mixture of Phi."""
    small = var < 1
    near = _at_nodes(
        _sigmoid_and_slope, mean, np.where(small, var, 0.0), hermite_nodes(LOGISTIC_NODES)
    )
    wide = np.where(small, 1.0, var)
    far = slope = bend = third = 0.0
    for p, s in zip(LOGISTIC_P, LOGISTIC_S, strict=True):
        shrink = s / np.sqrt(1 + s**2 * wide)
        r = mean * shrink
        bell = p * INV_SQRT_2PI * shrink * np.exp(-0.5 * np.square(r))
        far, slope, bend = far + p * normal_cdf(r), slope + bell, bend - 0.5 * r * shrink * bell
        third = third + 0.5 * np.square(shrink) * (np.square(r) - 1) * bell
    # E f^2 = E f - E f'; derivatives by the variance are half of the second ones by the mean.
    parts = Partials(
        far,
        np.maximum(far * (1 - far) - slope, 0),
        slope,
        bend,
        (1 - 2 * far) * slope - 2 * bend,
        (1 - 2 * far) * bend - third,
    )
    return Partials(*(np.where(small, a, b) for a, b in zip(near, parts, strict=True)))


def _tanh(mean: Any, var: Any) -> Partials:
    half = _logistic(2 * mean, 4 * var)
    return Partials(
        2 * half.mean - 1,
        4 * half.var,
        4 * half.slope,
        8 * half.bend,
        8 * half.tilt,
        16 * half.gain,
    )


def _gelu(x: Any) -> tuple[Any, Any]:
    below = normal_cdf(x)
    return x * below, below + x * np.exp(-0.5 * np.square(x)) * INV_SQRT_2PI


def _silu(x: Any) -> tuple[Any, Any]:
    below = _sigmoid(x)
    return x * below, below * (1 + x * (1 - below))


def _softplus(x: Any) -> tuple[Any, Any]:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), _sigmoid(x)


def _hermite(function: Callable[[Any], tuple[Any, Any]]) -> Callable[[Mapping[str, float]], Rule]:
    def rule(numbers: Mapping[str, float]) -> Rule:
        nodes = hermite_nodes(int(numbers["n_nodes"]))
        return Rule(lambda x: function(x)[0], lambda m, v: _at_nodes(function, m, v, nodes))

    return rule


def _always(plain: Any, partials: Any) -> Callable[[Mapping[str, float]], Rule]:
    return lambda numbers: Rule(plain, partials)


def _identity(mean: Any, var: Any) -> Partials:
    one, none = np.ones_like(mean), np.zeros_like(mean)
    return Partials(mean, var, one, none, none, one)


#: By the class's name in a model file.
RULES: dict[str, Callable[[Mapping[str, float]], Rule]] = {
    "Identity": _always(lambda x: x, _identity),
    "ReLU": _always(lambda x: np.maximum(x, 0), _rectifier),
    "LeakyReLU": _leaky,
    "Heaviside": _always(lambda x: np.where(x > 0, 1.0, 0.0), _step),
    "Erf": _always(_erf, _erf_partials),
    "Sigmoid": _always(_sigmoid, _logistic),
    "Tanh": _always(np.tanh, _tanh),
    "GELU": _hermite(_gelu),
    "SiLU": _hermite(_silu),
    "Softplus": _hermite(_softplus),
}


# ---- users' own functions -----------------------------------------------------------------------

#: What programs are made of.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "and": np.logical_and,
    "cos": np.cos,
    "div": np.true_divide,
    "eq": np.equal,
    "erf": _erf,
    "exp": np.exp,
    "expm1": np.expm1,
    "float": lambda x: np.where(x, 1.0, 0.0),
    "floor": np.floor,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "log": np.log,
    "log1p": np.log1p,
    "logistic": _sigmoid,
    "lt": np.less,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "ne": np.not_equal,
    "neg": np.negative,
    "not": np.logical_not,
    "or": np.logical_or,
    "pow": np.power,
    "select": np.where,
    "sign": np.sign,
    "sin": np.sin,
    "sqrt": np.sqrt,
    "square": np.square,
    "sub": np.subtract,
    "tanh": np.tanh,
}


def run(program: Program, *given: Any) -> list[Any]:
    """Run a program on arrays of one shape.

    Examples
    --------
    >>> run(Program((("mul", (0, 0)), ("add", (1, 0.5))), (2,)), np.array([3.0]))[0].tolist()
    [9.5]
    """
    values = list(given)

    def read(operand: Operand) -> Any:
        return values[operand] if isinstance(operand, int) else operand

    for name, operands in program.operations:
        values.append(OPERATIONS[name](*map(read, operands)))
    # A result that depends on nothing still has an entry for each of what was given.
    return [read(result) + np.zeros_like(given[0]) for result in program.results]
