"""The compiled part of training: one program that runs a number of epochs of one lane.

Compiling takes seconds and a step takes microseconds, so as little as possible is static: only the
model's structure, the batch size and the padded shapes. Learning rate, KL weight, schedules, row
counts, sample weights and the noise and prior settings inside the model are traced.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from varprop.data.source import Rows
from varprop.learning.objectives import batch_loss
from varprop.nn.parameters import Structure
from varprop.training.cores import Core
from varprop.training.devices import on_devices, over_devices
from varprop.training.kernel import as_input
from varprop.training.schedule import MAX_PASSES, cooled, warmth

#: How often the program has been traced in this process; the tests count compilations with it.
trace_count = 0

_ADAM = optax.scale_by_adam()


class LaneInputs(NamedTuple):
    """What makes a lane: how many rows, their weight, its randomness and its settings."""

    n_rows: Int[Array | np.ndarray, ""]
    total_weight: Float[Array | np.ndarray, ""]
    keys: PRNGKeyArray  # shape (2,): for the order of rows and for objectives that sample
    constants: list[Array]
    learning_rate: Float[Array, ""]
    kl_weight: Float[Array | np.ndarray, ""]
    kl_warmup: Float[Array, ""]


class LaneState(NamedTuple):
    """What training changes: all of it is in a checkpoint."""

    params: Float[Array, " p"]
    previous: Float[Array, " p"]  # before the last step: the last known to have a finite loss
    optimizer: PyTree
    step: Int[Array, ""]
    epoch: Int[Array, ""]  # passes over a buffer
    finite: Bool[Array | np.ndarray, ""]


class Cooldown(NamedTuple):
    """The learning rate falls linearly to 0 between two steps."""

    start: Float[Array | np.ndarray, ""]
    length: Float[Array | np.ndarray, ""]


@dataclasses.dataclass(frozen=True)
class Program:
    """What is compiled once: everything here is static.

    Without an `optimizer` it is Adam, on all parameters as one flat vector, times the learning rate
    of the moment. One that is given sees the list of the model's arrays, and its updates are taken
    as they are, but still cooled down. With a `mesh` each of its devices works on its part of every
    batch.
    """

    structure: Structure
    optimizer: optax.GradientTransformation | None
    batch_size: int
    shuffle: bool
    multi_thread: bool
    mesh: Mesh | None

    def first_state(self, params: Float[Array, " p"]) -> LaneState:
        """Return the state before the first step."""
        state = LaneState(
            params=params,
            previous=params,
            optimizer=(self.optimizer or _ADAM).init(self._as_optimized(params)),
            step=jnp.int32(0),
            epoch=jnp.int32(0),
            finite=jnp.bool_(True),
        )
        return state if self.mesh is None else on_devices(state, self.mesh)

    def _as_optimized(self, flat: Float[Array, " p"]) -> PyTree:
        if self.optimizer is None:
            return flat
        sizes = [int(np.prod(shape, dtype=int)) for shape in self.structure.shapes]
        parts = jnp.split(flat, np.cumsum(sizes)[:-1].tolist())
        return [
            part.reshape(shape) for part, shape in zip(parts, self.structure.shapes, strict=True)
        ]

    def updates(
        self, gradient: Float[Array, " p"], state: PyTree, params: Float[Array, " p"]
    ) -> tuple[Float[Array, " p"], PyTree]:
        """One step of the optimizer, as one flat vector."""
        updates, state = (self.optimizer or _ADAM).update(
            self._as_optimized(gradient), state, self._as_optimized(params)
        )
        if self.optimizer is not None:
            updates = jnp.concatenate([jnp.ravel(part) for part in updates])
        return updates, state

    def run(
        self,
        state: LaneState,
        lane: LaneInputs,
        rows: Rows,
        cooldown: Cooldown,
        n_epochs: int,
        *,
        train: bool = True,
        core: Core | None = None,
    ) -> tuple[LaneState, Float[Array, " epochs"]]:
        """Pass over the rows some times (at most `MAX_PASSES`); return the state and the losses.

        With `train=False` nothing is changed: the losses are the objective with the full KL weight,
        exactly as the same compiled program computes it. With a `core` it runs there, where all
        arrays must be.
        """
        run = _run if self.multi_thread else _run_single_threaded
        given = state, lane, rows, cooldown, np.int32(n_epochs), np.bool_(train)
        return run(self, *given) if core is None else core.call(run, self, *given)


_SHUFFLE_ROUNDS = 32


def shuffled(
    rows: Int[Array, " padded"], n_rows: Int[Array, ""], key: PRNGKeyArray
) -> Int[Array, " padded"]:
    """Return the first `n_rows` rows in a random order, and the padding after them as it is.

    A swap-or-not shuffle (Hoang, Morris & Rogaway 2012): in each round all rows are paired by
    slot + partner = shift (mod n), and a hash of the pair says whether the two change places. It is
    linear in the rows, and sorting random keys instead took a third of a training step on the CPU.
    """
    n = n_rows.astype(jnp.uint32)
    slots = jnp.arange(rows.shape[0], dtype=jnp.uint32)
    draws = jax.random.bits(key, (_SHUFFLE_ROUNDS, 2), jnp.uint32)

    def one_round(index, slot):
        shift, salt = draws[index, 0] % n, draws[index, 1]
        partner = shift + (n - slot)
        partner = jnp.where(partner >= n, partner - n, partner)
        # Both of a pair must come to the same decision, hence a hash of the larger slot.
        mixed = (jnp.maximum(slot, partner) ^ salt) * jnp.uint32(0x9E3779B1)
        mixed = (mixed ^ (mixed >> 15)) * jnp.uint32(0x85EBCA77)
        mixed = (mixed ^ (mixed >> 13)) * jnp.uint32(0xC2B2AE3D)
        return jnp.where(mixed >> 31 == 1, partner, slot)

    order = jax.lax.fori_loop(0, _SHUFFLE_ROUNDS, one_round, jnp.where(slots < n, slots, 0))
    return rows[jnp.where(slots < n, order, slots)]


def _run_epochs(program, state, lane, rows, cooldown, n_epochs, train):
    global trace_count
    trace_count += 1
    size = program.batch_size
    dtype = state.params.dtype
    n_batches = (lane.n_rows + (size - 1)) // size
    batches = n_batches.astype(dtype)

    def loss_of(params, given, chosen, weight, draw, kl_weight):
        lane, rows, batches = given
        model, objective = program.structure.build(params, lane.constants)
        x, y, row_weight, x_var = rows.part(chosen)
        return batch_loss(
            objective,
            model,
            as_input(x, x_var),
            y,
            weight if row_weight is None else weight * row_weight,
            key=jax.random.fold_in(lane.keys[1], draw),
            kl_weight=kl_weight,
            n_batches=batches,
            total_weight=lane.total_weight,
        )

    value_and_gradient = jax.value_and_grad(loss_of)
    if program.mesh is not None:
        _, objective = program.structure.build(state.params, lane.constants)
        value_and_gradient = over_devices(
            value_and_gradient, program.mesh, draws_for_rows=objective.sampled
        )

    def one_step(first_draw, batch, carry):
        state, order, total = carry
        step = state.step.astype(dtype)
        kl_weight = lane.kl_weight * jnp.where(train, warmth(step, lane.kl_warmup, jnp), 1.0)
        slots = batch * size + jnp.arange(size, dtype=jnp.int32)
        chosen = jax.lax.dynamic_slice(order, (batch * size,), (size,))
        weight = (slots < lane.n_rows).astype(dtype)
        loss, gradient = value_and_gradient(
            state.params, (lane, rows, batches), chosen, weight, first_draw + batch, kl_weight
        )
        # 0 * x is 0 unless x is infinite or NaN, so one sum looks at all of them.
        finite = state.finite & jnp.isfinite(loss + jnp.sum(0.0 * gradient))
        updates, optimizer = program.updates(gradient, state.optimizer, state.params)
        rate = cooled(step, cooldown.start, cooldown.length, jnp)
        if program.optimizer is None:
            rate = -lane.learning_rate * rate
        moving, failed = finite & train, ~finite & train
        # Parameters may be finite numbers and yet have an infinite loss: then the step that led to
        # them is taken back.
        kept = jnp.where(failed, state.previous, state.params)
        new = LaneState(
            params=jnp.where(moving, state.params + rate * updates, kept),
            previous=jnp.where(moving, state.params, state.previous),
            optimizer=jax.tree.map(
                lambda after, before: jnp.where(moving, after, before), optimizer, state.optimizer
            ),
            step=state.step + moving,
            epoch=state.epoch,
            finite=finite,
        )
        return new, order, total + jnp.where(failed, jnp.nan, loss)

    def one_epoch(index, carry):
        state, losses = carry
        epoch = state.epoch + index
        # Whole batches, the last one filled up with copies of a row, of weight 0.
        slots = jnp.arange(-(-rows.x.shape[0] // size) * size, dtype=jnp.int32)
        order = jnp.where(slots < lane.n_rows, slots, 0)
        if program.shuffle:
            order = shuffled(order, lane.n_rows, jax.random.fold_in(lane.keys[0], epoch))
        start = (state, order, jnp.zeros((), dtype))
        # Draws are numbered by batches, not by steps: they go on when nothing is trained.
        step = functools.partial(one_step, epoch * n_batches)
        state, _, total = jax.lax.fori_loop(0, n_batches, step, start)
        return state, losses.at[index].set(total / batches)

    losses = jnp.zeros(MAX_PASSES, dtype)
    state, losses = jax.lax.fori_loop(0, n_epochs, one_epoch, (state, losses))
    return state._replace(epoch=state.epoch + jnp.where(train, n_epochs, 0)), losses


# 512-bit vectors where the processor has them: XLA's default of 256 made a step a fifth slower.
_WIDE = {"xla_cpu_prefer_vector_width": 512}
_run = jax.jit(_run_epochs, static_argnums=0, compiler_options=_WIDE)
# XLA's own threads make small networks slower; lanes on threads of their own use the cores better.
ONE_THREAD = {**_WIDE, "xla_cpu_multi_thread_eigen": False}
_run_single_threaded = jax.jit(_run_epochs, static_argnums=0, compiler_options=ONE_THREAD)
