"""Acquisition, batches and draws: against mpmath, quadrature, dense algebra and sampling."""

import itertools
import warnings

import equinox as eqx
import jax
import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import truth
from varprop import FAWNClassifier, FAWNRegressor, StackedRegressor, propagate
from varprop.decisions import (
    confidence_bound,
    draw_function,
    expected_improvement,
    information_gain,
    linear_features,
    log_expected_improvement,
    probability_of_improvement,
    select_improving,
    select_informative,
    select_spread,
    without_noise,
)
from varprop.decisions.acquisition import log_tail_moment
from varprop.predictive import Predictive, Warped, mixture
from varprop.predictive.counts import Counts
from varprop.predictive.warps import Log, YeoJohnson
from varprop.training import Recipe, StopRule

pytestmark = pytest.mark.usefixtures("as_users_run_it")

FALSE_ALARM = 1e-4


def gaussian(mean, std):
    return Predictive.gaussian(mean, np.square(std), 0.0)


# ---- single rows ----------------------------------------------------------------------------


def test_the_tail_moment_is_mpmaths_wherever_it_is_a_number():
    z = np.concatenate(
        [-np.logspace(-8, 8, 81), np.logspace(-8, 8, 81), [0.0, -38.0, -37.999, -38.001]]
    )
    with mp.workdps(60):
        exact = []
        for value in z:
            t = mp.mpf(float(value))
            # Below, where digits cancel, by the series' own remainder: there are 60 digits.
            density = mp.exp(-t * t / 2) / mp.sqrt(2 * mp.pi)
            if t < -20:
                rest = mp.quad(lambda u, t=t: u * mp.exp(t * u - u * u / 2), [0, -40 / t])
                exact.append(mp.log(density) + mp.log(rest))
            else:
                exact.append(mp.log(density + t * mp.erfc(-t / mp.sqrt(2)) / 2))
        exact = np.array([float(value) for value in exact])
    off = np.abs(log_tail_moment(z) - exact) / np.maximum(1.0, np.abs(exact))
    assert off.max() < 2e-14


def improvement(mean, std, best):
    """E[max(f - best, 0)] by mpmath's quadrature."""
    with mp.workdps(30):
        m, s, b = (mp.mpf(float(value)) for value in (mean, std, best))
        return float(
            mp.quad(lambda t: t * mp.npdf(b + t, m, s), mp.linspace(0, max(m - b, 0) + 12 * s, 9))
        )


@pytest.mark.parametrize("maximize", [True, False])
def test_improvement_of_a_mixture_is_the_integral(maximize):
    """Three members with weights of each row's own, one of them a point."""
    mean = np.array([[0.0, 2.0], [1.0, -3.0], [0.4, 0.5]])
    std = np.array([[1.0, 0.3], [2.0, 1.5], [0.0, 0.0]])
    shares = np.array([[0.2, 0.6], [0.5, 0.1], [0.3, 0.3]])
    dist = Predictive.mixture([gaussian(m, s) for m, s in zip(mean, std, strict=True)], shares)
    side = 1 if maximize else -1
    for best in (-1.0, 0.45, 3.0):
        exact = [
            sum(
                w * (improvement(side * m, s, side * best) if s else max(side * (m - best), 0.0))
                for w, m, s in zip(shares[:, row], mean[:, row], std[:, row], strict=True)
            )
            for row in range(2)
        ]
        found = expected_improvement(dist, best, maximize=maximize)
        np.testing.assert_allclose(found, exact, rtol=1e-12)
        logs = log_expected_improvement(dist, best, maximize=maximize)
        np.testing.assert_allclose(logs, np.log(exact), rtol=1e-12, atol=1e-12)


def test_what_cannot_improve_is_worth_nothing():
    point = Predictive.gaussian([1.0, 2.0], [0.0, 0.0], 0.0)
    np.testing.assert_array_equal(expected_improvement(point, 1.5), [0.0, 0.5])
    assert log_expected_improvement(point, 1.5)[0] == -np.inf
    positive = Warped(gaussian([0.0], [1.0]), Log(1.0, 0.0))
    assert expected_improvement(positive, -1.0, maximize=False).tolist() == [0.0]
    # All of it lies above.
    np.testing.assert_allclose(expected_improvement(positive, -1.0), np.exp(0.5) + 1.0, rtol=1e-9)


