"""The members of an ensemble: where they start, how the best start is kept, one more epoch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from varprop.data.source import AbstractSource, Data
from varprop.data.statistics import Scaling, Statistics
from varprop.estimators.options import epoch_recipe, make_model, make_objective, make_recipe
from varprop.learning.model import Model
from varprop.nn.parameters import trainable_mask
from varprop.training.engine import best_of, fit_many, restart_lanes
from varprop.training.preparation import Lane, prepare
from varprop.training.recipe import Recipe
from varprop.training.result import Fit
from varprop.training.schedule import Outcome


@dataclasses.dataclass(frozen=True)
class Epochs:
    """Where `partial_fit` stands: its seed, whether the KL still rises, the optimizers' states."""

    seed: int
    warm_up: bool
    leaves: list[Any]
    n_steps: int = 0


@dataclasses.dataclass(frozen=True)
class Task:
    """What members are trained on, and by what.

    Attributes
    ----------
    options
        Of the estimator.
    data, statistics
        The rows, and what one look at them told.
    scaling
        Of the rows, or of the model to go on from.
    """

    options: Mapping[str, Any]
    data: AbstractSource
    statistics: Statistics
    scaling: Scaling

    def start(self, recipe: Recipe, key: PRNGKeyArray) -> Model:
        """Return a new model."""
        n, d = len(self.data.features), len(self.data.targets)
        return self.floored(make_model(self.options, n, d, key), recipe)

    def floored(self, model: Model, recipe: Recipe) -> Model:
        """Return the model with noise that cannot fall below what the targets allow."""
        if not recipe.noise_floor:
            return model
        floor = self.statistics.noise_floor / self.scaling.y_scale
        return dataclasses.replace(model, likelihood=model.likelihood.floored(floor))

    def seed(self) -> int:
        """Draw the seed of a run; each member has its own part of it."""
        random_state = check_random_state(self.options["random_state"])
        return int(random_state.randint(np.iinfo(np.int32).max))

    def train(self, members: Sequence[Model] | None) -> tuple[list[Fit], bool]:
        """Train every member from several starts and keep the best of each.

        Parameters
        ----------
        members
            Go on from these (a warm start): no others are started then, and the KL keeps its full
            weight.

        Returns
        -------
        fits, interrupted
            One fit per member.
        """
        recipe = make_recipe(self.options, self.data.n_rows)
        keys = jax.random.split(jax.random.key(self.seed()), self.options["n_members"])
        size = self.options["n_restarts"] if members is None else 1
        lanes: list[Lane] = []
        for number, member_key in enumerate(keys):
            if members is None:
                lanes += restart_lanes(
                    lambda key: self.start(recipe, key),
                    key=member_key,
                    n_restarts=size,
                    recipe=recipe,
                )
            else:
                model = self.floored(to_jax(members[number]), recipe)
                lanes.append(Lane(model=model, key=member_key, recipe=recipe.replace(kl_warmup=0)))
        fits = fit_many(
            lanes,
            self.data,
            make_objective(self.options),
            scaling=self.scaling,
            statistics=self.statistics,
            n_threads=effective_n_jobs(self.options["n_jobs"]),
            progress=bool(self.options["verbose"]),
            devices=self._devices(),
        )
        interrupted = any(fit.outcome is Outcome.INTERRUPTED for fit in fits)
        chosen = []
        for first in range(0, len(fits), size):
            group = fits[first : first + size]
            sound = [fit for fit in group if fit.outcome is not Outcome.NONFINITE]
            sound = [fit for fit in sound if math.isfinite(fit.loss)]
            if not sound and interrupted:  # rows that do not stay are not read again for a loss
                raise KeyboardInterrupt
            if not sound:
                raise _nonfinite(recipe)
            losses = tuple(fit.loss for fit in group)
            chosen.append(dataclasses.replace(best_of(sound), restart_losses=losses))
        return chosen, interrupted

    def _devices(self) -> list[jax.Device] | None:
        return None if self.options["devices"] is None else jax.devices()

    def train_epoch(
        self, members: Sequence[Model] | None, epochs: Epochs | None
    ) -> tuple[list[Model], Epochs, float]:
        """Train every member for one more pass, the optimizers' states carried along.

        Parameters
        ----------
        members
            Where it stands, or None to start.
        epochs
            What the epoch before returned, if there was one.

        Returns
        -------
        members, epochs, loss
            The last is the mean over members of the epoch's training loss.
        """
        epochs = epochs or Epochs(self.seed(), warm_up=members is None, leaves=[])
        key, n = jax.random.key(epochs.seed), self.options["n_members"]
        recipe = epoch_recipe(self.options, self.data.n_rows, warm_up=epochs.warm_up)
        if members is None:
            models = [self.start(recipe, member_key) for member_key in jax.random.split(key, n)]
        else:
            models = [self.floored(to_jax(member), recipe) for member in members]
        # The same key in every epoch where rows stay: the state knows how many there have been. The
        # order in which blocks of a source are read follows from the key alone.
        resident = isinstance(self.data, Data)
        keys = jax.random.split(jax.random.fold_in(key, 1 if resident else 1 + epochs.n_steps), n)
        lanes = [
            Lane(model=model, key=member_key, recipe=recipe)
            for model, member_key in zip(models, keys, strict=True)
        ]
        runners = prepare(
            lanes,
            self.data,
            make_objective(self.options),
            scaling=self.scaling,
            statistics=self.statistics,
            devices=self._devices(),
        )
        trained, leaves, losses = [], [], []
        for number, runner in enumerate(runners):
            if epochs.leaves:
                runner.from_checkpoint(epochs.leaves[number], runner.to_checkpoint()[1])
            try:
                while not runner.schedule.losses and runner.ending is None:
                    runner.advance()
            finally:
                runner.close()
            if runner.ending is Outcome.NONFINITE:
                raise _nonfinite(recipe)
            leaves.append(runner.to_checkpoint()[0])
            losses.append(runner.schedule.losses[-1])
            trained.append(kept(runner.model()))
        n_steps = sum(int(runner.state.step) for runner in runners)
        after = Epochs(epochs.seed, recipe.kl_warmup > 0, leaves, n_steps)
        return trained, after, float(np.mean(losses))


