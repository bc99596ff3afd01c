"""`fit` and `fit_many`: lanes of training on one compiled program, on as many threads as cores.

A lane is one independent training run. All lanes run the same compiled program on the same copy of
the data; they differ by index arrays, keys and scalars. Each is a sequence of calls, each of one
window of epochs; Python runs only in between: to look at the loss, show progress, write a
checkpoint, stop.
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
import optax  # type: ignore[import-untyped]
from jaxtyping import PRNGKeyArray

from varprop.data.arrays import Data
from varprop.learning.model import Model
from varprop.learning.objectives import AbstractObjective
from varprop.training.devices import data_mesh, require_same, spans_processes
from varprop.training.lanes import Lane
from varprop.training.preparation import fingerprint, prepare
from varprop.training.progress import Progress
from varprop.training.recipe import Recipe
from varprop.training.result import Fit
from varprop.training.session import Session


def fit(
    model: Model,
    data: Data | Any,
    objective: AbstractObjective,
    *,
    key: PRNGKeyArray,
    recipe: Recipe | None = None,
    standardize: bool = True,
    optimizer: optax.GradientTransformation | None = None,
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    progress: bool = False,
    devices: Sequence[jax.Device] | None = None,
) -> Fit:
    """Train one model.

    Parameters
    ----------
    model
        Where training starts.
    data
        The training rows: `Data`, or a source of row blocks such as
        `varprop.streaming.ParquetSource` for more of them than fit into memory;
        `varprop.streaming.fit_stream` has further options.
    objective
        What to minimize.
    key
        Random key for the order of rows and for sampling. The same key gives the same result to the
        bit on the same machine.
    recipe
        How to train; the default recipe unless given, `Recipe.paper()` for the paper's protocol.
    standardize
        Train on inputs and targets shifted and scaled to mean 0 and variance 1. The trained model
        is in these units; `Fit.scaling` has the numbers.
    optimizer
        Any Optax optimizer, used with its own learning rate instead of the recipe's.
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
        Every batch is sharded over these, all that JAX sees unless given: all devices of this
        process and, after `varprop.distributed.initialize`, of all others, which must then make the
        same call with the same arguments. Results are those of one device, up to rounding.

    Returns
    -------
    Fit
        With its outcome; Ctrl-C returns what there is, marked as interrupted.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from varprop.learning.model import regression_model
    >>> from varprop.learning.objectives import ROPD
    >>> x = np.linspace(-1, 1, 64)[:, None]
    >>> result = fit(regression_model(1, 1, key=jax.random.key(0)), Data(x, np.sin(3 * x)), ROPD(),
    ...              key=jax.random.key(1), recipe=Recipe(max_steps=50))
    >>> result.outcome.value, result.n_steps
    ('max_steps', 50)
    """
    options: dict[str, Any] = {
        "standardize": standardize,
        "optimizer": optimizer,
        "time_limit": time_limit,
        "checkpoint": checkpoint,
        "checkpoint_every": checkpoint_every,
        "progress": progress,
        "devices": devices,
    }
    if not isinstance(data, Data):
        return _fit_source(model, data, objective, key=key, recipe=recipe, **options)
    lane = Lane(model=model, key=key, recipe=recipe or Recipe())
    return fit_many([lane], data, objective, **options)[0]


def _fit_source(model: Model, data: Any, objective: AbstractObjective, **options: Any) -> Fit:
    # Streaming is built on this engine, and needs pyarrow.
    from varprop.data.source import AbstractSource
    from varprop.training.stream_engine import fit_stream

    if not isinstance(data, AbstractSource):
        raise TypeError(
            f"data must be varprop.Data or a source of rows, but is {type(data).__name__}: "
            "varprop.Data(X, y) makes one of arrays."
        )
    return fit_stream(model, data, objective, **options)


def fit_restarts(
    init: Callable[[PRNGKeyArray], Model],
    data: Data,
    objective: AbstractObjective,
    *,
    key: PRNGKeyArray,
    n_restarts: int,
    recipe: Recipe | None = None,
    **options: Any,
) -> Fit:
    """Train from several starts and keep the one with the lowest final training objective.

    Every other lane trains without the warm-up of the KL weight: which of the two ends lower
    depends on the data, and the training objective says so without any held-out row.

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
        As in `fit`.
    **options
        As in `fit_many`.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from varprop.learning.model import regression_model
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
    """Lanes from different starts, every other one without warm-up (if the recipe has one)."""
    lanes = []
    for number, lane_key in enumerate(jax.random.split(key, n_restarts)):
        model_key, run_key = jax.random.split(lane_key)
        plain = recipe.replace(kl_warmup=0) if number % 2 else recipe
        lanes.append(Lane(model=init(model_key), key=run_key, rows=rows, recipe=plain))
    return lanes