@pytest.mark.parametrize("best", [1e-3, 0.8, 5.0, 500.0, 1e9])
def test_improvement_behind_a_logarithm_is_the_closed_form(best):
    """Black and Scholes's, worked out with 60 digits; out to a probability of 1e-100."""
    mean, std, scale, shift = 0.3, 0.7, 1.4, 0.2
    dist = Warped(gaussian([mean], [std]), Log(scale, shift))
    with mp.workdps(60):
        m, s, b = mp.mpf(shift + scale * mean), mp.mpf(scale * std), mp.mpf(best)
        up = (m - mp.log(b)) / s
        whole = mp.exp(m + s * s / 2)
        more = whole * mp.ncdf(up + s) - b * mp.ncdf(up)
        less = b * mp.ncdf(-up) - whole * mp.ncdf(-up - s)
        logs = [float(mp.log(value)) for value in (more, less)]
    for maximize, exact in ((True, logs[0]), (False, logs[1])):
        found = log_expected_improvement(dist, best, maximize=maximize)[0]
        assert abs(found - exact) < 1e-8 * max(1.0, abs(exact)), maximize


def test_improvement_of_mixed_kinds_agrees_with_draws():
    """400,000 draws of each of four rows; false alarms 1e-4."""
    skewed = Warped(
        gaussian([0.0, 1.0, -1.0, 0.3], [1.0, 0.5, 0.2, 2.0]), YeoJohnson(0.4, 0.0, 1.0)
    )
    plain = gaussian([0.5, 0.0, 2.0, 1.0], [0.3, 1.0, 0.1, 0.5])
    dist = mixture([skewed, plain], [0.3, 0.7])
    draws = dist.sample(400_000, random_state=0)
    for maximize, best in itertools.product((True, False), (-0.5, 0.9)):
        gain = np.maximum(draws - best if maximize else best - draws, 0.0)
        error = gain.std(axis=1) / np.sqrt(draws.shape[1])
        found = expected_improvement(dist, best, maximize=maximize)
        assert (np.abs(found - gain.mean(axis=1)) < truth.threshold(FALSE_ALARM, 16) * error).all()


def test_probabilities_and_bounds_are_scipys():
    dist = gaussian([0.0, 1.0], [1.0, 2.0])
    normal = stats.norm([0.0, 1.0], [1.0, 2.0])
    np.testing.assert_allclose(probability_of_improvement(dist, 9.0), normal.sf(9.0), rtol=1e-10)
    np.testing.assert_allclose(
        probability_of_improvement(dist, -9.0, maximize=False), normal.cdf(-9.0), rtol=1e-10
    )
    np.testing.assert_allclose(confidence_bound(dist, share=0.8), normal.ppf(0.8), rtol=1e-10)
    np.testing.assert_allclose(
        confidence_bound(dist, share=0.8, maximize=False), normal.ppf(0.2), rtol=1e-10
    )
    # A tie is no improvement, on either side.
    point = Predictive.gaussian([1.0], [0.0], 0.0)
    assert probability_of_improvement(point, 1.0).tolist() == [0.0]
    assert probability_of_improvement(point, 1.0, maximize=False).tolist() == [0.0]


def test_information_is_the_fall_of_entropy():
    model, noise = np.array([0.0, 0.5, 4.0]), 0.7
    dist = Predictive.gaussian(np.zeros(3), model, noise)
    entropy = stats.norm(0, np.sqrt(model + noise)).entropy() - stats.norm(0, noise**0.5).entropy()
    np.testing.assert_allclose(information_gain(dist), entropy, rtol=1e-12, atol=1e-15)
    two = Predictive.gaussian(np.zeros((3, 2)), np.stack([model, model], axis=1), noise)
    np.testing.assert_allclose(information_gain(two), 2 * entropy, rtol=1e-12, atol=1e-15)


