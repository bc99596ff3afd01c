"""What stands before and after the results of a row: its ids, and what is outside about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pyarrow as pa

from varprop.tables.columns import Encoded, Preprocessing
from varprop.tables.source import Source
from varprop.tables.text import TableError


@dataclasses.dataclass(frozen=True)
class Keys:
    """By what a row of predictions is known: its ids, or its number, from 1, if there are none.

    Attributes
    ----------
    source
        The table.
    ids
        Types of the id columns, by name.
    """

    source: Source
    ids: dict[str, pa.DataType]

    @classmethod
    def of(cls, preprocessing: Preprocessing, source: Source) -> Keys:
        """Return the keys of a table."""
        ids = {}
        for name in preprocessing.ids:
            kind = source.types.get(name, pa.string())
            ids[name] = kind.value_type if pa.types.is_dictionary(kind) else kind
        return cls(source, ids)

    def schema(self, names: Sequence[str], *, text: Sequence[str] = ()) -> pa.Schema:
        """Return names and types of all columns: keys, results and ``outside``.

        Parameters
        ----------
        names
            Of the results, numbers.
        text
            Those of them that are text.

        Raises
        ------
        TableError
            If an id has the name of a result.
        """
        clash = sorted({*names, "outside"} & set(self.ids))
        if clash:
            raise TableError(f"the id column {clash[0]!r} has the name of a result: rename it.")
        keys = self.ids or {"row": pa.int64()}
        results = [(name, pa.string() if name in text else pa.float64()) for name in names]
        return pa.schema([*keys.items(), *results, ("outside", pa.string())])

    def arrays(self, block: Encoded) -> list[pa.Array]:
        """Return the keys of some rows."""
        arrays = [] if self.ids else [pa.array(block.numbers + 1, pa.int64())]
        for name, kind in self.ids.items():
            cells = block.cells.column(name)
            try:
                arrays.append(cells.cast(kind))
            except pa.ArrowException as error:
                place = self.source.where(int(block.numbers[0]))
                raise TableError(
                    f"column {name!r} has the type {cells.type} in {place}, but another before it: "
                    "give all files the same types."
                ) from error
        return arrays
