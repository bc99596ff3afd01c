"""The one error of this package."""

from __future__ import annotations


class TableError(ValueError):
    """A table cannot be used as asked; the message is one sentence that says what to do.

    Examples
    --------
    >>> str(TableError("data.csv is empty."))
    'data.csv is empty.'
    """
