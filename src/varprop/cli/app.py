"""The `varprop` command: one Typer application, one file per command."""

from __future__ import annotations

import _thread
import io
import os
import pathlib
import signal
import sys
import threading
from typing import Annotated, Any

import typer

from varprop import __version__
from varprop.atomic import clean_up
from varprop.cli import data, shared
from varprop.cli.bench import bench
from varprop.cli.demo import demo
from varprop.cli.evaluate import evaluate
from varprop.cli.explain import explain
from varprop.cli.fit import fit
from varprop.cli.predict import predict
from varprop.cli.report import report
from varprop.cli.shared import EPILOG, ExitCode
from varprop.compilation import cache_variables

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


for _command in (fit, predict, evaluate, explain, demo, bench, report):
    app.command(epilog=EPILOG)(_command)
app.add_typer(data.app, name="data")


def _keep_interrupts(unraisable: Any) -> None:
    """Repeat an interrupt that came inside a callback, whose exceptions Python throws away.

    JAX calls back at every garbage collection, so this is not rare.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        threading.Timer(0.05, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(unraisable)


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


def _end_by_signals() -> None:
    """Take temporary files away when a signal ends the process, even while JAX compiles.

    A thread waits for them: Python's own handlers wait until the main thread is back in Python.
    """
    kinds = [kind for name in ("SIGTERM", "SIGHUP") if (kind := getattr(signal, name, None))]
    kinds = [kind for kind in kinds if signal.getsignal(kind) == signal.SIG_DFL]  # not nohup's
    reader, writer = os.pipe()
    os.set_blocking(writer, False)

    def wait() -> None:
        while number := os.read(reader, 1):
            if number[0] in kinds:
                clean_up(ending=True)
                name = signal.Signals(number[0]).name
                os.write(2, f"varprop: ended by {name}.\n".encode())
                os._exit(128 + number[0])

    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    for kind in kinds:
        signal.signal(kind, lambda number, frame: None)
    threading.Thread(target=wait, daemon=True, name="signals").start()


def main() -> None:
    """Run the command line."""
    shared.own_process = True
    _keep_compiled()
    _end_by_signals()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what a terminal cannot show is escaped
            stream.reconfigure(errors="backslashreplace")
    sys.unraisablehook = _keep_interrupts
    interrupted = int(ExitCode.INTERRUPTED)
    try:
        app()
    except KeyboardInterrupt:  # outside any command, while modules are being imported
        code = interrupted
    except SystemExit as error:
        if error.code != interrupted:
            raise
        code = interrupted
    clean_up(ending=True)
    # Interrupted in the middle of a compilation, JAX may crash when Python takes itself apart.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
