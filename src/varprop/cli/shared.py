"""What every command shares: exit codes, one-sentence errors, and where results are printed."""

from __future__ import annotations

import enum
import errno
import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from varprop.errors import InputError

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object, for machines.")
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="Print nothing but errors (and --json's object).")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of all randomness.", min=0)]


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
