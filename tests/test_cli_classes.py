"""The command line follows the target: what is said, chosen, written and refused for classes."""

import csv
import io
import json

import numpy as np
import pyarrow as pa
import pytest

import varprop
from cli_runs import run, run_json, sentence
from varprop.files.container import ModelFileError
from varprop.predictive.scorecard import CLASS_SCORES, FREQUENCIES, LINEAR, MODEL
from varprop.tables import Roles, TableError
from varprop.tables.description import from_json, to_json
from varprop.tables.fitting import _drawn, networks
from varprop.tables.outcomes import Outcome
from varprop.tables.source import Source
from varprop.tables.survey import survey

pytestmark = pytest.mark.usefixtures("as_users_run_it")


# A stack of frequencies and logistic regression, trained for seconds.
QUICK = ("--model", "linear", "--max-iter", "300")


def trees(n=150, *, seed=0, names=("ash", "Birch", "cedar")):
    """CSV text with an id, a number, a category and a class."""
    rng = np.random.default_rng(seed)
    lines = ["id,height,soil,tree"]
    for row in range(n):
        height, soil = rng.normal(), ["clay", "sand"][rng.integers(2)]
        at = height + (soil == "clay") + rng.normal()
        kind = names[int(np.searchsorted([0.0, 1.2][: len(names) - 1], at))]
        lines.append(f"t{row},{height:.3f},{soil},{kind}")
    return "\n".join(lines) + "\n"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "trees.csv").write_text(trees())
    return tmp_path


def fit(place, *more, target="tree", table="trees.csv", **options):
    named = ("-t", target, "--id", "id", "-o", place / "m.st")
    return run("fit", place / table, *named, *QUICK, *more, **options)


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_codes_with_zeros_in_front_are_classes(place):
    (place / "trees.csv").write_text(trees(names=("01", "02")))
    told = json.loads(fit(place, "--json").stdout)
    assert (told["kind"], told["classes"]) == ("classes", ["01", "02"])
    assert any("--number tree takes it as numbers" in note for note in told["notes"])


def test_what_each_kind_of_model_trains():
    """Rows of a class go to networks by name: a linear model has no hidden layer."""
    for model, names in {
        "stack": ["network", "cold", "linear"],
        "network": ["network", "linear"],
        "linear": ["linear"],
    }.items():
        found = networks(model, {"hidden_layer_sizes": (5,)}, classes=True)
        assert [name for name, _ in found] == names
        sizes = [network.hidden_layer_sizes for _, network in found]
        assert sizes == [(5,)] * (len(names) - 1) + [()]


# ---- what is chosen -----------------------------------------------------------------------------


def chosen(values, likelihood="auto", **roles):
    n = len(values)
    table = pa.table({"x": np.arange(n) % 7 + 0.5, "y": values, "e": np.arange(n) % 5 + 1.0})
    names = {"targets": ("y",), "dropped": ("e",)} | roles
    found = survey(Source.of_table(table), Roles(**names), likelihood)
    return found.outcome, [note for note in found.notes if "target" in note]


def test_text_is_classes():
    outcome, (note,) = chosen(["no", "yes", "maybe"] * 8)
    assert outcome == Outcome("classes", "auto", "text", ("maybe", "no", "yes"))
    assert note == (
        "target 'y' holds text ('maybe', 'no', 'yes'): the probability of each class is predicted."
    )
    outcome, _ = chosen(["No", "no ", "YES", "yes"] * 6)  # spellings are one class
    assert outcome.classes == ("No", "YES")


def test_true_and_false_and_two_numbers_are_classes():
    outcome, (note,) = chosen([True, False] * 12)
    assert (outcome.kind, outcome.values, outcome.classes) == (
        "classes",
        "boolean",
        ("false", "true"),
    )
    assert "is true or false: the probability of each" in note
    outcome, (note,) = chosen([0, 1] * 12)
    assert (outcome.kind, outcome.values, outcome.classes) == ("classes", "number", ("0", "1"))
    assert "has only the values 0 and 1" in note
    assert "--likelihood gaussian takes them as numbers" in note
    assert chosen([1.5, -2.0] * 12)[0].classes == ("-2", "1.5")
    # Asked for as numbers, or hardly ever the other one, they are numbers.
    assert chosen([0, 1] * 12, "gaussian") == (Outcome(), [])
    outcome, (note,) = chosen([3] * 21 + [7] * 3)
    assert outcome == Outcome()
    assert note == (
        "target 'y' has only the values 3 and 7, but 7 in 3 rows only, and is taken as numbers: "
        "--likelihood logit predicts the probability of each."
    )


