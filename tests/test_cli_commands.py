"""The commands: what they print, write and agree with."""

import csv
import io
import re

import numpy as np
import pandas as pd
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import made_up
import varprop.cli.demo
import varprop.tables.source
from cli_runs import QUICK, houses, run, run_json, sentence, workplace
from varprop import FAWNClassifier, FAWNRegressor, StackedRegressor
from varprop.files.planning import plan_of
from varprop.files.stack import save_stack
from varprop.predictive.scorecard import CONSTANT, LINEAR, MODEL, SCORES, scores
from varprop.tables import TableModel, TableRows, open_source
from varprop.tables.columns import join_rows
from varprop.tables.model import to_json

pytestmark = pytest.mark.usefixtures("as_users_run_it")
SIMPLE = {"linear": LINEAR, "constant": CONSTANT}


@pytest.fixture
def place(as_users_run_it):
    return workplace()


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def encoded(model, path):
    rows = TableRows(open_source(str(path)), model.preprocessing, targets=False)
    return join_rows(list(rows.encoded()))


# ---- fit ----------------------------------------------------------------------------------------


def test_fit_ends_with_a_scorecard(place, tmp_path):
    output = tmp_path / "m.safetensors"
    options = ("--drop", "rent", "--missing", "impute", "--holdout", "0.25", "--id", "id", *QUICK)
    shown = run("fit", place / "houses.csv", "-t", "price", "-o", output, *options)
    for word in (MODEL, LINEAR, CONSTANT, "NLL", "CRPS", "price: 15 held-out rows"):
        assert word in shown.stdout
    assert f"Saved {output}: fitted on the other 45 rows" in shown.stdout
    assert "missing values in 6 rows are filled in" in shown.stderr
    assert "before the loss had converged: raise --max-iter." in shown.stderr
    # The same seed gives the same model, to the byte.
    assert output.read_bytes() == (place / "impute.safetensors").read_bytes()

    result = run_json("fit", place / "houses.csv", "-t", "price", "-o", output, *options, "--refit")
    assert (result["train_rows"], result["scored_rows"], result["out_of_fold"]) == (60, 15, False)
    assert set(result["scorecard"]) == {MODEL, LINEAR, CONSTANT}
    assert all(set(values) == set(SCORES) for values in result["scorecard"].values())
    assert result["inputs"] == {"size": "numbers", "rooms": "numbers", "city": "categories"}
    assert output.read_bytes() != (place / "impute.safetensors").read_bytes()


def test_too_few_rows_are_not_held_out(place, tmp_path):
    output = tmp_path / "m.safetensors"
    common = ("-t", "price", "--drop", "rent", "--id", "id", "-o", output, *QUICK)
    report = ("--report", tmp_path / "r.html")
    result = run("fit", place / "full.csv", *common, "--holdout", "0.1", *report)
    assert "60 rows are too few to hold out 10%" in result.stderr
    assert "there is no scorecard (try --holdout 0.3)." in result.stderr
    assert "no report" in result.stderr
    assert "fitted on all 60 rows" in result.stdout
    assert not (tmp_path / "r.html").exists()
    quiet = run("fit", "-", *common, "-q", stdin=(place / "full.csv").read_text())
    assert quiet.output == ""
    # What is advised would do, or nothing is.
    line = (*common, "--model", "linear")
    shown = run("fit", "-", *line, "--holdout", "0.3", stdin=houses(25, holes=False))
    assert "there is no scorecard (try --holdout 0.4)." in shown.stderr
    shown = run("fit", "-", *line, "--holdout", "0.5", stdin=houses(12, holes=False))
    assert "there is no scorecard." in shown.stderr


