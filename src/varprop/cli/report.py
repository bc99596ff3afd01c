"""`varprop report`: the paper's tables with ours beside them."""

from __future__ import annotations

import contextlib
import enum
import pathlib
from typing import Annotated

import typer

from varprop.cli.bench import DataDirOption, StoreOption
from varprop.cli.shared import JsonOption, UserError, command, print_json, show


class Format(enum.StrEnum):
    """How tables are printed."""

    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"


@command
def report(
    store: StoreOption = pathlib.Path("results.sqlite"),
    tables: Annotated[str, typer.Option("--tables", help="Which, with commas.")] = "1,2,3",
    form: Annotated[Format, typer.Option("--format", help="How to print them.")] = Format.terminal,
    html: Annotated[
        pathlib.Path | None, typer.Option("--html", help="Also write a page to look at.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Results of this seed only.")] = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print Tables 1, 2 and 3 with ours beside the paper's, and a verdict per cell."""
    from varprop.bench.render import as_csv, markdown, terminal
    from varprop.bench.store import Store
    from varprop.bench.tables import table

    try:
        wanted = [int(part) for part in tables.split(",")]
        if not set(wanted) <= {1, 2, 3}:
            raise ValueError
    except ValueError:
        raise UserError(f"--tables takes 1, 2 and 3 with commas, but is {tables!r}.") from None
    folder = None if data_dir is None else str(data_dir)
    with contextlib.closing(Store(store, create=False)) as opened:
        rows = opened.rows()
    found = {which: table(which, rows, seed=seed, data_dir=folder) for which in wanted}
    if html is not None:
        from varprop.report import write_benchmark_report

        lines = [line for which in wanted if which != 3 for line in found[which]]
        write_benchmark_report(
            html,
            title="Fast Adaptive Weight Noise, reproduced",
            rows=lines,
            settings={"store": store.name},
        )
    if as_json:
        print_json({f"table{which}": lines for which, lines in found.items()})
    elif form is Format.terminal:
        from rich.console import Console

        console = Console()
        for which, lines in found.items():
            show(
                terminal(which, lines, width=console.width if console.is_terminal else 120),
                anyway=True,
            )
    elif form is Format.markdown:
        typer.echo("\n".join(markdown(which, lines) for which, lines in found.items()))
    else:
        for which, lines in found.items():
            typer.echo(f"# table {which}" if len(found) > 1 else "", nl=len(found) > 1)
            typer.echo(as_csv(lines), nl=False)
