"""A page on one target that is no plain number: what the pages of each kind share."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from varprop.predictive.scorecard import DO_NOT_USE, by_target
from varprop.report.charts import Figure
from varprop.report.files import write_page
from varprop.report.importances import Importance, Shares, shares_of
from varprop.report.page import scorecard_table
from varprop.report.regions import Column, by_importance
from varprop.report.targets import MAX_SHOWN


def checked_rows(
    n: int,
    features: Mapping[str, Any] | None,
    row_labels: Sequence[str] | None,
    importance: Importance | None,
) -> tuple[list[Column], list[str], Shares]:
    """Return inputs, the most important first, the rows' names, and shares of importance."""
    columns = [Column.read(str(name), values) for name, values in (features or {}).items()]
    for column in columns:
        if len(column.values) != n:
            raise ValueError(
                f"The input {column.name!r} has {len(column.values)} values but there are {n} rows."
            )
    labels = [f"row {i + 1}" for i in range(n)] if row_labels is None else list(row_labels)
    if len(labels) != n:
        raise ValueError(f"There are {len(labels)} row_labels but {n} rows.")
    [shares] = shares_of(importance, 1)
    return by_importance(columns, shares), [str(label) for label in labels], shares


def write_target_page(
    path: str | os.PathLike[str],
    *,
    title: str,
    name: str,
    n: int,
    columns: Sequence[Column],
    scorecard: Mapping[str, Mapping[str, float | Mapping[str, float]]] | None,
    verdict: str | None,
    settings: Mapping[str, object] | None,
    findings: Any,
    figures: Sequence[Figure],
    **values: Any,
) -> None:
    """Write the page.

    Parameters
    ----------
    path, title, scorecard, verdict, settings
        As in `write_report`.
    name, n
        Of the target, and how many rows.
    columns
        All inputs.
    findings
        With ``verdict``, ``headline`` and ``answers``.
    figures
        The charts.
    values
        What else the template shows.
    """
    tables = by_target(scorecard or {})
    write_page(
        path,
        "target.html",
        settings=settings,
        title=title,
        n=n,
        name=str(name),
        n_inputs=len(columns),
        inputs=[column.name for column in columns[:MAX_SHOWN]],
        findings=findings,
        figures=list(figures),
        verdict=verdict,
        useless=bool(verdict and verdict.startswith(DO_NOT_USE)),
        scorecards=[(target, scorecard_table(card)) for target, card in tables.items() if card],
        **values,
    )
