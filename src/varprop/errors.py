"""What every mistake that a user can mend has in common."""

from __future__ import annotations

import re


class InputError(ValueError):
    """Something was given that cannot be used: one sentence that says what is wrong and what to do.

    Examples
    --------
    >>> str(InputError("there is no file x.csv: check the path."))
    'there is no file x.csv: check the path.'
    """


class TrainingError(ValueError):
    """Training became infinite or NaN; the sentence says what to try.

    Examples
    --------
    >>> issubclass(TrainingError, ValueError)
    True
    """


class FitWarning(UserWarning):
    """A fit that should not be relied on as it is; the sentence says why and what to do.

    Examples
    --------
    >>> str(FitWarning("the network was pruned to a constant: give it more rows."))
    'the network was pruned to a constant: give it more rows.'
    """


_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Return text that a terminal only shows: control characters become visible escapes.

    Examples
    --------
    >>> printable("\x1b[31mred")
    '\\x1b[31mred'
    """
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], text)
