"""Which networks earn their time in the default stack: portfolios of candidates on other tables.

    VARPROP_DATA=folder .venv/bin/python benchmarks/candidates.py --rows 1500 --store candidates
    VARPROP_DATA=folder .venv/bin/python benchmarks/candidates.py --rows 400 --store candidates

The twelve regression tables of `extra` and airfoil, none of the benchmark's nine sets. Of each the
first four fifths, in a random order, are its training part (of airfoil what scikit-learn's
`train_test_split(random_state=0)` gives); the rest is never looked at. So many rows of the training
part are trained on, and its last 3,000 (of airfoil all others) are predicted. Every candidate is
trained in a stack of its own, on the same five folds; a portfolio's weights are those that its
out-of-fold densities ask for. Printed are its NLL, and RMSE and coverage of the 90 % interval of
its networks, in units of the target's spread. Each candidate on each table is kept in the store as
soon as it is there, and a second run goes on behind it.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from likelihoods import load, tables
from sklearn.model_selection import train_test_split

from varprop import FAWNRegressor, Recipe, StackedRegressor, StopRule
from varprop.estimators.validation import stack_weights

LONG = Recipe(
    kl_warmup=6_000, cooldown=5_000, max_steps=24_000, stop=StopRule(window=500, patience=6)
)
HALF = Recipe(learning_rate=3e-2, kl_warmup=3_000, cooldown=1_500, max_steps=4_000, stop=None)
OF_INPUT: dict[str, Any] = {"likelihood": "heteroscedastic", "prior": "ard"}
VI: dict[str, Any] = OF_INPUT | {"objective": "vi"}
TWO: dict[str, Any] = {"hidden_layer_sizes": (50, 50)}
CANDIDATES: dict[str, dict[str, Any]] = {
    "ropd": {},
    "ropd long": {"recipe": LONG},
    "vi": VI,
    "vi, half": VI | {"recipe": HALF},
    "vi long": VI | {"recipe": LONG},
    "deep": OF_INPUT | TWO,
    "deep vi": VI | TWO,
    "cold": VI | TWO | {"kl_weight": 0.3},
    "cold, one layer": VI | {"kl_weight": 0.3},
    "wide": OF_INPUT | {"hidden_layer_sizes": (100, 100)},
}
PORTFOLIOS = (
    ("vi",),
    ("vi, half",),
    ("ropd long", "vi long"),
    ("ropd long", "vi long", "deep"),
    ("ropd", "vi", "deep", "cold"),
    ("vi", "deep"),
    ("vi", "cold"),
    ("vi", "cold, one layer"),
    ("vi", "deep", "cold"),
)
SIMPLE = ("linear", "constant")


def known_tables(folder: pathlib.Path) -> dict[str, tuple[pathlib.Path, list[str], str]]:
    """Return file, columns to drop and target of the twelve tables of `extra`."""
    every = tables(folder).items()
    return {name: entry for name, entry in every if entry[0].parent == folder / "extra"}


def rows_of(entry: tuple, name: str, n_rows: int) -> tuple[np.ndarray, ...]:
    """Return rows to train on and rows to predict, both of the training part."""
    path, dropped, target = entry
    if name == "airfoil":
        frame = pd.read_parquet(path)
        y = frame.pop(target).to_numpy(float)
        X, _, y, _ = train_test_split(frame.to_numpy(float), y, test_size=0.2, random_state=0)
        order = np.random.default_rng(0).permutation(len(y))
        X, y = X[order], (y[order] - y.mean()) / y.std()
        return X[:900], y[:900], X[900:], y[900:]
    X, y = load(path, dropped, target, 10**9)
    X, y = X[: int(0.8 * len(y))], y[: int(0.8 * len(y))]
    return X[:n_rows], y[:n_rows], X[-3000:], y[-3000:]


def look_at(rows: tuple[np.ndarray, ...], name: str) -> dict[str, Any]:
    """Train one candidate and return what it makes of rows it has not seen."""
    X, y, X_new, y_new = rows
    begin = time.monotonic()
    network = FAWNRegressor(**CANDIDATES[name])
    model = StackedRegressor([("it", network)], random_state=0).fit(X, y)
    found: dict[str, Any] = {"seconds": time.monotonic() - begin}
    for key, part in (("", "it"), *((f"{each} ", each) for each in SIMPLE)):
        found[f"{key}unseen"] = model.predict_out_of_fold(X, y, model=part).logpdf(y)
        new = model.predict_dist(X_new, model=part)
        found[f"{key}new"] = new.logpdf(y_new)
        if part == "it":
            found |= {"mean": new.mean, "cdf": new.cdf(y_new), "y": y_new}
    return found


def score(parts: list[dict[str, Any]]) -> tuple[float, float, float]:
    """Return NLL, RMSE and coverage of a mixture of candidates and the simple models."""
    unseen, new = (
        np.stack([p[key] for p in parts] + [parts[0][f"{each} {key}"] for each in SIMPLE])
        for key in ("unseen", "new")
    )
    weights = stack_weights(unseen)
    with np.errstate(divide="ignore"):
        nll = -np.logaddexp.reduce(np.log(weights)[:, None] + new, axis=0).mean()
    own = weights[: len(parts)] / weights[: len(parts)].sum()
    inside = np.abs(own @ np.stack([part["cdf"] for part in parts]) - 0.5) <= 0.45
    error = own @ np.stack([part["mean"] for part in parts]) - parts[0]["y"]
    return float(nll), float(np.sqrt(np.mean(error**2))), float(inside.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_500)
    parser.add_argument("--store", type=pathlib.Path, default=pathlib.Path("candidates"))
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--candidates", nargs="*", default=list(CANDIDATES))
    options = parser.parse_args()
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    known = known_tables(pathlib.Path(folder))
    known["airfoil"] = (pathlib.Path(folder) / "extra" / "airfoil.parquet", [], "target")
    options.store.mkdir(exist_ok=True)
    warnings.simplefilter("ignore")  # what did not converge is not the question here
    portfolios = [p for p in PORTFOLIOS if set(p) <= set(options.candidates)]
    print("| table | " + " | ".join(", ".join(p) for p in portfolios) + " |")
    print("|---|" + "---|" * len(portfolios), flush=True)
    totals = []
    for table in options.tables or known:
        found = {}
        for name in options.candidates:
            path = options.store / f"{table}-{options.rows}-{name}.npz"
            if not path.exists():
                looked = look_at(rows_of(known[table], table, options.rows), name)
                with path.open("wb") as file:
                    np.savez(file, **looked)
            found[name] = dict(np.load(path))
        cells = [score([found[name] for name in p]) for p in portfolios]
        totals.append(cells)
        print(
            f"| {table} | "
            + " | ".join("{:.3f} / {:.3f} / {:.0%}".format(*c) for c in cells)
            + " |"
        )
        sys.stdout.flush()
    means = np.mean(totals, axis=0)
    print("| mean | " + " | ".join("{:.3f} / {:.3f} / {:.0%}".format(*c) for c in means) + " |")


if __name__ == "__main__":
    main()
