"""Text tables as people have them: numbers, signs, encodings, spellings, and what is remembered."""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cli_runs import QUICK, run, run_json, sentence
from varprop.tables import Dialect, Roles, TableError, open_source
from varprop.tables.columns import CategoryColumn
from varprop.tables.description import from_json, read_description, to_json
from varprop.tables.survey import survey

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def write(path, *lines, encoding="utf-8"):
    path.write_bytes(("\n".join(lines) + "\n").encode(encoding))
    return str(path)


def column(tmp_path, cells, *, delimiter=";", more=(), **options):
    """A surveyed table whose column x has these cells; beside a column of `more`."""
    more = list(more) or ["1"] * len(cells)
    lines = [f'"{x}"{delimiter}{z}{delimiter}{i}' for i, (x, z) in enumerate(zip(cells, more))]  # noqa: B905
    path = write(tmp_path / "t.csv", delimiter.join("xzy"), *lines)
    roles = {name: options.pop(name) for name in ("numbers", "categories") if name in options}
    return survey(open_source(path, delimiter=delimiter, **options), Roles(("y",), **roles))


def read(*args, **options):
    found = column(*args, **options)
    return found.table.table.column("x").to_pylist(), found


@pytest.mark.parametrize(
    ("cells", "values", "note"),
    [
        (["1,234.5", "7"], [1234.5, 7.0], "read with ',' between thousands, as in '1,234.5'"),
        (["1,234,567", "42,000"], [1234567.0, 42000.0], "',' between thousands"),
        (["42.000,50", "1.000"], [42000.5, 1000.0], "'.' between thousands, as in '42.000,50'"),
        (["1,5", "42,000"], [1.5, 42.0], "with ',' as the decimal point, as in '1,5'"),
        (["0,500", "1,000"], [0.5, 1.0], "',' as the decimal point"),
        (["1 234", "12 345,5"], [1234.0, 12345.5], "' ' between thousands"),
        (["1\u202f234", "1"], [1234.0, 1.0], "' ' between thousands"),
        (["1'234", "1’234.50"], [1234.0, 1234.5], "between thousands"),  # noqa: RUF001
        (["$1,234.50", "-$3"], [1234.5, -3.0], "read without the sign '$', as in '$1,234.50'"),
        (["3 €", "4,50 €"], [3.0, 4.5], "without the sign '€'"),
        (["CHF 3", "CHF -4"], [3.0, -4.0], "without the sign 'CHF'"),
        (["$3", "4"], [3.0, 4.0], "without the sign '$', which some cells lack"),
        (["5%", "6.5 %"], [5.0, 6.5], "without the sign '%'"),
        (["+5", "\u22123"], [5.0, -3.0], ""),
        (["1e3", " 2 "], [1000.0, 2.0], ""),
        (["1.5", "-2."], [1.5, -2.0], ""),
    ],
)
def test_numbers_are_read_and_how_is_said(tmp_path, cells, values, note):
    got, found = read(tmp_path, cells)
    assert got == values
    notes = [text for text in found.notes if "'z'" not in text and "'y'" not in text]
    assert (note in "\n".join(notes)) if note else not notes


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (["42,000", "1,000"], "holds '42,000' in line 2 of t.csv, which may be 42 or 42000: say "),
        (["42.000", "1.000"], "holds '42.000' in line 2 of t.csv, which may be 42 or 42000: say "),
        (["-42.000", "7"], "holds '-42.000' in line 2 of t.csv, which may be 42 or 42000"),
        (["$42,000", "$7"], r"holds '\$42,000' in line 2 of t.csv, which may be 42 or 42000"),
        (["5%", "0.05"], "holds '5%' in line 2 of t.csv but '0.05' in line 3 of t.csv: write all"),
        (["$5", "€5"], r"holds '\$5' in line 2 of t.csv but '€5' in line 3"),
        (["1.234,5", "1,234.5"], "another decimal point, which --decimal says"),
        (["1,234,567", "1 234"], "' ' and ',' between thousands: say --thousands"),
    ],
)
def test_numbers_that_may_be_two_are_refused(tmp_path, cells, sentence):
    with pytest.raises(TableError, match=sentence) as error:
        column(tmp_path, cells)
    assert len(error.value.problems) == 1


