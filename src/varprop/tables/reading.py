"""Rows of a table: all at once for `fit`, block by block for everything else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from varprop.tables.errors import TableError
from varprop.tables.source import Source

#: Read as a missing value, besides what pyarrow reads so ("", "NA", "NaN", "null", ...).
ALSO_MISSING = ("None", "<NA>", "?")

BLOCK_ROWS = 65_536
_BLOCK_BYTES = 4 * 2**20
_BUFFER_BYTES = 2**20

_KINDS = {"double": "a number", "bool": "true or false", "string": "text"}
_ROW = re.compile(r"Row #(\d+): ")
_WIDTH = re.compile(r"Expected (\d+) columns?, got (\d+)")
_VALUE = re.compile(r"In CSV column #(\d+): .*?conversion error to (\w+): (.*)", re.S)


def read_table(source: Source, *, text: Sequence[str] = ()) -> pa.Table:
    r"""Read a whole table.

    Parameters
    ----------
    source
        From `open_source`.
    text
        Columns of a text file that are to stay text, whatever they look like.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from varprop.tables.source import open_source
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.csv"
    >>> _ = path.write_text("id,price\n007,2\n")
    >>> read_table(open_source(str(path)), text=["id"]).to_pylist()
    [{'id': '007', 'price': 2}]
    """
    if source.format == "delimited":
        types = {name: pa.string() for name in text}
        try:
            # On one thread errors name the row; rows of a text file are not the slow part of a fit.
            table = pa.csv.read_csv(
                _stream(source),
                read_options=pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                parse_options=_parse_options(source),
                convert_options=_convert_options(source, column_types=types),
            )
        except (pa.ArrowException, OSError) as error:
            raise _readable(error, source, source.names) from error
    else:
        try:
            if source.format == "parquet":
                table = pq.read_table(source.path)
            else:
                with pa.ipc.open_file(source.path) as reader:
                    table = reader.read_all()
        except (pa.ArrowException, OSError) as error:
            raise _damaged(source) from error
    for name in table.column_names:
        if pa.types.is_binary(table.schema.field(name).type) and source.format == "delimited":
            _find_bad_encoding(source)
    if not table.num_rows:
        raise TableError(f"{source.label} has a header but no rows.")
    return table


def stream_table(
    source: Source, columns: Mapping[str, pa.DataType], *, block_rows: int = BLOCK_ROWS
) -> Iterator[pa.RecordBatch]:
    """Read some columns of a table, a block of rows at a time.

    Parameters
    ----------
    source
        From `open_source`.
    columns
        Names, and the types cells of a text file must have; other formats keep their own.
    block_rows
        Rows at a time; blocks of text files are of bounded bytes instead.
    """
    names = list(columns)
    try:
        if source.format == "delimited":
            yield from pa.csv.open_csv(
                _stream(source),
                read_options=pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
                parse_options=_parse_options(source),
                convert_options=_convert_options(
                    source, column_types=dict(columns), include_columns=names
                ),
            )
        elif source.format == "parquet":
            # By default pyarrow buffers all that will be read, which is the whole file.
            with pq.ParquetFile(source.path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
                for group in range(file.num_row_groups):
                    yield from file.iter_batches(
                        block_rows, row_groups=[group], columns=names, use_threads=False
                    )
        else:
            with pa.ipc.open_file(source.path) as reader:
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number).select(names)
                    for start in range(0, batch.num_rows, block_rows):
                        yield batch.slice(start, block_rows)
    except (pa.ArrowException, OSError) as error:
        if source.format == "delimited":
            raise _readable(error, source, source.names) from error
        raise _damaged(source) from error


def column_types(source: Source) -> dict[str, pa.DataType]:
    """Return the types of a Parquet or Feather file's columns; of a text file's, nothing."""
    if source.format == "delimited":
        return {}
    if source.format == "parquet":
        schema = pq.read_schema(source.path)
    else:
        with pa.ipc.open_file(source.path) as reader:
            schema = reader.schema
    return {field.name: field.type for field in schema}


def _stream(source: Source) -> Any:
    file = pa.OSFile(str(source.path))
    return pa.CompressedInputStream(file, "gzip") if source.compressed else file


def _parse_options(source: Source) -> Any:
    return pa.csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True)


def _convert_options(source: Source, **options: Any) -> Any:
    missing = [*pa.csv.ConvertOptions().null_values, *ALSO_MISSING]
    return pa.csv.ConvertOptions(
        strings_can_be_null=True, null_values=missing, decimal_point=source.decimal, **options
    )


def _damaged(source: Source) -> TableError:
    return TableError(f"{source.label} is damaged or cut short: write it again.")


def _readable(error: Exception, source: Source, names: Sequence[str]) -> TableError:
    """Turn an error of pyarrow's CSV reader into a sentence with line and column."""
    message = str(error)
    row = _ROW.search(message)
    where = source.where(int(row[1]) - 2) if row else source.label
    if width := _WIDTH.search(message):
        return TableError(
            f"{where} has {width[2]} cells, but the header names {width[1]} columns: mend the line"
            " (or choose another --delimiter)."
        )
    if value := _VALUE.search(message):
        name, wanted = names[int(value[1])], _KINDS.get(value[2], value[2])
        if "UTF8" in value[3]:
            _find_bad_encoding(source)
        what = value[3].removeprefix("invalid value ").strip()[:60]
        return TableError(
            f"column {name!r} holds {what} in {where}, which is not {wanted}: mend or remove it."
        )
    if re.search("gzip|zlib|inflate|compressed", message):
        return TableError(f"{source.label} is a damaged gzip file: compress it again.")
    return TableError(f"{where} cannot be read as a table ({message.splitlines()[0][:200]}).")


def _find_bad_encoding(source: Source) -> None:
    """Raise the error that names the first line that is no UTF-8."""
    with source.open() as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise TableError(
                    f"{source.label} is not UTF-8 text (line {number}): save it with the encoding "
                    "UTF-8."
                ) from error
