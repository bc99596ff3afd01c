"""Parquet files as a source: a block is a row group."""

from __future__ import annotations

import dataclasses
import glob
import os
import pathlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from varprop.data.source import PIECE_ROWS, AbstractSource, Rows, SourceError, check_roles

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

# Read through a buffer of this size and not whole: a row group may be larger than memory.
_READ_BYTES = 2**20


@dataclasses.dataclass(frozen=True)
class _File:
    path: pathlib.Path
    size: int
    modified: int
    metadata: Any
    names: tuple[str, ...]


class ParquetFiles:
    """One or more Parquet files whose row groups are blocks; only their metadata is read at first.

    A file that changes later is refused when it is read next.

    Parameters
    ----------
    paths
        As in `ParquetSource`.

    Examples
    --------
    >>> import tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.parquet"
    >>> pq.write_table(pa.table({"x": [1, 2, 3]}), path, row_group_size=2)
    >>> ParquetFiles(path).block_rows
    (2, 1)
    """

    def __init__(self, paths: Paths):
        self.files = tuple(map(_described, find_files(paths)))
        self.names = self.files[0].names
        self._blocks = tuple(
            (file, group) for file in self.files for group in range(file.metadata.num_row_groups)
        )
        self.block_rows = tuple(
            file.metadata.row_group(group).num_rows for file, group in self._blocks
        )
        if not sum(self.block_rows):
            first = self.files[0].path.name
            only = f"{first} has a header but no rows."
            raise SourceError(only if len(self.files) == 1 else "no file has rows.")

    def where(self, block: int, row: int) -> str:
        """Name the file and the row in it, the first being row 1."""
        file, group = self._blocks[block]
        before = sum(file.metadata.row_group(g).num_rows for g in range(group))
        return f"row {before + row + 1} of {file.path.name}"

    def read(self, block: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a row group, decoded a piece at a time."""
        file, group = self._blocks[block]
        try:
            stat = file.path.stat()
        except OSError as error:
            raise SourceError(f"{file.path.name} has gone since it was first looked at.") from error
        if (stat.st_size, stat.st_mtime_ns) != (file.size, file.modified):
            raise SourceError(
                f"{file.path.name} was changed since it was first looked at: start again."
            )
        absent = [name for name in columns if name not in file.names]
        if absent:
            raise SourceError(
                f"{file.path.name} has no column {absent[0]!r}, but "
                f"{self.files[0].path.name} has one."
            )
        try:
            with pq.ParquetFile(file.path, buffer_size=_READ_BYTES, pre_buffer=False) as opened:
                yield from opened.iter_batches(
                    PIECE_ROWS, row_groups=[group], columns=list(columns)
                )
        except (pa.ArrowException, OSError) as error:
            raise SourceError(
                f"{file.path.name} is damaged, row group {group + 1} cannot be read: write it anew."
            ) from error


class ParquetSource(AbstractSource):
    """One or more Parquet files with columns of numbers.

    All files are opened and compared when this is made, but only their metadata is read.

    Parameters
    ----------
    paths
        A file, a folder (all ``*.parquet`` files in and below it, in alphabetical order, but none
        whose name begins with a dot or an underscore), a pattern such as ``"data/*.parquet"``, or
        a list of these.
    features
        Columns that are inputs; all that are neither targets nor weight unless given. Then every
        file must have the same columns.
    targets
        Column or columns to predict.
    weight
        Column of sample weights, if any; 2 means that a row counts twice.

    Raises
    ------
    SourceError
        If a file cannot be read, or lacks a column, or has one that does not hold numbers.

    Examples
    --------
    >>> import tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("a", "b"):
    ...     pq.write_table(pa.table({"x": [1.0, 2.0, 3.0], "y": [1, 2, 3]}),
    ...                    folder / f"{name}.parquet", row_group_size=2)
    >>> source = ParquetSource(folder, targets="y")
    >>> source.features, source.n_rows, source.block_rows
    (('x',), 6, (2, 1, 2, 1))
    >>> next(source.read(2)).y.tolist(), source.where(3, 0)
    ([[1.0], [2.0]], 'row 3 of b.parquet')
    """

    def __init__(
        self,
        paths: Paths,
        *,
        features: Sequence[str] | None = None,
        targets: Sequence[str] | str,
        weight: str | None = None,
    ):
        self._files = files = ParquetFiles(paths)
        label = files.files[0].path.name
        self.features, self.targets = check_roles(files.names, features, targets, weight, label)
        self.weight_name, self.uncertain = weight, False
        for file in files.files:
            more = [name for name in file.names if name not in files.names]
            if features is None and more:
                raise SourceError(
                    f"{file.path.name} has a column {more[0]!r}, but {label} has none: name the "
                    "inputs."
                )
            _check_columns(file, self.columns, label)

    @property
    def block_rows(self) -> tuple[int, ...]:
        """Number of rows in every row group."""
        return self._files.block_rows

    def where(self, block: int, row: int) -> str:
        """Name the file and the row in it, the first being row 1."""
        return self._files.where(block, row)

    def read(self, block: int) -> Iterator[Rows]:
        """Yield the rows of a row group, decoded a piece at a time."""
        start, n, d = 0, len(self.features), len(self.targets)
        for batch in self._files.read(block, self.columns):
            numbers = np.empty((batch.num_rows, len(self.columns)))
            for place, name in enumerate(self.columns):
                cells = batch.column(name)
                if cells.null_count:
                    holes = cells.is_null().to_numpy(zero_copy_only=False)
                    raise _missing(name, self.where(block, start + int(np.argmax(holes))))
                if pa.types.is_decimal(cells.type):
                    cells = cells.cast(pa.float64())
                numbers[:, place] = cells.to_numpy(zero_copy_only=False)
            weight = None if self.weight_name is None else numbers[:, -1]
            yield Rows(numbers[:, :n], numbers[:, n : n + d], weight)
            start += batch.num_rows


def find_files(paths: Paths) -> list[pathlib.Path]:
    """Return the files that a path, a folder, a pattern or a list of these stands for.

    Parameters
    ----------
    paths
        As in `ParquetSource`.

    Examples
    --------
    >>> import tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name in ("b.parquet", "a.parquet", "_metadata.parquet", "notes.txt"):
    ...     (folder / name).touch()
    >>> [path.name for path in find_files(folder)]
    ['a.parquet', 'b.parquet']
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise SourceError("there is no file: give at least one.")
    found: list[pathlib.Path] = []
    for entry in listed:
        path = pathlib.Path(entry)
        if path.is_dir():
            inside = sorted(
                file
                for file in path.rglob("*.parquet")
                if not any(part[0] in "._" for part in file.relative_to(path).parts)
            )
            if not inside:
                raise SourceError(f"the folder {path} has no file *.parquet.")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            matched = sorted(glob.glob(os.fspath(entry)))
            if not matched:
                raise SourceError(f"there is no file {path}: check the path.")
            found += map(pathlib.Path, matched)
    for path, count in Counter(found).items():
        if count > 1:
            raise SourceError(f"{path} is given {count} times: its rows would count as often.")
    return found


def _described(path: pathlib.Path) -> _File:
    try:
        stat = path.stat()
        with pq.ParquetFile(path, buffer_size=_READ_BYTES, pre_buffer=False) as file:
            metadata = file.metadata
    except PermissionError as error:
        raise SourceError(f"{path.name} may not be read: ask for permission.") from error
    except (pa.ArrowException, OSError) as error:
        raise SourceError(
            f"{path.name} is no Parquet file, or damaged or cut short: write it again or leave it "
            "out."
        ) from error
    names = tuple(metadata.schema.to_arrow_schema().names)
    for name, count in Counter(names).items():
        if count > 1:
            raise SourceError(
                f"{path.name} has {count} columns named {name!r}: rename all but one."
            )
    return _File(path, stat.st_size, stat.st_mtime_ns, metadata, names)


def _check_columns(file: _File, columns: Sequence[str], label: str) -> None:
    """Compare a file with what the first one has promised: columns of numbers, none missing."""
    metadata, path = file.metadata, file.path
    schema = metadata.schema.to_arrow_schema()
    places = {metadata.schema.column(i).path: i for i in range(metadata.num_columns)}
    for name in columns:
        if name not in file.names:
            raise SourceError(f"{path.name} has no column {name!r}, but {label} has one.")
        kind = schema.field(name).type
        n_null = 0  # by the counts that writers leave in the metadata, if they do
        for group in range(metadata.num_row_groups if name in places else 0):
            counts = metadata.row_group(group).column(places[name]).statistics
            if counts is not None and counts.has_null_count:
                n_null += counts.null_count
        if pa.types.is_null(kind) or (n_null and n_null == metadata.num_rows):
            raise SourceError(
                f"column {name!r} of {path.name} holds nothing but missing values: fill them in, "
                "or leave the column or the file out."
            )
        types = pa.types
        if not (
            types.is_integer(kind)
            or types.is_floating(kind)
            or types.is_boolean(kind)
            or types.is_decimal(kind)
        ):
            raise SourceError(
                f"column {name!r} of {path.name} holds {kind}, not numbers: encode it as numbers "
                "first, or leave it out."
            )
        if n_null:
            raise _missing(name, f"{n_null} of {metadata.num_rows} rows of {path.name}")


def _missing(name: str, where: str) -> SourceError:
    return SourceError(
        f"column {name!r} has no value in {where}: fill it in, or leave those rows or the column "
        "out."
    )
