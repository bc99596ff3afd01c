"""From what a caller gives to lanes that can run: checks, scaling, padding; the run's digest."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from jax.sharding import Mesh
from jaxtyping import Array

from varprop.data.arrays import Data, Scaling, bucket_size, pad_rows
from varprop.learning.model import Model
from varprop.learning.objectives import AbstractObjective
from varprop.nn.parameters import Structure, take_apart
from varprop.training import checkpoint as checkpoints
from varprop.training.devices import on_devices
from varprop.training.lanes import Lane, LaneRunner
from varprop.training.program import LaneInputs, LaneState, Program, Rows, make_program
from varprop.training.recipe import Recipe

# Above this many multiplications per layer and batch a single lane gains from XLA's own threads.
_LARGE_PRODUCT = 2**24
_PAD_ROWS = 2**16


def prepare(
    lanes: Sequence[Lane],
    data: Data,
    objective: AbstractObjective,
    *,
    standardize: bool,
    optimizer: optax.GradientTransformation | None,
    mesh: Mesh | None = None,
) -> list[LaneRunner]:
    """Check lanes and data, and return what trains them, in their order."""
    dtype = data.x.dtype
    apart = [take_apart((lane.model, objective)) for lane in lanes]
    structure = apart[0][0]
    for number, (other, params, _) in enumerate(apart):
        if other != structure:
            raise ValueError(f"the model of lane {number} has another structure than lane 0's.")
        if params.dtype != dtype:
            raise TypeError(
                f"the model is {params.dtype}, but the data is {dtype}: make both float32 or, "
                "inside jax.enable_x64, both float64."
            )
    sizes = {lane.recipe.batch_size for lane in lanes}
    if len(sizes) > 1:
        listed = sorted(map(str, sizes))
        raise ValueError(f"all lanes must have one batch size, but they have {listed}.")
    chosen = [_rows_of(lane, data, number) for number, lane in enumerate(lanes)]
    # Lanes that shuffle may share a length: random bits at its end do not change those before.
    longest = max(bucket_size(len(index)) for index in chosen)
    check_outputs(lanes[0].model, data.x.shape[1], data.y.shape[1], dtype)
    # Large data keeps its own size: a copy to pad it costs memory, and compiling anew costs little
    # beside training on it.
    n = bucket_size(data.n_rows) if data.n_rows <= _PAD_ROWS else data.n_rows
    rows = Rows(
        x=_on_device(data.x, n, mesh),
        y=_on_device(data.y, n, mesh),
        weight=None if data.weight is None else _on_device(data.weight, n, mesh),
        x_var=None if data.x_var is None else _on_device(data.x_var, n, mesh),
    )
    runners = []
    for lane, (_, params, constants), index in zip(lanes, apart, chosen, strict=True):
        batch_size, shuffle = batching(lane.recipe, len(index))
        program = make_program(
            structure,
            optimizer=optimizer,
            batch_size=batch_size,
            shuffle=shuffle,
            multi_thread=len(lanes) == 1 and is_large(structure, batch_size, mesh),
            mesh=mesh,
        )
        # Whole batches, the last one filled up by padding.
        padded = -(-longest // batch_size) * batch_size if shuffle else batch_size
        scaling = Scaling.of(data, index) if standardize else Scaling.identity(data)
        # Padding repeats a row of the lane's own: one it leaves out may lie so far off as to
        # overflow.
        order = np.full(padded, index[0], np.int32)
        order[: len(index)] = index
        weight = len(index) if data.weight is None else data.weight[index].sum(dtype=np.float64)
        inputs = lane_inputs(
            lane, order, len(index), float(weight), scaling, constants, dtype, mesh
        )
        # A sampled objective's final value is averaged over some passes; others are exact in one.
        passes = 16 if objective.sampled else 1
        runners.append(
            LaneRunner(
                program, rows, inputs, params, recipe=lane.recipe, scaling=scaling, passes=passes
            )
        )
    return runners


def _on_device(array: np.ndarray, n_rows: int, mesh: Mesh | None) -> Array:
    # On the CPU device_put makes one copy at most where jnp.asarray holds two for a moment; nothing
    # writes to the caller's memory if it is shared, and it is let go when training ends.
    return on_devices(pad_rows(array, n_rows), mesh)


def batching(recipe: Recipe, n_rows: int) -> tuple[int, bool]:
    """Return the rows per step, and whether they are shuffled (not if a step takes all).

    This depends on the lane alone, not on its companions: sums of another length round differently.
    """
    padded = bucket_size(n_rows)
    if recipe.batch_size is None or recipe.batch_size >= padded:
        return padded, False
    return recipe.batch_size, True


def _rows_of(lane: Lane, data: Data, number: int) -> np.ndarray:
    if lane.rows is None:
        rows = np.arange(data.n_rows)
    else:
        rows = np.asarray(lane.rows)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise ValueError(f"rows of lane {number} must be a list of row numbers.")
        if len(rows) and (rows.min() < 0 or rows.max() >= data.n_rows):
            raise ValueError(
                f"rows of lane {number} must lie between 0 and {data.n_rows - 1}, but go from "
                f"{rows.min()} to {rows.max()}."
            )
    if data.weight is not None:
        rows = rows[data.weight[rows] > 0]  # a weight of 0 is no row
    if not len(rows):
        raise ValueError(f"lane {number} has no rows to train on.")
    return rows


def is_large(structure: Structure, batch_size: int, mesh: Mesh | None) -> bool:
    """Whether a device's part of a step has enough work for XLA's own threads."""
    widest = max((int(np.prod(shape)) for shape in structure.shapes), default=0)
    return widest * batch_size > _LARGE_PRODUCT * (1 if mesh is None else mesh.size)


def check_outputs(model: Model, n_inputs: int, n_outputs: int, dtype: np.dtype) -> None:
    """Let the network see one row, so that a wrong size is reported before anything is compiled."""
    shape = jax.ShapeDtypeStruct((n_inputs,), dtype)
    out = jax.eval_shape(lambda x: model.predictive(x).mean, shape)
    if out.shape[-1] != n_outputs:
        raise ValueError(f"the network has {out.shape[-1]} outputs, but y has {n_outputs} columns.")


def lane_inputs(
    lane: Lane,
    order: np.ndarray,
    n_rows: int,
    weight: float,
    scaling: Scaling,
    constants: list[Array],
    dtype: np.dtype,
    mesh: Mesh | None,
) -> LaneInputs:
    """Return a lane as the compiled program takes it: `order` is padded, `weight` the rows' sum."""

    def scalar(value: Any) -> Array:
        return jnp.asarray(value, dtype)

    inputs = LaneInputs(
        rows=jnp.asarray(order),
        n_rows=jnp.int32(n_rows),
        total_weight=scalar(weight),
        x_shift=scalar(scaling.x_shift),
        x_inv_scale=scalar(1 / scaling.x_scale),
        y_shift=scalar(scaling.y_shift),
        y_inv_scale=scalar(1 / scaling.y_scale),
        keys=jax.random.split(lane.key),
        constants=constants,
        learning_rate=scalar(lane.recipe.learning_rate),
        kl_weight=scalar(lane.recipe.kl_weight),
        kl_warmup=scalar(lane.recipe.kl_warmup),
    )
    return inputs if mesh is None else on_devices(inputs, mesh)


