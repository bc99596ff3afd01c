"""A model on new tables: green where nothing has changed, and what is said where something has."""

import dataclasses
import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from scipy import stats

from cli_runs import run, run_json, sentence
from varprop import StackedRegressor
from varprop.files.container import ModelFileError, read_model_file, write_model_file
from varprop.predictive import Predictive
from varprop.predictive.bounds import Bounded
from varprop.predictive.categories import Categories
from varprop.predictive.counts import Counts
from varprop.predictive.past import COUNTED
from varprop.predictive.promises import Promises
from varprop.tables import Roles, TableError, TableModel, fit_table, monitor_table
from varprop.tables.judging import blocks_of
from varprop.tables.monitored import ONE_IN, Check
from varprop.tables.record import Record
from varprop.tables.source import Source

pytestmark = pytest.mark.usefixtures("as_users_run_it")

NUMBERS = [f"x{i}" for i in range(10)]
#: As hostile as names can be, in a table of its own.
HOSTILE = "</script><b>=1+1|x"


def columns(n, rng):
    """Ten columns of numbers of several kinds, one with holes, a category, and a target."""
    z = rng.normal(size=(n, 10))
    z[:, 1] = 0.8 * z[:, 0] + 0.6 * z[:, 1]
    z[:, 2] = np.exp(z[:, 2])
    z[:, 3] = rng.standard_t(3, n)
    z[:, 4] = rng.poisson(2, n)
    z[rng.random(n) < 0.1, 5] = np.nan
    found = dict(zip(NUMBERS, z.T, strict=True))
    found["kind"] = rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    found["y"] = np.sin(2 * z[:, 0]) + z[:, 1] + (found["kind"] == "b") + rng.normal(size=n)
    return found


def source(cells, without=()):
    kept = {name: pa.array(v, from_pandas=True) for name, v in cells.items() if name not in without}
    return Source.of_table(pa.table(kept))


