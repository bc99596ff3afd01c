"""Exports of a 50-unit network: their size, rows per second beside JAX and ONNX, and the page.

    python benchmarks/exports.py                # all
    python benchmarks/exports.py --no-browser   # without the page's times

Speeds are of one thread, the best of several runs that take turns; the C compiler's flags are -O2.
"""

import argparse
import ctypes
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before NumPy reads it

import numpy as np  # noqa: E402

import varprop  # noqa: E402
from varprop.files.planning import plan_of  # noqa: E402

N_ROWS, TIMES = 10_000, 7
DRIVER = """
#include "model.h"
int run(int n, const double *x, double *o);
int run(int n, const double *x, double *o) {
  for (int i = 0; i < n; i++, x += model_COLUMNS, o += 4) {
    model_prediction f;
    int bad = model_predict(x, &f);
    if (bad) return bad;
    o[0] = f.mean[0];
    o[1] = f.std[0];
#ifdef INTERVAL
    model_interval(&f, 0, 0.9, o + 2, o + 3);
#endif
  }
  return 0;
}
"""
SCRIPT = """
import { predict, interval } from "./model.mjs";
import fs from "fs";
const rows = JSON.parse(fs.readFileSync("rows.json"));
const best = { "mean and std": Infinity, "and interval": Infinity };
for (let time = 0; time < 7; time++) for (const name of Object.keys(best)) {
  const start = performance.now();
  for (const row of rows) {
    const found = predict(row);
    if (name !== "mean and std") interval(found);
  }
  best[name] = Math.min(best[name], (performance.now() - start) / 1000);
}
console.log(JSON.stringify(best));
"""


def fitted(kind):
    """Return a 50-unit network, or the default stack, and rows to predict."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 13))
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.normal(size=500)
    if kind == "network":
        model = varprop.FAWNRegressor((50,), max_iter=1000, random_state=0)
    else:
        model = varprop.StackedRegressor(varprop.default_networks(max_iter=300), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y), rng.normal(size=(N_ROWS, 13))


def in_c(folder, dtype, interval):
    """Return a function of rows, compiled, and how far it is from Python at most."""
    place = folder / f"{dtype}{interval}"
    place.mkdir()
    shutil.copy(folder / f"{dtype}.h", place / "model.h")
    (place / "all.c").write_text(DRIVER)
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O2", "-shared", "-fPIC"]
    flags += ["-DINTERVAL"] * interval
    subprocess.run(["cc", *flags, "all.c", "-o", "all.so", "-lm"], cwd=place, check=True)
    library = ctypes.CDLL(str(place / "all.so"))
    pointer = ctypes.POINTER(ctypes.c_double)

    def run(X):
        out = np.zeros((len(X), 4))
        assert library.run(len(X), *(a.ctypes.data_as(pointer) for a in (X, out))) == 0
        return out

    return run


def speeds(model, X, folder):
    """Return rows per second by what predicts, and the largest errors of C."""
    import onnxruntime

    plan = plan_of(model)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", options, providers=["CPUExecutionProvider"]
    )
    few = 200

    def one_by_one(function):
        return lambda: [function(X[i : i + 1]) for i in range(few)]

    made = {f"C, {d}": in_c(folder, d, interval=False) for d in ("float64", "float32")}
    with_interval = {f"{n}, interval": in_c(folder, n[3:], interval=True) for n in made}
    runs = {name: (lambda f=f: f(X), len(X)) for name, f in {**made, **with_interval}.items()}

    def jax_all(X):
        found = model.predict_dist(X)
        return found.mean, found.std

    def numpy_all(X):
        found = plan.predict_dist(X)
        return found.mean, found.std

    def onnx_all(X):
        return session.run(["mean", "std"], {"X": X})

    for name, function in {"JAX": jax_all, "NumPy": numpy_all, "ONNX": onnx_all}.items():
        runs[f"{name}, all rows at once"] = (lambda f=function: f(X), len(X))
        runs[f"{name}, row by row"] = (one_by_one(function), few)
    best = dict.fromkeys(runs, np.inf)
    for _ in range(TIMES):
        for name, (run, _) in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    found = {name: runs[name][1] / seconds for name, seconds in best.items()}
    (folder / "rows.json").write_text(json.dumps(X.tolist()))
    (folder / "run.mjs").write_text(SCRIPT)
    if shutil.which("node"):
        done = subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, check=True)
        for name, seconds in json.loads(done.stdout).items():
            found[f"JavaScript, {name}"] = len(X) / seconds
    dist = plan.predict_dist(X)
    mean, std = dist.mean, dist.std
    size = np.maximum(np.abs(mean), std)
    errors = {}
    for name, function in made.items():
        out = function(X)
        errors[name] = max(
            np.max(np.abs(out[:, 0] - mean) / size), np.max(np.abs(out[:, 1] / std - 1))
        )
    return found, errors


def page_times(path):
    """Return milliseconds to the first paint, and the median and the 95 % quantile of redraws."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    browser.set_script_timeout(120)
    try:
        paints = []
        for _ in range(5):
            browser.get(path.as_uri())
            time.sleep(0.5)
            paints.append(
                browser.execute_script(
                    "return performance.getEntriesByName('first-contentful-paint')[0].startTime"
                )
            )
        redraws = browser.execute_async_script(
            """
            const done = arguments[0], found = [];
            const slider = document.querySelector("input[type=range]");
            let i = 0;
            function next() {
              if (i > 60) found.push(Number(document.body.dataset.redraw));
              if (i++ === 260) return done(found);
              slider.value = Number(slider.min) + (slider.max - slider.min) * (i % 50) / 50;
              slider.dispatchEvent(new Event("input"));
              requestAnimationFrame(() => setTimeout(next, 0));
            }
            next();
            """
        )
    finally:
        browser.quit()
    return min(paints), float(np.median(redraws)), float(np.quantile(redraws, 0.95))


def main():
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--no-browser", action="store_true", help="leave the page's times out")
    arguments = parser.parse_args()
    for kind in ("network", "stack"):
        model, X = fitted(kind)
        folder = pathlib.Path(tempfile.mkdtemp())
        for dtype in ("float64", "float32"):
            varprop.export(model, folder / f"{dtype}.h", to="c", dtype=dtype, name="model")
        varprop.export(model, folder / "model.mjs", to="js")
        varprop.export(model, folder / "model.onnx", to="onnx")
        varprop.export(model, folder / "model.html", to="page")
        model.save(folder / "model.safetensors")
        print(f"{kind}: 13 inputs, 50 units, {len(getattr(model, 'weights_', [0]))} part(s)")
        for name in ("model.safetensors", "float64.h", "float32.h", "model.mjs", "model.onnx"):
            print(f"  {name:34} {(folder / name).stat().st_size / 1000:10.1f} kB")
        print(f"  {'model.html':34} {(folder / 'model.html').stat().st_size / 1000:10.1f} kB")
        found, errors = speeds(model, X, folder)
        for name, speed in found.items():
            print(f"  {name:34} {speed:10,.0f} rows/s")
        for name, error in errors.items():
            print(f"  {name:34} {error:10.1e} largest error, mean and std of {N_ROWS:,} rows")
        if not arguments.no_browser and shutil.which("chromium"):
            paint, median, high = page_times(folder / "model.html")
            print(f"  {'page: first paint':34} {paint:10.0f} ms")
            print(f"  {'page: redraw, median':34} {median:10.1f} ms")
            print(f"  {'page: redraw, 95 %':34} {high:10.1f} ms")
        sys.stdout.flush()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
