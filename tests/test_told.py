"""What users are told of a fit: in warnings of their own kind, and not where nothing is wrong."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from varprop import FAWNRegressor, FitWarning, StackedRegressor

pytestmark = pytest.mark.usefixtures("as_users_run_it")


def told(model, *args):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(*args)
    return {warning.category: str(warning.message) for warning in found}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(120, 2))
    return X, 5 * X[:, 0] + np.sin(6 * X[:, 1]) + 0.3 * rng.normal(size=120)


def test_a_sound_fit_says_nothing(data):
    model = FAWNRegressor((10,), max_iter=6000, tol=0.01, n_iter_no_change=500, random_state=0)
    assert told(model, *data) == {}
    assert model.outcome_ == "converged"
    assert model.trust_ > 0.9


def test_the_limit_of_epochs_is_said(data):
    found = told(FAWNRegressor((4,), max_iter=20, random_state=0), *data)
    assert found[ConvergenceWarning].startswith("Training ended after 20 epochs, before the loss")


def test_a_network_that_is_far_too_sure_is_named(data):
    X, y = data
    noisy = y + 3 * np.random.default_rng(1).normal(size=120)
    model = FAWNRegressor(max_iter=8000, kl_weight=0.01, kl_warmup=0, random_state=0)
    sentence = told(model, X, noisy)[FitWarning]
    assert sentence.startswith("the network is far too sure of itself: rows it was not trained on")
    assert f"It has {model.trust_:.0%} of the prediction" in sentence
    assert model.trust_ < 0.7


def test_a_network_pruned_to_a_constant_is_named(data):
    X, _ = data
    noise = np.random.default_rng(2).normal(size=120)
    model = FAWNRegressor((5,), max_iter=4000, kl_warmup=0, kl_weight=5.0, random_state=0)
    sentence = told(model, X, noise)[FitWarning]
    assert sentence.startswith("the network was pruned to a constant")


def test_noise_at_its_floor_is_named(data):
    """A target on a grid that is known exactly: nothing but the floor holds the noise."""
    X = np.repeat(np.arange(12.0), 10)[:, None] + 0.01 * np.random.default_rng(0).normal(
        size=(120, 1)
    )
    y = np.round(X[:, 0])
    model = FAWNRegressor((20,), max_iter=6000, kl_warmup=0, kl_weight=0.1, random_state=0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert any("the noise ended at the floor" in str(warning.message) for warning in found)


def test_more_inputs_than_rows_are_named(data):
    """By a network and by the stack, whose rows that repeat count once."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 25)), rng.normal(size=20)
    sentence = "there are 25 inputs and only 20 rows"
    for model in (FAWNRegressor((2,), max_iter=2), StackedRegressor([])):
        with pytest.warns(FitWarning, match=sentence):
            model.fit(X, y)
    with pytest.warns(FitWarning, match=sentence):
        StackedRegressor([]).fit(np.tile(X, (2, 1)), np.tile(y, 2))
    assert not any("inputs and only" in said for said in told(StackedRegressor([]), *data).values())


@pytest.mark.parametrize("weight", [1 / 120, 1e6])
def test_weights_that_say_how_many_rows_there_are(data, weight):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        FAWNRegressor((4,), max_iter=20, random_state=0).fit(*data, np.full(120, weight))
    assert any("the sample weights sum to" in str(warning.message) for warning in found)


def test_digits_that_are_lost_are_named(data):
    X, y = data
    far = X.copy()
    far[3, 1] = 1e12
    assert "column 'X[:, 1]' has values so far from the others" in told(
        FAWNRegressor((4,), max_iter=20, random_state=0), far, y
    ).get(FitWarning, "")
    precise = told(FAWNRegressor((4,), max_iter=20, dtype="float64", random_state=0), far, y)
    assert "single precision" not in precise.get(FitWarning, "")


def test_partial_fit_says_nothing(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FAWNRegressor((4,), random_state=0).partial_fit(*data)
