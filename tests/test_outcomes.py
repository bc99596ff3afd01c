"""How training ends: every outcome, and every wrong argument, said clearly."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import probe
import tiny
from varprop import (
    ROPD,
    VI,
    Data,
    GaussianLikelihood,
    HeteroscedasticGaussian,
    Lane,
    Model,
    Outcome,
    Scaling,
    fit,
    fit_many,
)
from varprop.training.runner import Session

KEY = jax.random.key(5)


@pytest.fixture(scope="module")
def data():
    return tiny.data(70)


@pytest.fixture(scope="module")
def calm(data):
    """What a lane beside a failing one must still give."""
    return fit(tiny.model(1), data, ROPD(), key=KEY, recipe=tiny.recipe())


def is_usable(result, data):
    """Whether everything a user would look at is finite."""
    out = result.predictive(data.x)
    parts = (out.mean, out.model_var, out.noise_var)
    numbers = [tiny.params(result.model), result.history, result.loss, *parts]
    return all(np.isfinite(part).all() for part in numbers)


@pytest.mark.parametrize("learning_rate", [1e3, 1e20, 1e38])
def test_a_lane_that_diverges_keeps_what_is_finite(data, calm, learning_rate):
    """And the lane beside it is untouched, to the bit."""
    wild = tiny.recipe(learning_rate=learning_rate)
    bad, good = fit_many(
        [
            Lane(model=tiny.model(0), key=KEY, recipe=wild),
            Lane(model=tiny.model(1), key=KEY, recipe=tiny.recipe()),
        ],
        data,
        ROPD(),
    )
    assert bad.outcome is Outcome.NONFINITE
    assert "last finite" in bad.outcome.sentence
    assert is_usable(bad, data)
    assert tiny.same_fit(good, calm)


def test_the_step_over_the_cliff_is_taken_back(x64):
    """theta goes 0, 0.4, 0.8, 1.2, where the loss is infinite: 0.8 is kept."""
    data = Data(np.zeros((40, 1)), np.ones(40))
    result = fit(
        probe.model(),
        data,
        probe.Cliff(),
        key=KEY,
        recipe=tiny.recipe(batch_size=None),
        optimizer=optax.sgd(0.4),
        scaling=Scaling.identity(1, 1),
    )
    assert result.outcome is Outcome.NONFINITE
    np.testing.assert_allclose(result.model.network.theta, 0.8)
    np.testing.assert_allclose(result.history, [0.0, -0.4, -0.8])
    np.testing.assert_allclose(result.loss, -0.8)


def test_an_objective_infinite_from_the_start_says_so(x64):
    data = Data(np.zeros((40, 1)), np.ones(40))
    result = fit(
        probe.model(),
        data,
        probe.Cliff(scale=float("nan")),
        key=KEY,
        recipe=tiny.recipe(batch_size=None),
        scaling=Scaling.identity(1, 1),
    )
    assert result.outcome is Outcome.NONFINITE
    assert result.n_epochs == 0
    assert float(result.model.network.theta) == 0
    assert np.isnan(result.loss)


@pytest.mark.parametrize("objective", [VI(), ROPD()], ids=["VI", "ROPD"])
def test_one_row_trains_without_nan(objective):
    """One row is a constant: it is centered to 0 and learned as such."""
    data = Data(np.array([[3.0, -2.0]]), np.array([7.0]))
    result = fit(tiny.model(), data, objective, key=KEY, recipe=tiny.recipe(max_steps=200))
    assert result.outcome is Outcome.MAX_STEPS
    assert is_usable(result, data)
    assert result.loss < result.history[0]
    out = result.predictive(data.x)
    assert abs(out.mean[0, 0] - 7.0) < 0.1


def test_one_row_trained_for_long_ends_in_a_documented_outcome():
    """The density of one row has no upper bound: the noise shrinks until float32 ends."""
    data = Data(np.array([[3.0, -2.0]]), np.array([7.0]))
    recipe = tiny.recipe(max_steps=20_000, learning_rate=0.05)
    result = fit(tiny.model(), data, ROPD(), key=KEY, recipe=recipe)
    assert result.outcome in (Outcome.NONFINITE, Outcome.MAX_STEPS)
    assert is_usable(result, data)


def test_a_row_left_out_cannot_hurt_a_lane():
    """Row 0 lies so far off that its square overflows; the lane does not train on it."""
    x, y = tiny.arrays(70)
    y[0] = 1e30
    lane = Lane(model=tiny.model(1), key=KEY, rows=np.arange(1, 70), recipe=tiny.recipe())
    (result,) = fit_many([lane], Data(x, y), ROPD())
    assert result.outcome is Outcome.MAX_STEPS
    assert is_usable(result, Data(x[1:], y[1:]))


def test_a_time_limit_returns_what_there_is(data):
    endless = tiny.recipe(max_steps=10**9)
    result = fit(tiny.model(), data, ROPD(), key=KEY, recipe=endless, time_limit=0.0)
    assert result.outcome is Outcome.TIME_LIMIT
    assert is_usable(result, data)
    assert result.n_steps == 3 * result.n_epochs < 10**9


def test_ctrl_c_returns_what_there_is(data, monkeypatch):
    """The interrupt arrives while the main thread watches; lanes not begun are given back too."""

    def interrupt(session, *_):
        while session.runners[0].schedule.position == 0:
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "_watch", interrupt)
    endless = tiny.recipe(max_steps=10**9)
    lanes = [Lane(model=tiny.model(seed), key=KEY, recipe=endless) for seed in range(3)]
    results = fit_many(lanes, data, ROPD(), n_threads=1)
    assert [result.outcome for result in results] == [Outcome.INTERRUPTED] * 3
    assert all(is_usable(result, data) for result in results)
    assert results[0].n_steps > 0
    assert results[2].n_steps == 0
    np.testing.assert_array_equal(tiny.params(results[2].model), tiny.params(lanes[2].model))


def test_an_error_in_a_lane_is_raised(data):
    """Neither swallowed nor turned into an outcome."""
    with pytest.raises(RuntimeError, match="broken on purpose"):
        fit(tiny.model(), data, probe.Broken(), key=KEY, recipe=tiny.recipe())


def test_every_outcome_has_a_sentence():
    assert len({outcome.sentence for outcome in Outcome}) == len(Outcome) == 6


@pytest.mark.parametrize(
    ("lanes", "message"),
    [
        ([], "there are no lanes to train"),
        (
            [Lane(model=tiny.model(n_outputs=2), key=KEY)],
            "has 2 targets, but y has 1 columns",
        ),
        ([Lane(model=tiny.model(n_inputs=3), key=KEY)], "layer needs .*3"),
        (
            [
                Lane(model=tiny.model(), key=KEY),
                Lane(model=tiny.model(hidden_layer_sizes=(5,)), key=KEY),
            ],
            "the model of lane 1 has another structure than lane 0's",
        ),
        (
            [
                Lane(model=tiny.model(), key=KEY, recipe=tiny.recipe(batch_size=size))
                for size in (16, None)
            ],
            r"all lanes must have one batch size, but they have \['16', 'None'\]",
        ),
        ([Lane(model=tiny.model(), key=KEY, rows=np.array([0, 70]))], "between 0 and 69"),
        ([Lane(model=tiny.model(), key=KEY, rows=np.array([-1, 3]))], "go from -1 to 3"),
        ([Lane(model=tiny.model(), key=KEY, rows=np.zeros(70, bool))], "list of row numbers"),
        (
            [Lane(model=tiny.model(), key=KEY, rows=np.zeros(0, int))],
            "lane 0 has no rows to train on",
        ),
    ],
)
def test_lanes_that_cannot_be_trained_are_refused(lanes, message, data):
    with pytest.raises(ValueError, match=message):
        fit_many(lanes, data, ROPD())


@pytest.mark.parametrize(
    ("likelihood", "sentence"),
    [
        (GaussianLikelihood(jnp.ones(2)), r"^the likelihood has 2 targets, but y has 1 columns\.$"),
        (
            HeteroscedasticGaussian(jnp.ones(1)),
            r"^HeteroscedasticGaussian needs 2 outputs for 1 targets, but the network has 1\.$",
        ),
    ],
    ids=["targets", "outputs"],
)
def test_a_likelihood_that_does_not_fit_is_refused(data, likelihood, sentence):
    model = Model(tiny.model().network, likelihood, tiny.model().prior)
    with pytest.raises(ValueError, match=sentence):
        fit(model, data, ROPD(), key=KEY, recipe=tiny.recipe())


def test_weights_that_are_all_zero_are_refused():
    x, y = tiny.arrays(70)
    with pytest.raises(ValueError, match="lane 0 has no rows to train on"):
        fit(tiny.model(), Data(x, y, np.zeros(70)), ROPD(), key=KEY)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_model_says_the_precision(calm, dtype):
    """Rows of either are scaled in float64 and rounded to it: the caller need not convert them."""
    x, y = (part.astype(dtype) for part in tiny.arrays(70))
    found = fit(tiny.model(1), Data(x, y), ROPD(), key=KEY, recipe=tiny.recipe())
    assert tiny.params(found.model).dtype == np.float32
    np.testing.assert_allclose(found.history, calm.history, rtol=1e-5)


@pytest.mark.usefixtures("as_users_run_it")
def test_arrays_are_not_data():
    x, _ = tiny.arrays(70)
    with pytest.raises(TypeError, match=r"^data must be varprop.Data or a source of rows, but is"):
        fit(tiny.model(), x, ROPD(), key=KEY)


def test_a_checkpoint_in_no_folder_is_refused(data, tmp_path):
    with pytest.raises(FileNotFoundError, match="the folder of the checkpoint"):
        fit(tiny.model(), data, ROPD(), key=KEY, checkpoint=tmp_path / "none" / "run.npz")
