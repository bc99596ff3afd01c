"""One lane: what it is given, and its state under way between the calls of the compiled program."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from varprop.data.arrays import Scaling
from varprop.learning.model import Model
from varprop.training.devices import on_devices
from varprop.training.program import (
    MAX_EPOCHS_PER_CALL,
    Cooldown,
    LaneInputs,
    LaneState,
    Program,
    Rows,
    first_state,
)
from varprop.training.recipe import Recipe
from varprop.training.result import Fit, Outcome

_NEVER = 1e30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lane:
    """One independent training run of `fit_many`.

    Parameters
    ----------
    model
        Where it starts. All lanes' models must have the same structure.
    key
        Random key: the order of rows and, for sampled objectives, the draws.
    rows
        Indices of the rows it trains on; all of them unless given.
    recipe
        How it is trained; all lanes must have the same batch size.

    Examples
    --------
    >>> import jax
    >>> from varprop.learning.model import regression_model
    >>> lane = Lane(model=regression_model(2, 1, key=jax.random.key(0)), key=jax.random.key(1))
    >>> lane.recipe.batch_size
    128
    """

    model: Model
    key: PRNGKeyArray
    rows: np.ndarray | None = None
    recipe: Recipe = dataclasses.field(default_factory=Recipe)


class LaneRunner:
    """One lane under way: its state, its losses, and the decision when it ends."""

    def __init__(
        self,
        program: Program,
        rows: Rows,
        inputs: LaneInputs,
        params: Float[Array, " p"],
        *,
        recipe: Recipe,
        scaling: Scaling,
        passes: int,
    ):
        self.program, self.rows, self.inputs = program, rows, inputs
        self.recipe, self.scaling, self.passes = recipe, scaling, passes
        self.steps_per_epoch = steps = -(-int(inputs.n_rows) // program.batch_size)
        # Lengths are given in steps and kept in whole epochs, never shorter than asked for.
        self.max_epochs = -(-recipe.max_steps // steps)
        self.warm_epochs = -(-recipe.kl_warmup // steps)
        self.cooldown_epochs = min(-(-recipe.cooldown // steps), self.max_epochs)
        self.window = min(max(1, round(recipe.stop.window / steps)), MAX_EPOCHS_PER_CALL)
        # The session takes snapshots while the lane runs; they must not fall between two changes.
        self.lock = threading.Lock()
        self.state = first_state(program, params)
        self.losses: list[float] = []
        self.window_means: list[float] = []
        self.cooling_since: int | None = None
        self.converged = False
        self.outcome: Outcome | None = None
        self.final_loss = math.nan
        self.seconds = 0.0

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self.losses)

    @property
    def max_steps(self) -> int:
        """Steps in all its epochs."""
        return self.max_epochs * self.steps_per_epoch

    @property
    def end_epoch(self) -> int:
        """The epoch at which the learning rate changes its course next, or training ends."""
        if self.cooling_since is not None:
            return min(self.max_epochs, self.cooling_since + self.cooldown_epochs)
        return self.max_epochs - self.cooldown_epochs

    def advance(self) -> None:
        """Run one window of epochs, then decide what comes next."""
        begin = time.monotonic()
        if self.cooling_since is None and self.cooldown_epochs and self.epoch >= self.end_epoch:
            with self.lock:
                self.cooling_since = self.epoch
        n_epochs = min(self.window, self.end_epoch - self.epoch)
        state, losses = self._run(self.state, n_epochs)
        new = np.asarray(losses[:n_epochs], np.float64)
        if not np.isfinite(new).all():
            new = new[: int(np.argmin(np.isfinite(new)))]  # nothing was trained from there on
        with self.lock:
            self.state = state
            self.losses += new.tolist()
            self.seconds += time.monotonic() - begin
            outcome = self._next(new)
        if outcome is not None:
            self.end(outcome)

    def _next(self, new: np.ndarray) -> Outcome | None:
        """Look at the losses of the last window: say whether the lane has ended, and how."""
        if not bool(self.state.finite):
            return Outcome.NONFINITE
        if self.cooling_since is None and not self.converged:
            # Losses with different KL weights cannot be compared, nor windows of different length.
            if self.epoch - len(new) >= self.warm_epochs and len(new) == self.window:
                self.window_means.append(float(new.mean()))
                self.converged = self.recipe.stop.is_converged(self.window_means)
            if self.converged and self.cooldown_epochs:
                self.cooling_since = self.epoch
        if self.cooling_since is None and self.cooldown_epochs:
            return None
        if self.converged and not self.cooldown_epochs:
            return Outcome.CONVERGED
        if self.epoch < self.end_epoch:
            return None
        return Outcome.CONVERGED if self.converged else Outcome.MAX_STEPS

    def _run(
        self, state: LaneState, n_epochs: int, *, train: bool = True
    ) -> tuple[LaneState, Float[Array, " epochs"]]:
        dtype = state.params.dtype
        start, length = _NEVER, 1.0
        if self.cooling_since is not None:
            start = self.cooling_since * self.steps_per_epoch
            length = self.cooldown_epochs * self.steps_per_epoch
        cooldown = Cooldown(np.asarray(start, dtype), np.asarray(length, dtype))
        return self.program.run(state, self.inputs, self.rows, cooldown, n_epochs, train=train)

    def end(self, outcome: Outcome) -> None:
        """Evaluate the objective at the parameters reached, and stop for good."""
        state = self.state._replace(finite=np.asarray(True))
        _, losses = self._run(state, self.passes, train=False)
        loss = float(np.asarray(losses[: self.passes], np.float64).mean())
        with self.lock:
            self.final_loss = loss if math.isfinite(loss) else math.nan
            self.outcome = outcome

    def result(self) -> Fit:
        """Return the finished lane as a Fit."""
        assert self.outcome is not None
        params = np.asarray(self.state.params)
        model, _ = self.program.structure.build(params, self.inputs.constants)
        return Fit(
            model=jax.tree.map(lambda x: jnp.asarray(x) if eqx.is_array(x) else x, model),
            history=np.asarray(self.losses),
            loss=self.final_loss,
            outcome=self.outcome,
            n_steps=int(self.state.step),
            seconds=self.seconds,
            scaling=self.scaling,
            recipe=self.recipe,
        )

    def to_checkpoint(self) -> tuple[list[np.ndarray], dict[str, Any]]:
        """Return everything that `from_checkpoint` needs to go on to the bit."""
        with self.lock:
            leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.state)]
            meta = {
                "losses": list(self.losses),
                "window_means": list(self.window_means),
                "cooling_since": self.cooling_since,
                "converged": self.converged,
                "outcome": None if self.outcome is None else self.outcome.value,
                "final_loss": self.final_loss,
                "seconds": self.seconds,
            }
        return leaves, meta

    def from_checkpoint(self, leaves: list[np.ndarray], meta: dict[str, Any]) -> None:
        """Take up where the checkpoint left off."""
        treedef = jax.tree.structure(self.state)
        self.state = on_devices(jax.tree.unflatten(treedef, leaves), self.program.mesh)
        outcome = meta["outcome"]
        self.outcome = None if outcome is None else Outcome(outcome)
        self.losses, self.window_means = meta["losses"], meta["window_means"]
        self.cooling_since, self.converged = meta["cooling_since"], meta["converged"]
        self.final_loss, self.seconds = meta["final_loss"], meta["seconds"]
