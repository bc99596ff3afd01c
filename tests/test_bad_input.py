"""Bad input: one sentence that names the argument and the value, or a documented NaN under jit.

Sentences about moments and weights stand in their own files; here are the layers, noise and rules,
and everything that happens inside `jit`, where values cannot be seen.
"""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from varprop import Gaussian, check, nn

pytestmark = pytest.mark.usefixtures("strict_promotion")

KEY = jax.random.key(0)
SMALL = {"mean_range": (-2.0, 2.0), "std_max": 1.0, "n_means": 5, "n_stds": 5, "n_nodes": 9}


def table():
    return nn.Table(jnp.tanh, **SMALL)


def dense():
    return nn.Dense(nn.GaussianWeights(jnp.ones((2, 3)), 0.1))


SENTENCES = [
    (lambda: nn.Dropout(1.0), "rate must lie in [0, 1), but is 1."),
    (lambda: nn.Dropout(-0.5), "rate must lie in [0, 1), but is -0.5."),
    (lambda: nn.DropConnect(1.5), "rate must lie in [0, 1), but is 1.5."),
    (lambda: nn.Dropout(float("nan")), "rate must lie in [0, 1), but is nan."),
    (lambda: nn.GaussianWeightNoise(-1.0), "std must not be negative, but is -1."),
    (lambda: nn.Normal(0.0, -2.0), "std must not be negative, but is -2."),
    (lambda: nn.Bernoulli(1.25), "p must be a probability in [0, 1], but is 1.25."),
    (
        lambda: nn.Bernoulli(np.array([0.5, -0.1])),
        "p must be a probability in [0, 1], but is -0.1 at index 1.",
    ),
    (lambda: nn.Uniform(1.0, 0.5), "high must not be below low, but high - low is -0.5."),
    (
        lambda: table().moments(Gaussian(np.array([0.0, 2.5]), 0.1)),
        "mean 2.5 at index 1 lies outside the table's range, [-2, 2].",
    ),
    (
        lambda: table().moments(Gaussian(np.zeros((1, 2)), np.array([[1.0, 4.0]]))),
        "standard deviation 2 at index (0, 1) lies outside the table's range, [0, 1].",
    ),
    (
        lambda: nn.Table(jnp.tanh, mean_range=(1.0, -1.0)),
        "mean_range must go up, but is (1, -1).",
    ),
    (lambda: nn.Table(jnp.tanh, std_max=0.0), "std_max must be positive, but is 0."),
    (
        lambda: nn.Table(jnp.tanh, n_means=1),
        "a table needs at least 2 points each way, but has 1 and 201.",
    ),
    (lambda: nn.Table(jnp.tanh, n_nodes=1), "n_nodes must be at least 2, but is 1."),
    (lambda: nn.GaussHermite(jnp.tanh, n_nodes=0), "n_nodes must be at least 1, but is 0."),
    (lambda: nn.GELU(n_nodes=-1), "n_nodes must be at least 1, but is -1."),
    (lambda: nn.Unscented(jnp.tanh, kappa=-0.5), "kappa must not be negative, but is -0.5."),
    (
        lambda: nn.MonteCarlo(jnp.tanh, key=KEY, n_samples=7),
        "n_samples must be even and at least 2, but is 7.",
    ),
    (
        lambda: dense().moments(jnp.ones((4, 2))),
        "x has shape (4, 2), but this layer needs (..., 3).",
    ),
    (lambda: dense().moments(Gaussian(1.0)), "x has shape (), but this layer needs (..., 3)."),
    (
        lambda: nn.Sequential([dense()]).moments(jnp.ones((4, 2))),
        "x has shape (4, 2), but this layer needs (..., 3).",
    ),
    (
        lambda: nn.Dense(nn.PointWeights(jnp.ones(3))),
        "weight has shape (3,), but needs (outputs, inputs).",
    ),
    (
        lambda: nn.Dense(nn.PointWeights(jnp.ones((2, 3))), nn.PointWeights(jnp.ones(3))),
        "bias has shape (3,), but weight of shape (2, 3) needs (2,).",
    ),
    (
        lambda: nn.Sequential(
            [nn.JointDense(nn.PointWeights(jnp.ones((2, 3)))), nn.ReLU()]
        ).moments(jnp.ones(3)),
        "layers[0], JointDense, gives a JointGaussian, but only the last layer may.",
    ),
    (
        lambda: nn.mlp(3, 0, key=KEY),
        "layer sizes must be whole numbers of at least 1, but one is 0.",
    ),
    (
        lambda: nn.mlp(3, 1, hidden_layer_sizes=(2.5,), key=KEY),
        "layer sizes must be whole numbers of at least 1, but one is 2.5.",
    ),
    (
        lambda: check(nn.ReLU(), jnp.ones(2), KEY, n_samples=10),
        "n_samples must be at least 100, but is 10.",
    ),
]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(("call", "sentence"), SENTENCES, ids=[s[1][:48] for s in SENTENCES])
def test_one_sentence_says_what_is_wrong(call, sentence):
    with pytest.raises(ValueError, match="^" + re.escape(sentence) + "$"):
        call()


