"""One section of the report: everything about one target."""

from __future__ import annotations

from typing import Any

import numpy as np

from varprop.predictive import diagnostics
from varprop.predictive.contract import AbstractNumeric
from varprop.report import charts, words
from varprop.report.charts import Figure, Points
from varprop.report.counts import rootogram_figure
from varprop.report.numerals import aligned, number, plus_minus, to_precision
from varprop.report.regions import Column, Region, panel, regions

SURPRISING = 20
# Of tables of a model that is right, the share that lists a row by chance.
BY_CHANCE = 0.05
MAX_SHOWN = 8  # inputs beside a surprising row
BAND = ("band", "95 % range of chance")
IDEAL = ("ideal", "ideal")


def standard_scores(y: np.ndarray, prediction: AbstractNumeric) -> np.ndarray:
    """Return errors in stated deviations; infinite where a certain prediction was wrong."""
    error, std = y - prediction.mean, prediction.std
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(error == 0, 0.0, error / std)


def farther_than_chance(y: np.ndarray, prediction: AbstractNumeric) -> np.ndarray:
    """Return which rows lie farther out than the farthest of so many rows should."""
    pit = diagnostics.middle_pit(y, prediction)
    # The farthest of n independent rows lies beyond this level in `BY_CHANCE` of all cases.
    level = -np.expm1(np.log1p(-BY_CHANCE) / len(y))
    beyond: np.ndarray = 2.0 * np.minimum(pit, 1.0 - pit) < level
    return beyond


def choose_rows(order: np.ndarray, limit: int) -> np.ndarray:
    """Return the rows to draw: the first of an order and an even choice of the others."""
    n = len(order)
    if n <= limit:
        return np.arange(n)
    first = order[:SURPRISING]
    rest = np.setdiff1d(np.arange(n), first)
    drawn = np.random.default_rng(0).choice(rest, size=limit - len(first), replace=False)
    return np.sort(np.concatenate([first, drawn]))


def _region_finding(found: list[Region]) -> str:
    if not found or found[0].change <= 0.05 * float(found[0].total.max()):
        return "The stated spread hardly changes along any single input."
    region = found[0]
    place = int(np.argmax(region.total))
    where = f"around {number(region.at[place])}" if region.labels is None else region.labels[place]
    return (
        f"The largest change is along {region.name}: from {number(region.total.min())} "
        f"up to {number(region.total.max())} ({where})."
    )


