"""Counts: probabilities and both objectives against SciPy and quadrature on a fine grid."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import tiny
from varprop import Gaussian, JointGaussian, Scaling, regression_model
from varprop.data.targets import TargetError
from varprop.learning.likelihoods import NegativeBinomial, Poisson
from varprop.learning.likelihoods.given import COUNTS

pytestmark = pytest.mark.usefixtures("strict_promotion")
LOG_DISPERSION = {"poisson": None, "thin": -9.0, "half": np.log(0.5), "wide": np.log(4.0)}


def likelihood(kind, offset=0.0):
    offset = jnp.asarray([offset])
    log = LOG_DISPERSION[kind]
    return Poisson(offset) if log is None else NegativeBinomial(offset, jnp.asarray([log]))


def log_probability(kind, count, log_rate):
    """SciPy's."""
    log = LOG_DISPERSION[kind]
    if log is None:
        return count * log_rate - np.exp(log_rate) - special.gammaln(count + 1)
    size = np.exp(-log)
    return stats.nbinom.logpmf(count, size, size / (size + np.exp(log_rate)))


def columns(count, exposure=1.0):
    count = np.asarray(count, float)
    return jnp.asarray(np.stack([count, np.log(np.broadcast_to(exposure, count.shape))], axis=1))


@pytest.mark.parametrize("kind", LOG_DISPERSION)
def test_probabilities_are_scipys(x64, kind):
    """With the exposure as a factor of the rate."""
    count = np.array([0, 1, 3, 7, 8, 9, 40, 2000])
    exposure = np.array([1.0, 0.1, 2.0, 5.0, 1.0, 3.0, 9.0, 700.0])
    f = np.linspace(-1, 2, len(count))
    claimed = likelihood(kind, 0.7).log_prob(jnp.asarray(f[:, None]), columns(count, exposure))
    truth = log_probability(kind, count, f + 0.7 + np.log(exposure))
    np.testing.assert_allclose(claimed[:, 0], truth, rtol=1e-7, atol=1e-7)


def test_single_precision_keeps_its_digits_beside_the_poisson():
    """Gamma functions of 1/a would cancel: here a is a millionth."""
    count = np.array([0.0, 5.0, 30.0])
    log_rate = np.log(np.array([1.0, 4.0, 25.0]))
    thin = NegativeBinomial(jnp.zeros(1), jnp.array([np.log(1e-6)], jnp.float32))
    y = jnp.asarray(np.stack([count, 0 * count], 1), jnp.float32)
    claimed = thin.log_prob(jnp.asarray(log_rate[:, None], jnp.float32), y)
    np.testing.assert_allclose(
        claimed[:, 0], stats.poisson.logpmf(count, np.exp(log_rate)), rtol=2e-5, atol=2e-5
    )


CASES = [
    (0, -3.0, 0.5),
    (0, 4.0, 1.0),
    (3, 1.0, 0.01),
    (3, -2.0, 1.0),
    (50, 3.0, 1.0),
    (50, 5.0, 0.3),
    (20_000, 9.5, 1.0),
    (1_000_000, 13.0, 0.04),
]


@pytest.mark.parametrize("kind", LOG_DISPERSION)
def test_both_objectives_are_integrals_over_the_rate(x64, kind):
    """A sum over 400,001 points; the stated errors, relative to the count where it is large."""
    count, mean, var = (np.array(part, float) for part in zip(*CASES, strict=True))
    f, y = Gaussian(jnp.asarray(mean[:, None]), jnp.asarray(var[:, None])), columns(count)
    z = np.linspace(-9, 9, 400_001)
    weight = stats.norm.pdf(z) * (z[1] - z[0])
    model = likelihood(kind)
    predictive, expected = model.log_predictive(f, y), model.expected_log_prob(f, y)
    for row, (k, m, v) in enumerate(CASES):
        log = log_probability(kind, k, m + np.sqrt(v) * z)
        bound = 1e-5 if kind == "poisson" else 1e-3
        assert abs(float(predictive[row]) - special.logsumexp(log + np.log(weight))) < bound
        assert abs(float(expected[row]) - weight @ log) < 1e-6 * max(1, k)


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
def test_known_rates_need_no_integral(x64, method):
    for kind in LOG_DISPERSION:
        found = getattr(likelihood(kind), method)(Gaussian(jnp.array([[0.3]])), columns([4]))
        np.testing.assert_allclose(found[0], log_probability(kind, 4, 0.3), rtol=1e-7)


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
@pytest.mark.parametrize("kind", ["poisson", "half"])
def test_gradients_agree_with_finite_differences(x64, kind, method):
    """Though the mode that nodes lie about is not differentiated."""
    y = columns([0, 3, 50], [1.0, 2.0, 10.0])

    def total(v):
        offset = jnp.array([0.2]) + v[:1]
        log = jnp.array([np.log(0.5)]) + v[1:2]
        model = Poisson(offset) if kind == "poisson" else NegativeBinomial(offset, log)
        mean = jnp.array([[0.5], [0.1], [2.0]]) + v[2]
        return jnp.sum(getattr(model, method)(Gaussian(mean, 0.3 * jnp.exp(v[3]) + 0 * mean), y))

    numeric = tiny.finite_differences(tiny.quick_jit(total), np.zeros(4), 1e-5)
    gradient = tiny.quick_jit(jax.grad(total))(jnp.zeros(4))
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5)


