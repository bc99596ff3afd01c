"""Tables: formats told by content, places named, columns encoded, files written whole or not."""

import gzip
import json
import os
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import varprop.tables.source
from varprop.atomic import replacing
from varprop.errors import InputError
from varprop.tables import TableError, open_source, write_table
from varprop.tables.columns import CategoryColumn, NumberColumn, Preprocessing
from varprop.tables.model import TableRows, from_json, to_json
from varprop.tables.prediction import output_format
from varprop.tables.source import Source
from varprop.tables.survey import Roles, survey

pytestmark = pytest.mark.usefixtures("as_users_run_it")

TABLE = pa.table({"a": [1.5, 2.5, 3.5], "c": ["x", "y", "x"]})
COLUMNS = {"a": pa.float64(), "c": pa.string()}


def whole(path):
    """All rows of a file, read as `fit` reads them."""
    source = open_source(path).load()
    return pa.Table.from_batches(source.read(source.names))


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


@pytest.fixture
def forms(tmp_path):
    """The same table in every format, by name."""
    text = "a,c\n1.5,x\n2.5,y\n3.5,x\n"
    paths = {
        "csv": write(tmp_path / "t.csv", text),
        "bom": write(tmp_path / "bom.csv", "\ufeff" + text),
        "quoted": write(tmp_path / "q.csv", 'a,c\n"1.5","x"\n2.5,y\n\n3.5,x'),
        "tsv": write(tmp_path / "t.tsv", text.replace(",", "\t")),
        "semicolon": write(tmp_path / "s.csv", text.replace(",", ";")),
        "csv.gz": write(tmp_path / "t.csv.gz", gzip.compress(text.encode())),
        "misnamed": write(tmp_path / "data.xyz", text),
    }
    pq.write_table(TABLE, tmp_path / "t.parquet")
    pyarrow.feather.write_feather(TABLE, str(tmp_path / "t.feather"))
    paths["parquet"], paths["feather"] = str(tmp_path / "t.parquet"), str(tmp_path / "t.feather")
    packed = gzip.compress((tmp_path / "t.parquet").read_bytes())
    paths["parquet.gz"] = write(tmp_path / "t.parquet.gz", packed)
    return paths


def test_every_format_gives_the_same_table(forms):
    for name, path in forms.items():
        assert whole(path).equals(TABLE), name
        assert pa.Table.from_batches(open_source(path).read(COLUMNS)).equals(TABLE), name


def test_only_the_columns_asked_for_are_streamed(forms):
    for path in forms.values():
        (batch,) = open_source(path).read({"c": pa.string()})
        assert batch.schema.names == ["c"]


def test_lines_are_counted_as_an_editor_does(tmp_path):
    path = write(tmp_path / "t.csv", 'a,b\n\n1,"x\ny"\n2,z\n\n\n3,z\n')
    source = open_source(path)
    assert [source.where(row) for row in range(3)] == [f"line {n} of t.csv" for n in (3, 5, 8)]
    pq.write_table(TABLE, tmp_path / "t.parquet")
    assert open_source(str(tmp_path / "t.parquet")).where(2) == "row 3 of t.parquet"


@pytest.mark.parametrize("form", ["csv", "parquet", "feather"])
def test_a_stream_holds_little_of_the_table(tmp_path, monkeypatch, form):
    # The reader of text is some blocks ahead: small ones make a small table large enough.
    monkeypatch.setattr(varprop.tables.source, "_BLOCK_BYTES", 2**17)
    rng = np.random.default_rng(0)
    part = {name: rng.normal(size=2**17) for name in "abcd"}
    schema = pa.schema([(name, pa.float64()) for name in part])
    path = str(tmp_path / f"t.{form}")
    batch = pa.RecordBatch.from_pydict(part, schema=schema)
    write_table(path, iter([batch] * 8))
    before, most, n_rows = pa.total_allocated_bytes(), 0, 0
    for batch in open_source(path).read(dict.fromkeys(part, pa.float64())):
        most = max(most, pa.total_allocated_bytes() - before)
        n_rows += batch.num_rows
    whole = 8 * 2**17 * 4 * 8
    assert n_rows == 8 * 2**17
    assert most < whole / 2


def test_a_type_that_changes_late_is_no_surprise(tmp_path):
    """A stream is read with the model's types, not with those of its first block."""
    rows = ["1"] * 1_500_000 + ["2.5"]  # beyond the first block of bytes
    source = open_source(write(tmp_path / "t.csv", "a\n" + "\n".join(rows) + "\n"))
    batches = source.read({"a": pa.float64()})
    assert sum(np.asarray(batch.column(0)).sum() for batch in batches) == 1_500_002.5


