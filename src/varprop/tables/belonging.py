"""The column that says which rows belong together: groups, or times that are put in order."""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varprop.data.together import Together
from varprop.tables.cells import Cells, to_floats, to_text
from varprop.tables.columns import count_rows
from varprop.tables.kinds import kind_of
from varprop.tables.numbers import Reading
from varprop.tables.roles import Roles
from varprop.tables.source import Source
from varprop.tables.text import TableError


@dataclasses.dataclass
class Belonging:
    """A column of groups or times, as far as it has been looked at.

    Examples
    --------
    >>> table = Source.of_table(pa.table({"day": [3, 1, 2]}))
    >>> column = Belonging("day", Roles(("y",), time="day"), table)
    >>> column.add(pa.array([3, 1, 2]), 0).any(), column.judge()
    (np.False_, '')
    >>> column.together(np.ones(3, bool)).codes.tolist()
    [2, 0, 1]
    """

    name: str
    roles: Roles
    table: Source
    values: list[np.ndarray] = dataclasses.field(default_factory=list)
    known: dict[str, int] = dataclasses.field(default_factory=dict)  # numbers of groups, by label
    kind: str = ""
    first_hole: int | None = None
    problem: str = ""

    @property
    def in_time(self) -> bool:
        """Whether it holds times, and not groups."""
        return self.name == self.roles.time

    def add(self, cells: Cells, first: int) -> np.ndarray:
        """Look at more cells, the first of which is in this row; return where there are none."""
        holes = np.asarray(pc.is_null(cells, nan_is_null=True))
        if self.first_hole is None and holes.any():
            self.first_hole = first + int(np.argmax(holes))
        if not self.problem:
            self.values.append(self._times(cells, first) if self.in_time else self._groups(cells))
        return holes

    def _groups(self, cells: Cells) -> np.ndarray:
        try:
            listed = to_text(cells).dictionary_encode()
        except pa.ArrowException:
            self.problem = f"column {self.name!r} holds {kind_of(cells.type)}, which are no groups."
            return np.zeros(len(cells), np.int64)
        # Spellings that differ only in case or in blanks around them are one, as of categories.
        labels = [label.strip().casefold() for label in listed.dictionary.to_pylist()]
        codes = np.array([self.known.setdefault(label, len(self.known)) for label in labels], int)
        places = np.asarray(listed.indices.fill_null(0))
        return codes[places] if len(codes) else np.zeros(len(cells), np.int64)

    def _times(self, cells: Cells, first: int) -> np.ndarray:
        kind, before = kind_of(cells.type), self.kind
        kind = "number" if kind == "integer" else kind
        if kind == "nothing":
            return np.zeros(len(cells))
        self.kind, where = kind, self.table.where
        if before not in ("", kind):
            self.problem = (
                f"column {self.name!r} has the type {cells.type} in {where(first)}, but another "
                "before it: give all files the same types."
            )
        elif kind == "number":
            try:
                return to_floats(cells, self.name, lambda row: where(first + row))
            except TableError as error:
                self.problem = str(error)
        elif kind == "dates or times":
            unit = cells.type
            if pa.types.is_timestamp(unit):
                cells = pc.cast(cells, pa.timestamp("ns", unit.tz), safe=False)
            whole = pa.int32() if cells.type.bit_width == 32 else pa.int64()
            return np.asarray(pc.cast(pc.cast(cells, whole), pa.int64()).fill_null(0))
        else:
            row = int(np.argmax(np.asarray(cells.is_valid())))
            held = f"the text {str(cells[row])!r}" if kind == "text" else kind
            self.problem = (
                f"column {self.name!r} holds {held} in {where(first + row)}, which cannot be put "
                "in order of time: give numbers, or dates such as 2024-01-31."
            )
        return np.zeros(len(cells))

    def judge(self) -> str:
        """Return what is wrong with the column, if anything is."""
        if reading := self.table.readings.get(self.name, Reading()).problem:
            return f"column {self.name!r} {reading}."
        if self.problem:
            return self.problem
        if self.first_hole is not None and self.roles.missing != "drop":
            return (
                f"column {self.name!r} has no value in {self.table.where(self.first_hole)}: fill "
                "it in, or leave such rows out with --missing drop."
            )
        return self._too_few(np.concatenate(self.values))

    def _too_few(self, values: np.ndarray) -> str:
        if len(values) and np.ptp(values):
            return ""
        what, option = ("time", "--time") if self.in_time else ("group", "--group")
        return (
            f"column {self.name!r} has the same {what} in all rows that are used: at least two are "
            f"needed to set rows aside; leave out {option}."
        )

    def together(self, kept: np.ndarray) -> Together:
        """Return which rows belong together, of all rows, some of which are used.

        Raises
        ------
        TableError
            If all that are used do.
        """
        values = np.concatenate(self.values)
        if problem := self._too_few(values[kept]):
            raise TableError(problem)
        codes = np.unique(values, return_inverse=True)[1].ravel().astype(np.int64)
        return Together(codes, in_time=self.in_time)


def hold_out(
    together: Together, codes: np.ndarray, n_held: int, *, least: int, seed: int
) -> np.ndarray:
    """Choose whole groups, or the last rows in time; of no class all rows.

    Parameters
    ----------
    together
        Of the rows that are used.
    codes
        Number of the class of each; zeros unless targets are classes.
    n_held, least, seed
        Rows wanted, rows needed, and the seed of the draw: see `Together.held_out`.

    Returns
    -------
    np.ndarray
        A mask, of nothing if too few rows would be left.
    """
    held = together.held_out(n_held, least, seed) if n_held else np.zeros(len(codes), bool)
    for code in np.unique(codes[held]):
        own = codes == code
        if held[own].all():  # the first group, or time, that has it is trained on
            held &= together.codes != together.codes[own].min()
    return held if held.sum() >= least else np.zeros(len(held), bool)


def how_held(together: Together, held: np.ndarray, name: str, *, wanted: bool) -> str:
    """Say how rows are held out, and what the folds are.

    Parameters
    ----------
    together, held
        Of the rows that are used, and which of them are held out.
    name
        Of the column.
    wanted
        Whether any were to be held out.

    Examples
    --------
    >>> rows = Together(np.array([0, 0, 1, 1, 2, 2]))
    >>> how_held(rows, rows.codes == 2, "city", wanted=True)
    "1 of 3 groups of 'city' is held out whole (2 rows), and folds hold whole groups."
    """
    kinds, n_kinds = ("times" if together.in_time else "groups"), len(np.unique(together.codes))
    folds = "folds are blocks of time" if together.in_time else "folds hold whole groups"
    if not held.any():
        why = f"{n_kinds} {kinds} of {name!r} are too few to hold rows out: there is no scorecard"
        return f"{why}, and {folds}." if wanted else f"{folds}, by {name!r}."
    if together.in_time:
        return f"the last {count_rows(held)} by {name!r} are held out, and {folds}."
    n_held = len(np.unique(together.codes[held]))
    verb = "is" if n_held == 1 else "are"
    return (
        f"{n_held} of {n_kinds} groups of {name!r} {verb} held out whole ({count_rows(held)}), and "
        f"{folds}."
    )
