"""Readers of the files the data sets are published in: each returns inputs, then targets."""

from __future__ import annotations

import io
import pathlib
import zipfile
from collections.abc import Callable, Sequence

import numpy as np

from varprop.bench.registry import Dataset


class FormatError(ValueError):
    """A file is not in the format it should be in."""


def read_parquet(paths: Sequence[pathlib.Path], data: Dataset) -> np.ndarray:
    """Read the columns of a Parquet file by name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [*data.features, *data.targets]
    try:
        table = pq.read_table(paths[0])
    except (pa.ArrowInvalid, OSError) as error:
        raise FormatError("it is not a Parquet file.") from error
    absent = [name for name in names if name not in table.column_names]
    if absent:
        raise FormatError(f"it has no column {absent[0]!r}.")
    try:
        columns = [np.asarray(table[name].to_numpy(), np.float64) for name in names]
    except ValueError as error:
        raise FormatError("it holds a column that is not of numbers.") from error
    return np.column_stack(columns)


def read_text(paths: Sequence[pathlib.Path], data: Dataset) -> np.ndarray:
    """Read numbers separated by white space, no header."""
    return _numbers(paths[0], None)


def read_year(paths: Sequence[pathlib.Path], data: Dataset) -> np.ndarray:
    """Read YearPredictionMSD.txt in its zip archive: commas, no header, the target first."""
    with _opened(paths[0], ".txt") as file:
        values = _numbers(file, ",")
    return np.roll(values, -1, axis=1)


def read_xlsx(paths: Sequence[pathlib.Path], data: Dataset) -> np.ndarray:
    """Read the first sheet of a workbook in a zip archive: one header row, empty rows left out."""
    import openpyxl

    width = data.d + len(data.targets)
    with _opened(paths[0], ".xlsx") as file:
        sheet = openpyxl.load_workbook(io.BytesIO(file.read()), read_only=True).worksheets[0]
        rows = [row[:width] for row in sheet.iter_rows(min_row=2, values_only=True)]
    kept = [row for row in rows if any(cell is not None for cell in row)]
    try:
        return np.array(kept, np.float64)
    except (TypeError, ValueError) as error:
        raise FormatError("the sheet holds something that is not a number.") from error


def read_sarcos(paths: Sequence[pathlib.Path], data: Dataset) -> np.ndarray:
    """Read Matlab files, each with one matrix of 28 columns named after the file; stack them."""
    from scipy.io import loadmat

    parts = []
    for path in paths:
        try:
            matrices = [value for key, value in loadmat(path).items() if not key.startswith("_")]
        except Exception as error:  # SciPy raises many kinds on nonsense
            raise FormatError(f"{path.name} is not a Matlab file.") from error
        if len(matrices) != 1 or matrices[0].ndim != 2:
            raise FormatError(f"{path.name} should hold one matrix.")
        parts.append(np.asarray(matrices[0], np.float64))
    return np.concatenate(parts)


def read_jura(paths: Sequence[pathlib.Path], data: Dataset) -> np.ndarray:
    """Read gstat's jura.rda: the prediction set, then the validation set."""
    import rdata

    try:
        found = rdata.read_rda(str(paths[0]))
        frames = [found["prediction.dat"], found["validation.dat"]]
        names = [*data.features, *data.targets]
        return np.concatenate([frame[names].to_numpy(np.float64) for frame in frames])
    except Exception as error:  # rdata raises many kinds on nonsense
        raise FormatError(f"it is not gstat's jura.rda ({error}).") from error


def _opened(path: pathlib.Path, ending: str):
    """Open the one member of an archive with this ending, or the file itself if it is unpacked."""
    if not zipfile.is_zipfile(path) or path.suffix == ending:
        return path.open("rb")
    archive = zipfile.ZipFile(path)
    members = [name for name in archive.namelist() if name.lower().endswith(ending)]
    if len(members) != 1:
        raise FormatError(f"the archive should hold one {ending} file, but holds {len(members)}.")
    return archive.open(members[0])


def _numbers(file, delimiter: str | None) -> np.ndarray:
    try:
        return np.loadtxt(file, delimiter=delimiter, ndmin=2)
    except (ValueError, UnicodeDecodeError) as error:
        raise FormatError(f"it is not a table of numbers ({error}).") from error


READERS: dict[str, Callable[[Sequence[pathlib.Path], Dataset], np.ndarray]] = {
    "parquet": read_parquet,
    "text": read_text,
    "year-zip": read_year,
    "xlsx-in-zip": read_xlsx,
    "sarcos-mat": read_sarcos,
    "jura-rda": read_jura,
}
