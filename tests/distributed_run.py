"""What the processes of test_distributed do: `python distributed_run.py <job> <folder> [place]`.

The place is `<address> <number of processes> <number of this one>`, or `slurm`; a process without
one is alone. Results are written to `<folder>/<number>.npz`.
"""

import os
import pathlib
import signal
import sys
import time

import jax
import numpy as np

import tiny
import varprop
from varprop import ROPD, FAWNRegressor, Lane, SampledVI, StopRule, fit, fit_many
from varprop.data import ParquetSource
from varprop.training.runner import Runner

N_ROWS = 100


def fitted(name: str, result) -> dict[str, np.ndarray]:
    """All that training decides, by names."""
    return {
        f"{name}.history": result.history,
        f"{name}.params": tiny.params(result.model),
        f"{name}.loss": np.asarray(result.loss),
        f"{name}.steps": np.asarray(result.n_steps),
        f"{name}.outcome": np.asarray(result.outcome.value),
    }


def resumable(**options):
    """Twenty windows of two epochs, warm-up and cool-down included."""
    recipe = tiny.recipe(
        max_steps=160,
        batch_size=33,
        kl_warmup=20,
        cooldown=40,
        stop=StopRule(window=8, tol=1e-6, patience=10**6),
    )
    return fit(
        tiny.model(0),
        tiny.data(N_ROWS),
        ROPD(),
        key=jax.random.key(1),
        recipe=recipe,
        devices=jax.devices(),
        **options,
    )


def every_engine(folder: pathlib.Path) -> dict[str, np.ndarray]:
    """In memory and streamed, one lane and several, drawn weights, batches of odd sizes."""
    found = fitted("resumable", resumable())
    recipe = tiny.recipe(max_steps=40, batch_size=33)
    data = tiny.data(N_ROWS)
    options = {"key": jax.random.key(1), "devices": jax.devices()}
    drawn = fit(tiny.model(0), data, SampledVI(n_samples=2), recipe=recipe, **options)
    found |= fitted("drawn", drawn)
    lanes = [
        Lane(model=tiny.model(seed), key=jax.random.key(seed), recipe=recipe) for seed in range(2)
    ]
    for number, result in enumerate(fit_many(lanes, data, ROPD(), devices=jax.devices())):
        found |= fitted(f"lane{number}", result)
    source = ParquetSource(folder / "rows", targets="y")
    streamed = fit(
        tiny.model(0),
        source,
        ROPD(),
        recipe=recipe.replace(batch_size=16),
        buffer_rows=48,
        **options,
    )
    found |= fitted("streamed", streamed)
    # Without being told of devices each process trains for itself.
    x, y = tiny.arrays(N_ROWS)
    regressor = FAWNRegressor(4, max_iter=5, n_restarts=1, random_state=0).fit(x, y[:, 0])
    found["regressor.mean"], found["regressor.std"] = regressor.predict(x, return_std=True)
    return found


def main() -> None:
    # A test suite in the background has SIGINT ignored, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    job, folder, *place = sys.argv[1], pathlib.Path(sys.argv[2]), *sys.argv[3:]
    if place == ["slurm"]:
        varprop.distributed.initialize(timeout=60)
    elif place:
        address, n, number = place
        varprop.distributed.initialize(address, int(n), int(number), timeout=60)
    me = jax.process_index()
    checkpoint = folder / f"{me}.checkpoint"  # the others' is not looked at
    found: dict[str, np.ndarray] = {}
    advance = Runner.advance
    if job == "every":
        found = every_engine(folder)
    elif job == "die":

        def die_half_way(self):
            advance(self)
            if me == 1 and self.schedule.position >= 20:
                os.kill(os.getpid(), signal.SIGKILL)

        Runner.advance = die_half_way
        resumable(checkpoint=checkpoint, checkpoint_every=0.0)
    elif job == "resume":
        found = fitted("resumable", resumable(checkpoint=checkpoint))
    elif job == "interrupt":

        def slowly(self):
            advance(self)
            print("window", flush=True)
            time.sleep(0.3)

        Runner.advance = slowly
        found = fitted("resumable", resumable())
    elif job == "unlike":
        data, devices = tiny.data(N_ROWS + me), jax.devices()
        fit(tiny.model(0), data, ROPD(), key=jax.random.key(1), devices=devices)
    np.savez(folder / f"{me}.npz", **found)


if __name__ == "__main__":
    main()
