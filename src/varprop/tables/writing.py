"""Predictions as a table, block by block; a file is written whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import pathlib
import sys
from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from varprop.atomic import replacing
from varprop.tables.columns import is_text
from varprop.tables.errors import TableError

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


class Sink(Protocol):
    """Takes blocks of rows."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""

    def close(self) -> None:
        """Write what is left."""


class _Text:
    """Delimited text; the header is ours, since pyarrow would put quotes around every name."""

    def __init__(self, file: Any, schema: pa.Schema, delimiter: str):
        header = io.StringIO()
        csv.writer(header, delimiter=delimiter, lineterminator="\n").writerow(schema.names)
        file.write(header.getvalue().encode())
        self._file = file
        self._options = {
            style: pa.csv.WriteOptions(
                include_header=False, delimiter=delimiter, batch_size=8192, quoting_style=style
            )
            for style in ("needed", "none")
        }
        self._special = f'["\r\n{delimiter}]'

    def write(self, batch: pa.RecordBatch) -> None:
        # pyarrow's "needed" puts quotes around all text, also where none are needed.
        quote = any(
            pc.any(pc.match_substring_regex(column, self._special)).as_py()
            for column in batch.columns
            if is_text(column.type)
        )
        options = self._options["needed" if quote else "none"]
        pa.csv.write_csv(batch, self._file, write_options=options)

    def close(self) -> None:
        pass


class _Parquet:
    def __init__(self, file: Any, schema: pa.Schema):
        self._writer = pq.ParquetWriter(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


class _Arrow:
    def __init__(self, file: Any, schema: pa.Schema):
        self._writer = pa.ipc.new_file(file, schema)

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()


def output_format(path: str) -> tuple[str, bool]:
    """Return format and whether to compress, by the name's end; ``-`` is CSV.

    Examples
    --------
    >>> output_format("out.tsv.gz"), output_format("-")
    (('tsv', True), ('csv', False))
    """
    if path == "-":
        return "csv", False
    compress = path.endswith(".gz")
    suffix = pathlib.PurePath(path.removesuffix(".gz")).suffix.lower()
    form = _FORMATS.get(suffix)
    target = pathlib.Path(path)
    if form is None and target.exists() and not target.is_file() and not target.is_dir():
        return "csv", False  # a device or a pipe
    if form is None or (compress and form not in ("csv", "tsv")):
        raise TableError(
            f"{pathlib.PurePath(path).name} does not say its format: end the name in .csv, .tsv "
            "(or .csv.gz, .tsv.gz), .parquet or .feather."
        )
    return form, compress


@contextlib.contextmanager
def open_sink(path: str, schema: pa.Schema) -> Iterator[Sink]:
    """Open a table for writing.

    Parameters
    ----------
    path
        Its end says the format; ``-`` is CSV on standard output.
    schema
        Names and types of the columns.
    """
    form, compress = output_format(path)
    with contextlib.ExitStack() as stack:
        if path == "-":
            sys.stdout.flush()
            file: Any = sys.stdout.buffer
        else:
            file = stack.enter_context(replacing(path))
            if compress:
                file = stack.enter_context(gzip.GzipFile(fileobj=file, mode="wb", mtime=0))
        sink: Sink
        if form in ("csv", "tsv"):
            sink = _Text(file, schema, "\t" if form == "tsv" else ",")
        else:
            sink = _Parquet(file, schema) if form == "parquet" else _Arrow(file, schema)
        yield sink
        sink.close()
        if path == "-":
            file.flush()
