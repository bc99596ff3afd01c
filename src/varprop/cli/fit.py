"""`varprop fit`: from a table to a model file and a scorecard."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from varprop.cli.options import (
    DecimalOption,
    DelimiterOption,
    Missing,
    Objective,
    ReportOption,
    TablesArgument,
)
from varprop.cli.shared import (
    ExitCode,
    JsonOption,
    QuietOption,
    SeedOption,
    UserError,
    command,
    print_json,
    say,
)
from varprop.cli.tabular import (
    are_parts,
    check_output,
    note,
    open_table,
    print_scorecard,
    use_compilation_cache,
    write_html,
)


@command
def fit(
    tables: TablesArgument,
    target: Annotated[
        list[str], typer.Option("--target", "-t", help="Column to predict; may be repeated.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the model goes.")
    ] = "model.safetensors",
    drop: Annotated[
        list[str] | None, typer.Option("--drop", help="Column to leave out; may be repeated.")
    ] = None,
    id_: Annotated[
        list[str] | None,
        typer.Option("--id", help="Column that `predict` copies and the network does not see."),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option("--category", help="Column of codes, to be taken as categories."),
    ] = None,
    missing: Annotated[
        Missing,
        typer.Option(
            "--missing",
            help="Missing inputs: stop, leave the rows out, or fill them in as uncertain.",
        ),
    ] = Missing.error,
    holdout: Annotated[
        float,
        typer.Option(
            "--holdout", "--test-size", help="Part of the rows kept for the scorecard.", min=0.0
        ),
    ] = 0.1,
    refit: Annotated[
        bool, typer.Option("--refit", help="After the scorecard fit again, on all rows.")
    ] = False,
    objective: Annotated[
        Objective, typer.Option("--objective", help="What training minimizes.")
    ] = Objective.ropd,
    members: Annotated[int, typer.Option("--members", help="Networks in the ensemble.", min=1)] = 1,
    restarts: Annotated[
        int, typer.Option("--restarts", help="Starts per network; the best is kept.", min=1)
    ] = 1,
    hidden: Annotated[
        str, typer.Option("--hidden", help="Units per hidden layer, such as 50 or 100,50.")
    ] = "50",
    max_iter: Annotated[
        int | None, typer.Option("--max-iter", help="Epochs at most.", min=1)
    ] = None,
    joint: Annotated[
        bool, typer.Option("--joint", help="Model the covariance between several targets.")
    ] = False,
    report: ReportOption = None,
    delimiter: DelimiterOption = None,
    decimal: DecimalOption = ".",
    seed: SeedOption = 0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Fit a network to a table, save it, and score it on held-out rows.

    Numbers are used as they are and categories one-hot encoded. The encoding is part of the model
    file, so that `varprop predict` takes the raw table.
    """
    if joint and len(target) < 2:
        raise UserError("--joint needs more than one --target.", ExitCode.USAGE)
    if not holdout < 1:
        raise UserError(f"--holdout must lie below 1, but is {holdout:g}.", ExitCode.USAGE)
    sizes = _sizes(hidden)
    check_output(output, *tables)
    if report is not None:
        check_output(report, *tables, output)
        if holdout == 0:
            raise UserError("--report needs held-out rows, but --holdout is 0.", ExitCode.USAGE)
    parts = are_parts(tables)
    source = None if parts else open_table(tables[0], delimiter, decimal)
    label = f"{len(tables)} files" if len(tables) > 1 else os.path.basename(tables[0].rstrip("/"))
    if source is not None:
        label = source.label

    from varprop.cli.fitting import fit_table, report_content
    from varprop.tables.kinds import Roles

    use_compilation_cache()
    options = {
        "hidden_layer_sizes": sizes,
        "objective": objective.value,
        "n_members": members,
        "n_restarts": restarts,
        "max_iter": max_iter,
        "output_covariance": joint,
    }
    roles = Roles(
        tuple(target), tuple(id_ or ()), tuple(drop or ()), tuple(category or ()), missing.value
    )
    how: dict[str, Any] = {
        "share": holdout,
        "refit": refit,
        "seed": seed,
        "progress": not quiet and sys.stderr.isatty(),
        "on_notes": lambda notes: note(notes, quiet=quiet),
    }
    if source is None:
        from varprop.cli.streaming import fit_parts

        refused = {
            "--report": report,
            "--delimiter": delimiter,
            "--decimal": decimal != ".",
            "--category": category,
            "--missing": missing is not Missing.error,
        }
        for option, value in refused.items():
            if value:
                raise UserError(
                    f"{option} does not go with several files or a folder.", ExitCode.USAGE
                )
        fitted = fit_parts(tables, roles, options, **how)
    else:
        fitted = fit_table(source, roles, options, **how)
    model, held = fitted.model, fitted.holdout
    model.save(output)
    if report is not None:
        if held is None:
            note(["there is no report, since no rows were held out."], quiet=quiet)
        else:
            settings = {"table": label, "seed": seed, "missing": missing.value, **options}
            content = report_content(
                model,
                held.table,
                held.rows,
                held.encoded,
                held.y,
                held.prediction,
                held.card,
                settings,
            )
            write_html(report, title=f"{label}: {', '.join(target)}", **content)
    n_held = 0 if held is None else len(held.y)
    if json:
        print_json(
            {
                "model": output,
                "report": report if held is not None else None,
                "train_rows": fitted.n_train,
                "holdout_rows": n_held,
                "inputs": {column.name: column.says for column in model.preprocessing.inputs},
                "targets": list(target),
                "scorecard": None if held is None else held.card,
                "verdict": None if held is None else held.verdict,
                "outcome": model.regressor.outcome_,
                "epochs": model.regressor.n_iter_,
                "seconds": fitted.seconds,
                "notes": list(fitted.notes),
            }
        )
        return
    if quiet:
        return
    if held is not None:
        print_scorecard(held.card, f"{', '.join(target)}: {n_held} held-out rows", held.verdict)
    which = "all" if refit or held is None else "the other"
    say(f"Saved {output}: fitted on {which} {fitted.n_train} rows in {fitted.seconds:.1f} s.")
    if held is not None and not refit:
        say("(--refit fits once more, on all rows.)")
    if report is not None and held is not None:
        say(f"Report: {report}")


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        sizes = (0,)
    if any(size < 1 for size in sizes):
        raise UserError(
            f"--hidden must be whole numbers such as 50 or 100,50, but is {text!r}.", ExitCode.USAGE
        )
    return sizes
