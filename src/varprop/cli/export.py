"""`varprop export`: a fitted model as a file that runs where no Python is."""

from __future__ import annotations

import enum
import os
from typing import Annotated

import typer

from varprop.cli import opening, shared

# What a model can be exported to.
Format = enum.StrEnum("Format", ["c", "js", "onnx"])
Precision = enum.StrEnum("Precision", ["double", "float"])

_DTYPES = {Precision.double: "float64", Precision.float: "float32"}


@shared.command
def export(
    model: opening.ModelArgument,
    to: Annotated[
        Format,
        typer.Option("--to", help="A C99 header, an ES module of JavaScript, or an ONNX graph."),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write it.")
    ],
    precision: Annotated[
        Precision,
        typer.Option(
            "--precision",
            help="What C computes in, and what weights are kept in in JavaScript.",
        ),
    ] = Precision.double,
    name: Annotated[
        str | None,
        typer.Option("--name", help="With which the names in C begin; the file's unless given."),
    ] = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Write a fitted model as one file that predicts where no Python is.

    Scaling, categories and what is done with missing numbers are part of it: it takes a table's
    columns as they are, of a category its code.
    """
    opening.check_model(model)
    shared.check_output(output, model)

    from varprop.exports.export import export as write

    opening.refuse_tables(model)
    write(model, output, to=to.value, dtype=_DTYPES[precision], name=name)
    size = os.path.getsize(output)
    if json:
        shared.print_json({"output": output, "to": to.value, "bytes": size})
    else:
        shared.say(f"wrote {output}: {size / 1000:,.0f} kB.", quiet=quiet)