def test_options_decide_what_cells_leave_open(tmp_path):
    assert read(tmp_path, ["42,000", "7"], thousands=",")[0] == [42000.0, 7.0]
    assert read(tmp_path, ["42,000", "7"], decimal=".")[0] == [42000.0, 7.0]
    assert read(tmp_path, ["42,000", "7"], decimal=",")[0] == [42.0, 7.0]
    assert read(tmp_path, ["42.000", "7"], thousands=".")[0] == [42000.0, 7.0]
    assert read(tmp_path, ["42.000", "7"], decimal=".")[0] == [42.0, 7.0]
    with pytest.raises(TableError, match="is not a number with ',' as the decimal point"):
        column(tmp_path, ["1,234,567", "7"], decimal=",")


def test_other_columns_decide_too(tmp_path):
    got, found = read(tmp_path, ["42,000", "1,000"], more=["1.5", "2.25"])
    assert got == [42000.0, 1000.0]
    assert found.learn(found.keep).text == Dialect(delimiter=";", decimal=".", thousands=",")
    assert read(tmp_path, ["42.000", "1.000"], more=["1,5", "2"])[0] == [42000.0, 1000.0]
    assert read(tmp_path, ["42.000", "1.000"], more=["1.5", "2"])[0] == [42.0, 1.0]


def test_three_decimals_between_commas_are_decimals_with_a_note(tmp_path):
    got, found = read(tmp_path, ["42.000", "1.000"], delimiter=",")
    assert got == [42.0, 1.0]
    assert "'.' as the decimal point, as in '42.000' (--thousands '.' says" in found.notes[0]


def test_zeros_in_front_stay(tmp_path):
    codes = ["00123", "98765"] * 3
    got, found = read(tmp_path, codes)
    assert got == codes
    assert "has zeros in front, as in '00123', and was read as text: --number" in found.notes[0]
    assert found.kinds["x"] == "text"
    assert read(tmp_path, codes, numbers=("x",))[0] == [123.0, 98765.0] * 3
    with pytest.raises(TableError, match=r"6 different values .* or as numbers with --number x"):
        column(tmp_path, [f"00{i}" for i in range(6)])
    with pytest.raises(TableError, match=r"holds 'a' in line 3 of t.csv, which is not a number"):
        column(tmp_path, ["1", "a", "2", "b"], numbers=("x",))
    assert read(tmp_path, ["0.5", "00.5"])[0] == [0.5, 0.5]


def test_spellings_are_one_category(tmp_path):
    cells = ["Yes", "YES ", "yes", "Yes", "no", " no"]
    _, found = read(tmp_path, cells)
    (x, _) = found.learn(found.keep).inputs
    assert (x.levels, x.counts) == (("Yes", "no"), (4, 2))
    assert "column 'x' has 'Yes', 'YES ', 'yes' as one category, 'Yes'." in found.notes
    values, missing = x.encode(pa.array(["yES", "NO ", None, "maybe"]), str)
    assert values[:2].tolist() == [[1, 0], [0, 1]]
    assert missing.tolist() == [False, False, True, False]
    # A model from before has two levels that differ only so: cells go where they are spelled.
    old = CategoryColumn("x", "text", ("Yes", "no", "yes"), (1, 1, 1))
    assert old.encode(pa.array(["yes", "NO"]), str)[0].tolist() == [[0, 0, 1], [0, 1, 0]]


def test_truth_and_dates_are_still_seen(tmp_path):
    assert read(tmp_path, ["true", " FALSE"])[0] == [True, False]
    for cells in (["2026-01-31", "2026-02-01"], ["12:30", "01:15"], ["2026-01-31T10:00:00Z"] * 2):
        with pytest.raises(TableError, match="column 'x' holds dates or times"):
            column(tmp_path, cells)


# ---- encodings and Excel ------------------------------------------------------------------------

LINES = ["größe;y", *(f"{i % 7};{i}" for i in range(20))]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_found_out(tmp_path, encoding):
    path = write(tmp_path / "t.csv", *LINES, encoding=encoding)
    source = open_source(path)
    assert source.names == ("größe", "y")
    assert [batch.num_rows for batch in source.load().read(["y"])] == [20]
    assert source.where(3) == "line 5 of t.csv"
    notes = "t.csv is no UTF-8 text (line 1) and was read as cp1252: --encoding says otherwise."
    assert source.notes == ((notes,) if encoding == "cp1252" else ())


