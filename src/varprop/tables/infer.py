"""Cells of text files with their types: found out at training, asked for by a model later."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varprop.tables.numbers import Look, Reading, convert, plain, settle, trimmed, wrong_number
from varprop.tables.text import MISSING, Dialect, TableError

_TRUE, _FALSE = ("true", "1"), ("false", "0")
_DAY_OR_TIME = r"^\d{4}-\d{2}-\d{2}|^\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?$"


@dataclasses.dataclass(frozen=True)
class Typed:
    """A table of text whose columns have types now.

    Attributes
    ----------
    table
        With types.
    dialect
        How it is written, as far as it shows.
    readings
        How each column was read, by name.
    notes
        What was assumed.
    """

    table: pa.Table
    dialect: Dialect
    readings: dict[str, Reading]
    notes: tuple[str, ...]


def typed_table(
    table: pa.Table,
    dialect: Dialect,
    where: Callable[[int], str],
    *,
    text: Collection[str] = (),
    numbers: Collection[str] = (),
) -> Typed:
    """Find out what columns of text hold: numbers, true and false, dates, or text after all.

    Parameters
    ----------
    table
        All columns text.
    dialect
        What is known of how it is written.
    where
        Says where a row stands.
    text, numbers
        Columns that are to stay text, and that are to be numbers, whatever they look like.

    Examples
    --------
    >>> table = pa.table({"price": ["$1,234.50", "$7"], "zip": ["00123", "98765"]})
    >>> found = typed_table(table, Dialect(), str)
    >>> found.table.to_pylist()[0], found.readings["price"].unit
    ({'price': 1234.5, 'zip': '00123'}, '$')
    """
    missing = (*MISSING, *dialect.missing)
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    cells, looks, notes = {}, {}, []
    for name, column in columns.items():
        if name in text:
            columns[name] = as_asked(name, column, pa.string(), dialect, "", where)
        else:
            cells[name] = column if plain(column) is not None else trimmed(column, missing)
            looks[name] = Look.of(cells[name])
    asked = {
        name: look
        for name, look in looks.items()
        if look.mostly_numbers and (name in numbers or not look.code)
    }
    dialect, problems, said = settle(asked, dialect, where)
    readings: dict[str, Reading] = {}
    for name, look in looks.items():
        if not look.n_filled:
            columns[name] = pa.nulls(len(columns[name]))
        elif look.code and name not in numbers:
            readings[name] = Reading(code=True)
            notes.append(
                f"column {name!r} has zeros in front, as in {look.code[1]!r}, and was read as "
                "text: --number says otherwise."
            )
        elif name in problems:
            readings[name] = Reading(problem=problems[name])
        elif name in numbers or (look.mostly_numbers and look.n_numbers == look.n_filled):
            unit, problem, note = _unit_of(look, where)
            values, bad, _ = convert(cells[name], dialect)
            if bad.any():
                row = int(np.argmax(bad))
                error = wrong_number(name, str(cells[name][row]), where(row), dialect)
                problem = str(error).removeprefix(f"column {name!r} ").removesuffix(".")
            if note:
                notes.append(f"column {name!r} {note}")
            readings[name] = Reading(unit, problem=problem)
            if not problem:
                columns[name] = values
        else:
            columns[name] = _other(columns[name], cells[name])
    return Typed(pa.table(columns), dialect, readings, (*said, *notes))


def _other(column: Any, cells: Any) -> Any:
    """Return true and false, or dates and times, if all cells are such; else text."""
    some = pc.unique(pc.utf8_lower(cells.slice(0, 1000)).drop_null()).to_pylist()
    if set(some) <= {"true", "false"}:
        lower = pc.utf8_lower(cells)
        known = pc.is_in(lower, value_set=pa.array(["true", "false"]))
        if pc.all(pc.or_(known, pc.is_null(cells))).as_py():
            return pc.if_else(
                pc.is_null(cells), pa.scalar(None, pa.bool_()), pc.equal(lower, "true")
            )
    if pc.all(pc.match_substring_regex(cells, _DAY_OR_TIME)).as_py():
        time = pc.match_substring_regex(cells, "^[^-]*$")
        days = pc.if_else(time, pc.binary_join_element_wise("2000-01-01", cells, " "), cells)
        for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
            try:
                return pc.cast(days, kind)
            except pa.ArrowInvalid:
                continue
    return pc.if_else(pc.is_null(cells), pa.scalar(None, pa.string()), column)


def as_asked(
    name: str,
    cells: Any,
    kind: pa.DataType,
    dialect: Dialect,
    unit: str,
    where: Callable[[int], str],
) -> Any:
    """Turn cells of text into what a model wants of this column.

    Parameters
    ----------
    name, cells
        Of the column.
    kind
        float64, boolean or text.
    dialect
        How the table is written.
    unit
        The sign that the training table's cells had.
    where
        Says where one of these rows stands.

    Raises
    ------
    TableError
        If a cell is none of this kind.

    Examples
    --------
    >>> cells, dialect = pa.array(["1,5", "NA"]), Dialect(decimal=",")
    >>> as_asked("a", cells, pa.float64(), dialect, "", str).to_pylist()
    [1.5, None]
    """
    found = cells
    if kind != pa.float64() or plain(cells) is None:
        found = trimmed(cells, (*MISSING, *dialect.missing))
    if kind == pa.string():
        return pc.if_else(pc.is_null(found), pa.scalar(None, pa.string()), cells)
    if kind == pa.bool_():
        lower = pc.utf8_lower(found)
        known = pc.is_in(lower, value_set=pa.array([*_TRUE, *_FALSE]))
        bad = np.asarray(pc.and_not(pc.is_valid(found), known))
        if bad.any():
            row = int(np.argmax(bad))
            raise TableError(
                f"column {name!r} holds {str(cells[row])[:60]!r} in {where(row)}, which is not "
                "true or false: mend or remove it."
            )
        true = pc.is_in(lower, value_set=pa.array(_TRUE))
        return pc.if_else(pc.is_null(found), pa.scalar(None, pa.bool_()), true)
    values, bad, units = convert(found, dialect)
    if bad.any():
        row = int(np.argmax(bad))
        raise wrong_number(name, str(cells[row]), where(row), dialect)
    if wrong := _differs(unit, found, units):
        row, cell = wrong
        had = f"the sign {unit!r}" if unit else "no sign"
        raise TableError(
            f"column {name!r} holds {cell!r} in {where(row)}, but the training data had {had} in "
            "it: write it as there."
        )
    return values


def _unit_of(look: Look, where: Callable[[int], str]) -> tuple[str, str, str]:
    """Return the sign that the numbers of a column have, why it has none of its own, and a note."""
    signs = [unit for unit in look.units if unit]
    if not signs:
        return "", "", ""
    bare, (first, *more) = look.units.get(""), signs
    if more or (bare and first == "%"):
        (row, cell), (at, other) = look.units[first], look.units[more[0]] if more else bare  # type: ignore[misc]
        return (
            "",
            (
                f"holds {cell!r} in {where(row)} but {other!r} in {where(at)}: write all its cells "
                "with one sign, or with none"
            ),
            "",
        )
    some = ", which some cells lack" if bare else ""
    return first, "", f"was read without the sign {first!r}{some}, as in {look.units[first][1]!r}."


def _differs(unit: str, cells: Any, units: Any) -> tuple[int, str] | None:
    """Return the first row whose sign says another quantity than the training column's sign.

    A currency's sign may be left out or written where it was not; a percent sign may not.
    """
    if units is None:
        if unit != "%":
            return None
        units = pc.if_else(pc.is_valid(cells), "", pa.scalar(None, pa.string()))
    same = pc.equal(units, unit)
    if unit != "%":
        same = pc.or_(same, pc.equal(units, "") if unit else pc.not_equal(units, "%"))
    wrong = np.asarray(pc.invert(pc.fill_null(same, True)))
    if not wrong.any():
        return None
    row = int(np.argmax(wrong))
    return row, str(cells[row])
