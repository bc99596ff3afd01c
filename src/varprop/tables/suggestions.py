"""Which rows of a table of possible experiments to do next, and why."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from varprop.decisions.acquisition import information_gain, log_expected_improvement, without_noise
from varprop.decisions.batches import select_improving, select_informative
from varprop.predictive.blend import mixture
from varprop.predictive.simple import CONSTANT, LINEAR
from varprop.tables.columns import Encoded, count_rows, join_rows
from varprop.tables.keys import Keys
from varprop.tables.model import TableModel
from varprop.tables.outside import outside_words
from varprop.tables.rows import TableRows
from varprop.tables.text import TableError

GOALS = ("explore", "maximize", "minimize")
#: Rows that are looked at together: those that are worth most by themselves.
MOST_TOGETHER = 10_000
_RESULTS = ("mean", "std", "doubt", "gain")


def suggest_table(
    model: TableModel,
    rows: TableRows,
    *,
    n: int,
    goal: str,
    target: str | None = None,
    best: float | None = None,
) -> tuple[pa.Table, list[str]]:
    """Choose the next experiments among the rows of a table.

    To explore, rows are chosen whose measurements together tell most of the model; to maximize or
    minimize, those that are expected to improve most, each as if those before it had been measured
    (`varprop.decisions`). What counts is the model's doubt of the target under the noise.

    Parameters
    ----------
    model, rows
        What predicts, and what could be tried. A row with a missing value is none that can be.
    n
        How many to choose.
    goal
        "explore", "maximize" or "minimize".
    target
        Which of several targets counts.
    best
        The best value so far; the best prediction among the rows unless given.

    Returns
    -------
    table
        A line for each, in the order of choice: its ids, or its number from 1; its inputs; ``mean``
        and ``std`` of the prediction; ``doubt``, the share of the variance that is the model's and
        not noise; ``gain``, given those before it: to explore in nats, else the expected
        improvement in the target's units; ``outside``, what about it training has not seen.
    notes
        Sentences the user should see.

    Raises
    ------
    InputError
        If the rows or the target do not suit the model or the goal.

    Examples
    --------
    >>> from varprop.tables import Roles, fit_table
    >>> from varprop.tables.source import Source
    >>> table = pa.table({"size": np.arange(60) % 7, "price": (np.arange(60) % 7) ** 1.5})
    >>> model = fit_table(Source.of_table(table), Roles(("price",)), model="linear").model
    >>> pool = Source.of_table(pa.table({"size": [3.0, 9.0, 8.0]}))
    >>> rows = TableRows(pool, model.preprocessing, targets=False)
    >>> suggest_table(model, rows, n=1, goal="explore")[0]["row"].to_pylist()
    [2]
    """
    pre = model.preprocessing
    output = _output(model, goal, target)
    keys = Keys.of(pre, rows.table)
    blocks = list(rows.encoded())
    pool, notes = _possible(join_rows(blocks)), list[str]()
    unknown = rows.n_rows_read - len(pool.X)
    label = rows.table.label
    if unknown:
        notes.append(f"{count_rows(unknown)} of {label} with unknown values cannot be suggested.")
    if not 1 <= n <= len(pool.X):
        raise TableError(
            f"{n} experiments are asked for, but {label} has {count_rows(len(pool.X))} that could "
            "be tried."
        )
    whole = model.predict_dist(pool, rows.table.where)
    whole, told = _one(whole, output), whole.identified
    doubting = whole
    if not told:
        doubting, told, said = _doubting(model, pool, rows.table.where, output)
        notes.append(said)
    names = [column.name for column in pre.inputs]
    clash = sorted({*_RESULTS, "outside"} & {*names, *keys.ids})
    if clash:
        raise TableError(f"the column {clash[0]!r} has the name of a result: rename it.")
    if goal != "explore" and best is None:
        best = float(whole.mean.max() if goal == "maximize" else whole.mean.min())
        notes.append(f"no best value was given: the best prediction among the rows, {best:.4g}.")
    chosen, gains = _chosen(doubting, n, goal, best, notes)
    share = doubting.model_var / doubting.var if told else np.full(len(pool.X), np.nan)
    values = [whole.mean[chosen], whole.std[chosen], share[chosen], gains]
    picked = dataclasses.replace(
        pool,
        cells=pool.cells.take(pa.array(chosen)),
        X=pool.X[chosen],
        numbers=pool.numbers[chosen],
    )
    columns = dict(zip(keys.ids or {"row": None}, keys.arrays(picked), strict=True))
    columns |= {name: picked.cells.column(name) for name in names}
    columns |= {
        name: pa.array(value, mask=np.isnan(value))
        for name, value in zip(_RESULTS, values, strict=True)
    }
    words = np.array(outside_words(model.regressor, pre, picked), object)
    rows.saw_outside(picked.numbers, words)
    columns["outside"] = pa.array(words, pa.string())
    return pa.table(columns), notes


def _output(model: TableModel, goal: str, target: str | None) -> int:
    """Return the number of the target that counts."""
    targets, kind = model.preprocessing.targets, model.preprocessing.outcome.kind
    if goal not in GOALS:
        raise TableError(f"goal must be one of {', '.join(GOALS)}, but is {goal!r}.")
    if kind != "numbers":
        kind = kind.replace("censored", "censored targets")
        raise TableError(f"suggestions need predictions of numbers, but the model predicts {kind}.")
    listed = ", ".join(map(repr, targets))
    if target is None and len(targets) > 1:
        raise TableError(f"the model has the targets {listed}: say by --target which one counts.")
    if target is not None and target not in targets:
        raise TableError(f"the model has no target {target!r}: it has {listed}.")
    return 0 if target is None else targets.index(target)


def _possible(pool: Encoded) -> Encoded:
    """Return the rows all of whose values are known."""
    if pool.X_std is None:
        return pool
    known = (pool.X_std == 0).all(axis=1)
    return dataclasses.replace(
        dataclasses.replace(pool, complete=known).only_complete(), X_std=None
    )


def _one(dist: Any, output: int) -> Any:
    """Return the prediction of one target, as one that had no others."""
    return dist if dist.squeeze else _squeezed(dist.marginal([output]))


def _squeezed(dist: Any) -> Any:
    """Return a prediction of one target without the target's axis."""
    return dataclasses.replace(dist.second_order(), squeeze=True)