def test_whole_numbers_are_numbers_but_offered_to_be_counts():
    outcome, (note,) = chosen(np.arange(60) % 6)
    assert outcome == Outcome()
    assert "has 6 whole numbers from 0 to 5 and is taken as numbers" in note
    assert "--likelihood negative-binomial (or poisson)" in note
    assert "ordinal" in note
    assert "ordinal" not in chosen((np.arange(60) % 6) ** 2)[1][0]
    for values in (np.arange(60) % 6 - 1.0, np.arange(60) % 6 + 0.5, np.arange(60), np.arange(9)):
        assert chosen(values) == (Outcome(), [])


def test_a_likelihood_overrides():
    assert chosen(np.arange(60) % 6, "poisson")[0] == Outcome("counts", "poisson")
    ordinal = Outcome("classes", "ordinal", "number", ("0", "1", "2", "3", "4", "10"))
    assert chosen(np.array([0, 1, 2, 3, 4, 10])[np.arange(60) % 6], "ordinal")[0] == ordinal
    assert chosen(["a", "b"] * 9, "probit")[0].likelihood == "probit"
    outcome, (note,) = chosen(np.arange(60) % 6, exposure="e", dropped=())
    assert outcome == Outcome("counts", "negative-binomial", exposure="e")
    assert "taken as counts in proportion to 'e'" in note


def test_what_cannot_be_is_said():
    def says(match, values, likelihood="auto", **roles):
        with pytest.raises(TableError, match=match):
            chosen(values, likelihood, **roles)

    says(
        "holds the text 'a' in row 1 .*: --likelihood gaussian needs numbers",
        ["a", "b"] * 9,
        "gaussian",
    )
    says("true or false: --likelihood student-t needs numbers", [True, False] * 9, "student-t")
    says(
        "--likelihood logit is for two classes, but target 'y' has 3", ["a", "b", "c"] * 9, "logit"
    )
    says("--likelihood ordinal needs numbers.*holds text", ["a", "b", "c"] * 9, "ordinal")
    says("more than 100 different values: these are no classes", np.arange(300) / 2, "softmax")
    says("is -1 in row 3 .*, but --likelihood poisson needs counts", [0, 2, -1] * 9, "poisson")
    says("is 0.5 in row 2 .*, but --likelihood poisson needs counts", [0, 0.5, 1] * 9, "poisson")
    says("is 0 in row 1 .*, but --likelihood log-normal needs", [0, 2, 1] * 9, "log-normal")
    says(
        "--exposure is for counts, but --likelihood is gaussian",
        [0, 2, 1] * 9,
        "gaussian",
        exposure="e",
    )
    says("--likelihood censored needs --censoring or --upper", [0, 2, 1] * 9, "censored")
    says("a class is predicted alone", [0, 1] * 9, "logit", targets=("y", "x"))
    both = {"censoring": "e", "upper": "x", "dropped": ()}
    says("--censoring and --upper are two ways to say one thing", [0, 2, 1] * 9, **both)


def test_held_out_rows_leave_every_class_something():
    codes = np.array([0] * 90 + [1] * 8 + [2] * 2)
    for seed in range(20):
        held = _drawn(np.arange(100), codes, 30, np.random.default_rng(seed))
        assert len(np.unique(held)) == 30
        kept = np.setdiff1d(np.arange(100), held)
        assert set(codes[kept]) == {0, 1, 2}
        assert 1 <= (codes[held] == 1).sum() <= 4
    numbers = _drawn(np.arange(9), np.zeros(9, int), 4, np.random.default_rng(3))
    np.testing.assert_array_equal(numbers, np.random.default_rng(3).permutation(9)[:4])


# ---- the commands -------------------------------------------------------------------------------


def test_fit_says_what_it_did(place):
    shown = fit(place, "--holdout", "0.3")
    assert "note: target 'tree' holds text ('Birch', 'ash', 'cedar')" in shown.stderr
    for word in (MODEL, FREQUENCIES, *CLASS_SCORES, "held-out rows"):
        assert word in shown.stdout
    assert "NLL" not in shown.stdout
    assert "RMSE" not in shown.stdout
    told = json.loads(fit(place, "--json").stdout)
    assert (told["kind"], told["likelihood"]) == ("classes", "auto")
    assert told["classes"] == ["Birch", "ash", "cedar"]
    assert set(told["scorecard"]) == {MODEL, LINEAR, FREQUENCIES}


