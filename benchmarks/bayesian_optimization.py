"""How near does expected improvement come to the smallest value of a function, in 50 evaluations?

    python benchmarks/bayesian_optimization.py --store optimization.jsonl

Branin, Hartmann-6 and Ackley in ten dimensions, Branin with noise of standard deviation 10 on every
evaluation, and Hartmann-6 in the first six of 60 dimensions. Ten random points, then 40 chosen one
by one: the candidate with the largest expected improvement over the best point as the model sees
it, among 2,000 candidates, half of them anywhere, half around the best. Simple regret is the true
value at the point that is best (of those evaluated; with noise, by the model's mean) less the
function's minimum. Medians and quartiles over seeds; all methods begin with the same points.
"fawn-ts" takes in place of the expected improvement the smallest candidate of one drawn function;
"vi" is a network whose weights are independent of one another, as a stack has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import acting
import numpy as np

from varprop.decisions import draw_function, log_expected_improvement

METHODS = ["fawn", "fawn-ts", "vi", "gp", "ensemble", "random"]
START, CANDIDATES = 10, 2_000

_A = np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14]])
_A = np.vstack([_A, [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]])
_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def branin(u: np.ndarray) -> np.ndarray:
    x, y = 15 * u[:, 0] - 5, 15 * u[:, 1]
    bend = y - 5.1 / (4 * np.pi**2) * x**2 + 5 / np.pi * x - 6
    return bend**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(x) + 10


def hartmann(u: np.ndarray) -> np.ndarray:
    inner = (_A * (u[:, None, :6] - _P) ** 2).sum(axis=2)
    return -np.exp(-inner) @ np.array([1.0, 1.2, 3.0, 3.2])


def ackley(u: np.ndarray) -> np.ndarray:
    # Its minimum lies off the middle of the cube, which some methods try by themselves.
    x = 65.536 * u - 20.0
    near = -20 * np.exp(-0.2 * np.sqrt((x**2).mean(axis=1)))
    return near - np.exp(np.cos(2 * np.pi * x).mean(axis=1)) + 20 + np.e


class Problem(NamedTuple):
    """A function of the unit cube, and what is known of it."""

    function: Callable[[np.ndarray], np.ndarray]
    dimensions: int
    least: float
    noise: float = 0.0


PROBLEMS = {
    "branin": Problem(branin, 2, 0.397887),
    "hartmann6": Problem(hartmann, 6, -3.322368),
    "ackley10": Problem(ackley, 10, 0.0),
    "noisy branin": Problem(branin, 2, 0.397887, 10.0),
    "hartmann6 in 60": Problem(hartmann, 60, -3.322368),
}


def regrets(name: str, method: str, seed: int, more: dict[str, Any]) -> list[float]:
    """Return the simple regret after the start and after every evaluation."""
    problem = PROBLEMS[name]
    rng = np.random.default_rng([seed, 11])
    total = START + more["evaluations"]
    X = rng.uniform(size=(START, problem.dimensions))
    noise = problem.noise * rng.standard_normal(total)
    if method == "random":
        rest = rng.uniform(size=(more["evaluations"], problem.dimensions))
    y, found = problem.function(X) + noise[:START], []
    while True:
        if method == "random":
            ahead = y
        else:
            model = acting.fitted(method.removesuffix("-ts"), seed, X, y)
            dist = model.predict_dist(X)
            ahead = dist.mean.ravel()
        judged = ahead if problem.noise else y
        best = int(np.argmin(judged))
        found.append(float(problem.function(X[[best]])[0] - problem.least))
        if len(X) == total:
            return found
        if method == "random":
            new = rest[[len(X) - START]]
        else:
            at = acting.candidates(rng, X[best], CANDIDATES)
            if method.endswith("-ts"):
                worth = -draw_function(model, int(rng.integers(2**31)))(at)
            else:
                spread = acting.doubt(method, model.predict_dist(at))
                worth = log_expected_improvement(spread, float(ahead.min()), maximize=False)
            new = at[[int(np.argmax(worth))]]
        X, y = np.vstack([X, new]), np.append(y, problem.function(new) + noise[len(X)])


def main() -> None:
    parser = acting.options(__doc__, problems=list(PROBLEMS), methods=METHODS, seeds=20)
    parser.add_argument("--evaluations", type=int, default=40, help="after the first ten")
    given = parser.parse_args()
    found = acting.run(given, regrets, {"evaluations": given.evaluations})
    print(f"simple regret after {START} + {given.evaluations}: median (quartiles)\n")
    print("| function | seeds | " + " | ".join(given.methods) + " |")
    print("|---|---|" + "---|" * len(given.methods))
    for name in given.problems:
        if not (seeds := acting.complete(found, name, given.methods)):
            continue
        cells = []
        for method in given.methods:
            last = [found[name, method, seed][-1] for seed in seeds]
            low, middle, high = np.quantile(last, [0.25, 0.5, 0.75])
            cells.append(f"{middle:.3g} ({low:.3g} to {high:.3g})")
        print(f"| {name} | {len(seeds)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
