"""What the scikit-learn face costs: import, first and second fit, prediction of a million rows.

    python benchmarks/regressor_speed.py --data boston.parquet

All comparisons are ratios inside one run, each part in a fresh process; on a machine that does
other work at the same time they mean little. `--data` is a Parquet file whose last column is the
target; without it a synthetic data set of Boston's shape (506 rows, 13 features) is used.

- import: `import varprop` against `import jax, sklearn`, target 1.3 times at most;
- fit: a first `fit`, compilation included, against scikit-learn's Gaussian process with an ARD
  kernel and 3 restarts on the same rows, target 1 at most; and a second fit of equal shape, which
  must not compile;
- predict: rows per second and memory of `predict(return_std=True)` against the mean and spread of
  100 sampled networks of the same shape, target at least 20 times faster.

The exit code is always 0; the last lines say which targets are met.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np


def in_process(code: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - begin


def measure_imports(repeats: int) -> dict[str, float]:
    codes = {
        "bare": "pass",
        "varprop": "import varprop",
        "regressor": "from varprop import FAWNRegressor",
        "jax_sklearn": "import jax, sklearn",
    }
    times: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(repeats):  # interleaved, so that a busy moment hits all alike
        for name, code in codes.items():
            times[name].append(in_process(code))
    best = {name: min(values) for name, values in times.items()}
    return {name: best[name] - best["bare"] for name in codes if name != "bare"}


def rows(path: str | None) -> tuple[np.ndarray, np.ndarray]:
    if path is None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(506, 13))
        y = 3 * np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3:6].sum(axis=1)
        return X, y + 0.5 * rng.normal(size=506)
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(path).to_pandas().to_numpy(dtype=np.float64)
    return table[:, :-1], table[:, -1]


def part_gp(args) -> dict[str, float]:
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    X, y = rows(args.data)
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    model = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=3, random_state=0
    )
    begin = time.perf_counter()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # length scales at their bounds
        model.fit(X, y)
    return {"seconds": time.perf_counter() - begin}


def part_fit(args) -> dict[str, float]:
    from varprop import FAWNRegressor
    from varprop.training import program

    X, y = rows(args.data)
    out = {}
    for name, seed in (("first", 0), ("second", 1)):
        traces = program.trace_count
        begin = time.perf_counter()
        FAWNRegressor(random_state=seed).fit(X, y)
        out[name] = time.perf_counter() - begin
        out[f"{name}_traces"] = program.trace_count - traces
    return out


def part_predict(args) -> dict[str, float]:
    import jax
    import jax.numpy as jnp

    from varprop import FAWNRegressor
    from varprop.estimators.members import to_jax

    rng = np.random.default_rng(0)
    X = rng.normal(size=(args.rows, 10))
    model = FAWNRegressor(max_iter=5, random_state=0).fit(X[:1000], X[:1000, 0])
    model.predict(X[:10_000], return_std=True)  # compile
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    model.predict(X, return_std=True)
    seconds = time.perf_counter() - begin
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024

    network = to_jax(model.members_[0]).network
    keys = jax.random.split(jax.random.key(0), 100)

    @jax.jit
    def sampled(block):
        def one(total, key):
            out = network.sample(key)(block)
            return (total[0] + out, total[1] + out**2), None

        zero = jnp.zeros((len(block), 1))
        (first, second), _ = jax.lax.scan(one, (zero, zero), keys)
        return first / 100, jnp.sqrt(second / 100 - (first / 100) ** 2)

    part = X[: max(len(X) // 10, 4096)].astype(np.float32)
    blocks = [part[i : i + 4096] for i in range(0, len(part) - 4095, 4096)]
    sampled(blocks[0])[0].block_until_ready()
    begin = time.perf_counter()
    for block in blocks:
        np.asarray(sampled(block)[0])
    per_row = (time.perf_counter() - begin) / (4096 * len(blocks))
    return {"seconds": seconds, "grown_mib": grown, "sampling_seconds": per_row * len(X)}


PARTS = {"gp": part_gp, "fit": part_fit, "predict": part_predict}


def run(part: str, args) -> dict[str, float]:
    command = [sys.executable, __file__, "--part", part, "--rows", str(args.rows)]
    command += [] if args.data is None else ["--data", args.data]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="Parquet file, the target last")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows to predict")
    parser.add_argument("--repeats", type=int, default=5, help="imports of each kind")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.part:
        print(json.dumps(PARTS[args.part](args)))
        return
    imports = measure_imports(args.repeats)
    gp, fit, predict = (run(part, args) for part in ("gp", "fit", "predict"))
    ratio_import = imports["varprop"] / imports["jax_sklearn"]
    ratio_fit = fit["first"] / gp["seconds"]
    ratio_predict = predict["sampling_seconds"] / predict["seconds"]
    print(f"import varprop           {imports['varprop']:8.2f} s")
    print(f"import jax, sklearn      {imports['jax_sklearn']:8.2f} s")
    print(f"... and FAWNRegressor    {imports['regressor']:8.2f} s")
    print(f"Gaussian process fit     {gp['seconds']:8.2f} s")
    print(f"first fit                {fit['first']:8.2f} s  ({fit['first_traces']:.0f} traces)")
    print(f"second fit               {fit['second']:8.2f} s  ({fit['second_traces']:.0f} traces)")
    print(f"predict {args.rows:,} rows  {predict['seconds']:8.2f} s", end="")
    print(f"  (memory grew by {predict['grown_mib']:.0f} MiB)")
    print(
        f"100-sample prediction    {predict['sampling_seconds']:8.2f} s  (from a tenth of the rows)"
    )
    for name, value, target, good in (
        ("import", ratio_import, "<= 1.3", ratio_import <= 1.3),
        ("first fit / Gaussian process", ratio_fit, "<= 1", ratio_fit <= 1),
        ("traces of the second fit", fit["second_traces"], "0", fit["second_traces"] == 0),
        ("sampling / predict", ratio_predict, ">= 20", ratio_predict >= 20),
    ):
        print(f"{name}: {value:.2f}, target {target}: {'met' if good else 'MISSED'}")


if __name__ == "__main__":
    main()
