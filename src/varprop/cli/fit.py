"""`varprop fit`: from a table to a model file and a scorecard."""

from __future__ import annotations

import enum
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from varprop.cli import opening, shared

if TYPE_CHECKING:
    from varprop.tables.fitting import Fitted
    from varprop.tables.model import TableModel


#: "auto", and the names in `varprop.tables.outcomes.LIKELIHOODS`, which is imported late.
Likelihood = enum.StrEnum(
    "Likelihood",
    [
        "auto",
        "gaussian",
        "heteroscedastic",
        "student-t",
        "yeo-johnson",
        "log-normal",
        "poisson",
        "negative-binomial",
        "censored",
        "censored-log-normal",
        "logit",
        "probit",
        "softmax",
        "ordinal",
    ],
)


@shared.command
def fit(
    tables: opening.TablesArgument,
    target: Annotated[
        list[str], typer.Option("--target", "-t", help="Column to predict; may be repeated.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the model goes.")
    ] = "model.safetensors",
    drop: opening.DropOption = None,
    id_: opening.IdOption = None,
    category: opening.CategoryOption = None,
    number: opening.NumberOption = None,
    missing: opening.MissingOption = shared.Missing.error,
    holdout: Annotated[
        float | None,
        typer.Option(
            "--holdout",
            "--test-size",
            help="Part of the rows to keep from training for the scorecard. Unless given all rows "
            "are trained on, and each is scored by networks that have not seen it.",
            min=0.0,
            show_default=False,
        ),
    ] = None,
    refit: Annotated[
        bool,
        typer.Option("--refit", help="With --holdout: after the scorecard fit again, on all rows."),
    ] = False,
    kind: Annotated[
        shared.Kind,
        typer.Option(
            "--model",
            help="Networks and simple models weighted by rows they have not seen, one network "
            "beside the simple models, or the simple models alone.",
        ),
    ] = shared.Kind.stack,
    effort: Annotated[
        shared.Effort,
        typer.Option(
            "--effort",
            help="How long networks are trained and, of a stack, how many kinds there are.",
        ),
    ] = shared.Effort.normal,
    objective: Annotated[
        shared.Objective | None,
        typer.Option(
            "--objective", help="What training minimizes; ropd, or vi for classes, unless given."
        ),
    ] = None,
    likelihood: Annotated[
        Likelihood,
        typer.Option(
            "--likelihood",
            help="What the target is, numbers, counts, classes or censored numbers, and how it "
            "scatters; auto goes by its values.",
        ),
    ] = Likelihood.auto,
    exposure: Annotated[
        str | None,
        typer.Option(
            "--exposure", metavar="COLUMN", help="What counts are in proportion to: time, area."
        ),
    ] = None,
    censoring: Annotated[
        str | None,
        typer.Option(
            "--censoring",
            metavar="COLUMN",
            help="Says of each target if it is exact (none), a lower limit (right) or an upper one "
            "(left).",
        ),
    ] = None,
    upper: Annotated[
        str | None,
        typer.Option(
            "--upper",
            metavar="COLUMN",
            help="Upper ends of targets known only as a range; an empty end is open.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="COLUMN",
            help="Rows that belong together (a patient, a machine): they are held out together.",
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="COLUMN",
            help="When rows were taken: the last are held out. Neither this nor --group is an "
            "input.",
        ),
    ] = None,
    members: Annotated[int, typer.Option("--members", help="Networks in the ensemble.", min=1)] = 1,
    restarts: Annotated[
        int, typer.Option("--restarts", help="Starts per network; the best is kept.", min=1)
    ] = 1,
    hidden: Annotated[
        str | None,
        typer.Option(
            "--hidden",
            help="Units per hidden layer, such as 50 or 100,50; unless given, each network's own.",
        ),
    ] = None,
    max_iter: Annotated[
        int | None, typer.Option("--max-iter", help="Epochs at most.", min=1)
    ] = None,
    joint: Annotated[
        bool, typer.Option("--joint", help="Model the covariance between several targets.")
    ] = False,
    report: shared.ReportOption = None,
    delimiter: opening.DelimiterOption = None,
    decimal: opening.DecimalOption = None,
    thousands: opening.ThousandsOption = None,
    encoding: opening.EncodingOption = None,
    na: opening.NaOption = None,
    seed: shared.SeedOption = 0,
    json: shared.JsonOption = False,
    quiet: shared.QuietOption = False,
) -> None:
    """Fit a network to a table, save it, and score it on rows it has not seen.

    Numbers are used as they are and categories one-hot encoded. The encoding is part of the model
    file, so that `varprop predict` takes the raw table.
    """
    if group is not None and time is not None:
        raise shared.wrong_usage(
            "--group and --time both say which rows are held out together: give one."
        )
    if joint and len(target) < 2:
        raise shared.wrong_usage("--joint needs more than one --target.")
    if holdout is not None and not holdout < 1:
        raise shared.wrong_usage(f"--holdout must lie below 1, but is {holdout:g}.")
    try:
        sizes = tuple(int(part) for part in (hidden or "").split(",") if part.strip())
    except ValueError:
        sizes = (0,)
    if any(size < 1 for size in sizes) or (hidden is not None and not sizes):
        raise shared.wrong_usage(
            f"--hidden must be whole numbers such as 50 or 100,50, but is {hidden!r}."
        )
    dialect = opening.told(delimiter, decimal, thousands, encoding, na)
    shared.check_output(output, *tables)
    if report is not None:
        shared.check_output(report, *tables, other=output)
        if holdout == 0:
            raise shared.wrong_usage("--report needs rows to score, but --holdout is 0.")
    source = opening.open_table(tables, dialect)

    from varprop.tables import Roles, fit_table
    from varprop.tables.kinds import READ_AS

    options = {
        "likelihood": likelihood.value,
        "n_members": members,
        "n_restarts": restarts,
        "max_iter": max_iter,
        "output_covariance": joint,
    }
    if objective is not None:
        options["objective"] = objective.value
    if sizes:
        options["hidden_layer_sizes"] = sizes
    fitted = fit_table(
        source,
        Roles(
            targets=tuple(target),
            ids=tuple(id_ or ()),
            dropped=tuple(drop or ()),
            categories=tuple(category or ()),
            numbers=tuple(number or ()),
            missing=missing.value,
            exposure=exposure,
            censoring=censoring,
            upper=upper,
            group=group,
            time=time,
        ),
        options,
        model=kind.value,
        effort=effort.value,
        holdout=holdout,
        refit=refit,
        seed=seed,
        progress=not quiet and sys.stderr.isatty(),
        on_notes=lambda notes: shared.note(notes, quiet=quiet),
    )
    model, scored = fitted.model, fitted.scored
    outcome = model.preprocessing.outcome
    options["likelihood"] = outcome.likelihood
    model.save(output)
    if report is not None and scored is None:
        shared.note(["there is no report, since no rows were scored."], quiet=quiet)
        report = None
    if report is not None and scored is not None:
        from varprop.tables import report_table

        settings = {"table": source.label, "seed": seed, "missing": missing.value}
        settings |= {
            "model": kind.value,
            "effort": effort.value,
            **options,
            "weights": _weights(model),
        }
        if fitted.notes:
            settings["remarks"] = " ".join(f"{n[0].upper()}{n[1:]}" for n in fitted.notes)
        report_table(report, f"{source.label}: {', '.join(target)}", model, scored, settings)
    n_scored = 0 if scored is None else len(scored.y)
    if json:
        shared.print_json(
            {
                "model": output,
                "report": report,
                "train_rows": fitted.n_train,
                "scored_rows": n_scored,
                "out_of_fold": fitted.out_of_fold,
                "inputs": {c.name: READ_AS[c.values].says for c in model.preprocessing.inputs},
                "targets": list(target),
                "kind": outcome.kind,
                "likelihood": outcome.likelihood,
                "classes": list(outcome.classes) or None,
                "scorecard": None if scored is None else scored.card,
                "verdict": None if scored is None else scored.verdict,
                "weights": model.regressor.weights_,
                "out_of_fold_nll": model.regressor.out_of_fold_nll_,
                "outcome": model.regressor.outcome_,
                "epochs": model.regressor.n_iter_,
                "seconds": fitted.seconds,
                "notes": list(fitted.notes),
            }
        )
    elif not quiet:
        _say(fitted, output, report, list(target), refit=refit)
    if model.regressor.outcome_ == "interrupted":
        raise typer.Exit(shared.ExitCode.INTERRUPTED)


def _say(
    fitted: Fitted, output: str, report: str | None, targets: list[str], *, refit: bool
) -> None:
    """Print how good the model is, and where it is."""
    scored = fitted.scored
    if scored is not None:
        rows = "rows, out of fold" if fitted.out_of_fold else "held-out rows"
        shared.print_scorecard(
            scored.card, f"{', '.join(targets)}: {len(scored.y)} {rows}", scored.verdict
        )
    shared.say(f"The prediction is {_weights(fitted.model)}, as rows they had not seen have it.")
    apart = scored is not None and not fitted.out_of_fold and not refit
    shared.say(
        f"Saved {output}: fitted on {'the other' if apart else 'all'} {fitted.n_train} rows in "
        f"{fitted.seconds:.1f} s."
    )
    if apart:
        shared.say("(--refit fits once more, on all rows.)")
    if report is not None:
        shared.say(f"Report: {report}")


def _weights(model: TableModel) -> str:
    """Return what the prediction is made of, in words."""
    shares = sorted(model.regressor.weights_.items(), key=lambda item: -item[1])
    shown = [f"{weight:.0%} {name}" for name, weight in shares if weight >= 0.005]
    return ", ".join(shown)
