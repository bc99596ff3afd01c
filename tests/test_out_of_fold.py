"""Training rows, each predicted by models that had not seen it."""

import pickle

import numpy as np
import pytest
from sklearn.linear_model import BayesianRidge

from varprop import FAWNClassifier, FAWNRegressor, StackedClassifier, StackedRegressor
from varprop.data.source import Data
from varprop.estimators.out_of_fold import OutOfFold
from varprop.estimators.validation import Judged, SetAside
from varprop.learning.likelihoods import GaussianLikelihood
from varprop.predictive import Predictive

pytestmark = pytest.mark.usefixtures("as_users_run_it")
QUICK = {"hidden_layer_sizes": (4,), "max_iter": 5}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return X, X @ [1.0, -2.0] + 0.3 * rng.normal(size=60)


def test_a_line_is_fitted_without_the_fold_it_predicts(data):
    """By hand: five fits of scikit-learn's, whatever the order in which rows are asked for."""
    X, y = data
    model = StackedRegressor([], random_state=3).fit(X, y)
    order = np.lexsort((y, X[:, 1], X[:, 0]))  # rows are put in order first
    seed = int(np.random.RandomState(3).randint(np.iinfo(np.int32).max))
    Z, t, mean = (X[order] - X.mean(0)) / X.std(0), (y[order] - y.mean()) / y.std(), np.zeros(60)
    for fold in SetAside.of(Data(X[order], y[order]), seed, every_row=True).folds:
        inside = np.setdiff1d(np.arange(60), fold.rows)
        mean[order[inside]] = BayesianRidge().fit(Z[fold.rows], t[fold.rows]).predict(Z[inside])
    mean = y.mean() + y.std() * mean
    shuffled = np.random.default_rng(1).permutation(60)
    found = model.predict_out_of_fold(X[shuffled], y[shuffled], model="linear")
    np.testing.assert_allclose(found.mean, mean[shuffled], rtol=1e-9)
    np.testing.assert_array_less(
        1e-6,
        np.abs(found.mean - model.linear_.predict_dist(X[shuffled], None, squeeze=True).mean).max(),
    )


def test_weights_of_a_fold_are_those_of_the_other_rows():
    """Two models, each far off in one of two folds: the other fold asks for the wrong one."""
    y = np.zeros(40)
    aside = SetAside.of(Data(np.arange(40.0)[:, None], y[:, None]), 0, every_row=True)
    aside = SetAside(aside.source, aside.folds[:2], 40, 40)
    sizes = [len(fold.held.y) for fold in aside.folds]

    def judged(*means):
        parts = [
            Predictive.gaussian(np.full(n, mean), np.zeros(n), 1.0)
            for n, mean in zip(sizes, means, strict=True)
        ]
        return Judged(aside, tuple(parts), GaussianLikelihood)

    both = {"first": judged(0.0, 5.0), "second": judged(5.0, 0.0)}
    found = OutOfFold.of(aside, both, np.array([0.5, 0.5]))
    assert found.weights[0][1] > 0.95
    assert found.weights[1][0] > 0.95
    # By hand: the mixture's density at 5 standard deviations, and 0, with those weights.
    density = [w * np.exp(-12.5) + (1 - w) for w in (found.weights[0][1], found.weights[1][0])]
    by_hand = 0.5 * np.log(2 * np.pi) - np.average(np.log(density), weights=sizes)
    assert found.nll == pytest.approx(by_hand, rel=1e-9)


def test_copies_and_weights_are_of_one_fold(data):
    X, y = data
    weight = np.arange(1.0, 61.0) % 3  # a third of the rows has none
    model = StackedRegressor([], random_state=0).fit(
        np.repeat(X, 2, axis=0), np.repeat(y, 2), np.repeat(weight, 2)
    )
    there = weight > 0
    found = model.predict_out_of_fold(X[there], y[there])
    scores = np.average(-found.logpdf(y[there]), weights=weight[there])
    assert scores == pytest.approx(model.out_of_fold_nll_["stack"], rel=1e-9)
    with pytest.raises(ValueError, match="row 0 was not set aside: predictions out of fold are"):
        model.predict_out_of_fold(X[~there], y[~there])


def test_networks_errors_of_inputs_exposures_and_classes(data):
    X, y = data
    std, hours = np.full(X.shape, 0.1), np.linspace(1, 3, 60)
    network = FAWNRegressor(**QUICK)
    noisy = StackedRegressor([("n", network)], random_state=0).fit(X, y, X_std=std)
    found = noisy.predict_out_of_fold(X, y, std)
    assert -found.logpdf(y).mean() == pytest.approx(noisy.out_of_fold_nll_["stack"], rel=1e-9)
    alone = noisy.predict_out_of_fold(X, y, std, model="n")
    assert -alone.logpdf(y).mean() == pytest.approx(noisy.out_of_fold_nll_["n"], rel=1e-9)
    counted = np.round(np.exp(0.5 * X[:, 0]) * hours)
    counts = StackedRegressor([("n", network.set_params(likelihood="poisson"))], random_state=0)
    counts.fit(X, counted, exposure=hours)
    found = counts.predict_out_of_fold(X, counted, exposure=hours)
    expected = counts.out_of_fold_nll_["stack"]
    assert -found.logpdf(counted).mean() == pytest.approx(expected, rel=1e-9)
    label = np.where(y > 0, "yes", "no")
    classes = StackedClassifier([("n", FAWNClassifier(**QUICK))], random_state=0).fit(X, label)
    found = classes.predict_out_of_fold(X, label)
    expected = classes.out_of_fold_nll_["stack"]
    assert -found.logpdf(label).mean() == pytest.approx(expected, rel=1e-9)


def test_a_copy_does_not_hold_the_training_rows(data):
    X, y = data
    model = StackedRegressor([], random_state=0).fit(X, y)
    written = pickle.dumps(model)
    row = X[0].tobytes()
    assert row in pickle.dumps(model.__dict__)  # or the next line could not fail
    assert row not in written
    with pytest.raises(ValueError, match="they are not kept with a model that is saved or copied"):
        pickle.loads(written).predict_out_of_fold(X, y)
    np.testing.assert_array_equal(pickle.loads(written).predict(X), model.predict(X))


def test_what_is_not_known_is_said(data, tmp_path):
    X, y = data
    model = StackedRegressor([], random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="model 'vi' was not judged by rows set aside"):
        model.predict_out_of_fold(X, y, model="vi")
    model.save(tmp_path / "m.safetensors")
    loaded = StackedRegressor.load(tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="no predictions out of fold: they are not kept"):
        loaded.predict_out_of_fold(X, y)