def best_of(fits: Sequence[Fit]) -> Fit:
    """Return the fit with the lowest final training objective; those without one lose."""
    losses = tuple(result.loss for result in fits)
    ranked = [loss if np.isfinite(loss) else np.inf for loss in losses]
    return dataclasses.replace(fits[int(np.argmin(ranked))], restart_losses=losses)


def fit_many(
    lanes: Sequence[Lane],
    data: Data,
    objective: AbstractObjective,
    *,
    standardize: bool = True,
    optimizer: optax.GradientTransformation | None = None,
    n_threads: int | None = None,
    time_limit: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
    progress: bool = False,
    devices: Sequence[jax.Device] | None = None,
) -> list[Fit]:
    """Train many lanes: splits, seeds, ensemble members, KL weights, learning rates.

    The program is compiled once and the data is held once. A lane gives the same result, to the
    bit, as the same lane trained by `fit`; a lane that fails does not touch the others.

    Parameters
    ----------
    lanes
        What to train.
    data
        All rows; each lane picks its own.
    objective
        What to minimize.
    standardize
        Scale every lane by its own training rows.
    optimizer
        As in `fit`.
    n_threads
        Lanes trained at a time; as many as there are cores unless given. Where batches are sharded
        over several devices, lanes follow one another.
    time_limit, checkpoint, checkpoint_every, progress, devices
        As in `fit`.

    Returns
    -------
    list of Fit
        In the order of the lanes.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from varprop.learning.model import regression_model
    >>> from varprop.learning.objectives import VI
    >>> x = np.linspace(-1, 1, 64)[:, None]
    >>> lanes = [Lane(model=regression_model(1, 1, key=jax.random.key(seed)),
    ...               key=jax.random.key(seed), recipe=Recipe(max_steps=20)) for seed in range(3)]
    >>> [result.n_steps for result in fit_many(lanes, Data(x, x), VI())]
    [20, 20, 20]
    """
    if not lanes:
        raise ValueError("there are no lanes to train.")
    mesh = data_mesh(devices)
    shared = spans_processes(mesh)
    runners = prepare(
        lanes, data, objective, standardize=standardize, optimizer=optimizer, mesh=mesh
    )
    n_threads = min(len(lanes), n_threads or os.cpu_count() or 1)
    session = Session(
        runners,
        # Programs that run on the same devices at once wait for each other's messages, for ever.
        n_threads=n_threads if mesh is None else 1,
        deadline=None if time_limit is None else time.monotonic() + time_limit,
        shared=shared,
    )
    digest = ""
    if shared or checkpoint is not None:
        digest = fingerprint(lanes, data, objective, standardize, runners)
    if shared:
        require_same(digest, "data, models, settings or keys")
    if checkpoint is not None:
        path = pathlib.Path(checkpoint)
        if not path.parent.is_dir():
            raise FileNotFoundError(f"the folder of the checkpoint, {path.parent}, does not exist.")
        session.resume_from(path, digest)
    with Progress(
        progress and jax.process_index() == 0,
        len(lanes),
        max(runner.max_steps for runner in runners),
    ) as bar:
        session.run(bar, checkpoint_every)
    return [runner.result() for runner in runners]
