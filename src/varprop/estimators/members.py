"""The members of an ensemble: where they start, how the best start is kept, one more epoch."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from joblib import effective_n_jobs
from sklearn.utils import check_random_state

from varprop.data.parts import gather
from varprop.data.source import AbstractSource, Data, Rows
from varprop.data.statistics import Scaling, Statistics, standardized
from varprop.errors import TrainingError
from varprop.estimators.inputs import Training
from varprop.estimators.options import (
    epoch_recipe,
    likelihood_class,
    make_model,
    make_objective,
    make_recipe,
)
from varprop.estimators.trained import Trained
from varprop.estimators.validation import SetAside, in_memory
from varprop.learning.likelihoods import AbstractLikelihood
from varprop.learning.model import Model
from varprop.nn.parameters import trainable_mask
from varprop.training.engine import best_of, fit_many, restart_lanes
from varprop.training.posterior import check_gauss_newton, with_weight_root
from varprop.training.preparation import Lane, prepare
from varprop.training.recipe import Recipe
from varprop.training.result import Fit
from varprop.training.schedule import Outcome

#: Rows, drawn at random, that likelihoods and constant models start from.
START_ROWS = 50_000
# From good to bad, so that an ensemble can be given the worst of its members' outcomes.
_RANK = (
    Outcome.CONVERGED,
    Outcome.COMPLETED,
    Outcome.MAX_STEPS,
    Outcome.TIME_LIMIT,
    Outcome.INTERRUPTED,
)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst of several outcomes; "converged" if there are none."""
    return max(outcomes, key=_RANK.index, default=Outcome.CONVERGED)


@dataclasses.dataclass(frozen=True)
class Epochs:
    """Where `partial_fit` stands: its seed, whether the KL still rises, the optimizers' states."""

    seed: int
    warm_up: bool
    leaves: list[Any]
    n_steps: int = 0


