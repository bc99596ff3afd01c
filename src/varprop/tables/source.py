"""Where a table comes from: its format by content, its header, and where a row stands in it.

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
import shutil
import sys
import tempfile
import weakref
import zlib
from collections import Counter
from typing import Any, BinaryIO, Literal

from varprop.tables.errors import TableError

Format = Literal["delimited", "parquet", "arrow"]

DELIMITERS = (",", "\t", ";", "|")
_HEADER_BYTES = 4 * 2**20
_BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)


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
    compressed
        Whether the text is gzip'd.
    delimiter, decimal
        Between cells, and inside numbers.
    names
        Of the columns, in order.
    """

    label: str
    path: pathlib.Path
    format: Format
    compressed: bool
    delimiter: str
    decimal: str
    names: tuple[str, ...]
    spool: _Spool | None = dataclasses.field(default=None, repr=False)

    def open(self) -> BinaryIO:
        """Open the bytes, decompressed."""
        return gzip.open(self.path) if self.compressed else open(self.path, "rb")  # type: ignore[return-value]

    def where(self, row: int) -> str:
        """Say where a row (0 is the first below the header) stands, as a text editor counts."""
        if self.format != "delimited":
            return f"row {row + 1} of {self.label}"
        return f"line {self.line(row)} of {self.label}"

    def line(self, row: int) -> int:
        """Return the line a row of a text file begins in; the header is line 1.

        Blank lines and line breaks inside quotes are counted: the file is read again for it.
        """
        before, found = 0, -1
        with self.open() as file, io.TextIOWrapper(file, "utf-8", "replace", newline="") as text:
            reader = csv.reader(text, delimiter=self.delimiter)
            try:
                for cells in reader:
                    if cells:
                        found += 1
                        if found == row + 1:
                            return before + 1
                    before = reader.line_num
            except (csv.Error, *_BROKEN_GZIP):
                pass
        return row + 2


def open_source(where: str, *, delimiter: str | None = None, decimal: str = ".") -> Source:
    r"""Find out what a table is, and read its header.

    Parameters
    ----------
    where
        A path, or ``-`` for standard input.
    delimiter
        Between cells of a text file; found in the header unless given.
    decimal
        The decimal point of a text file.

    Examples
    --------
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "data.csv"
    >>> _ = path.write_text("size;price\n1;2\n")
    >>> source = open_source(str(path))
    >>> source.names, source.delimiter, source.line(0)
    (('size', 'price'), ';', 2)
    """
    label = "standard input" if where == "-" else pathlib.PurePath(where).name
    spool = None
    if where == "-":
        spool = _Spool(sys.stdin.buffer)
        path = spool.path
    else:
        path = pathlib.Path(where)
        _check_readable(path)
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
                spool = _Spool(inner)
            path, compressed = spool.path, False
        source = Source(label, path, form, compressed, delimiter or ",", decimal, (), spool)
        if form == "delimited":
            names, delimiter = _text_header(source, delimiter)
            source = dataclasses.replace(source, delimiter=delimiter)
        else:
            names = _binary_header(source)
    except _BROKEN_GZIP as error:
        raise TableError(f"{label} is a damaged gzip file: compress it again.") from error
    _check_names(names, source)
    return dataclasses.replace(source, names=tuple(names))


def _check_readable(path: pathlib.Path) -> None:
    if path.is_dir():
        raise TableError(f"{path} is a folder: give a table file.")
    if not path.exists():
        raise TableError(f"there is no file {path}: check the path.")
    if not os.access(path, os.R_OK):
        raise TableError(f"{path} may not be read: ask for permission.")


class _Spool:
    """A stream copied to a temporary file, which goes away with this object."""

    def __init__(self, stream: Any):
        with tempfile.NamedTemporaryFile(prefix="varprop-", delete=False) as file:
            self.path = pathlib.Path(file.name)
            self._remove = weakref.finalize(self, self.path.unlink, missing_ok=True)
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


def _binary_header(source: Source) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if source.format == "parquet":
            return list(pq.read_schema(source.path).names)
        with pa.ipc.open_file(source.path) as reader:
            return list(reader.schema.names)
    except (pa.ArrowInvalid, OSError) as error:
        raise TableError(f"{source.label} is damaged or cut short: write it again.") from error


def _text_header(source: Source, delimiter: str | None) -> tuple[list[str], str]:
    with source.open() as file:
        data = file.read(_HEADER_BYTES)
    text = _decode(data, source, partial=len(data) == _HEADER_BYTES)
    text = text.removeprefix("\ufeff")
    if not text.strip():
        raise TableError(f"{source.label} is empty: give a table with a header and rows.")
    chosen = delimiter or _guess_delimiter(text, source)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=chosen)
    return next(cells for cells in rows if cells), chosen


def _decode(data: bytes, source: Source, *, partial: bool = False) -> str:
    """Return bytes as text, or say in which line they are no UTF-8."""
    if partial:  # the end may be in the middle of a character
        data = data[: data.rfind(b"\n") + 1] or data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError(
            f"{source.label} is not UTF-8 text (line {line}): save it with the encoding UTF-8."
        ) from error


def _guess_delimiter(text: str, source: Source) -> str:
    """Take the usual delimiter for the name if the header has it, else the one it has most of."""
    header = next(line for line in text.splitlines() if line.strip())
    suffixes = pathlib.PurePath(source.label).suffixes
    usual = "\t" if {".tsv", ".tab"} & set(suffixes) else ","
    if usual in header:
        return usual
    best = max(DELIMITERS, key=header.count)
    return best if best in header else usual


def _check_names(names: list[str], source: Source) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(
            f"{source.label} has more than one column named {twice[0]!r}: rename all but one."
        )
    if source.format == "delimited" and all(_is_number(name) for name in names):
        raise TableError(
            f"the first line of {source.label} holds only numbers: it must name the columns."
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
