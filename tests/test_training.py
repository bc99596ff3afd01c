"""The engine: bits, lanes, agreement with plain Optax, and what goes in comes out."""

import dataclasses
import io

import jax
import numpy as np
import optax
import pytest
from rich.console import Console

import tiny
from varprop import (
    ROPD,
    VI,
    Data,
    Lane,
    SampledVI,
    Scaling,
    fit,
    fit_many,
    fit_restarts,
    priors,
)
from varprop.nn import Dropout
from varprop.nn.parameters import take_apart
from varprop.training.engine import best_of, restart_lanes

KEY = jax.random.key(5)


def objective_at(objective, model, data, scaling, *, kl_weight=1.0):
    """The full objective per row at a model, evaluated outside the engine."""
    x_var = None if data.x_var is None else data.x_var / scaling.x_scale**2
    loss, _ = tiny.loss_and_gradient(
        objective,
        model,
        (data.x - scaling.x_shift) / scaling.x_scale,
        (data.y - scaling.y_shift) / scaling.y_scale,
        np.ones(data.n_rows) if data.weight is None else data.weight,
        x_var=x_var,
        kl_weight=kl_weight,
    )
    return loss


@pytest.fixture(scope="module")
def data():
    """Seventy rows: two batches of 32 and one of 6."""
    return tiny.data(70)


@pytest.fixture(scope="module")
def lanes():
    """Lanes that differ in all they may: start, key, rows and recipe; one is a single batch."""
    rng = np.random.default_rng(0)
    quick = tiny.recipe()
    return [
        Lane(model=tiny.model(0), key=jax.random.key(10), recipe=quick),
        Lane(
            model=tiny.model(1),
            key=jax.random.key(11),
            rows=rng.permutation(70)[:40],
            recipe=quick.replace(learning_rate=3e-2, kl_weight=0.3, max_steps=21),
        ),
        Lane(
            model=tiny.model(2),
            key=jax.random.key(12),
            rows=np.arange(5, 25),
            recipe=quick.replace(kl_warmup=4, cooldown=3),
        ),
    ]


@pytest.fixture(scope="module")
def together(lanes, data):
    return fit_many(lanes, data, ROPD(), n_threads=2)


def test_the_same_key_gives_the_same_bits(data):
    first, second = (
        fit(tiny.model(), data, ROPD(), key=KEY, recipe=tiny.recipe()) for _ in range(2)
    )
    assert tiny.same_fit(first, second)


def test_another_key_gives_another_order(data):
    first, second = (
        fit(tiny.model(), data, ROPD(), key=jax.random.key(seed), recipe=tiny.recipe())
        for seed in (0, 1)
    )
    assert not np.array_equal(first.history, second.history)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_lanes_do_not_depend_on_threads(lanes, together, data, n_threads):
    again = fit_many(lanes, data, ROPD(), n_threads=n_threads)
    assert all(tiny.same_fit(a, b) for a, b in zip(again, together, strict=True))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_lane_equals_the_same_lane_alone(lanes, together, data, number):
    (alone,) = fit_many([lanes[number]], data, ROPD())
    assert tiny.same_fit(alone, together[number])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_lane_equals_fit_on_its_rows(lanes, together, data, number):
    lane = lanes[number]
    rows = slice(None) if lane.rows is None else lane.rows
    alone = fit(
        lane.model, Data(data.x[rows], data.y[rows]), ROPD(), key=lane.key, recipe=lane.recipe
    )
    assert tiny.same_fit(alone, together[number])


def test_lanes_are_scaled_by_their_own_rows(lanes, together, data):
    for lane, result in zip(lanes, together, strict=True):
        rows = slice(None) if lane.rows is None else lane.rows
        own = Scaling.of(Data(data.x[rows], data.y[rows]))
        for field in dataclasses.fields(Scaling):
            np.testing.assert_array_equal(
                getattr(result.scaling, field.name), getattr(own, field.name)
            )


def test_the_final_loss_is_the_full_objective(lanes, together, data):
    """In float32 the two orders of summation agree to some units in the last place."""
    for lane, result in zip(lanes, together, strict=True):
        rows = slice(None) if lane.rows is None else lane.rows
        own = Data(data.x[rows], data.y[rows])
        truth = objective_at(
            ROPD(), result.model, own, result.scaling, kl_weight=lane.recipe.kl_weight
        )
        np.testing.assert_allclose(result.loss, truth, rtol=1e-5)


def test_history_has_one_finite_loss_per_epoch(together):
    assert [result.n_epochs for result in together] == [4, 11, 12]
    assert [result.n_steps for result in together] == [12, 22, 12]
    assert all(np.isfinite(result.history).all() for result in together)


def test_the_final_value_of_a_sampled_objective_averages_fresh_draws(data):
    """At a learning rate of 0 the epochs of a longer run are the passes that end a shorter one."""
    recipe = tiny.recipe(learning_rate=0.0)
    short, long = (
        fit(tiny.model(), data, SampledVI(), key=KEY, recipe=recipe.replace(max_steps=3 * epochs))
        for epochs in (4, 20)
    )
    np.testing.assert_allclose(short.loss, long.history[4:].mean(), rtol=1e-6)
    assert np.ptp(long.history[4:]) > 0


def by_hand(model, data, scaling, optimizer, n_steps):
    """Plain gradient descent with Optax on the whole data, one step at a time."""
    structure, params, constants = take_apart(model)
    x = (data.x - scaling.x_shift) / scaling.x_scale
    y = (data.y - scaling.y_shift) / scaling.y_scale
    state, history = optimizer.init(params), []
    update = tiny.quick_jit(optimizer.update)
    for _ in range(n_steps):
        model = structure.build(params, constants)
        loss, gradient = tiny.loss_and_gradient(VI(), model, x, y, np.ones(data.n_rows))
        updates, state = update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        history.append(float(loss))
    return np.asarray(params), np.array(history)


