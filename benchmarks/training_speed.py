"""Speed and scale of training, as ratios measured inside one run (see docs/benchmarks.md).

    .venv/bin/python benchmarks/training_speed.py            # everything, some minutes
    .venv/bin/python benchmarks/training_speed.py step lanes # only these parts

Parts: step, depth, ways, large, lanes, cold, stack, rows, predict. Nothing else should run on the
machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import varprop
from varprop import nn, propagate
from varprop.nn.checking import sample_outputs
from varprop.nn.propagation import PROPAGATIONS
from varprop.training.preparation import prepare


def synthetic(n_rows: int, n_inputs: int, seed: int = 0) -> varprop.Data:
    """Rows of the shape of a real data set; speed does not depend on the values."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, n_inputs), np.float32)
    y = np.sin(x[:, :1]) + 0.1 * rng.standard_normal((n_rows, 1), np.float32)
    return varprop.Data(x, y)


def model(n_inputs: int, *, plain: bool = False, hidden: tuple[int, ...] = (50,), **options):
    weights = nn.PointWeights.init if plain else nn.GaussianWeights.init
    return varprop.regression_model(
        n_inputs,
        1,
        key=jax.random.key(0),
        hidden_layer_sizes=hidden,
        weights=weights,
        **options,
    )


def objective(plain: bool):
    return varprop.MaximumLikelihood() if plain else varprop.ROPD()


