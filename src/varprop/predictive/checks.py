"""Checks of what people pass: arrays a `Predictive` is built from, targets, weights, levels."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from varprop.predictive.mixtures import Array, ArrayLike, Mask, correlation

RandomState = int | np.random.Generator | np.random.RandomState | None
# Covariances often come from single-precision networks; per output, in units of the correlation.
_ROUNDING = 1e-6


def as_float(value: ArrayLike, name: str) -> Array:
    """Return `value` as float64 without copying where possible."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers in a regular array.") from error


def _where(mask: Mask, outputs: Sequence[int] | None = None) -> str:
    """Name the first True of ``(n, d, ...)`` as 'row r, output o'."""
    row, *rest = np.argwhere(mask)[0]
    named = [int(i) if outputs is None else outputs[int(i)] for i in rest]
    return f"row {row}" + (f", output {named[0]}" if named else "")


def drawing(
    n_samples: int, random_state: RandomState
) -> tuple[int, np.random.Generator | np.random.RandomState]:
    """Return a positive number of draws, and what to draw by."""
    n_samples = operator.index(n_samples)
    if n_samples < 1:
        raise ValueError(f"n_samples must be at least 1, not {n_samples}.")
    if isinstance(random_state, np.random.Generator | np.random.RandomState):
        return n_samples, random_state
    return n_samples, np.random.default_rng(random_state)


def row_index(rows: Any, n: int) -> Any:
    """Return which of n rows are chosen, by a slice or an index array; at least one."""
    index = np.arange(n)[rows]
    if index.ndim > 1:
        raise IndexError("A prediction is indexed by rows only.")
    if index.size == 0:
        raise ValueError("The selection holds no rows.")
    return rows if isinstance(rows, slice) else index.reshape(-1)


def as_alpha(alpha: ArrayLike) -> Array:
    """Return probabilities strictly between 0 and 1."""
    alpha = np.asarray(alpha, dtype=np.float64)
    if not np.all((alpha > 0) & (alpha < 1)):
        raise ValueError("alpha must lie strictly between 0 and 1.")
    return alpha


def mixture_weights(weights: ArrayLike | None, shapes: Sequence[tuple[int, ...]]) -> Array:
    """Return weights (members, 1) or (members, n) that sum to one, of members of one shape."""
    if not shapes:
        raise ValueError("A mixture needs at least one member.")
    k, n = len(shapes), shapes[0][0]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(f"Member {i} has shape {shape} but member 0 has shape {shapes[0]}.")
    found = as_weights(np.ones(k) if weights is None else weights, "weights", (k,), (k, n))
    normal: Array = found.reshape(k, -1) / found.sum(axis=0)
    return normal


def check_finite(values: Array, name: str, outputs: Sequence[int] | None = None) -> None:
    """Refuse NaN and infinity in ``(n, d, ...)``."""
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(f"{name} is not finite at {_where(bad, outputs)}.")


def check_share(value: float, name: str) -> None:
    """Refuse a probability that is not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie strictly between 0 and 1, not {value}.")


def as_levels(levels: ArrayLike | None, steps: int) -> Array:
    """Return the levels, or ``1 / steps, ..., (steps - 1) / steps`` for None."""
    level = np.arange(1, steps) / steps if levels is None else as_float(levels, "levels")
    if level.ndim != 1 or not level.size or not np.all((level > 0) & (level < 1)):
        raise ValueError("levels must be a non-empty list of numbers strictly between 0 and 1.")
    return level


def as_columns(values: ArrayLike, name: str) -> Array:
    """Return finite numbers of shape ``(n,)`` or ``(n, d)`` as ``(n, d)``."""
    a = as_float(values, name)
    if a.ndim not in (1, 2) or a.size == 0:
        raise ValueError(
            f"{name} must have shape (n,) or (n, d) with at least one row, not {a.shape}."
        )
    check_finite(a, name)
    return a.reshape(len(a), -1)


def as_targets(y: ArrayLike, name: str, *shapes: tuple[int, ...]) -> Array:
    """Return the targets as ``(n, d)``, refusing any shape but those of the prediction."""
    y = as_float(y, name)
    if y.shape not in shapes:
        raise ValueError(f"{name} has shape {y.shape} but the prediction has {shapes[0]}.")
    return as_columns(y, name)


def as_weights(weights: ArrayLike, name: str, *shapes: tuple[int, ...]) -> Array:
    """Return weights of one of these shapes, of which some are positive in every column."""
    w = as_float(weights, name)
    if w.shape not in shapes:
        raise ValueError(f"{name} has shape {w.shape}, not {' or '.join(map(str, shapes))}.")
    if not (np.isfinite(w).all() and (w >= 0).all() and (w.sum(axis=0) > 0).all()):
        raise ValueError(f"{name} must be finite, not negative and not all zero.")
    return w


def check_variances(values: Array, name: str) -> None:
    """Refuse non-finite and negative variances ``(n, d)``."""
    check_finite(values, name)
    bad = values < 0
    if bad.any():
        raise ValueError(f"{name} is negative at {_where(bad)}: {values[bad][0]}.")


def check_noise(noise_var: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Return the noise variances as ``(1, d)`` or ``(n, d)``; `shape` is that of the mean."""
    noise = as_float(noise_var, "noise_var")
    n, d = shape if len(shape) == 2 else (*shape, 1)
    if noise.shape == shape:
        noise = noise.reshape(n, d)
    elif noise.shape in ((), (d,)):
        noise = np.broadcast_to(noise, (1, d))
    else:
        raise ValueError(f"noise_var has shape {noise.shape}, not (), ({d},) or {shape}.")
    if noise.shape[0] == 1 and (~np.isfinite(noise) | (noise < 0)).any():
        raise ValueError(f"noise_var must be finite and not negative, not {noise[0].tolist()}.")
    check_variances(noise, "noise_var")
    return noise


def check_covariance(cov: Array, shape: tuple[int, int]) -> Array:
    """Return ``(n, d, d)``, made exactly symmetric."""
    n, d = shape
    if cov.shape != (n, d, d):
        raise ValueError(f"model_cov has shape {cov.shape} but mean asks for {(n, d, d)}.")
    check_finite(cov, "model_cov")
    check_variances(np.diagonal(cov, axis1=-2, axis2=-1), "The diagonal of model_cov")
    _, corr = correlation(cov)
    tolerance = d * _ROUNDING
    skew = np.abs(corr - corr.swapaxes(-1, -2)) > tolerance
    if skew.any():
        raise ValueError(f"model_cov is not symmetric at row {np.argwhere(skew)[0][0]}.")
    try:
        # The factorization exists if and only if no eigenvalue is below -tolerance.
        np.linalg.cholesky(corr + tolerance * np.eye(d))
    except np.linalg.LinAlgError:
        row = int(np.argmin(np.linalg.eigvalsh(corr)[:, 0]))
        raise ValueError(f"model_cov is not positive semi-definite at row {row}.") from None
    return 0.5 * (cov + cov.swapaxes(-1, -2))
