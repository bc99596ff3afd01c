"""The card of a model: what stands in it, that names cannot break it, and words that people add."""

import datetime
import json
import re

import numpy as np
import pyarrow as pa
import pytest

import varprop
from cli_runs import run, run_json, sentence
from varprop import StackedRegressor
from varprop.files.container import read_model_file, write_model_file
from varprop.tables import (
    Roles,
    TableError,
    TableModel,
    describe_model,
    fit_table,
    model_card,
    monitor_table,
)
from varprop.tables.record import made_today
from varprop.tables.source import Source

pytestmark = pytest.mark.usefixtures("as_users_run_it")

HOSTILE = "</script>|*=cmd`[x](y)\n"


def table(n, rng, *, targets=1):
    cells = {HOSTILE: rng.normal(size=n), "size": np.round(rng.uniform(20, 200, n), 1)}
    cells["size"][::10] = np.nan
    cells["city"] = rng.choice(["Bern", "<Ulm>"], n)
    for k in range(targets):
        cells["price" if k == 0 else f"rent{k}"] = 3 * cells[HOSTILE] + rng.normal(size=n)
    return Source.of_table(
        pa.table({name: pa.array(v, from_pandas=True) for name, v in cells.items()}), "houses.csv"
    )


@pytest.fixture(scope="module")
def model():
    source = table(300, np.random.default_rng(0))
    return fit_table(source, Roles(("price",), missing="impute"), model="linear").model


@pytest.fixture
def path(model, tmp_path):
    model.save(tmp_path / "houses.safetensors")
    return tmp_path / "houses.safetensors"


def test_the_card_says_what_is_known(path, model):
    text = model_card(path)
    today = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    assert text.startswith("# Model card: houses\n")
    headings = [
        "Intended use",
        "Data",
        "Scores",
        "Limits",
        "Looking after it",
        "Settings of the fit",
    ]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == headings
    assert f"| Fitted | {today} on 300 rows of houses.csv |" in text
    assert f"varprop {varprop.__version__}" in text
    assert "**price**: a number, with its whole predictive distribution" in text
    size = next(column for column in model.preprocessing.inputs if column.name == "size")
    assert f"| size | numbers | {size.mean:.4g} ± {size.var**0.5:.3g} |" in text
    assert "| 10 % |" in text  # of the sizes are missing
    assert "| city | 2 categories |" in text
    own = model.record.scores["this model"]
    assert f"| this model | {own['NLL']:.4g} | {own['RMSE']:.4g} |" in text
    assert "Of 300 training rows, each predicted by models that had not seen it." in text
    assert model.record.verdict.replace("_", "\\_") in text
    assert "they say nothing of other places and later times" in text
    assert "missing values in 30 rows" in text.lower()


def test_names_are_shown_as_they_are(path):
    text = model_card(path)
    assert "</script>" not in text
    assert "&lt;Ulm&gt;" in text
    assert "&lt;/script&gt;\\|\\*=cmd\\`\\[x\\](y)" in text
    # As many cells in every line of the table of columns as in its heading.
    lines = [line for line in text.splitlines() if line.startswith("| ") and "numbers" in line]
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines] == [6, 6]


def test_words_go_into_the_file_and_the_model_stays_the_same(path, model):
    before = read_model_file(path, lambda *_: None)
    words = {"intended_use": "Offers for *flats*.\n\nOnly in Bern.", "about": "<b>Prices</b>"}
    describe_model(path, words)
    header, arrays = read_model_file(path, lambda *_: None)
    assert header["table"]["record"]["words"] == words
    for name, array in before[1].items():
        np.testing.assert_array_equal(array, arrays[name])
    text = model_card(path)
    assert "Offers for \\*flats\\*.\n\nOnly in Bern." in text
    assert "&lt;b&gt;Prices&lt;/b&gt;" in text
    assert "Nobody has said more" not in text
    new = table(200, np.random.default_rng(1))
    assert monitor_table(TableModel.load(path), new).state == monitor_table(model, new).state
    # What was said stays until it is said anew; nothing takes it away.
    describe_model(path, {"about": "", "limits": "Not for castles."})
    text = model_card(path)
    assert "Prices" not in text
    assert "Only in Bern." in text
    assert text.index("## Limits") < text.index("Not for castles.") < text.index("## Looking")
    with pytest.raises(TableError, match="20,001 characters: a card takes 20,000 at most"):
        describe_model(path, {"about": "x" * 20_001})
    with pytest.raises(ValueError, match="not 'other'"):
        describe_model(path, {"other": "x"})


def test_files_of_before_have_a_card_that_says_what_is_not_known(path):
    header, arrays = read_model_file(path, lambda *_: None)
    del header["table"]["record"]
    for column in header["table"]["inputs"]:
        column.pop("sketch", None)
    write_model_file(path, header, arrays)
    text = model_card(path)
    assert "| Fitted | not known: the model file is of before |" in text
    assert "Not known: no rows were scored, or the model file is of before." in text
    assert text.count("| not known |") == 2
    describe_model(path, {"about": "An old one."})
    assert "An old one." in model_card(path)
    assert TableModel.load(path).record.past is None


def test_a_model_that_should_not_be_used_says_so_first(path):
    header, arrays = read_model_file(path, lambda *_: None)
    header["table"]["record"]["verdict"] = "Do not use this model: it is too sure."
    write_model_file(path, header, arrays)
    assert model_card(path).split("\n\n")[1] == "**Do not use this model: it is too sure.**"


def test_roles_and_several_targets(tmp_path):
    source = table(120, np.random.default_rng(0), targets=2)
    roles = Roles(("price", "rent1"), missing="drop", dropped=("city",), time="size")
    fit_table(source, roles, model="linear").model.save(tmp_path / "two.safetensors")
    text = model_card(tmp_path / "two.safetensors")
    assert "Scores are of other times than those trained on, by the column size." in text
    assert "Columns that the model does not look at: city, size." in text
    assert "| price | RMSE |" in text
    assert "| rent1 | RMSE |" in text
    assert "NLL" in text


def test_the_clock_can_be_set(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert made_today()[0] == "1970-01-02"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    assert made_today()[0].startswith("2")


def test_the_command(path, tmp_path):
    shown = run("card", path)
    assert shown.stdout == model_card(path)
    output = tmp_path / "card.md"
    found = run_json("card", path, "-o", output, "--intended-use", "Offers.", "--limits", "None.")
    assert found["card"] == output.read_text("utf-8") == model_card(path)
    assert "Offers." in found["card"]
    json.dumps(found)
    assert run("card", path, "-o", output).stdout == f"wrote {output}.\n"
    assert run("card", path, "-q").stdout == ""


def test_bad_input_is_one_sentence(path, tmp_path):
    before = path.read_bytes()
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    assert "is a table, not a model file" in sentence("card", tmp_path / "t.csv", code=3)
    assert "there is no file" in sentence("card", tmp_path / "none.st", code=3)
    X = np.linspace(0, 1, 20)[:, None]
    StackedRegressor([]).fit(X, X[:, 0]).save(tmp_path / "p.st")
    said = sentence("card", tmp_path / "p.st", "--about", "x", code=3)
    assert "was saved from Python without a table" in said
    said = sentence("card", path, "--about", "x", "-o", path, code=2)
    assert "is also read" in said
    (tmp_path / "cut.st").write_bytes(before[:-9])
    assert sentence("card", tmp_path / "cut.st", "--about", "x", code=3)
    assert path.read_bytes() == before
