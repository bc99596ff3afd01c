"""A short `repr` for things that hold arrays: sizes in place of numbers."""

from __future__ import annotations

import dataclasses
from typing import Any

_MOST_NUMBERS = 4


def brief(thing: Any) -> str:
    """Return the name and the fields of a dataclass or named tuple, large arrays by their shape.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> import numpy as np
    >>> class Pair(NamedTuple):
    ...     lower: np.ndarray
    ...     upper: np.ndarray
    ...     def __repr__(self):
    ...         return brief(self)
    >>> Pair(np.zeros(2), np.zeros((50, 3)))
    Pair(lower=[0.0, 0.0], upper=float64 of (50, 3))
    """
    named = isinstance(thing, tuple)
    names = thing._fields if named else [field.name for field in dataclasses.fields(thing)]
    parts = ", ".join(f"{name}={_value(getattr(thing, name))}" for name in names)
    return f"{type(thing).__name__}({parts})"


def _value(value: Any) -> str:
    if not hasattr(value, "shape") or not hasattr(value, "tolist"):
        return repr(value)
    if value.size > _MOST_NUMBERS:
        return f"{value.dtype} of {tuple(value.shape)}"
    return str([float(f"{number:.4g}") for number in value.ravel().tolist()])
