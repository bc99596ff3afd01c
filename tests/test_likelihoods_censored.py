"""Targets known up to bounds: probabilities to many digits, objectives against quadrature."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import special, stats

import tiny
from truth import threshold
from varprop import Gaussian, GaussianLikelihood, Scaling
from varprop.data.targets import TargetError
from varprop.learning.likelihoods import CensoredGaussian, CensoredLogNormal
from varprop.learning.likelihoods.censored import log_interval
from varprop.learning.likelihoods.given import BOUNDS, logarithms
from varprop.predictive import Predictive
from varprop.predictive.bounds import Bounded, constant_fit

pytestmark = pytest.mark.usefixtures("strict_promotion")
INF = np.inf
# Known, below, above, between: narrow, wide, far out.
GIVEN = np.array(
    [[0.3, 0.3], [-INF, -0.5], [1.2, INF], [0.1, 0.11], [-1.0, 2.0], [4.0, 5.0], [-9.0, -8.9]]
)


def truth_interval(z, width):
    with mp.workdps(60):
        low, high = mp.mpf(z), mp.mpf(z) + mp.mpf(width)
        if low > 0:
            low, high = -high, -low
        return float(mp.log((mp.erfc(-high / mp.sqrt(2)) - mp.erfc(-low / mp.sqrt(2))) / 2))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_interval_probabilities_keep_their_digits(x64, dtype):
    """Against 60 digits: widths from 1e-6 to 40, up to 35 standard deviations out.

    Of a width of 0.03 one formula ends and the other begins: it has to be taken by either.
    """
    z = np.array([-35.0, -12.0, -3.0, -0.5, 0.0, 0.7, 5.0, 14.0, 30.0])
    width = np.append(np.geomspace(1e-6, 40, 25), 0.03)
    z, width = (part.ravel().astype(dtype) for part in np.meshgrid(z, width))
    claimed = np.asarray(log_interval(jnp.asarray(z), jnp.asarray(width)), float)
    truth = np.array([truth_interval(float(a), float(b)) for a, b in zip(z, width, strict=True)])
    error = np.abs(claimed - truth) / np.maximum(1, np.abs(truth))
    assert error.max() < (3e-5 if dtype == jnp.float32 else 2e-7)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_far_bounds_have_finite_values_and_gradients(x64, dtype):
    z = jnp.asarray([-1e3, 0.0, 1e3], dtype)
    for width in (1e-5, 0.02, 0.04, 100.0):
        value, gradient = jax.value_and_grad(lambda z, w=width: log_interval(z, z * 0 + w).sum())(z)
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


@pytest.fixture
def case(x64):
    rng = np.random.default_rng(0)
    n = len(GIVEN)
    mean, var = 0.5 * rng.normal(size=(n, 1)), rng.uniform(0.02, 0.3, (n, 1))
    return mean, var, BOUNDS.columns(GIVEN, None)


def log_known(lower, upper, mean, std):
    """The log-density or log-probability of bounds, by SciPy."""
    mean = np.asarray(mean)
    if lower == upper:
        return stats.norm.logpdf(lower, mean, std)
    a, b = (lower - mean) / std, (upper - mean) / std
    flip = a > 0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    return special.log_ndtr(b) + np.log1p(-np.exp(special.log_ndtr(a) - special.log_ndtr(b)))


def test_ropd_is_the_probability_of_the_bounds(case):
    mean, var, y = case
    model = CensoredGaussian(GaussianLikelihood(np.array([0.6])))
    claimed = model.log_predictive(Gaussian(mean, var), jnp.asarray(y))
    truth = [
        log_known(lower, upper, m[0], np.sqrt(v[0] + 0.36))
        for (lower, upper), m, v in zip(GIVEN, mean, var, strict=True)
    ]
    np.testing.assert_allclose(claimed, np.ravel(truth), rtol=1e-6)


def test_vi_is_the_expected_log_probability(case):
    """To a thousandth of a nat; known targets exactly."""
    mean, var, y = case
    model = CensoredGaussian(GaussianLikelihood(np.array([0.6])))
    claimed = np.asarray(model.expected_log_prob(Gaussian(mean, var), jnp.asarray(y)))
    z = np.linspace(-9, 9, 40_001)
    weight = stats.norm.pdf(z) * (z[1] - z[0])
    truth = np.array(
        [
            weight @ log_known(lower, upper, m[0] + np.sqrt(v[0]) * z, 0.6)
            for (lower, upper), m, v in zip(GIVEN, mean, var, strict=True)
        ]
    )
    np.testing.assert_allclose(claimed[0], truth[0], rtol=1e-10)
    assert np.abs(claimed - truth).max() < 1e-3


def test_the_bound_on_vi_s_error_where_f_is_wide(x64):
    """V f ten times the noise's variance: 0.05 nats at most, and not nothing."""
    mean = np.linspace(-3, 3, 25)[:, None]
    y = np.tile(BOUNDS.columns(np.array([[0.0, INF]]), None), (25, 1))
    model = CensoredGaussian(GaussianLikelihood(np.array([0.3])))
    claimed = model.expected_log_prob(Gaussian(jnp.asarray(mean), 0.9), jnp.asarray(y))
    z = np.linspace(-9, 9, 40_001)
    weight = stats.norm.pdf(z) * (z[1] - z[0])
    truth = special.log_ndtr((mean + np.sqrt(0.9) * z) / 0.3) @ weight
    assert 1e-7 < np.abs(np.asarray(claimed) - truth).max() < 0.05


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
def test_gradients_agree_with_finite_differences(case, method):
    mean, var, y = case

    def total(v):
        model = CensoredGaussian(GaussianLikelihood(0.6 * jnp.exp(v[:1])))
        f = Gaussian(mean + v[1], var * jnp.exp(v[2]))
        return jnp.sum(getattr(model, method)(f, jnp.asarray(y)))

    numeric = tiny.finite_differences(tiny.quick_jit(total), np.zeros(3), 1e-5)
    gradient = tiny.quick_jit(jax.grad(total))(jnp.zeros(3))
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-6)


