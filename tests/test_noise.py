"""Noise obeys the paper's rules wherever it stands: inputs, hidden units, weights, biases."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from varprop import Gaussian, check, nn
from varprop.nn.parameters import count_parameters

pytestmark = pytest.mark.usefixtures("strict_promotion")

propagate = eqx.filter_jit(lambda layer, x: layer.moments(x))

MEAN = np.array([[0.5, -2.0, 0.0], [3.0, 1.0, -0.1]])
VAR = np.array([[0.2, 1.0, 3.0], [0.0, 0.5, 2.0]])
WEIGHT = np.array([[1.0, -0.5, 2.0], [0.3, 0.0, -1.0]])
BIAS = np.array([0.7, -1.2])

# eps, its mean and its variance by hand.
VARIABLES = [
    (nn.Normal(0.3, 2.0), 0.3, 4.0),
    (nn.Bernoulli(0.25, scale=4.0), 1.0, 3.0),
    (nn.Uniform(-1.0, 5.0), 2.0, 3.0),
]


def same(found, mean, var, rtol=1e-6):
    np.testing.assert_allclose(found.mean, mean, rtol=rtol, atol=1e-7)
    np.testing.assert_allclose(found.variances(), var, rtol=rtol, atol=1e-7)


@pytest.mark.parametrize(("eps", "m", "v"), VARIABLES)
def test_the_papers_rules(eps, m, v):
    """x + eps: E + m, V + v. x eps: E m, E^2 v + V m^2 + V v."""
    moments = eps.moments()
    np.testing.assert_allclose([moments.mean, moments.var], [m, v], rtol=1e-6)
    x = Gaussian(MEAN, VAR)
    same(nn.AdditiveNoise(eps).moments(x), MEAN + m, VAR + v)
    same(nn.MultiplicativeNoise(eps).moments(x), MEAN * m, MEAN**2 * v + VAR * m**2 + VAR * v)
    known = Gaussian(MEAN)
    same(nn.AdditiveNoise(eps).moments(known), MEAN + m, np.full_like(MEAN, v))
    same(nn.MultiplicativeNoise(eps).moments(known), MEAN * m, MEAN**2 * v)


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.9])
def test_dropout_and_drop_connect(rate):
    """Wang & Manning: E = (1 - rate) x, V = rate (1 - rate) x^2; rescaled, the mean is kept."""
    known, keep = Gaussian(MEAN), 1 - rate
    for kind in (nn.Dropout, nn.DropConnect):
        same(kind(rate, rescale=False).moments(known), keep * MEAN, rate * keep * MEAN**2)
        same(kind(rate, rescale=True).moments(known), MEAN, rate / keep * MEAN**2)
    # The defaults: dropout as it is used today, DropConnect as it was published.
    same(nn.Dropout(rate).moments(known), MEAN, rate / keep * MEAN**2)
    same(nn.DropConnect(rate).moments(known), keep * MEAN, rate * keep * MEAN**2)


def test_dropout_keeps_or_drops():
    values = nn.Dropout(0.3).corrupt(jax.random.key(0), jnp.ones(1000))
    assert set(np.unique(values)) == {np.float32(0), np.float32(1) / np.float32(0.7)}


def test_noise_on_inputs_is_an_uncertain_input():
    dense = nn.Dense(nn.GaussianWeights(WEIGHT, 0.3))
    net = nn.Sequential([nn.AdditiveNoise(nn.Normal(0.0, 0.5)), dense])
    expected = dense.moments(Gaussian(MEAN, 0.25))
    same(net.moments(Gaussian(MEAN)), expected.mean, expected.var)


def test_noise_on_weights_and_biases():
    """Gaussian weight noise on fixed weights is a layer of Gaussian weights."""
    fixed = nn.PointWeights(WEIGHT), nn.PointWeights(BIAS)
    noisy = nn.Dense(
        *fixed, weight_noise=nn.GaussianWeightNoise(0.4), bias_noise=nn.GaussianWeightNoise(0.2)
    )
    gaussian = nn.Dense(nn.GaussianWeights(WEIGHT, 0.4), nn.GaussianWeights(BIAS, 0.2))
    for x in (Gaussian(MEAN), Gaussian(MEAN, VAR)):
        expected = gaussian.moments(x)
        same(noisy.moments(x), expected.mean, expected.var)
    # DropConnect: every product w x is kept or dropped on its own.
    dropped = nn.Dense(*fixed, weight_noise=nn.DropConnect(0.25)).moments(Gaussian(MEAN))
    same(dropped, 0.75 * MEAN @ WEIGHT.T + BIAS, 0.1875 * MEAN**2 @ (WEIGHT**2).T)
    # On top of weights that are random themselves, variances of the weights add up.
    both = nn.Dense(nn.GaussianWeights(WEIGHT, 0.3), weight_noise=nn.GaussianWeightNoise(0.4))
    same(both.moments(Gaussian(MEAN)), MEAN @ WEIGHT.T, 0.25 * MEAN**2 @ np.ones((3, 2)))


def test_noise_on_hidden_units():
    size = {"hidden_layer_sizes": (5,), "key": jax.random.key(0)}
    plain = nn.mlp(3, 2, **size)
    noisy = nn.mlp(3, 2, hidden_noise=nn.Dropout(0.5), **size)
    hidden = propagate(nn.Sequential(plain.layers[:2]), Gaussian(MEAN))
    dropped = Gaussian(hidden.mean, hidden.var + hidden.mean**2 + hidden.var)
    expected = propagate(plain.layers[2], dropped)
    found = propagate(noisy, Gaussian(MEAN))
    same(found, expected.mean, expected.var, rtol=1e-5)


class SignFlip(nn.AbstractNoise):
    """A user's noise: each entry changes its sign with probability p."""

    p: float

    def moments(self, x):
        mean = (1 - 2 * self.p) * x.mean
        return Gaussian(mean, x.second_moment() - mean**2)

    def corrupt(self, key, x):
        return jnp.where(jax.random.bernoulli(key, self.p, x.shape), -x, x)


