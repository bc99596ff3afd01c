"""Files of the command line: links, outputs that are inputs, signals, terminals, spreadsheets."""

import csv
import io
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from cli_runs import QUICK, VARPROP, houses, run, run_json, sentence, workplace
from varprop.errors import InputError
from varprop.files.container import looks_like_model, read_model_file, write_model_file
from varprop.tables import TableModel, TableRows, open_source, predict_table

ESCAPE = "\x1b[31m"


@pytest.fixture
def place(as_users_run_it):
    return workplace()


def written(path):
    return set(os.listdir(path))


# ---- links, and outputs that are read or written twice ------------------------------------------


def test_fit_and_predict_write_through_links(place, tmp_path):
    (tmp_path / "real").mkdir()
    for name in ("m.safetensors", "r.html", "p.csv"):
        (tmp_path / name).symlink_to(tmp_path / "real" / name)
    model = tmp_path / "m.safetensors"
    options = ("--holdout", "0.25", "--report", tmp_path / "r.html", *QUICK)
    run("fit", place / "full.csv", "-t", "price", "--id", "id", "-o", model, *options)
    run("predict", model, place / "full.csv", "-o", tmp_path / "p.csv")
    assert written(tmp_path / "real") == {"m.safetensors", "r.html", "p.csv"}
    assert all((tmp_path / name).is_symlink() for name in written(tmp_path / "real"))
    (tmp_path / "lost").symlink_to(tmp_path / "no" / "m")
    said = sentence("fit", place / "full.csv", "-t", "price", "-o", tmp_path / "lost", code=4)
    assert "is a link to nowhere" in said