@pytest.mark.parametrize("x", [jnp.ones((4, 3)), jnp.ones(3)], ids=["batch", "row"])
def test_a_joint_gaussian_in_the_middle_is_an_error(x):
    """In an inner network too, which is taken layer by layer; what follows must not be skipped."""
    inner = nn.Sequential([nn.JointDense(nn.PointWeights(jnp.ones((2, 3))))])
    sentence = "layers[0], JointDense, gives a JointGaussian, but only the last layer may."
    with pytest.raises(ValueError, match=re.escape(sentence)):
        nn.Sequential([inner, nn.ReLU()]).moments(x)


ACTIVATIONS = [
    nn.Identity(),
    nn.ReLU(),
    nn.LeakyReLU(0.1),
    nn.Heaviside(),
    nn.Erf(),
    nn.Sigmoid(),
    nn.Tanh(),
    nn.GELU(),
    nn.Unscented(jnp.tanh),
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: type(a).__name__)
def test_a_negative_variance_under_jit_is_nan(activation):
    """And only where it is: its neighbors come out as they should."""
    mean, var = jnp.asarray([0.0, 0.3, -1.0]), jnp.asarray([1.0, -1e-3, 0.5])
    out = jax.jit(lambda m, v: activation.moments(Gaussian(m, v)))(mean, var)
    np.testing.assert_array_equal(np.isnan(out.var), [False, True, False])
    good = activation.moments(Gaussian(mean, jnp.abs(var)))
    np.testing.assert_allclose(out.mean[::2], good.mean[::2], rtol=1e-5)
    np.testing.assert_allclose(out.var[::2], good.var[::2], rtol=1e-5)


@pytest.mark.parametrize("transform", [lambda f: f, jax.vmap], ids=["jit", "vmap"])
def test_a_negative_variance_cannot_hide_in_a_sum(transform):
    """The other inputs of a layer have variance enough to cover it up."""
    mean, var = jnp.ones((2, 3)), jnp.asarray([[1.0, -0.1, 1.0], [1.0, 0.1, 1.0]])
    for layer in (dense(), nn.mlp(3, 2, hidden_layer_sizes=(5,), key=KEY)):
        run = transform(lambda m, v, layer=layer: layer.moments(Gaussian(m, v)))
        out = jax.jit(run)(mean, var)
        assert np.all(np.isnan(out.var[0]))
        assert np.all(np.isfinite(out.var[1]))


def test_a_table_asked_outside_its_range_under_jit_is_nan():
    mean = jnp.asarray([0.0, 2.5, 0.0, -2.0])
    var = jnp.asarray([0.5, 0.5, 4.0, 1.0])
    out = jax.jit(lambda m, v: table().moments(Gaussian(m, v)))(mean, var)
    np.testing.assert_array_equal(np.isnan(out.mean), [False, True, True, False])
    np.testing.assert_array_equal(np.isnan(out.var), [False, True, True, False])


@pytest.mark.parametrize("rate", [-0.2, 1.0, 1.5])
def test_a_wrong_dropout_rate_under_jit_is_nan(rate):
    found = jax.jit(lambda r: nn.Dropout(r).moments(Gaussian(jnp.ones(2))))(jnp.asarray(rate))
    assert np.all(np.isnan(found.var))


def test_probabilities_and_scales_under_jit():
    """What the docstrings say: the borders are weights without variance, beyond them is NaN."""

    def bernoulli(p):
        moments = nn.BernoulliWeights(p).moments()
        return moments.mean, moments.var

    mean, var = jax.jit(bernoulli)(jnp.asarray([-0.1, 0.0, 0.5, 1.0, 1.1]))
    np.testing.assert_array_equal(mean, [np.nan, -0.5, 0.0, 0.5, np.nan])
    np.testing.assert_array_equal(var, [np.nan, 0.0, 0.25, 0.0, np.nan])

    def gaussian(std):
        return nn.GaussianWeights(jnp.zeros(3), std).moments().var

    np.testing.assert_array_equal(
        jax.jit(gaussian)(jnp.asarray([-1.0, 0.0, 1.0])), [np.nan, 0.0, 1.0]
    )


def test_a_nan_input_stays_nan():
    """No comparison with a range or with zero may turn it into a number."""
    net = nn.mlp(3, 2, hidden_layer_sizes=(5,), key=KEY)
    x = jnp.asarray([[1.0, jnp.nan, 1.0], [1.0, 1.0, 1.0]])
    for out in (net.moments(x), jax.jit(lambda x: net.moments(x))(x)):
        assert np.all(np.isnan(out.mean[0]))
        assert np.all(np.isfinite(out.mean[1]))
    with pytest.raises(ValueError, match="var must not be negative, but is nan at index 1"):
        Gaussian(np.zeros(2), np.array([1.0, np.nan]))  # the variance alone is a mistake