def test_unless_told_otherwise_every_row_is_trained_on_and_scored(place, tmp_path):
    output, report = tmp_path / "m.safetensors", tmp_path / "r.html"
    common = ("-t", "price", "--drop", "rent", "--id", "id", "-o", output, *QUICK)
    shown = run("fit", place / "full.csv", *common, "--report", report)
    assert "price: 60 rows, out of fold" in shown.stdout
    assert "fitted on all 60 rows" in shown.stdout
    assert report.exists()
    told = run_json("fit", place / "full.csv", *common)
    assert (told["train_rows"], told["scored_rows"], told["out_of_fold"]) == (60, 60, True)
    found = {part: told["scorecard"][name]["NLL"] for part, name in SIMPLE.items()}
    assert found == pytest.approx({part: told["out_of_fold_nll"][part] for part in SIMPLE})
    few = run("fit", "-", *common, "--model", "linear", stdin=houses(9, holes=False))
    assert "9 rows are too few to score: there is no scorecard." in few.stderr


def test_the_simple_models_are_those_of_the_training_rows(place):
    """The scorecard of `fit`, made again by hand."""
    from sklearn.linear_model import BayesianRidge

    model = TableModel.load(place / "drop.safetensors")
    rows = encoded(model, place / "full.csv")
    rng_order = np.random.default_rng(0).permutation(54)  # six rows of sixty have a hole
    train = np.setdiff1d(np.arange(60), np.arange(3, 60, 10))[np.sort(rng_order[14:])]
    y = pd.read_csv(place / "full.csv")["price"].to_numpy()[train]
    X = rows.X[train]
    Z = (X - X.mean(0)) / X.std(0)
    ridge = BayesianRidge().fit(Z, (y - y.mean()) / y.std())
    mean, std = ridge.predict(Z, return_std=True)
    linear = model.with_simple(rows, str)[LINEAR]
    np.testing.assert_allclose(linear.mean[train], mean * y.std() + y.mean())
    np.testing.assert_allclose(linear.std[train], std * y.std())
    constant = model.with_simple(rows, str)[CONSTANT]
    n = model.regressor.n_seen_
    std = y.std() * np.sqrt((n + 1) / (n - 1))  # of a next one about the mean of n
    np.testing.assert_allclose([constant.mean[0], constant.std[0]], [y.mean(), std])


# ---- predict ------------------------------------------------------------------------------------


def test_predict_takes_the_raw_table(place):
    out = rows_of(run("predict", place / "impute.safetensors", place / "houses.csv").stdout)
    assert [row["id"] for row in out] == [f"h{i:03d}" for i in range(60)]
    model = TableModel.load_plan(place / "impute.safetensors")
    rows = encoded(model, place / "houses.csv")
    assert rows.X_std is not None
    assert rows.X_std[3, 1] > 0
    dist = model.regressor.predict_dist(rows.X, rows.X_std)
    by_jax = TableModel.load(place / "impute.safetensors").regressor
    by_jax = by_jax.predict_dist(rows.X, rows.X_std)
    np.testing.assert_allclose((dist.mean, dist.std), (by_jax.mean, by_jax.std), rtol=1e-6)
    parts = ["model_std", "noise_std"] if dist.identified else []
    assert list(out[0]) == ["id", "mean", "std", *parts, "lower", "upper", "outside"]
    got = {name: np.array([float(row[name]) for row in out]) for name in list(out[0])[1:-1]}
    np.testing.assert_array_equal(got["mean"], dist.mean)
    np.testing.assert_allclose(got["std"], dist.std)
    for part in parts:
        np.testing.assert_allclose(got[part], getattr(dist, part))
    np.testing.assert_allclose((got["lower"], got["upper"]), dist.interval(0.9))
    # Filling in the mean without saying so would be surer than it has a right to be.
    sure = model.regressor.predict_dist(rows.X)
    assert (dist.std[3::10] > sure.std[3::10]).all()
    np.testing.assert_allclose(np.delete(dist.std, np.s_[3::10]), np.delete(sure.std, np.s_[3::10]))


