"""Arguments and options that several commands have."""

from __future__ import annotations

import enum
from typing import Annotated

import typer


class Missing(enum.StrEnum):
    """What to do with missing values."""

    error = "error"
    drop = "drop"
    impute = "impute"


class Unseen(enum.StrEnum):
    """What to do with categories that the training data did not have."""

    error = "error"
    average = "average"


class Objective(enum.StrEnum):
    """What training minimizes."""

    ropd = "ropd"
    vi = "vi"


class Likelihood(enum.StrEnum):
    """What is observed, given the network's output."""

    gaussian = "gaussian"
    heteroscedastic = "heteroscedastic"


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
DelimiterOption = Annotated[
    str | None,
    typer.Option("--delimiter", help="Between cells of a text table; found out unless given."),
]
DecimalOption = Annotated[
    str, typer.Option("--decimal", help="The decimal point of a text table's numbers.")
]
UnseenOption = Annotated[
    Unseen,
    typer.Option(
        "--unseen",
        help="A category the training data did not have is an error, or counts as unknown.",
    ),
]
ReportOption = Annotated[
    str | None, typer.Option("--report", metavar="FILE", help="Write an HTML report here.")
]
