"""Rows that belong together, by groups or time, are set aside together; trajectories are told."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn
from sklearn.exceptions import ConvergenceWarning

from cli_runs import QUICK, run, run_json, sentence
from varprop import FAWNClassifier, FAWNRegressor, FitWarning, StackedClassifier, StackedRegressor
from varprop.data import Data, ParquetSource
from varprop.data.fingerprints import fold_numbers, row_hashes
from varprop.data.neighbors import neighbors_alike
from varprop.data.together import Together
from varprop.estimators.inputs import training_data
from varprop.estimators.validation import SetAside
from varprop.tables import Roles, TableError, TableModel
from varprop.tables.source import Source
from varprop.tables.survey import survey

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def table(n_rows=60, seed=0):
    """Every row has an input of its own, 0, 1, ... in a random order, by which it is known."""
    rng = np.random.default_rng(seed)
    X = np.stack([rng.permutation(n_rows), rng.normal(size=n_rows)], axis=1)
    return X, X[:, 1] + 0.1 * rng.normal(size=n_rows)


def set_aside(X, y, *, every_row=True, seed=0, **told):
    """The first inputs of the rows set aside, fold by fold; the rest of each is trained on."""
    training = training_data(StackedRegressor([]), X, y, None, None, None, reset=True, **told)
    found = SetAside.of(training.source, seed, every_row=every_row, together=training.together)
    for fold in found.folds:
        x = training.source.x
        both = np.concatenate([x[fold.rows], fold.held.x])
        np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(x, axis=0))
    return [fold.held.x[:, 0] for fold in found.folds]


# ---- folds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [list("abcdefgh"), range(8), [3.5, *range(7)]])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_group_is_in_one_fold(labels, seed):
    X, y = table()
    rng = np.random.default_rng(7)
    sizes = [15, 10, 10, 9, 6, 5, 3, 2]
    groups = rng.permutation(np.repeat(np.array(labels), sizes))
    folds = set_aside(X, y, groups=groups, seed=seed)
    of_row = dict(zip(X[:, 0], groups, strict=True))
    found = [{of_row[number] for number in fold} for fold in folds]
    assert len(folds) == 5
    assert sum(map(len, found)) == len(set.union(*found)) == 8
    assert max(map(len, folds)) == 15  # no fold is larger than the largest group


def test_folds_of_groups_follow_from_the_seed_and_not_from_names_or_order():
    X, y = table()
    groups = np.arange(60) % 20
    folds = [set(fold) for fold in set_aside(X, y, groups=groups)]
    assert [set(fold) for fold in set_aside(X, y, groups=groups)] == folds
    order = np.random.default_rng(0).permutation(60)
    again = set_aside(X[order], y[order], groups=groups[order])
    assert [set(fold) for fold in again] == folds
    other = set_aside(X, y, groups=groups, seed=1)
    assert [set(fold) for fold in other] != folds
    # Which group a check sets aside is drawn, too.
    sizes = np.repeat([0, 1, 2], [30, 20, 10])
    checks = [set_aside(X, y, groups=sizes, every_row=False, seed=seed) for seed in range(20)]
    assert {len(fold) for (fold,) in checks} == {10, 20, 30}


def test_few_groups_are_few_folds():
    X, y = table()
    assert sorted(map(len, set_aside(X, y, groups=np.arange(60) // 20))) == [20, 20, 20]


def test_identical_rows_join_their_groups():
    """Groups 0 and 1 share a row, and 1 and 2 another: the three are one, whatever is merged."""
    X, y = table()
    groups = np.arange(60) // 10
    for a, b in ((0, 10), (11, 20)):
        X[b], y[b] = X[a], y[a]
    expected = {*X[:30, 0]}
    folds = [set(fold) for fold in set_aside(X, y, groups=groups)]
    assert expected in folds
    assert len(folds) == 4
    # Many rows are not merged: the same by their hashes.
    number = fold_numbers(row_hashes(X, y[:, None]), 5, 0, Together(groups))
    assert len(set(number[:30])) == 1
    assert number.max() == 3
    assert not np.isin(number[30:], number[0]).any()


def test_rows_of_weight_zero_join_nothing():
    X, y = table()
    groups, weight = np.arange(60) // 30, np.ones(60)
    X[30], y[30], weight[30] = X[0], y[0], 0.0
    training = training_data(
        StackedRegressor([]), X, y, weight, None, None, reset=True, groups=groups
    )
    assert len(np.unique(training.together.codes)) == 2


def test_folds_in_time_are_blocks_of_it():
    X, y = table()
    days = X[:, 0]  # 0 to 59, in any order
    for times in (days, days.astype(int) + np.datetime64("2024-01-01"), pd.Series(days / 7)):
        folds = [sorted(fold) for fold in set_aside(X, y, times=times)]
        blocks = np.arange(60.0).reshape(5, 12)
        assert folds == blocks[::-1].tolist()  # the last is the first
        assert [sorted(fold) for fold in set_aside(X, y, times=times, seed=5)] == folds
        (check,) = set_aside(X, y, times=times, every_row=False)
        assert sorted(check) == blocks[-1].tolist()


def test_rows_of_one_time_and_identical_rows_share_a_block():
    X, y = table()
    days = X[:, 0] // 7
    folds = set_aside(X, y, times=days)
    assert sum(len(set(fold // 7)) for fold in folds) == len(set(days))
    first, last = np.argmin(X[:, 0]), np.argmax(X[:, 0])
    days = X[:, 0].copy()
    X[last], y[last] = X[first], y[first]
    for number in (
        fold_numbers(row_hashes(X, y[:, None]), 5, 0, Together(days.astype(int), in_time=True)),
    ):
        assert number[first] == number[last] == 4


def test_without_groups_folds_are_what_they_were():
    """By the formula of before, written once more."""
    X, y = table()
    for seed in range(3):
        hashes = row_hashes(X, y[:, None])
        dealt = np.random.default_rng(seed).permutation(60) % 5
        np.testing.assert_array_equal(fold_numbers(hashes, 5, seed), dealt)


@pytest.mark.parametrize("in_time", [False, True])
def test_a_source_larger_than_memory(tmp_path, monkeypatch, in_time):
    """Whole groups, or the last rows in time, are set aside for good; copies with them."""
    monkeypatch.setattr("varprop.data.source._MEMORY_BYTES", 1000)
    x = np.arange(200.0)
    x[7] = x[190]
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": x, "y": np.sin(x)}), path, row_group_size=30)
    codes = np.arange(200) if in_time else np.arange(200) // 5
    together = Together(codes, in_time=in_time)
    source = ParquetSource(path, targets="y")
    aside = SetAside.of(source, 0, every_row=True, together=together)
    (fold,) = aside.folds
    held = set(fold.held.x[:, 0])
    trained = set(np.concatenate([p.x for i in range(7) for p in aside.source.read(i)])[:, 0])
    assert not held & trained
    assert len(held | trained) == 199
    if in_time:
        assert held == {*range(160, 200)} - {190}
    else:
        assert 30 <= len(held) <= 50
        assert not {v // 5 for v in held - {190}} & {v // 5 for v in trained - {190}}
    monkeypatch.setattr("varprop.estimators.validation._MOST_HELD", 20)
    assert len(SetAside.of(source, 0, every_row=True, together=together).folds[0].held.x) < 40
    alone = Together(np.zeros(200, int), in_time=in_time)
    with pytest.raises(ValueError, match="leaves no rows to set aside"):
        SetAside.of(source, 0, every_row=True, together=alone)


# ---- estimators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FAWNRegressor, FAWNClassifier])
def test_networks_take_groups_and_times(kind):
    X, y = table()
    y = y if kind is FAWNRegressor else y > 0
    quick = {"hidden_layer_sizes": 3, "max_iter": 5, "random_state": 0}
    groups = X[:, 0] // 6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain, again = (kind(**quick).fit(X, y) for _ in range(2))
        grouped, timed = kind(**quick).fit(X, y, groups=groups), kind(**quick).fit(X, y, times=y)
    assert plain.trust_ == again.trust_
    assert len({plain.trust_, grouped.trust_, timed.trust_}) == 3
    with sklearn.config_context(enable_metadata_routing=True):
        asking = kind(**quick).set_fit_request(groups=True, times=False)
        assert asking.get_metadata_routing().fit.requests["groups"] is True


@pytest.mark.parametrize("kind", [StackedRegressor, StackedClassifier])
def test_stacks_say_that_there_are_fewer_folds(kind):
    X, y = table()
    network, y = (None, y) if kind is StackedRegressor else (FAWNClassifier, y > 0)
    quick = {"hidden_layer_sizes": (), "max_iter": 5}
    networks = [] if network is None else [("linear", network(**quick))]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        kind(networks, random_state=0).fit(X, y, groups=X[:, 0] % 3)
    sentences = [str(w.message) for w in told if isinstance(w.message, FitWarning)]
    assert any("groups part the rows into 3 only: there are 3 folds" in s for s in sentences)


def test_a_bag_says_it_too():
    X, y = table()
    model = FAWNRegressor(3, max_iter=5, validation="bag", random_state=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X, y, groups=X[:, 0] > 20)
    assert any("there are 2 folds" in str(warning.message) for warning in told)
    assert len(model.members_) == 3


def test_near_copies_are_found_out_by_groups():
    """Each of 12 things was measured ten times: a line through the inputs explains nothing new."""
    rng = np.random.default_rng(0)
    thing = np.repeat(np.arange(12), 10)
    X = rng.normal(size=(12, 8))[thing] + 1e-3 * rng.normal(size=(120, 8))
    y = rng.normal(size=12)[thing] + 1e-3 * rng.normal(size=120)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        blind = StackedRegressor([], random_state=0).fit(X, y)
        told = StackedRegressor([], random_state=0).fit(X, y, groups=thing)
    assert told.out_of_fold_nll_["linear"] > blind.out_of_fold_nll_["linear"] + 0.2
    assert told.weights_["constant"] > blind.weights_["constant"] + 0.3


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"groups": np.zeros(60)}, "all rows are of one group"),
        ({"times": np.zeros(60)}, "times leaves no rows to set aside, since all times are the"),
        ({"groups": np.zeros(59)}, r"groups has shape \(59,\), but needs \(60,\)"),
        ({"times": np.zeros((60, 1))}, r"times has shape \(60, 1\), but needs \(60,\)"),
        ({"groups": 3}, r"groups has shape \(\), but needs"),
        ({"groups": [[1], [1, 2]]}, "groups must hold one value per row"),
        ({"groups": ["a", None] * 30}, "groups has no value in row 1: fill it in"),
        ({"times": [0.0, 1.0, np.nan] * 20}, "times has no value in row 2: fill it in"),
        ({"times": np.array(["2024", "NaT"] * 30, "datetime64[D]")}, "times has no value in row 1"),
        ({"times": ["a", "b"] * 30}, "times must hold numbers or dates, but has dtype <U1"),
        ({"times": np.array(["a", "b"] * 30, object)}, "times must hold numbers or dates"),
        ({"times": np.array(["a", 1] * 30, object)}, "times must hold numbers or dates"),
        ({"groups": np.array([{}, 1] * 30, object)}, "groups must hold labels, one per row"),
        ({"groups": np.arange(60), "times": np.arange(60)}, "groups and times both say"),
    ],
)
def test_one_sentence_for_what_cannot_be(told, says):
    X, y = table()
    with pytest.raises(ValueError, match=says) as raised:
        StackedRegressor([]).fit(X, y, **told)
    assert str(raised.value).count("\n") == 0


# ---- trajectories --------------------------------------------------------------------------------


def alike(x, y):
    return neighbors_alike(Data(x, y), n_targets=1)


def walk(n_rows, n_inputs, rng):
    steps = rng.normal(size=(n_rows, n_inputs + 1)).cumsum(axis=0)
    return steps[:, :-1], steps[:, -1]


def test_walks_are_told_and_shuffled_ones_are_not():
    rng = np.random.default_rng(0)
    for number in range(200):
        X, y = walk(int(rng.integers(400, 1000)), int(rng.integers(1, 8)), rng)
        if number % 10 == 0:
            assert alike(X, y)
            assert alike(1e6 * X - 3e8, y)  # units make no difference
        order = rng.permutation(len(X))
        assert not alike(X[order], y[order])


def test_smooth_paths_with_their_time_as_an_input_are_told():
    t = np.arange(1000.0)
    X = np.stack([t, np.sin(t / 30), np.cos(t / 50)], axis=1)
    assert alike(X, np.sin(t / 70))
    several = np.concatenate([np.repeat(np.arange(4.0), 250)[:, None], X % 250], axis=1)
    assert alike(several, np.sin(t / 70))


def test_sorted_tables_are_no_trajectories():
    rng = np.random.default_rng(1)
    for number in range(200):
        n, d = int(rng.integers(40, 500)), int(rng.integers(1, 6))
        X = rng.normal(size=(n, d))
        if number % 2:
            X[:, -1] = np.round(X[:, -1])
        y = np.sin(X[:, 0]) + 0.01 * rng.normal(size=n)
        by = ([X[:, 0]], [-X[:, 0]], [X[:, 0], X[:, -1]], [y], [X.sum(axis=1)])[number % 5]
        order = np.lexsort(by)
        if number % 5 == 4 and d == 1:
            continue
        assert not alike(X[order], y[order]), (number, n, d)


def test_grids_categories_and_few_rows_are_none():
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 10)] * 3), axis=-1).reshape(-1, 3)
    assert not alike(grid, np.sin(grid.sum(axis=1)))
    rng = np.random.default_rng(0)
    levels = np.eye(3)[np.repeat([0, 1, 2], 100)]
    assert not alike(levels, rng.normal(size=300))
    X, y = walk(30, 2, rng)
    assert not alike(X, y)
    assert not alike(np.ones((100, 2)), y=np.arange(100.0))


def test_estimators_warn_unless_they_are_told():
    rng = np.random.default_rng(0)
    X, y = walk(500, 3, rng)
    model = StackedRegressor([], random_state=0)
    with pytest.warns(FitWarning, match="neighboring rows are nearly equal.*give times=, or"):
        model.fit(X, y)
    order = rng.permutation(500)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X, y, times=np.arange(500))
        model.fit(X, y, groups=np.arange(500) // 50)
        model.fit(X[order], y[order])
    assert not any("neighboring rows" in str(warning.message) for warning in told)
    quick = {"hidden_layer_sizes": 3, "max_iter": 2, "random_state": 0}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        FAWNClassifier(**quick).fit(X, y > y.mean())
    assert any("neighboring rows" in str(warning.message) for warning in told)
    with warnings.catch_warnings():  # nothing is set aside
        warnings.simplefilter("error", FitWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        FAWNRegressor(**quick, validation=None).fit(X, y)


# ---- tables --------------------------------------------------------------------------------------


def patients(n_rows=120):
    rng = np.random.default_rng(0)
    when = rng.permutation(n_rows)
    frame = pd.DataFrame({"patient": [f"p{i:02d}" for i in when // 6], "dose": when % 7})
    frame["day"] = (np.datetime64("2024-01-01") + when).astype(str)
    frame["x"] = rng.normal(size=n_rows)
    frame["y"] = frame["x"] + 0.1 * rng.normal(size=n_rows)
    return frame


LINEAR = ("--model", "linear", *QUICK)


@pytest.fixture
def written(tmp_path):
    patients().to_csv(tmp_path / "t.csv", index=False)
    return tmp_path


def trained_on(model, frame):
    X = np.stack([frame[c.name].to_numpy(float) for c in model.preprocessing.inputs], axis=1)
    return model.regressor.rows_seen(X, frame["y"].to_numpy(float)[:, None])


def test_groups_from_a_table_to_predictions(written):
    options = ("-t", "y", "--drop", "day", "--group", "patient", "-o", written / "m.st")
    told = run_json("fit", written / "t.csv", *options, *LINEAR)
    assert "folds hold whole groups, by 'patient'." in told["notes"]
    assert (told["train_rows"], told["scored_rows"]) == (120, 120)
    options = (*options, "--holdout", "0.1")
    told = run_json("fit", written / "t.csv", *options, *LINEAR)
    assert list(told["inputs"]) == ["dose", "x"]
    assert (told["train_rows"], told["scored_rows"]) == (108, 12)
    note = "2 of 20 groups of 'patient' are held out whole (12 rows), and folds hold whole groups."
    assert note in told["notes"]
    model, frame = TableModel.load(written / "m.st"), patients()
    seen = pd.Series(trained_on(model, frame)).groupby(frame["patient"]).agg(["min", "max"])
    assert (seen["min"] == seen["max"]).all()
    assert (~seen["min"]).sum() == 2
    # With the column and without it.
    frame.to_csv(written / "new.csv", index=False)
    with_column = run("predict", written / "m.st", written / "new.csv")
    assert with_column.stderr == ""
    frame.drop(columns="patient").to_csv(written / "new.csv", index=False)
    assert run("predict", written / "m.st", written / "new.csv").stdout == with_column.stdout
    again = run_json("fit", written / "t.csv", *options, *LINEAR)
    assert again["scorecard"] == told["scorecard"]
    other = run_json("fit", written / "t.csv", *options, *LINEAR, "--seed", "5")
    assert other["scorecard"] != told["scorecard"]


def test_the_last_rows_in_time_are_held_out(written):
    options = ("-t", "y", "--drop", "patient", "--time", "day", "-o", written / "m.st")
    options = (*options, "--holdout", "0.1")
    told = run_json("fit", written / "t.csv", *options, *LINEAR)
    assert "the last 12 rows by 'day' are held out, and folds are blocks of time." in told["notes"]
    model, frame = TableModel.load(written / "m.st"), patients()
    seen = trained_on(model, frame)
    assert frame["day"][~seen].min() > frame["day"][seen].max()
    refit = run_json("fit", written / "t.csv", *options, *LINEAR, "--refit")
    assert refit["scorecard"] == told["scorecard"]
    assert refit["train_rows"] == 120


def test_networks_of_a_table_in_time(written):
    options = ("-t", "y", "--drop", "patient", "--time", "day", "-o", written / "m.st")
    shown = run("fit", written / "t.csv", *options, "--model", "network", *QUICK)
    assert "note: folds are blocks of time, by 'day'." in shown.stderr


def test_few_groups_and_a_trajectory_are_noted(written):
    frame = patients()
    frame["patient"] = np.arange(120) % 2
    frame.to_csv(written / "two.csv", index=False)
    options = ("-t", "y", "--drop", "day", "-o", written / "m.st", *LINEAR)
    told = run_json("fit", written / "two.csv", "--group", "patient", *options, "--holdout", "0.1")
    assert told["scored_rows"] == 0
    assert any("2 groups of 'patient' are too few to hold rows out" in n for n in told["notes"])
    assert any("there are 2 folds instead of 5" in note for note in told["notes"])
    X, y = walk(400, 2, np.random.default_rng(0))
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).to_csv(written / "w.csv", index=False)
    told = run_json("fit", written / "w.csv", "-t", "y", "-o", written / "m.st", *LINEAR)
    assert any("give --time, or --group if there are" in note for note in told["notes"])


def surveyed(columns, **roles):
    return survey(Source.of_table(pa.table(columns)), Roles(("y",), **roles))


Y = [float(i * i % 7) + 0.1 * i for i in range(12)]
X_ = [float(i) for i in range(12)][::-1]


@pytest.mark.parametrize(
    ("cells", "roles", "says"),
    [
        (Y, {"group": "gg"}, "has no column 'gg'"),
        (Y, {"group": "y"}, "column 'y' is named more than once among --target, --id, --group"),
        (Y, {"group": "g", "time": "x"}, "--group and --time both say"),
        (["a"] * 12, {"group": "g"}, "column 'g' has the same group in all rows"),
        ([1] * 12, {"time": "g"}, "column 'g' has the same time in all rows"),
        (["a", None] * 6, {"group": "g"}, "column 'g' has no value in row 2 of the table: fill"),
        ([1.0, float("nan")] * 6, {"time": "g"}, "column 'g' has no value in row 2"),
        (["a", "b"] * 6, {"time": "g"}, "holds the text 'a' in row 1 of the table, which cannot"),
        ([True, False] * 6, {"time": "g"}, "holds boolean in row 1 of the table, which cannot be"),
        ([1.0, float("inf")] * 6, {"time": "g"}, "column 'g' is infinite in row 2"),
        ([[1], [2]] * 6, {"group": "g"}, "column 'g' holds the type list"),
    ],
)
def test_one_sentence_for_a_column_that_cannot_be(cells, roles, says):
    with pytest.raises(TableError) as raised:
        surveyed({"x": X_, "g": cells, "z": X_, "y": Y}, **roles)
    assert len(raised.value.problems) == 1
    assert says in str(raised.value)


def test_all_problems_are_said_in_one_run():
    with pytest.raises(TableError) as raised:
        surveyed({"x": [None] * 12, "g": ["a", "b"] * 6, "y": Y}, time="g")
    assert len(raised.value.problems) == 2


def test_columns_of_all_kinds_say_what_belongs_together():
    def codes(cells, **roles):
        found = surveyed({"x": X_, "g": cells, "y": Y}, **roles).together
        return found.codes.tolist()

    by_group = [0, 1, 2] * 4
    for cells in (["a", "b", "c"] * 4, ["A ", "b", "c", "a", "B", "c"] * 2, [7, 5, 1] * 4):
        assert codes(cells, group="g") == by_group
    assert codes(pa.array(["u", "v", "w"] * 4).dictionary_encode(), group="g") == by_group
    assert codes([True, False] * 6, group="g") == [0, 1] * 6
    days = np.datetime64("2024-03-01") - np.arange(12)
    backwards = list(range(12))[::-1]
    for kind in (pa.date32(), pa.timestamp("us"), pa.timestamp("ns"), pa.date64()):
        assert codes(pa.array(days, pa.date32()).cast(kind), time="g") == backwards
    assert codes(pa.array(range(0, 120, 10), pa.time32("s")), time="g") == backwards[::-1]
    with_holes = surveyed({"x": X_, "g": [*range(11), None], "y": Y}, time="g", missing="drop")
    assert with_holes.keep.tolist() == [True] * 11 + [False]
    with pytest.raises(TableError, match="has the same group in all rows that are used"):
        surveyed(
            {"x": X_, "g": ["a"] * 11 + ["b"], "y": [*Y[:11], None]}, group="g", missing="drop"
        )


def test_a_held_out_part_leaves_every_class_a_row():
    from varprop.tables.belonging import hold_out

    codes = np.repeat([0, 1], [90, 10])
    held = hold_out(Together(np.arange(100), in_time=True), codes, 12, least=10, seed=0)
    assert held.sum() == 11
    assert not held[90]
    assert not hold_out(Together(codes), codes, 10, least=10, seed=0).any()  # one group is left


@pytest.mark.parametrize("seed", range(5))
def test_whole_groups_are_held_out_of_any_sizes(seed):
    rng = np.random.default_rng(seed)
    groups = Together(rng.permutation(np.repeat(np.arange(30), rng.integers(1, 20, 30))))
    held = groups.held_out(30, 10, seed)
    assert 20 <= held.sum() <= 40
    assert not np.isin(groups.codes[held], groups.codes[~held]).any()
    large = Together(np.repeat(np.arange(4), 50)).held_out(20, 10, seed)
    assert large.sum() == 50


def test_both_options_are_wrong_usage(written):
    both = ("--group", "patient", "--time", "day")
    assert "give one" in sentence("fit", written / "t.csv", "-t", "y", *both, code=2)
    assert "no column 'pat'" in sentence(
        "fit", written / "t.csv", "-t", "y", "--drop", "day", "--group", "pat", code=3
    )
