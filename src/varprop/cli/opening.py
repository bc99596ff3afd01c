"""Tables and model files as the command line names them: options, and opening both early."""

from __future__ import annotations

import dataclasses
import enum
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Annotated

import typer

from varprop.cli import shared
from varprop.cli.shared import UserError, wrong_usage

if TYPE_CHECKING:
    from varprop.tables.columns import Preprocessing
    from varprop.tables.model import TableModel
    from varprop.tables.source import Source
    from varprop.tables.text import Dialect

# What to do with categories that the training data did not have.
Unseen = enum.StrEnum("Unseen", ["error", "average"])

TableArgument = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="CSV, TSV, Parquet or Feather, gzip'd or not, or a folder of Parquet files; - for "
        "standard input.",
    ),
]
TablesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TABLE...",
        help="CSV, TSV, Parquet or Feather, gzip'd or not; - for standard input. Several Parquet "
        "files, or a folder of them, are read in parts: they may be larger than memory.",
    ),
]
ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help="A model file that `varprop fit` wrote.")
]
DropOption = Annotated[
    list[str] | None, typer.Option("--drop", help="Column to leave out; may be repeated.")
]
IdOption = Annotated[
    list[str] | None,
    typer.Option("--id", help="Column that `predict` copies and the network does not see."),
]
CategoryOption = Annotated[
    list[str] | None,
    typer.Option("--category", help="Column of codes, to be taken as categories."),
]
NumberOption = Annotated[
    list[str] | None,
    typer.Option("--number", help="Column of numbers, although it has zeros in front."),
]
MissingOption = Annotated[
    shared.Missing,
    typer.Option(
        "--missing",
        help="Missing inputs: stop, leave the rows out, or fill them in as uncertain.",
    ),
]
DelimiterOption = Annotated[
    str | None,
    typer.Option("--delimiter", help="Between cells of a text table; found out unless given."),
]
DecimalOption = Annotated[
    str | None,
    typer.Option(
        "--decimal", help="The decimal point of a text table: . or , if cells leave it open."
    ),
]
ThousandsOption = Annotated[
    str | None,
    typer.Option("--thousands", help="Between thousands of a text table: one of , . ' or a space."),
]
EncodingOption = Annotated[
    str | None,
    typer.Option("--encoding", help="Of a text table, such as cp1252; found out unless given."),
]
NaOption = Annotated[
    list[str] | None,
    typer.Option("--na", metavar="MARK", help="Also a missing value in a text table; may repeat."),
]
UnseenOption = Annotated[
    Unseen,
    typer.Option(
        "--unseen",
        help="A category the training data did not have is an error, or counts as unknown.",
    ),
]
PartOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME",
        help="Predict by one part of the model alone, such as linear; by all of it unless given.",
    ),
]
TargetOption = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", help="Columns with the targets, if named otherwise."),
]


def told(
    delimiter: str | None,
    decimal: str | None,
    thousands: str | None,
    encoding: str | None,
    na: list[str] | None,
) -> Dialect:
    """Return how a text table is written, by options that are checked."""
    from varprop.tables.text import Dialect

    delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter or "", delimiter)
    thousands = " " if thousands == "space" else thousands
    found = Dialect(delimiter, decimal, thousands, encoding, tuple(na or ()))
    if problem := found.problem():
        raise wrong_usage(problem)
    return found


def open_table(
    where: str | list[str], dialect: Dialect, known: Preprocessing | None = None
) -> Source:
    """Open a table, written as the user says or else as the one a model was fitted on."""
    from varprop.tables.source import open_source

    names = () if known is None else (*(column.name for column in known.inputs), *known.ids)
    like = None if known is None else known.text
    source = open_source(where, **vars(dialect), like=like, columns=names)
    if source.format != "delimited" and any(vars(dialect).values()):
        raise wrong_usage(
            "--delimiter, --decimal, --thousands, --encoding and --na are for text, but "
            f"{source.label} is not."
        )
    return source


def open_both(
    model: str,
    table: str,
    dialect: Dialect,
    *,
    change: Callable[[Preprocessing], Preprocessing] = lambda known: known,
    targets: bool = False,
    carried: Sequence[str] = (),
    by_row: bool = False,
) -> tuple[TableModel, Source]:
    """Open a table and a model; what does not fit is said before JAX is imported, if it can be.

    Parameters
    ----------
    model, table, dialect
        Where they are, and how the table is written.
    change
        Of what the model knows of its table.
    targets
        Whether the table must have the targets.
    carried
        Further columns that it must have.
    by_row
        Whether rows are only predicted one by one, for which the model's plan will do.
    """
    check_model(model)
    if table != "-" and "*" not in table and not os.path.exists(table):
        raise UserError(f"there is no file {table}: check the path.")
    from varprop.files.container import ModelFileError
    from varprop.tables.description import read_description
    from varprop.tables.model import TableModel, TableRows

    if shared.own_process:
        _leave_pandas_out()
    load = TableModel.load_plan if by_row else TableModel.load
    try:
        known, fitted = read_description(model), None
        if known is None:
            fitted = load(model)
            known = fitted.preprocessing
        known = change(known)
        source = open_table(table, dialect, known)
        TableRows(source, known, targets=targets, carried=carried)
        fitted = fitted or load(model)
    except ModelFileError as error:
        if not _looks_like_table(model):
            raise
        raise UserError(
            f"{os.path.basename(model)} is a table, not a model file: the model comes first, then "
            "the table.",
        ) from error
    return dataclasses.replace(fitted, preprocessing=known), source


def retarget(pre: Preprocessing, names: list[str]) -> Preprocessing:
    """Return what is known of the columns, with targets of other names if any are given."""
    if not names:
        return pre
    if len(names) != len(pre.targets):
        raise UserError(f"the model has {len(pre.targets)} targets, not {len(names)}.")
    used = {column.name for column in pre.inputs} | set(pre.ids)
    taken = [name for name in names if name in used]
    if taken:
        sentence = f"column {taken[0]!r} is no target: the model reads it as an input."
        raise UserError(sentence)
    dropped = tuple(name for name in pre.dropped if name not in names)
    return dataclasses.replace(pre, targets=tuple(names), dropped=dropped)


def check_model(path: str) -> None:
    """Fail if a model's path leads to no file."""
    if path == "-":
        raise UserError("a model file cannot come from standard input: give its path.")
    if not os.path.exists(path):
        raise UserError(f"there is no file {path}: check the path.")
    if os.path.isdir(path):
        raise UserError(f"{path} is a folder: give a model file.")


def refuse_tables(path: str) -> None:
    """Fail if what should be a model file is a table."""
    if _looks_like_table(path):
        raise UserError(f"{os.path.basename(path)} is a table, not a model file: fit one first.")


def _leave_pandas_out() -> None:
    """Let pyarrow believe that there is no pandas, which it would import with its first array.

    That takes longer than predicting, and no command uses it. For the rest of the process, so only
    in one that is the command line's own.
    """
    import pyarrow as pa

    sys.meta_path.insert(0, _NoPandas())
    pa.array([])  # when it looks for pandas, once and for all
    del sys.meta_path[0]


class _NoPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Refuse to find it, and leave all else to others."""
        if name == "pandas":
            raise ImportError(name)


def _looks_like_table(path: str) -> bool:
    from varprop.files.container import looks_like_model

    with open(path, "rb") as file:
        start = file.read(512)
    if looks_like_model(start):
        return False
    if start[:4] == b"PAR1" or start[:6] == b"ARROW1" or start[:2] == b"\x1f\x8b":
        return True
    return bool(start) and b"\0" not in start
