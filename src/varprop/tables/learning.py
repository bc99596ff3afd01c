"""Deciding what each column of a training table is, and learning what its encoding needs."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varprop.tables.columns import (
    CategoryColumn,
    Column,
    NumberColumn,
    first_out_of_range,
    is_number,
    is_text,
    range_error,
    to_floats,
    to_text,
)
from varprop.tables.errors import TableError
from varprop.tables.preprocessing import Preprocessing

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


@dataclasses.dataclass(frozen=True)
class TrainingTable:
    """A table ready to be split and learned from.

    Attributes
    ----------
    table
        Rows that are used, with all columns.
    rows
        Where each stood in the file.
    y
        Targets, shape (rows, targets), finite.
    kinds
        "number", "text" or "boolean" for each input, by name.
    roles
        As given, with what was left out automatically added to `dropped`.
    notes
        Sentences the user should see.
    """

    table: pa.Table
    rows: np.ndarray
    y: np.ndarray
    kinds: dict[str, str]
    roles: Roles
    notes: tuple[str, ...]

    def learn(self, index: np.ndarray) -> Preprocessing:
        """Learn means, variances and levels from some of the rows."""
        part = self.table.take(pa.array(index))
        inputs = tuple(_learn(part.column(name), name, kind) for name, kind in self.kinds.items())
        roles = self.roles
        return Preprocessing(inputs, roles.targets, roles.ids, roles.dropped, roles.missing)


def prepare(
    table: pa.Table, roles: Roles, where: Callable[[int], str], label: str
) -> TrainingTable:
    """Check a training table and decide what its columns are.

    Parameters
    ----------
    table
        All rows.
    roles
        What the user said.
    where
        Says where a row stands, for errors.
    label
        What errors call the table.

    Examples
    --------
    >>> table = pa.table({"color": ["red", "blue"] * 3, "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    >>> ready = prepare(table, Roles(("price",)), str, "data.csv")
    >>> ready.kinds
    {'color': 'text'}
    >>> ready.learn(np.arange(6)).inputs[0].levels
    ('blue', 'red')
    """
    notes: list[str] = []
    _check_roles(roles, table.column_names, label)
    if table.num_rows < 2:
        raise TableError(f"{label} has only one row: a model needs at least two, better hundreds.")
    roles = _leave_out_unnamed(table, roles, notes)
    targets = [_target(table, name, where, roles.missing) for name in roles.targets]
    y = np.stack(targets, axis=1)
    others = {*roles.targets, *roles.ids, *roles.dropped}
    names = [name for name in table.column_names if name not in others]
    if not names:
        raise TableError(
            f"{label} has no column left to predict from: it needs one besides the target."
        )
    kinds = {name: _kind(table.column(name), name, roles, where) for name in names}
    keep = ~np.isnan(y).any(axis=1)
    if not keep.all():
        notes.append(f"{int((~keep).sum())} rows without a target are left out.")
    holes = np.zeros(len(keep), bool)
    for name, kind in kinds.items():
        holes |= _check_cells(table.column(name), name, kind, roles, where, notes)
    if roles.missing == "drop" and (holes & keep).any():
        notes.append(f"{int((holes & keep).sum())} rows with missing values are left out.")
        keep &= ~holes
    elif holes.any():
        notes.append(
            f"{int((holes & keep).sum())} rows have missing values, which are filled in with the "
            "column's mean and spread (a missing category is a category of its own)."
        )
    rows = np.flatnonzero(keep)
    if len(rows) < 2:
        raise TableError(
            f"{label} has only {len(rows)} complete rows: use --missing impute, or --drop the "
            "columns with many missing values."
        )
    _check_not_constant(y[rows], roles.targets)
    return TrainingTable(table.take(pa.array(rows)), rows, y[rows], kinds, roles, tuple(notes))


def _check_roles(roles: Roles, names: list[str], label: str) -> None:
    if len(names) == 1:
        raise TableError(
            f"{label} has only one column, {names[0]!r}: say with --delimiter what stands between "
            "the columns, or give a table with inputs and a target."
        )
    for option in ("targets", "ids", "dropped", "categories"):
        for name in getattr(roles, option):
            if name not in names:
                close = difflib.get_close_matches(name, names, 1, 0.6)
                close = close or [other for other in names if other.lower() == name.lower()]
                hint = (
                    f"did you mean {close[0]!r}?"
                    if close
                    else "it has "
                    + ", ".join(map(repr, names[:10]))
                    + (", ..." if len(names) > 10 else ".")
                )
                raise TableError(f"{label} has no column {name!r}: {hint}")
    said = Counter([*roles.targets, *roles.ids, *roles.dropped])
    twice = [name for name, count in said.items() if count > 1]
    if twice:
        raise TableError(
            f"column {twice[0]!r} is named more than once among --target, --id and --drop: "
            "it can be only one of these."
        )


def _leave_out_unnamed(table: pa.Table, roles: Roles, notes: list[str]) -> Roles:
    """Leave out the row numbers that pandas writes into a first column without a name."""
    said = {*roles.targets, *roles.ids, *roles.dropped}
    if table.column_names[0] or "" in said or not pa.types.is_integer(table.schema.field(0).type):
        return roles
    if not np.array_equal(to_floats(table.column(0)), np.arange(table.num_rows)):
        return roles
    notes.append("the first column has no name and counts the rows: it is left out.")
    return dataclasses.replace(roles, dropped=(*roles.dropped, ""))


def _target(table: pa.Table, name: str, where: Callable[[int], str], missing: str) -> np.ndarray:
    cells = table.column(name)
    if is_text(cells.type):
        if _share(cells, _DECIMAL_COMMA) >= 0.5:
            raise _decimal_comma(name)
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


def _check_not_constant(y: np.ndarray, names: tuple[str, ...]) -> None:
    for values, name in zip(y.T, names, strict=True):
        if values.min() == values.max():
            raise TableError(
                f"target {name!r} is {values[0]:g} in all rows: there is nothing to learn."
            )


def _kind(cells: pa.ChunkedArray, name: str, roles: Roles, where: Callable[[int], str]) -> str:
    kind, hint = cells.type, f"leave it out with --drop {_shell(name)}"
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
    cells: pa.ChunkedArray, name: str, forced: bool, where: Callable[[int], str], hint: str
) -> None:
    different = len(cells.drop_null().unique())
    most = MAX_FORCED_CATEGORIES if forced else MAX_CATEGORIES
    filled = len(cells) - cells.null_count
    if not forced:
        if _share(cells, _DECIMAL_COMMA) >= 0.5:
            raise _decimal_comma(name)
        if _share(cells, _NUMBER) >= 0.5:
            row, text = _first_text(cells)
            raise TableError(
                f"column {name!r} holds the text {text!r} in {where(row)} among numbers: correct "
                f"it, {hint}, or take it as categories with --category {_shell(name)}."
            )
    if different <= most and (forced or 2 * different <= filled):
        return
    force = "" if forced else f", or take it as categories with --category {_shell(name)}"
    raise TableError(
        f"column {name!r} holds text with {different} different values in {filled} rows: {hint}"
        f"{force}."
    )


def _check_cells(
    cells: pa.ChunkedArray,
    name: str,
    kind: str,
    roles: Roles,
    where: Callable[[int], str],
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
                f"column {name!r} has no value in any row: leave it out with --drop {_shell(name)}."
            )
        if np.nanmin(values) == np.nanmax(values):
            notes.append(f"column {name!r} is {values[~holes][0]:g} in all rows and tells nothing.")
        elif not holes.any() and _looks_like_id(values, name):
            notes.append(
                f"column {name!r} looks like an id and is used as a number: keep it out of the "
                f"inputs with --id {_shell(name)}."
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


def _learn(cells: pa.ChunkedArray, name: str, kind: str) -> Column:
    if kind == "number":
        values = to_floats(cells)
        values = values[~np.isnan(values)]
        if not len(values):
            raise TableError(
                f"column {name!r} has no value in any training row: leave it out with --drop "
                f"{_shell(name)}."
            )
        return NumberColumn(name, float(values.mean()), float(values.var()))
    counted: Counter[str | None] = Counter(to_text(cells).to_pylist())
    # Missing last, the rest by name: the order must not depend on that of the rows.
    levels = tuple(sorted(counted, key=lambda level: (level is None, level or "")))
    return CategoryColumn(
        name,
        "boolean" if kind == "boolean" else "text",
        levels,
        tuple(counted[level] for level in levels),
    )


def _share(cells: pa.ChunkedArray, pattern: str) -> float:
    """Return the share of the values that match."""
    return pc.mean(pc.match_substring_regex(cells, pattern)).as_py() or 0.0


def _decimal_comma(name: str) -> TableError:
    return TableError(f"column {name!r} holds numbers with a decimal comma: use --decimal ','.")


def _first_text(cells: pa.ChunkedArray) -> tuple[int, str]:
    numeric = pc.match_substring_regex(cells, _NUMBER).fill_null(True)
    row = pc.index(numeric, False).as_py()
    row = max(row, 0)  # a column of numbers that its file stores as text
    return row, str(cells[row])[:40]


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_temporal(kind):
        return "dates or times"
    if pa.types.is_boolean(kind):
        return "true or false"
    return f"values of the type {kind}"


def _shell(name: str) -> str:
    return name if re.fullmatch(r"[\w.-]+", name) else "'" + name + "'"
