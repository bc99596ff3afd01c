"""What the command line costs: help, the start-up share of a fit, and streamed prediction.

    python benchmarks/cli_speed.py

Each part is a fresh process, and what is compared is processor time, which depends less than wall
time on what else the machine does. Modules are compiled to bytecode before, as an installer does.

- help: `varprop --help` against `python -c pass`, target at most 0.4 s more;
- fit: a CSV of 1,000 rows with a warm compilation cache; what a fit of one epoch costs (imports,
  reading, tracing, scoring, saving) as a share of a whole fit, target below one half;
- two rows: wall time of `varprop predict` on two rows of a CSV and on two whose column is misspelt,
  least of several, targets 1 s and 0.8 s, and processor time as a ratio to that of
  ``import numpy, pyarrow``;
- predict: ten numeric columns from Parquet to Parquet, on one core; rows per second of compute
  beyond start-up, target at least 300,000, and the time as a ratio to reading the file alone.

The exit code is always 0; the last lines say which targets are met.
"""

import argparse
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

READ = """
import sys, time, pyarrow.parquet as pq
begin = time.process_time()
rows = 0
for batch in pq.ParquetFile(sys.argv[1]).iter_batches(65536, use_threads=False):
    rows += sum(len(column.to_numpy()) for column in batch.columns)
print(time.process_time() - begin)
"""


def cost(command, **options):
    """Wall and processor seconds of a process, and what it printed."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    code = options.pop("code", 0)
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != code:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr}")
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, done.stdout


def best(repeats, command, **options):
    """The least processor time of several runs."""
    return least(repeats, command, **options)[1]


def least(repeats, command, **options):
    """The least wall and the least processor time of several runs."""
    runs = [cost(command, **options)[:2] for _ in range(repeats)]
    return tuple(map(min, zip(*runs, strict=True)))


def one_core():
    """Keep a process on one core, where the system knows how."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def make_tables(folder, n_rows):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 10))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=n_rows)
    table = pa.table({f"x{i}": X[:, i] for i in range(10)} | {"y": y})
    pq.write_table(table, folder / "big.parquet")
    pq.write_table(table.slice(0, 10), folder / "small.parquet")
    lines = [",".join(table.column_names)]
    lines += [",".join(f"{x:.6g}" for x in row) for row in np.column_stack([X, y])[:1000]]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    (folder / "two.csv").write_text("\n".join(lines[:3]) + "\n")
    (folder / "misspelt.csv").write_text("\n".join(lines[:3]).replace("x3", "x_3") + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the Parquet file")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    varprop = [sys.executable, "-m", "varprop"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_tables(folder, arguments.rows)
        bare = best(arguments.repeats, [sys.executable, "-c", "pass"])
        extra = best(arguments.repeats, [*varprop, "--help"]) - bare
        print(f"help: {extra:.2f} s beyond python -c pass ({bare:.2f} s)")

        environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache")}
        environment |= {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)  # it would go before
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        fit = [*varprop, "fit", folder / "data.csv", "-t", "y", "-o", folder / "m", "-q"]
        epoch = [*fit, "--max-iter", "1"]
        cold = cost(epoch, env=environment)[1]
        overhead = best(arguments.repeats, epoch, env=environment)
        whole = cost(fit, env=environment)[1]
        share = overhead / whole
        print(f"fit: {whole:.1f} s, one epoch {overhead:.1f} s (with a cold cache {cold:.1f} s)")

        def two_rows(table, code):
            command = [*varprop, "predict", folder / "m", folder / table, "-q"]
            cost(command, env=environment, code=code)  # which leaves the bytecode
            return least(3 * arguments.repeats, command, env=environment, code=code)

        two, misspelt = two_rows("two.csv", 0), two_rows("misspelt.csv", 3)
        packages = [sys.executable, "-c", "import numpy, pyarrow"]
        cost(packages, env=environment)
        imports = least(3 * arguments.repeats, packages, env=environment)
        for what, (wall, cpu) in (("two rows", two), ("a misspelt column", misspelt)):
            print(
                f"predict, {what}: {wall:.2f} s ({cpu:.2f} s of processor time), "
                f"{cpu / imports[1]:.1f} times importing numpy and pyarrow ({imports[0]:.2f} s, "
                f"{imports[1]:.2f} s)"
            )

        def predict(table):
            output = folder / "out.parquet"
            command = [*varprop, "predict", folder / "m", table, "-o", output, "-q"]
            return best(arguments.repeats, command, env=environment, preexec_fn=one_core)

        start = predict(folder / "small.parquet")
        compute = predict(folder / "big.parquet") - start
        command = [sys.executable, "-c", READ, folder / "big.parquet"]
        reading = min(
            float(cost(command, preexec_fn=one_core)[2]) for _ in range(arguments.repeats)
        )
        rate = arguments.rows / compute
        print(
            f"predict: start-up {start:.1f} s, then {rate:,.0f} rows/s of compute; "
            f"{compute / reading:.1f} times the reading of the file ({reading:.2f} s)"
        )
    print(f"help at most 0.4 s more: {'met' if extra <= 0.4 else 'MISSED'}")
    print(f"fit dominated by training, warm: {'met' if share < 0.5 else 'MISSED'} ({share:.0%})")
    print(f"two rows in 1 s: {'met' if two[0] <= 1 else 'MISSED'}")
    print(f"a misspelt column in 0.8 s: {'met' if misspelt[0] <= 0.8 else 'MISSED'}")
    print(f"predict at least 300,000 rows/s: {'met' if rate >= 3e5 else 'MISSED'}")


if __name__ == "__main__":
    main()
