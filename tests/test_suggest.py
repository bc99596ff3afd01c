"""`varprop suggest`: which rows it takes, what it says of them, and what it refuses."""

import csv
import dataclasses
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli_runs import run, run_json, sentence
from test_unknown_categories import cells, fitted
from varprop import FAWNRegressor, StackedRegressor
from varprop.decisions import information_gain, select_improving, select_informative, without_noise
from varprop.predictive import mixture
from varprop.tables import TableError, TableModel
from varprop.tables import suggestions as suggestions_module
from varprop.tables.model import TableRows
from varprop.tables.outcomes import Outcome
from varprop.tables.source import Source
from varprop.tables.suggestions import suggest_table

pytestmark = pytest.mark.usefixtures("as_users_run_it")

POOL = cells(
    ["red", "blue", "green", "red", "red", "blue"],
    ["old", "new", "old", "new", "new", "new"],
    (1.0, 9.0, 3.0, 4.0, -6.0, 9.0),
)


def suggest(model, pool=POOL, **options):
    rows = TableRows(Source.of_table(pool), model.preprocessing, unseen="average", targets=False)
    return suggest_table(model, rows, **options)


def predicted(model, pool=POOL):
    return model.predict_dist(model.preprocessing.encode(pool, str, unseen="average"), str)


def test_rows_are_those_that_the_library_chooses():
    model = fitted("network")
    dist = predicted(model)
    assert dist.identified
    table, notes = suggest(model, n=3, goal="explore")
    found = select_informative(dist, 3)
    assert table["row"].to_pylist() == (found.rows + 1).tolist()
    np.testing.assert_allclose(table["gain"], found.gains, rtol=1e-6)
    np.testing.assert_allclose(table["mean"], dist.mean[found.rows], rtol=1e-6)
    np.testing.assert_allclose(table["std"], dist.std[found.rows], rtol=1e-6)
    share = (dist.model_var / dist.var)[found.rows]
    np.testing.assert_allclose(table["doubt"], share, rtol=1e-6)
    assert table["color"].to_pylist() == [POOL["color"][int(row)].as_py() for row in found.rows]
    assert notes == []
    assert found.rows[0] == information_gain(dist).argmax()
    for goal in ("maximize", "minimize"):
        table, notes = suggest(model, n=2, goal=goal, best=1.0)
        found = select_improving(dist, 2, 1.0, maximize=goal == "maximize")
        assert table["row"].to_pylist() == (found.rows + 1).tolist()
        np.testing.assert_allclose(table["gain"], np.exp(found.gains), rtol=1e-6)
        assert notes == []
        (note,) = suggest(model, n=1, goal=goal)[1]
        best = dist.mean.max() if goal == "maximize" else dist.mean.min()
        assert f"{best:.4g}" in note


def test_of_two_targets_one_counts():
    model = fitted("joint", ("y", "z"))
    dist = predicted(model)
    for k, target in enumerate(("y", "z")):
        table, _ = suggest(model, n=2, goal="maximize", target=target, best=0.0)
        np.testing.assert_allclose(
            table["mean"], dist.mean[np.array(table["row"]) - 1, k], rtol=1e-6
        )
    y, z = (suggest(model, n=6, goal="maximize", target=t, best=0.0)[0]["row"] for t in "yz")
    assert y != z
    with pytest.raises(TableError, match="the targets 'y', 'z': say by --target"):
        suggest(model, n=1, goal="explore")
    with pytest.raises(TableError, match="no target 'w': it has 'y', 'z'"):
        suggest(model, n=1, goal="explore", target="w")


def test_rows_with_unknown_values_cannot_be_tried():
    model = fitted("network")
    pool = cells(["black", None, "red"], ["old", "old", "old"], (1.0, 1.0, 2.0))
    table, (note,) = suggest(model, pool, n=1, goal="explore")
    assert table["row"].to_pylist() == [3]
    assert note.startswith("2 rows of ")
    with pytest.raises(TableError, match=r"2 experiments are asked for, but .* has 1 row"):
        suggest(model, pool, n=2, goal="explore")