def fitted(cells, missing="impute", **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        roles = Roles(("y",), missing=missing)
        return fit_table(source(cells), roles, model="linear", **options).model


@pytest.fixture(scope="module")
def model():
    return fitted(columns(1000, np.random.default_rng(0)))


@pytest.fixture
def new():
    return columns(500, np.random.default_rng(1))


def check(found, name):
    (one,) = [each for each in found.checks if each.name == name]
    return one


# ---- how often it is wrong ----------------------------------------------------------------------


def test_false_alarms_are_rare_and_probabilities_mean_something():
    """64 tables without change, of 8 models: the study of benchmarks/monitoring.py, made small."""
    rng, least, alarms = np.random.default_rng(2), [], 0
    for _ in range(8):
        own = fitted(columns(200, rng))
        for _ in range(8):
            found = monitor_table(own, source(columns(120, rng)))
            least.append(min(each.p for each in found.checks))
            alarms += found.state != "green"
    # One in 50 at most; more than 6 of 64 have then a probability below 0.1 %.
    assert stats.binom.sf(6, 64, 1 / ONE_IN) < 0.001
    assert alarms <= 6
    # The other side: of the smallest probabilities, which would be below a half in half of the
    # tables were they exact, a fair part is. Tests that never say anything would have none.
    below = np.mean(np.array(least) < 0.5)
    assert 0.05 < below < 0.5 + 4 * 0.5 / np.sqrt(64)


@pytest.mark.parametrize("name", NUMBERS)
def test_half_a_standard_deviation_is_found_at_500_rows(model, new, name):
    step = np.nanstd(new[name]) / 2
    for by, side in ((step, "higher"), (-step, "lower")):
        found = monitor_table(model, source(new | {name: new[name] + by}, without="y"))
        shifted = [each.name for each in found.checks if each.state != "green"]
        assert name in shifted
        assert len(shifted) <= 2  # rows outside may be the other one
        assert side in check(found, name).finding
        assert check(found, name).moved > 0.1
        assert found.state == "amber"


def test_what_does_not_matter_is_green_however_many_rows(model):
    rng = np.random.default_rng(3)
    many = columns(30_000, rng)
    many["x6"] = many["x6"] + 0.08  # three rows in a hundred lie elsewhere
    found = monitor_table(model, source(many, without="y"))
    assert check(found, "x6").state == "green"
    many["x6"] = many["x6"] + 0.22
    found = monitor_table(model, source(many, without="y"))
    assert check(found, "x6").state == "amber"


def test_least_is_what_can_be_seen(model, new):
    """A little more than that is amber, a little less is green."""
    found = monitor_table(model, source(new, without="y"))
    assert found.least == pytest.approx(0.123, abs=0.02)
    sketch = next(c.sketch for c in model.preprocessing.inputs if c.name == "x7")
    place = (np.arange(500) + 0.5) / 500
    for factor, state in ((0.9, "green"), (1.25, "amber")):
        part = np.clip(place, found.least * factor, None)  # none among the lowest
        values = np.interp(part, np.array(sketch.upto) / sketch.n, sketch.values)
        moved = monitor_table(model, source(new | {"x7": values}, without="y"))
        assert check(moved, "x7").state == state


# ---- inputs -------------------------------------------------------------------------------------


def test_nothing_new_is_green(model, new):
    found = monitor_table(model, source(new))
    assert found.state == "green"
    assert found.sentence == (
        "Green: nothing has changed beyond what chance allows in 11 columns of 500 rows, nor in "
        "the predictions of y."
    )
    assert (found.n_rows, found.n_targets, len(found.blocks)) == (500, 500, 10)
    assert [each.about for each in found.checks] == ["column"] * 11 + ["rows"] + ["target"] * 3
    assert all(each.finding == "" for each in found.checks)
    assert found.changed == []
    json.dumps(found.to_json(), default=np.ndarray.tolist)


def test_spread_missing_values_and_ranges_are_seen(model, new):
    wide = new | {"x6": 2 * new["x6"]}
    found = check(monitor_table(model, source(wide, without="y")), "x6")
    assert "its standard deviation is" in found.finding
    holes = new | {"x7": np.where(np.arange(500) % 10 == 0, np.nan, new["x7"])}
    found = check(monitor_table(model, source(holes, without="y")), "x7")
    assert (
        found.finding == "column 'x7' has shifted: 10 % of the rows have no value, 0 % in training"
    )
    assert found.missing == (0.0, 0.1)
    far = new | {"x8": np.where(np.arange(500) % 25 == 0, 50.0, new["x8"])}
    found = check(monitor_table(model, source(far, without="y")), "x8")
    assert found.outside == 0.04
    assert "4 % of the rows are beyond what training has seen" in found.finding
    none = new | {"x9": np.full(500, np.nan)}
    found = check(monitor_table(model, source(none, without="y")), "x9")
    assert "100 % of the rows have no value" in found.finding


def test_categories(model, new):
    other = new | {"kind": np.where(np.arange(500) % 5 == 0, "c", new["kind"])}
    found = check(monitor_table(model, source(other, without="y")), "kind")
    assert "'c' is in" in found.finding or "'a' is in" in found.finding
    unseen = new | {"kind": np.where(np.arange(500) % 20 == 0, "new", new["kind"])}
    found = monitor_table(model, source(unseen, without="y"))
    assert "5 % of the rows have a category that training did not have" in (
        check(found, "kind").finding
    )
    assert check(found, "rows outside").state == "amber"
    assert check(found, "kind").cells[0][-1] == "(new)"
    empty = np.where(np.arange(500) % 10 == 0, None, new["kind"].astype(object))
    found = check(monitor_table(model, source(new | {"kind": empty}, without="y")), "kind")
    assert "10 % of the rows have no value, and none in training" in found.finding


def test_an_unusual_combination_is_seen_though_no_column_has_changed(model, new):
    """x0 and x1 are correlated; each column keeps its values."""
    rng = np.random.default_rng(0)
    tight = fitted({"x0": new["x0"], "x1": new["x0"] + 0.01 * new["x6"], "y": new["y"]})
    broken = {"x0": new["x0"], "x1": rng.permutation(new["x0"]), "y": new["y"]}
    found = monitor_table(tight, source(broken, without="y"))
    assert [each.state for each in found.checks] == ["green", "green", "red"]
    assert "outside of what training has seen" in found.sentence
    # Equal rows count once, as in training: one odd row, sixty times, is one.
    same = {"x0": new["x0"].copy(), "x1": new["x0"] + 0.01 * new["x6"]}
    same["x0"][:60], same["x1"][:60] = 1.0, -1.0
    found = check(monitor_table(tight, source(same)), "rows outside")
    assert found.outside >= 0.12
    assert found.state == "green"


def test_missing_values_are_a_finding_and_no_error():
    rng = np.random.default_rng(5)
    whole = {name: v for name, v in columns(400, rng).items() if name != "x5"}
    strict = fitted({name: v[:200] for name, v in whole.items()}, missing="error")
    later = {name: v[200:] for name, v in whole.items()}
    assert monitor_table(strict, source(later)).state == "green"
    later["x0"] = np.where(np.arange(200) % 5 == 0, np.nan, later["x0"])
    found = monitor_table(strict, source(later))
    assert "20 % of the rows have no value" in check(found, "x0").finding
    dropping = fitted({name: v[:200] for name, v in whole.items()}, missing="drop")
    found = monitor_table(dropping, source(later))
    assert found.n_rows == 160
    assert any("no prediction for 40 rows" in note for note in found.notes)


# ---- targets ------------------------------------------------------------------------------------


def test_broken_promises_are_red(model, new):
    rng = np.random.default_rng(0)
    for y, said in (
        (new["y"] + 1, "is higher in its stated distributions"),
        (new["y"] + 1.5 * rng.normal(size=500), "intervals held"),
        (np.where(rng.random(500) < 0.08, 40.0, new["y"]), "surprise the model more than any"),
    ):
        found = monitor_table(model, source(new | {"y": y}))
        assert found.state == "red"
        assert any(said in each.finding for each in found.checks), said
        assert "do not rely on the predictions" in found.sentence
        assert all(each.state == "green" for each in found.checks if each.about == "column")


def test_too_cautious_is_amber(model, new):
    mean = model.predict_dist(encoded(model, new), str).mean
    y = mean + 0.3 * (new["y"] - mean)
    found = monitor_table(model, source(new | {"y": y}))
    assert found.state == "amber"
    assert check(found, "90 % intervals of y").state == "amber"
    assert check(found, "NLL").state == "green"  # it is lower
    assert "is not quite right any more" in found.sentence


def encoded(model, cells):
    return model.preprocessing.encode(source(cells).table, str)


def test_a_change_at_the_end_is_found(model, new):
    """A tenth of the rows: too few to see in all of them."""
    last = np.arange(500) >= 450
    found = monitor_table(model, source(new | {"y": new["y"] + 4 * last}))
    assert found.state == "red"
    course = next(each for each in found.courses if each.name == "90 % intervals held")
    assert course.values[-1] < course.low[-1]
    assert np.mean(course.values[:-1] >= course.low[:-1]) > 0.8


def test_courses_are_what_is_counted_in_each_block(model, new):
    found = monitor_table(model, source(new))
    courses = {each.name: each for each in found.courses}
    prediction = model.predict_dist(encoded(model, new), str)
    low, high = map(np.ravel, prediction.interval(0.9))
    held = (new["y"] >= low) & (new["y"] <= high)
    blocks = np.arange(500).reshape(10, 50)
    np.testing.assert_allclose(
        courses["90 % intervals held"].values, held[blocks].mean(axis=1), atol=1e-12
    )
    losses = -prediction.logpdf(new["y"])
    np.testing.assert_allclose(courses["NLL"].values, losses[blocks].mean(axis=1))
    below = new["y"] < np.asarray(prediction.quantile(0.5)).ravel()
    np.testing.assert_allclose(
        courses["below the stated median"].values, below[blocks].mean(axis=1), atol=1e-12
    )
    np.testing.assert_allclose(found.pits["y"], prediction.cdf(new["y"]), atol=1e-9)
    for course in courses.values():
        inside = (course.values >= course.low) & (course.values <= course.high)
        assert inside.mean() >= 0.7
        assert (course.low < course.high).all()


def test_bands_hold_blocks_of_new_rows_19_times_in_20(model):
    rng, inside = np.random.default_rng(8), {}
    for _ in range(12):
        for course in monitor_table(model, source(columns(500, rng))).courses[1:]:
            held = (course.values >= course.low) & (course.values <= course.high)
            inside.setdefault(course.name, []).extend(held)
    for name, held in inside.items():
        # 120 blocks: 4 standard errors are 8 in a hundred.
        assert 0.87 < np.mean(held) <= 1.0, name


def test_rows_without_a_target_count_for_the_inputs(model, new):
    part = new | {"y": np.where(np.arange(500) < 100, new["y"], np.nan)}
    found = monitor_table(model, source(part))
    assert (found.n_rows, found.n_targets, found.state) == (500, 100, "green")
    assert "400 rows without a target count for the inputs only." in found.notes
    few = new | {"y": np.where(np.arange(500) < 9, new["y"], np.nan)}
    found = monitor_table(model, source(few))
    assert found.n_targets == 0
    assert any("too few to see whether predictions still hold" in note for note in found.notes)
    assert "can only be seen with observed targets" in found.sentence


def test_rows_of_the_fit_are_told(model):
    found = monitor_table(model, source(columns(1000, np.random.default_rng(0))))
    assert any("100% of these rows were trained on" in note for note in found.notes)


def test_a_part_of_the_model_has_no_past(model, new):
    found = monitor_table(model.part("constant"), source(new))
    assert any("does not say how well these predictions held" in note for note in found.notes)
    assert "NLL" not in [each.name for each in found.checks]


def test_what_cannot_be_predicted_is_red(model, new, monkeypatch):
    def fails(*_):
        raise TableError("the prediction for row 8 is no finite number: correct it.")

    monkeypatch.setattr(TableModel, "predict_dist", fails)
    found = monitor_table(model, source(new))
    assert found.state == "red"
    assert found.sentence == (
        "Red: the model cannot predict these rows: the prediction for row 8 is no finite number: "
        "correct it."
    )


# ---- in the order of time -----------------------------------------------------------------------


def test_blocks():
    assert blocks_of(99) == []
    parts = blocks_of(1234)
    assert len(parts) == 12
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (parts[0].start, parts[-1].stop) == (0, 1234)


@pytest.mark.parametrize("kind", ["number", "date", "text"])
def test_rows_are_put_in_order(model, new, kind, tmp_path):
    days = np.datetime64("2024-01-01") + np.arange(500)
    days = np.arange(500) * 0.5 if kind == "number" else days
    mixed = np.random.default_rng(0).permutation(500)
    shuffled = {name: v[mixed] for name, v in (new | {"day": days}).items()}
    table = source(shuffled)
    if kind == "text":
        from varprop.tables import open_source

        pyarrow.csv.write_csv(table.table, tmp_path / "t.csv")
        table = open_source(str(tmp_path / "t.csv"))
    there = monitor_table(model, source(new))
    found = monitor_table(model, table, time="day")
    for one, other in zip(there.courses, found.courses, strict=True):
        np.testing.assert_allclose(one.values, other.values)
    unordered = monitor_table(model, table)
    assert not np.allclose(there.courses[-1].values, unordered.courses[-1].values)


def test_times_that_are_none(model, new):
    day = np.where(np.arange(500) == 2, np.nan, np.arange(500.0))
    with pytest.raises(TableError, match="no value in row 3"):
        monitor_table(model, source(new | {"day": day}), time="day")
    with pytest.raises(TableError, match="cannot be put in order of time"):
        monitor_table(model, source(new | {"day": np.full(500, "soon")}), time="day")
    with pytest.raises(TableError, match="no column 'when'"):
        monitor_table(model, source(new), time="when")


# ---- what each kind of target promises ----------------------------------------------------------


def test_promises_of_counts_are_as_stated():
    """A perfect model of counts holds what it says, although intervals of counts hold more."""
    rng, n = np.random.default_rng(0), 8000
    y = rng.poisson(np.exp(rng.normal(1.1, np.sqrt(0.2), n))) * 1.0
    prediction = Counts(Predictive.gaussian(np.full(n, 1.1), np.full(n, 0.2), 0.0))
    found = Promises.of(y, prediction)
    for name, stated in COUNTED.items():
        if stated is not None:
            share = found.counts[name].mean()
            assert abs(share - stated) < 4 * np.sqrt(stated * (1 - stated) / n), name


def test_promises_of_classes_and_of_bounds():
    prediction = Categories([[0.9, 0.1], [0.2, 0.8]], classes=np.array(["no", "yes"]))
    found = Promises.of(np.array(["no", "no"]), prediction)
    assert found.counts["right"][:, 0].tolist() == [1.0, 0.0]
    np.testing.assert_allclose(found.losses, -np.log([0.9, 0.2]))
    assert found.summary().is_sound(1)
    gaussian = Predictive.gaussian([0.0, 0.0], [1.0, 1.0], 0.0)
    known = Bounded(gaussian, np.array([[0.0], [0.0]]), np.array([[0.0], [np.inf]]))
    found = Promises.of(np.zeros((2, 2)), known)
    np.testing.assert_allclose(found.losses, [0.5 * np.log(2 * np.pi), np.log(2)])
    assert (found.pits.shape, found.counts) == ((2, 0), {})


def test_promises_of_several_targets():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(400, 2)) * [1.0, 3.0]
    prediction = Predictive.gaussian(np.zeros((400, 2)), np.zeros((400, 2)), np.array([1.0, 1.0]))
    past = Promises.of(y, prediction).summary()
    z = stats.norm.ppf(0.95)
    assert past.counts["90 %"] == tuple((np.abs(y) <= z).sum(axis=0).tolist())
    assert past.counts["below"] == tuple((y < 0).sum(axis=0).tolist())
    assert past.is_sound(2)
    assert not past.is_sound(1)


