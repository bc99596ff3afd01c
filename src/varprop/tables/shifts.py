"""Whether the columns of new rows lie where those of the training rows lay."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from varprop.data.shift import counts_differ, more_extreme
from varprop.tables.cells import to_floats, to_text
from varprop.tables.columns import CategoryColumn, Encoded, NumberColumn
from varprop.tables.levels import find_levels
from varprop.tables.model import TableModel
from varprop.tables.monitored import Check, Finding, in_one, in_percent

#: Shares of a column's rows that have moved, and of rows that should hardly ever be, which matter.
WORTH, RARE = 0.05, 0.01
# Cells of a category that are kept.
_MOST_CELLS = 8
_NO_SKETCH = (
    "the model file does not say how the numbers of {} were distributed in training (it was "
    "written by an earlier version, or by Python without a table): a shift within the range seen "
    "there cannot be found; fit again with `varprop fit` to monitor it."
)
_NO_RANGE = (
    "the model file does not say which ranges training has seen: rows outside cannot be found; "
    "fit again to monitor them."
)


def check_columns(
    model: TableModel, rows: Encoded, notes: list[str]
) -> tuple[list[Check], list[Finding]]:
    """Return a check for every column, and of each the test for what training has not seen.

    Parameters
    ----------
    model
        That was fitted to what the rows are compared with.
    rows
        All complete, or with missing numbers filled in.
    notes
        Takes what cannot be seen.
    """
    pre, domain = model.preprocessing, model.regressor.domain_
    n, beyond = len(rows.X), np.zeros(rows.X.shape, bool)
    if domain is None:
        notes.append(_NO_RANGE)
    else:
        beyond = domain.outside(rows.X).beyond
    checks, tests, blind = [], [], []
    for column, place in zip(pre.inputs, pre.slices, strict=True):
        if isinstance(column, CategoryColumn):
            check, test = _category(column, rows)
        else:
            share = float(beyond[:, place].mean())
            seen = max(model.regressor.n_seen_ or 0, column.sketch.n if column.sketch else 0)
            p = more_extreme(2, seen, int(beyond[:, place].sum()), n) if seen > 1 else 1.0
            words = f"{in_percent(share)} of the rows are beyond what training has seen"
            test = Finding(p, words, share >= RARE)
            check = _number(column, rows, test, share)
            blind += [column.name] * (column.sketch is None)
        checks.append(check)
        tests.append(test)
    if blind:
        more = f" and {len(blind) - 5} more" if len(blind) > 5 else ""
        notes.append(_NO_SKETCH.format(", ".join(map(repr, blind[:5])) + more))
    return checks, tests


def _number(column: NumberColumn, rows: Encoded, beyond: Finding, share: float) -> Check:
    values = to_floats(rows.cells.column(column.name), column.name, str)
    n, holes, sketch = len(values), int(np.isnan(values).sum()), column.sketch
    values, tests, moved, cells, before = values[~np.isnan(values)], [beyond], None, None, None
    std, now = float(np.sqrt(column.var)), "-"
    if len(values):
        now = _with_spread(float(values.mean()), float(values.std()))
    if sketch is not None:
        whole = sketch.n + sketch.missing
        before = sketch.missing / whole
        words = (
            f"{in_percent(holes / n)} of the rows have no value, {in_percent(before)} in training"
        )
        p = counts_differ(sketch.missing, whole, holes, n)
        tests.append(Finding(p, words, abs(holes / n - before) >= RARE))
    if sketch is not None and len(values):
        moved = sketch.moved(values)
        words = _how_moved(column.mean, std, float(values.mean()), float(values.std()))
        tests.append(Finding(moved.p, words, moved.size >= WORTH))
        cuts, past, present = sketch.cells(values)
        if len(cuts):
            cells = _between(cuts), tuple(past.tolist()), tuple(present.tolist())
    found = in_one(tests)
    return Check(
        column.name,
        "column",
        "amber",
        found.p,
        f"column {column.name!r} has shifted: {found.words}",
        _with_spread(column.mean, std),
        now,
        None if moved is None else moved.size,
        (before, holes / n),
        share,
        cells,
    )


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
    inner = (f"{a} to {b}" for a, b in itertools.pairwise(texts))
    return (f"up to {texts[0]}", *inner, f"above {texts[-1]}")


def _category(column: CategoryColumn, rows: Encoded) -> tuple[Check, Finding]:
    text, levels = to_text(rows.cells.column(column.name)), column.levels
    codes = np.asarray(find_levels(text, levels).fill_null(-1))
    n, whole = len(codes), sum(column.counts)
    counts = np.bincount(codes[codes >= 0], minlength=len(levels))
    empty = np.asarray(text.is_null()) & (codes < 0)  # where no missing value was a level
    unseen, holes = int(((codes < 0) & ~empty).sum()), int(empty.sum())
    now, before = counts / n, np.array(column.counts) / whole
    moved = float(np.abs(now - before).sum() + (unseen + holes) / n) / 2
    tests, names = [], ["(missing)" if level is None else level for level in levels]
    missing = [0.0, holes / n]
    for level, past, present in zip(levels, column.counts, counts.tolist(), strict=True):
        words = f"{in_percent(present / n)} of the rows, {in_percent(past / whole)} in training"
        words = f"no value is in {words}" if level is None else f"{level!r} is in {words}"
        matters = moved >= WORTH
        if level is None:
            missing = [past / whole, present / n]
            matters |= abs(missing[0] - missing[1]) >= RARE
        tests.append(Finding(counts_differ(past, whole, present, n), words, matters))
    # Levels seen once are as new as those not seen at all (Good and Turing).
    once = sum(count == 1 for count in column.counts)
    for present, past, what in (
        (unseen, once, "have a category that training did not have"),
        (holes, 0, "have no value, and none in training"),
    ):
        matters = present / n >= max(RARE, past / whole)
        words = f"{in_percent(present / n)} of the rows {what}"
        tests.append(Finding(counts_differ(past, whole, present, n), words, matters))
    found, most = in_one(tests), int(np.argmax(column.counts))
    cells = list(zip([*names, "(new)"], [*before, 0.0], [*now, unseen / n], strict=True))
    largest = sorted(cells, key=lambda cell: -max(cell[1:]))[:_MOST_CELLS]
    drawn: Any = tuple(zip(*(cell for cell in largest if max(cell[1:]) > 0), strict=True))
    check = Check(
        column.name,
        "column",
        "amber",
        found.p,
        f"column {column.name!r} has shifted: {found.words}",
        f"{names[most]} {in_percent(before[most])}",
        f"{names[most]} {in_percent(now[most])}",
        moved,
        (missing[0], missing[1]),
        unseen / n,
        drawn,
    )
    return check, tests[-2]
