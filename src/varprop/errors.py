"""What every mistake that a user can mend has in common."""

from __future__ import annotations


class InputError(ValueError):
    """Something was given that cannot be used: one sentence that says what is wrong and what to do.

    Examples
    --------
    >>> str(InputError("there is no file x.csv: check the path."))
    'there is no file x.csv: check the path.'
    """
