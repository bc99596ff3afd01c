"""One training run over a source, a buffer at a time, and the decision when it ends."""

from __future__ import annotations

import math
import threading
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from varprop.data.arrays import Scaling
from varprop.data.source import AbstractSource
from varprop.training.buffers import Buffer, BufferReader
from varprop.training.devices import on_devices
from varprop.training.plan import Plan
from varprop.training.program import Cooldown, LaneInputs, LaneState, Program, first_state
from varprop.training.recipe import Recipe
from varprop.training.result import Fit, Outcome

_NEVER = 1e30


class StreamRunner:
    """Trains buffer after buffer with the compiled program of the in-memory engine.

    For the program each buffer is an epoch of its own: `state.epoch` counts buffers. What it takes
    for the whole data, the total weight W and the KL weight, are scaled by the buffer's share of
    the epoch's B batches. With b batches in the buffer its loss has (b / (W b/B)) sum l = (B / W)
    sum l and KL (b/B) / (W b/B) = KL / W, as the objective wants (see `varprop.learning.objectives`).

    Windows of the stop rule are whole epochs, as in memory: parts of an epoch have different rows,
    and their losses cannot be compared. Training ends, and cools down, at the end of any buffer.
    """

    def __init__(
        self,
        program: Program,
        source: AbstractSource,
        plan: Plan,
        inputs: LaneInputs,
        params: Float[Array, " p"],
        *,
        recipe: Recipe,
        scaling: Scaling,
        total_weight: float,
        passes: int,
        final_pass: bool,
    ):
        self.program, self.source, self.plan, self.inputs = program, source, plan, inputs
        self.recipe, self.scaling, self.passes = recipe, scaling, passes
        self.total_weight, self.final_pass = total_weight, final_pass
        steps = plan.steps_per_epoch
        self.warm_epochs = -(-recipe.kl_warmup // steps)
        self.window = max(1, round(recipe.stop.window / steps))
        # Lengths are given in steps and kept in whole buffers, never shorter than asked for.
        self.last = plan.after(0, recipe.max_steps)
        # The session takes snapshots while this runs; they must not fall between two changes.
        self.lock = threading.Lock()
        self.state = first_state(program, params)
        self.losses: list[float] = []  # of whole epochs
        self.position = 0  # buffers trained on
        self.epoch_total = 0.0  # sum of the batches' losses since the epoch began
        self.window_means: list[float] = []
        self.cooling: tuple[int, int] | None = None  # first buffer, and the one after the last
        self.converged = False
        self.ending: Outcome | None = None  # trained, but the final loss is not known yet
        self.outcome: Outcome | None = None
        self.final_loss = math.nan
        self.seconds = 0.0
        self._reader: BufferReader | None = None
        self._evaluated, self._evaluated_total = 0, 0.0

    @property
    def max_steps(self) -> int:
        """Steps in all its buffers."""
        return self.plan.steps_before(self.last)

    def advance(self) -> None:
        """Train on one buffer, or evaluate the objective on one when training is over."""
        begin = time.monotonic()
        if self.ending is not None:
            self._evaluate()
        else:
            self._train()
        with self.lock:
            self.seconds += time.monotonic() - begin

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def end(self, outcome: Outcome) -> None:
        """Stop at once; if nothing but the final loss is missing, the run ended as it did."""
        with self.lock:
            self.outcome = self.ending or outcome

    def _train(self) -> None:
        if self._reader is None:
            self._reader = BufferReader(
                self.source,
                self.plan,
                np.dtype(self.state.params.dtype),
                first=self.position,
                last=self.last,
                shuffle=True,
                mesh=self.program.mesh,
            )
        with self.lock:
            start = self.plan.before(self.last, self.recipe.cooldown)
            if self.cooling is None and self.recipe.cooldown and self.position >= start:
                self.cooling = (self.position, self.last)
        buffer = self._reader.take()
        state, losses = self._run(buffer, self.state, self.position, 1)
        loss = float(losses[0])
        del buffer
        self._reader.release()
        with self.lock:
            self.state = state
            if bool(state.finite):
                self.epoch_total += loss * self.plan.steps_of(self.position)
                self.position += 1
                if self.position % self.plan.n_buffers == 0:
                    self.losses.append(self.epoch_total / self.plan.steps_per_epoch)
                    self.epoch_total = 0.0
            self.ending = self._next()
            if not self.final_pass:
                self.outcome = self.ending
        if self.ending is not None:
            self.close()

    def _next(self) -> Outcome | None:
        """Look at where training stands: say whether it has ended, and how."""
        if not bool(self.state.finite):
            return Outcome.NONFINITE
        whole = self.position % self.plan.n_buffers == 0
        if self.cooling is None and not self.converged and whole:
            epoch = len(self.losses)
            # Losses with different KL weights cannot be compared, nor windows of different length.
            if epoch % self.window == 0 and epoch - self.window >= self.warm_epochs:
                self.window_means.append(float(np.mean(self.losses[-self.window :])))
                self.converged = self.recipe.stop.is_converged(self.window_means)
            if self.converged and self.recipe.cooldown:
                stop = self.plan.after(self.position, self.recipe.cooldown)
                self.cooling = (self.position, min(self.last, stop))
        if self.converged and not self.recipe.cooldown:
            return Outcome.CONVERGED
        if self.position < (self.last if self.cooling is None else self.cooling[1]):
            return None
        return Outcome.CONVERGED if self.converged else Outcome.MAX_STEPS

    def _evaluate(self) -> None:
        """Add one buffer to the objective at the parameters reached, with the full KL weight."""
        if self._reader is None:
            self._evaluated, self._evaluated_total = 0, 0.0
            self._reader = BufferReader(
                self.source,
                self.plan,
                np.dtype(self.state.params.dtype),
                first=0,
                last=self.plan.n_buffers,
                shuffle=False,
                mesh=self.program.mesh,
            )
        buffer = self._reader.take()
        state = self.state._replace(finite=np.asarray(True))
        _, losses = self._run(buffer, state, self._evaluated, self.passes, train=False)
        mean = float(np.asarray(losses[: self.passes], np.float64).mean())
        del buffer
        self._reader.release()
        self._evaluated_total += mean * self.plan.steps_of(self._evaluated)
        self._evaluated += 1
        if self._evaluated == self.plan.n_buffers:
            self.close()
            loss = self._evaluated_total / self.plan.steps_per_epoch
            with self.lock:
                self.final_loss = loss if math.isfinite(loss) else math.nan
                self.outcome = self.ending

    def _run(
        self, buffer: Buffer, state: LaneState, number: int, n_epochs: int, *, train: bool = True
    ) -> tuple[LaneState, Float[Array, " epochs"]]:
        dtype = state.params.dtype
        start, length = _NEVER, 1.0
        if self.cooling is not None:
            start, stop = map(self.plan.steps_before, self.cooling)
            length = stop - start
        draw = self.position + (0 if train else number)
        share = self.plan.steps_of(number) / self.plan.steps_per_epoch
        inputs = self.inputs._replace(
            n_rows=np.asarray(buffer.n_rows, np.int32),
            total_weight=np.asarray(self.total_weight * share, dtype),
            kl_weight=np.asarray(self.recipe.kl_weight * share, dtype),
            # Draws are numbered by batches within a call: without this they would come again.
            keys=self.inputs.keys.at[1].set(jax.random.fold_in(self.inputs.keys[1], draw)),
        )
        cooldown = Cooldown(np.asarray(start, dtype), np.asarray(length, dtype))
        return self.program.run(state, inputs, buffer.rows, cooldown, n_epochs, train=train)

    def result(self) -> Fit:
        """Return the finished run as a Fit."""
        assert self.outcome is not None
        params = np.asarray(self.state.params)
        model, _ = self.program.structure.build(params, self.inputs.constants)
        history = list(self.losses)
        begun = self.position - len(self.losses) * self.plan.n_buffers
        if begun and self.outcome is not Outcome.NONFINITE:
            steps = self.plan.steps_before(self.position) - self.plan.steps_before(
                self.position - begun
            )
            history.append(self.epoch_total / steps)
        return Fit(
            model=jax.tree.map(lambda x: jnp.asarray(x) if eqx.is_array(x) else x, model),
            history=np.asarray(history),
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
                "position": self.position,
                "epoch_total": self.epoch_total,
                "window_means": list(self.window_means),
                "cooling": self.cooling,
                "converged": self.converged,
                "ending": None if self.ending is None else self.ending.value,
                "outcome": None if self.outcome is None else self.outcome.value,
                "final_loss": self.final_loss,
                "seconds": self.seconds,
            }
        return leaves, meta

    def from_checkpoint(self, leaves: list[np.ndarray], meta: dict[str, Any]) -> None:
        """Take up where the checkpoint left off; the final loss is computed from the beginning."""
        treedef = jax.tree.structure(self.state)
        self.state = on_devices(jax.tree.unflatten(treedef, leaves), self.program.mesh)
        self.losses, self.window_means = meta["losses"], meta["window_means"]
        self.position, self.epoch_total = meta["position"], meta["epoch_total"]
        self.cooling = None if meta["cooling"] is None else tuple(meta["cooling"])
        self.converged = meta["converged"]
        self.ending = None if meta["ending"] is None else Outcome(meta["ending"])
        self.outcome = None if meta["outcome"] is None else Outcome(meta["outcome"])
        self.final_loss, self.seconds = meta["final_loss"], meta["seconds"]
