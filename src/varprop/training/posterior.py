"""What training rows say of all weights together, by Gauss and Newton, for what rows share.

Weights are learned as independent of one another. The data say more of some sums of them, and so of
sums over rows, than of any weight by itself, and less of others. At the trained means, with slopes
J of the network's mean and noise s^2, the posterior has the precision

    A = diag(1 / prior variance) + sum_n w_n J_n' J_n / s_n^2 / kl_weight,

exact without hidden layers. R with R R' = A^-1 is kept with the model (`Model.weight_root`).
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from varprop.data.source import AbstractSource
from varprop.learning.model import Model
from varprop.learning.objectives import AbstractObjective
from varprop.learning.priors import weights_by_layer
from varprop.nn.parameters import take_apart
from varprop.nn.weights import GaussianWeights, PointWeights
from varprop.training.kernel import as_input, padded
from varprop.training.result import Fit

#: Weights whose covariance, their square, is kept with a model: 64 MB in single precision.
MOST_WEIGHTS = 4_000
_BLOCK_NUMBERS = 2**20


def check_gauss_newton(model: Model, objective: AbstractObjective, kl_weight: float) -> None:
    """Raise ValueError unless the weights of a model have a posterior by Gauss and Newton.

    Examples
    --------
    >>> from varprop.learning.model import regression_model
    >>> from varprop.learning.objectives import VI
    >>> check_gauss_newton(regression_model(3, 1, key=jax.random.key(0)), VI(), 1.0)
    """
    name = "row_covariance='gauss-newton'"
    weights = [part for layer in weights_by_layer(model.network) for part in layer]
    if not all(isinstance(part, GaussianWeights | PointWeights) for part in weights):
        raise ValueError(f"{name} is for weights='gaussian' only.")
    n_weights = sum(part.mean.size for part in weights if isinstance(part, GaussianWeights))
    if n_weights > MOST_WEIGHTS:
        raise ValueError(
            f"{name} is for at most {MOST_WEIGHTS:,} weights, but the network has {n_weights:,}: "
            "take fewer units."
        )
    if not objective.regularized or kl_weight == 0:
        raise ValueError(f"{name} needs a prior: choose a kl_weight above 0, and VI or ROPD.")
    row = jnp.zeros((1, weights[0].shape[-1]))
    if len(jax.eval_shape(model.predictive, row)) > 1:
        raise ValueError(f"{name} needs a likelihood of one component.")


def with_weight_root(fit: Fit, source: AbstractSource, objective: AbstractObjective) -> Fit:
    """Return a fit whose model knows what the rows it was trained on say of its weights together.

    Parameters
    ----------
    fit
        As it was trained.
    source
        The rows, in the user's units.
    objective
        Where it does not tell noise from what the model is unsure of, all of a row's variance is
        what rows do not have in common.
    """
    model, kl_weight = fit.model, fit.recipe.kl_weight
    scale = np.sqrt(_prior_variances(model))
    structure, params, constants = take_apart(model)
    n_rows = max(1, _BLOCK_NUMBERS // (len(scale) * model.likelihood.n_targets))
    found = np.zeros((len(scale), len(scale)))
    for block in range(len(source.block_rows)):
        for piece in source.read(block):
            for start in range(0, len(piece.x), n_rows):
                part = piece.part(slice(start, start + n_rows))
                rows = fit.scaling.rows(part, params.dtype)
                inputs = padded((rows.x, rows.x_var), n_rows)
                weight = np.ones(len(part.x)) if part.weight is None else part.weight
                slopes, var = (
                    np.asarray(out, np.float64)[: len(weight)]
                    for out in _slopes_block(
                        structure, params, constants, *inputs, not objective.identifies_noise
                    )
                )
                slopes = slopes * (np.sqrt(weight[:, None] / var / kl_weight)[..., None] * scale)
                slopes = slopes.reshape(-1, len(scale))
                found += slopes.T @ slopes
    # In units of the prior the precision is 1 and more.
    lower = np.linalg.cholesky(found + np.eye(len(scale)))
    root = scale[:, None] * np.linalg.inv(lower).T
    return dataclasses.replace(
        fit, model=dataclasses.replace(model, weight_root=jnp.asarray(root, params.dtype))
    )


def _prior_variances(model: Model) -> np.ndarray:
    parts = [
        np.broadcast_to(np.asarray(model.prior.distribution(layer, part).var), part.shape).ravel()
        for layer, parts in enumerate(weights_by_layer(model.network))
        for part in parts
        if isinstance(part, GaussianWeights)
    ]
    return np.concatenate(parts).astype(np.float64)


@functools.partial(jax.jit, static_argnums=(0, 5))
def _slopes_block(structure, params, constants, x, x_var, whole):
    model: Model = structure.build(params, constants)
    found = as_input(x, x_var)
    _, out, noise = model.predictive(found)[0]
    var = jnp.broadcast_to(noise, out.shape)
    return model.slopes(found), var + out.variances() if whole else var
