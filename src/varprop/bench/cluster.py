"""The workers of a Dask cluster, for `varprop.bench.run.run`.

A cell is one task. A worker that dies costs the cell it was at, which is run again elsewhere; when
the scheduler is lost, what is finished is in the store and a local run goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from varprop.bench.cells import plan
from varprop.bench.run import RunError, Workers
from varprop.bench.store import Cell
from varprop.bench.worker import Answer, run_on_dask
from varprop.errors import InputError

if TYPE_CHECKING:
    from distributed import Client

#: A scheduler that has not answered after this many seconds is given up.
CONNECT_SECONDS = 10.0
#: So is a cluster without a worker, at the start or later: a restarted worker needs some seconds.
WORKER_SECONDS = 60.0
#: What must be the same everywhere for results to be the same to the bit.
SAME_VERSIONS = ("varprop", "jax", "jaxlib", "numpy", "scipy")

# What Dask raises when the scheduler has gone: its own errors of connections are OSErrors.
_GONE = (OSError, RuntimeError, CancelledError)


@contextlib.contextmanager
def connected(
    scheduler: str,
    cells: Sequence[Cell],
    data_dir: str | None,
    on_notice: Callable[[str], None],
) -> Iterator[Workers]:
    """Connect to a scheduler and look whether its workers can run these cells.

    Parameters
    ----------
    scheduler, data_dir, on_notice
        As in `varprop.bench.run.run`.
    cells
        What is to be run.
    """
    try:
        from distributed import KilledWorker
    except ImportError as error:
        raise RunError("a cluster needs Dask: pip install 'varprop[dask]'.") from error
    with _silence(), _connect(scheduler) as client:
        try:
            _inspect(client, scheduler, cells, data_dir, on_notice)
            # Dask gives a task up (KilledWorker) when it has lost several workers (its setting
            # `allowed-failures`, 3). Handed in again it must be run again: it is not pure.
            executor = client.get_executor(pure=False)

            def submit(cell: Cell, near: str | None) -> Future[Answer]:
                # `near` has compiled the program; there before the groups that have not begun.
                soft = {"workers": [near], "allow_other_workers": True, "priority": 1}
                return executor.submit(run_on_dask, cell, data_dir, **(soft if near else {}))

            try:
                yield Workers(
                    submit,
                    places=[None] * len(cells),
                    group_size=_group_size(len(cells), len(client.nthreads())),
                    died=(KilledWorker,),
                    look=_Look(client, scheduler),
                )
            finally:
                # A worker finishes the cell it is at, for nothing.
                if client.status == "running":
                    executor.shutdown(wait=False)
        except _GONE as error:
            raise RunError(
                f"the scheduler at {scheduler} was lost: every finished cell is kept, and the same "
                "command without --scheduler goes on from there on this machine."
            ) from error


def _group_size(n_cells: int, n_workers: int) -> int:
    """Return how many cells follow one another: few enough to give every worker five groups.

    Examples
    --------
    >>> _group_size(30, 2), _group_size(30, 10), _group_size(3, 10)
    (3, 1, 1)
    """
    return max(1, min(5, n_cells // (5 * max(1, n_workers))))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep back what Dask would print about a lost scheduler: our sentence says it."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed.")]
    loggers = [logging.getLogger(name) for name in ("distributed", *names)]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


@contextlib.contextmanager
def _connect(scheduler: str) -> Iterator[Client]:
    from distributed import Client

    try:
        # In a thread, since the caller's may have an event loop that runs (a notebook's has).
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, _greet(scheduler)).result()
        client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
    except Exception as error:  # whatever is there, or not, it is no scheduler
        raise RunError(
            f"no Dask scheduler answered at {scheduler} within {CONNECT_SECONDS:.0f} s: start "
            "one by `dask scheduler`, which prints its address (tcp://host:8786)."
        ) from error
    try:
        yield client
    finally:
        with contextlib.suppress(*_GONE):
            client.close(timeout=CONNECT_SECONDS)


async def _greet(scheduler: str) -> None:
    """Shake hands and go: Dask's client would wait for ever for the hand of a stranger."""
    from distributed import Security
    from distributed.comm import connect

    options = Security().get_connection_args("client")
    async with asyncio.timeout(CONNECT_SECONDS):
        comm = await connect(scheduler, timeout=CONNECT_SECONDS, **options)
        await comm.close()


def _inspect(
    client: Client,
    scheduler: str,
    cells: Sequence[Cell],
    data_dir: str | None,
    on_notice: Callable[[str], None],
) -> None:
    """Refuse workers that would give other results or none, in one sentence."""
    try:
        client.wait_for_workers(1, timeout=WORKER_SECONDS)
    except TimeoutError as error:
        raise _no_workers(scheduler) from error
    # Of the standard library, so that a worker without varprop can answer as well.
    for package in SAME_VERSIONS:
        here = importlib.metadata.version(package)
        for worker, version in _ask(client, importlib.metadata.version, package).items():
            if version != here:
                has = "does not have" if isinstance(version, Exception) else f"has {version} of"
                raise RunError(
                    f"the worker {worker} {has} the package {package}, but this process has "
                    f"{here}: install the same version on all workers."
                )
    names = sorted({cell.dataset for cell in cells})
    # A plan without methods says which data sets are not there.
    for worker, found in _ask(client, plan, names, [], data_dir=data_dir).items():
        trouble = getattr(found, "skipped", None)
        if isinstance(found, Exception):
            trouble = [found if isinstance(found, InputError) else repr(found)]
        if trouble:
            raise RunError(f"the worker {worker} cannot do this benchmark: {trouble[0]}")
    several = sorted(worker for worker, n in client.nthreads().items() if n > 1)
    if several:
        on_notice(
            f"{len(several)} worker(s), such as {several[0]}, have several threads, but run one "
            "cell at a time: start them with `--nworkers auto --nthreads 1` to use all cores."
        )


def _ask(
    client: Client, question: Callable[..., Any], *args: Any, **options: Any
) -> dict[str, Any]:
    """Return each worker's answer or error; not those of workers that went away meanwhile."""
    from distributed.comm import CommClosedError

    answers = client.run(question, *args, on_error="return", **options)
    return {w: answer for w, answer in answers.items() if not isinstance(answer, CommClosedError)}


def _no_workers(scheduler: str) -> RunError:
    return RunError(
        f"the scheduler at {scheduler} had no worker for {WORKER_SECONDS:.0f} s: start some by "
        f"`dask worker {scheduler} --nthreads 1`; every finished cell is kept."
    )


class _Look:
    """Looks every two seconds whether there are workers."""

    def __init__(self, client: Client, scheduler: str):
        self._client, self._scheduler = client, scheduler
        self._last_worker = self._last_look = time.monotonic()

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self._last_look < 2.0:
            return
        self._last_look = now
        if self._client.nthreads():
            self._last_worker = now
        elif now - self._last_worker > WORKER_SECONDS:
            raise _no_workers(self._scheduler)
