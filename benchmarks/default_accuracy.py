"""What the defaults score on rows set aside from *training* rows of the nine benchmark sets.

    VARPROP_DATA=folder .venv/bin/python benchmarks/default_accuracy.py --splits 3

"before" is one network that nothing checks (`validation=None`), as the default was; "network" is
`FAWNRegressor()`, "stack" is `StackedRegressor()`. Test rows are never looked at; those set aside
may be test rows of another split.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
import warnings

import numpy as np
from recipe_study import load

import varprop
from varprop import FAWNRegressor, StackedRegressor, metrics

MODELS = {
    "before": lambda seed: FAWNRegressor(validation=None, random_state=seed, n_jobs=-1),
    "network": lambda seed: FAWNRegressor(random_state=seed, n_jobs=-1),
    "stack": lambda seed: StackedRegressor(random_state=seed, n_jobs=-1),
}
SETS = [
    "yacht",
    "boston",
    "energy",
    "concrete",
    "wine_red",
    "kin8nm",
    "power_plant",
    "naval",
    "protein",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    print(f"varprop {varprop.__version__}; {options.splits} splits, seed = split\n")
    print("| data | model | NLL | s.e. of the difference to before | RMSE | CRPS | coverage | s |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    warnings.simplefilter("ignore")  # what did not converge is not the question here
    for name in options.sets:
        x, y, train = load(pathlib.Path(folder), name)
        first = None
        for label, make in MODELS.items():
            found, begin = [], time.monotonic()
            for split in range(options.splits):
                rows = np.random.default_rng(split).permutation(train[split])
                held, rows = np.split(rows, [max(len(rows) // 10, 30)])
                model = make(split).fit(x[rows], y[rows, 0])
                dist = model.predict_dist(x[held])
                scores = (metrics.nll, metrics.rmse, metrics.crps, metrics.interval_coverage)
                found.append([score(y[held, 0], dist) for score in scores])
            seconds = time.monotonic() - begin
            nll, rmse, crps, coverage = np.mean(found, axis=0)
            first = found if first is None else first
            apart = np.array(found)[:, 0] - np.array(first)[:, 0]
            error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else np.nan
            print(
                f"| {name} | {label} | {nll:.3f} | {error:.3f} | {rmse:.4g} | {crps:.4g} "
                f"| {coverage:.0%} | {seconds / options.splits:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
