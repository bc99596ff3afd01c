"""Export to ONNX: one graph from raw features to mean and spread, scaling included.

The moments are propagated by the same closed forms as in `varprop.nn`; there is nothing to sample,
so the graph is an ordinary one and runs wherever an ONNX runtime does.
"""

from __future__ import annotations

import functools
import operator
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import onnx

from varprop import nn
from varprop.estimators.members import member_dtype, noise_var, to_jax
from varprop.estimators.regressor import FAWNRegressor
from varprop.files.onnx_graph import Graph, Value
from varprop.learning.model import Model
from varprop.moments.gaussian import Gaussian
from varprop.moments.numerics import _TAIL_32, _TAIL_64, INV_SQRT_2PI, hermite_nodes, legendre_nodes
from varprop.nn.activations import _LOGISTIC_NODES, _LOGISTIC_P, _LOGISTIC_S
from varprop.nn.layers import AbstractDense
from varprop.nn.noise import AbstractAdditive, AbstractMultiplicative


class _Moments(NamedTuple):
    """What flows through the graph; var is None for known values, cov only at the very end."""

    mean: Value
    var: Value | None
    cov: Value | None = None


def export_onnx(model: FAWNRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted regressor as an ONNX model; see `FAWNRegressor.to_onnx`."""
    pathlib.Path(path).write_bytes(to_onnx(model).SerializeToString())


def to_onnx(model: FAWNRegressor) -> onnx.ModelProto:
    """Return a fitted regressor as a checked ONNX model.

    Raises
    ------
    ValueError
        Naming the activation, if it is one that runs a Python function.
    """
    graph = Graph()
    X = graph.input("X", np.float64)
    scaling = model.scaling_
    # In double: a feature far from zero would lose its digits in the network's precision.
    scaled = (X - scaling.x_shift) / scaling.x_scale
    parts = [_member(member, scaled) for member in model.members_]
    outputs = _mixture(parts, joint=parts[0].cov is not None)
    mean = outputs.mean * scaling.y_scale + scaling.y_shift
    assert outputs.var is not None
    std = outputs.var.apply("Sqrt") * scaling.y_scale
    d = model.n_outputs_
    named: dict[str, tuple[Value, list[Any]]] = {
        "mean": (mean, ["rows", d]),
        "std": (std, ["rows", d]),
    }
    if outputs.cov is not None:
        named["cov"] = (outputs.cov * np.outer(scaling.y_scale, scaling.y_scale), ["rows", d, d])
    names = getattr(model, "feature_names_in_", None)
    metadata = {} if names is None else {"feature_names": "\n".join(map(str, names))}
    if model.target_names_ is not None:
        metadata["target_names"] = "\n".join(model.target_names_)
    out = graph.model(
        {"X": ["rows", model.n_features_in_]},
        named,
        doc="Mean and standard deviation (model and noise together) of the target, by row.",
        metadata=metadata,
    )
    onnx.checker.check_model(out, full_check=True)
    return out


def _member(member: Model, scaled: Value) -> _Moments:
    """Return one member's moments of the target, noise included, in standardized double units."""
    dtype = member_dtype(member)
    state = _Moments(scaled.cast(dtype), None)
    with jax.enable_x64(dtype == np.float64):
        network = to_jax(member.network)
        layers = network.layers if isinstance(network, nn.Sequential) else (network,)
        for layer in layers:
            state = _layer(layer, state)
    noise = noise_var(member)
    mean = state.mean.cast(np.float64)
    if state.cov is not None:
        cov = state.cov.cast(np.float64) + np.diag(noise)
        assert state.var is not None
        return _Moments(mean, state.var.cast(np.float64) + noise, cov)
    var = mean * 0.0 + noise if state.var is None else state.var.cast(np.float64) + noise
    return _Moments(mean, var)


def _mixture(parts: list[_Moments], *, joint: bool) -> _Moments:
    """Return the moments of the equal mixture of the members."""
    if len(parts) == 1:
        return parts[0]
    share = 1 / len(parts)
    mean = _sum([part.mean for part in parts]) * share
    apart = [part.mean - mean for part in parts]
    var = _sum([a * a + part.var for part, a in zip(parts, apart, strict=True)]) * share
    cov = None
    if joint:
        # (rows, d, 1) @ (rows, 1, d) is the outer product of every row with itself.
        outer = [a.last_axis() @ _transposed(a.last_axis()) for a in apart]
        cov = _sum([o + part.cov for part, o in zip(parts, outer, strict=True)]) * share
    return _Moments(mean, var, cov)


def _sum(values: list[Value]) -> Value:
    return functools.reduce(operator.add, values)


def _transposed(value: Value) -> Value:
    return value.graph.node("Transpose", [value], perm=[0, 2, 1])


# ---- layers -------------------------------------------------------------------------------------


def _layer(layer: Any, x: _Moments) -> _Moments:
    if isinstance(layer, AbstractDense):
        return _dense(layer, x)
    if isinstance(layer, AbstractAdditive):
        noise = layer.eps.moments()
        return _Moments(x.mean + np.asarray(noise.mean), _plus(x.var, x.mean, noise.var))
    if isinstance(layer, AbstractMultiplicative):
        return _multiplied(x, layer.eps.moments())
    rule = _RULES.get(type(layer))
    if rule is None:
        raise ValueError(
            f"{type(layer).__name__} runs Python code and cannot be written as ONNX; these can: "
            + ", ".join(kind.__name__ for kind in _RULES)
            + "."
        )
    plain, uncertain = rule
    if x.var is None:
        return _Moments(plain(layer, x.mean), None)
    return _Moments(*uncertain(layer, x.mean, x.var))


def _plus(var: Value | None, like: Value, extra: Any) -> Value | None:
    if extra is None:
        return var
    return (like * 0.0 if var is None else var) + np.asarray(extra)


def _multiplied(x: _Moments, by: Gaussian) -> _Moments:
    mean, var = np.asarray(by.mean), 0.0 if by.var is None else np.asarray(by.var)
    out = x.mean * x.mean * var
    if x.var is not None:
        out = out + x.var * (mean**2 + var)
    return _Moments(x.mean * mean, out)


def _dense(layer: AbstractDense, x: _Moments) -> _Moments:
    weight = layer.weight.moments()
    if layer.weight_noise is not None:
        weight = layer.weight_noise.moments(weight)
    bias = None if layer.bias is None else layer.bias.moments()
    if bias is not None and layer.bias_noise is not None:
        bias = layer.bias_noise.moments(bias)
    w = np.asarray(weight.mean)
    w_var = None if weight.var is None else np.asarray(weight.var)
    mean = x.mean @ w.T
    square = x.mean * x.mean
    joint = isinstance(layer, nn.JointDense)
    own = None  # what the weights' own variance contributes: independent from output to output
    if w_var is not None:
        second = square if x.var is None else square + x.var
        own = (second if joint else square) @ w_var.T
    if bias is not None:
        mean = mean + np.asarray(bias.mean)
        own = _plus(own, mean, bias.var)
    if joint:
        return _joint(mean, own, x.var, w)
    if x.var is not None:
        shared = x.var @ (w**2 if w_var is None else w**2 + w_var).T
        own = shared if own is None else own + shared
    return _Moments(mean, own)


def _joint(mean: Value, own: Value | None, x_var: Value | None, w: np.ndarray) -> _Moments:
    d, n = w.shape
    diagonal = mean * 0.0 if own is None else own
    cov = diagonal.last_axis() * np.eye(d)
    if x_var is None:
        return _Moments(mean, diagonal, cov)
    outer = np.einsum("dn,en->nde", w, w).reshape(n, d * d)
    cov = cov + (x_var @ outer).reshape([-1, d, d])
    return _Moments(mean, diagonal + x_var @ (w**2).T, cov)


# ---- activations --------------------------------------------------------------------------------
# These follow varprop.moments.numerics and varprop.nn.activations formula by formula; tests compare them.


def _polynomial(coefficients: tuple[float, ...], x: Value) -> Value:
    value: Any = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        value = x * value + coefficient
    return value


def _tail(mean: Value, var: Value) -> tuple[Value, Value, Value]:
    """Probability beyond zero, its mean's contribution, and where the mean is positive."""
    fit = _TAIL_64 if mean.dtype == np.float64 else _TAIL_32
    std = var.maximum(float(np.finfo(mean.dtype).tiny)).apply("Sqrt")
    x = (mean / std).apply("Abs").minimum(fit["x_max"])
    bell = (x * x * -0.5).apply("Exp") * INV_SQRT_2PI
    denominator = _polynomial(fit["D"], x)
    mass = bell * _polynomial(fit["R"], x) / denominator
    excess = (var / std) * bell * _polynomial(fit["M"], x) / denominator
    return mass, excess, mean > 0.0


def _normal_cdf(r: Value) -> Value:
    """Return Phi(r) for any r; the runtimes' own Erf is single precision only."""
    mass, _, positive = _tail(r, r * 0.0 + 1.0)
    return positive.choose(1.0 - mass, mass)


def _relu(layer: Any, mean: Value, var: Value) -> tuple[Value, Value]:
    mass, excess, positive = _tail(mean, var)
    out = mean.maximum(0.0) + excess
    kept = positive.choose(1.0 - mass, mass)
    return out, (var * kept - excess * (mean.apply("Abs") + excess)).maximum(0.0)


def _leaky(layer: Any, mean: Value, var: Value) -> tuple[Value, Value]:
    slope = float(layer.negative_slope)
    up, up_var = _relu(layer, mean, var)
    down, down_var = _relu(layer, -mean, var)
    spread = up_var + slope**2 * down_var + (2 * slope) * up * down
    return up - slope * down, spread.maximum(0.0)


def _step(layer: Any, mean: Value, var: Value) -> tuple[Value, Value]:
    mass, _, positive = _tail(mean, var)
    mass = (var > 0.0).choose(mass, 0.0)
    return positive.choose(1.0 - mass, mass), mass * (1.0 - mass)


def _erf(layer: Any, mean: Value, var: Value) -> tuple[Value, Value]:
    h_squared = 2.0 * mean * mean / (1.0 + 2.0 * var)
    wide = 1.0 + 4.0 * var
    k = 1.0 / wide.apply("Sqrt")
    length = 4.0 * var / (wide * (1.0 + k))
    total: Any = None
    for node, weight in zip(*legendre_nodes(24), strict=True):
        t = k + float(node) * length
        grown = 1.0 + t * t
        term = float(weight) * (-0.5 * h_squared * grown).apply("Exp") / grown
        total = term if total is None else total + term
    root = (1.0 + 2.0 * var).apply("Sqrt")
    return _plain_erf(layer, mean / root), float(4 / np.pi) * length * total


def _plain_erf(layer: Any, x: Value) -> Value:
    return 2.0 * _normal_cdf(x * float(np.sqrt(2))) - 1.0


def _logistic(mean: Value, var: Value) -> tuple[Value, Value]:
    small = var < 1.0
    near, near_var = _quadrature(
        lambda x: x.apply("Sigmoid"), mean, small.choose(var, 0.0), *hermite_nodes(_LOGISTIC_NODES)
    )
    wide = var.maximum(1.0)
    far: Any = 0.0
    slope: Any = 0.0
    for p, s in zip(_LOGISTIC_P, _LOGISTIC_S, strict=True):
        shrink = s / (1.0 + s**2 * wide).apply("Sqrt")
        r = mean * shrink
        far = p * _normal_cdf(r) + far
        slope = (p * INV_SQRT_2PI) * shrink * (-0.5 * r * r).apply("Exp") + slope
    far_var = (far * (1.0 - far) - slope).maximum(0.0)
    return small.choose(near, far), small.choose(near_var, far_var)


def _sigmoid(layer: Any, mean: Value, var: Value) -> tuple[Value, Value]:
    return _logistic(mean, var)


def _tanh(layer: Any, mean: Value, var: Value) -> tuple[Value, Value]:
    half, quarter_var = _logistic(2.0 * mean, 4.0 * var)
    return 2.0 * half - 1.0, 4.0 * quarter_var


def _quadrature(
    function: Callable[[Value], Value], mean: Value, var: Value, z: np.ndarray, w: np.ndarray
) -> tuple[Value, Value]:
    """Mean and variance of function(a) as weighted sums over nodes, along a new last axis."""
    plain = function(mean)
    points = mean.last_axis() + var.apply("Sqrt").last_axis() * z
    change = function(points) - plain.last_axis()
    weights = w[:, None]
    shift = change @ weights
    apart = change - shift
    return plain + shift.drop_last_axis(), ((apart * apart) @ weights).drop_last_axis()


def _by_nodes(function: Callable[[Any, Value], Value]) -> Any:
    def uncertain(layer: Any, mean: Value, var: Value) -> tuple[Value, Value]:
        z, w = (np.asarray(part) for part in layer.nodes())
        return _quadrature(lambda x: function(layer, x), mean, var, z, w)

    return function, uncertain


def _gelu(layer: Any, x: Value) -> Value:
    return x * _normal_cdf(x)


def _silu(layer: Any, x: Value) -> Value:
    return x * x.apply("Sigmoid")


def _softplus(layer: Any, x: Value) -> Value:
    return x.maximum(0.0) + ((-x.apply("Abs")).apply("Exp") + 1.0).apply("Log")


def _plain_leaky(layer: Any, x: Value) -> Value:
    return (x > 0.0).choose(x, float(layer.negative_slope) * x)


def _plain_step(layer: Any, x: Value) -> Value:
    return (x > 0.0).choose(x * 0.0 + 1.0, 0.0)


# For every activation: the plain function, and its moments under a Gaussian.
_RULES: dict[type, tuple[Callable[..., Value], Callable[..., tuple[Value, Value]]]] = {
    nn.Identity: (lambda layer, x: x, lambda layer, mean, var: (mean, var)),
    nn.ReLU: (lambda layer, x: x.maximum(0.0), _relu),
    nn.LeakyReLU: (_plain_leaky, _leaky),
    nn.Heaviside: (_plain_step, _step),
    nn.Erf: (_plain_erf, _erf),
    nn.Sigmoid: (lambda layer, x: x.apply("Sigmoid"), _sigmoid),
    nn.Tanh: (lambda layer, x: x.apply("Tanh"), _tanh),
    nn.GELU: _by_nodes(_gelu),
    nn.SiLU: _by_nodes(_silu),
    nn.Softplus: _by_nodes(_softplus),
}
