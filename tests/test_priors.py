"""Priors: the KL against closed forms and sampling, what is learned, and where learning ends."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import tiny
from truth import threshold
from varprop import Gaussian, Model, priors
from varprop.nn import BernoulliWeights, Dense, GaussianWeights, PointWeights, mlp
from varprop.nn.parameters import count_parameters, take_apart

pytestmark = pytest.mark.usefixtures("strict_promotion")


def gaussian_network(seed=0):
    """Two layers whose weights have means and standard deviations all of their own."""
    network = mlp(3, 2, key=jax.random.key(seed), hidden_layer_sizes=(4,))
    structure, params, constants = take_apart(network)
    noise = 0.3 * jax.random.normal(jax.random.key(seed + 1), params.shape, params.dtype)
    return structure.build(params + noise, constants)


def bernoulli_network(seed=0):
    return mlp(
        3, 2, key=jax.random.key(seed), hidden_layer_sizes=(4,), weights=BernoulliWeights.init
    )


def moments_by_layer(network):
    """Means and standard deviations of all weights and biases of each layer, flat, float64."""
    layers = []
    for layer in priors.weights_by_layer(network):
        mean = np.concatenate([np.ravel(weights.mean) for weights in layer]).astype(np.float64)
        log_std = np.concatenate([np.ravel(weights.log_std) for weights in layer])
        layers.append((mean, np.exp(log_std.astype(np.float64))))
    return layers


def gaussian_kl(mean, std, prior_mean, prior_std):
    """The textbook formula, in NumPy."""
    return np.sum(
        np.log(prior_std / std) + (std**2 + (mean - prior_mean) ** 2) / (2 * prior_std**2) - 0.5
    )


@pytest.mark.parametrize("kind", [priors.LearnedGaussian, priors.FixedGaussian])
def test_one_gaussian_for_all_weights_and_biases(kind, x64):
    network = gaussian_network()
    everything = [np.concatenate(part) for part in zip(*moments_by_layer(network), strict=True)]
    assert everything[0].size == 3 * 4 + 4 + 4 * 2 + 2
    truth = gaussian_kl(*everything, 0.3, 0.7)
    np.testing.assert_allclose(kind(0.3, 0.7).kl(network), truth, rtol=1e-13)


def test_one_gaussian_per_layer(x64):
    network = gaussian_network()
    prior = priors.LearnedGaussianPerLayer(2, jnp.array([0.1, -0.2]), jnp.array([0.5, 0.9]))
    first, second = moments_by_layer(network)
    truth = gaussian_kl(*first, 0.1, 0.5) + gaussian_kl(*second, -0.2, 0.9)
    np.testing.assert_allclose(prior.kl(network), truth, rtol=1e-13)


def test_a_scale_for_each_input_at_its_optimum(x64):
    """By hand: the best scale of what leaves an input, of a layer's weights; biases by N(0, 1)."""
    network = gaussian_network()
    truth = 0.0
    for number, (weight, bias) in enumerate(priors.weights_by_layer(network)):
        mean, std = np.asarray(weight.mean), np.exp(np.asarray(weight.log_std))
        columns = range(mean.shape[1]) if number == 0 else [slice(None)]
        for at in columns:
            best = np.sqrt(np.mean(mean[:, at] ** 2 + std[:, at] ** 2))
            truth += gaussian_kl(mean[:, at], std[:, at], 0.0, best)
        truth += gaussian_kl(np.asarray(bias.mean), np.exp(np.asarray(bias.log_std)), 0.0, 1.0)
    np.testing.assert_allclose(priors.AutomaticRelevance().kl(network), truth, rtol=1e-12)


def test_a_prior_for_too_few_layers_is_refused():
    with pytest.raises(
        ValueError, match="prior has 1 layers, but the network has a layer number 2"
    ):
        priors.LearnedGaussianPerLayer(1).kl(gaussian_network())


@pytest.mark.parametrize("kind", [priors.LearnedBernoulli, priors.FixedBernoulli])
def test_bernoulli_prior_compares_bits(kind, x64):
    network = bernoulli_network()
    truth = 0.0
    for layer in priors.weights_by_layer(network):
        for weights in layer:
            p = 1 / (1 + np.exp(-np.asarray(weights.logit)))
            truth += np.sum(p * np.log(p / 0.3) + (1 - p) * np.log((1 - p) / 0.7))
    np.testing.assert_allclose(kind(0.3).kl(network), truth, rtol=1e-12)


