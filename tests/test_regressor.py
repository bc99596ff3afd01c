"""FAWNRegressor: what it learns, what it promises about weights, scales and starts, bad input."""

import pickle
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import varprop
from varprop import FAWNRegressor, SampledVI, nn, priors
from varprop.estimators.options import make_recipe
from varprop.predictive import Predictive
from varprop.predictive.scoring import scorers
from varprop.training import Recipe

# One shape for nearly all tests, so that few programs are compiled.
pytestmark = pytest.mark.usefixtures("as_users_run_it")
N = 60


def quick(**options):
    return FAWNRegressor(**{"hidden_layer_sizes": 8, "max_iter": 60, "random_state": 0} | options)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=N)


@pytest.fixture(scope="module")
def targets(data):
    X, y = data
    return X, np.column_stack([y, -3 * y + X[:, 1], X[:, 0]])


@pytest.fixture(scope="module")
def fitted(data):
    return quick().fit(*data)


@pytest.fixture(scope="module")
def joint(targets):
    return quick(output_covariance=True, n_members=2).fit(*targets)


def test_learns_mean_and_noise():
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, size=(400, 1))
    y = 100 + 50 * np.sin(3 * X[:, 0]) + 5 * rng.normal(size=400)
    model = FAWNRegressor(max_iter=1500, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.97
    _, std = model.predict(X, return_std=True)
    assert np.median(std) == pytest.approx(5.0, rel=0.3)
    lower, upper = model.predict_interval(X, coverage=0.9)
    assert 0.85 < ((lower < y) & (y < upper)).mean() < 0.95
    inference = FAWNRegressor(max_iter=1500, objective="vi", random_state=0).fit(X, y)
    assert inference.noise_std_ == pytest.approx(5.0, rel=0.2)
    assert model.loss_curve_.shape == (model.n_iter_,)


def test_methods_agree(fitted, data):
    X, y = data
    dist = fitted.predict_dist(X)
    assert isinstance(dist, Predictive)
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, fitted.predict(X))
    np.testing.assert_allclose(std**2, fitted.predict_var(X), rtol=1e-12)
    with pytest.raises(AttributeError, match="train with objective='vi'"):
        _ = dist.model_var
    assert fitted.noise_std_ is None
    plain = quick(objective="vi", validation=None).fit(X, y)
    whole = plain.predict_dist(X)
    np.testing.assert_allclose(whole.model_var + whole.noise_var, whole.var, rtol=1e-12)
    np.testing.assert_allclose(whole.noise_var, plain.noise_std_[0] ** 2, rtol=1e-6)
    interval = fitted.predict_interval(X, coverage=0.5)
    assert fitted.predict_quantiles(X, 0.25) == pytest.approx(interval.lower)
    assert fitted.predict_quantiles(X, [0.25, 0.75]).shape == (N, 2)
    assert fitted.predict_quantiles(X, [0.25, 0.75])[:, 1] == pytest.approx(interval.upper)
    assert fitted.sample_y(X, 7).shape == (N, 7)
    assert fitted.log_score(X, y) == pytest.approx(dist.logpdf(y).mean())
    with pytest.raises(RuntimeError, match="At most one"):
        fitted.predict(X, return_std=True, return_cov=True)


def test_several_outputs_with_covariance(joint, targets):
    X, y = targets
    mean, cov = joint.predict(X, return_output_cov=True)
    assert mean.shape == y.shape
    assert cov.shape == (N, 3, 3)
    _, std = joint.predict(X, return_std=True)
    np.testing.assert_allclose(np.diagonal(cov, axis1=1, axis2=2), std**2, rtol=1e-9)
    assert np.abs(cov[:, 0, 1]).max() > 0
    assert joint.sample_y(X, 4).shape == (N, 3, 4)
    assert joint.predict_quantiles(X, [0.1, 0.9]).shape == (N, 3, 2)
    assert joint.predict_dist(X).n_members == 3  # the constant Gaussian is one of them
    assert joint.restart_losses_.shape == (2, 1)


