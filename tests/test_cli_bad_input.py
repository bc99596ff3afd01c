"""Bad input: one sentence that says what to do, the documented exit code, nothing half-written."""

import errno
import gzip
import os

import pyarrow.csv
import pytest

import varprop.atomic
from cli_runs import QUICK, houses, run, sentence, workplace
from varprop import FAWNRegressor
from varprop.cli.shared import ExitCode
from varprop.files.container import write_model_file

pytestmark = pytest.mark.usefixtures("as_users_run_it")

BAD, USAGE, WRITE = ExitCode.BAD_INPUT, ExitCode.USAGE, ExitCode.CANNOT_WRITE
ROWS = [f"{i * 0.37 % 1:.3f},{i % 7},{i * 1.1:.2f}" for i in range(40)]
GOOD = "a,b,y\n" + "\n".join(ROWS) + "\n"


@pytest.fixture
def place(as_users_run_it):
    return workplace()


@pytest.fixture
def no_training(place, monkeypatch):
    """Whatever is wrong must be found before the network is trained."""

    def fail(*args, **kwargs):
        raise AssertionError("training began")

    monkeypatch.setattr(FAWNRegressor, "fit", fail)


def with_line(number, text):
    """A good table whose line `number` (1 is the header) is something else."""
    lines = GOOD.splitlines()
    lines[number - 1] = text
    return "\n".join(lines) + "\n"


def with_column(values):
    """A good table whose column b has these values."""
    lines = [line.split(",") for line in ROWS]
    rows = [f"{a},{value},{y}" for (a, _, y), value in zip(lines, values, strict=True)]
    return "a,b,y\n" + "\n".join(rows) + "\n"


TABLES = {
    "empty": ("", "data.csv is empty: give a table"),
    "blank": ("\n \n", "data.csv is empty"),
    "header only": ("a,b,y\n", "has a header but no rows"),
    "one row": ("a,b,y\n1,2,3\n", "has only one row"),
    "ragged": (with_line(5, "1,2"), "line 5 of data.csv has 2 cells, but the header names 3"),
    "ragged long": (with_line(5, "1,2,3,4"), "line 5 of data.csv has 4 cells"),
    "wrong delimiter": (GOOD.replace(",", " "), "only one column, 'a b y': say with --delimiter"),
    "duplicate names": (GOOD.replace("a,b,y", "a,a,y"), "more than one column named 'a'"),
    "no header": ("\n".join(ROWS) + "\n", "first line of data.csv holds only numbers"),
    "no text": (
        with_line(4, "1,2,3é").encode() + b"\x81",
        "neither UTF-8 nor cp1252 text (line 42)",
    ),
    "a NUL": (with_line(4, "1,2,3\0"), "neither UTF-8 nor cp1252 text (line 4)"),
    "damaged utf-16": (GOOD.encode("utf-16")[:-1], "damaged UTF-16 text (line "),
    "workbook": (b"PK\x03\x04" + bytes(90), "looks like an Excel workbook: save the sheet as CSV"),
    "binary": (b"\x7fELF\x02\x01\x01\0" + bytes(90), "is no CSV, TSV, Parquet or Feather file"),
    "damaged gzip": (gzip.compress(GOOD.encode())[:-20], "damaged gzip file"),
    "damaged parquet": (b"PAR1" + bytes(90), "damaged or cut short"),
    "text target": (with_line(3, "1,2,abc"), "target 'y' holds the text 'abc' in line 3"),
    "constant target": ("a,b,y\n1,2,7\n2,3,7\n", "target 'y' is 7 in all rows: there is nothing"),
    "missing target": (GOOD.replace("y", "z"), "has no column 'y': it has 'a', 'b', 'z'"),
    "misspelled target": (GOOD.replace("y", "Y"), "has no column 'y': did you mean 'Y'?"),
    "NaN in target": (with_line(9, "1,2,NaN"), "target 'y' has no value in line 9"),
    "infinite target": (with_line(9, "1,2,inf"), "column 'y' is infinite in line 9"),
    "infinite input": (with_line(9, "1,-inf,2"), "column 'b' is infinite in line 9 of data.csv"),
    "huge": (with_line(9, "1,1e300,2"), "column 'b' is 1e+300 in line 9 of data.csv"),
    "beyond float64": (with_line(9, "1,1e400,2"), "column 'b' is infinite in line 9"),
    "hole": (with_line(9, "1,,2"), "column 'b' has no value in line 9 of data.csv: fill it in"),
    "all missing": (with_column([""] * 40), "column 'b' has no value in any row"),
    "dates": (with_column(["2026-01-31"] * 40), "column 'b' holds dates or times: .* --drop b"),
    "free text": (with_column([f"t{i}" for i in range(40)]), "40 different values in 40 rows"),
    "text among numbers": (with_line(9, "1,oops,2"), "the text 'oops' in line 9"),
}


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", TABLES)
def test_fit_refuses(name, tmp_path):
    content, expected = TABLES[name]
    path = tmp_path / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    said = sentence("fit", path, "-t", "y", "-o", tmp_path / "m.safetensors", code=BAD)
    for part in expected.split(".*"):
        assert part in said
    assert os.listdir(tmp_path) == ["data.csv"]