def test_gaussian_kl_agrees_with_sampling(x64):
    """log q - log p averaged over draws of all weights; false alarm once in a million runs."""
    network, prior = gaussian_network(), priors.FixedGaussian(0.1, 0.4)
    mean, std = (np.concatenate(part) for part in zip(*moments_by_layer(network), strict=True))
    draws = np.random.default_rng(0).normal(mean, std, size=(20_000, mean.size))
    ratio = stats.norm.logpdf(draws, mean, std) - stats.norm.logpdf(draws, 0.1, 0.4)
    totals = ratio.sum(axis=1)
    z = (float(prior.kl(network)) - totals.mean()) / (totals.std() / np.sqrt(len(totals)))
    assert abs(z) < threshold(1e-6, 1)


def test_bernoulli_kl_agrees_with_sampling(x64):
    """As above, with the signs of weights drawn by the network's own sampler."""
    weights = BernoulliWeights(jnp.array([0.1, 0.4, 0.8, 0.95]), 1.0)
    keys = jax.random.split(jax.random.key(1), 20_000)
    on = np.asarray(jax.vmap(weights.sample)(keys)) > 0
    p = np.array([0.1, 0.4, 0.8, 0.95])
    ratio = stats.bernoulli.logpmf(on, p) - stats.bernoulli.logpmf(on, 0.3)
    totals = ratio.sum(axis=1)
    claimed = float(weights.kl(priors.FixedBernoulli(0.3).distribution(0, weights)))
    z = (claimed - totals.mean()) / (totals.std() / np.sqrt(len(totals)))
    assert abs(z) < threshold(1e-6, 1)


@pytest.mark.parametrize(
    ("prior", "n_learned"),
    [
        (priors.LearnedGaussian(), 2),
        (priors.LearnedGaussianPerLayer(3), 6),
        (priors.FixedGaussian(), 0),
        (priors.LearnedBernoulli(), 1),
        (priors.FixedBernoulli(), 0),
    ],
)
def test_which_numbers_of_a_prior_are_learned(prior, n_learned):
    assert count_parameters(prior) == n_learned


def minimized(prior, network):
    """The prior after plain gradient descent on its KL, the network held fixed."""
    structure, start, constants = take_apart(prior)

    def loss(params):
        return structure.build(params, constants).kl(network)

    with jax.numpy_dtype_promotion("standard"):  # Optax mixes integers and floats
        solver = optax.lbfgs()
        step = optax.value_and_grad_from_state(loss)

        def update(_, carry):
            params, state = carry
            value, gradient = step(params, state=state)
            updates, state = solver.update(
                gradient, state, params, value=value, grad=gradient, value_fn=loss
            )
            return optax.apply_updates(params, updates), state

        best, _ = tiny.quick_jit(lambda p: jax.lax.fori_loop(0, 60, update, (p, solver.init(p))))(
            start
        )
    return structure.build(best, constants)


def test_the_optimal_learned_gaussian_is_the_analytic_one(x64):
    network = gaussian_network()
    best = minimized(priors.LearnedGaussian(), network)
    mean, std = (np.concatenate(part) for part in zip(*moments_by_layer(network), strict=True))
    center = mean.mean()
    spread = np.sqrt(np.mean(std**2 + (mean - center) ** 2))
    np.testing.assert_allclose(best.mean, center, atol=1e-8)
    np.testing.assert_allclose(jnp.exp(best.log_std), spread, rtol=1e-8)


def test_the_optimal_prior_per_layer_is_each_layers_own(x64):
    network = gaussian_network()
    best = minimized(priors.LearnedGaussianPerLayer(2), network)
    for number, (mean, std) in enumerate(moments_by_layer(network)):
        center = mean.mean()
        spread = np.sqrt(np.mean(std**2 + (mean - center) ** 2))
        np.testing.assert_allclose(best.mean[number], center, atol=1e-8)
        np.testing.assert_allclose(jnp.exp(best.log_std[number]), spread, rtol=1e-8)


