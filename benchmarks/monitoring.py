"""How often is `varprop monitor` wrong, and what does it find? Simulated tables.

    .venv/bin/python benchmarks/monitoring.py --sets 200
    .venv/bin/python benchmarks/monitoring.py --sets 200 --model network --fits 10

Every table has ten columns of numbers (normal, lognormal, heavy tails, counts, a tenth of the
values missing), one of categories, and a target that is no line, with noise that depends on an
input. Models are fitted to `--train` rows, and each is given as many new tables of `--rows` rows as
make up `--sets`. "no change" is how many of these are called amber or red although they come from
the same population, with and without the targets; the range is that of Clopper and Pearson, at
95 %. The other lines are how many are found when one thing has changed: a column by half a standard
deviation (each of the ten in turn), the target by half a standard deviation of its noise, the noise
by half, a new category in a twentieth of the rows; or when a third of the targets, the last ones,
have moved by a standard deviation of the noise.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from scipy import stats

from varprop.tables import Roles, TableModel, fit_table, monitor_table
from varprop.tables.source import Source

N_NUMBERS = 10
Columns = dict[str, np.ndarray]


def table(n: int, rng: np.random.Generator) -> tuple[Columns, np.ndarray]:
    """Return the inputs, and the standard deviation of the noise of every row."""
    z = rng.normal(size=(n, N_NUMBERS))
    z[:, 1] = 0.8 * z[:, 0] + 0.6 * z[:, 1]
    z[:, 3:5] = np.exp(z[:, 3:5])
    z[:, 5] = rng.standard_t(3, n)
    z[:, 6:8] = rng.poisson([2.0, 20.0], (n, 2))
    z[:, 8] = rng.random(n)
    z[rng.random(n) < 0.1, 9] = np.nan
    found = {f"x{i}": z[:, i] for i in range(N_NUMBERS)}
    found["kind"] = rng.choice(["a", "b", "c", "d"], n, p=[0.5, 0.3, 0.15, 0.05])
    noise = 0.3 + 0.3 * z[:, 8]
    signal = np.sin(z[:, 0]) + 0.5 * z[:, 1] + 0.1 * z[:, 6] + (found["kind"] == "b")
    found["y"] = signal + noise * rng.normal(size=n)
    return found, noise


def changes(
    columns: Columns, noise: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[str, Columns]]:
    """Yield tables in which one thing has changed, and what."""
    n = len(noise)
    column = f"x{rng.integers(N_NUMBERS)}"
    step = 0.5 * np.nanstd(columns[column])
    yield "a column by half a std", columns | {column: columns[column] + step}
    yield "the target by half a std of noise", columns | {"y": columns["y"] + 0.5 * noise}
    yield (
        "noise half as large again",
        columns | {"y": columns["y"] + np.sqrt(1.25) * noise * rng.normal(size=n)},
    )
    new = np.where(rng.random(n) < 0.05, "new", columns["kind"])
    yield "a new category in 5 % of the rows", columns | {"kind": new}
    last = np.arange(n) >= 2 * n // 3
    yield (
        "the last third of the targets by a std of noise",
        columns | {"y": columns["y"] + last * noise},
    )


def source(columns: Columns, *, targets: bool = True) -> Source:
    """Return columns as a table."""
    kept = {name: v for name, v in columns.items() if targets or name != "y"}
    return Source.of_table(
        pa.table({name: pa.array(v, from_pandas=True) for name, v in kept.items()})
    )


def fitted(options: argparse.Namespace, rng: np.random.Generator, seed: int) -> TableModel:
    """Return a model of new training rows."""
    columns, _ = table(options.train, rng)
    settings = {"max_iter": options.max_iter} if options.model != "linear" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fit_table(
            source(columns),
            Roles(("y",), missing="impute"),
            settings,
            model=options.model,
            seed=seed,
        ).model


def study(options: argparse.Namespace) -> dict[str, list[int]]:
    """Return by change how many of how many tables are not green."""
    rng = np.random.default_rng(options.seed)
    alarms: Counter[str] = Counter()
    tables: Counter[str] = Counter()
    for fit in range(options.fits):
        model = fitted(options, rng, fit)
        for _ in range(options.sets // options.fits):
            columns, noise = table(options.rows, rng)
            cases = [
                ("no change, with targets", source(columns)),
                ("no change, inputs only", source(columns, targets=False)),
            ]
            cases += [(what, source(new)) for what, new in changes(columns, noise, rng)]
            for what, rows in cases:
                tables[what] += 1
                alarms[what] += monitor_table(model, rows).state != "green"
    return {what: [alarms[what], count] for what, count in tables.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--fits", type=int, default=40)
    parser.add_argument("--train", type=int, default=500)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--model", default="linear", choices=["linear", "network", "stack"])
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = study(options)
    if options.json:
        print(json.dumps(found))
        return
    sizes = f"{options.train} training rows, {options.rows} new rows"
    print(f"{options.model}, {sizes}: called amber or red")
    for what, (count, n) in found.items():
        low, high = stats.binomtest(count, n).proportion_ci(0.95)
        print(f"  {what:50} {count:4d} of {n}: {count / n:6.1%} ({low:.1%} to {high:.1%})")


if __name__ == "__main__":
    main()
