"""`varprop evaluate`: how good a model is on a table with observed targets."""

from __future__ import annotations

import functools

from varprop.cli import opening, shared


@shared.command
def evaluate(
    model: opening.ModelArgument,
    table: opening.TableArgument,
    report: shared.ReportOption = None,
    target: opening.TargetOption = None,
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
    change = functools.partial(opening.retarget, names=target or [])
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