def test_a_users_noise_works_everywhere():
    """On inputs, hidden units, weights and biases, in a few lines; false-alarm rate 1e-6.

    The rectifier takes its input for Gaussian, which flipped weights do not give: so the identity.
    """
    flip = SignFlip(0.2)
    net = nn.mlp(
        3,
        2,
        hidden_layer_sizes=(5,),
        activation=nn.Identity(),
        key=jax.random.key(0),
        hidden_noise=flip,
        weight_noise=flip,
        bias_noise=flip,
    )
    report = check(net, MEAN, jax.random.key(1), n_samples=50_000)
    assert report.passed, str(report)
    with_input_noise = nn.Sequential([flip, nn.Dense(nn.GaussianWeights(WEIGHT, 0.3))])
    report = check(with_input_noise, MEAN, jax.random.key(1), n_samples=50_000)
    assert report.passed, str(report)


class Laplace(nn.AbstractVariable):
    """A user's eps: known mean and variance, and a way to draw from it."""

    scale: float

    def moments(self):
        return Gaussian(0.0, 2 * self.scale**2)

    def sample(self, key, shape, dtype):
        return self.scale * jax.random.laplace(key, shape, dtype)


def test_a_users_variable():
    report = check(
        nn.AdditiveNoise(Laplace(0.5)), Gaussian(MEAN, VAR), jax.random.key(0), n_samples=50_000
    )
    assert report.passed, str(report)


def test_a_variable_may_differ_between_units():
    noise = nn.AdditiveNoise(nn.Normal(np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])))
    same(noise.moments(Gaussian(MEAN)), MEAN + np.arange(3), np.broadcast_to([1, 4, 9], (2, 3)))
    report = check(noise, MEAN, jax.random.key(0), n_samples=50_000)
    assert report.passed, str(report)


def test_one_draw_serves_all_rows():
    """A thinned network is one network: a unit is dropped in all rows or in none of them."""
    drop = nn.Dropout(0.5).sample(jax.random.key(0))
    ones = np.asarray(drop(jnp.ones((5, 30))))
    np.testing.assert_array_equal(ones, np.broadcast_to(ones[0], ones.shape))
    np.testing.assert_array_equal(drop(jnp.ones((2, 3, 30))), np.broadcast_to(ones[0], (2, 3, 30)))
    np.testing.assert_array_equal(drop(jnp.ones(30)), ones[0])
    many = jax.vmap(lambda key: nn.Dropout(0.5).sample(key)(jnp.ones(30)))(
        jax.random.split(jax.random.key(1), 5)
    )
    assert len(np.unique(many, axis=0)) == 5


def test_dtype_follows_the_data(dtype):
    """Noise made in one precision works in another."""
    with jax.enable_x64(False):
        noises = [
            nn.Dropout(0.3),
            nn.AdditiveNoise(nn.Normal(1.0, 2.0)),
            nn.GaussianWeightNoise(0.1),
        ]
    x = jnp.asarray(MEAN, dtype)
    for noise in noises:
        out = noise.moments(Gaussian(x, jnp.asarray(VAR, dtype)))
        assert out.mean.dtype == out.var.dtype == dtype
        assert noise.sample(jax.random.key(0))(x).dtype == dtype


def test_noise_is_not_trained():
    for noise in (nn.Dropout(0.3), nn.AdditiveNoise(nn.Normal()), nn.DropConnect(0.1)):
        assert count_parameters(noise) == 0


def test_covariances_of_noise_that_differs_by_component_are_refused():
    x = Gaussian(jnp.zeros(3), jnp.ones(3))
    for kind in (nn.AdditiveNoise, nn.MultiplicativeNoise):
        noise = kind(nn.Normal(jnp.zeros(3), jnp.ones(3)))
        with pytest.raises(TypeError, match="alike for all components only"):
            noise.covariance(x, x, jnp.ones(3), same=True)
