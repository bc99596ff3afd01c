"""`varprop card`: what a model is, of what data, how good, its limits and its use."""

from __future__ import annotations

from typing import Annotated

import typer

from varprop.cli import opening, shared


@shared.command
def card(
    model: opening.ModelArgument,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Where to write it; printed unless given."
        ),
    ] = None,
    about: Annotated[
        str | None, typer.Option("--about", help="What it is for, in your words; kept in the file.")
    ] = None,
    intended_use: Annotated[
        str | None,
        typer.Option("--intended-use", help="Who should use it for what; kept in the file."),
    ] = None,
    limits: Annotated[
        str | None,
        typer.Option("--limits", help="What it should not be used for; kept in the file."),
    ] = None,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Write the card of a model in Markdown: data, scores, limits, intended use, versions, date.

    All of it stands in the model file, where your own words are kept too ("" takes them away).
    """
    opening.check_model(model)
    if output is not None:
        shared.check_output(output, model)
    words = {"about": about, "intended_use": intended_use, "limits": limits}
    said = {name: text for name, text in words.items() if text is not None}
    if said:
        shared.check_output(model)

    from varprop.atomic import replacing
    from varprop.tables import describe_model, model_card

    opening.refuse_tables(model)
    if said:
        describe_model(model, said)
    text = model_card(model)
    if output is not None:
        with replacing(output) as file:
            file.write(text.encode())
    if json:
        shared.print_json({"model": model, "output": output, "card": text})
    elif output is None:
        shared.say(text.rstrip("\n"), quiet=quiet)
    else:
        shared.say(f"wrote {output}.", quiet=quiet)
