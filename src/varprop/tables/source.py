"""Where a table comes from and how its rows are read: format by content, header, blocks, places.

A format is told by the first bytes and not by the name. Standard input, and compressed Parquet and
Feather files, go through a temporary file: so that all can be read twice and errors name the line.
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
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv

from varprop.atomic import temporary_folder
from varprop.data.parquet import ParquetFiles
from varprop.files.container import looks_like_model
from varprop.tables.infer import as_asked, typed_table
from varprop.tables.numbers import Look, Reading
from varprop.tables.text import MISSING, Dialect, TableError, read_header

Format = Literal["delimited", "parquet", "arrow"]

BLOCK_ROWS = 65_536
_BLOCK_BYTES = 4 * 2**20
_BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)

# What pyarrow's reader of text says when it fails.
_ROW = re.compile(r"Row #(\d+): ")
_WIDTH = re.compile(r"Expected (\d+) columns?, got (\d+)")


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
    names, types
        Of the columns, in order, and by name; a text file has no types before it is read.
    compressed, dialect, told, skipped
        Of text: whether it is gzip'd, how it is written as far as is known, what the user said of
        that, and how many lines stand above the header.
    readings
        How each column of text was, or is to be, read, by name.
    notes
        What was assumed of text.
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
    dialect: Dialect = dataclasses.field(default_factory=Dialect)
    told: Dialect = dataclasses.field(default_factory=Dialect)
    skipped: int = 0
    readings: Mapping[str, Reading] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
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

    def load(self, *, text: Sequence[str] = (), numbers: Sequence[str] = ()) -> Source:
        """Return the table ready to be read in blocks of any order.

        Parquet files are read by row groups, whatever their size; other formats are held in memory.

        Parameters
        ----------
        text, numbers
            Columns of a text file that are to stay text, and that are to be numbers, whatever they
            look like.
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
                table = pa.csv.read_csv(**self._csv(self.names))
            else:
                with pa.ipc.open_file(self.path) as reader:
                    table = reader.read_all()
        except (pa.ArrowException, OSError) as error:
            raise self._readable(error) from error
        if not table.num_rows:
            raise TableError(f"{self.label} has a header but no rows.")
        loaded = dataclasses.replace(self, table=table, block_rows=(table.num_rows,))
        if self.format != "delimited":
            return dataclasses.replace(loaded, table=table.combine_chunks())
        found = typed_table(table, self.dialect, self.where, text=text, numbers=numbers)
        return dataclasses.replace(
            loaded,
            table=found.table,
            dialect=found.dialect,
            readings=found.readings,
            notes=(*self.notes, *found.notes),
        )

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
                yield from self._read_text(dict(columns))  # type: ignore[arg-type]
            else:
                with pa.ipc.open_file(self.path) as reader:
                    for number in range(reader.num_record_batches):
                        batch = reader.get_batch(number).select(names)
                        for start in range(0, batch.num_rows, BLOCK_ROWS):
                            yield batch.slice(start, BLOCK_ROWS)
        except (pa.ArrowException, OSError) as error:
            raise self._readable(error) from error

    def where(self, row: int) -> str:
        """Say where a row (0 is the first below the header) stands, as a text editor counts."""
        if self.files is not None:
            ends = np.cumsum(self.block_rows)
            block = int(np.searchsorted(ends, row, side="right"))
            return self.files.where(block, row - int(ends[block]) + self.block_rows[block])
        if self.format != "delimited":
            return f"row {row + 1} of {self.label}"
        before, found = 0, -1
        coding = self.dialect.encoding
        with self.open() as file, io.TextIOWrapper(file, coding, "replace", newline="") as text:
            for _ in range(self.skipped):
                text.readline()
            reader = csv.reader(text, delimiter=self.dialect.delimiter or ",")
            try:
                for cells in reader:
                    if cells:
                        found += 1
                        if found == row + 1:
                            return f"line {self.skipped + before + 1} of {self.label}"
                    before = reader.line_num
            except (csv.Error, *_BROKEN_GZIP):
                pass
        return f"line {self.skipped + row + 2} of {self.label}"

    def _read_text(self, columns: dict[str, pa.DataType]) -> Iterator[pa.RecordBatch]:
        """Yield columns of text as what they are asked to be."""
        first = 0
        for batch in pa.csv.open_csv(**self._csv(list(columns))):

            def where(row: int, first: int = first) -> str:
                return self.where(first + row)

            cells = {}
            for name, kind in columns.items():
                unit = self.readings[name].unit if name in self.readings else ""
                cells[name] = as_asked(name, batch.column(name), kind, self.dialect, unit, where)
            first += batch.num_rows
            yield pa.RecordBatch.from_pydict(cells)

    def _csv(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the arguments of pyarrow's readers of text; all cells are read as they are."""
        file = pa.OSFile(str(self.path))
        return {
            "input_file": pa.CompressedInputStream(file, "gzip") if self.compressed else file,
            # On one thread errors name the row; reading text is not the slow part of a fit.
            "read_options": pa.csv.ReadOptions(
                use_threads=False,
                block_size=_BLOCK_BYTES,
                encoding=self.dialect.encoding,
                skip_rows=self.skipped,
            ),
            "parse_options": pa.csv.ParseOptions(
                delimiter=self.dialect.delimiter, newlines_in_values=True
            ),
            "convert_options": pa.csv.ConvertOptions(
                strings_can_be_null=True,
                null_values=[*MISSING, *self.dialect.missing],
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=list(names),
            ),
        }

    def _readable(self, error: Exception) -> TableError:
        """Turn an error of pyarrow's readers into a sentence, of text with line and column."""
        if self.format != "delimited":
            return TableError(f"{self.label} is damaged or cut short: write it again.")
        message = str(error)
        row = _ROW.search(message)
        where = self.where(int(row[1]) - 2 - self.skipped) if row else self.label
        if width := _WIDTH.search(message):
            return TableError(
                f"{where} has {width[2]} cells, but the header names {width[1]} columns: mend the "
                "line (or choose another --delimiter)."
            )
        if re.search("gzip|zlib|inflate|compressed", message):
            return TableError(f"{self.label} is a damaged gzip file: compress it again.")
        return TableError(f"{where} cannot be read as a table ({message.splitlines()[0][:200]}).")


def open_source(
    where: str | Sequence[str],
    *,
    delimiter: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    encoding: str | None = None,
    missing: Sequence[str] = (),
    like: Dialect | None = None,
    columns: Collection[str] = (),
) -> Source:
    r"""Find out what a table is, and read its header.

    Parameters
    ----------
    where
        A path; ``-`` for standard input; or several Parquet files, a folder or a pattern of them.
    delimiter
        Between cells of a text file; found in the header unless given.
    decimal, thousands
        The decimal point of a text file and what stands between its thousands: found in its cells
        unless given.
    encoding
        Of a text file; UTF-8, UTF-16 with its mark, or else cp1252 unless given.
    missing
        Cells of a text file that stand for missing values, besides the usual ones.
    like
        How the table is written that a model was fitted on: followed where nothing else is given.
    columns
        That the table should have; where they are not, another delimiter than `like`'s is tried.

    Examples
    --------
    >>> import tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.csv"
    >>> _ = path.write_text("size;price\n1;2\n")
    >>> source = open_source(str(path))
    >>> source.names, source.dialect.delimiter, source.where(0)
    (('size', 'price'), ';', 'line 2 of data.csv')
    >>> [batch.to_pylist() for batch in source.load(text=["size"]).read(["size", "price"])]
    [[{'size': '1', 'price': 2.0}]]
    """
    told = Dialect(delimiter, decimal, thousands, encoding, tuple(missing))
    if problem := told.problem():
        raise TableError(problem)
    like = like or Dialect()
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
            start = file.read(16)
        compressed = start[:2] == b"\x1f\x8b" and not looks_like_model(start)
        if compressed:
            with gzip.open(path) as inner:
                start = inner.read(16)
        wide = (encoding or like.encoding or "").lower().startswith(("utf-16", "utf-32"))
        form = _format(start, label, wide=wide)
        if compressed and form != "delimited":
            with gzip.open(path) as inner:
                spool = _Spool(inner, label)
            path, compressed = spool.path, False
        source = Source(label, path, form, compressed=compressed, spool=spool)
        if form == "parquet":
            return _with_files(source, [str(path)])
        if form == "arrow":
            source = _with_schema(source)
        else:
            head = read_header(source.open, label, told=told, known=like, columns=columns)
            source = dataclasses.replace(
                source,
                names=head.names,
                dialect=Dialect(head.delimiter, None, None, head.encoding).over(told).over(like),
                told=told,
                skipped=head.skipped,
                notes=head.notes,
            )
    except _BROKEN_GZIP as error:
        raise TableError(f"{label} is a damaged gzip file: compress it again.") from error
    twice = [name for name, count in Counter(source.names).items() if count > 1]
    if twice:
        raise TableError(
            f"{label} has more than one column named {twice[0]!r}: rename all but one."
        )
    if form == "delimited" and not Look.of(pa.array(source.names)).text:
        raise TableError(f"the first line of {label} holds only numbers: it must name the columns.")
    return source


class _Spool:
    """A stream copied to a temporary file, which goes away with this object."""

    def __init__(self, stream: Any, name: str):
        self.path = temporary_folder(self) / name  # the name is what errors call it
        with open(self.path, "wb") as file:
            shutil.copyfileobj(stream, file)


def _format(start: bytes, label: str, *, wide: bool) -> Format:
    if not start:
        raise TableError(f"{label} is empty: give a table with a header and rows.")
    if start[:4] == b"PAR1":
        return "parquet"
    if start[:6] == b"ARROW1":
        return "arrow"
    if start[:4] == b"PK\x03\x04":
        raise TableError(f"{label} looks like an Excel workbook: save the sheet as CSV first.")
    if looks_like_model(start):
        raise TableError(
            f"{label} looks like a model file, not a table: the model comes first, then the table."
        )
    if b"\0" in start and not wide and start[:2] not in (b"\xff\xfe", b"\xfe\xff"):
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
