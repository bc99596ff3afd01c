"""Which columns of a table moved a prediction's mean, and which its spread.

Columns are those of the raw table: the one-hot inputs of a category move together.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from varprop.predictive.distribution import Predictive
from varprop.predictive.importance import feature_importance
from varprop.tables.model import TableModel
from varprop.tables.preprocessing import Encoded


@dataclasses.dataclass(frozen=True)
class Effects:
    """What each input changes, row by row.

    Attributes
    ----------
    base
        Prediction of one row with typical values throughout.
    prediction
        Of the rows as they are.
    mean, std
        Mean and standard deviation as they are, less what they would be with one input at its
        typical value; shape (columns, rows, targets).
    """

    base: Predictive
    prediction: Predictive
    mean: np.ndarray
    std: np.ndarray


def effects(model: TableModel, rows: Encoded) -> Effects:
    """Replace one input at a time by its typical value: the training mean, or the usual category.

    Parameters
    ----------
    model
        Fitted.
    rows
        All complete.
    """
    pre = model.preprocessing
    slices = pre.slices()
    typical = np.concatenate([column.typical_values() for column in pre.inputs])
    base = model.regressor.predict_dist(typical[None])
    own = model.predict_dist(rows)
    shape = (len(pre.inputs), len(rows.X), len(pre.targets))
    mean, std = np.empty(shape), np.empty(shape)
    for number, column in enumerate(pre.inputs):
        X, X_std = rows.X.copy(), None if rows.X_std is None else rows.X_std.copy()
        X[:, slices[column.name]] = column.typical_values()
        if X_std is not None:
            X_std[:, slices[column.name]] = 0.0
        other = model.regressor.predict_dist(X, X_std)
        mean[number] = (own.mean - other.mean).reshape(shape[1:])
        std[number] = (own.std - other.std).reshape(shape[1:])
    return Effects(base, own, mean, std)


@dataclasses.dataclass(frozen=True)
class _ByColumn:
    """Predicts from row numbers, one for each column: to shuffle a column is to shuffle these."""

    model: TableModel
    rows: Encoded

    def predict_dist(self, numbers: np.ndarray) -> Predictive:
        X = np.empty_like(self.rows.X, shape=(len(numbers), self.rows.X.shape[1]))
        std = None if self.rows.X_std is None else np.empty_like(X)
        for number, place in enumerate(self.model.preprocessing.slices().values()):
            X[:, place] = self.rows.X[numbers[:, number], place]
            if std is not None and self.rows.X_std is not None:
                std[:, place] = self.rows.X_std[numbers[:, number], place]
        return self.model.regressor.predict_dist(X, std)


def column_importance(
    model: TableModel, rows: Encoded, *, max_rows: int = 2000, n_repeats: int = 3, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Return the importance of each column for mean and spread, averaged over targets.

    Parameters
    ----------
    model
        Fitted.
    rows
        All complete, at least two.
    max_rows
        Of more rows a random part is used.
    n_repeats
        Shuffles of each column.
    seed
        Of the shuffles.
    """
    chosen = np.arange(len(rows.X))
    if len(chosen) > max_rows:
        chosen = np.random.default_rng(seed).choice(len(chosen), max_rows, replace=False)
    names = [column.name for column in model.preprocessing.inputs]
    numbers = np.tile(chosen[:, None], (1, len(names)))
    found = feature_importance(
        _ByColumn(model, rows), numbers, n_repeats=n_repeats, random_state=seed
    )
    mean = found.mean.reshape(len(names), -1).mean(axis=1)
    spread = found.spread.reshape(len(names), -1).mean(axis=1)
    return {name: (float(a), float(b)) for name, a, b in zip(names, mean, spread, strict=True)}