def test_every_format_predicts_the_same(place, tmp_path):
    model, table = place / "impute.safetensors", pd.read_csv(place / "houses.csv")
    reference = run("predict", model, place / "houses.csv").stdout
    inputs = {name: tmp_path / name for name in ("t.parquet", "t.feather", "t.tsv", "t.csv.gz")}
    table.to_parquet(inputs["t.parquet"])
    table.to_feather(inputs["t.feather"])
    table.to_csv(inputs["t.tsv"], sep="\t", index=False)
    table.to_csv(inputs["t.csv.gz"], index=False)
    for path in inputs.values():
        assert run("predict", model, path).stdout == reference, path
    assert run("predict", model, "-", stdin=(place / "houses.csv").read_text()).stdout == reference
    run("predict", model, inputs["t.parquet"], "-o", tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text() == reference
    run("predict", model, place / "houses.csv", "-o", tmp_path / "o.parquet", "-q")
    run("predict", model, place / "houses.csv", "-o", tmp_path / "o.feather", "-q")
    parquet, feather = pq.read_table(tmp_path / "o.parquet"), tmp_path / "o.feather"
    assert parquet.equals(pyarrow.feather.read_table(str(feather)))
    assert [f"{x:.17g}" for x in parquet["mean"].to_pylist()] == [
        f"{float(row['mean']):.17g}" for row in rows_of(reference)
    ]


def test_blocks_are_seen_by_nobody(place, monkeypatch):
    whole = run("predict", place / "impute.safetensors", place / "houses.csv").stdout
    monkeypatch.setattr(varprop.tables.source, "_BLOCK_BYTES", 400)
    again = run("predict", place / "impute.safetensors", place / "houses.csv").stdout
    assert rows_of(again) == rows_of(whole)
    broken = (place / "houses.csv").read_text().replace("h050,", "h050,oops")
    sentence_ = run("predict", place / "impute.safetensors", "-", code=3, stdin=broken).stderr
    assert "in line 52 of standard input" in sentence_


def test_quantiles_and_intervals(place):
    options = ("--interval", "0.5", "--quantiles", "0.1,0.25,0.75")
    out = rows_of(run("predict", place / "impute.safetensors", place / "full.csv", *options).stdout)
    assert list(out[0])[-4:] == ["q0.1", "q0.25", "q0.75", "outside"]
    for row in out:
        assert (row["q0.25"], row["q0.75"]) == (row["lower"], row["upper"])
        assert float(row["q0.1"]) < float(row["lower"]) < float(row["mean"])


def test_rows_with_holes_keep_their_place_under_drop(place):
    result = run("predict", place / "drop.safetensors", place / "houses.csv")
    out = rows_of(result.stdout)
    assert [row["id"] for row in out if not row["mean"]] == [f"h{i:03d}" for i in range(3, 60, 10)]
    assert "no prediction for 6 rows with missing values" in result.stderr


def test_several_targets(place):
    out = rows_of(run("predict", place / "two.safetensors", place / "full.csv").stdout)
    model = TableModel.load_plan(place / "two.safetensors")
    dist = model.predict_dist(encoded(model, place / "full.csv"), str)
    split = ["model_std", "noise_std"] if dist.identified else []
    parts = ["mean", "std", *split, "lower", "upper"]
    names = [f"{t}_{part}" for t in ("price", "rent") for part in parts]
    assert list(out[0]) == ["id", *names, "cov_price_rent", "outside"]
    found = [float(row["cov_price_rent"]) for row in out]
    np.testing.assert_allclose(found, dist.output_cov[:, 0, 1], rtol=1e-9)
    assert dist.is_joint
    np.testing.assert_allclose(
        [[float(row["price_std"]), float(row["rent_std"])] for row in out], dist.std
    )


def test_predictions_as_json(place, tmp_path):
    model, table = place / "impute.safetensors", place / "full.csv"
    result = run_json("predict", model, table)
    assert result["rows"] == 60
    assert len(result["predictions"]["mean"]) == 60
    result = run_json("predict", model, table, "-o", tmp_path / "o.csv")
    assert result["columns"][0] == "id"
    assert (tmp_path / "o.csv").exists()


def test_new_and_unseen(place):
    table = houses(12, holes=False).replace("Ulm", "Wien").replace("rent", "tax")
    model = place / "impute.safetensors"
    error = sentence("predict", model, "-", stdin=table, code=3)
    assert "column 'city' is 'Wien' in line" in error
    result = run("predict", model, "-", "--unseen", "average", stdin=table)
    assert "does not know these columns and ignores them: 'tax'" in result.stderr
    assert "rows had a category that the training data did not have" in result.stderr
    assert run("predict", model, "-", "--unseen", "average", "-q", stdin=table).stderr == ""


def test_a_model_saved_from_python(place, tmp_path):
    frame = pd.read_csv(place / "full.csv")
    X, y = frame[["size", "rooms"]], frame["price"]
    model = FAWNRegressor(4, max_iter=3, random_state=0).fit(X, y)
    model.save(tmp_path / "m.safetensors")
    out = rows_of(run("predict", tmp_path / "m.safetensors", place / "full.csv", "-q").stdout)
    found = [float(row["mean"]) for row in out]
    np.testing.assert_array_equal(found, plan_of(model).predict_dist(X.to_numpy(float)).mean)
    np.testing.assert_allclose(found, model.predict(X), rtol=1e-6)
    result = run_json("evaluate", tmp_path / "m.safetensors", place / "full.csv")
    assert set(result["scorecard"]) == {MODEL, CONSTANT}
    options = ("--target", "rent")
    other = run_json("evaluate", tmp_path / "m.safetensors", place / "full.csv", *options)
    assert other["scorecard"] != result["scorecard"]
    FAWNClassifier(4, max_iter=3).fit(X, y > y.median()).save(tmp_path / "c.safetensors")
    out = rows_of(run("predict", tmp_path / "c.safetensors", place / "full.csv", "-q").stdout)
    assert {row["predicted"] for row in out} <= {"false", "true"}
    FAWNRegressor(4, max_iter=3).fit(X.to_numpy(), y).save(tmp_path / "n.safetensors")
    error = sentence("predict", tmp_path / "n.safetensors", place / "full.csv", code=3)
    assert "without column names" in error


def test_python_reads_what_the_command_line_wrote(place):
    regressor = StackedRegressor.load(place / "impute.safetensors")
    assert regressor.target_names_ == ["price"]
    assert regressor.n_features_in_ == 4


# ---- evaluate, explain, demo --------------------------------------------------------------------


def test_evaluate(place, tmp_path):
    report = tmp_path / "r.html"
    model, table = place / "impute.safetensors", place / "houses.csv"
    result = run_json("evaluate", model, table, "--report", report)
    fitted = TableModel.load(model)
    rows = encoded(fitted, table)
    y = pd.read_csv(table)["price"].to_numpy()
    dist = fitted.predict_dist(rows, str)
    assert result["scorecard"][MODEL] == scores(y, dist)
    scaling = fitted.regressor.scaling_
    n = fitted.regressor.n_seen_
    std = scaling.y_scale * np.sqrt((n + 1) / (n - 1))  # of a next one about the mean of n
    by_hand = scores(y, made_up.flat(scaling.y_shift, std, 60))
    assert result["scorecard"][CONSTANT] == pytest.approx(by_hand, rel=1e-12)
    assert LINEAR in result["scorecard"]
    page = report.read_text("utf-8")
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "h003" in page  # ids label the rows
    shown = run("evaluate", model, table)
    assert "price: 60 rows of houses.csv" in shown.stdout
    assert run("evaluate", model, table, "-q").output == ""
    two = run_json("evaluate", place / "two.safetensors", place / "full.csv")
    assert np.isfinite(two["scorecard"][MODEL]["NLL"])
    names = TableModel.load(place / "two.safetensors").preprocessing.targets
    assert all(tuple(two["scorecard"][MODEL][key]) == names for key in SCORES if key != "NLL")
    shown = run("evaluate", place / "two.safetensors", place / "full.csv").stdout
    assert shown.count("RMSE") == 2  # a table each, never an average over units
    assert all(re.search(rf"^{name}$", shown, re.M) for name in (name + " *" for name in names))


def test_evaluate_leaves_out_what_has_no_target_or_no_prediction(place):
    table = (place / "houses.csv").read_text().splitlines()
    table[5] = "h004,50,2,Ulm,,"
    result = run_json("evaluate", place / "drop.safetensors", "-", stdin="\n".join(table) + "\n")
    assert result["rows"] == 53
    assert "1 row without a target left out." in result["notes"]


def test_explain(place):
    model = place / "impute.safetensors"
    fitted = TableModel.load(model)
    size, _, city = fitted.preprocessing.inputs
    table = f"id,size,rooms,city\nA,{size.mean!r},6,{city.typical}\nB,150,,Bern\n"
    result = run_json("explain", model, "-", stdin=table)
    first, second = (row["targets"]["price"] for row in result["rows"])
    assert [row["id"]["id"] for row in result["rows"]] == ["A", "B"]
    # What is typical moves nothing, and what stands alone explains the whole difference.
    assert first["inputs"]["size"]["mean"] == first["inputs"]["city"]["std"] == 0
    np.testing.assert_allclose(
        first["inputs"]["rooms"]["mean"], first["mean"] - first["typical_mean"], rtol=1e-6
    )
    # A missing value adds to the spread, compared with one that is known to be typical.
    assert second["inputs"]["rooms"]["value"] is None
    assert second["inputs"]["rooms"]["std"] > 0
    shown = run("explain", model, "-", "--top", "1", stdin=table).stdout
    assert "row 1, id A: price" in shown
    assert "(2 more inputs: --top 0 shows all.)" in shown
    many = "id,size,rooms,city\n" + "A,1,1,Ulm\n" * 1001
    assert "more than 1000 rows" in sentence("explain", model, "-", stdin=many, code=3)


def test_demo(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"max_iter": 3, "hidden_layer_sizes": (4,)}
    monkeypatch.setattr(varprop.cli.demo, "OPTIONS", options)
    shown = run("demo").stdout
    assert "178 wines, each predicted by networks that had not seen it" in shown
    written = {"varprop-demo.html", "varprop-demo-what-if.html"}
    assert {path.name for path in tmp_path.iterdir()} == written
    for name in written:
        assert (tmp_path / name).as_uri() in shown
    result = run_json("demo", "-o", "r.html", "--page", "p.html")
    assert set(result["scorecard"]) == {MODEL, LINEAR, CONSTANT}
    assert "od280_od315_of_diluted_wines" in (tmp_path / "p.html").read_text("utf-8")
    assert "written twice" in sentence("demo", "-o", "r.html", "--page", "r.html", code=2)


def test_the_network_of_the_demo_earns_its_keep(tmp_path):
    """On rows it had not seen, by what the verdict calls clear; and it is as sure as it says."""
    result = run_json("demo", "-o", tmp_path / "r.html", "--page", tmp_path / "p.html")
    assert result["verdict"].startswith("This model is clearly better than the linear model")
    card = result["scorecard"]
    assert card[MODEL]["NLL"] < card[LINEAR]["NLL"] - 0.1
    # 178 intervals of 90 % hold 82 to 97 % of the truths in all but one of a thousand tables.
    assert 0.82 < card[MODEL]["coverage 90 %"] < 0.97


def test_a_damaged_description_of_the_table_is_no_model_file(place, tmp_path):
    model = TableModel.load(place / "impute.safetensors")
    path = tmp_path / "m.safetensors"
    content = to_json(model.preprocessing)
    content["inputs"][0]["mean"] = "large"
    save_stack(model.regressor, path, table=content)
    assert "description of its table is damaged" in sentence(
        "predict", path, place / "full.csv", code=3
    )
    content = to_json(model.preprocessing)
    content["inputs"] = content["inputs"][:2]
    save_stack(model.regressor, path, table=content)
    assert "does not fit the network" in sentence("predict", path, place / "full.csv", code=3)
