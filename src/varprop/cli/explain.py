"""`varprop explain`: which inputs moved a prediction's mean, and which its spread."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from varprop.cli.shared import (
    DecimalOption,
    DelimiterOption,
    JsonOption,
    ModelArgument,
    QuietOption,
    TableArgument,
    Unseen,
    UnseenOption,
    command,
    in_digits,
    load_model,
    note,
    open_table,
    print_json,
    print_table,
    say,
)


@command
def explain(
    model: ModelArgument,
    table: TableArgument,
    top: Annotated[
        int, typer.Option("--top", help="Inputs shown for each row; 0 shows all.", min=0)
    ] = 10,
    unseen: UnseenOption = Unseen.error,
    delimiter: DelimiterOption = None,
    decimal: DecimalOption = ".",
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Say for each row what every input changes, compared with its typical value.

    Typical is the training data's mean, or its most frequent category. Inputs act together, so
    that the changes need not add up to the difference from the typical row.
    """
    fitted = load_model(model)
    source = open_table(table, delimiter, decimal)

    from varprop.tables import explain_table

    explained, notes = explain_table(fitted, source, unseen=unseen.value)
    note(notes, quiet=quiet)
    if json:
        print_json({"rows": explained, "notes": notes})
        return
    if quiet:
        return
    for row in explained:
        for name, part in row["targets"].items():
            ids = "".join(f", {key} {value}" for key, value in row["id"].items())
            inputs = sorted(part["inputs"].items(), key=lambda item: -_size(item[1]))
            shown = inputs[: top or None]
            print_table(
                f"row {row['row']}{ids}: {name} {in_digits(part['mean'])} ± "
                f"{in_digits(part['std'])}",
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
                caption=f"a typical row: {in_digits(part['typical_mean'])} ± "
                f"{in_digits(part['typical_std'])}",
            )
            if len(shown) < len(inputs):
                say(f"({len(inputs) - len(shown)} more inputs: --top 0 shows all.)")


def _size(entry: dict[str, Any]) -> float:
    return max(abs(entry["mean"]), abs(entry["std"]))


def _cell(value: Any) -> str:
    if value is None:
        return "(missing)"
    if isinstance(value, bool):
        return str(value).lower()
    return in_digits(value) if isinstance(value, float) else str(value)


def _change(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{in_digits(abs(value))}"