def fingerprint(
    lanes: Sequence[Lane],
    data: Data,
    objective: AbstractObjective,
    standardize: bool,
    runners: Sequence[LaneRunner],
) -> str:
    """Return the digest of all that determines a run, for its checkpoints."""
    arrays = [data.x, data.y]
    arrays += [extra for extra in (data.weight, data.x_var) if extra is not None]
    start = runners[0].state
    return run_digest(lanes, objective, runners[0].program, start, [standardize], arrays)


def run_digest(
    lanes: Sequence[Lane],
    objective: AbstractObjective,
    program: Program,
    start: LaneState,
    settings: list[Any],
    arrays: list[np.ndarray],
) -> str:
    """Return the digest of lanes, program and objective, of other settings and of the data."""
    # Functions are named with their address, which is another one in another process.
    structure = re.sub(r" at 0x[0-9a-f]+", "", repr(program.structure))
    description: list[Any] = [structure, *settings, program.scaled, jax.__version__]
    # An optimizer is known by what it does.
    updates, _ = program.updates(jnp.cos(start.params), start.optimizer, start.params)
    arrays = [*arrays, np.asarray(updates)]
    for lane in lanes:
        description.append(dataclasses.asdict(lane.recipe))
        arrays.append(np.asarray(jax.random.key_data(lane.key)))
        _, params, constants = take_apart((lane.model, objective))
        arrays += [np.asarray(leaf) for leaf in (params, *constants)]
        if lane.rows is not None:
            arrays.append(np.asarray(lane.rows))
    return checkpoints.fingerprint(description, arrays)
