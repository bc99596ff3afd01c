"""StackedRegressor: its weights, what it predicts, files, and scikit-learn's own checks."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from varprop import FAWNRegressor, FitWarning, StackedRegressor, default_networks, export, metrics
from varprop.data.source import Data
from varprop.files.container import ModelFileError
from varprop.files.plan import load_plan
from varprop.predictive import Predictive

pytestmark = pytest.mark.usefixtures("as_users_run_it")
QUICK = {"hidden_layer_sizes": (8,), "max_iter": 40}


def quick(**options):
    return StackedRegressor(default_networks(n_rows=60, **QUICK, **options), random_state=0)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60)


@pytest.fixture(scope="module")
def fitted(data):
    return quick().fit(*data)


def test_predicts_the_mixture_of_its_parts(fitted, data):
    X, _ = data
    weights = fitted.weights_
    assert list(weights) == ["vi", "cold", "linear", "constant"]
    assert sum(weights.values()) == pytest.approx(1)
    parts = [fitted.predict_dist(X, model=name) for name in weights]
    whole = Predictive.mixture(parts, list(weights.values()))
    at = np.linspace(-2, 2, 60)
    np.testing.assert_allclose(fitted.predict_dist(X).logpdf(at), whole.logpdf(at), rtol=1e-9)
    assert not fitted.predict_dist(X).identified  # a cold network does not tell
    assert fitted.predict_dist(X, model="vi").identified


def test_out_of_fold_scores_are_those_of_rows_not_seen(data):
    """By hand for the linear model: five fits of scikit-learn's, each scored on its own fold."""
    from sklearn.linear_model import BayesianRidge

    from varprop.estimators.validation import SetAside

    X, y = data
    model = StackedRegressor([], random_state=3).fit(X, y)
    order = np.lexsort((y, X[:, 1], X[:, 0]))  # rows are put in order first
    seed = int(np.random.RandomState(3).randint(np.iinfo(np.int32).max))
    aside = SetAside.of(Data(X[order], y[order]), seed, every_row=True)
    Z, t = (X[order] - X.mean(0)) / X.std(0), (y[order] - y.mean()) / y.std()
    total = 0.0
    for fold in aside.folds:
        line = BayesianRidge().fit(Z[fold.rows], t[fold.rows])
        inside = np.setdiff1d(np.arange(60), fold.rows)
        mean, std = line.predict(Z[inside], return_std=True)
        total += (0.5 * ((t[inside] - mean) / std) ** 2 + np.log(std * y.std())).sum()
    by_hand = total / 60 + 0.5 * np.log(2 * np.pi)
    assert model.out_of_fold_nll_["linear"] == pytest.approx(by_hand, rel=1e-9)


def test_the_best_part_has_the_largest_weight():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 2))
    line = StackedRegressor([], random_state=0).fit(X, X @ [1.0, 2.0] + 0.1 * rng.normal(size=80))
    assert line.weights_["linear"] > 0.99
    noise = StackedRegressor([], random_state=0)
    with pytest.warns(FitWarning, match="is the constant Gaussian: no model found much"):
        noise.fit(X, np.where(rng.uniform(size=80) < 0.5, 5.0, -5.0) * np.ones(80))
    assert noise.weights_["constant"] > 0.9


def test_it_is_said_that_nothing_was_found_whoever_says_so():
    """A part that hardly helps may have some of the constant's weight."""
    rng = np.random.default_rng(15)
    X, y = rng.normal(size=(200, 1)), rng.normal(size=200)
    noise = StackedRegressor([], random_state=0)
    with pytest.warns(FitWarning, match="the rest makes it hardly better: no model found much"):
        noise.fit(X, y)
    assert noise.weights_["constant"] < 0.9


