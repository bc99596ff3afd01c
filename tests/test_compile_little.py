"""Compile little: what is traced, what is shared, and the cache on disk."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

import tiny
from varprop import ROPD, Data, Lane, fit, fit_many, priors, propagate
from varprop.nn import Dropout, GaussianWeights
from varprop.training import program

KEY = jax.random.key(0)


class Compilations:
    """Counts every program XLA compiles in this process, in any thread."""

    def __init__(self):
        self.count, self.names = 0, []
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event, duration, **about):
        if event == "/jax/core/compile/backend_compile_duration":
            self.count += 1
            self.names.append(str(about.get("fun_name")))


@pytest.fixture(scope="module")
def compilations():
    # JAX offers no way to take a listener off again; it costs an addition per compilation.
    return Compilations()


def settings():
    """Twelve settings of all that a grid may run over without compiling again."""
    rng = np.random.default_rng(0)
    for _ in range(12):
        scalars = rng.uniform(0.1, 1.0, 6)
        recipe = tiny.recipe(
            learning_rate=0.01 * scalars[0],
            kl_weight=float(scalars[1]),
            kl_warmup=int(10 * scalars[2]),
            max_steps=int(6 + 6 * scalars[2]),
            cooldown=int(5 * scalars[3]),
        )
        model = tiny.model(
            hidden_layer_sizes=(3,),
            noise_std=float(scalars[3]),
            hidden_noise=Dropout(0.5 * scalars[4]),
            prior=priors.FixedGaussian(0.0, float(scalars[5])),
        )
        yield model, recipe


@pytest.fixture(autouse=True)
def nothing_compiled_yet():
    """Another test of the same process may have compiled the very program that is counted here."""
    jax.clear_caches()


def folds(n_rows, n_folds):
    """Training rows of a cross-validation."""
    parts = np.array_split(np.random.default_rng(1).permutation(n_rows), n_folds)
    return [np.setdiff1d(np.arange(n_rows), part) for part in parts]


def test_a_search_over_scalars_and_unequal_folds_compiles_once():
    """Sixty fits, each on a Data of its own, as a grid search would make them."""
    x, y = tiny.arrays(203)
    rows = folds(203, 5)
    assert {len(each) for each in rows} == {162, 163}
    before, losses = program.trace_count, set()
    for model, recipe in settings():
        for each in rows:
            result = fit(model, Data(x[each], y[each]), ROPD(), key=KEY, recipe=recipe)
            losses.add(result.loss)
    assert len(losses) == 60  # the settings and the folds do arrive
    assert program.trace_count == before + 1


def test_the_same_search_as_lanes_compiles_once():
    data, rows = tiny.data(203), folds(203, 5)
    before = program.trace_count
    lanes = [
        Lane(model=model, key=KEY, rows=each, recipe=recipe)
        for model, recipe in settings()
        for each in rows
    ]
    results = fit_many(lanes, data, ROPD())
    assert len({result.loss for result in results}) == 60
    assert program.trace_count <= before + 1


def test_a_second_fit_compiles_nothing_at_all(compilations):
    """Not even the small programs around the training itself; other rows, seeds and weights."""

    def train(seed, n_rows):
        x, y = tiny.arrays(n_rows, seed=seed)
        data = Data(x, y, np.random.default_rng(seed).uniform(0.5, 2.0, n_rows))
        recipe = tiny.recipe(learning_rate=0.01 * (1 + seed))
        return fit(tiny.model(seed), data, ROPD(), key=jax.random.key(seed), recipe=recipe)

    train(0, 70)
    compiled, traced = compilations.count, program.trace_count
    assert compiled > 0
    train(1, 90)
    assert program.trace_count == traced
    assert compilations.count == compiled


def test_arrays_of_any_shape_are_drawn_by_one_program(compilations):
    """And are what JAX draws of that shape, to the bit."""
    first, dtype = len(compilations.names), jax.numpy.float32
    shapes = ((7, 3), (5,), (1, 50), (20, 50))
    drawn = [np.asarray(GaussianWeights.init(KEY, shape, scale=1.0).mean) for shape in shapes]
    assert sum("_normal" in name for name in compilations.names[first:]) == 1
    for shape, found in zip(shapes, drawn, strict=True):
        np.testing.assert_array_equal(found, jax.random.normal(KEY, shape, dtype))


def test_rows_set_aside_are_predicted_by_one_program(compilations):
    """A fifth of the rows, the others, and all of them."""
    model, first = tiny.model(), len(compilations.names)
    for n_rows in (100, 400, 500, 2000):
        assert len(propagate(model, tiny.arrays(n_rows)[0]).mean) == n_rows
    compiled = [name for name in compilations.names[first:] if "_propagate_block" in name]
    assert len(compiled) == 1


def test_another_structure_compiles_again():
    """So the counting counts."""
    before = program.trace_count
    model = tiny.model(hidden_layer_sizes=(3, 2))
    fit(model, tiny.data(70), ROPD(), key=KEY, recipe=tiny.recipe())
    assert program.trace_count == before + 1


CACHED = """
import json, sys
import jax
before = dict(jax.config.values)
import varprop
untouched = before == dict(jax.config.values)
hits = []
jax.monitoring.register_event_listener(
    lambda event, **_: hits.append(event) if event == "/jax/compilation_cache/cache_hits" else None
)
folder = varprop.enable_compilation_cache(sys.argv[1])
import tiny
result = varprop.fit(tiny.model(), tiny.data(70), varprop.ROPD(), key=jax.random.key(0),
                     recipe=tiny.recipe())
print(json.dumps([untouched, str(folder), len(hits), result.loss]))
"""


def test_the_cache_on_disk_serves_the_next_process(tmp_path):
    """And importing varprop, unlike switching the cache on, leaves JAX's configuration alone."""
    folder = tmp_path / "cache"

    def process():
        done = subprocess.run(
            [sys.executable, "-c", CACHED, str(folder)],
            cwd=pathlib.Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
        # What takes JAX less than a twentieth of a second is kept or not, as the machine's load has
        # it; the program of training takes long enough.
        kept = {entry.name for entry in folder.glob("jit__run_epochs*-cache")}
        return json.loads(done.stdout), kept

    first, written = process()
    assert first[:2] == [True, str(folder)]
    assert len(written) == 1
    second, afterwards = process()
    assert second[2] > first[2]
    assert afterwards == written
    assert second[3] == first[3]


_COUNT_THREADS = """
import pathlib, sys
import jax
import varprop
if sys.argv[1] == "one":
    varprop.use_one_thread()
jax.block_until_ready(jax.numpy.ones(3) + 1)
names = [task.read_text().strip() for task in pathlib.Path("/proc/self/task").glob("*/comm")]
print(sum(name == "tf_XLAEigen" for name in names))
"""


@pytest.mark.skipif(
    not pathlib.Path("/proc/self/task").exists(), reason="threads are read in /proc"
)
def test_xla_can_be_kept_to_one_thread():
    """XLA has a thread per core, and one in a process that asked for it."""
    counts = {}
    for setting in ("all", "one"):
        environment = {name: value for name, value in os.environ.items() if name != "NPROC"}
        done = subprocess.run(
            [sys.executable, "-c", _COUNT_THREADS, setting],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        counts[setting] = int(done.stdout)
    assert counts == {"all": len(os.sched_getaffinity(0)), "one": 1}
