"""Which model is less sure where no rows were: between two clusters, and beyond them?

    python benchmarks/between_and_beyond.py --store between.jsonl

The first input of the training rows lies between 0.7 and 2, on either side of 0; other inputs, if
any, are standard normal. The target is a drawn function (sines of the first input, of another phase
and frequency for every seed, and a hyperbolic tangent of the second) with noise of standard
deviation 0.1. Measured are, on 500 other rows each with the first input as in training ("data"),
between the clusters ("gap", at most 0.4 from 0) and outside ("beyond", 2.5 to 3.5 from 0): the root
mean square of what the model is unsure of, its error against the true function, and the share of
noisy targets within the 90 % interval. ROPD, and the stack, which mixes it in, do not tell their
doubt from noise: of these it is the whole spread. Medians over seeds. A model that knows where it
has no rows has a ratio of spreads, gap or beyond over data, as large as that of its errors.
"""

from __future__ import annotations

import warnings
from typing import Any

import acting
import numpy as np

from varprop import Recipe, StackedRegressor
from varprop.predictive import metrics

NETWORKS: dict[str, dict[str, Any]] = {
    "vi": {"objective": "vi"},
    "vi, noise by input": {"objective": "vi", "likelihood": "heteroscedastic"},
    "vi, gauss-newton": {"objective": "vi", "row_covariance": "gauss-newton"},
    "vi, KL x 0.1, gauss-newton": acting.SETTINGS["fawn"],
    "ropd": {"objective": "ropd"},
    "ropd, noise by input": {"objective": "ropd", "likelihood": "heteroscedastic"},
}
METHODS = [*NETWORKS, "stack", "gp", "ensemble"]
WHOLE = ("ropd", "ropd, noise by input", "stack")
INPUTS = {"1 input": 1, "5 inputs": 5}
PLACES = {"data": (0.7, 2.0), "gap": (0.0, 0.4), "beyond": (2.5, 3.5)}
# As many steps as the networks of a stack take.
RECIPE = Recipe(kl_warmup=2_000, cooldown=2_000, max_steps=8_000, stop=None)
NOISE = 0.1


def rows(place: str, d: int, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return inputs of one of the `PLACES`, half of them on either side."""
    X = rng.standard_normal((n, d))
    X[:, 0] = rng.choice([-1, 1], n) * rng.uniform(*PLACES[place], n)
    return X


def function(d: int, rng: np.random.Generator):
    """Return a drawn function of d inputs."""
    slow, fast = rng.uniform(0.5, 1.2), rng.uniform(1.5, 3.0)
    phase, size = rng.uniform(0, 2 * np.pi, 2), rng.uniform(0.5, 1.5)

    def f(X: np.ndarray) -> np.ndarray:
        more = 0.5 * np.tanh(2 * X[:, 1]) if d > 1 else 0.0
        first = np.sin(fast * X[:, 0] + phase[1])
        return size * np.sin(slow * X[:, 0] + phase[0]) + 0.5 * first + more

    return f


def measured(problem: str, method: str, seed: int, more: dict[str, Any]) -> dict[str, list[float]]:
    """Return spread, error and coverage at every place."""
    rng, d = np.random.default_rng([seed, 19]), INPUTS[problem]
    f, X = function(d, rng), rows("data", d, more["rows"], rng)
    y = f(X) + NOISE * rng.standard_normal(len(X))
    if method in ("gp", "ensemble"):
        model = acting.fitted(method, seed, X, y)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few rows are meant
            if method == "stack":
                model = StackedRegressor(random_state=seed, n_jobs=1).fit(X, y)
            else:
                model = acting.fawn(seed, recipe=RECIPE, **NETWORKS[method]).fit(X, y)
    found: dict[str, list[float]] = {"spread": [], "error": [], "covered": []}
    for place in PLACES:
        at = rows(place, d, 500, rng)
        dist, truth = model.predict_dist(at), f(at)
        dist = dist if dist.squeeze else dist.marginal(0)
        var = dist.var if method in WHOLE else dist.model_var
        found["spread"].append(float(np.sqrt(np.mean(var))))
        found["error"].append(float(np.sqrt(np.mean((dist.mean - truth) ** 2))))
        noisy = truth + NOISE * rng.standard_normal(len(at))
        found["covered"].append(float(metrics.interval_coverage(noisy, dist)))
    return found


def main() -> None:
    parser = acting.options(__doc__, problems=list(INPUTS), methods=METHODS, seeds=10)
    parser.add_argument("--rows", type=int, default=200)
    given = parser.parse_args()
    found = acting.run(given, measured, {"rows": given.rows})
    print(f"{given.rows} rows, noise {NOISE}; data / gap / beyond, medians over seeds\n")
    print(
        "| inputs | model | seeds | spread | error | spread over that at data | of errors "
        "| 90 % holds |\n|---|---|---|---|---|---|---|---|"
    )
    for name in given.problems:
        for method in given.methods:
            if not (seeds := acting.complete(found, name, [method])):
                continue
            cells = {
                kind: np.array([found[name, method, seed][kind] for seed in seeds])
                for kind in ("spread", "error", "covered")
            }
            spread, error, covered = (np.median(one, axis=0) for one in cells.values())
            ratios = [
                " / ".join(f"{x:.1f}" for x in np.median(one[:, 1:] / one[:, :1], axis=0))
                for one in (cells["spread"], cells["error"])
            ]
            label = f"{method} (whole)" if method in WHOLE else method
            print(
                f"| {name} | {label} | {len(seeds)} | "
                f"{' / '.join(f'{x:.3f}' for x in spread)} | "
                f"{' / '.join(f'{x:.3f}' for x in error)} | {' | '.join(ratios)} | "
                f"{' / '.join(f'{x:.0%}' for x in covered)} |"
            )


if __name__ == "__main__":
    main()
