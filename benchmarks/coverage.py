"""How often 90 % intervals hold new targets, over many sets simulated from each likelihood.

    .venv/bin/python benchmarks/coverage.py --sets 200 --store coverage.jsonl

A set has 200 rows to train on and 500 to judge by, of two inputs; the network is linear, as the
truth is, and nothing is mixed in (`validation=None`), so that what is covered is the likelihood's
doing. Printed is the mean share over sets, with its standard error. A second run goes on behind
what is in the store.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import warnings

import numpy as np

from varprop import FAWNRegressor

INF = np.inf
KINDS = [
    "gaussian",
    "heteroscedastic",
    "student-t",
    "yeo-johnson",
    "log-normal",
    "poisson",
    "negative-binomial",
    "censored",
    "censored-log-normal",
]


def simulated(kind: str, n: int, seed: int) -> tuple:
    """Return inputs, what is given of the targets, exposures or None, and the targets."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    f = 0.5 * X[:, 0] - 0.3 * X[:, 1]
    if kind in ("poisson", "negative-binomial"):
        exposure = rng.uniform(0.5, 4.0, n)
        rate = exposure * np.exp(1.0 + f)
        rate = rate if kind == "poisson" else rate * rng.gamma(2.0, 0.5, n)
        y = rng.poisson(rate).astype(float)
        return X, y, exposure, y
    noise = {
        "student-t": lambda: 0.2 * rng.standard_t(4, n),
        "heteroscedastic": lambda: 0.3 * np.exp(0.4 * X[:, 0]) * rng.normal(size=n),
    }.get(kind, lambda: 0.4 * rng.normal(size=n))
    y = f + noise()
    if kind == "yeo-johnson":
        y = np.exp(y) - 1
    if "log" in kind:
        y = np.exp(y)
    if not kind.startswith("censored"):
        return X, y, None, y
    limit, below = (np.exp(0.4), np.exp(-0.6)) if "log" in kind else (0.4, -0.6)
    lower = np.where(y < below, 0.0 if "log" in kind else -INF, np.minimum(y, limit))
    upper = np.where(y > limit, INF, np.maximum(y, below))
    return X, np.stack([lower, upper], axis=1), None, y


def covered(kind: str, seed: int, max_iter: int = 1500) -> float:
    """Return the share of new targets inside of 90 % intervals, for one set."""
    X, y, exposure, _ = simulated(kind, 200, 2 * seed)
    options = {"hidden_layer_sizes": (), "objective": "vi", "validation": None}
    model = FAWNRegressor(likelihood=kind, max_iter=max_iter, random_state=seed, **options)
    model.fit(X, y, **({} if exposure is None else {"exposure": exposure}))
    X, _, exposure, y = simulated(kind, 500, 2 * seed + 1)
    dist = model.predict_dist(X, **({} if exposure is None else {"exposure": exposure}))
    if not dist.is_discrete:
        return float(np.mean((y >= dist.quantile(0.05)) & (y <= dist.quantile(0.95))))
    # Of counts no interval holds just 90 %: the ends count by the share that is wanted of them.
    drawn = np.random.default_rng(seed).uniform(size=len(y))
    place = dist.cdf(y, left=True) * drawn + dist.cdf(y) * (1 - drawn)
    return float(np.mean((place > 0.05) & (place < 0.95)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--kinds", nargs="*", default=KINDS)
    parser.add_argument("--store", type=pathlib.Path, default=pathlib.Path("coverage.jsonl"))
    options = parser.parse_args()
    stored = options.store.read_text().splitlines() if options.store.exists() else []
    done = {(entry[0], entry[1]): entry[2] for entry in map(json.loads, stored)}
    warnings.simplefilter("ignore")  # what did not converge is not the question here
    for seed in range(options.sets):
        for kind in options.kinds:
            if (kind, seed) not in done:
                done[kind, seed] = covered(kind, seed)
                with options.store.open("a") as file:
                    file.write(json.dumps([kind, seed, done[kind, seed]]) + "\n")
        print(f"{seed + 1} sets", file=sys.stderr, flush=True)
    print("| likelihood | sets | share inside 90 % intervals | standard error |")
    print("|---|---|---|---|")
    for kind in options.kinds:
        found = [share for (name, _), share in done.items() if name == kind]
        error = np.std(found, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
        print(f"| {kind} | {len(found)} | {np.mean(found):.3f} | {error:.3f} |")


if __name__ == "__main__":
    main()
