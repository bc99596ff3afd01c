"""Depth, trained: is the stated spread right, and does depth pay? First order against independent.

    VARPROP_DATA=folder .venv/bin/python benchmarks/depth.py --nll                # nine sets
    VARPROP_DATA=folder .venv/bin/python benchmarks/depth.py --ratios --objectives ropd vi
    VARPROP_DATA=folder .venv/bin/python benchmarks/depth.py --scores --sets 218_house_8L \
        bike_sharing_hour grid_stability_simulated keggdirected --depths 1 2 3 4 5 --rows 5000

For each set, number of hidden layers (of 50 rectifiers) and propagation, one network is trained
(`FAWNRegressor(validation=None)`, seed = split) on the training rows of a published split (of the
tables in `extra/`, of `--rows` drawn rows) but a tenth, which is set aside; test rows are never
looked at. `--nll` prints the negative log-likelihood of the rows set aside, `--scores` that of
standardized targets with RMSE and coverage of the 90 % interval, `--ratios` stated over sampled
standard deviation of the function at 50 of them, by 10,000 drawn networks, the draws' kurtosis (a
Gaussian has 3) and the ratio of the spreads that hold half of the draws. `--steps` trains as many
with a plan of fixed length, as a stack does. Lines already in `--store` are not computed again,
and after `--minutes` no new one is begun.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
import warnings
from typing import Any

import acting
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from default_accuracy import SETS
from recipe_study import load

from varprop import FAWNRegressor, Recipe, metrics, nn
from varprop.estimators.members import to_jax
from varprop.nn.checking import sample_outputs


def rows_of(folder: pathlib.Path, name: str, options: argparse.Namespace) -> tuple:
    """Return inputs, targets (rows, 1) and the training rows of every split."""
    if name in SETS:
        return load(folder, name)
    x, y = acting.table(name)
    drawn = [
        np.random.default_rng([split, 23]).permutation(len(x))[: options.rows]
        for split in range(options.splits)
    ]
    return x, y[:, None], drawn


def plan(steps: int | None) -> Recipe:
    """Return a recipe of so many steps, the default for None."""
    if steps is None:
        return Recipe()
    return Recipe(kl_warmup=steps // 4, cooldown=steps // 4, max_steps=steps, stop=None)


def measure(
    x, y, train, *, split: int, depth: int, objective: str, propagation: str, given: Any
) -> dict:
    """Train one network, score it on rows set aside, and draw networks from it."""
    rows = np.random.default_rng(split).permutation(train[split])
    held, rows = np.split(rows, [max(len(rows) // 10, 30)])
    model = FAWNRegressor(
        (50,) * depth,
        objective=objective,
        propagation=propagation,
        validation=None,
        random_state=split,
        recipe=plan(given.steps),
        n_jobs=1 if given.steps else None,
    )
    begin = time.monotonic()
    model.fit(x[rows], y[rows, 0])
    seconds = time.monotonic() - begin
    dist, scale = model.predict_dist(x[held]), y[rows, 0].std()
    found = {
        "nll": metrics.nll(y[held, 0], dist),
        "rmse": metrics.rmse(y[held, 0], dist),
        "coverage": metrics.interval_coverage(y[held, 0], dist),
        "seconds": seconds,
        "outcome": model.outcome_,
        "scale": float(scale),
    }
    if depth > 1 and not given.scores:
        network = to_jax(model.members_[0]).network
        z = jnp.asarray(model.scaling_.inputs(x[held[:50]], None, np.float32)[0])
        draws = sample_outputs(network, z, jax.random.key(split), 10_000)[..., 0]
        centered = draws - draws.mean(axis=0)
        found["kurtosis"] = (np.mean(centered**4, axis=0) / draws.var(axis=0) ** 2).tolist()
        half = np.subtract(*np.quantile(draws, [0.75, 0.25], axis=0)) / 1.349
        for name in ("independent", "first-order", "second-order"):
            net = nn.Sequential(network.layers, name)
            std = np.sqrt(np.asarray(eqx.filter_jit(net.moments)(z).var[:, 0], np.float64))
            found[name] = (std / draws.std(axis=0, ddof=1)).tolist()
            found[f"{name}, half"] = (std / half).tolist()
    return found


def spread(values) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*np.quantile(values, [0.5, 0.05, 0.95]))


def shown(cells: list[dict], options: argparse.Namespace) -> str:
    """Return the NLL of splits, or with `--scores` NLL / RMSE, standardized, / coverage."""
    if not cells:
        return ""
    if not options.scores:
        return f"{np.mean([cell['nll'] for cell in cells]):.3f}"
    nll = np.mean([cell["nll"] - np.log(cell["scale"]) for cell in cells])
    rmse = np.mean([cell["rmse"] / cell["scale"] for cell in cells])
    return f"{nll:.2f} / {rmse:.3f} / {np.mean([cell['coverage'] for cell in cells]):.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--depths", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--objectives", nargs="*", default=["ropd"])
    parser.add_argument("--propagations", nargs="*", default=["first-order", "independent"])
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--nll", action="store_true")
    parser.add_argument("--scores", action="store_true")
    parser.add_argument("--ratios", action="store_true")
    parser.add_argument("--rows", type=int, default=5_000, help="of the tables in extra/")
    parser.add_argument("--steps", type=int, help="of training; the default recipe unless given")
    parser.add_argument("--minutes", type=float, default=np.inf)
    parser.add_argument("--store", type=pathlib.Path, default=pathlib.Path("depth.jsonl"))
    options = parser.parse_args()
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    warnings.simplefilter("ignore")  # what did not converge is in the outcome
    done: dict[tuple, dict] = {}
    if options.store.exists():
        for line in options.store.read_text().splitlines():
            entry = json.loads(line)
            done[tuple(entry["cell"])] = entry["found"]
    # Settings that came later, so that lines of before them are still known.
    more = (f"{options.steps} steps, {options.rows} rows",) if options.scores else ()
    start = time.monotonic()
    for name in options.sets:
        x, y, train = rows_of(pathlib.Path(folder), name, options)
        for objective in options.objectives:
            for depth in options.depths:
                for propagation in options.propagations[: None if depth > 1 else 1]:
                    for split in range(options.splits):
                        cell = (name, objective, depth, propagation, split, *more)
                        if cell in done or time.monotonic() - start > 60 * options.minutes:
                            continue
                        keys = ("split", "depth", "objective", "propagation", "given")
                        values = (split, depth, objective, propagation, options)
                        done[cell] = measure(x, y, train, **dict(zip(keys, values, strict=True)))
                        with options.store.open("a") as file:
                            file.write(json.dumps({"cell": cell, "found": done[cell]}) + "\n")
                        print(cell, f"{done[cell]['nll']:.3f}", file=sys.stderr, flush=True)
    if options.nll or options.scores:
        kinds = [(1, "first-order")]
        kinds += [(d, p) for d in options.depths if d > 1 for p in ("independent", "first-order")]
        print("| data | objective | " + " | ".join(f"{d} layers, {p}" for d, p in kinds) + " |")
        print("|---|---|" + "---|" * len(kinds))
        for name in options.sets:
            for objective in options.objectives:
                columns = []
                for depth, propagation in kinds:
                    cells = [
                        done.get((name, objective, depth, propagation, s, *more))
                        for s in range(options.splits)
                    ]
                    columns.append(shown([cell for cell in cells if cell], options))
                print(f"| {name} | {objective} | " + " | ".join(columns) + " |")
    if options.ratios:
        print(
            "| trained by | objective | hidden layers | networks | independent | first order "
            "| second order | kurtosis | first order, half of the draws |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for trained in ("first-order", "independent"):
            for objective in options.objectives:
                for depth in sorted(set(options.depths) - {1}):
                    cells = [
                        found
                        for (name, o, d, p, s, *rest), found in done.items()
                        if (o, d, p, *rest) == (objective, depth, trained, *more)
                        and name in options.sets
                        and s < options.splits
                    ]
                    if not cells:
                        continue

                    def joined(key, cells=cells):
                        values = [v for cell in cells for v in cell.get(key, [])]
                        return spread(values) if values else ""

                    print(
                        f"| {trained} | {objective} | {depth} | {len(cells)} | "
                        f"{joined('independent')} | {joined('first-order')} | "
                        f"{joined('second-order')} | {joined('kurtosis')} | "
                        f"{joined('first-order, half')} |"
                    )


if __name__ == "__main__":
    main()
