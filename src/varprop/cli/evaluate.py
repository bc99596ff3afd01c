"""`varprop evaluate`: how good a model is on a table with observed targets."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from varprop.cli.options import (
    DecimalOption,
    DelimiterOption,
    ModelArgument,
    ReportOption,
    TableArgument,
    Unseen,
    UnseenOption,
)
from varprop.cli.shared import JsonOption, QuietOption, UserError, command, print_json, say
from varprop.cli.tabular import (
    check_output,
    load_model,
    note,
    open_table,
    print_scorecard,
    use_compilation_cache,
    write_html,
)


@command
def evaluate(
    model: ModelArgument,
    table: TableArgument,
    report: ReportOption = None,
    target: Annotated[
        list[str] | None,
        typer.Option("--target", "-t", help="Columns with the targets, if named otherwise."),
    ] = None,
    unseen: UnseenOption = Unseen.error,
    delimiter: DelimiterOption = None,
    decimal: DecimalOption = ".",
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score a model on rows it was not fitted on, beside a linear model and a constant Gaussian.

    The simple models are those of the training data. All rows are held in memory.
    """
    if report is not None:
        check_output(report, table, model)
    fitted = load_model(model)
    source = open_table(table, delimiter, decimal)

    import numpy as np
    import pyarrow as pa

    from varprop.predictive.scorecard import scorecard, verdict
    from varprop.tables.blocks import Blocks, complete_rows, join_rows
    from varprop.tables.columns import first_out_of_range, range_error, to_floats
    from varprop.tables.errors import count_rows

    use_compilation_cache()
    pre = fitted.preprocessing
    if target:
        if len(target) != len(pre.targets):
            raise UserError(f"the model has {len(pre.targets)} targets, not {len(target)}.")
        used = {column.name for column in pre.inputs} | set(pre.ids)
        taken = [name for name in target if name in used]
        if taken:
            raise UserError(f"column {taken[0]!r} is no target: the model reads it as an input.")
        dropped = tuple(name for name in pre.dropped if name not in target)
        pre = dataclasses.replace(pre, targets=tuple(target), dropped=dropped)
        fitted = dataclasses.replace(fitted, preprocessing=pre)
    blocks = Blocks(fitted, source, unseen.value, targets=True)
    parts, observed, raw, numbers, n_without = [], [], [], [], 0
    for rows in blocks:
        y = np.stack([to_floats(rows.batch.column(name)) for name in pre.targets], axis=1)
        for name, values in zip(pre.targets, y.T, strict=True):
            bad = first_out_of_range(values)
            if bad is not None:
                raise range_error(values[bad], name, source.where(rows.first + bad))
        holes = np.isnan(y).any(axis=1)
        if holes.any() and pre.missing == "error":
            place = source.where(rows.first + int(np.argmax(holes)))
            raise UserError(f"a target has no value in {place}: fill it in or remove the row.")
        n_without += int(holes.sum())
        keep = rows.encoded.complete & ~holes
        parts.append(complete_rows(dataclasses.replace(rows.encoded, complete=keep)))
        observed.append(y[keep])
        raw.append(rows.batch.filter(pa.array(keep)))
        numbers.append(rows.first + np.flatnonzero(keep))
    encoded, y = join_rows(parts), np.concatenate(observed)
    if len(y) < 2:
        raise UserError(
            f"{source.label} has {count_rows(len(y))} to score: scores need at least two."
        )
    y = y[:, 0] if fitted.regressor._y_ndim == 1 else y
    try:
        predictions = fitted.with_simple(encoded)
    except ValueError as error:  # a row too far out; the library's own sentence
        raise UserError(str(error)) from error
    card, sentence = scorecard(y, predictions), verdict(y, predictions)
    notes = blocks.notes()
    if n_without:
        notes.append(f"{count_rows(n_without)} without a target left out.")
    note(notes, quiet=quiet)
    if report is not None:
        from varprop.cli.fitting import report_content

        content = report_content(
            fitted,
            pa.Table.from_batches(raw),
            np.concatenate(numbers),
            encoded,
            y,
            next(iter(predictions.values())),
            card,
            {"model": model, "table": source.label},
        )
        write_html(report, title=f"{source.label}: {', '.join(pre.targets)}", **content)
    if json:
        print_json(
            {
                "rows": len(y),
                "scorecard": card,
                "verdict": sentence,
                "report": report,
                "notes": notes,
            }
        )
    elif not quiet:
        print_scorecard(
            card, f"{', '.join(pre.targets)}: {len(y)} rows of {source.label}", sentence
        )
        if report is not None:
            say(f"Report: {report}")
