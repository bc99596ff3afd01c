"""Prediction: mean and variance of any number of rows, a block at a time, in the user's units."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import numpy as np

from varprop.data.arrays import Scaling, bucket_size
from varprop.learning.model import Model
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.nn.parameters import take_apart

# Large enough that a call's fixed cost does not count, small enough to stay in the processor's
# cache.
BLOCK_ROWS = 4096


class Propagated(NamedTuple):
    """The network's output and the noise on it, float64, in the user's units.

    Attributes
    ----------
    mean
        Shape (rows, outputs).
    var
        Variance of the network's output, without noise; shape (rows, outputs).
    cov
        Its covariance, shape (rows, outputs, outputs), for networks with joint outputs; else None.
    noise_var
        Variance of the noise, shape (outputs,).
    """

    mean: np.ndarray
    var: np.ndarray
    cov: np.ndarray | None
    noise_var: np.ndarray


def propagate(
    model: Model,
    x: np.ndarray,
    *,
    x_var: np.ndarray | None = None,
    scaling: Scaling | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Propagated:
    """Push rows through a model, in blocks of bounded memory.

    Parameters
    ----------
    model
        A model with a `GaussianLikelihood`.
    x
        Shape (rows, inputs), in the user's units.
    x_var
        Variance of the inputs' measurement error, shape of x.
    scaling
        What the model was trained with (`Fit.scaling`); none unless given.
    block_rows
        Rows at a time.

    Examples
    --------
    >>> import jax
    >>> from varprop.learning.model import regression_model
    >>> out = propagate(regression_model(3, 2, key=jax.random.key(0)), np.ones((7, 3)))
    >>> out.mean.shape, out.var.shape, out.noise_var.shape
    ((7, 2), (7, 2), (2,))
    """
    structure, params, constants = take_apart(model)
    dtype = params.dtype
    n = len(x)
    block = min(bucket_size(max(n, 1)), block_rows)
    inputs = x.shape[1]
    shift = np.zeros(inputs) if scaling is None else scaling.x_shift
    scale = np.ones(inputs) if scaling is None else scaling.x_scale
    y_shift = 0.0 if scaling is None else scaling.y_shift
    y_scale = np.ones(1) if scaling is None else scaling.y_scale

    means, spreads, joint = [], [], False
    for start in range(0, max(n, 1), block):
        rows = np.zeros((block, inputs), dtype)
        part = x[start : start + block]
        # Shifted in float64: a column far from zero would lose its digits in the model's precision.
        with np.errstate(over="ignore"):  # what the precision cannot hold gives no finite result
            rows[: len(part)] = (part - shift) / scale
        var_rows = None
        if x_var is not None:
            var_rows = np.zeros((block, inputs), dtype)
            var_rows[: len(part)] = x_var[start : start + block] / scale / scale
        mean, spread = _propagate_block(structure, params, constants, rows, var_rows)
        joint = spread.ndim == 3
        means.append(np.asarray(mean, np.float64)[: len(part)])
        spreads.append(np.asarray(spread, np.float64)[: len(part)])
    mean = np.concatenate(means) * y_scale + y_shift
    spread = np.concatenate(spreads)
    noise = np.asarray(model.likelihood.var, np.float64) * y_scale**2  # type: ignore[attr-defined]
    if not joint:
        return Propagated(mean, spread * y_scale**2, None, noise)
    cov = spread * (y_scale[:, None] * y_scale)
    return Propagated(mean, np.diagonal(cov, axis1=-2, axis2=-1), cov, noise)


@functools.partial(jax.jit, static_argnums=0)
def _propagate_block(structure, params, constants, x, x_var):
    model: Model = structure.build(params, constants)
    out = model.network.moments(Gaussian(x, x_var))
    return out.mean, out.dense_cov() if isinstance(out, JointGaussian) else out.variances()
