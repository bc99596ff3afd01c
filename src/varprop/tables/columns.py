"""From cells to the inputs of a network, by what is known of each column.

An unknown number is fed as the training column's mean with the training column's variance as input
uncertainty. The one-hot inputs of an unknown category get their means, the shares of the levels,
and their variances, by which `varprop.tables.unknown` knows it and puts the levels in its place.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from varprop.data.sketch import Sketch
from varprop.tables.cells import Cells, to_floats, to_text
from varprop.tables.kinds import READ_AS, kind_of
from varprop.tables.levels import find_levels
from varprop.tables.outcomes import Outcome
from varprop.tables.text import Dialect, TableError


def count_rows(rows: np.ndarray | int) -> str:
    """Return a number of rows, or of those in a mask, in words.

    Examples
    --------
    >>> count_rows(1), count_rows(np.array([True, True]))
    ('1 row', '2 rows')
    """
    count = int(np.sum(rows))
    return f"{count} row" if count == 1 else f"{count} rows"


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """Numbers, used as they are.

    Attributes
    ----------
    name
        In the table.
    mean, var
        Over the training rows that have a value.
    unit
        The sign that its cells have in a text table, such as "%".
    sketch
        Where its values lay in training; None in files of before, and of models made in Python.

    Examples
    --------
    >>> column = NumberColumn("size", 2.0, 1.5)
    >>> values, missing = column.encode(pa.array([1.0, None]), str)
    >>> values.tolist(), missing.tolist(), column.typical
    ([[1.0], [nan]], [False, True], 2.0)
    """

    name: str
    mean: float
    var: float
    unit: str = ""
    sketch: Sketch | None = None

    values = "number"

    @property
    def typical(self) -> float:
        """What `varprop explain` puts in the place of a value."""
        return self.mean

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each input of the network over the training rows."""
        return np.array([self.mean]), np.array([self.var])

    def encode(self, cells: Cells, where: Callable[[int], str]) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs of the network, NaN where unknown, and the rows where cells are missing."""
        values = to_floats(cells, self.name, where)
        return values[:, None], np.isnan(values)


@dataclasses.dataclass(frozen=True)
class CategoryColumn:
    """One of a few values, one input of the network for each.

    Attributes
    ----------
    name
        In the table.
    values
        "text", or "boolean" for true and false.
    levels
        Values seen in training; None among them is "missing", a level like any other. Cells that
        differ from one in case or in blanks around them are that level.
    counts
        How often each was seen.

    Examples
    --------
    >>> column = CategoryColumn("color", "text", ("blue", "red"), (3, 1))
    >>> values, missing = column.encode(pa.array(["red", "green"]), str)
    >>> values.tolist(), missing.tolist(), column.typical
    ([[0.0, 1.0], [nan, nan]], [False, False], 'blue')
    """

    name: str
    values: str
    levels: tuple[str | None, ...]
    counts: tuple[int, ...]

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of each input of the network over the training rows."""
        shares = np.array(self.counts) / sum(self.counts)
        return shares, shares * (1 - shares)

    @property
    def typical(self) -> str | None:
        """What `varprop explain` puts in the place of a value."""
        return self.levels[int(np.argmax(self.counts))]

    def encode(self, cells: Cells, where: Callable[[int], str]) -> tuple[np.ndarray, np.ndarray]:
        """Return inputs of the network, NaN where unknown, and the rows where cells are missing."""
        text, n = to_text(cells), len(self.levels)
        place = find_levels(text, self.levels).fill_null(n)
        one_hot = np.vstack([np.eye(n), np.full(n, np.nan)])
        return one_hot[np.asarray(place)], np.asarray(text.is_null())


