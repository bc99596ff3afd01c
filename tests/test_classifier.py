"""FAWNClassifier: what it recovers, what it keeps, and what it says of bad input."""

import warnings

import numpy as np
import pytest
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from varprop import FAWNClassifier, FAWNRegressor, FitWarning, Recipe, StackedClassifier, export
from varprop.data.source import Data
from varprop.files.container import ModelFileError

pytestmark = pytest.mark.usefixtures("as_users_run_it")

SHORT = {"validation": None, "max_iter": 40, "random_state": 0}


@pytest.fixture(scope="module")
def table():
    """Three classes with text labels, not equally often, in two inputs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(240, 2))
    score = np.stack([x[:, 0], x[:, 1] - 0.5, -x[:, 0] - x[:, 1]], 1) * 2
    code = (score + rng.gumbel(size=score.shape)).argmax(axis=1)
    return x, np.array(["low", "mid", "top"])[code]


@pytest.fixture(scope="module")
def fitted(table):
    with pytest.warns(ConvergenceWarning):
        return FAWNClassifier(8, max_iter=60, validation="bag", random_state=0).fit(*table)


def test_logistic_regression_is_recovered():
    """No hidden layer: slopes and intercept within 4 standard errors of the simulation's."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(3000, 2))
    truth, intercept = np.array([1.0, -0.5]), 0.4
    p = expit(x @ truth + intercept)
    y = rng.uniform(size=len(x)) < p
    recipe = Recipe(max_steps=1500, kl_warmup=100, cooldown=500, batch_size=None)
    model = FAWNClassifier((), validation=None, recipe=recipe, random_state=0).fit(x, y)
    at = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    odds = model.decision_function(at)
    # Fisher information of the true parameters.
    design = np.column_stack([np.ones(len(x)), x])
    cov = np.linalg.inv(design.T @ (design * (p * (1 - p))[:, None]))
    found = np.array([odds[0], odds[1] - odds[0], odds[2] - odds[0]])
    error = np.abs(found - [intercept, *truth]) / np.sqrt(np.diag(cov))
    assert error.max() < 4  # the prior's pull is far below one
    assert model.classes_.tolist() == [False, True]
    # Its own idea of what is chance: the mean entropy of the simulation.
    dist = model.predict_dist(x)
    np.testing.assert_allclose(
        dist.aleatoric.mean(), -np.mean(p * np.log(p) + (1 - p) * np.log1p(-p)), atol=0.03
    )
    assert dist.epistemic.mean() < 0.01


def test_predictions_fit_together(fitted, table):
    x, y = table
    dist = fitted.predict_dist(x)
    proba = fitted.predict_proba(x)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert fitted.classes_.tolist() == ["low", "mid", "top"]
    assert (fitted.predict(x) == fitted.classes_[proba.argmax(axis=1)]).all()
    np.testing.assert_allclose(np.exp(fitted.predict_log_proba(x)), proba)
    np.testing.assert_allclose(fitted.decision_function(x), fitted.predict_log_proba(x))
    assert fitted.log_score(x, y) == pytest.approx(-log_loss(y, proba))
    assert fitted.score(x, y) == np.mean(fitted.predict(x) == y)
    assert fitted.score(x, y) > 0.6
    np.testing.assert_allclose(dist.aleatoric + dist.epistemic, dist.entropy())
    assert len(fitted.members_) == 6
    assert 0 < fitted.trust_ <= 1
    shares = np.array([np.mean(y == label) for label in fitted.classes_])
    np.testing.assert_allclose(fitted.constant_numbers_, (240 * shares + 1 / 3) / 241)


def test_doubt_grows_away_from_the_rows(fitted, table):
    inside, outside = fitted.predict_dist(table[0]), fitted.predict_dist(40 * table[0])
    assert outside.epistemic.mean() > inside.epistemic.mean()


def test_a_file_keeps_it_to_the_bit(fitted, table, tmp_path):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    found = FAWNClassifier.load(path)
    assert (found.predict_proba(table[0]) == fitted.predict_proba(table[0])).all()
    assert found.predict(table[0]).tolist() == fitted.predict(table[0]).tolist()
    with pytest.raises(ModelFileError, match="holds a FAWNClassifier, not a FAWNRegressor"):
        FAWNRegressor.load(path)


