"""Tables on disk for the tests of sources and of training from them."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tiny
from varprop import Data


def write(folder: pathlib.Path, columns: dict, *, files: int = 3, row_group_size: int = 25):
    """Spread columns over files of about the same length, and return the folder."""
    folder.mkdir(exist_ok=True)
    n_rows = len(next(iter(columns.values())))
    for number, part in enumerate(np.array_split(np.arange(n_rows), files)):
        table = pa.table({name: np.asarray(values)[part] for name, values in columns.items()})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=row_group_size)
    return folder


def as_columns(x, y, **more) -> dict:
    """Arrays as columns x0, x1, ..., y."""
    return {**{f"x{i}": column for i, column in enumerate(x.T)}, "y": y[:, 0], **more}


def folder(path: pathlib.Path) -> pathlib.Path:
    """210 rows in three files of three row groups, with weights of which some are 0."""
    x, y = tiny.arrays(210)
    weight = np.random.default_rng(1).integers(0, 3, 210).astype(float)
    return write(path, as_columns(x, y, weight=weight, index=np.arange(210.0)))


def data(*, weighted: bool = False) -> Data:
    """The rows of `folder` in memory."""
    x, y = tiny.arrays(210)
    weight = np.random.default_rng(1).integers(0, 3, 210).astype(float)
    return Data(x, y, weight if weighted else None)
