"""Why a prediction is what it is: which columns move its mean and its spread; and the report.

Columns are those of the raw table: the one-hot inputs of a category move together.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import numpy as np

from varprop.predictive.categories import Categories
from varprop.predictive.contract import AbstractContinuous, AbstractNumeric
from varprop.predictive.distribution import Predictive
from varprop.predictive.importance import feature_importance
from varprop.tables.budgets import budget_of_rows
from varprop.tables.cells import to_floats, to_text
from varprop.tables.columns import Encoded, NumberColumn, join_rows
from varprop.tables.model import Scored, TableModel
from varprop.tables.rows import TableRows
from varprop.tables.source import Source
from varprop.tables.text import TableError

#: More rows than anybody reads.
MAX_ROWS = 1000
#: What is explained of a prediction, by what the target is.
EXPLAINED = {"numbers": ("mean", "std"), "classes": ("probability", "entropy")}


def explain_table(
    model: TableModel, source: Source, *, unseen: str = "error"
) -> tuple[list[dict[str, Any]], list[str]]:
    """Say for each row what every input changes, compared with its typical value.

    One input at a time is replaced by the training mean, or the most frequent category.

    Parameters
    ----------
    model, source, unseen
        As in `evaluate_table`; at most `MAX_ROWS` rows.

    Returns
    -------
    rows, notes
        For each complete row a dictionary: ``row`` is its number, from 1, ``id`` its ids, and
        ``targets`` has for each target the prediction, that of a typical row, and how much every
        input moves its mean and standard deviation; or for each class its probability and the
        entropy. And remarks.

    Raises
    ------
    InputError
        If there are too many rows or none, or one cannot be used.
    """
    pre, parts = model.preprocessing, []
    rows = TableRows(source, pre, unseen=unseen, targets=False)
    for part in rows.encoded():
        if rows.n_rows_read > MAX_ROWS:
            raise TableError(
                f"{source.label} has more than {MAX_ROWS} rows: explain a few of them at a time."
            )
        parts.append(part)
    if rows.n_incomplete == rows.n_rows_read:
        raise TableError(f"{source.label} has no complete row to explain.")
    joined = join_rows(parts)

    def moments(X: np.ndarray, std: np.ndarray | None) -> np.ndarray:
        """Return what is explained, shape (2, rows, targets)."""
        changed = dataclasses.replace(joined, X=X, X_std=std)
        return _moments(model.predict_dist(changed, source.where))

    typical = [
        column.moments[0]
        if isinstance(column, NumberColumn)
        else np.eye(len(column.levels))[column.levels.index(column.typical)]
        for column in pre.inputs
    ]
    own, base = moments(joined.X, joined.X_std), moments(np.concatenate(typical)[None], None)
    changes = []
    for place, values in zip(pre.slices, typical, strict=True):
        X, std = joined.X.copy(), None if joined.X_std is None else joined.X_std.copy()
        X[:, place] = values
        if std is not None:
            std[:, place] = 0.0
        changes.append(own - moments(X, std))
    what, spread = EXPLAINED["classes" if pre.outcome.classes else "numbers"]
    explained = []
    for row, (number, cells) in enumerate(
        zip(joined.numbers, joined.cells.to_pylist(), strict=True)
    ):
        targets = {}
        for output, name in enumerate(pre.outcome.classes or pre.targets):
            mean, std_ = own[:, row, output]
            base_mean, base_std = base[:, 0, output]
            targets[name] = {
                what: float(mean),
                spread: float(std_),
                f"typical_{what}": float(base_mean),
                f"typical_{spread}": float(base_std),
                "inputs": {
                    column.name: {
                        "value": cells[column.name],
                        "typical": column.typical,
                        what: float(change[0, row, output]),
                        spread: float(change[1, row, output]),
                    }
                    for column, change in zip(pre.inputs, changes, strict=True)
                },
            }
        ids = {name: cells[name] for name in pre.ids}
        explained.append({"row": int(number) + 1, "id": ids, "targets": targets})
    return explained, rows.notes()


def _moments(found: Any) -> np.ndarray:
    """Return means and standard deviations, shape (2, rows, targets).

    Of classes these are their probabilities, and the entropy for each of them.
    """
    if isinstance(found, Categories):
        doubt = np.broadcast_to(found.entropy()[:, None], found.proba.shape)
        return np.stack([found.proba, doubt])
    return np.stack([found.mean, found.std]).reshape(2, len(found), -1)


@dataclasses.dataclass(frozen=True)
class _ByColumn:
    """Predicts from row numbers, one for each column: to shuffle a column is to shuffle these.

    Of classes it gives the probabilities, and their entropy as what is the spread of numbers.
    """

    model: TableModel
    rows: Encoded

    def predict_dist(self, numbers: np.ndarray) -> AbstractNumeric:
        X = np.empty_like(self.rows.X, shape=(len(numbers), self.rows.X.shape[1]))
        std = None if self.rows.X_std is None else np.empty_like(X)
        for number, place in enumerate(self.model.preprocessing.slices):
            X[:, place] = self.rows.X[numbers[:, number], place]
            if std is not None and self.rows.X_std is not None:
                std[:, place] = self.rows.X_std[numbers[:, number], place]
        changed = dataclasses.replace(
            self.rows, X=X, X_std=std, numbers=self.rows.numbers[numbers[:, 0]]
        )
        found = self.model.predict_dist(changed, str)
        if isinstance(found, Categories):
            mean, std = _moments(found)
            return Predictive.gaussian(mean, std**2, 0.0)
        return found


def column_importance(
    model: TableModel, rows: Encoded, *, max_rows: int = 2000, n_repeats: int = 3, seed: int = 0
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the importance of each column for mean and spread, one number for each target.

    That of a target of classes is the average over their probabilities.

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
    shape = len(names), len(model.preprocessing.targets), -1
    mean, spread = (part.reshape(shape).mean(axis=2) for part in (found.mean, found.spread))
    return {name: (a, b) for name, a, b in zip(names, mean, spread, strict=True)}


def report_table(
    path: str | os.PathLike[str],
    title: str,
    model: TableModel,
    scored: Scored,
    settings: dict[str, Any],
) -> None:
    """Write the HTML report of a model on rows with observed targets.

    Parameters
    ----------
    path, title
        Of the page.
    model
        Whose report it is.
    scored
        Rows with observed targets, predicted and scored.
    settings
        Shown as they are.
    """
    from varprop.report import write_class_report, write_report, write_survival_report

    pre, cells = model.preprocessing, scored.rows.cells
    features = {}
    for column in pre.inputs:
        found = cells.column(column.name)
        if isinstance(column, NumberColumn):
            features[column.name] = to_floats(found, column.name, str)
        else:
            features[column.name] = np.array(to_text(found).fill_null("(missing)").to_pylist())
    labels = [f"row {row + 1}" for row in scored.rows.numbers]
    if pre.ids:
        ids = [cells.column(name).to_pylist() for name in pre.ids]
        labels = [" · ".join(map(str, parts)) for parts in zip(*ids, strict=True)]
    common: dict[str, Any] = {
        "title": title,
        "prediction": scored.prediction,
        "y": scored.y,
        "features": features,
        "row_labels": labels,
        "scorecard": scored.card,
        "verdict": scored.verdict,
        "loss_curve": model.regressor.loss_curve_,
        "importance": column_importance(model, scored.rows) if len(scored.y) > 1 else None,
        "share_seen": scored.share_seen,
        "settings": settings,
    }
    special: dict[str, Any] = {"classes": write_class_report, "censored": write_survival_report}
    if write := special.get(pre.outcome.kind):
        write(path, target_name=pre.targets[0], **common)
        return
    real = isinstance(scored.prediction, AbstractContinuous)
    budget = budget_of_rows(model, scored.rows, str) if real else None
    write_report(path, target_names=list(pre.targets), budget=budget, **common)
