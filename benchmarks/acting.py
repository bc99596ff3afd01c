"""What the experiments on decisions share: a store that resumes, models, tables and candidates.

Every cell (a problem, a method, a seed) is run by itself and written down when it ends, so that a
run that is interrupted, or that has used up its `--minutes`, is resumed by the same command. All
methods of a problem and a seed see the same start, the same rows or candidates and the same noise.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from recipe_study import load

import varprop
from varprop import FAWNRegressor
from varprop.baselines.gp import GaussianProcess
from varprop.baselines.networks import DeepEnsemble
from varprop.decisions import without_noise
from varprop.predictive import Predictive
from varprop.training import Recipe, StopRule

Cell = tuple[str, str, int]

# Settings were chosen on functions that no experiment reports: sums of sines and products of five
# inputs (12 to 120 rows; RMSE, NLL and how doubt goes with error), and two bowls to minimize.
RECIPE = Recipe(kl_warmup=1_000, cooldown=1_000, max_steps=3_000, stop=StopRule(tol=0.0))


SETTINGS: dict[str, dict[str, Any]] = {
    # The covariance of all weights together, given the rows, by Gauss and Newton.
    "fawn": {
        "objective": "vi",
        "kl_weight": 0.1,
        "row_covariance": "gauss-newton",
    },
    # As a stack's network is trained: weights independent of one another.
    "vi": {"objective": "vi", "prior": "ard"},
    "ropd": {"objective": "ropd", "prior": "ard"},
}


def fawn(seed: int, **options: Any) -> FAWNRegressor:
    """Our network; every fit has the same number of steps."""
    options = {"recipe": RECIPE, "validation": None, "random_state": seed, "n_jobs": 1} | options
    return FAWNRegressor(**options)


def gaussian_process(seed: int) -> GaussianProcess:
    """From the usual start of its hyperparameters, for each fit anew."""
    return GaussianProcess(n_restarts=0, random_state=seed)


def ensemble(seed: int, n_rows: int) -> DeepEnsemble:
    """Five networks, a thousand steps each."""
    epochs = max(1, 1_000 // -(-n_rows // 100))
    return DeepEnsemble(n_epochs=epochs, learning_rate=0.01, random_state=seed)


def fitted(kind: str, seed: int, X: np.ndarray, y: np.ndarray) -> Any:
    """Return a model of one of the `SETTINGS`, "gp" or "ensemble", fitted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few rows and steps are meant
        if kind == "gp":
            return gaussian_process(seed).fit(X, y)
        if kind == "ensemble":
            return ensemble(seed, len(X)).fit(X, y)
        return fawn(seed, **SETTINGS[kind]).fit(X, y)


def doubt(kind: str, dist: Predictive) -> Predictive:
    """Return what a model is unsure of, as one Gaussian for every row of other kinds than ours."""
    dist = dist.marginal(0) if not dist.squeeze else dist
    if kind in ("fawn", "vi"):
        return without_noise(dist)
    if kind == "ropd":  # does not tell it from noise: all of the spread
        return Predictive.gaussian(dist.mean.ravel(), dist.var.ravel(), 0.0)
    return Predictive.gaussian(dist.mean.ravel(), dist.model_var.ravel(), 0.0)


def folder() -> pathlib.Path:
    """Return the folder with the data sets."""
    if not (found := os.environ.get("VARPROP_DATA")):
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    return pathlib.Path(found)


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return inputs and (first) target of one of the nine sets, or of `extra/`."""
    path = folder() / "extra" / f"{name}.parquet"
    if not path.exists():
        X, y, _ = load(folder(), name)
        return np.asarray(X, float), np.asarray(y, float).reshape(len(X), -1)[:, 0]
    about = json.loads((path.parent / "extra.json").read_text())[name]
    found = pq.read_table(path)
    # The sign of the target, and where a row stands in the file.
    left_out = (about["target"], "stabf", "instant", "dteday")
    inputs = [c for c in found.column_names if c not in left_out]
    X = np.stack([found[c].to_numpy().astype(float) for c in inputs], axis=1)
    return X, found[about["target"]].to_numpy().astype(float)


def options(doc: str, *, problems: Sequence[str], methods: Sequence[str], seeds: int) -> Any:
    """Return a parser with what all three experiments take."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--problems", nargs="*", default=list(problems), choices=problems)
    parser.add_argument("--methods", nargs="*", default=list(methods), choices=methods)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--minutes", type=float, default=38.0, help="then stop; run again to go on")
    parser.add_argument("--store", type=pathlib.Path, required=True, help="a .jsonl file")
    return parser


