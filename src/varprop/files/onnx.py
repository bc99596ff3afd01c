"""Export to ONNX: one graph from raw features to what is predicted, scaling included.

The plan of the model is run on tensors that write down what is done to them: they obey NumPy's
protocols, so that the graph comes from the very lines that predict.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from varprop.atomic import replacing
from varprop.estimators.base import AbstractEstimator
from varprop.files.planning import plan_of
from varprop.plans.ends import target_moments
from varprop.plans.plan import Networks, Plan
from varprop.predictive.simple import LinearModel, constant_var

# Old enough for the runtimes of the last years; nothing newer is needed.
OPSET, IR_VERSION = 17, 8
_DOC = "Mean and standard deviation (model and noise together) of the target, by row."
_CLASS_DOC = "Probabilities of the classes, and their mean entropy given the model, by row."
# Rows of the examples that go with tensors and tell their shapes: a number that no size is.
_ROWS = 1_000_003


def export_onnx(model: AbstractEstimator, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator as an ONNX model; see `AbstractEstimator.to_onnx`."""
    with replacing(path) as file:
        file.write(to_onnx(plan_of(model)).SerializeToString())


def to_onnx(plan: Plan) -> ModelProto:
    """Return a plan as a checked ONNX model."""
    graph, n = _Graph(), plan.n_features_in_
    results = _prediction(plan, _Tensor(graph, "X", (_ROWS, n)))

    def described(name: str, size: list[Any]) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.DOUBLE, size)

    ends = [helper.make_node("Identity", [value.name], [name]) for name, value in results.items()]
    content = helper.make_graph(
        [*graph.nodes, *ends],
        "varprop",
        [described("X", ["rows", n])],
        [described(name, ["rows", *value.shape[1:]]) for name, value in results.items()],
        graph.constants,
        doc_string=_CLASS_DOC if len(plan.classes_) else _DOC,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    out = helper.make_model(
        content, opset_imports=opsets, ir_version=IR_VERSION, producer_name="varprop"
    )
    names = {"feature_names": plan.feature_names_in_, "target_names": plan.target_names_}
    if len(plan.classes_):
        names["classes"] = tuple(map(str, plan.classes_.tolist()))
    metadata = {name: "\n".join(part) for name, part in names.items() if part is not None}
    helper.set_model_props(out, metadata)
    checker.check_model(out, full_check=True)
    return out


def _prediction(plan: Plan, x: Any) -> dict[str, Any]:
    """Return results by name: those of classes or those of numbers."""
    standardized = (x - plan.scaling_.x_shift) / plan.scaling_.x_scale
    if not len(plan.classes_):
        return _of_numbers(plan, standardized)
    probability: Any = standardized @ np.zeros((plan.n_features_in_, len(plan.classes_)))
    aleatoric: Any = np.sum(probability, axis=-1)[..., None]
    for name, weight in plan.weights_.items():
        part = plan.parts[name]
        if isinstance(part, Networks) and weight > 0:
            for network in part.members:
                for each in plan.components(network, standardized):
                    share = weight * network.share * each.weight
                    probability = probability + share * each.probability
                    aleatoric = aleatoric + share * each.aleatoric
        elif weight > 0:
            same = plan.constant_numbers_
            probability = probability + weight * same
            aleatoric = aleatoric - weight * np.sum(same * np.log(same))
    return {"probabilities": probability, "aleatoric": aleatoric}


def _of_numbers(plan: Plan, x: Any) -> dict[str, Any]:
    """Mean, standard deviation and, if outputs are correlated, covariance of the mixture."""
    parts, scale = _gaussians(plan, x), plan.scaling_.y_scale
    mean = sum(share * m for share, m, _, _ in parts)
    var = sum(share * (v + np.square(m - mean)) for share, m, v, _ in parts)
    results = {"mean": mean * scale + plan.scaling_.y_shift, "std": np.sqrt(var) * scale}
    if all(cov is None for *_, cov in parts):
        return results
    total: Any = 0.0
    for share, m, v, cov in parts:
        apart = m - mean
        own = v[:, None] * np.eye(plan.n_outputs_) if cov is None else cov
        total = total + share * (own + apart[..., None] * apart[:, None])
    return {**results, "cov": total * np.outer(scale, scale)}


def _gaussians(plan: Plan, x: Any) -> list[tuple[float, Any, Any, Any]]:
    """Return share, mean, variance and covariance, with noise, of all that a plan mixes."""
    found: list[tuple[float, Any, Any, Any]] = []
    for name, weight in plan.weights_.items():
        part = plan.parts[name]
        if weight <= 0:
            continue
        if isinstance(part, Networks):
            for network in part.members:
                for each in plan.components(network, x):
                    cov = each.cov
                    if cov is not None:
                        noise = each.noise if each.noise.ndim == 1 else each.noise[:, None]
                        cov = cov + noise * np.eye(plan.n_outputs_)
                    share = weight * network.share * each.weight
                    found.append((share, *target_moments(each), cov))
        elif isinstance(part, LinearModel):
            mean, apart = x @ part.coef.T + part.intercept, x - part.center
            var: Any = part.noise_var
            for cov, target in zip(part.cov, np.eye(plan.n_outputs_), strict=True):
                var = var + np.sum((apart @ cov) * apart, axis=-1)[:, None] * target
            found.append((weight, mean, var, None))
        else:
            zeros = x @ np.zeros((plan.n_features_in_, plan.n_outputs_))
            found.append((weight, zeros, zeros + constant_var(plan.n_seen_), None))
    return found


class _Graph:
    """Nodes and constants of a graph under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def name_of(self, value: Any) -> str:
        """Return the name of a tensor, or of what is written down as a constant."""
        if isinstance(value, _Tensor):
            return value.name
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, kind: str, shape: tuple[int, ...], *inputs: Any, **options: Any) -> _Tensor:
        """Add an operator to the graph."""
        name = f"v{len(self.nodes)}"
        names = [self.name_of(value) for value in inputs]
        self.nodes.append(helper.make_node(kind, names, [name], **options))
        return _Tensor(self, name, shape)


class _Tensor(NDArrayOperatorsMixin):
    """A tensor of the graph, to which NumPy hands on what it is asked to do with it."""

    def __init__(self, graph: _Graph, name: str, shape: tuple[int, ...]):
        self.graph, self.name, self.shape = graph, name, shape
        self.ndim = len(shape)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None) -> _Tensor:
        """Write a function of entries, or a product of matrices; nothing is done in place."""
        # Comparisons give truth values; wherever one meets numbers it was made a number before.
        given = [v if isinstance(v, _Tensor) else np.asarray(v, np.float64) for v in inputs]
        if ufunc is np.matmul:
            a, b = (value.shape for value in given)
            batch = np.broadcast_shapes(a[:-2], b[:-2]) if len(b) > 1 else a[:-2]
            shape = (*batch, a[-2], *b[-1:]) if len(b) > 1 else a[:-1]
            return self.graph.node("MatMul", shape, *given)
        shape = np.broadcast_shapes(*(value.shape for value in given))
        return _ENTRIES[ufunc](lambda kind, *parts: self.graph.node(kind, shape, *parts), *given)

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        """Write one of the few functions that plans use besides."""
        if function is np.where:
            which, *values = inputs
            values = [v if isinstance(v, _Tensor) else np.asarray(v, np.float64) for v in values]
            shape = np.broadcast_shapes(which.shape, *(value.shape for value in values))
            return self.graph.node("Where", shape, which, *values)
        if function in (np.zeros_like, np.ones_like):
            return self * 0.0 + float(function is np.ones_like)
        if function is np.sum:
            shape, axes = self.shape[:-1], np.array([-1])
            return self.graph.node("ReduceSum", shape, self, axes, keepdims=0)
        if function is np.max:
            return self.graph.node("ReduceMax", self.shape[:-1], self, axes=[-1], keepdims=0)
        assert function is np.swapaxes  # the last two
        order = [*range(self.ndim - 2), self.ndim - 1, self.ndim - 2]
        shape = tuple(self.shape[i] for i in order)
        return self.graph.node("Transpose", shape, self, perm=order)

    def __getitem__(self, key: Any) -> _Tensor:
        """Write a new axis in some place, or ranges of entries."""
        key = key if isinstance(key, tuple) else (key,)
        if None in key:
            place = key.index(None)
            place = self.ndim if Ellipsis in key else place
            shape = (*self.shape[:place], 1, *self.shape[place:])
            return self.graph.node("Unsqueeze", shape, self, np.array([place]))
        found = self
        for axis, part in enumerate(key):
            if part == slice(None):
                continue
            start, end, _ = part.indices(self.shape[axis])
            shape = (*found.shape[:axis], end - start, *found.shape[axis + 1 :])
            numbers = (np.array([n]) for n in (start, end, axis))
            found = self.graph.node("Slice", shape, found, *numbers)
        return found


def _same(kind: str) -> Callable[..., Any]:
    return lambda node, *values: node(kind, *values)


#: Functions of entries in ONNX.
_ENTRIES: dict[Any, Callable[..., Any]] = {
    getattr(np, name): _same(kind)
    for name, kind in {
        "absolute": "Abs",
        "add": "Add",
        "cos": "Cos",
        "equal": "Equal",
        "exp": "Exp",
        "floor": "Floor",
        "greater": "Greater",
        "greater_equal": "GreaterOrEqual",
        "less": "Less",
        "less_equal": "LessOrEqual",
        "log": "Log",
        "logical_and": "And",
        "logical_not": "Not",
        "logical_or": "Or",
        "maximum": "Max",
        "minimum": "Min",
        "multiply": "Mul",
        "negative": "Neg",
        "power": "Pow",
        "sign": "Sign",
        "sin": "Sin",
        "sqrt": "Sqrt",
        "subtract": "Sub",
        "tanh": "Tanh",
        "true_divide": "Div",
    }.items()
}
_ENTRIES |= {
    np.expm1: lambda node, x: node("Sub", node("Exp", x), 1.0),
    np.log1p: lambda node, x: node("Log", node("Add", x, 1.0)),
    np.not_equal: lambda node, a, b: node("Not", node("Equal", a, b)),
    np.square: lambda node, x: node("Mul", x, x),
}
