"""How often does the 90 % interval of a total hold it? Sums over 100 new rows, simulated data.

    .venv/bin/python benchmarks/totals.py --sets 200
    .venv/bin/python benchmarks/totals.py --sets 100 --models stack

Every set has 200 training rows of five inputs, another smooth function of three of them, and noise
of known size; the total is that of 100 new rows, noise included. "drawn" is the total of a network
and of noise drawn from the model itself: it shows whether the covariance between rows is that of
the model. "rows alone" adds up the rows' variances as if they had nothing in common; "rows" is the
coverage of the single rows' intervals, "NLL" theirs; "z" the spread of the total's error over its
stated one. Sets already in `--store` are not computed again.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import warnings

import jax
import numpy as np

import varprop
from varprop import FAWNRegressor, StackedRegressor, metrics
from varprop.estimators.members import to_jax

RECIPE = varprop.Recipe(kl_warmup=2_000, cooldown=2_000, max_steps=10_000)
MODELS = {
    "vi": lambda seed: FAWNRegressor(
        objective="vi", validation=None, recipe=RECIPE, random_state=seed, n_jobs=-1
    ),
    "vi, five members": lambda seed: FAWNRegressor(
        objective="vi", n_members=5, validation=None, recipe=RECIPE, random_state=seed, n_jobs=-1
    ),
    "vi, bag": lambda seed: FAWNRegressor(
        objective="vi", validation="bag", recipe=RECIPE, random_state=seed, n_jobs=-1
    ),
    "vi, two layers": lambda seed: FAWNRegressor(
        (50, 50), objective="vi", validation=None, recipe=RECIPE, random_state=seed, n_jobs=-1
    ),
    "ropd": lambda seed: FAWNRegressor(
        validation=None, recipe=RECIPE, random_state=seed, n_jobs=-1
    ),
    "vi, gauss-newton": lambda seed: FAWNRegressor(
        objective="vi",
        row_covariance="gauss-newton",
        validation=None,
        recipe=RECIPE,
        random_state=seed,
        n_jobs=-1,
    ),
    "ropd, gauss-newton": lambda seed: FAWNRegressor(
        row_covariance="gauss-newton", validation=None, recipe=RECIPE, random_state=seed, n_jobs=-1
    ),
    "vi, two layers, gauss-newton": lambda seed: FAWNRegressor(
        (50, 50),
        objective="vi",
        row_covariance="gauss-newton",
        validation=None,
        recipe=RECIPE,
        random_state=seed,
        n_jobs=-1,
    ),
    "stack": lambda seed: StackedRegressor(random_state=seed, n_jobs=-1),
}


def simulated(seed: int, n: int):
    """Return rows of a function that is another one for every seed."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=3), rng.uniform(0.5, 2, size=2)
    X = rng.normal(size=(n, 5))
    y = a[0] * np.sin(b[0] * X[:, 0]) + a[1] * np.tanh(b[1] * X[:, 1]) + a[2] * X[:, 2]
    return X, y + 0.5 * rng.normal(size=n)


def drawn_total(model: FAWNRegressor, X: np.ndarray, dist, seed: int) -> float:
    """Return the total of a drawn member's drawn network, with noise."""
    rng = np.random.default_rng([seed, 1])
    k = rng.choice(len(model.members_), p=model.shares_)
    scaling = model.scaling_
    network = to_jax(model.members_[k]).network.sample(jax.random.key(seed))
    f = np.asarray(network(scaling.inputs(X, None, np.float32)[0]), np.float64)[:, 0]
    noise = np.sqrt(dist.member_noise[k, 0, 0]) * rng.normal(size=len(f))
    return float((scaling.y_shift[0] + scaling.y_scale[0] * f + noise).sum())


def measure(name: str, seed: int) -> dict[str, float | None]:
    """Fit one simulated set, and look at the total of new rows."""
    X, y = simulated(seed, 300)
    model = MODELS[name](seed).fit(X[:200], y[:200])
    dist = model.predict_dist(X[200:])
    total, truth = dist.total(), y[200:].sum()

    def holds(value: float) -> float:
        lower, upper = total.interval(0.9)
        return float(((lower <= value) & (value <= upper)).item())

    drawn = None
    if hasattr(model, "members_") and model.members_[0].weight_root is None:
        drawn = holds(drawn_total(model, X[200:], dist, seed))
    lower, upper = dist.interval(0.9)
    return {
        "drawn": drawn,
        "held": holds(truth),
        "alone": float(abs(truth - total.mean[0]) <= 1.6449 * np.sqrt(dist.var.sum())),
        "rows": float(np.mean((lower <= y[200:]) & (y[200:] <= upper))),
        "nll": metrics.nll(y[200:], dist),
        "z": float((truth - total.mean[0]) / total.std[0]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--models", nargs="*", default=["vi"], choices=list(MODELS))
    parser.add_argument("--store", type=pathlib.Path, default=pathlib.Path("totals.jsonl"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    done: dict[tuple[str, int], dict[str, float | None]] = {}
    if options.store.exists():
        for line in options.store.read_text().splitlines():
            name, seed, found = json.loads(line)
            done[name, seed] = found
    print("| model | sets | drawn | the data's total | rows alone | rows | NLL | std of z |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.models:
        for seed in range(options.sets):
            if (name, seed) not in done:
                done[name, seed] = measure(name, seed)
                with options.store.open("a") as file:
                    file.write(json.dumps([name, seed, done[name, seed]]) + "\n")
        sets = [done[name, seed] for seed in range(options.sets)]
        mean = {
            key: np.mean([one[key] for one in sets]) for key in sets[0] if sets[0][key] is not None
        }
        error = np.sqrt(mean["held"] * (1 - mean["held"]) / len(sets))
        drawn = f"{mean['drawn']:.3f}" if "drawn" in mean else ""
        print(
            f"| {name} | {len(sets)} | {drawn} | {mean['held']:.3f} ± {error:.3f} "
            f"| {mean['alone']:.3f} | {mean['rows']:.3f} | {mean['nll']:.3f} "
            f"| {np.std([one['z'] for one in sets]):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