@pytest.mark.usefixtures("no_training")
def test_files_that_are_not_there_or_not_tables(place, tmp_path):
    model = place / "impute.safetensors"
    assert "there is no file" in sentence("fit", tmp_path / "no.csv", "-t", "y", code=BAD)
    assert "has no file *.parquet" in sentence("fit", tmp_path, "-t", "y", code=BAD)
    assert "looks like a model file, not a table" in sentence("fit", model, "-t", "y", code=BAD)
    table = place / "full.csv"
    for command in ("predict", "evaluate", "explain"):
        assert "no file" in sentence(command, tmp_path / "m", table, code=BAD)
        assert "no file" in sentence(command, model, tmp_path / "no.csv", code=BAD)
        assert "is a folder" in sentence(command, tmp_path, table, code=BAD)
        # The two the wrong way round, or one of them twice.
        assert "full.csv is a table, not a model" in sentence(command, table, model, code=BAD)
        assert "is a model file, not a" not in sentence(command, model, model, code=BAD)
        assert "standard input" in sentence(command, "-", table, code=BAD)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(model.read_bytes()[:-50])
    assert "cut.safetensors: the arrays need" in sentence("predict", cut, table, code=BAD)


@pytest.mark.usefixtures("no_training")
def test_wrong_options(place, tmp_path):
    table = place / "full.csv"
    fit = ("fit", table, "-t", "price", "--id", "id", "-o", tmp_path / "m.safetensors")
    assert "--joint needs more" in sentence(*fit, "--joint", code=USAGE)
    assert "--hidden must be" in sentence(*fit, "--hidden", "many", code=USAGE)
    assert "--hidden must be" in sentence(*fit, "--hidden", "0", code=USAGE)
    assert "--holdout must lie" in sentence(*fit, "--holdout", "1", code=USAGE)
    assert "--report needs" in sentence(*fit, "--holdout", "0", "--report", "r", code=USAGE)
    assert "--delimiter must be" in sentence(*fit, "--delimiter", "ab", code=USAGE)
    assert "--decimal must be" in sentence(*fit, "--decimal", "", code=USAGE)
    assert "more than once" in sentence(*fit, "--drop", "price", code=BAD)
    assert "no column 'citty': did you mean 'city'?" in sentence(*fit, "--drop", "citty", code=BAD)
    predict = ("predict", place / "impute.safetensors", table)
    assert "--interval must lie" in sentence(*predict, "--interval", "90", code=USAGE)
    for text in ("2", "a", "0.5,0.5", ""):
        assert "--quantiles must be" in sentence(*predict, "--quantiles", text, code=USAGE)
    assert "Missing option" in run("fit", table, code=USAGE).stderr
    assert "--missing" in run(*fit, "--missing", "guess", code=USAGE).stderr
    assert "--seed" in run(*fit, "--seed", str(2**32), code=USAGE).stderr
    assert not os.listdir(tmp_path)


def test_tables_a_model_cannot_read(place):
    model = place / "impute.safetensors"

    def said(stdin, code=BAD):
        return sentence("predict", model, "-", stdin=stdin, code=code)

    head = "id,size,rooms,city\n"
    assert "no columns 'rooms', 'city', which the model needs" in said("id,size\nA,1\n")
    assert "no column 'id'" in said("size,rooms,city\n1,2,Ulm\n")
    assert "column 'size' holds 'big' in line 3 of standard input, which is not a number" in said(
        head + "A,1,2,Ulm\nB,big,2,Ulm\n"
    )
    assert "column 'size' is infinite in line 2" in said(head + "A,inf,2,Ulm\n")
    assert "column 'size' is 1e+300 in line 2" in said(head + "A,1e300,2,Ulm\n")
    far = run("predict", model, "-", stdin=head + "A,1,2,Ulm\nB,1e90,2,Ulm\n").output
    assert "1 row lies outside of what training has seen, where a prediction is a guess" in far
    assert "a header but no rows" in said(head)
    assert "is empty" in said("")
    assert "line 3 of standard input has 2 cells" in said(head + "A,1,2,Ulm\nB,1\n")
    full = houses(12, holes=False)
    strict = place / "two.safetensors"  # fitted with --missing error
    hole = full.replace("\nh005,", "\nh005,", 1).splitlines()
    hole[6] = "h005,100,,Ulm,1,2"
    hole = "\n".join(hole) + "\n"
    assert "column 'rooms' has no value in line 7 of standard input" in sentence(
        "predict", strict, "-", stdin=hole, code=BAD
    )
    without = full.replace("price", "prize")
    assert "has no column 'price', the target" in sentence(
        "evaluate", strict, "-", stdin=without, code=BAD
    )
    no_target = full.splitlines()
    no_target[4] = "h003,100,2,Ulm,,2"
    assert "a target has no value in line 5" in sentence(
        "evaluate", strict, "-", stdin="\n".join(no_target) + "\n", code=BAD
    )
    assert "has 1 row to score" in sentence(
        "evaluate", strict, "-", stdin="\n".join(full.splitlines()[:2]) + "\n", code=BAD
    )
    assert "is no target" in sentence("evaluate", model, "-", "-t", "size", stdin=full, code=BAD)


