"""`varprop page`: one HTML file that contains a model, to play with and to pass on."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from varprop.cli import opening, shared


@shared.command
def page(
    model: opening.ModelArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write the page.")
    ],
    title: Annotated[
        str | None, typer.Option("--title", help="Of the page; the model file's name unless given.")
    ] = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Write a what-if page: move inputs, and see what the model says and how sure it is.

    One file that opens from disk, needs no network and no Python, and predicts pasted tables too.
    """
    opening.check_model(model)
    shared.check_output(output, model)

    from varprop.exports.export import export

    opening.refuse_tables(model)
    name = os.path.splitext(os.path.basename(model))[0] if title is None else title
    export(model, output, to="page", name=name)
    size = os.path.getsize(output)
    if json:
        shared.print_json({"output": output, "bytes": size})
    else:
        shared.say(f"wrote {output}: {size / 1000:,.0f} kB.", quiet=quiet)
