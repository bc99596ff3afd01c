"""More data than memory: the same objective, every row once, bounded memory, and bad files."""

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
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from varprop.data.arrays import noise_floor
from varprop.estimators.streaming import fit_regressor
from varprop.streaming import (
    DaskSource,
    ParquetSource,
    SourceError,
    Statistics,
    buffers,
    fit_stream,
    split_source,
)
from varprop.training.plan import Plan

import cli_runs
import tiny
import varprop.compilation
from varprop import (
    ROPD,
    Data,
    FAWNRegressor,
    MaximumLikelihood,
    Outcome,
    SampledVI,
    Scaling,
    StopRule,
    fit,
)
from varprop.training import CheckpointError
from varprop.training.buffers import BufferReader

KEY = jax.random.key(5)
F4 = np.dtype("f4")


def write(folder, columns, *, files=3, row_group_size=25):
    """Spread columns over files of about the same length, and return the folder."""
    folder.mkdir(exist_ok=True)
    n_rows = len(next(iter(columns.values())))
    for number, part in enumerate(np.array_split(np.arange(n_rows), files)):
        table = pa.table({name: np.asarray(values)[part] for name, values in columns.items()})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=row_group_size)
    return folder


def as_columns(x, y, **more):
    return {**{f"x{i}": column for i, column in enumerate(x.T)}, "y": y[:, 0], **more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """210 rows in three files of three row groups, with weights of which some are 0."""
    x, y = tiny.arrays(210)
    weight = np.random.default_rng(1).integers(0, 3, 210).astype(float)
    columns = as_columns(x, y, weight=weight, index=np.arange(210.0))
    return write(tmp_path_factory.mktemp("stream") / "rows", columns)


def source_of(folder, **options):
    return ParquetSource(folder, features=["x0", "x1"], targets="y", **options)


@pytest.fixture(scope="module")
def source(folder):
    return source_of(folder)


def data_of(folder):
    table = pd.concat([pd.read_parquet(path) for path in sorted(folder.iterdir())])
    return Data(table[["x0", "x1"]].to_numpy(), table["y"].to_numpy())


# Two full buffers of 64 rows and one of 82 = 64 + 18: the last batch of the last is partial.
SEVERAL = {"buffer_rows": 64}


def run(source, *, objective=None, model=None, recipe=None, key=KEY, **options):
    return fit_stream(
        model or tiny.model(),
        source,
        objective or ROPD(),
        key=key,
        recipe=recipe or tiny.recipe(max_steps=21),
        **{**SEVERAL, **options},
    )


# ---- statistics ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weight", [None, "w"])
def test_statistics_are_those_of_memory(tmp_path, dtype, weight):
    """To 1e-12, also for a column that is large and nearly constant, and for whole targets."""
    rng = np.random.default_rng(0)
    columns = {
        "large": 1e6 + rng.normal(size=500),
        "small": 1e-8 * rng.normal(size=500),
        "constant": np.full(500, 0.1),
        "whole": rng.integers(-5, 5, 500),
        "y": rng.integers(0, 9, 500) / 2,
        "w": rng.integers(0, 3, 500),
    }
    source = ParquetSource(
        write(tmp_path / "rows", columns, files=4, row_group_size=40),
        features=["large", "small", "constant", "whole"],
        targets="y",
        weight=weight,
    )
    x = np.stack([columns[name] for name in source.features], 1)
    weights = columns["w"] if weight else None
    data = Data(x, columns["y"], weights, dtype=np.dtype(dtype))
    found, wanted = Statistics.of(source, dtype=dtype), Scaling.of(data)
    assert found.n_rows == 500
    assert found.total_weight == (500 if weights is None else weights.sum())
    for name in ("x_shift", "x_scale", "y_shift", "y_scale"):
        np.testing.assert_allclose(
            getattr(found.scaling, name), getattr(wanted, name), rtol=1e-12, err_msg=name
        )
    np.testing.assert_allclose(found.noise_floor, noise_floor(data.y))


def test_a_continuous_target_has_no_floor(tmp_path, monkeypatch):
    monkeypatch.setattr("varprop.data.statistics._MANY_VALUES", 50)
    y = np.arange(100.0)
    y[-1] = 0.0
    folder = write(tmp_path / "rows", {"x": y, "y": y})
    assert Statistics.of(ParquetSource(folder, targets="y")).noise_floor.tolist() == [0.0]


# ---- which rows come when -----------------------------------------------------------------------


def rows_seen(source, plan, *, first, last, shuffle=True):
    """The index column of every buffer."""
    reader = BufferReader(source, plan, F4, first=first, last=last, shuffle=shuffle)
    seen = []
    for _ in range(first, last):
        buffer = reader.take()
        seen.append(np.asarray(buffer.rows.x)[: buffer.n_rows, 0].astype(int).tolist())
        reader.release()
    reader.close()
    return seen


def test_every_row_once_per_epoch_in_another_order(folder):
    source = ParquetSource(folder, features=["index"], targets="y")

    def plan(seed):
        return Plan(source.block_rows, batch_size=32, buffer_rows=64, seed=(seed,))

    assert plan(0).n_buffers == 4
    seen = rows_seen(source, plan(0), first=0, last=12)
    epochs = [seen[:4], seen[4:8], seen[8:]]
    assert [len(buffer) for buffer in epochs[0]] == [64, 64, 64, 18]
    for epoch in epochs:
        assert sorted(itertools.chain(*epoch)) == list(range(210))
    assert epochs[0] != epochs[1] != epochs[2]
    assert rows_seen(source, plan(1), first=0, last=4) != epochs[0]
    # A resumed run begins in the middle and reads the same.
    assert rows_seen(source, plan(0), first=6, last=9) == [*epochs[1][2:], epochs[2][0]]
    straight = rows_seen(source, plan(0), first=0, last=4, shuffle=False)
    assert list(itertools.chain(*straight)) == list(range(210))


def test_whole_blocks_are_skipped_unread(folder, monkeypatch):
    source = ParquetSource(folder, features=["index"], targets="y")
    plan = Plan(source.block_rows, batch_size=32, buffer_rows=64, seed=(0,))
    read, opened = ParquetSource.read, []

    def spy(self, block, dtype):
        opened.append(block)
        return read(self, block, dtype)

    monkeypatch.setattr(ParquetSource, "read", spy)
    rows_seen(source, plan, first=3, last=4)
    assert opened == plan.order(0)[-len(opened) :].tolist()
    assert len(opened) <= 2


def test_a_row_group_may_be_larger_than_a_buffer(tmp_path, monkeypatch):
    monkeypatch.setattr("varprop.data.parquet.PIECE_ROWS", 10)
    columns = {"index": np.arange(210.0), "y": np.zeros(210)}
    folder = write(tmp_path / "rows", columns, files=1, row_group_size=210)
    source = ParquetSource(folder, targets="y")
    plan = Plan(source.block_rows, batch_size=16, buffer_rows=32, seed=(0,))
    seen = rows_seen(source, plan, first=0, last=7)
    assert list(itertools.chain(*seen)) == list(range(210))


def test_no_more_than_two_buffers_are_alive(source, monkeypatch):
    """Counted at every birth and death, while training is slower than reading."""
    alive, most = set(), []
    make = buffers.Buffer

    def counted(*args):
        buffer = make(*args)
        number = next(counter)
        alive.add(number)
        weakref.finalize(buffer.rows.x, alive.discard, number)
        most.append(len(alive))
        return buffer

    counter = itertools.count()
    monkeypatch.setattr(buffers, "Buffer", counted)
    reader = BufferReader(
        source,
        Plan(source.block_rows, batch_size=32, buffer_rows=64, seed=(0,)),
        F4,
        first=0,
        last=8,
        shuffle=True,
    )
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


def test_buffers_are_not_copied(source):
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


@pytest.mark.parametrize("changes", [{}, {"batch_size": None}, {"cooldown": 9, "kl_warmup": 6}])
def test_one_buffer_is_fit_to_the_bit(folder, source, changes):
    recipe = tiny.recipe(max_steps=21, **changes)
    streamed = run(source, recipe=recipe, buffer_rows=1000)
    in_memory = fit(tiny.model(), data_of(folder), ROPD(), key=KEY, recipe=recipe)
    assert tiny.same_fit(streamed, in_memory)


def test_fit_takes_a_source(source):
    recipe = tiny.recipe(max_steps=21)
    found = fit(tiny.model(), source, ROPD(), key=KEY, recipe=recipe)
    assert tiny.same_fit(found, fit_stream(tiny.model(), source, ROPD(), key=KEY, recipe=recipe))
    with pytest.raises(TypeError, match=r"data must be varprop\.Data or a source of rows, but is"):
        fit(tiny.model(), np.zeros((3, 2)), ROPD(), key=KEY, recipe=recipe)


def test_one_buffer_stops_as_fit_does(folder, source):
    stop = StopRule(window=14, tol=0.5, patience=2)
    recipe = tiny.recipe(max_steps=700, cooldown=20, kl_warmup=21, stop=stop)
    streamed = run(source, recipe=recipe, buffer_rows=1000)
    in_memory = fit(tiny.model(), data_of(folder), ROPD(), key=KEY, recipe=recipe)
    assert streamed.outcome is Outcome.CONVERGED
    assert tiny.same_fit(streamed, in_memory)


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("buffer_rows", [64, 96, 1000])
def test_the_loss_of_an_epoch_is_the_objective(folder, weight, buffer_rows):
    """Nothing moves: the mean over an epoch's batches is the objective of all rows."""
    source = source_of(folder, weight=weight)
    still = tiny.recipe(learning_rate=0.0, max_steps=7, kl_weight=0.7)
    found = run(source, recipe=still, buffer_rows=buffer_rows)
    data, scaling = data_of(folder), Statistics.of(source).scaling
    weights = np.ones(210)
    if weight:
        weights = np.concatenate(
            [pq.read_table(path)["weight"].to_numpy() for path in sorted(folder.iterdir())]
        )
    loss, _ = tiny.loss_and_gradient(
        ROPD(),
        tiny.model(),
        (data.x - scaling.x_shift) / scaling.x_scale,
        (data.y - scaling.y_shift) / scaling.y_scale,
        weights,
        kl_weight=0.7,
    )
    np.testing.assert_allclose(found.history, [loss], rtol=1e-5)
    np.testing.assert_allclose(found.loss, loss, rtol=1e-5)


def test_several_files_reach_the_known_optimum(tmp_path):
    """A linear model without a prior: least squares, its noise the residuals' spread."""
    from varprop import nn

    rng = np.random.default_rng(0)
    x = rng.normal(2.0, 3.0, (600, 2))
    y = x @ [[1.5], [-0.7]] + 4 + 0.5 * rng.normal(size=(600, 1))
    folder = write(tmp_path / "rows", as_columns(x, y), files=4, row_group_size=50)
    model = tiny.model(hidden_layer_sizes=(), weights=nn.PointWeights.init)
    recipe = tiny.recipe(
        learning_rate=0.02, max_steps=1500, cooldown=1000, batch_size=64, stop=tiny.NEVER
    )
    found = run(
        source_of(folder),
        model=model,
        objective=MaximumLikelihood(),
        recipe=recipe,
        buffer_rows=128,
    )
    known = fit(model, Data(x, y), MaximumLikelihood(), key=KEY, recipe=recipe)
    design = np.column_stack([x, np.ones(600)])
    coefficients, squares, *_ = np.linalg.lstsq(design, y, rcond=None)

    def predicted(result):
        scaled = (x - result.scaling.x_shift) / result.scaling.x_scale
        out = result.model.predictive(jax.numpy.asarray(scaled, np.float32))
        scale = result.scaling.y_scale
        return out.mean * scale + result.scaling.y_shift, np.sqrt(out.var) * scale

    mean, std = predicted(found)
    np.testing.assert_allclose(mean, design @ coefficients, atol=0.02)
    np.testing.assert_allclose(std, np.sqrt(squares[0] / 600), rtol=0.02)
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


def test_float64(source):
    with jax.enable_x64(True):
        result = run(source, model=tiny.model(), recipe=tiny.recipe(max_steps=4))
        assert tiny.params(result.model).dtype == np.float64
        single = Statistics.of(source)
        with pytest.raises(TypeError, match=r"the model is float64, but the statistics are float3"):
            run(source, statistics=single)


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


def interrupt_at(monkeypatch, number, error=None):
    """Press Ctrl-C (or fail) when this many buffers have been trained on."""
    from varprop.training.stream_runner import StreamRunner

    train = StreamRunner._train

    def trains(self):
        if self.position == number:
            if error is not None:
                raise error
            signal.raise_signal(signal.SIGINT)
            time.sleep(0.3)  # so that the main thread notices before this one is through
        train(self)

    monkeypatch.setattr(StreamRunner, "_train", trains)


@pytest.mark.parametrize("number", [1, 4, 6])
def test_interrupted_and_resumed_is_the_same_to_the_bit(source, tmp_path, monkeypatch, number):
    options = {"recipe": tiny.recipe(max_steps=21, kl_warmup=6, cooldown=8)}
    whole = run(source, **options)
    with monkeypatch.context() as patch:
        interrupt_at(patch, number)
        cut = run(source, checkpoint=tmp_path / "run.npz", **options)
    assert cut.outcome is Outcome.INTERRUPTED
    assert np.isnan(cut.loss)
    assert 0 < cut.n_steps < whole.n_steps
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
        {"standardize": False},
    )
    for other in others:
        with pytest.raises(CheckpointError, match="other data, settings or seed"):
            run(**{"source": source, "checkpoint": path, **other})


