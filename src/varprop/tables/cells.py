"""Cells of a column as numbers or as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varprop.tables.text import TableError

Cells: TypeAlias = pa.Array | pa.ChunkedArray

#: Beyond this (and, of a spread, below its inverse) variances, those of imputed cells and those of
#: a budget, come near the ends of float64.
LARGEST = 1e100


def to_floats(cells: Cells, name: str, where: Callable[[int], str]) -> np.ndarray:
    """Return numbers as float64, NaN where there is none, and refuse what is far too large.

    Examples
    --------
    >>> to_floats(pa.array([1, None]), "size", str).tolist()
    [1.0, nan]
    """
    values = np.asarray(pc.cast(cells, pa.float64(), safe=False))
    bad = np.abs(values) > LARGEST
    if bad.any():
        row = int(np.argmax(bad))
        if np.isinf(values[row]):
            raise TableError(
                f"column {name!r} is infinite in {where(row)}: correct it, or leave the cell empty "
                "for a missing value."
            )
        raise TableError(
            f"column {name!r} is {values[row]:g} in {where(row)}, more than {LARGEST:g} in size: "
            "correct it or rescale the column."
        )
    return values


def to_text(cells: Cells) -> Cells:
    """Return categories as text: dictionaries decoded, whole numbers and booleans written out.

    Examples
    --------
    >>> to_text(pa.array([True, None])).to_pylist()
    ['true', None]
    """
    if pa.types.is_dictionary(cells.type):
        cells = pc.cast(cells, cells.type.value_type)
    return cells if cells.type == pa.string() else pc.cast(cells, pa.string())
