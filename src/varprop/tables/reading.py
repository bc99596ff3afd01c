"""Rows of a table: in blocks of any order for `fit`, one after the other for everything else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.csv

from varprop.data.source import SourceError
from varprop.tables.errors import TableError
from varprop.tables.source import Source

#: Read as a missing value, besides what pyarrow reads so ("", "NA", "NaN", "null", ...).
ALSO_MISSING = ("None", "<NA>", "?")

BLOCK_ROWS = 65_536
_BLOCK_BYTES = 4 * 2**20

_KINDS = {"double": "a number", "bool": "true or false", "string": "text"}
_ROW = re.compile(r"Row #(\d+): ")
_WIDTH = re.compile(r"Expected (\d+) columns?, got (\d+)")
_VALUE = re.compile(r"In CSV column #(\d+): .*?conversion error to (\w+): (.*)", re.S)


class Blocks:
    r"""The rows of a table to train on, in blocks that can be read in any order.

    Parquet files are read by row groups, whatever their size; other formats are held in memory.

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
    >>> blocks = Blocks(open_source(str(path)), text=["id"])
    >>> [batch.to_pylist() for batch in blocks.read(0, ["id", "price"])]
    [[{'id': '007', 'price': 2}]]
    """

    def __init__(self, source: Source, *, text: Sequence[str] = ()):
        self.label, self.names, self.where = source.label, source.names, source.where
        self._files, self._table = source.parquet, None
        if self._files is None:
            self._table = _whole(source, text)
            self.block_rows: tuple[int, ...] = (self._table.num_rows,)
        else:
            self.block_rows = self._files.block_rows
        if not self.n_rows:
            raise TableError(f"{source.label} has a header but no rows.")

    @classmethod
    def of_table(cls, table: pa.Table, label: str = "the table") -> Blocks:
        """Return a table that is in memory already."""
        blocks = object.__new__(cls)
        blocks.label, blocks.names = label, tuple(table.column_names)
        blocks.where = lambda row: f"row {row + 1} of {label}"
        blocks._files, blocks._table, blocks.block_rows = None, table, (table.num_rows,)
        return blocks

    @property
    def n_rows(self) -> int:
        """Rows in all blocks."""
        return sum(self.block_rows)

    def read(self, block: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a block in order, a bounded number of rows at a time."""
        if self._table is None:
            try:
                yield from self._files.read(block, list(columns))
            except SourceError as error:
                raise TableError(str(error)) from error
        else:
            part = self._table.select(list(columns)).combine_chunks()
            yield from part.to_batches(max_chunksize=BLOCK_ROWS)

    def counts_rows(self, name: str) -> bool:
        """Whether a column holds the row numbers that pandas writes into one without a name."""
        first = 0
        for block in range(len(self.block_rows)):
            for batch in self.read(block, [name]):
                cells = batch.column(0)
                expected = pa.array(range(first, first + len(cells)), pa.int64())
                if not pa.types.is_integer(cells.type) or not cells.cast(pa.int64()).equals(
                    expected
                ):
                    return False
                first += len(cells)
        return True


def _whole(source: Source, text: Sequence[str]) -> pa.Table:
    """Read a whole table of text, or of Arrow's format."""
    if source.format != "delimited":
        try:
            with pa.ipc.open_file(source.path) as reader:
                return reader.read_all()
        except (pa.ArrowException, OSError) as error:
            raise _damaged(source) from error
    types = {name: pa.string() for name in text if name in source.names}
    try:
        # On one thread errors name the row; rows of a text file are not the slow part of a fit.
        table = pa.csv.read_csv(_stream(source), **_csv_options(source, column_types=types))
    except (pa.ArrowException, OSError) as error:
        raise _readable(error, source, source.names) from error
    if any(pa.types.is_binary(field.type) for field in table.schema):
        _find_bad_encoding(source)
    return table


def stream_table(source: Source, columns: Mapping[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
    """Read some columns of a table, a block of rows at a time.

    Parameters
    ----------
    source
        From `open_source`.
    columns
        Names, and the types cells of a text file must have; other formats keep their own.
    """
    names = list(columns)
    if source.parquet is not None:
        blocks = Blocks(source)
        for block in range(len(blocks.block_rows)):
            yield from blocks.read(block, names)
        return
    try:
        if source.format == "delimited":
            options = _csv_options(source, column_types=dict(columns), include_columns=names)
            yield from pa.csv.open_csv(_stream(source), **options)
        else:
            with pa.ipc.open_file(source.path) as reader:
                for number in range(reader.num_record_batches):
                    batch = reader.get_batch(number).select(names)
                    for start in range(0, batch.num_rows, BLOCK_ROWS):
                        yield batch.slice(start, BLOCK_ROWS)
    except (pa.ArrowException, OSError) as error:
        if source.format == "delimited":
            raise _readable(error, source, source.names) from error
        raise _damaged(source) from error


def column_types(source: Source) -> dict[str, pa.DataType]:
    """Return the types of a Parquet or Feather file's columns; of a text file's, nothing."""
    if source.format == "delimited":
        return {}
    if source.parquet is not None:
        schema = source.parquet.files[0].metadata.schema.to_arrow_schema()
    else:
        with pa.ipc.open_file(source.path) as reader:
            schema = reader.schema
    return {field.name: field.type for field in schema}


def _stream(source: Source) -> Any:
    file = pa.OSFile(str(source.path))
    return pa.CompressedInputStream(file, "gzip") if source.compressed else file


def _csv_options(source: Source, **convert: Any) -> dict[str, Any]:
    missing = [*pa.csv.ConvertOptions().null_values, *ALSO_MISSING]
    return {
        "read_options": pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
        "parse_options": pa.csv.ParseOptions(delimiter=source.delimiter, newlines_in_values=True),
        "convert_options": pa.csv.ConvertOptions(
            strings_can_be_null=True,
            null_values=missing,
            decimal_point=source.decimal,
            **convert,
        ),
    }


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
