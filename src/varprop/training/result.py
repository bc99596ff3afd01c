"""What a fit returns, and what it predicts: the way from a model to a predictive distribution."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from varprop.data.statistics import Scaling
from varprop.learning.model import Model
from varprop.moments.gaussian import Gaussian, JointGaussian
from varprop.nn.parameters import take_apart
from varprop.training.kernel import NetworkKernel, as_input, padded
from varprop.training.recipe import Recipe
from varprop.training.schedule import Outcome

# Large enough that a call's fixed cost does not count, small enough to stay in the processor's
# cache.
BLOCK_ROWS = 4096
# Each size is a program to compile, which takes longer than thousands of rows: one size for single
# rows, one for the rows that a fit sets aside and looks at, whatever their number.
_FEW_ROWS, _SOME_ROWS = 32, 512


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

    def predictive(self, x: Any, *, x_var: Any = None) -> Any:
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
) -> Any:
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
    Predictive, or what else the likelihood gives
        What it makes of the network's output, float64.

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
    block = block_rows if n > BLOCK_ROWS else _SOME_ROWS if n > _FEW_ROWS else _FEW_ROWS
    block = min(block, block_rows)
    if scaling is None:
        scaling = Scaling.identity(inputs, model.likelihood.n_targets)
    found = []
    for start in range(0, max(n, 1), block):
        part = slice(start, start + block)
        var_part = None if x_var is None else x_var[part]
        rows = padded(scaling.inputs(x[part], var_part, params.dtype), block)
        out = _propagate_block(structure, params, constants, *rows)
        found.append(jax.tree.map(lambda a: np.asarray(a, np.float64), out))
    parts = jax.tree.map(
        lambda *arrays: np.concatenate(arrays)[:n] if arrays[0].ndim > 1 else arrays[0], *found
    )
    between = NetworkKernel(x, x_var, None, model, scaling)
    likelihood = model.likelihood
    targets = scaling.of_targets(likelihood.n_targets)
    return likelihood.distribution(parts, targets, squeeze=squeeze, between=between)


@functools.partial(jax.jit, static_argnums=0)
def _propagate_block(structure, params, constants, x, x_var):
    model: Model = structure.build(params, constants)
    rows = as_input(x, x_var)
    parts = model.predictive(rows)
    if model.weight_root is not None:  # never surer than all weights together are
        together = jnp.sum(model.shared(rows) ** 2, axis=-1)
        parts = tuple(part._replace(model=_at_least(part.model, together)) for part in parts)
    return jax.tree.map(_as_arrays, parts, is_leaf=_is_output)


def _at_least(out: Any, var: jax.Array) -> Any:
    """Return a Gaussian whose variances are no smaller."""
    return out + Gaussian(jnp.zeros_like(var), jnp.maximum(var - out.variances(), 0))


def _is_output(part: Any) -> bool:
    return isinstance(part, Gaussian | JointGaussian)


def _as_arrays(part: Any) -> Any:
    """Return a Gaussian as the pair of its mean and its variances, or its covariance."""
    if not _is_output(part):
        return jnp.asarray(part)
    return part.mean, part.dense_cov() if isinstance(part, JointGaussian) else part.variances()
