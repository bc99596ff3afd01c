"""Does drawing a network explore better than not to explore, or to explore by chance? Bandits.

    VARPROP_DATA=folder python benchmarks/bandits.py --store bandits.jsonl

The wheel (Riquelme et al., 2018): contexts on a disk of radius 1, five arms. The first is worth
1.2 everywhere, the others 1.0, but beyond a radius of delta, where in each quadrant one of these is
worth 50 (noise 0.01). "pendigits" is made of a classification table: an arm for each of ten
classes, worth 1 if it is the row's class and 0 if not. Every arm is tried three times; models are
fitted anew whenever the rows have grown by a sixth. Regret, against who knows the truth, is in per
cent of that of arms chosen at random, mean over seeds with its standard error.

"greedy" and "e-greedy" (5 % at random) take our network's mean; "fawn" draws one of ten drawn
networks for every context (Thompson), "ensemble" one of its five networks; "linear" is Thompson
sampling of a Bayesian linear regression for each arm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import acting
import numpy as np

from varprop.decisions import draw_function

METHODS = ["greedy", "e-greedy", "fawn", "linear", "ensemble", "uniform"]
WHEELS = {f"wheel {delta}": delta for delta in (0.5, 0.9, 0.95, 0.99)}
PROBLEMS = [*WHEELS, "pendigits"]
EACH, EPSILON, DRAWS, GROWTH = 3, 0.05, 10, 7 / 6


class Task(NamedTuple):
    """Contexts (n, features) with what every arm is worth, without and with noise, (n, arms)."""

    contexts: np.ndarray
    worth: np.ndarray
    paid: np.ndarray


def task(name: str, n: int, rng: np.random.Generator) -> Task:
    """Return the contexts of a run in their order."""
    if name in WHEELS:
        radius, angle = np.sqrt(rng.uniform(size=n)), rng.uniform(0, 2 * np.pi, n)
        contexts = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
        worth = np.tile([1.2, 1.0, 1.0, 1.0, 1.0], (n, 1))
        far = np.flatnonzero(radius > WHEELS[name])
        worth[far, 1 + (angle[far] // (np.pi / 2)).astype(int) % 4] = 50.0
        return Task(contexts, worth, worth + 0.01 * rng.standard_normal(worth.shape))
    X, y = acting.table(name)
    rows = rng.permutation(len(X))[:n]
    scale = np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    worth = np.eye(int(y.max()) + 1)[y[rows].astype(int)]
    return Task(((X - X.mean(axis=0)) / scale)[rows], worth, worth)


def both(contexts: np.ndarray, arms: np.ndarray, n_arms: int) -> np.ndarray:
    """Return contexts and arms as inputs of a network."""
    return np.hstack([contexts, np.eye(n_arms)[arms]])


class Linear:
    """Bayesian linear regressions, one for each arm, with unknown noise."""

    def __init__(self, contexts: np.ndarray, arms: np.ndarray, y: np.ndarray, n_arms: int):
        self.arms = []
        for arm in range(n_arms):
            x = np.hstack([contexts[arms == arm], np.ones((int((arms == arm).sum()), 1))])
            own = y[arms == arm]
            precision = x.T @ x + 0.25 * np.eye(x.shape[1])
            mean = np.linalg.solve(precision, x.T @ own)
            shape = 6.0 + len(own) / 2
            scale = 6.0 + 0.5 * max(own @ own - mean @ precision @ mean, 0.0)
            self.arms.append((mean, np.linalg.inv(precision), shape, scale))

    def drawn(self, context: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        x, values = np.append(context, 1.0), []
        for mean, cov, shape, scale in self.arms:
            spread = np.sqrt(scale / rng.gamma(shape) * (x @ cov @ x))
            values.append(x @ mean + spread * rng.standard_normal())
        return np.array(values)


def regret(name: str, method: str, seed: int, more: dict[str, Any]) -> float:
    """Return the regret summed over a run."""
    n = more["contexts"]
    contexts, worth, paid = task(name, n, np.random.default_rng([seed, 13]))
    rng = np.random.default_rng([seed, 17])
    n_arms = worth.shape[1]
    arms = list(np.tile(np.arange(n_arms), EACH))
    refit, model, values, end = 0, None, np.zeros(0), 0
    for at in range(len(arms), n):
        if method == "uniform":
            arms.append(int(rng.integers(n_arms)))
            continue
        if at >= refit:  # and look at all contexts until the next time
            refit = max(at + 1, int(at * GROWTH))
            end = min(refit, n)
            seen, rewards = np.array(arms), paid[np.arange(at), arms]
            if method == "linear":
                model = Linear(contexts[:at], seen, rewards, n_arms)
            else:
                kind = "ensemble" if method == "ensemble" else "fawn"
                inputs = both(contexts[:at], seen, n_arms)
                model = acting.fitted(kind, seed + at, inputs, rewards)
                ahead = both(
                    np.repeat(contexts[at:end], n_arms, axis=0),
                    np.tile(np.arange(n_arms), end - at),
                    n_arms,
                )
                if method == "fawn":
                    drawn = [draw_function(model, int(rng.integers(2**31))) for _ in range(DRAWS)]
                    values = np.stack([f(ahead) for f in drawn])
                elif method == "ensemble":
                    values = model.predict_dist(ahead).member_mean[..., 0]
                else:
                    values = model.predict(ahead)[None]
                values = values.reshape(len(values), end - at, n_arms)
            first = at
        if method == "linear":
            arms.append(int(model.drawn(contexts[at], rng).argmax()))
        elif method == "e-greedy" and rng.uniform() < EPSILON:
            arms.append(int(rng.integers(n_arms)))
        else:
            arms.append(int(values[rng.integers(len(values)), at - first].argmax()))
    return float((worth.max(axis=1) - worth[np.arange(n), arms]).sum())


def main() -> None:
    parser = acting.options(__doc__, problems=PROBLEMS, methods=METHODS, seeds=10)
    parser.add_argument("--contexts", type=int, default=2_000)
    given = parser.parse_args()
    given.methods = [*(m for m in given.methods if m != "uniform"), "uniform"]
    found = acting.run(given, regret, {"contexts": given.contexts})
    print(f"regret after {given.contexts} contexts, per cent of random arms' (s.e.)\n")
    print("| task | runs | " + " | ".join(given.methods[:-1]) + " |")
    print("|---|---|" + "---|" * (len(given.methods) - 1))
    for name in given.problems:
        if not (seeds := acting.complete(found, name, given.methods)):
            continue
        cells = []
        for method in given.methods[:-1]:
            share = [
                100 * found[name, method, seed] / found[name, "uniform", seed] for seed in seeds
            ]
            error = np.std(share, ddof=1) / np.sqrt(len(share)) if len(share) > 1 else np.nan
            cells.append(f"{np.mean(share):.1f} ({error:.1f})")
        print(f"| {name} | {len(seeds)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
