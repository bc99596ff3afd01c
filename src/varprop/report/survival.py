"""The report of a model whose targets are known up to bounds: how long, and how surely."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.diagnostics import chance_range, histogram_of, shares_up_to
from varprop.predictive.mixtures import ArrayLike
from varprop.predictive.survival import Survival, bounded_pit, stated_survival, survival_curve
from varprop.report import charts
from varprop.report.charts import Figure
from varprop.report.importances import Importance, importance_figures
from varprop.report.numerals import number, percent, plus_minus
from varprop.report.one_target import checked_rows, write_target_page
from varprop.report.page import training_figures
from varprop.report.regions import Column
from varprop.report.svg import Axis, Frame, polyline
from varprop.report.targets import BAND, BY_CHANCE, IDEAL, MAX_SHOWN, SURPRISING

_SCORES = (
    "All models were judged on the same rows, by what is known of each: NLL by the density of an "
    "exact target, and the probability of the range of another; CRPS in the target’s units, as far "
    "as it is known: lower is better. ★ marks the best of a column."
)
_VERDICTS = {
    "good": "What was observed lies where the stated distributions have it.",
    "bad": "What was observed does not lie where the stated distributions have it.",
    "unknown": "Too few rows to judge the stated distributions.",
}
_POINTS = 80


@dataclass(frozen=True)
class _Findings:
    verdict: str
    headline: str
    answers: tuple[tuple[str, str], ...]


def write_survival_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    prediction: AbstractNumeric,
    y: ArrayLike,
    target_name: str,
    features: Mapping[str, Any] | None = None,
    row_labels: Sequence[str] | None = None,
    scorecard: Mapping[str, Mapping[str, float | Mapping[str, float]]] | None = None,
    verdict: str | None = None,
    loss_curve: ArrayLike | None = None,
    importance: Importance | None = None,
    settings: Mapping[str, object] | None = None,
    share_seen: float | None = 0.0,
) -> None:
    """Write one self-contained HTML page on targets that are known up to bounds.

    Parameters
    ----------
    path, title, features, row_labels, scorecard, verdict, loss_curve, importance, settings
        As in `write_report`.
    prediction : Predictive or another of numbers
        Of one target.
    y : array of shape (n, 2)
        Lower and upper bounds: equal where it is known, infinite where there is none.
    target_name : str
        What is predicted.
    share_seen : float or None, default 0
        Share of the rows that the model was trained on; None if it is not known.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from varprop.predictive import Predictive
    >>> p = Predictive.gaussian([1.0, 2.0], [0.1, 0.1], 0.2)
    >>> y = [[1.1, 1.1], [1.7, np.inf]]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "report.html"
    ...     write_survival_report(path, title="Trial", prediction=p, y=y, target_name="days")
    ...     path.read_text("utf-8")[:15]
    '<!DOCTYPE html>'
    """
    bounds, n = np.asarray(y, np.float64), prediction.n_rows
    if bounds.shape != (n, 2) or np.isnan(bounds).any() or (bounds[:, 0] > bounds[:, 1]).any():
        raise ValueError(f"y must hold a lower and an upper bound for each of {n} rows.")
    lower, upper = bounds.T
    columns, labels, shares = checked_rows(n, features, row_labels, importance)
    prediction = prediction.marginal(0)
    ends = bounded_pit(lower, upper, prediction)
    known, pit = lower == upper, ends[0]
    # The farthest of n independent rows lies beyond this level in `BY_CHANCE` of all cases.
    tail = 2.0 * np.minimum(pit, 1.0 - pit)
    far = known & (tail < -np.expm1(np.log1p(-BY_CHANCE) / n))
    order = np.argsort(np.where(far, tail, 2.0), kind="stable")[: int(far.sum())]
    open_share = percent(float(np.mean(~known)))
    write_target_page(
        path,
        title=title,
        name=target_name,
        what=f"known only up to bounds in {open_share} of these rows",
        n=n,
        share_seen=share_seen,
        settings=settings,
        scorecard=scorecard,
        verdict=verdict,
        score_words=_SCORES,
        findings=_find(lower, upper, prediction, ends),
        figures=_figures(lower, upper, prediction, ends, str(target_name)),
        panels=[],
        panel_note="",
        columns=columns,
        shown=["observed", "predicted", "±"],
        surprising=_rows(order[:SURPRISING], lower, prediction, labels, columns),
        surprising_finding=_surprising_finding(int(far.sum()), n),
        common=[*training_figures(loss_curve), *importance_figures(shares)],
    )


def _find(
    lower: np.ndarray,
    upper: np.ndarray,
    prediction: AbstractNumeric,
    ends: tuple[np.ndarray, np.ndarray],
) -> _Findings:
    """Return what can be said; `ends` is the cdf at both bounds."""
    n, known = len(lower), lower == upper
    below, upto = shares_up_to(np.array([0.05, 0.95]), *ends).mean(axis=1)
    held = float(upto - below)
    low, high = (float(side) for side in chance_range(n, 0.9))
    bars = histogram_of(*ends)
    outside = float(np.mean((bars.counts < bars.lower) | (bars.counts > bars.upper)))
    rare = outside > float(chance_range(len(bars.counts), 0.05, 0.99)[1])
    state = "unknown" if n < 10 else "bad" if rare or not low <= held <= high else "good"
    middle = float(np.median(prediction.quantile(0.5)))
    kinds = [
        (int((~known & np.isposinf(upper)).sum()), "only to be at least so large"),
        (int((~known & np.isneginf(lower)).sum()), "only to be at most so large"),
        (int((~known & np.isfinite(lower) & np.isfinite(upper)).sum()), "only as a range"),
    ]
    said = "".join(f"; {count:,} {what}" for count, what in kinds if count)
    answers = (
        (
            "What is known?",
            f"{int(known.sum()):,} of {n:,} targets exactly{said}.",
        ),
        (
            "What is predicted?",
            f"A typical row has a predicted median of {number(middle)}, with a standard deviation "
            f"of {number(float(np.median(prediction.std)))}.",
        ),
        (
            "Can the intervals be trusted?",
            f"90 % intervals hold {percent(held)} of the targets (those known up to bounds spread "
            f"evenly inside); {percent(low)[:-2]}–\N{WORD JOINER}{percent(high)} is what "
            "chance allows.",
        ),
    )
    return _Findings("over" if state == "bad" else state, _VERDICTS[state], answers)


def _figures(
    lower: np.ndarray,
    upper: np.ndarray,
    prediction: AbstractNumeric,
    ends: tuple[np.ndarray, np.ndarray],
    name: str,
) -> list[Figure]:
    found = survival_curve(lower, upper)
    finite = np.concatenate([side[np.isfinite(side)] for side in (lower, upper)])
    grid = np.linspace(float(finite.min()), float(finite.max()), _POINTS)
    stated = stated_survival(prediction, grid)
    said = _survival_finding(found, grid, stated)
    bars = histogram_of(*ends)
    outside = int(((bars.counts < bars.lower) | (bars.counts > bars.upper)).sum())
    k = len(bars.counts)
    shape = f"{f'{k - outside} of the {k}' if outside else f'All {k}'} bars end inside the band."
    line = _survival_chart(found, grid, stated, name, f"Survival curve. {said}")
    band = (BAND,) if np.isfinite(found.lower).all() else ()
    how = "by Kaplan and Meier" if band else "by Turnbull, of ranges"
    return [
        Figure(
            "How many last how long?",
            line,
            "Steps are the share of rows above each value, as far as it is known "
            f"({how}); the dashed curve is the average of what was stated for each of them. It "
            f"should {'lie within the band' if band else 'follow them'}.",
            said,
            (("line", "observed"), ("dashed", "stated, on average"), *band),
        ),
        Figure(
            "Where in the stated distribution did values fall?",
            charts.pit(bars, f"PIT histogram. {shape}"),
            "If the stated distributions are right, all bars are about equally high (the PIT "
            "histogram); a target known up to bounds is spread evenly over what is stated inside.",
            shape,
            (("bar", "rows"), ("band over", "95 % range of chance"), IDEAL),
        ),
    ]


def _survival_finding(found: Survival, grid: np.ndarray, stated: np.ndarray) -> str:
    place = np.searchsorted(found.at, grid, "right")
    observed = np.append(1.0, found.share)[place]
    gap = float(np.abs(observed - stated).max())
    at = grid[int(np.abs(observed - stated).argmax())]
    said = f"The two differ by {percent(gap)} at most, at {number(at)}"
    if not np.isfinite(found.lower).all():
        return f"{said}."
    low, high = (np.append(1.0, side)[place] for side in (found.lower, found.upper))
    inside = float(np.mean((stated >= low - 1e-9) & (stated <= high + 1e-9)))
    return f"{said}; the stated curve lies within the band over {percent(inside)} of the range."


def _survival_chart(
    found: Survival, grid: np.ndarray, stated: np.ndarray, name: str, label: str
) -> Markup:
    at = tuple(k / 5 for k in range(6))
    y = Axis("share above", 0.0, 1.0, at, tuple(f"{20 * k} %" for k in range(6)))
    frame = Frame(Axis.around(name[:30], grid), y, height=340.0)
    ends = np.concatenate(
        [[grid[0]], np.repeat(np.clip(found.at, grid[0], grid[-1]), 2), [grid[-1]]]
    )

    def steps(values: np.ndarray) -> np.ndarray:
        return np.repeat(np.append(1.0, values), 2)

    layers = []
    if np.isfinite(found.lower).all():
        layers.append(frame.band(ends, steps(found.lower), steps(found.upper), "band"))
    layers.append(polyline(frame.points(ends, steps(found.share)), "curve"))
    layers.append(polyline(frame.points(grid, stated), "curve model"))
    return frame.draw(*layers, label=label)


def _surprising_finding(count: int, n: int) -> str:
    if not count:
        return f"No row of {n:,} lies farther out than chance allows."
    lie = "row lies" if count == 1 else "rows lie"
    more = f"; the {SURPRISING} farthest are listed" if count > SURPRISING else ""
    return f"{count:,} {lie} farther out than chance allows for any of {n:,}{more}."


def _rows(
    chosen: np.ndarray,
    y: np.ndarray,
    prediction: AbstractNumeric,
    labels: Sequence[str],
    columns: list[Column],
) -> list[dict[str, Any]]:
    mean, std = prediction.mean, prediction.std
    table = []
    for row in chosen.tolist():
        texts = (number(y[row], 4), *plus_minus(mean[row], std[row]))
        numbers = (float(y[row]), float(mean[row]), float(std[row]))
        cells: list[tuple[str, float | str | None]] = list(zip(texts, numbers, strict=True))
        cells += [(column.text(row), column.key(row)) for column in columns[:MAX_SHOWN]]
        table.append({"label": labels[row], "cells": cells})
    return table