def test_draws_fall_within_the_bounds_as_often_as_is_said(case):
    """The sampling twin; one false alarm in a million over seven rows."""
    mean, var, y = case
    model = CensoredGaussian(GaussianLikelihood(np.array([0.6])))
    claimed = np.exp(np.asarray(model.log_predictive(Gaussian(mean, var), jnp.asarray(y))))[1:5]
    rng = np.random.default_rng(3)
    n = 200_000
    draws = mean + np.sqrt(var) * rng.normal(size=(7, n)) + 0.6 * rng.normal(size=(7, n))
    inside = ((draws > GIVEN[:, :1]) & (draws < GIVEN[:, 1:])).mean(axis=1)[1:5]
    z = (inside - claimed) / np.sqrt(claimed * (1 - claimed) / n)
    assert np.abs(z).max() < threshold(1e-6, 4)


# ---- judging, and the simplest model ------------------------------------------------------------


def test_what_is_judged_is_what_is_known(x64):
    """And the log-normal of logarithms gives the probabilities of the numbers themselves."""
    columns = BOUNDS.columns(GIVEN, None)
    prediction = Predictive.gaussian(np.zeros(7), np.zeros(7), 0.81)
    observed, value = CensoredGaussian.as_observed(prediction, columns)
    truth = [float(log_known(lower, upper, 0.0, 0.9)) for lower, upper in GIVEN]
    np.testing.assert_allclose(observed.logpdf(value[:, 0]), truth, rtol=1e-6)
    positive = BOUNDS.columns(np.exp(GIVEN), None)
    logged = logarithms(positive, CensoredLogNormal.column_scaling)
    numbers = np.array([0.0, 0.9])
    plain = Scaling.identity(1, 1)
    constant = CensoredLogNormal.constant(numbers, plain, n_seen=None, squeeze=True)
    rows = constant[np.zeros(7, int)]
    observed, value = CensoredLogNormal.as_observed(rows, logged)
    truth[0] -= GIVEN[0, 0]  # the density of the number, not of its logarithm
    np.testing.assert_allclose(observed.logpdf(value[:, 0]), truth, rtol=1e-6)