@pytest.mark.parametrize("kind", ["Adam", "momentum"])
def test_full_batch_training_is_plain_gradient_descent(kind, x64):
    """Against a loop written out with Optax, in float64."""
    x, y = tiny.arrays(70)
    data = Data(x, y)
    momentum = optax.sgd(0.02, momentum=0.9)
    ours = None if kind == "Adam" else momentum
    recipe = tiny.recipe(max_steps=25, batch_size=None, learning_rate=0.05)
    result = fit(tiny.model(), data, VI(), key=KEY, recipe=recipe, optimizer=ours)
    theirs = optax.adam(0.05) if kind == "Adam" else momentum
    params, history = by_hand(tiny.model(), data, Scaling.of(data), theirs, 25)
    np.testing.assert_allclose(result.history, history, rtol=1e-11)
    np.testing.assert_allclose(tiny.params(result.model), params, rtol=1e-9, atol=1e-11)


def test_float64_inside_enable_x64(x64):
    """The lanes' threads compute in the caller's precision."""
    x, y = tiny.arrays(70)
    data = Data(x, y)
    result = fit(tiny.model(), data, VI(), key=KEY, recipe=tiny.recipe(batch_size=None))
    assert tiny.params(result.model).dtype == np.float64
    truth = float(objective_at(VI(), result.model, data, result.scaling))
    np.testing.assert_allclose(result.loss, truth, rtol=1e-14)


def test_a_weight_of_two_is_the_row_twice(x64):
    """Scaling included, in the full-batch path, in float64."""
    x, y = tiny.arrays(70)
    repeats = np.where(np.arange(70) % 7 == 0, 2, 1)
    repeats[3] = 0
    weighted = Data(x, y, repeats)
    rows = np.repeat(np.arange(70), repeats)
    repeated = Data(x[rows], y[rows])
    recipe = tiny.recipe(batch_size=None)
    a, b = (fit(tiny.model(), each, VI(), key=KEY, recipe=recipe) for each in (weighted, repeated))
    np.testing.assert_allclose(a.history, b.history, rtol=1e-12)
    np.testing.assert_allclose(tiny.params(a.model), tiny.params(b.model), rtol=1e-9, atol=1e-11)


def test_known_input_errors_reach_the_network():
    """In the user's units: the variance is divided by the input's own."""
    x, y = tiny.arrays(70)
    x = x * np.array([100.0, 0.01])
    x_var = np.tile([400.0, 1e-5], (70, 1))
    data = Data(x, y, x_var=x_var)
    result = fit(tiny.model(), data, ROPD(), key=KEY, recipe=tiny.recipe())
    truth = objective_at(ROPD(), result.model, data, result.scaling)
    np.testing.assert_allclose(result.loss, truth, rtol=1e-5)
    without = objective_at(ROPD(), result.model, Data(x, y), result.scaling)
    assert abs(truth - without) > 1e-3


def test_constants_are_not_trained(data):
    """A dropout rate and a fixed prior stay as given, while everything else moves."""
    model = tiny.model(hidden_noise=Dropout(0.3), prior=priors.FixedGaussian(0.1, 0.7))
    result = fit(model, data, ROPD(), key=KEY, recipe=tiny.recipe())
    before, after = take_apart(model), take_apart(result.model)
    assert len(before[2]) == 4  # the rate's probability and scale, the prior's two numbers
    for a, b in zip(before[2], after[2], strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.all(np.asarray(before[1]) != np.asarray(after[1]))


class TestRestarts:
    """Several starts, of which the training loss picks one."""

    def test_the_lowest_training_loss_is_kept(self, data):
        recipe = tiny.recipe(kl_warmup=6)
        best = fit_restarts(
            lambda key: tiny.model(int(jax.random.randint(key, (), 0, 100))),
            data,
            ROPD(),
            key=KEY,
            n_restarts=3,
            recipe=recipe,
        )
        assert len(set(best.restart_losses)) == 3
        assert best.loss == min(best.restart_losses)
        truth = objective_at(ROPD(), best.model, data, best.scaling)
        np.testing.assert_allclose(best.loss, truth, rtol=1e-5)

    def test_every_other_start_goes_without_warmup(self):
        lanes = restart_lanes(
            lambda key: tiny.model(), key=KEY, n_restarts=4, recipe=tiny.recipe(kl_warmup=6)
        )
        assert [lane.recipe.kl_warmup for lane in lanes] == [6, 0, 6, 0]
        keys = {tuple(np.asarray(jax.random.key_data(lane.key))) for lane in lanes}
        assert len(keys) == 4

    def test_a_start_without_a_finite_loss_never_wins(self, together):
        bad = [dataclasses.replace(together[0], loss=x) for x in (np.nan, -np.inf, np.inf)]
        assert best_of([*bad, together[1]]).model is together[1].model

    def test_no_restarts_are_refused(self, data):
        with pytest.raises(ValueError, match="n_restarts must be at least 1, but is 0"):
            fit_restarts(lambda key: tiny.model(), data, ROPD(), key=KEY, n_restarts=0)


def test_the_progress_bar_shows_lanes_and_loss(lanes, together, data, monkeypatch):
    """And changes nothing."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr("rich.console.Console", lambda **options: console)  # on standard error
    shown = fit_many(lanes, data, ROPD(), progress=True)
    text = screen.getvalue()
    assert "training" in text
    assert "lanes 3/3" in text
    assert "100%" in text
    assert "loss" in text
    assert all(tiny.same_fit(a, b) for a, b in zip(shown, together, strict=True))
