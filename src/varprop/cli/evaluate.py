"""`varprop evaluate`: how good a model is on a table with observed targets."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from varprop.cli import shared


@shared.command
def evaluate(
    model: shared.ModelArgument,
    table: shared.TableArgument,
    report: shared.ReportOption = None,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="Columns with the targets, if named otherwise."),
    ] = None,
    unseen: shared.UnseenOption = shared.Unseen.error,
    delimiter: shared.DelimiterOption = None,
    decimal: shared.DecimalOption = ".",
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Score a model on rows it was not fitted on, beside a linear model and a constant Gaussian.

    The simple models are those of the training data. All rows are held in memory.
    """
    if report is not None:
        shared.check_output(report, table, model)
    fitted = shared.load_model(model)
    source = shared.open_table(table, delimiter, decimal)

    from varprop.tables import evaluate_table, report_table

    pre = fitted.preprocessing
    if target:
        if len(target) != len(pre.targets):
            raise shared.UserError(f"the model has {len(pre.targets)} targets, not {len(target)}.")
        used = {column.name for column in pre.inputs} | set(pre.ids)
        taken = [name for name in target if name in used]
        if taken:
            sentence = f"column {taken[0]!r} is no target: the model reads it as an input."
            raise shared.UserError(sentence)
        dropped = tuple(name for name in pre.dropped if name not in target)
        pre = dataclasses.replace(pre, targets=tuple(target), dropped=dropped)
        fitted = dataclasses.replace(fitted, preprocessing=pre)
    scored, notes = evaluate_table(fitted, source, unseen=unseen.value)
    shared.note(notes, quiet=quiet)
    if report is not None:
        title = f"{source.label}: {', '.join(pre.targets)}"
        report_table(report, title, fitted, scored, {"model": model, "table": source.label})
    n_rows = len(scored.y)
    if json:
        shared.print_json(
            {
                "rows": n_rows,
                "scorecard": scored.card,
                "verdict": scored.verdict,
                "report": report,
                "notes": notes,
            }
        )
    elif not quiet:
        title = f"{', '.join(pre.targets)}: {n_rows} rows of {source.label}"
        shared.print_scorecard(scored.card, title, scored.verdict)
        if report is not None:
            shared.say(f"Report: {report}")