class _Group(NamedTuple):
    """Lanes of the same rows."""

    rows: np.ndarray | None
    fold: int | None  # whose rows set aside it is to predict
    n_members: int
    judges_only: bool = False


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
    aside
        What is set aside, if it is chosen already.
    training
        What `fit` was given: the rows before targets were made logarithms of, if they were, and
        which of them belong together.
    """

    options: Mapping[str, Any]
    data: AbstractSource
    statistics: Statistics
    scaling: Scaling
    aside: SetAside | None = None
    training: Training | None = None

    @functools.cached_property
    def likelihood(self) -> type[AbstractLikelihood]:
        """How targets are observed."""
        return likelihood_class(self.options)

    @property
    def n_targets(self) -> int:
        """Number of targets: the first columns of y, of which the rest says more."""
        return len(self.data.targets) // len(self.likelihood.column_scaling)

    @functools.cached_property
    def _some_targets(self) -> Rows:
        return gather(self.data, most=START_ROWS, seed=0)

    def constant_numbers(self) -> np.ndarray:
        """Return what the simplest model keeps of the rows."""
        rows = self._some_targets
        return self.likelihood.constant_numbers(rows.y, rows.weight)

    @property
    def _some_standardized(self) -> np.ndarray:
        return standardized(self._some_targets.y, self.scaling.y_shift, self.scaling.y_scale)

    def worth_trying(self) -> bool:
        """Return whether targets look as if the likelihood could suit them."""
        return self.likelihood.worth_trying(self._some_standardized, self._some_targets.weight)

    def start(self, recipe: Recipe, key: PRNGKeyArray) -> Model:
        """Return a new model."""
        n, y = len(self.data.features), self._some_standardized
        return self.floored(make_model(self.options, n, self.n_targets, key, y=y), recipe)

    def floored(self, model: Model, recipe: Recipe) -> Model:
        """Return the model with noise that cannot fall below what the targets allow."""
        if not recipe.noise_floor:
            return model
        floor = (self.statistics.noise_floor / self.scaling.y_scale)[: self.n_targets]
        return dataclasses.replace(model, likelihood=model.likelihood.floored(floor))

    def seed(self) -> int:
        """Draw the seed of a run; each member has its own part of it."""
        random_state = check_random_state(self.options["random_state"])
        return int(random_state.randint(np.iinfo(np.int32).max))

    def train(self, members: Sequence[Model] | None, *, aside_seed: int | None = None) -> Trained:
        """Train every member from several starts and keep the best of each.

        Parameters
        ----------
        members
            Go on from these (a warm start): no others are started then, and the KL keeps its full
            weight.
        aside_seed
            Of the choice of rows to set aside: those of a model to go on from must be the same.
        """
        recipe, options = make_recipe(self.options, self.data.n_rows), self.options
        seed, size = self.seed(), options["n_restarts"]
        aside_seed = seed if aside_seed is None else aside_seed
        source, aside = self.data, self.aside
        if aside is None and options["validation"] is not None:
            every_row = options["validation"] == "bag"
            together = None if self.training is None else self.training.together
            aside = SetAside.of(self.data, aside_seed, every_row=every_row, together=together)
        folds = () if aside is None else aside.folds
        source = self.data if aside is None else aside.source
        groups = [_Group(None, None, options["n_members"])]
        if any(fold.rows is None for fold in folds):  # rows that nothing is trained on
            groups = [_Group(None, 0, options["n_members"])]
        elif folds and options["validation"] == "bag":
            groups += [_Group(f.rows, k, options["n_members"]) for k, f in enumerate(folds)]
        elif folds:
            groups.append(_Group(folds[0].rows, 0, 1, judges_only=True))
        key, places = jax.random.key(seed), []
        lanes: list[Lane] = []
        to_go_on = None if members is None else iter(members)
        for number, group in enumerate(groups):
            # The first group's keys are those of a run that sets nothing aside.
            group_key = key if number == 0 else jax.random.fold_in(key, number)
            for member_key in jax.random.split(group_key, group.n_members):
                first = len(lanes)
                if to_go_on is not None and not group.judges_only:
                    model = self.floored(_to_train(next(to_go_on)), recipe)
                    plain = recipe.replace(kl_warmup=0)
                    lanes.append(Lane(model=model, key=member_key, recipe=plain, rows=group.rows))
                else:
                    lanes += restart_lanes(
                        lambda key: self.start(recipe, key),
                        key=member_key,
                        n_restarts=size,
                        recipe=recipe,
                        rows=group.rows,
                    )
                places.append((group, slice(first, len(lanes))))
        whole = source is self.data and not folds
        objective, together = make_objective(options), options["row_covariance"] == "gauss-newton"
        if together:
            check_gauss_newton(lanes[0].model, objective, recipe.kl_weight)
        fits = fit_many(
            lanes,
            source,
            objective,
            scaling=self.scaling,
            statistics=self.statistics if whole else None,
            n_threads=effective_n_jobs(options["n_jobs"]),
            progress=bool(options["verbose"]),
            devices=self._devices(),
        )
        interrupted = any(fit.outcome is Outcome.INTERRUPTED for fit in fits)
        best: list[Fit] = []
        shares: list[float] = []
        judges: list[list[Fit]] = [[] for _ in folds]
        for group, place in places:
            sound = [fit for fit in fits[place] if fit.outcome is not Outcome.NONFINITE]
            sound = [fit for fit in sound if math.isfinite(fit.loss)]
            if not sound:
                continue
            losses = tuple(fit.loss for fit in fits[place])
            found = dataclasses.replace(best_of(sound), restart_losses=losses)
            if together:
                seen = source if group.rows is None else in_memory(source).take(group.rows)
                found = with_weight_root(found, seen, objective)
            if not group.judges_only:
                best.append(found)
                # Networks of all rows know more, those of folds differ more: half of each.
                shares.append(1.0 if group.fold is None else 1.0 / len(folds))
            if group.fold is not None:
                judges[group.fold].append(found)
        if not best and interrupted:  # rows that do not stay are not read again for a loss
            raise KeyboardInterrupt
        if not best:
            raise _nonfinite(recipe)
        weights = np.array(shares) / np.sum(shares)
        return Trained(best, weights, aside, tuple(map(tuple, judges)), aside_seed, interrupted)

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
        key = jax.random.key(epochs.seed)
        n = self.options["n_members"] if members is None else len(members)
        recipe = epoch_recipe(self.options, self.data.n_rows, warm_up=epochs.warm_up)
        if members is None:
            models = [self.start(recipe, member_key) for member_key in jax.random.split(key, n)]
        else:
            models = [self.floored(_to_train(member), recipe) for member in members]
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
    n_members = options["n_members"]
    if len(members) != n_members and options["validation"] != "bag":
        raise ValueError(
            f"n_members is {n_members}, but the model to go on from has {len(members)} members: "
            "fit anew."
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


def _to_train(member: Model) -> Model:
    """Return a member to go on from, without what it knew of its weights together."""
    return dataclasses.replace(to_jax(member), weight_root=None)


def member_dtype(model: Model) -> np.dtype:
    """Return the precision a model was trained in."""
    return next(np.dtype(leaf.dtype) for leaf in jax.tree.leaves(model) if hasattr(leaf, "dtype"))


def _nonfinite(recipe: Recipe) -> TrainingError:
    return TrainingError(
        "Training became infinite or NaN: lower learning_rate_init (it is "
        f"{recipe.learning_rate:g}), try dtype='float64', or look for extreme values in X and y."
    )
