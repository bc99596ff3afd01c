"""What monitoring finds: checks with their states, courses over time, and one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

#: In one table of how many without any change something is called one, at most.
ONE_IN = 50
STATES = ("green", "amber", "red")
_UNSEEN = "whether predictions still hold can only be seen with observed targets"


def in_percent(share: float) -> str:
    """Return a share of rows in words.

    Examples
    --------
    >>> in_percent(0.1234), in_percent(0.9)
    ('12.3 %', '90 %')
    """
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


@dataclasses.dataclass(frozen=True)
class Check:
    """Something that was looked at.

    Attributes
    ----------
    name
        Of a column, "rows outside", or of a score and its target.
    about
        "column", "rows" or "target".
    state
        "green" if the difference is one that chance allows, or too small to matter; "red" if
        predictions cannot be relied on; "amber" otherwise.
    p
        Probability of such a difference by chance in any of the checks; 1 if it is too small to
        matter.
    finding
        What has changed, in words; "" if it is green.
    before, now
        What was and what is typical, in words; "" where nothing is.
    moved
        Share of rows that would have to lie elsewhere for there to be no difference; None where it
        is not known.
    missing, outside
        Of a column: shares of rows without a value, then and now, and share beyond what training
        has seen. None where it is not known.
    cells
        Of a column: names of cells, shares then, shares now.
    """

    name: str
    about: str
    state: str
    p: float
    finding: str
    before: str = ""
    now: str = ""
    moved: float | None = None
    missing: tuple[float | None, float] | None = None
    outside: float | None = None
    cells: tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...]] | None = None

    def decided(self, p: float) -> Check:
        """Return it with a probability corrected for all checks, and green if that is large."""
        if p <= 1 / ONE_IN:
            return dataclasses.replace(self, p=p)
        return dataclasses.replace(self, p=p, state="green", finding="")


@dataclasses.dataclass(frozen=True)
class Course:
    """A number over time, in blocks of about as many rows.

    Attributes
    ----------
    name
        What it is.
    target
        Of which target; "" for all.
    values
        Shape (blocks,).
    low, high
        Between which it is in 19 of 20 blocks by chance.
    expected
        What it was when the model was fitted, or is stated to be; None if neither is known.
    is_share
        Whether it is a share of rows.
    """

    name: str
    target: str
    values: np.ndarray
    low: np.ndarray | None
    high: np.ndarray | None
    expected: float | None
    is_share: bool


@dataclasses.dataclass(frozen=True)
class Monitored:
    """A model on a new table: what has changed, beyond what chance allows.

    Attributes
    ----------
    state
        "green", "amber" or "red".
    sentence
        Why.
    n_rows, n_targets
        Rows looked at, and those of them with observed targets.
    checks
        In the order of columns, rows, targets.
    courses
        Over time; none with too few rows.
    blocks
        For each block of rows what it is called, such as "rows 1 to 50".
    pits
        By target the stated probabilities of less than was observed, shape (rows,).
    least
        Share of a column's rows that must lie elsewhere to be seen; None if no column has a test.
    notes
        What cannot be seen, and other remarks.
    """

    state: str
    sentence: str
    n_rows: int
    n_targets: int
    checks: tuple[Check, ...]
    courses: tuple[Course, ...]
    blocks: tuple[str, ...]
    pits: dict[str, np.ndarray]
    least: float | None
    notes: tuple[str, ...]

    @property
    def changed(self) -> list[Check]:
        """What is not green, the worst first."""
        return _worst_first(self.checks)

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain names and numbers."""
        found = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        found["checks"] = [vars(check) for check in self.checks]
        found["courses"] = [vars(course) for course in self.courses]
        return found


class Finding(NamedTuple):
    """A test of a check.

    Attributes
    ----------
    p
        Probability of such a difference by chance, or more of it.
    words
        What there is.
    matters
        Whether the difference is large enough.
    worse
        Whether predictions can be relied on less.
    """

    p: float
    words: str
    matters: bool
    worse: bool = False


def in_one(tests: Sequence[Finding]) -> Finding:
    """Return what several tests say together: the words of the one that says most.

    Its probability is corrected for their number (Bonferroni); it is 1 if nothing matters.

    Examples
    --------
    >>> in_one([Finding(0.01, "some more", True), Finding(0.001, "few", False)])[:2]
    (0.02, 'some more')
    """
    found = min(tests, key=lambda test: (not test.matters, test.p))
    return found._replace(p=min(1.0, len(tests) * found.p) if found.matters else 1.0)


def _worst_first(checks: Sequence[Check]) -> list[Check]:
    """Return checks that are not green: red ones first, targets before rows before columns."""
    found = [check for check in checks if check.state != "green"]
    order = ("target", "rows", "column")
    return sorted(found, key=lambda c: (-STATES.index(c.state), order.index(c.about)))


def summed_up(checks: list[Check], problem: str, targets: str, n_rows: int) -> tuple[str, str]:
    """Return the state of all, and the sentence that says why.

    Parameters
    ----------
    checks
        All of them.
    problem
        Why nothing can be predicted; "" if it can.
    targets
        Names of targets that were observed; "" if none were.
    n_rows
        How many there are.

    Examples
    --------
    >>> print(summed_up([Check("x", "column", "green", 1.0, "")], "", "y", 500)[1][:52])
    Green: nothing has changed beyond what chance allows
    """
    if problem:
        return "red", f"Red: the model cannot predict these rows: {problem}."
    changed = _worst_first(checks)
    columns = [check for check in checks if check.about == "column"]
    state = changed[0].state if changed else "green"
    if state == "green":
        said = f"{len(columns)} column{'s' * (len(columns) != 1)} of {n_rows:,} rows"
        said = f"Green: nothing has changed beyond what chance allows in {said}"
        seen = f", nor in the predictions of {targets}" if targets else f"; {_UNSEEN}"
        return state, f"{said}{seen}."
    if state == "red":
        kept = "do not rely on the predictions, and fit again with newer rows"
    elif not targets:
        kept = _UNSEEN
    elif any(check.about == "target" for check in changed):
        kept = "what is stated of the predictions is not quite right any more"
    else:
        kept = f"the predictions of {targets} still hold what they state"
    also, shifted = "", sum(check.about == "column" for check in changed[1:])
    if len(changed) > 1:
        also = f" ({len(changed) - 1} more of {len(checks)} checks"
        also += f", {shifted} of them columns)" if shifted else ")"
    return state, f"{state.capitalize()}: {changed[0].finding}{also}; {kept}."
