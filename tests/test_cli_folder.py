"""`varprop fit` on a folder of Parquet files: the same fit as that of one table."""

import io
import itertools
import os
import pathlib

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rows
from cli_runs import QUICK, houses, run, run_json, sentence
from varprop.tables import (
    Roles,
    TableModel,
    TableRows,
    evaluate_table,
    fit_table,
    open_source,
    predict_table,
    write_table,
)

pytestmark = pytest.mark.usefixtures("as_users_run_it")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return rows.folder(tmp_path_factory.mktemp("command-line") / "rows")


@pytest.mark.parametrize("paths", ["folder", "files", "pattern"])
def test_the_command_line_fits_a_folder(folder, tmp_path, paths):
    files = sorted(folder.iterdir())
    tables = {"folder": [folder], "files": files, "pattern": [folder / "*.parquet"]}[paths]
    model = tmp_path / "model.safetensors"
    found = run_json("fit", *tables, "--target", "y", "--id", "index", "-o", model, *QUICK)
    assert found["train_rows"] == found["scored_rows"] == 210
    assert list(found["inputs"]) == ["x0", "x1", "weight"]
    assert set(found["scorecard"]) == {"this model", "linear model", "constant Gaussian"}
    assert run_json("evaluate", model, files[0])["rows"] == 70


def test_the_command_line_may_use_all_rows(folder, tmp_path):
    model = tmp_path / "model.safetensors"
    for options in (("--holdout", "0"), ("--holdout", "0.1", "--refit")):
        found = run_json("fit", folder, "--target", "y", "-o", model, *QUICK, *options)
        assert found["train_rows"] == 210
        assert (found["scorecard"] is None) == ("--refit" not in options)


def test_the_command_line_says_what_is_wrong_with_a_folder(folder, tmp_path):
    common = ("--target", "y", "-o", tmp_path / "model.safetensors")
    assert "no column 'z'" in sentence("fit", folder, *common, "--drop", "z", code=3)
    line = sentence("fit", tmp_path / "*.txt", *common, code=3)
    assert line.startswith("there is no file")
    assert not os.listdir(tmp_path)


# ---- a table with all there is ------------------------------------------------------------------

FIT = ("-t", "price", "-t", "rent", "--id", "id", "--missing", "impute", "--holdout", "0.25")


def mixed(n_rows=60):
    """Ids, numbers with holes, text with holes, true and false, times, two targets."""
    table = pd.read_csv(io.StringIO(houses(n_rows)))
    rng = np.random.default_rng(1)
    table["time"] = 1_700_000_000 + rng.integers(0, 600, n_rows)
    table["garden"] = rng.random(n_rows) < 0.5
    table.loc[::9, "city"] = None
    return table


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """The same rows in the same order: one text file, one Parquet file, and a folder of three."""
    place, table = tmp_path_factory.mktemp("mixed"), mixed()
    (place / "many").mkdir()
    table.to_csv(place / "one.csv", index=False)
    table.to_parquet(place / "one.parquet", index=False)
    for number, part in enumerate(np.array_split(np.arange(len(table)), 3)):
        file = place / "many" / f"{number}.parquet"
        table.iloc[part].to_parquet(file, index=False, row_group_size=7)
    return {name: place / name for name in ("one.csv", "one.parquet", "many")}


@pytest.fixture(scope="module")
def fits(forms, tmp_path_factory):
    """What was said of each form, model and report among it."""
    place, found = tmp_path_factory.mktemp("fits"), {}
    for name, table in forms.items():
        model, page = place / f"{name}.safetensors", place / f"{name}.html"
        found[name] = run_json("fit", table, *FIT, *QUICK, "-o", model, "--report", page)
    return found


def test_a_folder_is_fitted_as_one_table_is(forms, fits):
    """Categories, holes, two targets, ids, hold-out, scorecard and report, whatever the form."""
    said = fits["one.csv"]
    assert (said["train_rows"], said["scored_rows"]) == (45, 15)
    assert said["inputs"] == {
        **{"size": "numbers", "rooms": "numbers", "city": "categories"},
        **{"time": "numbers", "garden": "true or false"},
    }
    one = TableModel.load(said["model"])
    for name in ("one.parquet", "many"):
        other = fits[name]
        many = TableModel.load(other["model"])
        assert [(c.name, c.values) for c in many.preprocessing.inputs] == [
            (c.name, c.values) for c in one.preprocessing.inputs
        ]
        for part in ("x_shift", "x_scale", "y_shift", "y_scale"):
            expected = getattr(one.regressor.scaling_, part)
            np.testing.assert_allclose(
                getattr(many.regressor.scaling_, part), expected, rtol=1e-12, err_msg=part
            )
        for card in ("this model", "linear model", "constant Gaussian"):
            for score, value in said["scorecard"][card].items():
                found = other["scorecard"][card][score]
                assert found == pytest.approx(value, rel=1e-4, abs=1e-7)
        text = pathlib.Path(other["report"]).read_text("utf-8")
        assert "city" in text
        assert "h0" in text  # ids label the rows
    predictions = [
        run_json("predict", fits[name]["model"], table)["predictions"]
        for name, table in itertools.product(fits, forms.values())
    ]
    for other in predictions[1:]:
        assert other["id"] == predictions[0]["id"] == mixed()["id"].tolist()
        assert other["outside"] == predictions[0]["outside"]
        for name in list(other)[1:-1]:
            np.testing.assert_allclose(other[name], predictions[0][name], rtol=1e-4, err_msg=name)


