"""Predictions of classes as a table: the class, all probabilities, and how unsure they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from varprop.predictive.columns import ENTROPY, ENTROPY_PARTS, probability_names
from varprop.tables.keys import Keys
from varprop.tables.model import TableModel
from varprop.tables.outside import outside_words
from varprop.tables.rows import TableRows


def predict_classes(model: TableModel, rows: TableRows) -> Iterator[pa.RecordBatch]:
    """Predict every row, block by block, as `predict_table` does.

    Yields
    ------
    pyarrow.RecordBatch
        Ids or row numbers; ``predicted``, the most probable class; ``p_`` and a class for each of
        them; ``entropy`` in nats and, if the model tells them apart, its parts; ``outside``.
    """
    source, classes = rows.table, model.preprocessing.outcome.classes
    keys = Keys.of(model.preprocessing, source)
    parts = ENTROPY_PARTS if model.tells_apart else ()
    names = ["predicted", *probability_names(classes), ENTROPY, *parts]
    schema = keys.schema(names, text=["predicted"])
    for block in rows.encoded():
        complete = block.complete
        words, predicted = (np.full(len(complete), None, object) for _ in range(2))
        values = np.full((len(complete), len(names) - 1), np.nan)
        if complete.any():
            whole = block.only_complete()
            found: Any = model.predict_dist(whole, source.where)
            words[complete] = outside_words(model.regressor, model.preprocessing, whole)
            rows.saw_outside(block.numbers, words)
            columns = [found.proba, found.entropy()[:, None]]
            columns += [found.epistemic[:, None], found.aleatoric[:, None]] if parts else []
            values[complete], predicted[complete] = np.hstack(columns), found.mode
        hidden = None if complete.all() else ~complete
        arrays = [*keys.arrays(block), pa.array(predicted, pa.string())]
        arrays += [pa.array(np.ascontiguousarray(column), mask=hidden) for column in values.T]
        arrays.append(pa.array(words, pa.string()))
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
