"""One way from rows to a prediction: arrays, one file and a folder give the same.

The column of Unix times spans ten minutes: rounded to float32 before it is shifted, at steps of 128
seconds, it would keep five different values.
"""

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rows
import tiny
from varprop import VI, Data, FAWNRegressor, Recipe, StopRule, fit, regression_model
from varprop.data import ParquetSource, Scaling, Statistics

N_ROWS = 400


@pytest.fixture(scope="module")
def table():
    """A curve over time, a second input, a hundredth of noise."""
    rng = np.random.default_rng(0)
    time, load = rng.uniform(0, 600, N_ROWS), rng.normal(size=N_ROWS)
    y = np.sin(time / 120) + 0.3 * load + 0.01 * rng.normal(size=N_ROWS)
    return pd.DataFrame({"time": 1_700_000_000 + time, "load": load, "y": y})


@pytest.fixture(scope="module")
def sources(table, tmp_path_factory):
    """The same rows in the same order, in memory, in one file and in a folder."""
    folder = tmp_path_factory.mktemp("one-way")
    columns = {name: table[name].to_numpy() for name in table}
    pq.write_table(pa.table(columns), folder / "one.parquet")
    rows.write(folder / "several", columns, files=4, row_group_size=30)
    return {
        "arrays": Data(table[["time", "load"]].to_numpy(), table["y"].to_numpy()),
        "file": ParquetSource(folder / "one.parquet", targets="y"),
        "folder": ParquetSource(folder / "several", targets="y"),
    }


def r2(y, mean):
    return 1 - np.mean((y - mean) ** 2) / np.var(y)


def test_the_scaling_is_the_same(sources):
    """To 1e-12, and right: as sums in extended precision have it."""
    x = sources["arrays"].x.astype(np.longdouble)
    for source in sources.values():
        found = Statistics.of(source).scaling
        np.testing.assert_allclose(
            found.x_shift, x.mean(axis=0).astype(float), rtol=1e-15, atol=1e-15
        )
        np.testing.assert_allclose(found.x_scale, x.std(axis=0).astype(float), rtol=1e-12)
        y = sources["arrays"].y
        np.testing.assert_allclose(found.y_shift, y.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(found.y_scale, y.std(axis=0), rtol=1e-12)


RECIPE = Recipe(kl_warmup=500, cooldown=500, max_steps=3000, batch_size=80, stop=StopRule(tol=0.0))


@pytest.fixture(scope="module")
def fits(sources):
    """Each in one buffer; and the folder in five, which come in an order of their own."""
    options = {"key": jax.random.key(1), "recipe": RECIPE}
    model = regression_model(2, 1, key=jax.random.key(0), hidden_layer_sizes=(20,))
    found = {name: fit(model, source, VI(), **options) for name, source in sources.items()}
    found["buffers"] = fit(model, sources["folder"], VI(), buffer_rows=80, **options)
    return found


def test_the_same_batches_give_the_same_parameters(fits):
    expected = tiny.params(fits["arrays"].model)
    for name in ("file", "folder"):
        np.testing.assert_allclose(tiny.params(fits[name].model), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(fits[name].history, fits["arrays"].history, rtol=1e-5)


def test_unix_times_are_learned_from_any_source(fits, table):
    x, y = table[["time", "load"]].to_numpy(), table["y"].to_numpy()
    found = {name: r2(y, result.predictive(x).mean[:, 0]) for name, result in fits.items()}
    assert min(found.values()) > 0.99, found
    assert max(found.values()) - min(found.values()) < 0.002, found
    rounded = x.astype(np.float32)  # what the test would not notice if it learned as well
    assert r2(y, fits["arrays"].predictive(rounded).mean[:, 0]) < 0.95


def test_the_estimator_takes_any_of_them(sources, table):
    options = {"hidden_layer_sizes": 20, "n_restarts": 1, "random_state": 0, "recipe": RECIPE}
    inputs, y = table[["time", "load"]], table["y"].to_numpy()
    usual = FAWNRegressor(**options).fit(inputs, table["y"])
    expected = usual.predict_dist(inputs)
    assert r2(y, expected.mean) > 0.99
    for source in (sources["file"], sources["folder"]):
        found = FAWNRegressor(**options).fit(source)
        out = found.predict_dist(inputs)
        np.testing.assert_allclose(out.mean, expected.mean, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(out.std, expected.std, rtol=1e-3)
        assert list(found.feature_names_in_) == ["time", "load"]
        assert found.target_names_ == ["y"]
        assert (found.outcome_, found.n_iter_) == (usual.outcome_, usual.n_iter_)
        np.testing.assert_allclose(found.loss_, usual.loss_, rtol=1e-4)


def test_a_given_scaling_is_used_by_all(sources):
    own = Scaling(np.array([1.7e9, 0.0]), np.array([600.0, 2.0]), np.array([0.5]), np.array([3.0]))
    results = [
        fit(
            tiny.model(),
            source,
            VI(),
            key=jax.random.key(0),
            recipe=tiny.recipe(max_steps=40),
            scaling=own,
        )
        for source in sources.values()
    ]
    for result in results:
        assert result.scaling is own
        assert tiny.same_fit(result, results[0])
