"""Totals over rows of a table, against sampling, against single rows, and from the command line."""

import csv
import dataclasses
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from cli_runs import run, run_json, sentence, workplace
from test_unknown_categories import COLORS, SHARES, cells, fitted, predict
from varprop.predictive.distribution import Predictive
from varprop.tables import TableError, total_table
from varprop.tables import totals as totals_module
from varprop.tables.model import TableRows
from varprop.tables.source import Source

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def totals(model, given, by=None, notes=None, **options):
    carried = [] if by is None else [by]
    source = Source.of_table(given)
    rows = TableRows(source, model.preprocessing, unseen="average", targets=False, carried=carried)
    on_note = (lambda note: None) if notes is None else notes.append
    return total_table(model, rows, by=by, on_note=on_note, **options)


def with_column(given, name, values):
    return given.append_column(name, pa.array(values))


def test_a_total_of_unknown_categories_has_the_moments_of_drawn_models():
    """400,000 draws of coefficients, levels and noise; |z| < 4.5 twice, false alarms 1e-5."""
    model = dataclasses.replace(fitted(), choice="linear")
    line, rng, draws = model.regressor.linear_, np.random.default_rng(0), 400_000
    # A missing color is another one in every row; the two rows of "black" have one color.
    given = cells([None, None, "black", " Black", "white", "red"], ["old"] * 5 + ["new"])
    found = totals(model, given)
    scaling = line.scaling
    delta = rng.multivariate_normal(np.zeros(6), line.cov[0], size=draws)
    total = np.zeros(draws)
    levels = rng.choice(3, size=(draws, 4), p=SHARES)
    for which, kind in ((0, 1), (1, 1), (2, 1), (2, 1), (3, 1), (None, 0)):
        color = np.full(draws, COLORS.index("red")) if which is None else levels[:, which]
        kinds = np.tile(np.eye(2)[kind], (draws, 1))
        x = np.hstack([np.full((draws, 1), 2.0), np.eye(3)[color], kinds])
        z = (x - scaling.x_shift) / scaling.x_scale
        f = z @ line.coef[0] + line.intercept[0] + ((z - line.center) * delta).sum(axis=1)
        f += np.sqrt(line.noise_var[0]) * rng.normal(size=draws)
        total += f * scaling.y_scale[0] + scaling.y_shift[0]
    mean, var = found["mean"][0].as_py(), found["std"][0].as_py() ** 2
    assert abs(total.mean() - mean) < 4.5 * total.std() / np.sqrt(draws)
    squared = (total - mean) ** 2
    assert abs(squared.mean() - var) < 4.5 * squared.std() / np.sqrt(draws)
    # Had every row a color of its own, the total would seem surer by far more than that.
    alone = totals(model, cells([None] * 5 + ["red"], ["old"] * 5 + ["new"]))
    assert squared.mean() - alone["std"][0].as_py() ** 2 > 9 * squared.std() / np.sqrt(draws)


@pytest.mark.parametrize(("kind", "targets"), [("linear", ("y",)), ("joint", ("y", "z"))])
def test_a_total_of_one_row_is_that_row(kind, targets):
    model = fitted(kind, targets)
    given = cells([None, "black", "red", None], [None, "old", "new", "new"], (1.0, 2.0, None, 3.0))
    single = predict(model, given)
    found = totals(model, with_column(given, "row", list("abcd")), "row")
    assert found["row"].to_pylist() == list("abcd")
    for output, target in enumerate(targets):
        before = f"{target}_" if len(targets) > 1 else ""
        mean, std = (value.reshape(4, -1)[:, output] for value in (single.mean, single.std))
        np.testing.assert_allclose(found[f"{before}mean"].to_numpy(), mean, rtol=1e-6)
        np.testing.assert_allclose(found[f"{before}std"].to_numpy(), std, rtol=1e-6)


def test_known_rows_are_combined_and_groups_are_by_themselves():
    model, notes = fitted("network"), []
    given = cells(["red", "blue", "red", "green"], ["old", "new", "old", "new"], (1, 2, 3, 4))
    given = with_column(given, "where", ["Bern", None, "bern ", None])
    found = totals(model, given, "where", notes, quantiles=(0.25,), interval=0.8)
    dist = predict(model, given)
    first, second = dist[[0, 2]].total(), dist[[1, 3]].total()
    assert found["where"].to_pylist() == ["Bern", "(missing)"]
    assert found["rows"].to_pylist() == [2, 2]
    assert not notes
    for line, want in enumerate((first, second)):
        lower, upper = want.interval(0.8)
        parts = (want.mean, want.std, want.model_std, want.noise_std)
        expected = np.concatenate([*parts, lower, upper, want.quantile(0.25)])
        names = ["mean", "std", "model_std", "noise_std", "lower", "upper", "q0.25"]
        got = [found[name][line].as_py() for name in names]
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    # The sum is less sure than rows that had nothing in common would make it.
    assert first.var[0] > dist[[0, 2]].var.sum()
    assert totals(model, given)["rows"].to_pylist() == [4]


def test_rows_of_unknown_categories_are_refused_where_they_are_mixtures():
    model = fitted()
    for colors in (["black", "black"], ["black", "red"]):
        dist = predict(model, cells(colors, ["old", "old"]))
        with pytest.raises(ValueError, match=r"total_table|weights of their own"):
            dist.total()
        with pytest.raises(ValueError, match="budget_table"):
            dist.budget()


