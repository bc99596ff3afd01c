"""`varprop demo`: the whole way on real data, from a table to a report, in under a minute."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from varprop.cli.shared import (
    JsonOption,
    QuietOption,
    SeedOption,
    check_output,
    command,
    print_json,
    print_scorecard,
    say,
)

TARGET = "progression"
# Of the networks: their defaults; tests train for less.
OPTIONS: dict[str, Any] = {}


@command
def demo(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the HTML report goes.")
    ] = "varprop-demo.html",
    seed: SeedOption = 0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict the course of diabetes for 442 patients: data, fit, scorecard and report.

    The data comes with scikit-learn: nothing is downloaded. The only file written is the report.
    """
    check_output(output)

    from varprop.tables import Roles, fit_table, report_table
    from varprop.tables.source import Source

    say(
        "442 patients: age, sex, body mass index, blood pressure and six blood values; to be "
        f"predicted: {TARGET}, the course of the illness a year later.",
        quiet=quiet or json,
    )
    fitted = fit_table(
        Source.of_table(diabetes(), "scikit-learn's diabetes data"),
        Roles((TARGET,), categories=("sex",)),
        OPTIONS,
        seed=seed,
        progress=not quiet and sys.stderr.isatty(),
    )
    scored = fitted.scored
    assert scored is not None
    settings = {"data": "scikit-learn's diabetes data", "seed": seed}
    report_table(output, "Diabetes: how sure is the prediction?", fitted.model, scored, settings)
    if json:
        print_json({"scorecard": scored.card, "report": output, "seconds": fitted.seconds})
        return
    if quiet:
        return
    title = f"{TARGET}: {len(scored.y)} patients, each predicted by networks that had not seen it"
    print_scorecard(scored.card, title, scored.verdict)
    lower, upper = scored.prediction.interval(0.9)
    say("Three of them, with the interval that should hold the truth nine times in ten:")
    for row in range(3):
        say(
            f"  predicted {scored.prediction.mean[row]:.0f}, between {lower[row]:.0f} and "
            f"{upper[row]:.0f}; observed {scored.y[row]:.0f}"
        )
    say(f"Report: {output} (open it in a browser). Training took {fitted.seconds:.1f} s.")
    say("Your own table: varprop fit data.csv --target COLUMN")


def diabetes() -> Any:
    """Return scikit-learn's diabetes data as a table, in the units it was measured in."""
    import pyarrow as pa
    from sklearn.datasets import load_diabetes

    data = load_diabetes(scaled=False)
    names = ["age", "sex", "bmi", "blood_pressure", "tc", "ldl", "hdl", "tch", "ltg", "glucose"]
    columns = dict(zip(names, data.data.T, strict=True)) | {TARGET: data.target}
    return pa.table(columns | {"sex": columns["sex"].astype(int)})
