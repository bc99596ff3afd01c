"""Rows in several buffers: the same objective, every row once, bounded memory, resumable."""

import gc
import itertools
import signal
import threading
import time
import weakref

import dask.dataframe
import jax
import numpy as np
import pandas as pd
import pytest

import rows
import tiny
from varprop import ROPD, Data, MaximumLikelihood, Outcome, SampledVI, StopRule, fit, nn
from varprop.data import DaskSource, ParquetSource, Scaling, SourceError, Statistics
from varprop.training import CheckpointError, buffers
from varprop.training.buffers import BufferReader, Feed
from varprop.training.runner import Runner
from varprop.training.schedule import Plan

KEY = jax.random.key(5)
F4 = np.dtype("f4")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return rows.folder(tmp_path_factory.mktemp("stream") / "rows")


def source_of(folder, **options):
    return ParquetSource(folder, features=["x0", "x1"], targets="y", **options)


@pytest.fixture(scope="module")
def source(folder):
    return source_of(folder)


# Three full buffers of 64 rows and one of 18: the last batch of the last is partial.
SEVERAL = {"buffer_rows": 64}


def run(source, *, objective=None, model=None, recipe=None, key=KEY, **options):
    return fit(
        model or tiny.model(),
        source,
        objective or ROPD(),
        key=key,
        recipe=recipe or tiny.recipe(max_steps=21),
        **{**SEVERAL, **options},
    )


# ---- which rows come when -----------------------------------------------------------------------


def feed_of(source, *, batch_size=32, buffer_rows=64, seed=0):
    plan = Plan(source.block_rows, batch_size, buffer_rows, shuffle=True, seed=(seed,))
    n_inputs, n_targets = len(source.features), len(source.targets)
    scaling = Scaling.identity(n_inputs, n_targets)
    return Feed(source, plan, scaling, F4, Statistics.of(source))


def rows_seen(feed, *, first, last, shuffle=True):
    """The index column of every buffer."""
    reader = BufferReader(feed, first=first, last=last, shuffle=shuffle)
    seen = []
    for number in range(first, last):
        taken = np.asarray(reader.take().x)[: feed.plan.rows_of(number), 0]
        seen.append(taken.astype(int).tolist())
        reader.release()
    reader.close()
    return seen


def test_every_row_once_per_epoch_in_another_order(folder):
    source = ParquetSource(folder, features=["index"], targets="y")
    feed = feed_of(source)
    assert feed.plan.n_buffers == 4
    seen = rows_seen(feed, first=0, last=12)
    epochs = [seen[:4], seen[4:8], seen[8:]]
    assert [len(buffer) for buffer in epochs[0]] == [64, 64, 64, 18]
    for epoch in epochs:
        assert sorted(itertools.chain(*epoch)) == list(range(210))
    assert epochs[0] != epochs[1] != epochs[2]
    assert rows_seen(feed_of(source, seed=1), first=0, last=4) != epochs[0]
    # A resumed run begins in the middle and reads the same.
    assert rows_seen(feed, first=6, last=9) == [*epochs[1][2:], epochs[2][0]]
    straight = rows_seen(feed, first=0, last=4, shuffle=False)
    assert list(itertools.chain(*straight)) == list(range(210))


def test_whole_blocks_are_skipped_unread(folder, monkeypatch):
    feed = feed_of(ParquetSource(folder, features=["index"], targets="y"))
    read, opened = ParquetSource.read, []

    def spy(self, block):
        opened.append(block)
        return read(self, block)

    monkeypatch.setattr(ParquetSource, "read", spy)
    rows_seen(feed, first=3, last=4)
    assert opened == feed.plan.order(0)[-len(opened) :].tolist()
    assert len(opened) <= 2


def test_a_row_group_may_be_larger_than_a_buffer(tmp_path, monkeypatch):
    monkeypatch.setattr("varprop.data.parquet.PIECE_ROWS", 10)
    columns = {"index": np.arange(210.0), "y": np.zeros(210)}
    folder = rows.write(tmp_path / "rows", columns, files=1, row_group_size=210)
    feed = feed_of(ParquetSource(folder, targets="y"), batch_size=16, buffer_rows=32)
    assert list(itertools.chain(*rows_seen(feed, first=0, last=7))) == list(range(210))


