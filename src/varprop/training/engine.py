"""`fit` and `fit_many`: lanes of training on one compiled program, on as many cores as there are.

A lane is one independent training run. All lanes run the same compiled program, and those of equal
rows share one copy of them; they differ by keys and scalars. Each is a sequence of calls; Python
runs only in between: to look at the loss, show progress, write a checkpoint, stop.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import PRNGKeyArray

from varprop.data.source import AbstractSource
from varprop.data.statistics import Scaling, Statistics
from varprop.learning.model import Model
from varprop.learning.objectives import AbstractObjective
from varprop.training.devices import require_same, spans_processes
from varprop.training.preparation import Lane, prepare, run_digest
from varprop.training.recipe import Recipe
from varprop.training.result import Fit
from varprop.training.runner import Session


def fit(
    model: Model,
    data: AbstractSource,
    objective: AbstractObjective,
    *,
    key: PRNGKeyArray,
    recipe: Recipe | None = None,
    **options: Any,
) -> Fit:
    """Train one model.

    Parameters
    ----------
    model
        Where training starts; its dtype is that of training.
    data
        The training rows: `Data`, or a source of row blocks such as `varprop.data.ParquetSource`
        for more of them than fit into memory.
    objective
        What to minimize.
    key
        Random key for the order of rows and for sampling. The same key gives the same result to the
        bit on the same machine.
    recipe
        How to train; the default recipe unless given, `Recipe.paper()` for the paper's protocol.
    **options
        As in `fit_many`.

    Returns
    -------
    Fit
        With its outcome; Ctrl-C returns what there is, marked as interrupted.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from varprop import Data, regression_model
    >>> from varprop.learning.objectives import ROPD
    >>> x = np.linspace(-1, 1, 64)[:, None]
    >>> result = fit(regression_model(1, 1, key=jax.random.key(0)), Data(x, np.sin(3 * x)), ROPD(),
    ...              key=jax.random.key(1), recipe=Recipe(max_steps=50))
    >>> result.outcome.value, result.n_steps, result.predictive(x).mean.shape
    ('max_steps', 50, (64, 1))
    """
    lane = Lane(model=model, key=key, recipe=recipe or Recipe())
    return fit_many([lane], data, objective, **options)[0]


def fit_restarts(
    init: Callable[[PRNGKeyArray], Model],
    data: AbstractSource,
    objective: AbstractObjective,
    *,
    key: PRNGKeyArray,
    n_restarts: int,
    recipe: Recipe | None = None,
    **options: Any,
) -> Fit:
    """Train from several starts and keep the one with the lowest final training objective.

    Parameters
    ----------
    init
        Makes a model from a key.
    data, objective
        As in `fit`.
    key
        Random key.
    n_restarts
        Number of starts, at least 1.
    recipe
        As in `fit`; it says whether every other lane trains without warm-up.
    **options
        As in `fit_many`.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from varprop import Data, regression_model
    >>> from varprop.learning.objectives import ROPD
    >>> x = np.linspace(-1, 1, 64)[:, None]
    >>> best = fit_restarts(lambda key: regression_model(1, 1, key=key), Data(x, x), ROPD(),
    ...                     key=jax.random.key(0), n_restarts=2, recipe=Recipe(max_steps=50))
    >>> best.loss == min(best.restart_losses)
    True
    """
    if n_restarts < 1:
        raise ValueError(f"n_restarts must be at least 1, but is {n_restarts}.")
    lanes = restart_lanes(init, key=key, n_restarts=n_restarts, recipe=recipe or Recipe())
    return best_of(fit_many(lanes, data, objective, **options))


def restart_lanes(
    init: Callable[[PRNGKeyArray], Model],
    *,
    key: PRNGKeyArray,
    n_restarts: int,
    recipe: Recipe,
    rows: np.ndarray | None = None,
) -> list[Lane]:
    """Lanes from different starts, with and without warm-up in turn if the recipe says so."""
    lanes = []
    for number, lane_key in enumerate(jax.random.split(key, n_restarts)):
        model_key, run_key = jax.random.split(lane_key)
        plain = recipe.replace(kl_warmup=0) if recipe.alternate and number % 2 else recipe
        lanes.append(Lane(model=init(model_key), key=run_key, recipe=plain, rows=rows))
    return lanes


def best_of(fits: Sequence[Fit]) -> Fit:
    """Return the fit with the lowest final training objective; those without one lose."""
    losses = tuple(result.loss for result in fits)
    ranked = [loss if np.isfinite(loss) else np.inf for loss in losses]
    return dataclasses.replace(fits[int(np.argmin(ranked))], restart_losses=losses)


def fit_many(
    lanes: Sequence[Lane],
    data: AbstractSource,
    objective: AbstractObjective,
    *,
    scaling: Scaling | None = None,
    statistics: Statistics | None = None,
    buffer_rows: int | None = None,
    final_pass: bool = True,
    optimizer: optax.GradientTransformation | None = None,
    n_threads: int | None = None,
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    progress: bool = False,
    devices: Sequence[jax.Device] | None = None,
) -> list[Fit]:
    """Train many lanes: splits, seeds, ensemble members, KL weights, learning rates.

    The program is compiled once, and equal rows are held once. A lane gives the same result, to the
    bit, as the same lane trained by `fit`; a lane that fails does not touch the others.

    Rows that fit one buffer stay on the device. Otherwise the blocks of a source are read, in a new
    random order in every epoch, into buffers whose rows are shuffled; the next is read while one is
    trained on, and each row is seen once per epoch. The memory this needs on top of the libraries,
    in bytes, with c columns of s bytes each (4 for float32): 2 * buffer_rows * c * s for the
    buffers, about 16 * buffer_rows for the order of rows, and what decoding needs: about
    6 * 65,536 * c * 8, and a page of Parquet per column.

    Parameters
    ----------
    lanes
        What to train.
    data
        All rows; each lane picks its own, which only `Data` allows.
    objective
        What to minimize.
    scaling
        What rows are shifted and divided by, and results are in: by mean and standard deviation of
        the lane's own rows unless given (`Scaling.identity(n_inputs, n_outputs)` takes them as they
        are). The trained model is in these units; `Fit.scaling` has the numbers.
    statistics
        From `Statistics.of(data)`; without it the rows are looked at once to make it.
    buffer_rows
        Rows per buffer, rounded down to whole batches. Unless given, arrays make one buffer, and
        other sources have 1,048,576 rows or as many as make 128 MiB, whichever is less.
    final_pass
        Evaluate the objective on all rows at the end, for `Fit.loss`, which is NaN otherwise.
    optimizer
        Any Optax optimizer, used with its own learning rate instead of the recipe's.
    n_threads
        Lanes trained at a time, each on one core; as many as there are cores unless given. Where
        batches are sharded over several devices, or rows do not fit one buffer, lanes follow one
        another.
    time_limit
        Seconds after which training stops with what there is.
    checkpoint
        A file to write the state to from time to time. If it exists and belongs to the same run,
        training resumes from it and ends as if it had never been interrupted, to the bit.
    checkpoint_every
        Seconds between checkpoints.
    progress
        Show a progress bar.
    devices
        Shard every batch over these: ``jax.devices()`` for all that JAX sees, those of other
        processes after `varprop.distributed.initialize` included, which must then make the same
        call with the same arguments. Results are those of one device, up to rounding.

    Returns
    -------
    list of Fit
        In the order of the lanes. `loss` is NaN where rows do not fit one buffer and training was
        interrupted: no further pass is made then.

    Raises
    ------
    SourceError
        One sentence that names the place, if a row cannot be used or the source cannot be read.
        What was trained until then is in the checkpoint, if there is one.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from varprop import Data, regression_model
    >>> from varprop.learning.objectives import VI
    >>> x = np.linspace(-1, 1, 64)[:, None]
    >>> lanes = [Lane(model=regression_model(1, 1, key=jax.random.key(seed)),
    ...               key=jax.random.key(seed), recipe=Recipe(max_steps=20)) for seed in range(3)]
    >>> [result.n_steps for result in fit_many(lanes, Data(x, x), VI())]
    [20, 20, 20]
    """
    path = None if checkpoint is None else pathlib.Path(checkpoint)
    if path is not None and not path.parent.is_dir():
        raise FileNotFoundError(f"the folder of the checkpoint, {path.parent}, does not exist.")
    deadline = None if time_limit is None else time.monotonic() + time_limit
    runners = prepare(
        lanes,
        data,
        objective,
        scaling=scaling,
        statistics=statistics,
        buffer_rows=buffer_rows,
        final_pass=final_pass,
        optimizer=optimizer,
        devices=devices,
    )
    mesh = runners[0].program.mesh
    shared = spans_processes(mesh)
    # Programs that run on the same devices at once wait for each other's messages, for ever; and
    # lanes that read each hold buffers of their own.
    together = mesh is None and runners[0].feed.plan.n_buffers == 1
    for runner in runners:
        _ = runner.feed.resident  # before threads ask for it, each of which would fill its own
    n_threads = min(len(lanes), n_threads or os.cpu_count() or 1) if together else 1
    session = Session(runners, n_threads=n_threads, deadline=deadline, shared=shared)
    digest = run_digest(lanes, objective, runners) if shared or path is not None else ""
    if shared:
        require_same(digest, "data, models, settings or keys")
    if path is not None:
        session.resume_from(path, digest)
    shown = progress and jax.process_index() == 0
    session.run(progress=shown, checkpoint_every=checkpoint_every)
    return [runner.result() for runner in runners]
