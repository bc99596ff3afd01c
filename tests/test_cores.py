"""Each lane on a core of its own: the same bits, one compilation, nothing left behind."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading

import jax
import numpy as np
import pytest

import tiny
from varprop import ROPD, VI, Lane, fit_many
from varprop.training import cores, runner

DATA = tiny.data(70)


def lanes(n=3, **options):
    keys = jax.random.split(jax.random.key(5), n)
    return [
        Lane(model=tiny.model(i), key=k, recipe=tiny.recipe(**options)) for i, k in enumerate(keys)
    ]


def numbers(results):
    """Everything that training gives, as bytes."""
    leaves = [jax.tree.leaves(jax.tree.map(np.asarray, result.model)) for result in results]
    return [
        [np.asarray(leaf).tobytes() for leaf in model] + [result.history.tobytes(), result.loss]
        for model, result in zip(leaves, results, strict=True)
    ]


@contextlib.contextmanager
def no_core():
    yield None


@contextlib.contextmanager
def refused():
    raise AssertionError("a core was asked for")
    yield


@pytest.mark.parametrize("objective", [ROPD(), VI()])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_same_bits_as_on_the_usual_client(monkeypatch, objective, n_threads):
    with_cores = numbers(fit_many(lanes(), DATA, objective, n_threads=n_threads))
    monkeypatch.setattr(runner, "a_core", no_core)
    assert numbers(fit_many(lanes(), DATA, objective, n_threads=n_threads)) == with_cores


def test_the_same_bits_in_double_precision(monkeypatch, x64):
    x, y = tiny.arrays(70)
    data = type(DATA)(x.astype(float), y.astype(float))
    with_cores = numbers(fit_many(lanes(), data, ROPD(), n_threads=2))
    monkeypatch.setattr(runner, "a_core", no_core)
    assert numbers(fit_many(lanes(), data, ROPD(), n_threads=2)) == with_cores


def test_results_are_on_the_usual_device_and_cores_are_given_back():
    results = fit_many(lanes(), DATA, ROPD(), n_threads=2)
    free = len(cores._free)
    assert free >= 1
    for leaf in jax.tree.leaves(results[0].model):
        if isinstance(leaf, jax.Array):
            assert leaf.devices() == {jax.devices()[0]}
    fit_many(lanes(), DATA, ROPD(), n_threads=1)
    assert len(cores._free) == free  # one of them, not another


def test_rows_are_shared_with_a_core_not_copied():
    (feed,) = {one.feed for one in runner_of(lanes(1))}
    with cores.a_core() as core:
        placed = core.place_rows(feed.resident)
        assert placed.x.devices() == {core.device}
        assert placed.x.unsafe_buffer_pointer() == feed.resident.x.unsafe_buffer_pointer()


def test_a_lane_that_leaves_its_core_takes_its_state_along():
    """It may go on anywhere: the same losses on the usual client, from where it stands."""
    (one,), (other,) = runner_of(lanes(1)), runner_of(lanes(1))
    with one.on_a_core():
        one.advance()
        assert one.state.params.devices() != {jax.devices()[0]}
    assert one.state.params.devices() == {jax.devices()[0]}
    other.advance()
    for lane in (one, other):
        lane.advance()
    np.testing.assert_array_equal(np.asarray(one.state.params), np.asarray(other.state.params))


def runner_of(some):
    from varprop.training.preparation import prepare

    return prepare(some, DATA, ROPD())


def test_an_error_in_a_lane_is_raised_and_its_core_given_back(monkeypatch):
    call, calls = cores.Core.call, []

    def fails_once(self, *arguments):
        calls.append(self)
        if len(calls) == 2:
            raise RuntimeError("no such luck")
        return call(self, *arguments)

    fit_many(lanes(), DATA, ROPD(), n_threads=2)
    free = len(cores._free)
    monkeypatch.setattr(cores.Core, "call", fails_once)
    with pytest.raises(RuntimeError, match="no such luck"):
        fit_many(lanes(), DATA, ROPD(), n_threads=2)
    assert len(cores._free) == free
    monkeypatch.undo()
    assert len(fit_many(lanes(), DATA, ROPD(), n_threads=2)) == 3


def test_ctrl_c_keeps_what_is_trained(monkeypatch):
    """The main thread evaluates what lanes have reached by the program that is compiled already."""
    call, threads = cores.Core.call, []

    def called(self, *arguments):
        threads.append(threading.current_thread())
        return call(self, *arguments)

    monkeypatch.setattr(cores.Core, "call", called)

    def interrupted(self, futures, bar, every):
        raise KeyboardInterrupt

    monkeypatch.setattr(runner.Session, "_watch", interrupted)
    results = fit_many(lanes(), DATA, ROPD(), n_threads=2)
    assert {result.outcome.value for result in results} <= {"interrupted", "max_steps"}
    assert all(np.isfinite(result.loss) for result in results)
    assert threads[-1] is threading.main_thread()


def test_rows_that_are_read_again_have_no_core(monkeypatch):
    monkeypatch.setattr(runner, "a_core", refused)
    fit_many(lanes(1, batch_size=8), DATA, ROPD(), buffer_rows=32)
    with pytest.raises(AssertionError, match="asked for"):
        fit_many(lanes(1), DATA, ROPD())


ALONE = """
import json, os, threading
import jax
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, _, **about: compiled.append(about.get("fun_name"))
    if event == "/jax/core/compile/backend_compile_duration" else None
)
import test_cores
from varprop import ROPD, fit_many
from varprop.training import cores
cores_of = []
make = cores.Core.__init__
def made(self):
    make(self)
    cores_of.append(self)
cores.Core.__init__ = made
before = dict(jax.config.values), os.environ.get("NPROC")
# Two lanes wait for each other, so that both of two cores are in use at once.
meet, call = threading.Barrier(2, timeout=60), cores.Core.call
def called(self, *arguments):
    if self not in met:
        met.append(self)
        meet.wait()
    return call(self, *arguments)
met = []
cores.Core.call = called
results = fit_many(test_cores.lanes(2), test_cores.DATA, ROPD(), n_threads=2)
after = dict(jax.config.values), os.environ.get("NPROC")
n_programs = sum("_run_epochs" in str(name) for name in compiled)
print(json.dumps([len(cores_of), n_programs, before == after, [r.loss for r in results]]))
"""


@pytest.mark.parametrize("cached", [False, True])
def test_two_cores_compile_once_and_change_no_setting(tmp_path, cached):
    """With JAX's cache on disk the second reads what the first has written there."""
    environment = {k: v for k, v in os.environ.items() if "COMPILATION_CACHE" not in k}
    if cached:
        environment["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=pathlib.Path(__file__).parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    n_cores, n_programs, unchanged, losses = json.loads(done.stdout)
    assert n_cores == 2
    assert n_programs == (2 if cached else 1)  # to read from the cache counts too
    assert len(list(tmp_path.glob("jit__run_epochs*-cache"))) == cached
    assert unchanged
    assert losses == [result.loss for result in fit_many(lanes(2), DATA, ROPD(), n_threads=1)]