# ---- files --------------------------------------------------------------------------------------


def saved(model, tmp_path, change=lambda header: None):
    path = tmp_path / "m.safetensors"
    model.save(path)
    header, arrays = read_model_file(path, lambda header, table: None)
    change(header)
    write_model_file(path, header, arrays)
    return path


def as_before(header):
    """Take away what files of before do not have."""
    del header["table"]["record"]
    for column in header["table"]["inputs"]:
        column.pop("sketch", None)


def test_a_file_keeps_what_monitoring_needs(model, new, tmp_path):
    again = TableModel.load(saved(model, tmp_path))
    assert again.record == dataclasses.replace(
        model.record, settings=again.record.settings, notes=again.record.notes
    )
    assert again.preprocessing == model.preprocessing
    assert monitor_table(again, source(new)).sentence == monitor_table(model, source(new)).sentence
    # It is small: of ten columns of numbers less than ten kilobytes.
    small = json.dumps(read_model_file(tmp_path / "m.safetensors", lambda *_: None)[0]["table"])
    assert len(small) < 15_000


def test_files_of_before_are_read_and_say_what_they_cannot(model, new, tmp_path):
    old = TableModel.load(saved(model, tmp_path, as_before))
    assert old.record is None
    found = monitor_table(old, source(new))
    assert found.state == "green"
    assert found.least is None
    said = " ".join(found.notes)
    assert "does not say how the numbers of 'x0', 'x1', 'x2', 'x3', 'x4' and 5 more were" in said
    assert "NLL is shown but not judged" in said
    # Ranges, categories and stated intervals can be monitored.
    far = new | {"x8": np.where(np.arange(500) % 25 == 0, 50.0, new["x8"])}
    assert check(monitor_table(old, source(far)), "x8").state == "amber"
    other = new | {"kind": np.where(np.arange(500) % 5 == 0, "c", new["kind"])}
    assert check(monitor_table(old, source(other)), "kind").state == "amber"
    noisy = new | {"y": new["y"] + 3 * new["x9"]}
    found = monitor_table(old, source(noisy))
    assert found.state == "red"
    assert "% as is stated" in found.sentence


