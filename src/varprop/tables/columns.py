"""What is known of a column of the inputs, and how its cells become numbers.

An unknown value is fed as the training column's mean with the training column's variance as input
uncertainty. For a category this is done with its one-hot columns, whose means are the shares of the
levels.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from varprop.tables.errors import TableError

Cells: TypeAlias = pa.Array | pa.ChunkedArray

#: Beyond this a square, and with it a variance, comes near the end of float64.
LARGEST = 1e100


@dataclasses.dataclass(frozen=True)
class Block:
    """Cells of one column as numbers.

    Attributes
    ----------
    values
        Shape (rows, features); the mean where the value is unknown.
    missing, unseen
        Shape (rows,): no value, and a category that training has not seen.
    unknown
        Shape (rows,): where the training column stands in for a value.
    """

    values: np.ndarray
    missing: np.ndarray
    unseen: np.ndarray
    unknown: np.ndarray


@dataclasses.dataclass(frozen=True)
class NumberColumn:
    """Numbers, used as they are.

    Attributes
    ----------
    name
        In the table.
    mean, var
        Over the training rows that have a value.

    Examples
    --------
    >>> column = NumberColumn("size", 2.0, 1.5)
    >>> block = column.encode(pa.array([1.0, None]))
    >>> block.values.tolist(), block.unknown.tolist(), column.typical
    ([[1.0], [2.0]], [False, True], 2.0)
    """

    name: str
    mean: float
    var: float

    @property
    def feature_names(self) -> list[str]:
        """One name for each input of the network."""
        return [self.name]

    @property
    def means(self) -> np.ndarray:
        """Mean of each input of the network over the training rows."""
        return np.array([self.mean])

    @property
    def variances(self) -> np.ndarray:
        """Variance of each input of the network over the training rows."""
        return np.array([self.var])

    @property
    def typical(self) -> float:
        """What `varprop explain` puts in the place of a value."""
        return self.mean

    def typical_values(self) -> np.ndarray:
        """Return `typical` as inputs of the network."""
        return self.means

    def accepts(self, kind: pa.DataType) -> bool:
        """Whether a column of this type can be read as this one."""
        return is_number(kind) or pa.types.is_null(kind)

    @property
    def text_type(self) -> pa.DataType:
        """Type that cells of a text file must have."""
        return pa.float64()

    @property
    def says(self) -> str:
        """What its cells are, in words."""
        return "numbers"

    def encode(self, cells: Cells) -> Block:
        """Turn cells into numbers."""
        values = to_floats(cells)
        missing = np.isnan(values)
        if missing.any():
            values = np.where(missing, self.mean, values)
        return Block(values[:, None], missing, np.zeros(len(values), bool), missing)


@dataclasses.dataclass(frozen=True)
class CategoryColumn:
    """One of a few values, one input of the network for each.

    Attributes
    ----------
    name
        In the table.
    values
        "text", or "boolean" for true and false.
    levels
        Values seen in training; None among them is "missing", a level like any other.
    counts
        How often each was seen.

    Examples
    --------
    >>> column = CategoryColumn("color", "text", ("blue", "red"), (3, 1))
    >>> block = column.encode(pa.array(["red", "green"]))
    >>> block.values.tolist(), block.unseen.tolist(), column.typical
    ([[0.0, 1.0], [0.75, 0.25]], [False, True], 'blue')
    """

    name: str
    values: Literal["text", "boolean"]
    levels: tuple[str | None, ...]
    counts: tuple[int, ...]

    @property
    def feature_names(self) -> list[str]:
        """One name for each input of the network."""
        return [f"{self.name}={'(missing)' if x is None else x}" for x in self.levels]

    @property
    def means(self) -> np.ndarray:
        """Mean of each input of the network over the training rows."""
        return np.array(self.counts) / sum(self.counts)

    @property
    def variances(self) -> np.ndarray:
        """Variance of each input of the network over the training rows."""
        return self.means * (1 - self.means)

    @property
    def typical(self) -> str | None:
        """What `varprop explain` puts in the place of a value."""
        return self.levels[int(np.argmax(self.counts))]

    def typical_values(self) -> np.ndarray:
        """Return `typical` as inputs of the network."""
        return np.eye(len(self.levels))[int(np.argmax(self.counts))]

    def accepts(self, kind: pa.DataType) -> bool:
        """Whether a column of this type can be read as this one."""
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_null(kind):
            return True
        if self.values == "boolean":
            return pa.types.is_boolean(kind)
        return is_text(kind) or pa.types.is_integer(kind)

    @property
    def text_type(self) -> pa.DataType:
        """Type that cells of a text file must have."""
        return pa.bool_() if self.values == "boolean" else pa.string()

    @property
    def says(self) -> str:
        """What its cells are, in words."""
        return "true or false" if self.values == "boolean" else "categories"

    @functools.cached_property
    def _known(self) -> pa.Array:
        return pa.array([level for level in self.levels if level is not None], pa.string())

    def encode(self, cells: Cells) -> Block:
        """Turn cells into numbers."""
        text = to_text(cells)
        missing = np.asarray(text.is_null())
        found = pc.index_in(text, value_set=self._known).fill_null(-1)
        index = np.array(found, dtype=np.int64)
        known_places = [i for i, level in enumerate(self.levels) if level is not None]
        places = np.array([*known_places, -1])
        index = places[index]
        if None in self.levels:
            index[missing] = self.levels.index(None)
        unknown = index < 0
        values = np.zeros((len(index), len(self.levels)))
        rows = np.flatnonzero(~unknown)
        values[rows, index[rows]] = 1.0
        if unknown.any():
            values[unknown] = self.means
        return Block(values, missing, unknown & ~missing, unknown)


Column = NumberColumn | CategoryColumn


def is_number(kind: pa.DataType) -> bool:
    """Whether a column of this type holds numbers."""
    types = pa.types
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text."""
    types = pa.types
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def to_floats(cells: Cells) -> np.ndarray:
    """Return numbers as float64, NaN where there is none.

    Examples
    --------
    >>> to_floats(pa.array([1, None])).tolist()
    [1.0, nan]
    """
    if cells.type != pa.float64():
        cells = pc.cast(cells, pa.float64(), safe=False)
    return cells.to_numpy(zero_copy_only=False) if isinstance(cells, pa.Array) else cells.to_numpy()


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


def first_out_of_range(values: np.ndarray) -> int | None:
    """Return the first row with an infinite or far too large number, if there is one.

    Examples
    --------
    >>> first_out_of_range(np.array([1.0, np.nan, np.inf]))
    2
    """
    with np.errstate(invalid="ignore"):
        bad = np.abs(values) > LARGEST
    return int(np.argmax(bad)) if bad.any() else None


def range_error(value: float, name: str, place: str) -> TableError:
    """Return the error for a number that `first_out_of_range` found."""
    if np.isinf(value):
        return TableError(
            f"column {name!r} is infinite in {place}: correct it, or leave the cell empty for a "
            "missing value."
        )
    return TableError(
        f"column {name!r} is {value:g} in {place}, more than {LARGEST:g} in size: correct it or "
        "rescale the column."
    )