def test_an_encoding_can_be_said(tmp_path):
    path = write(tmp_path / "t.csv", "имя;y", "1;2", encoding="cp1251")
    assert open_source(path, encoding="cp1251").names == ("имя", "y")
    assert open_source(path, like=Dialect(encoding="cp1251")).names == ("имя", "y")
    with pytest.raises(TableError, match=r"no ascii text \(line 1\): choose another --encoding"):
        open_source(path, encoding="ascii")
    with pytest.raises(TableError, match="no encoding that Python knows"):
        open_source(path, encoding="klingon")
    # What is UTF-8 is that, whatever the training table was.
    path = write(tmp_path / "u.csv", "имя;y", "1;2")
    assert open_source(path, like=Dialect(encoding="cp1251")).names == ("имя", "y")


def test_a_late_byte_is_found_too(tmp_path):
    path = write(tmp_path / "t.csv", "a,y", *["1,2"] * 400_000, "é,3", encoding="cp1252")
    assert "(line 400002) and was read as cp1252" in open_source(path).notes[0]


def test_excels_first_line(tmp_path):
    path = write(tmp_path / "t.csv", "sep=;", "a;b,c;y", "1;2;3", "", "4;oops;6", "7;8")
    source = open_source(path)
    assert source.names == ("a", "b,c", "y")
    assert [source.where(row) for row in range(3)] == [f"line {n} of t.csv" for n in (3, 5, 6)]
    with pytest.raises(TableError, match=r"line 6 of t.csv has 2 cells, but the header names 3"):
        source.load()


# ---- all problems at once -----------------------------------------------------------------------


def test_all_problems_in_one_run(tmp_path):
    lines = [f"{i},{'abc'[i % 3]}{i},{42 + i}.000,oops,{i}" for i in range(30)]
    path = write(tmp_path / "t.csv", "id,text,b,hole,price", *lines, '1,a,"inf",,3')
    result = run("fit", path, "-t", "prize", "--drop", "ID", "-o", tmp_path / "m", code=3)
    said = [line.removeprefix("varprop: ") for line in result.stderr.splitlines()]
    assert len(said) == 5
    assert said[:2] == [
        "t.csv has no column 'prize': did you mean 'price'?",
        "t.csv has no column 'ID': did you mean 'id'?",
    ]
    for part in ("column 'text' holds text with 31", "'b' is infinite in line 32", "'hole' has no"):
        assert any(part in line for line in said), (part, said)


def test_a_large_table_is_not_read_for_a_misspelt_target(tmp_path, monkeypatch):
    monkeypatch.setattr("varprop.tables.survey._LARGE", 10)
    path = write(tmp_path / "t.csv", "a,y", "x1,2", "x2,3")
    assert "did you mean" in sentence("fit", path, "-t", "Y", "-o", tmp_path / "m", code=3)


# ---- what fit was told is remembered ------------------------------------------------------------


def german(n=40):
    """A table as a German program writes it: sizes could become 1000 times too small."""
    rows = [f"{i % 7 + 1}.000:{i % 5},5:{'ja' if i % 2 else 'Nein'}:-:{i}" for i in range(n)]
    return ["größe:anteil:neu:leer:y", *rows]


FIT = ("-t", "y", "--drop", "leer", "--holdout", "0")


def test_what_fit_was_told_is_remembered(tmp_path):
    table = write(tmp_path / "t.txt", *german(), encoding="cp850")
    model = tmp_path / "m.safetensors"
    told = ("--delimiter", ":", "--encoding", "cp850", "--na", "-", "--decimal", ",")
    run("fit", table, *FIT, *told, *QUICK, "-o", model, "-q")
    known = read_description(model)
    assert known.text == Dialect(":", ",", ".", "cp850", ("-",))
    assert known.inputs[0].mean > 1000
    row = german()[:2]
    new = write(tmp_path / "n.txt", *row, encoding="cp850")
    reference = run("predict", model, new).stdout
    assert reference == run("predict", model, new, *told).stdout
    # The same as CSV of a program, in UTF-8: the delimiter does not fit, and is found out.
    same = write(tmp_path / "s.csv", "größe,anteil,neu,y", '"1.000","0,5",NEIN,0')
    assert run("predict", model, same).stdout == reference
    said = sentence("predict", model, same, "--decimal", ".", code=3)
    assert "column 'anteil' holds '0,5' in line 2 of s.csv, which is not a number with '.'" in said
    hole = write(tmp_path / "h.csv", "größe,anteil,neu", "1,-,ja")
    said = sentence("predict", model, hole, code=3)
    assert "column 'anteil' has no value in line 2 of h.csv" in said
    for command in ("evaluate", "explain"):
        rows = run_json(command, model, table)["rows"]
        assert rows == 40 if command == "evaluate" else len(rows) == 40


