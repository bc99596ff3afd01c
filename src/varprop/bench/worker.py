"""What a Dask worker is asked to do: look whether it can take part, and run one cell."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Sequence
from typing import Any

from varprop import __version__
from varprop.bench.cells import run_cell
from varprop.bench.registry import task
from varprop.bench.sources import DataCorrupt, DataNotPresent, load
from varprop.bench.store import Cell

# A worker may have several threads, but timings, warnings and thread limits are the process's.
_ONE_AT_A_TIME = threading.Lock()


def lacks(names: Sequence[str], data_dir: str | None) -> str | None:
    """Return a sentence about the first of these data sets that is not here, or None.

    Examples
    --------
    >>> lacks(["boston"], None) is None
    True
    """
    for name in names:
        try:
            load(task(name).dataset, folder=data_dir)
        except (DataNotPresent, DataCorrupt) as reason:
            return str(reason)
    return None


def run_on_worker(cell: Cell, data_dir: str | None) -> tuple[dict[str, Any], str]:
    """Run a cell as a local run does; return its values and the address of the worker.

    A worker may have joined after all others were inspected, hence the look at its version.
    """
    from distributed import get_worker

    if cell.version != __version__:
        raise RuntimeError(
            f"a worker that joined later has varprop {__version__}, but {cell.version} is asked "
            "for: install the same version on all workers."
        )
    with _ONE_AT_A_TIME, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other libraries, about their own ways
        _prepare()
        return run_cell(cell, data_dir), get_worker().address


@functools.cache
def _prepare() -> None:
    """Set up a worker process once, as local processes are."""
    from threadpoolctl import threadpool_limits

    from varprop.compilation import enable_compilation_cache, use_one_thread

    enable_compilation_cache()
    use_one_thread()
    threadpool_limits(1)
