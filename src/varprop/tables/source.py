"""Where a table comes from and how its rows are read: format by content, header, blocks, places.

A format is told by the first bytes and not by the name. Standard input, and compressed Parquet and
Feather files, go through a temporary file: then everything can be read twice, once for the header
and once for the rows, and errors can name the line.
"""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import os
import pathlib
import re
import shutil
import sys
import tempfile
import weakref
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv

from varprop.data.parquet import ParquetFiles
from varprop.errors import InputError

Format = Literal["delimited", "parquet", "arrow"]

DELIMITERS = (",", "\t", ";", "|")
#: Read as a missing value, besides what pyarrow reads so ("", "NA", "NaN", "null", ...).
ALSO_MISSING = ("None", "<NA>", "?")
BLOCK_ROWS = 65_536
_BLOCK_BYTES = 4 * 2**20
_HEADER_BYTES = 4 * 2**20
_BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|\s*(nan|inf)\s*", re.I)

# What pyarrow's reader of text says when it fails.
_ROW = re.compile(r"Row #(\d+): ")
_WIDTH = re.compile(r"Expected (\d+) columns?, got (\d+)")
_VALUE = re.compile(r"In CSV column #(\d+): .*?conversion error to (\w+): (.*)", re.S)
_KINDS = {"double": "a number", "bool": "true or false", "string": "text"}


class TableError(InputError):
    """A table cannot be used as asked; the message is one sentence that says what to do.

    Examples
    --------
    >>> str(TableError("data.csv is empty."))
    'data.csv is empty.'
    """


