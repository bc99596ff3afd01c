"""How often does the 90 % interval of a total hold it? Sums over 100 new rows, simulated data.

    .venv/bin/python benchmarks/totals.py --sets 200
    .venv/bin/python benchmarks/totals.py --sets 100 --model stack

Every set has 200 training rows of five inputs, another smooth function of three of them, and noise
of known size; the total is that of 100 new rows, noise included. "drawn" is the total of a network
and of noise drawn from the model itself: it shows whether the covariance between rows is that of
the model. "rows alone" adds up the rows' variances as if they had nothing in common; "rows" is the
coverage of the single rows' intervals; "z" the spread of the total's error over its stated one.
"""

from __future__ import annotations

import argparse
import warnings

import jax
import numpy as np

import varprop
from varprop import FAWNRegressor, StackedRegressor
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


def gaussian_coverage(mean, std, truth) -> bool:
    return bool(abs(truth - mean) <= 1.6449 * std)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--models", nargs="*", default=["vi"], choices=list(MODELS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| model | sets | drawn | the data's total | rows alone | rows | std of z |")
    print("|---|---|---|---|---|---|---|")
    for name in options.models:
        held, drawn, alone, single, z = [], [], [], [], []
        for seed in range(options.sets):
            X, y = simulated(seed, 300)
            model = MODELS[name](seed).fit(X[:200], y[:200])
            dist = model.predict_dist(X[200:])
            total, truth = dist.total(), y[200:].sum()
            lower, upper = total.interval(0.9)
            held.append(bool((lower <= truth) & (truth <= upper)))
            if hasattr(model, "members_"):
                other = drawn_total(model, X[200:], dist, seed)
                drawn.append(bool((lower <= other) & (other <= upper)))
            alone.append(gaussian_coverage(total.mean, np.sqrt(dist.var.sum()), truth))
            lower, upper = dist.interval(0.9)
            single.append(np.mean((lower <= y[200:]) & (y[200:] <= upper)))
            z.append(float((truth - total.mean[0]) / total.std[0]))
        error = np.sqrt(np.mean(held) * (1 - np.mean(held)) / len(held))
        print(
            f"| {name} | {len(held)} | {f'{np.mean(drawn):.3f}' if drawn else ''} "
            f"| {np.mean(held):.3f} ± {error:.3f} | {np.mean(alone):.3f} "
            f"| {np.mean(single):.3f} | {np.std(z):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
