"""Benchmarks beside published numbers: a chart, and a table that sorts and filters."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from varprop.report.charts import Figure
from varprop.report.dots import Dot, dot_chart
from varprop.report.files import write_page
from varprop.report.numerals import number, percent, plus_minus
from varprop.report.svg import Axis

# Each verdict with a sign of its own, so that it does not hang on its color.
VERDICTS = {
    "reproduced": ("=", "Ours and the paper's agree within what chance allows."),
    "better": ("▲", "Ours is better than the paper's by more than chance allows."),
    "worse": ("▼", "Ours is worse than the paper's by more than chance allows."),
    "not in the paper": ("+", "The paper has no such entry."),
    "not run": ("○", "The data is there, but nothing was run yet."),
    "data not present": ("∅", "The data was not there, so nothing was run."),
}
# Nats from the best beyond which a result is drawn at the edge of the chart.
_FAR = 2.0
# These have no row in the table; they are named below it.
EMPTY = ("not run", "data not present")


@dataclass(frozen=True)
class Cell:
    """A text, the number it sorts by, and what is said when it is pointed at."""

    text: str
    value: float | None
    note: str = ""


def write_benchmark_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    rows: Sequence[Mapping[str, Any]],
    notes: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> None:
    """Write one self-contained HTML page with our results beside the paper's.

    Parameters
    ----------
    path : path
        Where to write; an existing file is replaced, whole or not at all.
    title : str
        Heading of the page.
    rows : sequence of mappings
        With ``dataset``, ``method`` and ``verdict`` (a key of `VERDICTS`), and where known
        ``protocol``, ``n_splits``, ``nll_mean``, ``nll_se``, ``nll_std``, ``rmse_mean``,
        ``rmse_se``, ``coverage90``, ``crps``, ``paper_nll``, ``paper_pm``, ``paper_pm_kind`` ("se"
        or "sd"), ``paper_note`` (a footnote) and ``difference_in_se`` (positive where ours is
        worse). ``title`` and ``method_title`` are shown instead of the short names, and
        ``units`` if they are not "raw". None or NaN is an empty cell. The rows of
        `varprop.bench.tables.table` are such.
    notes : sequence of str
        Paragraphs above the table.
    settings : mapping, optional
        Settings and versions to print.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> row = {"dataset": "boston", "method": "FAWN", "verdict": "reproduced", "nll_mean": 2.41}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "benchmark.html"
    ...     write_benchmark_report(path, title="Table 1", rows=[row])
    ...     "reproduced" in path.read_text("utf-8")
    True
    """
    for i, row in enumerate(rows):
        for name in ("dataset", "method", "verdict"):
            if name not in row:
                raise ValueError(f"Row {i} of the benchmark has no {name!r}.")
        if row["verdict"] not in VERDICTS:
            raise ValueError(
                f"Row {i} of the benchmark has the verdict {row['verdict']!r}; "
                f"choose one of {', '.join(VERDICTS)}."
            )
    everything = [_cells(row) for row in rows]
    shown = [row for row in everything if row["verdict"] not in EMPTY]
    counts = Counter(row["verdict"] for row in shown)
    write_page(
        path,
        "benchmark.html",
        settings=settings,
        title=title,
        rows=shown,
        figures=_figures(shown),
        missing=_missing(everything),
        datasets=list(dict.fromkeys(row["dataset"] for row in shown)),
        methods=list(dict.fromkeys(row["method"] for row in shown)),
        protocols=list(dict.fromkeys(row["protocol"] for row in shown if row["protocol"])),
        footnotes=[
            f"{row['dataset']}, {row['method']}: {row['footnote']}"
            for row in shown
            if row["footnote"]
        ],
        verdicts=[
            {"name": name, "sign": sign, "meaning": meaning, "count": counts[name]}
            for name, (sign, meaning) in VERDICTS.items()
            if counts[name]
        ],
        notes=[str(note) for note in notes],
    )


def _value(row: Mapping[str, Any], name: str) -> float | None:
    """Return a finite number or None."""
    value = row.get(name)
    return None if value is None or not math.isfinite(float(value)) else float(value)


def _signed(difference: float) -> str:
    return f"{difference:+z.1f}".replace("-", "−")


def with_error(row: Mapping[str, Any], name: str, note: str = "") -> Cell:
    """Return "2.41 ± 0.05", both to the second digit of the error.

    Examples
    --------
    >>> with_error({"nll_mean": 2.4137, "nll_se": 0.05}, "nll").text
    '2.414 ± 0.050'
    """
    mean, error = _value(row, f"{name}_mean"), _value(row, f"{name}_se")
    if mean is None:
        return Cell("", None, note)
    if error is None or not error > 0:
        return Cell(number(mean), mean, note)
    if not 1e-6 <= abs(mean) < 1e6:
        return Cell(f"{number(mean)} ± {number(error, 2)}", mean, note)
    return Cell(" ± ".join(plus_minus(mean, error)), mean, note)


def _as_printed(row: Mapping[str, Any]) -> str:
    """Return the paper's figure with the digits it has, and what its ± is."""
    value, pm = _value(row, "paper_nll"), _value(row, "paper_pm")
    if value is None:
        return ""
    text = f"{value:g}" if pm is None else f"{value:g} ± {pm:g} {row.get('paper_pm_kind') or ''}"
    return text.replace("-", "−").rstrip() + (" *" if row.get("paper_note") else "")


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return one row as texts, each with the number it sorts by."""
    difference, verdict = _value(row, "difference_in_se"), str(row["verdict"])
    held, crps = _value(row, "coverage90"), _value(row, "crps")
    splits, std = _value(row, "n_splits"), _value(row, "nll_std")
    spread = "" if std is None else f"± is a standard error; std {number(std, 2)}"
    units = str(row.get("units") or "raw")
    return {
        "dataset": str(row.get("title") or row["dataset"])
        + ("" if units == "raw" else f" ({units})"),
        "method": str(row.get("method_title") or row["method"]),
        "footnote": str(row.get("paper_note") or ""),
        "protocol": str(row.get("protocol") or ""),
        "verdict": verdict,
        "sign": VERDICTS[verdict][0],
        "difference": difference,
        "nll": _value(row, "nll_mean"),
        "nll_se": _value(row, "nll_se"),
        "paper": _value(row, "paper_nll"),
        "cells": [
            Cell(f"{splits:.0f}" if splits else "", splits),
            with_error(row, "nll", spread),
            Cell(_as_printed(row), _value(row, "paper_nll")),
            Cell("" if difference is None else _signed(difference), difference),
            with_error(row, "rmse"),
            Cell("" if held is None else percent(held), held),
            Cell("" if crps is None else number(crps), crps),
        ],
    }


def _figures(rows: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Return the chart of differences from the paper, and that of all results."""
    figures = []
    several = len({row["protocol"] for row in rows}) > 1
    parts = ("dataset", "method", "protocol") if several else ("dataset", "method")
    names = [", ".join(row[part] for part in parts if row[part]) for row in rows]
    dots = [
        Dot(
            name=name,
            value=row["difference"],
            error=0.0,
            told=f"{name}: {_signed(row['difference'])}, {row['verdict']}",
            kind=row["verdict"].split()[0],
        )
        for name, row in zip(names, rows, strict=True)
        if row["difference"] is not None
    ]
    if dots:
        steps = (-6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0)
        texts = tuple(f"{v:+.0f}".replace("-", "−") if v else "0" for v in steps)
        x = Axis("difference in standard errors", -6.5, 6.5, steps, texts)
        label = "Differences from the paper in standard errors."
        within = sum(abs(dot.value) <= 2 for dot in dots)
        figures.append(
            Figure(
                "How far from the paper?",
                dot_chart(dots, label, x=x, limits=(-6.0, 6.0), band=(-2.0, 2.0)),
                "Each mark is the difference of an NLL from the paper’s, in standard errors of "
                "that difference: to the left ours is better, to the right worse. The shaded "
                "range, two standard errors, is what chance allows; differences beyond 6 are drawn "
                "at the edge.",
                f"{within} of {len(dots)} are within what chance allows.",
            )
        )
    least: dict[str, float] = {}
    for row in rows:
        if row["nll"] is not None:
            least[row["dataset"]] = min(row["nll"], least.get(row["dataset"], math.inf))
    dots = [
        Dot(
            name=name,
            value=row["nll"] - least[row["dataset"]],
            error=row["nll_se"] or 0.0,
            told=f"{name}: {row['cells'][1].text}"
            + (f", in the paper {row['cells'][2].text}" if row["paper"] is not None else ""),
            kind="ours",
            other=None if row["paper"] is None else row["paper"] - least[row["dataset"]],
        )
        for name, row in zip(names, rows, strict=True)
        if row["nll"] is not None
    ]
    if dots:
        values = [d.value for d in dots] + [d.other for d in dots if d.other is not None]
        ends = [d.value + sign * d.error for d in dots for sign in (-1, 1)]
        x = Axis.around("NLL above ours lowest", np.clip([*values, *ends], -_FAR, _FAR))
        best = Counter(
            row["method"] for row in rows if row["nll"] == least.get(row["dataset"], math.nan)
        )
        lowest = " and ".join(f"{method}’s on {count}" for method, count in best.most_common())
        of = f"{len(least)} dataset{'s' if len(least) != 1 else ''}"
        figures.append(
            Figure(
                "Which states the likeliest distribution?",
                dot_chart(dots, "NLL, ours and the paper’s.", x=x, limits=(-_FAR, _FAR)),
                "Each dot is one of our mean NLLs, above the lowest that we have on its dataset, "
                "its line one standard error to both sides; further to the left is better. What "
                f"differs by more than {_FAR:g} is drawn at the edge.",
                f"Of ours, the lowest mean NLL is {lowest} of {of}.",
                (("dot", "ours"), ("other", "the paper’s"))
                if any(dot.other is not None for dot in dots)
                else (("dot", "ours"),),
            )
        )
    return figures


def _missing(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return what was not run: why, and which methods on which data."""
    found = []
    for verdict in EMPTY:
        methods: dict[str, list[str]] = {}
        for row in rows:
            if row["verdict"] == verdict:
                methods.setdefault(row["dataset"], []).append(row["method"])
        entries = "; ".join(f"{data} ({', '.join(names)})" for data, names in methods.items())
        if entries:
            found.append({"meaning": VERDICTS[verdict][1], "entries": entries})
    return found
