"""`varprop evaluate`: how good a model is on a table with observed targets."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated

import typer

from varprop.cli import opening, shared

if TYPE_CHECKING:
    from varprop.tables.columns import Preprocessing


@shared.command
def evaluate(
    model: opening.ModelArgument,
    table: opening.TableArgument,
    report: shared.ReportOption = None,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="Columns with the targets, if named otherwise."),
    ] = None,
    only: opening.PartOption = None,
    unseen: opening.UnseenOption = opening.Unseen.error,
    delimiter: opening.DelimiterOption = None,
    decimal: opening.DecimalOption = None,
    thousands: opening.ThousandsOption = None,
    encoding: opening.EncodingOption = None,
    na: opening.NaOption = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Score a model on rows it was not fitted on, beside a linear model and a constant Gaussian.

    The simple models are those of the training data. All rows are held in memory.
    """
    dialect = opening.told(delimiter, decimal, thousands, encoding, na)
    if report is not None:
        shared.check_output(report, table, model)
    change = functools.partial(_retarget, names=target or [])
    fitted, source = opening.open_both(model, table, dialect, change=change, targets=True)

    from varprop.tables import evaluate_table

    fitted = fitted.part(only)
    pre = fitted.preprocessing
    scored, notes = evaluate_table(fitted, source, unseen=unseen.value)
    shared.note(notes, quiet=quiet)
    if report is not None:
        from varprop.tables import report_table

        title = f"{source.label}: {', '.join(pre.targets)}"
        report_table(report, title, fitted, scored, {"model": model, "table": source.label})
    n_rows = len(scored.y)
    if json:
        shared.print_json(
            {
                "rows": n_rows,
                "scorecard": scored.card,
                "verdict": scored.verdict,
                "share_trained_on": scored.share_seen,
                "report": report,
                "notes": notes,
            }
        )
    elif not quiet:
        title = f"{', '.join(pre.targets)}: {n_rows} rows of {source.label}"
        shared.print_scorecard(scored.card, title, scored.verdict)
        if report is not None:
            shared.say(f"Report: {report}")


def _retarget(pre: Preprocessing, names: list[str]) -> Preprocessing:
    """Return what is known of the columns, with targets of other names if any are given."""
    if not names:
        return pre
    if len(names) != len(pre.targets):
        raise shared.UserError(f"the model has {len(pre.targets)} targets, not {len(names)}.")
    used = {column.name for column in pre.inputs} | set(pre.ids)
    taken = [name for name in names if name in used]
    if taken:
        sentence = f"column {taken[0]!r} is no target: the model reads it as an input."
        raise shared.UserError(sentence)
    dropped = tuple(name for name in pre.dropped if name not in names)
    return dataclasses.replace(pre, targets=tuple(names), dropped=dropped)
