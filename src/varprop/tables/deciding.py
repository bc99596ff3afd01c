"""What the targets of a training table are taken as, and the sentence that says so and why."""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from varprop.tables.columns import count_rows
from varprop.tables.levels import merged
from varprop.tables.looked import MAX_CLASSES, LookedAt
from varprop.tables.outcomes import LIKELIHOODS, Outcome, in_order, number_name
from varprop.tables.roles import Roles
from varprop.tables.source import Source

#: Different whole numbers, fewer than so many, that are offered to be counts.
FEW_COUNTS = 30
# Rows with each of two numbers, at least, that make them classes.
_OFTEN = 5
_GRADES = 10


def decide(
    targets: Sequence[LookedAt], roles: Roles, likelihood: str
) -> tuple[Outcome, list[str], list[str]]:
    """Decide what the targets are, once all rows were looked at.

    Parameters
    ----------
    targets
        The columns.
    roles
        Which columns say more of them.
    likelihood
        What the user asked for; "auto" to go by the cells.

    Returns
    -------
    outcome, notes, problems
        And the sentences to be said.
    """
    problems = _misfit(roles, likelihood, len(targets))
    kind = LIKELIHOODS.get(likelihood)
    outcome = Outcome(kind or "numbers", likelihood if kind else "gaussian")
    notes: list[str] = []
    if problems or not targets:
        return outcome, notes, problems
    if likelihood == "auto":
        if roles.censoring is not None or roles.upper is not None:
            outcome = Outcome("censored", "censored")
        elif roles.exposure is not None:
            outcome = Outcome("counts", "negative-binomial")
            notes.append(
                f"targets are taken as counts in proportion to {roles.exposure!r}: --likelihood "
                "negative-binomial, for any spread (poisson is the other choice)."
            )
        elif len(targets) == 1 and (why := _class_like(targets[0])):
            outcome = Outcome("classes", "auto")
            notes.append(why)
        elif len(targets) == 1 and (offer := _rarely_one(targets[0]) or _count_like(targets[0])):
            notes.append(offer)
    outcome = dataclasses.replace(
        outcome, exposure=roles.exposure, censoring=roles.censoring, upper=roles.upper
    )
    if outcome.kind == "classes":
        return _with_classes(outcome, targets[0], problems), notes, problems
    for column in targets:
        if likelihood != "auto" and column.kind in ("text", "boolean"):
            column.as_number = likelihood
    return outcome, notes, problems


def _misfit(roles: Roles, likelihood: str, n_targets: int) -> list[str]:
    """Say which options do not go together."""
    kind = LIKELIHOODS.get(likelihood, "")
    found = []
    if roles.exposure is not None and kind not in ("", "counts"):
        found.append(f"--exposure is for counts, but --likelihood is {likelihood}.")
    ranges = roles.censoring is not None or roles.upper is not None
    if ranges and kind not in ("", "censored"):
        found.append(
            f"--censoring and --upper are for --likelihood censored, but it is {likelihood}."
        )
    if roles.censoring is not None and roles.upper is not None:
        found.append("--censoring and --upper are two ways to say one thing: give one of them.")
    if kind == "censored" and not ranges:
        found.append(
            f"--likelihood {likelihood} needs --censoring or --upper, the column that says which "
            "targets are not exact."
        )
    if ranges and roles.exposure is not None:
        found.append("--exposure is for counts, which cannot be censored.")
    if n_targets > 1 and (kind == "classes" or ranges):
        what = "a class" if kind == "classes" else "a censored target"
        found.append(f"{what} is predicted alone, but there are {n_targets} targets: fit each.")
    return found


def _class_like(column: LookedAt) -> str:
    """Say why a target's values are classes; nothing if they are not."""
    name = column.name
    if column.kind == "boolean":
        return f"target {name!r} is true or false: the probability of each is predicted."
    if column.kind == "text" and (not column.mostly_numbers or column.few_codes):
        found = merged(column.seen)
        shown = ", ".join(map(repr, in_order(found, "text")[:5]))
        shown += ", ..." if len(found) > 5 else ""
        said = f"target {name!r} holds text ({shown}): the probability of each class is predicted"
        if column.few_codes:
            said += f" (--number {shlex.quote(name)} takes it as numbers)"
        return f"{said}."
    values = column.distinct
    if column.kind == "number" and len(values) == 2 and min(values.values()) >= _OFTEN:
        low, high = map(number_name, sorted(values))
        return (
            f"target {name!r} has only the values {low} and {high}: the probability of each is "
            "predicted (--likelihood gaussian takes them as numbers)."
        )
    return ""


