"""`varprop bench`: run the paper's experiments, or any part of them, into a store."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from varprop.cli.shared import (
    ExitCode,
    JsonOption,
    QuietOption,
    SeedOption,
    UserError,
    command,
    interrupts_raise,
    print_json,
    say,
)

DataDirOption = Annotated[
    pathlib.Path | None,
    typer.Option(
        "--data-dir", help="Folder that holds data sets.", envvar="VARPROP_DATA", show_default=False
    ),
]
StoreOption = Annotated[pathlib.Path, typer.Option("--store", help="SQLite file of results.")]


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


@command
def bench(
    preset: Annotated[
        str | None,
        typer.Argument(metavar="[table1|table2]", help="A table of the paper.", show_default=False),
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Names, with commas; see `varprop data list`.")
    ] = None,
    methods: Annotated[str | None, typer.Option(help="Names, with commas.")] = None,
    protocols: Annotated[
        str, typer.Option(help="How our networks are trained: paper, ours, or both.")
    ] = "paper,ours",
    splits: Annotated[int, typer.Option(min=1, help="At most so many splits per set.")] = 10,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes; one per core unless given.", show_default=False),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            help="Run on the Dask cluster of this scheduler, such as tcp://host:8786.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = pathlib.Path("results.sqlite"),
    data_dir: DataDirOption = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run every method on every split, live, and keep each result as soon as it is there.

    The same command again goes on where it stopped; `varprop report` shows the tables.
    """
    from varprop.bench.cells import plan
    from varprop.bench.registry import UnknownName
    from varprop.bench.run import run
    from varprop.bench.store import Store, StoreError

    if scheduler is not None and jobs is not None:
        raise UserError(
            "--jobs is for this machine: on a cluster, start as many workers as wanted.",
            ExitCode.USAGE,
        )
    folder = None if data_dir is None else str(data_dir)
    try:
        chosen_sets, chosen_methods = _preset(preset, _names(datasets), _names(methods))
        layout = plan(
            chosen_sets,
            chosen_methods,
            protocols=_names(protocols) or (),
            n_splits=splits,
            seed=seed,
            data_dir=folder,
        )
    except UnknownName as error:
        raise UserError(str(error), ExitCode.USAGE) from error
    for sentence in layout.skipped:
        _notice(sentence)
    if not layout.cells:
        raise UserError("there is nothing to run: none of these sets is present and fits a method.")
    interrupts_raise()
    try:
        with (
            contextlib.closing(Store(store)) as results,
            _bar(len(results.missing(layout.cells)), show=not quiet) as update,
        ):
            summary = run(
                layout.cells,
                results,
                jobs=jobs or os.cpu_count() or 1,
                scheduler=scheduler,
                data_dir=folder,
                on_progress=update,
                on_notice=_notice,
            )
    except StoreError as error:
        raise UserError(str(error), ExitCode.CANNOT_WRITE) from error
    for sentence in summary.failed:
        _notice(sentence)
    if as_json:
        result = dataclasses.asdict(summary) | {"store": store, "absent": layout.absent}
        print_json({key: value for key, value in result.items() if key != "interrupted"})
    else:
        say(
            f"{summary.done} cells run in {summary.seconds:.0f} s, {summary.already} were there "
            f"already; `varprop report --store {store}` shows the tables.",
            quiet=quiet,
        )
        if summary.elsewhere:
            say(f"{summary.elsewhere} cells are left to another process.", quiet=quiet)
    if summary.interrupted:
        raise UserError(
            "interrupted: every finished cell is kept, and the same command goes on from there.",
            ExitCode.INTERRUPTED,
        )
    if summary.failed:
        raise UserError(f"{len(summary.failed)} cell(s) failed, see above: they are tried again.")


def _notice(sentence: str) -> None:
    typer.echo(f"varprop: {sentence}", err=True)


def _preset(
    preset: str | None, datasets: list[str] | None, methods: list[str] | None
) -> tuple[list[str], list[str]]:
    """Return what a table's name stands for; --datasets and --methods narrow it down."""
    from varprop.bench.registry import UnknownName, known
    from varprop.bench.tables import STAND_IN, TABLE1, TABLE2, published

    if preset is None:
        if datasets is None or methods is None:
            raise UnknownName(
                "say what to run: table1, table2, or both --datasets and --methods, such as "
                "--datasets boston,yacht --methods fawn-ropd,gp."
            )
        return datasets, methods
    known(preset, ("table1", "table2"), "table")
    sets = [name for key in published()[preset] for name in (key, STAND_IN.get(key)) if name]
    return datasets or sets, methods or list(TABLE1 if preset == "table1" else TABLE2)


@contextlib.contextmanager
def _bar(total: int, *, show: bool) -> Iterator[Callable[[float, float, int], None]]:
    """Show a bar on standard error: share of the work, cells finished, time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.fields[count]} cells"),
        BarColumn(),
        TextColumn("{task.percentage:3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]}"),
        console=Console(file=sys.stderr),
        disable=not show or not total,
    ) as progress:
        task = progress.add_task("", total=1.0, count=f"0/{total}", left="")

        def update(share: float, left: float, count: int) -> None:
            words = "" if left != left else f"about {_duration(left)} left"
            progress.update(task, completed=share, count=f"{count}/{total}", left=words)

        yield update


def _duration(seconds: float) -> str:
    """Return a time in words that are not more exact than it is.

    Examples
    --------
    >>> _duration(42.0), _duration(600.0), _duration(8000.0)
    ('42 s', '10 min', '2.2 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
