"""How the default recipe was chosen: final training losses of several recipes on several data sets.

    VARPROP_DATA=folder .venv/bin/python benchmarks/recipe_study.py > study.md

Of each published training split one tenth of the *training* rows is set aside as a check; the test
rows are never looked at. The first number is the final training objective per row (what restarts
are chosen by), the second the negative log-likelihood of the set-aside rows, both in standardized
units.
Needs pyarrow and a folder with `datasets.json`, Parquet files and `splits/`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import sys
import time

import jax
import numpy as np
import pyarrow.parquet

import varprop
from varprop import nn

PAPER = varprop.Recipe.paper()
BASE = varprop.Recipe(kl_warmup=10_000, cooldown=5_000, max_steps=40_000)
# name: (recipe, initial standard deviation of the weights)
RECIPES = {
    "paper": (PAPER, 0.05),
    "3e-3, 0.05": (BASE.replace(learning_rate=3e-3), 0.05),
    "5e-3, 0.05": (BASE.replace(learning_rate=5e-3), 0.05),
    "1e-2, 0.05": (BASE.replace(learning_rate=1e-2), 0.05),
    "5e-3, 0.2": (BASE.replace(learning_rate=5e-3), 0.2),
    "1e-2, 0.2": (BASE.replace(learning_rate=1e-2), 0.2),
    "5e-3, 0.05, no warm-up": (BASE.replace(learning_rate=5e-3, kl_warmup=0), 0.05),
}
SETS = ("boston", "concrete", "energy", "yacht", "wine_red", "kin8nm", "power_plant")


def load(folder: pathlib.Path, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs, the first target, and the published training rows of every split."""
    entry = json.loads((folder / "datasets.json").read_text())["datasets"][name]
    table = pyarrow.parquet.read_table(folder / entry["file"])
    x = np.column_stack([table[column].to_numpy() for column in entry["feature_columns"]])
    y = table[entry["target_columns"][0]].to_numpy()[:, None]
    return x, y, np.load(folder / "splits" / f"{name}.npz")["train"]


def check_nll(result: varprop.Fit, x: np.ndarray, y: np.ndarray) -> float:
    """Negative log-likelihood in standardized units."""
    return varprop.metrics.nll(y, result.predictive(x)) - float(
        np.log(result.scaling.y_scale).sum()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--lanes", type=int, default=2, help="splits per set")
    options = parser.parse_args()
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    print(f"varprop {varprop.__version__}, jax {jax.__version__}; {options.lanes} splits each\n")
    print("| data, objective | " + " | ".join(RECIPES) + " |")
    print("|---|" + "---|" * len(RECIPES), flush=True)
    for name in options.sets.split(","):
        x, y, train = load(pathlib.Path(folder), name)
        data = varprop.Data(x, y)
        for objective in (varprop.ROPD(), varprop.VI()):
            cells = []
            for recipe, std in RECIPES.values():
                weights = functools.partial(nn.GaussianWeights.init, std=std)
                lanes, kept = [], []
                for split in range(options.lanes):
                    rows = np.random.default_rng(split).permutation(train[split])
                    kept.append(rows[: len(rows) // 10])
                    model = varprop.regression_model(
                        x.shape[1], 1, key=jax.random.key(split), weights=weights
                    )
                    lanes.append(
                        varprop.Lane(
                            model=model,
                            key=jax.random.key(100 + split),
                            rows=rows[len(rows) // 10 :],
                            recipe=recipe,
                        )
                    )
                begin = time.monotonic()
                fits = varprop.fit_many(lanes, data, objective)
                seconds = time.monotonic() - begin
                loss = np.mean([fit.loss for fit in fits])
                nll = np.mean([check_nll(f, x[k], y[k]) for f, k in zip(fits, kept, strict=True)])
                cells.append(f"{loss:.3f} / {nll:.3f}")
                steps = np.mean([fit.n_steps for fit in fits])
                print(f"{seconds:.0f} s, {steps:.0f} steps", file=sys.stderr, flush=True)
            kind = type(objective).__name__
            print(f"| {name}, {kind} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