@pytest.mark.parametrize(("n", "parts"), [(2, 1), (4, 1), (5, 2), (9, 2)])
def test_few_rows_are_left_to_simple_models(data, n, parts):
    X, y = data
    with pytest.warns(FitWarning, match=f"{n} different rows are too few for a network"):
        model = quick().fit(X[:n], y[:n])
    assert list(model.weights_) == ["linear", "constant"][-parts:]
    assert np.isfinite(model.predict_dist(X).logpdf(y)).all()


def test_identical_rows_are_known_by_their_mean(data):
    X, _ = data
    with pytest.warns(FitWarning, match="1 different rows are too few"):
        model = quick().fit(np.ones((7, 2)), np.full(7, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0)


def test_a_file_holds_all_of_it(fitted, data, tmp_path):
    X, y = data
    fitted.save(tmp_path / "model.safetensors")
    loaded = StackedRegressor.load(tmp_path / "model.safetensors")
    for model in (None, *fitted.weights_):
        a, b = (m.predict_dist(X, model=model) for m in (fitted, loaded))
        np.testing.assert_array_equal(a.logpdf(y), b.logpdf(y))
    assert loaded.weights_ == fitted.weights_
    assert loaded.out_of_fold_nll_ == fitted.out_of_fold_nll_
    np.testing.assert_array_equal(loaded.outside(X).far, fitted.outside(X).far)
    assert loaded.share_seen(X, y) == 1.0
    assert loaded.share_seen(X + 1, y) == 0.0
    again = clone(loaded).set_params(random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))


def test_a_file_of_one_network_is_a_stack_of_one(data, tmp_path):
    X, y = data
    network = FAWNRegressor(**QUICK, random_state=0).fit(X, y)
    network.save(tmp_path / "model.safetensors")
    stack = StackedRegressor.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(
        stack.predict_dist(X).logpdf(y), network.predict_dist(X).logpdf(y), rtol=1e-12
    )
    assert list(stack.weights_) == ["network", "constant"]
    StackedRegressor([]).fit(X, y).save(tmp_path / "stack.safetensors")
    with pytest.raises(ModelFileError, match="holds no FAWNRegressor: 'StackedRegressor'"):
        FAWNRegressor.load(tmp_path / "stack.safetensors")


