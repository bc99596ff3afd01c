"""The default stack and what a user would pick instead, on the twelve tables of `extra`.

    VARPROP_DATA=folder .venv/bin/python benchmarks/extra_tables.py --store extra.jsonl

Of each table, in a random order (seed 0), so many rows of the first four fifths are trained on and
at most 5,000 of the last fifth are scored, which no choice was made by (benchmarks/candidates.py
looks at the first four fifths only). Rows of one person, or neighbors in time, are on both sides
here, for all methods alike. Scores are in units of the target's spread; one split, so that standard
errors are those over rows. Every fit is kept in the store, and a second run goes on behind it.
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
from candidates import known_tables
from likelihoods import load

import varprop
from varprop import metrics
from varprop.bench.methods import method

METHODS = ["stack", "linear", "quantiles", "catboost", "ngboost", "deep-ensemble"]
SCORES = ("nll", "crps", "rmse", "coverage", "seconds")


def scored(name: str, rows: tuple[np.ndarray, ...]) -> dict[str, float]:
    """Fit a method of the benchmark as it comes, and score it."""
    X, y, X_new, y_new = rows
    begin = time.monotonic()
    model = method(name).model(method(name).settings("own"), 0).fit(X, y)
    seconds = time.monotonic() - begin
    found = model.predict_dist(X_new)
    density = found.logpdf(y_new)
    return {
        "nll": float(-density.mean()),
        "nll_se": float(density.std(ddof=1) / np.sqrt(len(density))),
        "crps": float(metrics.crps(y_new, found)),
        "rmse": float(metrics.rmse(y_new, found)),
        "coverage": float(metrics.interval_coverage(y_new, found)),
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--store", type=pathlib.Path, default=pathlib.Path("extra.jsonl"))
    parser.add_argument("--rows", type=int, default=3_000)
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--methods", nargs="*", default=METHODS)
    options = parser.parse_args()
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    known = known_tables(pathlib.Path(folder))
    stored = options.store.read_text().splitlines() if options.store.exists() else []
    done = {(e["table"], e["method"], e["rows"]): e for e in map(json.loads, stored)}
    warnings.simplefilter("ignore")  # what did not converge is not the question here
    print(f"varprop {varprop.__version__}, seed 0, {options.rows:,} training rows")
    print("NLL ± s.e. / CRPS / RMSE / coverage of the 90 % interval / seconds to fit\n")
    print("| table | " + " | ".join(options.methods) + " |")
    print("|---|" + "---|" * len(options.methods), flush=True)
    lowest = near = 0
    for table in options.tables or known:
        X, y = load(*known[table], 10**9)
        cut = int(0.8 * len(y))
        rows = X[:cut][: options.rows], y[:cut][: options.rows], X[cut:][:5000], y[cut:][:5000]
        found = []
        for name in options.methods:
            key = (table, name, options.rows)
            if key not in done:
                done[key] = dict(zip(("table", "method", "rows"), key, strict=True))
                done[key] |= scored(name, rows)
                with options.store.open("a") as file:
                    file.write(json.dumps(done[key]) + "\n")
            found.append(done[key])
        best = {score: min(entry[score] for entry in found) for score in SCORES[:3]}
        lowest += found[0]["nll"] == best["nll"]
        near += all(found[0][score] <= 1.02 * best[score] for score in ("crps", "rmse"))
        cells = [
            f"{e['nll']:.3f} ± {e['nll_se']:.3f} / {e['crps']:.4f} / {e['rmse']:.3f} / "
            f"{e['coverage']:.0%} / {e['seconds']:.0f} s"
            for e in found
        ]
        print(f"| {table} | " + " | ".join(cells) + " |", flush=True)
    print(
        f"\n{options.methods[0]}: lowest NLL on {lowest}, CRPS and RMSE lowest or within 2 % of it "
        f"on {near}, of {len(options.tables or known)}."
    )


if __name__ == "__main__":
    main()