def best_of(jobs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Best wall-clock time of each job, run in turns so that noise hits all alike."""
    best = dict.fromkeys(jobs, float("inf"))
    for job in jobs.values():
        job()  # compile
    for _ in range(repeats):
        for name, job in jobs.items():
            begin = time.perf_counter()
            job()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def one_lane(data: varprop.Data, *, epochs: int, batch_size: int, plain: bool = False, **options):
    """A job that trains for some epochs: gather, value, gradient, KL, Adam."""
    recipe = varprop.Recipe(batch_size=batch_size)
    lane = varprop.Lane(
        model=model(data.x.shape[1], plain=plain, **options), key=jax.random.key(1), recipe=recipe
    )
    (runner,) = prepare([lane], data, objective(plain))
    return lambda: jax.block_until_ready(runner._run(runner.state, 0, epochs))


def report(name: str, value: float, target: str, met: bool) -> None:
    print(f"  {name:<58} {value:8.2f}   target {target:<9} {'met' if met else 'NOT MET'}")


def part_step() -> None:
    """A full training step against a plain network's on the same engine."""
    data, epochs = synthetic(7373, 8), 10
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # one thread on one core, as a lane runs
    jobs = {
        kind: one_lane(data, plain=kind == "plain", epochs=epochs, batch_size=128)
        for kind in ("plain", "fawn")
    }
    times = best_of(jobs, 15)
    os.sched_setaffinity(0, cores)
    steps = epochs * -(-data.n_rows // 128)
    for kind, seconds in times.items():
        print(f"  {kind:<8} {1e6 * seconds / steps:8.1f} us per step")
    ratio = times["fawn"] / times["plain"]
    report("FAWN-ROPD step / plain step, 8-50-1, batch 128", ratio, "<= 3", ratio <= 3)


def part_depth() -> None:
    """First-order against independent propagation, one thread on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    ways = ("independent", "first-order")
    data, x = synthetic(7373, 8), synthetic(200_000, 8).x
    for hidden in ((50, 50), (50, 50, 50)):
        jobs = {
            way: one_lane(data, epochs=4, batch_size=128, hidden=hidden, propagation=way)
            for way in ways
        }
        times = best_of(jobs, 15)
        ratio = times["first-order"] / times["independent"]
        report(f"step, first order / independent, {hidden}", ratio, "<= 1.8", ratio <= 1.8)
    jobs = {
        way: lambda way=way: propagate(model(8, hidden=(50, 50), propagation=way), x)
        for way in ways
    }
    times = best_of(jobs, 10)
    ratio = times["first-order"] / times["independent"]
    report("predict, first order / independent, (50, 50)", ratio, "<= 1.6", ratio <= 1.6)


def part_ways() -> None:
    """Mean and variance of 500 rows by every way of propagating, and by 1,000 drawn networks."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    x = jnp.asarray(synthetic(500, 8).x)
    for hidden in ((50, 50), (50, 50, 50)):
        nets = {way: model(8, hidden=hidden, propagation=way).network for way in PROPAGATIONS}
        compiled = {way: eqx.filter_jit(net.moments) for way, net in nets.items()}
        jobs = {
            way: lambda run=run: jax.block_until_ready(run(x).var) for way, run in compiled.items()
        }
        net = nets["first-order"]
        jobs["sampling"] = lambda net=net: sample_outputs(net, x, jax.random.key(0), 1000)
        times = best_of(jobs, 10)
        cells = [f"{way} {times[way] / times['independent']:.1f}" for way in jobs]
        micro = 1e6 * times["independent"] / len(x)
        print(f"  {hidden}: {', '.join(cells)} (independent is 1: {micro:.2f} us per row)")


def part_large() -> None:
    data = synthetic(8192, 512)
    kinds = {
        "plain": {"plain": True},
        "independent": {"propagation": "independent"},
        "first-order": {},
    }
    jobs = {
        kind: one_lane(data, epochs=1, batch_size=1024, hidden=(512, 512), **options)
        for kind, options in kinds.items()
    }
    times = best_of(jobs, 5)
    for kind, target in (("independent", 3.0), ("first-order", 4.5)):
        ratio = times[kind] / times["plain"]
        name = f"step / plain step, 512-512-512, batch 1024, {kind}"
        report(name, ratio, f"<= {target:g}", ratio <= target)


def part_lanes() -> None:
    """Ten lanes on both cores against the same ten on one, each in processes of its own."""
    cores = sorted(os.sched_getaffinity(0))
    best: dict[int, float] = {}
    for _ in range(3):
        for n in (1, 2):
            command = [sys.executable, "-c", _LANES, str(n), *map(str, cores[:n])]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            best[n] = min(best.get(n, float("inf")), float(done.stdout))
    alone = min(
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
        for command in [[sys.executable, "-c", _LANES, "1", *map(str, cores[:2])]]
    )
    print(f"  ten lanes of 4,800 steps: one core {best[1]:.2f} s, two cores {best[2]:.2f} s")
    print(f"  one lane at a time in a process that may use two cores: {alone:.2f} s")
    ratio = best[1] / best[2]
    report("throughput of ten lanes, two cores / one", ratio, ">= 1.7", ratio >= 1.7)


_LANES = """
import os, sys, time
# Before JAX: XLA makes as many threads as the process may use cores.
os.sched_setaffinity(0, {int(core) for core in sys.argv[2:]})
import jax, numpy as np
import varprop
rng = np.random.default_rng(0)
x = rng.standard_normal((2048, 8))
data = varprop.Data(x, x[:, :1] ** 2 + rng.standard_normal((2048, 1)))
recipe = varprop.Recipe(max_steps=4800, kl_warmup=0, cooldown=0, stop=varprop.StopRule(tol=0.0))
keys = [jax.random.key(i) for i in range(10)]
lanes = [
    varprop.Lane(model=varprop.regression_model(8, 1, key=key), key=key, recipe=recipe)
    for key in keys
]
best = float("inf")
for turn in range(4):  # the first compiles
    begin = time.perf_counter()
    varprop.fit_many(lanes, data, varprop.ROPD(), n_threads=int(sys.argv[1]))
    best = min(best, time.perf_counter() - begin)
print(best)
"""


_COLD = """
import sys, time
begin = time.perf_counter()
import jax, numpy as np
import varprop
from varprop import nn
if len(sys.argv) > 2:
    varprop.enable_compilation_cache(sys.argv[2])
plain = sys.argv[1] == "plain"
rng = np.random.default_rng(0)
x = rng.standard_normal((455, 13)); y = x[:, :1] ** 2 + rng.standard_normal((455, 1))
weights = nn.PointWeights.init if plain else nn.GaussianWeights.init
model = varprop.regression_model(13, 1, key=jax.random.key(0), weights=weights)
objective = varprop.MaximumLikelihood() if plain else varprop.ROPD()
data = varprop.Data(x, y)
loaded = time.perf_counter()
recipe = varprop.Recipe(max_steps=1, cooldown=0)
varprop.fit(model, data, objective, key=jax.random.key(1), recipe=recipe)
compiled = time.perf_counter()
varprop.fit(model, data, objective, key=jax.random.key(1))
print(compiled - loaded, time.perf_counter() - begin)
"""


def part_cold() -> None:
    """Import, compile and fit on Boston's shape at the defaults, each in a fresh process."""
    best: dict[str, tuple[float, float]] = {}
    # A cache that the caller keeps would make the cold fit a warm one.
    cold = {name: value for name, value in os.environ.items() if "COMPILATION_CACHE" not in name}

    def run(kind: str, *arguments: str) -> tuple[float, float]:
        out = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(_COLD), kind, *arguments],
            check=True, capture_output=True, text=True, env=cold,
        ).stdout.split()  # fmt: skip
        return float(out[0]), float(out[1])

    for _ in range(3):
        for kind in ("plain", "fawn"):
            compile_seconds, total = run(kind)
            before = best.get(kind, (np.inf, np.inf))
            best[kind] = (min(before[0], compile_seconds), min(before[1], total))
    ratio = best["fawn"][1] / best["plain"][1]
    print(f"  cold fit: plain {best['plain'][1]:.1f} s, FAWN {best['fawn'][1]:.1f} s")
    report("cold import + compile + fit, FAWN / plain", ratio, "<= 1.5", ratio <= 1.5)
    with tempfile.TemporaryDirectory() as folder:
        run("fawn", folder)
        warm = min(run("fawn", folder)[0] for _ in range(3))
    share = warm / best["fawn"][1]
    print(f"  first call: {best['fawn'][0]:.2f} s cold, {warm:.2f} s with a warm cache")
    report("warm cache: compiling / whole cold fit", share, "< 0.1", share < 0.1)


