"""The `varprop` command: one Typer application, one file per command."""

from __future__ import annotations

from typing import Annotated

import typer

from varprop import __version__

app = typer.Typer(
    name="varprop",
    help="A neural network's whole predictive distribution in one forward pass.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"varprop {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    app()
