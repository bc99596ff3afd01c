"""Checks of the arrays a `Predictive` is built from: one sentence per mistake."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from varprop.predictive.mixtures import Array, ArrayLike, Mask, correlation

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


def check_finite(values: Array, name: str, outputs: Sequence[int] | None = None) -> None:
    """Refuse NaN and infinity in ``(n, d, ...)``."""
    bad = ~np.isfinite(values)
    if bad.any():
        raise ValueError(f"{name} is not finite at {_where(bad, outputs)}.")


def check_variances(values: Array, name: str) -> None:
    """Refuse non-finite and negative variances ``(n, d)``."""
    check_finite(values, name)
    bad = values < 0
    if bad.any():
        raise ValueError(f"{name} is negative at {_where(bad)}: {values[bad][0]}.")


def check_mean(mean: ArrayLike) -> tuple[Array, bool]:
    """Return the mean as ``(n, d)`` and whether the output axis was absent."""
    mean = as_float(mean, "mean")
    if mean.ndim not in (1, 2):
        raise ValueError(f"mean must have shape (n,) or (n, d), not {mean.shape}.")
    if mean.size == 0:
        raise ValueError(f"mean must hold at least one row and one output, not {mean.shape}.")
    squeeze = mean.ndim == 1
    mean = mean[:, None] if squeeze else mean
    check_finite(mean, "mean")
    return mean, squeeze


def check_noise(noise_var: ArrayLike, shape: tuple[int, int], squeeze: bool) -> Array:
    """Return the noise variances as ``(1, d)`` or ``(n, d)``."""
    noise = as_float(noise_var, "noise_var")
    n, d = shape
    public = (n,) if squeeze else shape
    if noise.shape == public:
        noise = noise.reshape(shape)
    elif noise.shape in ((), (d,)):
        noise = np.broadcast_to(noise, (1, d))
    else:
        raise ValueError(f"noise_var has shape {noise.shape}, not (), ({d},) or {public}.")
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


def check_weights(weights: ArrayLike | None, n_members: int, n_rows: int) -> Array:
    """Return normalized weights of shape ``(K, 1)`` or ``(K, n)``."""
    w = np.ones(n_members) if weights is None else as_float(weights, "weights")
    if w.shape not in ((n_members,), (n_members, n_rows)):
        raise ValueError(
            f"weights has shape {w.shape}, not ({n_members},) or ({n_members}, {n_rows})."
        )
    w = w.reshape(n_members, -1)
    if not (np.isfinite(w).all() and (w >= 0).all() and (w.sum(axis=0) > 0).all()):
        raise ValueError("weights must be finite, not negative and not all zero.")
    return w / w.sum(axis=0)