def section(
    index: int,
    name: str,
    y: np.ndarray,
    prediction: AbstractNumeric,
    findings: words.Findings,
    columns: list[Column],
    labels: list[str],
    *,
    limit: int,
    max_panels: int,
) -> dict[str, Any]:
    """Return what the template shows about one target; `prediction` is of that output alone."""
    mean, std = prediction.mean, prediction.std
    z = standard_scores(y, prediction)
    far = farther_than_chance(y, prediction)
    order = np.lexsort((-np.abs(z), ~far))  # the surprising first, the largest errors before others
    rows = choose_rows(order, limit)
    rows = rows[np.argsort(y[rows], kind="stable")]
    points = Points(index, y[rows], mean[rows], std[rows], *prediction[rows].interval(0.9))
    curve = diagnostics.calibration_curve(y, prediction)
    histogram = diagnostics.pit_histogram(y, prediction)
    groups = diagnostics.error_by_std(y, prediction)
    outside = len(y) - round(findings.covered * len(y))
    calibrated = words.calibration_finding(curve, findings.judged)
    shape = words.pit_finding(histogram, findings.judged)
    announced = words.error_finding(groups, findings.judged)
    figures = [
        Figure(
            "Predicted against observed",
            charts.predicted_observed(points, name=name, coverage="90 %"),
            "Each mark is a row; its bar is the 90 % interval. A bar that crosses the dashed line "
            "holds the observed value.",
            f"{outside} of {len(y):,} observed values lie outside their interval.",
            (("dot", "inside"), ("diamond", "outside its interval"), ("ideal", "exact prediction")),
        ),
        Figure(
            "Do intervals hold what they promise?",
            charts.calibration(curve, f"Calibration curve. {calibrated}"),
            "For every stated coverage, the share of observed values that were inside. Below the "
            "dashed line means overconfident, above it too cautious.",
            calibrated,
            (("line", "this model"), BAND, IDEAL),
        ),
        Figure(
            "Where in the stated distribution did values fall?",
            charts.pit(histogram, f"PIT histogram. {shape}"),
            "If the stated distributions are right, all bars are about equally high (the PIT "
            f"histogram{', each count spread evenly over its step' * prediction.is_discrete}).",
            shape,
            (("bar", "rows"), ("band over", "95 % range of chance"), IDEAL),
        ),
        Figure(
            "Are large errors announced?",
            charts.error_against_std(
                points, groups, f"Error against stated deviation. {announced}"
            ),
            "Each mark is a row. Squares are groups of rows with similar stated deviation: their "
            "root mean square error should lie on the dashed line.",
            announced,
            (
                ("dot", "row"),
                ("diamond", "outside its interval"),
                ("square", "group"),
                ("chance", "95 % range of chance"),
            ),
        ),
    ]
    if prediction.is_discrete:
        figures.insert(3, rootogram_figure(y, prediction))
    found = regions(columns, std, prediction.model_std if prediction.identified else None)
    top = max((float(region.total.max()) for region in found), default=1.0)
    return {
        "index": index,
        "name": name,
        "findings": findings,
        "figures": figures,
        "panels": [(region.title, panel(region, top)) for region in found[:max_panels]],
        "n_inputs": len(found),
        "split": prediction.identified,
        "region_finding": _region_finding(found),
        "surprising": _surprising(
            order[: min(SURPRISING, int(far.sum()))], y, mean, std, z, rows, labels, columns
        ),
        "surprising_finding": _surprising_finding(int(far.sum()), len(y)),
        "inputs": [column.name for column in columns[:MAX_SHOWN]],
        "rows": rows,
        "hover": _hover(name, points, z[rows]),
    }


def _surprising_finding(count: int, n: int) -> str:
    if not count:
        return f"No row of {n:,} lies farther out than chance allows."
    lie = "row lies" if count == 1 else "rows lie"
    said = f"{count:,} {lie} farther out than chance allows for any of {n:,}"
    return f"{said}; the {SURPRISING} farthest are listed." if count > SURPRISING else f"{said}."


def _surprising(
    chosen: np.ndarray,
    y: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    z: np.ndarray,
    rows: np.ndarray,
    labels: list[str],
    columns: list[Column],
) -> list[dict[str, Any]]:
    """Return rows of a table: texts to show, each with what to sort by, and the inputs after it."""
    place = {int(row): i for i, row in enumerate(rows)}
    table = []
    for row in chosen.tolist():
        texts = (
            to_precision(y[row], std[row]),
            *plus_minus(mean[row], std[row]),
            _one_decimal(z[row]),
        )
        numbers = y[row], mean[row], std[row], float(np.clip(z[row], -1e300, 1e300))
        cells: list[tuple[str, float | str | None]] = list(zip(texts, numbers, strict=True))
        cells += [(column.text(row), column.key(row)) for column in columns[:MAX_SHOWN]]
        table.append({"point": place[row], "label": labels[row], "cells": cells})
    return table


def _one_decimal(z: float) -> str:
    return aligned([z], 2)[0] if abs(z) < 100 else number(z, 2)


def _hover(name: str, points: Points, z: np.ndarray) -> dict[str, object]:
    """Return what is said about each drawn row, as texts in drawing order."""
    std = points.std.tolist()
    lower, upper, observed = (
        [to_precision(value, spread) for value, spread in zip(side.tolist(), std, strict=True)]
        for side in (points.lower, points.upper, points.observed)
    )
    predicted = zip(points.predicted.tolist(), std, strict=True)
    return {
        "name": name,
        "observed": observed,
        "predicted": [" ± ".join(plus_minus(value, spread)) for value, spread in predicted],
        "interval": [f"{low} to {high}" for low, high in zip(lower, upper, strict=True)],
        "z": [_one_decimal(value) for value in z.tolist()],
    }
