"""Running a plan: on one process or several, into one store, with progress, interruptible."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence

from varprop.bench.cells import expected_cost, run_cell
from varprop.bench.store import Cell, Store, StoreError


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
    data_dir: str | None = None,
    on_progress: Callable[[float, float, int], None] = lambda done, left, count: None,
) -> Summary:
    """Run the cells that have no result yet.

    Parameters
    ----------
    cells
        What to run.
    store
        Where results go, each as soon as it is there.
    jobs
        Processes.
    data_dir
        Where data lies.
    on_progress
        Called about twice a second with the share done (0 to 1), the estimated seconds left (NaN
        at first) and the number of cells finished.
    """
    begin = time.monotonic()
    todo = store.missing(cells)
    work = groups(todo)
    jobs = max(1, min(jobs, len(work)))
    failed: list[str] = []
    interrupted = False
    watch = Watch(todo, store.path, on_progress, begin)
    if work:
        context = multiprocessing.get_context("spawn")  # JAX must not be forked
        pool = concurrent.futures.ProcessPoolExecutor(
            jobs, mp_context=context, initializer=_start_worker, initargs=(jobs,)
        )
        try:
            running = {
                pool.submit(_run_group, part, str(store.path), data_dir): part for part in work
            }
            while running:
                ended, _ = concurrent.futures.wait(
                    running, timeout=0.5, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in ended:
                    del running[future]
                    failed += future.result()
                watch.report()
        except KeyboardInterrupt:
            interrupted = True
            _kill(pool)
        except concurrent.futures.process.BrokenProcessPool:
            failed.append(
                "a worker process died (out of memory?): run the same command again to go on."
            )
            _kill(pool)
        except BaseException:
            _kill(pool)
            raise
        else:
            pool.shutdown()
    left = store.missing(todo)
    done = len(todo) - len(left)
    elsewhere = 0 if interrupted else max(0, len(left) - len(failed))
    return Summary(
        done, len(cells) - len(todo), elsewhere, failed, interrupted, time.monotonic() - begin
    )


class Watch:
    """Reads from the store how far the run is: results arrive there whoever wrote them."""

    def __init__(
        self,
        cells: Sequence[Cell],
        path: os.PathLike[str],
        on_progress: Callable[[float, float, int], None],
        begin: float,
    ):
        self._cost = {cell: expected_cost(cell) for cell in cells}
        self._total = sum(self._cost.values()) or 1.0
        self._left = list(cells)
        self._store = Store(path)
        self._on_progress, self._begin = on_progress, begin

    def report(self) -> None:
        """Tell how far the run is."""
        self._left = self._store.missing(self._left)
        left = sum(self._cost[cell] for cell in self._left)
        done = self._total - left
        elapsed = time.monotonic() - self._begin
        estimate = elapsed * left / done if done > 0 else float("nan")
        self._on_progress(done / self._total, estimate, len(self._cost) - len(self._left))


def _kill(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    """End the workers at once: what they were at is not in the store, and nothing else is lost."""
    for process in list((pool._processes or {}).values()):
        process.kill()
    pool.shutdown(wait=True, cancel_futures=True)


def _start_worker(jobs: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from varprop.compilation import enable_compilation_cache, use_one_thread

    enable_compilation_cache()
    if jobs > 1:
        from threadpoolctl import threadpool_limits

        use_one_thread()
        threadpool_limits(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _run_group(cells: list[Cell], path: str, data_dir: str | None) -> list[str]:
    """Run cells one after the other; return sentences about those that failed."""
    store = Store(path)
    failed = []
    try:
        for cell in cells:
            if not store.claim(cell):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of other libraries, about their own ways
                    values = run_cell(cell, data_dir)
            except Exception as error:
                store.release(cell)
                where = f"{cell.method} on {cell.dataset}, split {cell.split}"
                failed.append(f"{where}: {type(error).__name__}: {error}")
                continue
            store.write(cell, values)
    except StoreError as error:
        failed.append(str(error))
    finally:
        store.close()
    return failed
