"""Totals over rows of a table, of all or by the values of a column.

What a model is unsure of it is unsure of in many rows at once, which the spread of a total counts.
Rows with unknown categories have levels drawn by their shares of the training rows, each row by
itself; rows that share a category training has not seen share the level.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varprop.predictive.distribution import Predictive
from varprop.predictive.kernels import BLOCK
from varprop.tables.cells import to_text
from varprop.tables.columns import CategoryColumn, Encoded, count_rows, join_rows
from varprop.tables.levels import one_spelling
from varprop.tables.model import TableModel, most_combinations
from varprop.tables.outside import outside_words
from varprop.tables.rows import TableRows
from varprop.tables.text import TableError
from varprop.tables.unknown import in_parts

#: What the rows are called in which the column has no value.
MISSING = "(missing)"
# Seconds beyond which a user is told, and pairs of blocks beyond which it is worth finding out.
_LONG, _MANY = 20.0, 8


def total_table(
    model: TableModel,
    rows: TableRows,
    *,
    by: str | None = None,
    interval: float = 0.9,
    quantiles: Sequence[float] = (),
    on_note: Callable[[str], None] = lambda note: None,
) -> pa.Table:
    """Predict the sum over all rows of a table, or over those of each value of a column.

    The rows are held in memory; time grows with the square of the rows of a group.

    Parameters
    ----------
    model, rows
        What predicts, and what; `rows` carries the column (``carried=[by]``).
    by
        A column, in whose order of values the totals come; all rows are one total unless given.
    interval, quantiles
        As in `predict_table`.
    on_note
        Called with sentences the user should see: before the work if it may take long.

    Returns
    -------
    pyarrow.Table
        A line for each total: the value (rows without one are a group "(missing)"), ``rows`` summed
        over, ``left_out`` for want of a prediction, the results as in `predict_table`, and
        ``outside``, the number of rows unlike all that training has seen.

    Raises
    ------
    InputError
        If no row can be predicted, or the column has the name of a result or cannot be text.

    Examples
    --------
    >>> from varprop.tables import Roles, fit_table
    >>> from varprop.tables.source import Source
    >>> table = pa.table({"size": np.arange(60) % 7, "price": np.arange(60) % 7 + 0.5})
    >>> model = fit_table(Source.of_table(table), Roles(("price",)), model="linear").model
    >>> rows = TableRows(Source.of_table(table.slice(0, 7)), model.preprocessing, targets=False)
    >>> found = total_table(model, rows)
    >>> found["rows"].to_pylist(), found["mean"].to_numpy().round(1).tolist()
    ([7], [24.5])
    """
    joined, groups = _grouped(model, rows, by)
    filled = _Filled.of(model, rows, joined)
    dist = filled.dist
    targets = model.preprocessing.targets
    parts = ["model_std", "noise_std"] if dist.identified else []
    names = ["mean", "std", *parts, "lower", "upper", *(f"q{alpha:g}" for alpha in quantiles)]
    if len(targets) > 1:
        names = [f"{target}_{name}" for target in targets for name in names]
    if by in {"rows", "left_out", *names, "outside"}:
        raise TableError(f"the column {by!r} has the name of a result: rename it.")
    if rows.n_incomplete:
        on_note(f"totals leave out {count_rows(rows.n_incomplete)} that have no prediction.")
    if not dist.identified:
        on_note(
            "this model does not tell its own doubt from noise, so that some noise counts as "
            "shared by all rows and the spread of a total is rather too wide: "
            f"{model.how_to_tell_apart}."
        )
    if n_unknown := filled.n_unknown:
        on_note(
            f"{count_rows(n_unknown)} {'has' if n_unknown == 1 else 'have'} an unknown category, "
            "which counts as each of the known ones by its share: in every row by itself, but as "
            "the same one in all rows of the same new category."
        )
    _foretell([filled.where(group.rows) for group in groups], dist, on_note)
    levels = [(1 - interval) / 2, (1 + interval) / 2, *quantiles]
    lines = []
    for group in groups:
        if not len(group.rows):
            lines.append(np.full(len(names), np.nan))
            continue
        total = filled.total(group.rows)
        columns = [total.mean, total.std]
        if parts:
            columns += [total.model_std, total.noise_std]
        columns += list(np.moveaxis(total.quantile(levels), -1, 0))
        lines.append(np.stack([c.reshape(-1) for c in columns], axis=1).ravel())
    found: dict[str, Any] = {} if by is None else {by: [group.name for group in groups]}
    found["rows"] = [len(group.rows) for group in groups]
    found["left_out"] = [group.left_out for group in groups]
    empty = np.array([not len(group.rows) for group in groups])
    values = dict(zip(names, np.stack(lines, axis=1), strict=True))
    found |= {name: pa.array(column, mask=empty) for name, column in values.items()}
    found["outside"] = [group.outside for group in groups]
    return pa.table(found)


class _Group(NamedTuple):
    """Rows of one total: their places among the complete rows, and how many others there are."""

    name: str
    rows: np.ndarray
    left_out: int
    outside: int


def _grouped(model: TableModel, rows: TableRows, by: str | None) -> tuple[Encoded, list[_Group]]:
    """Return the complete rows, and which of them belong together."""
    blocks, keys, complete, outside = [], list[Any](), [], []
    for block in rows.encoded():
        words = np.full(len(block.complete), None, object)
        if block.complete.any():
            whole = block.only_complete()
            words[block.complete] = outside_words(model.regressor, model.preprocessing, whole)
        rows.saw_outside(block.numbers, words)
        if by is not None:
            if by not in block.cells.schema.names:
                raise ValueError(f"rows must carry the column {by!r}: TableRows(carried=[{by!r}]).")
            keys += _names(block.cells.column(by), by)
        blocks.append(block)
        complete.append(block.complete)
        outside.append(words != None)  # noqa: E711 - entry by entry
    done, strange = np.concatenate(complete), np.concatenate(outside)
    if not done.any():
        raise TableError(
            f"{rows.table.label} has no row that can be predicted: all have missing values, and "
            "the model was fitted with --missing drop."
        )
    place = np.cumsum(done) - 1
    spelled = one_spelling(Counter(keys))
    values = [spelled[key] for key in keys] if by is not None else [None] * len(done)
    belongs: dict[Any, list[int]] = {}
    for row, value in enumerate(values):
        belongs.setdefault(value, []).append(row)
    groups = []
    for value, members in belongs.items():
        own = np.array(members)
        left_out, odd = int((~done[own]).sum()), int(strange[own].sum())
        name = MISSING if value is None else value
        groups.append(_Group(name, place[own[done[own]]], left_out, odd))
    return join_rows(blocks), groups


def _names(cells: Any, by: str) -> list[str | None]:
    """Return the values of a column as text."""
    if pa.types.is_floating(cells.type):
        cells = pc.if_else(pc.is_nan(cells), pa.scalar(None, cells.type), cells)
    try:
        return list(to_text(cells).to_pylist())
    except pa.ArrowException as error:
        raise TableError(
            f"column {by!r} holds {cells.type}, by which no rows can be put together: choose "
            "another for --total-by."
        ) from error


@dataclasses.dataclass(frozen=True)
class _Filled:
    """Rows with the levels in the place of unknown categories, predicted as one mixture.

    Attributes
    ----------
    dist
        Of all that is filled in.
    owner, share
        The row each belongs to, and its share of that row; sorted by row.
    same
        Of each row, a number that rows have in common whose unknown categories are the same ones;
        -1 for rows without.
    """

    dist: Predictive
    owner: np.ndarray
    share: np.ndarray
    same: np.ndarray

    @classmethod
    def of(cls, model: TableModel, rows: TableRows, joined: Encoded) -> _Filled:
        """Predict complete rows."""
        parts = list(in_parts(joined, model.preprocessing, most=most_combinations(len(joined.X))))
        owners, shares = zip(*(part.shares() for part in parts), strict=True)
        whole = [part.filled.X_std for part in parts]
        std = None
        if any(one is not None for one in whole):
            pairs = zip(parts, whole, strict=True)
            std = np.concatenate([np.zeros(p.filled.X.shape) if s is None else s for p, s in pairs])
        owner = np.concatenate(owners)
        order = np.argsort(owner, kind="stable")
        filled = dataclasses.replace(
            joined,
            X=np.concatenate([part.filled.X for part in parts])[order],
            X_std=None if std is None else std[order],
            numbers=joined.numbers[owner[order]],
        )
        dist = model.predict_gaussian(filled, rows.table.where, "totals")
        same = _same_unknown(model, joined)
        return cls(dist, owner[order], np.concatenate(shares)[order], same)

    @property
    def n_unknown(self) -> int:
        """Number of rows with unknown categories."""
        return int((self.same >= 0).sum())

    def where(self, rows: np.ndarray) -> np.ndarray:
        """Return the places of all that is filled in for some rows."""
        start, end = (np.searchsorted(self.owner, rows, side) for side in ("left", "right"))
        if len(self.owner) == len(self.same):  # one each
            return start
        places = [np.arange(*pair) for pair in zip(start, end, strict=True)]
        return np.concatenate([np.zeros(0, int), *places])

    def total(self, rows: np.ndarray) -> Predictive:
        """Return the distribution of the sum over some rows.

        With w what a drawn model is and c the levels, V[T] = V_w[E_c[T]] + E_w[V_c[T]] for every
        member: the first is a combination of all that is filled in, by shares. Of the second, every
        set of rows that draws its levels together has sum_c p_c (V_w[T_c] + (E[T_c] - E[T])^2) less
        the set's own part of the first.
        """
        at = self.where(rows)
        dist, share = self.dist[at], self.share[at]
        total = dist.combine(share)
        same = self.same[self.owner[at]]
        if (same < 0).all():
            return total
        model = total.member_model.copy()
        for number in np.unique(same[same >= 0]):
            model += self._drawn(dist, share, np.flatnonzero(same == number), self.owner[at])
        noise = np.broadcast_to(dist.member_noise, dist.member_mean.shape)
        noise = np.einsum("n,knd->kd", share, noise)[:, None]  # of the one level that is the case
        return dataclasses.replace(total, member_model=model, member_noise=noise)

    @staticmethod
    def _drawn(dist: Predictive, share: np.ndarray, at: np.ndarray, owner: np.ndarray) -> Any:
        """Return the variance that the levels add to a set of rows that has them in common."""
        one, share = dist[at], share[at]
        # Rows of a set have the same levels in the same order.
        n_rows = len(np.unique(owner[at]))
        n_levels = len(at) // n_rows
        of_level = np.tile(np.eye(n_levels), n_rows)
        chances = share[:n_levels]
        means = np.einsum("cn,knd->ckd", of_level, one.member_mean)
        within = one._member_model_var() if n_rows == 1 else one.combine(of_level).member_model
        within = within.swapaxes(0, 1)
        apart = means - np.einsum("c,ckd->kd", chances, means)
        whole = np.einsum("c,ckd->kd", chances, within + apart**2)[:, None]
        return np.maximum(whole - one.combine(share).member_model, 0.0)


def _same_unknown(model: TableModel, joined: Encoded) -> np.ndarray:
    """Return a number for the unknown categories of each row; -1 where all are known.

    A missing category is another one in every row, but rows of the same new one have it in common.
    """
    n, std = len(joined.X), joined.X_std
    if std is None:
        return np.full(n, -1)
    said: list[list[Any]] = [[] for _ in range(n)]
    pre = model.preprocessing
    for column, at in zip(pre.inputs, pre.slices, strict=True):
        if isinstance(column, CategoryColumn):
            unknown = np.flatnonzero((std[:, at] > 0).any(axis=1))
            texts = to_text(joined.cells.column(column.name)).take(pa.array(unknown)).to_pylist()
            for row, text in zip(unknown.tolist(), texts, strict=True):
                word = row if text is None else text.strip().casefold()
                said[row].append((column.name, word))
    numbers: dict[Any, int] = {}
    return np.array(
        [numbers.setdefault(tuple(words), len(numbers)) if words else -1 for words in said]
    )


def _foretell(groups: list[np.ndarray], dist: Predictive, on_note: Callable[[str], None]) -> None:
    """Say how long it may take, if it may take long, by one block of the largest group."""
    blocks = [-(-len(group) // BLOCK) for group in groups]
    pairs = sum(count * (count + 1) // 2 for count in blocks)
    if pairs < _MANY:
        return
    first = dist[max(groups, key=len)[:BLOCK]]
    first.total()  # compiles
    start = time.perf_counter()
    first.total()
    seconds = pairs * (time.perf_counter() - start)
    if seconds > _LONG:
        told = f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"
        told = told if seconds < 5400 else f"{seconds / 3600:.1f} hours"
        on_note(
            f"every pair of rows is looked at, which may take about {told} (Ctrl-C stops it); "
            "--total-by a column, or one part of the model by --model, takes less."
        )
