"""The report of one model on held-out rows: checks what it is given and fills the template."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from varprop.predictive.budget import Budget
from varprop.predictive.checks import as_targets
from varprop.predictive.contract import AbstractNumeric
from varprop.predictive.mixtures import ArrayLike
from varprop.predictive.scorecard import CLASS_SCORES, DO_NOT_USE, SCORES, by_target
from varprop.report import charts
from varprop.report.charts import Figure
from varprop.report.files import write_page
from varprop.report.importances import Importance, importance_figures, shares_of
from varprop.report.numerals import aligned, number, percent
from varprop.report.regions import Column, by_importance
from varprop.report.sources import source_figures
from varprop.report.targets import section
from varprop.report.words import Findings, find

MAX_POINTS = 3000  # drawn, over all targets
MAX_TARGETS = 24  # with a section of their own
MAX_INPUTS = 30  # whose values are shown with a row
_KNOWN = SCORES | CLASS_SCORES
_SCORE_WORDS = (
    "All models were judged on the same rows. NLL scores the whole stated distribution, CRPS does "
    "so in the target’s units, RMSE only the predicted value: lower is better. R² is the share of "
    "variance explained: higher is better. Coverages should be near their stated level. ★ marks "
    "the best of a column."
)


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    prediction: AbstractNumeric,
    y: ArrayLike,
    target_names: Sequence[str],
    features: Mapping[str, Any] | None = None,
    row_labels: Sequence[str] | None = None,
    scorecard: Mapping[str, Mapping[str, float | Mapping[str, float]]] | None = None,
    verdict: str | None = None,
    loss_curve: ArrayLike | None = None,
    importance: Importance | None = None,
    settings: Mapping[str, object] | None = None,
    share_seen: float | None = 0.0,
    budget: Budget | None = None,
) -> None:
    """Write one self-contained HTML page on what was predicted, how well and how surely.

    The page needs no network. The file is written whole or not at all. With thousands of rows only
    some are drawn, which the page says; its numbers are of all rows.

    Parameters
    ----------
    path : path
        Where to write; an existing file is replaced.
    title : str
        Heading of the page.
    prediction : Predictive or Counts, or another of numbers
        Of rows that the model has not seen, or as `share_seen` says.
    y : array of shape (n,) or (n, d)
        What was observed there.
    target_names : sequence of str
        One name per output.
    features : mapping of str to arrays of shape (n,), optional
        The inputs as they stood in the table, numbers or words; missing values are allowed.
    row_labels : sequence of str, optional
        Names of the rows; "row 1" and so on by default.
    scorecard : mapping of model to mapping of score to number, optional
        This model beside simpler ones; a score may have one number for each target, by its name.
    verdict : str, optional
        What the scorecard comes to, as of `varprop.predictive.scorecard.verdict`.
    loss_curve : array of shape (n_epochs,), optional
        Loss of the training by epoch; what is not finite is left out.
    importance : mapping of input to (for the mean, for the spread), optional
        As of `varprop.importance.feature_importance`, each a number or one for each target. Shown
        as shares of all inputs, which sum to 1.
    settings : mapping, optional
        Settings to print, beside the date and the versions.
    share_seen : float or None, default 0
        Share of the rows that the model was trained on; None if it is not known.
    budget : Budget, optional
        Where the variance of the same rows comes from, as of ``model.uncertainty_budget(X)``.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from varprop.predictive.distribution import Predictive
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "report.html"
    ...     p = Predictive.gaussian([1.0, 2.0], [0.1, 0.1], 0.2)
    ...     write_report(path, title="Trial", prediction=p, y=[1.1, 1.7], target_names=["price"])
    ...     path.read_text("utf-8")[:15]
    '<!DOCTYPE html>'
    """
    names = [str(name) for name in target_names]
    y = _observed(y, prediction, names)
    n = prediction.n_rows
    columns = [Column.read(str(name), values) for name, values in (features or {}).items()]
    for column in columns:
        if len(column.values) != n:
            raise ValueError(
                f"The input {column.name!r} has {len(column.values)} values but there are {n} rows."
            )
    labels = [f"row {i + 1}" for i in range(n)] if row_labels is None else list(row_labels)
    if len(labels) != n:
        raise ValueError(f"There are {len(labels)} row_labels but {n} rows.")
    labels = [str(label) for label in labels]
    shares = shares_of(importance, len(names))
    budgets = _budgets(budget, n, len(names))
    shown = min(len(names), MAX_TARGETS)
    outputs = [prediction.marginal(k) for k in range(len(names))]
    found = [find(y[:, k], output) for k, output in enumerate(outputs)]
    sections = [
        section(
            k,
            names[k],
            y[:, k],
            outputs[k],
            found[k],
            by_importance(columns, shares[k]),
            labels,
            limit=int(np.clip(MAX_POINTS // shown, 100, 1500)),
            max_panels=8 if shown <= 4 else 4,
        )
        | {
            "sources": source_figures(budgets[k], labels) if budgets else [],
            "importance": importance_figures(shares[k]) if len(names) > 1 else [],
        }
        for k in range(shown)
    ]
    write_page(
        path,
        "report.html",
        settings=settings,
        title=title,
        share_seen=share_seen,
        n=n,
        names=names,
        n_inputs=len(columns),
        sections=sections,
        n_drawn=len(sections[0]["rows"]),
        overview=_overview(names, found) if len(names) > 1 else None,
        verdict=verdict,
        useless=bool(verdict and verdict.startswith(DO_NOT_USE)),
        scorecards=[
            (target, scorecard_table(card))
            for target, card in by_target(scorecard or {}).items()
            if card
        ],
        score_words=_SCORE_WORDS,
        common=[
            *training_figures(loss_curve),
            *(importance_figures(shares[0]) if len(names) == 1 else []),
        ],
        data=_hover_data(sections, by_importance(columns, shares[0])[:MAX_INPUTS], labels),
    )


def _observed(y: ArrayLike, prediction: AbstractNumeric, names: list[str]) -> np.ndarray:
    """Return the targets as (n, d)."""
    n, d = prediction.n_rows, prediction.n_outputs
    if len(names) != d:
        raise ValueError(f"There are {len(names)} target_names but {d} outputs.")
    return as_targets(y, "y", *[(n, d), (n,)][: 2 if d == 1 else 1])


def _budgets(budget: Budget | None, n: int, d: int) -> list[Budget]:
    """Return the budget of each output, or none."""
    if budget is None:
        return []
    variance = budget.variance.reshape(*budget.variance.shape[:2], -1)
    if (len(variance), variance.shape[2]) != (n, d):
        raise ValueError(
            f"The budget is of {len(variance)} rows and {variance.shape[2]} outputs, the "
            f"prediction of {n} and {d}."
        )
    return [Budget(budget.names, variance[..., k]) for k in range(d)]


def _overview(names: list[str], findings: list[Findings]) -> list[dict[str, Any]]:
    """Return one row per target with its main scores, each as a text and as a number to sort by."""
    explained = aligned([np.nan if found.r2 is None else found.r2 for found in findings])
    table = []
    for name, found, r2 in zip(names, findings, explained, strict=True):
        cells: list[tuple[str, float | str]] = [
            (number(found.rmse), found.rmse),
            (number(found.stated), found.stated),
            (r2, "" if found.r2 is None else found.r2),
            (percent(found.covered), found.covered),
        ]
        table.append({"name": name, "cells": cells, "verdict": found.in_a_word})
    return table


def scorecard_table(scorecard: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return the table of scores; the best of each is marked where better has a direction."""
    names = list(dict.fromkeys(name for row in scorecard.values() for name in row))
    columns = []
    for name in names:
        values = [float(row.get(name, np.nan)) for row in scorecard.values()]
        marked = None  # coverages have a level that they should be near
        if "coverage" in name.lower():
            texts = [percent(value) if np.isfinite(value) else "–" for value in values]
        else:
            texts = aligned(values)
            known = [value for value in values if np.isfinite(value)]
            if len(known) > 1:
                best = (max if _KNOWN.get(name.replace("²", "2")) else min)(known)
                marked = texts[values.index(best)]  # what is shown as equal is marked alike
        columns.append(
            [
                {
                    "text": text,
                    "value": value if np.isfinite(value) else None,
                    "best": text == marked,
                }
                for text, value in zip(texts, values, strict=True)
            ]
        )
    rows = [
        {"model": str(model), "cells": cells}
        for model, cells in zip(scorecard, zip(*columns, strict=True), strict=True)
    ]
    return {
        "scores": ["R²" if name == "R2" else str(name) for name in names],
        "rows": rows,
    }


