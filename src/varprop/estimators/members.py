"""Training the regressor's members: lanes of restarts, and single epochs for `partial_fit`.

What comes out are plain NumPy arrays in frozen models, so that pickle, joblib and other processes
take them.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from varprop.data.arrays import Data
from varprop.learning.likelihoods import GaussianLikelihood
from varprop.learning.model import Model
from varprop.learning.objectives import AbstractObjective
from varprop.training.engine import best_of, fit_many, restart_lanes
from varprop.training.lanes import Lane
from varprop.training.preparation import prepare
from varprop.training.recipe import Recipe
from varprop.training.result import Fit, Outcome

# From good to bad, so that an ensemble can be given the worst of its members' outcomes.
_RANK = (Outcome.CONVERGED, Outcome.MAX_STEPS, Outcome.TIME_LIMIT, Outcome.INTERRUPTED)


@dataclasses.dataclass(frozen=True)
class Trained:
    """Members of an ensemble and how their training went.

    Attributes
    ----------
    members
        Models with NumPy leaves.
    outcome
        Value of the worst member's `Outcome`.
    loss
        Mean over members of the final objective per row.
    loss_curve
        Training loss of every epoch, averaged over the members still training then.
    n_epochs, n_steps
        Of the member that trained longest.
    restart_losses
        Final objective of every lane, shape (members, restarts).
    """

    members: list[Model]
    outcome: str
    loss: float
    loss_curve: np.ndarray
    n_epochs: int
    n_steps: int
    restart_losses: np.ndarray


@dataclasses.dataclass
class EpochState:
    """Where `partial_fit` stands: per member, the arrays of the optimizer's state."""

    leaves: list[list[np.ndarray]]
    warm_up: bool


def to_numpy(tree: Any) -> Any:
    """Turn JAX arrays into NumPy arrays.

    Examples
    --------
    >>> type(to_numpy({"a": jnp.ones(2)})["a"]).__name__
    'ndarray'
    """
    return jax.tree.map(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, tree)


def to_jax(tree: Any) -> Any:
    """Turn NumPy arrays into JAX arrays, in JAX's float type of the moment.

    Examples
    --------
    >>> isinstance(to_jax({"a": np.ones(2)})["a"], jax.Array)
    True
    """
    return jax.tree.map(lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, tree)


def noise_var(model: Model) -> np.ndarray:
    """Return the variances of a model's noise, in standardized units and float64."""
    likelihood = model.likelihood
    assert isinstance(likelihood, GaussianLikelihood)
    var = np.exp(2 * np.asarray(likelihood.log_std, np.float64))
    return var if likelihood.floor is None else var + np.asarray(likelihood.floor, np.float64) ** 2


def member_dtype(model: Model) -> np.dtype:
    """Return the precision a model was trained in."""
    assert isinstance(model.likelihood, GaussianLikelihood)
    return np.dtype(model.likelihood.log_std.dtype)


def with_floor(model: Model, floor: np.ndarray) -> Model:
    """Return the model with the same noise (as far as it can) that cannot fall below the floor."""
    above = np.maximum(noise_var(model) - floor**2, 1e-6 * noise_var(model))
    dtype = member_dtype(model)
    likelihood = GaussianLikelihood(np.sqrt(above).astype(dtype), floor=floor.astype(dtype))
    return Model(model.network, likelihood, model.prior)


def without_floor(model: Model) -> Model:
    """Return the model with the same noise and no floor: what is kept, saved and exported."""
    std = np.sqrt(noise_var(model)).astype(member_dtype(model))
    return Model(model.network, GaussianLikelihood(std), model.prior)


def check_goes_on(model: Model, init: Callable[[PRNGKeyArray], Model]) -> None:
    """Raise ValueError unless the settings of now would build the same network."""
    fresh = jax.eval_shape(init, jax.random.key(0))
    structure: Any = jax.tree.structure(fresh)
    same = structure == jax.tree.structure(model) and all(
        (new.shape, new.dtype) == (old.shape, old.dtype)
        for new, old in zip(jax.tree.leaves(fresh), jax.tree.leaves(model), strict=True)
    )
    if not same:
        raise ValueError("The network's settings were changed: it cannot go on, fit it anew.")


def nonfinite_error(learning_rate: float) -> ValueError:
    """Return the error for a training that became infinite or NaN, with what to try."""
    return ValueError(
        "Training became infinite or NaN: lower learning_rate_init (it is "
        f"{learning_rate:g}), try dtype='float64', or look for extreme values in X and y."
    )


