"""Where the variance of every prediction of a table comes from, by columns of the raw table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from varprop.predictive.budget import Budget
from varprop.tables.columns import CategoryColumn, Encoded, Preprocessing, join_rows
from varprop.tables.model import TableModel, most_combinations
from varprop.tables.rows import TableRows
from varprop.tables.text import TableError
from varprop.tables.unknown import Part, in_parts


def budget_of_rows(model: TableModel, rows: Encoded, where: Callable[[int], str]) -> Budget:
    """Return the budget of encoded rows, all complete; it sums to `TableModel.predict_dist`'s.

    An unknown value is called the imputation of its column: with a number, what its spread over the
    training rows makes of it, with a category, how far the predictions with each of the levels lie
    apart. What several unknown categories of a row do together is theirs in proportion.
    """
    pre, parts = model.preprocessing, dict[str, np.ndarray]()
    imputed = {f"error of {name}": name for name in pre.feature_names}
    n, d = len(rows.X), len(pre.targets)

    def add(name: str, at: np.ndarray, values: np.ndarray) -> None:
        np.add.at(parts.setdefault(name, np.zeros((n, d))), at, values)

    for part in in_parts(rows, pre, most=most_combinations(n)):
        dist = model.predict_gaussian(part.filled, where, "budgets")
        budget = dist.budget(pre.feature_names)
        owner, share = part.shares()
        variance = budget.variance.reshape(len(owner), -1, d)
        for number, name in enumerate(budget.names):
            name = f"imputation of {imputed[name]}" if name in imputed else name
            add(name, owner, share[:, None] * variance[:, number])
        if part.place is not None:
            for name, found in _by_level(part, dist.mean.reshape(-1, d), pre).items():
                add(f"imputation of {name}", part.index, found)
    first = [f"imputation of {column.name}" for column in pre.inputs]
    names = [name for name in first if name in parts]
    names += [name for name in parts if name not in names]
    whole = np.stack([parts[name] for name in names], axis=1)
    return Budget(names, whole[..., 0] if model.regressor._y_ndim == 1 else whole)


def _by_level(part: Part, mean: np.ndarray, pre: Preprocessing) -> dict[str, np.ndarray]:
    """Return the variance of the mean over the levels, (rows, d), by the columns they are of."""
    owner, share = part.shares()
    place = np.searchsorted(part.index, owner)

    def averaged(values: np.ndarray) -> np.ndarray:
        total = np.zeros((len(part.index), *values.shape[1:]))
        np.add.at(total, place, values * share.reshape(-1, *[1] * (values.ndim - 1)))
        return total

    centre = averaged(mean)
    whole, alone = averaged((mean - centre[place]) ** 2), {}
    for column, at in zip(pre.inputs, pre.slices, strict=True):
        if isinstance(column, CategoryColumn):
            found = np.zeros_like(whole)
            for level in part.filled.X[:, at].T:
                chance = averaged(level)[:, None]
                apart = averaged(level[:, None] * (mean - centre[place]))
                unknown = (chance > 0) & (chance < 1 - 1e-9)  # 0 or 1 where it is known
                found += np.divide(apart**2, chance, out=np.zeros_like(apart), where=unknown)
            if found.any():
                alone[column.name] = found
    sum_alone = sum(alone.values(), np.zeros_like(whole))
    scale = np.divide(whole, sum_alone, out=np.zeros_like(whole), where=sum_alone > 0)
    return {name: scale * found for name, found in alone.items()}


def budget_table(model: TableModel, rows: TableRows) -> tuple[Budget, pa.Table]:
    """Say for each row of a table where its variance comes from; all rows are held in memory.

    Parameters
    ----------
    model, rows
        What predicts, and what.

    Returns
    -------
    budget
        Of the rows that have a prediction.
    table
        A line for each row: its ids, or its number from 1, then ``std``, ``variance`` and, in the
        target's units squared, what each source has of it. With several targets each name is
        preceded by the target's.

    Raises
    ------
    InputError
        If no row can be predicted, or an id column has the name of a result.

    Examples
    --------
    >>> from varprop.tables import Roles, fit_table
    >>> from varprop.tables.source import Source
    >>> table = pa.table({"size": np.arange(60) % 7, "price": np.arange(60) % 7 + 0.5})
    >>> model = fit_table(Source.of_table(table), Roles(("price",)), model="linear").model
    >>> rows = TableRows(Source.of_table(table.slice(0, 2)), model.preprocessing, targets=False)
    >>> budget, table = budget_table(model, rows)
    >>> table.column_names
    ['row', 'std', 'variance', 'linear coefficients', 'members disagree', 'noise']
    """
    blocks = list(rows.encoded())
    pre = model.preprocessing
    complete = np.concatenate([block.complete for block in blocks])
    if not complete.any():
        raise TableError(f"{rows.table.label} has no complete row to explain.")
    budget = budget_of_rows(model, join_rows(blocks), rows.table.where)
    variance = budget.variance.reshape(complete.sum(), len(budget.names), -1)
    columns: dict[str, Any] = {}
    for name in pre.ids:
        columns[name] = pa.chunked_array([block.cells.column(name) for block in blocks])
    if not columns:
        columns["row"] = np.concatenate([block.numbers for block in blocks]) + 1
    results: dict[str, np.ndarray] = {}
    for output, target in enumerate(pre.targets):
        before = f"{target}_" if len(pre.targets) > 1 else ""
        parts = variance[..., output]
        whole = parts.sum(axis=1)
        results |= {f"{before}std": np.sqrt(whole), f"{before}variance": whole}
        named = zip(budget.names, parts.T, strict=True)
        results |= {f"{before}{name}": part for name, part in named}
    clash = sorted(set(results) & set(columns))
    if clash:
        raise TableError(f"the id column {clash[0]!r} has the name of a result: rename it.")
    for name, values in results.items():
        full = np.zeros(len(complete))
        full[complete] = values
        columns[name] = pa.array(full, mask=~complete)
    return budget, pa.table(columns)
