"""Export to ONNX: one graph from raw features to mean and spread, scaling included.

The prediction is traced as JAX traces it for its own compiler, and the traced operations are
written down one by one. So whatever predicts can be exported: layers, activations and likelihoods
need no second form for it, those of users included.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from varprop.atomic import replacing
from varprop.estimators.base import AbstractRegressor
from varprop.estimators.members import member_dtype, to_jax
from varprop.estimators.regressor import FAWNRegressor
from varprop.estimators.stack import CONSTANT, LINEAR, StackedRegressor
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.moments.numerics import kept_bell_by_exp, step_probability
from varprop.predictive.simple import constant_var

# Old enough for the runtimes of the last years; nothing newer is needed.
OPSET, IR_VERSION = 17, 8


def export_onnx(model: AbstractRegressor, path: str | os.PathLike[str]) -> None:
    """Write a fitted regressor as an ONNX model; see `AbstractRegressor.to_onnx`."""
    with replacing(path) as file:
        file.write(to_onnx(model).SerializeToString())


def to_onnx(model: AbstractRegressor) -> ModelProto:
    """Return a fitted regressor as a checked ONNX model.

    Raises
    ------
    ValueError
        Naming the operation, if the network uses one that has no rule here.
    """
    graph, d = _Graph(), model.n_outputs_
    with jax.enable_x64(True):
        (rows,) = jax.export.symbolic_shape("rows")
        x = jax.ShapeDtypeStruct((rows, model.n_features_in_), jnp.float64)
        traced = jax.make_jaxpr(lambda x: _prediction(model, x))(x)
        inputs = [_Value("X", x.shape, x.dtype)]
        graph.symbol = rows
        graph.rows = graph.node("Shape", inputs, (1,), np.int64, start=0, end=1)
        found = _translate(graph, traced, inputs)
        outputs = list(map(graph.solid, found, traced.out_avals))
    shapes: dict[str, list[Any]] = {"mean": ["rows", d], "std": ["rows", d], "cov": ["rows", d, d]}
    names = getattr(model, "feature_names_in_", None)
    metadata = {} if names is None else {"feature_names": "\n".join(map(str, names))}
    if model.target_names_ is not None:
        metadata["target_names"] = "\n".join(model.target_names_)

    def described(name: str, shape: list[Any]) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape)

    named = list(zip(shapes, outputs, strict=False))
    ends = [helper.make_node("Identity", [value.name], [name]) for name, value in named]
    content = helper.make_graph(
        [*graph.nodes, *ends],
        "varprop",
        [described("X", ["rows", model.n_features_in_])],
        [described(name, shapes[name]) for name, _ in named],
        graph.constants,
        doc_string="Mean and standard deviation (model and noise together) of the target, by row.",
    )
    out = helper.make_model(
        content,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="varprop",
    )
    helper.set_model_props(out, metadata)
    checker.check_model(out, full_check=True)
    return out


def _prediction(model: AbstractRegressor, x: jax.Array) -> list[jax.Array]:
    """Mean, standard deviation and, if outputs are correlated, covariance of rows (rows, n)."""
    scaling = model.scaling_
    # In double: a feature far from zero would lose its digits in the network's precision.
    scaled = (x - scaling.x_shift) / scaling.x_scale
    parts = _components(model, scaled)
    mean = sum(share * m for share, m, _, _ in parts)
    var = sum(share * (v + (m - mean) ** 2) for share, m, v, _ in parts)
    scale = scaling.y_scale
    results = [mean * scale + scaling.y_shift, jnp.sqrt(var) * scale]
    if all(cov is None for _, _, _, cov in parts):
        return results
    total = jnp.zeros(())
    for share, m, v, cov in parts:
        apart = (m - mean)[..., None]
        own = v[..., None] * np.eye(model.n_outputs_) if cov is None else cov
        total = total + share * (own + apart * apart.mT)
    return [*results, total * np.outer(scale, scale)]


def _components(model: AbstractRegressor, scaled: jax.Array) -> list[_Component]:
    """Return the Gaussians that a model mixes, in standardized units."""
    parts: list[_Component] = []
    if isinstance(model, FAWNRegressor):
        trust = 1.0 if model.trust_ is None else model.trust_
        for share, member in zip(trust * model.shares_, model.members_, strict=True):
            dtype = member_dtype(member)
            rows = Gaussian(scaled.astype(dtype))
            for weight, out, noise in to_jax(member, dtype).predictive(rows):
                var = out.variances().astype(float) + noise
                cov = None
                if isinstance(out, JointGaussian):
                    cov = out.dense_cov().astype(float) + noise[..., None] * np.eye(len(noise.T))
                parts.append(_Component(share * weight, out.mean.astype(float), var, cov))
        broad = 0.0 if model.trust_ is None else 1 - model.trust_
    else:
        assert isinstance(model, StackedRegressor)
        for name, network in model.estimators_:
            alone = copy.copy(network)
            alone.trust_ = None
            found = _components(alone, scaled)
            parts += [part._replace(share=model.weights_[name] * part.share) for part in found]
        line = model.linear_
        if line is not None and model.weights_[LINEAR] > 0:
            mean = scaled @ line.coef.T + line.intercept
            apart, var = scaled - line.center, jnp.asarray(line.noise_var)
            for cov, target in zip(line.cov, np.eye(model.n_outputs_), strict=True):
                var = var + jnp.sum((apart @ cov) * apart, axis=1)[:, None] * target
            parts.append(_Component(model.weights_[LINEAR], mean, var, None))
        broad = model.weights_[CONSTANT]
    if broad > 0:
        zeros = scaled @ np.zeros((model.n_features_in_, model.n_outputs_))
        parts.append(_Component(broad, zeros, zeros + constant_var(model.n_seen_), None))
    return parts


class _Component(NamedTuple):
    """One Gaussian of a mixture, in standardized units."""

    share: Any
    mean: jax.Array
    var: jax.Array
    cov: jax.Array | None


class _Value(NamedTuple):
    """A tensor of the graph; its shape may have 1 where it stands for more, since ONNX repeats."""

    name: str
    shape: tuple[Any, ...]
    dtype: np.dtype


class _Graph:
    """Nodes and constants of a graph under construction."""

    rows: _Value  # their number, as a tensor
    symbol: Any  # the same in shapes

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any) -> _Value:
        array = np.asarray(value)
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return _Value(name, array.shape, array.dtype)

    def node(
        self,
        kind: str,
        inputs: Sequence[_Value],
        shape: tuple[Any, ...],
        dtype: Any = None,
        **options: Any,
    ) -> _Value:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, [v.name for v in inputs], [name], **options))
        return _Value(name, shape, np.dtype(inputs[0].dtype if dtype is None else dtype))

    def map(self, kind: str, *values: Any, dtype: Any = None) -> _Value:
        """Apply an operator that works entry by entry, to values and numbers."""
        kinds = (v.dtype for v in values if isinstance(v, _Value) and v.dtype != bool)
        like = next(kinds, np.dtype(bool))
        inputs = [
            v if isinstance(v, _Value) else self.constant(np.asarray(v, like)) for v in values
        ]
        shape = jnp.broadcast_shapes(*(value.shape for value in inputs))
        return self.node(kind, inputs, shape, like if dtype is None else dtype)

    def shape(self, shape: tuple[Any, ...]) -> _Value:
        """Return a shape as a tensor; the number of rows is known when the graph is run."""
        parts = [
            self.constant(np.array([n])) if isinstance(n, int) else self._many(n) for n in shape
        ]
        return self.node("Concat", parts, (len(shape),), axis=0)

    def _many(self, n: Any) -> _Value:
        """Return a multiple of the number of rows as a tensor."""
        times = n // self.symbol  # a whole number, of which jax knows that it is one
        return self.rows if times == 1 else self.map("Mul", self.rows, times)

    def solid(self, value: Any, like: Any) -> _Value:
        """Return the value with all its entries: what is not entry by entry does not repeat."""
        value = value if isinstance(value, _Value) else self.constant(value)
        if value.shape == like.shape:
            return value
        return self.node("Expand", [value, self.shape(like.shape)], like.shape)


def _translate(graph: _Graph, traced: Any, inputs: Sequence[Any]) -> list[Any]:
    """Write the operations of a traced function; return its results.

    What does not depend on the rows is computed here, and is a NumPy array until a node takes it.
    """
    jaxpr = traced.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.constvars, map(np.asarray, traced.consts), strict=True))
    known |= dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return np.asarray(atom.val) if hasattr(atom, "val") else known[atom]

    for eqn in jaxpr.eqns:
        taken = list(map(read, eqn.invars))
        inner = None
        if eqn.primitive.name in _CALLS:
            inner = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        fixed = all(isinstance(n, int) for out in eqn.outvars for n in out.aval.shape)
        empty = [0 in v.aval.shape for v in (*eqn.invars, *eqn.outvars)]
        if inner is not None:
            other = _REPLACED.get(inner.jaxpr.debug_info.func_name)
            inner = inner if other is None else jax.make_jaxpr(other)(*inner.in_avals)
            results = _translate(graph, inner, taken)
        elif empty[-1] or (any(empty) and eqn.primitive.name in ("dot_general", "reduce_sum")):
            # Nothing, or a sum over nothing, on which runtimes crash.
            shape = [0 if n == 0 else 1 for n in eqn.outvars[0].aval.shape]
            results = [np.zeros(shape, eqn.outvars[0].aval.dtype)]
        elif fixed and not any(isinstance(value, _Value) for value in taken):
            results = eqn.primitive.bind(*taken, **eqn.params)
            results = results if eqn.primitive.multiple_results else [results]
            results = list(map(np.asarray, results))
        else:
            results = _operation(graph, eqn, taken)
        known |= dict(zip(eqn.outvars, results, strict=True))
    return list(map(read, jaxpr.outvars))


#: Operations that are nothing but other ones; a loop is not.
_CALLS = {"jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"}
#: Functions of ours that need what ONNX does not have, and what is taken instead.
_REPLACED = {"_kept_bell": kept_bell_by_exp}
#: Operations that ONNX has too, entry by entry.
_NAMES = "abs add and cos div exp floor log max min mul neg not or pow sign sin sqrt sub tanh"
_SAME = {name: name.capitalize() for name in _NAMES.split()} | {
    "logistic": "Sigmoid",
    "add_any": "Add",
}
_COMPARISONS = {"eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater"}
_COMPARISONS |= {"le": "LessOrEqual", "lt": "Less"}


def _operation(graph: _Graph, eqn: Any, taken: list[Any]) -> list[_Value]:
    name, params, out = eqn.primitive.name, eqn.params, eqn.outvars[0].aval
    if name in _SAME:
        return [graph.map(_SAME[name], *taken)]
    if name in _COMPARISONS:
        return [graph.map(_COMPARISONS[name], *taken, dtype=bool)]
    if name in _ENTRIES:
        return [_ENTRIES[name](graph, params, *taken)]
    if name not in _WHOLES:
        raise ValueError(
            f"The network uses the operation {name!r}, which cannot be written as ONNX: take "
            "another activation or likelihood."
        )
    given = [graph.solid(value, v.aval) for value, v in zip(taken, eqn.invars, strict=True)]
    return _WHOLES[name](graph, params, out, *given)


def _erf(graph: _Graph, params: Any, x: _Value) -> _Value:
    """Return erf(x) as P(a > 0) - P(a < 0): the runtimes' own is single precision only."""

    def erf(x: jax.Array) -> jax.Array:
        above, below = step_probability(x * np.sqrt(2).astype(x.dtype), jnp.ones_like(x))
        return above - below

    traced = jax.make_jaxpr(erf)(jax.ShapeDtypeStruct(x.shape, x.dtype))
    return _translate(graph, traced, [x])[0]


