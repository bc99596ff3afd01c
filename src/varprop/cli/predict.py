"""`varprop predict`: a predictive distribution for every row of a table, block by block."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from varprop.cli.shared import (
    DecimalOption,
    DelimiterOption,
    ExitCode,
    JsonOption,
    ModelArgument,
    QuietOption,
    TableArgument,
    Unseen,
    UnseenOption,
    UserError,
    check_output,
    command,
    load_model,
    note,
    open_table,
    print_json,
)


@command
def predict(
    model: ModelArgument,
    table: TableArgument,
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
    quantiles: Annotated[
        str | None, typer.Option("--quantiles", help="More columns, such as 0.1,0.5,0.9.")
    ] = None,
    unseen: UnseenOption = Unseen.error,
    delimiter: DelimiterOption = None,
    decimal: DecimalOption = ".",
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict mean, standard deviation (whole, of the model, of the noise) and an interval.

    The table is read and the predictions are written block by block, so that neither needs to fit
    into memory. A file is written whole or not at all.
    """
    if not 0 < interval < 1:
        raise UserError(
            f"--interval must lie between 0 and 1, but is {interval:g}.", ExitCode.USAGE
        )
    try:
        alphas = (
            tuple(float(part) for part in quantiles.split(",")) if quantiles is not None else ()
        )
    except ValueError:
        alphas = (0.0,)
    if not all(0 < alpha < 1 for alpha in alphas) or len(set(alphas)) < len(alphas):
        raise UserError(
            "--quantiles must be different numbers between 0 and 1, such as 0.1,0.5,0.9, but is "
            f"{quantiles!r}.",
            ExitCode.USAGE,
        )
    if output != "-":
        check_output(output, table, model)
    fitted = load_model(model)
    source = open_table(table, delimiter, decimal)

    from varprop.tables.prediction import notes_on, output_format, predict_table, write_table

    output_format(output)  # a name that says none is found before the work and not after it
    schema, batches, rows = predict_table(
        fitted, source, interval=interval, quantiles=alphas, unseen=unseen.value
    )
    result: dict[str, Any]
    if json and output == "-":
        import pyarrow as pa

        whole = pa.Table.from_batches(batches, schema)
        result = {"rows": whole.num_rows, "predictions": whole.to_pydict()}
    else:
        write_table(output, schema, batches)
        result = {"output": output, "rows": rows.n_rows_read, "columns": schema.names}
    notes = notes_on(rows)
    if json:
        print_json({**result, "notes": notes})
    note(notes, quiet=quiet)
    if output != "-" and not json and not quiet:
        typer.echo(f"Wrote {rows.n_rows_read} rows to {output}.", err=True)
