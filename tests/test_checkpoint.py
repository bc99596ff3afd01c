"""Checkpoints: killed at any moment, resumed, and the same to the bit as never interrupted."""

import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import zipfile

import jax
import numpy as np
import optax
import pytest

import checkpointed_run
import tiny
from varprop import ROPD, VI, Data, Lane, Outcome, Scaling, fit, fit_many
from varprop.nn import Tanh
from varprop.training import checkpoint as checkpoints
from varprop.training.checkpoint import CheckpointError
from varprop.training.preparation import prepare
from varprop.training.runner import Runner

KEY = jax.random.key(5)


@pytest.fixture(scope="module")
def uninterrupted():
    """The run as it should be."""
    return checkpointed_run.run(3)


def epochs_in(path: pathlib.Path) -> list[int]:
    """Epochs that each lane of a checkpoint has done; none if there is no file yet."""
    if not path.exists():
        return [0]
    with np.load(path) as file:
        meta = json.loads(file["__header__"].tobytes())
    return [len(lane["losses"]) for lane in meta["lanes"]]


def start_and_stop(path: pathlib.Path, n_lanes: int, number: int) -> subprocess.CompletedProcess:
    """Start the run in a process of its own and send it a signal once something is on disk."""
    here = pathlib.Path(__file__).parent
    process = subprocess.Popen(
        [sys.executable, here / "checkpointed_run.py", path, str(n_lanes)],
        env={**os.environ, "PYTHONPATH": str(here)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while max(epochs_in(path)) < 10 and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(number)
        out, error = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


def test_killed_and_resumed_is_the_same_to_the_bit(uninterrupted, tmp_path):
    """`kill -9` in the middle of three lanes."""
    path = tmp_path / "run.npz"
    ended = start_and_stop(path, 3, signal.SIGKILL)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert 10 <= max(epochs_in(path)) < 200  # it was in the middle
    resumed = checkpointed_run.run(3, checkpoint=path)
    assert all(tiny.same_fit(a, b) for a, b in zip(resumed, uninterrupted, strict=True))
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]


def test_ctrl_c_returns_and_can_be_resumed(uninterrupted, tmp_path):
    """A real SIGINT; the process ends by itself with what there is, and a checkpoint of it."""
    path = tmp_path / "run.npz"
    ended = start_and_stop(path, 1, signal.SIGINT)
    assert (ended.returncode, ended.stdout.strip()) == (0, "['interrupted']"), ended.stderr
    assert 10 <= max(epochs_in(path)) < 200
    (resumed,) = checkpointed_run.run(1, checkpoint=path)
    assert resumed.outcome is Outcome.MAX_STEPS
    assert tiny.same_fit(resumed, uninterrupted[0])


def ends(runner: Runner):
    while runner.outcome is None:
        runner.advance()
    return runner.result()


def test_every_moment_can_be_resumed_from(uninterrupted):
    """A snapshot after each window, through warm-up, cool-down and the end, each run to its end."""
    lane = checkpointed_run.lanes(1)

    def fresh():
        (runner,) = prepare(lane, tiny.data(70), ROPD())
        return runner

    runner, snapshots = fresh(), []
    while runner.outcome is None:
        runner.advance()
        snapshots.append(runner.to_checkpoint())
    assert len(snapshots) == 41  # windows, and the final pass
    for leaves, meta in snapshots[::3] + snapshots[-2:]:
        other = fresh()
        other.from_checkpoint(leaves, json.loads(json.dumps(meta)))
        assert tiny.same_fit(ends(other), uninterrupted[0])


def test_a_time_limit_can_be_resumed(uninterrupted, tmp_path):
    path = tmp_path / "run.npz"
    for _ in range(3):
        cut = checkpointed_run.run(1, checkpoint=path, time_limit=0.0)
        assert cut[0].outcome in (Outcome.TIME_LIMIT, Outcome.MAX_STEPS)
    (resumed,) = checkpointed_run.run(1, checkpoint=path)
    assert tiny.same_fit(resumed, uninterrupted[0])


@pytest.fixture
def finished(tmp_path):
    """A finished run's options, its checkpoint and its result."""
    options = {
        "model": tiny.model(),
        "data": tiny.data(70),
        "objective": ROPD(),
        "key": KEY,
        "recipe": tiny.recipe(),
        "checkpoint": tmp_path / "run.npz",
    }
    return options, fit(**options)


def test_a_finished_run_returns_at_once(finished, monkeypatch):
    options, result = finished

    def never(self):
        raise AssertionError("there is nothing left to train")

    monkeypatch.setattr(Runner, "advance", never)
    again = fit(**options)
    assert tiny.same_fit(again, result)
    assert again.seconds == result.seconds


@pytest.mark.parametrize(
    "change",
    [
        {"key": jax.random.key(6)},
        {"recipe": tiny.recipe(learning_rate=0.02)},
        {"recipe": tiny.recipe(max_steps=24)},
        {"data": tiny.data(70, seed=1)},
        {"data": Data(*tiny.arrays(70), np.full(70, 2.0))},
        {"data": tiny.data(69)},
        {"model": tiny.model(1)},
        {"model": tiny.model(activation=Tanh())},
        {"objective": VI()},
        {"scaling": Scaling.identity(2, 1)},
        {"optimizer": optax.adam(1e-2)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_run_is_refused(finished, change):
    """And its checkpoint is left alone."""
    options, _ = finished
    before = options["checkpoint"].read_bytes()
    with pytest.raises(CheckpointError, match="other data, settings or seed: name another file"):
        fit(**{**options, **change})
    assert options["checkpoint"].read_bytes() == before


def test_another_optimizer_is_refused(finished, tmp_path):
    options, _ = finished
    options = {**options, "checkpoint": tmp_path / "sgd.npz"}
    fit(**options, optimizer=optax.sgd(1e-2))
    with pytest.raises(CheckpointError, match="other data, settings or seed"):
        fit(**options, optimizer=optax.sgd(1e-3))


def test_other_rows_or_lanes_are_refused(tmp_path):
    path, data = tmp_path / "run.npz", tiny.data(70)
    lane = Lane(model=tiny.model(), key=KEY, rows=np.arange(40), recipe=tiny.recipe())
    fit_many([lane], data, ROPD(), checkpoint=path)
    other = Lane(model=tiny.model(), key=KEY, rows=np.arange(1, 41), recipe=tiny.recipe())
    for lanes in ([other], [lane, lane]):
        with pytest.raises(CheckpointError, match="other data, settings or seed"):
            fit_many(lanes, data, ROPD(), checkpoint=path)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def zipped(**parts):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
        lambda whole: whole[:200] + bytes([whole[200] ^ 255]) + whole[201:],
        lambda whole: b"not a checkpoint at all",
        lambda whole: npy(np.arange(3)),
        lambda whole: npy(np.array([{}], dtype=object)),
        lambda whole: zipped(text="hello"),
        lambda whole: zipped(__header__="hello"),
        lambda whole: zipped(**{"__header__.npy": npy(np.frombuffer(b"[1]", np.uint8))}),
        lambda whole: zipped(**{"__header__.npy": npy(np.frombuffer(b"{]", np.uint8))}),
    ],
    ids=[
        "empty",
        "half",
        "last byte missing",
        "one byte wrong",
        "text",
        "npy",
        "pickle",
        "other zip",
        "header of text",
        "header of a list",
        "header not JSON",
    ],
)
def test_damaged_and_foreign_files_are_refused(finished, damage):
    options, _ = finished
    path = options["checkpoint"]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match="is not a readable checkpoint: delete it"):
        fit(**options)


def test_another_format_is_refused(finished, monkeypatch):
    options, _ = finished
    monkeypatch.setattr(checkpoints, "FORMAT", 3)
    with pytest.raises(CheckpointError, match="has checkpoint format 2, but this version reads 3"):
        fit(**options)


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_whole(tmp_path, monkeypatch, error):
    path = tmp_path / "run.npz"
    checkpoints.save(path, "run", {"a": np.arange(3)}, {"lanes": []})
    before = path.read_bytes()

    def half(file, **parts):
        file.write(b"half a file")
        raise error

    monkeypatch.setattr(np, "savez", half)
    with pytest.raises(type(error)):
        checkpoints.save(path, "run", {"a": np.arange(4)}, {"lanes": []})
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]


def test_what_a_killed_write_left_behind_is_overwritten(tmp_path):
    path = tmp_path / "run.npz"
    (tmp_path / "run.npz.tmp").write_bytes(b"half a file")
    checkpoints.save(path, "run", {"a": np.arange(3)}, {"lanes": []})
    arrays, _ = checkpoints.load(path.read_bytes(), path, "run")
    assert arrays["a"].tolist() == [0, 1, 2]
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]
