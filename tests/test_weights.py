"""Distributions over weights: moments, KL divergences, numbers of parameters, starts."""

import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, stats

import truth
from varprop import Gaussian, nn

pytestmark = pytest.mark.usefixtures("strict_promotion")

MEAN = np.array([[0.3, -2.0], [0.0, 1.5]])
STD = np.array([[0.5, 1.0], [0.01, 3.0]])


def test_gaussian_moments(dtype):
    weights = nn.GaussianWeights(jnp.asarray(MEAN, dtype), jnp.asarray(STD, dtype))
    rtol = 16 * float(jnp.finfo(dtype).eps)
    moments = weights.moments()
    assert moments.dtype == dtype
    np.testing.assert_allclose(moments.mean, MEAN, rtol=rtol)
    np.testing.assert_allclose(moments.var, STD**2, rtol=rtol)
    scalar = nn.GaussianWeights(jnp.asarray(MEAN, dtype), 0.5)
    np.testing.assert_allclose(scalar.moments().var, 0.25, rtol=rtol)


@pytest.mark.usefixtures("x64")
def test_gaussian_kl_against_quadrature():
    prior = Gaussian(0.4, 1.7)
    scale = 1.7**0.5

    def one(mean, std):
        def integrand(z):
            w = mean + std * z
            gain = stats.norm.logpdf(w, mean, std) - stats.norm.logpdf(w, 0.4, scale)
            return stats.norm.pdf(z) * gain

        return integrate.quad(integrand, -12, 12, epsabs=1e-12)[0]

    expected = [one(m, s) for m, s in zip(MEAN.ravel(), STD.ravel(), strict=True)]
    found = nn.GaussianWeights(MEAN, STD).kl(prior)
    np.testing.assert_allclose(found, sum(expected), rtol=1e-10)
    # A prior of its own for each weight: the sum is over weights, not over the prior's axes.
    per_column = Gaussian(np.array([0.4, 0.4]), np.array([1.7, 1.7]))
    np.testing.assert_allclose(nn.GaussianWeights(MEAN, STD).kl(per_column), found, rtol=1e-12)


def test_gaussian_kl_against_sampling():
    """The definition itself, E_q[log q - log p]; false-alarm rate 1e-6."""
    weights, prior = nn.GaussianWeights(MEAN, STD), Gaussian(0.4, 1.7)
    draws = jax.jit(jax.vmap(weights.sample))(jax.random.split(jax.random.key(0), 100_000))
    draws = np.float64(draws)
    gain = stats.norm.logpdf(draws, MEAN, STD) - stats.norm.logpdf(draws, 0.4, 1.7**0.5)
    gain = gain.sum(axis=(1, 2))
    z = (float(weights.kl(prior)) - gain.mean()) / (gain.std() / gain.size**0.5)
    assert abs(z) < truth.threshold(1e-6, 1)


def test_joined_weights_are_the_same_weights():
    """All arrays as one vector: what is summed over weights does not change."""
    parts = [nn.GaussianWeights(MEAN, STD), nn.GaussianWeights(MEAN[0], STD[1])]
    joined, prior = nn.GaussianWeights.joined(parts), Gaussian(0.4, 1.7)
    assert joined.shape == (6,)
    np.testing.assert_allclose(joined.kl(prior), sum(p.kl(prior) for p in parts), rtol=1e-6)
    np.testing.assert_array_equal(joined.mean[:4], np.float32(MEAN).ravel())
    np.testing.assert_array_equal(joined.log_std[4:], parts[1].log_std)


def kl_by_mpmath(mean, std, prior_mean, prior_var):
    with mp.workdps(50):
        ratio = mp.mpf(float(std)) ** 2 / mp.mpf(float(prior_var))
        shift = (mp.mpf(float(mean)) - mp.mpf(float(prior_mean))) ** 2 / mp.mpf(float(prior_var))
        return float((ratio - 1 - mp.log(ratio) + shift) / 2)


