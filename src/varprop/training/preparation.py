"""From what a caller gives to lanes that can run: checks, rows, shapes; and the run's digest."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from varprop.data.source import AbstractSource, Data
from varprop.data.statistics import Scaling, Statistics
from varprop.learning.model import Model
from varprop.learning.objectives import AbstractObjective
from varprop.nn.parameters import take_apart
from varprop.training import checkpoint as checkpoints
from varprop.training.buffers import Feed
from varprop.training.devices import data_mesh, on_devices
from varprop.training.kernel import as_input
from varprop.training.program import LaneInputs, Program
from varprop.training.recipe import Recipe
from varprop.training.runner import Runner
from varprop.training.schedule import Plan, Schedule

# Above this many multiplications per layer and batch a single lane gains from XLA's own threads.
_LARGE_PRODUCT = 2**24


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


def prepare(
    lanes: Sequence[Lane],
    data: AbstractSource,
    objective: AbstractObjective,
    *,
    scaling: Scaling | None = None,
    statistics: Statistics | None = None,
    buffer_rows: int | None = None,
    final_pass: bool = True,
    optimizer: optax.GradientTransformation | None = None,
    devices: Sequence[jax.Device] | None = None,
) -> list[Runner]:
    """Check lanes and data, and return what trains them, in their order; see `fit_many`."""
    if not lanes:
        raise ValueError("there are no lanes to train.")
    if not isinstance(data, AbstractSource):
        raise TypeError(
            f"data must be varprop.Data or a source of rows, but is {type(data).__name__}: "
            "varprop.Data(X, y) makes one of arrays."
        )
    mesh = None if devices is None else data_mesh(devices)
    apart = [take_apart((lane.model, objective)) for lane in lanes]
    structure, params, _ = apart[0]
    dtype = np.dtype(params.dtype)
    for number, (other, own, _) in enumerate(apart):
        if other != structure or own.dtype != dtype:
            raise ValueError(f"the model of lane {number} has another structure than lane 0's.")
    if len({lane.recipe.batch_size for lane in lanes}) > 1:
        listed = sorted({str(lane.recipe.batch_size) for lane in lanes})
        raise ValueError(f"all lanes must have one batch size, but they have {listed}.")
    _check_fit(lanes[0].model, data, dtype)
    # Lanes of the same rows share them.
    kinds = [None if lane.rows is None else np.asarray(lane.rows).tobytes() for lane in lanes]
    sources = {
        kind: _rows_of(data, lane, number)
        for number, (kind, lane) in enumerate(zip(kinds, lanes, strict=True))
    }
    room = max(source.n_rows for source in sources.values())
    row_bytes = data.row_numbers * dtype.itemsize
    feeds: dict[Any, Feed] = {}
    runners = []
    for lane, kind, (_, params, constants) in zip(lanes, kinds, apart, strict=True):
        source = sources[kind]
        keys = jax.random.split(lane.key)
        plan = Plan.of(
            source.block_rows,
            lane.recipe,
            row_bytes=row_bytes,
            buffer_rows=source.n_rows
            if buffer_rows is None and isinstance(source, Data)
            else buffer_rows,
            room=room,
            seed=tuple(np.asarray(jax.random.key_data(keys))[0].ravel().tolist()),
        )
        # The order of blocks is a lane's own; rows that stay have none.
        place = kind if plan.n_buffers == 1 else (kind, plan)
        if place not in feeds:
            found = Statistics.of(source) if statistics is None else statistics
            # Statistics count rows of weight 0, which a lane leaves out.
            n_rows = {source.n_rows, data.n_rows if lane.rows is None else source.n_rows}
            if len(found.std) != len(source.features) or found.n_rows not in n_rows:
                raise ValueError("statistics belong to other rows: make them with Statistics.of.")
            chosen = found.scaling if scaling is None else scaling
            chosen = chosen.of_columns(lane.model.likelihood.column_scaling)
            feeds[place] = Feed(source, plan, chosen, dtype, found, mesh)
        widest = max((int(np.prod(shape)) for shape in structure.shapes), default=0)
        parts = 1 if mesh is None else mesh.size
        program = Program(
            structure,
            optimizer=optimizer,
            batch_size=plan.batch_size,
            shuffle=plan.shuffle,
            multi_thread=len(lanes) == 1 and widest * plan.batch_size > _LARGE_PRODUCT * parts,
            mesh=mesh,
        )
        inputs = LaneInputs(
            n_rows=jnp.int32(plan.rows_of(0)),
            total_weight=jnp.asarray(feeds[place].statistics.total_weight, dtype),
            keys=keys,
            constants=constants,
            learning_rate=jnp.asarray(lane.recipe.learning_rate, dtype),
            kl_weight=jnp.asarray(lane.recipe.kl_weight, dtype),
            kl_warmup=jnp.asarray(lane.recipe.kl_warmup, dtype),
        )
        runners.append(
            Runner(
                program,
                feeds[place],
                inputs if mesh is None else on_devices(inputs, mesh),
                params,
                Schedule(lane.recipe, plan),
                # A sampled objective's final value is averaged over some passes; others are exact.
                passes=16 if objective.sampled else 1,
                final_pass=final_pass,
            )
        )
    return runners


def _rows_of(data: AbstractSource, lane: Lane, number: int) -> AbstractSource:
    """Return the rows a lane trains on, as a source."""
    if not isinstance(data, Data):
        if lane.rows is not None:
            raise ValueError(
                f"lane {number} picks rows, which only arrays allow: split the source."
            )
        return data
    rows = None if lane.rows is None else np.asarray(lane.rows)
    if rows is not None and (rows.ndim != 1 or rows.dtype.kind not in "iu"):
        raise ValueError(f"rows of lane {number} must be a list of row numbers.")
    if rows is not None and len(rows) and (rows.min() < 0 or rows.max() >= data.n_rows):
        raise ValueError(
            f"rows of lane {number} must lie between 0 and {data.n_rows - 1}, but go from "
            f"{rows.min()} to {rows.max()}."
        )
    picked = slice(None) if rows is None else rows
    if not len(data.y[picked] if data.weight is None else np.flatnonzero(data.weight[picked])):
        raise ValueError(f"lane {number} has no rows to train on.")
    return data.take(rows)


def _check_fit(model: Model, data: AbstractSource, dtype: np.dtype) -> None:
    """Let the network see one row, so that a wrong size is reported before anything is compiled."""
    shapes = [None if s is None else (1, *s) for s in ((len(data.features),), data.error_shape)]
    row = [None if shape is None else jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    out = jax.eval_shape(lambda *x: model.network.moments(as_input(*x)).mean, *row).shape[-1]
    likelihood = model.likelihood
    columns = likelihood.n_targets * len(likelihood.column_scaling)
    if columns != len(data.targets):
        each = "" if columns == likelihood.n_targets else f" in {columns} columns"
        raise ValueError(
            f"the likelihood has {likelihood.n_targets} targets{each}, but y has "
            f"{len(data.targets)} columns."
        )
    if out != likelihood.n_outputs:
        raise ValueError(
            f"{type(likelihood).__name__} needs {likelihood.n_outputs} outputs for "
            f"{likelihood.n_targets} targets, but the network has {out}."
        )


def run_digest(
    lanes: Sequence[Lane], objective: AbstractObjective, runners: Sequence[Runner]
) -> str:
    """Return the digest of all that determines a run: of its lanes, its program and its rows."""
    program, start = runners[0].program, runners[0].state
    # Functions are named with their address, which is another one in another process.
    structure = re.sub(r" at 0x[0-9a-f]+", "", repr(program.structure))
    description: list[Any] = [structure, program.optimizer is None, jax.__version__]
    # An optimizer is known by what it does.
    updates, _ = program.updates(jnp.cos(start.params), start.optimizer, start.params)
    arrays = [np.asarray(updates)]
    for lane, runner in zip(lanes, runners, strict=True):
        feed = runner.feed
        description += [dataclasses.asdict(lane.recipe), feed.source.columns, runner.final_pass]
        description += [feed.plan.block_rows, feed.plan.buffer_rows]
        arrays += [getattr(feed.scaling, field.name) for field in dataclasses.fields(Scaling)]
        arrays += [np.asarray(feed.statistics.total_weight), feed.statistics.std]
        arrays += [np.asarray(part) for part in feed.resident or () if part is not None]
        arrays.append(np.asarray(jax.random.key_data(lane.key)))
        _, params, constants = take_apart((lane.model, objective))
        arrays += [np.asarray(leaf) for leaf in (params, *constants)]
    return checkpoints.fingerprint(description, arrays)