_STACK = """
import sys, time
import numpy as np, jax
from varprop import StackedRegressor, enable_compilation_cache
effort, *folder = sys.argv[1:]
if folder:
    enable_compilation_cache(*folder)
loaded, compiled = time.time(), []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: compiled.append(seconds) if "backend_compile" in event else None
)
rng = np.random.default_rng(0)
X = rng.standard_normal((500, 10))
y = np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(500)
def fit(seed):
    return StackedRegressor(effort=effort, random_state=seed, n_jobs=-1).fit(X, y)
fit(0)
first = time.time()
print(loaded, first, sum(compiled), len(compiled))
fit(1)
print(time.time() - first)
"""


def part_stack() -> None:
    """What a stack on 500 rows of 10 columns costs, from the start of the process."""
    plain = {name: value for name, value in os.environ.items() if "COMPILATION_CACHE" not in name}
    for effort, most_cold, most_second in (("quick", 4.0, 1.0), ("normal", 12.0, 6.0)):
        with tempfile.TemporaryDirectory() as folder:
            for kind, folders in (("cold", []), ("filled", [folder]), ("warm", [folder])):
                found = []
                for _ in range(1 if kind == "filled" else 3):
                    begin = time.time()
                    done = subprocess.run(
                        [sys.executable, "-W", "ignore", "-c", _STACK, effort, *folders],
                        check=True, capture_output=True, text=True, env=plain,
                    )  # fmt: skip
                    loaded, first, *rest = (float(number) for number in done.stdout.split())
                    found.append([loaded - begin, first - begin, *rest])
                imports, first, compiling, n_compiled, second = np.min(found, axis=0)
                print(
                    f"  {effort}, {kind} cache: imports {imports:.1f} s, {n_compiled:.0f} programs "
                    f"compiled or read in {compiling:.1f} s, fitted after {first:.1f} s"
                )
                if kind == "cold":
                    what = f"{effort}: start of the process to fitted, seconds"
                    report(what, first, f"<= {most_cold:g}", first <= most_cold)
                    what = f"{effort}: second fit, seconds"
                    report(what, second, f"<= {most_second:g}", second <= most_second)


