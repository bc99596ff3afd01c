"""The `varprop` command: one Typer application, one file per command."""

from __future__ import annotations

import io
import os
import pathlib
import signal
import sys
import threading
from typing import Annotated, Any

import typer

from varprop import __version__, stopping
from varprop.atomic import clean_up
from varprop.cli import data, shared
from varprop.cli.bench import bench
from varprop.cli.card import card
from varprop.cli.compare import compare
from varprop.cli.demo import demo
from varprop.cli.evaluate import evaluate
from varprop.cli.explain import explain
from varprop.cli.export import export
from varprop.cli.fit import fit
from varprop.cli.monitor import monitor
from varprop.cli.page import page
from varprop.cli.predict import predict
from varprop.cli.report import report
from varprop.cli.shared import EPILOG
from varprop.cli.suggest import suggest
from varprop.compilation import cache_variables

# A bar of progress hides it, and back at its line it must show.
SHOW_CURSOR = "\r\x1b[K\x1b[?25h"
# To whom trains: what is trained is worth keeping.
STOPPING = b"varprop: stopping; what is trained is kept (Ctrl-C once more ends at once).\n"

app = typer.Typer(
    name="varprop",
    help="A neural network's whole predictive distribution in one forward pass.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        typer.echo(f"varprop {__version__}")
        raise typer.Exit


COMMANDS = (
    fit,
    predict,
    evaluate,
    explain,
    suggest,
    monitor,
    card,
    export,
    page,
    compare,
    demo,
    bench,
    report,
)
for _command in COMMANDS:
    app.command(epilog=EPILOG)(_command)
app.add_typer(data.app, name="data")


def _keep_compiled() -> None:
    """Let JAX keep compiled programs from run to run, where there is a place to keep them.

    It reads these variables when it is imported, which is when a command begins to work.
    """
    variables = cache_variables()
    folder = pathlib.Path(variables["JAX_COMPILATION_CACHE_DIR"])
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if there.is_dir() and os.access(there, os.W_OK):
        for name, value in variables.items():
            os.environ.setdefault(name, value)


def _ended_by_the_thread(number: int, frame: Any) -> None:
    """Leave a signal to the thread of `_end_by_signals`."""


def _end_by_signals() -> None:
    """Take temporary files away when a signal ends the process, even while JAX compiles.

    A thread waits for them: Python's own handlers wait until the main thread is back in Python, and
    a KeyboardInterrupt raised inside of JAX has crashed it. While a network trains the first Ctrl-C
    asks it to stop, and what is trained is kept. A command that has something else left to do when
    it is interrupted takes SIGINT back, see `shared.interrupts_raise`.
    """
    kinds = [kind for name in ("SIGINT", "SIGTERM", "SIGHUP") if (kind := getattr(signal, name, 0))]
    default = (signal.SIG_DFL, signal.default_int_handler)
    kinds = [kind for kind in kinds if signal.getsignal(kind) in default]  # not nohup's
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def wait() -> None:
        while number := os.read(reader, 1):
            if signal.getsignal(number[0]) is _ended_by_the_thread:
                name = signal.Signals(number[0]).name
                if name == "SIGINT" and stopping.ask():
                    os.write(2, STOPPING)
                    continue
                clean_up(ending=True)
                why = "interrupted" if name == "SIGINT" else f"ended by {name}"
                cursor = SHOW_CURSOR if os.isatty(2) else ""
                os.write(2, f"{cursor}varprop: {why}.\n".encode())
                os._exit(128 + number[0])

    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for kind in kinds:
        signal.signal(kind, _ended_by_the_thread)
    threading.Thread(target=wait, daemon=True, name="signals").start()


def main() -> None:
    """Run the command line."""
    shared.own_process = True
    _keep_compiled()
    _end_by_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show is escaped
            stream.reconfigure(errors="backslashreplace")
    app()
