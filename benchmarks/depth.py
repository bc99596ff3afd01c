"""Depth, trained: is the stated spread right, and does depth pay? First order against independent.

    VARPROP_DATA=folder .venv/bin/python benchmarks/depth.py --nll                # nine sets
    VARPROP_DATA=folder .venv/bin/python benchmarks/depth.py --ratios --objectives ropd vi

For each set, number of hidden layers (of 50 rectifiers) and propagation, one network is trained
(`FAWNRegressor(validation=None)`, seed = split) on the training rows of a published split but a
tenth, which is set aside; test rows are never looked at. `--nll` prints the negative log-likelihood
of the rows set aside, `--ratios` stated over sampled standard deviation of the function at 50 of
them, by 10,000 drawn networks, the draws' kurtosis (a Gaussian has 3) and the ratio of the
spreads that hold half of the draws. Lines already in `--store` are not computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from default_accuracy import SETS
from recipe_study import load

from varprop import FAWNRegressor, metrics, nn
from varprop.estimators.members import to_jax
from varprop.nn.checking import sample_outputs


def measure(x, y, train, *, split: int, depth: int, objective: str, propagation: str) -> dict:
    """Train one network, score it on rows set aside, and draw networks from it."""
    rows = np.random.default_rng(split).permutation(train[split])
    held, rows = np.split(rows, [max(len(rows) // 10, 30)])
    model = FAWNRegressor(
        (50,) * depth,
        objective=objective,
        propagation=propagation,
        validation=None,
        random_state=split,
    )
    begin = time.monotonic()
    model.fit(x[rows], y[rows, 0])
    seconds = time.monotonic() - begin
    dist = model.predict_dist(x[held])
    found = {
        "nll": metrics.nll(y[held, 0], dist),
        "rmse": metrics.rmse(y[held, 0], dist),
        "coverage": metrics.interval_coverage(y[held, 0], dist),
        "seconds": seconds,
        "outcome": model.outcome_,
    }
    if depth > 1:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--depths", nargs="*", type=int, default=[1, 2, 3])
    parser.add_argument("--objectives", nargs="*", default=["ropd"])
    parser.add_argument("--propagations", nargs="*", default=["first-order", "independent"])
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--nll", action="store_true")
    parser.add_argument("--ratios", action="store_true")
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
    for name in options.sets:
        x, y, train = load(pathlib.Path(folder), name)
        for objective in options.objectives:
            for depth in options.depths:
                for propagation in options.propagations[: None if depth > 1 else 1]:
                    for split in range(options.splits):
                        cell = (name, objective, depth, propagation, split)
                        if cell in done:
                            continue
                        keys = ("split", "depth", "objective", "propagation")
                        values = (split, depth, objective, propagation)
                        done[cell] = measure(x, y, train, **dict(zip(keys, values, strict=True)))
                        with options.store.open("a") as file:
                            file.write(json.dumps({"cell": cell, "found": done[cell]}) + "\n")
                        print(cell, f"{done[cell]['nll']:.3f}", file=sys.stderr, flush=True)
    if options.nll:
        kinds = [(1, "first-order")]
        kinds += [(d, p) for d in options.depths if d > 1 for p in ("independent", "first-order")]
        print("| data | objective | " + " | ".join(f"{d} layers, {p}" for d, p in kinds) + " |")
        print("|---|---|" + "---|" * len(kinds))
        for name in options.sets:
            for objective in options.objectives:
                columns = []
                for depth, propagation in kinds:
                    cells = [
                        done.get((name, objective, depth, propagation, s))
                        for s in range(options.splits)
                    ]
                    nll = [cell["nll"] for cell in cells if cell]
                    columns.append(f"{np.mean(nll):.3f}" if nll else "")
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
                        for (name, o, d, p, s), found in done.items()
                        if (o, d, p) == (objective, depth, trained)
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