def test_numbers_may_stand_for_missing_values(tmp_path):
    with pytest.raises(TableError, match="column 'x' has no value in line 3"):
        column(tmp_path, ["1", "-999", "3"], missing=["-999"])
    source = open_source(
        write(tmp_path / "n.csv", "x,y", "-999,2"), like=Dialect(missing=("-999",))
    )
    (batch,) = source.read({"x": pa.float64()})
    assert batch.column(0).to_pylist() == [None]


def test_signs_are_those_of_the_training_table(tmp_path):
    rows = [f"{i % 9}%,${i % 7},{i % 5},{i}" for i in range(40)]
    model = tmp_path / "m.safetensors"
    table = write(tmp_path / "t.csv", "rate,cost,n,y", *rows)
    run("fit", table, "-t", "y", "--holdout", "0", *QUICK, "-o", model, "-q")
    assert [c.unit for c in read_description(model).inputs] == ["%", "$", ""]

    def said(row):
        return sentence("predict", model, "-", stdin=f"rate,cost,n\n{row}\n", code=3)

    assert "column 'rate' holds '0.05' in line 2 of standard input, but the training data" in said(
        "0.05,$1,1"
    )
    assert "holds '€1'" in said("5%,€1,1")
    assert "holds '1%'" in said("5%,$1,1%")
    assert "which may be 42 or 42000: say --thousands ',' or --decimal ','" in said(
        '5%,$1,"42,000"'
    )
    plain = run("predict", model, "-", stdin="rate,cost,n\n5%,1,1\n").stdout
    assert run_json("evaluate", model, table)["rows"] == 40
    # Targets have signs, too.
    run("fit", table, "-t", "rate", "--holdout", "0", *QUICK, "-o", tmp_path / "t", "-q")
    assert run_json("evaluate", tmp_path / "t", table)["rows"] == 40
    bare = pathlib.Path(table).read_text().replace("%", "")
    assert "the training data had the sign '%'" in sentence(
        "evaluate", tmp_path / "t", "-", stdin=bare, code=3
    )
    assert run("predict", model, "-", stdin="rate,cost,n\n5 %,$1,$1\n").stdout == plain


def test_thousands_after_training_without_them(tmp_path):
    """Whole numbers in training say nothing of marks: a table that has some is not guessed at."""
    table = write(tmp_path / "t.csv", "a;y", *(f"{40000 + i * 7 % 50};{i}" for i in range(40)))
    model = tmp_path / "m.safetensors"
    run("fit", table, "-t", "y", "--holdout", "0", *QUICK, "-o", model, "-q")
    new = write(tmp_path / "n.csv", "a;y", "40.005;1")
    said = sentence("predict", model, new, code=3)
    assert "holds '40.005' in line 2 of n.csv, which may be 40.005 or 40005" in said
    right = run("predict", model, "-", stdin="a;y\n40005;1\n").stdout
    assert run("predict", model, new, "--thousands", ".").stdout == right


def test_text_options_are_for_text(tmp_path):
    pq.write_table(pa.table({"x": [1.0, 2.0], "y": [1.0, 2.0]}), tmp_path / "t.parquet")
    fit = ("fit", tmp_path / "t.parquet", "-t", "y", "-o", tmp_path / "m")
    for option in (("--na", "-"), ("--thousands", ","), ("--encoding", "cp1252")):
        assert "are for text, but t.parquet is not" in sentence(*fit, *option, code=2)
    assert "--thousands must be one of" in sentence(*fit, "--thousands", "x", code=2)
    both = ("--thousands", ",", "--decimal", ",")
    assert "they must differ" in sentence(*fit, *both, code=2)
    assert "no encoding" in sentence(*fit, "--encoding", "hex", code=2)


def test_files_from_before_are_read():
    """Without the text's dialect and without signs, as version 1 was first written."""
    old = {
        "version": 1,
        "inputs": [{"kind": "number", "name": "x", "mean": 1.0, "var": 2.0}],
        **{"targets": ["y"], "ids": [], "dropped": [], "missing": "error"},
    }
    found = from_json(old)
    assert found.text == Dialect()
    assert to_json(found) == old
    for bad in (
        {"decimal": 1},
        {"decimal": "x"},
        {"missing": [1]},
        {"more": "x"},
        {"encoding": "x"},
    ):
        with pytest.raises(ValueError, match="damaged"):
            from_json(old | {"text": bad})
    for bad in (["%", "%"], [1], "%", [], {}):
        with pytest.raises(ValueError, match="damaged"):
            from_json(old | {"target_units": bad})
