"""`varprop explain`: which inputs moved a prediction's mean, and which its spread."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from varprop.cli.options import (
    DecimalOption,
    DelimiterOption,
    ModelArgument,
    TableArgument,
    Unseen,
    UnseenOption,
)
from varprop.cli.shared import (
    JsonOption,
    QuietOption,
    UserError,
    command,
    print_json,
    say,
)
from varprop.cli.tabular import (
    in_digits,
    load_model,
    note,
    open_table,
    print_table,
    use_compilation_cache,
)

#: More rows than anybody reads.
MAX_ROWS = 1000


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

    from varprop.tables.effects import effects
    from varprop.tables.prediction import Parts
    from varprop.tables.preprocessing import join_rows

    use_compilation_cache()
    blocks = Parts(fitted, source, unseen.value)
    parts, cells, numbers = [], [], []
    for rows in blocks:
        if blocks.n_rows > MAX_ROWS:
            raise UserError(
                f"{source.label} has more than {MAX_ROWS} rows: explain a few of them at a time.",
            )
        parts.append(rows.encoded)
        batch = rows.batch.to_pylist()
        for number, keep in enumerate(rows.encoded.complete):
            if keep:
                cells.append(batch[number])
                numbers.append(rows.first + number)
    encoded = join_rows(parts)
    if not numbers:
        raise UserError(f"{source.label} has no complete row to explain.")
    try:
        found = effects(fitted, encoded)
    except ValueError as error:  # a row too far out; the library's own sentence
        raise UserError(str(error)) from error
    explained = _explained(fitted, found, cells, numbers)
    note(blocks.notes(), quiet=quiet)
    if json:
        print_json({"rows": explained, "notes": blocks.notes()})
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


def _explained(fitted: Any, found: Any, cells: list[Any], numbers: list[int]) -> list[Any]:
    """Return one entry per row, ready to be printed or written as JSON."""
    pre = fitted.preprocessing
    n_targets = len(pre.targets)
    mean, std = (
        part.reshape(-1, n_targets) for part in (found.prediction.mean, found.prediction.std)
    )
    base_mean, base_std = found.base.mean.reshape(-1), found.base.std.reshape(-1)
    rows = []
    for place, number in enumerate(numbers):
        targets = {}
        for output, name in enumerate(pre.targets):
            targets[name] = {
                "mean": float(mean[place, output]),
                "std": float(std[place, output]),
                "typical_mean": float(base_mean[output]),
                "typical_std": float(base_std[output]),
                "inputs": {
                    column.name: {
                        "value": cells[place][column.name],
                        "typical": column.typical,
                        "mean": float(found.mean[which, place, output]),
                        "std": float(found.std[which, place, output]),
                    }
                    for which, column in enumerate(pre.inputs)
                },
            }
        ids = {name: cells[place][name] for name in pre.ids}
        rows.append({"row": number + 1, "id": ids, "targets": targets})
    return rows