def test_a_result_is_not_overwritten():
    model = fitted("network")
    pre = model.preprocessing
    size = dataclasses.replace(pre.inputs[0], name="gain")
    renamed = dataclasses.replace(pre, inputs=(size, *pre.inputs[1:]))
    pool = POOL.rename_columns(["gain", "color", "kind"])
    with pytest.raises(TableError, match="'gain' has the name of a result"):
        suggest(TableModel(model.regressor, renamed), pool, n=1, goal="explore")


def test_of_many_rows_the_best_are_looked_at_together(monkeypatch):
    model = fitted("network")
    whole, _ = suggest(model, n=1, goal="explore")
    monkeypatch.setattr(suggestions_module, "MOST_TOGETHER", 2)
    for goal, best in (("explore", None), ("maximize", 0.5)):
        table, notes = suggest(model, n=2, goal=goal, best=best)
        assert any("2 that are worth most" in note for note in notes)
        alone, _ = suggest(model, n=1, goal=goal, best=best)
        assert table["row"][0] == alone["row"][0]
    assert suggest(model, n=1, goal="explore")[0]["row"] == whole["row"]


@pytest.fixture(scope="module")
def mixed():
    """A stack of a network that tells its doubt from noise and one that does not."""
    model = fitted("network")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    networks = [
        ("ropd", FAWNRegressor((4,), max_iter=30)),
        ("vi", FAWNRegressor((4,), objective="vi", max_iter=30)),
    ]
    stack = StackedRegressor(networks, random_state=0).fit(X, X[:, 0] + 0.3 * rng.normal(size=60))
    for name in ("ropd", "vi"):  # whatever so short a training made of them
        stack.weights_[name] = max(stack.weights_[name], 0.1)
    return TableModel(stack, model.preprocessing)


def test_the_doubt_is_that_of_parts_that_tell_it(mixed):
    assert not predicted(mixed).identified
    table, (note,) = suggest(mixed, n=2, goal="explore")
    told = ["vi", *(n for n in ("linear", "constant") if mixed.regressor.weights_[n] > 0)]
    weights = [mixed.regressor.weights_[name] for name in told]
    doubting = mixture([predicted(mixed.part(name)) for name in told], weights)
    assert table["row"].to_pylist() == (select_informative(doubting, 2).rows + 1).tolist()
    at = np.array(table["row"]) - 1
    np.testing.assert_allclose(table["doubt"], (doubting.model_var / doubting.var)[at], rtol=1e-6)
    np.testing.assert_allclose(table["mean"], predicted(mixed).mean[at], rtol=1e-6)
    assert "vi" in note
    assert f"{sum(weights):.0%}" in note
    assert "ropd" not in note


def test_a_model_that_tells_nothing_apart_says_so(mixed):
    table, (note,) = suggest(mixed.part("ropd"), n=2, goal="explore")
    assert "does not tell its own doubt from noise" in note
    assert "--model vi" in note
    assert table["doubt"].null_count == 2
    assert (np.array(table["gain"]) > 0).all()
    with pytest.raises(ValueError, match="doubt from noise"):
        without_noise(predicted(mixed.part("ropd")))


# ---- the command ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("suggest")
    fitted("network").save(folder / "vi.safetensors")
    fitted("joint", ("y", "z")).save(folder / "two.safetensors")
    (folder / "two-columns.csv").write_text("name,size\nh1,3\n")
    (folder / "empty.csv").write_text("size,color,kind\n")
    rows = [f"{size},{color},new" for size in (-4, 0, 3, 9) for color in ("red", "green")]
    (folder / "pool.csv").write_text("\n".join(["size,color,kind", *rows]) + "\n")
    return folder


