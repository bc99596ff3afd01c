"""Objectives: the scaling of batches is exact, sampling agrees with the closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import tiny
from truth import threshold
from varprop import ROPD, VI, Gaussian, MaximumLikelihood, SampledVI, priors
from varprop.nn import BernoulliWeights, PointWeights
from varprop.nn.parameters import take_apart

OBJECTIVES = [VI(), ROPD(), SampledVI(n_samples=2), MaximumLikelihood()]
NAMES = ["VI", "ROPD", "SampledVI", "MaximumLikelihood"]
N_ROWS, N_BATCHES, SIZE = 10, 3, 4  # the last batch holds two rows and two of padding


def evaluate(*arguments, **options):
    """Gradient and loss in one vector."""
    loss, gradient = tiny.loss_and_gradient(*arguments, **options)
    return np.append(np.asarray(gradient), loss)


def epoch_mean(objective, model, x, y, weight, padding, **more):
    """Mean over an epoch's batches of four, the last one filled up with rows of weight 0."""
    x, y = (np.concatenate([part, np.full((2, part.shape[1]), padding)]) for part in (x, y))
    padded = np.concatenate([weight, np.zeros(2)])
    batches = [slice(start, start + SIZE) for start in range(0, 12, SIZE)]
    parts = [
        evaluate(
            objective,
            model,
            x[b],
            y[b],
            padded[b],
            n_batches=3.0,
            total_weight=weight.sum(),
            **more,
        )
        for b in batches
    ]
    return np.mean(parts, axis=0)


@pytest.fixture
def problem(x64):
    x, y = tiny.arrays(N_ROWS, n_outputs=2)
    return tiny.model(n_outputs=2), x, y


@pytest.mark.parametrize("objective", OBJECTIVES, ids=NAMES)
def test_the_mean_over_batches_is_the_objective(objective, problem):
    """Exactly, loss and gradient, with a partial last batch, sample weights and a row of none."""
    model, x, y = problem
    weight = np.random.default_rng(1).uniform(0.5, 3.0, N_ROWS)
    weight[5] = 0.0
    full = evaluate(objective, model, x, y, weight, kl_weight=0.7)
    batched = epoch_mean(objective, model, x, y, weight, padding=0.0, kl_weight=0.7)
    np.testing.assert_allclose(batched, full, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=NAMES)
def test_what_padding_holds_does_not_matter(objective, problem):
    model, x, y = problem
    weight = np.ones(N_ROWS)
    a = epoch_mean(objective, model, x, y, weight, padding=0.0)
    b = epoch_mean(objective, model, x, y, weight, padding=1e6)
    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=NAMES)
def test_weights_count_rows(objective, problem):
    """A weight of 2 is the row twice, a weight of 0 is no row."""
    model, x, y = problem
    repeats = np.array([1, 2, 1, 0, 3, 1, 1, 0, 1, 0])
    assert repeats.sum() == N_ROWS  # one shape, one program
    weighted = evaluate(objective, model, x, y, repeats)
    rows = np.repeat(np.arange(N_ROWS), repeats)
    repeated = evaluate(objective, model, x[rows], y[rows], np.ones(N_ROWS))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("objective", OBJECTIVES[:3], ids=NAMES[:3])
def test_the_kl_enters_once_per_data_set(objective, problem):
    model, x, y = problem
    weight = np.full(N_ROWS, 1.5)
    kl = float(model.prior.kl(model.network))
    none, half, whole = (
        evaluate(objective, model, x, y, weight, kl_weight=factor)[-1] for factor in (0.0, 0.5, 1.0)
    )
    np.testing.assert_allclose(half - none, 0.5 * kl / 15, rtol=1e-12)
    np.testing.assert_allclose(whole - none, kl / 15, rtol=1e-12)


