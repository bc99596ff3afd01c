"""What a column of a training table is: a number, a category, or something to be refused."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varprop.tables.columns import (
    first_out_of_range,
    is_number,
    is_text,
    range_error,
    to_floats,
    to_text,
)
from varprop.tables.errors import TableError

#: Says where a row stands, for errors.
Where = Callable[[int], str]

#: More different values than this make a text column free text.
MAX_CATEGORIES = 50
#: The same where the user, or the table's own type, says that it holds categories.
MAX_FORCED_CATEGORIES = 1000

_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"
_DECIMAL_COMMA = r"^\s*[-+]?\d+,\d+\s*$"
_ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|index|idx|key|nr|no|number|row)$|[a-z]Id$|[a-zA-Z]ID$", re.I
)


@dataclasses.dataclass(frozen=True)
class Roles:
    """What the user said of the columns.

    Attributes
    ----------
    targets
        To be predicted.
    ids
        Copied to predictions and kept from the network.
    dropped
        Left out.
    categories
        To be taken as categories whatever they look like.
    missing
        "error", "drop" or "impute".
    """

    targets: tuple[str, ...]
    ids: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    missing: str = "error"


def target_values(table: pa.Table, name: str, where: Where, missing: str) -> np.ndarray:
    """Return a target as floats, NaN where there is none and the policy allows it."""
    cells = table.column(name)
    if is_text(cells.type):
        _check_no_numbers(cells, name)
        row, text = _first_text(cells)
        raise TableError(
            f"target {name!r} holds the text {text!r} in {where(row)}: a target must be a number."
        )
    if pa.types.is_null(cells.type):
        raise TableError(f"target {name!r} has no value in any row: choose another --target.")
    if not is_number(cells.type):
        raise TableError(
            f"target {name!r} has the type {_type_name(cells.type)}: a target must be a number."
        )
    values = to_floats(cells)
    bad = first_out_of_range(values)
    if bad is not None:
        raise range_error(values[bad], name, where(bad))
    holes = np.isnan(values)
    if holes.all():
        raise TableError(f"target {name!r} has no value in any row: choose another --target.")
    if holes.any() and missing == "error":
        raise TableError(
            f"target {name!r} has no value in {where(int(np.argmax(holes)))}: fill it in, or leave "
            "such rows out with --missing drop."
        )
    return values


def column_kind(cells: pa.ChunkedArray, name: str, roles: Roles, where: Where) -> str:
    """Return "number", "text" or "boolean", or say why the column cannot be used."""
    kind, hint = cells.type, f"leave it out with --drop {as_typed(name)}"
    if pa.types.is_null(kind) or cells.null_count == len(cells):
        raise TableError(f"column {name!r} has no value in any row: {hint}.")
    forced = name in roles.categories
    if pa.types.is_dictionary(kind):
        forced, kind = True, kind.value_type
        if not is_text(kind) and not pa.types.is_integer(kind) and not pa.types.is_boolean(kind):
            raise TableError(f"column {name!r} holds {_type_name(kind)}: {hint}.")
    if pa.types.is_boolean(kind):
        return "boolean"
    if is_number(kind) and not forced:
        return "number"
    if is_text(kind):
        _check_categories(to_text(cells), name, forced, where, hint)
        return "text"
    if forced and pa.types.is_integer(kind):
        _check_categories(to_text(cells), name, forced, where, hint)
        return "text"
    if forced and is_number(kind):
        raise TableError(
            f"column {name!r} holds numbers with fractions, which cannot be categories: leave out "
            "--category for it."
        )
    raise TableError(f"column {name!r} holds {_type_name(kind)}: {hint}, or turn it into numbers.")


def _check_categories(
    cells: pa.ChunkedArray, name: str, forced: bool, where: Where, hint: str
) -> None:
    different = len(cells.drop_null().unique())
    most = MAX_FORCED_CATEGORIES if forced else MAX_CATEGORIES
    filled = len(cells) - cells.null_count
    if not forced:
        _check_no_numbers(cells, name)
        if _share(cells, _NUMBER) >= 0.5:
            row, text = _first_text(cells)
            raise TableError(
                f"column {name!r} holds the text {text!r} in {where(row)} among numbers: correct "
                f"it, {hint}, or take it as categories with --category {as_typed(name)}."
            )
    if different <= most and (forced or 2 * different <= filled):
        return
    force = "" if forced else f", or take it as categories with --category {as_typed(name)}"
    raise TableError(
        f"column {name!r} holds text with {different} different values in {filled} rows: {hint}"
        f"{force}."
    )


def check_cells(
    cells: pa.ChunkedArray,
    name: str,
    kind: str,
    roles: Roles,
    where: Where,
    notes: list[str],
) -> np.ndarray:
    """Check values of an input and return where they are missing."""
    if kind == "number":
        values = to_floats(cells)
        bad = first_out_of_range(values)
        if bad is not None:
            raise range_error(values[bad], name, where(bad))
        holes = np.isnan(values)
        if holes.all():
            raise TableError(
                f"column {name!r} has no value in any row: leave it out with --drop "
                f"{as_typed(name)}."
            )
        if np.nanmin(values) == np.nanmax(values):
            notes.append(f"column {name!r} is {values[~holes][0]:g} in all rows and tells nothing.")
        elif not holes.any() and _looks_like_id(values, name):
            notes.append(
                f"column {name!r} looks like an id and is used as a number: keep it out of the "
                f"inputs with --id {as_typed(name)}."
            )
    else:
        holes = np.asarray(cells.is_null())
    if roles.missing == "error" and holes.any():
        raise TableError(
            f"column {name!r} has no value in {where(int(np.argmax(holes)))}: fill it in, or use "
            "--missing drop or --missing impute."
        )
    return holes


def _looks_like_id(values: np.ndarray, name: str) -> bool:
    """Whether these are unique whole numbers that rise row by row, or are named like an id."""
    if len(values) < 10 or not (values == np.round(values)).all():
        return False
    if len(np.unique(values)) < len(values):
        return False
    steps = np.diff(np.sort(values))
    counts = bool((np.diff(values) > 0).all()) or bool((steps == 1).all())
    return counts or bool(_ID_NAME.search(name))


def _share(cells: pa.ChunkedArray, pattern: str) -> float:
    """Return the share of the values that match."""
    return pc.mean(pc.match_substring_regex(cells, pattern)).as_py() or 0.0


def _first_text(cells: pa.ChunkedArray) -> tuple[int, str]:
    numeric = pc.match_substring_regex(cells, _NUMBER).fill_null(True)
    row = pc.index(numeric, False).as_py()
    return row, str(cells[row])[:40]


def _check_no_numbers(cells: pa.ChunkedArray, name: str) -> None:
    """Raise if a column of text holds nothing but numbers that could not be read as such."""
    if _share(cells, _DECIMAL_COMMA) >= 0.5:
        raise TableError(f"column {name!r} holds numbers with a decimal comma: use --decimal ','.")
    if _share(cells, _NUMBER) == 1:
        raise TableError(f"column {name!r} holds numbers stored as text: convert it to numbers.")


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_temporal(kind):
        return "dates or times"
    if pa.types.is_boolean(kind):
        return "true or false"
    return f"values of the type {kind}"


def as_typed(name: str) -> str:
    """Return a column's name as one types it in a shell."""
    return name if re.fullmatch(r"[\w.-]+", name) else "'" + name + "'"