def surveyed(columns, **roles):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    return survey(Source.of_table(table, "data.csv"), Roles(("y",), **roles))


def learn(columns, **roles):
    found = surveyed(columns, **roles)
    return found.learn(found.keep)


Y = np.arange(12.0)


def test_kinds_of_columns():
    codes = pa.array(["k", "l", "m"] * 4).dictionary_encode()
    columns = {
        "whole": [3, 1, 2] * 4,
        "real": [0.5, 1.5, 2.5] * 4,
        "decimal": pa.array([Decimal(1), Decimal(2), Decimal(3)] * 4),
        "text": ["a", "b", "a"] * 4,
        "large": pa.array(["a", "b", "a"] * 4, pa.large_string()),
        "yes": [True, False, True] * 4,
        "codes": codes,
        "zip": [1, 2, 1] * 4,
        "y": Y,
    }
    data = surveyed(columns, categories=("zip",))
    assert data.kinds == {
        "whole": "number",
        "real": "number",
        "decimal": "number",
        "text": "text",
        "large": "text",
        "yes": "boolean",
        "codes": "text",
        "zip": "text",
    }
    pre = data.learn(data.keep)
    assert pre.feature_names[3:] == [
        *("text=a", "text=b", "large=a", "large=b", "yes=false", "yes=true"),
        *("codes=k", "codes=l", "codes=m", "zip=1", "zip=2"),
    ]
    X = pre.encode(pa.table(columns), str).X
    np.testing.assert_array_equal(X[:3, :3], [[3, 0.5, 1], [1, 1.5, 2], [2, 2.5, 3]])
    np.testing.assert_array_equal(X[:, 3:].sum(axis=1), 5)
    np.testing.assert_array_equal(X[:3, 7:9], [[0, 1], [1, 0], [0, 1]])


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (pa.array(range(12), pa.timestamp("s")), "column 'x' holds dates or times: .*--drop x"),
        (pa.array(range(12), pa.date32()), "holds dates"),
        ([f"text {i}" for i in range(12)], "12 different values in 12 rows: .*--category x"),
        ([f"{i},5" for i in range(12)], "numbers stored as text"),
        ([f"{i}.5" for i in range(12)], "numbers stored as text"),
        ([*map(str, range(11)), "oops"], "'oops' in row 12 of data.csv among numbers"),
        ([[i] for i in range(12)], "holds the type list"),
        ([None] * 12, "no value in any row: leave it out with --drop x"),
        (pa.array([None] * 12, pa.float64()), "no value in any row"),
        ([np.nan] * 12, "no value in any row"),
        ([*[1.0] * 11, np.inf], "column 'x' is infinite in row 12"),
        ([*[1.0] * 11, 1e300], r"is 1e\+300 in row 12 of data.csv, more than 1e\+100"),
        (
            np.arange(12) * 1e-300,
            "column 'x' varies by 1.1e-299 only, less than 1e-100: rescale it",
        ),
    ],
)
def test_columns_that_are_refused(cells, sentence):
    with pytest.raises(TableError, match=sentence):
        surveyed({"x": cells, "y": Y})
    surveyed({"x": cells, "z": Y, "y": Y}, dropped=("x",))


def test_too_many_categories():
    n = 2500
    text = [f"c{i}" for i in range(n)]
    columns = {"x": text, "y": np.arange(float(n))}
    with pytest.raises(TableError, match="2500 different values"):
        surveyed(columns, categories=("x",))
    few = {"x": [f"c{i % 51}" for i in range(n)], "y": np.arange(float(n))}
    with pytest.raises(TableError, match="51 different values"):
        surveyed(few)
    assert len(learn(few, categories=("x",)).feature_names) == 51
    with pytest.raises(TableError, match="fractions"):
        surveyed({"x": Y + 0.5, "y": Y}, categories=("x",))


@pytest.mark.parametrize(
    ("values", "name", "warned"),
    [
        (np.arange(100, 112), "sensor", True),  # rises row by row
        (np.random.default_rng(0).permutation(12) * 7, "patient_id", True),
        (np.random.default_rng(0).permutation(12) * 7, "sensor", False),
        (np.random.default_rng(0).permutation(12), "sensor", True),  # every number once
        (np.arange(12) + 0.5, "patient_id", False),
        ([1, 1, *range(2, 12)], "patient_id", False),
    ],
)
def test_ids_that_look_like_numbers(values, name, warned):
    notes = surveyed({name: values, "x": [1, 2] * 6, "y": Y}).notes
    assert any("looks like an id" in note and f"--id {name}" in note for note in notes) == warned


