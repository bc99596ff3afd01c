"""A model's view of a new table, block by block: predictions, written too, and scores."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from varprop.atomic import replacing
from varprop.errors import printable
from varprop.predictive.columns import is_joint, number_names, number_values
from varprop.tables.cells import to_text
from varprop.tables.keys import Keys
from varprop.tables.kinds import kind_of
from varprop.tables.model import TableModel
from varprop.tables.outside import outside_words
from varprop.tables.rows import TableRows
from varprop.tables.text import TableError

_FORMATS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".feather": "arrow",
    ".arrow": "arrow",
}


def predict_table(
    model: TableModel,
    rows: TableRows,
    *,
    interval: float = 0.9,
    quantiles: Sequence[float] = (),
    factor: np.ndarray | None = None,
    survival: Sequence[float] = (),
) -> Iterator[pa.RecordBatch]:
    """Predict every row of a table, block by block; what is counted on the way is in `rows`.

    Parameters
    ----------
    model, rows
        What predicts, and what.
    interval
        Probability between ``lower`` and ``upper``.
    quantiles
        Probabilities of further columns.
    factor
        Standard deviations that the interval reaches either way, shape (targets,), as
        `varprop.tables.recalibrate` says; the distribution's own quantiles unless given.
    survival
        Values of further columns, ``survival_`` and the value: the probability of more.

    Yields
    ------
    pyarrow.RecordBatch
        Ids first, or the number of the row, from 1, where there are none; then the results. A row
        without a prediction has none. The standard deviations of model and noise are there only if
        the model tells them apart, and the covariance of every pair of targets (``cov_a_b``) if it
        models that. The last column, ``outside``, says in words what about a row is
        unlike all that training has seen: the prediction is a guess there. Counts have also
        ``p_zero``, the probability of none; of classes see `predict_classes`.

    Raises
    ------
    InputError
        If an id column has the name of a result, or the table does not suit the model.

    Examples
    --------
    >>> from varprop.tables import Roles, fit_table
    >>> from varprop.tables.source import Source
    >>> table = pa.table({"size": np.arange(60) % 7, "price": np.arange(60) % 7 + 0.5})
    >>> model = fit_table(Source.of_table(table), Roles(("price",)), model="linear").model
    >>> rows = TableRows(Source.of_table(table.slice(0, 2)), model.preprocessing, targets=False)
    >>> next(predict_table(model, rows)).schema.names
    ['row', 'mean', 'std', 'model_std', 'noise_std', 'lower', 'upper', 'outside']
    """
    if model.preprocessing.outcome.kind == "classes":
        from varprop.tables.class_prediction import predict_classes

        yield from predict_classes(model, rows)
        return
    targets, source = model.preprocessing.targets, rows.table
    keys = Keys.of(model.preprocessing, source)
    counts = model.preprocessing.outcome.kind == "counts"
    blocks, waiting, found, identified, joint = rows.encoded(), [], None, False, False
    for block in blocks:  # the first prediction says whether it has parts, and a covariance
        waiting.append(block)
        if block.complete.any():
            found = model.predict_parts(block.only_complete(), source.where)
            first = next(found)
            found, identified = itertools.chain([first], found), first[1].identified
            joint = is_joint(first[1])
            break
    names = number_names(
        targets, quantiles, survival, identified=identified, joint=joint, counts=counts
    )
    schema = keys.schema(names)
    for block in itertools.chain(waiting, blocks):
        complete = block.complete
        values = np.full((len(complete), len(names)), np.nan)
        words = np.full(len(complete), None, object)
        if complete.any():
            whole = block.only_complete()
            if found is None:
                found = model.predict_parts(whole, source.where)
            predictions, found = found, None
            words[complete] = outside_words(model.regressor, model.preprocessing, whole)
            rows.saw_outside(block.numbers, words)
            for index, prediction in predictions:
                values[np.flatnonzero(complete)[index]] = number_values(
                    prediction, quantiles, survival, interval=interval, factor=factor
                )
        arrays = keys.arrays(block)
        # NaN only stands for "no prediction": those of rows are finite.
        hidden = None if complete.all() else ~complete
        arrays += [pa.array(np.ascontiguousarray(column), mask=hidden) for column in values.T]
        arrays.append(pa.array(words, pa.string()))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def output_format(path: str) -> tuple[str, bool]:
    """Return format and whether to compress, by the name's end; ``-`` is CSV.

    Examples
    --------
    >>> output_format("out.tsv.gz"), output_format("-")
    (('tsv', True), ('csv', False))
    """
    target, compress = pathlib.Path(path), path.endswith(".gz")
    form = _FORMATS.get(pathlib.PurePath(path.removesuffix(".gz")).suffix.lower())
    device = target.exists() and not target.is_file() and not target.is_dir()
    if path == "-" or (form is None and device):
        return "csv", False
    if form is None or (compress and form not in ("csv", "tsv")):
        raise TableError(
            f"{target.name} does not say its format: end the name in .csv, .tsv (or .csv.gz, "
            ".tsv.gz), .parquet or .feather."
        )
    return form, compress


def write_table(
    path: str,
    batches: Iterator[pa.RecordBatch],
    *,
    on_note: Callable[[str], None] = lambda note: None,
) -> pa.Schema:
    """Write a table block by block; a file is written whole or not at all.

    Text that a spreadsheet would run as a formula gets an apostrophe in front in CSV and TSV, and
    control characters are shown as escapes on a terminal.

    Parameters
    ----------
    path
        Its end says the format; ``-`` is CSV on standard output.
    batches
        At least one. The first is made before anything is written, not even a header.
    on_note
        Called with a sentence if text was changed.

    Returns
    -------
    pyarrow.Schema
        Names and types of the columns.

    Examples
    --------
    >>> import tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "out.csv"
    >>> _ = write_table(str(path), iter(pa.table({"mean": [1.5, 2.0]}).to_batches()))
    >>> path.read_text().split()
    ['mean', '1.5', '2']
    """
    form, compress = output_format(path)
    first = next(batches)
    schema, batches = first.schema, itertools.chain([first], batches)
    with contextlib.ExitStack() as stack:
        if path == "-":
            sys.stdout.flush()
            file: Any = sys.stdout.buffer
        else:
            file = stack.enter_context(replacing(path))
            if compress:
                file = stack.enter_context(gzip.GzipFile(fileobj=file, mode="wb", mtime=0))
        if form in ("csv", "tsv"):
            terminal = path == "-" and sys.stdout.isatty()
            changed = _write_text(file, schema, batches, "\t" if form == "tsv" else ",", terminal)
            if changed:
                on_note(
                    f"{changed} cells that a spreadsheet would run as formulas have an apostrophe "
                    "in front."
                )
        else:
            open_writer = pq.ParquetWriter if form == "parquet" else pa.ipc.new_file
            with open_writer(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
        if path == "-":
            file.flush()
    return schema


def _write_text(
    file: Any,
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    delimiter: str,
    terminal: bool,
) -> int:
    """Write text; return how many cells a spreadsheet would have run."""
    names, changed = _harmless(pa.array(schema.names, pa.string()), terminal)
    header = io.StringIO()  # ours, since pyarrow would put quotes around every name
    csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(names.to_pylist())
    file.write(header.getvalue().encode())
    for batch in batches:
        columns = []
        for column in batch.columns:
            if kind_of(column.type) == "text":
                column, more = _harmless(to_text(column), terminal)
                changed += more
            columns.append(column)
        batch = pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
        # pyarrow's "needed" puts quotes around all text, also where none are needed.
        quote = any(
            pc.any(pc.match_substring_regex(column, f'["\r\n{delimiter}]')).as_py()
            for column in batch.columns
            if kind_of(column.type) == "text"
        )
        options = pa.csv.WriteOptions(
            include_header=False,
            delimiter=delimiter,
            batch_size=8192,
            quoting_style="needed" if quote else "none",
        )
        pa.csv.write_csv(batch, file, write_options=options)
    return changed


def _harmless(cells: Any, terminal: bool) -> tuple[Any, int]:
    """Return text that no spreadsheet runs and no terminal obeys, and how much was changed."""
    runs = pc.and_not(
        pc.match_substring_regex(cells, r"^[=+\-@\t\r]"),
        pc.match_substring_regex(cells, r"^[-+]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][-+]?\d+)?$"),
    )
    changed = int(pc.sum(runs).as_py() or 0)
    if changed:
        cells = pc.if_else(runs, pc.binary_join_element_wise("'", cells, ""), cells)
    # pyarrow's writer looks also at what stands hidden under a null.
    cells = pc.replace_with_mask(cells, pc.is_null(cells), pa.scalar(None, pa.string()))
    if terminal:
        shown = [None if text is None else printable(text) for text in cells.to_pylist()]
        cells = pa.array(shown, pa.string())
    return cells, changed
