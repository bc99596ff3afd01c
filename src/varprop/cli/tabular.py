"""What the commands that work on tables share: opening, checking before work, printing."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from varprop.cli.shared import ExitCode, UserError

if TYPE_CHECKING:
    from varprop.tables.model import Scored, TableModel
    from varprop.tables.source import Source


def open_table(where: str | list[str], delimiter: str | None, decimal: str) -> Source:
    """Open a table, its options checked."""
    from varprop.tables.source import open_source

    if delimiter is not None:
        delimiter = {"\\t": "\t", "tab": "\t"}.get(delimiter, delimiter)
        if len(delimiter) != 1:
            raise UserError(
                f"--delimiter must be one character (or tab), but is {delimiter!r}.", ExitCode.USAGE
            )
    if len(decimal) != 1:
        raise UserError(f"--decimal must be one character, but is {decimal!r}.", ExitCode.USAGE)
    source = open_source(where, delimiter=delimiter, decimal=decimal)
    if source.format != "delimited" and (delimiter is not None or decimal != "."):
        raise UserError(
            f"--delimiter and --decimal are for text, but {source.label} is not.", ExitCode.USAGE
        )
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
                raise UserError(
                    f"{path} is also read: choose another name for the output.", ExitCode.USAGE
                )


def use_compilation_cache() -> None:
    """Keep compiled programs from run to run, where there is a place to keep them."""
    from varprop.compilation import enable_compilation_cache

    with contextlib.suppress(OSError):
        enable_compilation_cache()


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


def print_scorecard(card: Mapping[str, Mapping[str, float]], title: str, verdict: str) -> None:
    """Print a scorecard."""
    from varprop.predictive.scorecard import SCORES

    rows = [[name, *(_score(key, values[key]) for key in SCORES)] for name, values in card.items()]
    print_table(title, ["", *(key.replace("coverage ", "coverage\n") for key in SCORES)], rows)
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


def write_html(
    path: str, title: str, model: TableModel, scored: Scored, settings: dict[str, Any]
) -> None:
    """Write the report."""
    from varprop.report import write_report
    from varprop.tables.reporting import report_content

    write_report(path, title=title, **report_content(model, scored, settings))