def test_no_more_than_two_buffers_are_alive(source, monkeypatch):
    """Counted at every birth and death, while training is slower than reading."""
    alive, most = set(), []
    place, counter = buffers._placed, itertools.count()

    def counted(*args):
        buffer = place(*args)
        number = next(counter)
        alive.add(number)
        weakref.finalize(buffer.x, alive.discard, number)
        most.append(len(alive))
        return buffer

    monkeypatch.setattr(buffers, "_placed", counted)
    reader = BufferReader(feed_of(source), first=0, last=8, shuffle=True)
    for number in range(8):
        buffer = reader.take()
        patience = time.monotonic() + 30
        while len(alive) < min(2, 8 - number):  # the next one is read meanwhile
            assert time.monotonic() < patience
            time.sleep(0.01)
        time.sleep(0.02)  # time for a third one, if there were a way
        del buffer
        reader.release()
    reader.close()
    assert max(most) == buffers.N_BUFFERS == 2
    run(source)
    gc.collect()
    assert max(most) == 2
    assert not alive


def test_buffers_are_not_copied():
    """Memory is handed to JAX as it is: a copy would double what a buffer takes."""
    array = buffers._aligned((100, 3), F4)
    array[:] = 1
    assert jax.device_put(array).unsafe_buffer_pointer() == array.ctypes.data


def test_the_thread_ends_with_the_run(source):
    run(source)
    assert "varprop-reader" not in {thread.name for thread in threading.enumerate()}


# ---- training -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(source):
    """Three epochs of four buffers."""
    return run(source)


def frame_of(folder):
    parts = [pd.read_parquet(path) for path in sorted(folder.iterdir())]
    frame = dask.dataframe.concat([dask.dataframe.from_pandas(p, npartitions=1) for p in parts])
    return DaskSource(frame, features=["x0", "x1"], targets=["y"])


STOP = StopRule(window=14, tol=0.5, patience=2)


@pytest.mark.parametrize("kind", [source_of, frame_of], ids=["Parquet", "Dask"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_size": None},
        {"cooldown": 9, "kl_warmup": 6},
        {"max_steps": 700, "cooldown": 20, "kl_warmup": 21, "stop": STOP},
    ],
    ids=["plain", "one batch", "warm-up and cool-down", "converged"],
)
def test_one_buffer_is_memory_to_the_bit(folder, kind, changes):
    recipe = tiny.recipe(**{"max_steps": 21, **changes})
    streamed = run(kind(folder), recipe=recipe, buffer_rows=None)
    assert tiny.same_fit(streamed, run(rows.data(), recipe=recipe, buffer_rows=None))
    assert (streamed.outcome is Outcome.CONVERGED) == ("stop" in changes)


def test_memory_in_several_buffers_is_a_file_in_as_many(tmp_path):
    """One row group, so that blocks come in one order: the same batches, the same bits."""
    data = rows.data()
    columns = rows.as_columns(data.x, data.y)
    folder = rows.write(tmp_path / "rows", columns, files=1, row_group_size=1000)
    a, b = run(source_of(folder)), run(data)
    assert a.n_steps == 21
    assert tiny.same_fit(a, b)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("buffer_rows", [64, 96, 1000])
@pytest.mark.parametrize("in_memory", [False, True])
def test_the_loss_of_an_epoch_is_the_objective(folder, weighted, buffer_rows, in_memory):
    """Nothing moves: the mean over an epoch's batches is the objective of all rows."""
    data = rows.data(weighted=weighted)
    source = data if in_memory else source_of(folder, weight="weight" if weighted else None)
    still = tiny.recipe(learning_rate=0.0, max_steps=7, kl_weight=0.7)
    found = run(source, recipe=still, buffer_rows=buffer_rows)
    weight = data.weight if weighted else np.ones(210)
    loss, _ = tiny.loss_and_gradient(
        ROPD(),
        tiny.model(),
        (data.x - np.average(data.x, axis=0, weights=weight)) / weighted_std(data.x, weight),
        (data.y - np.average(data.y, axis=0, weights=weight)) / weighted_std(data.y, weight),
        weight,
        kl_weight=0.7,
    )
    np.testing.assert_allclose(found.history[0], loss, rtol=1e-5)
    np.testing.assert_allclose(found.loss, loss, rtol=1e-5)


