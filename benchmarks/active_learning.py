"""Does the model's doubt find better rows to label than chance does? Twelve tables.

    VARPROP_DATA=folder python benchmarks/active_learning.py --store active.jsonl --mode single
    VARPROP_DATA=folder python benchmarks/active_learning.py --store active.jsonl --mode batch

A pool of up to 1,000 rows is not labeled but for 20 of them; a model is fitted, rows of the pool
are chosen and labeled, and so on, one by one (40 of them) or ten at a time (10 times). Scores are
those on up to 1,000 other rows, averaged over the curve, that is, over the number of labels, the
first 20 left out, which all have in common: RMSE as a ratio to the same model's with rows chosen at
random, as a geometric mean over the curve and seeds, and NLL, of standardized targets, as it is. A
method is the model and, after the colon, how it chooses: "var" the largest variance of what the
model is unsure of (a batch: the ten largest), "info" the largest joint information gain, "lcmd"
rows that spread in the space of the network's linearization. "ropd: var" takes the whole variance,
since ROPD does not tell doubt from noise.
"""

from __future__ import annotations

from typing import Any

import acting
import numpy as np

from varprop import metrics
from varprop.decisions import linear_features, select_informative, select_spread

TABLES = [
    *("yacht", "boston", "energy", "concrete", "wine_red", "kin8nm", "power_plant", "naval"),
    *("protein", "airfoil", "225_puma8NH", "grid_stability_simulated"),
]
RIVALS = ("gp: random", "gp: var", "ensemble: random", "ensemble: var")
METHODS = {
    "single": (
        *("fawn: random", "fawn: var", "vi: random", "vi: var", "ropd: random", "ropd: var"),
        *RIVALS,
    ),
    "batch": (
        *("fawn: random", "fawn: var", "fawn: info", "fawn: lcmd"),
        *("vi: random", "vi: info", "ropd: random", "ropd: var", *RIVALS),
    ),
}
START, POOL, TEST = 20, 1_000, 1_000


def chosen(method: str, model: Any, X: np.ndarray, seen: np.ndarray, n: int, rng: Any) -> Any:
    """Return which rows of a pool to label next."""
    kind, rule = method.split(": ")
    if rule == "random":
        return rng.choice(len(X), n, replace=False)
    if rule == "lcmd":
        both = linear_features(model, np.concatenate([X, seen]))
        return select_spread(both[: len(X)], n, seen=both[len(X) :]).rows
    dist = model.predict_dist(X)
    if rule == "info":
        return select_informative(dist, n).rows
    return np.argsort(-acting.doubt(kind, dist).var)[:n]


def curve(problem: str, method: str, seed: int, more: dict[str, Any]) -> Any:
    """Return RMSE and NLL after every query."""
    X, y = acting.table(problem)
    rng = np.random.default_rng([seed, 7])  # the same rows for all methods
    order = rng.permutation(len(X))
    n_test = min(TEST, len(X) // 3)
    test, pool = order[:n_test], order[n_test : n_test + POOL]
    X = (X - X[pool].mean(axis=0)) / np.where(np.ptp(X[pool], axis=0) > 0, X[pool].std(axis=0), 1)
    y = (y - y[pool].mean()) / y[pool].std()
    known, left = list(pool[:START]), list(pool[START:])
    size = 10 if more["mode"] == "batch" else 1
    found = []
    for number in range(more["queries"] + 1):
        model = acting.fitted(method.split(": ")[0], seed, X[known], y[known])
        if number:
            dist = model.predict_dist(X[test])
            dist = dist if dist.squeeze else dist.marginal(0)
            found.append((metrics.rmse(y[test], dist), metrics.nll(y[test], dist)))
        if number < more["queries"]:
            rows = chosen(method, model, X[left], X[known], size, rng)
            known += [left[row] for row in rows]
            left = [row for place, row in enumerate(left) if place not in set(map(int, rows))]
    return found


def main() -> None:
    parser = acting.options(
        __doc__, problems=TABLES, methods=sorted({*METHODS["single"], *METHODS["batch"]}), seeds=3
    )
    parser.add_argument("--mode", choices=METHODS, default="single")
    parser.add_argument("--queries", type=int, help="40 single ones or 10 batches unless given")
    given = parser.parse_args()
    given.methods = [method for method in METHODS[given.mode] if method in given.methods]
    queries = given.queries or (40 if given.mode == "single" else 10)
    found = acting.run(given, curve, {"mode": given.mode, "queries": queries})
    print(f"{given.mode}, {queries} queries from {START} rows; RMSE over random's / NLL\n")
    print("| table | seeds | " + " | ".join(given.methods) + " |")
    print("|---|---|" + "---|" * len(given.methods))
    ratios: dict[str, list[float]] = {method: [] for method in given.methods}
    areas: dict[str, dict[str, float]] = {method: {} for method in given.methods}
    for name in given.problems:
        seeds = acting.complete(found, name, given.methods)
        if not seeds:
            continue
        cells = []
        for method in given.methods:
            curves = np.array([found[name, method, seed] for seed in seeds])
            base = f"{method.split(': ')[0]}: random"
            logs = np.log(curves[..., 0]).mean()
            areas[method][name] = logs
            if base not in given.methods:
                continue
            others = np.array([found[name, base, seed] for seed in seeds])
            ratio = np.exp(logs - np.log(others[..., 0]).mean())
            ratios[method].append(ratio)
            first = f"{np.exp(logs):.3f}" if method == base else f"{ratio:.3f}"
            cells.append(f"{first} / {curves[..., 1].mean():.2f}")
        print(f"| {name} | {len(seeds)} | " + " | ".join(cells) + " |", flush=True)
    print('\n(of "random" the RMSE itself, in standard deviations of the target)\n')
    print("| method | RMSE over random's | worse than random on | better than gp: var on |")
    print("|---|---|---|---|")
    for method, values in ratios.items():
        if not values:
            continue
        rival = areas.get("gp: var", {})
        both = [name for name in areas[method] if name in rival]
        wins = sum(areas[method][name] < rival[name] for name in both)
        print(
            f"| {method} | {np.exp(np.mean(np.log(values))):.3f} | "
            f"{sum(value > 1 for value in values)} of {len(values)} | {wins} of {len(both)} |"
        )


if __name__ == "__main__":
    main()