def test_column_target_keeps_its_axis(data, fitted):
    X, y = data
    column = quick().fit(X, y[:, None])
    np.testing.assert_array_equal(column.predict(X)[:, 0], fitted.predict(X))
    assert column.predict(X, return_output_cov=True)[1].shape == (N, 1, 1)
    assert column.predict(X, return_cov=True)[1].shape == (N, N, 1)


@pytest.mark.parametrize(
    ("scale", "shift"), [(2.0**20, 0.0), (1e9, -5e12), (1e-9, 3e-9), (-7.3, 1e4)]
)
def test_affine_changes_of_the_target_change_nothing(data, fitted, scale, shift):
    # Scaled targets differ from the original ones by their own rounding only, hence the tolerance.
    X, y = data
    other = quick().fit(X, scale * y + shift)
    mean, std = fitted.predict(X, return_std=True)
    other_mean, other_std = other.predict(X, return_std=True)
    if scale < 0:  # the network learns the mirrored function from another start
        assert other.score(X, scale * y + shift) == pytest.approx(fitted.score(X, y), abs=0.2)
    else:
        ulp = np.spacing(abs(shift)) / scale
        np.testing.assert_allclose((other_mean - shift) / scale, mean, rtol=1e-5, atol=1e3 * ulp)
        np.testing.assert_allclose(other_std / scale, std, rtol=1e-5)


def test_inputs_far_from_zero_keep_their_digits(data, fitted):
    X, y = data
    far = X * 1e-3 + 1.7e9  # seconds since 1970, of which float32 resolves 128
    model = quick().fit(far, y)
    np.testing.assert_allclose(model.predict(far), fitted.predict(X), atol=0.02)


def test_constant_columns_and_constant_target(data):
    X, y = data
    wide = np.column_stack([X, np.full(N, 7.0)])
    assert np.isfinite(quick().fit(wide, y).predict(wide)).all()
    model = quick(max_iter=300).fit(X, np.full(N, 1e6))
    np.testing.assert_allclose(model.predict(X), 1e6, atol=1.0)


@pytest.mark.parametrize("batch_size", ["auto", 16, None])
def test_a_weight_of_two_is_the_row_twice(data, batch_size):
    X, y = data
    weight = np.random.default_rng(2).integers(0, 4, N)
    rows = np.random.default_rng(3).permutation(np.repeat(np.arange(N), weight))
    weighted = quick(batch_size=batch_size).fit(X, y, sample_weight=weight)
    repeated = quick(batch_size=batch_size).fit(X[rows], y[rows])
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


def test_weights_of_one_and_order_of_rows_change_nothing(data, fitted):
    X, y = data
    order = np.random.default_rng(4).permutation(N)
    model = quick().fit(X[order], y[order], sample_weight=np.ones(N))
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))


def test_input_error_is_propagated(data):
    X, y = data
    model = quick(max_iter=300).fit(X, y, X_std=np.full(X.shape, 0.05))
    _, known = model.predict(X, return_std=True)
    _, unsure = model.predict(X, return_std=True, X_std=[0.5, 0.0])
    assert (unsure > known).all()
    np.testing.assert_allclose(model.predict_var(X, X_std=np.zeros(2)), known**2, rtol=1e-6)


def test_input_error_is_exact_without_hidden_layers(data):
    # With hidden layers an uncertain input is shared by all units, which propagation takes as
    # independent; without any it is exact, and sampling the inputs must agree up to its own error.
    X, y = data
    model = quick(hidden_layer_sizes=(), max_iter=300).fit(X, y)
    std, n = np.array([0.5, 2.0]), 200_000
    x = X[0] + np.random.default_rng(0).normal(size=(n, 2)) * std
    draws = model.predict_dist(x)
    spread = draws.mean.var() + draws.var.mean()
    _, unsure = model.predict(X[:1], return_std=True, X_std=std)
    assert unsure[0] ** 2 == pytest.approx(spread, rel=4.5 * np.sqrt(2 / n))