def test_predict_writes_probabilities(place):
    fit(place, "-q")
    (place / "new.csv").write_text("id,height,soil\na,0.5,clay\nb,-3,sand\n")
    shown = run("predict", place / "m.st", place / "new.csv")
    first, second = rows_of(shown.stdout)
    names = ["id", "predicted", "p_Birch", "p_ash", "p_cedar", "entropy", "model_entropy"]
    assert list(first) == [*names, "noise_entropy", "outside"]
    assert (first["id"], second["predicted"]) == ("a", "ash")
    for row in (first, second):
        chances = {name[2:]: float(row[name]) for name in row if name.startswith("p_")}
        assert sum(chances.values()) == pytest.approx(1)
        assert row["predicted"] == max(chances, key=chances.get)
        entropy = -sum(p * np.log(p) for p in chances.values())
        assert float(row["entropy"]) == pytest.approx(entropy)
        parts = float(row["model_entropy"]) + float(row["noise_entropy"])
        assert parts == pytest.approx(entropy)
    told = run_json("predict", place / "m.st", place / "new.csv", "--model", "constant")
    shares = [told["predictions"][f"p_{name}"] for name in ("Birch", "ash", "cedar")]
    assert [a for a, _ in shares] == [b for _, b in shares]  # whatever the inputs


def test_rows_without_a_value_have_no_prediction(place):
    fit(place, "-q", "--missing", "drop")
    (place / "new.csv").write_text("id,height,soil\na,,clay\nb,1,sand\n")
    first, second = rows_of(run("predict", place / "m.st", place / "new.csv").stdout)
    assert {first[name] for name in first if name != "id"} == {""}
    assert second["predicted"] in ("ash", "Birch", "cedar")


def test_unknown_categories_are_mixtures_of_probabilities(place):
    fit(place, "-q")
    text = "id,height,soil\n" + "".join(f"{s},0.3,{s}\n" for s in ("clay", "sand", "loam"))
    (place / "new.csv").write_text(text)
    told = run_json("predict", place / "m.st", place / "new.csv", "--unseen", "average")
    soil = [line.split(",")[2] for line in trees().splitlines()[1:]]
    trained = told["predictions"]
    share = None
    for name in ("p_ash", "p_Birch", "p_cedar"):
        clay, sand, loam = trained[name]
        here = (loam - sand) / (clay - sand)
        share = here if share is None else share
        assert here == pytest.approx(share)
    assert share == pytest.approx(np.mean(np.array(soil) == "clay"), abs=0.1)