def test_gaussian_kl_keeps_its_digits_near_the_prior():
    """In float32, where the textbook form would be left with the rounding of 1."""
    mean = np.zeros(4, np.float32)
    log_std = np.array([1e-2, -1e-3, 2e-4, 0.0], np.float32)
    weights = eqx.tree_at(lambda w: w.log_std, nn.GaussianWeights(mean, 1.0), jnp.asarray(log_std))
    found = [
        float(nn.GaussianWeights.kl(jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], weights), p))
        for i, p in enumerate([Gaussian(0.0, 1.0)] * 4)
    ]
    expected = [kl_by_mpmath(0.0, np.exp(np.float64(s)), 0.0, 1.0) for s in log_std]
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-12)
    assert found[-1] == 0


def test_gaussian_kl_at_extreme_scales():
    """Neither variance alone may overflow; the KL itself is a moderate number."""
    log_std = jnp.asarray([-60.0, 0.0, 40.0])
    weights = eqx.tree_at(lambda w: w.log_std, nn.GaussianWeights(jnp.zeros(3), 1.0), log_std)
    total = weights.kl(Gaussian(0.0, 1e20))
    expected = sum(kl_by_mpmath(0.0, np.exp(s), 0.0, 1e20) for s in (-60.0, 0.0, 40.0))
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    slopes = jax.grad(lambda w: w.kl(Gaussian(0.0, 1.0)))(
        eqx.tree_at(lambda w: w.log_std, weights, jnp.asarray([-60.0, 0.0, 10.0]))
    )
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slopes))


@pytest.mark.usefixtures("x64")
def test_gradients_of_the_kl():
    """In the posterior and in the prior, which is learned too, against finite differences."""
    start = jnp.asarray([0.3, -1.0, 0.2, -0.7])  # mean, log std, prior mean, prior log variance

    def kl(theta):
        weights = nn.GaussianWeights(theta[:1], jnp.exp(theta[1:2]))
        return weights.kl(Gaussian(theta[2], jnp.exp(theta[3])))

    def exact(theta):
        return kl_by_mpmath(theta[0], np.exp(theta[1]), theta[2], np.exp(theta[3]))

    h = 1e-6
    expected = [(exact(start + h * e) - exact(start - h * e)) / (2 * h) for e in np.eye(4)]
    np.testing.assert_allclose(jax.grad(kl)(start), expected, rtol=1e-7)


def test_bernoulli_moments(dtype):
    """E = (p - 1/2) s and V = p (1 - p) s^2, from p = 1e-13 to within 1e-13 of 1."""
    logit = np.array([-30.0, -8.0, -0.01, 0.0, 1e-5, 3.0, 30.0])
    weights = nn.BernoulliWeights(jnp.full(7, 0.5, dtype), 2.5)
    weights = eqx.tree_at(lambda w: w.logit, weights, jnp.asarray(logit, dtype))
    with mp.workdps(50):
        ps = [1 / (1 + mp.exp(-mp.mpf(float(dtype.type(v))))) for v in logit]
        exact = np.array([[float(2.5 * (p - 0.5)), float(2.5**2 * p * (1 - p))] for p in ps])
    rtol = 16 * float(jnp.finfo(dtype).eps)
    moments = weights.moments()
    assert moments.dtype == dtype
    np.testing.assert_allclose(moments.mean, exact[:, 0], rtol=rtol)
    # exp(-30) in float32 carries the rounding of its exponent.
    np.testing.assert_allclose(moments.var, exact[:, 1], rtol=4 * rtol)


