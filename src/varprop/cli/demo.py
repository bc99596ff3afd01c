"""`varprop demo`: the whole way on real data, from a table to a report, in under a minute."""

from __future__ import annotations

import pathlib
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

TARGET = "color_intensity"
# Of the networks: their defaults; tests train for less.
OPTIONS: dict[str, Any] = {}


@command
def demo(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where the HTML report goes.")
    ] = "varprop-demo.html",
    page: Annotated[
        str, typer.Option("--page", metavar="FILE", help="Where the what-if page goes.")
    ] = "varprop-demo-what-if.html",
    seed: SeedOption = 0,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Predict the color intensity of 178 wines: data, fit, scorecard, report and what-if page.

    The data comes with scikit-learn: nothing is downloaded. Two files are written, the report and a
    page that contains the model.
    """
    check_output(output)
    check_output(page, other=output)

    from varprop.exports.export import export
    from varprop.tables import Roles, fit_table, report_table
    from varprop.tables.source import Source

    say(
        "178 Italian wines, twelve measurements of each: alcohol, malic acid, phenols, hue and so "
        f"on. To be predicted from them: {TARGET}.",
        quiet=quiet or json,
    )
    fitted = fit_table(
        Source.of_table(wines(), "scikit-learn's wine data"),
        Roles((TARGET,)),
        OPTIONS,
        effort="quick",
        seed=seed,
        progress=not quiet and sys.stderr.isatty(),
    )
    scored = fitted.scored
    assert scored is not None
    settings = {"data": "scikit-learn's wine data", "effort": "quick", "seed": seed}
    report_table(output, "Wines: how sure is the prediction?", fitted.model, scored, settings)
    export(fitted.model, page, to="page", name="What if the wine were another?")
    if json:
        found = {"scorecard": scored.card, "verdict": scored.verdict, "seconds": fitted.seconds}
        print_json({**found, "report": output, "page": page})
        return
    if quiet:
        return
    title = f"{TARGET}: {len(scored.y)} wines, each predicted by networks that had not seen it"
    print_scorecard(scored.card, title, scored.verdict)
    lower, upper = scored.prediction.interval(0.9)
    say("Three of them, with the interval that should hold the truth nine times in ten:")
    for row in (0, 60, 140):
        say(
            f"  predicted {scored.prediction.mean[row]:.1f}, between {lower[row]:.1f} and "
            f"{upper[row]:.1f}; observed {scored.y[row]:.1f}"
        )
    say(f"Trained in {fitted.seconds:.1f} s, quickly; `varprop fit` by itself trains longer.")
    say(f"Report: {_address(output)}")
    say(f"What if: {_address(page)} (contains the model; move its inputs)")
    say("Open both in a browser. Your own table: varprop fit data.csv --target COLUMN")


def _address(path: str) -> str:
    """Return what a browser, and many a terminal, opens."""
    return pathlib.Path(path).resolve().as_uri()


def wines() -> Any:
    """Return scikit-learn's wine data as a table of measurements, without the kind of grape."""
    import pyarrow as pa
    from sklearn.datasets import load_wine

    data = load_wine()
    names = [name.replace("/", "_") for name in data.feature_names]
    return pa.table(dict(zip(names, data.data.T, strict=True)))
