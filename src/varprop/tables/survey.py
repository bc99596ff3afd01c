"""What the columns of a training table are, found out block by block; then what encoding needs.

A first pass decides: number, category, or something to be refused, and which rows are used. Then
one learns means, variances and levels from the rows to train on. Tables of any size go this way.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import shlex
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varprop.data.statistics import Moments
from varprop.tables.columns import (
    CategoryColumn,
    Cells,
    Column,
    NumberColumn,
    Preprocessing,
    count_rows,
    kind_of,
    to_floats,
    to_text,
)
from varprop.tables.source import Source, TableError

#: More different values than this make a text column free text.
MAX_CATEGORIES = 50
#: The same where the user, or the table's own type, says that it holds categories.
MAX_FORCED_CATEGORIES = 1000
# Different values that are counted at most.
_MOST_COUNTED = 100_000

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
class Survey:
    """A training table that can be learned from.

    Attributes
    ----------
    table
        All its rows.
    keep
        Which of them are used; shape (rows,).
    kinds
        "number", "text" or "boolean" for each input, by name.
    roles
        As given, with what was left out automatically added to `dropped`.
    holes
        Whether a used row has a missing number.
    notes
        Sentences the user should see.
    """

    table: Source
    keep: np.ndarray
    kinds: dict[str, str]
    roles: Roles
    holes: bool
    notes: tuple[str, ...]

    def learn(self, chosen: np.ndarray) -> Preprocessing:
        """Learn means, variances and levels from some of the rows, given by a mask."""
        numbers = {name: Moments() for name, kind in self.kinds.items() if kind == "number"}
        levels: dict[str, Counter[Any]] = {
            name: Counter() for name, kind in self.kinds.items() if kind != "number"
        }
        first = 0
        for batch in self.table.read(list(self.kinds)):
            part = batch.filter(pa.array(chosen[first : first + batch.num_rows]))
            first += batch.num_rows
            for name, moments in numbers.items():
                values = to_floats(part.column(name), name, str)
                values = values[~np.isnan(values), None]
                if len(values):
                    moments.add(values, np.ones(len(values)))
            for name, counted in levels.items():
                for entry in to_text(part.column(name)).value_counts().to_pylist():
                    counted[entry["values"]] += entry["counts"]
        inputs: list[Column] = []
        for name, kind in self.kinds.items():
            if kind == "number":
                if not numbers[name].weight:
                    raise TableError(
                        f"column {name!r} has no value in any training row: leave it out with "
                        f"--drop {shlex.quote(name)}."
                    )
                mean, std = numbers[name].result()
                inputs.append(NumberColumn(name, float(mean[0]), float(std[0] ** 2)))
                continue
            # Missing last, the rest by name: the order must not depend on that of the rows.
            found = sorted(levels[name], key=lambda level: (level is None, level or ""))
            counts = tuple(levels[name][level] for level in found)
            inputs.append(CategoryColumn(name, kind, tuple(found), counts))
        roles = self.roles
        return Preprocessing(tuple(inputs), roles.targets, roles.ids, roles.dropped, roles.missing)


def survey(table: Source, roles: Roles) -> Survey:
    """Check a training table and decide what its columns are.

    Parameters
    ----------
    table
        From `open_source`. Parquet files are read in parts, others into memory.
    roles
        What the user said.

    Examples
    --------
    >>> table = pa.table({"color": ["red", "blue"] * 3, "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    >>> found = survey(Source.of_table(table), Roles(("price",)))
    >>> found.kinds, found.learn(found.keep).inputs[0].levels
    ({'color': 'text'}, ('blue', 'red'))
    """
    label, notes = table.label, []
    _check_roles(roles, table.names, label)
    table = table.load(text=(*roles.ids, *roles.categories))
    if sum(table.block_rows) < 2:
        raise TableError(f"{label} has only one row: a model needs at least two, better hundreds.")
    said = {*roles.targets, *roles.ids, *roles.dropped}
    if not table.names[0] and "" not in said and _counts_rows(table):
        notes.append("the first column has no name and counts the rows: it is left out.")
        roles = dataclasses.replace(roles, dropped=(*roles.dropped, ""))
        said.add("")
    names = [name for name in table.names if name not in said]
    if not names:
        raise TableError(
            f"{label} has no column left to predict from: it needs one besides the target."
        )
    targets = [_Looked(name, roles, table.where, target=True) for name in roles.targets]
    inputs = [_Looked(name, roles, table.where) for name in names]
    keep, missing, first = [], [], 0
    for batch in table.read([*roles.targets, *names]):
        lost = [column.add(batch.column(column.name), first) for column in targets]
        holes = [column.add(batch.column(column.name), first) for column in inputs]
        keep.append(~np.logical_or.reduce(lost))
        missing.append(np.logical_or.reduce(holes))
        first += batch.num_rows
    for column in (*targets, *inputs):
        column.judge(notes)
    kept, hollow = np.concatenate(keep), np.concatenate(missing)
    if not kept.all():
        notes.insert(0, f"{count_rows(~kept)} without a target left out.")
    if roles.missing == "drop" and (hollow & kept).any():
        notes.append(f"{count_rows(hollow & kept)} with missing values left out.")
        kept &= ~hollow
    elif (hollow & kept).any():
        notes.append(
            f"missing values in {count_rows(hollow & kept)} are filled in with the column's mean "
            "and spread (a missing category is a category of its own)."
        )
    if kept.sum() < 2:
        raise TableError(
            f"{label} has only {count_rows(kept)} without missing values: use --missing impute, or "
            "--drop the columns with many of them."
        )
    kinds = {column.name: column.kind for column in inputs}
    holes_left = roles.missing == "impute" and any(
        column.kind == "number" and column.first_hole is not None for column in inputs
    )
    return Survey(table, kept, kinds, roles, holes_left, tuple(notes))


def _check_roles(roles: Roles, names: tuple[str, ...], label: str) -> None:
    if len(names) == 1:
        raise TableError(
            f"{label} has only one column, {names[0]!r}: say with --delimiter what stands between "
            "the columns, or give a table with inputs and a target."
        )
    for name in (*roles.targets, *roles.ids, *roles.dropped, *roles.categories):
        if name not in names:
            close = difflib.get_close_matches(name, names, 1, 0.6)
            close = close or [other for other in names if other.lower() == name.lower()]
            listed = ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else ".")
            hint = f"did you mean {close[0]!r}?" if close else f"it has {listed}"
            raise TableError(f"{label} has no column {name!r}: {hint}")
    said = Counter([*roles.targets, *roles.ids, *roles.dropped])
    twice = [name for name, count in said.items() if count > 1]
    if twice:
        raise TableError(
            f"column {twice[0]!r} is named more than once among --target, --id and --drop: "
            "it can be only one of these."
        )


def _counts_rows(table: Source) -> bool:
    """Whether the column without a name holds the row numbers that pandas writes into one."""
    first = 0
    for batch in table.read([""]):
        cells = batch.column(0)
        expected = pa.array(range(first, first + len(cells)), pa.int64())
        if not pa.types.is_integer(cells.type) or not cells.cast(pa.int64()).equals(expected):
            return False
        first += len(cells)
    return True


@dataclasses.dataclass
class _Looked:
    """One column, as far as it has been looked at. Most that is wrong is said when all is seen."""

    name: str
    roles: Roles
    where: Callable[[int], str]
    target: bool = False
    forced: bool = False  # said to hold categories, by the user or by its type
    kind: str = ""
    odd: str = ""  # why it cannot be used
    n_filled: int = 0
    first_hole: int | None = None
    low: float = np.inf
    high: float = -np.inf
    seen: Counter[str] = dataclasses.field(default_factory=Counter)
    n_numbers: int = 0
    n_commas: int = 0
    first_text: tuple[int, str] = (0, "")
    whole: bool = True
    rising: bool = True
    values: list[np.ndarray] = dataclasses.field(default_factory=list)

    def add(self, cells: Cells, first: int) -> np.ndarray:
        """Look at more cells, the first of which is in this row; return where there are none."""
        kind, before = kind_of(cells.type), self.kind
        holes = np.asarray(cells.is_null())
        listed = pa.types.is_dictionary(cells.type) or self.name in self.roles.categories
        self.forced = self.forced or (listed and not self.target)
        if kind in ("integer", "number") and not self.forced:
            self.kind = "number"
            values = to_floats(cells, self.name, lambda row: self.where(first + row))
            holes = np.isnan(values)
            filled = values[~holes]
            self.low = min(self.low, filled.min(initial=np.inf))
            self.high = max(self.high, filled.max(initial=-np.inf))
            self.whole = self.whole and bool((filled == np.round(filled)).all())
            if self.whole and len(filled):  # an id has only whole numbers
                last = self.values[-1][-1:] if self.values else filled[:0]
                self.rising &= bool((np.diff(filled, prepend=last) > 0).all())
                self.values.append(filled if self.n_filled < _MOST_COUNTED else filled[-1:])
        elif kind == "text" or (kind == "integer" and self.forced):
            self.kind = "text"
            self._add_text(to_text(cells), first)
        elif kind == "boolean" and not self.target:
            self.kind = "boolean"
        elif kind != "nothing":
            words = {"number": "fractions", "boolean": "true or false"}
            self.kind = self.odd = words.get(kind, kind)
        if before not in ("", self.kind):
            raise TableError(
                f"column {self.name!r} has the type {cells.type} in {self.where(first)}, but "
                "another before it: give all files the same types."
            )
        self.n_filled += len(holes) - int(holes.sum())
        if self.first_hole is None and holes.any():
            self.first_hole = first + int(np.argmax(holes))
        return holes

    def _add_text(self, cells: Cells, first: int) -> None:
        if len(self.seen) <= _MOST_COUNTED:
            for entry in cells.drop_null().value_counts().to_pylist():
                self.seen[entry["values"]] += entry["counts"]
        numeric = pc.match_substring_regex(cells, _NUMBER).fill_null(True)
        self.n_numbers += int(pc.sum(numeric).as_py() or 0) - cells.null_count
        commas = pc.match_substring_regex(cells, _DECIMAL_COMMA)
        self.n_commas += int(pc.sum(commas).as_py() or 0)
        row = pc.index(numeric, False).as_py()
        if not self.first_text[1] and row >= 0:
            self.first_text = (first + row, str(cells[row])[:40])

    def judge(self, notes: list[str]) -> None:
        """Say what is wrong with the column, if anything is, or what is worth a note."""
        name, typed, where = self.name, shlex.quote(self.name), self.where
        what = "target" if self.target else "column"
        hint = f"leave it out with --drop {typed}"
        problem = ""
        if not self.n_filled and not self.odd:
            hint = "choose another --target" if self.target else hint
            problem = f"has no value in any row: {hint}"
        elif self.odd == "fractions":
            problem = (
                "holds numbers with fractions, which cannot be categories: leave out --category "
                "for it"
            )
        elif self.odd:
            mend = (
                "a target must be a number" if self.target else f"{hint}, or turn it into numbers"
            )
            problem = f"holds {self.odd}: {mend}"
        elif self.kind == "text":
            problem = self._wrong_text(hint, typed)
        if not problem and self.first_hole is not None and self.roles.missing == "error":
            mend = "use --missing drop or --missing impute"
            if self.target:
                mend = "leave such rows out with --missing drop"
            problem = f"has no value in {where(self.first_hole)}: fill it in, or {mend}"
        constant = self.kind == "number" and self.low == self.high and self.n_filled > 1
        if not problem and constant and self.target:
            problem = f"is {self.low:g} in all rows: there is nothing to learn"
        if problem:
            raise TableError(f"{what} {name!r} {problem}.")
        if constant:
            notes.append(f"column {name!r} is {self.low:g} in all rows and tells nothing.")
        elif self.kind == "number" and not self.target and self._looks_like_id():
            notes.append(
                f"column {name!r} looks like an id and is used as a number: keep it out of the "
                f"inputs with --id {typed}."
            )

    def _wrong_text(self, hint: str, typed: str) -> str:
        """Say why a column of text is none of categories, if it is not."""
        row, text = self.first_text
        if self.target or not self.forced:
            if 2 * self.n_commas >= self.n_filled:
                return "holds numbers with a decimal comma: use --decimal ','"
            if self.n_numbers == self.n_filled:
                return "holds numbers stored as text: convert it to numbers"
        if self.target:
            return f"holds the text {text!r} in {self.where(row)}: a target must be a number"
        force = "" if self.forced else f", or take it as categories with --category {typed}"
        if not self.forced and 2 * self.n_numbers >= self.n_filled:
            return (
                f"holds the text {text!r} in {self.where(row)} among numbers: correct it, {hint}"
                f"{force}"
            )
        different = len(self.seen)
        most = MAX_FORCED_CATEGORIES if self.forced else MAX_CATEGORIES
        if different > most or not (self.forced or 2 * different <= self.n_filled):
            return (
                f"holds text with {different} different values in {self.n_filled} rows: {hint}"
                f"{force}"
            )
        return ""

    def _looks_like_id(self) -> bool:
        """Whether these are unique whole numbers that rise row by row, or are named like an id."""
        if self.n_filled < 10 or not self.whole or self.first_hole is not None:
            return False
        if self.rising:
            return True
        values = np.concatenate(self.values)
        if len(values) < self.n_filled or len(np.unique(values)) < len(values):
            return False
        return bool((np.diff(np.sort(values)) == 1).all()) or bool(_ID_NAME.search(self.name))
