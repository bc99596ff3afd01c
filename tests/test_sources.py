"""Sources of rows: Parquet files, Dask frames, parts of both; and what is wrong with a file."""

import dask.dataframe
import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rows
import tiny
from varprop import ROPD, Data, FAWNRegressor, fit
from varprop.data import (
    DaskSource,
    ParquetSource,
    SourceError,
    Statistics,
    split_source,
    statistics,
)
from varprop.data.parts import gather
from varprop.data.source import AbstractSource, Rows
from varprop.data.statistics import first_nonfinite


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return rows.folder(tmp_path_factory.mktemp("sources") / "rows")


def test_a_dask_frame_gives_what_the_files_give(folder):
    frame = dask.dataframe.concat(
        [
            dask.dataframe.from_pandas(pd.read_parquet(path), npartitions=1)
            for path in sorted(folder.iterdir())
        ]
    )
    frames = DaskSource(frame, features=["x0", "x1"], targets=["y"], weight="weight")
    assert frames.block_rows == (70, 70, 70)
    files = ParquetSource(folder, features=["x0", "x1"], targets="y", weight="weight")
    for found, expected in zip(gather(frames)[:3], gather(files)[:3], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_bad_frames():
    table = pd.DataFrame({"x": [1.0, np.nan, 3.0], "y": [1, 2, 3], "text": ["a", "b", "c"]})
    frame = dask.dataframe.from_pandas(table, npartitions=1)
    with pytest.raises(SourceError, match=r"^column 'text' holds .*, not numbers: encode"):
        DaskSource(frame, targets="y")
    with pytest.raises(SourceError, match=r"^the frame has no column 'z': it has 'x', 'y', 'text'"):
        DaskSource(frame, targets="z")
    with pytest.raises(TypeError, match="must be a Dask DataFrame, but is DataFrame"):
        DaskSource(table, targets="y")
    with pytest.raises(SourceError, match=r"^column 'x' is NaN in row 1 of partition 0"):
        Statistics.of(DaskSource(frame, features=["x"], targets="y"))


def test_splitting(folder):
    source = ParquetSource(folder, features=["index"], targets="y")
    train, held = split_source(source, share=0.3, seed=0)
    assert 30 < held.n_rows < 100

    def indices(part):
        return gather(part).x[:, 0].astype(int).tolist()

    assert sorted(indices(train) + indices(held)) == list(range(210))
    assert indices(held) == indices(held)
    assert indices(held) != indices(split_source(source, share=0.3, seed=1)[1])
    assert (len(indices(train)), len(indices(held))) == (train.n_rows, held.n_rows)
    place = indices(held)[0]
    assert held.where(0, 0) == source.where(0, place)
    with pytest.raises(ValueError, match="share must lie between 0 and 1, but is 1"):
        split_source(source, share=1.0, seed=0)


def test_gathering_draws_about_as_many_rows_as_asked_for(folder):
    source = ParquetSource(folder, features=["index"], targets="y")
    drawn = gather(source, most=60).x[:, 0]
    assert 30 < len(drawn) < 90
    assert len(set(drawn)) == len(drawn)
    assert len(gather(source, most=210).x) == 210


def test_other_numbers_than_floats(tmp_path):
    table = pa.table(
        {
            "flag": [True, False, True],
            "whole": pa.array([1, 2, 3], pa.uint8()),
            "price": pa.array([1, 2, 3]).cast(pa.decimal128(20, 1)),
            "y": pa.array([1, 2, 3], pa.float16()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    piece = next(ParquetSource(tmp_path / "a.parquet", targets="y").read(0))
    assert piece.x.tolist() == [[1, 1, 1], [0, 2, 2], [1, 3, 3]]
    assert piece.y.tolist() == [[1], [2], [3]]
    assert piece.x.dtype == np.float64


# ---- bad files ----------------------------------------------------------------------------------


def good(n=4):
    return {"x": np.arange(float(n)), "y": np.ones(n)}


BAD_FILES = {
    "absent": ({"y": [1.0]}, r"^b.parquet has no column 'x', but a.parquet has one.$"),
    "null type": (
        {"x": pa.nulls(2), "y": [1.0, 2.0]},
        r"^column 'x' of b.parquet holds nothing but missing values: fill them in",
    ),
    "all null": (
        {"x": pa.array([None, None], pa.float64()), "y": [1.0, 2.0]},
        r"^column 'x' of b.parquet holds nothing but missing values: fill them in",
    ),
    "some null": (
        {"x": [1.0, None, 3.0], "y": [1.0, 2.0, 3.0]},
        r"^column 'x' has no value in 1 of 3 rows of b.parquet: fill it in",
    ),
    "text": (
        {"x": ["red"], "y": [1.0]},
        r"^column 'x' of b.parquet holds string, not numbers: encode it as numbers first",
    ),
    "category": (
        {"x": pa.array(["red"]).dictionary_encode(), "y": [1.0]},
        r"^column 'x' of b.parquet holds dictionary.*, not numbers: encode it as numbers first",
    ),
    "more": (
        {"x": [1.0], "z": [1.0], "y": [1.0]},
        r"^b.parquet has a column 'z', but a.parquet has none: name the inputs.$",
    ),
}


@pytest.mark.parametrize(("columns", "sentence"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_in_the_middle_with_another_schema(tmp_path, columns, sentence):
    for name, content in {"a": good(), "b": columns, "c": good()}.items():
        pq.write_table(pa.table(content), tmp_path / f"{name}.parquet")
    with pytest.raises(SourceError, match=sentence):
        ParquetSource(tmp_path, targets="y")


def test_missing_values_without_counts_in_the_metadata(tmp_path):
    pq.write_table(
        pa.table({"x": [1.0, 2.0, None], "y": [1.0, 2.0, 3.0]}),
        tmp_path / "a.parquet",
        write_statistics=False,
        row_group_size=2,
    )
    with pytest.raises(SourceError, match=r"^column 'x' has no value in row 3 of a.parquet: fill"):
        Statistics.of(ParquetSource(tmp_path, targets="y"))


@pytest.mark.parametrize(
    "damage", [lambda whole: b"", lambda whole: whole[:-20], lambda whole: b"a,b\n1,2\n" * 99]
)
def test_an_unreadable_file_in_the_middle(tmp_path, damage):
    for name in "abc":
        pq.write_table(pa.table(good()), tmp_path / f"{name}.parquet")
    path = tmp_path / "b.parquet"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError, match=r"^b.parquet is no Parquet file, or damaged or cut"):
        ParquetSource(tmp_path, targets="y")


def test_rows_that_cannot_be_decoded(tmp_path):
    """The footer is whole, the pages are not."""
    for name in "abc":
        pq.write_table(pa.table(good(1000)), tmp_path / f"{name}.parquet", compression="snappy")
    path = tmp_path / "b.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 3000 + whole[3004:])
    source = ParquetSource(tmp_path, targets="y")
    with pytest.raises(SourceError, match=r"^b.parquet is damaged, row group 1 cannot be read"):
        Statistics.of(source)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (np.nan, r"^column 'x' is NaN in row 6 of b.parquet: remove or impute it first\.$"),
        (np.inf, r"^column 'x' is infinite \(inf\) in row 6 of b.parquet: remove or impute"),
        (2e307, r"^column 'x' is 2e\+307 in row 6 of b.parquet, too large to be squared: remove"),
    ],
)
def test_a_number_that_cannot_be_trained_on(tmp_path, value, sentence):
    for name in "abc":
        columns = good(7)
        if name == "b":
            columns["x"][5] = value
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=2)
    with pytest.raises(SourceError, match=sentence):
        Statistics.of(ParquetSource(tmp_path, targets="y"))


def test_bad_weights(tmp_path):
    for weights, sentence in (
        ([1.0, -1.0], r"^column 'w' is -1 in row 2 of a.parquet: it must not be negative\.$"),
        ([1.0, np.nan], r"^column 'w' is NaN in row 2 of a.parquet: remove or impute"),
        ([0.0, 0.0], r"^column 'w' gives no row a positive weight"),
    ):
        pq.write_table(pa.table({**good(2), "w": weights}), tmp_path / "a.parquet")
        with pytest.raises(SourceError, match=sentence):
            Statistics.of(ParquetSource(tmp_path, targets="y", weight="w"))


def test_bad_paths_and_names(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(good()), path)
    pq.write_table(pa.table(good(0)), tmp_path / "empty.parquet")
    twice = pa.Table.from_arrays([pa.array([1.0])] * 3, ["x", "x", "y"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    (tmp_path / "nothing").mkdir()
    for paths, options, sentence in (
        (tmp_path / "nothing", {}, r"has no file \*.parquet"),
        (tmp_path / "b.parquet", {}, r"^there is no file .*b.parquet: check the path"),
        (f"{tmp_path}/b*.parquet", {}, r"^there is no file .*b\*.parquet: check the path"),
        ([], {}, r"^there is no file: give at least one"),
        ([path, path], {}, r"a.parquet is given 2 times"),
        (tmp_path / "empty.parquet", {}, r"^empty.parquet has a header but no rows"),
        (tmp_path / "twice.parquet", {}, r"^twice.parquet has 2 columns named 'x'"),
        (path, {"targets": "z"}, r"^a.parquet has no column 'z': it has 'x', 'y'"),
        (path, {"targets": []}, r"^targets names no column"),
        (path, {"targets": ["x", "y"]}, r"^a.parquet has no column besides the targets"),
        (path, {"features": ["x", "y"]}, r"^column 'y' is named 2 times"),
        (path, {"weight": "w"}, r"^a.parquet has no column 'w'"),
    ):
        with pytest.raises(SourceError, match=sentence):
            ParquetSource(paths, **{"targets": "y", **options})
    assert ParquetSource(f"{tmp_path}/a*.parquet", targets="y").n_rows == 4
    assert ParquetSource([path, tmp_path / "empty.parquet"], targets="y").n_rows == 4


# ---- a source that does not keep its word --------------------------------------------------------


class Liar(AbstractSource):
    """Two blocks of four rows, the second of which is not as promised."""

    features, targets, weight_name, uncertain = ("a", "b"), ("y",), None, False
    block_rows = (4, 4)

    def __init__(self, second: Rows):
        self.second = second

    def read(self, block):
        yield Rows(np.ones((4, 2)), np.ones((4, 1))) if block == 0 else self.second

    def where(self, block, row):
        return f"row {row} of block {block}"


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (
            Rows(np.ones((4, 3)), np.ones((4, 1))),
            r"block 1 has x of shape \(4, 3\), but its source promises \(4, 2\)\.",
        ),
        (
            Rows(np.ones((4, 2)), np.ones((4, 2))),
            r"block 1 has y of shape \(4, 2\), but its source promises \(4, 1\)\.",
        ),
        (
            Rows(np.ones((4, 2)), np.ones((4, 1)), np.ones(4)),
            r"block 1 has weight of shape \(4,\), but its source promises None\.",
        ),
        (
            Rows(np.ones((3, 2)), np.ones((3, 1))),
            r"block 1 has 3 rows, but its source says 4\.",
        ),
        (
            Rows(np.full((4, 2), np.nan), np.ones((4, 1))),
            r"column 'a' is NaN in row 0 of block 1: remove or impute it first\.",
        ),
    ],
    ids=["inputs", "targets", "weights", "rows", "numbers"],
)
def test_other_columns_in_a_later_block(second, sentence):
    with pytest.raises(SourceError, match=f"^{sentence}$"):
        Statistics.of(Liar(second))


@pytest.mark.parametrize(
    ("second", "sentence"),
    [
        (Rows(np.ones((4, 3)), np.ones((4, 1))), r"block 1 has x of shape \(4, 3\), but its .*"),
        (Rows(np.ones((3, 2)), np.ones((3, 1))), "the source has fewer rows than it said: .*"),
    ],
    ids=["columns", "rows"],
)
@pytest.mark.parametrize("buffer_rows", [None, 4], ids=["one buffer", "two buffers"])
def test_a_block_that_changes_after_it_was_looked_at(second, sentence, buffer_rows):
    honest = Liar(Rows(np.ones((4, 2)), np.ones((4, 1))))
    statistics = Statistics.of(honest)
    recipe = tiny.recipe(batch_size=4)
    options = {"statistics": statistics, "buffer_rows": buffer_rows, "recipe": recipe}
    with pytest.raises(SourceError, match=f"^{sentence}$"):
        fit(tiny.model(), Liar(second), ROPD(), key=jax.random.key(0), **options)


@pytest.mark.parametrize("split", [False, True])
def test_data_is_a_source_of_one_block(split):
    """And may be split like any other."""
    x = np.arange(40.0).reshape(20, 2)
    data = Data(x, x[:, 0], names=["a", "b", "y"])
    assert (data.block_rows, data.features, data.targets) == ((20,), ("a", "b"), ("y",))
    if split:
        parts = [gather(part).x[:, 0] for part in split_source(data, share=0.5, seed=0)]
        assert sorted(np.concatenate(parts)) == x[:, 0].tolist()


def test_a_bad_number_is_named_where_it_stands_whatever_the_file(tmp_path):
    """The estimator reads few rows at once; the file and the row are still the user's."""
    for name, bad in (("a", 4.0), ("b", np.nan)):
        x = np.arange(20.0)
        x[13] = bad
        table = pa.table({"x": x, "y": np.arange(20.0), "w": np.ones(20)})
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=5)
    source = ParquetSource(
        [tmp_path / "a.parquet", tmp_path / "b.parquet"], targets="y", weight="w"
    )
    with pytest.raises(SourceError, match=r"column 'x' is NaN in row 14 of b\.parquet"):
        FAWNRegressor(3, max_iter=2).fit(source)


def test_numbers_are_looked_at_once(monkeypatch):
    seen = []

    def counted(values):
        seen.append(values.size)
        return first_nonfinite(values)

    monkeypatch.setattr(statistics, "first_nonfinite", counted)
    X, y = np.arange(60.0).reshape(30, 2), np.arange(30.0)
    FAWNRegressor(3, max_iter=2).fit(X, y)
    assert sum(seen) == 90


def test_parts_without_rows_and_single_rows_are_refused():
    data = Data(np.ones((3, 2)), np.ones(3))
    with pytest.raises(SourceError, match=r"share 0\.01 of 3 rows leaves a part without any"):
        split_source(data, share=0.01, seed=0)
    with pytest.raises(ValueError, match="the source has 1 rows, but at least 2"):
        FAWNRegressor().fit(Data(np.ones((1, 2)), np.ones(1)))
    with pytest.raises(ValueError, match="names has 2 entries, but there are 3 columns"):
        Data(np.ones((3, 2)), np.ones(3), names=["a", "b"])


def test_columns_that_hold_lists_and_labels_that_are_numbers(tmp_path):
    table = pa.table({"x": [[1.0, 2.0], [3.0, 4.0]], "y": [1.0, 2.0]})
    pq.write_table(table, tmp_path / "lists.parquet")
    with pytest.raises(SourceError, match=r"column 'x' of lists\.parquet holds list"):
        ParquetSource(tmp_path / "lists.parquet", targets="y")
    frame = pd.DataFrame(np.arange(12.0).reshape(4, 3))
    source = DaskSource(dask.dataframe.from_pandas(frame, npartitions=2), targets="2")
    assert source.features == ("0", "1")
    assert gather(source).y.ravel().tolist() == [2.0, 5.0, 8.0, 11.0]


def test_float32_columns_are_scaled_as_their_float64_copies_are():
    """Unix times within half an hour, in the precision that some files have."""
    times = (1.7e9 + 128.0 * np.arange(20_000) % 1800).astype(np.float32)[:, None]
    few, many = (Statistics.of(Data(t, t)).scaling for t in (times, times.astype(np.float64)))
    np.testing.assert_allclose(few.x_scale, many.x_scale, rtol=1e-12)
    assert few.x_scale[0] > 100


def test_a_number_too_large_to_square_is_named_by_the_users_row():
    """Rows are sorted and merged before their squares are summed."""
    x = np.arange(20.0)[::-1].copy()
    x[13] = 1.2e307
    weight = np.ones(20)
    weight[2] = 0
    with pytest.raises(SourceError, match=r"is 1.2e\+307 in row 13, too large to be squared"):
        FAWNRegressor(3, max_iter=2).fit(x[:, None], np.arange(20.0), sample_weight=weight)
