"""Two data-parallel processes on two cores against one process on one core (docs/scaling.md).

    .venv/bin/python benchmarks/data_parallel.py

Every process is bound to a core of its own. Strong scaling: the same batches, half of each on every
process; weak scaling: batches twice as large for two. Times are of whole epochs of the compiled
program, all messages included, the best of several; the two settings take turns. Nothing else
should run on the machine. Ends with 1 if strong scaling misses its target at the largest size.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time

LEAST_RATIO = 1.6
N_INPUTS = 64
#: Hidden layers and rows per batch, from the paper's to where compute dominates.
SIZES = [((50,), 128), ((256, 256), 1024), ((512, 512), 1024), ((512, 512), 4096)]


def work(options: argparse.Namespace) -> None:
    """What a process does: wait, train, print the seconds of a step."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[options.process]})
    import jax
    import numpy as np

    import varprop
    from varprop.nn.parameters import count_parameters
    from varprop.training.preparation import prepare

    if options.processes > 1:
        varprop.distributed.initialize(options.address, options.processes, options.process)
    hidden = tuple(json.loads(options.hidden))
    rng = np.random.default_rng(0)
    n_steps = options.steps
    x = rng.standard_normal((n_steps * options.batch, N_INPUTS), np.float32)
    data = varprop.Data(x, np.sin(x[:, :1]))
    model = varprop.regression_model(N_INPUTS, 1, key=jax.random.key(0), hidden_layer_sizes=hidden)
    lane = varprop.Lane(
        model=model, key=jax.random.key(1), recipe=varprop.Recipe(batch_size=options.batch)
    )
    (runner,) = prepare([lane], data, varprop.ROPD(), devices=jax.devices())
    best = float("inf")
    for turn in range(options.repeats + 1):
        begin = time.perf_counter()
        _, losses = jax.block_until_ready(runner._run(runner.state, 0, 1))
        if turn:  # the first compiles
            best = min(best, (time.perf_counter() - begin) / n_steps)
    if options.process == 0:
        found = {"step": best, "parameters": count_parameters(model), "loss": float(losses[0])}
        print(json.dumps(found))


def messages(options: argparse.Namespace) -> None:
    """What a process does: sum vectors of several lengths over both, print milliseconds."""
    import jax
    import numpy as np

    import varprop
    from varprop.training.devices import data_mesh, replicated

    varprop.distributed.initialize(options.address, options.processes, options.process)
    mesh, repeats = data_mesh(jax.devices()), 50
    assert mesh is not None
    whole = jax.sharding.PartitionSpec()

    def many(x, n):
        return jax.lax.fori_loop(0, n, lambda _, x: 0.5 * jax.lax.psum(x, mesh.axis_names[0]), x)

    summed = jax.jit(
        jax.shard_map(many, mesh=mesh, in_specs=(whole, whole), out_specs=whole, check_vma=False),
        out_shardings=replicated(mesh),
    )
    found = {}
    for size in (1, 6_500, 100_000, 600_000):
        x = np.ones(size, np.float32)
        jax.block_until_ready(summed(x, np.int32(1)))  # compiles
        best = float("inf")
        for _ in range(options.repeats):
            begin = time.perf_counter()
            jax.block_until_ready(summed(x, np.int32(repeats)))
            best = min(best, time.perf_counter() - begin)
        found[4 * size] = 1e3 * best / repeats
    if options.process == 0:
        print(json.dumps(found))


def measure(n_processes: int, hidden: tuple[int, ...], batch: int, steps: int) -> dict[str, float]:
    options = ["--hidden", json.dumps(hidden), "--batch", str(batch), "--steps", str(steps)]
    return run(n_processes, *options)


def run(n_processes: int, *options: str) -> dict[str, float]:
    """Start processes, and return what the first of them prints."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    command = [sys.executable, __file__, "--processes", str(n_processes), "--address", address]
    command += options
    running = [
        subprocess.Popen(
            [*command, "--process", str(number)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(n_processes)
    ]
    outputs = [process.communicate(timeout=600) for process in running]
    for process, (_, errors) in zip(running, outputs, strict=True):
        if process.returncode:
            raise SystemExit(errors)
    return json.loads(outputs[0][0].splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int)
    parser.add_argument("--process", type=int)
    parser.add_argument("--address")
    parser.add_argument("--hidden")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--turns", type=int, default=2)
    options = parser.parse_args()
    if options.processes:
        work(options) if options.hidden else messages(options)
        return 0
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("two cores are needed.")
    for n_bytes, milliseconds in run(2).items():
        print(f"a message of {int(n_bytes):>9,} bytes: {milliseconds:.2f} ms")
    head = ("network", "batch", "kB/step", "one, ms", "two, ms", "strong", "weak")
    print(("{:>16}{:>8}{:>10}{:>10}{:>10}{:>9}{:>9}").format(*head))
    for hidden, batch in SIZES:
        steps = max(8, min(200, 2**24 // (batch * max(hidden) ** (len(hidden)))))
        runs: dict[str, list[dict[str, float]]] = {"one": [], "two": [], "twice": []}
        for _ in range(options.turns):
            runs["one"].append(measure(1, hidden, batch, steps))
            runs["two"].append(measure(2, hidden, batch, steps))
            runs["twice"].append(measure(2, hidden, 2 * batch, steps))
        one, two, twice = (min(run["step"] for run in runs[name]) for name in runs)
        strong, weak = one / two, 2 * one / twice
        name = "-".join(map(str, (N_INPUTS, *hidden, 1)))
        volume = 4 * (runs["one"][0]["parameters"] + 1) / 1e3
        print(
            f"{name:>16}{batch:>8}{volume:>10,.0f}{1e3 * one:>10.2f}{1e3 * two:>10.2f}"
            f"{strong:>9.2f}{weak:>9.2f}",
            flush=True,
        )
        apart = abs(runs["one"][0]["loss"] - runs["two"][0]["loss"])
        assert apart <= 1e-4 * abs(runs["one"][0]["loss"]), "the losses differ"
    met = strong >= LEAST_RATIO
    print(
        f"two processes over one at the largest size: {strong:.2f}, target >= {LEAST_RATIO}: ",
        "met" if met else "NOT MET",
        sep="",
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