def test_notes():
    data = surveyed({"": range(12), "x": [1.0] * 12, "y": Y})
    assert data.roles.dropped == ("",)
    assert ["left out" in note or "tells nothing" in note for note in data.notes] == [True, True]


def test_missing_values_by_policy():
    columns = {"x": [1.0, None, np.nan, *range(3, 12)], "c": [None, *["a", "b"] * 5, "a"], "y": Y}
    with pytest.raises(TableError, match="column 'x' has no value in row 2"):
        surveyed(columns)
    dropped = surveyed(columns, missing="drop")
    np.testing.assert_array_equal(np.flatnonzero(dropped.keep), np.arange(3, 12))
    assert "3 rows with missing values left out." in dropped.notes
    pre = learn(columns, missing="impute")
    x, c = pre.inputs
    present = np.array([1.0, *range(3, 12)])
    np.testing.assert_allclose((x.mean, x.var), (present.mean(), present.var()), rtol=1e-14)
    assert c.levels == ("a", "b", None)
    rows = pre.encode(pa.table(columns), str)
    np.testing.assert_array_equal(rows.X[1:3, 0], x.mean)
    np.testing.assert_allclose(rows.X_std[1:3, 0], np.sqrt(x.var))
    assert not rows.X_std[:, 1:].any()  # missing is a category of its own
    assert not rows.X_std[3:].any()
    assert rows.X[0].tolist() == [1.0, 0.0, 0.0, 1.0]
    assert rows.n_imputed == 3


def test_a_missing_category_that_training_never_saw_is_unknown():
    pre = learn({"c": ["a", "a", "b"] * 4, "y": Y}, missing="impute")
    rows = pre.encode(pa.table({"c": ["a", None]}), str)
    np.testing.assert_allclose(rows.X, [[1, 0], [2 / 3, 1 / 3]])
    np.testing.assert_allclose(rows.X_std[1], np.sqrt(2 / 9))
    assert rows.n_imputed == 1


def test_categories_that_training_never_saw():
    pre = learn({"c": ["a", "a", "b"] * 4, "y": Y})
    with pytest.raises(TableError, match=r"column 'c' is 'z' in row 2, .* \(a, b\).*--unseen"):
        pre.encode(pa.table({"c": ["a", "z"]}), lambda row: f"row {row + 1}")
    rows = pre.encode(pa.table({"c": ["a", "z"]}), str, unseen="average")
    np.testing.assert_allclose(rows.X[1], [2 / 3, 1 / 3])
    assert rows.n_unseen == 1


def test_rows_without_prediction():
    pre = learn({"x": [1.0, 2.0] * 6, "y": Y}, missing="drop")
    rows = pre.encode(pa.table({"x": [1.0, None]}), str)
    assert rows.complete.tolist() == [True, False]


def test_targets():
    def fails(y, sentence, **roles):
        with pytest.raises(TableError, match=sentence):
            surveyed({"x": Y, "y": y}, **roles)

    fails([*"1234567890", "a", "b"], "target 'y' holds the text 'a' in row 11")
    fails(["a"] * 12, "target 'y' is 'a' in all rows: there is nothing to learn")
    fails(["a"] * 11 + ["b"], "target 'y' is 'b' in only one row: a class needs two or more")
    fails(list("abcdefghijkl"), "text with 12 different values in 12 rows: a target must be")
    fails(pa.array(range(12), pa.date32()), "dates or times")
    fails([None] * 12, "no value in any row")
    fails([1.0] * 12, "target 'y' is 1 in all rows")
    fails([*range(11), None], "no value in row 12.*--missing drop")
    fails([*range(11), -np.inf], "infinite in row 12")
    fails([1.0, *[None] * 11], "only 1 row without missing values", missing="drop")
    data = surveyed({"x": Y, "y": [*range(11), None]}, missing="impute")
    assert data.keep.sum() == 11
    assert "1 row without a target left out." in data.notes


def test_roles():
    def fails(sentence, targets=("y",), **roles):
        with pytest.raises(TableError, match=sentence):
            survey(Source.of_table(pa.table({"Size": Y, "y": Y})), Roles(targets, **roles))

    fails("no column 'size': did you mean 'Size'", ("size",))
    fails("no column 'qqq': it has 'Size', 'y'", dropped=("qqq",))
    fails("more than once", ids=("y",))
    fails("no column left", ids=("Size",))
    with pytest.raises(TableError, match="only one column"):
        surveyed({"y": Y})
    with pytest.raises(TableError, match="only one row"):
        surveyed({"x": [1.0], "y": [1.0]})


