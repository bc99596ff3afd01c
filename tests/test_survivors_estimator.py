"""The regressor against formulas worked out here, in the user's units: no option can be ignored.

Without hidden layers the objective VI is a quadratic form in the weights' means, so its optimum is
known. With design P (a column of ones for the bias), row weights r, variances of the inputs' errors
v, a prior N(m, s^2) and noise t it has

    precision A = (P'RP + E) / t^2 + I / s^2,   E the diagonal of the sums of r v,
    means A^-1 (P'Ry / t^2 + m / s^2),  variances 1 / A_jj,
    t^2 = the weighted mean of (y - E f)^2 + V f.

With one hidden layer of rectifiers the moments are known too, and so are prediction and loss of any
set of weights.
"""

import jax
import numpy as np
import pandas as pd
import pytest
from scipy import stats

from varprop import Data, FAWNRegressor, priors
from varprop.estimators import members
from varprop.training import Recipe, StopRule

pytestmark = pytest.mark.usefixtures("as_users_run_it")
N = 40
SCALE, SHIFT = np.array([300.0, 0.02]), np.array([-50.0, 4.0])
PRIOR_MEAN, PRIOR_STD = 0.2, 0.5
#: Gradient descent on all rows in float64, cooled down to a standstill.
STILL = Recipe(
    learning_rate=0.03,
    kl_warmup=0,
    cooldown=1500,
    max_steps=3000,
    batch_size=None,
    stop=StopRule(tol=0.0),
)


def linear(**options):
    """A network without hidden layers, trained to the optimum of VI."""
    given = {
        "hidden_layer_sizes": (),
        "objective": "vi",
        "prior": priors.FixedGaussian(PRIOR_MEAN, PRIOR_STD),
        "recipe": STILL,
        "dtype": "float64",
        "validation": None,
        "random_state": 0,
    }
    return FAWNRegressor(**given | options)


