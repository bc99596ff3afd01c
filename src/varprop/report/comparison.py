"""Several methods on the same rows: a verdict, a chart, and a table that sorts."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from varprop.report.benchmark import Cell, with_error
from varprop.report.dots import Dot, dot_chart
from varprop.report.files import write_page
from varprop.report.numerals import number
from varprop.report.svg import Axis

#: Columns by the name of their score, and whether lower is better (None: nearer to 90 %).
COLUMNS: dict[str, tuple[str, bool | None]] = {
    "nll": ("NLL", True),
    "crps": ("CRPS", True),
    "rmse": ("RMSE", True),
    "coverage90": ("in 90 % interval", None),
    "fit_seconds": ("seconds to fit", True),
    "predict_seconds": ("seconds to predict", True),
}
# Nats above the best beyond which a method is drawn at the edge of the chart.
_FAR = 2.0


def write_comparison_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    rows: Sequence[Mapping[str, Any]],
    verdict: str,
    n_rows: int,
    n_folds: int,
    notes: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> None:
    """Write one self-contained HTML page with a leaderboard.

    Parameters
    ----------
    path : path
        Where to write; an existing file is replaced, whole or not at all.
    title : str
        Heading of the page.
    rows : sequence of mappings
        In the order of the table, each with ``title`` and ``problem`` (why there are no scores),
        and for each key of `COLUMNS` a mean and a standard error, as ``nll_mean`` and ``nll_se``.
        The rows of the lines of `varprop.tables.Comparison` are such.
    verdict : str
        What it comes to.
    n_rows, n_folds : int
        How many rows were scored, in how many parts.
    notes : sequence of str
        Paragraphs above the table.
    settings : mapping, optional
        Settings to print.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> row = {"title": "Linear", "problem": "", "nll_mean": 2.41, "nll_se": 0.05}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "compare.html"
    ...     said = "Linear is alone."
    ...     write_comparison_report(path, title="T", rows=[row], verdict=said, n_rows=9, n_folds=3)
    ...     "Linear is alone." in path.read_text("utf-8")
    True
    """
    best = {name: _best(rows, name) for name in COLUMNS}
    shown = []
    for i, row in enumerate(rows):
        cells = [(_cell(row, name), i == best[name]) for name in COLUMNS]
        shown.append({"title": row["title"], "problem": row["problem"], "cells": cells})
    write_page(
        path,
        "comparison.html",
        settings=settings,
        title=title,
        rows=shown,
        columns=[heading for heading, _ in COLUMNS.values()],
        chart=_chart(rows),
        verdict=verdict,
        n_rows=n_rows,
        n_folds=n_folds,
        notes=[str(note) for note in notes],
    )


def _mean(row: Mapping[str, Any], name: str) -> float:
    """Return a mean, NaN if there is none."""
    return float(row.get(f"{name}_mean", math.nan))


def _cell(row: Mapping[str, Any], name: str) -> Cell:
    """Return what stands in a cell, and the number it sorts by."""
    if name != "coverage90":
        return with_error(row, name)
    share = {key: 100 * float(value) for key, value in row.items() if key.startswith(name)}
    found = with_error(share, name)
    return Cell(f"{found.text} %" if found.text else "", found.value)


def _best(rows: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """Return the number of the best row, by one score."""
    nearer = COLUMNS[name][1] is None
    values = np.array([_mean(row, name) for row in rows])
    values = np.abs(values - 0.9) if nearer else values
    return int(np.nanargmin(values)) if np.isfinite(values).any() else None


def _chart(rows: Sequence[Mapping[str, Any]]) -> Markup | None:
    """Draw NLL and its standard error, a line for each method."""
    known = [row for row in rows if math.isfinite(_mean(row, "nll"))]
    if not known:
        return None
    means = np.array([_mean(row, "nll") for row in known])
    errors = np.array([float(row["nll_se"]) for row in known])
    errors = np.where(np.isfinite(errors), errors, 0.0)
    far = float(means.min()) + _FAR
    dots = [
        Dot(
            name=str(row["title"]),
            value=mean,
            error=error,
            told=f"{row['title']}: {number(mean, 4)} ± {number(error, 2)}",
            kind="better",
        )
        for row, mean, error in zip(known, means.tolist(), errors.tolist(), strict=True)
    ]
    ends = [np.clip(means + sign * errors, None, far) for sign in (-1, 1)]
    x = Axis.around("NLL, lower is better", *ends)
    return dot_chart(dots, "NLL and its standard error.", x=x, limits=(-np.inf, far))
