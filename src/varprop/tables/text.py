"""How a text table is written: its encoding, delimiter, header, and marks of its numbers."""

from __future__ import annotations

import codecs
import csv
import dataclasses
import io
import pathlib
import re
from collections.abc import Callable, Collection, Iterable
from typing import BinaryIO

from varprop.errors import InputError

DELIMITERS = (",", "\t", ";", "|")
#: Read as a missing value in text tables, besides what the user names.
MISSING = (
    *("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "<NA>", "?", "#N/A", "#NA"),
    *("#N/A N/A", "-NaN", "-nan", "1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN"),
)
#: What Western text is written in that is no UTF-8.
FALLBACK = "cp1252"
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_HEADER_BYTES = 4 * 2**20
_CHUNK = 2**20
_SEP = re.compile(r"sep=(.)\r?\n?", re.I)


class TableError(InputError):
    """A table cannot be used as asked; the message is one sentence that says what to do.

    Parameters
    ----------
    problems
        Such sentences; more than one stand on a line each.

    Examples
    --------
    >>> str(TableError("data.csv is empty."))
    'data.csv is empty.'
    """

    def __init__(self, *problems: str):
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclasses.dataclass(frozen=True)
class Dialect:
    """How a text table is written; None is what nobody has said and no cell has shown.

    Attributes
    ----------
    delimiter
        Between cells.
    decimal, thousands
        Inside numbers.
    encoding
        By Python's name.
    missing
        Cells that stand for a missing value, besides the usual ones.

    Examples
    --------
    >>> Dialect(decimal=",").over(Dialect(decimal=".", encoding="cp1252"))
    Dialect(delimiter=None, decimal=',', thousands=None, encoding='cp1252', missing=())
    """

    delimiter: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()

    def over(self, other: Dialect) -> Dialect:
        """Return this, with what it does not say taken from another."""
        # The two marks belong together: a new decimal point is not met by remembered thousands.
        names = {field.name for field in dataclasses.fields(self)}
        if self.decimal or self.thousands:
            names -= {"decimal", "thousands"}
        blank = {name: getattr(other, name) for name in names if not getattr(self, name)}
        return dataclasses.replace(self, **blank)

    def problem(self) -> str:
        """Say which part cannot be, as the command line names it; nothing if all can."""
        if self.delimiter is not None and not re.fullmatch(r"[\t -~]", self.delimiter.strip('"')):
            return f"--delimiter must be one character (or tab), but is {self.delimiter!r}."
        if self.decimal not in (None, ".", ","):
            return f"--decimal must be . or , but is {self.decimal!r}."
        if self.thousands not in (None, ".", ",", "'", " "):
            return f"--thousands must be one of , . ' and a space, but is {self.thousands!r}."
        if self.thousands and self.thousands == self.decimal:
            return f"--thousands and --decimal are both {self.decimal!r}: they must differ."
        try:
            if self.encoding is not None:
                "a".encode(self.encoding).decode(self.encoding, "replace")
        except (LookupError, UnicodeError, ValueError):
            return f"--encoding {self.encoding!r} is no encoding that Python knows."
        return ""


@dataclasses.dataclass(frozen=True)
class Header:
    """What the beginning of a text table says.

    Attributes
    ----------
    names
        Of the columns.
    delimiter, encoding
        Of the text.
    skipped
        Lines above the header: 1 if Excel's ``sep=;`` stands there.
    notes
        What was assumed.
    """

    names: tuple[str, ...]
    delimiter: str
    encoding: str
    skipped: int
    notes: tuple[str, ...]


def read_header(
    open_: Callable[[], BinaryIO],
    label: str,
    *,
    told: Dialect,
    known: Dialect,
    columns: Collection[str] = (),
) -> Header:
    """Find out how a text file is written, and read the names of its columns.

    Parameters
    ----------
    open_
        Opens its bytes.
    label
        What errors call it.
    told
        By the user: followed.
    known
        From another table: followed where it fits.
    columns
        That the table should have: another table's delimiter fits if they are there.
    """
    encoding, notes = _find_encoding(open_, label, told.encoding, known.encoding)
    with open_() as file:
        data = file.read(_HEADER_BYTES)
    # The end may be in the middle of a character.
    text = codecs.getincrementaldecoder(encoding)("strict").decode(data).removeprefix("\ufeff")
    skipped = 0
    given = told.delimiter
    if found := _SEP.match(text):
        skipped, text = 1, text[found.end() :]
        given = given or found[1]
    if not text.strip():
        raise TableError(f"{label} is empty: give a table with a header and rows.")
    header = next(line for line in text.splitlines() if line.strip())
    # The usual delimiter for the name if the header has it, else the one it has most of.
    usual = "\t" if {".tsv", ".tab"} & set(pathlib.PurePath(label).suffixes) else ","
    best = max(DELIMITERS, key=header.count)
    likely = usual if usual in header or best not in header else best
    for delimiter in [given] if given else [known.delimiter, likely]:
        if delimiter is None:
            continue
        names = _names(text, delimiter, label)
        if delimiter == likely or set(columns) <= set(names):
            break
    return Header(names, delimiter or likely, encoding, skipped, tuple(notes))


def _names(text: str, delimiter: str, label: str) -> tuple[str, ...]:
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return tuple(next(cells for cells in rows if cells))
    except csv.Error as error:
        raise TableError(f"the header of {label} cannot be read: {error}.") from error


def _find_encoding(
    open_: Callable[[], BinaryIO], label: str, told: str | None, known: str | None
) -> tuple[str, list[str]]:
    """Return how bytes become text, and a note if that was assumed. The whole file is looked at."""
    with open_() as file:
        start = file.read(4)
    marked = next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
    if told is not None:
        line = _first_bad_line(open_, told)
        if line:
            raise TableError(f"{label} is no {told} text (line {line}): choose another --encoding.")
        return told, []
    if marked == "utf-16":
        line = _first_bad_line(open_, marked)
        if line:
            raise TableError(f"{label} is damaged UTF-16 text (line {line}): save it as UTF-8.")
        return marked, []
    line = _first_bad_line(open_, "utf-8")
    if not line:
        return "utf-8", []
    if marked:
        raise TableError(f"{label} is not UTF-8 text (line {line}): save it as UTF-8 again.")
    for name in (known, FALLBACK):
        if name is not None and not _first_bad_line(open_, name):
            return name, [
                f"{label} is no UTF-8 text (line {line}) and was read as {name}: --encoding says "
                "otherwise."
            ]
    raise TableError(
        f"{label} is neither UTF-8 nor {FALLBACK} text (line {line}): say its --encoding, or save "
        "it as UTF-8."
    )


def _first_bad_line(open_: Callable[[], BinaryIO], encoding: str) -> int:
    """Return the number of the first line that is no such text, 0 if all are; NUL is no text."""
    decoder, line = codecs.getincrementaldecoder(encoding)("strict"), 1
    quick = encoding in ("utf-8", FALLBACK)
    with open_() as file:
        for data in _chunks(file):
            # Most tables are ASCII, which need not be decoded to be seen.
            if quick and data.isascii() and b"\0" not in data and not decoder.getstate()[0]:
                line += data.count(b"\n")
                continue
            try:
                text = decoder.decode(data, final=not data)
            except UnicodeError as error:
                # Lines of what can be read before it, in this chunk.
                bad = error if isinstance(error, UnicodeDecodeError) else None
                return line + (bad.object[: bad.start].count(b"\n") if bad else 0)
            if "\0" in text:
                return line + text.count("\n", 0, text.index("\0"))
            line += text.count("\n")
    return 0


def _chunks(file: BinaryIO) -> Iterable[bytes]:
    """Yield all bytes, and an empty piece at the end."""
    while data := file.read(_CHUNK):
        yield data
    yield b""