def test_evaluate_and_explain_read_a_folder(forms, fits):
    model = fits["many"]["model"]
    one, many = (run_json("evaluate", model, forms[name]) for name in ("one.csv", "many"))
    assert one["scorecard"] == many["scorecard"]
    one, many = (run_json("explain", model, forms[name]) for name in ("one.csv", "many"))
    assert one["rows"] == many["rows"]


def test_python_walks_the_same_way(forms, fits, tmp_path):
    """What the commands do are functions: the same bytes come out."""
    options = {"max_iter": 3, "hidden_layer_sizes": (4,)}
    roles = Roles(("price", "rent"), ids=("id",), missing="impute")
    fitted = fit_table(open_source(str(forms["many"])), roles, options, holdout=0.25)
    fitted.model.save(tmp_path / "m.safetensors")
    said, model = fits["many"], fits["many"]["model"]
    a, b = TableModel.load(tmp_path / "m.safetensors"), TableModel.load(model)
    assert a.preprocessing == b.preprocessing
    assert fitted.scored.card == said["scorecard"]
    rows = TableRows(open_source(str(forms["many"])), fitted.model.preprocessing, targets=False)
    plan = TableModel.load_plan(tmp_path / "m.safetensors")
    write_table(str(tmp_path / "p.csv"), predict_table(plan, rows))
    assert (tmp_path / "p.csv").read_text() == run("predict", model, forms["many"]).stdout
    scored, notes = evaluate_table(fitted.model, open_source(str(forms["many"])))
    again = run_json("evaluate", model, forms["many"])
    assert (scored.card, notes) == (again["scorecard"], again["notes"])


# ---- files that differ --------------------------------------------------------------------------


def spoiled(folder, change):
    """Two files, the second of which is changed."""
    folder.mkdir()
    table = mixed()
    table.to_parquet(folder / "a.parquet", index=False)
    change(table.copy()).to_parquet(folder / "b.parquet", index=False)
    return folder


DIFFERENT = {
    "less": (lambda t: t.drop(columns="size"), "b.parquet has no column 'size', but a.parquet has"),
    "more": (lambda t: t.assign(new=1), "b.parquet has a column 'new', but a.parquet has none"),
    "text": (
        lambda t: t.assign(size="big"),
        "column 'size' has the type string in row 1 of b.parquet, but another before it",
    ),
    "number": (
        lambda t: t.assign(city=1.5),
        "column 'city' has the type double in row 1 of b.parquet, but another before it",
    ),
    "target": (
        lambda t: t.assign(price=t["price"] > 0),
        "column 'price' has the type bool in row 1 of b.parquet, but another before it",
    ),
    "dates": (
        lambda t: t.assign(time=pd.Timestamp("2026-01-31")),
        "column 'time' has the type timestamp",
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_later_file_that_differs(tmp_path, name):
    change, expected = DIFFERENT[name]
    folder = spoiled(tmp_path / "d", change)
    said = sentence("fit", folder, *FIT, "-o", tmp_path / "m.safetensors", code=3)
    assert expected in said
    assert "b.parquet" in said
    assert os.listdir(tmp_path) == ["d"]


def test_a_later_file_that_a_model_cannot_read(tmp_path, fits):
    model, out = fits["many"]["model"], tmp_path / "out.csv"
    for name in ("less", "text", "number", "dates"):
        folder = spoiled(tmp_path / name, DIFFERENT[name][0])
        said = sentence("predict", model, folder, "-o", out, code=3)
        assert "b.parquet" in said
        assert not out.exists()
    folder = spoiled(tmp_path / "ids", lambda t: t.assign(id=1.5).iloc[:, ::-1])
    (folder / "a.parquet").rename(folder / "c.parquet")
    said = sentence("predict", model, folder, "-o", out, code=3)
    assert "column 'id' has the type string in row 1 of c.parquet, but another before it" in said
    folder = spoiled(tmp_path / "target", DIFFERENT["target"][0])
    said = sentence("evaluate", model, folder, code=3)
    assert "target 'price' has the type bool in row 1 of b.parquet" in said


def test_places_in_later_files_are_named(tmp_path):
    def with_infinity(table):
        table.loc[4, "size"] = np.inf
        return table

    folder = spoiled(tmp_path / "d", with_infinity)
    said = sentence("fit", folder, *FIT, "-o", tmp_path / "m.safetensors", code=3)
    assert "column 'size' is infinite in row 5 of b.parquet" in said


def test_a_file_that_holds_no_value_of_a_column_is_filled_in(tmp_path):
    """A column of nothing has the type null; whole numbers and dictionaries are no other types."""

    def change(table):
        kinds = {"size": int, "garden": bool, "id": "category"}
        return table.assign(rooms=None, city=None).astype(kinds)

    folder = spoiled(tmp_path / "d", change)
    assert pa.types.is_null(pq.read_schema(folder / "b.parquet").field("rooms").type)
    said = run_json("fit", folder, *FIT, *QUICK, "-o", tmp_path / "m.safetensors")
    assert said["train_rows"] == 90
    assert run_json("evaluate", tmp_path / "m.safetensors", folder)["rows"] == 120
    assert len(run_json("explain", tmp_path / "m.safetensors", folder)["rows"]) == 120
    done = run("predict", tmp_path / "m.safetensors", folder)
    assert "had missing values, which were filled in as uncertain" in done.stderr
