"""Writing an ONNX graph as arithmetic on values, instead of as a list of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

# Old enough for the runtimes of the last years; nothing newer is needed.
OPSET, IR_VERSION = 17, 8


class Graph:
    """Nodes and constants of a graph under construction; all values have one floating dtype."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._count = 0

    def _name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def constant(self, value: Any, dtype: Any) -> Value:
        """Return a constant."""
        name = self._name()
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return Value(self, name, np.dtype(dtype))

    def input(self, name: str, dtype: Any) -> Value:
        """Return an input of the graph."""
        return Value(self, name, np.dtype(dtype))

    def node(self, kind: str, values: Sequence[Value], dtype: Any = None, **options: Any) -> Value:
        """Apply an ONNX operator."""
        name = self._name()
        self._nodes.append(helper.make_node(kind, [v.name for v in values], [name], **options))
        return Value(self, name, values[0].dtype if dtype is None else np.dtype(dtype))

    def model(
        self,
        inputs: dict[str, list[Any]],
        outputs: dict[str, tuple[Value, list[Any]]],
        *,
        doc: str,
        metadata: dict[str, str],
    ) -> ModelProto:
        """Return the finished model; inputs and outputs are double, with these shapes."""

        def described(name: str, shape: list[Any]) -> Any:
            return helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape)

        for name, (value, _) in outputs.items():
            self._nodes.append(helper.make_node("Identity", [value.name], [name]))
        graph = helper.make_graph(
            self._nodes,
            "varprop",
            [described(name, shape) for name, shape in inputs.items()],
            [described(name, shape) for name, (_, shape) in outputs.items()],
            self._constants,
            doc_string=doc,
        )
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", OPSET)],
            ir_version=IR_VERSION,
            producer_name="varprop",
        )
        helper.set_model_props(model, metadata)
        return model


class Value:
    """A tensor in a graph; operators and NumPy-like methods add nodes."""

    __array_ufunc__ = None  # a NumPy array on the left leaves the operation to this class

    def __init__(self, graph: Graph, name: str, dtype: np.dtype):
        self.graph, self.name, self.dtype = graph, name, dtype

    def _lift(self, other: Any) -> Value:
        return other if isinstance(other, Value) else self.graph.constant(other, self.dtype)

    def _binary(self, kind: str, left: Any, right: Any, dtype: Any = None) -> Value:
        return self.graph.node(kind, [self._lift(left), self._lift(right)], dtype)

    def __add__(self, other: Any) -> Value:
        return self._binary("Add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Value:
        return self._binary("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self._binary("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self._binary("Mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Value:
        return self._binary("Div", self, other)

    def __rtruediv__(self, other: Any) -> Value:
        return self._binary("Div", other, self)

    def __matmul__(self, other: Any) -> Value:
        return self._binary("MatMul", self, other)

    def __neg__(self) -> Value:
        return self.graph.node("Neg", [self])

    def __gt__(self, other: Any) -> Value:
        return self._binary("Greater", self, other, bool)

    def __lt__(self, other: Any) -> Value:
        return self._binary("Less", self, other, bool)

    def choose(self, yes: Value, no: Any) -> Value:
        """Return `yes` where this condition holds and `no` elsewhere."""
        return self.graph.node("Where", [self, yes, yes._lift(no)], yes.dtype)

    def maximum(self, other: Any) -> Value:
        """Return the larger of the two."""
        return self._binary("Max", self, other)

    def minimum(self, other: Any) -> Value:
        """Return the smaller of the two."""
        return self._binary("Min", self, other)

    def apply(self, kind: str) -> Value:
        """Apply a unary operator by its ONNX name: Abs, Exp, Log, Sqrt, Sigmoid ..."""
        return self.graph.node(kind, [self])

    def cast(self, dtype: Any) -> Value:
        """Convert to another floating dtype."""
        if np.dtype(dtype) == self.dtype:
            return self
        to = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.graph.node("Cast", [self], dtype, to=to)

    def last_axis(self) -> Value:
        """Append an axis of length 1."""
        return self.graph.node("Unsqueeze", [self, self.graph.constant([-1], np.int64)])

    def drop_last_axis(self) -> Value:
        """Remove the last axis, of length 1."""
        return self.graph.node("Squeeze", [self, self.graph.constant([-1], np.int64)])

    def reshape(self, shape: Sequence[int]) -> Value:
        """Give the entries another shape; -1 is what is left."""
        return self.graph.node("Reshape", [self, self.graph.constant(list(shape), np.int64)])
