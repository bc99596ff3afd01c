"""What every mistake that a user can mend has in common."""

from __future__ import annotations


class InputError(ValueError):
    """Something was given that cannot be used: one sentence that says what is wrong and what to do.

    Examples
    --------
    >>> str(InputError("there is no file x.csv: check the path."))
    'there is no file x.csv: check the path.'
    """


class FitWarning(UserWarning):
    """A fit that should not be relied on as it is; the sentence says why and what to do.

    Examples
    --------
    >>> str(FitWarning("the network was pruned to a constant: give it more rows."))
    'the network was pruned to a constant: give it more rows.'
    """
