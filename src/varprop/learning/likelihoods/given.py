"""What users hand over for their targets, and which columns of y it becomes. NumPy only."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from varprop.data.targets import TargetError

#: How a target is known: exactly, only that it is at most or at least the value, or to lie between.
EXACT, AT_MOST, AT_LEAST, BETWEEN = 0.0, 1.0, 2.0, 3.0


class Given(NamedTuple):
    """One way to say what was observed of d targets.

    Attributes
    ----------
    blocks
        Columns that are given for each target.
    columns
        Makes of given y, shape (rows, blocks d), and exposures, shape (rows,) or None, the columns
        to train on, block by block; raises `TargetError` for a row that cannot be.
    more
        Names of the blocks of columns after the targets' own.
    exposure
        Whether an exposure means something.
    """

    blocks: int
    columns: Callable[[np.ndarray, np.ndarray | None], np.ndarray]
    more: tuple[str, ...] = ()
    exposure: bool = False


def _numbers(y: np.ndarray, exposure: np.ndarray | None) -> np.ndarray:
    """Return numbers as they are."""
    return y


def _counts(y: np.ndarray, exposure: np.ndarray | None) -> np.ndarray:
    """Return counts, and the logarithm of the exposure for each of them."""
    bad = (y < 0) | (y != np.round(y)) & np.isfinite(y)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise TargetError(
            int(row), f"the count is {y[row, column]:g}", "counts are whole numbers from 0 on"
        )
    if exposure is None:
        return np.concatenate([y, np.zeros_like(y)], axis=1)
    bad = ~((exposure > 0) & np.isfinite(exposure))
    if bad.any():
        row = int(np.argmax(bad))
        raise TargetError(
            row, f"the exposure is {exposure[row]:g}", "it must be positive and finite"
        )
    return np.concatenate([y, np.broadcast_to(np.log(exposure)[:, None], y.shape)], axis=1)


def _bounds(y: np.ndarray, exposure: np.ndarray | None) -> np.ndarray:
    """Return bounds as a finite value, what it is a bound of, and the upper one of an interval."""
    lower, upper = np.split(y, 2, axis=1)
    left, right = np.isneginf(lower), np.isposinf(upper)
    value = np.where(left, upper, lower)
    for bad, what, advice in (
        (lower > upper, "lies above the upper one", "exchange the two"),
        (left & right, "is -inf and the upper one inf", "leave out rows that say nothing"),
        (
            np.isposinf(lower) | np.isneginf(upper),
            "is inf, or the upper one -inf",
            "look for typos",
        ),
    ):
        if bad.any():
            raise TargetError(int(np.argwhere(bad)[0][0]), f"the lower bound {what}", advice)
    code = np.where(left, AT_MOST, np.where(right, AT_LEAST, BETWEEN))
    code = np.where(lower == upper, EXACT, code)
    return np.concatenate([value, code, np.where(code == BETWEEN, upper, value)], axis=1)


#: A number for each target.
NUMBERS = Given(1, _numbers)
#: A count for each target, and how much there was to count in.
COUNTS = Given(1, _counts, ("log exposure",), exposure=True)
#: A lower and an upper bound for each target.
BOUNDS = Given(2, _bounds, ("kind", "upper"))


def logarithms(y: np.ndarray, scaled: tuple[bool, ...]) -> np.ndarray:
    """Return columns with the targets' own, those in their units, as logarithms.

    Parameters
    ----------
    y
        Shape (rows, columns).
    scaled
        For every block of columns, whether it is in the targets' units.

    Raises
    ------
    TargetError
        Naming the first row that is not positive.
    """
    blocks = np.split(y, len(scaled), axis=1)
    if len(blocks) == 3:  # a positive target's lower bound of 0 is none
        (value, code, upper), none = blocks, (blocks[0] == 0) & (blocks[1] == BETWEEN)
        blocks = [np.where(none, upper, value), np.where(none, AT_MOST, code), upper]
    for block, one in zip(blocks, scaled, strict=True):
        if one and (block <= 0).any():
            row, column = np.argwhere(block <= 0)[0]
            raise TargetError(
                int(row),
                f"the target is {block[row, column]:g}",
                "a logarithm needs positive ones; choose another likelihood",
            )
    found = [np.log(b) if one else b for b, one in zip(blocks, scaled, strict=True)]
    return np.concatenate(found, axis=1)


def exponentials(y: np.ndarray, scaled: tuple[bool, ...]) -> np.ndarray:
    """Return what `logarithms` had the logarithms of."""
    blocks = np.split(y, len(scaled), axis=1)
    found = [np.exp(b) if one else b for b, one in zip(blocks, scaled, strict=True)]
    return np.concatenate(found, axis=1)
