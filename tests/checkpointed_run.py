"""The run that test_checkpoint kills: `python checkpointed_run.py <file> <number of lanes>`.

Slowed down between windows, so that there is time to be killed in; the numbers do not change.
"""

import signal
import sys
import time

import jax

import tiny
from varprop import ROPD, Lane, StopRule, fit_many
from varprop.training.runner import Runner


def lanes(n_lanes: int) -> list[Lane]:
    """Different starts and lengths; windows of five epochs, with warm-up and cool-down."""
    recipe = tiny.recipe(
        kl_warmup=30, cooldown=60, stop=StopRule(window=15, tol=1e-6, patience=10**6)
    )
    return [
        Lane(
            model=tiny.model(seed),
            key=jax.random.key(seed),
            recipe=recipe.replace(max_steps=600 + 90 * seed),
        )
        for seed in range(n_lanes)
    ]


def run(n_lanes: int, **options):
    """Train all lanes on seventy rows."""
    return fit_many(lanes(n_lanes), tiny.data(70), ROPD(), **options)


if __name__ == "__main__":
    # A test suite in the background has SIGINT ignored, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    path, n_lanes = sys.argv[1], int(sys.argv[2])
    advance = Runner.advance

    def slowly(self):
        advance(self)
        time.sleep(0.1)

    Runner.advance = slowly
    results = run(n_lanes, checkpoint=path, checkpoint_every=0.0, n_threads=2)
    print([result.outcome.value for result in results], flush=True)
