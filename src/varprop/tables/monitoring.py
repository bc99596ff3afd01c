"""A fitted model on new rows: whether its inputs have shifted, and its promises still hold.

Every column, the rows as a whole and every score of every target is one check, made of tests that
compare the new rows with those of the fit (`varprop.data.shift`). Within a check the smallest
probability is multiplied by the number of its tests (Bonferroni), and those of all checks are
corrected together by the method of Holm. Both hold however tests depend on each other, so that of
50 tables without any change at most one is called changed, be there two columns or two hundred.
Differences too small to matter are none, however sure they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from varprop.data.domain import Domain
from varprop.data.fingerprints import row_hashes
from varprop.data.shift import more_extreme, together
from varprop.data.sketch import least_moved
from varprop.tables.belonging import Belonging
from varprop.tables.columns import CategoryColumn, Encoded, NumberColumn, count_rows, join_rows
from varprop.tables.judging import blocks_of, judge_targets
from varprop.tables.model import TableModel
from varprop.tables.monitored import (
    ONE_IN,
    Check,
    Course,
    Finding,
    Monitored,
    in_one,
    in_percent,
    summed_up,
)
from varprop.tables.roles import Roles
from varprop.tables.rows import TableRows
from varprop.tables.shifts import RARE, WORTH, check_columns
from varprop.tables.source import Source
from varprop.tables.text import TableError

#: Fewer rows are not monitored, and fewer targets not looked at.
FEWEST = 10
# Share of rows outside from which on a model is not to be relied on.
_MANY_OUTSIDE = 0.1


def monitor_table(
    model: TableModel,
    source: Source,
    *,
    targets: bool | None = None,
    time: str | None = None,
) -> Monitored:
    """Say whether new rows are like those of the fit, and whether predictions hold what they state.

    Of 50 tables of independent rows without any change at most one is called changed, whatever the
    number of columns and checks. All rows are held in memory.

    Parameters
    ----------
    model, source
        What is monitored, and on what. A missing value is a finding and no error, and so is a
        category that training has not seen.
    targets
        Whether the table must have observed targets; unless given they are looked at if they are
        there. Rows without one count for the inputs.
    time
        Column of numbers or dates that puts the rows in order; they are in order unless given.

    Raises
    ------
    InputError
        If the table lacks a column, or has fewer than ten rows.

    Examples
    --------
    >>> from varprop.tables import Roles, fit_table
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=400)
    >>> table = pa.table({"x": x, "y": 2 * x + rng.normal(size=400)})
    >>> fitted = fit_table(Source.of_table(table.slice(0, 200)), Roles(("y",)), model="linear")
    >>> monitor_table(fitted.model, Source.of_table(table.slice(200))).state
    'green'
    >>> shifted = table.slice(200).set_column(0, "x", pa.array(x[200:] + 1))
    >>> monitor_table(fitted.model, Source.of_table(shifted)).state
    'red'
    """
    pre = model.preprocessing
    needed = list(pre.outcome.read_as(pre.targets))
    absent = [name for name in needed if name not in source.names]
    wanted = not absent if targets is None else targets
    lenient = "impute" if pre.missing == "error" else pre.missing
    reading = dataclasses.replace(pre, missing=lenient)
    carried = [] if time is None else [time]
    rows = TableRows(source, reading, unseen="average", targets=wanted, carried=carried)
    found = join_rows(list(rows.encoded()))
    n = len(found.X)
    if n < FEWEST:
        raise TableError(
            f"{source.label} has {count_rows(n)} to look at: monitoring needs at least {FEWEST}."
        )
    if time is not None:
        found = _in_order(found, time, source)
    notes = rows.notes()
    if wanted is False:
        listed = ", ".join(map(repr, absent or needed))
        notes.append(f"there is no column {listed}: whether predictions still hold cannot be seen.")
    blocks = blocks_of(n)
    checks, beyond = check_columns(model, found, notes)
    near, courses = _rows_outside(model, found, beyond, blocks, notes)
    judged = judge_targets(model, found, source, blocks, fewest=FEWEST) if wanted else None
    raw = [*checks, *near, *(judged.checks if judged else [])]
    corrected = together([check.p for check in raw])
    done = [check.decided(p) for check, p in zip(raw, corrected, strict=True)]
    sketches = [c.sketch for c in pre.inputs if isinstance(c, NumberColumn) and c.sketch]
    seen = None
    if sketches:
        smallest = min(sketch.n for sketch in sketches)
        seen = max(WORTH, least_moved(1 / (ONE_IN * 3 * len(raw)), smallest, n))
    names = ", ".join(pre.targets) if judged and judged.n_rows else ""
    state, sentence = summed_up(done, judged.problem if judged else "", names, n)
    return Monitored(
        state,
        sentence,
        n,
        judged.n_rows if judged else 0,
        tuple(done),
        (*courses, *(judged.courses if judged else ())),
        tuple(_called(block) for block in blocks),
        judged.pits if judged else {},
        seen,
        (*notes, *(judged.notes if judged else ())),
    )


def _called(block: slice) -> str:
    return f"rows {block.start + 1} to {block.stop}"


def _in_order(rows: Encoded, time: str, source: Source) -> Encoded:
    """Return rows in the order of a column of times."""
    cells = rows.cells.column(time)
    cells = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    if cells.null_count:
        place = source.where(int(rows.numbers[int(np.argmax(np.asarray(cells.is_null())))]))
        raise TableError(f"column {time!r} has no value in {place}: fill it in or remove the row.")
    if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
        for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
            try:
                cells = cells.cast(kind)
                break
            except pa.ArrowInvalid:
                continue
    column = Belonging(time, Roles((), time=time), source)
    column.add(cells, int(rows.numbers[0]))
    if column.problem:
        raise TableError(column.problem)
    order = np.argsort(np.concatenate(column.values), kind="stable")
    arrays = {name: getattr(rows, name) for name in ("numbers", "X", "X_std", "y", "exposure")}
    arrays = {name: None if a is None else a[order] for name, a in arrays.items()}
    return dataclasses.replace(rows, cells=rows.cells.take(pa.array(order)), **arrays)


# ---- rows ---------------------------------------------------------------------------------------


def _rows_outside(
    model: TableModel,
    rows: Encoded,
    beyond: list[Finding],
    blocks: Sequence[slice],
    notes: list[str],
) -> tuple[list[Check], list[Course]]:
    """Return the check of rows outside of what training has seen, and its course over time."""
    domain, seen = model.regressor.domain_, model.regressor.n_seen_
    if domain is None:
        return [], []
    found = domain.outside(rows.X)
    outside = found.rows | _unseen(model, rows)
    tests, share = list(beyond), float(outside.mean())
    if seen is not None:
        learned, rank = Domain.learned_from(seen, rows.X.shape[1])
        # Equal rows count once, as they did in training.
        first = np.unique(row_hashes(rows.X), return_index=True)[1]
        far = int(found.far[first].sum())
        p = more_extreme(rank, learned, far, len(first))
        tests.append(Finding(p, "", far >= RARE * len(first)))
    bound = None
    if seen is not None and seen > 1:
        bound = min(1.0, rank / learned + 2 * len(beyond) / seen)
    check = Check(
        "rows outside",
        "rows",
        "red" if share >= _MANY_OUTSIDE else "amber",
        in_one(tests).p,
        f"{in_percent(share)} of the rows are outside of what training has seen",
        "" if bound is None else f"at most about {in_percent(bound)}",
        f"{in_percent(share)}",
        outside=share,
    )
    if not blocks:
        return [check], []
    values = np.array([outside[block].mean() for block in blocks])
    return [check], [_course_outside(values, blocks, bound)]


def _course_outside(values: np.ndarray, blocks: Sequence[slice], bound: float | None) -> Course:
    from varprop.predictive.diagnostics import chance_range

    high = None
    if bound is not None:
        sizes = [block.stop - block.start for block in blocks]
        high = np.array([float(chance_range(size, bound)[1]) for size in sizes])
    low = None if high is None else np.zeros(len(values))
    return Course("rows outside", "", values, low, high, None, True)


def _unseen(model: TableModel, rows: Encoded) -> np.ndarray:
    """Return which rows have a category that training did not have."""
    found = np.zeros(len(rows.X), bool)
    for column, place in _categories(model):
        if rows.X_std is not None:
            given = np.asarray(rows.cells.column(column.name).is_valid())
            found |= rows.X_std[:, place].any(axis=1) & given
    return found


def _categories(model: TableModel) -> Iterator[tuple[CategoryColumn, slice]]:
    pre = model.preprocessing
    for column, place in zip(pre.inputs, pre.slices, strict=True):
        if isinstance(column, CategoryColumn):
            yield column, place