def test_bernoulli_scale_per_weight_and_per_layer():
    p = jnp.asarray([[0.2, 0.7], [0.5, 0.9]])
    scale = jnp.asarray([[1.0, 2.0], [3.0, 0.5]])
    shared, own = nn.BernoulliWeights(p, 2.0), nn.BernoulliWeights(p, scale)
    for weights, s in ((shared, 2.0), (own, np.asarray(scale))):
        moments = weights.moments()
        np.testing.assert_allclose(moments.mean, (np.asarray(p) - 0.5) * s, rtol=1e-6)
        np.testing.assert_allclose(moments.var, np.asarray(p * (1 - p)) * s**2, rtol=1e-6)
        draws = jax.jit(jax.vmap(weights.sample))(jax.random.split(jax.random.key(0), 100))
        np.testing.assert_allclose(np.abs(draws), np.broadcast_to(s / 2, (100, 2, 2)), rtol=1e-6)
    # A draw moves with the scale: the derivative of +-s/2 by log s is itself.
    slope = jax.grad(lambda w: jnp.sum(w.sample(jax.random.key(1))))(own)
    np.testing.assert_allclose(slope.log_scale, own.sample(jax.random.key(1)), rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_bernoulli_kl():
    p = np.array([0.01, 0.3, 0.5, 0.999])
    for q in (0.5, 0.2):
        expected = np.sum(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))
        found = nn.BernoulliWeights(p, 3.0).kl(nn.Bernoulli(q))
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert float(nn.BernoulliWeights(np.full(3, 0.2)).kl(nn.Bernoulli(0.2))) == pytest.approx(0)
    # By the definition, over the two values of the bit; the scale plays no part.
    slope = jax.grad(lambda w: w.kl(nn.Bernoulli(0.2)))(nn.BernoulliWeights(p, 3.0))
    assert slope.log_scale == 0
    logit = np.log(p / (1 - p))
    expected = p * (1 - p) * (logit - np.log(0.2 / 0.8))  # dKL/dlogit in closed form
    np.testing.assert_allclose(slope.logit, expected, rtol=1e-9)


def test_kl_of_saturated_bits_is_finite():
    weights = nn.BernoulliWeights(jnp.full(3, 0.5))
    weights = eqx.tree_at(lambda w: w.logit, weights, jnp.asarray([-200.0, 0.0, 200.0]))
    value, slope = jax.value_and_grad(lambda w: w.kl(nn.Bernoulli(0.5)))(weights)
    np.testing.assert_allclose(value, 2 * np.log(2), rtol=1e-6)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slope))


def test_number_of_parameters():
    """Bernoulli weights need half of what Gaussian ones need, up to the one scale of a layer."""
    key, shape = jax.random.key(0), (5, 3)
    n = 15
    assert nn.GaussianWeights.init(key, shape).n_parameters == 2 * n
    assert nn.BernoulliWeights.init(key, shape).n_parameters == n + 1
    assert nn.BernoulliWeights.init(key, shape, per_weight=True).n_parameters == 2 * n
    assert nn.PointWeights.init(key, shape).n_parameters == n
    build = partial(eqx.filter_eval_shape, nn.mlp, 8, 1, hidden_layer_sizes=(50,), key=key)

    def count(net):  # of shapes: nothing is made
        return sum(leaf.size for leaf in jax.tree.leaves(net))

    gaussian, binary = count(build()), count(build(weights=nn.BernoulliWeights.init))
    assert gaussian == 2 * (8 * 50 + 50 + 50 + 1)
    assert binary == gaussian // 2 + 4  # one scale for each of the four arrays


def test_starts(dtype):
    """What `init` draws; false-alarm rate 1e-6 for the whole test."""
    key, shape = jax.random.key(1), (400, 250)
    limit = truth.threshold(1e-6, 6)
    gaussian = nn.GaussianWeights.init(key, shape)
    binary = nn.BernoulliWeights.init(key, shape, logit_scale=0.5, scale=2.0)
    point = nn.PointWeights.init(key, shape, scale=0.1)
    for values, spread in ((gaussian.mean, 0.2), (binary.logit, 0.5), (point.value, 0.1)):
        assert values.dtype == dtype
        z = truth.sampling_z(np.ravel(values), 0.0, spread**2)
        assert np.abs(z).max() < limit
    np.testing.assert_allclose(np.exp(gaussian.log_std), 0.05, rtol=1e-5)
    # The fan-in is the last axis: weights are (outputs, inputs).
    np.testing.assert_allclose(np.exp(binary.log_scale), 2.0 / 250**0.5, rtol=1e-5)
    half = nn.GaussianWeights.init(key, (3,), dtype=jnp.float32)
    assert half.mean.dtype == half.log_std.dtype == jnp.float32


