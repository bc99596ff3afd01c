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
import re
import shutil
import sys
import tempfile
import weakref
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import Any, BinaryIO, Literal

from varprop.tables.errors import TableError

Format = Literal["delimited", "parquet", "arrow"]

DELIMITERS = (",", "\t", ";", "|")
_HEADER_BYTES = 4 * 2**20
_BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*|\s*(nan|inf)\s*", re.I)


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
    parquet
        The Parquet file, or files, as `varprop.data.parquet.ParquetFiles`.
    """

    label: str
    path: pathlib.Path
    format: Format
    compressed: bool = False
    delimiter: str = ","
    decimal: str = "."
    names: tuple[str, ...] = ()
    parquet: Any = None
    spool: _Spool | None = dataclasses.field(default=None, repr=False)

    def open(self) -> BinaryIO:
        """Open the bytes, decompressed."""
        return gzip.open(self.path) if self.compressed else open(self.path, "rb")  # type: ignore[return-value]

    def where(self, row: int) -> str:
        """Say where a row (0 is the first below the header) stands, as a text editor counts.

        In text, blank lines and line breaks inside quotes are counted: the file is read for it.
        """
        if self.parquet is not None:
            block = 0
            while row >= self.parquet.block_rows[block]:
                row -= self.parquet.block_rows[block]
                block += 1
            return str(self.parquet.where(block, row))
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
    """
    paths = [where] if isinstance(where, str) else list(where)
    only = paths[0]
    if len(paths) > 1 or os.path.isdir(only) or ("*" in only and not os.path.exists(only)):
        label = f"{len(paths)} files" if len(paths) > 1 else pathlib.PurePath(only).name
        return _open_parquet(Source(label, pathlib.Path(only), "parquet"), paths)
    label = "standard input" if only == "-" else pathlib.PurePath(only).name
    path, spool = pathlib.Path(only), None
    if only == "-":
        spool = _Spool(sys.stdin.buffer)
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
                spool = _Spool(inner)
            path, compressed = spool.path, False
        source = Source(label, path, form, compressed, delimiter or ",", decimal, spool=spool)
        if form == "parquet":
            return _open_parquet(source, [str(path)])
        source = _with_header(source, delimiter)
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


def _open_parquet(source: Source, paths: list[str]) -> Source:
    from varprop.data.parquet import ParquetFiles
    from varprop.data.source import SourceError

    try:
        files = ParquetFiles(paths)
    except SourceError as error:
        # A temporary file is known by what it was made of.
        raise TableError(str(error).replace(source.path.name, source.label)) from error
    return dataclasses.replace(source, parquet=files, names=files.names)


def _with_header(source: Source, delimiter: str | None) -> Source:
    """Return the source with its columns' names, and its delimiter if none was given."""
    label = source.label
    if source.format == "arrow":
        import pyarrow as pa

        try:
            with pa.ipc.open_file(source.path) as reader:
                return dataclasses.replace(source, names=tuple(reader.schema.names))
        except (pa.ArrowInvalid, OSError) as error:
            raise TableError(f"{label} is damaged or cut short: write it again.") from error
    with source.open() as file:
        data = file.read(_HEADER_BYTES)
    if len(data) == _HEADER_BYTES:  # the end may be in the middle of a character
        data = data[: data.rfind(b"\n") + 1] or data
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError(
            f"{label} is not UTF-8 text (line {line}): save it with the encoding UTF-8."
        ) from error
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
