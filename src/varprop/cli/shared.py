"""What commands share: options, errors in one sentence, checks before work, printing."""

from __future__ import annotations

import contextlib
import enum
import errno
import functools
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from varprop.errors import InputError

if TYPE_CHECKING:
    from varprop.tables.model import TableModel
    from varprop.tables.source import Source

# What to do with missing values, and with categories that the training data did not have; what
# training minimizes; and what is observed, given the network's output.
Missing = enum.StrEnum("Missing", ["error", "drop", "impute"])
Unseen = enum.StrEnum("Unseen", ["error", "average"])
Objective = enum.StrEnum("Objective", ["ropd", "vi"])
Likelihood = enum.StrEnum("Likelihood", ["gaussian", "heteroscedastic"])

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object, for machines.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors (and --json's object).")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of all randomness.", min=0)]
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


class ExitCode(enum.IntEnum):
    """What the process returns. 2 is Typer's own, for a wrong option."""

    BUG = 1
    USAGE = 2
    BAD_INPUT = 3
    CANNOT_WRITE = 4
    INTERRUPTED = 130


EPILOG = "Exit codes: 0 done, 1 a bug, 2 wrong usage, 3 bad input, 4 cannot write, 130 interrupted."


class UserError(InputError):
    """A mistake on the command line: one sentence that says what is wrong and what to do.

    Examples
    --------
    >>> UserError("there is no file x.csv: check the path.").code.name
    'BAD_INPUT'
    """

    def __init__(self, sentence: str, code: ExitCode = ExitCode.BAD_INPUT):
        super().__init__(sentence)
        self.code = code


def wrong_usage(sentence: str) -> UserError:
    """Return the error for options that cannot be."""
    return UserError(sentence, ExitCode.USAGE)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that a user's mistake becomes one sentence and an exit code.

    The library's own errors carry such a sentence; anything else is a bug and keeps its traceback.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            function(*args, **kwargs)
            sys.stdout.flush()
        except InputError as error:
            _stop(str(error), getattr(error, "code", ExitCode.BAD_INPUT))
        except KeyboardInterrupt:
            _stop("interrupted.", ExitCode.INTERRUPTED)
        except BrokenPipeError:
            # Whoever read our output (`| head`) has gone; Python would complain at exit as well.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.CANNOT_WRITE) from None
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
                raise
            where = f" {error.filename}" if error.filename else ""
            _stop(f"cannot read or write{where}: {error.strerror}.", ExitCode.CANNOT_WRITE)

    return wrapped


def _stop(sentence: str, code: ExitCode) -> NoReturn:
    typer.echo(f"varprop: {sentence}", err=True)
    raise typer.Exit(int(code)) from None


def open_table(where: str | list[str], delimiter: str | None, decimal: str) -> Source:
    """Open a table, its options checked."""
    from varprop.tables.source import open_source

    if delimiter is not None:
        delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
        if len(delimiter) != 1:
            raise wrong_usage(f"--delimiter must be one character (or tab), but is {delimiter!r}.")
    if len(decimal) != 1:
        raise wrong_usage(f"--decimal must be one character, but is {decimal!r}.")
    source = open_source(where, delimiter=delimiter, decimal=decimal)
    if source.format != "delimited" and (delimiter is not None or decimal != "."):
        raise wrong_usage(f"--delimiter and --decimal are for text, but {source.label} is not.")
    return source


def load_model(path: str) -> TableModel:
    """Read a model file."""
    if path == "-":
        raise UserError("a model file cannot come from standard input: give its path.")
    if not os.path.exists(path):
        raise UserError(f"there is no file {path}: check the path.")
    if os.path.isdir(path):
        raise UserError(f"{path} is a folder: give a model file.")
    from varprop.files.container import ModelFileError
    from varprop.tables.model import TableModel

    try:
        return TableModel.load(path)
    except ModelFileError as error:
        if not _looks_like_table(path):
            raise
        raise UserError(
            f"{os.path.basename(path)} is a table, not a model file: the model comes first, then "
            "the table.",
        ) from error


def _looks_like_table(path: str) -> bool:
    with open(path, "rb") as file:
        start = file.read(512)
    if start[:4] == b"PAR1" or start[:6] == b"ARROW1" or start[:2] == b"\x1f\x8b":
        return True
    return bool(start) and b"\0" not in start


def check_output(path: str, *inputs: str) -> None:
    """Fail before the work and not after it if a file cannot be written."""
    target = pathlib.Path(path)
    if target.is_dir():
        raise UserError(f"{path} is a folder: give a file name.", ExitCode.CANNOT_WRITE)
    folder = target.parent
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder} to write {target.name} to: make it first.",
            ExitCode.CANNOT_WRITE,
        )
    if not os.access(folder, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise UserError(f"{path} may not be written: choose another place.", ExitCode.CANNOT_WRITE)
    for other in inputs:
        with contextlib.suppress(OSError):
            if target.exists() and os.path.samefile(target, other):
                raise wrong_usage(f"{path} is also read: choose another name for the output.")


def say(message: str = "", *, quiet: bool = False) -> None:
    """Print to standard output, unless the user asked for quiet."""
    if not quiet:
        typer.echo(message)


def print_json(result: Any) -> None:
    """Print one JSON object; what is not finite becomes null, which is all JSON has for it.

    Examples
    --------
    >>> print_json({"nll": float("nan")})
    {"nll": null}
    """
    typer.echo(json.dumps(_plain(result), allow_nan=False))


def _plain(value: Any) -> Any:
    """Turn tuples, NumPy scalars and arrays, enums and paths into what JSON knows."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)


def note(sentences: Iterable[str], *, quiet: bool) -> None:
    """Print remarks to standard error."""
    if not quiet:
        for sentence in sentences:
            typer.echo(f"note: {sentence}", err=True)


def print_table(
    title: str, header: list[str], rows: list[list[str]], *, caption: str | None = None
) -> None:
    """Print a table whose first column is text and whose others are numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title),
        caption=None if caption is None else Text(caption),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for number, name in enumerate(header):
        first = number == 0
        table.add_column(Text(name), justify="left" if first else "right", no_wrap=first)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def print_scorecard(card: Mapping[str, Mapping[str, Any]], title: str, verdict: str) -> None:
    """Print a scorecard, of several targets a table for each."""
    from varprop.predictive.scorecard import SCORES, by_target

    tables = by_target(card)
    for target, models in tables.items():
        shown = [key for key in SCORES if key in next(iter(models.values()))]
        rows = [
            [name, *(_score(key, values[key]) for key in shown)] for name, values in models.items()
        ]
        header = ["", *(key.replace("coverage ", "coverage\n") for key in shown)]
        print_table(target or title, header, rows)
    typer.echo(verdict)


def _score(name: str, value: float) -> str:
    if name.startswith("coverage"):
        return f"{100 * value:.0f} %"
    return f"{value:.3f}" if name in ("NLL", "R2") else in_digits(value)


def in_digits(value: float) -> str:
    """Write a number with four digits, for people.

    Examples
    --------
    >>> in_digits(123456.7), in_digits(0.0123456), in_digits(-2e-9)
    ('123,457', '0.01235', '-2e-09')
    """
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
