"""A model's view of a table, block by block: encoded, predicted, with places named in errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from varprop.predictive.distribution import Predictive
from varprop.tables.errors import TableError, count_rows
from varprop.tables.model import TableModel
from varprop.tables.preprocessing import Encoded, check_columns
from varprop.tables.reading import column_types, stream_table
from varprop.tables.source import Source


@dataclasses.dataclass(frozen=True)
class Rows:
    """A block of rows.

    Attributes
    ----------
    first
        Number of its first row in the table.
    batch
        Raw cells.
    encoded
        What the network takes.
    """

    first: int
    batch: pa.RecordBatch
    encoded: Encoded


@dataclasses.dataclass
class Blocks:
    """Reads a table for a model, and counts on the way.

    Attributes
    ----------
    model, source
        What to read for, and what.
    unseen
        "error" or "average", for categories that training has not seen.
    targets
        Whether the targets' columns are read as well.
    new_columns
        Columns the model has never heard of.
    n_rows, n_imputed, n_unseen, n_incomplete
        Rows so far, and how many of them had a missing value filled in, a category taken as
        unknown, or are left without a prediction.
    """

    model: TableModel
    source: Source
    unseen: str = "error"
    targets: bool = False
    n_rows: int = 0
    n_imputed: int = 0
    n_unseen: int = 0
    n_incomplete: int = 0
    new_columns: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        pre = self.model.preprocessing
        types = column_types(self.source)
        self.new_columns = check_columns(pre, self.source.names, types, self.source.label)
        # Ids stay text, so that 007 comes out as it came in.
        text = dict.fromkeys(pre.ids, pa.string())
        self.id_types = {
            name: kind.value_type if pa.types.is_dictionary(kind) else kind
            for name, kind in (text | {name: types[name] for name in pre.ids if types}).items()
        }
        self._columns = {column.name: column.text_type for column in pre.inputs} | text
        if self.targets:
            absent = [name for name in pre.targets if name not in self.source.names]
            if absent:
                raise TableError(
                    f"{self.source.label} has no column {absent[0]!r}, the target: observed values "
                    "are needed to evaluate."
                )
            self._columns |= {name: pa.float64() for name in pre.targets}

    def __iter__(self) -> Iterator[Rows]:
        pre = self.model.preprocessing
        for batch in stream_table(self.source, self._columns):
            first = self.n_rows

            def where(row: int, first: int = first) -> str:
                return self.source.where(first + row)

            encoded = pre.encode(batch, where, unseen=self.unseen)
            self.n_rows += batch.num_rows
            self.n_imputed += encoded.n_imputed
            self.n_unseen += encoded.n_unseen
            self.n_incomplete += int((~encoded.complete).sum())
            if batch.num_rows:
                yield Rows(first, batch, encoded)
        if not self.n_rows:
            raise TableError(f"{self.source.label} has a header but no rows.")

    def predict(self, rows: Rows) -> Predictive:
        """Return the predictive distribution of a block's complete rows."""
        encoded = complete_rows(rows.encoded)
        try:
            return self.model.predict_dist(encoded)
        except ValueError as error:
            scaling = self.model.regressor.scaling_
            distance = np.abs(encoded.X - scaling.x_shift) / scaling.x_scale
            place, feature = divmod(int(distance.argmax()), distance.shape[1])
            row = int(np.flatnonzero(rows.encoded.complete)[place])
            name = self.model.preprocessing.feature_names[feature]
            raise TableError(
                f"column {name!r} in {self.source.where(rows.first + row)} lies "
                f"{distance.max():.0e} standard deviations from the training data, too far to "
                "predict: correct it."
            ) from error

    def notes(self) -> list[str]:
        """Return sentences the user should see, once all rows are read."""
        found = []
        if self.new_columns:
            names = ", ".join(map(repr, self.new_columns[:10]))
            found.append(f"the model does not know these columns and ignores them: {names}.")
        if self.n_imputed:
            rows = count_rows(self.n_imputed)
            found.append(f"{rows} had missing values, which were filled in as uncertain.")
        if self.n_unseen:
            found.append(
                f"{count_rows(self.n_unseen)} had a category that the training data did not have."
            )
        if self.n_incomplete:
            found.append(f"no prediction for {count_rows(self.n_incomplete)} with missing values.")
        return found


def complete_rows(encoded: Encoded) -> Encoded:
    """Return only the rows that have a prediction."""
    if encoded.complete.all():
        return encoded
    keep = encoded.complete
    std = None if encoded.X_std is None else encoded.X_std[keep]
    return dataclasses.replace(encoded, X=encoded.X[keep], X_std=std, complete=keep[keep])


def join_rows(parts: list[Encoded]) -> Encoded:
    """Return several blocks as one, complete rows only."""
    parts = [complete_rows(part) for part in parts]
    std = None
    if any(part.X_std is not None for part in parts):
        std = np.concatenate(
            [np.zeros(part.X.shape) if part.X_std is None else part.X_std for part in parts]
        )
    X = np.concatenate([part.X for part in parts])
    return Encoded(
        X,
        std,
        np.ones(len(X), bool),
        sum(part.n_imputed for part in parts),
        sum(part.n_unseen for part in parts),
    )
