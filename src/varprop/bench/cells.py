"""Which cells a benchmark consists of, and how one cell is run."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from varprop import __version__
from varprop.bench.methods import method
from varprop.bench.protocol import PROTOCOLS, scores
from varprop.bench.registry import known, split_rows, task
from varprop.bench.sources import DataNotPresent, load
from varprop.bench.store import Cell, canonical


@dataclasses.dataclass(frozen=True)
class Plan:
    """Cells to run, and what was left out and why.

    Attributes
    ----------
    cells
        In the order of data sets, methods, protocols and splits.
    skipped
        Sentences.
    absent
        Data sets that are not on this machine.
    """

    cells: list[Cell]
    skipped: list[str]
    absent: list[str]


def plan(
    datasets: Iterable[str],
    methods: Iterable[str],
    *,
    protocols: Sequence[str] = ("paper", "ours"),
    n_splits: int = 10,
    seed: int = 0,
    data_dir: str | None = None,
) -> Plan:
    """Lay out a benchmark: every method on every data set and split, where that makes sense.

    Parameters
    ----------
    datasets, methods
        Names; `UnknownName` says which is nearest to a wrong one.
    protocols
        For methods that are trained by our engine; the others have one of their own.
    n_splits
        At most so many (a set may have fewer).
    seed
        Of all cells.
    data_dir
        Where data lies; as in `varprop.bench.sources.load`.

    Examples
    --------
    >>> [cell.split for cell in plan(["boston"], ["gp"], n_splits=2).cells]
    [0, 1]
    """
    wanted = [method(name) for name in methods]
    for name in protocols:
        known(name, PROTOCOLS, "protocol")
    cells, skipped, absent = [], [], []
    for name in datasets:
        chosen = task(name)
        try:
            load(chosen.dataset, folder=data_dir)
        except DataNotPresent as reason:
            absent.append(chosen.name)
            skipped.append(str(reason))
            continue
        for m in wanted:
            refusal = m.refuses(chosen)
            if refusal:
                skipped.append(f"{m.title} is not run on {chosen.name}: {refusal}.")
                continue
            for protocol in m.protocols:
                if protocol != "own" and protocol not in protocols:
                    continue
                settings = canonical(m.settings(protocol))
                for split in range(min(n_splits, chosen.n_splits)):
                    cells.append(
                        Cell(chosen.name, m.name, protocol, split, seed, settings, __version__)
                    )
    return Plan(cells, skipped, absent)


def expected_cost(cell: Cell) -> float:
    """Return a rough number of seconds, to order work and to estimate the time left."""
    m, n = method(cell.method), task(cell.dataset).dataset.n
    # The engine trains for a number of steps; what passes over the rows a number of times grows.
    growth = 1.0 if cell.protocol != "own" else max(0.3, n / 1000) ** (2 if m.name == "gp" else 1)
    return m.cost * growth


def run_cell(cell: Cell, data_dir: str | None = None) -> dict[str, Any]:
    """Train a method on a split's training rows and score it on its test rows.

    Returns
    -------
    dict
        What `Store.write` takes besides the cell.
    """
    x, y, source = _numbers(cell.dataset, data_dir)
    train, test = split_rows(task(cell.dataset).dataset, cell.split)
    scale = y[train].std(axis=0)
    if y.shape[1] == 1:
        y = y[:, 0]
    # Same split and seed: same starts for every method, so that they differ by the method alone.
    seed = zlib.crc32(f"{cell.dataset}/{cell.split}/{cell.seed}".encode()) % 2**31
    begin = time.monotonic()
    model = method(cell.method).model(json.loads(cell.settings), seed).fit(x[train], y[train])
    prediction = model.predict_dist(x[test])
    seconds = time.monotonic() - begin
    return {
        **scores(y[test], prediction, scale),
        "outcome": model.outcome_,
        "epochs": getattr(model, "n_iter_", None),
        "steps": getattr(model, "n_steps_", None),
        "loss": getattr(model, "loss_", None),
        "seconds": seconds,
        "n_train": len(train),
        "n_test": len(test),
        "source": source,
    }


@functools.lru_cache(maxsize=4)
def _numbers(name: str, data_dir: str | None) -> tuple[np.ndarray, np.ndarray, str]:
    data = task(name)
    numbers = load(data.dataset, folder=data_dir)
    columns = [data.dataset.d + data.dataset.targets.index(target) for target in data.targets]
    source = "package" if numbers.source.startswith("the package") else "file"
    return numbers.values[:, : data.dataset.d], numbers.values[:, columns], source
