"""From a table to a fitted, scored model: the work behind `varprop fit` and `varprop demo`."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from varprop.cli.shared import UserError
from varprop.estimators.regressor import FAWNRegressor
from varprop.predictive.distribution import Predictive
from varprop.predictive.scorecard import LinearModel, Scorecard, scorecard, verdict
from varprop.tables.effects import column_importance
from varprop.tables.kinds import Roles
from varprop.tables.learning import TrainingTable, prepare
from varprop.tables.model import MAX_LINEAR_FEATURES, TableModel
from varprop.tables.preprocessing import Encoded
from varprop.tables.reading import read_table
from varprop.tables.source import Source

#: Scores of fewer rows than this say nothing.
MIN_HOLDOUT = 10


@dataclasses.dataclass(frozen=True)
class Holdout:
    """Held-out rows and what was predicted for them.

    Attributes
    ----------
    table
        Raw cells.
    rows
        Where they stood in the file, from 0.
    encoded
        What the network took.
    y
        Observed, of the prediction's shape.
    prediction
        Of the model.
    card
        Scores, beside the simple models.
    verdict
        The same in one sentence.
    """

    table: pa.Table
    rows: np.ndarray
    encoded: Encoded
    y: np.ndarray
    prediction: Predictive
    card: Scorecard
    verdict: str


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A fitted model and how it came about.

    Attributes
    ----------
    model
        What is saved.
    holdout
        None if no rows were held out.
    n_train
        Rows the saved model was fitted on.
    seconds
        Spent in training.
    notes
        Sentences the user should see.
    """

    model: TableModel
    holdout: Holdout | None
    n_train: int
    seconds: float
    notes: tuple[str, ...]


def fit_table(
    source: Source,
    roles: Roles,
    options: dict[str, Any],
    *,
    share: float,
    refit: bool,
    seed: int,
    progress: bool,
    on_notes: Callable[[tuple[str, ...]], None],
) -> Fitted:
    """Read a table, hold rows out, fit, and score the fit on them.

    Parameters
    ----------
    source, roles
        The table and what its columns are.
    options
        Of `FAWNRegressor`.
    share
        Part of the rows to hold out; 0 for none.
    refit
        Whether to fit once more, on all rows, after scoring.
    seed
        Of the split and of training.
    progress
        Whether to show a bar.
    on_notes
        Called with remarks on the table before training begins.
    """
    texts = [name for name in (*roles.ids, *roles.categories) if name in source.names]
    data = prepare(read_table(source, text=texts), roles, source.where, source.label)
    notes = list(data.notes)
    n = len(data.rows)
    order = np.random.default_rng(seed).permutation(n)
    n_holdout = round(share * n)
    if share > 0 and n_holdout < MIN_HOLDOUT:
        notes.append(
            f"{n} rows are too few to hold out {share:.0%} of them: there is no scorecard (try "
            f"--holdout {min(0.5, max(share * 2, 0.3)):g})."
        )
        n_holdout = 0
    on_notes(tuple(notes))
    train, test = np.sort(order[n_holdout:]), np.sort(order[:n_holdout])
    begin = time.perf_counter()
    model = _fit(data, source, train, options, seed=seed, progress=progress)
    seconds = time.perf_counter() - begin
    holdout = _score(model, data, source, test) if n_holdout else None
    if refit and n_holdout:
        train = np.arange(n)
        begin = time.perf_counter()
        model = _fit(data, source, train, options, seed=seed, progress=progress)
        seconds += time.perf_counter() - begin
    return Fitted(model, holdout, len(train), seconds, tuple(notes))


def _fit(
    data: TrainingTable,
    source: Source,
    index: np.ndarray,
    options: dict[str, Any],
    *,
    seed: int,
    progress: bool,
) -> TableModel:
    pre = data.learn(index)
    part = data.table.take(pa.array(index))
    rows = pre.encode(part, lambda row: source.where(int(data.rows[index[row]])))
    y = data.y[index]
    # Members and restarts on all cores: the machine is the command's while it runs.
    regressor = FAWNRegressor(**options, random_state=seed, verbose=progress, n_jobs=-1)
    try:
        with warnings.catch_warnings():
            # The only one there is says that training was interrupted, which is dealt with below.
            warnings.simplefilter("ignore", UserWarning)
            regressor.fit(rows.X, y[:, 0] if y.shape[1] == 1 else y, X_std=rows.X_std)
    except ValueError as error:  # the library's own sentence: training became infinite, and so on
        raise UserError(str(error)) from error
    if regressor.outcome_ == "interrupted":
        raise KeyboardInterrupt
    regressor.verbose, regressor.n_jobs = False, None  # how it was made, not what it is
    regressor.target_names_ = list(pre.targets)
    linear = LinearModel.fit(rows.X, y) if rows.X.shape[1] <= MAX_LINEAR_FEATURES else None
    return TableModel(regressor, pre, linear)


def _score(model: TableModel, data: TrainingTable, source: Source, index: np.ndarray) -> Holdout:
    part = data.table.take(pa.array(index))
    rows = model.preprocessing.encode(
        part, lambda row: source.where(int(data.rows[index[row]])), unseen="average"
    )
    y = data.y[index]
    y = y[:, 0] if y.shape[1] == 1 else y
    predictions = model.with_simple(rows)
    prediction = next(iter(predictions.values()))
    return Holdout(
        table=part,
        rows=data.rows[index],
        encoded=rows,
        y=y,
        prediction=prediction,
        card=scorecard(y, predictions),
        verdict=verdict(y, predictions),
    )


def report_content(
    model: TableModel,
    table: pa.Table,
    rows: np.ndarray,
    encoded: Encoded,
    y: np.ndarray,
    prediction: Predictive,
    card: Scorecard,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """Return what the HTML report is made of.

    Parameters
    ----------
    model
        Whose report it is.
    table, rows, encoded
        Raw cells, where they stood in the file, and what the network took.
    y, prediction, card
        Observed, predicted, and scores.
    settings
        Shown as they are.
    """
    from varprop.tables.columns import NumberColumn, to_floats, to_text

    pre = model.preprocessing
    features = {}
    for column in pre.inputs:
        cells = table.column(column.name)
        if isinstance(column, NumberColumn):
            features[column.name] = to_floats(cells)
        else:
            features[column.name] = np.array(
                ["(missing)" if text is None else text for text in to_text(cells).to_pylist()]
            )
    labels = [f"row {row + 1}" for row in rows]
    if pre.ids:
        ids = [table.column(name).to_pylist() for name in pre.ids]
        labels = [" · ".join(map(str, parts)) for parts in zip(*ids, strict=True)]
    return {
        "prediction": prediction,
        "y": y,
        "target_names": list(pre.targets),
        "features": features,
        "row_labels": labels,
        "scorecard": card,
        "loss_curve": model.regressor.loss_curve_,
        "importance": column_importance(model, encoded) if len(y) > 1 else None,
        "settings": settings,
    }
