"""What commands share: options, errors in one sentence, checks before work, printing."""

from __future__ import annotations

import contextlib
import enum
import errno
import functools
import glob
import json
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, NoReturn

import typer

from varprop.atomic import clean_up
from varprop.errors import InputError, printable

# What to do with missing values; what training minimizes; and what is observed, given the network's
# output.
Missing = enum.StrEnum("Missing", ["error", "drop", "impute"])
Objective = enum.StrEnum("Objective", ["ropd", "vi"])
Kind = enum.StrEnum("Kind", ["stack", "network", "linear"])
Effort = enum.StrEnum("Effort", ["quick", "normal", "thorough"])

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object, for machines.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors (and --json's object).")
]
SeedOption = Annotated[
    int, typer.Option("--seed", help="Seed of all randomness.", min=0, max=2**32 - 1)
]
ReportOption = Annotated[
    str | None, typer.Option("--report", metavar="FILE", help="Write an HTML report here.")
]


#: Whether the process is the command line's own, and not one that calls it.
own_process = False


class ExitCode(enum.IntEnum):
    """What the process returns. 2 is Typer's own, for a wrong option."""

    BUG = 1
    USAGE = 2
    BAD_INPUT = 3
    CANNOT_WRITE = 4
    INTERRUPTED = 130


EPILOG = (
    "Exit codes: 0 done, 1 a bug, 2 wrong usage, 3 bad input, 4 cannot write, 130 interrupted, 129 "
    "and 143 ended by a signal."
)


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


def interrupts_raise() -> None:
    """Let Ctrl-C raise KeyboardInterrupt from here on.

    For a command whose own process runs no JAX and that has something to tidy up. All others end at
    once, since nothing of theirs is worth keeping: files are written whole or not at all.
    """
    if own_process and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


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
            sentences = getattr(error, "problems", (str(error),))
            _stop(*sentences, code=getattr(error, "code", ExitCode.BAD_INPUT))
        except KeyboardInterrupt:
            _stop("interrupted.", code=ExitCode.INTERRUPTED)
        except BrokenPipeError:
            # Whoever read our output (`| head`) has gone; Python would complain at exit as well.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(ExitCode.CANNOT_WRITE) from None
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
                raise
            where = f" {error.filename}" if error.filename else ""
            _stop(f"cannot read or write{where}: {error.strerror}.", code=ExitCode.CANNOT_WRITE)
        finally:
            clean_up()  # an error's own frames would keep the copy of standard input

    return wrapped


def _stop(*sentences: str, code: ExitCode) -> NoReturn:
    for sentence in sentences:
        end = "" if sentence.endswith((".", "?")) else "."
        typer.echo(f"varprop: {_one_line(sentence)}{end}", err=True)
    raise typer.Exit(int(code)) from None


