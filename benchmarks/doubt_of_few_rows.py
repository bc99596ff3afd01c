"""What a model that has seen few rows is unsure of, beside how far off it is: simulated functions.

    python benchmarks/doubt_of_few_rows.py

Functions of five standard normal inputs (a sine, a hyperbolic tangent and a product, another one
for every seed), noise of standard deviation 0.1. For 12, 24 and 60 rows: the root mean square error
and the root mean square of the model's doubt on 500 other rows (of the KL counted a tenth alone,
which does not state it, by 50 drawn networks), both in standard deviations of the function, the
NLL, and the rank correlation of doubt with the absolute error. By this the settings of the
experiments on decisions were chosen (`acting.py`), which report none of these functions.
"""

from __future__ import annotations

import argparse
import warnings

import acting
import numpy as np
from scipy.stats import spearmanr

from varprop import metrics
from varprop.decisions import draw_function

SETTINGS = {
    "vi": {"objective": "vi"},
    "vi, ard": acting.SETTINGS["vi"],
    "vi, KL x 0.1": {"objective": "vi", "kl_weight": 0.1},
    "vi, KL x 0.1, gauss-newton": acting.SETTINGS["fawn"],
    "the same, prior fixed": acting.SETTINGS["fawn"] | {"prior": "fixed"},
    "gauss-newton, two layers, ard": acting.SETTINGS["fawn"]
    | {"prior": "ard", "hidden_layer_sizes": (50, 20)},
}
ROWS, DRAWS = (12, 24, 60), 50


def function(seed: int):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=3), rng.uniform(0.5, 2, size=2)
    return lambda X: (
        a[0] * np.sin(2 * b[0] * X[:, 0])
        + a[1] * np.tanh(2 * b[1] * X[:, 1])
        + a[2] * X[:, 2] * X[:, 0]
    )


def measured(name: str, n: int, seed: int) -> list[float]:
    """Return error, doubt, NLL and rank correlation."""
    rng, f = np.random.default_rng(seed), function(seed)
    X, at = rng.normal(size=(n, 5)), rng.normal(size=(500, 5))
    y, truth = f(X) + 0.1 * rng.normal(size=n), f(at)
    if name in ("gp", "ensemble"):
        model = acting.fitted(name, seed, X, y)
    else:
        model = acting.fawn(seed, **SETTINGS[name]).fit(X, y)
    dist = model.predict_dist(at)
    dist = dist if dist.squeeze else dist.marginal(0)
    if dist.identified:
        doubt = dist.model_var.ravel() ** 0.5
    else:  # what the library does not state: of the KL counted for less
        doubt = np.std([draw_function(model, draw)(at) for draw in range(DRAWS)], axis=0)
    error = np.abs(dist.mean.ravel() - truth)
    observed = (truth + 0.1 * rng.normal(size=500)).reshape(dist.mean.shape)
    return [
        np.sqrt(np.mean(error**2)) / truth.std(),
        np.sqrt(np.mean(doubt**2)) / truth.std(),
        metrics.nll(observed, dist),
        spearmanr(doubt, error).statistic,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    models = [*SETTINGS, "gp", "ensemble"]
    parser.add_argument("--models", nargs="*", default=models, choices=models)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # so few rows and steps are meant
    print(f"error / doubt / NLL / rank correlation, means over {given.seeds} seeds\n")
    print("| model | " + " | ".join(f"{n} rows" for n in ROWS) + " |")
    print("|---|" + "---|" * len(ROWS))
    for name in given.models:
        cells = []
        for n in ROWS:
            found = np.mean([measured(name, n, seed) for seed in range(given.seeds)], axis=0)
            cells.append("{:.2f} / {:.2f} / {:.2f} / {:.2f}".format(*found))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
