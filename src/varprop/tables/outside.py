"""Rows of a table that lie outside of what training has seen, in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from varprop.tables.columns import CategoryColumn, Encoded, Preprocessing


def outside_words(regressor: Any, preprocessing: Preprocessing, rows: Encoded) -> list[str | None]:
    """Say of each row what is unlike all that training has seen; None if nothing is.

    Parameters
    ----------
    regressor
        Knows the range of its training rows.
    preprocessing
        Names the inputs.
    rows
        All complete.

    Returns
    -------
    list of str or None
        Such as "depth is 6000, seen 43 to 79", "city is 'Rom', which training did not have" or "an
        unusual combination of inputs".
    """
    names = preprocessing.feature_names
    said: list[list[str]] = [[] for _ in rows.X]
    if regressor.domain_ is not None:
        for row in np.flatnonzero(regressor.domain_.outside(rows.X).rows):
            said[row].append(regressor.domain_.words(rows.X[row], names))
    if rows.X_std is not None:
        for column, place in zip(preprocessing.inputs, preprocessing.slices, strict=True):
            if not isinstance(column, CategoryColumn):
                continue
            cells = rows.cells.column(column.name)
            for row in np.flatnonzero(rows.X_std[:, place].any(axis=1)):
                value = cells[int(row)].as_py()
                if value is not None:
                    said[row].append(f"{column.name} is {value!r}, which training did not have")
    return ["; ".join(parts) or None for parts in said]
