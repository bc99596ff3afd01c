"""`fit_stream`: training on more rows than fit into memory."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import optax  # type: ignore[import-untyped]
from jaxtyping import PRNGKeyArray

from varprop.data.arrays import Scaling, bucket_size
from varprop.data.source import AbstractSource, SourceError
from varprop.data.statistics import Statistics
from varprop.learning.model import Model
from varprop.learning.objectives import AbstractObjective
from varprop.nn.parameters import take_apart
from varprop.training.devices import data_mesh, require_same, spans_processes
from varprop.training.lanes import Lane
from varprop.training.plan import Plan
from varprop.training.preparation import (
    batching,
    check_outputs,
    is_large,
    lane_inputs,
    run_digest,
)
from varprop.training.program import make_program
from varprop.training.progress import Progress
from varprop.training.recipe import Recipe
from varprop.training.result import Fit
from varprop.training.session import Session
from varprop.training.stream_runner import StreamRunner

# A buffer unless its rows are given: as many as shuffle well, and no more bytes than this.
_BUFFER_ROWS, _BUFFER_BYTES = 2**20, 2**27


def fit_stream(
    model: Model,
    source: AbstractSource,
    objective: AbstractObjective,
    *,
    key: PRNGKeyArray,
    recipe: Recipe | None = None,
    statistics: Statistics | None = None,
    buffer_rows: int | None = None,
    standardize: bool = True,
    final_pass: bool = True,
    optimizer: optax.GradientTransformation | None = None,
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    progress: bool = False,
    devices: Sequence[jax.Device] | None = None,
) -> Fit:
    """Train one model on a source, of which two buffers of rows are in memory at a time.

    In every epoch the blocks are read in another random order into buffers, and the rows of a
    buffer are shuffled; the next is read while one is trained on. Each row is seen once per epoch.
    Where all rows fit one buffer the result is that of `fit`, to the bit.

    The memory it needs on top of the libraries, in bytes, with c columns (features, targets and
    weight) of s bytes each (4 for float32):
    2 * buffer_rows * c * s for the buffers, about 16 * buffer_rows for the order of rows,
    and what decoding needs: about 4 * 65,536 * c * 8, and a page of Parquet per column.

    Parameters
    ----------
    model
        Where training starts; its dtype is that of training.
    source
        The training rows.
    objective
        What to minimize.
    key
        Random key for the order of rows and for sampling. The same key gives the same result to the
        bit on the same machine.
    recipe
        As in `fit`, but training ends, and begins to cool down, after whole buffers instead of
        epochs. The stop rule still compares whole epochs.
    statistics
        From `Statistics.of(source)`; without it the source is read once to make it.
    buffer_rows
        Rows per buffer, rounded down to whole batches; unless given 1,048,576 or as many as make
        128 MiB, whichever is less.
    standardize
        Train on inputs and targets shifted and scaled to mean 0 and variance 1.
    final_pass
        Read the source once more at the end, for `Fit.loss`, which is NaN otherwise.
    optimizer, checkpoint_every, progress, devices
        As in `fit`. Each of several processes reads its part of every buffer.
    time_limit
        Seconds after which training stops with what there is, at the end of a buffer.
    checkpoint
        As in `fit`; training resumes at the buffer it was interrupted at.

    Returns
    -------
    Fit
        Its `history` ends with the mean loss of the batches of an epoch that was begun. `loss` is
        NaN after an interruption or at the time limit: no further pass is made then.

    Raises
    ------
    SourceError
        One sentence that names the place, if the source cannot be read. What was trained until then
        is in the checkpoint, if there is one.

    Examples
    --------
    >>> import pathlib, tempfile, jax, pyarrow, pyarrow.parquet
    >>> from varprop.learning.model import regression_model
    >>> from varprop.learning.objectives import ROPD
    >>> from varprop.data.parquet import ParquetSource
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> x = np.linspace(-1, 1, 300)
    >>> for i in range(3):
    ...     table = pyarrow.table({"x": x[i::3], "y": np.sin(3 * x[i::3])})
    ...     pyarrow.parquet.write_table(table, folder / f"{i}.parquet")
    >>> result = fit_stream(regression_model(1, 1, key=jax.random.key(0)),
    ...                     ParquetSource(folder, targets="y"), ROPD(), key=jax.random.key(1),
    ...                     recipe=Recipe(max_steps=20, batch_size=32), buffer_rows=128)
    >>> result.outcome.value, result.n_steps
    ('max_steps', 20)
    """
    recipe = recipe or Recipe()
    path = None if checkpoint is None else pathlib.Path(checkpoint)
    if path is not None and not path.parent.is_dir():
        raise FileNotFoundError(f"the folder of the checkpoint, {path.parent}, does not exist.")
    deadline = None if time_limit is None else time.monotonic() + time_limit
    lane = Lane(model=model, key=key, recipe=recipe)
    structure, params, constants = take_apart((model, objective))
    dtype = np.dtype(params.dtype)
    check_outputs(model, len(source.features), len(source.targets), dtype)
    rows = _buffer_rows(buffer_rows, recipe, source, dtype)
    if statistics is None:
        statistics = Statistics.of(source, dtype=dtype)
    _check_statistics(statistics, source, dtype)
    batch_size, shuffle = batching(recipe, source.n_rows)
    keys = jax.random.split(key)
    plan = Plan(
        block_rows=source.block_rows,
        batch_size=batch_size,
        buffer_rows=rows,
        seed=tuple(np.asarray(jax.random.key_data(keys[0])).ravel().tolist()),
    )
    mesh = data_mesh(devices)
    program = make_program(
        structure,
        optimizer=optimizer,
        batch_size=batch_size,
        shuffle=shuffle,
        multi_thread=is_large(structure, batch_size, mesh),
        mesh=mesh,
    )
    scaling = statistics.scaling if standardize else _no_scaling(source)
    order = np.arange(rows, dtype=np.int32)
    runner = StreamRunner(
        program,
        source,
        plan,
        lane_inputs(
            lane, order, rows, statistics.total_weight, scaling, list(constants), dtype, mesh
        ),
        params,
        recipe=recipe,
        scaling=scaling,
        total_weight=statistics.total_weight,
        passes=16 if objective.sampled else 1,
        final_pass=final_pass,
    )
    shared = spans_processes(mesh)
    session = Session([runner], n_threads=1, deadline=deadline, shared=shared)
    if shared or path is not None:
        settings: list[Any] = [standardize, final_pass, source.columns, plan.block_rows, rows]
        found = [statistics.center, statistics.std, np.float64(statistics.total_weight)]
        digest = run_digest(
            [lane], objective, program, runner.state, settings, [np.asarray(a) for a in found]
        )
        if shared:
            require_same(digest, "data, models, settings or keys")
        if path is not None:
            session.resume_from(path, digest)
    try:
        with Progress(progress and jax.process_index() == 0, 1, runner.max_steps) as bar:
            session.run(bar, checkpoint_every)
    except SourceError:
        session.save()  # a file that cannot be read any more costs no training
        raise
    finally:
        runner.close()
    return runner.result()


def _buffer_rows(asked: int | None, recipe: Recipe, source: AbstractSource, dtype: np.dtype) -> int:
    """Return the rows of a buffer: whole batches, and no more than there are rows (and padding)."""
    n_rows = source.n_rows
    batch_size, _ = batching(recipe, n_rows)
    if asked is not None and asked < 1:
        raise ValueError(f"buffer_rows must be at least 1, but is {asked}.")
    default = min(_BUFFER_ROWS, _BUFFER_BYTES // (len(source.columns) * dtype.itemsize))
    most = max(default, batch_size) if asked is None else asked
    if n_rows <= most:
        return -(-bucket_size(n_rows) // batch_size) * batch_size
    if recipe.batch_size is None:
        raise ValueError(
            f"batch_size=None takes all {n_rows} rows in one step, but a buffer has {most}: give a "
            "batch size."
        )
    if most < batch_size:
        raise ValueError(
            f"a buffer must hold a batch of {batch_size} rows, but buffer_rows is {asked}."
        )
    return most // batch_size * batch_size


def _check_statistics(statistics: Statistics, source: AbstractSource, dtype: np.dtype) -> None:
    same = statistics.n_rows == source.n_rows and len(statistics.center) == len(
        source.features
    ) + len(source.targets)
    if not same:
        raise ValueError("statistics belong to another source: make them with Statistics.of.")
    if statistics.dtype != dtype:
        raise TypeError(
            f"the model is {dtype}, but the statistics are {statistics.dtype}: give "
            f"Statistics.of(source, dtype={dtype.name!r})."
        )


def _no_scaling(source: AbstractSource) -> Scaling:
    n, d = len(source.features), len(source.targets)
    return Scaling(np.zeros(n), np.ones(n), np.zeros(d), np.ones(d))