def weighted_std(values, weight):
    mean = np.average(values, axis=0, weights=weight)
    return np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weight))


def test_several_files_reach_the_known_optimum(tmp_path):
    """A linear model without a prior: least squares, its noise the residuals' spread."""
    rng = np.random.default_rng(0)
    x = rng.normal(2.0, 3.0, (600, 2))
    y = x @ [[1.5], [-0.7]] + 4 + 0.5 * rng.normal(size=(600, 1))
    folder = rows.write(tmp_path / "rows", rows.as_columns(x, y), files=4, row_group_size=50)
    model = tiny.model(hidden_layer_sizes=(), weights=nn.PointWeights.init)
    recipe = tiny.recipe(
        learning_rate=0.02, max_steps=1500, cooldown=1000, batch_size=64, stop=tiny.NEVER
    )
    options = {"model": model, "objective": MaximumLikelihood(), "recipe": recipe}
    found = run(source_of(folder), buffer_rows=128, **options)
    known = run(Data(x, y), buffer_rows=None, **options)
    design = np.column_stack([x, np.ones(600)])
    coefficients, squares, *_ = np.linalg.lstsq(design, y, rcond=None)
    out = found.predictive(x)
    np.testing.assert_allclose(out.mean, design @ coefficients, atol=0.02)
    np.testing.assert_allclose(out.std, np.sqrt(squares[0] / 600), rtol=0.02)
    np.testing.assert_allclose(found.loss, known.loss, rtol=1e-3)


def test_training_ends_after_whole_buffers(source):
    """Seven steps per epoch, in buffers of 2, 2, 2 and 1."""
    for asked, done, epochs in ((1, 2, 1), (3, 4, 1), (7, 7, 1), (8, 9, 2)):
        result = run(source, recipe=tiny.recipe(max_steps=asked))
        assert (result.n_steps, result.n_epochs) == (done, epochs)
        assert result.outcome is Outcome.MAX_STEPS
        assert np.isfinite(result.history).all()


def test_keys_and_buffers_matter_and_nothing_else(source, trained):
    assert tiny.same_fit(run(source), trained)
    assert tiny.same_fit(run(source, statistics=Statistics.of(source)), trained)
    for other in (run(source, key=jax.random.key(6)), run(source, buffer_rows=96)):
        assert not tiny.same_fit(other, trained)


def test_sampled_objectives_draw_anew_in_every_buffer(source):
    result = run(source, objective=SampledVI(), recipe=tiny.recipe(learning_rate=0.0))
    assert len(set(result.history)) == len(result.history)
    np.testing.assert_allclose(result.loss, np.mean(result.history), rtol=0.5)


def test_float64(source, x64):
    result = run(source, model=tiny.model(), recipe=tiny.recipe(max_steps=4))
    assert tiny.params(result.model).dtype == np.float64


def test_without_a_final_pass(source, trained):
    result = run(source, final_pass=False)
    assert np.isnan(result.loss)
    assert np.array_equal(tiny.params(result.model), tiny.params(trained.model))
    assert result.outcome is trained.outcome


def test_nonfinite_is_an_outcome(source):
    result = run(source, recipe=tiny.recipe(learning_rate=1e30))
    assert result.outcome is Outcome.NONFINITE
    assert np.isfinite(tiny.params(result.model)).all()
    assert np.isfinite(result.history).all()


# ---- interruption and checkpoints ---------------------------------------------------------------


