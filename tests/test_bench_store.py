"""The store: each cell once, whole or not at all, by several processes; bad files."""

import dataclasses
import pathlib
import sqlite3
import subprocess
import sys

import pytest

from varprop.bench.store import Cell, Store, StoreError

VALUES = {
    "nll": 1.0,
    "rmse": 2.0,
    "outcome": "converged",
    "seconds": 0.1,
    "n_train": 9,
    "n_test": 1,
    "source": "file",
}


def cell(split=0, **changes):
    made = Cell("boston", "gp", "own", split, 0, '{"n_restarts": 3}', "0.1")
    return dataclasses.replace(made, **changes)


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "results.sqlite")
    yield opened
    opened.close()


def test_a_row_has_all_that_is_asked_for(store):
    store.write(cell(), VALUES)
    (row,) = store.rows()
    for name in ("dataset", "method", "split", "nll", "rmse", "settings", "seed", "version"):
        assert row[name] is not None
    assert row["outcome"] == "converged"
    assert row["finished"].endswith("Z")


def test_a_cell_is_kept_once(store):
    store.write(cell(), VALUES)
    store.write(cell(), VALUES | {"nll": 5.0})
    assert [row["nll"] for row in store.rows()] == [1.0]
    assert store.has(cell())


@pytest.mark.parametrize(
    "change",
    [{"split": 1}, {"seed": 1}, {"settings": '{"n_restarts": 0}'}, {"version": "0.2"}],
)
def test_another_setting_is_another_cell(store, change):
    store.write(cell(), VALUES)
    assert not store.has(cell(**change))


def python(program, *arguments):
    """Start another Python process on a program that knows `Store` and `cell`."""
    setup = (
        "import sys, time; sys.path.insert(0, sys.argv[1]); "
        "from test_bench_store import Store, VALUES, cell; path = sys.argv[2]\n"
    )
    here = str(pathlib.Path(__file__).parent)
    command = [sys.executable, "-c", setup + program, here, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_a_claim_keeps_others_away_while_its_process_lives(store):
    assert store.claim(cell())
    program = (
        "s = Store(path); print(s.claim(cell()), s.claim(cell(1)), flush=True); time.sleep(60)"
    )
    with python(program, store.path) as other:
        assert other.stdout.readline().split() == ["False", "True"]
        assert not store.claim(cell(1))
        other.kill()
    assert store.claim(cell(1))  # nobody is at it any more
    store.write(cell(), VALUES)
    assert not store.claim(cell())  # finished


def test_a_claim_of_another_machine_ends_in_time(store):
    with sqlite3.connect(store.path) as db:
        db.execute("INSERT INTO claims VALUES (?, 'elsewhere', 1, ?)", (cell().key, 0.0))
        db.execute("INSERT INTO claims VALUES (?, 'elsewhere', 1, ?)", (cell(1).key, 9e12))
    assert store.claim(cell())
    assert not store.claim(cell(1))


def test_two_processes_may_write_at_once(tmp_path):
    path = tmp_path / "results.sqlite"
    program = (
        "s = Store(path)\n"
        "for split in range(int(sys.argv[3]), int(sys.argv[3]) + 50): s.write(cell(split), VALUES)"
    )
    writers = [python(program, path, first) for first in (0, 25)]
    for writer in writers:
        assert writer.wait(60) == 0
        writer.stdout.close()
    splits = sorted(row["split"] for row in Store(path).rows())
    assert splits == list(range(75))


def test_a_write_that_is_cut_off_leaves_nothing(store):
    """Half a transaction on disk is rolled back by whoever opens the file next."""
    program = (
        "import os, sqlite3; db = sqlite3.connect(path, isolation_level=None)\n"
        "db.execute('BEGIN IMMEDIATE')\n"
        "db.execute('INSERT INTO claims VALUES (1, 2, 3, 4)')\n"
        "os.kill(os.getpid(), 9)"
    )
    with python(program, store.path) as other:
        assert other.wait(60) == -9
    assert not store._db.execute("SELECT * FROM claims").fetchall()
    assert store.rows() == []
    store.write(cell(), VALUES)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(StoreError, match="there is no folder"):
        Store(tmp_path / "absent" / "results.sqlite")


def test_a_store_that_is_not_there(tmp_path):
    with pytest.raises(StoreError, match="run `varprop bench` first"):
        Store(tmp_path / "results.sqlite", create=False)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_no_store(tmp_path):
    path = tmp_path / "results.sqlite"
    path.write_text("dataset,method\n" * 100)
    with pytest.raises(StoreError, match="not a store or is damaged"):
        Store(path)
    assert path.read_text().startswith("dataset")


def test_a_half_written_store(tmp_path, store):
    for split in range(200):
        store.write(cell(split), VALUES)
    whole = store.path.read_bytes()
    path = tmp_path / "half.sqlite"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match="not a store or is damaged"):
        Store(path).rows()


def test_a_store_of_another_version(store):
    with sqlite3.connect(store.path) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="another version of varprop"):
        Store(store.path)


def test_another_programs_database(tmp_path):
    path = tmp_path / "photos.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE photos (name TEXT)")
    with pytest.raises(StoreError, match="not of varprop"):
        Store(path)


def test_a_full_disk(store):
    store.write(cell(), VALUES)
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages}")
    long = VALUES | {"source": "x" * 1_000_000}
    with pytest.raises(StoreError, match=r"disk is full.*keeps all cells finished so far"):
        store.write(cell(1), long)
    assert store.has(cell())
    assert not store.has(cell(1))