def test_maximum_likelihood_has_no_kl(problem):
    model, x, y = problem
    weight = np.ones(N_ROWS)
    losses = [
        evaluate(MaximumLikelihood(), model, x, y, weight, kl_weight=factor)[-1]
        for factor in (0.0, 100.0)
    ]
    assert losses[0] == losses[1]
    assert losses[0] == evaluate(ROPD(), model, x, y, weight, kl_weight=0.0)[-1]


def test_maximum_likelihood_of_a_plain_network(x64):
    """With point weights it is the mean log-density of a deterministic network's residuals."""
    x, y = tiny.arrays(N_ROWS)
    model = tiny.model(weights=PointWeights.init)
    first, _, second = model.network.layers
    hidden = np.maximum(x @ np.asarray(first.weight.value).T + np.asarray(first.bias.value), 0)
    f = hidden @ np.asarray(second.weight.value).T + np.asarray(second.bias.value)
    truth = -stats.norm.logpdf(y, f, 0.5).mean()
    claimed = evaluate(MaximumLikelihood(), model, x, y, np.ones(N_ROWS))[-1]
    np.testing.assert_allclose(claimed, truth, rtol=1e-12)


def test_vi_and_ropd_are_what_the_paper_writes(problem):
    """From the network's moments, in NumPy."""
    model, x, y = problem
    out = model.network.moments(jnp.asarray(x))
    mean, var, noise = np.asarray(out.mean), np.asarray(out.var), np.exp(model.likelihood.log_std)
    kl = float(model.prior.kl(model.network)) / N_ROWS
    expected = stats.norm.logpdf(y, mean, noise) - var / (2 * noise**2)
    np.testing.assert_allclose(
        evaluate(VI(), model, x, y, np.ones(N_ROWS))[-1],
        kl - expected.sum(axis=1).mean(),
        rtol=1e-12,
    )
    predictive = stats.norm.logpdf(y, mean, np.sqrt(var + noise**2))
    np.testing.assert_allclose(
        evaluate(ROPD(), model, x, y, np.ones(N_ROWS))[-1],
        kl - predictive.sum(axis=1).mean(),
        rtol=1e-12,
    )


@pytest.mark.parametrize(
    ("hidden", "noisy_input"),
    [((), False), ((), True), ((4,), False)],
    ids=["no hidden layer", "uncertain inputs", "one hidden layer"],
)
def test_sampled_vi_agrees_with_vi_in_expectation(hidden, noisy_input):
    """Loss and gradient over 20,000 draws; one false alarm in a million runs.

    The moments are exact in these cases, and VI's expectation needs nothing but moments.
    """
    x, y = tiny.arrays(N_ROWS)
    x_var = np.full((N_ROWS, 2), 0.3) if noisy_input else None
    model = tiny.model(hidden_layer_sizes=hidden)
    rows = (model, x, y, np.ones(N_ROWS))
    exact = evaluate(VI(), *rows, x_var=x_var)
    keys = jax.random.split(jax.random.key(1), 20_000)
    losses, gradients = tiny.loss_and_gradient(SampledVI(n_samples=1), *rows, x_var=x_var, key=keys)
    draws = np.column_stack([gradients, losses]).astype(np.float64)
    error = draws.std(axis=0) / np.sqrt(len(draws))
    # The prior's own gradient does not vary: it must agree to rounding instead.
    fixed = error < 1e-9
    np.testing.assert_allclose(draws.mean(axis=0)[fixed], exact[fixed], rtol=1e-5, atol=1e-6)
    assert fixed.sum() == 2
    z = (draws.mean(axis=0) - exact)[~fixed] / error[~fixed]
    assert np.abs(z).max() < threshold(1e-6, z.size)


