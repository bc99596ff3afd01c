"""A model's view of a new table, block by block: predictions, and scores if there are targets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from varprop.predictive.distribution import Predictive
from varprop.tables.columns import first_out_of_range, range_error, to_floats
from varprop.tables.errors import TableError, count_rows
from varprop.tables.model import Scored, TableModel
from varprop.tables.preprocessing import Encoded, check_columns, join_rows
from varprop.tables.reading import column_types, stream_table
from varprop.tables.source import Source


@dataclasses.dataclass(frozen=True)
class Part:
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
class Parts:
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

    def __iter__(self) -> Iterator[Part]:
        for batch in stream_table(self.source, self._columns):
            first = self.n_rows

            def where(row: int, first: int = first) -> str:
                return self.source.where(first + row)

            encoded = self.model.preprocessing.encode(batch, where, unseen=self.unseen)
            self.n_rows += batch.num_rows
            self.n_imputed += encoded.n_imputed
            self.n_unseen += encoded.n_unseen
            self.n_incomplete += int((~encoded.complete).sum())
            if batch.num_rows:
                yield Part(first, batch, encoded)
        if not self.n_rows:
            raise TableError(f"{self.source.label} has a header but no rows.")

    def predict(self, part: Part) -> Predictive:
        """Return the predictive distribution of a block's complete rows."""
        rows = join_rows([part.encoded])
        try:
            return self.model.predict_dist(rows)
        except ValueError as error:
            scaling = self.model.regressor.scaling_
            distance = np.abs(rows.X - scaling.x_shift) / scaling.x_scale
            place, feature = divmod(int(distance.argmax()), distance.shape[1])
            row = int(np.flatnonzero(part.encoded.complete)[place])
            name = self.model.preprocessing.feature_names[feature]
            raise TableError(
                f"column {name!r} in {self.source.where(part.first + row)} lies "
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


def predict_table(
    model: TableModel,
    source: Source,
    *,
    interval: float = 0.9,
    quantiles: tuple[float, ...] = (),
    unseen: str = "error",
) -> tuple[pa.Schema, Iterator[pa.RecordBatch], Parts]:
    """Predict every row of a table, block by block.

    Parameters
    ----------
    model, source
        What predicts, and what; a table that is no good is an error of the first block.
    interval
        Probability between ``lower`` and ``upper``.
    quantiles
        Probabilities of further columns.
    unseen
        "error", or "average" to take a category that training has not seen as unknown.

    Returns
    -------
    schema, batches, parts
        Names and types of the results, ids first; the results, a block at a time; and what is
        counted on the way, for `Parts.notes`.

    Raises
    ------
    TableError
        If an id column has the name of a result.
    """
    parts = Parts(model, source, unseen)
    targets = model.preprocessing.targets
    names = ["mean", "std", "model_std", "noise_std", "lower", "upper"]
    names += [f"q{alpha:g}" for alpha in quantiles]
    if len(targets) > 1:
        names = [f"{target}_{name}" for target in targets for name in names]
    clash = sorted(set(names) & set(parts.id_types))
    if clash:
        raise TableError(f"the id column {clash[0]!r} has the name of a result: rename it.")
    schema = pa.schema([*parts.id_types.items(), *((name, pa.float64()) for name in names)])
    levels = [(1 - interval) / 2, (1 + interval) / 2, *quantiles]

    def results() -> Iterator[pa.RecordBatch]:
        for part in parts:
            complete, prediction = part.encoded.complete, parts.predict(part)
            model_var, noise_var = prediction.model_var, prediction.noise_var
            columns = [
                prediction.mean,
                np.sqrt(model_var + noise_var),
                np.sqrt(model_var),
                np.sqrt(noise_var),
                *prediction.quantile(levels),
            ]
            stacked = np.stack([c.reshape(-1, len(targets)) for c in columns], axis=2)
            values = np.full((len(complete), len(names)), np.nan)
            values[complete] = stacked.reshape(len(stacked), -1)
            # NaN only stands for "no prediction": those of rows are finite.
            hidden = None if complete.all() else ~complete
            arrays = [part.batch.column(name).cast(kind) for name, kind in parts.id_types.items()]
            arrays += [pa.array(np.ascontiguousarray(column), mask=hidden) for column in values.T]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return schema, results(), parts


def evaluate_table(
    model: TableModel, source: Source, *, unseen: str = "error"
) -> tuple[Scored, list[str]]:
    """Score a model on a table with observed targets; all rows are held in memory.

    Parameters
    ----------
    model, source, unseen
        As in `predict_table`.

    Returns
    -------
    scored, notes
        Scores beside those of the simple models of the training data, and remarks.

    Raises
    ------
    TableError
        If there are fewer than two rows to score, or one cannot be used.
    """
    pre, parts = model.preprocessing, Parts(model, source, unseen, targets=True)
    encoded, observed, raw, numbers, n_without = [], [], [], [], 0
    for part in parts:
        y = np.stack([to_floats(part.batch.column(name)) for name in pre.targets], axis=1)
        for name, values in zip(pre.targets, y.T, strict=True):
            bad = first_out_of_range(values)
            if bad is not None:
                raise range_error(values[bad], name, source.where(part.first + bad))
        holes = np.isnan(y).any(axis=1)
        if holes.any() and pre.missing == "error":
            place = source.where(part.first + int(np.argmax(holes)))
            raise TableError(f"a target has no value in {place}: fill it in or remove the row.")
        n_without += int(holes.sum())
        keep = part.encoded.complete & ~holes
        encoded.append(dataclasses.replace(part.encoded, complete=keep))
        observed.append(y[keep])
        raw.append(part.batch.filter(pa.array(keep)))
        numbers.append(part.first + np.flatnonzero(keep))
    y = np.concatenate(observed)
    if len(y) < 2:
        raise TableError(
            f"{source.label} has {count_rows(len(y))} to score: scores need at least two."
        )
    scored = model.score(pa.Table.from_batches(raw), np.concatenate(numbers), join_rows(encoded), y)
    notes = parts.notes()
    if n_without:
        notes.append(f"{count_rows(n_without)} without a target left out.")
    return scored, notes