def _power(graph: _Graph, params: Any, x: _Value) -> _Value:
    return graph.map("Mul", x, x) if params["y"] == 2 else graph.map("Pow", x, params["y"])


def _cast(graph: _Graph, params: Any, x: Any) -> _Value:
    x = x if isinstance(x, _Value) else graph.constant(x)
    dtype = np.dtype(params["new_dtype"])
    to = helper.np_dtype_to_tensor_dtype(dtype)
    return x if x.dtype == dtype else graph.node("Cast", [x], x.shape, dtype, to=to)


#: Further operations entry by entry.
_ENTRIES: dict[str, Callable[..., _Value]] = {
    "clamp": lambda graph, p, low, x, high: graph.map("Min", graph.map("Max", x, low), high),
    "convert_element_type": _cast,
    "copy": lambda graph, p, x: x,
    "erf": _erf,
    "erfc": lambda graph, p, x: graph.map("Sub", 1, _erf(graph, p, x)),
    "expm1": lambda graph, p, x: graph.map("Sub", graph.map("Exp", x), 1),
    "integer_pow": _power,
    "log1p": lambda graph, p, x: graph.map("Log", graph.map("Add", x, 1)),
    "ne": lambda graph, p, a, b: graph.node(
        "Not", [same := graph.map("Equal", a, b, dtype=bool)], same.shape
    ),
    "rsqrt": lambda graph, p, x: graph.map("Div", 1, graph.map("Sqrt", x)),
    "select_n": lambda graph, p, which, no, yes: graph.map("Where", which, yes, no),
    "square": lambda graph, p, x: graph.map("Mul", x, x),
    "stop_gradient": lambda graph, p, x: x,
}


