"""Whether what was stated of new rows has held, as it did when the model was fitted."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from varprop.data.shift import count_is_off, counts_differ, more_extreme
from varprop.data.sketch import Sketch
from varprop.predictive.past import COUNTED, Past
from varprop.predictive.promises import Promises
from varprop.tables.columns import Encoded, count_rows, join_rows
from varprop.tables.model import TableModel
from varprop.tables.monitored import Check, Course, Finding, in_one, in_percent
from varprop.tables.source import Source
from varprop.tables.text import TableError

# Of distributions, the share of rows that must lie elsewhere to matter; of intervals, the change in
# the share of rows outside, as a part of what is stated.
_WORTH, _WORTH_OUTSIDE = 0.05, 0.2
# Blocks over time: rows of each at least, and how many at most.
_BLOCK_ROWS, _MOST_BLOCKS = 50, 12
# Between which levels a number is in 19 of 20 blocks.
_ENDS = (0.025, 0.975)


@dataclasses.dataclass(frozen=True)
class Judged:
    """What targets say.

    Attributes
    ----------
    checks
        Not yet corrected for their number.
    courses, pits, notes
        As in `Monitored`.
    n_rows
        With a target; 0 if they are too few.
    problem
        Why there are no predictions, if there are none.
    """

    checks: list[Check] = dataclasses.field(default_factory=list)
    courses: list[Course] = dataclasses.field(default_factory=list)
    pits: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    n_rows: int = 0
    problem: str = ""


def blocks_of(n_rows: int) -> list[slice]:
    """Return blocks of rows, one after the other; none if there are too few rows for two.

    Examples
    --------
    >>> blocks_of(99), blocks_of(110)
    ([], [slice(0, 55, None), slice(55, 110, None)])
    """
    count = min(n_rows // _BLOCK_ROWS, _MOST_BLOCKS)
    if count < 2:
        return []
    ends = np.linspace(0, n_rows, count + 1).round().astype(int).tolist()
    return [slice(*pair) for pair in itertools.pairwise(ends)]


def judge_targets(
    model: TableModel, rows: Encoded, source: Source, blocks: Sequence[slice], *, fewest: int
) -> Judged:
    """Predict rows with observed targets and compare what was stated with what held at the fit.

    Parameters
    ----------
    model
        What predicts.
    rows
        In the order of time; those without a target are left out.
    source
        Says where rows stand.
    blocks
        Of all rows.
    fewest
        Rows with a target that are needed.
    """
    assert rows.y is not None
    there = ~np.isnan(rows.y).any(axis=1)
    n, notes = int(there.sum()), []
    if n < len(there):
        notes.append(f"{count_rows(~there)} without a target count for the inputs only.")
    if n < fewest:
        notes.append(
            f"{count_rows(n)} with a target are too few to see whether predictions still hold."
        )
        return Judged(notes=notes)
    rows = join_rows([dataclasses.replace(rows, complete=there)])
    assert rows.y is not None
    try:
        y, found = model.targets_of(rows), model.predict_dist(rows, source.where)
    except TableError as error:
        return Judged(notes=notes, n_rows=n, problem=str(error).removesuffix("."))
    promises = Promises.of(y, model.judged(found, y))
    given = {} if rows.exposure is None else {"exposure": rows.exposure}
    labels = model.regressor.classes_[rows.y[:, 0].astype(int)] if _classes(model) else rows.y
    if share := model.regressor.share_seen(rows.X, labels, **given):
        notes.append(
            f"{share:.0%} of these rows were trained on: predictions of them hold more than those "
            "of new rows do."
        )
    # Of the blocks of all rows, the rows that have a target.
    ends = np.concatenate([[0], np.cumsum(there)])
    parts = [slice(int(ends[block.start]), int(ends[block.stop])) for block in blocks]
    past, names = model.record.past if model.record else None, model.preprocessing.targets
    if past is None or model.choice is not None:
        notes.append(
            "the model file does not say how well these predictions held when it was fitted: "
            "intervals are compared with what they state, and NLL is shown but not judged."
        )
        past = None
    checks = _counted(promises, past, names, parts)
    checks += _pits(promises, past, names, parts, discrete=_is_discrete(model))
    if past is not None:
        checks.append(_losses(promises, past, parts, loss_name(model)))
    courses = _courses(promises, past, names, parts, loss_name(model))
    pits = dict(zip(names, promises.pits.T, strict=False))
    return Judged(checks, courses, pits, notes, n)


def _classes(model: TableModel) -> bool:
    return bool(model.preprocessing.outcome.classes)


def _is_discrete(model: TableModel) -> bool:
    return model.preprocessing.outcome.kind == "counts"


def loss_name(model: TableModel) -> str:
    """Return what the negative log density is called."""
    return "log-loss" if _classes(model) else "NLL"


# ---- tests --------------------------------------------------------------------------------------


def _check(name: str, tests: Sequence[Finding], before: str, now: str) -> Check:
    found = in_one(tests)
    state = "red" if found.worse else "amber"
    return Check(name, "target", state, found.p, found.words, before, now)


def _parts(n: int, blocks: Sequence[slice]) -> list[tuple[slice, str]]:
    """Return all rows, and every block that has any, and how they are called."""
    some = [block for block in blocks if block.stop > block.start]
    named = [(block, f" in the {_nth(i)} of {len(blocks)} parts") for i, block in enumerate(some)]
    return [(slice(0, n), ""), *named]


def _nth(place: int) -> str:
    return {0: "first", 1: "second", 2: "third"}.get(place, f"{place + 1}th")


def _counted(
    promises: Promises, past: Past | None, names: Sequence[str], blocks: Sequence[slice]
) -> list[Check]:
    """Return the checks of coverages, and of how often a class was right."""
    found: list[Check] = []
    for k, target in enumerate(names):
        tests: list[Finding] = []
        for name, held in promises.counts.items():
            stated = COUNTED[name]
            if name == "below" or (past is None and stated is None):
                continue  # the PIT says as much
            for rows, where in _parts(len(held), blocks):
                tests.append(_counted_test(held[rows, k], name, past, k, where))
        if tests:
            name = "right" if "right" in promises.counts else "90 %"
            title = "accuracy" if name == "right" else "90 % intervals"
            before = COUNTED[name] or 0.0 if past is None else past.counts[name][k] / past.n
            now = promises.counts[name][:, k].mean()
            found.append(
                _check(f"{title} of {target}", tests, f"{in_percent(before)}", f"{in_percent(now)}")
            )
    return found


def _counted_test(held: np.ndarray, name: str, past: Past | None, k: int, where: str) -> Finding:
    n, count, stated = len(held), round(float(held.sum())), COUNTED[name]
    if past is not None:
        before = past.counts[name][k] / past.n
        p = counts_differ(past.counts[name][k], past.n, count, n)
        said = f"{in_percent(before)} when fitted"
    else:
        assert stated is not None
        said = f"not {in_percent(stated)} as is stated"
        before, p = stated, count_is_off(count, n, stated)
    off = count / n - before
    what = "the most probable class was right in" if stated is None else f"{name} intervals held"
    usual = 1 - (before if stated is None else stated)
    matters = abs(off) >= _WORTH_OUTSIDE * usual
    words = f"{what} {in_percent(count / n)} of {n:,} rows{where} ({said})"
    return Finding(p, words, matters, off < 0)


def _pits(
    promises: Promises,
    past: Past | None,
    names: Sequence[str],
    blocks: Sequence[slice],
    *,
    discrete: bool,
) -> list[Check]:
    """Return the checks of where in their stated distributions targets lie."""
    if past is None and discrete:  # what the PIT of counts looks like is only known from a fit
        return []
    found = []
    for k, values in enumerate(promises.pits.T):
        seen, tests = Sketch.uniform() if past is None else past.pits[k], []
        for rows, where in _parts(len(values), blocks):
            moved = seen.moved(values[rows])
            side = "higher" if moved.up > moved.down else "lower"
            usual = "is stated" if past is None else "when it was fitted"
            finding = (
                f"{names[k]} is {side} in its stated distributions than {usual}, in "
                f"{in_percent(moved.size)} of {len(values[rows]):,} rows{where}"
            )
            tests.append(Finding(moved.p, finding, moved.size >= _WORTH))
        texts = [f"median {v:.2f}" for v in (seen.quantile(0.5), float(np.median(values)))]
        found.append(_check(f"PIT of {names[k]}", tests, *texts))
    return found


def _losses(promises: Promises, past: Past, blocks: Sequence[slice], name: str) -> Check:
    """Return the check of the losses, which only larger ones fail."""
    losses, tests = promises.losses, []
    for rows, where in _parts(len(losses), blocks):
        moved, mean = past.losses.moved(losses[rows]), float(losses[rows].mean())
        finding = f"{name} is {mean:.3g}{where}, {past.mean_loss:.3g} when fitted"
        tests.append(Finding(moved.p_up, finding, moved.up >= _WORTH, True))
    worst = past.losses.values[-1]
    above = int((losses > worst).sum())
    finding = f"{count_rows(above)} of {len(losses):,} surprise the model more than any did before"
    p = more_extreme(1, past.n, above, len(losses))
    tests.append(Finding(p, finding, above > 0, True))
    return _check(name, tests, f"{past.mean_loss:.3g}", f"{losses.mean():.3g}")


# ---- over time ----------------------------------------------------------------------------------


def _courses(
    promises: Promises,
    past: Past | None,
    names: Sequence[str],
    blocks: Sequence[slice],
    loss: str,
) -> list[Course]:
    """Return what chance allows beside what was found in every block with at least two targets."""
    if not blocks or any(block.stop - block.start < 2 for block in blocks):
        return []
    sizes = np.array([block.stop - block.start for block in blocks], float)
    found = []
    shown = {"90 %": "90 % intervals held", "below": "below the stated median"}
    shown["right"] = "most probable class is right"
    for k, target in enumerate(names):
        for name, what in shown.items():
            if (held := promises.counts.get(name)) is None:
                continue
            share, rows = COUNTED[name], np.inf
            if past is not None:
                share, rows = past.counts[name][k] / past.n, float(past.n)
            values = np.array([held[block, k].mean() for block in blocks])
            low, high = (None, None) if share is None else _band(share, rows, sizes)
            found.append(Course(what, target, values, low, high, share, True))
    values = np.array([promises.losses[block].mean() for block in blocks])
    low = high = None
    if past is not None:
        reach = stats.norm.ppf(_ENDS[1]) * past.std_loss * np.sqrt(1 / sizes + 1 / past.n)
        low, high = past.mean_loss - reach, past.mean_loss + reach
    expected = None if past is None else past.mean_loss
    return [*found, Course(loss, "", values, low, high, expected, False)]


def _band(share: float, n: float, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return between which shares blocks lie, given a share that is itself one of n rows."""
    size = sizes if np.isinf(n) else sizes * n / (sizes + n)
    law: Callable[[float], np.ndarray] = stats.beta(
        share * size + 0.5, (1 - share) * size + 0.5
    ).ppf
    low, high = (np.asarray(law(level)) for level in _ENDS)
    return low, high