def _doubting(model: TableModel, pool: Encoded, where: Any, output: int) -> tuple[Any, bool, str]:
    """Return what to take the doubt from where the whole model does not tell it from noise.

    That is the mixture of those of its parts that do; whether it tells it; and what to say of it.
    """
    regressor = model.regressor
    weights = {name: weight for name, weight in regressor.weights_.items() if weight > 0}
    if model.choice is not None:
        weights = {model.choice: 1.0}
    told = [name for name in weights if regressor.tells_apart.get(name, False)]
    if told:
        told += [name for name in (LINEAR, CONSTANT) if name in weights]
        parts = [_one(model.part(name).predict_dist(pool, where), output) for name in told]
        share = sum(weights[name] for name in told)
        return (
            mixture(parts, [weights[name] for name in told]),
            True,
            f"{', '.join(told)}, {share:.0%} of the model, tell their own doubt from noise: doubt "
            "and gain are theirs.",
        )
    found = _one(model.predict_dist(pool, where), output).second_order()
    return (
        dataclasses.replace(found, identified=True),
        False,
        "this model does not tell its own doubt from noise, so that some of what is taken for "
        f"doubt is noise that no experiment lowers: {model.how_to_tell_apart}.",
    )


def _chosen(
    dist: Any, n: int, goal: str, best: float | None, notes: list[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of the rows that are chosen, and what each gains."""
    together = np.arange(dist.n_rows)
    if len(together) > MOST_TOGETHER:
        if best is None:
            alone = information_gain(dist)
        else:
            alone = log_expected_improvement(without_noise(dist), best, maximize=goal == "maximize")
        together = np.sort(np.argsort(-alone, kind="stable")[: max(n, MOST_TOGETHER)])
        notes.append(
            f"of {dist.n_rows:,} rows the {len(together):,} that are worth most by themselves are "
            "looked at together."
        )
        dist = dist[together]
    if best is None:
        found = select_informative(dist, n)
        return together[found.rows], found.gains
    found = select_improving(dist, n, best, maximize=goal == "maximize")
    return together[found.rows], np.exp(found.gains)
