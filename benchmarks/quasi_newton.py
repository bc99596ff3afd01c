"""Does L-BFGS reach the optimum sooner than Adam? The objective is deterministic on full batches.

    VARPROP_DATA=folder .venv/bin/python benchmarks/quasi_newton.py

VI on nine tenths of a split's *training* rows, the same start for both. Adam is the engine's, by
the plan of a stack's networks and by three times as many steps. L-BFGS is Optax's, full batches,
with its zoom line search, at the full KL from the start and with the KL rising in stages. Printed
are the final objective per row, processor seconds without compiling, and the negative
log-likelihood of the rows set aside, in standardized units; means over splits.
"""

from __future__ import annotations

import argparse
import functools
import os
import pathlib
import sys
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from recipe_study import SMALL, check_nll, load

import varprop
from varprop import nn
from varprop.learning.objectives import batch_loss

PLAN = varprop.Recipe(
    learning_rate=3e-2, kl_warmup=6_000, cooldown=3_000, max_steps=8_000, stop=None
)
ADAM = {
    "Adam, 8,000 steps": PLAN,
    "Adam, 24,000 steps": varprop.Recipe(
        kl_warmup=6_000, cooldown=5_000, max_steps=24_000, stop=None
    ),
}
#: Weights of the KL divergence, and the share of the iterations that each has.
STAGES = {
    "L-BFGS": ((1.0, 1.0),),
    "L-BFGS, KL in stages": ((0.01, 0.2), (0.1, 0.2), (0.3, 0.2), (1.0, 0.4)),
}


def minimized(model: varprop.Model, x: np.ndarray, y: np.ndarray, stages, n_steps: int):
    """Return the model after so many iterations, its objective, and processor seconds."""
    params, static = eqx.partition(model, eqx.is_inexact_array)
    n = jnp.asarray(float(len(x)), jnp.float32)
    x, y, weight = (jnp.asarray(part, jnp.float32) for part in (x, y, np.ones(len(x))))

    def loss(params, kl_weight):
        one = jnp.ones(())
        return batch_loss(
            varprop.VI(),
            eqx.combine(params, static),
            varprop.Gaussian(x),
            y,
            weight,
            key=jax.random.key(0),
            kl_weight=kl_weight,
            n_batches=one,
            total_weight=n,
        )

    rule = optax.lbfgs(memory_size=20)

    @functools.partial(jax.jit, static_argnames="n_steps")
    def run(params, kl_weight, n_steps):
        value = functools.partial(loss, kl_weight=kl_weight)

        def step(_, before):
            params, state = before
            now, slope = optax.value_and_grad_from_state(value)(params, state=state)
            change, state = rule.update(slope, state, params, value=now, grad=slope, value_fn=value)
            return optax.apply_updates(params, change), state

        return jax.lax.fori_loop(0, n_steps, step, (params, rule.init(params)))[0]

    plan = [(jnp.asarray(k, jnp.float32), int(share * n_steps)) for k, share in stages]
    for kl_weight, steps in plan:  # compile
        run(params, kl_weight, steps)
    begin = time.process_time()
    for kl_weight, steps in plan:
        params = run(params, kl_weight, steps)
    jax.block_until_ready(params)
    seconds = time.process_time() - begin
    return eqx.combine(params, static), float(loss(params, jnp.ones(()))), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", nargs="*", default=list(SMALL))
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=2_000)
    options = parser.parse_args()
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        sys.exit("set VARPROP_DATA to the folder with the data sets.")
    print(f"varprop {varprop.__version__}, {options.splits} splits\n")
    print("| data | | objective per row | NLL of rows set aside | processor s |")
    print("|---|---|---|---|---|", flush=True)
    for name in options.sets:
        x, y, train = load(pathlib.Path(folder), name)
        found: dict[str, list] = {}
        for split in range(options.splits):
            rows = np.random.default_rng(split).permutation(train[split])
            kept, rows = rows[: len(rows) // 10], rows[len(rows) // 10 :]
            start = varprop.regression_model(
                x.shape[1],
                1,
                key=jax.random.key(split),
                weights=functools.partial(nn.GaussianWeights.init, std=0.05),
            )
            for label, recipe in ADAM.items():
                run = functools.partial(
                    varprop.fit,
                    start,
                    varprop.Data(x[rows], y[rows]),
                    varprop.VI(),
                    key=jax.random.key(100 + split),
                )
                run(recipe=recipe.replace(max_steps=50, kl_warmup=10, cooldown=10))  # compile
                begin = time.process_time()
                fit = run(recipe=recipe)
                cost = time.process_time() - begin
                found.setdefault(label, []).append(
                    (fit.loss, check_nll(fit, x[kept], y[kept]), cost)
                )
            scaled = [
                (part - part[rows].mean(axis=0))
                / np.where(part[rows].std(axis=0) > 0, part[rows].std(axis=0), 1.0)
                for part in (x, y)
            ]
            for label, stages in STAGES.items():
                model, loss, cost = minimized(
                    start, scaled[0][rows], scaled[1][rows], stages, options.iterations
                )
                said = model.predictive(jnp.asarray(scaled[0][kept], jnp.float32))[0].total
                mean, var = np.asarray(said.mean), np.asarray(said.var)
                nll = 0.5 * np.mean(np.log(2 * np.pi * var) + (scaled[1][kept] - mean) ** 2 / var)
                found.setdefault(label, []).append((loss, float(nll), cost))
        for label, results in found.items():
            loss, nll, cost = np.mean(results, axis=0)
            print(f"| {name} | {label} | {loss:.3f} | {nll:.3f} | {cost:.1f} |", flush=True)


if __name__ == "__main__":
    main()
