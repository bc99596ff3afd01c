"""What a worker, be it a process of this machine or Dask's, is asked to do: run one cell."""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any

from varprop import __version__
from varprop.bench.cells import run_cell
from varprop.bench.store import Cell

#: A cell's values, or a sentence why there are none; and where it was run.
Answer = tuple[dict[str, Any] | str, Any]

# A worker may have several threads, but timings, warnings and thread limits are the process's.
_ONE_AT_A_TIME = threading.Lock()


def run_here(cell: Cell, data_dir: str | None, where: Any) -> Answer:
    """Run a cell in this process."""
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other libraries, about their own ways
        try:
            return run_cell(cell, data_dir), where
        except Exception as error:
            return f"{type(error).__name__}: {error}", where


def run_on_dask(cell: Cell, data_dir: str | None) -> Answer:
    """Run a cell on a worker of Dask's, which may have joined after all others were inspected."""
    from distributed import get_worker

    where = get_worker().address
    if cell.version != __version__:
        return (
            f"a worker that joined later has varprop {__version__}, but {cell.version} is asked "
            "for: install the same version on all workers.",
            where,
        )
    prepare(one_thread=True)
    return run_here(cell, data_dir, where)


@functools.cache
def prepare(*, one_thread: bool) -> None:
    """Set up a worker process, once."""
    from varprop.compilation import enable_compilation_cache, use_one_thread

    enable_compilation_cache()
    if one_thread:
        from threadpoolctl import threadpool_limits

        use_one_thread()
        threadpool_limits(1)