def test_the_log_score_of_bounds_is_proper():
    """On the average, the truth scores better than what is shifted, wider or narrower.

    Four standard errors: a false alarm in one of 8,000 runs. The CRPS is that of known rows, up to
    its 64 thresholds, and grows with what a prediction puts below a lower bound.
    """
    rng = np.random.default_rng(0)
    y = rng.normal(size=4000)
    limit = rng.uniform(-1, 2, 4000)
    lower, upper = np.minimum(y, limit)[:, None], np.where(y > limit, INF, y)[:, None]

    def judged(mean, var, lower=lower, upper=upper):
        prediction = Predictive.gaussian(np.full(4000, mean), np.zeros(4000), var)
        return Bounded(prediction, lower, upper)

    for mean, var in ((0.3, 1.0), (-0.3, 1.0), (0.0, 2.0), (0.0, 0.4)):
        worse = judged(0.0, 1.0).logpdf(y) - judged(mean, var).logpdf(y)
        assert worse.mean() > 4 * worse.std() / np.sqrt(4000)
    known = judged(0.3, 1.5, y[:, None], y[:, None])
    whole = known.prediction.crps(y)
    assert known.crps(y).mean() == pytest.approx(whole.mean(), rel=0.03)
    least, none = np.full((4000, 1), 1.0), np.full((4000, 1), INF)
    at_least = [judged(mean, 1.0, np.minimum(limit, 1.0)[:, None], none) for mean in (-1, 0, 1)]
    low, middle, high = (found.crps(y) for found in at_least)
    assert ((low > middle) & (middle > high)).mean() > 0.95
    assert judged(0.0, 1.0, least, none).crps(y).max() <= 1  # one threshold, of weight 1


def test_the_constant_is_the_maximum_likelihood_fit(x64):
    """Right-censored at 1: within 4.5 standard errors of the truth, and at a maximum."""
    rng = np.random.default_rng(1)
    y = rng.normal(0.5, 2.0, 5000)
    lower, upper = np.minimum(y, 1.0), np.where(y > 1, INF, y)
    mean, std = constant_fit(lower, upper)
    assert abs(mean - 0.5) < 4.5 * 2 / np.sqrt(5000) * 1.5
    assert abs(std - 2.0) < 4.5 * 2 / np.sqrt(2 * 5000) * 1.8

    def total(m, s):
        known = lower == upper
        return (
            stats.norm.logpdf(y[known], m, s).sum()
            + special.log_ndtr((m - lower[~known]) / s).sum()
        )

    for change in (0.01, -0.01):
        assert total(mean, std) > total(mean + change, std)
        assert total(mean, std) > total(mean, std + change)


def test_the_constant_knows_every_kind_of_bound(x64):
    """At a maximum of SciPy's likelihood of known, below, above and between, all together."""
    y = np.random.default_rng(2).normal(0.5, 2.0, 400)
    kind = np.arange(400) % 4
    lower = np.choose(kind, [y, np.full(400, -INF), y - 1.0, np.floor(y)])
    upper = np.choose(kind, [y, y + 0.5, np.full(400, INF), np.floor(y) + 1])
    columns = BOUNDS.columns(np.stack([lower, upper], axis=1), None)
    mean, std = CensoredGaussian.constant_numbers(columns, None)

    def total(m, s):
        return sum(log_known(a, b, m, s) for a, b in zip(lower, upper, strict=True))

    for change in (0.01, -0.01):
        assert total(mean, std) > total(mean + change, std)
        assert total(mean, std) > total(mean, std + change)


def test_without_a_maximum_the_constant_is_finite():
    """All targets are only known to be at least something."""
    mean, std = constant_fit(np.linspace(0, 1, 20), np.full(20, INF))
    assert 1 < mean < 20
    assert 0 < std < 20


# ---- what is given ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ([[0, 1], [2, 1]], r"^the lower bound lies above the upper one in row 1: exchange the two"),
        ([[-INF, INF]], r"^the lower bound is -inf and the upper one inf in row 0: leave out rows"),
        ([[INF, INF]], r"^the lower bound is inf, or the upper one -inf in row 0"),
    ],
)
def test_bounds_that_cannot_be_are_named(bounds, sentence):
    with pytest.raises(TargetError, match=sentence):
        BOUNDS.columns(np.array(bounds, float), None)


def test_zero_is_no_lower_bound_of_a_positive_target():
    columns = BOUNDS.columns(np.array([[0.0, 3.0], [-INF, 3.0]]), None)
    logged = logarithms(columns, CensoredLogNormal.column_scaling)
    np.testing.assert_array_equal(logged[0], logged[1])
    with pytest.raises(TargetError, match=r"^the target is -1 in row 0"):
        logarithms(BOUNDS.columns(np.array([[-1.0, 3.0]]), None), CensoredLogNormal.column_scaling)
