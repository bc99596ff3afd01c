"""More data than memory: peak memory and throughput of `fit` from files against rows in memory.

    .venv/bin/python benchmarks/streaming.py                  # 20 million rows, 0.9 GB on disk
    .venv/bin/python benchmarks/streaming.py --rows 200000    # a try

Makes the files in a temporary folder (or in --folder, where they are kept), then trains one epoch
from them and one from memory, each in a process of its own. Compilation is left out of both; the
reading of the files is part of the streamed epoch. Nothing else should run on the machine.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np

N_INPUTS, ROWS_PER_FILE, ROWS_PER_GROUP = 10, 2**20, 2**17
LIMIT_GB, LEAST_SHARE = 1.5, 0.7


def make(folder: pathlib.Path, n_rows: int) -> dict[str, float]:
    """Write the files, float32 and uncompressed (random numbers do not compress)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    slope = rng.standard_normal((N_INPUTS, 1), np.float32)
    for start in range(0, n_rows, ROWS_PER_FILE):
        n = min(ROWS_PER_FILE, n_rows - start)
        x = rng.standard_normal((n, N_INPUTS), np.float32)
        y = np.sin(x @ slope) + 0.1 * rng.standard_normal((n, 1), np.float32)
        columns = {f"x{i}": x[:, i] for i in range(N_INPUTS)} | {"y": y[:, 0]}
        path = folder / f"{start // ROWS_PER_FILE:04d}.parquet"
        pq.write_table(
            pa.table(columns),
            path,
            row_group_size=ROWS_PER_GROUP,
            compression="none",
            use_dictionary=False,
        )
    return {"bytes": sum(path.stat().st_size for path in folder.iterdir())}


def parts():
    """Return the model, the objective and the recipe of one epoch."""
    import jax

    import varprop

    model = varprop.regression_model(N_INPUTS, 1, key=jax.random.key(0), hidden_layer_sizes=(50,))
    return model, varprop.ROPD(), jax.random.key(1), varprop.Recipe(batch_size=128, cooldown=0)


def stream(folder: pathlib.Path, buffer_rows: int | None) -> dict[str, float]:
    """One epoch from the files."""
    import varprop
    from varprop.data import ParquetSource, Statistics

    source = ParquetSource(folder, targets="y")
    begin = time.perf_counter()
    statistics = Statistics.of(source)
    seconds = {"statistics": time.perf_counter() - begin}
    model, objective, key, recipe = parts()
    steps = -(-source.n_rows // recipe.batch_size)
    # The first buffer alone compiles what the whole epoch runs.
    for name, max_steps in (("warm", 1), ("epoch", steps)):
        begin = time.perf_counter()
        result = varprop.fit(
            model,
            source,
            objective,
            key=key,
            recipe=recipe.replace(max_steps=max_steps),
            statistics=statistics,
            buffer_rows=buffer_rows,
            final_pass=False,
        )
        seconds[name] = time.perf_counter() - begin
    assert result.n_steps == steps
    return {**seconds, "rows": source.n_rows, "peak": peak(), "loss": float(result.history[-1])}


def memory(folder: pathlib.Path) -> dict[str, float]:
    """One epoch on the same rows in memory."""
    import jax
    import jax.numpy as jnp

    import varprop
    from varprop.data import ParquetSource
    from varprop.training.preparation import prepare

    source = ParquetSource(folder, targets="y")
    x = np.empty((source.n_rows, N_INPUTS), np.float32)
    y = np.empty((source.n_rows, 1), np.float32)
    start = 0
    for block in range(len(source.block_rows)):
        for piece in source.read(block):
            x[start : start + len(piece.x)] = piece.x
            y[start : start + len(piece.x)] = piece.y
            start += len(piece.x)
    model, objective, key, recipe = parts()
    lane = varprop.Lane(model=model, key=key, recipe=recipe)
    (runner,) = prepare([lane], varprop.Data(x, y), objective)
    whole = runner.inputs
    runner.inputs = whole._replace(n_rows=jnp.int32(recipe.batch_size))
    jax.block_until_ready(runner._run(runner.state, 0, 1))  # compiles
    runner.inputs = whole
    begin = time.perf_counter()
    _, losses = jax.block_until_ready(runner._run(runner.state, 0, 1))
    seconds = time.perf_counter() - begin
    return {"epoch": seconds, "rows": source.n_rows, "peak": peak(), "loss": float(losses[0])}


def peak() -> float:
    """Return the most memory this process has held, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def apart(part: str, folder: pathlib.Path, options: argparse.Namespace) -> dict[str, float]:
    """Run a part in a process of its own: memory is a process's."""
    command = [sys.executable, __file__, "--part", part]
    command += ["--folder", str(folder), "--rows", str(options.rows)]
    if options.buffer_rows is not None:
        command += ["--buffer-rows", str(options.buffer_rows)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--buffer-rows", type=int, help="the default of fit unless given")
    parser.add_argument("--part", choices=["make", "stream", "memory"])
    options = parser.parse_args()
    if options.part == "make":
        print(json.dumps(make(options.folder, options.rows)))
        return
    if options.part == "stream":
        print(json.dumps(stream(options.folder, options.buffer_rows)))
        return
    if options.part == "memory":
        print(json.dumps(memory(options.folder)))
        return
    with tempfile.TemporaryDirectory(prefix="varprop-") as temporary:
        folder = options.folder or pathlib.Path(temporary)
        folder.mkdir(exist_ok=True)
        if not any(folder.iterdir()):
            apart("make", folder, options)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e9
        streamed, held = (apart(part, folder, options) for part in ("stream", "memory"))
    n_rows = streamed["rows"]
    share = held["epoch"] / streamed["epoch"]
    print(f"{n_rows:,} rows x {N_INPUTS} inputs, {size:.2f} GB of Parquet")
    print(f"  pass for the statistics     {streamed['statistics']:8.1f} s")
    for name, part in (("streamed", streamed), ("in memory", held)):
        print(
            f"  epoch {name:<20}  {part['epoch']:8.1f} s   {n_rows / part['epoch']:12,.0f} rows/s"
            f"   peak {part['peak']:.2f} GB   loss {part['loss']:.4f}"
        )
    report(
        "peak memory, streamed (GB)", streamed["peak"], f"< {LIMIT_GB}", LIMIT_GB - streamed["peak"]
    )
    report("throughput against memory", share, f">= {LEAST_SHARE}", share - LEAST_SHARE)


def report(name: str, value: float, target: str, margin: float) -> None:
    met = "met" if margin >= 0 else "NOT MET"
    print(f"  {name:<28} {value:8.2f}   target {target:<9} {met}")


if __name__ == "__main__":
    main()