def test_models_of_python_have_neither(new, tmp_path):
    import pandas as pd

    frame = pd.DataFrame({"x0": new["x0"], "x1": new["x1"]})
    target = pd.Series(new["y"], name="y")
    StackedRegressor([], random_state=0).fit(frame, target).save(tmp_path / "p.safetensors")
    own = TableModel.load(tmp_path / "p.safetensors")
    found = monitor_table(own, source(columns(300, np.random.default_rng(4))))
    assert any("by Python without a table" in note for note in found.notes)


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (("n_rows",), "many"),
        (("past", "n"), 3),
        (("past", "losses", "values"), [2.0, 1.0]),
        (("past", "pits"), []),
        (("past", "counts"), {"90 %": [10**9]}),
        (("past", "counts"), {"91 %": [1]}),
        (("past", "mean_loss"), None),
        (("words",), {"other": "x"}),
        (("notes",), [1]),
        (("scores",), {"this model": {"NLL": "low"}}),
        (("more",), 1),
    ],
)
def test_a_damaged_record_is_no_model_file(model, tmp_path, where, what):
    def change(header):
        inner = header["table"]["record"]
        for name in where[:-1]:
            inner = inner[name]
        inner[where[-1]] = what

    if where == ("past", "pits"):  # none is one too few only if there are others
        what = [1]
    with pytest.raises(ModelFileError, match="record of its fit is damaged"):
        TableModel.load(saved(model, tmp_path, change))