def part_rows() -> None:
    """Time per row at the Year data's shape against a tenth of it, and the memory it takes."""
    times = {}
    for n in (50_000, 515_345):
        data = synthetic(n, 90)
        job = one_lane(data, plain=False, epochs=1, batch_size=128)
        times[n] = best_of({"fit": job}, 3)["fit"] / n
        del data, job
    ratio = times[515_345] / times[50_000]
    report("time per row, 515,345 x 90 / 50,000 x 90", ratio, "<= 1.3", ratio <= 1.3)
    code = """
    import numpy as np, jax, varprop
    def status(field):
        return int(open("/proc/self/status").read().split(field + ":")[1].split()[0])
    varprop.fit(varprop.regression_model(90, 1, key=jax.random.key(0)),
                varprop.Data(np.ones((64, 90), np.float32), np.ones(64)), varprop.ROPD(),
                key=jax.random.key(1), recipe=varprop.Recipe(max_steps=1))
    open("/proc/self/clear_refs", "w").write("5")  # forget the peak that compiling has left
    before = status("VmRSS")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((515_345, 90), np.float32); y = x[:, :1].copy()
    size = (x.nbytes + y.nbytes) / 1024
    data = varprop.Data(x, y)
    varprop.fit(varprop.regression_model(90, 1, key=jax.random.key(0)), data, varprop.ROPD(),
                key=jax.random.key(1), recipe=varprop.Recipe(max_steps=1))
    print((status("VmHWM") - before) / size)
    """
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=True, capture_output=True, text=True
    )
    ratio = float(out.stdout)
    report("peak memory / float32 data (the caller's copy included)", ratio, "<= 2.5", ratio <= 2.5)


def part_predict() -> None:
    """Mean and variance against a plain network's forward pass; a million rows."""
    x = synthetic(200_000, 8).x
    jobs = {
        kind: lambda kind=kind: propagate(model(8, plain=kind == "plain"), x)
        for kind in ("plain", "fawn")
    }
    times = best_of(jobs, 7)
    ratio = times["fawn"] / times["plain"]
    report("predict mean and variance / plain forward pass", ratio, "<= 4", ratio <= 4)
    big = synthetic(1_000_000, 10).x
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    propagate(model(10, plain=False), big)
    seconds = time.perf_counter() - begin
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(f"  a million rows of 10 columns: {seconds:.1f} s, {grown:.0f} MB more at the peak")


PARTS = {
    "step": part_step,
    "depth": part_depth,
    "ways": part_ways,
    "large": part_large,
    "lanes": part_lanes,
    "cold": part_cold,
    "stack": part_stack,
    "rows": part_rows,
    "predict": part_predict,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="all unless given")
    chosen = parser.parse_args().parts or list(PARTS)
    if len(chosen) == 1:
        print(chosen[0], flush=True)
        PARTS[chosen[0]]()
        return
    print(
        f"varprop {varprop.__version__}, jax {jax.__version__}, {os.cpu_count()} cores", flush=True
    )
    for name in chosen:
        # XLA makes its threads once, as many as the process may use cores at that moment.
        subprocess.run([sys.executable, __file__, name], check=True)


if __name__ == "__main__":
    main()
