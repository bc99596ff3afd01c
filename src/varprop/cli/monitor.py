"""`varprop monitor`: whether new rows are like those of the fit, and predictions still hold."""

from __future__ import annotations

import functools
from typing import Annotated

import typer

from varprop.cli import opening, shared


@shared.command
def monitor(
    model: opening.ModelArgument,
    table: opening.TableArgument,
    report: shared.ReportOption = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            "-t",
            help="Columns with observed targets, which must be there; looked at anyway if they "
            "have the names of the fit.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="COLUMN", help="When rows were taken; they are in order unless given."
        ),
    ] = None,
    only: opening.PartOption = None,
    delimiter: opening.DelimiterOption = None,
    decimal: opening.DecimalOption = None,
    thousands: opening.ThousandsOption = None,
    encoding: opening.EncodingOption = None,
    na: opening.NaOption = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Say green, amber or red: whether inputs have shifted, and predictions hold what they state.

    Of 50 tables without any change, at most one is called changed. All rows are held in memory.
    """
    dialect = opening.told(delimiter, decimal, thousands, encoding, na)
    if report is not None:
        shared.check_output(report, table, model)
    fitted, source = opening.open_both(
        model,
        table,
        dialect,
        change=functools.partial(opening.retarget, names=target or []),
        targets=bool(target),
        carried=[] if time is None else [time],
    )

    from varprop.tables import monitor_table

    found = monitor_table(fitted.part(only), source, targets=True if target else None, time=time)
    shared.note(found.notes, quiet=quiet)
    if report is not None:
        from varprop.report import write_monitor_report

        order = "in the order of the table" if time is None else f"in the order of {time}"
        settings: dict[str, object] = {"model": model, "table": source.label, "rows": order}
        if fitted.record is not None:
            settings |= {"fitted on": fitted.record.date, "training rows": fitted.record.n_rows}
        title = f"{source.label}: {', '.join(fitted.preprocessing.targets)}"
        write_monitor_report(report, title=title, monitored=found.to_json(), settings=settings)
    if json:
        result = {name: part for name, part in found.to_json().items() if name != "pits"}
        shared.print_json(result | {"report": report})
        return
    if quiet:
        return
    rows = [
        [check.name, check.before or "-", check.now or "-", _share(check.moved), check.state]
        for check in found.checks
    ]
    header = ["", "when fitted", "now", "rows elsewhere", "state"]
    shared.print_table(f"{found.n_rows} rows of {source.label}", header, rows)
    for check in found.changed[1:]:
        shared.say(f"{check.state}: {check.finding}.")
    shared.say(found.sentence)
    if found.least is not None:
        shared.say(
            f"A shift is only seen if at least {found.least:.0%} of a column's rows lie elsewhere."
        )
    if report is not None:
        shared.say(f"Report: {report}")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
