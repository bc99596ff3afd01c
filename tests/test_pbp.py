"""PBPRegressor: what it learns, how it behaves, and the published table."""

import json
import os
import pathlib
import pickle
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from varprop import metrics
from varprop.baselines import PBPRegressor

X = np.random.RandomState(1).uniform(-2, 2, (300, 1))
Y = 100 + 10 * (np.sin(2 * X[:, 0]) + 0.2 * np.random.RandomState(2).standard_normal(300))


@pytest.fixture(scope="module")
def model():
    return PBPRegressor(random_state=0).fit(X[:200], Y[:200])


def test_it_learns_a_noisy_sine(model):
    dist = model.predict_dist(X[200:])
    constant = stats.norm(Y[:200].mean(), Y[:200].std())
    assert metrics.nll(Y[200:], dist) < -constant.logpdf(Y[200:]).mean() - 0.5
    assert model.score(X[200:], Y[200:]) > 0.8
    assert 1.5 < model.noise_std_ < 4.0  # the truth is 2
    assert model.n_iter_ == 40
    mean, std = model.predict(X[200:], return_std=True)
    np.testing.assert_array_equal(mean, dist.mean)
    np.testing.assert_allclose(std, np.hypot(np.sqrt(dist.model_var), model.noise_std_), rtol=1e-12)
    far = model.predict_dist(np.array([[20.0]]))
    assert far.model_var[0] > 10 * dist.model_var.max()


def test_the_same_seed_gives_the_same_model(model):
    again = clone(model).fit(X[:200], Y[:200])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    other = clone(model).set_params(random_state=1).fit(X[:200], Y[:200])
    assert (other.predict(X) != model.predict(X)).any()


def test_units_do_not_matter(model):
    """Powers of two, so that standardized rows are the same to the bit."""
    scaled = clone(model).fit(1024 * X[:200], Y[:200] / 4096)
    ours, theirs = model.predict_dist(X), scaled.predict_dist(1024 * X)
    np.testing.assert_allclose(4096 * theirs.mean, ours.mean, rtol=1e-9)
    np.testing.assert_allclose(4096 * theirs.std, ours.std, rtol=1e-9)


def test_fits_in_threads_share_one_program_and_do_not_disturb_each_other(model):
    compiled = []

    def listen(event, duration, fun_name="", **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(fun_name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    jax.clear_caches()
    fits = [PBPRegressor(hidden_layer_sizes=5, n_epochs=2, random_state=i) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        # 195 and 200 rows are padded to the same size.
        jobs = [pool.submit(fit.fit, X[: 195 + i], Y[: 195 + i]) for i, fit in enumerate(fits)]
        together = [job.result().predict(X) for job in jobs]
    n_compiled = len(compiled)
    for i, fit in enumerate(fits):
        np.testing.assert_array_equal(
            clone(fit).fit(X[: 195 + i], Y[: 195 + i]).predict(X), together[i]
        )
    assert len(compiled) == n_compiled
    # A pass and a prediction; threads that come at once may compile the same, but not all of them.
    assert 1 <= compiled.count("jit(one_pass)") < 4
    assert 1 <= compiled.count("jit(_propagate_block)") < 4


def test_any_depth_and_a_column_of_targets():
    for hidden in ((), (4, 3)):
        fitted = PBPRegressor(hidden_layer_sizes=hidden, n_epochs=3, random_state=0)
        fitted.fit(X[:50], Y[:50, None])
        assert len(fitted.beliefs_.network) == len(hidden) + 1
        assert fitted.predict(X[:7]).shape == (7, 1)
        assert (fitted.predict_dist(X[:7]).var > 0).all()


def test_errors_of_inputs_widen_predictions(model):
    assert (model.predict_var(X, X_std=[0.3]) >= model.predict_var(X)).mean() > 0.9
    np.testing.assert_allclose(model.predict_var(X, X_std=[0.0]), model.predict_var(X), rtol=1e-12)


def test_many_rows_are_predicted_in_blocks(model):
    many = np.tile(X, (15, 1))
    np.testing.assert_allclose(model.predict(many)[-300:], model.predict(X), rtol=1e-12)


def test_it_can_be_pickled(model):
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_constant_target_is_predicted():
    fitted = PBPRegressor(hidden_layer_sizes=5, n_epochs=2, random_state=0)
    dist = fitted.fit(X[:50], np.full(50, 7.0)).predict_dist(X)
    assert np.isfinite(dist.mean).all()
    assert (dist.var > 0).all()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n_epochs": 0}, r"'n_epochs' parameter of PBPRegressor must be an int .* Got 0"),
        ({"n_epochs": 2.5}, r"'n_epochs' parameter of PBPRegressor must be an int .* Got 2\.5"),
        ({"hidden_layer_sizes": (0,)}, "hidden_layer_sizes must be whole numbers of at least 1"),
    ],
)
def test_bad_options_are_named(options, sentence, as_users_run_it):
    with pytest.raises(ValueError, match=sentence):
        PBPRegressor(**options).fit(X, Y)


def test_bad_data_is_named(model):
    with pytest.raises(ValueError, match="y has 2 columns, but PBPRegressor learns one target"):
        PBPRegressor().fit(X, np.stack([Y, Y], 1))
    hole = np.where(np.arange(300) == 3, np.nan, X[:, 0])[:, None]
    with pytest.raises(ValueError, match=r"column 'X\[:, 0\]' is NaN in row 3"):
        PBPRegressor().fit(hole, Y)
    with pytest.raises(NotFittedError):
        PBPRegressor().predict(X)
    with pytest.raises(ValueError, match="features"):
        model.predict(np.ones((3, 2)))


# ---- the published table --------------------------------------------------------------------

# Mean test NLL and its standard error over the 20 published splits, Hernández-Lobato & Adams 2015.
PUBLISHED = {
    "boston": (2.57, 0.09),
    "concrete": (3.16, 0.02),
    "energy": (2.04, 0.02),
    "wine_red": (0.97, 0.01),
    "yacht": (1.63, 0.02),
}


def published_rows(name):
    """Inputs, targets and published splits, read from the folder that VARPROP_DATA names."""
    folder = os.environ.get("VARPROP_DATA")
    if not folder:
        pytest.skip("VARPROP_DATA does not name a folder with the data sets")
    parquet = pytest.importorskip("pyarrow.parquet")
    root = pathlib.Path(folder)
    facts = json.loads((root / "datasets.json").read_text())["datasets"][name]
    table = parquet.read_table(root / facts["file"])
    x = np.stack([table[column].to_numpy() for column in facts["feature_columns"]], 1)
    y = table[facts["target_columns"][0]].to_numpy()
    return x, y, np.load(root / facts["splits"]["file"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_table_is_reproduced(name):
    x, y, splits = published_rows(name)

    def score(number):
        train, test = splits["train"][number], splits["test"][number]
        fitted = PBPRegressor(random_state=number).fit(x[train], y[train])
        return metrics.nll(y[test], fitted.predict_dist(x[test]))

    with ThreadPoolExecutor(2) as pool:
        scores = list(pool.map(score, range(len(splits["train"]))))
    published, error = PUBLISHED[name]
    assert abs(np.mean(scores) - published) < max(2 * error, 0.05)
