"""What a training step of classes costs, as a ratio to the regression step of the same network.

Ten inputs, 50 hidden units, batches of 128, one thread; loss and gradient, 50 steps per call. Calls
take turns, and the smallest time of each (of the processor, since others may use it too) counts.

    python benchmarks/classification_speed.py
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import varprop
from varprop import ROPD, VI, Gaussian, GaussianLikelihood, regression_model
from varprop.learning.likelihoods import BernoulliLikelihood, Categorical
from varprop.learning.objectives import batch_loss
from varprop.nn.parameters import take_apart

ROWS, INPUTS, STEPS, CALLS = 128, 10, 50, 60
LIKELIHOODS = {
    "regression": lambda: GaussianLikelihood,
    "two classes": lambda: BernoulliLikelihood.of_frequencies([0.5, 0.5]),
    "ten classes": lambda: Categorical.of_frequencies(np.full(10, 0.1)),
}


def steps(objective, likelihood, classes):
    """Return a compiled function of `STEPS` steps, called once, and where it starts."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(ROWS, INPUTS)), jnp.float32)
    y = rng.normal(size=(ROWS, 1)) if classes == 0 else rng.integers(classes, size=(ROWS, 1))
    y = jnp.asarray(y, jnp.float32)
    model = regression_model(INPUTS, 1, key=jax.random.key(0), likelihood=likelihood)
    structure, start, constants = take_apart(model)
    numbers = {"kl_weight": 1.0, "n_batches": 10.0, "total_weight": 1280.0}

    def loss(params):
        model = structure.build(params, constants)
        weight = jnp.ones(ROWS)
        key = jax.random.key(0)
        return batch_loss(objective, model, Gaussian(x), y, weight, key=key, **numbers)

    def one(_, params):
        return params - 1e-6 * jax.grad(loss)(params)

    run = jax.jit(lambda params: jax.lax.fori_loop(0, STEPS, one, params))
    run(start).block_until_ready()
    return run, start


def main():
    """Print the ratios."""
    varprop.use_one_thread()
    print("| step | " + " | ".join(LIKELIHOODS) + " |\n|" + "---|" * (1 + len(LIKELIHOODS)))
    for objective in (VI(), ROPD()):
        sizes = zip(LIKELIHOODS.items(), (0, 2, 10), strict=True)
        runs = {name: steps(objective, make(), n) for (name, make), n in sizes}
        best = dict.fromkeys(runs, np.inf)
        for _ in range(CALLS):
            for name, (run, start) in runs.items():
                begin = time.process_time()
                run(start).block_until_ready()
                best[name] = min(best[name], time.process_time() - begin)
        cells = " | ".join(f"{best[name] / best['regression']:.2f}" for name in runs)
        micro = 1e6 * best["regression"] / STEPS
        print(f"| {type(objective).__name__} ({micro:.0f} µs) | {cells} |", flush=True)


if __name__ == "__main__":
    main()