def test_a_file_lost_under_way_costs_no_training(tmp_path):
    """One sentence, and what was trained is in the checkpoint."""
    x, y = tiny.arrays(210)
    rows = write(tmp_path / "rows", as_columns(x, y))
    source = source_of(rows)
    statistics = Statistics.of(source)
    whole = run(source)
    lost = rows / "1.parquet"
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
    assert tiny.same_fit(run(source_of(rows), checkpoint=checkpoint), whole)
    assert "varprop-reader" not in {thread.name for thread in threading.enumerate()}


# ---- other sources ------------------------------------------------------------------------------


def test_a_dask_frame_gives_what_the_files_give(folder, source):
    frame = dask.dataframe.concat(
        [
            dask.dataframe.from_pandas(pd.read_parquet(path), npartitions=1)
            for path in sorted(folder.iterdir())
        ]
    )
    frames = DaskSource(frame, features=["x0", "x1"], targets=["y"])
    assert frames.block_rows == (70, 70, 70)
    assert tiny.same_fit(run(frames, buffer_rows=1000), run(source, buffer_rows=1000))


def test_bad_frames():
    table = pd.DataFrame({"x": [1.0, np.nan, 3.0], "y": [1, 2, 3], "text": ["a", "b", "c"]})
    frame = dask.dataframe.from_pandas(table, npartitions=1)
    with pytest.raises(SourceError, match=r"^column 'text' holds .*, not numbers: encode"):
        DaskSource(frame, targets="y")
    with pytest.raises(SourceError, match=r"^the frame has no column 'z': it has 'x', 'y', 'text'"):
        DaskSource(frame, targets="z")
    with pytest.raises(TypeError, match="must be a Dask DataFrame, but is DataFrame"):
        DaskSource(table, targets="y")
    with pytest.raises(SourceError, match=r"^column 'x' holds nan .* in row 1 of partition 0"):
        Statistics.of(DaskSource(frame, features=["x"], targets="y"))


