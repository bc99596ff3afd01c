"""From Parquet files that may be larger than memory to a fitted, scored model."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from varprop.cli.fitting import MIN_HOLDOUT, Fitted, Holdout
from varprop.cli.shared import UserError
from varprop.data.parquet import column_names
from varprop.estimators.regressor import FAWNRegressor
from varprop.estimators.streaming import fit_regressor
from varprop.predictive.scorecard import LinearModel, scorecard, verdict
from varprop.streaming import (
    AbstractSource,
    ParquetSource,
    SourceError,
    Statistics,
    split_source,
)
from varprop.tables.columns import NumberColumn
from varprop.tables.kinds import Roles
from varprop.tables.model import MAX_LINEAR_FEATURES, TableModel
from varprop.tables.preprocessing import Preprocessing

#: Held-out rows at most: they are kept in memory, and more say no more.
MOST_HOLDOUT = 100_000
#: Training rows, drawn at random, of the linear model the network is compared with.
LINEAR_ROWS = 50_000


@contextlib.contextmanager
def _sources_named() -> Iterator[None]:
    """Say what is wrong with a file as a user's error."""
    try:
        yield
    except SourceError as error:
        raise UserError(str(error)) from error


@_sources_named()
def fit_parts(
    tables: Sequence[str],
    roles: Roles,
    options: dict[str, Any],
    *,
    share: float,
    refit: bool,
    seed: int,
    progress: bool,
    on_notes: Callable[[tuple[str, ...]], None],
) -> Fitted:
    """Read files in parts, hold rows out, fit, and score the fit on them.

    Parameters
    ----------
    tables
        Parquet files, folders or patterns.
    roles, options, share, refit, seed, progress, on_notes
        As in `fit_table`; every input must be a number and none may be missing.
    """
    unseen = {*roles.targets, *roles.ids, *roles.dropped}
    names = column_names(tables)
    for name in (*roles.ids, *roles.dropped):
        if name not in names:
            raise UserError(f"there is no column {name!r}: the files have {', '.join(names)}.")
    whole = ParquetSource(
        tables, features=[name for name in names if name not in unseen], targets=roles.targets
    )
    notes = []
    part = min(share, MOST_HOLDOUT / whole.n_rows)
    if share > 0 and part * whole.n_rows < 2 * MIN_HOLDOUT:
        notes.append(f"{whole.n_rows} rows are too few to hold any out: there is no scorecard.")
        part = 0.0
    on_notes(tuple(notes))
    train, held = split_source(whole, share=part, seed=seed) if part else (whole, None)
    begin = time.perf_counter()
    model = _fit(train, roles, options, seed, progress)
    seconds = time.perf_counter() - begin
    holdout = None if held is None else _score(model, held)
    if refit and held is not None:
        train = whole
        begin = time.perf_counter()
        model = _fit(train, roles, options, seed, progress)
        seconds += time.perf_counter() - begin
    return Fitted(model, holdout, train.n_rows, seconds, tuple(notes))


def _fit(
    source: AbstractSource, roles: Roles, options: dict[str, Any], seed: int, progress: bool
) -> TableModel:
    statistics = Statistics.of(source)
    regressor = FAWNRegressor(**options, random_state=seed, verbose=progress)
    try:
        fit_regressor(regressor, source, statistics=statistics)
    except SourceError:
        raise
    except ValueError as error:  # the library's own sentence: training became infinite, and so on
        raise UserError(str(error)) from error
    regressor.verbose = False
    # Columns are found by name: scikit-learn's check would only warn of bare arrays.
    del regressor.feature_names_in_
    moments = zip(source.features, statistics.center, statistics.std, strict=False)
    inputs = tuple(NumberColumn(name, float(mean), float(std) ** 2) for name, mean, std in moments)
    pre = Preprocessing(inputs, roles.targets, roles.ids, roles.dropped, roles.missing)
    linear = None
    if len(inputs) <= MAX_LINEAR_FEATURES:
        some = source
        if source.n_rows > LINEAR_ROWS:
            _, some = split_source(source, share=LINEAR_ROWS / source.n_rows, seed=seed + 1)
        linear = LinearModel.fit(*_in_memory(some))
    return TableModel(regressor, pre, linear)


def _in_memory(source: AbstractSource) -> tuple[np.ndarray, np.ndarray]:
    dtype = np.dtype(np.float64)
    blocks = range(len(source.block_rows))
    rows = np.concatenate([piece for block in blocks for piece in source.read(block, dtype)])
    return rows[:, : len(source.features)], rows[:, len(source.features) :]


def _score(model: TableModel, held: AbstractSource) -> Holdout:
    X, y = _in_memory(held)
    table = pa.table(dict(zip(held.features, X.T, strict=True)))
    rows = np.arange(len(X))
    encoded = model.preprocessing.encode(table, lambda row: f"held-out row {row + 1}")
    y = y[:, 0] if y.shape[1] == 1 else y
    predictions = model.with_simple(encoded)
    return Holdout(
        table=table,
        rows=rows,
        encoded=encoded,
        y=y,
        prediction=next(iter(predictions.values())),
        card=scorecard(y, predictions),
        verdict=verdict(y, predictions),
    )