def test_onnx_gives_the_probabilities(fitted, table, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    export(fitted, tmp_path / "m.onnx", to="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    (found,) = session.run(["probabilities"], {"X": table[0]})
    np.testing.assert_allclose(found, fitted.predict_proba(table[0]), atol=2e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["softmax", "ordinal"])
def test_other_likelihoods_and_weights(table, tmp_path, kind):
    x, y = table
    model = FAWNClassifier(5, likelihood=kind, class_weight={"low": 1, "mid": 9, "top": 1}, **SHORT)
    model.fit(x, y)
    plain = FAWNClassifier(5, likelihood=kind, **SHORT).fit(x, y)
    middle = [m.predict_proba(x)[:, 1].mean() for m in (plain, model)]
    assert middle[1] > middle[0] + 0.1
    repeated = FAWNClassifier(5, likelihood=kind, **SHORT)
    repeated.fit(x, y, sample_weight=np.where(y == "mid", 9, 1))
    np.testing.assert_array_equal(repeated.predict_proba(x), model.predict_proba(x))
    model.save(tmp_path / "m.safetensors")
    found = FAWNClassifier.load(tmp_path / "m.safetensors")
    assert found.class_weight == {"low": 1.0, "mid": 9.0, "top": 1.0}
    assert (found.predict_proba(x) == model.predict_proba(x)).all()


@pytest.mark.filterwarnings("ignore")
def test_going_on(table):
    x, y = table
    model = FAWNClassifier(5, validation=None, random_state=0)
    some = y != "top"
    with pytest.raises(ValueError, match="classes must be given in the first call"):
        model.partial_fit(x, y)
    model.partial_fit(x[some], y[some], classes=["top", "low", "mid"])
    assert model.predict_proba(x).shape == (240, 3)
    before = model.log_score(x, y)
    for _ in range(60):
        model.partial_fit(x, y)
    assert model.log_score(x, y) > before
    with pytest.raises(ValueError, match="'new', which is none of the 3 classes"):
        model.partial_fit(x[:2], ["new", "low"])
    with pytest.raises(ValueError, match="not those of the call before"):
        model.partial_fit(x, y, classes=["a", "b"])


@pytest.mark.filterwarnings("ignore")
def test_a_source_of_numbered_classes_and_a_class_of_one_row(table):
    x, y = table
    codes = np.searchsorted(["low", "mid", "top"], y)
    codes[0] = 3
    ours = FAWNClassifier(5, **SHORT).fit(Data(x, codes.astype(float)))
    theirs = FAWNClassifier(5, **SHORT).fit(x, codes)
    np.testing.assert_array_equal(ours.predict_proba(x), theirs.predict_proba(x))
    assert theirs.classes_.tolist() == ours.classes_.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("y", "options", "says"),
    [
        (["a"] * 4, {}, "y has one class only, .*'a'.*: a classifier needs at least two classes"),
        (["a", "b", "c", "a"], {"likelihood": "logit"}, "is for two classes, but y has 3"),
        ([0.0, np.nan, 1.0, 0.0], {}, "NaN"),
        ([0.1, 0.2, 0.35, 7.5], {}, "continuous"),
        (None, {}, "requires y to be passed"),
        ([0, 1, 0, 1], {"likelihood": "gaussian"}, "likelihood"),
        ([0, 1, 0], {}, "inconsistent numbers of samples"),
    ],
)
def test_bad_input_is_one_sentence(y, options, says):
    with pytest.raises(ValueError, match=says):
        FAWNClassifier(**options).fit(np.arange(8.0).reshape(4, 2), y)


def test_a_negative_class_weight_is_named():
    model = FAWNClassifier(class_weight={"no": 1, "yes": -2})
    with pytest.raises(ValueError, match=r"class_weight must not be negative: .*'yes': -2"):
        model.fit(np.arange(8.0).reshape(4, 2), ["no", "yes", "no", "yes"])


def test_a_class_of_one_row_is_told():
    X, y = np.arange(40.0)[:, None], np.array(["a", "b"] * 20, dtype="<U5")
    y[3] = "alone"
    stack = StackedClassifier([("network", FAWNClassifier(3, max_iter=20))])
    for model in (FAWNClassifier(3, max_iter=20, validation=None), stack):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model.fit(X, y)
        said = [str(one.message) for one in told if issubclass(one.category, FitWarning)]
        assert sum("the class 'alone' has one row only" in sentence for sentence in said) == 1


def test_labels_that_are_new_when_scoring(fitted, table):
    with pytest.raises(ValueError, match="'new', which is none of the 3 classes the model knows"):
        fitted.log_score(table[0], np.full(240, "new"))


def test_a_regressor_has_no_probabilities():
    assert not hasattr(FAWNRegressor(), "predict_proba")
    with pytest.raises(AttributeError, match="FAWNClassifier"):
        FAWNRegressor().predict_proba([[0.0]])
