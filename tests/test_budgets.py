"""Where variance comes from, by columns of a table: sums, closed forms, command line, pictures."""

import csv
import dataclasses
import io
import re

import numpy as np
import pytest

from cli_runs import run, run_json, sentence, workplace
from test_unknown_categories import SHARES, cells, fitted, predict
from varprop import plotting
from varprop.predictive.budget import OTHER, UNTOLD, Budget
from varprop.predictive.distribution import Predictive
from varprop.report import write_report
from varprop.tables import budget_table
from varprop.tables.budgets import budget_of_rows
from varprop.tables.model import TableRows
from varprop.tables.source import Source

pytestmark = pytest.mark.usefixtures("as_users_run_it")

GIVEN = cells(
    ["red", None, "black", None, "blue"], ["old", "new", None, None, "new"], (1, 2, 3, None, None)
)


def budget(model, given):
    return budget_of_rows(model, model.preprocessing.encode(given, str, unseen="average"), str)


@pytest.mark.parametrize(
    ("kind", "targets"), [("linear", ("y",)), ("network", ("y",)), ("joint", ("y", "z"))]
)
def test_the_parts_sum_to_the_predicted_variance(kind, targets):
    model = fitted(kind, targets)
    found, dist = budget(model, GIVEN), predict(model, GIVEN)
    np.testing.assert_allclose(found.variance.sum(axis=1), dist.var, rtol=1e-6)
    assert found.names[:3] == [f"imputation of {name}" for name in ("size", "color", "kind")]
    assert found.names[-1] == "noise"
    assert (found.variance >= 0).all()
    # What is known has no imputation.
    known = np.array([[1, 1, 1], [1, 0, 1], [1, 0, 0], [0, 0, 0], [0, 1, 1]], bool)
    first = found.variance.reshape(5, len(found.names), -1)[:, :3, 0]
    np.testing.assert_array_equal(first == 0, known)


def test_an_unknown_category_has_the_variance_of_its_levels():
    """Of a line: p-weighted variance of the coefficients of the levels, in units of the target."""
    model = dataclasses.replace(fitted(), choice="linear")
    line = model.regressor.linear_
    coef = line.coef[0] * line.scaling.y_scale[0] / line.scaling.x_scale
    found = budget(model, cells([None, None], ["old", None]))
    of = dict(zip(found.names, found.variance.T, strict=True))
    color = SHARES @ (coef[1:4] - SHARES @ coef[1:4]) ** 2
    p = np.array([40, 20]) / 60
    kind = p @ (coef[4:] - p @ coef[4:]) ** 2
    np.testing.assert_allclose(of["imputation of color"], [color, color], rtol=1e-9)
    np.testing.assert_allclose(of["imputation of kind"], [0.0, kind], rtol=1e-9)


def test_a_table_of_it(tmp_path):
    model = fitted()
    source = Source.of_table(GIVEN)
    rows = TableRows(source, model.preprocessing, unseen="average", targets=False)
    found, table = budget_table(model, rows)
    assert table.column_names == ["row", "std", "variance", *found.names]
    assert table["row"].to_pylist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(table["std"].to_numpy() ** 2, found.variance.sum(axis=1))


def test_from_the_command_line(tmp_path):
    folder = workplace()
    model, table = folder / "impute.safetensors", folder / "houses.csv"
    given, output = ("explain", model, table, "--budget"), tmp_path / "parts.csv"
    result = run(*given, "-o", output)
    assert "price: where the variance of 60 predictions comes from" in result.stdout
    assert "imputation of rooms" in result.stdout
    assert "does not tell its own doubt from noise: --model vi takes" in result.stderr
    lines = list(csv.DictReader(io.StringIO(output.read_text())))
    predicted = list(csv.DictReader(io.StringIO(run("predict", model, table).stdout)))
    assert list(lines[0])[:4] == ["id", "std", "variance", "imputation of rooms"]
    for line, row in zip(lines, predicted, strict=True):
        assert line["id"] == row["id"]
        np.testing.assert_allclose(float(line["std"]), float(row["std"]), rtol=1e-6)
        parts = sum(float(value) for name, value in list(line.items())[3:])
        np.testing.assert_allclose(parts, float(row["std"]) ** 2, rtol=1e-6)
    found = run_json(*given)
    shares = [part["share"] for part in found["average"]["price"].values()]
    np.testing.assert_allclose(sum(shares), 1.0)
    assert UNTOLD in found["average"]["price"]
    assert len(found["budget"]["variance"]) == found["rows"] == 60
    apart = run_json(*given, "--model", "vi")["average"]["price"]
    assert {"weights of layer 1", "weights of layer 2", "noise"} <= set(apart)
    assert run(*given, "-o", "-", "-q").stdout.startswith("id,std,variance,")
    two = run_json("explain", folder / "two.safetensors", folder / "full.csv", "--budget")
    assert list(two["average"]) == ["price", "rent"]
    assert "rent_variance" in two["budget"]


