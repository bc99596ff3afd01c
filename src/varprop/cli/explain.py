"""`varprop explain`: which inputs moved a prediction, and where its variance comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from varprop.cli import opening, shared

if TYPE_CHECKING:
    from varprop.tables.model import TableModel
    from varprop.tables.source import Source


@shared.command
def explain(
    model: opening.ModelArgument,
    table: opening.TableArgument,
    top: Annotated[
        int, typer.Option("--top", help="Inputs shown for each row; 0 shows all.", min=0)
    ] = 10,
    budget: Annotated[
        bool,
        typer.Option("--budget", help="Say where the variance comes from: inputs, weights, noise."),
    ] = False,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write each row's --budget: .csv, .tsv, .parquet or .feather; - for CSV "
            "on standard output.",
        ),
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
    """Say for each row what every input changes, compared with its typical value.

    Typical is the training data's mean, or its most frequent category. Inputs act together, so
    that the changes need not add up to the difference from the typical row.

    With --budget: where the variance of the predictions comes from, in parts that do add up. What
    an unknown input makes uncertain is called its imputation.
    """
    dialect = opening.told(delimiter, decimal, thousands, encoding, na)
    if output is not None:
        if not budget:
            raise shared.wrong_usage("-o is for --budget: give both, or none.")
        if output != "-":
            shared.check_output(output, table, model)

        from varprop.tables.prediction import output_format

        output_format(output)
    fitted, source = opening.open_both(model, table, dialect)
    fitted = fitted.part(only)
    if budget:
        _budget(fitted, source, output, unseen=unseen.value, json=json, quiet=quiet)
        return

    from varprop.tables import explain_table
    from varprop.tables.effects import EXPLAINED

    explained, notes = explain_table(fitted, source, unseen=unseen.value)
    shared.note(notes, quiet=quiet)
    if json:
        shared.print_json({"rows": explained, "notes": notes})
        return
    if quiet:
        return
    classes = fitted.preprocessing.outcome.classes
    what, spread = EXPLAINED["classes" if classes else "numbers"]
    for row in explained:
        parts = row["targets"]
        if classes:  # of the most probable; --json has them all
            best = max(parts, key=lambda name: parts[name][what])
            parts = {best: parts[best]}
        for name, part in parts.items():
            ids = "".join(f", {key} {value}" for key, value in row["id"].items())
            inputs = sorted(
                part["inputs"].items(),
                key=lambda item: -max(abs(item[1][what]), abs(item[1][spread])),
            )
            shown = inputs[: top or None]
            shared.print_table(
                f"row {row['row']}{ids}: {name} {_both(part, what, spread)}",
                ["input", "value", "typical", f"moves the {what} by", f"moves the {spread} by"],
                [
                    [
                        column,
                        _cell(entry["value"]),
                        _cell(entry["typical"]),
                        _change(entry[what]),
                        _change(entry[spread]),
                    ]
                    for column, entry in shown
                ],
                caption=f"a typical row: {_both(part, f'typical_{what}', f'typical_{spread}')}",
            )
            if len(shown) < len(inputs):
                shared.say(f"({len(inputs) - len(shown)} more inputs: --top 0 shows all.)")


def _budget(
    model: TableModel, source: Source, output: str | None, *, unseen: str, json: bool, quiet: bool
) -> None:
    """Print where the variance comes from on average, and write it down row by row."""
    import numpy as np

    from varprop.predictive.budget import UNTOLD
    from varprop.tables.budgets import budget_table
    from varprop.tables.model import TableRows
    from varprop.tables.prediction import write_table

    targets = model.preprocessing.targets
    rows = TableRows(source, model.preprocessing, unseen=unseen, targets=False)
    found, table = budget_table(model, rows)
    notes = rows.notes()
    if UNTOLD in found.names:
        notes.append(
            f"this model does not tell its own doubt from noise: {model.how_to_tell_apart}."
        )
    if output is not None:
        write_table(output, iter(table.to_batches()), on_note=notes.append)
    shape = (len(found.variance), len(found.names), len(targets))
    shares = found.shares.reshape(shape).mean(axis=0)
    stds = np.sqrt(found.variance.reshape(shape).mean(axis=0))
    shared.note(notes, quiet=quiet)
    if json:
        average = {
            target: {
                source: {"share": share, "std": std}
                for source, share, std in zip(found.names, shares.T[k], stds.T[k], strict=True)
            }
            for k, target in enumerate(targets)
        }
        result: dict[str, Any] = {"rows": shape[0], "average": average, "notes": notes}
        if output is None:
            result["budget"] = table.to_pydict()
        else:
            result["output"] = output
        shared.print_json(result)
    elif not quiet and output != "-":
        for k, target in enumerate(targets):
            order = np.argsort(-shares[:, k], kind="stable")
            shared.print_table(
                f"{target}: where the variance of {shape[0]} predictions comes from",
                ["source", "share of the variance", "as a standard deviation"],
                [
                    [found.names[i], f"{100 * shares[i, k]:.1f} %", shared.in_digits(stds[i, k])]
                    for i in order
                ],
                caption="shares are averages over rows, standard deviations root mean squares",
            )
        if output is not None:
            shared.say(f"Wrote {rows.n_rows_read} rows to {output}.", err=True)


def _both(part: dict[str, Any], what: str, spread: str) -> str:
    """Return mean and spread, or probability and entropy."""
    first, second = shared.in_digits(part[what]), shared.in_digits(part[spread])
    return f"{first} ± {second}" if spread.endswith("std") else f"{first}, entropy {second}"


def _cell(value: Any) -> str:
    if value is None:
        return "(missing)"
    if isinstance(value, bool):
        return str(value).lower()
    return shared.in_digits(value) if isinstance(value, float) else str(value)


def _change(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{shared.in_digits(abs(value))}"
