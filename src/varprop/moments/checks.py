"""Eager checks of a caller's arguments: one sentence that names the argument and the value.

Inside `jit`, `vmap` or `grad` values cannot be seen; there these checks pass and the functions that
use them document what comes out instead (a finite saturation or NaN).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def is_concrete(value: Any) -> bool:
    """Whether the value can be looked at (it is not being traced)."""
    return not isinstance(value, jax.core.Tracer)


def array_module(*values: Any) -> Any:
    """Return NumPy if all values can be looked at, else `jax.numpy`.

    What is done once, when an object is made, is done in NumPy: every little JAX operation on a new
    shape compiles a program, which takes longer than many steps of training.
    """
    return np if all(map(is_concrete, values)) else jnp


def as_float_array(value: Any, name: str, dtype: Any = None) -> Float[Array, "..."]:
    """Convert to a floating JAX array; integers become the default float.

    Parameters
    ----------
    value
        Anything `jax.numpy.asarray` takes.
    name
        The argument's name, for the error message.
    dtype
        Wanted dtype. A JAX array of another floating dtype is an error, not a silent conversion;
        Python numbers and NumPy arrays are converted.
    """
    if not isinstance(value, jax.Array):
        if dtype is None:
            # NumPy's default float64 becomes JAX's default float, as in jax.numpy itself.
            dtype = jnp.result_type(float)
            if isinstance(value, np.ndarray | np.floating) and value.dtype.kind == "f":
                dtype = jax.dtypes.canonicalize_dtype(value.dtype)
        try:
            if np.iscomplexobj(value):  # NumPy would drop the imaginary part with a mere warning
                raise TypeError
            return jnp.asarray(value, dtype=dtype)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} must be an array of real numbers, but is {type(value).__name__}."
            ) from error
    if not jnp.issubdtype(value.dtype, jnp.floating):
        if not (jnp.issubdtype(value.dtype, jnp.integer) or value.dtype == bool):
            raise TypeError(f"{name} must be real numbers, but has dtype {value.dtype}.")
        return value.astype(jnp.result_type(float) if dtype is None else dtype)
    if dtype is not None and value.dtype != dtype:
        if value.weak_type:
            return value.astype(dtype)
        raise TypeError(
            f"{name} has dtype {value.dtype}, but {jnp.dtype(dtype).name} is needed here: "
            "convert one of the two with .astype."
        )
    return value


def check_all(
    condition: Any, value: Any, message: str, error: type[Exception] = ValueError
) -> None:
    """Raise `error` with the first offending value and its index unless `condition` holds.

    `message` is formatted with `value` and `where` (the index, or an empty string for scalars).
    """
    if not (is_concrete(condition) and is_concrete(value)):
        return
    condition = np.asarray(condition)
    if condition.all():
        return
    value = np.broadcast_to(np.asarray(value), condition.shape)
    index = tuple(int(i) for i in np.argwhere(~condition)[0])
    where = f" at index {index if len(index) > 1 else index[0]}" if index else ""
    raise error(message.format(value=value[index].item(), where=where))


def check_nonnegative(value: Any, name: str) -> None:
    """Raise unless every entry is at least 0 (NaN fails too)."""
    if value is None or not is_concrete(value):
        return
    value = np.asarray(value)  # comparing in NumPy compiles nothing
    check_all(value >= 0, value, name + " must not be negative, but is {value:g}{where}.")


def check_positive(value: Any, name: str) -> None:
    """Raise unless every entry is above 0 (NaN fails too)."""
    if not is_concrete(value):
        return
    value = np.asarray(value)
    check_all(value > 0, value, name + " must be positive, but is {value:g}{where}.")


def check_shape(value: Any, shape: Sequence[int], name: str, reason: str) -> None:
    """Raise unless `value` has exactly this shape."""
    if tuple(value.shape) != tuple(shape):
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}, but {tuple(shape)} is needed: {reason}."
        )
