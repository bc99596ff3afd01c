"""`varprop data`: which data sets the benchmark knows, where they are, whether they are right."""

from __future__ import annotations

from typing import Annotated

import typer

from varprop.cli.bench import DataDirOption
from varprop.cli.shared import JsonOption, QuietOption, UserError, command, print_json, say

app = typer.Typer(no_args_is_help=True, help="The benchmark's data sets: list, fetch, verify.")

NamesArgument = Annotated[
    list[str] | None, typer.Argument(help="Data sets; all of them unless given.")
]


@app.command("list")
@command
def list_(
    data_dir: DataDirOption = None, as_json: JsonOption = False, quiet: QuietOption = False
) -> None:
    """List the data sets: size, targets, licence, and whether they are on this machine."""
    from varprop.bench.registry import dataset, dataset_names
    from varprop.bench.sources import DataCorrupt, DataNotPresent, load

    found = []
    for name in dataset_names():
        data = dataset(name)
        try:
            where = load(data, folder=data_dir).source
        except DataNotPresent:
            where = None
        except DataCorrupt as error:
            where = f"damaged: {error}"
        found.append(
            {
                "name": name,
                "title": data.title,
                "rows": data.n,
                "inputs": data.d,
                "targets": list(data.targets),
                "task": data.what,
                "licence": data.licence,
                "citation": data.citation,
                "home": data.home,
                "checksum": data.values_sha256,
                "source": where,
            }
        )
    if as_json:
        print_json({"datasets": found})
    elif not quiet:
        _show(found)


def _show(found: list[dict]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Data sets of the paper", show_lines=False)
    for header in ("name", "rows", "inputs", "outputs", "what is predicted", "here?"):
        table.add_column(header, justify="right" if header in ("rows", "inputs") else "left")
    for entry in found:
        here = "no" if entry["source"] is None else "yes"
        if here == "yes" and entry["source"].startswith("damaged"):
            here = "damaged"
        table.add_row(
            entry["name"],
            f"{entry['rows']:,}",
            str(entry["inputs"]),
            str(len(entry["targets"])),
            entry["task"],
            here,
        )
    Console().print(table)
    say("Licence, citation, home and place of each: varprop data list --json")


@app.command()
@command
def fetch(
    names: NamesArgument = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Download data sets that are not here yet, with progress, and check them."""
    _each(names, data_dir, as_json, quiet, download=True)


@app.command()
@command
def verify(
    names: NamesArgument = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check the numbers of the data sets that are here against their checksums."""
    _each(names, data_dir, as_json, quiet, download=False)


def _each(
    names: list[str] | None, data_dir: object, as_json: bool, quiet: bool, *, download: bool
) -> None:
    from varprop.bench.registry import UnknownName, dataset, dataset_names
    from varprop.bench.sources import DataCorrupt, DataNotPresent, fetch, load

    try:
        wanted = [dataset(name) for name in names or dataset_names()]
    except UnknownName as error:
        raise UserError(str(error)) from error
    states, wrong = {}, []
    for data in wanted:
        folder = None if data_dir is None else str(data_dir)
        try:
            if download:
                numbers = fetch(data, folder=folder, progress=not quiet and not as_json)
            else:
                numbers = load(data, folder=folder)
            state = f"right, from {numbers.source}"
            if data.values_sha256 is None:
                state = f"right in size (no checksum is known), from {numbers.source}"
        except DataNotPresent as error:
            state = str(error)
            if download or names:
                wrong.append(data.name)
        except DataCorrupt as error:
            state = str(error)
            wrong.append(data.name)
        states[data.name] = state
        if not as_json:
            say(f"{data.name}: {state}", quiet=quiet)
    if as_json:
        print_json({"datasets": states, "wrong": wrong})
    if wrong:
        raise UserError(f"not right or not present: {', '.join(wrong)}.")