def test_splitting(folder):
    source = ParquetSource(folder, features=["index"], targets="y")
    train, held = split_source(source, share=0.3, seed=0)
    assert 30 < held.n_rows < 100

    def indices(part):
        blocks = range(len(part.block_rows))
        return [int(row[0]) for i in blocks for piece in part.read(i, F4) for row in piece]

    assert sorted(indices(train) + indices(held)) == list(range(210))
    assert indices(held) == indices(held)
    assert indices(held) != indices(split_source(source, share=0.3, seed=1)[1])
    assert (len(indices(train)), len(indices(held))) == (train.n_rows, held.n_rows)
    place = indices(held)[0]
    assert held.where(0, 0) == source.where(0, place)
    with pytest.raises(ValueError, match="share must lie between 0 and 1, but is 1"):
        split_source(source, share=1.0, seed=0)


def test_other_numbers_than_floats(tmp_path):
    table = pa.table(
        {
            "flag": [True, False, True],
            "whole": pa.array([1, 2, 3], pa.uint8()),
            "price": pa.array([1, 2, 3]).cast(pa.decimal128(20, 1)),
            "y": pa.array([1, 2, 3], pa.float16()),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetSource(tmp_path / "a.parquet", targets="y")
    assert next(source.read(0, F4)).tolist() == [[1, 1, 1, 1], [0, 2, 2, 2], [1, 3, 3, 3]]


# ---- bad input ----------------------------------------------------------------------------------


def good(n=4):
    return {"x": np.arange(float(n)), "y": np.ones(n)}


BAD_FILES = {
    "absent": ({"y": [1.0]}, r"^b.parquet has no column 'x', but a.parquet has one.$"),
    "null type": (
        {"x": pa.nulls(2), "y": [1.0, 2.0]},
        r"^column 'x' of b.parquet holds nothing but missing values: fill them in",
    ),
    "all null": (
        {"x": pa.array([None, None], pa.float64()), "y": [1.0, 2.0]},
        r"^column 'x' of b.parquet holds nothing but missing values: fill them in",
    ),
    "some null": (
        {"x": [1.0, None, 3.0], "y": [1.0, 2.0, 3.0]},
        r"^column 'x' has no value in 1 of 3 rows of b.parquet: fill it in",
    ),
    "text": (
        {"x": ["red"], "y": [1.0]},
        r"^column 'x' of b.parquet holds string, not numbers: encode it as numbers first",
    ),
    "category": (
        {"x": pa.array(["red"]).dictionary_encode(), "y": [1.0]},
        r"^column 'x' of b.parquet holds dictionary.*, not numbers: encode it as numbers first",
    ),
    "more": (
        {"x": [1.0], "z": [1.0], "y": [1.0]},
        r"^b.parquet has a column 'z', but a.parquet has none: name the inputs.$",
    ),
}


@pytest.mark.parametrize(("columns", "sentence"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_in_the_middle_with_another_schema(tmp_path, columns, sentence):
    for name, content in {"a": good(), "b": columns, "c": good()}.items():
        pq.write_table(pa.table(content), tmp_path / f"{name}.parquet")
    with pytest.raises(SourceError, match=sentence):
        ParquetSource(tmp_path, targets="y")


def test_missing_values_without_counts_in_the_metadata(tmp_path):
    pq.write_table(
        pa.table({"x": [1.0, 2.0, None], "y": [1.0, 2.0, 3.0]}),
        tmp_path / "a.parquet",
        write_statistics=False,
        row_group_size=2,
    )
    with pytest.raises(SourceError, match=r"^column 'x' has no value in row 3 of a.parquet: fill"):
        Statistics.of(ParquetSource(tmp_path, targets="y"))


@pytest.mark.parametrize(
    "damage", [lambda whole: b"", lambda whole: whole[:-20], lambda whole: b"a,b\n1,2\n" * 99]
)
def test_an_unreadable_file_in_the_middle(tmp_path, damage):
    for name in "abc":
        pq.write_table(pa.table(good()), tmp_path / f"{name}.parquet")
    path = tmp_path / "b.parquet"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError, match=r"^b.parquet is no Parquet file, or damaged or cut"):
        ParquetSource(tmp_path, targets="y")


def test_rows_that_cannot_be_decoded(tmp_path):
    """The footer is whole, the pages are not."""
    for name in "abc":
        pq.write_table(pa.table(good(1000)), tmp_path / f"{name}.parquet", compression="snappy")
    path = tmp_path / "b.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 3000 + whole[3004:])
    source = ParquetSource(tmp_path, targets="y")
    with pytest.raises(SourceError, match=r"^b.parquet is damaged, row group 1 cannot be read"):
        run(source, model=tiny.model(n_inputs=1))


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_number_that_is_none(tmp_path, value):
    for name in "abc":
        columns = good(7)
        if name == "b":
            columns["x"][5] = value
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet", row_group_size=2)
    source = ParquetSource(tmp_path, targets="y")
    shown = "nan" if np.isnan(value) else "inf"
    sentence = rf"^column 'x' holds {shown} \(as float32\) in row 6 of b.parquet: remove"
    with pytest.raises(SourceError, match=sentence):
        run(source, model=tiny.model(n_inputs=1))


def test_bad_weights(tmp_path):
    for weights, sentence in (
        ([1.0, -1.0], r"^column 'w' is negative in row 2 of a.parquet"),
        ([0.0, 0.0], r"^column 'w' gives no row a positive weight"),
    ):
        pq.write_table(pa.table({**good(2), "w": weights}), tmp_path / "a.parquet")
        with pytest.raises(SourceError, match=sentence):
            Statistics.of(ParquetSource(tmp_path, targets="y", weight="w"))


def test_bad_paths_and_names(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(good()), path)
    pq.write_table(pa.table(good(0)), tmp_path / "empty.parquet")
    twice = pa.Table.from_arrays([pa.array([1.0])] * 3, ["x", "x", "y"])
    pq.write_table(twice, tmp_path / "twice.parquet")
    (tmp_path / "nothing").mkdir()
    for paths, options, sentence in (
        (tmp_path / "nothing", {}, r"has no file \*.parquet"),
        (tmp_path / "b.parquet", {}, r"^there is no file .*b.parquet: check the path"),
        (f"{tmp_path}/b*.parquet", {}, r"^there is no file .*b\*.parquet: check the path"),
        ([], {}, r"^there is no file: give at least one"),
        ([path, path], {}, r"a.parquet is given 2 times"),
        (tmp_path / "empty.parquet", {}, r"^empty.parquet has no rows"),
        (tmp_path / "twice.parquet", {}, r"^twice.parquet has 2 columns named 'x'"),
        (path, {"targets": "z"}, r"^a.parquet has no column 'z': it has 'x', 'y'"),
        (path, {"targets": []}, r"^targets names no column"),
        (path, {"targets": ["x", "y"]}, r"^a.parquet has no column besides the targets"),
        (path, {"features": ["x", "y"]}, r"^column 'y' is named 2 times"),
        (path, {"weight": "w"}, r"^a.parquet has no column 'w'"),
    ):
        with pytest.raises(SourceError, match=sentence):
            ParquetSource(paths, **{"targets": "y", **options})
    assert ParquetSource(f"{tmp_path}/a*.parquet", targets="y").paths == (path,)
    assert ParquetSource([path, tmp_path / "empty.parquet"], targets="y").n_rows == 4


def test_bad_options(source, folder):
    other = ParquetSource(folder, features=["x0"], targets="y")
    for options, sentence in (
        ({"buffer_rows": 0}, "buffer_rows must be at least 1, but is 0"),
        ({"buffer_rows": 16}, "must hold a batch of 32 rows, but buffer_rows is 16"),
        ({"recipe": tiny.recipe(batch_size=None)}, "takes all 210 rows in one step"),
        ({"model": tiny.model(n_outputs=2)}, "the network has 2 outputs, but y has 1 columns"),
        ({"statistics": Statistics.of(other)}, "statistics belong to another source"),
    ):
        with pytest.raises(ValueError, match=sentence):
            run(source, **options)
    with pytest.raises(FileNotFoundError, match="folder of the checkpoint"):
        run(source, checkpoint=folder / "missing" / "run.npz")


# ---- the regressor and the command line ---------------------------------------------------------


def test_a_regressor_from_a_source_is_fit_on_the_same_rows(folder, source):
    """One batch of all rows: the same up to the rounding of rows scaled beforehand."""
    options = {"hidden_layer_sizes": 4, "max_iter": 9, "batch_size": None, "random_state": 0}
    data = data_of(folder)
    streamed = fit_regressor(FAWNRegressor(**options), source)
    usual = FAWNRegressor(**options).fit(data.x, data.y[:, 0])
    named = pd.DataFrame(data.x, columns=["x0", "x1"])
    np.testing.assert_allclose(streamed.predict(named), usual.predict(data.x), rtol=1e-3, atol=1e-4)
    assert streamed.target_names_ == ["y"]
    assert (streamed.outcome_, streamed.n_iter_) == (usual.outcome_, usual.n_iter_)
    np.testing.assert_allclose(streamed.loss_, usual.loss_, rtol=1e-3)


@pytest.fixture
def command_line(as_users_run_it, monkeypatch):
    """JAX's cache is the whole process's: leave it alone here."""
    monkeypatch.setattr(varprop.compilation, "enable_compilation_cache", lambda: None)


@pytest.mark.usefixtures("command_line")
@pytest.mark.parametrize("paths", ["folder", "files", "pattern"])
def test_the_command_line_fits_a_folder(folder, tmp_path, paths):
    files = sorted(folder.iterdir())
    tables = {"folder": [folder], "files": files, "pattern": [folder / "*.parquet"]}[paths]
    model = tmp_path / "model.safetensors"
    found = cli_runs.run_json(
        "fit", *tables, "--target", "y", "--id", "index", "-o", model, *cli_runs.QUICK
    )
    assert found["train_rows"] + found["holdout_rows"] == 210
    assert list(found["inputs"]) == ["x0", "x1", "weight"]
    assert set(found["scorecard"]) == {"this model", "linear model", "constant Gaussian"}
    again = cli_runs.run_json("evaluate", model, files[0])
    assert again["rows"] == 70


@pytest.mark.usefixtures("command_line")
def test_the_command_line_may_use_all_rows(folder, tmp_path):
    model = tmp_path / "model.safetensors"
    for options in (("--holdout", "0"), ("--refit",)):
        found = cli_runs.run_json(
            "fit", folder, "--target", "y", "-o", model, *cli_runs.QUICK, *options
        )
        assert found["train_rows"] == 210
        assert (found["scorecard"] is None) == (options[0] == "--holdout")


@pytest.mark.usefixtures("command_line")
def test_the_command_line_says_what_is_wrong(folder, tmp_path):
    common = ("--target", "y", "-o", tmp_path / "model.safetensors")
    for option in (("--report", tmp_path / "a.html"), ("--missing", "drop"), ("--category", "x0")):
        line = cli_runs.sentence("fit", folder, *common, *option, code=2)
        assert line == f"{option[0]} does not go with several files or a folder."
    text = tmp_path / "text.parquet"
    columns = {name: [1.0] for name in ("x0", "x1", "weight", "index", "y")}
    pq.write_table(pa.table({**columns, "x1": ["red"]}), text)
    line = cli_runs.sentence("fit", folder, text, *common, code=3)
    assert line.startswith("column 'x1' of text.parquet holds string, not numbers: encode it")
    line = cli_runs.sentence("fit", folder, *common, "--drop", "z", code=3)
    assert line.startswith("there is no column 'z': the files have x0, x1")
    line = cli_runs.sentence("fit", tmp_path / "*.txt", *common, code=3)
    assert line.startswith("there is no file")
    assert not (tmp_path / "model.safetensors").exists()