def test_a_record_of_later_is_told(model):
    with pytest.raises(ModelFileError, match="load it with the varprop that wrote it"):
        Record.from_json(model.record.to_json() | {"version": 2}, 1)
    assert Record.from_json(None, 1) is None


def test_sketches_are_of_many_rows_at_most():
    from varprop.tables.survey import survey

    rng = np.random.default_rng(0)
    table = Source.of_table(pa.table({"x": rng.normal(size=40_000), "y": rng.normal(size=40_000)}))
    found = survey(table, Roles(("y",)))
    sketch = found.learn(found.keep).inputs[0].sketch
    assert sketch.n == 2**14
    exact = stats.norm.ppf([0.1, 0.5, 0.9])
    assert np.abs([sketch.quantile(q) for q in (0.1, 0.5, 0.9)] - exact).max() < 0.2  # a cell
    half = survey(table, Roles(("y",))).learn(np.arange(40_000) < 100).inputs[0].sketch
    values = np.asarray(table.table["x"])[:100]
    assert (half.n, half.values[0], half.values[-1]) == (100, values.min(), values.max())


# ---- the command --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("monitor")
    rng = np.random.default_rng(0)
    for name, n in (("old", 300), ("new", 200)):
        cells = columns(n, rng)
        cells = {HOSTILE: cells["x0"], "x1": cells["x1"], "kind": cells["kind"], "y": cells["y"]}
        cells["kind"] = np.where(cells["kind"] == "c", "</script>=c", cells["kind"])
        pyarrow.csv.write_csv(pa.table(cells), folder / f"{name}.csv")
        shifted = cells | {HOSTILE: cells[HOSTILE] + 1, "y": cells["y"] + 2}
        shifted["kind"] = np.repeat("</script>=c", n)
        pyarrow.csv.write_csv(pa.table(shifted), folder / f"shifted_{name}.csv")
        pyarrow.csv.write_csv(pa.table(cells).drop(["y"]), folder / f"inputs_{name}.csv")
    run("fit", folder / "old.csv", "-t", "y", "-o", folder / "m.st", "--model", "linear", "-q")
    return folder


