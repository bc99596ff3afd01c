"""The paper's tables with ours beside them: differences in standard errors, and a verdict."""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import math
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from varprop.bench.methods import METHODS
from varprop.bench.registry import dataset, task
from varprop.bench.sources import DataNotPresent, load

Row = dict[str, Any]
#: Results by data set, method and protocol.
Groups = dict[tuple[str, ...], list[Row]]

TABLE1 = ("vi", "pbp", "gp", "fawn-vi", "fawn-ropd", "fawn-bern")
TABLE2 = ("fawn-ropd", "co-fawn")
#: The Sarcos training file cannot be had everywhere; its test file stands in, labelled as such.
STAND_IN = {"sarcos": "sarcos_test"}


@functools.cache
def published() -> dict[str, Any]:
    """Return the figures in print (`published.toml`).

    Examples
    --------
    >>> published()["table1"]["boston"]["fawn-ropd"]["value"]
    2.559
    """
    text = importlib.resources.files("varprop.bench").joinpath("published.toml").read_text("utf-8")
    return tomllib.loads(text)


@dataclasses.dataclass(frozen=True)
class Average:
    """Mean over splits, standard deviation over them, and standard error of the mean."""

    n: int
    mean: float
    std: float

    @property
    def se(self) -> float:
        """Standard error of the mean; NaN for a single split."""
        return self.std / math.sqrt(self.n) if self.n > 1 else math.nan

    @classmethod
    def of(cls, values: Iterable[float]) -> Average:
        """Average some numbers.

        Examples
        --------
        >>> Average.of([1.0, 2.0, 3.0])
        Average(n=3, mean=2.0, std=1.0)
        """
        numbers = np.array(list(values), np.float64)
        std = float(numbers.std(ddof=1)) if len(numbers) > 1 else math.nan
        return cls(len(numbers), float(numbers.mean()), std)


def latest(rows: Sequence[Row], *, seed: int | None = None) -> Groups:
    """Group results by data set, method and protocol: of several runs the one finished last.

    Results of different settings, versions or seeds are never averaged together.

    Parameters
    ----------
    rows
        From `Store.rows`.
    seed
        Only results of this seed.
    """
    runs: dict[tuple, list[Row]] = {}
    for row in rows:
        if seed in (None, row["seed"]):
            kind = tuple(row[key] for key in ("settings_digest", "version", "seed"))
            runs.setdefault((row["dataset"], row["method"], row["protocol"], kind), []).append(row)
    newest: Groups = {}
    for (*where, _), group in sorted(runs.items(), key=lambda run: run[1][-1]["finished"]):
        newest[tuple(where)] = sorted(group, key=lambda row: row["split"])
    return newest


def standard_error(figure: Row) -> float:
    """Return the standard error of a printed figure; NaN where none can be told."""
    pm = figure.get("pm")
    if pm is None or "kind" not in figure:
        return math.nan
    return float(pm / math.sqrt(figure["n"]) if figure["kind"] == "sd" else pm)


def verdict(ours: Average, figure: Row) -> tuple[float, str]:
    """Return the difference in combined standard errors, and what it means.

    Within two is *reproduced*; below, *better*; above, *worse*. Where neither side has a standard
    error the difference is NaN and its sign decides.

    Examples
    --------
    >>> verdict(Average(10, 2.5, 0.16), {"value": 2.559, "pm": 0.161, "kind": "sd", "n": 10})[1]
    'reproduced'
    """
    difference = ours.mean - figure["value"]
    errors = [e for e in (ours.se, standard_error(figure)) if not math.isnan(e)]
    if not errors:
        return math.nan, "better" if difference < 0 else "worse"
    in_se = difference / max(math.hypot(*errors), 1e-12)
    if abs(in_se) <= 2:
        return in_se, "reproduced"
    return in_se, "better" if in_se < 0 else "worse"


