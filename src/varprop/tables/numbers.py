"""Numbers in text: which marks stand inside them, which signs around, and what they are then.

A table is written one way: what its cells show of decimal points and thousands counts for all of
its columns. Where no cell shows whether 42,000 is 42 or 42000, nobody guesses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varprop.tables.text import Dialect, TableError

_SPACE = "[ \t\u00a0\u2009\u202f]"
_MINUS = "[-\u2212]"
_CURRENCY = (
    r"(?:US|CA|AU|NZ|HK|[RCA])?\$|[€£¥₹₽₩₺₪₫₴฿₦]|CHF|USD|EUR|GBP|JPY|CNY|RMB|INR|CAD|AUD|NZD|SEK|NOK"
    r"|DKK|PLN|CZK|HUF|RUB|TRY|BRL|MXN|ZAR|KRW|SGD|HKD|Fr\.|kr|zł|Kč|Ft"
)
_POWER = r"(?:[eE][-+]?\d+)?"
_CELL = (
    rf"^(?P<sign>[-+\x{{2212}}]?){_SPACE}*(?:(?P<before>{_CURRENCY}){_SPACE}*(?P<inner>[-+\x{{2212}}]?))?"
    rf"(?P<body>\d[\d.,'\x{{2019}} \x{{a0}}\x{{2009}}\x{{202f}}]*?{_POWER}|[.,]\d+{_POWER})"
    rf"{_SPACE}*(?P<after>{_CURRENCY}|%)?$"
)
# Written as every program writes numbers; most columns have nothing else.
_PLAIN = rf"^[-+]?(?:\d+\.?\d*|\.\d+){_POWER}$|^[-+]?(?i:inf|infinity)$"
_CODE = r"^[-+]?0\d+$"
_MARK = {".": r"\.", ",": ",", "'": "['\u2019]", " ": _SPACE}
_DECIMAL = {mark: rf"^[-+]?(?:\d+{_MARK[mark]}\d*|{_MARK[mark]}\d+){_POWER}$" for mark in ".,"}
_CERTAIN = r"^[-+]?(?:\d{4,}|0\d*|)\.|\.(?:\d{0,2}|\d{4,})$|\..*[eE]"
_DOUBTFUL = {mark: rf"^[-+]?[1-9]\d{{0,2}}{_MARK[mark]}\d{{3}}$" for mark in ".,"}
_GROUPS = {
    ",": r"^[1-9]\d{0,2}(?:(?:,\d{3})+\.\d*|(?:,\d{3}){2,})$",
    ".": r"^[1-9]\d{0,2}(?:(?:\.\d{3})+,\d*|(?:\.\d{3}){2,})$",
    "'": r"^[1-9]\d{0,2}(?:['\x{2019}]\d{3})+(?:[.,]\d*)?$",
    " ": rf"^[1-9]\d{{0,2}}(?:{_SPACE}\d{{3}})+(?:[.,]\d*)?$",
}

#: A row and the cell in it.
Seen = tuple[int, str]


def trimmed(cells: Any, missing: tuple[str, ...]) -> Any:
    """Return text without blanks around it, null where a mark of a missing value stands.

    Examples
    --------
    >>> trimmed(pa.array([" 5", "NA "]), ("NA",)).to_pylist()
    ['5', None]
    """
    cells = pc.utf8_trim_whitespace(cells)
    gone = pc.is_in(cells, value_set=pa.array(["", *missing], pa.string()))
    return pc.if_else(gone, pa.scalar(None, pa.string()), cells)


def plain(cells: Any) -> Any:
    """Return numbers if all cells are written as every program writes them, else None.

    Examples
    --------
    >>> plain(pa.array(["1.5", None])).to_pylist(), plain(pa.array(["1.5", "$2"]))
    ([1.5, None], None)
    """
    try:
        return pc.cast(cells, pa.float64())
    except pa.ArrowInvalid:
        return None


def _parts(cells: Any) -> tuple[Any, Any, Any]:
    """Return sign, body and unit of cells, null where a cell is no number at all."""
    found = pc.extract_regex(cells, _CELL)
    sign, before, inner, body, after = (
        pc.struct_field(found, name) for name in ("sign", "before", "inner", "body", "after")
    )
    both = pc.or_(
        pc.and_(pc.not_equal(sign, ""), pc.not_equal(inner, "")),
        pc.and_(pc.not_equal(before, ""), pc.not_equal(after, "")),
    )
    body = pc.if_else(both, pa.scalar(None, pa.string()), body)
    negative = pc.match_substring_regex(pc.binary_join_element_wise(sign, inner, ""), _MINUS)
    return negative, body, pc.binary_join_element_wise(before, after, "")


@dataclasses.dataclass
class Look:
    """What the cells of a column of text show, if they may be numbers.

    Attributes
    ----------
    n_filled, n_numbers
        Cells, and those that are numbers if their marks are read one way or another.
    text
        The first that is none.
    code
        The first with a zero in front, as codes have.
    decimals, groups, doubtful
        The first cells with a certain decimal mark, with certain thousands, and with what may be
        either, by mark.
    units
        The first cell with each sign; "" for none.

    Examples
    --------
    >>> look = Look.of(pa.array(["1,234.5", "$42,000", "x"]))
    >>> look.decimals, look.groups, look.doubtful, look.text
    ({'.': (0, '1,234.5')}, {',': (0, '1,234.5')}, {',': (1, '$42,000')}, (2, 'x'))
    """

    n_filled: int = 0
    n_numbers: int = 0
    text: Seen | None = None
    code: Seen | None = None
    decimals: dict[str, Seen] = dataclasses.field(default_factory=dict)
    groups: dict[str, Seen] = dataclasses.field(default_factory=dict)
    doubtful: dict[str, Seen] = dataclasses.field(default_factory=dict)
    units: dict[str, Seen] = dataclasses.field(default_factory=dict)

    @property
    def mostly_numbers(self) -> bool:
        """Whether at least half of the cells are numbers."""
        return self.n_filled > 0 and 2 * self.n_numbers >= self.n_filled

    @classmethod
    def of(cls, cells: Any) -> Look:
        """Look at cells without blanks around them."""

        def first(mask: Any) -> Seen | None:
            row = pc.index(mask, True).as_py()
            return None if row < 0 else (row, str(cells[row])[:40])

        found = cls(len(cells) - cells.null_count)
        found.code = first(pc.match_substring_regex(cells, _CODE))
        if plain(cells) is not None:
            found.n_numbers = found.n_filled
            if found.n_filled:
                found.units[""] = first(pc.is_valid(cells)) or (0, "")
            # Most columns show at once what they are, and need not be looked through.
            for some in (cells.slice(0, 1000), cells):
                found._note(found.decimals, ".", first(pc.match_substring_regex(some, _CERTAIN)))
                if found.decimals or not pc.any(pc.match_substring(cells, ".")).as_py():
                    return found
            found._note(found.doubtful, ".", first(pc.match_substring(cells, ".")))
            return found
        _, body, units = _parts(cells)
        numbers = pc.match_substring_regex(cells, _PLAIN)
        for mark in ".,":
            doubtful = pc.match_substring_regex(body, _DOUBTFUL[mark])
            certain = pc.match_substring_regex(body, _DECIMAL[mark])
            numbers = pc.or_kleene(numbers, certain)
            found._note(found.doubtful, mark, first(doubtful))
            found._note(found.decimals, mark, first(pc.and_not(certain, doubtful)))
        numbers = pc.or_kleene(numbers, pc.match_substring_regex(body, r"^\d+(?:[eE][-+]?\d+)?$"))
        for mark, pattern in _GROUPS.items():
            grouped = pc.match_substring_regex(body, pattern)
            numbers = pc.or_kleene(numbers, grouped)
            found._note(found.groups, mark, first(grouped))
            for decimal in ".,":
                shown = pc.and_(grouped, pc.match_substring(body, decimal))
                if decimal != mark:
                    found._note(found.decimals, decimal, first(shown))
        numbers = pc.fill_null(numbers, False)
        found.n_numbers = int(pc.sum(numbers).as_py() or 0)
        found.text = first(pc.and_(pc.is_valid(cells), pc.invert(numbers)))
        for unit in pc.unique(pc.filter(units, numbers)).to_pylist():
            found._note(found.units, unit, first(pc.and_(numbers, pc.equal(units, unit))))
        if pc.any(pc.and_(pc.is_null(body), numbers)).as_py():  # infinite ones have no body
            found.units.setdefault("", first(pc.is_null(body)) or (0, ""))
        return found

    @staticmethod
    def _note(kept: dict[str, Seen], key: str | None, seen: Seen | None) -> None:
        if key is not None and seen is not None and (key not in kept or seen < kept[key]):
            kept[key] = seen


def convert(cells: Any, dialect: Dialect) -> tuple[Any, np.ndarray, Any]:
    """Turn text without blanks around it into numbers.

    Returns
    -------
    values, bad, units
        Numbers, null where there is none; where text is no number, or may be two; and the sign
        of each cell, or None where no cell has any.

    Examples
    --------
    >>> values, bad, _ = convert(pa.array(["$1,234.5", "-7", "x", None]), Dialect(decimal="."))
    >>> values.to_pylist(), bad
    ([1234.5, -7.0, None, None], array([False, False,  True, False]))
    >>> convert(pa.array(["42,000"]), Dialect())[1]
    array([ True])
    """
    decimal = dialect.decimal or {",": ".", ".": ","}.get(dialect.thousands or "", ".")
    values = plain(cells)
    # Only among commas between cells is a point surely none between thousands.
    sure = bool(dialect.decimal or dialect.thousands) or dialect.delimiter == ","
    filled = pc.is_valid(cells)
    if values is not None:
        pattern = r"\." if decimal == "," else None if sure else _DOUBTFUL["."]
        if pattern is None or not pc.any(pc.match_substring_regex(cells, pattern)).as_py():
            return values, np.zeros(len(cells), bool), None
    negative, body, units = _parts(cells)
    marks = [dialect.thousands] if dialect.thousands else [m for m in ".,' " if m != decimal]
    if not dialect.decimal and not dialect.thousands:
        marks.remove(",")
    groups = "|".join(rf"[1-9]\d{{0,2}}(?:{_MARK[mark]}\d{{3}})+" for mark in marks)
    good = pc.match_substring_regex(
        body, rf"^(?:(?:\d+|{groups})(?:{_MARK[decimal]}\d*)?|{_MARK[decimal]}\d+){_POWER}$"
    )
    if not sure:
        good = pc.and_not(good, pc.match_substring_regex(body, _DOUBTFUL["."]))
    infinite = pc.match_substring_regex(cells, r"^[-+]?(?i:inf|infinity)$")
    inner = "".join(mark for mark in ".,'\u2019 \u00a0\u2009\u202f\t" if mark != decimal)
    digits = pc.replace_substring_regex(body, f"[{inner}]", "")
    digits = pc.replace_substring(digits, decimal, ".")
    digits = pc.if_else(
        pc.fill_null(negative, False), pc.binary_join_element_wise("-", digits, ""), digits
    )
    digits = pc.if_else(pc.fill_null(good, False), digits, pa.scalar(None, pa.string()))
    digits = pc.if_else(pc.fill_null(infinite, False), cells, digits)
    bad = np.asarray(filled) & np.asarray(pc.is_null(digits))
    return pc.cast(digits, pa.float64()), bad, units


@dataclasses.dataclass(frozen=True)
class Reading:
    """How a column of text was read.

    Attributes
    ----------
    unit
        The sign its numbers have, "" for none.
    code
        Whether it holds codes with zeros in front, and stays text.
    problem
        Why it cannot be read.
    """

    unit: str = ""
    code: bool = False
    problem: str = ""


def settle(
    looks: Mapping[str, Look], told: Dialect, where: Callable[[int], str]
) -> tuple[Dialect, dict[str, str], list[str]]:
    """Decide how a whole table writes numbers.

    Parameters
    ----------
    looks
        At all columns that are mostly numbers, by name.
    told
        What is known already; with the delimiter.
    where
        Says where a row stands.

    Returns
    -------
    dialect, problems, notes
        What is known now; for each column that cannot be read the reason; and what was assumed.

    Examples
    --------
    >>> look = Look.of(pa.array(["42,000", "1,000"]))
    >>> settle({"price": look}, Dialect(), lambda row: f"line {row + 2}")[1]["price"]
    "holds '42,000' in line 2, which may be 42 or 42000: say --thousands ',' or --decimal ','"
    """
    decimal, thousands = told.decimal, told.thousands
    if decimal is None and thousands in (".", ","):
        decimal = "," if thousands == "." else "."
    shown: dict[str, tuple[str, Seen]] = {}  # the decimal mark, by the cell that shows it
    for name, look in looks.items():
        for mark, seen in look.decimals.items():
            shown.setdefault(mark, (name, seen))
        for mark in set(look.groups) & {".", ","}:
            shown.setdefault("," if mark == "." else ".", (name, look.groups[mark]))
    notes, problems = [], {}
    if decimal is None and len(shown) == 1:
        (decimal,) = shown
        if decimal == ",":
            name, (_, cell) = shown[","]
            notes.append(f"numbers were read with ',' as the decimal point, as in {cell!r}.")
    elif decimal is None and len(shown) == 2:
        (one, (row, cell)), (other, (at, against)) = shown["."], shown[","]
        problems[other] = (
            f"holds {against!r} in {where(at)}, but column {one!r} {cell!r} in {where(row)}: "
            "one of the two has another decimal point, which --decimal says"
        )
        return told, problems, notes
    doubtful = {
        mark: {name: look.doubtful[mark] for name, look in looks.items() if mark in look.doubtful}
        for mark in ".,"
    }
    if decimal is None and thousands is None and any(doubtful.values()):
        if doubtful["."] and not doubtful[","] and told.delimiter == ",":
            name, (_, cell) = next(iter(doubtful["."].items()))
            notes.append(
                f"numbers were read with '.' as the decimal point, as in {cell!r} (--thousands '.' "
                "says otherwise)."
            )
            decimal = "."
        else:
            for mark, columns in doubtful.items():
                for name, (row, cell) in columns.items():
                    problems.setdefault(name, _doubt(cell, mark, where(row)))
            return told, problems, notes
    found = {mark for look in looks.values() for mark in look.groups}
    found = (found | {mark for mark in ".," if doubtful[mark]}) - {decimal}
    if thousands is None and len(found) > 1:
        marks = " and ".join(map(repr, sorted(found)))
        for name, look in looks.items():
            if set(look.groups) & found:
                problems[name] = f"is in a table with {marks} between thousands: say --thousands"
        return told, problems, notes
    if thousands is None and found:
        (thousands,) = found
        for name, look in looks.items():
            grouped = look.groups.get(thousands) or look.doubtful.get(thousands)
            if grouped:
                notes.append(
                    f"column {name!r} was read with {thousands!r} between thousands, as in "
                    f"{grouped[1]!r}."
                )
    return dataclasses.replace(told, decimal=decimal, thousands=thousands), problems, notes


def _doubt(cell: str, mark: str, place: str) -> str:
    """Say that a cell may be two numbers."""
    digits = "".join(c for c in cell if c.isdigit() or c == mark)
    low, high = float(digits.replace(mark, ".")), digits.replace(mark, "")
    return (
        f"holds {cell!r} in {place}, which may be {low:g} or {high}: say --thousands {mark!r} or "
        f"--decimal {mark!r}"
    )


def wrong_number(name: str, cell: str, place: str, dialect: Dialect) -> TableError:
    """Return the error for a cell that is no number in a table that is written so.

    Examples
    --------
    >>> print(wrong_number("size", "4,5", "line 2", Dialect(decimal=".")))
    column 'size' holds '4,5' in line 2, which is not a number with '.' as the decimal point: mend \
or remove it, or say --decimal ','.
    """
    look = Look.of(pa.array([cell.strip()]))
    said = f"column {name!r} holds {cell[:60]!r} in {place}, which is not a number"
    decimal = dialect.decimal or {",": ".", ".": ","}.get(dialect.thousands or "", "")
    if look.doubtful and not decimal:
        (mark,) = look.doubtful
        return TableError(f"column {name!r} {_doubt(cell.strip(), mark, place)}.")
    if look.n_numbers:
        marks = [f"{decimal or '.'!r} as the decimal point"]
        if dialect.thousands:
            marks.append(f"{dialect.thousands!r} between thousands")
        # What may be thousands is never called a decimal point.
        other = [mark for mark in look.decimals if mark != (decimal or ".") and not look.groups]
        hint = f", or say --decimal {other[0]!r}" if other else ", or say --thousands and --decimal"
        return TableError(f"{said} with {' and '.join(marks)}: mend or remove it{hint}.")
    return TableError(f"{said}: mend or remove it.")