def test_more_samples_average_the_draws(problem):
    """SampledVI(n_samples=2) is the mean over its own two single draws."""
    model, x, y = problem
    x, y = Gaussian(jnp.asarray(x)), jnp.asarray(y)
    key = jax.random.key(3)
    two = SampledVI(n_samples=2).log_likelihood(model, x, y, key)
    singles = []
    for half in jax.random.split(key, 2):
        network = model.network.sample(jax.random.split(half)[0])
        density = stats.norm.logpdf(y, network(x.mean), np.exp(model.likelihood.log_std))
        singles.append(density.sum(axis=-1))
    assert np.all(singles[0] != singles[1])
    np.testing.assert_allclose(two, np.mean(singles, axis=0), rtol=1e-12)


@pytest.mark.parametrize("objective", [VI(), ROPD()], ids=["VI", "ROPD"])
def test_cofawn_with_independent_outputs_is_fawn(objective, x64):
    """Known inputs and no hidden layer leave the outputs independent."""
    x, y = tiny.arrays(N_ROWS, n_outputs=3)
    diagonal, joint = (
        tiny.model(n_outputs=3, hidden_layer_sizes=(), joint=joint) for joint in (False, True)
    )
    np.testing.assert_allclose(
        evaluate(objective, joint, x, y, np.ones(N_ROWS)),
        evaluate(objective, diagonal, x, y, np.ones(N_ROWS)),
        rtol=1e-11,
        atol=1e-13,
    )


def test_cofawn_differs_once_outputs_share_hidden_units(x64):
    """ROPD sees the covariance; VI with independent noise does not."""
    x, y = tiny.arrays(N_ROWS, n_outputs=3)
    diagonal, joint = (tiny.model(n_outputs=3, joint=joint) for joint in (False, True))
    losses = {
        (type(objective).__name__, name): evaluate(objective, model, x, y, np.ones(N_ROWS))[-1]
        for objective in (VI(), ROPD())
        for name, model in (("joint", joint), ("diagonal", diagonal))
    }
    np.testing.assert_allclose(losses["VI", "joint"], losses["VI", "diagonal"], rtol=1e-12)
    assert abs(losses["ROPD", "joint"] - losses["ROPD", "diagonal"]) > 1e-5


@pytest.mark.parametrize("objective", [VI(), ROPD()], ids=["VI", "ROPD"])
def test_gradients_agree_with_finite_differences(objective, x64):
    """Through moments, likelihood and KL, with uncertain inputs and joint outputs."""
    x, y = tiny.arrays(N_ROWS, n_outputs=2)
    model = tiny.model(n_outputs=2, joint=True, prior=priors.LearnedGaussianPerLayer(2))
    structure, params, constants = take_apart(model)
    rows = (x, y, np.ones(N_ROWS))
    x_var = np.full((N_ROWS, 2), 0.1)

    def loss(params):
        moved = structure.build(params, constants)
        return tiny.loss_and_gradient(objective, moved, *rows, x_var=x_var)[0]

    numeric = tiny.finite_differences(loss, params, 1e-5)
    _, gradient = tiny.loss_and_gradient(objective, model, *rows, x_var=x_var)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-7)


def test_sampling_bits_is_refused(problem):
    _, x, y = problem
    model = tiny.model(n_outputs=2, weights=BernoulliWeights.init)
    with pytest.raises(TypeError, match="SampledVI cannot train Bernoulli weights"):
        evaluate(SampledVI(), model, x, y, np.ones(N_ROWS))


def test_no_samples_are_refused():
    with pytest.raises(ValueError, match="n_samples must be at least 1, but is 0"):
        SampledVI(n_samples=0)


def test_equal_objectives_share_a_program():
    """Settings of an objective are part of the structure, and nothing else is."""
    three, four = SampledVI(n_samples=3), SampledVI(n_samples=4)
    structure = take_apart((tiny.model(0), three))[0]
    assert structure == take_apart((tiny.model(1), SampledVI(n_samples=3)))[0]
    assert structure != take_apart((tiny.model(0), four))[0]


def test_which_objectives_tell_model_from_noise():
    assert [kind.identifies_noise for kind in (VI, SampledVI, ROPD)] == [True, True, False]