def test_the_command_suggests_a_table(place, tmp_path):
    arguments = ("suggest", place / "vi.safetensors", place / "pool.csv", "-n", 3)
    shown = run(*arguments, "--goal", "explore").stdout
    assert shown.startswith("to explore y, of 8 rows")
    found = run_json(*arguments, "--goal", "explore")
    assert (found["goal"], found["gain"], found["rows"]) == ("explore", "nats", 8)
    rows = found["suggestions"]
    inputs, results = ["size", "color", "kind"], ["mean", "std", "doubt", "gain", "outside"]
    assert list(rows) == ["row", *inputs, *results]
    assert len(set(rows["row"])) == 3
    assert all(0 < share < 1 for share in rows["doubt"])
    for row, *cells_of in zip(*(rows[name] for name in ("row", *inputs)), strict=True):
        assert f"{row}  " in shown
        line = (place / "pool.csv").read_text().splitlines()[row].split(",")
        assert cells_of == [float(line[0]), *line[1:]]
    written = tmp_path / "next.csv"
    said = run_json(*arguments, "--goal", "maximize", "--best", 2, "-o", written)
    lines = list(csv.DictReader(io.StringIO(written.read_text())))
    assert said["output"] == str(written)
    assert "suggestions" not in said
    gains = [float(line["gain"]) for line in lines]
    assert gains[0] == max(gains) > 0
    out = run(*arguments, "--goal", "maximize", "--best", 2, "-o", "-", "-q").stdout
    assert [line["row"] for line in csv.DictReader(io.StringIO(out))] == [x["row"] for x in lines]
    # What is to be large is large.
    low = run_json(*arguments, "--goal", "minimize", "--best", 2)["suggestions"]
    assert np.mean([float(line["mean"]) for line in lines]) > np.mean(low["mean"])


@pytest.mark.parametrize(
    ("pool", "options", "code", "says"),
    [
        ("empty.csv", ("--goal", "explore"), 3, "has a header but no rows"),
        ("two-columns.csv", ("--goal", "explore"), 3, "has no columns 'color', 'kind'"),
        ("nowhere.csv", ("--goal", "explore"), 3, "there is no file"),
        ("pool.csv", ("--goal", "explore", "-n", 9), 3, "9 experiments are asked for"),
        ("pool.csv", ("--goal", "explore", "--best", 3), 2, "--best is a number, for --goal"),
        ("pool.csv", ("--goal", "maximize", "--best", "nan"), 2, "--best is a number, for --goal"),
        ("pool.csv", ("--goal", "explore", "--target", "z"), 3, "no target 'z'"),
        ("pool.csv", ("--goal", "explore", "--model", "deep"), 3, "no part 'deep'"),
        ("pool.csv", ("--goal", "explore", "-o", "next.doc"), 3, "does not say its format"),
    ],
)
def test_bad_input_is_one_sentence(place, tmp_path, monkeypatch, pool, options, code, says):
    monkeypatch.chdir(tmp_path)
    told = sentence("suggest", place / "vi.safetensors", place / pool, *options, code=code)
    assert says in told
    assert list(tmp_path.iterdir()) == []


def test_two_targets_are_refused_unless_one_counts(place):
    arguments = ("suggest", place / "two.safetensors", place / "pool.csv", "--goal", "maximize")
    told = sentence(*arguments, code=3)
    assert told == "the model has the targets 'y', 'z': say by --target which one counts."
    assert len(run_json(*arguments, "--target", "z", "--best", 1)["suggestions"]["row"]) == 1


def test_what_is_no_number_is_refused():
    model = fitted("network")
    pre = dataclasses.replace(model.preprocessing, outcome=Outcome("counts"))
    with pytest.raises(TableError, match=r"need predictions of numbers, .* predicts counts\."):
        suggest(TableModel(model.regressor, pre), n=1, goal="explore")
    with pytest.raises(TableError, match="goal must be one of explore, maximize, minimize"):
        suggest(model, n=1, goal="learn")


def test_columns_that_the_model_does_not_know_are_named(place):
    pool = POOL.append_column("price", pa.array(np.arange(6)))
    pq.write_table(pool, place / "pool.parquet")
    found = run_json(
        "suggest", place / "vi.safetensors", place / "pool.parquet", "--goal", "explore"
    )
    assert len(found["suggestions"]["row"]) == 1
    assert any("'price'" in note for note in found["notes"])
