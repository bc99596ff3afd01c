"""`varprop explain`: which inputs moved a prediction's mean, and which its spread."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from varprop.cli import opening, shared


@shared.command
def explain(
    model: opening.ModelArgument,
    table: opening.TableArgument,
    top: Annotated[
        int, typer.Option("--top", help="Inputs shown for each row; 0 shows all.", min=0)
    ] = 10,
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
    """Say for each row what every input changes, compared with its typical value.

    Typical is the training data's mean, or its most frequent category. Inputs act together, so
    that the changes need not add up to the difference from the typical row.
    """
    dialect = opening.told(delimiter, decimal, thousands, encoding, na)
    fitted, source = opening.open_both(model, table, dialect)
    fitted = fitted.part(only)

    from varprop.tables import explain_table

    explained, notes = explain_table(fitted, source, unseen=unseen.value)
    shared.note(notes, quiet=quiet)
    if json:
        shared.print_json({"rows": explained, "notes": notes})
        return
    if quiet:
        return
    for row in explained:
        for name, part in row["targets"].items():
            ids = "".join(f", {key} {value}" for key, value in row["id"].items())
            inputs = sorted(
                part["inputs"].items(),
                key=lambda item: -max(abs(item[1]["mean"]), abs(item[1]["std"])),
            )
            shown = inputs[: top or None]
            shared.print_table(
                f"row {row['row']}{ids}: {name} {shared.in_digits(part['mean'])} ± "
                f"{shared.in_digits(part['std'])}",
                ["input", "value", "typical", "moves the mean by", "moves the std by"],
                [
                    [
                        column,
                        _cell(entry["value"]),
                        _cell(entry["typical"]),
                        _change(entry["mean"]),
                        _change(entry["std"]),
                    ]
                    for column, entry in shown
                ],
                caption=f"a typical row: {shared.in_digits(part['typical_mean'])} ± "
                f"{shared.in_digits(part['typical_std'])}",
            )
            if len(shown) < len(inputs):
                shared.say(f"({len(inputs) - len(shown)} more inputs: --top 0 shows all.)")


def _cell(value: Any) -> str:
    if value is None:
        return "(missing)"
    if isinstance(value, bool):
        return str(value).lower()
    return shared.in_digits(value) if isinstance(value, float) else str(value)


def _change(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{shared.in_digits(abs(value))}"
