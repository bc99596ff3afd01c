"""Export to ONNX: one graph from raw features to what is predicted, scaling included."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from varprop.exports.columns import Columns
from varprop.exports.parts import parts_of
from varprop.exports.tracing import Tensor, in_order
from varprop.plans.ends import target_moments
from varprop.plans.plan import Plan

# Old enough for the runtimes of the last years; nothing newer is needed.
OPSET, IR_VERSION = 17, 8
_DOC = "Mean and standard deviation (model and noise together) of the target, by row."
_CLASS_DOC = "Probabilities of the classes, and their mean entropy given the model, by row."
# Rows of the examples that go with tensors and tell their shapes: a number that no size is.
_ROWS = 1_000_003


def to_onnx(plan: Plan, columns: Columns) -> ModelProto:
    """Return a plan as a checked ONNX model that takes a table's columns."""
    x = Tensor("input", (), (_ROWS, len(columns)))
    results = _prediction(plan, columns.encoded(x))
    nodes, constants = _written(x, results)

    def described(name: str, size: list[Any]) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.DOUBLE, size)

    content = helper.make_graph(
        nodes,
        "varprop",
        [described("X", ["rows", len(columns)])],
        [described(name, ["rows", *value.shape[1:]]) for name, value in results.items()],
        constants,
        doc_string=_CLASS_DOC if len(plan.classes_) else _DOC,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    out = helper.make_model(
        content, opset_imports=opsets, ir_version=IR_VERSION, producer_name="varprop"
    )
    names = {"feature_names": columns.names, "target_names": columns.targets}
    if columns.classes:
        names["classes"] = columns.classes
    metadata = {name: "\n".join(part) for name, part in names.items() if part is not None}
    if levels := columns.levels:
        metadata["levels"] = json.dumps(levels)
    helper.set_model_props(out, metadata)
    checker.check_model(out, full_check=True)
    return out


def _prediction(plan: Plan, encoded: Any) -> dict[str, Any]:
    """Return results by name: those of classes or those of numbers."""
    parts = parts_of(plan, (encoded - plan.scaling_.x_shift) / plan.scaling_.x_scale)
    pairs = [(part.share * each.weight, each) for part in parts for each in part.components]
    if len(plan.classes_):
        names = {"probabilities": "probability", "aleatoric": "aleatoric"}
        return {
            name: sum(share * getattr(each, field) for share, each in pairs)
            for name, field in names.items()
        }
    return _moments(plan, pairs)


def _moments(plan: Plan, pairs: list[tuple[float, Any]]) -> dict[str, Any]:
    """Mean, standard deviation and, if outputs are correlated, covariance of the mixture."""
    moments = [(share, *target_moments(each), each) for share, each in pairs]
    mean = sum(share * m for share, m, _, _ in moments)
    var = sum(share * (v + np.square(m - mean)) for share, m, v, _ in moments)
    scale = plan.scaling_.y_scale
    results = {"mean": mean * scale + plan.scaling_.y_shift, "std": np.sqrt(var) * scale}
    if all(each.cov is None for *_, each in moments):
        return results
    total: Any = 0.0
    for share, m, v, each in moments:
        apart, eye = m - mean, np.eye(plan.n_outputs_)
        if each.cov is None:
            own = v[:, None] * eye
        else:
            noise = each.noise if each.noise.ndim == 1 else each.noise[:, None]
            own = each.cov + noise * eye
        total = total + share * (own + apart[..., None] * apart[:, None])
    return {**results, "cov": total * np.outer(scale, scale)}


def _written(x: Tensor, results: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """Return the graph's nodes and its constants."""
    names: dict[int, str] = {id(x): "X"}
    nodes: list[Any] = []
    constants: list[Any] = []

    def name_of(value: Any) -> str:
        if isinstance(value, str):  # of what was just written
            return value
        if isinstance(value, Tensor):
            return names[id(value)]
        constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(constants)}"))
        return f"c{len(constants) - 1}"

    def node(kind: str, *given: Any, **options: Any) -> str:
        inputs, name = [name_of(value) for value in given], f"v{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], **options))
        return name

    for tensor in in_order(list(results.values())):
        if tensor is not x:
            names[id(tensor)] = _node(node, tensor)
    for name, value in results.items():
        nodes.append(helper.make_node("Identity", [name_of(value)], [name]))
    return nodes, constants


def _node(node: Callable[..., str], tensor: Tensor) -> str:
    given, option = tensor.given, tensor.option
    if tensor.kind == "sum":
        return node("ReduceSum", *given, np.array([-1]), keepdims=0)
    if tensor.kind == "max":
        return node("ReduceMax", *given, axes=[-1], keepdims=0)
    if tensor.kind == "transpose":
        return node("Transpose", *given, perm=option)
    if tensor.kind == "unsqueeze":
        return node("Unsqueeze", *given, np.array([option]))
    if tensor.kind == "slice":
        found: Any = given[0]
        for axis, (start, end) in enumerate(option):
            if (start, end) != (0, given[0].shape[axis]):
                found = node("Slice", found, *(np.array([n]) for n in (start, end, axis)))
        return found if isinstance(found, str) else node("Identity", found)
    return _ENTRIES[tensor.kind](node, *given)


def _same(kind: str) -> Callable[..., str]:
    return lambda node, *values: node(kind, *values)


#: Operations in ONNX.
_ENTRIES: dict[str, Callable[..., str]] = {
    name: _same(kind)
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
        "matmul": "MatMul",
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
        "divide": "Div",
        "where": "Where",
    }.items()
}
_ENTRIES |= {
    "expm1": lambda node, x: node("Sub", node("Exp", x), 1.0),
    "log1p": lambda node, x: node("Log", node("Add", x, 1.0)),
    "not_equal": lambda node, a, b: node("Not", node("Equal", a, b)),
    "square": lambda node, x: node("Mul", x, x),
}