def _repeat(graph: _Graph, params: Any, out: Any, x: _Value) -> list[_Value]:
    """Put the axes in their places; ONNX repeats the others when it needs them."""
    places = params["broadcast_dimensions"]
    shape = tuple(x.shape[places.index(i)] if i in places else 1 for i in range(len(out.shape)))
    missing = np.array([i for i in range(len(shape)) if i not in places])
    return [graph.node("Unsqueeze", [x, graph.constant(missing)], shape)] if len(missing) else [x]


def _product(graph: _Graph, params: Any, out: Any, a: _Value, b: _Value) -> list[_Value]:
    """Sum over pairs of axes: every axis is a letter, and those of a pair are the same."""
    (summed_a, summed_b), (batch_a, batch_b) = params["dimension_numbers"]
    letters_a = [chr(ord("a") + i) for i in range(len(a.shape))]
    letters_b = [chr(ord("A") + i) for i in range(len(b.shape))]
    for i, j in [*zip(summed_a, summed_b, strict=True), *zip(batch_a, batch_b, strict=True)]:
        letters_b[j] = letters_a[i]
    own_a = [letters_a[i] for i in range(len(a.shape)) if i not in (*batch_a, *summed_a)]
    own_b = [letters_b[i] for i in range(len(b.shape)) if i not in (*batch_b, *summed_b)]
    ends = [*(letters_a[i] for i in batch_a), *own_a, *own_b]
    equation = f"{''.join(letters_a)},{''.join(letters_b)}->{''.join(ends)}"
    if equation == "ab,bB->aB":
        return [graph.node("MatMul", [a, b], out.shape)]
    return [graph.node("Einsum", [a, b], out.shape, equation=equation)]


