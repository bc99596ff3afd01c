"""Airfoil and bike sharing by the rule of scikit-learn-contrib/bde, beside what it prints.

    VARPROP_DATA=folder .venv/bin/python benchmarks/bde_rule.py

One split, `train_test_split(test_size=0.2, random_state=0)`; the target is standardized by its
training rows, bike sharing is hour.csv without casual, registered, instant and dteday. Others'
figures are read from the result files of that project (its machine had ten cores), not run here.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time

import pandas as pd
from sklearn.model_selection import train_test_split

import varprop
from varprop import StackedRegressor, metrics

TABLES = {
    "airfoil": ("airfoil.parquet", "target", []),
    "bike sharing": ("bike_sharing_hour.parquet", "cnt", ["instant", "dteday"]),
}
#: NLL, RMSE and seconds.
PRINTED = {
    "airfoil": {
        "BDE, ten sampled networks": (-0.913, 0.122, 241),
        "TabPFN v2": (-0.934, 0.136, 9),
        "deep ensemble": (0.176, 0.365, 20),
        "CatBoost": (0.148, 0.239, 0.8),
    },
    "bike sharing": {
        "BDE, ten sampled networks": (-0.732, 0.226, 2555),
        "TabPFN v2": (-0.686, 0.210, 1246),
        "deep ensemble": (-0.455, 0.288, 40),
        "CatBoost": (-0.374, 0.265, 2.5),
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--efforts", nargs="*", default=["quick", "normal", "thorough"])
    parser.add_argument("--tables", nargs="*", default=list(TABLES))
    options = parser.parse_args()
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    print(f"varprop {varprop.__version__}, seed 0; seconds of one fit, compiling included\n")
    print("| table | | NLL | RMSE | coverage of 90 % | s |\n|---|---|---|---|---|---|", flush=True)
    for table in options.tables:
        file, target, dropped = TABLES[table]
        frame = pd.read_parquet(pathlib.Path(folder) / "extra" / file).drop(columns=dropped)
        y = frame.pop(target).to_numpy(float)
        X, X_test, y, y_test = train_test_split(
            frame.to_numpy(float), y, test_size=0.2, random_state=0
        )
        y, y_test = ((each - y.mean()) / y.std() for each in (y, y_test))
        for effort in options.efforts:
            begin = time.monotonic()
            model = StackedRegressor(effort=effort, random_state=0, n_jobs=-1).fit(X, y)
            seconds = time.monotonic() - begin
            found = model.predict_dist(X_test)
            print(
                f"| {table} | varprop, {effort} | {metrics.nll(y_test, found):.3f} "
                f"| {metrics.rmse(y_test, found):.3f} "
                f"| {metrics.interval_coverage(y_test, found):.0%} | {seconds:.0f} |",
                flush=True,
            )
        for name, (nll, rmse, seconds) in PRINTED[table].items():
            print(f"| {table} | {name}, as printed | {nll:.3f} | {rmse:.3f} | | {seconds:g} |")


if __name__ == "__main__":
    main()