def check_goes_on(members: Sequence[Model], options: Mapping[str, Any], n_features: int) -> None:
    """Raise ValueError unless the settings of now would build the same networks."""
    if len(members) != options["n_members"]:
        raise ValueError(
            f"n_members is {options['n_members']}, but the model to go on from has "
            f"{len(members)} members: fit anew."
        )
    old = members[0]
    new = make_model(options, n_features, old.likelihood.n_targets, jax.random.key(0))
    # Of what is learned the shapes must agree, of all else (a dropout rate, say) the values.
    described: list[Any] = [
        (
            jax.tree.structure(m.network),
            type(m.prior),
            type(m.likelihood),
            [
                (np.shape(leaf), getattr(leaf, "dtype", None)) if learned else np.asarray(leaf)
                for leaf, learned in zip(
                    jax.tree.leaves(m.network),
                    jax.tree.leaves(trainable_mask(m.network)),
                    strict=True,
                )
            ],
        )
        for m in (new, to_jax(old))
    ]
    same = described[0][:3] == described[1][:3] and all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
        for a, b in zip(described[0][3], described[1][3], strict=True)
    )
    if not same:
        raise ValueError("The network's settings were changed: it cannot go on, fit it anew.")


def kept(model: Model) -> Model:
    """Return a trained model as it is kept: no floor, and NumPy arrays, which any process takes."""
    model = dataclasses.replace(model, likelihood=model.likelihood.floored(None))
    return jax.tree.map(lambda x: np.asarray(x) if isinstance(x, jax.Array) else x, model)


def to_jax(tree: Any, dtype: Any = None) -> Any:
    """Turn NumPy arrays into JAX arrays, in JAX's float type of the moment unless given."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype) if isinstance(x, np.ndarray) else x, tree)


def member_dtype(model: Model) -> np.dtype:
    """Return the precision a model was trained in."""
    return next(np.dtype(leaf.dtype) for leaf in jax.tree.leaves(model) if hasattr(leaf, "dtype"))


def _nonfinite(recipe: Recipe) -> ValueError:
    return ValueError(
        "Training became infinite or NaN: lower learning_rate_init (it is "
        f"{recipe.learning_rate:g}), try dtype='float64', or look for extreme values in X and y."
    )