def _slices(graph: _Graph, params: Any, out: Any, x: _Value) -> list[_Value]:
    axes = [i for i, (n, m) in enumerate(zip(x.shape, out.shape, strict=True)) if n != m]
    starts, ends = ([params[name][i] for i in axes] for name in ("start_indices", "limit_indices"))
    steps = [1 if params["strides"] is None else params["strides"][i] for i in axes]
    numbers = [graph.constant(np.array(part)) for part in (starts, ends, axes, steps)]
    return [graph.node("Slice", [x, *numbers], out.shape)]


def _split(graph: _Graph, params: Any, out: Any, x: _Value) -> list[_Value]:
    found, end = [], 0
    for size in params["sizes"]:
        start, end = end, end + size
        shape = tuple(size if i == params["axis"] else n for i, n in enumerate(x.shape))
        numbers = [graph.constant(np.array([n])) for n in (start, end, params["axis"])]
        found.append(graph.node("Slice", [x, *numbers], shape))
    return found


#: Operations on whole arrays.
_WHOLES: dict[str, Callable[..., list[_Value]]] = {
    "broadcast_in_dim": _repeat,
    "concatenate": lambda graph, p, out, *parts: [
        graph.node("Concat", parts, out.shape, axis=p["dimension"])
    ],
    "dot_general": _product,
    "optimization_barrier": lambda graph, p, out, *parts: list(parts),
    "reduce_sum": lambda graph, p, out, x: [
        graph.node("ReduceSum", [x, graph.constant(np.array(p["axes"]))], out.shape, keepdims=0)
    ],
    "reshape": lambda graph, p, out, x: [
        graph.node("Reshape", [x, graph.shape(out.shape)], out.shape)
    ],
    "slice": _slices,
    "split": _split,
    "squeeze": lambda graph, p, out, x: [
        graph.node("Squeeze", [x, graph.constant(np.array(p["dimensions"]))], out.shape)
    ],
    "transpose": lambda graph, p, out, x: [
        graph.node("Transpose", [x], out.shape, perm=list(p["permutation"]))
    ],
}
