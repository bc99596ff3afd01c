"""Arrays that write down what is done to them.

A plan that is run on them gives a graph of the operations that predict: they obey NumPy's
protocols, so that every export comes from the very lines that `varprop.plans` runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

#: What an operation takes: tensors, arrays that are the model's numbers, numbers of the formulas.
Value = Any

#: Functions of entries, by NumPy's names; "where" besides.
ENTRIES = frozenset(
    """absolute add cos divide equal exp expm1 floor greater greater_equal less less_equal log log1p
    logical_and logical_not logical_or maximum minimum multiply negative not_equal power sign sin
    sqrt square subtract tanh""".split()  # noqa: SIM905
)
#: What only says otherwise where entries stand.
VIEWS = frozenset(["unsqueeze", "slice", "transpose"])


class Tensor(NDArrayOperatorsMixin):
    """An array of the graph.

    Attributes
    ----------
    kind
        "input", one of `ENTRIES`, "where", one of `VIEWS`, "matmul", or "sum" or "max" over the
        last axis.
    given
        What it is made of.
    shape, ndim
        As NumPy's.
    option
        The place of the new axis, the ranges of a slice, the order of the axes.

    Examples
    --------
    >>> x = Tensor("input", (), (1, 3))
    >>> found = np.sum(np.exp(x) * 2.0, axis=-1)
    >>> found.shape, [node.kind for node in in_order([found])]
    ((1,), ['input', 'exp', 'multiply', 'sum'])
    """

    def __init__(
        self, kind: str, given: Sequence[Value], shape: Sequence[int], option: Any = None
    ) -> None:
        self.kind, self.given, self.shape = kind, tuple(given), tuple(shape)
        self.ndim, self.option = len(self.shape), option

    __hash__ = object.__hash__

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None) -> Tensor:
        """Write a function of entries, or a product of matrices; nothing is done in place."""
        given = [_value(v) for v in inputs]
        if ufunc is np.matmul:
            a, b = (np.shape(value) for value in given)
            batch = np.broadcast_shapes(a[:-2], b[:-2]) if len(b) > 1 else a[:-2]
            shape = (*batch, a[-2], *b[-1:]) if len(b) > 1 else a[:-1]
            return Tensor("matmul", given, shape)
        assert ufunc.__name__ in ENTRIES
        return Tensor(ufunc.__name__, given, np.broadcast_shapes(*map(np.shape, given)))

    def __array_function__(self, function: Any, types: Any, inputs: Any, options: Any) -> Any:
        """Write one of the few functions that plans use besides."""
        if function is np.shape:
            return self.shape
        if function is np.where:
            given = [_value(v) for v in inputs]
            return Tensor("where", given, np.broadcast_shapes(*map(np.shape, given)))
        if function in (np.zeros_like, np.ones_like):
            return self * 0.0 + float(function is np.ones_like)
        if function in (np.sum, np.max):
            return Tensor("sum" if function is np.sum else "max", [self], self.shape[:-1])
        assert function is np.swapaxes  # the last two
        order = [*range(self.ndim - 2), self.ndim - 1, self.ndim - 2]
        return Tensor("transpose", [self], [self.shape[i] for i in order], order)

    def __getitem__(self, key: Any) -> Tensor:
        """Write a new axis in some place, or ranges of entries."""
        key = key if isinstance(key, tuple) else (key,)
        if None in key:
            place = self.ndim if Ellipsis in key else key.index(None)
            return Tensor("unsqueeze", [self], (*self.shape[:place], 1, *self.shape[place:]), place)
        ends = [part.indices(size)[:2] for part, size in zip(key, self.shape, strict=False)]
        ends += [(0, size) for size in self.shape[len(ends) :]]
        return Tensor("slice", [self], [end - start for start, end in ends], ends)


def _value(value: Value) -> Value:
    """Return a number of a formula as it is, and what may be the model's own as an array."""
    if isinstance(value, Tensor):
        return value
    if type(value) in (int, float):
        return float(value)
    value = np.asarray(value)
    # Comparisons give truth values; wherever one meets numbers it was made a number before.
    return value if value.dtype == bool else np.asarray(value, np.float64)


def in_order(results: Sequence[Value]) -> list[Tensor]:
    """Return all tensors that results are made of, each after those that it is made of."""
    found: dict[int, Tensor] = {}
    waiting: list[tuple[Value, bool]] = [(value, False) for value in reversed(results)]
    while waiting:
        value, ready = waiting.pop()
        if not isinstance(value, Tensor) or id(value) in found:
            continue
        if ready:
            found[id(value)] = value
        else:
            waiting.append((value, True))
            waiting += [(part, False) for part in reversed(value.given)]
    return list(found.values())