Column = NumberColumn | CategoryColumn


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Rows of a table, as they are and as a network takes them.

    Attributes
    ----------
    cells
        As they are.
    numbers
        Shape (rows,): where they stand in the table, from 0.
    X
        Shape (rows, features), finite.
    X_std
        Uncertainty of X where a value is unknown, of the same shape; None if all are known.
    complete
        Shape (rows,): False where the policy "drop" leaves a row without a prediction.
    n_imputed, n_unseen
        Rows with a missing number or category that was filled in, and with a category that
        training has not seen.
    y
        Observed targets and what is known of them besides, as `Outcome.observed` gives it: shape
        (rows, columns), NaN where there is none; None if not asked for.
    exposure
        What counts are in proportion to, shape (rows,); None where it is 1 for all.
    """

    cells: pa.Table | pa.RecordBatch
    numbers: np.ndarray
    X: np.ndarray
    X_std: np.ndarray | None
    complete: np.ndarray
    n_imputed: int
    n_unseen: int
    y: np.ndarray | None = None
    exposure: np.ndarray | None = None

    def only_complete(self) -> Encoded:
        """Return the rows that have a prediction."""
        keep = self.complete
        if keep.all():
            return self
        names = ("numbers", "X", "X_std", "complete", "y", "exposure")
        arrays = {name: getattr(self, name) for name in names}
        arrays = {name: None if a is None else a[keep] for name, a in arrays.items()}
        return dataclasses.replace(self, cells=self.cells.filter(pa.array(keep)), **arrays)


def join_rows(parts: Sequence[Encoded]) -> Encoded:
    """Return several blocks as one, without the rows that have no prediction."""
    parts = [part.only_complete() for part in parts]
    std = None
    if any(part.X_std is not None for part in parts):
        std = np.concatenate([np.zeros(p.X.shape) if p.X_std is None else p.X_std for p in parts])
    # Files may differ in what makes no difference: whole or not, a dictionary or not, all missing.
    tables = []
    for part in parts:
        columns = zip(part.cells.schema.names, part.cells.columns, strict=True)
        plain = {n: to_text(c) if pa.types.is_dictionary(c.type) else c for n, c in columns}
        tables.append(pa.table(plain))
    return Encoded(
        pa.concat_tables(tables, promote_options="permissive"),
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.X for part in parts]),
        std,
        np.concatenate([part.complete for part in parts]),
        sum(part.n_imputed for part in parts),
        sum(part.n_unseen for part in parts),
        *(_joined([getattr(part, name) for part in parts]) for name in ("y", "exposure")),
    )


def _joined(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    return None if arrays[0] is None else np.concatenate([a for a in arrays if a is not None])


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """What was learned of a table's columns.

    Attributes
    ----------
    inputs
        Columns the network sees, in order.
    targets, ids, dropped
        Names of the other columns.
    missing
        "error", "drop" or "impute".
    text
        How the table was written, if it was text.
    target_units
        The signs that the cells of each target had there; empty if none had any.
    outcome
        What the targets are.

    Examples
    --------
    >>> color = CategoryColumn("color", "text", ("blue", "red"), (3, 1))
    >>> pre = Preprocessing((NumberColumn("size", 2.0, 1.0), color), ("price",), (), (), "impute")
    >>> pre.feature_names
    ['size', 'color=blue', 'color=red']
    >>> rows = pre.encode(pa.table({"size": [None, 5.0], "color": ["red", "blue"]}), str)
    >>> rows.X.tolist(), rows.X_std[:, 0].tolist()
    ([[2.0, 0.0, 1.0], [5.0, 1.0, 0.0]], [1.0, 0.0])
    """

    inputs: tuple[Column, ...]
    targets: tuple[str, ...]
    ids: tuple[str, ...]
    dropped: tuple[str, ...]
    missing: str
    text: Dialect = dataclasses.field(default_factory=Dialect)
    target_units: tuple[str, ...] = ()
    outcome: Outcome = dataclasses.field(default_factory=Outcome)

    @property
    def feature_names(self) -> list[str]:
        """Names of the network's inputs; a category has one for each level."""
        names = []
        for column in self.inputs:
            if isinstance(column, NumberColumn):
                names.append(column.name)
            else:
                levels = ["(missing)" if level is None else level for level in column.levels]
                names += [f"{column.name}={level}" for level in levels]
        return names

    @property
    def slices(self) -> list[slice]:
        """Where the features of each column stand."""
        ends = itertools.accumulate((len(column.moments[0]) for column in self.inputs), initial=0)
        return [slice(*pair) for pair in itertools.pairwise(ends)]

    def encode(
        self,
        cells: pa.Table | pa.RecordBatch,
        where: Callable[[int], str],
        *,
        unseen: str = "error",
    ) -> Encoded:
        """Turn rows into inputs of the network.

        Parameters
        ----------
        cells
            With all input columns.
        where
            Says where one of these rows stands, for errors.
        unseen
            "error", or "average" to take a category that training has not seen as unknown.
        """
        n = cells.num_rows
        parts, stds, known = [], [], True
        complete, imputed, unseen_rows = np.ones(n, bool), np.zeros(n, bool), np.zeros(n, bool)
        for column in self.inputs:
            name, found, read_as = column.name, cells.column(column.name), READ_AS[column.values]
            if kind_of(found.type) not in read_as.kinds:
                raise TableError(
                    f"column {name!r} has the type {found.type} in {where(0)}, but "
                    f"the model was fitted on {read_as.says}: convert the column."
                )
            values, missing = column.encode(found, where)
            unknown = np.isnan(values[:, 0])
            new = unknown & ~missing
            if missing.any() and self.missing == "error":
                raise TableError(
                    f"column {name!r} has no value in {where(int(np.argmax(missing)))}: "
                    "fill it in, or fit with --missing impute or --missing drop."
                )
            if new.any() and unseen == "error":
                row = int(np.argmax(new))
                assert isinstance(column, CategoryColumn)  # a number is never new
                levels = [level for level in column.levels if level is not None]
                shown = ", ".join(levels[:5]) + (", ..." if len(levels) > 5 else "")
                raise TableError(
                    f"column {name!r} is {str(found[row])!r} in {where(row)}, which "
                    f"the training data did not have ({shown}): correct it, or use --unseen "
                    "average."
                )
            if self.missing == "drop":
                complete &= ~missing
            else:
                imputed |= missing
            unseen_rows |= new
            std = np.broadcast_to(0.0, values.shape)
            if unknown.any():
                mean, var = column.moments
                values = np.where(unknown[:, None], mean, values)
                std, known = np.where(unknown[:, None], np.sqrt(var), 0.0), False
            parts.append(values)
            stds.append(std)
        X, X_std = np.hstack(parts), None if known else np.hstack(stds)
        counts = int(imputed.sum()), int(unseen_rows.sum())
        return Encoded(cells, np.arange(n), X, X_std, complete, *counts)
