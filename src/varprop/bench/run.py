"""Running a plan on this machine or on a cluster: into one store, with progress, interruptible.

Workers run cells, this process alone writes the store. The cells of a group, which share a compiled
program, follow one another on the worker that has compiled it.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from varprop.bench.cells import expected_cost
from varprop.bench.store import Cell, Store
from varprop.bench.worker import Answer, prepare, run_here
from varprop.errors import InputError

#: A cell that was lost with its worker is handed in again so many times: one that needs more memory
#: than there is must end some time.
RESUBMISSIONS = 3


class RunError(InputError):
    """The workers cannot be used, or are lost; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Summary:
    """What came of a run.

    Attributes
    ----------
    done, already
        Cells run now, and cells whose result was there.
    elsewhere
        Cells another process was at.
    failed
        Sentences about cells that ended with an error; they have no result and are tried again
        next time.
    interrupted
        Whether Ctrl-C ended it.
    seconds
        Wall-clock time.
    """

    done: int
    already: int
    elsewhere: int
    failed: list[str]
    interrupted: bool
    seconds: float


def groups(cells: Sequence[Cell], *, size: int = 5) -> list[list[Cell]]:
    """Group cells that share a compiled program; the most expensive groups first.

    Groups are small, so that the last ones keep all processes busy. One group of every program
    comes before the second of any: two processes would compile the same at the same time, where the
    later one finds it in the cache.
    """
    together = itertools.groupby(cells, key=lambda c: (c.dataset, c.method, c.protocol))
    parts = []
    for _, group in together:
        members = list(group)
        parts += [(i, members[i : i + size]) for i in range(0, len(members), size)]
    parts.sort(key=lambda part: (part[0], -sum(map(expected_cost, part[1]))))
    return [part for _, part in parts]


def run(
    cells: Sequence[Cell],
    store: Store,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    data_dir: str | None = None,
    on_progress: Callable[[float, float, int], None] = lambda done, left, count: None,
    on_notice: Callable[[str], None] = lambda sentence: None,
) -> Summary:
    """Run the cells that have no result yet.

    Parameters
    ----------
    cells
        What to run.
    store
        Where results go, each as soon as it is there; only this process opens it.
    jobs
        Processes of this machine.
    scheduler
        The address of a running Dask scheduler, such as ``tcp://host:8786``, whose workers run the
        cells instead.
    data_dir
        Where data lies, on the workers; as in `varprop.bench.sources.load`.
    on_progress
        Called about twice a second with the share done (0 to 1), the estimated seconds left (NaN
        at first) and the number of cells finished.
    on_notice
        Called with sentences about what is not wrong but could be better.

    Raises
    ------
    RunError
        If a worker process died; if nobody answers at the scheduler's address, there are no
        workers, they have other versions or no data, or the scheduler is lost. Finished cells are
        kept.

    Examples
    --------
    >>> from varprop.bench.cells import plan
    >>> cells = plan(["boston"], ["gp"]).cells
    >>> run(cells, Store("r.sqlite"), scheduler="tcp://host:8786")  # doctest: +SKIP
    """
    begin = time.monotonic()
    todo = store.missing(cells)
    total = sum(map(expected_cost, todo))
    folder = None if data_dir is None else os.path.abspath(data_dir)
    failed: list[str] = []
    interrupted = False
    if todo:
        if scheduler is None:
            hired = _processes(max(1, min(jobs, len(groups(todo)))), folder)
        else:
            from varprop.bench.cluster import connected

            hired = connected(scheduler, todo, folder, on_notice)
        with hired as workers:
            work = _Work(groups(todo, size=workers.group_size), workers, store)
            try:
                while work.go_on(seconds=0.5):
                    # From the store, where results arrive whoever wrote them.
                    left = store.missing(todo)
                    share = 1 - sum(map(expected_cost, left)) / total
                    seconds = (time.monotonic() - begin) * (1 - share) / (share or math.nan)
                    on_progress(share, seconds, len(todo) - len(left))
            except KeyboardInterrupt:
                interrupted = True
            finally:
                work.give_up()
            failed = work.failed
    left = store.missing(todo)
    return Summary(
        done=len(todo) - len(left),
        already=len(cells) - len(todo),
        elsewhere=0 if interrupted else max(0, len(left) - len(failed)),
        failed=failed,
        interrupted=interrupted,
        seconds=time.monotonic() - begin,
    )


