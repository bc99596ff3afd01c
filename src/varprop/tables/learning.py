"""Deciding what each column of a training table is, and learning what its encoding needs."""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from varprop.tables.columns import (
    CategoryColumn,
    Column,
    NumberColumn,
    to_floats,
    to_text,
)
from varprop.tables.errors import TableError, count_rows
from varprop.tables.kinds import Roles, as_typed, check_cells, column_kind, target_values
from varprop.tables.preprocessing import Preprocessing


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
    targets = [target_values(table, name, where, roles.missing) for name in roles.targets]
    y = np.stack(targets, axis=1)
    others = {*roles.targets, *roles.ids, *roles.dropped}
    names = [name for name in table.column_names if name not in others]
    if not names:
        raise TableError(
            f"{label} has no column left to predict from: it needs one besides the target."
        )
    kinds = {name: column_kind(table.column(name), name, roles, where) for name in names}
    keep = ~np.isnan(y).any(axis=1)
    if not keep.all():
        notes.append(f"{count_rows(int((~keep).sum()))} without a target left out.")
    holes = np.zeros(len(keep), bool)
    for name, kind in kinds.items():
        holes |= check_cells(table.column(name), name, kind, roles, where, notes)
    if roles.missing == "drop" and (holes & keep).any():
        notes.append(f"{count_rows(int((holes & keep).sum()))} with missing values left out.")
        keep &= ~holes
    elif holes.any():
        notes.append(
            f"missing values in {count_rows(int((holes & keep).sum()))} are filled in with the "
            "column's mean and spread (a missing category is a category of its own)."
        )
    rows = np.flatnonzero(keep)
    if len(rows) < 2:
        raise TableError(
            f"{label} has only {count_rows(len(rows))} without missing values: use --missing "
            "impute, or --drop the columns with many of them."
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


def _check_not_constant(y: np.ndarray, names: tuple[str, ...]) -> None:
    for values, name in zip(y.T, names, strict=True):
        if values.min() == values.max():
            raise TableError(
                f"target {name!r} is {values[0]:g} in all rows: there is nothing to learn."
            )


def _learn(cells: pa.ChunkedArray, name: str, kind: str) -> Column:
    if kind == "number":
        values = to_floats(cells)
        values = values[~np.isnan(values)]
        if not len(values):
            raise TableError(
                f"column {name!r} has no value in any training row: leave it out with --drop "
                f"{as_typed(name)}."
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