def test_what_it_says_of_itself(monkeypatch):
    model, notes = fitted(), []
    totals(model, cells(["black"], ["old"]), notes=notes)
    (note,) = notes
    assert note.startswith("1 row has an unknown category, which counts as each of the known ones")
    monkeypatch.setattr(totals_module, "_MANY", 1)
    monkeypatch.setattr(totals_module, "_LONG", 0.0)
    totals(model, cells(["red"], ["old"]), notes=notes)
    assert notes[1].startswith("every pair of rows is looked at, which may take about 0 seconds")


def test_columns_of_all_kinds_and_those_that_cannot_be():
    model = fitted()
    given = cells(["red"] * 3, ["old"] * 3)
    assert totals(model, with_column(given, "n", [1, 1, None]), "n")["n"].to_pylist() == [
        "1",
        "(missing)",
    ]
    nan = with_column(given, "x", [0.5, float("nan"), float("nan")])
    assert totals(model, nan, "x")["x"].to_pylist() == ["0.5", "(missing)"]
    same = totals(model, given, "color")  # an input
    assert (same["color"].to_pylist(), same["rows"].to_pylist()) == (["red"], [3])
    with pytest.raises(TableError, match="holds list"):
        totals(model, with_column(given, "l", [[1], [2], [3]]), "l")
    with pytest.raises(TableError, match="'mean' has the name of a result"):
        totals(model, with_column(given, "mean", [1, 2, 3]), "mean")
    source = Source.of_table(with_column(given, "kind2", [1, 2, 3]))
    rows = TableRows(source, model.preprocessing, targets=False)
    with pytest.raises(ValueError, match="must carry the column 'kind2'"):
        total_table(model, rows, by="kind2")


def test_from_the_command_line(tmp_path):
    folder = workplace()
    model, table = folder / "impute.safetensors", folder / "full.csv"
    rows = list(csv.DictReader(io.StringIO(run("predict", model, table).stdout)))
    result = run("predict", model, table, "--total")
    (total,) = csv.DictReader(io.StringIO(result.stdout))
    assert list(total) == ["rows", "left_out", "mean", "std", "lower", "upper", "outside"]
    np.testing.assert_allclose(float(total["mean"]), sum(float(row["mean"]) for row in rows))
    alone = np.sqrt(sum(float(row["std"]) ** 2 for row in rows))
    assert abs(float(total["std"]) / alone - 1) > 0.05  # rows have something in common
    assert "note: this model does not tell its own doubt from noise" in result.stderr
    assert "--model vi takes the part" in result.stderr
    apart = run_json("predict", model, table, "--total-by", "city", "--model", "vi")
    assert apart["totals"]["city"] == ["Ulm", "Bern"] or apart["totals"]["city"] == ["Bern", "Ulm"]
    assert sum(apart["totals"]["rows"]) == apart["rows"] == 60
    assert {"model_std", "noise_std"} <= set(apart["totals"])
    assert apart["notes"] == []
    output = tmp_path / "out.parquet"
    wrote = run("predict", folder / "two.safetensors", table, "--total-by", "rent", "-o", output)
    assert wrote.stderr.endswith(f"Wrote totals of 60 rows to {output}.\n")
    assert "price_mean" in pq.read_schema(output).names


def test_rows_without_a_prediction_are_left_out(tmp_path):
    folder = workplace()
    found = run_json("predict", folder / "drop.safetensors", folder / "houses.csv", "--total")
    assert (found["totals"]["rows"], found["totals"]["left_out"]) == ([54], [6])
    assert "totals leave out 6 rows that have no prediction." in found["notes"]
    lines = (folder / "houses.csv").read_text().splitlines()
    empty = tmp_path / "empty.csv"
    empty.write_text("\n".join([lines[0], lines[4]]) + "\n")
    given = ("predict", folder / "drop.safetensors", empty, "--total")
    assert sentence(*given, code=3).startswith("empty.csv has no row that can be predicted: all")
    mixed = tmp_path / "mixed.csv"
    mixed.write_text("\n".join([lines[0], lines[1], lines[4]]) + "\n")
    by = run_json("predict", folder / "drop.safetensors", mixed, "--total-by", "id")
    assert by["totals"]["mean"][1] is None
    assert (by["totals"]["rows"], by["totals"]["left_out"]) == ([1, 0], [0, 1])


def test_bad_input_is_one_sentence(tmp_path):
    folder = workplace()
    given = ("predict", folder / "impute.safetensors", folder / "full.csv")
    said = sentence(*given, "--total-by", "citty", code=3)
    assert said == "full.csv has no column 'citty': did you mean 'city'?"
    assert "give one of them" in sentence(*given, "--total", "--total-by", "city", code=2)
    other = ("--total", "--recalibrate", folder / "full.csv")
    assert sentence(*given, *other, code=2).startswith("--recalibrate is for single rows")
    empty = tmp_path / "empty.csv"
    empty.write_text("id,size,rooms,city\n")
    said = sentence("predict", folder / "impute.safetensors", empty, "--total", code=3)
    assert said == "empty.csv has a header but no rows."


def test_every_member_is_right_for_all_rows_or_for_none():
    """Of a stack, a total is a mixture as well, and not a Gaussian of the summed variances."""
    one = Predictive.gaussian(np.zeros(3), np.zeros(3), 1.0)
    two = Predictive.gaussian(np.full(3, 10.0), np.zeros(3), 1.0)
    total = Predictive.mixture([one, two]).total()
    expected = (stats.norm.cdf(15.0, 0, np.sqrt(3)) + stats.norm.cdf(15.0, 30, np.sqrt(3))) / 2
    np.testing.assert_allclose(total.cdf(15.0), expected, rtol=1e-12)
