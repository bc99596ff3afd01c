"""Rows of a table as a model takes them, encoded whenever a block is read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from varprop.data.source import AbstractSource, Rows
from varprop.tables.columns import Encoded, NumberColumn, Preprocessing, count_rows
from varprop.tables.kinds import READ_AS
from varprop.tables.numbers import Reading
from varprop.tables.roles import no_column
from varprop.tables.source import Source
from varprop.tables.text import TableError


class TableRows(AbstractSource):
    """Rows of a table as a model takes them, encoded whenever a block is read.

    Parameters
    ----------
    table
        Loaded if it is to be read by blocks.
    preprocessing
        Of the model.
    chosen
        Which rows, shape (rows,); all unless given.
    holes
        Whether inputs may be unknown, so that all rows come with an uncertainty.
    unseen
        "error", or "average" to take a category that training has not seen as unknown.
    targets
        Whether the targets' columns are read as well.
    carried
        Names of further columns whose cells are read; of text files as text.

    Attributes
    ----------
    block_rows
        Number of chosen rows in every block of a loaded table.
    new_columns
        Names of columns that the model does not know.
    n_rows_read, n_imputed, n_unseen, n_incomplete
        Rows that `encoded` has read, and how many of them had a missing value filled in, a category
        taken as unknown, or are left without a prediction.

    Raises
    ------
    TableError
        If the table lacks a column.
    """

    block_rows: tuple[int, ...] = ()

    def __init__(
        self,
        table: Source,
        preprocessing: Preprocessing,
        chosen: np.ndarray | None = None,
        *,
        holes: bool = False,
        unseen: str = "error",
        targets: bool = True,
        carried: Sequence[str] = (),
    ):
        pre = preprocessing
        if table.table is None:  # text is read with the signs that the training table had
            signs = {c.name: Reading(c.unit) for c in pre.inputs if isinstance(c, NumberColumn)}
            pairs = zip(pre.targets, pre.target_units, strict=False)  # there may be none
            signs |= {name: Reading(unit) for name, unit in pairs}
            table = dataclasses.replace(table, readings=signs)
        self.table, self.preprocessing, self.chosen, self._unseen = table, pre, chosen, unseen
        self.features, self.targets = tuple(pre.feature_names), pre.outcome.names(pre.targets)
        self.weight_name, self.uncertain = None, holes
        self.exposure_name = pre.outcome.exposure
        if self.exposure_name is not None:
            self.targets = (*self.targets, self.exposure_name)
        needed = [*(column.name for column in pre.inputs), *pre.ids]
        absent = [name for name in needed if name not in table.names]
        if absent:
            listed = ", ".join(map(repr, table.names[:10]))
            raise TableError(
                f"{table.label} has no column{'s' if len(absent) > 1 else ''} "
                f"{', '.join(map(repr, absent))}, which the model needs; it has {listed}"
                f"{', ...' if len(table.names) > 10 else ''}."
            )
        for name in carried:
            if name not in table.names:
                raise TableError(no_column(name, table.names, table.label))
        of_targets, exposure = pre.outcome.read_as(pre.targets), pre.outcome.exposure
        known = {*needed, *of_targets, *pre.dropped, *carried}
        self.new_columns = [name for name in table.names if name not in known]
        self.n_rows_read = self.n_imputed = self.n_unseen = self.n_incomplete = 0
        self.n_outside, self._first_outside = 0, ""
        # Ids stay text, so that 007 comes out as it came in.
        self._columns = {c.name: READ_AS[c.values].text_type for c in pre.inputs}
        self._columns = dict.fromkeys((*pre.ids, *carried), pa.string()) | self._columns
        self._with_targets = targets
        if targets:
            absent = [name for name in of_targets if name not in table.names]
            if absent:
                what = "the target" if absent[0] in pre.targets else "which says more of the target"
                raise TableError(
                    f"{table.label} has no column {absent[0]!r}, {what}: observed values are "
                    "needed to evaluate."
                )
            self._columns |= of_targets
        elif exposure in table.names:
            self._columns[exposure] = pa.float64()
        self._no_exposure = exposure is not None and exposure not in table.names
        if chosen is not None:
            masks = np.split(chosen, np.cumsum(table.block_rows)[:-1])
            self.block_rows = tuple(int(mask.sum()) for mask in masks)

    def where(self, block: int, row: int) -> str:
        """As the table says it."""
        assert self.chosen is not None  # only then are there blocks
        place = sum(self.block_rows[:block]) + row
        return self.table.where(int(np.flatnonzero(self.chosen)[place]))

    def encoded(self, block: int | None = None) -> Iterator[Encoded]:
        """Yield the chosen rows of a block, or of all, raw and as the network takes them."""
        first = 0 if block is None else sum(self.table.block_rows[:block])
        for batch in self.table.read(self._columns, block):
            numbers = np.arange(first, first + batch.num_rows)
            first += batch.num_rows
            if self.chosen is not None:
                batch = batch.filter(pa.array(self.chosen[numbers]))
                numbers = numbers[self.chosen[numbers]]
            if not len(numbers):
                continue

            def where(row: int, numbers: np.ndarray = numbers) -> str:
                return self.table.where(int(numbers[row]))

            rows = self.preprocessing.encode(batch, where, unseen=self._unseen)
            rows = dataclasses.replace(rows, numbers=numbers)
            outcome, y = self.preprocessing.outcome, None
            if self._with_targets:
                y = outcome.observed(batch, self.preprocessing.targets, where)
            rows = dataclasses.replace(rows, y=y, exposure=outcome.exposures(batch, where))
            self.n_rows_read += len(numbers)
            self.n_imputed += rows.n_imputed
            self.n_unseen += rows.n_unseen
            self.n_incomplete += int((~rows.complete).sum())
            yield rows
        if not first:
            raise TableError(f"{self.table.label} has a header but no rows.")

    def saw_outside(self, numbers: np.ndarray, words: np.ndarray) -> None:
        """Count rows, given by their numbers, of which something is said to be outside."""
        said = np.flatnonzero(words != None)  # noqa: E711 - entry by entry
        if len(said) and not self.n_outside:
            self._first_outside = f"{self.table.where(int(numbers[said[0]]))}: {words[said[0]]}"
        self.n_outside += len(said)

    def notes(self) -> list[str]:
        """Return sentences the user should see, once all rows are read."""
        found = list(self.table.notes)
        if self.new_columns:
            names = ", ".join(map(repr, self.new_columns[:10]))
            found.append(f"the model does not know these columns and ignores them: {names}.")
        if self._no_exposure:
            name = self.preprocessing.outcome.exposure
            found.append(f"there is no column {name!r}: counts are for an exposure of 1.")
        if self.n_imputed:
            which = count_rows(self.n_imputed)
            found.append(f"{which} had missing values, which were filled in as uncertain.")
        if self.n_unseen:
            which = count_rows(self.n_unseen)
            found.append(f"{which} had a category that the training data did not have.")
        if self.n_incomplete:
            found.append(f"no prediction for {count_rows(self.n_incomplete)} with missing values.")
        if self.n_outside:
            lie = "lies" if self.n_outside == 1 else "lie"
            found.append(
                f"{count_rows(self.n_outside)} {lie} outside of what training has seen, where a "
                f"prediction is a guess (the first is {self._first_outside})."
            )
        return found

    def read(self, block: int) -> Iterator[Rows]:
        """Yield the chosen rows of a block, to train on."""
        for rows in self.encoded(block):
            std = rows.X_std
            if self.uncertain and std is None:
                std = np.zeros_like(rows.X)  # a block whose inputs are all known
            y = rows.y
            if self.exposure_name is not None:
                assert y is not None
                assert rows.exposure is not None
                y = np.hstack([y, rows.exposure[:, None]])
            yield Rows(rows.X, y, None, None if std is None else std**2)