@pytest.fixture(scope="module")
def table():
    """Inputs of very different size and a linear target, with errors and weights for every row."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2)) @ np.array([[1.0, 0.4], [0.0, 0.8]])
    y = x @ np.array([1.0, -0.7]) + 0.5 * rng.normal(size=N)
    error = rng.uniform(0.1, 0.9, size=(N, 2)) * SCALE
    return SHIFT + x * SCALE, 1000 + 70 * y, error, rng.uniform(0.1, 6.0, N)


class Optimum:
    """The formulas above for standardized rows, and what they predict in the user's units.

    An error is a standard deviation per entry, or a covariance per row.

    `jitter` is an error of all standardized inputs; `dropped` the rate at which weights (and not
    biases) are dropped and the rest is scaled up, which adds to the variance of each product.
    """

    def __init__(self, x, y, weight=None, error=None, *, mean=PRIOR_MEAN, std=PRIOR_STD, **noise):
        weight = np.ones(len(x)) if weight is None else weight
        self.shift, self.scale = self.moments(x, weight)
        self.y_shift, self.y_scale = self.moments(y, weight)
        self.jitter, self.dropped = noise.get("jitter", 0.0), noise.get("dropped", 0.0)
        design, v = self.standardized(x, error)
        y = (y - self.y_shift) / self.y_scale
        # E[(weight times input)^2] is (E w^2 + V w)(x^2 + v) and more where weights are dropped.
        more = self.dropped / (1 - self.dropped) * np.array([1.0, 1.0, 0.0])
        squares = ((design**2 + v) * (1 + more) * weight[:, None]).sum(axis=0)
        gram = design.T @ (weight[:, None] * design)
        gram[np.diag_indices(3)] = squares
        gram += np.tensordot(weight, self.together(error, len(x)), 1)
        self.t, before = 1.0, 0.0
        while abs(self.t - before) > 1e-13:
            precision = gram / self.t**2 + np.eye(3) / std**2
            target = design.T @ (weight * y) / self.t**2 + mean / std**2
            self.mean, self.var = np.linalg.solve(precision, target), 1 / np.diag(precision)
            f, f_var = self.output(design, v, self.together(error, len(x)))
            before = self.t
            self.t = np.sqrt(np.average((y - f) ** 2 + f_var, weights=weight))

    @staticmethod
    def moments(values, weight):
        mean = np.average(values, axis=0, weights=weight)
        return mean, np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weight))

    def standardized(self, x, error=None):
        design = np.column_stack([(x - self.shift) / self.scale, np.ones(len(x))])
        v = np.full(design.shape, self.jitter**2)
        v[:, -1] = 0.0
        if error is not None:
            var = error**2 if error.ndim == 2 else error.diagonal(axis1=1, axis2=2)
            v[:, :-1] += var / self.scale**2
        return design, v

    def together(self, error, n):
        """What a covariance has beside its diagonal: nothing for the intercept."""
        found = np.zeros((n, 3, 3))
        if error is not None and error.ndim == 3:
            found[:, :2, :2] = error / np.outer(self.scale, self.scale) * (1 - np.eye(2))
        return found

    def output(self, design, v, together=0.0):
        more = self.dropped / (1 - self.dropped) * np.array([1.0, 1.0, 0.0])
        squares = (design**2 + v) * (self.var + (1 + more) * self.mean**2 + more * self.var)
        var = (squares - (design * self.mean) ** 2).sum(axis=1)
        return design @ self.mean, var + self.mean @ (together * np.ones((1, 3, 3))) @ self.mean

    def predict(self, x, error=None):
        """Mean and standard deviation of new targets, and that of the noise."""
        f, var = self.output(*self.standardized(x, error), self.together(error, len(x)))
        std = self.y_scale * np.sqrt(var + self.t**2)
        return self.y_shift + self.y_scale * f, std, self.y_scale * self.t


def assert_is(model, optimum, x, error=None):
    """Equal to four digits of the spread."""
    mean, std, noise = optimum.predict(x, error)
    name = "X_cov" if error is not None and error.ndim == 3 else "X_std"
    found, found_std = model.predict(x, return_std=True, **{name: error})
    np.testing.assert_allclose(found, mean, atol=1e-4 * noise)
    np.testing.assert_allclose(found_std, std, rtol=1e-4)
    np.testing.assert_allclose(model.noise_std_, [noise], rtol=1e-4)


def assert_apart(one, other, x):
    """Otherwise the test could not fail."""
    (mean, std, noise), (mean_2, std_2, _) = one.predict(x), other.predict(x)
    assert np.abs(mean - mean_2).max() > 0.02 * noise
    assert np.abs(std / std_2 - 1).max() > 0.01


def test_sample_weights_are_those_of_the_closed_form(table):
    x, y, _, weight = table
    truth = Optimum(x, y, weight)
    assert_apart(truth, Optimum(x, y), x)
    assert_apart(truth, Optimum(x, y, weight / weight.mean()), x)  # their sum counts as well
    assert_is(linear().fit(x, y, sample_weight=weight), truth, x)


def test_one_weight_for_all_rows_is_so_many_copies(table):
    x, y, _, _ = table
    truth = Optimum(np.tile(x, (5, 1)), np.tile(y, 5))
    assert_is(linear().fit(x, y, sample_weight=5.0), truth, x)


def test_known_errors_of_inputs_are_those_of_the_closed_form(table):
    """In training they shrink the slopes; in prediction they widen what is predicted."""
    x, y, error, _ = table
    truth = Optimum(x, y, error=error)
    assert_apart(truth, Optimum(x, y), x)
    assert_apart(truth, Optimum(x, y, error=np.sqrt(error)), x)
    model = linear().fit(x, y, X_std=error)
    assert_is(model, truth, x)
    assert_is(model, truth, x, error)


def correlated(error):
    """Covariances of these standard deviations, with a correlation that changes from row to row."""
    rho = np.linspace(-0.2, 0.98, len(error))
    cov = error[:, :, None] * error[:, None, :]
    cov[:, 0, 1] *= rho
    cov[:, 1, 0] *= rho
    return cov


@pytest.mark.parametrize("batch_size", [None, 7])
def test_correlated_errors_of_inputs_are_those_of_the_closed_form(table, batch_size):
    """With weights, in any order, and also where a batch is a part of the rows."""
    x, y, error, weight = table
    cov = correlated(error)
    truth = Optimum(x, y, weight, cov)
    assert_apart(truth, Optimum(x, y, weight, error), x)  # the diagonal alone is something else
    assert_apart(truth, Optimum(x, y, weight, cov[::-1]), x)  # and so are those of other rows
    order = np.random.default_rng(5).permutation(N)
    recipe = {} if batch_size is None else {"batch_size": batch_size, "max_iter": 6_000}
    model = linear(**recipe).fit(x[order], y[order], weight[order], X_cov=cov[order])
    if batch_size is None:
        assert_is(model, truth, x)
        assert_is(model, truth, x, cov)
    else:  # up to what steps on parts of the rows leave
        mean, _, noise = truth.predict(x)
        np.testing.assert_allclose(model.predict(x), mean, atol=5e-3 * noise)
    same = linear(**recipe).fit(x, y, weight, X_cov=cov)
    np.testing.assert_array_equal(same.predict(x), model.predict(x))


def test_a_diagonal_covariance_is_a_standard_deviation_in_training(table):
    x, y, error, _ = table
    one = linear().fit(x, y, X_cov=np.einsum("ni,ij->nij", error**2, np.eye(2)))
    assert_is(one, Optimum(x, y, error=error), x)
    for_all = linear().fit(x, y, X_cov=np.diag(error[0] ** 2))
    assert_is(for_all, Optimum(x, y, error=np.tile(error[0], (N, 1))), x)


def test_errors_per_column_and_weights_together(table):
    x, y, error, weight = table
    truth = Optimum(x, y, weight, np.tile(error[0], (N, 1)))
    assert_is(linear().fit(x, y, weight, error[0]), truth, x)


def test_equal_rows_with_other_errors_stay_apart(table):
    """Merged by inputs and targets alone, one of the two errors would count for both."""
    x, y, error, _ = table
    twice = np.tile(x, (2, 1)), np.tile(y, 2), np.vstack([error, 3 * error])
    model = linear().fit(twice[0], twice[1], X_std=twice[2])
    assert_is(model, Optimum(*twice[:2], error=twice[2]), x)


def test_input_noise_is_an_error_of_all_inputs(table):
    x, y, _, _ = table
    truth = Optimum(x, y, jitter=0.6)
    assert_apart(truth, Optimum(x, y), x)
    assert_is(linear(input_noise=0.6).fit(x, y), truth, x)


def test_drop_connect_drops_weights(table):
    x, y, _, _ = table
    truth = Optimum(x, y, dropped=0.3)
    assert_apart(truth, Optimum(x, y), x)
    assert_is(linear(drop_connect=0.3).fit(x, y), truth, x)


@pytest.mark.parametrize(
    ("prior", "mean", "std"),
    [("fixed", 0.0, 1.0), (priors.FixedGaussian(-1.0, 0.05), -1.0, 0.05)],
    ids=["by name", "an object"],
)
def test_the_prior_is_the_one_asked_for(table, prior, mean, std):
    x, y, _, _ = table
    few = x[:8], y[:8]
    truth = Optimum(*few, mean=mean, std=std)
    assert_apart(truth, Optimum(*few), x)
    assert_is(linear(prior=prior).fit(*few), truth, x)


def test_a_learned_prior_is_the_one_that_fits_the_weights(table):
    """Its best mean and spread are those of the weights themselves: the evidence is highest."""
    x, y, _, _ = table
    model = linear(prior="learned").fit(x, y)
    layer, prior = model.members_[0].network.layers[0], model.members_[0].prior
    mean = np.append(layer.weight.mean, layer.bias.mean)
    var = np.exp(2 * np.append(layer.weight.log_std, layer.bias.log_std))
    np.testing.assert_allclose(prior.mean, mean.mean(), atol=1e-4)
    spread = np.mean(var + (mean - mean.mean()) ** 2)
    np.testing.assert_allclose(np.exp(2 * prior.log_std), spread, rtol=1e-3)
    assert_is(model, Optimum(x, y, mean=float(prior.mean), std=np.exp(float(prior.log_std))), x)


# ---- one hidden layer ---------------------------------------------------------------------------


def rectified(m, v):
    """Mean and variance of max(0, a), a ~ N(m, v)."""
    s = np.sqrt(v)
    density, mass = stats.norm.pdf(m / s), stats.norm.cdf(m / s)
    mean = m * mass + s * density
    return mean, (m**2 + v) * mass + m * s * density - mean**2


def weights_of(member):
    """Per layer, means and variances with the bias as last column."""
    dense = [layer for layer in member.network.layers if hasattr(layer, "weight")]
    return [
        (
            np.column_stack([layer.weight.mean, layer.bias.mean]),
            np.exp(2 * np.column_stack([layer.weight.log_std, layer.bias.log_std])),
        )
        for layer in dense
    ]


def by_hand(model, x, rate=0.0):
    """Mean and variance of a network with one hidden layer, standardized; without the noise."""
    (m1, v1), (m2, v2) = weights_of(model.members_[0])
    h = np.column_stack([(x - x.mean(axis=0)) / x.std(axis=0), np.ones(len(x))])
    mean, var = rectified(h @ m1.T, h**2 @ v1.T)
    # Kept with probability 1 - rate and divided by it: E h^2 grows, the mean stays.
    var = (var + mean**2) / (1 - rate) - mean**2
    mean, var = np.column_stack([mean, np.ones(len(x))]), np.column_stack([var, np.zeros(len(x))])
    return (mean @ m2.T)[:, 0], (var @ m2.T**2 + (mean**2 + var) @ v2.T)[:, 0]


def divergence(member, layers):
    """KL of all weights, those of layer i to the Gaussian number layers[i] of the prior."""
    mean, log_std = np.atleast_1d(member.prior.mean), np.atleast_1d(member.prior.log_std)
    total = 0.0
    for (m, v), i in zip(weights_of(member), layers, strict=True):
        s2 = np.exp(2 * log_std[i])
        total += 0.5 * (v / s2 + (m - mean[i]) ** 2 / s2 - 1 - np.log(v / s2)).sum()
    return total


HIDDEN = {
    "plain": ({}, 0.0, [0, 0]),
    "dropout": ({"dropout": 0.4}, 0.4, [0, 0]),
    "a prior per layer": ({"prior": "per-layer"}, 0.0, [0, 1]),
    "a tempered prior": ({"kl_weight": 0.3}, 0.0, [0, 0]),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_prediction_and_loss_of_a_hidden_layer(table, case):
    options, rate, layers = HIDDEN[case]
    x, y, _, _ = table
    y_mean, y_std = y.mean(), y.std()
    given = {"max_iter": 200, "dtype": "float64", "validation": None, "random_state": 0}
    model = FAWNRegressor(5, **given, **options).fit(x, y)
    mean, var = by_hand(model, x, rate)
    noise = np.exp(float(model.members_[0].likelihood.log_std[0]))
    found, std = model.predict(x, return_std=True)
    np.testing.assert_allclose(found, y_mean + y_std * mean, rtol=1e-9)
    np.testing.assert_allclose(std, y_std * np.sqrt(var + noise**2), rtol=1e-9)
    if rate:  # it must have been worth something
        without = by_hand(model, x)[1]
        assert (var > 1.2 * without).mean() > 0.5
    if layers == [0, 1]:
        assert abs(np.diff(model.members_[0].prior.log_std)[0]) > 0.1
    density = stats.norm.logpdf((y - y_mean) / y_std, mean, np.sqrt(var + noise**2))
    kl = options.get("kl_weight", 1.0) * divergence(model.members_[0], layers)
    assert model.loss_ == pytest.approx(-density.mean() + kl / N, rel=1e-9)


# ---- going on, and other rows -------------------------------------------------------------------


def small(**options):
    return FAWNRegressor(**{"hidden_layer_sizes": 5, "max_iter": 2, "random_state": 0} | options)


def test_the_kl_rises_only_where_training_begins(table):
    """In the first of a million epochs it counts nothing; a fitted model has it in full."""
    x, y, _, _ = table
    begun, none, full = (
        small(kl_warmup=warmup, kl_weight=weight).partial_fit(x, y).loss_
        for warmup, weight in ((10**6, 1.0), (0, 0.0), (0, 1.0))
    )
    assert begun == pytest.approx(none, rel=1e-6)
    assert abs(full - none) > 0.1
    gone_on = [
        small(kl_warmup=0).fit(x, y).set_params(kl_warmup=warmup).partial_fit(x, y).loss_
        for warmup in (0, 10**6)
    ]
    assert gone_on[0] == gone_on[1]


@pytest.mark.parametrize(
    "change", [{"dropout": 0.2}, {"input_noise": 0.3}, {"drop_connect": 0.4}, {"prior": "fixed"}]
)
def test_a_model_goes_on_with_its_own_settings_only(table, change):
    x, y, _, _ = table
    options = {"dropout": 0.1, "input_noise": 0.1, "drop_connect": 0.1, "warm_start": True}
    model = small(**options).fit(x, y)
    model.set_params(max_iter=1).fit(x, y)
    with pytest.raises(ValueError, match="settings were changed"):
        model.set_params(**change).fit(x, y)


@pytest.mark.parametrize("devices", [None, "all"])
def test_devices_are_used_where_asked_for(table, monkeypatch, devices):
    x, y, _, _ = table
    seen = []

    def watched(function):
        def spy(*arguments, **options):
            seen.append(options["devices"])
            return function(*arguments, **options)

        return spy

    for name in ("fit_many", "prepare"):
        monkeypatch.setattr(members, name, watched(getattr(members, name)))
    small(devices=devices).fit(x, y).partial_fit(x, y)
    assert seen == [None if devices is None else jax.devices()] * 2


def test_names_and_numbers_of_targets(table):
    x, y, _, _ = table
    frame = pd.DataFrame({"length": y, "width": -y})
    assert small(max_iter=1).fit(x, frame).target_names_ == ["length", "width"]
    assert small(max_iter=1).fit(x, pd.Series(y, name="length")).target_names_ == ["length"]
    model = small(max_iter=1, warm_start=True).fit(x, y)
    assert model.target_names_ is None
    with pytest.raises(ValueError, match="y has 2 targets, but the model was fitted with 1"):
        model.fit(x, frame)
    with pytest.raises(ValueError, match="source has 1 rows, but at least 2"):
        small().fit(Data(x[:1], y[:1]))
    with pytest.raises(ValueError, match="targets and weights of its own"):
        small().fit(Data(x, y), sample_weight=1.0)


# ---- the floor of the noise ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole_numbers():
    """Targets that repeat, in steps of 3, and follow from the inputs without any noise."""
    rng = np.random.default_rng(1)
    x = np.column_stack([rng.integers(0, 8, N), rng.normal(size=N)]).astype(float)
    return x, 20 + 3 * x[:, 0]


def sharp(**options):
    # A weak prior, and weights that start nearly certain: nothing but the floor holds the noise.
    return linear(prior=priors.FixedGaussian(0.0, 5.0), objective="ropd", **options)


def noise_of(model):
    """ROPD does not tell it apart, so it is not public."""
    var = float(model.members_[0].likelihood.noise_var[0])
    return np.sqrt(var) * model.scaling_.y_scale[0]


def test_the_noise_keeps_its_floor_after_training(whole_numbers):
    """A tenth of a step, neither more nor less: there is nothing else to explain."""
    x, y = whole_numbers
    model = sharp().fit(x, y)
    assert 0.3 <= noise_of(model) < 0.31
    assert (model.predict(x, return_std=True)[1] < 0.5).all()
    free = sharp(recipe=STILL.replace(noise_floor=False)).fit(x, y)
    assert noise_of(free) < 0.15


def test_a_model_gone_on_with_keeps_it_too(whole_numbers):
    x, y = whole_numbers
    model = sharp(warm_start=True).fit(x, y)
    assert 0.3 <= noise_of(model.fit(x, y)) < 0.31
    for _ in range(3):
        model.partial_fit(x, y)
    assert 0.3 <= noise_of(model) < 0.31


class Stopped(Exception):
    """Raised where training would begin."""


@pytest.mark.parametrize(("validation", "n_folds"), [("bag", 5), ("check", 1)])
def test_networks_that_judge_do_not_see_what_they_judge(monkeypatch, validation, n_folds):
    """Else their errors on rows set aside are too small, and what they are made of over-sure."""
    lanes = []

    def stop(given, *arguments, **options):
        lanes.extend(given)
        raise Stopped

    monkeypatch.setattr(members, "fit_many", stop)
    x, y = np.random.default_rng(0).normal(size=(2, 60))
    model = FAWNRegressor(validation=validation, n_members=1, n_restarts=2, random_state=0)
    with pytest.raises(Stopped):
        model.fit(x[:, None], y)
    assert [lane.rows is None for lane in lanes] == [True] * 2 + [False] * 2 * n_folds
    left_out = np.concatenate([np.setdiff1d(np.arange(60), lane.rows) for lane in lanes[2:]])
    times = np.bincount(left_out, minlength=60)
    # Two restarts for each network: every row is left out by one, or twelve rows are.
    assert times.tolist().count(2) == 12 * n_folds
    assert set(times) <= {0, 2}