def test_outputs_that_cannot_be(place, tmp_path, monkeypatch):
    model, table = place / "impute.safetensors", place / "full.csv"
    nowhere = tmp_path / "no" / "out.csv"
    assert "there is no folder" in sentence("predict", model, table, "-o", nowhere, code=WRITE)
    assert "is a folder" in sentence("predict", model, table, "-o", tmp_path, code=WRITE)
    assert "there is no folder" in sentence("fit", table, "-t", "price", "-o", nowhere, code=WRITE)
    report = ("--report", nowhere)
    assert "there is no folder" in sentence("evaluate", model, table, *report, code=WRITE)
    assert "there is no folder" in sentence("demo", "-o", nowhere, code=WRITE)
    assert "does not say its format" in sentence(
        "predict", model, table, "-o", tmp_path / "out.xyz", code=BAD
    )
    copy = tmp_path / "t.csv"
    copy.write_text(table.read_text())
    assert "also read" in sentence("predict", model, copy, "-o", copy, code=USAGE)
    # The superuser may write anywhere: a folder that says no is played.
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    out = tmp_path / "out.csv"
    assert "may not be written" in sentence("predict", model, table, "-o", out, code=WRITE)
    assert os.listdir(tmp_path) == ["t.csv"]
    assert copy.read_text() == table.read_text()


class Full:
    """A file on a disk that is full after some bytes."""

    def __init__(self, file, room):
        self.file, self.room = file, room

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.feather", "out.csv.gz"])
def test_a_full_disk_leaves_the_old_predictions(place, tmp_path, monkeypatch, name):
    def full_open(path, mode="r", *args, **kwargs):
        return Full(open(path, mode, *args, **kwargs), 100)

    (tmp_path / name).write_text("old")
    monkeypatch.setattr(varprop.atomic, "open", full_open, raising=False)
    said = sentence(
        *("predict", place / "impute.safetensors", place / "full.csv", "-o", tmp_path / name),
        code=WRITE,
    )
    assert "No space left on device" in said
    assert os.listdir(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "old"


def test_a_full_disk_leaves_the_old_model(place, tmp_path, monkeypatch):
    def full_open(path, mode="r", *args, **kwargs):
        return Full(open(path, mode, *args, **kwargs), 100)

    output = tmp_path / "m.safetensors"
    output.write_text("old")
    monkeypatch.setattr(varprop.atomic, "open", full_open, raising=False)
    options = ("--id", "id", "--drop", "rent", "--missing", "impute", "--holdout", "0.25", *QUICK)
    result = run(
        *("fit", place / "houses.csv", "-t", "price", "-o", output, *options, "-q"), code=WRITE
    )
    assert result.stdout == ""
    assert "No space left on device" in result.stderr
    assert os.listdir(tmp_path) == ["m.safetensors"]
    assert output.read_text() == "old"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_a_device_is_written_to_and_not_replaced(place):
    predict = ("predict", place / "impute.safetensors", place / "full.csv", "-o")
    assert "No space left on device" in sentence(*predict, "/dev/full", code=WRITE)
    run(*predict, "/dev/null", "-q")
    assert not os.path.isfile("/dev/null")
    with pytest.raises(OSError, match="No space left"):
        write_model_file("/dev/full", {}, {})
    assert not os.path.isfile("/dev/full")


def test_an_interrupt_leaves_nothing(place, tmp_path, monkeypatch):
    """Ctrl-C while predictions are written; a real signal during training is tested elsewhere."""

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(pyarrow.csv, "write_csv", interrupted)
    model, out = place / "impute.safetensors", tmp_path / "out.csv"
    said = sentence("predict", model, place / "full.csv", "-o", out, code=ExitCode.INTERRUPTED)
    assert said == "interrupted."
    assert not os.listdir(tmp_path)