@dataclasses.dataclass(frozen=True)
class Source:
    """A table that can be read, more than once.

    Attributes
    ----------
    label
        What errors call it.
    path
        The file; a temporary one for standard input.
    format
        Text with delimiters, Parquet, or Arrow's file format (Feather).
    names
        Of the columns, in order.
    types
        Of the columns, by name; a text file has none before it is read.
    compressed, delimiter, decimal
        Of text: whether it is gzip'd, what stands between cells, and what inside numbers.
    files
        The Parquet file, or files.
    table
        All rows, after `load` of another format.
    block_rows
        Number of rows in every block that can be read; of other formats after `load`.
    """

    label: str
    path: pathlib.Path
    format: Format
    names: tuple[str, ...] = ()
    types: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    compressed: bool = False
    delimiter: str = ","
    decimal: str = "."
    files: ParquetFiles | None = dataclasses.field(default=None, repr=False)
    table: Any = dataclasses.field(default=None, repr=False)
    block_rows: tuple[int, ...] = ()
    spool: Any = dataclasses.field(default=None, repr=False)

    @classmethod
    def of_table(cls, table: pa.Table, label: str = "the table") -> Source:
        """Return a table that is in memory already."""
        path, names, n = pathlib.Path(label), tuple(table.column_names), table.num_rows
        return cls(label, path, "arrow", names, table=table, block_rows=(n,))

    def open(self) -> BinaryIO:
        """Open the bytes, decompressed."""
        return gzip.open(self.path) if self.compressed else open(self.path, "rb")  # type: ignore[return-value]

    def load(self, *, text: Sequence[str] = ()) -> Source:
        """Return the table ready to be read in blocks of any order.

        Parquet files are read by row groups, whatever their size; other formats are held in memory.

        Parameters
        ----------
        text
            Columns of a text file that are to stay text, whatever they look like.
        """
        if self.table is not None:
            return self
        if self.files is not None:
            for file in self.files.files:
                more = [name for name in file.names if name not in self.names]
                if more:
                    first = self.files.files[0].path.name
                    raise TableError(
                        f"{file.path.name} has a column {more[0]!r}, but {first} has none: give "
                        "all files the same columns."
                    )
            return self
        try:
            if self.format == "delimited":
                types = {name: pa.string() for name in text if name in self.names}
                table = pa.csv.read_csv(**self._csv(column_types=types))
                if any(pa.types.is_binary(field.type) for field in table.schema):
                    self._find_bad_encoding()
            else:
                with pa.ipc.open_file(self.path) as reader:
                    table = reader.read_all()
        except (pa.ArrowException, OSError) as error:
            raise self._readable(error) from error
        if not table.num_rows:
            raise TableError(f"{self.label} has a header but no rows.")
        block_rows = (table.num_rows,)
        return dataclasses.replace(self, table=table.combine_chunks(), block_rows=block_rows)

    def read(
        self, columns: Mapping[str, pa.DataType] | Sequence[str], block: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield some columns in order, a bounded number of rows at a time.

        Parameters
        ----------
        columns
            Names; with types, which cells of a text file must have that was not loaded.
        block
            Of a loaded table; all of them one after the other unless given.
        """
        names = list(columns)
        if self.files is not None:
            for number in range(len(self.block_rows)) if block is None else [block]:
                yield from self.files.read(number, names)
            return
        if self.table is not None:
            yield from self.table.select(names).to_batches(max_chunksize=BLOCK_ROWS)
            return
        try:
            if self.format == "delimited":
                options = self._csv(column_types=dict(columns), include_columns=names)  # type: ignore[arg-type]
                yield from pa.csv.open_csv(**options)
            else:
                with pa.ipc.open_file(self.path) as reader:
                    for number in range(reader.num_record_batches):
                        batch = reader.get_batch(number).select(names)
                        for start in range(0, batch.num_rows, BLOCK_ROWS):
                            yield batch.slice(start, BLOCK_ROWS)
        except (pa.ArrowException, OSError) as error:
            raise self._readable(error) from error

    def where(self, row: int) -> str:
        """Say where a row (0 is the first below the header) stands, as a text editor counts.

        In text, blank lines and line breaks inside quotes are counted: the file is read for it.
        """
        if self.files is not None:
            ends = np.cumsum(self.block_rows)
            block = int(np.searchsorted(ends, row, side="right"))
            return self.files.where(block, row - int(ends[block]) + self.block_rows[block])
        if self.format != "delimited":
            return f"row {row + 1} of {self.label}"
        before, found = 0, -1
        with self.open() as file, io.TextIOWrapper(file, "utf-8", "replace", newline="") as text:
            reader = csv.reader(text, delimiter=self.delimiter)
            try:
                for cells in reader:
                    if cells:
                        found += 1
                        if found == row + 1:
                            return f"line {before + 1} of {self.label}"
                    before = reader.line_num
            except (csv.Error, *_BROKEN_GZIP):
                pass
        return f"line {row + 2} of {self.label}"

    def _csv(self, **convert: Any) -> dict[str, Any]:
        """Return the arguments of pyarrow's readers of text."""
        file = pa.OSFile(str(self.path))
        return {
            "input_file": pa.CompressedInputStream(file, "gzip") if self.compressed else file,
            # On one thread errors name the row; reading text is not the slow part of a fit.
            "read_options": pa.csv.ReadOptions(use_threads=False, block_size=_BLOCK_BYTES),
            "parse_options": pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            "convert_options": pa.csv.ConvertOptions(
                strings_can_be_null=True,
                null_values=[*pa.csv.ConvertOptions().null_values, *ALSO_MISSING],
                decimal_point=self.decimal,
                **convert,
            ),
        }

    def _readable(self, error: Exception) -> TableError:
        """Turn an error of pyarrow's readers into a sentence, of text with line and column."""
        if self.format != "delimited":
            return TableError(f"{self.label} is damaged or cut short: write it again.")
        message = str(error)
        row = _ROW.search(message)
        where = self.where(int(row[1]) - 2) if row else self.label
        if width := _WIDTH.search(message):
            return TableError(
                f"{where} has {width[2]} cells, but the header names {width[1]} columns: mend the "
                "line (or choose another --delimiter)."
            )
        if value := _VALUE.search(message):
            name, wanted = self.names[int(value[1])], _KINDS.get(value[2], value[2])
            if "UTF8" in value[3]:
                self._find_bad_encoding()
            what = value[3].removeprefix("invalid value ").strip()[:60]
            return TableError(
                f"column {name!r} holds {what} in {where}, which is not {wanted}: mend or remove "
                "it."
            )
        if re.search("gzip|zlib|inflate|compressed", message):
            return TableError(f"{self.label} is a damaged gzip file: compress it again.")
        return TableError(f"{where} cannot be read as a table ({message.splitlines()[0][:200]}).")

    def _find_bad_encoding(self) -> None:
        """Raise the error that names the first line that is no UTF-8."""
        with self.open() as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise _not_utf8(self.label, number) from error


def open_source(
    where: str | Sequence[str], *, delimiter: str | None = None, decimal: str = "."
) -> Source:
    r"""Find out what a table is, and read its header.

    Parameters
    ----------
    where
        A path; ``-`` for standard input; or several Parquet files, a folder or a pattern of them.
    delimiter
        Between cells of a text file; found in the header unless given.
    decimal
        The decimal point of a text file.

    Examples
    --------
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.csv"
    >>> _ = path.write_text("size;price\n1;2\n")
    >>> source = open_source(str(path))
    >>> source.names, source.delimiter, source.where(0)
    (('size', 'price'), ';', 'line 2 of data.csv')
    >>> [batch.to_pylist() for batch in source.load(text=["size"]).read(["size", "price"])]
    [[{'size': '1', 'price': 2}]]
    """
    paths = [where] if isinstance(where, str) else list(where)
    only = paths[0]
    label = f"{len(paths)} files" if len(paths) > 1 else pathlib.PurePath(only).name
    path, spool = pathlib.Path(only), None
    if len(paths) > 1 or path.is_dir() or ("*" in only and not path.exists()):
        return _with_files(Source(label, path, "parquet"), paths)
    if only == "-":
        label = "standard input"
        spool = _Spool(sys.stdin.buffer, label)
        path = spool.path
    elif not path.exists():
        raise TableError(f"there is no file {path}: check the path.")
    elif not os.access(path, os.R_OK):
        raise TableError(f"{path} may not be read: ask for permission.")
    try:
        with open(path, "rb") as file:
            start = file.read(8)
        compressed = start[:2] == b"\x1f\x8b"
        if compressed:
            with gzip.open(path) as inner:
                start = inner.read(8)
        form = _format(start, label)
        if compressed and form != "delimited":
            with gzip.open(path) as inner:
                spool = _Spool(inner, label)
            path, compressed = spool.path, False
        source = Source(label, path, form, compressed=compressed, decimal=decimal, spool=spool)
        if form == "parquet":
            return _with_files(source, [str(path)])
        source = _with_schema(source) if form == "arrow" else _with_header(source, delimiter)
    except _BROKEN_GZIP as error:
        raise TableError(f"{label} is a damaged gzip file: compress it again.") from error
    twice = [name for name, count in Counter(source.names).items() if count > 1]
    if twice:
        raise TableError(
            f"{label} has more than one column named {twice[0]!r}: rename all but one."
        )
    if form == "delimited" and all(map(_NUMBER.fullmatch, source.names)):
        raise TableError(f"the first line of {label} holds only numbers: it must name the columns.")
    return source


class _Spool:
    """A stream copied to a temporary file, which goes away with this object."""

    def __init__(self, stream: Any, name: str):
        folder = tempfile.mkdtemp(prefix="varprop-")
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self.path = pathlib.Path(folder) / name  # the name is what errors call it
        with open(self.path, "wb") as file:
            shutil.copyfileobj(stream, file)


def _format(start: bytes, label: str) -> Format:
    if not start:
        raise TableError(f"{label} is empty: give a table with a header and rows.")
    if start[:4] == b"PAR1":
        return "parquet"
    if start[:6] == b"ARROW1":
        return "arrow"
    if start[:4] == b"PK\x03\x04":
        raise TableError(f"{label} looks like an Excel workbook: save the sheet as CSV first.")
    if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise TableError(f"{label} is UTF-16 text: save it as UTF-8.")
    if len(start) == 8 and 0 < int.from_bytes(start, "little") < 2**32 and b"\0" in start:
        raise TableError(
            f"{label} looks like a model file, not a table: the model comes first, then the table."
        )
    if b"\0" in start:
        raise TableError(f"{label} is no CSV, TSV, Parquet or Feather file.")
    return "delimited"


def _with_files(source: Source, paths: list[str]) -> Source:
    files = ParquetFiles(paths)
    schema = files.files[0].metadata.schema.to_arrow_schema()
    types = dict(zip(schema.names, schema.types, strict=True))
    return dataclasses.replace(
        source, files=files, names=files.names, types=types, block_rows=files.block_rows
    )


def _with_schema(source: Source) -> Source:
    try:
        with pa.ipc.open_file(source.path) as reader:
            schema = reader.schema
    except (pa.ArrowInvalid, OSError) as error:
        raise source._readable(error) from error
    types = dict(zip(schema.names, schema.types, strict=True))
    return dataclasses.replace(source, names=tuple(schema.names), types=types)


def _with_header(source: Source, delimiter: str | None) -> Source:
    """Return a text file with its columns' names, and its delimiter if none was given."""
    label = source.label
    with source.open() as file:
        data = file.read(_HEADER_BYTES)
    if len(data) == _HEADER_BYTES:  # the end may be in the middle of a character
        data = data[: data.rfind(b"\n") + 1] or data
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise _not_utf8(label, data.count(b"\n", 0, error.start) + 1) from error
    if not text.strip():
        raise TableError(f"{label} is empty: give a table with a header and rows.")
    if delimiter is None:
        # The usual delimiter for the name if the header has it, else the one it has most of.
        header = next(line for line in text.splitlines() if line.strip())
        usual = "\t" if {".tsv", ".tab"} & set(pathlib.PurePath(label).suffixes) else ","
        best = max(DELIMITERS, key=header.count)
        delimiter = usual if usual in header or best not in header else best
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    names = tuple(next(cells for cells in rows if cells))
    return dataclasses.replace(source, delimiter=delimiter, names=names)


def _not_utf8(label: str, line: int) -> TableError:
    return TableError(f"{label} is not UTF-8 text (line {line}): save it with the encoding UTF-8.")