def test_evaluate_scores_classes(place):
    fit(place, "-q")
    (place / "new.csv").write_text(trees(60, seed=1))
    told = run_json("evaluate", place / "m.st", place / "new.csv", "--report", place / "r.html")
    assert set(told["scorecard"][MODEL]) == set(CLASS_SCORES)
    assert "log-loss" in told["verdict"]
    assert (place / "r.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    (place / "new.csv").write_text(trees(60, seed=1).replace(",cedar\n", ", CEDAR \n"))
    again = run_json("evaluate", place / "m.st", place / "new.csv")
    assert again["scorecard"] == told["scorecard"]


def test_classes_that_are_numbers_or_truth_values_come_back(place):
    for values, predicted in ((("0", "1"), {"0", "1"}), (("true", "false"), {"true", "false"})):
        (place / "two.csv").write_text(trees(names=values))
        fit(place, "-q", table="two.csv")
        shown = run("predict", place / "m.st", place / "two.csv")
        assert {row["predicted"] for row in rows_of(shown.stdout)} == predicted
        assert "log-loss" in run_json("evaluate", place / "m.st", place / "two.csv")["verdict"]


def test_explain_says_what_moves_the_probability(place):
    fit(place, "-q")
    (place / "new.csv").write_text("id,height,soil\na,2.5,clay\n")
    shown = run("explain", place / "m.st", place / "new.csv").stdout
    assert "moves the probability by" in shown
    assert "moves the entropy by" in shown
    (row,) = run_json("explain", place / "m.st", place / "new.csv")["rows"]
    classes = row["targets"]
    assert set(classes) == {"Birch", "ash", "cedar"}
    assert sum(part["probability"] for part in classes.values()) == pytest.approx(1)
    for name in ("height", "soil"):  # what one class gains others lose
        total = sum(part["inputs"][name]["probability"] for part in classes.values())
        assert total == pytest.approx(0, abs=1e-12)


def test_bad_input_is_one_sentence(place):
    fit(place, "-q")
    model, table = place / "m.st", place / "bad.csv"
    table.write_text(trees(30).replace(",cedar\n", ",elm\n", 1))
    line = next(i for i, text in enumerate(table.read_text().splitlines(), 1) if "elm" in text)
    said = sentence("evaluate", model, table, code=3)
    assert f"target 'tree' is 'elm' in line {line} of bad.csv, a class that the training" in said
    assert "(Birch, ash, cedar)" in said
    for option in (["--quantiles", "0.5"], ["--total"], ["--survival", "1"]):
        said = sentence("predict", model, place / "trees.csv", *option, code=2)
        assert "the model predicts classes" in said
    said = sentence("explain", model, place / "trees.csv", "--budget", code=3)
    assert said == "budgets need predictions of numbers, but the model predicts classes."
    table.write_text(trees(30, names=("ash",)))
    said = sentence("fit", table, "-t", "tree", "--drop", "id", code=3)
    assert said == "target 'tree' is 'ash' in all rows: there is nothing to learn."
    table.write_text(trees(30, names=("ash",)) + "t30,0,clay,elm\n")
    said = sentence("fit", table, "-t", "tree", "--drop", "id", code=3)
    assert said.startswith("target 'tree' is 'elm' in only one row: a class needs two or more")
    said = sentence("predict", model, place / "trees.csv", "--survival", "1,x", code=2)
    assert "--survival must be different numbers" in said


def test_python_goes_the_same_way(place):
    """Fitted, saved, loaded; what Python loads from the file predicts the same."""
    options = ("--holdout", "0.3", "--report", place / "r.html")
    told = json.loads(fit(place, *options, "--json").stdout)
    assert set(told["scorecard"]) == {MODEL, LINEAR, FREQUENCIES}
    assert "log-loss" in told["verdict"]
    assert "Do probabilities come true?" in (place / "r.html").read_text("utf-8")
    rows = rows_of(run("predict", place / "m.st", place / "trees.csv").stdout)
    model = varprop.StackedClassifier.load(place / "m.st")
    table = [line.split(",") for line in trees().splitlines()[1:]]
    X = [[float(h), soil == "clay", soil == "sand"] for _, h, soil, _ in table]
    expected = model.predict_proba(np.array(X, float))
    found = [[float(row[f"p_{name}"]) for name in ("Birch", "ash", "cedar")] for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    scored = run_json("evaluate", place / "m.st", place / "trees.csv")
    codes = [("Birch", "ash", "cedar").index(name) for *_, name in table]
    log_loss = -np.log(expected[np.arange(len(codes)), codes]).mean()
    assert scored["scorecard"][MODEL]["log-loss"] == pytest.approx(log_loss, abs=1e-6)
    assert scored["share_trained_on"] == pytest.approx(0.7, abs=0.02)


def test_a_file_describes_its_classes():
    table = pa.table({"x": np.arange(24) % 7, "y": ["no", "yes", "maybe"] * 8})
    pre = survey(Source.of_table(table), Roles(("y",))).learn(np.ones(24, bool))
    written = json.loads(json.dumps(to_json(pre)))
    assert from_json(written) == pre
    assert written["outcome"]["classes"] == ["maybe", "no", "yes"]
    for key, value in (
        ("classes", ["no"]),
        ("classes", ["no", "no"]),
        ("classes", [1, 2]),
        ("kind", "counts"),
        ("likelihood", "tweedie"),
        ("values", "color"),
        ("exposure", 3),
        ("extra", 1),
    ):
        bad = written | {"outcome": written["outcome"] | {key: value}}
        with pytest.raises(ModelFileError, match="damaged"):
            from_json(bad)


def test_classes_are_monitored(place):
    fit(place)
    (place / "same.csv").write_text(trees(seed=1))
    found = run_json("monitor", place / "m.st", place / "same.csv")
    assert found["state"] == "green"
    names = [check["name"] for check in found["checks"]]
    assert names == ["height", "soil", "rows outside", "accuracy of tree", "log-loss"]
    assert [course["name"] for course in found["courses"]][1:] == [
        "most probable class is right",
        "log-loss",
    ]
    swapped = trees(seed=1).replace(",ash", ",?").replace(",cedar", ",ash").replace(",?", ",cedar")
    (place / "swapped.csv").write_text(swapped)
    found = run_json("monitor", place / "m.st", place / "swapped.csv")
    assert found["state"] == "red"
    assert "the most probable class was right in" in found["sentence"]
    text = run("card", place / "m.st").stdout
    assert "a class, with the probability of each" in text
    assert "| log-loss | accuracy |" in text
