"""Counts and censored targets from a table to predictions and scores, with real, tiny fits."""

import csv
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

from cli_runs import run, run_json, sentence
from varprop.predictive.scorecard import CONSTANT, MODEL
from varprop.tables import TableModel, TableRows, open_source
from varprop.tables.columns import join_rows
from varprop.tables.outcomes import CODES, Outcome, censoring_codes

pytestmark = pytest.mark.usefixtures("as_users_run_it")

QUICK = ("--model", "network", "--max-iter", "3", "--hidden", "4", "--holdout", "0.3")


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def counts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("counts")
    rng = np.random.default_rng(0)
    x, hours = rng.normal(size=100), rng.uniform(0.5, 3, 100)
    calls = rng.poisson(hours * np.exp(0.5 * x))
    pd.DataFrame({"x": x, "hours": hours, "calls": calls}).to_csv(folder / "t.csv", index=False)
    likelihood = ("--likelihood", "poisson", "--exposure", "hours")
    told = run_json(
        "fit", folder / "t.csv", "-t", "calls", "-o", folder / "m.st", *likelihood, *QUICK
    )
    return folder, told


def test_a_fit_of_counts(counts):
    folder, told = counts
    assert (told["kind"], told["likelihood"], told["classes"]) == ("counts", "poisson", None)
    assert list(told["inputs"]) == ["x"]  # the exposure is none
    assert set(told["scorecard"]) == {MODEL, "constant model"}
    pre = TableModel.load(folder / "m.st").preprocessing
    assert pre.outcome == Outcome("counts", "poisson", exposure="hours")


def test_what_counts_lack_for_a_page_is_named_and_nothing_is_written(counts, tmp_path):
    folder, _ = counts
    said = sentence("page", folder / "m.st", "-o", tmp_path / "p.html", code=3)
    assert said.startswith("the likelihood Poisson has no plan, and so it can be neither exported")
    sentence("export", folder / "m.st", "--to", "js", "-o", tmp_path / "p.js", code=3)
    assert list(tmp_path.iterdir()) == []


def test_counts_are_predicted_for_their_exposure(counts):
    folder, _ = counts
    text = "x,hours\n0.5,1\n0.5,2\n0.5,8\n"
    (folder / "new.csv").write_text(text)
    options = ("--quantiles", "0.5", "--survival", "1.5")
    shown = run("predict", folder / "m.st", folder / "new.csv", *options)
    rows = rows_of(shown.stdout)
    names = ["row", "mean", "std", "lower", "upper", "q0.5", "p_zero", "survival_1.5", "outside"]
    assert list(rows[0]) == names
    mean = np.array([float(row["mean"]) for row in rows])
    np.testing.assert_allclose(mean / mean[0], [1, 2, 8], rtol=1e-6)
    for row in rows:
        for name in ("lower", "upper", "q0.5"):
            assert float(row[name]) == int(float(row[name]))
        assert np.exp(-float(row["mean"])) <= float(row["p_zero"]) < 0.9  # an uncertain rate: more
        assert float(row["survival_1.5"]) <= 1 - float(row["p_zero"])
    # Without the column they are for an exposure of 1, which is said.
    (folder / "none.csv").write_text("x\n0.5\n")
    shown = run("predict", folder / "m.st", folder / "none.csv")
    assert "there is no column 'hours': counts are for an exposure of 1." in shown.stderr
    assert float(rows_of(shown.stdout)[0]["mean"]) == pytest.approx(mean[0])
    (folder / "zero.csv").write_text("x,hours\n0.5,0\n")
    said = sentence("predict", folder / "m.st", folder / "zero.csv", code=3)
    assert said == "column 'hours' is 0 in line 2 of zero.csv: an exposure must be positive."


def test_scores_of_counts_are_log_probabilities(counts):
    folder, _ = counts
    told = run_json("evaluate", folder / "m.st", folder / "t.csv", "--report", folder / "r.html")
    assert told["share_trained_on"] == pytest.approx(0.7, abs=0.02)
    assert "Does each count occur as often as stated?" in (folder / "r.html").read_text("utf-8")
    model = TableModel.load(folder / "m.st").part("constant")
    source = open_source(str(folder / "t.csv"))
    rows = join_rows(list(TableRows(source, model.preprocessing).encoded()))
    # The constant model, by another way: a Gamma-like rate is close to one Poisson rate here.
    table = pd.read_csv(folder / "t.csv")
    rate = model.predict_dist(rows, str).mean / table.hours
    assert np.ptp(rate) < 1e-9
    plain = -stats.poisson.logpmf(table.calls, rate * table.hours).mean()
    assert told["scorecard"]["constant model"]["NLL"] == pytest.approx(plain, abs=0.1)
    for name in ("--total", "--recalibrate"):
        more = [name] if name == "--total" else [name, folder / "t.csv"]
        said = sentence("predict", folder / "m.st", folder / "t.csv", *more, code=3)
        assert "predicts counts" in said


