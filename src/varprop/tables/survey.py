"""What the columns of a training table are, found out block by block; then what encoding needs.

A first pass decides: number, category, or something to be refused, and which rows are used. Then
one learns means, variances and levels from the rows to train on. Tables of any size go this way.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections import Counter
from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varprop.data.statistics import Moments
from varprop.tables.columns import (
    CategoryColumn,
    Cells,
    Column,
    NumberColumn,
    first_out_of_range,
    is_number,
    is_text,
    range_error,
    to_floats,
    to_text,
)
from varprop.tables.errors import TableError, count_rows
from varprop.tables.preprocessing import Preprocessing
from varprop.tables.reading import Blocks

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
    blocks
        Its rows.
    keep
        For each block, which of its rows are used.
    kinds
        "number", "text" or "boolean" for each input, by name.
    roles
        As given, with what was left out automatically added to `dropped`.
    holes
        Whether a used row has a missing number.
    notes
        Sentences the user should see.
    """

    blocks: Blocks
    keep: tuple[np.ndarray, ...]
    kinds: dict[str, str]
    roles: Roles
    holes: bool
    notes: tuple[str, ...]

    def learn(self, chosen: tuple[np.ndarray, ...]) -> Preprocessing:
        """Learn means, variances and levels from some of the rows, given by a mask per block."""
        numbers = {name: Moments() for name, kind in self.kinds.items() if kind == "number"}
        levels: dict[str, Counter[str | None]] = {
            name: Counter() for name, kind in self.kinds.items() if kind != "number"
        }
        for block, mask in enumerate(chosen):
            start = 0
            for batch in self.blocks.read(block, list(self.kinds)):
                part = batch.filter(pa.array(mask[start : start + batch.num_rows]))
                start += batch.num_rows
                for name, moments in numbers.items():
                    values = to_floats(part.column(name))
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
                        f"--drop {as_typed(name)}."
                    )
                mean, std = numbers[name].result()
                inputs.append(NumberColumn(name, float(mean[0]), float(std[0] ** 2)))
                continue
            # Missing last, the rest by name: the order must not depend on that of the rows.
            found = sorted(levels[name], key=lambda level: (level is None, level or ""))
            counts = tuple(levels[name][level] for level in found)
            cells: Literal["boolean", "text"] = "boolean" if kind == "boolean" else "text"
            inputs.append(CategoryColumn(name, cells, tuple(found), counts))
        roles = self.roles
        return Preprocessing(tuple(inputs), roles.targets, roles.ids, roles.dropped, roles.missing)


def survey(blocks: Blocks, roles: Roles) -> Survey:
    """Check a training table and decide what its columns are.

    Parameters
    ----------
    blocks
        All rows.
    roles
        What the user said.

    Examples
    --------
    >>> table = pa.table({"color": ["red", "blue"] * 3, "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    >>> found = survey(Blocks.of_table(table), Roles(("price",)))
    >>> found.kinds, found.learn(found.keep).inputs[0].levels
    ({'color': 'text'}, ('blue', 'red'))
    """
    label = blocks.label
    _check_roles(roles, blocks.names, label)
    if blocks.n_rows < 2:
        raise TableError(f"{label} has only one row: a model needs at least two, better hundreds.")
    notes: list[str] = []
    said = {*roles.targets, *roles.ids, *roles.dropped}
    if not blocks.names[0] and "" not in said and blocks.counts_rows(""):
        notes.append("the first column has no name and counts the rows: it is left out.")
        roles = dataclasses.replace(roles, dropped=(*roles.dropped, ""))
        said.add("")
    names = [name for name in blocks.names if name not in said]
    if not names:
        raise TableError(
            f"{label} has no column left to predict from: it needs one besides the target."
        )
    targets = [_Looked(name, roles, target=True) for name in roles.targets]
    inputs = [_Looked(name, roles) for name in names]
    keep, missing, first = [], [], 0
    for block in range(len(blocks.block_rows)):
        for batch in blocks.read(block, [*roles.targets, *names]):
            lost = [column.add(batch.column(column.name), first) for column in targets]
            holes = [column.add(batch.column(column.name), first) for column in inputs]
            keep.append(~np.logical_or.reduce(lost))
            missing.append(np.logical_or.reduce(holes))
            first += batch.num_rows
    for column in (*targets, *inputs):
        column.judge(blocks.where, notes)
    kept, hollow = np.concatenate(keep), np.concatenate(missing)
    if not kept.all():
        notes.insert(0, f"{count_rows(int((~kept).sum()))} without a target left out.")
    if roles.missing == "drop" and (hollow & kept).any():
        notes.append(f"{count_rows(int((hollow & kept).sum()))} with missing values left out.")
        kept &= ~hollow
    elif hollow.any():
        notes.append(
            f"missing values in {count_rows(int((hollow & kept).sum()))} are filled in with the "
            "column's mean and spread (a missing category is a category of its own)."
        )
    if kept.sum() < 2:
        raise TableError(
            f"{label} has only {count_rows(int(kept.sum()))} without missing values: use --missing "
            "impute, or --drop the columns with many of them."
        )
    masks = tuple(np.split(kept, np.cumsum(blocks.block_rows)[:-1]))
    kinds = {column.name: column.kind for column in inputs}
    holes_left = roles.missing == "impute" and any(
        column.kind == "number" and column.first_hole is not None for column in inputs
    )
    return Survey(blocks, masks, kinds, roles, holes_left, tuple(notes))


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