PRE = Preprocessing(
    (NumberColumn("x", 1.0, 2.0), CategoryColumn("c", "text", ("a", None), (3, 1))),
    ("y",),
    ("id",),
    ("junk",),
    "impute",
)


def test_json_round_trip():
    text = json.dumps(to_json(PRE), allow_nan=False)
    assert from_json(json.loads(text)) == PRE


def damages():
    def changed(*path, to):
        content = to_json(PRE)
        inner = content
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to
        return content

    yield []
    yield changed("more", to=1)
    yield {key: value for key, value in to_json(PRE).items() if key != "ids"}
    yield changed("missing", to="guess")
    yield changed("inputs", to=[])
    yield changed("inputs", 0, to="x")
    yield changed("inputs", 0, "kind", to="pickle")
    yield changed("inputs", 0, "mean", to="1")
    yield changed("inputs", 0, "mean", to=float("inf"))
    yield changed("inputs", 0, "var", to=-1.0)
    yield changed("inputs", 0, "name", to="y")  # twice
    yield changed("inputs", 0, "extra", to=1)
    yield changed("inputs", 1, "values", to="code")
    yield changed("inputs", 1, "levels", to=["a", "a"])
    yield changed("inputs", 1, "levels", to=["a", 1])
    yield changed("inputs", 1, "counts", to=[3])
    yield changed("inputs", 1, "counts", to=[3, 0])
    yield changed("inputs", 1, "counts", to=[3, True])
    yield changed("targets", to=[])
    yield changed("targets", to=[1])
    yield changed("ids", to="id")


@pytest.mark.parametrize("content", list(damages()))
def test_a_damaged_description_is_refused(content):
    with pytest.raises(InputError, match="damaged"):
        from_json(content)


def test_a_later_version_is_named():
    with pytest.raises(InputError, match="the varprop that wrote it"):
        from_json(to_json(PRE) | {"version": 2, "more": 1})


def test_columns_of_new_tables():
    def rows(*names, **options):
        table = pa.table({name: [1.0] for name in names})
        return TableRows(Source.of_table(table), PRE, **options)

    assert rows("x", "c", "id", "y", "junk", "new").new_columns == ["new"]
    with pytest.raises(TableError, match="no columns 'c', 'id', which the model needs; it has 'x'"):
        rows("x")
    with pytest.raises(TableError, match="no column 'y', the target"):
        rows("x", "c", "id")
    assert rows("x", "c", "id", targets=False).new_columns == []
    good = {"x": pa.array([1], pa.int8()), "c": pa.array(["a"]).dictionary_encode()}
    assert PRE.encode(pa.table(good), str).X.tolist() == [[1.0, 1.0, 0.0]]
    for bad in ({"x": ["1"]}, {"c": [1.5]}, {"c": [True]}):
        with pytest.raises(TableError, match=r"has the type .* in 0, but .*: convert the column"):
            PRE.encode(pa.table(good | bad), str)


@pytest.mark.parametrize("name", ["o.csv", "o.tsv", "o.csv.gz", "o.parquet", "o.feather"])
def test_what_is_written_can_be_read(tmp_path, name):
    table = pa.table({"id": ["7", 'q"uo,ted', "tab\t"], "mean": [1.0, None, 1e-300]})
    path = str(tmp_path / name)
    write_table(path, iter(table.to_batches(max_chunksize=2)))
    assert whole(path).equals(table)
    assert os.listdir(tmp_path) == [name]


def test_plain_text_has_no_quotes(tmp_path):
    table = pa.table({"id": ["7", "eight"], "mean": [1.0, 2.5]})
    write_table(str(tmp_path / "o.csv"), iter(table.to_batches()))
    assert (tmp_path / "o.csv").read_text() == "id,mean\n7,1\neight,2.5\n"


@pytest.mark.parametrize("name", ["o.csv", "o.csv.gz", "o.parquet", "o.feather"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, name):
    def batches(error):
        yield TABLE.to_batches()[0]
        raise error

    path = tmp_path / name
    path.write_text("old")
    for error in (KeyboardInterrupt, OSError):
        with pytest.raises(error):
            write_table(str(path), batches(error))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [name]


def test_a_link_stays_a_link(tmp_path):
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    with replacing(tmp_path / "link.csv") as file:
        file.write(b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "new"


def test_output_formats():
    assert output_format("a/b.TSV") == ("tsv", False)
    for name in ("out", "out.xlsx", "out.parquet.gz"):
        with pytest.raises(TableError, match="does not say its format"):
            output_format(name)
