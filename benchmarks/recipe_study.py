"""How the default recipe was chosen: final training losses of several recipes on several data sets.

    VARPROP_DATA=folder .venv/bin/python benchmarks/recipe_study.py > study.md
    VARPROP_DATA=folder .venv/bin/python benchmarks/recipe_study.py --shorter --lanes 10

With `--shorter` it compares the default with recipes of higher rates and fewer steps.

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
FEW = varprop.Recipe(learning_rate=3e-2, kl_warmup=6_000, cooldown=3_000, max_steps=8_000)
FLAT = varprop.StopRule(window=250, patience=2)
SHORTER = {
    "default": varprop.Recipe(),
    "24,000 steps": varprop.Recipe(
        kl_warmup=6_000,
        cooldown=5_000,
        max_steps=24_000,
        stop=varprop.StopRule(window=500, patience=6),
    ),
    "3e-2, 8,000 steps": FEW,
    "3e-2, until flat": FEW.replace(cooldown=2_000, max_steps=24_000, stop=FLAT),
}
SMALL = ("boston", "concrete", "energy", "yacht")
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


def trained(
    data: varprop.Data,
    train: np.ndarray,
    objective: object,
    recipe: varprop.Recipe,
    std: float,
    n_lanes: int,
) -> tuple[list[varprop.Fit], list[float]]:
    """Fits of so many splits, and what they say of the rows set aside."""
    x, y, lanes, kept = data.x, data.y, [], []
    for split in range(n_lanes):
        rows = np.random.default_rng(split).permutation(train[split])
        kept.append(rows[: len(rows) // 10])
        model = varprop.regression_model(
            x.shape[1],
            1,
            key=jax.random.key(split),
            weights=functools.partial(nn.GaussianWeights.init, std=std),
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
    steps = np.mean([fit.n_steps for fit in fits])
    print(f"{time.monotonic() - begin:.0f} s, {steps:.0f} steps", file=sys.stderr, flush=True)
    return fits, [check_nll(fit, x[k], y[k]) for fit, k in zip(fits, kept, strict=True)]


def shorter(folder: pathlib.Path, sets: list[str], n_lanes: int) -> None:
    """Print what recipes of fewer steps do, beside the default."""
    print("| data, objective | recipe | steps | loss | NLL | less default's | s.e. | converged |")
    print("|---|" + "---|" * 7, flush=True)
    for name in sets:
        x, y, train = load(folder, name)
        data = varprop.Data(x, y)
        for objective in (varprop.ROPD(), varprop.VI()):
            first = None
            for label, recipe in SHORTER.items():
                fits, found = trained(data, train, objective, recipe, 0.05, n_lanes)
                nll = np.array(found)
                first = nll if first is None else first
                apart = nll - first
                error = apart.std(ddof=1) / np.sqrt(n_lanes)
                converged = sum(fit.outcome.value == "converged" for fit in fits)
                print(
                    f"| {name}, {type(objective).__name__} | {label} "
                    f"| {np.mean([fit.n_steps for fit in fits]):,.0f} "
                    f"| {np.mean([fit.loss for fit in fits]):.3f} | {nll.mean():.3f} "
                    f"| {apart.mean():+.3f} | {error:.3f} | {converged} of {n_lanes} |",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets")
    parser.add_argument("--lanes", type=int, default=2, help="splits per set")
    parser.add_argument("--shorter", action="store_true", help="recipes of fewer steps")
    options = parser.parse_args()
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    sets = options.sets.split(",") if options.sets else SMALL if options.shorter else SETS
    print(f"varprop {varprop.__version__}, jax {jax.__version__}; {options.lanes} splits each\n")
    if options.shorter:
        shorter(pathlib.Path(folder), list(sets), options.lanes)
        return
    print("| data, objective | " + " | ".join(RECIPES) + " |")
    print("|---|" + "---|" * len(RECIPES), flush=True)
    for name in sets:
        x, y, train = load(pathlib.Path(folder), name)
        data = varprop.Data(x, y)
        for objective in (varprop.ROPD(), varprop.VI()):
            cells = []
            for recipe, std in RECIPES.values():
                fits, nll = trained(data, train, objective, recipe, std, options.lanes)
                cells.append(f"{np.mean([fit.loss for fit in fits]):.3f} / {np.mean(nll):.3f}")
            kind = type(objective).__name__
            print(f"| {name}, {kind} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
