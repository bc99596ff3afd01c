"""Running a plan on a Dask cluster: workers run cells, this process alone writes the store.

A cell is one task. The cells of a group, which share a compiled program, follow one another on the
worker that has compiled it. A worker that dies costs the cell it was at, which is run again
elsewhere; when the scheduler is lost, what is finished is in the store and a local run goes on.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import importlib.metadata
import logging
import os
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from varprop.bench.run import Summary, Watch, groups
from varprop.bench.store import Cell, Store
from varprop.bench.worker import lacks, run_on_worker

if TYPE_CHECKING:
    from distributed import Client, Future

#: A scheduler that has not answered after this many seconds is given up.
CONNECT_SECONDS = 10.0
#: So is a cluster without a worker, at the start or later: a restarted worker needs some seconds.
WORKER_SECONDS = 60.0
#: Dask gives a task up when it has lost several workers (its setting `allowed-failures`, 3); so
#: many times we hand it in again. A cell that needs more memory than there is must end some time.
RESUBMISSIONS = 3
#: What must be the same everywhere for results to be the same to the bit.
SAME_VERSIONS = ("varprop", "jax", "jaxlib", "numpy", "scipy")

_RESULT_SECONDS = 5.0
# What Dask raises when the scheduler has gone: its own errors of connections are OSErrors.
_GONE = (OSError, RuntimeError, concurrent.futures.CancelledError)


class ClusterError(Exception):
    """The cluster cannot be used, or is lost; the message says why and what to do."""


def run_on_cluster(
    cells: Sequence[Cell],
    store: Store,
    *,
    scheduler: str,
    data_dir: str | None = None,
    on_progress: Callable[[float, float, int], None] = lambda done, left, count: None,
    on_notice: Callable[[str], None] = lambda sentence: None,
) -> Summary:
    """Run the cells that have no result yet on the workers of a Dask cluster.

    Parameters
    ----------
    cells
        What to run.
    store
        Where results go, each as soon as it is there; only this process opens it.
    scheduler
        The address of a running scheduler, such as ``tcp://host:8786``.
    data_dir
        Where data lies, on the workers; as in `varprop.bench.sources.load`.
    on_progress
        As in `varprop.bench.run.run`.
    on_notice
        Called with sentences about what is not wrong but could be better.

    Raises
    ------
    ClusterError
        If nobody answers at the address, there are no workers, they have other versions or no
        data, or the scheduler is lost. Finished cells are kept.

    Examples
    --------
    >>> from varprop.bench.cells import plan
    >>> cells = plan(["boston"], ["gp"]).cells
    >>> run_on_cluster(cells, Store("r.sqlite"), scheduler="tcp://host:8786")  # doctest: +SKIP
    """
    begin = time.monotonic()
    todo = store.missing(cells)
    failed: list[str] = []
    interrupted = False
    if todo:
        folder = None if data_dir is None else os.path.abspath(data_dir)
        with _connected(scheduler) as client:
            try:
                _inspect(client, scheduler, todo, folder, on_notice)
            except _GONE as error:
                raise _lost(scheduler) from error
            work = _Work(client, scheduler, store, folder)
            watch = Watch(todo, store.path, on_progress, begin)
            try:
                for part in groups(todo, size=_group_size(len(todo), len(client.nthreads()))):
                    work.go_on(collections.deque(part))
                while work.flying:
                    work.collect(timeout=0.5)
                    watch.report()
            except KeyboardInterrupt:
                interrupted = True
            finally:
                work.give_up()
            failed = work.failed
    left = store.missing(todo)
    elsewhere = 0 if interrupted else max(0, len(left) - len(failed))
    return Summary(
        len(todo) - len(left),
        len(cells) - len(todo),
        elsewhere,
        failed,
        interrupted,
        time.monotonic() - begin,
    )


def _group_size(n_cells: int, n_workers: int) -> int:
    """Return how many cells follow one another: few enough to give every worker five groups.

    Examples
    --------
    >>> _group_size(30, 2), _group_size(30, 10), _group_size(3, 10)
    (3, 1, 1)
    """
    return max(1, min(5, n_cells // (5 * max(1, n_workers))))


@contextlib.contextmanager
def _connected(scheduler: str) -> Iterator[Client]:
    """Connect to a scheduler; what Dask would print about a lost one is our sentence's to say."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError("a cluster needs Dask: pip install 'varprop[dask]'.") from error
    logger = logging.getLogger("distributed")
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed.")]
    loggers = [logger, *map(logging.getLogger, names)]
    levels = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL + 1)
    try:
        try:
            # In a thread, since the caller's may have an event loop that runs (a notebook's has).
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                pool.submit(asyncio.run, _greet(scheduler)).result()
            client = Client(scheduler, timeout=CONNECT_SECONDS, set_as_default=False)
        except Exception as error:  # whatever is there, or not, it is no scheduler
            raise ClusterError(
                f"no Dask scheduler answered at {scheduler} within {CONNECT_SECONDS:.0f} s: start "
                "one by `dask scheduler`, which prints its address (tcp://host:8786)."
            ) from error
        try:
            yield client
        finally:
            with contextlib.suppress(*_GONE):
                client.close(timeout=CONNECT_SECONDS)
    finally:
        for each, level in zip(loggers, levels, strict=True):
            each.setLevel(level)


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
        raise ClusterError(_no_workers(scheduler)) from error
    # Of the standard library, so that a worker without varprop can answer as well.
    for package in SAME_VERSIONS:
        here = importlib.metadata.version(package)
        for worker, version in _ask(client, importlib.metadata.version, package).items():
            if version != here:
                has = "does not have" if isinstance(version, Exception) else f"has {version} of"
                raise ClusterError(
                    f"the worker {worker} {has} the package {package}, but this process has "
                    f"{here}: install the same version on all workers."
                )
    names = sorted({cell.dataset for cell in cells})
    for worker, found in _ask(client, lacks, names, data_dir).items():
        trouble = f"{type(found).__name__}: {found}" if isinstance(found, Exception) else found
        if trouble:
            raise ClusterError(f"the worker {worker} cannot do this benchmark: {trouble}")
    several = sorted(worker for worker, n in client.nthreads().items() if n > 1)
    if several:
        on_notice(
            f"{len(several)} worker(s), such as {several[0]}, have several threads, but run one "
            "cell at a time: start them with `--nworkers auto --nthreads 1` to use all cores."
        )