def test_a_unit_starts_with_noise_that_does_not_depend_on_its_fan_in():
    for n_inputs in (4, 400):
        weights = nn.BernoulliWeights.init(jax.random.key(0), (2000, n_inputs))
        var = np.asarray(nn.Dense(weights).moments(jnp.ones(n_inputs)).var)
        # E[p (1 - p)] of a standard normal logit is 0.207, and the scalers' squares add up to 8.
        assert 8 * 0.15 < var.mean() < 8 * 0.25
    bias = nn.BernoulliWeights.init(jax.random.key(0), (50,))
    np.testing.assert_allclose(np.exp(bias.log_scale), 0.1 * 8**0.5, rtol=1e-6)


SENTENCES = [
    (
        lambda: nn.GaussianWeights(jnp.zeros(3), jnp.asarray([1.0, 0.0, 1.0])),
        ValueError,
        "std must be positive, but is 0 at index 1.",
    ),
    (
        lambda: nn.GaussianWeights(jnp.zeros(3), jnp.ones(2)),
        ValueError,
        "std has shape (2,), but (3,) is needed: it must match the mean.",
    ),
    (
        lambda: nn.BernoulliWeights(jnp.asarray([[0.5, 1.0]])),
        ValueError,
        "p must lie strictly between 0 and 1, but is 1 at index (0, 1).",
    ),
    (
        lambda: nn.BernoulliWeights(jnp.asarray([-0.25])),
        ValueError,
        "p must lie strictly between 0 and 1, but is -0.25 at index 0.",
    ),
    (
        lambda: nn.BernoulliWeights(jnp.full(3, 0.5), -2.0),
        ValueError,
        "scale must be positive, but is -2.",
    ),
    (
        lambda: nn.BernoulliWeights(jnp.full(3, 0.5), jnp.ones(2)),
        ValueError,
        "scale has shape (2,), but (3,) is needed: it must be a scalar or match p.",
    ),
    (
        lambda: nn.GaussianWeights(jnp.zeros(3), 1.0).kl(nn.Bernoulli(0.5)),
        TypeError,
        "prior must be a Gaussian with a variance: the KL of Gaussian weights to Bernoulli is not "
        "finite.",
    ),
    (
        lambda: nn.GaussianWeights(jnp.zeros(3), 1.0).kl(Gaussian(0.0)),
        TypeError,
        "prior must be a Gaussian with a variance: the KL of Gaussian weights to a point is not "
        "finite.",
    ),
    (
        lambda: nn.GaussianWeights(jnp.zeros(3), 1.0).kl(Gaussian(0.0, 0.0)),
        ValueError,
        "the prior's var must be positive, but is 0.",
    ),
    (
        lambda: nn.BernoulliWeights(jnp.full(3, 0.5)).kl(Gaussian(0.0, 1.0)),
        TypeError,
        "prior must be a Bernoulli: the KL of Bernoulli weights to Gaussian is not finite.",
    ),
    (
        lambda: nn.PointWeights(jnp.zeros(3)).kl(Gaussian(0.0, 1.0)),
        TypeError,
        "prior must be None: the KL of point weights to a density is not finite.",
    ),
]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(("call", "error", "sentence"), SENTENCES, ids=range(len(SENTENCES)))
def test_one_sentence_says_what_is_wrong(call, error, sentence):
    with pytest.raises(error, match="^" + re.escape(sentence) + "$"):
        call()


def test_point_weights_pay_nothing():
    weights = nn.PointWeights(MEAN)
    assert weights.kl() == 0
    assert weights.moments().var is None
    np.testing.assert_array_equal(weights.sample(jax.random.key(0)), weights.value)
