"""`varprop predict`: a predictive distribution for every row of a table, block by block."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from varprop.cli import opening, shared


@shared.command
def predict(
    model: opening.ModelArgument,
    table: opening.TableArgument,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to: .csv, .tsv, .parquet or .feather; CSV on standard output unless given.",
        ),
    ] = "-",
    interval: Annotated[
        float, typer.Option("--interval", help="Probability between lower and upper.")
    ] = 0.9,
    recalibrate: Annotated[
        str | None,
        typer.Option(
            "--recalibrate",
            metavar="TABLE",
            help="Rows with observed targets, not trained on: lower and upper are moved such that "
            "they hold as many as --interval promises.",
        ),
    ] = None,
    quantiles: Annotated[
        str | None, typer.Option("--quantiles", help="More columns, such as 0.1,0.5,0.9.")
    ] = None,
    survival: Annotated[
        str | None,
        typer.Option("--survival", help="More columns: the probability of more than 10,20,50."),
    ] = None,
    total: Annotated[
        bool, typer.Option("--total", help="Predict the sum over all rows, and not each row.")
    ] = False,
    total_by: Annotated[
        str | None,
        typer.Option(
            "--total-by",
            metavar="COLUMN",
            help="Predict a sum for each value of a column, of any kind.",
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
    """Predict mean, standard deviation and an interval; of classes the probabilities.

    The standard deviations of model and noise are added if the model tells them apart, as one that
    was fitted with --objective vi does.

    The table is read and the predictions are written block by block, so that neither needs to fit
    into memory. A file is written whole or not at all.

    A total (--total, --total-by) has the rows in memory. Its spread counts what rows have in
    common: where the model errs in one of them it may err in many.
    """
    if not 0 < interval < 1:
        raise shared.wrong_usage(f"--interval must lie between 0 and 1, but is {interval:g}.")
    try:
        alphas = (
            tuple(float(part) for part in quantiles.split(",")) if quantiles is not None else ()
        )
    except ValueError:
        alphas = (0.0,)
    if not all(0 < alpha < 1 for alpha in alphas) or len(set(alphas)) < len(alphas):
        raise shared.wrong_usage(
            "--quantiles must be different numbers between 0 and 1, such as 0.1,0.5,0.9, but is "
            f"{quantiles!r}."
        )
    try:
        times = tuple(float(part) for part in survival.split(",")) if survival is not None else ()
    except ValueError:
        times = (float("nan"),)
    if any(time != time for time in times) or len(set(times)) < len(times):
        raise shared.wrong_usage(
            f"--survival must be different numbers, such as 10,20,50, but is {survival!r}."
        )
    dialect = opening.told(delimiter, decimal, thousands, encoding, na)
    if recalibrate == "-" == table:
        raise shared.wrong_usage("only one table can come from standard input.")
    if total and total_by is not None:
        raise shared.wrong_usage("--total and --total-by are two: give one of them.")
    summed = total or total_by is not None
    if summed and recalibrate is not None:
        raise shared.wrong_usage(
            "--recalibrate is for single rows: what it learns of them says nothing of a total."
        )
    if output != "-":
        shared.check_output(output, table, model, *([recalibrate] if recalibrate else []))

    from varprop.tables.model import TableRows
    from varprop.tables.prediction import output_format, predict_table, write_table

    output_format(output)  # a name that says none is found before the work and not after it
    carried = [] if total_by is None else [total_by]
    by_row = not summed and recalibrate is None
    fitted, source = opening.open_both(model, table, dialect, carried=carried, by_row=by_row)
    fitted = fitted.part(only)
    known = fitted.preprocessing
    if known.outcome.kind == "classes" and (summed or recalibrate or alphas or times):
        raise shared.wrong_usage(
            "--quantiles, --survival, --recalibrate and totals are for numbers, but the model "
            "predicts classes."
        )
    rows = TableRows(source, known, unseen=unseen.value, targets=False, carried=carried)
    factor, more = None, list[str]()
    if recalibrate is not None:
        from varprop.tables.evaluation import recalibrate as recalibrated

        held = opening.open_table(recalibrate, dialect, fitted.preprocessing)
        factor, more = recalibrated(fitted, held, interval=interval, unseen=unseen.value)
        reach = ", ".join(f"{each:.2f}" for each in factor)
        more.append(
            f"the interval reaches {reach} standard deviations either way, as {held.label} asks "
            "for."
        )
    said = list[str]()
    if summed:
        from varprop.tables.totals import total_table

        def say(sentence: str) -> None:  # at once: one of them is how long it may take
            said.append(sentence)
            shared.note([sentence], quiet=quiet)

        totals = total_table(
            fitted, rows, by=total_by, interval=interval, quantiles=alphas, on_note=say
        )
        batches = iter(totals.to_batches())
    else:
        batches = predict_table(
            fitted, rows, interval=interval, quantiles=alphas, factor=factor, survival=times
        )
    result: dict[str, Any]
    if json and output == "-":
        import pyarrow as pa

        whole = pa.Table.from_batches(batches)
        name = "totals" if summed else "predictions"
        result = {"rows": rows.n_rows_read, name: whole.to_pydict()}
    else:
        names = write_table(output, batches, on_note=more.append).names
        result = {"output": output, "rows": rows.n_rows_read, "columns": names}
    notes = rows.notes() + more
    if json:
        shared.print_json({**result, "notes": said + notes})
    shared.note(notes, quiet=quiet)
    if output != "-" and not json and not quiet:
        what_of = "totals of " if summed else ""
        shared.say(f"Wrote {what_of}{rows.n_rows_read} rows to {output}.", err=True)