def run(given: Any, compute: Callable[[str, str, int, dict[str, Any]], Any], more: dict[str, Any]):
    """Compute all cells that the store lacks, on several processes, and return all there are.

    `more` are further settings; cells are known by them and by the library's version too.
    """
    mark = json.dumps({"version": varprop.__version__, **more}, sort_keys=True)
    done: dict[Cell, Any] = {}
    if given.store.exists():
        for line in given.store.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # the end of a run that was killed
                continue
            if record["settings"] == mark:
                done[tuple(record["cell"])] = record["found"]
    cells = [
        (problem, method, seed)
        for seed in range(given.seeds)  # so that a part has all methods
        for problem in given.problems
        for method in given.methods
    ]
    todo = [cell for cell in cells if cell not in done]
    start = time.monotonic()

    def minutes() -> float:
        return (time.monotonic() - start) / 60

    def keep(cell: Cell, value: Any) -> None:
        done[cell] = value
        with given.store.open("a") as file:
            file.write(json.dumps({"cell": cell, "settings": mark, "found": value}) + "\n")
        left = sum(one not in done for one in cells)
        print(f"{' '.join(map(str, cell))}: {left} left, {minutes():.1f} min", file=sys.stderr)

    if given.workers == 1:
        for cell in todo:
            if minutes() > given.minutes:
                break
            keep(cell, compute(*cell, more))
    else:
        _on_processes(given, todo, keep, lambda cell: (compute, *cell, more), minutes)
    if left := [cell for cell in cells if cell not in done]:
        print(f"{len(left)} of {len(cells)} cells are missing: run the same command again.\n")
    return {cell: done[cell] for cell in cells if cell in done}


def _on_processes(given: Any, todo: list[Cell], keep: Any, call: Any, minutes: Any) -> None:
    """Run cells on several processes until all are done or the time is up."""
    context = multiprocessing.get_context("spawn")  # no fork after JAX has started
    with concurrent.futures.ProcessPoolExecutor(given.workers, mp_context=context) as pool:
        waiting, running = iter(todo), dict[Any, Cell]()
        while True:
            while len(running) < given.workers and minutes() < given.minutes:
                if (cell := next(waiting, None)) is None:
                    break
                running[pool.submit(*call(cell))] = cell
            if not running:
                return
            ready, _ = concurrent.futures.wait(running, return_when="FIRST_COMPLETED")
            for future in ready:
                keep(running.pop(future), future.result())


def complete(found: dict[Cell, Any], problem: str, methods: Sequence[str]) -> list[int]:
    """Return the seeds that all methods have done."""
    seeds = [{s for p, m, s in found if (p, m) == (problem, method)} for method in methods]
    return sorted(set.intersection(*seeds))


def candidates(rng: np.random.Generator, best: np.ndarray, n: int) -> np.ndarray:
    """Return points of the unit cube: half of them anywhere, half around the best so far."""
    anywhere = rng.uniform(size=(n // 2, len(best)))
    reach = rng.choice([0.2, 0.05, 0.0125], size=(n - n // 2, 1))
    moved = rng.uniform(size=(n - n // 2, len(best))) < max(1 / len(best), 0.2)
    near = best + reach * moved * rng.standard_normal((n - n // 2, len(best)))
    return np.concatenate([anywhere, np.clip(near, 0, 1)])
