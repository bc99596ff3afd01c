"""`varprop suggest`: which of many possible experiments to do next, and why."""

from __future__ import annotations

import enum
import math
from typing import Annotated, Any

import typer

from varprop.cli import opening, shared

Goal = enum.StrEnum("Goal", ["explore", "maximize", "minimize"])


@shared.command
def suggest(
    model: opening.ModelArgument,
    table: Annotated[
        str, typer.Argument(metavar="POOL", help="A table of what could be tried, targets not yet.")
    ],
    goal: Annotated[
        Goal,
        typer.Option("--goal", help="To learn most, or to find the largest or smallest target."),
    ],
    number: Annotated[
        int, typer.Option("--number", "-n", help="How many experiments, done together.", min=1)
    ] = 1,
    target: Annotated[
        str | None, typer.Option("--target", "-t", help="Which of several targets counts.")
    ] = None,
    best: Annotated[
        float | None,
        typer.Option(
            "--best",
            help="The best value so far, to be improved; the best prediction among the rows unless "
            "given.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to: .csv, .tsv, .parquet or .feather; - for CSV on standard output.",
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
    """Choose the next experiments from a table of what could be tried, and say why each.

    To explore: those whose measurements together tell most of the model. To maximize or minimize:
    those that are expected to improve on the best value most. Each is chosen as if those before it
    had been measured, so that a batch does not ask the same thing twice.

    For each: what is predicted, what share of the variance is the model's doubt (the rest is noise,
    which no experiment lowers), and what it gains.
    """
    dialect = opening.told(delimiter, decimal, thousands, encoding, na)
    if best is not None and (goal is Goal.explore or not math.isfinite(best)):
        raise shared.wrong_usage("--best is a number, for --goal maximize and minimize.")
    if output is not None and output != "-":
        shared.check_output(output, table, model)

    from varprop.tables.model import TableRows
    from varprop.tables.prediction import output_format, write_table
    from varprop.tables.suggestions import suggest_table

    if output is not None:
        output_format(output)
    fitted, source = opening.open_both(model, table, dialect)
    fitted = fitted.part(only)
    rows = TableRows(source, fitted.preprocessing, unseen="average", targets=False)
    found, notes = suggest_table(fitted, rows, n=number, goal=goal.value, target=target, best=best)
    notes += rows.notes()
    if output is not None:
        write_table(output, iter(found.to_batches()), on_note=notes.append)
    shared.note(notes, quiet=quiet)
    gain = "nats" if goal is Goal.explore else "expected improvement"
    if json:
        result: dict[str, Any] = {"goal": goal.value, "gain": gain, "rows": rows.n_rows_read}
        if output is None:
            result["suggestions"] = found.to_pydict()
        else:
            result["output"] = output
        shared.print_json({**result, "notes": notes})
    elif not quiet and output is None:
        header = [f"gain, {gain}" if name == "gain" else name for name in found.column_names]
        cells = [[_cell(value) for value in row.values()] for row in found.to_pylist()]
        of = target or fitted.preprocessing.targets[0]
        shared.print_table(f"to {goal.value} {of}, of {rows.n_rows_read} rows", header, cells)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return shared.in_digits(value) if isinstance(value, float) else str(value)