@dataclasses.dataclass(frozen=True)
class Workers:
    """Those who run cells: processes of this machine, or a cluster's.

    Attributes
    ----------
    submit
        Start a cell at a place, or near it.
    places
        Where the first groups go; the others follow where one has ended.
    group_size
        Cells that follow one another at most.
    died
        What a cell's future raises when it was lost with its worker, and may be run by another.
    look
        Called from time to time; raises `RunError` if there is nobody left to work.
    """

    submit: Callable[[Cell, Any], Future[Answer]]
    places: list[Any]
    group_size: int = 5
    died: tuple[type[Exception], ...] = ()
    look: Callable[[], None] = lambda: None


@contextlib.contextmanager
def _processes(jobs: int, data_dir: str | None) -> Iterator[Workers]:
    """Start processes, each a pool of its own, so that groups can stay where they are."""
    context = multiprocessing.get_context("spawn")  # JAX must not be forked
    options: dict[str, Any] = {"initializer": _start_process, "initargs": (jobs > 1,)}
    pools = [ProcessPoolExecutor(1, mp_context=context, **options) for _ in range(jobs)]
    try:
        yield Workers(
            submit=lambda cell, place: pools[place].submit(run_here, cell, data_dir, place),
            places=list(range(jobs)),
        )
    except BrokenProcessPool as error:
        raise RunError(
            "a worker process died (out of memory?): run the same command again to go on."
        ) from error
    finally:
        # At once: what they were at is not in the store, and nothing else is lost.
        for pool in pools:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=True, cancel_futures=True)


def _start_process(one_thread: bool) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare(one_thread=one_thread)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@dataclasses.dataclass
class _Flight:
    """A cell on its way, the rest of its group, and how often it was lost with its worker."""

    cell: Cell
    rest: collections.deque[Cell]
    lost: int = 0


class _Work:
    """The cells that are with workers or waiting for them, and what became of them."""

    def __init__(self, parts: Sequence[list[Cell]], workers: Workers, store: Store):
        self._workers, self._store = workers, store
        self._waiting = collections.deque(map(collections.deque, parts))
        self._idle = list(workers.places)
        self._flying: dict[Future[Answer], _Flight] = {}
        self.failed: list[str] = []

    def go_on(self, seconds: float) -> bool:
        """Send what can be sent, write what has ended in so many seconds; False at the end."""
        while self._idle and self._waiting:
            self._next(self._waiting.popleft(), self._idle.pop())
        ended, _ = wait(self._flying, seconds, return_when=FIRST_COMPLETED)
        for future in ended:
            self._take(future)
        self._workers.look()
        return bool(self._flying or self._waiting)

    def _next(self, rest: collections.deque[Cell], place: Any) -> None:
        """Send a group's next cell to the place that ran its last one."""
        while rest:
            cell = rest.popleft()
            if self._store.claim(cell):
                self._send(_Flight(cell, rest), place)
                return
        self._idle.append(place)

    def _send(self, flight: _Flight, place: Any) -> None:
        self._flying[self._workers.submit(flight.cell, place)] = flight

    def _take(self, future: Future[Answer]) -> None:
        flight = self._flying[future]
        cell, place = flight.cell, None
        answer: dict[str, Any] | str
        try:
            answer, place = future.result()
        except self._workers.died:
            if flight.lost < RESUBMISSIONS:
                del self._flying[future]
                self._send(dataclasses.replace(flight, lost=flight.lost + 1), None)
                return
            answer = "it was lost with every worker that took it (out of memory?)."
        if isinstance(answer, str):
            self._store.release(cell)
            self.failed.append(f"{cell.method} on {cell.dataset}, split {cell.split}: {answer}")
        else:
            self._store.write(cell, answer)
        del self._flying[future]
        self._next(flight.rest, place)

    def give_up(self) -> None:
        """Take back what has not ended."""
        for flight in self._flying.values():
            self._store.release(flight.cell)
