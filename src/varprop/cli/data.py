"""`varprop data`: which data sets the benchmark knows, where they are, whether they are right."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from varprop.cli.bench import DataDirOption
from varprop.cli.shared import JsonOption, QuietOption, UserError, command, print_json, say, show

if TYPE_CHECKING:
    from varprop.bench.registry import Dataset
    from varprop.bench.sources import Numbers

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
    for data in map(dataset, dataset_names()):
        try:
            where = load(data, folder=data_dir).source
        except DataNotPresent:
            where = None
        except DataCorrupt as error:
            where = f"damaged: {error}"
        facts = {key: getattr(data, key) for key in ("title", "licence", "citation", "home")}
        found.append(
            facts
            | {
                "name": data.name,
                "rows": data.n,
                "inputs": data.d,
                "targets": data.targets,
                "task": data.what,
                "checksum": data.values_sha256,
                "source": where,
            }
        )
    if as_json:
        print_json({"datasets": found})
    elif not quiet:
        _show(found)


def _show(found: list[dict]) -> None:
    from rich.table import Table

    table = Table(title="Data sets of the paper", show_lines=False)
    for header in ("name", "rows", "inputs", "outputs", "what is predicted", "here?"):
        table.add_column(header, justify="right" if header in ("rows", "inputs") else "left")
    for entry in found:
        source = entry["source"]
        here = "no" if source is None else "damaged" if source.startswith("damaged") else "yes"
        sizes = (f"{entry['rows']:,}", str(entry["inputs"]), str(len(entry["targets"])))
        table.add_row(entry["name"], *sizes, entry["task"], here)
    show(table, anyway=True)
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
    from varprop.bench.sources import fetch

    show = not quiet and not as_json
    get = functools.partial(fetch, folder=data_dir, progress=show)
    _each(names, get, as_json, quiet, all_needed=True)


@app.command()
@command
def verify(
    names: NamesArgument = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Check the numbers of the data sets that are here against their checksums."""
    from varprop.bench.sources import load

    get = functools.partial(load, folder=data_dir)
    _each(names, get, as_json, quiet, all_needed=bool(names))


def _each(
    names: list[str] | None,
    get: Callable[[Dataset], Numbers],
    as_json: bool,
    quiet: bool,
    *,
    all_needed: bool,
) -> None:
    """Say of every data set where it comes from, or why it is not right."""
    from varprop.bench.registry import dataset, dataset_names
    from varprop.bench.sources import DataCorrupt, DataNotPresent

    states, wrong = {}, []
    for data in [dataset(name) for name in names or dataset_names()]:
        try:
            source = get(data).source
            size = "" if data.values_sha256 else " in size (no checksum is known)"
            states[data.name] = f"right{size}, from {source}"
        except (DataNotPresent, DataCorrupt) as error:
            states[data.name] = str(error)
            if all_needed or isinstance(error, DataCorrupt):
                wrong.append(data.name)
        if not as_json:
            say(f"{data.name}: {states[data.name]}", quiet=quiet)
    if as_json:
        print_json({"datasets": states, "wrong": wrong})
    if wrong:
        raise UserError(f"not right or not present: {', '.join(wrong)}.")