def test_fit_starts_anew_and_warm_start_goes_on(data, fitted):
    X, y = data
    model = quick().fit(X[:, ::-1], y).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    warm = quick(warm_start=True).fit(X, y)
    first = warm.loss_
    scaling = warm.scaling_
    assert warm.fit(X, y + 1.0).scaling_ is scaling
    assert warm.fit(X, y).fit(X, y).loss_ < first
    with pytest.raises(ValueError, match="n_members is 2"):
        warm.set_params(n_members=2).fit(X, y)
    for change in ({"hidden_layer_sizes": 9}, {"activation": "tanh"}, {"dtype": "float64"}):
        other = clone(warm).set_params(n_members=1, max_iter=1).fit(X, y).set_params(**change)
        with pytest.raises(ValueError, match="settings were changed"):
            other.fit(X, y)
        with pytest.raises(ValueError, match="settings were changed"):
            other.partial_fit(X, y)


def test_partial_fit_goes_on_with_the_optimizers_state(data):
    X, y = data
    model = quick()
    for _ in range(60):
        model.partial_fit(X, y)
    assert model.n_iter_ == 60
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    # Full batches at a constant rate without warm-up: the same path as an uninterrupted training.
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        copy.partial_fit(X, y).predict(X), model.partial_fit(X, y).predict(X)
    )
    with pytest.raises(ValueError, match="y has 2 targets"):
        model.partial_fit(X, np.column_stack([y, y]))


def test_restarts_keep_the_best(data):
    X, y = data
    model = quick(n_restarts=3).fit(X, y)
    assert model.restart_losses_.shape == (1, 3)
    assert model.loss_ == model.restart_losses_.min()


@pytest.mark.parametrize(
    "options",
    [
        {"weights": "bernoulli", "prior": "fixed"},
        {"objective": "sampled-vi"},
        {"objective": SampledVI(n_samples=2), "prior": "per-layer"},
        {"objective": "vi", "prior": priors.FixedGaussian(0.0, 0.5), "dtype": "float64"},
        {"activation": nn.LeakyReLU(0.2), "dropout": 0.1, "dtype": "float64"},
        {"activation": "softplus", "drop_connect": 0.1, "input_noise": 0.1},
    ],
    ids=lambda options: "-".join(options),
)
def test_options_train(data, options):
    X, y = data
    model = clone(quick(kl_warmup=0, **options)).fit(X, y)
    assert model.members_[0].likelihood.log_std.dtype == model.dtype
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert np.isfinite(model.predict(X)).all()