def test_the_optimal_learned_bernoulli_is_the_mean_probability(x64):
    network = bernoulli_network()
    best = minimized(priors.LearnedBernoulli(0.7), network)
    logits = [np.ravel(w.logit) for layer in priors.weights_by_layer(network) for w in layer]
    truth = np.mean(1 / (1 + np.exp(-np.concatenate(logits))))
    np.testing.assert_allclose(jax.nn.sigmoid(best.logit), truth, rtol=1e-8)


class WiderWithDepth(priors.AbstractPrior):
    """A user's own: layer k has standard deviation (k + 1) * std, which is learned."""

    log_std: jax.Array

    def distribution(self, layer, weights):
        width = (layer + 1.0) * jnp.exp(self.log_std)
        return Gaussian(jnp.zeros_like(width), width**2)


def test_a_prior_of_ones_own(x64):
    network = gaussian_network()
    prior = WiderWithDepth(jnp.log(jnp.array(0.4)))
    first, second = moments_by_layer(network)
    truth = gaussian_kl(*first, 0.0, 0.4) + gaussian_kl(*second, 0.0, 0.8)
    np.testing.assert_allclose(prior.kl(network), truth, rtol=1e-13)
    assert count_parameters(prior) == 1


@pytest.mark.parametrize(
    ("prior", "build"),
    [
        (lambda: priors.LearnedGaussian(0.1, 0.3), gaussian_network),
        (lambda: priors.LearnedGaussianPerLayer(2, 0.1, 0.3), gaussian_network),
        (lambda: WiderWithDepth(jnp.array(-0.5)), gaussian_network),
        (lambda: priors.FixedGaussian(0.1, 0.3), gaussian_network),
        (lambda: priors.LearnedBernoulli(0.3), bernoulli_network),
    ],
)
def test_gradients_agree_with_finite_differences(prior, build, x64):
    """In the weights and in the prior's own numbers; the error of central differences is h^2."""
    structure, params, constants = take_apart((build(), prior()))

    def kl(params):
        network, prior = structure.build(params, constants)
        return prior.kl(network)

    numeric = tiny.finite_differences(tiny.quick_jit(kl), params, 1e-5)
    np.testing.assert_allclose(tiny.quick_jit(jax.grad(kl))(params), numeric, rtol=1e-7, atol=1e-7)


def test_point_weights_pay_nothing_and_mix_with_others(x64):
    gaussian = GaussianWeights(jnp.ones((2, 3)), 0.5)
    layer = Dense(gaussian, PointWeights(jnp.ones(2)))
    prior = priors.FixedGaussian(0.0, 1.0)
    assert prior.kl(layer) == gaussian.kl(Gaussian(jnp.zeros(()), 1.0)) > 0
    assert prior.kl(Dense(PointWeights(jnp.ones((2, 3))))) == 0


def test_a_gaussian_prior_on_bernoulli_weights_is_refused(as_users_run_it):
    with pytest.raises(TypeError, match="KL of Bernoulli weights to Gaussian is not finite"):
        priors.LearnedGaussian().kl(bernoulli_network())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: priors.LearnedGaussian(std=0.0), "std must be positive, but is 0"),
        (lambda: priors.LearnedGaussianPerLayer(2, std=-1.0), "std must be positive, but is -1"),
        (lambda: priors.FixedGaussian(std=float("nan")), "std must be positive, but is nan"),
        (lambda: priors.LearnedBernoulli(1.0), "p must lie strictly between 0 and 1, but is 1"),
        (lambda: priors.FixedBernoulli(0.0), "p must lie strictly between 0 and 1, but is 0"),
    ],
)
def test_impossible_priors_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_default_prior_fits_weights_and_dtype(dtype):
    assert isinstance(priors.default_prior(gaussian_network()), priors.LearnedGaussian)
    assert isinstance(priors.default_prior(bernoulli_network()), priors.LearnedBernoulli)
    assert priors.default_prior(gaussian_network()).mean.dtype == dtype


def test_a_model_learns_its_prior_unless_fixed():
    learned, fixed = tiny.model(), tiny.model(prior=priors.FixedGaussian(0.0, 1.0))
    assert isinstance(learned, Model)
    assert count_parameters(learned) == count_parameters(fixed) + 2
    assert eqx.tree_equal(learned.network, fixed.network)
