"""Out-of-fold NLL of four likelihoods of numbers, side by side, on 21 tables.

    VARPROP_DATA=folder .venv/bin/python benchmarks/likelihoods.py --store likelihoods.jsonl

The nine sets of the benchmark and the twelve regression tables of `extra` beside them (`extra.json`
says which), at most 1,000 rows of each, drawn at random (seed 0). One stack per table, of networks
that differ in their likelihood alone: `out_of_fold_nll_` is of five folds, each predicted by
networks that have not seen it, identical rows together. Rows that follow one another in time, or
are of one person, fall into different folds here: figures compare likelihoods, they are no forecast
of accuracy. In units of the standardized target (NLL minus the logarithm of its spread).

Ctrl-C costs the table at work; a second run goes on behind the tables in the store.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import time
import warnings

import numpy as np
import pandas as pd

from varprop import FAWNRegressor, StackedRegressor

LIKELIHOODS = ["gaussian", "heteroscedastic", "student-t", "yeo-johnson"]
NINE = ["yacht", "boston", "energy", "concrete", "wine_red"]
NINE += ["kin8nm", "power_plant", "naval", "protein"]
# What extra.json's notes say to leave out.
DROPPED = {
    "bike_sharing_hour": ["instant", "dteday"],
    "steel_industry": ["date"],
    "air_quality_uci": ["Date", "Time"],
    "grid_stability_simulated": ["stabf"],
}


def tables(folder: pathlib.Path) -> dict[str, tuple[pathlib.Path, list[str], str]]:
    """Return file, columns to drop and target of every table."""
    sets = json.loads((folder / "datasets.json").read_text())["datasets"]
    found = {}
    for name in NINE:
        targets = sets[name]["target_columns"]
        found[name] = (folder / sets[name]["file"], targets[1:], targets[0])
    extra = json.loads((folder / "extra" / "extra.json").read_text())
    for name, entry in extra.items():
        if entry["task"] == "regression" and name != "airfoil":
            path = folder / "extra" / entry["file"]
            found[name] = (path, DROPPED.get(name, []), entry["target"])
    return found


def load(path: pathlib.Path, dropped: list[str], target: str, most: int) -> tuple:
    """Return inputs, categories as zeros and ones, and standardized targets of some rows."""
    frame = pd.read_parquet(path).drop(columns=dropped)
    if path.stem == "air_quality_uci":  # -200 is missing
        frame = frame[frame[target] != -200]
        frame = frame.replace(-200, np.nan)
    frame = frame.dropna(subset=[target])
    frame = frame.sample(min(most, len(frame)), random_state=0)
    frame = frame.fillna(frame.mean(numeric_only=True))
    y = frame.pop(target).to_numpy(float)
    return pd.get_dummies(frame).to_numpy(float), (y - y.mean()) / y.std()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=pathlib.Path, default=pathlib.Path("likelihoods.jsonl"))
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--objective", default="vi")
    parser.add_argument("--tables", nargs="*")
    options = parser.parse_args()
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    known = tables(pathlib.Path(folder))
    stored = options.store.read_text().splitlines() if options.store.exists() else []
    done = {entry["table"]: entry for entry in map(json.loads, stored)}
    warnings.simplefilter("ignore")  # what did not converge is not the question here
    for name in options.tables or known:
        if name in done:
            continue
        X, y = load(*known[name], options.rows)
        networks = [
            (each, FAWNRegressor(likelihood=each, objective=options.objective, prior="ard"))
            for each in LIKELIHOODS
        ]
        begin = time.monotonic()
        model = StackedRegressor(networks, random_state=0).fit(X, y)
        entry = {
            "table": name,
            "rows": len(y),
            "nll": model.out_of_fold_nll_,
            "weights": model.weights_,
            "seconds": time.monotonic() - begin,
        }
        with options.store.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        done[name] = entry
        print(f"{name}: {entry['seconds']:.0f} s", file=sys.stderr, flush=True)
    columns = [*LIKELIHOODS, "linear", "constant", "stack"]
    print("| table | rows | " + " | ".join(columns) + " |")
    print("|---|" + "---|" * (len(columns) + 1))
    for name in known:
        if name not in done:
            continue
        nll = done[name]["nll"]
        best = min(nll.get(each, np.inf) for each in LIKELIHOODS)
        cells = [f"{nll[each]:.3f}" if each in nll else "" for each in columns]
        cells = [
            f"**{cell}**" if each in LIKELIHOODS and nll.get(each) == best else cell
            for each, cell in zip(columns, cells, strict=True)
        ]
        print(f"| {name} | {done[name]['rows']} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