def test_rows_without_a_prediction_are_empty_and_bad_input_is_a_sentence(tmp_path):
    folder = workplace()
    drop, table = folder / "drop.safetensors", folder / "houses.csv"
    found = run_json("explain", drop, table, "--budget")
    assert found["rows"] == 54
    assert found["budget"]["variance"][3] is None
    said = sentence("explain", drop, table, "-o", tmp_path / "a.csv", code=2)
    assert said == "-o is for --budget: give both, or none."
    lines = table.read_text().splitlines()
    (tmp_path / "holes.csv").write_text("\n".join([lines[0], lines[4]]) + "\n")
    said = sentence("explain", drop, tmp_path / "holes.csv", "--budget", code=3)
    assert said == "holes.csv has no complete row to explain."


def made_up(n=9, sources=3):
    rng = np.random.default_rng(0)
    return Budget([f"source {k}" for k in range(sources)], rng.gamma(1.0, size=(n, sources)))


def test_a_budget_in_brief():
    whole = made_up(sources=5)
    brief = whole.brief(3)
    assert brief.names[-1] == OTHER
    np.testing.assert_allclose(brief.variance.sum(axis=1), whole.variance.sum(axis=1))
    average = brief.shares.mean(axis=0)[:3]
    assert (np.diff(average) <= 0).all()
    total = whole.variance.sum(axis=1)
    assert (np.diff(total[whole.largest()]) <= 0).all()
    two = Budget(["a"], np.ones((2, 1, 3)) * [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(two.of_output(1).variance, [[2.0], [2.0]])
    with pytest.raises(ValueError, match="of one output already"):
        whole.of_output(0)


def test_the_plot_draws_the_shares():
    found = made_up()
    ax = plotting.plot_budget(found, rows=[2, 0])
    widths = np.array([bar.get_width() for bar in ax.patches]).reshape(3, 3)
    np.testing.assert_allclose(widths.sum(axis=0), 1.0)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    place = [found.names.index(name) for name in names]
    np.testing.assert_allclose(widths[:, 1], found.shares[2, place])
    assert [t.get_text() for t in ax.get_yticklabels()] == ["average of 9 rows", "row 2", "row 0"]
    ax = plotting.plot_budget(found, shares=False, labels=list("abcdefghi"))
    top = "abcdefghi"[int(found.variance.sum(axis=1).argmax())]
    assert ax.get_yticklabels()[1].get_text() == top
    with pytest.raises(ValueError, match="choose one by `output`"):
        plotting.plot_budget(Budget(["a"], np.ones((2, 1, 3))))
    with pytest.raises(ValueError, match="2 labels but 9 rows"):
        plotting.plot_budget(found, labels=["a", "b"])


def test_the_report_shows_it(tmp_path):
    path, n = tmp_path / "report.html", 12
    hostile = '<img src=x onerror="alert(1)">'
    found = made_up(n, 10)
    found = Budget([hostile, UNTOLD, *found.names[2:]], found.variance)
    prediction = Predictive.gaussian(np.zeros(n), found.variance.sum(axis=1), 0.0)
    given = {"title": "T", "prediction": prediction, "y": np.zeros(n), "target_names": ["y"]}
    write_report(path, budget=found, **given)
    text = path.read_text("utf-8")
    assert "Where the uncertainty comes from" in text
    assert hostile not in text
    (spoken,) = re.findall(r'aria-label="Average shares of the stated variance[^"]*"', text)
    assert spoken.count("%") == 8  # seven sources and the others
    assert "other sources" in spoken
    brief = found.brief(7)
    assert f"{100 * brief.shares.mean(axis=0)[0]:.0f}\xa0%" in spoken
    top = int(found.variance.sum(axis=1).argmax())
    assert f"The most uncertain row is row {top + 1} " in text
    write_report(path, **given)
    assert "Where the uncertainty comes from" not in path.read_text("utf-8")
    with pytest.raises(ValueError, match="The budget is of 9 rows and 1 outputs, the prediction"):
        write_report(path, budget=made_up(), **given)
