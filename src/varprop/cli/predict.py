"""`varprop predict`: a predictive distribution for every row of a table, block by block."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

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
    ExitCode,
    JsonOption,
    QuietOption,
    UserError,
    command,
    print_json,
)
from varprop.cli.tabular import check_output, load_model, note, open_table, use_compilation_cache

if TYPE_CHECKING:
    from varprop.predictive.distribution import Predictive


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
    alphas = _alphas(quantiles)
    if output != "-":
        check_output(output, table, model)
    fitted = load_model(model)
    source = open_table(table, delimiter, decimal)

    import numpy as np
    import pyarrow as pa

    from varprop.tables.blocks import Blocks
    from varprop.tables.writing import open_sink, output_format

    output_format(output)
    use_compilation_cache()
    blocks = Blocks(fitted, source, unseen.value)
    targets = fitted.preprocessing.targets
    names = _column_names(targets, alphas)
    clash = sorted(set(names) & set(blocks.id_types))
    if clash:
        raise UserError(f"the id column {clash[0]!r} has the name of a result: rename it.")
    fields = [*blocks.id_types.items(), *((name, pa.float64()) for name in names)]
    schema = pa.schema(fields)

    def results() -> Iterator[pa.RecordBatch]:
        for rows in blocks:
            values = _results(blocks.predict(rows), len(targets), interval, alphas)
            complete = rows.encoded.complete
            if not complete.all():
                spread = np.full((len(complete), values.shape[1]), np.nan)
                spread[complete] = values
                values = spread
            # NaN only stands for "no prediction": those of rows are finite.
            hidden = None if complete.all() else ~complete
            arrays = [rows.batch.column(name).cast(kind) for name, kind in blocks.id_types.items()]
            arrays += [pa.array(np.ascontiguousarray(column), mask=hidden) for column in values.T]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    if json and output == "-":
        whole = pa.Table.from_batches(results(), schema)
        print_json(
            {"rows": whole.num_rows, "notes": blocks.notes(), "predictions": whole.to_pydict()}
        )
        note(blocks.notes(), quiet=quiet)
        return
    batches = results()
    first = next(batches)  # if the table is no good, nothing is written, not even a header
    with open_sink(output, schema) as sink:
        for batch in itertools.chain([first], batches):
            sink.write(batch)
    if json:
        print_json(
            {
                "output": output,
                "rows": blocks.n_rows,
                "columns": schema.names,
                "notes": blocks.notes(),
            }
        )
    note(blocks.notes(), quiet=quiet)
    if output != "-" and not json and not quiet:
        typer.echo(f"Wrote {blocks.n_rows} rows to {output}.", err=True)


def _alphas(text: str | None) -> list[float]:
    if text is None:
        return []
    try:
        alphas = [float(part) for part in text.split(",")]
    except ValueError:
        alphas = [0.0]
    if not all(0 < alpha < 1 for alpha in alphas) or len(set(alphas)) < len(alphas):
        raise UserError(
            "--quantiles must be different numbers between 0 and 1, such as 0.1,0.5,0.9, but is "
            f"{text!r}.",
            ExitCode.USAGE,
        )
    return alphas


def _column_names(targets: tuple[str, ...], alphas: list[float]) -> list[str]:
    parts = ["mean", "std", "model_std", "noise_std", "lower", "upper"]
    parts += [f"q{alpha:g}" for alpha in alphas]
    if len(targets) == 1:
        return parts
    return [f"{target}_{part}" for target in targets for part in parts]


def _results(prediction: Predictive, n_targets: int, interval: float, alphas: list[float]) -> Any:
    """Return the columns of the result, shape (rows, columns)."""
    import numpy as np

    levels = [(1 - interval) / 2, (1 + interval) / 2, *alphas]
    model_var, noise_var = prediction.model_var, prediction.noise_var
    columns = [
        prediction.mean,
        np.sqrt(model_var + noise_var),
        np.sqrt(model_var),
        np.sqrt(noise_var),
        *prediction.quantile(levels),
    ]
    shaped = [np.broadcast_to(part, prediction.mean.shape) for part in columns]
    stacked = np.stack([part.reshape(-1, n_targets) for part in shaped], axis=2)
    return stacked.reshape(len(stacked), -1)