class _Looked:
    """One column, as far as it has been looked at. What is wrong is said when all is seen."""

    def __init__(self, name: str, roles: Roles, *, target: bool = False):
        self.name, self.target, self.missing = name, target, roles.missing
        self.forced = name in roles.categories
        self.kind, self.odd = "", ""  # odd: a type that cannot be used, in words
        self.n_filled = 0
        self.first_hole: int | None = None
        self.bad: tuple[int, float] | None = None  # a number out of range
        self.low, self.high = np.inf, -np.inf
        self.seen: Counter[str] = Counter()
        self.n_numbers, self.n_commas = 0, 0
        self.first_text: tuple[int, str] | None = None
        self.whole, self.rising, self.last = True, True, -np.inf
        self.values: list[np.ndarray] = []

    def add(self, cells: Cells, first: int) -> np.ndarray:
        """Look at more cells, the first of which is in this row; return where there are none."""
        kind = cells.type
        holes = np.asarray(cells.is_null())
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
            self.forced = self.forced or not self.target
        known = self.kind
        if is_number(kind) and not self.forced:
            self.kind = "number"
            holes = self._add_numbers(to_floats(cells), first)
        elif is_text(kind) or (self.forced and pa.types.is_integer(kind)):
            self.kind = "text"
            self._add_text(to_text(cells), first)
        elif pa.types.is_boolean(kind) and not self.target:
            self.kind = "boolean"
        elif not pa.types.is_null(kind):
            self.odd = "dates or times" if pa.types.is_temporal(kind) else f"the type {kind}"
            if self.forced and is_number(kind):
                self.odd = "fractions"
        if known and known != self.kind:
            self.odd = f"{known}s in some files and {self.kind} in others"
        self.n_filled += len(holes) - int(holes.sum())
        if self.first_hole is None and holes.any():
            self.first_hole = first + int(np.argmax(holes))
        return holes

    def _add_numbers(self, values: np.ndarray, first: int) -> np.ndarray:
        bad = first_out_of_range(values)
        if bad is not None and self.bad is None:
            self.bad = (first + bad, float(values[bad]))
        holes = np.isnan(values)
        filled = values[~holes]
        if len(filled):
            self.low, self.high = min(self.low, filled.min()), max(self.high, filled.max())
            if self.whole:  # an id has only whole numbers
                self.whole = bool((filled == np.round(filled)).all())
                self.rising &= bool((np.diff(filled, prepend=self.last) > 0).all())
                self.last = float(filled[-1])
                if self.n_filled < _MOST_COUNTED:
                    self.values.append(filled)
        return holes

    def _add_text(self, cells: Cells, first: int) -> None:
        if len(self.seen) <= _MOST_COUNTED:
            for entry in cells.drop_null().value_counts().to_pylist():
                self.seen[entry["values"]] += entry["counts"]
        numeric = pc.match_substring_regex(cells, _NUMBER).fill_null(True)
        self.n_numbers += int(pc.sum(numeric).as_py() or 0) - cells.null_count
        commas = pc.match_substring_regex(cells, _DECIMAL_COMMA)
        self.n_commas += int(pc.sum(commas).as_py() or 0)
        if self.first_text is None:
            row = pc.index(numeric, False).as_py()
            if row >= 0:
                self.first_text = (first + row, str(cells[row])[:40])

    def judge(self, where: Callable[[int], str], notes: list[str]) -> None:
        """Say what is wrong with the column, if anything is, or what is worth a note."""
        name, hint = self.name, f"leave it out with --drop {as_typed(self.name)}"
        what = "target" if self.target else "column"
        if not self.n_filled and not self.odd:
            hint = "choose another --target" if self.target else hint
            raise TableError(f"{what} {name!r} has no value in any row: {hint}.")
        if self.odd == "fractions":
            raise TableError(
                f"column {name!r} holds numbers with fractions, which cannot be categories: leave "
                "out --category for it."
            )
        if self.odd and self.target:
            raise TableError(f"target {name!r} has {self.odd}: a target must be a number.")
        if self.odd:
            raise TableError(f"column {name!r} holds {self.odd}: {hint}, or turn it into numbers.")
        if self.kind == "text" and (self.target or not self.forced):
            if 2 * self.n_commas >= self.n_filled:
                raise TableError(
                    f"column {name!r} holds numbers with a decimal comma: use --decimal ','."
                )
            if self.n_numbers == self.n_filled:
                raise TableError(
                    f"column {name!r} holds numbers stored as text: convert it to numbers."
                )
        if self.kind == "text":
            self._judge_text(where, hint)
        if self.bad is not None:
            raise range_error(self.bad[1], name, where(self.bad[0]))
        if self.first_hole is not None and self.missing == "error":
            mend = (
                "leave such rows out with --missing drop"
                if self.target
                else ("use --missing drop or --missing impute")
            )
            raise TableError(
                f"{what} {name!r} has no value in {where(self.first_hole)}: fill it in, or {mend}."
            )
        constant = self.kind == "number" and self.low == self.high
        if constant and self.target:
            raise TableError(
                f"target {name!r} is {self.low:g} in all rows: there is nothing to learn."
            )
        if constant:
            notes.append(f"column {name!r} is {self.low:g} in all rows and tells nothing.")
        elif self.kind == "number" and not self.target and self._looks_like_id():
            notes.append(
                f"column {name!r} looks like an id and is used as a number: keep it out of the "
                f"inputs with --id {as_typed(name)}."
            )

    def _judge_text(self, where: Callable[[int], str], hint: str) -> None:
        name = self.name
        row, text = self.first_text or (0, "")
        if self.target:
            raise TableError(
                f"target {name!r} holds the text {text!r} in {where(row)}: a target must be a "
                "number."
            )
        force = (
            "" if self.forced else f", or take it as categories with --category {as_typed(name)}"
        )
        if not self.forced and 2 * self.n_numbers >= self.n_filled:
            raise TableError(
                f"column {name!r} holds the text {text!r} in {where(row)} among numbers: correct "
                f"it, {hint}{force}."
            )
        different = len(self.seen)
        most = MAX_FORCED_CATEGORIES if self.forced else MAX_CATEGORIES
        if different > most or not (self.forced or 2 * different <= self.n_filled):
            raise TableError(
                f"column {name!r} holds text with {different} different values in "
                f"{self.n_filled} rows: {hint}{force}."
            )

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


def as_typed(name: str) -> str:
    """Return a column's name as one types it in a shell."""
    return name if re.fullmatch(r"[\w.-]+", name) else "'" + name + "'"