def test_the_command_says_it_in_one_sentence(place):
    shown = run("monitor", place / "m.st", place / "new.csv")
    assert "Green: nothing has changed beyond what chance allows in 3 columns of 200 rows" in (
        shown.stdout
    )
    found = run_json("monitor", place / "m.st", place / "shifted_new.csv")
    assert found["state"] == "red"
    assert {each["name"] for each in found["checks"]} == {
        HOSTILE,
        "x1",
        "kind",
        "rows outside",
        "90 % intervals of y",
        "PIT of y",
        "NLL",
    }
    assert len(found["courses"][0]["values"]) == len(found["blocks"]) == 4
    assert "pits" not in found
    assert run("monitor", place / "m.st", place / "new.csv", "-q").stdout == ""


def test_the_page_shows_names_as_they_are(place, tmp_path):
    page = tmp_path / "r.html"
    run("monitor", place / "m.st", place / "shifted_new.csv", "--report", page, "-q")
    text = page.read_text("utf-8")
    assert text.count("</script>") == 1
    assert "&lt;/script&gt;&lt;b&gt;=1+1|x" in text
    assert "http" not in text.replace("http-equiv", "")
    for part in ("Do predictions still hold?", "Have the inputs shifted?", "What chance allows"):
        assert part in text
    assert text.count("<figure") == 4 + 1 + 2  # courses, PIT, columns that have shifted
    run("monitor", place / "m.st", place / "inputs_new.csv", "--report", page, "-q")
    assert "Do predictions still hold?" not in page.read_text("utf-8")


