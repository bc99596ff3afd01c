"""From a raw table to the inputs of a network: learned once, kept in the model file as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from varprop.tables.columns import (
    CategoryColumn,
    Cells,
    Column,
    NumberColumn,
    first_out_of_range,
    range_error,
)
from varprop.tables.errors import TableError

#: Version of the JSON below.
VERSION = 1

MISSING = ("error", "drop", "impute")
UNSEEN = ("error", "average")


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Rows as a network takes them.

    Attributes
    ----------
    X
        Shape (rows, features), finite.
    X_std
        Uncertainty of X where a value is unknown, of the same shape; None if all are known.
    complete
        Shape (rows,): False where the policy "drop" leaves a row without a prediction.
    n_imputed, n_unseen
        Rows with a missing number or category that was filled in, and with a category that
        training has not seen.
    """

    X: np.ndarray
    X_std: np.ndarray | None
    complete: np.ndarray
    n_imputed: int
    n_unseen: int


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """What was learned of a table's columns.

    Attributes
    ----------
    inputs
        Columns the network sees, in order.
    targets, ids, dropped
        Names of the other columns.
    missing
        "error", "drop" or "impute".

    Examples
    --------
    >>> color = CategoryColumn("color", "text", ("blue", "red"), (3, 1))
    >>> pre = Preprocessing((NumberColumn("size", 2.0, 1.0), color), ("price",), (), (), "impute")
    >>> pre.feature_names
    ['size', 'color=blue', 'color=red']
    >>> table = pa.table({"size": [None, 5.0], "color": ["red", "blue"]})
    >>> rows = pre.encode(table, lambda row: f"row {row + 1}")
    >>> rows.X.tolist(), rows.X_std[:, 0].tolist()
    ([[2.0, 0.0, 1.0], [5.0, 1.0, 0.0]], [1.0, 0.0])
    >>> Preprocessing.from_json(pre.to_json()) == pre
    True
    """

    inputs: tuple[Column, ...]
    targets: tuple[str, ...]
    ids: tuple[str, ...]
    dropped: tuple[str, ...]
    missing: str

    @property
    def feature_names(self) -> list[str]:
        """Names of the network's inputs; a category has one for each level."""
        return [name for column in self.inputs for name in column.feature_names]

    def slices(self) -> dict[str, slice]:
        """Return where the features of each column stand."""
        found, start = {}, 0
        for column in self.inputs:
            stop = start + len(column.feature_names)
            found[column.name] = slice(start, stop)
            start = stop
        return found

    def encode(
        self,
        table: pa.Table | pa.RecordBatch,
        where: Callable[[int], str],
        *,
        unseen: str = "error",
    ) -> Encoded:
        """Turn rows into inputs of the network.

        Parameters
        ----------
        table
            Has all input columns, of the right types.
        where
            Says where a row of this table stands, for errors.
        unseen
            "error", or "average" to take a category that training has not seen as unknown.
        """
        n = table.num_rows
        slices = self.slices()
        # Columns of this array are written one by one, so they are what must be contiguous.
        X = np.empty((n, len(self.feature_names)), order="F")
        std = None
        complete, imputed, unseen_rows = np.ones(n, bool), np.zeros(n, bool), np.zeros(n, bool)
        for column in self.inputs:
            cells = table.column(column.name)
            block = column.encode(cells)
            X[:, slices[column.name]] = block.values
            if isinstance(column, NumberColumn):
                bad = first_out_of_range(block.values[:, 0])
                if bad is not None:
                    raise range_error(block.values[bad, 0], column.name, where(bad))
            if not block.missing.any() and not block.unknown.any():
                continue
            if self.missing == "error" and block.missing.any():
                raise _missing_error(column, where(int(np.argmax(block.missing))))
            if block.unseen.any() and unseen == "error":
                row = int(np.argmax(block.unseen))
                raise _unseen_error(column, cells, row, where(row))
            if self.missing == "drop":
                complete &= ~block.missing
            else:
                imputed |= block.missing
            unseen_rows |= block.unseen
            if block.unknown.any():
                if std is None:
                    std = np.zeros((n, X.shape[1]), order="F")
                std[block.unknown, slices[column.name]] = np.sqrt(column.variances)
        return Encoded(X, std, complete, int(imputed.sum()), int(unseen_rows.sum()))

    # ---- JSON -------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return what the model file holds."""
        kinds = {NumberColumn: "number", CategoryColumn: "category"}
        inputs = []
        for column in self.inputs:
            entry = {"kind": kinds[type(column)], **dataclasses.asdict(column)}
            inputs.append({k: list(v) if isinstance(v, tuple) else v for k, v in entry.items()})
        return {
            "version": VERSION,
            "inputs": inputs,
            "targets": list(self.targets),
            "ids": list(self.ids),
            "dropped": list(self.dropped),
            "missing": self.missing,
        }

    @classmethod
    def from_json(cls, content: Any) -> Preprocessing:
        """Read what `to_json` wrote, and trust nothing of it."""
        keys = {"version", "inputs", "targets", "ids", "dropped", "missing"}
        if isinstance(content, dict) and content.get("version", VERSION) != VERSION:
            raise TableError(
                "the model file describes its table in a way this version does not know: load it "
                "with the varprop that wrote it."
            )
        _demand(isinstance(content, dict) and set(content) == keys)
        _demand(isinstance(content["inputs"], list) and bool(content["inputs"]))
        _demand(content["missing"] in MISSING)
        inputs = tuple(_column(entry) for entry in content["inputs"])
        roles = [_names(content[role]) for role in ("targets", "ids", "dropped")]
        names = [column.name for column in inputs] + [name for role in roles for name in role]
        _demand(len(set(names)) == len(names) and bool(roles[0]))
        targets, ids, dropped = roles
        return cls(inputs, targets, ids, dropped, content["missing"])