def test_an_output_is_no_input_and_no_other_output(place, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text(houses(20))
    (tmp_path / "soft.csv").symlink_to(table)
    os.link(table, tmp_path / "hard.csv")
    fit = ("fit", table, "-t", "price", "--id", "id")
    model = place / "impute.safetensors"
    for name in ("t.csv", "soft.csv", "hard.csv"):
        assert "is also read" in sentence(*fit, "-o", tmp_path / name, code=2)
        assert "is also read" in sentence("predict", model, table, "-o", tmp_path / name, code=2)
        report = ("--report", tmp_path / name)
        assert "is also read" in sentence("evaluate", model, table, *report, code=2)
    same = tmp_path / "same"
    assert "written twice" in sentence(*fit, "-o", same, "--report", same, code=2)
    (tmp_path / "link").symlink_to(same)
    assert "written twice" in sentence(*fit, "-o", same, "--report", tmp_path / "link", code=2)
    folder = tmp_path / "d"
    folder.mkdir()
    pq.write_table(pyarrow_table(), folder / "a.parquet")
    for read in (folder, folder / "*.parquet"):
        said = sentence("fit", read, "-t", "price", "-o", folder / "a.parquet", code=2)
        assert "is also read" in said


def pyarrow_table():
    import pyarrow as pa

    return pa.table({"a": [1.0, 2.0], "price": [1.0, 2.0]})


# ---- signals ------------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path):
    (tmp_path / "tmp").mkdir()
    return os.environ | {"TMPDIR": str(tmp_path / "tmp"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def ended_by(process, kind):
    process.send_signal(kind)
    try:
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, error


@pytest.mark.parametrize(("kind", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_no_copy_of_standard_input(tmp_path, environment, kind, code):
    command = [*VARPROP, "fit", "-", "-t", "y", "-o", str(tmp_path / "m")]
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.write(b"a,y\n")
    process.stdin.flush()
    wait_for(lambda: written(tmp_path / "tmp"))
    assert ended_by(process, kind) == (code, f"varprop: ended by {kind.name}.\n".encode())
    assert not written(tmp_path / "tmp")


def wait_for(condition):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it never came")


@pytest.mark.parametrize(("kind", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_no_half_written_predictions(place, tmp_path, environment, kind, code):
    """The table is so long that predicting takes long after the first block is written."""
    lines = houses(2000, holes=False).splitlines(keepends=True)
    table = tmp_path / "long.csv"
    table.write_text(lines[0] + "".join(lines[1:]) * 1000)
    (tmp_path / "out").mkdir()
    command = [*VARPROP, "predict", place / "impute.safetensors", table]
    command += ["-o", tmp_path / "out" / "p.csv"]
    process = subprocess.Popen(
        list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for(lambda: written(tmp_path / "out"))
    assert ended_by(process, kind)[0] == code
    assert not written(tmp_path / "out")


def test_nohup_is_respected(tmp_path, environment):
    command = "trap '' HUP; exec " + f"{sys.executable} -m varprop fit - -t y -o {tmp_path / 'm'}"
    process = subprocess.Popen(
        ["bash", "-c", command], env=environment, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdin.write(b"a,y\n")
    process.stdin.flush()
    wait_for(lambda: written(tmp_path / "tmp"))
    process.send_signal(signal.SIGHUP)
    code, error = process.communicate(b"1,2\n", timeout=60)[1], process.returncode
    assert error == 3
    assert b"has only one row" in code


# ---- what comes before JAX ----------------------------------------------------------------------


def test_what_is_wrong_is_said_before_jax_is_imported(place, tmp_path):
    """A misspelt target, and a table without a column of the model, are answered at once."""
    table = place / "full.csv"
    (tmp_path / "n.csv").write_text("size\n1\n")
    model = place / "impute.safetensors"
    commands = [
        ["fit", table, "-t", "prize", "-o", tmp_path / "m"],
        ["fit", tmp_path / "n.csv", "-t", "size", "-o", tmp_path / "m"],
        ["fit", table, "-t", "price", "-o", tmp_path / "m"],  # a problem of its content
        *([command, model, tmp_path / "n.csv"] for command in ("predict", "evaluate", "explain")),
        ["evaluate", model, table, "-t", "size"],
        ["predict", model, tmp_path / "no.csv"],
        ["predict", model, table, "-o", tmp_path / "out.xyz"],
    ]
    program = (
        "import json, sys\n"
        "from typer.testing import CliRunner\n"
        "from varprop.cli.app import app\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    assert CliRunner().invoke(app, words).exit_code == 3, words\n"
        "    assert not {'jax', 'sklearn', 'scipy'} & set(sys.modules), words\n"
    )
    listed = json.dumps([list(map(str, command)) for command in commands])
    subprocess.run([sys.executable, "-c", program, listed], check=True, timeout=120)


# ---- what is printed ----------------------------------------------------------------------------


def test_control_characters_are_shown_and_not_obeyed(place, tmp_path):
    name, cell = f"a{ESCAPE}", f"x{ESCAPE}"
    lines = [
        f"{name},c,id,y",
        *(f"{i % 7},{cell if i % 2 else 'z'},{cell}{i},{i}" for i in range(60)),
    ]
    table = tmp_path / f"t{ESCAPE}.csv"
    table.write_text("\n".join(lines) + "\n")
    model = tmp_path / f"m{ESCAPE}.safetensors"
    fit = ("fit", table, "-t", "y", "-o", model, "--holdout", "0.25", *QUICK)
    outputs = [run(*fit, "--id", "id"), run("evaluate", model, table)]
    outputs += [run("explain", model, "-", stdin="\n".join(lines[:3]))]
    outputs += [run("predict", model, "-", code=3, stdin=f"{name},c,id\n1,q{ESCAPE},1\n")]
    outputs += [run("predict", model, "-", code=3, stdin=f"c,id\x9b,b{ESCAPE}\n1,q,1\n")]
    outputs += [run("fit", f"{table}x", "-t", "y", code=3), run(*fit, code=3)]
    outputs += [run("predict", tmp_path / f"no{ESCAPE}", table, code=3)]
    header = {"class": ESCAPE, "libraries": {"varprop": ESCAPE}}
    write_model_file(tmp_path / "odd.safetensors", header, {"a": np.ones(1)})
    outputs += [run("predict", tmp_path / "odd.safetensors", place / "full.csv", code=3)]
    for result in outputs:
        assert "\x1b" not in result.output, result.output
        assert "\x9b" not in result.output
        assert result.output
    assert "\\x1b[31m" in outputs[0].output


def test_line_breaks_in_names_do_not_make_sentences(tmp_path):
    path = tmp_path / "a\nvarprop: b.csv"
    path.write_text("a,y\n1,2\n")
    assert "a\\nvarprop: b.csv has only one row" in sentence("fit", path, "-t", "y", code=3)


def in_terminal(arguments, width, environment):
    """Run a command whose output is a terminal of this width, and return what it shows."""
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "varprop", *map(str, arguments)],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment | {"COLUMNS": str(width), "TERM": "xterm"},
    )
    os.close(writer)
    shown = b""
    while True:
        try:
            part = os.read(reader, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(reader)
    process.communicate(timeout=60)
    assert process.returncode == 0
    return shown.decode().replace("\r\n", "\n")


def test_numbers_are_never_cut_off(place, environment):
    card = run_json("evaluate", place / "impute.safetensors", place / "full.csv")["scorecard"]
    wanted = [f"{values['NLL']:.3f}" for values in card.values()]
    evaluate = ("evaluate", place / "impute.safetensors", place / "full.csv")
    for width in (30, 200):
        shown = in_terminal(evaluate, width, environment)
        assert "…" not in shown
        assert all(number in shown for number in wanted)
        assert ("NLL: " in shown) == (width == 30)  # a line for every number
    # In a file a line is as long as it needs to be.
    name = "a_column_with_a_very_long_name_" * 5
    lines = [f"{name},{name}2,y", *(f"{i * 1.234567},{i % 7},{i * 1e5}" for i in range(40))]
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "m.safetensors"
        run("fit", "-", "-t", "y", "-o", model, *QUICK, "-q", stdin="\n".join(lines))
        shown = run("explain", model, "-", stdin="\n".join(lines[:2])).stdout
    assert "…" not in shown
    assert f"{name}2" in shown


def test_ids_reach_a_terminal_as_escapes_and_a_file_as_they_are(place, tmp_path, environment):
    table = tmp_path / "t.csv"
    table.write_text(f"id,size,rooms,city\n{ESCAPE},100,2,Ulm\n")
    predict = ("predict", place / "impute.safetensors", table)
    assert "\n\\x1b[31m," in in_terminal(predict, 80, environment)
    assert f"\n{ESCAPE}," in run(*predict).stdout


# ---- what is written ----------------------------------------------------------------------------


def test_rows_without_ids_are_numbered(place, tmp_path):
    model = tmp_path / "m.safetensors"
    drop = ("--drop", "id", "--drop", "rent", "--missing", "drop")
    run("fit", place / "houses.csv", "-t", "price", *drop, "-o", model, *QUICK, "-q")
    out = list(csv.DictReader(io.StringIO(run("predict", model, place / "houses.csv").stdout)))
    assert [row["row"] for row in out] == [str(i) for i in range(1, 61)]
    assert list(out[0])[:2] == ["row", "mean"]
    # Blocks go on counting, and it is the numbers that `explain` gives.
    fitted, source = TableModel.load(model), open_source(str(place / "houses.csv"))
    rows = TableRows(source, fitted.preprocessing, targets=False)
    batch = next(predict_table(fitted, rows))
    assert batch.column("row").to_pylist() == list(range(1, 61))
    explained = run_json("explain", model, place / "houses.csv")["rows"]
    assert explained[3]["row"] == 5  # the fourth has a hole


def test_spreadsheets_run_nothing(place, tmp_path):
    ids = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "-5", "+3.5", "h1", "\tx", "'=1"]
    lines = "".join(f'"{i}",100,2,Ulm\n' for i in ids)
    (tmp_path / "t.csv").write_text("id,size,rooms,city\n" + lines)
    predict = ("predict", place / "impute.safetensors", tmp_path / "t.csv")
    result = run(*predict)
    got = [row["id"] for row in csv.DictReader(io.StringIO(result.stdout))]
    assert got == [f"'{i}" for i in ids[:4]] + ids[4:7] + ["'\tx", "'=1"]
    assert "note: 5 cells that a spreadsheet would run as formulas have an apostrophe" in (
        result.stderr
    )
    run(*predict, "-o", tmp_path / "o.parquet", "-q")
    assert pq.read_table(tmp_path / "o.parquet")["id"].to_pylist() == ids
    # An id of blanks is none, and what it was does not trouble the writer.
    blank = 'id,size,rooms,city\n"\t",100,2,Ulm\n7,100,2,Ulm\n'
    run(predict[0], predict[1], "-", "-o", tmp_path / "o.tsv", "-q", stdin=blank)
    assert (tmp_path / "o.tsv").read_text().splitlines()[1].startswith("\t")
    # Names of columns are cells as well.
    model = tmp_path / "m.safetensors"
    table = "=a,y\n" + "".join(f"{i % 7}x,{i}\n" for i in range(40))
    run("fit", "-", "-t", "y", "--id", "=a", "-o", model, code=3, stdin=table)
    table = "=a,b,y\n" + "".join(f"{i % 7}x,{i % 5},{i}\n" for i in range(40))
    run("fit", "-", "-t", "y", "--id", "=a", "-o", model, *QUICK, "-q", stdin=table)
    assert run("predict", model, "-", stdin=table).stdout.startswith("'=a,mean")


# ---- damaged models -----------------------------------------------------------------------------


def spoiled(place, path, value):
    """A model whose weights and scaling are finite and of its shape, and senseless."""
    header, arrays = read_model_file(place / "impute.safetensors", lambda header, table: None)
    changed = {
        name: np.full_like(array, value) if "member" in name else array
        for name, array in arrays.items()
    }
    write_model_file(path, header, changed)
    return path


@pytest.mark.parametrize("value", [1e38, -1e38])
def test_a_model_that_gives_no_numbers_is_an_error(place, tmp_path, value):
    model = spoiled(place, tmp_path / "m.safetensors", value)
    # `predict` computes in double precision, where weights of -1e38 still give numbers.
    for command in ("predict", "evaluate", "explain")[value < 0 :]:
        said = sentence(command, model, place / "full.csv", code=3)
        assert "is no finite number: the model is damaged" in said
    assert written(tmp_path) == {"m.safetensors"}


def test_any_length_of_a_header_is_told_from_a_table(place, tmp_path):
    """Its first bytes may be the mark of gzip or of UTF-16, or be 4 MiB and more."""
    for length in (0x8B1F, 0xFEFF, 0xFFFE, 5 * 2**20, 0x30524150 // 256):
        start = length.to_bytes(8, "little") + b'{"__metadata__":'
        assert looks_like_model(start)
        path = tmp_path / "m.safetensors"
        path.write_bytes(start + bytes(100))
        said = sentence("fit", path, "-t", "y", "-o", tmp_path / "o", code=3)
        assert "looks like a model file, not a table" in said
        said = sentence("predict", path, place / "full.csv", code=3)
        assert "is a table" not in said


def test_headers_of_any_size_are_read_again_or_not_written(tmp_path, monkeypatch):
    """Categories may have long names, and many."""
    path = tmp_path / "m.safetensors"
    write_model_file(path, {"name": "x" * (17 * 2**20)}, {})
    header, _ = read_model_file(path, lambda header, table: None)
    assert len(header["name"]) == 17 * 2**20
    monkeypatch.setattr("varprop.files.container._MAX_HEADER_BYTES", 1000)
    old = path.read_bytes()
    with pytest.raises(InputError, match="take fewer or shorter categories"):
        write_model_file(path, {"name": "x" * 1000}, {})
    assert path.read_bytes() == old