def test_onnx_gives_the_mixtures_moments(fitted, data, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, _ = data
    export(fitted, tmp_path / "model.onnx", to="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    mean, std = session.run(None, {"X": X})
    found = fitted.predict_dist(X)
    np.testing.assert_allclose(mean[:, 0], found.mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(std[:, 0], found.std, rtol=1e-4)


def test_is_the_same_in_any_order_and_by_weights(data):
    X, y = data
    order = np.random.default_rng(0).permutation(60)
    base = quick().fit(X, y)
    np.testing.assert_array_equal(quick().fit(X[order], y[order]).predict(X), base.predict(X))
    twice = quick().fit(np.repeat(X, 2, 0), np.repeat(y, 2))
    weighted = quick().fit(X, y, np.full(60, 2.0))
    np.testing.assert_array_equal(twice.predict(X), weighted.predict(X))


def test_several_targets_and_their_covariance(data):
    X, y = data
    Y = np.column_stack([y, -3 * y + X[:, 1]])
    model = quick(output_covariance=True).fit(X, Y)
    found = model.predict_dist(X)
    assert found.is_joint
    assert found.mean.shape == (60, 2)
    assert np.isfinite(metrics.nll(Y, found))


def test_inputs_with_errors_are_less_sure(fitted, data):
    X, _ = data
    known, unsure = fitted.predict_dist(X).var, fitted.predict_dist(X, np.ones(2)).var
    assert (unsure > known).mean() > 0.9
    line = fitted.predict_dist(X, np.array([0.0, 0.7]), model="linear").var
    slope = fitted.linear_.coef[0, 1] / X[:, 1].std() * y_scale(fitted)
    spread = np.sqrt(fitted.linear_.cov[0, 1, 1]) / X[:, 1].std() * y_scale(fitted)
    added = line - fitted.predict_dist(X, model="linear").var
    np.testing.assert_allclose(added, 0.49 * (slope**2 + spread**2), rtol=1e-6)


def y_scale(model):
    return model.scaling_.y_scale[0]


@pytest.mark.parametrize(
    ("estimators", "problem"),
    [
        ([("linear", FAWNRegressor())], "the name 'linear', which is taken"),
        ([("a", FAWNRegressor()), ("a", FAWNRegressor())], "the name 'a', which is taken"),
        ([("a", object())], "must be a list of"),
        ("all", "The 'estimators' parameter"),
    ],
)
def test_wrong_estimators_are_named(data, estimators, problem):
    with pytest.raises(ValueError, match=problem):
        StackedRegressor(estimators).fit(*data)


@pytest.fixture(scope="module")
def skewed(data):
    X, _ = data
    y = 1e3 * np.exp(X[:, 0] + 0.2 * np.random.default_rng(1).normal(size=60))
    model = quick().fit(X, y)
    # So short a training would leave one of them without a say.
    model.weights_ = dict(zip(model.weights_, (0.3, 0.2, 0.4, 0.06, 0.04), strict=True))
    return model


def test_targets_are_transformed_where_it_helps(skewed, fitted, data):
    """The logarithm of the density is compared with that of SciPy's own transform."""
    X, y = data
    assert list(skewed.weights_) == ["vi", "skewed", "cold", "linear", "constant"]
    assert "skewed" not in fitted.weights_
    assert "skewed" not in quick(likelihood="student-t").fit(X, np.exp(y)).weights_
    parts = [skewed.predict_dist(X, model=name) for name in skewed.weights_]
    at = np.linspace(50.0, 4e3, 60)
    share = np.array(list(skewed.weights_.values()))
    want = np.log(share @ np.exp([part.logpdf(at) for part in parts]))
    np.testing.assert_allclose(skewed.predict_dist(X).logpdf(at), want, rtol=1e-9)


def test_all_that_a_stack_can_do_it_can_behind_a_transform(skewed, data, tmp_path):
    X, _ = data
    found = skewed.predict_dist(X)
    parts = [skewed.predict_dist(X, model=name) for name in skewed.weights_]
    share = np.array(list(skewed.weights_.values()))
    mean, cov = skewed.predict(X, return_cov=True)
    np.testing.assert_allclose(mean, share @ [part.mean for part in parts], rtol=1e-9)
    np.testing.assert_allclose(np.diag(cov), found.var, rtol=1e-9)
    total = found.total()
    np.testing.assert_allclose([total.mean[0], total.var[0]], [mean.sum(), cov.sum()], rtol=1e-9)
    assert cov.sum() > 1.5 * np.trace(cov)  # rows have their weights in common
    budget = skewed.uncertainty_budget(X, np.array([0.1, 0.0]))
    uncertain = skewed.predict_dist(X, np.array([0.1, 0.0]))
    np.testing.assert_allclose(budget.variance.sum(axis=1), uncertain.var, rtol=1e-8)
    skewed.save(tmp_path / "model")
    plan = load_plan(tmp_path / "model")[0].predict_dist(X)
    for alpha in (0.05, 0.5, 0.99):
        np.testing.assert_allclose(plan.quantile(alpha), found.quantile(alpha), rtol=2e-4)
    np.testing.assert_allclose(plan.std, found.std, rtol=1e-4)
    with pytest.raises(ValueError, match="A plan predicts row by row"):
        plan.total()
    onnxruntime = pytest.importorskip("onnxruntime")
    export(skewed, tmp_path / "model.onnx", to="onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    mean, std = session.run(None, {"X": X})
    np.testing.assert_allclose(mean[:, 0], found.mean, rtol=1e-5)
    np.testing.assert_allclose(std[:, 0], found.std, rtol=1e-4)


def test_an_unknown_part_is_named(fitted, data):
    with pytest.raises(ValueError, match="model must be one of 'vi', 'cold', 'linear', 'constant'"):
        fitted.predict_dist(data[0], model="forest")


def test_a_network_that_fails_does_not_take_the_others_along(data):
    X, y = data
    networks = [("wild", FAWNRegressor(**QUICK, learning_rate_init=1e30))]
    with pytest.warns(FitWarning, match="the network 'wild' is left out: Training became infinite"):
        model = StackedRegressor(networks, random_state=0).fit(X, y)
    assert np.isfinite(model.predict_dist(X).logpdf(y)).all()
    assert list(model.weights_) == ["linear", "constant"]


@parametrize_with_checks([StackedRegressor(default_networks(hidden_layer_sizes=4, max_iter=20))])
def test_scikit_learns_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        check(estimator)


def test_efforts_choose_networks(data):
    X, y = data
    names = {e: [n for n, _ in default_networks(effort=e)] for e in ("quick", "normal", "thorough")}
    assert names["quick"] == ["vi"]
    assert set(names["quick"]) < set(names["normal"]) < set(names["thorough"])
    options = {name: n.get_params() for name, n in default_networks(effort="thorough")}
    for name in ("deep", "cold", "deep vi"):
        assert options[name]["hidden_layer_sizes"] == (50, 50)
    assert options["cold"]["kl_weight"] == 0.3
    colder = dict(default_networks(kl_weight=0.1))["cold"]
    assert colder.kl_weight == pytest.approx(0.03)
    assert options["tails"]["likelihood"] == "student-t"
    with pytest.raises(ValueError, match="effort must be one of quick, normal, thorough"):
        default_networks(effort="none")
    with pytest.raises(ValueError, match="'effort' parameter of StackedRegressor must be"):
        StackedRegressor(effort="none").fit(X, y)


@pytest.mark.parametrize(
    ("n_rows", "names"),
    [
        (699, ["vi", "skewed", "cold"]),
        (700, ["vi", "skewed", "cold", "deep"]),
        (5000, ["vi", "skewed", "cold", "deep", "ropd"]),
    ],
)
def test_networks_by_ropd_want_rows(n_rows, names):
    assert [name for name, _ in default_networks(n_rows=n_rows)] == names


def test_networks_of_a_stack_follow_a_plan(data):
    """A plan that goes to its end is no warning; one that the user cut short is."""
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = StackedRegressor([("n", FAWNRegressor(2))], random_state=0).fit(X, y)
    assert model.outcome_ == "completed"
    assert model.estimators_[0][1].n_iter_ == 8_000
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        StackedRegressor([("n", FAWNRegressor(2, max_iter=20))], random_state=0).fit(X, y)


@pytest.mark.parametrize("weight", [0.1, 3.0])
def test_rows_of_another_weight_are_counted_once_as_well(data, weight):
    """The same network as of rows that weigh 1, but for what it is told of the weights."""
    X, y = data
    network = FAWNRegressor(**QUICK, kl_weight=0.5)
    model = StackedRegressor([("n", network)], random_state=0)
    model.fit(X, y, sample_weight=np.full(60, weight))
    assert list(model.weights_) == ["n", "n, rows once", "linear", "constant"]
    networks = dict(model.estimators_)
    assert networks["n"].kl_weight == 0.5
    assert networks["n, rows once"].kl_weight == pytest.approx(0.5 * weight)
    plain = StackedRegressor([("n", network)], random_state=0).fit(X, y)
    assert list(plain.weights_) == ["n", "linear", "constant"]
    once = model.predict_dist(X, model="n, rows once")
    np.testing.assert_allclose(once.mean, plain.predict_dist(X, model="n").mean, rtol=2e-3)
    assert model.out_of_fold_nll_["n"] != pytest.approx(plain.out_of_fold_nll_["n"], rel=1e-3)