def _rarely_one(column: LookedAt) -> str:
    """Say that two numbers are not taken as classes, since one of them is rare."""
    values = column.distinct
    if column.kind != "number" or len(values) != 2:
        return ""
    rare = min(values, key=values.__getitem__)
    low, high = map(number_name, sorted(values))
    return (
        f"target {column.name!r} has only the values {low} and {high}, but {number_name(rare)} in "
        f"{count_rows(np.ones(values[rare], bool))} only, and is taken as numbers: --likelihood "
        "logit predicts the probability of each."
    )


def _count_like(column: LookedAt) -> str:
    """Offer other likelihoods for few whole numbers."""
    values = column.distinct
    few = 2 < len(values) < FEW_COUNTS and 2 * len(values) <= column.n_filled
    if column.kind != "number" or not (few and column.whole and column.low >= 0):
        return ""
    said = f"target {column.name!r} has {len(values)} whole numbers from {column.low:g} to"
    grades = len(values) <= _GRADES and column.high - column.low + 1 == len(values)
    more = ", if they are grades --likelihood ordinal" if grades else ""
    return (
        f"{said} {column.high:g} and is taken as numbers: if they are counts --likelihood "
        f"negative-binomial (or poisson) may fit better{more}."
    )


def _with_classes(outcome: Outcome, column: LookedAt, problems: list[str]) -> Outcome:
    """Return the outcome with its classes; what is wrong with them is added to the problems."""
    column.as_classes = True
    name, counts = column.name, class_counts(column)
    values = {"text": "text", "boolean": "boolean"}.get(column.kind, "number")
    lonely = [level for level, count in counts.items() if count == 1]
    if column.kind == "number" and (not column.distinct or len(column.distinct) > MAX_CLASSES):
        problems.append(
            f"target {name!r} has more than {MAX_CLASSES} different values: these are no classes, "
            "leave out --likelihood."
        )
    elif len(counts) == 1 and values != "number":  # of numbers it is said anyway
        problems.append(
            f"target {name!r} is {next(iter(counts))!r} in all rows: there is nothing to learn."
        )
    elif outcome.likelihood in ("logit", "probit") and len(counts) > 2:
        problems.append(
            f"--likelihood {outcome.likelihood} is for two classes, but target {name!r} has "
            f"{len(counts)}: use softmax or ordinal."
        )
    elif outcome.likelihood == "ordinal" and values != "number":
        problems.append(
            f"--likelihood ordinal needs numbers, whose order is known, but target {name!r} holds "
            f"{'text' if values == 'text' else 'true or false'}: use softmax."
        )
    elif lonely and 2 * len(counts) <= column.n_filled:
        problems.append(
            f"target {name!r} is {lonely[0]!r} in only one row: a class needs two or more, so "
            "remove the row or join the class with another."
        )
    return dataclasses.replace(outcome, values=values, classes=in_order(counts, values))


def class_counts(column: LookedAt) -> Counter[str]:
    """Return how often each class was seen, by name."""
    if column.kind == "number":
        return Counter({number_name(value): n for value, n in column.distinct.items()})
    return merged(column.seen)


def look_closer(
    table: Source, outcome: Outcome, targets: Sequence[str], keep: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Check every target that is used.

    Parameters
    ----------
    table, outcome, targets
        Where they are, and what.
    keep
        Which rows are used.

    Returns
    -------
    codes, notes
        Of classes their number in every row, shape (rows,), else zeros; and sentences.

    Raises
    ------
    TableError
        If one cannot be: a negative count, an unknown code of censoring.
    """
    codes, found, first = np.zeros(len(keep), int), [], 0
    for batch in table.read(list(outcome.read_as(targets))):
        numbers = first + np.flatnonzero(keep[first : first + batch.num_rows])

        def where(row: int, numbers: np.ndarray = numbers) -> str:
            return table.where(int(numbers[row]))

        y = outcome.observed(batch.filter(pa.array(keep[first:][: batch.num_rows])), targets, where)
        first += batch.num_rows
        if outcome.kind == "classes":
            codes[numbers] = y[:, 0].astype(int)
        elif outcome.kind == "censored":
            found.append(y)
    if not found:
        return codes, []
    lower, upper = np.concatenate(found).T
    left, right, exact = np.isneginf(lower), np.isposinf(upper), lower == upper
    words = {
        "known to be at least so large (right-censored)": right,
        "known to be at most so large (left-censored)": left,
        "known as a range": ~(left | right | exact),
    }
    said = [f"{n:,} {word}" for word, rows in words.items() if (n := int(rows.sum()))]
    whole = ", ".join([f"{int(exact.sum()):,} are exact", *said])
    return codes, [f"of {len(lower):,} targets {whole}."]