def test_without_a_target_only_inputs_are_looked_at(place):
    shown = run("monitor", place / "m.st", place / "inputs_new.csv")
    assert "there is no column 'y': whether predictions still hold cannot be seen." in shown.stderr
    assert "can only be seen with observed targets" in shown.stdout


def test_a_target_by_another_name(place, tmp_path):
    table = pyarrow.csv.read_csv(place / "new.csv")
    names = ["z" if name == "y" else name for name in table.column_names]
    pyarrow.csv.write_csv(table.rename_columns(names), tmp_path / "z.csv")
    found = run_json("monitor", place / "m.st", tmp_path / "z.csv", "-t", "z")
    assert (found["n_targets"], found["state"]) == (200, "green")


def test_bad_input_is_one_sentence_and_nothing_is_run(place, tmp_path):
    new, page = place / "new.csv", tmp_path / "r.html"
    said = sentence(
        *("monitor", place / "m.st", place / "inputs_new.csv", "-t", "y", "--report", page), code=3
    )
    assert said.startswith("inputs_new.csv has no column 'y', the target")
    table = pyarrow.csv.read_csv(new)
    pyarrow.csv.write_csv(table.drop(["x1"]), tmp_path / "less.csv")
    said = sentence("monitor", place / "m.st", tmp_path / "less.csv", "--report", page, code=3)
    assert said.startswith("less.csv has no column 'x1', which the model needs")
    pyarrow.csv.write_csv(table.slice(0, 9), tmp_path / "few.csv")
    said = sentence("monitor", place / "m.st", tmp_path / "few.csv", code=3)
    assert said == "few.csv has 9 rows to look at: monitoring needs at least 10."
    said = sentence("monitor", place / "m.st", new, "--time", "when", code=3)
    assert "no column 'when'" in said
    said = sentence("monitor", place / "m.st", new, "-t", "x1", code=3)
    assert "'x1' is no target: the model reads it as an input" in said
    said = sentence("monitor", new, place / "m.st", code=3)
    assert "the model comes first" in said
    said = sentence("monitor", place / "m.st", new, "--report", new, code=2)
    assert "is also read" in said
    assert not page.exists()


def test_a_check_is_green_unless_its_probability_is_small():
    one = Check("x", "column", "amber", 1e-9, "it has shifted")
    assert one.decided(1 / ONE_IN).state == "amber"
    assert one.decided(1.01 / ONE_IN) == Check("x", "column", "green", 1.01 / ONE_IN, "")
