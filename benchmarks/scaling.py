"""Training throughput against rows, columns, width, batch and lanes (docs/scaling.md).

    .venv/bin/python benchmarks/scaling.py

One setting is changed at a time from 20,000 rows, 10 columns, one hidden layer of 50, batches of
128. Rows per second are those of the compiled program, the best of several epochs, in a process on
one thread (`varprop.use_one_thread`); lanes are whole calls of `fit_many` on as many threads as
cores.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time

import jax
import numpy as np

import varprop
from varprop.nn.parameters import count_parameters
from varprop.training.preparation import prepare

BASE = {"rows": 20_000, "columns": 10, "width": 50, "batch": 128}
CHANGES = {
    "rows": [1_000, 20_000, 200_000, 2_000_000],
    "columns": [10, 100, 1_000],
    "width": [50, 200, 800, 3_200],
    "batch": [32, 128, 1_024, 8_192],
}
LANES = [1, 2, 4, 10]


def parts(rows: int, columns: int, width: int, batch: int, seed: int = 0):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, columns), np.float32)
    data = varprop.Data(x, np.sin(x[:, :1]))
    model = varprop.regression_model(
        columns, 1, key=jax.random.key(seed), hidden_layer_sizes=(width,)
    )
    return data, model, varprop.Recipe(batch_size=batch, kl_warmup=0, cooldown=0)


def one_lane(rows: int, columns: int, width: int, batch: int) -> tuple[float, int]:
    """Return rows per second and the number of parameters."""
    data, model, recipe = parts(rows, columns, width, batch)
    lane = varprop.Lane(model=model, key=jax.random.key(1), recipe=recipe)
    (runner,) = prepare([lane], data, varprop.ROPD())
    jax.block_until_ready(runner._run(runner.state, 0, 1))  # compiles
    best, spent = math.inf, 0.0
    while spent < 2.0:
        n_epochs = max(1, min(1000, 200_000 // rows))
        begin = time.perf_counter()
        jax.block_until_ready(runner._run(runner.state, 0, n_epochs))
        seconds = time.perf_counter() - begin
        best, spent = min(best, seconds / n_epochs), spent + seconds
    return rows / best, count_parameters(model)


def lanes(n: int) -> float:
    """Return rows per second of all lanes together."""
    data, _, recipe = parts(**BASE)
    steps = 10 * -(-data.n_rows // recipe.batch_size)
    recipe = recipe.replace(max_steps=steps, stop=varprop.StopRule(tol=0.0))
    group = [
        varprop.Lane(model=parts(**BASE, seed=i)[1], key=jax.random.key(i), recipe=recipe)
        for i in range(n)
    ]
    best = math.inf
    for _ in range(4):  # the first compiles
        begin = time.perf_counter()
        varprop.fit_many(group, data, varprop.ROPD())
        best = min(best, time.perf_counter() - begin)
    return n * 10 * data.n_rows / best


def main() -> None:
    if "--lanes" in sys.argv:
        print(f"{'lanes':>12}  {'rows/s':>12}")
        for n in LANES:
            print(f"{n:>12,}  {lanes(n):>12,.0f}", flush=True)
        return
    subprocess.run([sys.executable, __file__, "--lanes"], check=True)
    varprop.use_one_thread()
    for name, values in CHANGES.items():
        print(f"{name:>12}  {'rows/s':>12}  {'parameters':>12}  {'ns/row/param':>12}")
        for value in values:
            speed, n_parameters = one_lane(**{**BASE, name: value})
            each = 1e9 / speed / n_parameters
            print(f"{value:>12,}  {speed:>12,.0f}  {n_parameters:>12,}  {each:>12.3f}", flush=True)


if __name__ == "__main__":
    main()