def train_members(
    init: Callable[[PRNGKeyArray], Model],
    data: Data,
    objective: AbstractObjective,
    *,
    key: PRNGKeyArray,
    recipe: Recipe,
    n_members: int,
    n_restarts: int,
    n_threads: int,
    progress: bool,
    floor: np.ndarray,
    start: Sequence[Model] | None = None,
) -> Trained:
    """Train every member from several starts and keep the best start of each.

    Parameters
    ----------
    init
        Makes a model from a key.
    data
        Standardized rows.
    objective, recipe
        What to minimize, and how.
    key
        Random key; each member has its own part of it.
    n_members, n_restarts
        Size of the ensemble, and starts per member.
    n_threads
        Lanes trained at a time.
    progress
        Whether to show a bar.
    floor
        Least standard deviation of the noise, standardized, shape (outputs,).
    start
        Go on from these members instead (a warm start); no others are started then, and the KL
        keeps its full weight.
    """
    keys = jax.random.split(key, n_members)
    if start is None:
        groups = [
            restart_lanes(
                lambda key: with_floor(init(key), floor),
                key=member_key,
                n_restarts=n_restarts,
                recipe=recipe,
            )
            for member_key in keys
        ]
    else:
        recipe = recipe.replace(kl_warmup=0)
        groups = [
            [Lane(model=with_floor(to_jax(model), floor), key=member_key, recipe=recipe)]
            for model, member_key in zip(start, keys, strict=True)
        ]
    lanes = [lane for group in groups for lane in group]
    fits = fit_many(
        lanes, data, objective, standardize=False, n_threads=n_threads, progress=progress
    )
    size = len(groups[0])
    chosen = [best_start(fits[i : i + size], recipe) for i in range(0, len(fits), size)]
    if any(fit.outcome is Outcome.INTERRUPTED for fit in fits):
        warnings.warn("Training was interrupted: the model is what there was then.", stacklevel=3)
    return summary(chosen)


def best_start(fits: Sequence[Fit], recipe: Recipe) -> Fit:
    """Return the lowest final objective among the starts that stayed finite, or raise."""
    sound = [
        fit for fit in fits if fit.outcome is not Outcome.NONFINITE and math.isfinite(fit.loss)
    ]
    if not sound:
        raise nonfinite_error(recipe.learning_rate)
    losses = tuple(fit.loss for fit in fits)
    return dataclasses.replace(best_of(sound), restart_losses=losses)


def summary(fits: Sequence[Fit]) -> Trained:
    """Return one fit per member as an ensemble."""
    length = max(fit.n_epochs for fit in fits)
    curves = np.full((len(fits), length), np.nan)
    for curve, fit in zip(curves, fits, strict=True):
        curve[: fit.n_epochs] = fit.history
    return Trained(
        members=[to_numpy(without_floor(fit.model)) for fit in fits],
        outcome=max((fit.outcome for fit in fits), key=_RANK.index).value,
        loss=float(np.mean([fit.loss for fit in fits])),
        loss_curve=np.nanmean(curves, axis=0),
        n_epochs=length,
        n_steps=max(fit.n_steps for fit in fits),
        restart_losses=np.array([fit.restart_losses for fit in fits]),
    )


def train_one_epoch(
    members: Sequence[Model],
    data: Data,
    objective: AbstractObjective,
    *,
    key: PRNGKeyArray,
    recipe: Recipe,
    floor: np.ndarray,
    state: EpochState | None,
) -> tuple[list[Model], EpochState, float]:
    """Train every member for one more pass over these rows, the optimizer's state carried along.

    Parameters
    ----------
    members
        Where it stands.
    data
        Standardized rows, not necessarily those of the epoch before.
    objective
        What to minimize; the KL divergence counts once per pass.
    key
        Random key, the same in every epoch: the state knows how many there have been.
    recipe
        From `epoch_recipe`.
    floor
        As in `train_members`.
    state
        What the epoch before returned, or None for the first.

    Returns
    -------
    members, state, loss
        The last is the mean over members of the epoch's training loss.
    """
    keys = jax.random.split(key, len(members))
    lanes = [
        Lane(model=with_floor(to_jax(model), floor), key=member_key, recipe=recipe)
        for model, member_key in zip(members, keys, strict=True)
    ]
    runners = prepare(lanes, data, objective, standardize=False, optimizer=None)
    trained, leaves, losses = [], [], []
    for number, runner in enumerate(runners):
        if state is not None:
            _, fresh = runner.to_checkpoint()
            runner.from_checkpoint(state.leaves[number], fresh)
        runner.advance()
        if runner.outcome is Outcome.NONFINITE:
            raise nonfinite_error(recipe.learning_rate)
        leaves.append(runner.to_checkpoint()[0])
        losses.append(runner.losses[-1])
        model, _ = runner.program.structure.build(runner.state.params, runner.inputs.constants)
        trained.append(to_numpy(without_floor(model)))
    warm_up = recipe.kl_warmup > 0
    return trained, EpochState(leaves, warm_up), float(np.mean(losses))