def _one_line(text: str) -> str:
    """Return text that a terminal shows on one line, whatever came in from files."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def check_output(path: str, *inputs: str, other: str | None = None) -> None:
    """Fail before the work and not after it if a file cannot be written.

    Parameters
    ----------
    path
        To be written.
    inputs
        Files, folders and patterns that are read.
    other
        Another file to be written.
    """
    target = pathlib.Path(path)
    if target.is_dir():
        raise UserError(f"{path} is a folder: give a file name.", ExitCode.CANNOT_WRITE)
    folder = target.parent
    if not folder.is_dir():
        raise UserError(
            f"there is no folder {folder} to write {target.name} to: make it first.",
            ExitCode.CANNOT_WRITE,
        )
    # A link is written through, so that it is its target's folder that counts.
    real = pathlib.Path(os.path.realpath(target))
    if not real.parent.is_dir():
        raise UserError(f"{path} is a link to nowhere: mend it.", ExitCode.CANNOT_WRITE)
    if not os.access(real.parent, os.W_OK) or (target.exists() and not os.access(target, os.W_OK)):
        raise UserError(f"{path} may not be written: choose another place.", ExitCode.CANNOT_WRITE)
    if any(_is_same(path, file) for name in inputs for file in _files(name)):
        raise wrong_usage(f"{path} is also read: choose another name for the output.")
    if other is not None and _is_same(path, other):
        raise wrong_usage(f"{path} would be written twice: choose two names.")


def _files(name: str) -> Iterator[str]:
    """Yield the files that an argument stands for, as far as they are there."""
    if os.path.isdir(name):
        yield from glob.iglob(os.path.join(glob.escape(name), "*.parquet"))
    elif "*" in name and not os.path.exists(name):
        yield from glob.iglob(name)
    else:
        yield name


def _is_same(one: str, other: str) -> bool:
    """Whether two names are one file, through links of both kinds; a device may be named twice."""
    with contextlib.suppress(OSError):
        return os.path.samefile(one, other) and os.path.isfile(one)
    return os.path.realpath(one) == os.path.realpath(other)


def say(message: str = "", *, quiet: bool = False, err: bool = False) -> None:
    """Print to standard output, or error, unless the user asked for quiet."""
    if not quiet:
        typer.echo(printable(message), err=err)


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
            typer.echo(f"note: {_one_line(sentence)}", err=True)


def print_table(
    title: str, header: list[str], rows: list[list[str]], *, caption: str | None = None
) -> None:
    """Print a table whose first column is text and whose others are numbers.

    Nothing is ever cut off: outside a terminal lines are as long as they need to be, and where a
    terminal is too narrow for that every cell gets a line of its own.
    """
    from rich.box import SIMPLE_HEAD
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(_one_line(title)),
        caption=None if caption is None else Text(_one_line(caption)),
        title_justify="left",
        caption_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for number, name in enumerate(header):
        texts = [*printable(name).split("\n"), *(_one_line(row[number]) for row in rows)]
        table.add_column(
            Text(printable(name)),
            justify="left" if number == 0 else "right",
            no_wrap=True,
            min_width=max(map(cell_len, texts)),  # else a cell of several words could be cut
        )
    for row in rows:
        table.add_row(*(Text(_one_line(cell)) for cell in row))
    if show(table, at_least=max(len(title), len(caption or ""))):
        return
    say(_one_line(title))
    for first, *cells in rows:
        say(f"  {_one_line(first)}")
        for name, cell in zip(header[1:], cells, strict=True):
            say(f"    {_one_line(' '.join(name.split()))}: {_one_line(cell)}")
    if caption is not None:
        say(_one_line(caption))


def show(table: Any, *, at_least: int = 0, anyway: bool = False) -> bool:
    """Print a Rich table without cutting a word of it, if there is room.

    Parameters
    ----------
    table
        Whose cells may be folded between words, unless they forbid it.
    at_least
        Width of a line outside a terminal, where it may have any.
    anyway
        Whether to print it on a terminal that is too narrow, which breaks the lines then.

    Returns
    -------
    bool
        Whether it was printed.
    """
    from rich.console import Console

    console = Console(highlight=False)
    needed = console.measure(table, options=console.options.update(width=10**6))
    if not console.is_terminal:
        console.width = max(needed.maximum, at_least, 80)
    elif needed.minimum > console.width:
        if not anyway:
            return False
        console.width = needed.minimum
    console.print(table, soft_wrap=True)
    return True


def print_scorecard(card: Mapping[str, Mapping[str, Any]], title: str, verdict: str) -> None:
    """Print a scorecard, of several targets a table for each."""
    from varprop.predictive.scorecard import CLASS_SCORES, SCORES, by_target

    tables = by_target(card)
    for target, models in tables.items():
        known = SCORES | CLASS_SCORES
        shown = [key for key in known if key in next(iter(models.values()))]
        rows = [
            [name, *(_score(key, values[key]) for key in shown)] for name, values in models.items()
        ]
        header = ["", *(key.replace("coverage ", "coverage\n") for key in shown)]
        print_table(target or title, header, rows)
    say(verdict)


def _score(name: str, value: float) -> str:
    if name.startswith("coverage"):
        return f"{100 * value:.0f} %"
    if name == "accuracy":
        return f"{100 * value:.1f} %"
    fixed = ("NLL", "R2", "log-loss", "Brier", "calibration error")
    return f"{value:.3f}" if name in fixed else in_digits(value)


def in_digits(value: float) -> str:
    """Write a number with four digits, for people.

    Examples
    --------
    >>> in_digits(123456.7), in_digits(0.0123456), in_digits(-2e-9)
    ('123,457', '0.01235', '-2e-09')
    """
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
