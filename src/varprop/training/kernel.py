"""What rows of a network have in common, and where their variance comes from."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from varprop.data.statistics import Scaling
from varprop.learning.model import Model
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.nn.layers import Sequential
from varprop.nn.parameters import take_apart
from varprop.nn.propagation import pushed_through
from varprop.nn.sources import covariance_between_rows, layer_names, variance_budget
from varprop.predictive.kernels import BLOCK, AbstractRowKernel, Shares, blocks
from varprop.training.schedule import bucket_size


def padded(values: tuple[Any, ...], n_rows: int) -> list[Any]:
    """Return arrays with rows of zeros added, so that one compiled program serves all blocks."""
    return [
        None
        if part is None
        else np.pad(part, ((0, n_rows - len(part)), *[(0, 0)] * (part.ndim - 1)))
        for part in values
    ]


def as_input(x: Any, x_var: Any) -> Any:
    """Return inputs with the variances of their errors, (rows, n), or covariances."""
    return Gaussian(x, x_var) if x_var is None or x_var.ndim == 2 else JointGaussian(x, x_var)


def _layers(model: Model) -> Any:
    if not isinstance(model.network, Sequential):
        raise TypeError(
            "what rows have in common is known of Sequential networks only, not of "
            f"{type(model.network).__name__}."
        )
    return model.network.flat


@final
@dataclasses.dataclass(frozen=True, eq=False)
class NetworkKernel(AbstractRowKernel):
    """What rows of a network have in common: its weights."""

    model: Model
    scaling: Scaling

    def correlate(self, rows: slice, others: slice) -> np.ndarray:
        """Return the correlation of the network's outputs, in double precision.

        So that a covariance of many rows is positive semidefinite, as it is but for rounding.
        """
        with jax.enable_x64(True):
            found = _correlate_block(*self._taken_apart(), *self._block(rows), *self._block(others))
        n, m = (part.stop - part.start for part in (rows, others))
        return np.asarray(found, np.float64)[:, :n, :m]

    def shares(self) -> Shares:
        """Return what `varprop.nn.sources.variance_budget` finds, layers by name."""
        n, d, found = len(self.x), self.model.likelihood.n_targets, []
        with jax.enable_x64(True):
            apart = self._taken_apart()
            for rows in blocks(n):
                parts = np.asarray(_budget_block(*apart, *self._block(rows)), np.float64)
                found.append(parts[:, : rows.stop - rows.start, :d])
        shares = np.concatenate(found, axis=1)
        whole = shares.sum(axis=0)
        shares = shares / np.where(whole > 0, whole, 1.0)
        inputs, layers = np.split(shares, [self.x.shape[1]])
        names = layer_names(_layers(self.model))
        return Shares(inputs, {name: layers[i] for i, name in names.items()})

    def _block(self, rows: slice) -> list[Any]:
        x_var = None if self.x_var is None else self.x_var[rows]
        scaled = self.scaling.inputs(self.x[rows], x_var, np.float64)
        single = rows.stop - rows.start == 1  # a column of the covariance, which costs no more
        return padded(scaled, 1 if single else min(bucket_size(len(self.x)), BLOCK))

    def _taken_apart(self) -> tuple[Any, ...]:
        double = jax.tree.map(
            lambda a: jnp.asarray(a, jnp.float64) if hasattr(a, "dtype") else a, self.model
        )
        return take_apart(double)


@functools.partial(jax.jit, static_argnums=0)
def _correlate_block(structure, params, constants, x, x_var, z, z_var):
    model: Model = structure.build(params, constants)
    layers, d = _layers(model), model.likelihood.n_targets
    inputs = as_input(x, x_var), as_input(z, z_var)
    # To first order, as the covariance is, whatever the network's way of propagating.
    var, other = (pushed_through(layers, part, "first-order").variances().T[:d] for part in inputs)
    if model.weight_root is None:
        cov = covariance_between_rows(layers, *inputs)[:d]
    else:
        a, b = (model.shared(part).transpose(1, 0, 2) for part in inputs)
        cov = a @ b.mT
        var, other = (
            jnp.maximum(own, jnp.sum(root**2, axis=-1)) for own, root in ((var, a), (other, b))
        )
    scale = jnp.sqrt(var[:, :, None] * other[:, None, :])
    return jnp.where(scale > 0, cov / jnp.where(scale > 0, scale, 1.0), 0.0)


@functools.partial(jax.jit, static_argnums=0)
def _budget_block(structure, params, constants, x, x_var):
    model: Model = structure.build(params, constants)
    return variance_budget(_layers(model), as_input(x, x_var))
