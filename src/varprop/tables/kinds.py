"""What a column holds, in one word, and how each kind of cells is read."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa


class ReadAs(NamedTuple):
    """How the cells of a column are read: in words, in text files, and in files with types.

    Attributes
    ----------
    says
        What the cells are, in words.
    text_type
        What cells of a text file must be.
    kinds
        What a column of another file may hold, as `kind_of` says it.
    """

    says: str
    text_type: pa.DataType
    kinds: tuple[str, ...]


READ_AS = {
    "number": ReadAs("numbers", pa.float64(), ("integer", "number", "nothing")),
    "text": ReadAs("categories", pa.string(), ("text", "integer", "nothing")),
    "boolean": ReadAs("true or false", pa.bool_(), ("boolean", "nothing")),
}


def kind_of(type_: pa.DataType) -> str:
    """Return what a column of this type holds, in one word if it can be used.

    Examples
    --------
    >>> kind_of(pa.int8()), kind_of(pa.float32()), kind_of(pa.date32())
    ('integer', 'number', 'dates or times')
    """
    types = pa.types
    if types.is_dictionary(type_):
        type_ = type_.value_type
    if types.is_integer(type_):
        return "integer"
    if types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "text"
    if types.is_boolean(type_):
        return "boolean"
    if types.is_null(type_):
        return "nothing"
    return "dates or times" if types.is_temporal(type_) else f"the type {type_}"
