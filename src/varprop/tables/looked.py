"""One column of a training table: what it is, and what is wrong with it."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections import Counter

import numpy as np
import pyarrow as pa

from varprop.tables.cells import LARGEST, Cells, to_floats, to_text
from varprop.tables.kinds import kind_of
from varprop.tables.levels import merged, one_spelling
from varprop.tables.numbers import Look, Reading, trimmed
from varprop.tables.roles import Roles
from varprop.tables.source import Source
from varprop.tables.text import TableError

#: More different values than this make a text column free text.
MAX_CATEGORIES = 50
#: The same where the user, or the table's own type, says that it holds categories.
MAX_FORCED_CATEGORIES = 1000
#: Classes of a target at most.
MAX_CLASSES = 100
# Different values that are counted at most.
_MOST_COUNTED = 100_000
_ID_NAME = re.compile(
    r"(^|[_\W])(id|ids|index|idx|key|nr|no|number|row)$|[a-z]Id$|[a-zA-Z]ID$", re.I
)


@dataclasses.dataclass
class LookedAt:
    """One column, as far as it has been looked at. Most that is wrong is said when all is seen."""

    name: str
    roles: Roles
    table: Source
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
    first_text: tuple[int, str] = (0, "")
    whole: bool = True
    rising: bool = True
    values: list[np.ndarray] = dataclasses.field(default_factory=list)
    distinct: Counter[float] = dataclasses.field(default_factory=Counter)  # of a target, if few
    as_classes: bool = False  # how a target is taken
    as_number: str = ""  # the likelihood that wants numbers of a target, by the user's own word
    problem: str = ""  # a sentence, once there is one

    def add(self, cells: Cells, first: int) -> np.ndarray:
        """Look at more cells, the first of which is in this row; return where there are none."""
        kind, before = kind_of(cells.type), self.kind
        holes = np.asarray(cells.is_null())
        if self.problem:
            return holes
        listed = pa.types.is_dictionary(cells.type) or self.name in self.roles.categories
        self.forced = self.forced or (listed and not self.target)
        if kind in ("integer", "number") and not self.forced:
            self.kind = "number"
            try:
                values = to_floats(cells, self.name, lambda row: self.table.where(first + row))
            except TableError as error:
                self.problem = str(error)
                return holes
            holes = np.isnan(values)
            filled = values[~holes]
            self.low = min(self.low, filled.min(initial=np.inf))
            self.high = max(self.high, filled.max(initial=-np.inf))
            self.whole = self.whole and bool((filled == np.round(filled)).all())
            if self.target and len(self.distinct) <= MAX_CLASSES:
                found, counts = np.unique(filled, return_counts=True)
                self.distinct.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
            if self.whole and len(filled):  # an id has only whole numbers
                last = self.values[-1][-1:] if self.values else filled[:0]
                self.rising &= bool((np.diff(filled, prepend=last) > 0).all())
                self.values.append(filled if self.n_filled < _MOST_COUNTED else filled[-1:])
        elif kind == "text" or (kind == "integer" and self.forced):
            self.kind = "text"
            self._add_text(to_text(cells), first)
        elif kind == "boolean":
            self.kind = "boolean"
            if self.target:
                for entry in to_text(cells).drop_null().value_counts().to_pylist():
                    self.seen[entry["values"]] += entry["counts"]
        elif kind != "nothing":
            self.kind = self.odd = "fractions" if kind == "number" else kind
        if before not in ("", self.kind):
            self.problem = (
                f"column {self.name!r} has the type {cells.type} in {self.table.where(first)}, but "
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
        look = Look.of(trimmed(cells, ()))
        self.n_numbers += look.n_numbers
        if not self.first_text[1] and look.text:
            row, text = look.text
            self.first_text = (first + row, text)

    def judge(self, notes: list[str]) -> str:
        """Return what is wrong with the column, if anything is; add what is worth a note."""
        if self.problem:
            return self.problem
        name, typed, where = self.name, shlex.quote(self.name), self.table.where
        what = "target" if self.target else "column"
        hint = f"leave it out with --drop {typed}"
        problem = self.table.readings.get(name, Reading()).problem
        if problem:
            pass
        elif not self.n_filled and not self.odd:
            hint = "choose another --target" if self.target else hint
            problem = f"has no value in any row: {hint}"
        elif self.odd == "fractions":
            problem = (
                "holds numbers with fractions, which cannot be categories: leave out --category "
                "for it"
            )
        elif self.odd:
            mend = f"{hint}, or turn it into numbers"
            mend = "a target must be a number or a class" if self.target else mend
            problem = f"holds {self.odd}: {mend}"
        elif self.kind == "boolean" and self.target and not self.as_classes:
            problem = f"holds true or false: {self._must_be_number}"
        elif self.kind == "text":
            problem = self._wrong_text(hint, typed)
        hole = self.first_hole
        if self.target and self.roles.upper is not None:  # no lower end is no hole
            hole = None
        if not problem and hole is not None and self.roles.missing == "error":
            mend = "use --missing drop or --missing impute"
            if self.target:
                mend = "leave such rows out with --missing drop"
            problem = f"has no value in {where(hole)}: fill it in, or {mend}"
        constant = self.kind == "number" and self.low == self.high and self.n_filled > 1
        if not problem and constant and self.target:
            problem = f"is {self.low:g} in all rows: there is nothing to learn"
        width = self.high - self.low
        if not problem and self.kind == "number" and 0 < width < 1 / LARGEST:
            problem = f"varies by {width:g} only, less than {1 / LARGEST:g}: rescale it"
        if problem:
            return f"{what} {name!r} {problem}."
        if self.kind == "text":
            spelled: dict[str, list[str]] = {}
            for value, level in one_spelling(self.seen).items():
                spelled.setdefault(level, []).append(value)
            for level, values in spelled.items():
                if len(values) > 1:
                    listed = ", ".join(map(repr, values[:5])) + (", ..." if values[5:] else "")
                    notes.append(f"column {name!r} has {listed} as one category, {level!r}.")
        if constant:
            notes.append(f"column {name!r} is {self.low:g} in all rows and tells nothing.")
        elif self.kind == "number" and not self.target and self._looks_like_id():
            notes.append(
                f"column {name!r} looks like an id and is used as a number: keep it out of the "
                f"inputs with --id {typed}."
            )
        return ""

    def _wrong_text(self, hint: str, typed: str) -> str:
        """Say why a column of text is none of categories, if it is not."""
        (row, text), where = self.first_text, self.table.where
        code = self.table.readings.get(self.name, Reading()).code
        if self.as_classes:
            different = len(merged(self.seen))
            if different > MAX_CLASSES or 2 * different > self.n_filled:
                return (
                    f"holds text with {different} different values in {self.n_filled} rows: a "
                    "target must be a number, or one of a few classes"
                )
            return ""
        if (self.target or not self.forced) and self.n_numbers == self.n_filled:
            if code and self.target:
                return f"has zeros in front as codes do: take it as numbers with --number {typed}"
            if not code:
                return "holds numbers stored as text: convert it to numbers"
        if self.target:
            return f"holds the text {text!r} in {where(row)}: {self._must_be_number}"
        force = "" if self.forced else f", or take it as categories with --category {typed}"
        if not self.forced and not code and self.mostly_numbers:
            return (
                f"holds the text {text!r} in {where(row)} among numbers: correct it, {hint}{force}"
            )
        different = len(merged(self.seen))
        most = MAX_FORCED_CATEGORIES if self.forced else MAX_CATEGORIES
        if different > most or not (self.forced or 2 * different <= self.n_filled):
            return (
                f"holds text with {different} different values in {self.n_filled} rows: {hint}"
                f"{force}{f', or as numbers with --number {typed}' if code else ''}"
            )
        return ""

    @property
    def few_codes(self) -> bool:
        """Whether text holds codes with zeros in front, such as 01, of which there are few."""
        code = self.table.readings.get(self.name, Reading()).code
        different = len(merged(self.seen))
        return bool(code) and different <= MAX_CLASSES and 2 * different <= self.n_filled

    @property
    def mostly_numbers(self) -> bool:
        """Whether text holds a number in at least every second cell."""
        return 2 * self.n_numbers >= self.n_filled

    @property
    def _must_be_number(self) -> str:
        """Why a target may not be what it is."""
        if self.as_number:
            return f"--likelihood {self.as_number} needs numbers (without it classes are predicted)"
        several = " where there are several" if len(self.roles.targets) > 1 else ""
        return f"a target must be a number{several}"

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
