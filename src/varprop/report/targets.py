"""One section of the report: everything about one target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from varprop.predictive import diagnostics
from varprop.predictive.distribution import Predictive
from varprop.report import charts, words
from varprop.report.charts import Figure, Points
from varprop.report.numerals import aligned, number, plus_minus, to_precision
from varprop.report.regions import Column, Region, panel, regions

__all__ = ["Section", "SurprisingRow", "choose_rows", "section"]

SURPRISING = 20
BAND = ("band", "95 % range of chance")
IDEAL = ("ideal", "ideal")


@dataclass(frozen=True)
class SurprisingRow:
    """A row of the table of surprises: texts to show and numbers to sort by."""

    point: int
    label: str
    observed: float
    predicted: float
    std: float
    z: float
    texts: tuple[str, str, str, str]
    sort_z: float


@dataclass(frozen=True)
class Section:
    """What the template shows about one target."""

    index: int
    name: str
    findings: words.Findings
    figures: list[Figure]
    panels: list[tuple[str, object]]
    n_inputs: int
    region_finding: str
    surprising: list[SurprisingRow]
    rows: np.ndarray
    hover: dict[str, object]


def standard_scores(y: np.ndarray, prediction: Predictive) -> np.ndarray:
    """Return errors in stated deviations; infinite where a certain prediction was wrong."""
    error, std = y - prediction.mean, prediction.std
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(error == 0, 0.0, error / std)


def choose_rows(z: np.ndarray, limit: int) -> np.ndarray:
    """Return the rows to draw: the most surprising ones and an even choice of the others."""
    n = len(z)
    if n <= limit:
        return np.arange(n)
    first = np.argsort(-np.abs(z), kind="stable")[:SURPRISING]
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
    prediction: Predictive,
    columns: list[Column],
    labels: list[str],
    *,
    limit: int,
    max_panels: int,
) -> Section:
    """Work out one target; `prediction` is of that output alone."""
    mean, std = prediction.mean, prediction.std
    z = standard_scores(y, prediction)
    rows = choose_rows(z, limit)
    rows = rows[np.argsort(y[rows], kind="stable")]
    points = Points(index, y[rows], mean[rows], std[rows], *prediction[rows].interval(0.9))
    findings = words.find(y, prediction)
    curve = diagnostics.calibration_curve(y, prediction)
    histogram = diagnostics.pit_histogram(y, prediction)
    groups = diagnostics.error_by_std(y, prediction)
    outside = len(y) - round(findings.covered[1] * len(y))
    said = (
        words.calibration_finding(curve),
        words.pit_finding(histogram, diagnostics.middle_pit(y, prediction)),
    )
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
            charts.calibration(curve, f"Calibration curve. {said[0]}"),
            "For every stated coverage, the share of observed values that were inside. Below the "
            "dashed line means overconfident, above it too cautious.",
            said[0],
            (("line", "this model"), BAND, IDEAL),
        ),
        Figure(
            "Where in the stated distribution did values fall?",
            charts.pit(histogram, f"PIT histogram. {said[1]}"),
            "If the stated distributions are right, all bars are about equally high (the PIT "
            "histogram).",
            said[1],
            (("bar", "rows"), ("band over", "95 % range of chance"), IDEAL),
        ),
        Figure(
            "Are large errors announced?",
            charts.error_against_std(
                points, groups, f"Error against stated deviation. {words.error_finding(groups)}"
            ),
            "Each mark is a row. Squares are groups of rows with similar stated deviation: their "
            "root mean square error should lie on the dashed line.",
            words.error_finding(groups),
            (
                ("dot", "row"),
                ("diamond", "outside its interval"),
                ("square", "group"),
                ("chance", "95 % range of chance"),
            ),
        ),
    ]
    found = regions(columns, std, np.sqrt(prediction.model_var))
    top = max((float(region.total.max()) for region in found), default=1.0)
    shown = found[:max_panels]
    return Section(
        index=index,
        name=name,
        findings=findings,
        figures=figures,
        panels=[(region.title, panel(region, top)) for region in shown],
        n_inputs=len(found),
        region_finding=_region_finding(found),
        surprising=_surprising(y, mean, std, z, rows, labels),
        rows=rows,
        hover=_hover(name, points, z[rows], rows),
    )


def _surprising(
    y: np.ndarray,
    mean: np.ndarray,
    std: np.ndarray,
    z: np.ndarray,
    rows: np.ndarray,
    labels: list[str],
) -> list[SurprisingRow]:
    place = {int(row): i for i, row in enumerate(rows)}
    table = []
    for row in np.argsort(-np.abs(z), kind="stable")[:SURPRISING].tolist():
        around, spread = plus_minus(mean[row], std[row])
        texts = (to_precision(y[row], std[row]), around, spread, _one_decimal(z[row]))
        sort_z = float(np.clip(z[row], -1e300, 1e300))
        table.append(
            SurprisingRow(
                place[row], labels[row], y[row], mean[row], std[row], z[row], texts, sort_z
            )
        )
    return table


def _one_decimal(z: float) -> str:
    return aligned([z], 2)[0] if abs(z) < 100 else number(z, 2)


def _hover(name: str, points: Points, z: np.ndarray, rows: np.ndarray) -> dict[str, object]:
    """Return what is said about each drawn row, as texts in drawing order."""
    std = points.std.tolist()
    bounds = [
        [to_precision(value, spread) for value, spread in zip(side.tolist(), std, strict=True)]
        for side in (points.lower, points.upper, points.observed)
    ]
    predicted = zip(points.predicted.tolist(), std, strict=True)
    return {
        "name": name,
        "row": rows.tolist(),
        "observed": bounds[2],
        "predicted": [" ± ".join(plus_minus(value, spread)) for value, spread in predicted],
        "interval": [f"{low} to {high}" for low, high in zip(*bounds[:2], strict=True)],
        "z": [_one_decimal(value) for value in z.tolist()],
    }