def _ask(client: Client, question: Callable[..., Any], *args: Any) -> dict[str, Any]:
    """Return each worker's answer or error; not those of workers that went away meanwhile."""
    from distributed.comm import CommClosedError

    answers = client.run(question, *args, on_error="return")
    return {w: answer for w, answer in answers.items() if not isinstance(answer, CommClosedError)}


def _no_workers(scheduler: str) -> str:
    return (
        f"the scheduler at {scheduler} had no worker for {WORKER_SECONDS:.0f} s: start some by "
        f"`dask worker {scheduler} --nthreads 1`; every finished cell is kept."
    )


def _lost(scheduler: str) -> ClusterError:
    return ClusterError(
        f"the scheduler at {scheduler} was lost: every finished cell is kept, and the same command "
        "without --scheduler goes on from there on this machine."
    )


@dataclasses.dataclass
class _Flight:
    """A cell on its way, the rest of its group, and how often Dask has given it up."""

    cell: Cell
    rest: collections.deque[Cell]
    given_up: int = 0


class _Work:
    """The cells that are on the cluster, and what became of them."""

    def __init__(self, client: Client, scheduler: str, store: Store, data_dir: str | None):
        self._client, self._scheduler = client, scheduler
        self._store, self._data_dir = store, data_dir
        self._ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._last_worker = self._last_look = time.monotonic()
        self.flying: dict[Future, _Flight] = {}
        self.failed: list[str] = []

    def go_on(self, rest: collections.deque[Cell], near: str | None = None) -> None:
        """Send a group's next cell, to the worker that ran its last one if it is still there."""
        while rest:
            cell = rest.popleft()
            if self._store.claim(cell):
                self._send(_Flight(cell, rest), near)
                return

    def _send(self, flight: _Flight, near: str | None) -> None:
        future = self._client.submit(
            run_on_worker,
            flight.cell,
            self._data_dir,
            pure=False,  # handed in again it must be run again, not found to have failed
            priority=0 if near is None else 1,  # before the groups that have not begun
            workers=None if near is None else [near],
            allow_other_workers=near is not None,
        )
        self.flying[future] = flight
        future.add_done_callback(self._ended.put)

    def collect(self, timeout: float) -> None:
        """Write what has ended; wait for it at most so many seconds."""
        with contextlib.suppress(queue.Empty):
            self._take(self._ended.get(timeout=timeout))
            while True:
                self._take(self._ended.get_nowait())
        self._look_for_workers()

    def _take(self, future: Future) -> None:
        flight = self.flying[future]
        near = None
        try:
            if future.status == "finished":
                try:
                    values, near = future.result(timeout=_RESULT_SECONDS)
                except TimeoutError:  # its worker has died meanwhile: it is being run again
                    future.add_done_callback(self._ended.put)
                    return
                self._store.write(flight.cell, values)
            elif future.status == "error":
                if not self._explain(flight, future.exception(timeout=_RESULT_SECONDS)):
                    del self.flying[future]
                    self._send(dataclasses.replace(flight, given_up=flight.given_up + 1), None)
                    return
            else:
                raise _lost(self._scheduler)
        except _GONE as error:
            raise _lost(self._scheduler) from error
        del self.flying[future]
        self.go_on(flight.rest, near)

    def _explain(self, flight: _Flight, error: BaseException | None) -> bool:
        """Note why a cell failed; False if it is worth another try."""
        from distributed import KilledWorker

        cell = flight.cell
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, KilledWorker):
            if flight.given_up < RESUBMISSIONS:
                return False
            reason = "it was lost with every worker that took it (out of memory?)."
        self._store.release(cell)
        self.failed.append(f"{cell.method} on {cell.dataset}, split {cell.split}: {reason}")
        return True

    def _look_for_workers(self) -> None:
        now = time.monotonic()
        if now - self._last_look < 2.0:
            return
        self._last_look = now
        try:
            present = self._client.nthreads()
        except _GONE as error:
            raise _lost(self._scheduler) from error
        if present:
            self._last_worker = now
        elif now - self._last_worker > WORKER_SECONDS:
            raise ClusterError(_no_workers(self._scheduler))

    def give_up(self) -> None:
        """Take back what has not ended; a worker finishes the cell it is at, for nothing."""
        flying = dict(self.flying)
        self.flying.clear()
        for flight in flying.values():
            self._store.release(flight.cell)
        if flying and self._client.status == "running":
            with contextlib.suppress(*_GONE):
                self._client.cancel(list(flying), force=True)