def test_the_prediction_has_training_s_probabilities(x64):
    """What comes out, at an exposure, is what ROPD scored."""
    model = likelihood("half", 0.7)
    f = Gaussian(jnp.array([[0.1], [0.1]]), jnp.array([[0.4], [0.4]]))
    ((rate,),) = model.predictive(f)
    part = type(model.predictive(f)[0])((np.asarray(rate.mean), np.asarray(rate.variances())))
    plain = Scaling.identity(1, 1)
    prediction = model.distribution([part], plain, squeeze=True)
    y = np.array([[2.0, 0.0], [9.0, np.log(3.0)]])
    observed, count = NegativeBinomial.as_observed(prediction, y)
    np.testing.assert_allclose(
        observed.logpdf(count[:, 0]), model.log_predictive(f, jnp.asarray(y)), atol=1e-5
    )


def test_the_constant_has_the_counts_mean_and_variance(x64):
    """And the start is there too."""
    rng = np.random.default_rng(0)
    count = rng.negative_binomial(2, 0.3, 4000)[:, None].astype(float)
    y = COUNTS.columns(count, None)
    numbers = NegativeBinomial.constant_numbers(y, None)
    plain = Scaling.identity(1, 1)
    constant = NegativeBinomial.constant(numbers, plain, n_seen=None, squeeze=True)
    np.testing.assert_allclose(constant.mean[0], count.mean(), rtol=1e-9)
    np.testing.assert_allclose(constant.var[0], count.var(), rtol=1e-9)
    start = NegativeBinomial.start(1, y=y)
    np.testing.assert_allclose(np.exp(start.offset[0]), count.mean(), rtol=1e-9)
    np.testing.assert_allclose(start.dispersion[0], numbers[1], rtol=1e-9)
    # Rates, not counts, are compared where exposures differ.
    twice = COUNTS.columns(2 * count, np.full(4000, 2.0))
    np.testing.assert_allclose(NegativeBinomial.constant_numbers(twice, None)[0], numbers[0])


def test_no_count_at_all_is_no_rate_of_zero(x64):
    numbers = Poisson.constant_numbers(COUNTS.columns(np.zeros((10, 1)), None), None)
    np.testing.assert_allclose(numbers, [np.log(0.05), 0.0])


@pytest.mark.parametrize(
    ("count", "exposure", "sentence"),
    [
        ([1, -1], None, r"^the count is -1 in row 1: counts are whole numbers from 0 on\.$"),
        ([1.5, 2], None, r"^the count is 1\.5 in row 0: counts are whole numbers from 0 on\.$"),
        ([1, 2], [1, 0], r"^the exposure is 0 in row 1: it must be positive and finite\.$"),
        ([1, 2], [np.inf, 1], r"^the exposure is inf in row 0: it must be positive and finite\.$"),
    ],
)
def test_what_cannot_be_counted_is_named(count, exposure, sentence):
    exposure = None if exposure is None else np.array(exposure, float)
    with pytest.raises(TargetError, match=sentence):
        COUNTS.columns(np.array(count, float)[:, None], exposure)


def test_covariances_are_refused(x64):
    f = JointGaussian(jnp.zeros((3, 1)), jnp.ones((3, 1, 1)))
    with pytest.raises(TypeError, match="Poisson takes every target by itself"):
        likelihood("poisson").log_predictive(f, columns([1, 2, 3]))
    y = np.array([[1.0, 4.0, 0.0, 0.0], [2.0, 7.0, 0.0, 0.0]])  # two targets, then exposures
    model = regression_model(1, 2, key=jax.random.key(0), likelihood=Poisson, y=y)
    assert isinstance(model.network.moments(Gaussian(jnp.ones((2, 1)), 0.0)), Gaussian)


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
def test_single_precision_holds_large_counts_and_far_larger_rates(method):
    """Values and derivatives, where the network is still far off: counts of 1e6, rates of e^60."""
    y = jnp.asarray([[1e6, 0.0], [0.0, 0.0], [1e5, 0.0]], jnp.float32)
    for log_rate in (-20.0, 0.0, 12.0, 60.0):
        for var in (0.0, 1e-4, 1.0, 9.0):

            def total(mean, log, var=var):
                one = NegativeBinomial(jnp.zeros(1, jnp.float32), log)
                return jnp.sum(getattr(one, method)(Gaussian(mean, jnp.float32(var)), y))

            mean = jnp.full((3, 1), log_rate, jnp.float32)
            for log in (-3.0, 0.0, 1.5):
                found = jax.value_and_grad(total, (0, 1))(mean, jnp.asarray([log], jnp.float32))
                assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
