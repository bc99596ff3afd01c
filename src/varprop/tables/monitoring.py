"""A fitted model on new rows: have its inputs shifted, and do its promises still hold?

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
from varprop.data.shift import counts_differ, least_moved, more_extreme, together
from varprop.tables.belonging import Belonging
from varprop.tables.cells import to_floats, to_text
from varprop.tables.columns import CategoryColumn, Encoded, NumberColumn, count_rows, join_rows
from varprop.tables.judging import blocks_of, judge_targets
from varprop.tables.levels import find_levels
from varprop.tables.model import TableModel
from varprop.tables.monitored import ONE_IN, Check, Course, Monitored, in_percent, summed_up
from varprop.tables.roles import Roles
from varprop.tables.rows import TableRows
from varprop.tables.source import Source
from varprop.tables.text import TableError

#: Fewer rows are not monitored, and fewer targets not looked at.
FEWEST = 10
#: Shares of a column's rows that have moved, and of rows that should hardly ever be, which matter.
WORTH, RARE = 0.05, 0.01
# Share of rows outside from which on a model is not to be relied on.
_MANY_OUTSIDE = 0.1
_NO_SKETCH = (
    "the model file does not say how the numbers of {} were distributed in training (it was written "
    "by an earlier version, or by Python without a table): a shift within the range seen there "
    "cannot be found; fit again with `varprop fit` to monitor it."
)


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
    checks, beyond = _columns(model, found, notes)
    near, courses = _rows_outside(model, found, beyond, blocks, notes)
    judged = judge_targets(model, found, source, blocks, fewest=FEWEST) if wanted else None
    raw = [*checks, *near, *(judged.checks if judged else [])]
    corrected = together([check.p for check in raw])
    done = [check.decided(p) for check, p in zip(raw, corrected, strict=True)]
    sketches = [c.sketch for c in pre.inputs if isinstance(c, NumberColumn) and c.sketch]
    least = None
    if sketches:
        smallest = min(sketch.n for sketch in sketches)
        least = max(WORTH, least_moved(1 / (ONE_IN * 3 * len(raw)), smallest, n))
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
        least,
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


# ---- columns ------------------------------------------------------------------------------------


def _columns(
    model: TableModel, rows: Encoded, notes: list[str]
) -> tuple[list[Check], list[tuple[float, bool]]]:
    """Return a check for every column, and of each the test for what training has not seen."""
    pre, domain = model.preprocessing, model.regressor.domain_
    beyond = np.zeros(rows.X.shape, bool)
    if domain is None:
        notes.append(
            "the model file does not say which ranges training has seen: rows outside cannot be "
            "found; fit again to monitor them."
        )
    else:
        beyond = domain.outside(rows.X).beyond
    checks, tests, blind = [], [], []
    for column, place in zip(pre.inputs, pre.slices, strict=True):
        if isinstance(column, CategoryColumn):
            check, unseen = _category(column, rows)
            checks.append(check)
            tests.append(unseen)
            continue
        n_beyond, seen = int(beyond[:, place].sum()), model.regressor.n_seen_ or 0
        seen = max(seen, column.sketch.n if column.sketch else 0)
        p = more_extreme(2, seen, n_beyond, len(rows.X)) if domain is not None and seen > 1 else 1.0
        tests.append((p, n_beyond >= RARE * len(rows.X)))
        checks.append(_number(column, rows, tests[-1], n_beyond))
        if column.sketch is None:
            blind.append(column.name)
    if blind:
        more = f" and {len(blind) - 5} more" if len(blind) > 5 else ""
        notes.append(_NO_SKETCH.format(", ".join(map(repr, blind[:5])) + more))
    return checks, tests


def _least(tests: Sequence[tuple[float, bool]]) -> float:
    """Return the probability of a check made of several tests, of which only some matter."""
    return min([1.0, *(len(tests) * p for p, matters in tests if matters)])


def _number(
    column: NumberColumn, rows: Encoded, beyond: tuple[float, bool], n_beyond: int
) -> Check:
    values = to_floats(rows.cells.column(column.name), column.name, str)
    n, holes, sketch = len(values), int(np.isnan(values).sum()), column.sketch
    values, tests, moved, cells = values[~np.isnan(values)], [beyond], None, None
    before_missing = None
    if sketch is not None:
        whole, before_missing = (
            sketch.n + sketch.missing,
            sketch.missing / (sketch.n + sketch.missing),
        )
        p = counts_differ(sketch.missing, whole, holes, n)
        tests.append((p, abs(holes / n - before_missing) >= RARE))
        if len(values):
            moved = sketch.moved(values)
            tests.append((moved.p, moved.size >= WORTH))
            cuts, *shares = sketch.cells(values)
            cells = (_between(cuts), *(tuple(s.tolist()) for s in shares)) if len(cuts) else None
        else:
            tests.append((1.0, False))
    std = float(np.sqrt(column.var))
    now = (float(values.mean()), float(values.std())) if len(values) else (np.nan, np.nan)
    said = _how_moved(column.mean, std, *now) if len(values) else ""
    findings = [f"{in_percent(n_beyond / n)} of the rows are beyond what training has seen"]
    if sketch is not None:
        findings.append(
            f"{in_percent(holes / n)} of the rows have no value, {in_percent(before_missing)} in training"
        )
        findings.append(said)
    return Check(
        column.name,
        "column",
        "amber",
        _least(tests),
        f"column {column.name!r} has shifted: {_worst(tests, findings)}",
        _with_spread(column.mean, std),
        _with_spread(*now) if len(values) else "–",
        None if moved is None else moved.size,
        (before_missing, holes / n),
        n_beyond / n,
        cells,
    )


def _worst(tests: Sequence[tuple[float, bool]], findings: Sequence[str]) -> str:
    """Return the finding of the test with the smallest probability of those that matter."""
    order = sorted(range(len(tests)), key=lambda i: (not tests[i][1], tests[i][0]))
    return findings[order[0]]


def _how_moved(mean: float, std: float, new_mean: float, new_std: float) -> str:
    """Say what has changed between two means and standard deviations."""
    moved = (new_mean - mean) / std if std > 0 else float(np.sign(new_mean - mean))
    if abs(moved) >= 0.1:
        by = f" by {abs(moved):.2g} standard deviations" if std > 0 else ""
        return (
            f"its mean is {new_mean:.4g}, {'higher' if moved > 0 else 'lower'}{by} than in training"
        )
    if not 0.9 < (new_std / std if std > 0 else 1.0) < 1.1:
        return f"its standard deviation is {new_std:.3g}, {std:.3g} in training"
    return "its values are distributed differently than in training"


def _with_spread(mean: float, std: float) -> str:
    """Return a mean and a standard deviation, to the third digit of the latter if it can be.

    Examples
    --------
    >>> _with_spread(151.234, 54.27), _with_spread(-0.001, 0.952), _with_spread(2e9, 0.0)
    ('151.2 ± 54.3', '-0.001 ± 0.952', '2e+09 ± 0')
    """
    if not 1e-3 <= std < 1e6 or abs(mean) > 1e9:
        return f"{mean:.4g} ± {std:.2g}"
    digits = max(0, 2 - int(np.floor(np.log10(std))))
    return f"{mean:z,.{digits}f} ± {std:,.{digits}f}"


def _between(cuts: np.ndarray) -> tuple[str, ...]:
    texts = [f"{cut:.4g}" for cut in cuts]
    inner = (f"{a} to {b}" for a, b in zip(texts, texts[1:], strict=False))
    return (f"up to {texts[0]}", *inner, f"above {texts[-1]}")


def _category(column: CategoryColumn, rows: Encoded) -> tuple[Check, tuple[float, bool]]:
    text = to_text(rows.cells.column(column.name))
    codes = np.asarray(find_levels(text, column.levels).fill_null(-1))
    n, whole = len(codes), sum(column.counts)
    new = np.bincount(codes[codes >= 0], minlength=len(column.levels))
    empty = np.asarray(text.is_null()) & (codes < 0)
    unseen, holes = int(((codes < 0) & ~empty).sum()), int(empty.sum())
    shares, before = new / n, np.array(column.counts) / whole
    moved = float(np.abs(shares - before).sum() + (unseen + holes) / n) / 2
    tests, findings = [], []
    for level, count, found in zip(column.levels, column.counts, new.tolist(), strict=True):
        matters = moved >= WORTH or (level is None and abs(found / n - count / whole) >= RARE)
        tests.append((counts_differ(count, whole, found, n), matters))
        name = "no value" if level is None else repr(level)
        findings.append(
            f"{name} is in {in_percent(found / n)} of the rows, {in_percent(count / whole)} in training"
        )
    # Levels seen once are as new as those not seen at all (Good and Turing).
    once = sum(count == 1 for count in column.counts)
    for count, past, what in (
        (unseen, once, "have a category that training did not have"),
        (holes, 0, "have no value, and none in training"),
    ):
        more = count / n > past / whole
        tests.append((counts_differ(past, whole, count, n), more and count >= RARE * n))
        findings.append(f"{in_percent(count / n)} of the rows {what}")
    new_levels, most = tests[-2], int(np.argmax(column.counts))
    names = tuple("(missing)" if level is None else level for level in column.levels)
    drawn = np.array([*names, "(new)"]), np.append(before, 0.0), np.append(shares, unseen / n)
    largest = np.argsort(-np.maximum(drawn[1], drawn[2]), kind="stable")[:8]
    cells = tuple(
        tuple(part[largest[drawn[2][largest] + drawn[1][largest] > 0]].tolist()) for part in drawn
    )
    check = Check(
        column.name,
        "column",
        "amber",
        _least(tests),
        f"column {column.name!r} has shifted: {_worst(tests, findings)}",
        f"{names[most]} {in_percent(before[most])}",
        f"{names[most]} {in_percent(shares[most])}",
        moved,
        (_missing_before(column), (holes + _missing_now(column, new)) / n),
        unseen / n,
        cells,  # type: ignore[arg-type]
    )
    return check, new_levels


def _missing_before(column: CategoryColumn) -> float:
    return dict(zip(column.levels, column.counts, strict=True)).get(None, 0) / sum(column.counts)


def _missing_now(column: CategoryColumn, new: np.ndarray) -> int:
    return int(new[column.levels.index(None)]) if None in column.levels else 0


# ---- rows ---------------------------------------------------------------------------------------


def _rows_outside(
    model: TableModel,
    rows: Encoded,
    beyond: list[tuple[float, bool]],
    blocks: Sequence[slice],
    notes: list[str],
) -> tuple[list[Check], list[Course]]:
    """Return the check of rows outside of what training has seen, and its course over time."""
    domain, seen = model.regressor.domain_, model.regressor.n_seen_
    if domain is None:
        return [], []
    found, n = domain.outside(rows.X), len(rows.X)
    outside = found.rows | _unseen(model, rows)
    tests, share = list(beyond), float(outside.mean())
    if seen is not None:
        learned, rank = Domain.learned_from(seen, rows.X.shape[1])
        # Equal rows count once, as they did in training.
        first = np.unique(row_hashes(rows.X), return_index=True)[1]
        far = int(found.far[first].sum())
        tests.append((more_extreme(rank, learned, far, len(first)), far >= RARE * len(first)))
    bound = None
    if seen is not None and seen > 1:
        bound = min(1.0, rank / learned + 2 * len(beyond) / seen)
    check = Check(
        "rows outside",
        "rows",
        "red" if share >= _MANY_OUTSIDE else "amber",
        _least(tests),
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
