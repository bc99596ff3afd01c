"""What the columns of a training table are, found out block by block; then what encoding needs.

A first pass decides: number, category, or something to be refused, and which rows are used. Then
one learns means, variances and levels from the rows to train on. Tables of any size go this way.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa

from varprop.data.sketch import Sketch
from varprop.data.statistics import Moments
from varprop.data.together import Together
from varprop.tables.belonging import Belonging
from varprop.tables.cells import to_floats, to_text
from varprop.tables.columns import CategoryColumn, Column, NumberColumn, Preprocessing, count_rows
from varprop.tables.deciding import decide, look_closer
from varprop.tables.kinds import kind_of
from varprop.tables.levels import merged
from varprop.tables.looked import LookedAt
from varprop.tables.numbers import Reading
from varprop.tables.outcomes import Outcome
from varprop.tables.roles import Roles, wrong_roles
from varprop.tables.source import Source
from varprop.tables.text import TableError

# A table of more bytes is not read to say more than that a column is misspelt.
_LARGE = 64 * 2**20
# Rows that sketches are of, and numbers in them.
_MOST_SKETCHED, _MOST_NUMBERS = 2**14, 2**23


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
    outcome
        What the targets are.
    codes
        Number of the class in every row, shape (rows,); zeros unless targets are classes.
    together
        Which rows belong together, if the user says so; of all rows.
    """

    table: Source
    keep: np.ndarray
    kinds: dict[str, str]
    roles: Roles
    holes: bool
    notes: tuple[str, ...]
    outcome: Outcome
    codes: np.ndarray
    together: Together | None = None

    def learn(self, chosen: np.ndarray) -> Preprocessing:
        """Learn means, variances, sketches and levels from some of the rows, given by a mask.

        Sketches are of at most 16,384 of these rows, and of fewer with more than 512 columns.
        """
        numbers = {name: Moments() for name, kind in self.kinds.items() if kind == "number"}
        sketched: dict[str, list[np.ndarray]] = {name: [] for name in numbers}
        drawn = _drawn(chosen, max(64, min(_MOST_SKETCHED, _MOST_NUMBERS // len(self.kinds))))
        levels: dict[str, Counter[Any]] = {
            name: Counter() for name, kind in self.kinds.items() if kind != "number"
        }
        first = 0
        for batch in self.table.read(list(self.kinds)):
            here = slice(first, first + batch.num_rows)
            part, first = batch.filter(pa.array(chosen[here])), here.stop
            of_sketch = drawn[here][chosen[here]]
            for name, moments in numbers.items():
                values = to_floats(part.column(name), name, str)
                sketched[name].append(values[of_sketch])
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
                unit = self.table.readings.get(name, Reading()).unit
                sketch = _sketch(np.concatenate(sketched.pop(name)))
                inputs.append(NumberColumn(name, float(mean[0]), float(std[0] ** 2), unit, sketch))
                continue
            # Missing last, the rest by name: the order must not depend on that of the rows.
            counted = merged(levels[name])
            found = sorted(counted, key=lambda level: (level is None, level or ""))
            counts = tuple(counted[level] for level in found)
            inputs.append(CategoryColumn(name, kind, tuple(found), counts))
        roles, shown = self.roles, self.table.dialect
        text = dataclasses.replace(
            self.table.told, decimal=shown.decimal, thousands=shown.thousands
        )
        # Which rows belong together is of no use to a prediction.
        names = (roles.targets, roles.ids, (*roles.dropped, *roles.belonging))
        units = tuple(self.table.readings.get(t, Reading()).unit for t in roles.targets)
        signs = units if any(units) else ()
        return Preprocessing(tuple(inputs), *names, roles.missing, text, signs, self.outcome)


def survey(table: Source, roles: Roles, likelihood: str = "auto") -> Survey:
    """Check a training table and decide what its columns are.

    Parameters
    ----------
    table
        From `open_source`. Parquet files are read in parts, others into memory.
    roles
        What the user said.
    likelihood
        One of `varprop.tables.outcomes.LIKELIHOODS`; "auto" to go by the targets.

    Examples
    --------
    >>> table = pa.table({"color": ["red", "blue"] * 3, "price": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    >>> found = survey(Source.of_table(table), Roles(("price",)))
    >>> found.kinds, found.learn(found.keep).inputs[0].levels
    ({'color': 'text'}, ('blue', 'red'))
    """
    label = table.label
    problems = wrong_roles(roles, table.names, label)
    if problems and (len(table.names) < 2 or _is_large(table)):
        raise TableError(*problems)
    coded = [name for name in (roles.censoring, roles.group) if name is not None]
    # One that is a target as well is wrong, and is told so once: as numbers it stays one.
    as_text = (*roles.ids, *roles.categories, *(n for n in coded if n not in roles.targets))
    table = table.load(text=as_text, numbers=roles.numbers)
    if sum(table.block_rows) < 2:
        problems.append(f"{label} has only one row: a model needs at least two, better hundreds.")
        raise TableError(*problems)
    notes = list(table.notes)
    said = {*roles.targets, *roles.ids, *roles.dropped, *roles.more, *roles.belonging}
    if not table.names[0] and "" not in said and _counts_rows(table):
        notes.append("the first column has no name and counts the rows: it is left out.")
        roles = dataclasses.replace(roles, dropped=(*roles.dropped, ""))
        said.add("")
    names = [name for name in table.names if name not in said]
    if not names:
        problems.append(
            f"{label} has no column left to predict from: it needs one besides the target."
        )
    there = [name for name in dict.fromkeys(roles.targets) if name in table.names]
    targets = [LookedAt(name, roles, table, target=True) for name in there]
    inputs = [LookedAt(name, roles, table) for name in names]
    keep, missing, first = [], [], 0
    upper = [roles.upper] if roles.upper in table.names else []
    exposure = [roles.exposure] if roles.exposure in table.names else []
    # A column that has another role is a problem already.
    others = {*roles.targets, *roles.ids, *roles.dropped, *roles.more}
    belonging = [
        Belonging(name, roles, table)
        for name in dict.fromkeys(roles.belonging)
        if name in table.names and name not in others
    ]
    more = [*upper, *exposure, *(column.name for column in belonging)]
    for batch in table.read([*there, *names, *more]):
        none = [np.zeros(batch.num_rows, bool)]
        lost = [column.add(batch.column(column.name), first) for column in targets]
        if upper:  # either end of a range is enough
            lost = [holes & np.asarray(batch.column(upper[0]).is_null()) for holes in lost]
        holes = [column.add(batch.column(column.name), first) for column in inputs]
        if roles.missing == "drop":
            holes += [np.asarray(batch.column(n).is_null(nan_is_null=True)) for n in exposure]
        without = [column.add(batch.column(column.name), first) for column in belonging]
        holes += without if roles.missing == "drop" else []
        keep.append(~np.logical_or.reduce(none + lost))
        missing.append(np.logical_or.reduce(none + holes))
        first += batch.num_rows
    outcome, chosen, wrong = decide(targets, roles, likelihood)
    problems += wrong
    notes += chosen
    for column in (*targets, *inputs):
        problem = column.judge(notes)
        if problem:
            problems.append(problem)
    problems += [problem for column in belonging if (problem := column.judge())]
    if problems:
        raise TableError(*problems)
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
    codes, more = look_closer(table, outcome, roles.targets, kept)
    notes += more
    kinds = {column.name: column.kind for column in inputs}
    holes_left = roles.missing == "impute" and any(
        column.kind == "number" and column.first_hole is not None for column in inputs
    )
    together = belonging[0].together(kept) if belonging else None
    return Survey(table, kept, kinds, roles, holes_left, tuple(notes), outcome, codes, together)


def _drawn(chosen: np.ndarray, most: int) -> np.ndarray:
    """Return a mask of at most so many of the chosen rows."""
    rows = np.flatnonzero(chosen)
    if len(rows) <= most:
        return chosen
    drawn = np.zeros(len(chosen), bool)
    drawn[np.random.default_rng(0).choice(rows, most, replace=False)] = True
    return drawn


def _sketch(values: np.ndarray) -> Sketch | None:
    """Return the sketch of values, NaN where there is none; None if there are none at all."""
    known = ~np.isnan(values)
    if not known.any():
        return None
    return Sketch.of(values[known], missing=int((~known).sum()))


def _is_large(table: Source) -> bool:
    if table.files is not None:
        return sum(file.size for file in table.files.files) > _LARGE
    return table.table is None and os.path.getsize(table.path) > _LARGE


def _counts_rows(table: Source) -> bool:
    """Whether the column without a name holds the row numbers that pandas writes into one."""
    first = 0
    for batch in table.read([""]):
        cells = batch.column(0)
        if kind_of(cells.type) not in ("integer", "number") or cells.null_count:
            return False
        if not np.array_equal(np.asarray(cells), np.arange(first, first + len(cells))):
            return False
        first += len(cells)
    return True
