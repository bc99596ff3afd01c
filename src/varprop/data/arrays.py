"""Training data: checked arrays, their scaling, and padding to few distinct shapes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


def _as_matrix(value: Any, name: str, dtype: Any) -> np.ndarray:
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} must hold numbers, but has dtype {array.dtype}.")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes inf, and is named as such
        array = np.asarray(array, dtype)
    if array.ndim == 1 and name == "y":
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(f"{name} must have shape (rows, columns), but has shape {array.shape}.")
    return array


def _check_finite(array: np.ndarray, name: str) -> None:
    # A sum is finite when all entries are (or overflows, then look closely); it needs no copy.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum(dtype=np.float64)):
            return
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        where = f"row {bad[0][0]}" + (f", column {bad[0][1]}" if array.ndim == 2 else "")
        raise ValueError(
            f"{name} holds {array[tuple(bad[0])]} in {where}: remove or impute it first."
        )


@dataclasses.dataclass(frozen=True)
class Data:
    """Rows to train on, checked on construction; the arrays are not copied if they fit.

    Parameters
    ----------
    x
        Inputs, shape (rows, inputs).
    y
        Targets, shape (rows, outputs) or (rows,).
    weight
        Sample weights >= 0, shape (rows,); 2 means the row counts twice. All 1 unless given.
    x_var
        Known variance of the inputs' measurement error, shape of x; none unless given.
    dtype
        float32 or float64 (which needs `jax.enable_x64`).

    Examples
    --------
    >>> Data(np.ones((4, 2)), np.zeros(4)).n_rows
    4
    """

    x: np.ndarray
    y: np.ndarray
    weight: np.ndarray | None = None
    x_var: np.ndarray | None = None
    dtype: Any = dataclasses.field(default=np.float32, kw_only=True)

    def __post_init__(self):
        x, y = _as_matrix(self.x, "x", self.dtype), _as_matrix(self.y, "y", self.dtype)
        if len(x) != len(y):
            raise ValueError(f"x has {len(x)} rows, but y has {len(y)}.")
        if not len(x):
            raise ValueError("there are no rows to train on.")
        if not x.shape[1]:
            raise ValueError("x has no columns.")
        _check_finite(x, "x")
        _check_finite(y, "y")
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)
        if self.weight is not None:
            weight = np.asarray(self.weight, self.dtype)
            if weight.shape != (len(x),):
                raise ValueError(f"weight has shape {weight.shape}, but needs ({len(x)},).")
            _check_finite(weight, "weight")
            if (weight < 0).any():
                row = int(np.argmax(weight < 0))
                raise ValueError(f"weight must not be negative, but is {weight[row]} in row {row}.")
            object.__setattr__(self, "weight", weight)
        if self.x_var is not None:
            x_var = _as_matrix(self.x_var, "x_var", self.dtype)
            if x_var.shape != x.shape:
                raise ValueError(f"x_var has shape {x_var.shape}, but x has shape {x.shape}.")
            _check_finite(x_var, "x_var")
            if (x_var < 0).any():
                row, column = np.argwhere(x_var < 0)[0]
                raise ValueError(
                    f"x_var must not be negative, but is in row {row}, column {column}."
                )
            object.__setattr__(self, "x_var", x_var)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.x)


@dataclasses.dataclass(frozen=True)
class Scaling:
    """Shift and scale of every column, such that training rows have mean 0 and variance 1.

    Parameters
    ----------
    x_shift, x_scale
        Shape (inputs,).
    y_shift, y_scale
        Shape (outputs,).

    Examples
    --------
    >>> data = Data(np.array([[1.0], [3.0]]), np.array([10.0, 10.0]))
    >>> scaling = Scaling.of(data)
    >>> scaling.x_shift.tolist(), scaling.x_scale.tolist(), scaling.y_scale.tolist()
    ([2.0], [1.0], [1.0])
    """

    x_shift: np.ndarray
    x_scale: np.ndarray
    y_shift: np.ndarray
    y_scale: np.ndarray

    @classmethod
    def identity(cls, data: Data) -> Scaling:
        """Return the scaling that changes nothing."""
        n, d = data.x.shape[1], data.y.shape[1]
        return cls(np.zeros(n), np.ones(n), np.zeros(d), np.ones(d))

    @classmethod
    def of(cls, data: Data, rows: np.ndarray | None = None) -> Scaling:
        """Return weighted mean and standard deviation of the given rows, computed in float64.

        A constant column keeps scale 1, so that it becomes 0 instead of noise. The mean is rounded
        to the data's dtype: what training subtracts is then exactly what prediction adds again.
        """
        rows = np.arange(data.n_rows) if rows is None else rows
        weight = np.ones(len(rows)) if data.weight is None else data.weight[rows].astype(np.float64)
        if not weight.sum() > 0:
            raise ValueError("there are no rows of positive weight to scale by.")
        return cls(
            *_weighted_moments(data.x, rows, weight), *_weighted_moments(data.y, rows, weight)
        )


def _weighted_moments(
    array: np.ndarray, rows: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation per column in two passes, a block of rows at a time."""
    block = max(1, 2**20 // max(1, array.shape[1]))
    blocks = [slice(i, i + block) for i in range(0, len(rows), block)]

    def average(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        parts = (weight[part] @ function(array[rows[part]]) for part in blocks)
        return np.asarray(sum(parts) / weight.sum())

    # Differences from one row keep digits where a column is large and nearly constant.
    origin = array[rows[np.argmax(weight > 0)]].astype(np.float64)
    center = origin + average(lambda values: values - origin)
    std = np.sqrt(average(lambda values: (values - center) ** 2))
    return shift_and_scale(center, std, array.dtype)


def shift_and_scale(
    center: np.ndarray, std: np.ndarray, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Return what to subtract and divide by, given mean and standard deviation of every column.

    Examples
    --------
    >>> shift, scale = shift_and_scale(np.array([3.0, 5.0]), np.array([2.0, 0.0]), np.dtype("f4"))
    >>> shift.tolist(), scale.tolist()
    ([3.0, 5.0], [2.0, 1.0])
    """
    # Rounding of a constant column leaves a spread of an ulp or so: that is no spread.
    constant = std <= (1e-6 if dtype == np.float32 else 1e-14) * np.abs(center)
    return center.astype(dtype).astype(np.float64), np.where(constant, 1.0, std)


#: The noise's least standard deviation, as a share of the step between recorded targets. Rounding
#: has 0.29 of a step; this is well below, so that exact numbers on a grid may be learned.
NOISE_PER_STEP = 0.1


def noise_floor(y: np.ndarray) -> np.ndarray:
    """Return a standard deviation for each target that its noise should not fall below.

    Where targets repeat, as whole numbers do, a network can output one of the values exactly for
    many rows, and the density there has no bound: the training objective then rewards certainty
    that held-out rows refute (on the wine data a loss 0.2 lower came with a held-out NLL of 4,000).
    So wherever values repeat, the noise keeps a tenth of the smallest step between them.

    Parameters
    ----------
    y
        Targets, shape (rows, outputs).

    Returns
    -------
    ndarray
        Shape (outputs,), in the units of y; 0 where no value occurs twice, or all are equal.

    Examples
    --------
    >>> noise_floor(np.array([[3.0, 0.1], [5.0, 0.2], [5.0, 0.3], [6.0, 0.4]])).tolist()
    [0.1, 0.0]
    """
    floors = []
    for column in y.T:
        values = np.unique(column)
        repeated = 1 < len(values) < len(column)
        floors.append(NOISE_PER_STEP * np.diff(values).min() if repeated else 0.0)
    return np.array(floors)


def bucket_size(n: int) -> int:
    """Round a row count up to one of few sizes, so that similar counts share a compiled program.

    Eight sizes per octave: at most 12.5 % of padding.

    Examples
    --------
    >>> [bucket_size(n) for n in (1, 20, 404, 405, 1_000_000)]
    [32, 32, 416, 416, 1048576]
    """
    step = max(32, 2 ** (max(n - 1, 1).bit_length() - 1) // 8)
    return -(-n // step) * step


def pad_rows(array: np.ndarray, n: int) -> np.ndarray:
    """Append copies of the first row up to n rows (of weight 0, but they must be valid numbers)."""
    if len(array) == n:
        return array
    padded = np.empty((n, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    padded[len(array) :] = array[0]
    return padded
