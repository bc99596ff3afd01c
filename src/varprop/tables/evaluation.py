"""A model on a table with observed targets: scores, and intervals that hold what they promise."""

from __future__ import annotations

import dataclasses

import numpy as np

from varprop.predictive.conformal import Conformal
from varprop.tables.columns import Encoded, count_rows, join_rows
from varprop.tables.model import Scored, TableModel
from varprop.tables.rows import TableRows
from varprop.tables.source import Source
from varprop.tables.text import TableError


def evaluate_table(
    model: TableModel, source: Source, *, unseen: str = "error"
) -> tuple[Scored, list[str]]:
    """Score a model on a table with observed targets; all rows are held in memory.

    Parameters
    ----------
    model, source
        What is scored, and on what.
    unseen
        "error", or "average" to take a category that training has not seen as unknown.

    Returns
    -------
    scored, notes
        Scores beside those of the simple models of the training data, and remarks.

    Raises
    ------
    InputError
        If there are fewer than two rows to score, or one cannot be used.
    """
    joined, notes = observed_rows(model, source, unseen=unseen)
    assert joined.y is not None
    scored = model.score(joined, source.where)
    if scored.share_seen:
        notes.append(
            f"{scored.share_seen:.0%} of these rows were trained on: the scores are not those of "
            "new rows."
        )
    for name, scores in scored.card.items():
        plain = [
            v
            for score in scores.values()
            for v in (score.values() if isinstance(score, dict) else [score])
        ]
        if not np.isfinite(plain).all():
            raise TableError(
                f"the scores of {name} are no finite numbers: the model file is damaged, or the "
                "targets are far too large."
            )
    return scored, notes


def observed_rows(
    model: TableModel, source: Source, *, unseen: str = "error"
) -> tuple[Encoded, list[str]]:
    """Return the complete rows of a table with observed targets, in memory, and remarks."""
    rows = TableRows(source, model.preprocessing, unseen=unseen, targets=True)
    parts, n_without = [], 0
    for block in rows.encoded():
        assert block.y is not None
        holes = np.isnan(block.y).any(axis=1)
        if holes.any() and model.preprocessing.missing == "error":
            place = source.where(int(block.numbers[np.argmax(holes)]))
            raise TableError(f"a target has no value in {place}: fill it in or remove the row.")
        n_without += int(holes.sum())
        parts.append(dataclasses.replace(block, complete=block.complete & ~holes))
    joined = join_rows(parts)
    if len(joined.X) < 2:
        raise TableError(
            f"{source.label} has {count_rows(len(joined.X))} to score: scores need at least two."
        )
    notes = rows.notes()
    if n_without:
        notes.append(f"{count_rows(n_without)} without a target left out.")
    return joined, notes


def recalibrate(
    model: TableModel, source: Source, *, interval: float = 0.9, unseen: str = "error"
) -> tuple[np.ndarray, list[str]]:
    """Return how many standard deviations an interval must reach to hold what it promises.

    Split conformal prediction (`varprop.conformal`): if these rows and new ones come from one
    population, the interval mean ± factor * std holds a new target with the stated probability,
    whatever the model.

    Parameters
    ----------
    model, source, unseen
        As in `evaluate_table`; the rows must not have been trained on.
    interval
        Probability inside.

    Returns
    -------
    factor, notes
        Shape (targets,), and remarks.

    Raises
    ------
    InputError
        If rows were trained on, or are too few for this probability.
    """
    if (kind := model.preprocessing.outcome.kind) != "numbers":
        raise TableError(f"intervals are recalibrated of numbers, but the model predicts {kind}.")
    rows, notes = observed_rows(model, source, unseen=unseen)
    assert rows.y is not None
    if share := model.regressor.share_seen(rows.X, rows.y):
        raise TableError(
            f"{share:.0%} of the rows of {source.label} were trained on: intervals must be "
            "recalibrated with other rows."
        )
    dist = model.predict_dist(rows, source.where)
    y = rows.y[:, 0] if dist.squeeze else rows.y
    try:
        return Conformal.of(dist, y).factor(interval), notes
    except ValueError as error:
        raise TableError(f"{source.label}: {error}") from error