def _demand(condition: bool) -> None:
    if not condition:
        raise TableError("the model file's description of its table is damaged.")


def _names(value: Any) -> tuple[str, ...]:
    _demand(isinstance(value, list) and all(isinstance(name, str) for name in value))
    return tuple(value)


def _column(entry: Any) -> Column:
    _demand(isinstance(entry, dict) and isinstance(entry.get("name"), str))
    if entry.get("kind") == "number":
        _demand(set(entry) == {"kind", "name", "mean", "var"})
        mean, var = entry["mean"], entry["var"]
        _demand(type(mean) is float and type(var) is float)
        _demand(math.isfinite(mean) and 0 <= var < math.inf)
        return NumberColumn(entry["name"], mean, var)
    _demand(entry.get("kind") == "category")
    _demand(set(entry) == {"kind", "name", "values", "levels", "counts"})
    levels, counts = entry["levels"], entry["counts"]
    _demand(entry["values"] in ("text", "boolean"))
    _demand(isinstance(levels, list) and all(x is None or isinstance(x, str) for x in levels))
    _demand(isinstance(counts, list) and all(type(x) is int and 0 < x < 2**53 for x in counts))
    _demand(0 < len(levels) == len(counts) == len(set(levels)))
    return CategoryColumn(entry["name"], entry["values"], tuple(levels), tuple(counts))


def _missing_error(column: Column, place: str) -> TableError:
    return TableError(
        f"column {column.name!r} has no value in {place}: fill it in, or fit with --missing impute "
        "or --missing drop."
    )


def _unseen_error(column: Column, cells: Cells, row: int, place: str) -> TableError:
    assert isinstance(column, CategoryColumn)
    known = [str(level) for level in column.levels if level is not None]
    shown = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
    return TableError(
        f"column {column.name!r} is {str(cells[row])!r} in {place}, which the training data did "
        f"not have ({shown}): correct it, or use --unseen average."
    )


def check_columns(
    preprocessing: Preprocessing,
    names: tuple[str, ...],
    types: Mapping[str, pa.DataType],
    label: str,
) -> list[str]:
    """Check that a table has the input and id columns, of the right types.

    Parameters
    ----------
    preprocessing
        Of the model.
    names
        Columns of the table.
    types
        Types of those columns whose types are known before reading.
    label
        What errors call the table.

    Returns
    -------
    list of str
        Columns the model has never heard of.

    Examples
    --------
    >>> pre = Preprocessing((NumberColumn("size", 2.0, 1.0),), ("price",), (), (), "error")
    >>> check_columns(pre, ("size", "weight"), {}, "new.csv")
    ['weight']
    """
    inputs = {column.name: column for column in preprocessing.inputs}
    absent = [name for name in (*inputs, *preprocessing.ids) if name not in names]
    if absent:
        raise TableError(
            f"{label} has no column{'s' if len(absent) > 1 else ''} "
            f"{', '.join(map(repr, absent))}, which the model needs; it has "
            f"{', '.join(map(repr, names[:10]))}{', ...' if len(names) > 10 else ''}."
        )
    for name, column in inputs.items():
        if name in types and not column.accepts(types[name]):
            raise TableError(
                f"column {name!r} of {label} has the type {types[name]}, but the model was fitted "
                f"on {column.says}: convert the column."
            )
    known = {*inputs, *preprocessing.ids, *preprocessing.targets, *preprocessing.dropped}
    return [name for name in names if name not in known]


def join_rows(parts: list[Encoded]) -> Encoded:
    """Return several blocks as one, without the rows that have no prediction."""
    keep = np.concatenate([part.complete for part in parts])
    X = np.concatenate([part.X for part in parts])
    std = None
    if any(part.X_std is not None for part in parts):
        zeros = [np.zeros(part.X.shape) if part.X_std is None else part.X_std for part in parts]
        std = np.concatenate(zeros)
    if not keep.all():
        X, std = X[keep], None if std is None else std[keep]
    return Encoded(
        X,
        std,
        keep[keep],
        sum(part.n_imputed for part in parts),
        sum(part.n_unseen for part in parts),
    )
