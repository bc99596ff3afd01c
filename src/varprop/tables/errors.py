"""The one error of this package, and how its sentences count."""

from __future__ import annotations

from varprop.errors import InputError


class TableError(InputError):
    """A table cannot be used as asked; the message is one sentence that says what to do.

    Examples
    --------
    >>> str(TableError("data.csv is empty."))
    'data.csv is empty.'
    """


def count_rows(count: int) -> str:
    """Return a number of rows in words.

    Examples
    --------
    >>> count_rows(1), count_rows(2)
    ('1 row', '2 rows')
    """
    return f"{count} row" if count == 1 else f"{count} rows"