def test_names_of_scikit_learn_become_a_recipe():
    default = Recipe()
    assert make_recipe(FAWNRegressor().get_params(), 10_000) == default
    options = FAWNRegressor(max_iter=100, n_iter_no_change=50, tol=0.0, kl_warmup=3).get_params()
    recipe = make_recipe(options, 1000)
    steps = -(-1000 // default.batch_size)
    assert recipe.max_steps == 100 * steps
    assert recipe.stop.patience * recipe.stop.window == 50 * steps
    assert recipe.stop.tol == 0
    assert recipe.kl_warmup == 3 * steps
    assert recipe.cooldown / recipe.max_steps == pytest.approx(
        default.cooldown / default.max_steps, rel=1e-3
    )
    assert make_recipe(FAWNRegressor().get_params(), 128).batch_size is None


def test_tol_stops_early(data):
    X, y = data
    model = quick(max_iter=5000, tol=0.05, n_iter_no_change=20, kl_warmup=0).fit(X, y)
    assert model.outcome_ == "converged"
    assert model.n_iter_ < 5000


# ---- the ecosystem ----------------------------------------------------------------------------


def test_pipeline_search_and_scorers(data):
    X, y = data
    frame = pd.DataFrame(X, columns=["a", "b"]).assign(kind=np.where(X[:, 0] > 0, "x", "z"))
    encode = make_column_transformer(
        (OneHotEncoder(sparse_output=False), ["kind"]), (StandardScaler(), ["a", "b"])
    ).set_output(transform="pandas")
    pipe = make_pipeline(encode, quick())
    search = GridSearchCV(
        pipe, {"fawnregressor__kl_weight": [0.3, 1.0]}, cv=2, scoring=scorers()["nll"]
    ).fit(frame, y)
    assert search.best_params_["fawnregressor__kl_weight"] in (0.3, 1.0)
    names = search.best_estimator_[-1].feature_names_in_
    assert list(names) == [
        "onehotencoder__kind_x",
        "onehotencoder__kind_z",
        "standardscaler__a",
        "standardscaler__b",
    ]


def test_cross_validation_in_other_processes(data):
    X, y = data
    scores = cross_val_score(quick(), X, y, cv=2, n_jobs=2)
    np.testing.assert_allclose(scores, cross_val_score(quick(), X, y, cv=2), rtol=1e-6)


def test_metadata_routing(data):
    X, y = data
    weight, error = np.ones(N), np.full(X.shape, 0.1)
    with config_context(enable_metadata_routing=True):
        model = quick().set_fit_request(sample_weight=True, X_std=True)
        model.set_score_request(sample_weight=True, X_std=True)
        model.set_predict_request(X_std=True)
        out = cross_validate(
            model, X, y, cv=2, params={"sample_weight": weight, "X_std": error}, error_score="raise"
        )
    half = quick().fit(X[N // 2 :], y[N // 2 :], X_std=error[N // 2 :])
    expected = half.score(X[: N // 2], y[: N // 2], X_std=error[: N // 2])
    assert out["test_score"][0] == pytest.approx(expected)


def test_import_is_light():
    code = (
        "import sys, varprop; "
        "bad = {'sklearn', 'pandas', 'matplotlib', 'onnx', 'skpro'} & set(sys.modules); "
        "assert not bad, bad; varprop.FAWNRegressor; assert 'sklearn' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nothing"):
        varprop.nothing  # noqa: B018


# ---- bad input --------------------------------------------------------------------------------


def _frame(X, **changes):
    return pd.DataFrame(X, columns=["age", "size"]).assign(**changes)


def _with(X, value):
    X = X.copy()
    X[3, 1] = value
    return X


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda m, X, y: m.fit(_with(X, np.nan), y), ValueError, "1.' is NaN in row 3"),
        (lambda m, X, y: m.fit(_with(X, -np.inf), y), ValueError, "1.' is infinite .* in row 3"),
        (
            lambda m, X, y: m.fit(_frame(_with(X, np.nan)), y),
            ValueError,
            "column 'size' is NaN in row 3",
        ),
        (
            lambda m, X, y: m.fit(_frame(X, age=["old"] * N), y),
            ValueError,
            "text 'old' in column 'age'",
        ),
        (
            lambda m, X, y: m.fit(np.array([["1", "b"], ["2", "c"]]), [0, 1]),
            ValueError,
            "text 'b' in column 1",
        ),
        (
            lambda m, X, y: m.fit(X, _with(y[:, None] + [0, 0], np.nan)),
            ValueError,
            "y contains NaN",
        ),
        (
            lambda m, X, y: m.fit(X, y, [-1.0] * N),
            ValueError,
            "'sample_weight' is -1 in row 0: it must not be negative",
        ),
        (lambda m, X, y: m.fit(X, y, np.zeros(N)), ValueError, "not be zero in all rows"),
        (lambda m, X, y: m.fit(X, y, np.ones(3)), ValueError, r"shape \(3,\), but there are 60"),
        (lambda m, X, y: m.fit(X, y, ["a"] * N), ValueError, "one number per row"),
        (lambda m, X, y: m.fit(X[:1], y[:1]), ValueError, r"1 sample\(s\)"),
        (lambda m, X, y: m.fit(X[:0], y[:0]), ValueError, r"0 sample\(s\)"),
        (lambda m, X, y: m.fit(X[:, :0], y), ValueError, r"0 feature\(s\)"),
        (lambda m, X, y: m.fit(X, y, X_std=_with(X * 0, -0.5)), ValueError, "is -0.5 in row 3"),
        (lambda m, X, y: m.fit(X, y, X_std=_with(X * 0, np.nan)), ValueError, "is nan in row 3"),
        (lambda m, X, y: m.fit(X, y, X_std=np.ones(5)), ValueError, r"X_std has shape \(5,\)"),
        (lambda m, X, y: m.fit(X, y, X_std="much"), ValueError, "X_std must hold numbers"),
        (lambda m, X, y: m.predict(X), NotFittedError, "not fitted yet"),
        (lambda m, X, y: m.fit(X, y[:-1]), ValueError, "inconsistent numbers of samples"),
        (
            lambda m, X, y: m.set_params(learning_rate_init=1e25).fit(X, y),
            ValueError,
            "lower learning_rate_init",
        ),
    ],
)
def test_bad_input(data, call, error, sentence):
    with pytest.raises(error, match=sentence):
        call(quick(), *data)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m, X, y: m.predict(X[:, :1]), "1 features, but FAWNRegressor is expecting 2"),
        (lambda m, X, y: m.predict(X[:0]), "0 sample"),
        (lambda m, X, y: m.predict(_with(X, np.nan)), "NaN in row 3, column 1"),
        (lambda m, X, y: m.predict(X, X_std=-np.ones(2)), "negative, but is -1 in row 0"),
        (lambda m, X, y: m.predict(1e39 * X), "row 0 is not finite"),
        (lambda m, X, y: m.score(X, np.column_stack([y, y])), "different number of output"),
        (lambda m, X, y: m.log_score(X, np.column_stack([y, y])), "y_true has shape"),
    ],
)
def test_bad_input_to_a_fitted_model(data, fitted, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(fitted, *data)


def test_feature_names_in_another_order(data):
    X, y = data
    model = quick().fit(_frame(X), y)
    with pytest.raises(ValueError, match="same order"):
        model.predict(_frame(X)[["size", "age"]])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hidden_layer_sizes": (3, 0)}, "hidden_layer_sizes must be whole numbers .* one is 0"),
        ({"hidden_layer_sizes": 2.5}, "'hidden_layer_sizes' .* Got 2.5"),
        ({"activation": "sine"}, "activation must be one of 'identity', 'relu'.* is 'sine'"),
        ({"objective": "mse"}, "objective must be one of"),
        ({"weights": "binary"}, "weights must be one of"),
        ({"weights": "bernoulli", "objective": "sampled-vi"}, "have no gradient"),
        ({"weights": "bernoulli", "prior": "per-layer"}, "for weights='gaussian' only"),
        ({"prior": 3}, "'prior' .* must be a str among .* Got 3"),
        ({"prior": priors.LearnedGaussianPerLayer(3)}, "prior has 3 layers, .* network has 2"),
        ({"kl_weight": -1}, r"'kl_weight' .* in the range \[0.0, inf\).* Got -1"),
        ({"dropout": 1.0}, r"'dropout' .* in the range \[0.0, 1.0\). Got 1.0"),
        ({"n_members": 0}, "'n_members' .* must be an int .* Got 0"),
        ({"max_iter": 2.5}, "'max_iter' .* must be an int .* Got 2.5"),
        ({"tol": "small"}, "'tol' .* must be a float .* Got 'small'"),
        ({"kl_warmup": -1}, "'kl_warmup' .* an int .* Got -1"),
        ({"batch_size": 0}, "'batch_size' .* an int .* Got 0"),
        ({"dtype": "float16"}, "'dtype' .* must be a str among .* Got 'float16'"),
        ({"warm_start": 1}, "'warm_start' .* must be an instance of 'bool'"),
    ],
)
def test_bad_options(data, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        quick(**options).fit(*data)


def test_float64_works_whatever_the_global_setting(data):
    X, y = data
    model = quick(dtype="float64").fit(X, y)
    assert model.members_[0].likelihood.log_std.dtype == np.float64
    assert jnp.result_type(float) == jnp.float32
    np.testing.assert_allclose(model.predict(X), quick().fit(X, y).predict(X), atol=0.5)
