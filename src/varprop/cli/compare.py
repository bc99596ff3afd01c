"""`varprop compare`: what a user would pick instead, on the same rows."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from varprop.cli import opening, shared

if TYPE_CHECKING:
    from varprop.tables.comparing import Comparison, Line


@shared.command
def compare(
    tables: opening.TablesArgument,
    target: Annotated[
        list[str], typer.Option("--target", "-t", help="Column to predict, one of numbers.")
    ],
    models: Annotated[
        str | None,
        typer.Option(
            "--models",
            help="Names, with commas: stack, stack-quick, stack-thorough, network, linear, gp, "
            "ngboost, catboost, quantiles, deep-ensemble (all of these unless given), pbp, "
            "mc-dropout.",
            show_default=False,
        ),
    ] = None,
    folds: Annotated[int, typer.Option("--folds", help="Parts of the rows.", min=2)] = 5,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE", help="Also write a page to look at.")
    ] = None,
    drop: opening.DropOption = None,
    id_: opening.IdOption = None,
    category: opening.CategoryOption = None,
    number: opening.NumberOption = None,
    missing: opening.MissingOption = shared.Missing.error,
    delimiter: opening.DelimiterOption = None,
    decimal: opening.DecimalOption = None,
    thousands: opening.ThousandsOption = None,
    encoding: opening.EncodingOption = None,
    na: opening.NaOption = None,
    seed: shared.SeedOption = 0,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Cross-validate varprop and what one would use instead on the same folds of a table.

    Every method is scored on rows it was not fitted to. Nothing is saved but the page of --html.
    """
    if len(target) > 1:
        raise shared.wrong_usage(
            f"compare takes one --target, but {len(target)} are given: run it once for each."
        )
    names = None
    if models is not None:
        names = [part.strip() for part in models.split(",") if part.strip()]
        if not names:
            raise shared.wrong_usage("--models names no model: give names with commas.")
    dialect = opening.told(delimiter, decimal, thousands, encoding, na)
    if html is not None:
        shared.check_output(html, *tables)

    from varprop.bench.registry import UnknownName
    from varprop.tables import Roles, compare_table
    from varprop.tables.comparing import chosen_methods

    try:
        chosen_methods(names)
    except UnknownName as error:
        raise shared.wrong_usage(str(error)) from error
    source = opening.open_table(tables, dialect)
    with _bar(show=not quiet and sys.stderr.isatty()) as update:
        found = compare_table(
            source,
            Roles(
                targets=tuple(target),
                ids=tuple(id_ or ()),
                dropped=tuple(drop or ()),
                categories=tuple(category or ()),
                numbers=tuple(number or ()),
                missing=missing.value,
            ),
            models=names,
            folds=folds,
            seed=seed,
            on_progress=update,
            on_notes=lambda notes: shared.note(notes, quiet=quiet),
        )
    title = f"{source.label}: {target[0]}"
    if html is not None:
        from varprop.report import write_comparison_report

        write_comparison_report(
            html,
            title=title,
            rows=[line.row() for line in found.lines],
            verdict=found.verdict,
            n_rows=found.n_rows,
            n_folds=folds,
            notes=[f"{note[0].upper()}{note[1:]}" for note in found.notes],
            settings={"table": source.label, "seed": seed, "missing": missing.value},
        )
    if json:
        shared.print_json(
            {
                "target": target[0],
                "rows": found.n_rows,
                "folds": folds,
                "leaderboard": [line.row() for line in found.lines],
                "verdict": found.verdict,
                "html": html,
                "notes": list(found.notes),
            }
        )
    elif not quiet:
        _print(found, f"{title}, {found.n_rows} rows in {folds} folds")
        if html is not None:
            shared.say(f"Page: {html}")


def _print(found: Comparison, title: str) -> None:
    """Print the leaderboard; a line without scores says why."""
    scored = [line for line in found.lines if line.folds]
    header = ["", "NLL", "CRPS", "RMSE", "in 90 %\ninterval", "seconds\nto fit", "to\npredict"]
    if scored:
        shared.print_table(title, header, [_cells(line) for line in scored])
    for line in found.lines:
        if line.problem:
            shared.say(f"{line.title}: {line.problem}")
    shared.say(found.verdict)


def _cells(line: Line) -> list[str]:
    """Return the cells of a line; ± is the standard error over folds."""
    from varprop.report.numerals import number, plus_minus

    def both(score: str) -> str:
        return " ± ".join(plus_minus(line.mean(score), line.error(score)))

    held, error = 100 * line.mean("coverage90"), 100 * line.error("coverage90")
    seconds = [number(line.mean(s), 2) for s in ("fit_seconds", "predict_seconds")]
    scores = [both(score) for score in ("nll", "crps", "rmse")]
    return [line.title, *scores, f"{held:.0f} ± {error:.0f} %", *seconds]


@contextlib.contextmanager
def _bar(*, show: bool) -> Iterator[Callable[[int, int, str], Any]]:
    """Show on standard error what is fitted; nothing is left of it at the end."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} fits"),
        TimeElapsedColumn(),
        console=Console(file=sys.stderr),
        transient=True,
        disable=not show,
    ) as progress:
        task = progress.add_task("reading", total=1)

        def update(done: int, total: int, doing: str) -> None:
            progress.update(task, completed=done, total=total, description=doing)

        yield update