@pytest.fixture(scope="module")
def times(tmp_path_factory):
    folder = tmp_path_factory.mktemp("times")
    rng = np.random.default_rng(1)
    x = rng.normal(size=100)
    t, c = np.exp(0.5 * x + 0.3 * rng.normal(size=100)), rng.uniform(0.5, 4, 100)
    status = np.where(t <= c, "", "right")
    table = pd.DataFrame({"x": x, "days": np.minimum(t, c), "status": status})
    table.to_csv(folder / "t.csv", index=False)
    options = ("-t", "days", "--censoring", "status", "-o", folder / "m.st")
    shown = run("fit", folder / "t.csv", *options, *QUICK, "--report", folder / "r.html")
    return folder, table, shown


def test_a_fit_of_censored_targets(times):
    folder, table, shown = times
    right = int((table.status == "right").sum())
    assert (
        f"of 100 targets {100 - right} are exact, {right} known to be at least so large "
        "(right-censored)." in shown.stderr
    )
    assert CONSTANT in shown.stdout
    assert "RMSE" not in shown.stdout
    assert "How many last how long?" in (folder / "r.html").read_text("utf-8")
    pre = TableModel.load(folder / "m.st").preprocessing
    assert pre.outcome == Outcome("censored", "censored", censoring="status")


def test_survival_is_what_the_prediction_says(times):
    folder, _, _ = times
    shown = run("predict", folder / "m.st", folder / "t.csv", "--survival", "1,2")
    for row in rows_of(shown.stdout)[:20]:
        one, two = float(row["survival_1"]), float(row["survival_2"])
        assert 0 <= two <= one <= 1
        assert (one > 0.95) == (float(row["lower"]) > 1)


def test_censored_scores_are_of_what_is_known(times):
    folder, table, _ = times
    told = run_json("evaluate", folder / "m.st", folder / "t.csv")
    assert told["share_trained_on"] == pytest.approx(0.7, abs=0.02)
    assert set(told["scorecard"][MODEL]) == {"NLL", "CRPS"}
    model = TableModel.load(folder / "m.st").part("constant")
    source = open_source(str(folder / "t.csv"))
    rows = join_rows(list(TableRows(source, model.preprocessing).encoded()))
    p = model.predict_dist(rows, str)
    exact = (table.status != "right").to_numpy()
    known = np.where(exact, p.logpdf(table.days), np.log(p.survival(table.days)))
    assert told["scorecard"][CONSTANT]["NLL"] == pytest.approx(-known.mean())


def test_the_bounds_of_ranges():
    import pyarrow as pa

    table = pa.table({"low": [1.0, None, 2.0, 3.0, None], "high": [1.0, 4.0, None, 5.0, None]})
    outcome = Outcome("censored", "censored", upper="high")
    inf, nan = np.inf, np.nan
    expected = [[1, 1], [-inf, 4], [2, inf], [3, 5], [nan, nan]]
    np.testing.assert_array_equal(outcome.observed(table, ("low",), str), expected)
    assert set(CODES.values()) == {-1, 0, 1}


@pytest.mark.parametrize(
    ("cell", "line"), [("maybe", "is 'maybe' in line 3"), ("2", "is '2' in line 3")]
)
def test_unknown_codes_are_one_sentence(tmp_path, cell, line):
    table = tmp_path / "t.csv"
    table.write_text(f"x,y,c\n1,1,right\n2,2,{cell}\n" + "".join(f"{i},{i},0\n" for i in range(20)))
    said = sentence("fit", table, "-t", "y", "--censoring", "c", code=3)
    assert line in said
    assert "allowed are none (or 0, or an empty cell), left (-1, <) and right (1, >)" in said