def training_figures(loss_curve: ArrayLike | None) -> list[Figure]:
    """Return the chart of the loss by epoch, or none."""
    loss = np.asarray([] if loss_curve is None else loss_curve, np.float64)
    if loss.ndim != 1:
        raise ValueError(f"loss_curve must have shape (n_epochs,), not {loss.shape}.")
    if not np.isfinite(loss).any():
        return []
    drawing, cut = charts.training_curve(loss)
    end = loss[np.isfinite(loss)][-1]
    finding = f"It ended at {number(end)} after {len(loss):,} epochs."
    if cut:
        finding += " The first epochs lie above the top of the chart."
    return [
        Figure(
            "Training",
            drawing,
            "The loss by epoch. It may rise while a part of it is phased in; by the end it "
            "should have flattened out.",
            finding,
            (("line", "loss"),),
        )
    ]


def _hover_data(
    sections: list[dict[str, Any]],
    columns: list[Column],
    labels: list[str],
) -> dict[str, object]:
    """Return the texts that appear when a row is pointed at."""
    drawn = sorted({int(row) for one in sections for row in one["rows"]})
    where = {row: i for i, row in enumerate(drawn)}
    targets = [
        {**one["hover"], "row": [where[int(row)] for row in one["rows"]]} for one in sections
    ]
    return {
        "inputs": [column.name for column in columns],
        "rows": [[labels[row], *(column.text(row) for column in columns)] for row in drawn],
        "targets": targets,
    }