@pytest.fixture
def interrupt_at(monkeypatch):
    """Press Ctrl-C when so many buffers have been trained on, also where a parent ignores it."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    train = Runner._train

    def arm(number):
        def trains(self):
            if self.schedule.position == number:
                signal.raise_signal(signal.SIGINT)
                time.sleep(0.3)  # so that the main thread notices before this one is through
            train(self)

        monkeypatch.setattr(Runner, "_train", trains)

    yield arm
    signal.signal(signal.SIGINT, handler)


@pytest.mark.parametrize("number", [1, 4, 6])
def test_interrupted_and_resumed_is_the_same_to_the_bit(source, tmp_path, interrupt_at, number):
    options = {"recipe": tiny.recipe(max_steps=21, kl_warmup=6, cooldown=8)}
    whole = run(source, **options)
    interrupt_at(number)
    cut = run(source, checkpoint=tmp_path / "run.npz", **options)
    assert cut.outcome is Outcome.INTERRUPTED
    assert np.isnan(cut.loss)
    assert 0 < cut.n_steps < whole.n_steps
    interrupt_at(None)
    resumed = run(source, checkpoint=tmp_path / "run.npz", **options)
    assert tiny.same_fit(resumed, whole)
    again = run(source, checkpoint=tmp_path / "run.npz", **options)
    assert tiny.same_fit(again, whole)
    assert again.seconds == resumed.seconds


def test_a_time_limit_returns_what_there_is(source, tmp_path, trained):
    cut = run(source, time_limit=0.0, checkpoint=tmp_path / "run.npz")
    assert cut.outcome in (Outcome.TIME_LIMIT, Outcome.MAX_STEPS)
    assert tiny.same_fit(run(source, checkpoint=tmp_path / "run.npz"), trained)


def test_another_run_is_refused(source, folder, tmp_path):
    path = tmp_path / "run.npz"
    run(source, checkpoint=path)
    others = (
        {"key": jax.random.key(6)},
        {"buffer_rows": 96},
        {"recipe": tiny.recipe(max_steps=24)},
        {"source": source_of(folder, weight="weight")},
        {"scaling": Scaling.identity(2, 1)},
    )
    for other in others:
        with pytest.raises(CheckpointError, match="other data, settings or seed"):
            run(**{"source": source, "checkpoint": path, **other})


def test_a_file_lost_under_way_costs_no_training(tmp_path):
    """One sentence, and what was trained is in the checkpoint."""
    x, y = tiny.arrays(210)
    folder = rows.write(tmp_path / "rows", rows.as_columns(x, y))
    source = source_of(folder)
    statistics = Statistics.of(source)
    whole = run(source)
    lost = folder / "1.parquet"
    content, stat = lost.read_bytes(), lost.stat()
    lost.unlink()
    checkpoint = tmp_path / "run.npz"
    with pytest.raises(SourceError, match=r"^1.parquet has gone since it was first looked at"):
        run(source, statistics=statistics, checkpoint=checkpoint)
    assert checkpoint.exists()
    lost.write_bytes(content)
    with pytest.raises(SourceError, match=r"^1.parquet was changed since"):
        run(source, statistics=statistics, checkpoint=checkpoint)
    assert stat.st_size == lost.stat().st_size
    assert tiny.same_fit(run(source_of(folder), checkpoint=checkpoint), whole)
    assert "varprop-reader" not in {thread.name for thread in threading.enumerate()}


def test_bad_options(source, folder):
    other = ParquetSource(folder, features=["x0"], targets="y")
    for options, sentence in (
        ({"buffer_rows": 0}, "buffer_rows must be at least 1, but is 0"),
        ({"buffer_rows": 16}, "must hold a batch of 32 rows, but buffer_rows is 16"),
        ({"recipe": tiny.recipe(batch_size=None)}, "takes all 210 rows in one step"),
        ({"model": tiny.model(n_outputs=2)}, "likelihood has 2 targets, but y has 1 columns"),
        ({"statistics": Statistics.of(other)}, "statistics belong to other rows"),
    ):
        with pytest.raises(ValueError, match=sentence):
            run(source, **options)
    with pytest.raises(FileNotFoundError, match="folder of the checkpoint"):
        run(source, checkpoint=folder / "missing" / "run.npz")
