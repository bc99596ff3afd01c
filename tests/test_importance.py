"""Importance of features on functions whose variance shares are known."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from varprop import FAWNRegressor
from varprop.predictive import Predictive
from varprop.predictive.importance import feature_importance


class Additive:
    """mean = 3 a + 4 b, std = 2 + c: shares 9/25 and 16/25, and all of the spread."""

    def predict_dist(self, X):
        return Predictive.gaussian(3 * X[:, 0] + 4 * X[:, 1], (2 + X[:, 2]) ** 2, 0.0)


class Product:
    """mean = a b of centered features: pure interaction, total effects 1 and 1."""

    def predict_dist(self, X):
        two = np.column_stack([X[:, 0] * X[:, 1], X[:, 2]])
        return Predictive.gaussian(two, np.ones_like(two), 0.0)


def rows(n=20_000):
    return np.random.default_rng(0).uniform(-1, 1, size=(n, 4))


def test_shares_of_an_additive_function():
    out = feature_importance(Additive(), rows(), random_state=0, n_repeats=5)
    np.testing.assert_allclose(out.mean, [9 / 25, 16 / 25, 0, 0], atol=0.02)
    np.testing.assert_allclose(out.spread, [0, 0, 1, 0], atol=0.02)
    assert (out.mean_error < 0.01).all()


def test_interactions_and_several_outputs():
    out = feature_importance(Product(), rows(), random_state=0, n_repeats=5)
    np.testing.assert_allclose(out.mean[:, 0], [1, 1, 0, 0], atol=0.03)
    np.testing.assert_allclose(out.mean[:, 1], [0, 0, 1, 0], atol=0.03)
    np.testing.assert_array_equal(out.spread, np.zeros((4, 2)))


@pytest.mark.usefixtures("as_users_run_it")
def test_trained_network_and_frames():
    # Noise that grows with "dose" leaves the mean to "age"; "idle" does nothing.
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(600, 3))
    y = 2 * X[:, 0] + np.exp(1.5 * X[:, 1]) * 0.3 * rng.normal(size=600)
    frame = pd.DataFrame(X, columns=["age", "dose", "idle"])
    model = FAWNRegressor(20, max_iter=800, random_state=0, kl_weight=0.3).fit(frame, y)
    out = feature_importance(model, frame, random_state=0, n_repeats=3)
    assert out.mean.argmax() == 0
    assert out.mean[0] > 0.9
    assert out.spread.argmax() == 1
    assert out.spread[1] > 0.5


@pytest.mark.usefixtures("as_users_run_it")
def test_columns_of_a_pipeline():
    frame = pd.DataFrame({"kind": ["a", "b"] * 30, "size": np.arange(60.0)})
    y = np.where(frame["kind"] == "a", -5.0, 5.0)
    columns = make_column_transformer((OneHotEncoder(), ["kind"]), remainder="passthrough")
    pipe = make_pipeline(columns, FAWNRegressor(5, max_iter=300, random_state=0)).fit(frame, y)
    assert feature_importance(pipe, frame, random_state=0).mean.argmax() == 0


def test_bad_input():
    with pytest.raises(ValueError, match="n_repeats"):
        feature_importance(Additive(), rows(), n_repeats=1)
    with pytest.raises(ValueError, match="two rows"):
        feature_importance(Additive(), rows(1))
