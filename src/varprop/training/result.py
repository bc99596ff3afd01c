"""What a fit returns, and what it predicts: the way from a model to a predictive distribution."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import numpy as np

from varprop.data.statistics import Scaling
from varprop.learning.model import Model
from varprop.moments.gaussian import JointGaussian
from varprop.nn.parameters import take_apart
from varprop.predictive.distribution import Predictive
from varprop.predictive.simple import in_units
from varprop.training.kernel import NetworkKernel, as_input, padded
from varprop.training.recipe import Recipe
from varprop.training.schedule import Outcome, bucket_size

# Large enough that a call's fixed cost does not count, small enough to stay in the processor's
# cache.
BLOCK_ROWS = 4096


@dataclasses.dataclass(frozen=True)
class Fit:
    """A trained model and how it came about.

    Attributes
    ----------
    model
        The trained model, in scaled units.
    history
        Training loss of every epoch (per row, with the KL weight of the moment), shape (epochs,).
        All finite: a lane that turned non-finite has those of the epochs before. Of rows that come
        in several buffers the last epoch may be one that was only begun.
    loss
        The objective per row over all training rows at the end, with the full KL weight. This is
        what restarts are chosen by. NaN if it is not finite, or was not asked for.
    outcome
        How it ended.
    n_steps
        Optimization steps done.
    seconds
        Wall-clock time of the lane, compilation included where it waited for it.
    scaling
        Shift and scale of the training rows.
    recipe
        How it was trained.
    restart_losses
        With restarts: the final `loss` of every lane, this one's among them.
    """

    model: Model
    history: np.ndarray
    loss: float
    outcome: Outcome
    n_steps: int
    seconds: float
    scaling: Scaling
    recipe: Recipe
    restart_losses: tuple[float, ...] = ()

    @property
    def n_epochs(self) -> int:
        """Passes over the training rows."""
        return len(self.history)

    def predictive(self, x: Any, *, x_var: Any = None) -> Predictive:
        """Return the predictive distributions of rows, in the units of the training data.

        Parameters
        ----------
        x
            Shape (rows, inputs).
        x_var
            Variance of the inputs' measurement error, shape of x; none unless given.
        """
        return propagate(self.model, np.asarray(x), x_var=x_var, scaling=self.scaling)

    def __repr__(self) -> str:
        """Return how it went, not the numbers."""
        return (
            f"Fit({self.outcome.value}, loss={self.loss:.4g}, n_steps={self.n_steps}, "
            f"seconds={self.seconds:.1f})"
        )


def propagate(
    model: Model,
    x: np.ndarray,
    *,
    x_var: np.ndarray | None = None,
    scaling: Scaling | None = None,
    squeeze: bool = False,
    block_rows: int = BLOCK_ROWS,
) -> Predictive:
    """Push rows through a model, in blocks of bounded memory.

    Parameters
    ----------
    model
        Any model.
    x
        Shape (rows, inputs), in the user's units.
    x_var
        Variance of the inputs' measurement error, shape of x.
    scaling
        What the model was trained with (`Fit.scaling`); none unless given.
    squeeze
        Whether a single target comes without an axis of its own.
    block_rows
        Rows at a time.

    Returns
    -------
    Predictive
        What the model's likelihood makes of the network's output, float64.

    Raises
    ------
    ValueError
        If a row lies so far out that the model's precision cannot hold its prediction.

    Examples
    --------
    >>> import jax
    >>> from varprop.learning.model import regression_model
    >>> out = propagate(regression_model(3, 2, key=jax.random.key(0)), np.ones((7, 3)))
    >>> out.mean.shape, out.model_var.shape, out.noise_var.shape
    ((7, 2), (7, 2), (7, 2))
    """
    structure, params, constants = take_apart(model)
    n, inputs = x.shape
    block = min(bucket_size(max(n, 1)), block_rows)
    if scaling is None:
        scaling = Scaling.identity(inputs, model.likelihood.n_targets)
    found = []
    for start in range(0, max(n, 1), block):
        part = slice(start, start + block)
        var_part = None if x_var is None else x_var[part]
        rows = padded(scaling.inputs(x[part], var_part, params.dtype), block)
        out = _propagate_block(structure, params, constants, *rows)
        found.append(jax.tree.map(lambda a: np.asarray(a, np.float64), out))
    kernel = NetworkKernel(x, x_var, None, model, scaling)
    parts, weights = [], []
    for component in zip(*found, strict=True):
        weight, mean, spread, noise = (
            np.concatenate(arrays)[:n] if arrays[0].ndim > 1 else arrays[0]
            for arrays in zip(*component, strict=True)
        )
        found_part = in_units(mean, spread, noise, scaling, squeeze=squeeze)
        parts.append(dataclasses.replace(found_part, between=(kernel,)))
        weights.append(float(weight))
    return parts[0] if len(parts) == 1 else Predictive.mixture(parts, weights)


@functools.partial(jax.jit, static_argnums=0)
def _propagate_block(structure, params, constants, x, x_var):
    model: Model = structure.build(params, constants)
    return [
        (
            weight,
            out.mean,
            out.dense_cov() if isinstance(out, JointGaussian) else out.variances(),
            noise,
        )
        for weight, out, noise in model.predictive(as_input(x, x_var))
    ]