def table(
    number: int, rows: Sequence[Row], *, seed: int | None = None, data_dir: str | None = None
) -> list[Row]:
    """Return Table 1, 2 or 3 as rows, ours beside the paper's.

    Parameters
    ----------
    number
        1 (one output), 2 (several outputs) or 3 (sizes of the data).
    rows
        From `Store.rows`.
    seed, data_dir
        As in `latest` and `varprop.bench.sources.load`.

    Returns
    -------
    list of dict
        For Tables 1 and 2 one row per data set, method and protocol; what there is no result for
        says so in its verdict.

    Examples
    --------
    >>> table(3, [])[0]["title"]
    'Boston'
    """
    if number == 3:
        return _sizes(data_dir)
    figures = published()[f"table{number}"]
    columns = TABLE1 if number == 1 else TABLE2
    groups = latest(rows, seed=seed)
    found = []
    for name, printed in figures.items():
        for key in (name, STAND_IN.get(name)):
            # Methods beyond the paper's, and the stand-in, where results exist.
            extra = [m for m in METHODS if m not in columns and _has(groups, key, m)]
            for method_name in (*columns, *extra):
                if key is not None:
                    figure = printed.get(method_name)
                    found += _lines(groups, key, method_name, figure, key != name, data_dir)
    return found


def _has(groups: Groups, name: str | None, method_name: str) -> bool:
    return any(key[:2] == (name, method_name) for key in groups)


def _lines(
    groups: Groups,
    name: str,
    method_name: str,
    printed: Row | None,
    stand_in: bool,
    data_dir: str | None,
) -> list[Row]:
    chosen, method = task(name), METHODS[method_name]
    figure = None if stand_in else printed
    shown = figure or {}
    head = {
        "dataset": name,
        "title": chosen.title,
        "method": method_name,
        "method_title": method.title,
        "paper_nll": shown.get("value"),
        "paper_pm": shown.get("pm"),
        "paper_pm_kind": shown.get("kind"),
        "paper_note": shown.get("misprint"),
        "units": (printed or {}).get("units", "raw"),
    }
    lines = []
    for protocol in method.protocols:
        group = groups.get((name, method_name, protocol))
        if group:
            lines.append(head | {"protocol": protocol} | _ours(group, head["units"], figure))
    if lines or printed is None:
        return lines
    present = _present(name, data_dir)
    if figure is not None and method.refuses(chosen) and not present:
        return []
    state = "not run" if present else "data not present"
    return [head | {"protocol": None, "n_splits": 0, "verdict": state}]


def _ours(group: list[Row], units: str, figure: Row | None) -> Row:
    suffix = "_standardized" if units == "standardized" else ""
    nll, rmse = (Average.of(row[score + suffix] for row in group) for score in ("nll", "rmse"))
    in_se, word = (math.nan, "not in the paper") if figure is None else verdict(nll, figure)
    found = {
        f"{score}_{part}": getattr(average, part)
        for score, average in (("nll", nll), ("rmse", rmse))
        for part in ("mean", "std", "se")
    }
    found["nll_other_units"] = Average.of(
        row["nll" if suffix else "nll_standardized"] for row in group
    ).mean
    for score in ("crps", "coverage50", "coverage90", "seconds"):
        found[score] = Average.of(row[score] for row in group).mean
    last = {key: group[-1][key] for key in ("version", "seed", "settings_digest")}
    return {"n_splits": nll.n, **found, "difference_in_se": in_se, "verdict": word, **last}


@functools.cache
def _present(name: str, data_dir: str | None) -> bool:
    try:
        load(task(name).dataset, folder=data_dir)
    except DataNotPresent:
        return False
    return True


def _sizes(data_dir: str | None) -> list[Row]:
    found = []
    for name, printed in published()["table3"].items():
        data = dataset(name)
        same = (printed["n"], printed["d"]) == (data.n, data.d)
        found.append(
            {
                "dataset": name,
                "title": data.title,
                "n": data.n,
                "d": data.d,
                "targets": len(data.targets),
                "paper_n": printed["n"],
                "paper_d": printed["d"],
                "verdict": "reproduced" if same else "differs",
                "present": _present(name, data_dir),
            }
        )
    return found