def test_without_noise_is_the_model_part():
    dist = Predictive.gaussian([0.0], [4.0], 5.0)
    skewed = Warped(dist, Log(1.0, 0.0))
    assert without_noise(dist).var.tolist() == [4.0]
    assert without_noise(skewed).latent.var.tolist() == [4.0]
    found = without_noise(mixture([dist, skewed]))
    assert [part.second_order().noise_var.item() for part in found.parts] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: without_noise(gaussian([0.0], [1.0]).unsplit()), "objective='vi'"),
        (lambda: information_gain(gaussian([0.0], [1.0]).unsplit()), "objective='vi'"),
        (lambda: select_informative(gaussian([0.0], [1.0]).unsplit(), 1), "objective='vi'"),
        (lambda: expected_improvement(gaussian([[0.0, 1.0]], [[1.0, 1.0]]), 0.0), "marginal"),
        (lambda: expected_improvement(gaussian([0.0], [1.0]), np.nan), "finite number"),
        (lambda: expected_improvement(Counts(gaussian([1.0], [0.0])), 0.0), "Counts"),
        (lambda: confidence_bound(gaussian([0.0], [1.0]), share=1.0), "share"),
        (lambda: select_informative(gaussian([0.0], [1.0]), 2), "number of rows, 1"),
        (lambda: select_spread(np.zeros((3, 2)), 0), "number of rows, 3"),
        (lambda: draw_function(FAWNClassifier()), "FAWNClassifier"),
        (lambda: linear_features(object(), [[0.0]]), "not of object"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(call, says):
    with pytest.raises((ValueError, TypeError), match=says) as error:
        call()
    assert "\n" not in str(error.value)


# ---- batches --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return X, np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=60)


@pytest.fixture(scope="module")
def network(data):
    """Two members of four units, whose weights are not sure."""
    recipe = Recipe(kl_warmup=0, cooldown=0, max_steps=400, stop=StopRule(tol=0.0))
    model = FAWNRegressor(
        4, objective="vi", n_members=2, validation=None, recipe=recipe, random_state=0
    )
    return model.fit(*data)


def dense(dist):
    """The covariance of the model part, and the noise, of all rows."""
    noise = np.broadcast_to(dist.noise_var, dist.shape)
    return dist.rows_cov() - np.diag(noise), noise


def test_a_column_is_one_of_the_whole_covariance(network, data):
    rng = np.random.default_rng(1)
    dist = network.predict_dist(rng.normal(size=(300, 2)))  # two blocks
    assert dist.n_members == 2
    whole, _ = dense(dist)
    apart = dist.member_mean[..., 0] - dist.mean
    for row in (0, 255, 256, 299):
        column = np.mean(dist.model_column(row)[..., 0] + apart * apart[:, row, None], axis=0)
        np.testing.assert_allclose(column, whole[:, row], rtol=1e-6, atol=1e-9)


def test_the_gains_sum_to_the_joint_information(network):
    dist = network.predict_dist(np.random.default_rng(2).normal(size=(12, 2)))
    cov, noise = dense(dist)

    def joint(rows):
        part = cov[np.ix_(rows, rows)] / np.sqrt(np.outer(noise[rows], noise[rows]))
        return 0.5 * np.linalg.slogdet(np.eye(len(rows)) + part)[1]

    found = select_informative(dist, 12)
    assert sorted(found.rows) == list(range(12))
    for n in range(1, 13):
        rows = list(found.rows[:n])
        np.testing.assert_allclose(found.gains[:n].sum(), joint(rows), rtol=1e-5)
        # No other row would have told more, given those before.
        others = [joint([*rows[:-1], row]) for row in set(range(12)) - set(rows[:-1])]
        assert joint(rows) > max(others) - 1e-7
    assert (np.diff(found.gains) < 1e-9).all()


def test_a_batch_improves_given_what_it_measured(network):
    """Each row by itself, conditioned by dense algebra on those before it, member by member."""
    dist = network.predict_dist(np.random.default_rng(3).normal(size=(15, 2)))
    best = float(np.median(dist.mean))
    for maximize in (True, False):
        found = select_improving(dist, 4, best, maximize=maximize)
        side, ahead = (1.0 if maximize else -1.0), best
        for number, row in enumerate(found.rows):
            measured = list(found.rows[:number])
            worth = np.zeros(15)
            for k in range(2):
                one = Predictive(
                    dist.member_mean[[k]],
                    dist.member_model[[k]],
                    dist.member_noise[[k]],
                    np.ones((1, 1)),
                    True,
                    between=(dist.between[k],),
                )
                cov, noise = dense(one)
                if measured:
                    inner = cov[np.ix_(measured, measured)] + np.diag(noise[measured])
                    to = cov[:, measured]
                    cov = cov - to @ np.linalg.solve(inner, to.T)
                std = np.sqrt(np.maximum(np.diag(cov), 1e-30))
                z = side * (one.mean - ahead) / std
                worth += 0.5 * std * (stats.norm.pdf(z) + z * stats.norm.cdf(z))
            worth[measured] = -1.0
            assert row == worth.argmax()
            np.testing.assert_allclose(np.exp(found.gains[number]), worth[row], rtol=1e-4)
            ahead = side * max(side * ahead, side * dist.mean[row])


def test_twins_are_not_asked_twice():
    """Three equal rows and one that differs a little less: the second choice is the other."""
    cov = np.array([[2.0, 0.0], [0.0, 1.5]])
    x = np.array([[1.0, 0.0]] * 3 + [[0.0, 1.0]])

    def linear():
        from varprop.data.statistics import Scaling
        from varprop.predictive.simple import LinearModel

        scaling = Scaling.identity(2, 1)
        one = (scaling, np.zeros(2), np.zeros((1, 2)), np.zeros(1), np.full(1, 0.1), cov[None])
        return LinearModel(*one).predict_dist(x)

    found = select_informative(linear(), 2)
    assert found.rows.tolist() == [0, 3]
    np.testing.assert_allclose(found.gains, 0.5 * np.log([21.0, 16.0]))
    assert select_improving(linear(), 2, 0.0).rows.tolist() == [0, 3]


def plain_lcmd(x, n, centers):
    """The largest cluster's farthest row, in loops."""
    centers, chosen = [np.array(c) for c in centers], []
    for _ in range(n):
        distance = [[np.sum((row - c) ** 2) for c in centers] for row in x]
        owner = [int(np.argmin(each)) for each in distance]
        sizes = [0.0] * len(centers)
        for each, own in zip(distance, owner, strict=True):
            sizes[own] += each[own]
        largest = int(np.argmax(sizes))
        left = [
            (distance[i][largest], -i)
            for i in range(len(x))
            if owner[i] == largest and i not in chosen
        ]
        chosen.append(-max(left)[1])
        centers.append(x[chosen[-1]])
    return chosen


def test_spread_rows_are_those_of_the_plain_rule():
    rng = np.random.default_rng(4)
    for _ in range(5):
        x, seen = rng.normal(size=(40, 3)), rng.normal(size=(6, 3))
        found = select_spread(x, 10, seen=seen)
        assert found.rows.tolist() == plain_lcmd(x, 10, seen)
        without = select_spread(x, 10)
        assert without.rows.tolist() == plain_lcmd(x, 10, [np.zeros(3)])
    first = np.sqrt(((x[found.rows[0]] - seen) ** 2).sum(axis=1).min())
    np.testing.assert_allclose(found.gains[0], first)


# ---- draws and features ---------------------------------------------------------------------


def test_drawn_networks_have_the_predicted_moments(network):
    """400 draws of three rows; false alarms 1e-4. Weights are drawn once for all rows."""
    X = np.random.default_rng(5).normal(size=(3, 2))
    dist = network.predict_dist(X)
    drawn = np.array([draw_function(network, seed)(X) for seed in range(400)])
    limit = truth.threshold(FALSE_ALARM, 9)
    mean_z, var_z = truth.sampling_z(drawn, dist.mean, dist.model_var)
    assert np.abs(mean_z).max() < limit
    assert np.abs(var_z).max() < limit
    cov = dense(dist)[0]
    assert np.abs(truth.covariance_z(drawn, cov)).max() < limit
    f = draw_function(network, 7)
    np.testing.assert_array_equal(f(X), f(X))
    np.testing.assert_allclose(f(X[1:2]), f(X)[1:2], rtol=1e-5)


def test_a_stack_draws_a_part_by_its_weight_and_a_line_by_its_coefficients(data):
    model = StackedRegressor([], random_state=0).fit(*data)
    X = np.array([[0.0, 0.0], [2.0, -1.0]])
    drawn = np.array([draw_function(model, seed)(X) for seed in range(2000)])
    dist = model.predict_dist(X)
    limit = truth.threshold(FALSE_ALARM, 8)
    mean_z, var_z = truth.sampling_z(drawn, dist.mean, dist.model_var)
    assert np.abs(mean_z).max() < limit
    assert np.abs(var_z).max() < limit
    constant = model.weights_["constant"]
    alike = np.mean(drawn[:, 0] == drawn[:, 1])
    assert abs(alike - constant) < 4 * np.sqrt(constant / 2000) + 1e-3


def test_features_of_a_line_are_its_covariance(data):
    """Without hidden layers: sum_i x_i x'_i V[w_i] + V[b], from the weights themselves."""
    recipe = Recipe(kl_warmup=0, cooldown=0, max_steps=50, stop=StopRule(tol=0.0))
    model = FAWNRegressor((), objective="vi", validation=None, recipe=recipe, random_state=0)
    model.fit(*data)
    layer, scaling = model.members_[0].network.layers[0], model.scaling_
    X = np.random.default_rng(6).normal(size=(300, 2))
    z = (X - scaling.x_shift) / scaling.x_scale
    var = np.exp(2 * layer.weight.log_std[0].astype(float))
    cov = (z * var) @ z.T + np.exp(2 * float(layer.bias.log_std[0]))
    found = linear_features(model, X)
    np.testing.assert_allclose(found @ found.T, cov * scaling.y_scale[0] ** 2, rtol=1e-4, atol=1e-6)


def test_features_of_a_network_are_finite_differences(network, data):
    """The mean, as a weight moves by a standard deviation's small part, over members."""
    X, h = data[0][:4], 0.02
    found = linear_features(network, X)
    n_weights = (2 * 4 + 4) + (4 + 1)
    assert found.shape == (4, 2 * n_weights + 2)
    means = network.predict_dist(X).member_mean[..., 0]
    np.testing.assert_allclose(
        found[:, -2:] / np.sqrt(0.5), (means - means.mean(axis=0)).T, atol=2e-5
    )
    member, scaling = network.members_[0], network.scaling_

    def moved(step):
        weight = member.network.layers[0].weight
        mean = np.array(weight.mean)
        mean[2, 1] += step * np.exp(weight.log_std[2, 1])
        other = eqx.tree_at(lambda m: m.network.layers[0].weight.mean, member, mean)
        return propagate(jax.tree.map(jax.numpy.asarray, other), X, scaling=scaling).mean[:, 0]

    slope = (moved(h) - moved(-h)) / (2 * h)
    np.testing.assert_allclose(found[:, 2 * 2 + 1], np.sqrt(0.5) * slope, rtol=5e-3, atol=1e-5)


def test_a_network_that_knows_its_weights_together_draws_by_them(data):
    recipe = Recipe(kl_warmup=0, cooldown=0, max_steps=200, stop=StopRule(tol=0.0))
    model = FAWNRegressor(
        4,
        objective="vi",
        row_covariance="gauss-newton",
        validation=None,
        recipe=recipe,
        random_state=0,
    ).fit(*data)
    X = np.random.default_rng(7).normal(size=(3, 2))
    features = linear_features(model, X)
    drawn = np.array([draw_function(model, seed)(X) for seed in range(200)])
    limit = truth.threshold(FALSE_ALARM, 6)
    assert np.abs(truth.covariance_z(drawn, features @ features.T)).max() < limit
    mean_z, _ = truth.sampling_z(drawn, model.predict(X), drawn.var(axis=0))
    assert np.abs(mean_z).max() < limit


@pytest.mark.parametrize("likelihood", ["heteroscedastic", "log-normal"])
def test_any_likelihood_of_numbers_can_be_drawn(data, likelihood):
    X, y = data
    model = FAWNRegressor(
        3, objective="vi", likelihood=likelihood, max_iter=3, validation=None, random_state=0
    ).fit(X, np.exp(y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        drawn = np.array([draw_function(model, seed)(X[:2]) for seed in range(60)])
    dist = model.predict_dist(X[:2])
    mean_z, _ = truth.sampling_z(drawn, dist.mean, drawn.var(axis=0, ddof=1))
    assert np.abs(mean_z).max() < truth.threshold(FALSE_ALARM, 6)


def test_what_has_no_features_says_so(data):
    X, y = data
    with pytest.raises(ValueError, match="nothing to linearize"):
        linear_features(StackedRegressor([], random_state=0).fit(X, y), X)
    two = FAWNRegressor(3, max_iter=2, validation=None).fit(X, np.stack([y, y], axis=1))
    with pytest.raises(ValueError, match="one target"):
        linear_features(two, X)
    bernoulli = FAWNRegressor(3, weights="bernoulli", max_iter=2, validation=None).fit(X, y)
    with pytest.raises(TypeError, match="Gaussian weights"):
        linear_features(bernoulli, X)
    assert draw_function(bernoulli, 0)(X).shape == y.shape