def test_a_target_that_says_what_is_censored(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("x,y\n" + "".join(f"{i},{i}\n" for i in range(20)))
    said = sentence("fit", table, "-t", "y", "--censoring", "y", code=3)
    assert said.startswith("column 'y' is named more than once among --target")


def test_other_bad_input_is_one_sentence(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("x,y,u\n" + "".join(f"{i},{i},{i + 1}\n" for i in range(1, 20)) + "5,9,3\n")
    said = sentence("fit", table, "-t", "y", "--upper", "u", code=3)
    assert said == (
        "column 'u' is 3 in line 21 of t.csv, below the target's 9: it must hold the upper ends."
    )
    said = sentence("fit", table, "-t", "y", "--exposure", "z", code=3)
    assert said.startswith("t.csv has no column 'z'")
    said = sentence("fit", table, "-t", "y", "--likelihood", "censored", code=3)
    assert said.startswith("--likelihood censored needs --censoring or --upper")
    table.write_text("x,y\n" + "".join(f"{i},{i - 3}\n" for i in range(20)))
    said = sentence("fit", table, "-t", "y", "--likelihood", "log-normal", code=3)
    assert said.startswith("target 'y' is -3 in line 2 of t.csv, but --likelihood log-normal needs")


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (("--exposure", "e"), "--exposure"),
        (("--upper", "u"), "--upper"),
        (("--likelihood", "log-normal"), "--likelihood log-normal"),
    ],
)
def test_a_line_is_for_gaussian_noise_alone(tmp_path, options, asked):
    table = tmp_path / "t.csv"
    table.write_text("x,y,e,u\n" + "".join(f"{i},{i % 5 + 1},2,{i + 9}\n" for i in range(30)))
    said = sentence("fit", table, "-t", "y", "--model", "linear", *options, code=3)
    assert said == (
        f"--model linear is a line with Gaussian noise, which {asked} is not for: leave out one of "
        "the two."
    )


def test_exposures_that_cannot_be(tmp_path):
    table = tmp_path / "t.csv"

    def with_cell(cell):
        rows = [f"{i % 7 / 2},{i % 4},{cell if i == 3 else i + 1}\n" for i in range(40)]
        table.write_text("x,y,hours\n" + "".join(rows))
        named = ("-t", "y", "--exposure", "hours", "--likelihood", "poisson", "--holdout", "0")
        return ("fit", table, *named, "-o", tmp_path / "m.st")

    said = sentence(*with_cell("abc"), code=3)
    assert said == (
        "column 'hours' holds the text 'abc' in line 5 of t.csv: an exposure must be a number."
    )
    said = sentence(*with_cell(""), code=3)
    assert said == (
        "column 'hours' has no value in line 5 of t.csv: fill it in, or leave such rows out "
        "(--missing drop)."
    )
    told = run_json(*with_cell(""), "--missing", "drop", *QUICK)
    assert "1 row with missing values left out." in told["notes"]


def test_codes_of_censoring_may_be_floats():
    cells = pa.array(["1.0", "0.0", None, "-1.0", "1"])
    assert censoring_codes(cells, "c", str).tolist() == [1, 0, 0, -1, 1]


def test_a_row_too_far_off_is_named_with_its_column(tmp_path):
    """The mean of a log-normal far outside is larger than any number; its file is not damaged."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    table, new = tmp_path / "t.csv", tmp_path / "new.csv"
    frame = pd.DataFrame({"x": x, "y": np.exp(2 * x + 0.1 * rng.normal(size=80))})
    frame.to_csv(table, index=False)
    options = ("--likelihood", "log-normal", "--model", "network", "--max-iter", "300")
    run("fit", table, "-t", "y", "-o", tmp_path / "m.st", *options)
    new.write_text("x\n0.5\n1000\n")
    said = sentence("predict", tmp_path / "m.st", new, code=3)
    assert "line 3 of new.csv is no finite number: column 'x' lies" in said
    assert said.endswith("correct it or leave the row out.")


def test_counts_are_monitored(counts):
    folder, _ = counts
    rng = np.random.default_rng(1)
    x, hours = rng.normal(size=200), rng.uniform(0.5, 3, 200)
    for name, factor in (("same", 1), ("more", 4)):
        calls = rng.poisson(factor * hours * np.exp(0.5 * x))
        table = pd.DataFrame({"x": x, "hours": hours, "calls": calls})
        table.to_csv(folder / f"{name}.csv", index=False)
    found = run_json("monitor", folder / "m.st", folder / "same.csv")
    assert (found["state"], found["n_targets"]) == ("green", 200)
    found = run_json("monitor", folder / "m.st", folder / "more.csv")
    assert found["state"] == "red"
    assert "a count, with its whole predictive distribution" in run("card", folder / "m.st").stdout


def test_censored_targets_are_monitored_by_their_scores(times):
    folder, table, _ = times
    table.assign(x=table.x + 0.001).to_csv(folder / "same.csv", index=False)
    found = run_json("monitor", folder / "m.st", folder / "same.csv")
    names = [check["name"] for check in found["checks"]]
    assert (found["state"], names) == ("green", ["x", "rows outside", "NLL"])
    table.assign(days=table.days * 30).to_csv(folder / "later.csv", index=False)
    found = run_json("monitor", folder / "m.st", folder / "later.csv")
    assert found["state"] == "red"
