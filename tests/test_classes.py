"""Likelihoods of classes against quadrature, sampling, SciPy and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, log_expit, log_ndtr, log_softmax, ndtr, softmax, xlogy

from varprop import Gaussian, JointGaussian
from varprop.learning.likelihoods import BernoulliLikelihood, Categorical, Ordinal
from varprop.learning.likelihoods.classes import class_frequencies
from varprop.moments.logistic import log_logistic_mean, softplus_mean, surprise_mean

MEANS = np.array([-20.0, -6.0, -2.0, -0.5, 0.0, 1.0, 4.0, 15.0])
VARS = np.array([0.0, 0.01, 0.5, 2.0, 10.0])
LOG_PROB = {"logit": log_expit, "probit": log_ndtr}


def averaged(function, mean, var):
    """E function(a) for a ~ N(mean, var), by adaptive quadrature."""
    if var == 0:
        return float(function(mean))
    std = np.sqrt(var)
    low, high = mean - 12 * std, mean + 12 * std
    points = [p for p in (mean, -1.0, 0.0, 1.0) if low < p < high]
    return integrate.quad(
        lambda a: function(a) * stats.norm.pdf(a, mean, std),
        low,
        high,
        points=points,
        limit=400,
        epsabs=1e-11,
    )[0]


def grid(means=MEANS, variances=VARS):
    m, v = (part.ravel() for part in np.meshgrid(means, variances))
    return m, v


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_two_classes_agree_with_quadrature(link, x64):
    m, v = grid()
    likelihood, f = BernoulliLikelihood(link=link), Gaussian(m[:, None], v[:, None])
    one = jnp.ones((len(m), 1))
    log_p = LOG_PROB[link]
    p = np.array([averaged(lambda a: np.exp(log_p(a)), *mv) for mv in zip(m, v, strict=True)])
    stated = 1e-12 if link == "probit" else 9.3e-7
    probability = np.asarray(likelihood.probability(f))
    np.testing.assert_allclose(probability[:, 1], p, rtol=0, atol=stated)
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-12)
    likely = p > 1e-4
    np.testing.assert_allclose(
        likelihood.log_predictive(f, one)[likely],
        np.log(p[likely]),
        atol=1e-10 if link == "probit" else 0.02,
    )
    np.testing.assert_allclose(
        likelihood.log_predictive(f, 0 * one), np.log(probability[:, 0]), rtol=1e-6, atol=1e-9
    )
    expected = np.array([averaged(log_p, *mv) for mv in zip(m, v, strict=True)])
    claimed = np.asarray(likelihood.expected_log_prob(f, one))
    if link == "logit":
        np.testing.assert_allclose(claimed, expected, rtol=0, atol=3e-6)
    else:
        assert (np.abs(claimed - expected) < 2e-4 * np.maximum(1, -expected)).all()


@pytest.mark.parametrize("link", ["logit", "probit"])
def test_entropy_given_the_output_agrees_with_quadrature(link, x64):
    m, v = grid(MEANS, np.array([0.0, 0.5, 10.0, 300.0]))
    f = Gaussian(m[:, None], v[:, None])
    claimed = np.asarray(BernoulliLikelihood(link=link).aleatoric(f))
    log_p = LOG_PROB[link]

    def entropy(a):
        return -sum(np.exp(log_p(s * a)) * log_p(s * a) for s in (-1, 1))

    truth = [averaged(entropy, *mv) for mv in zip(m, v, strict=True)]
    np.testing.assert_allclose(claimed, truth, rtol=0, atol=2e-5 if link == "logit" else 1e-3)


def test_logistic_means_are_as_near_as_they_say(x64):
    x = np.linspace(-40, 40, 4001)
    zero = np.zeros_like(x)
    a, zero = jnp.asarray(x), jnp.asarray(zero)
    np.testing.assert_allclose(softplus_mean(a, zero), np.logaddexp(0, x), rtol=0, atol=3.3e-6)
    truth = expit(-x) * np.logaddexp(0, x)
    np.testing.assert_allclose(surprise_mean(a, zero), truth, rtol=0, atol=6e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_off_rows_have_finite_losses_and_gradients(dtype):
    with jax.enable_x64(dtype == np.float64):
        m, v = (part.astype(dtype) for part in grid(np.array([-1e4, -80, 0, 80, 1e4]), VARS * 1e3))
        for function in (log_logistic_mean, softplus_mean):
            value, slope = jax.vmap(jax.value_and_grad(function))(jnp.asarray(m), jnp.asarray(v))
            assert np.isfinite(value).all()
            assert np.isfinite(slope).all()
        wrong = np.asarray(jax.vmap(jax.grad(log_logistic_mean))(jnp.asarray(m), jnp.asarray(v)))
        assert (wrong[m < -50] > 0).all()  # a row that is far wrong still pulls


@pytest.mark.parametrize("n_classes", [3, 10])
@pytest.mark.parametrize(("size", "stated"), [(0.1, 1e-4), (1.0, 5e-4), (4.0, 5e-3), (16.0, 0.04)])
def test_softmax_is_as_near_to_sampling_as_it_says(n_classes, size, stated, x64):
    """Mean Kullback-Leibler divergence; the truth is 40,000 draws, which add (c - 1) / 2n."""
    rng = np.random.default_rng(7)
    n_rows, n_draws = 12, 40_000
    spread = np.where(np.arange(n_rows) % 2, 1.0, 3.0)[:, None]
    mean = rng.normal(size=(n_rows, n_classes)) * spread
    var = size * rng.uniform(0.3, 1.7, size=mean.shape)
    truth, entropy, log_p = [], [], []
    for m, v in zip(mean, var, strict=True):
        f = m + np.sqrt(v) * rng.normal(size=(n_draws, n_classes))
        f -= np.logaddexp.reduce(f, axis=1)[:, None]
        truth.append(np.exp(f).mean(axis=0))
        entropy.append(-(np.exp(f) * f).sum(axis=1).mean())
        log_p.append(f.mean(axis=0))
    likelihood, f = Categorical(np.zeros(n_classes)), Gaussian(mean, var)
    claimed = np.asarray(likelihood.probability(f))
    truth = np.array(truth)
    divergence = (truth * np.log(truth / claimed)).sum(axis=1)
    assert divergence.mean() < stated + n_classes / (2 * n_draws)
    assert divergence.min() > -1e-3
    # The entropy and E log p have the same cause of error, in nats.
    assert np.abs(likelihood.aleatoric(f) - np.array(entropy)).mean() < 3 * np.sqrt(stated) + 0.003
    every = [likelihood.expected_log_prob(f, jnp.full((n_rows, 1), float(k))) for k in range(3)]
    error = np.abs(np.array(every).T - np.array(log_p)[:, :3])
    assert error.mean() < 0.004 + (0.12 if n_classes == 10 else 0.03) * size


def test_softmax_of_known_outputs_is_softmax(x64):
    rng = np.random.default_rng(0)
    mean = 5 * rng.normal(size=(50, 6))
    f = Gaussian(mean, np.zeros_like(mean))
    likelihood = Categorical(np.array([0.3, 0, -0.2, 0, 0, 1.0]))
    truth = np.exp(mean + np.asarray(likelihood.offset))
    truth /= truth.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(likelihood.probability(f), truth, rtol=0, atol=3e-6)
    y = rng.integers(6, size=(50, 1)).astype(float)
    own = np.log(np.take_along_axis(truth, y.astype(int), 1)[:, 0])
    np.testing.assert_allclose(
        likelihood.expected_log_prob(f, jnp.asarray(y)), own, rtol=0, atol=5e-6
    )


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_softmax_takes_rows_of_any_shape(batch, x64):
    """Classes are the last axis, of one row by itself too; SciPy knows outputs without variance."""
    mean = 3 * np.random.default_rng(0).normal(size=(*batch, 4))
    f, likelihood = Gaussian(mean, np.zeros_like(mean)), Categorical(np.zeros(4))
    np.testing.assert_allclose(likelihood.probability(f), softmax(mean, axis=-1), atol=3e-6)
    surprise = stats.entropy(softmax(mean, axis=-1), axis=-1)
    np.testing.assert_allclose(likelihood.aleatoric(f), surprise, atol=1e-5)
    log_p = log_softmax(mean, axis=-1)[..., 2]
    for name in ("log_predictive", "expected_log_prob"):
        found = getattr(likelihood, name)(f, jnp.full((*batch, 1), 2.0))
        np.testing.assert_allclose(found, log_p, atol=1e-3)


def test_softmax_of_two_is_the_logit_link(x64):
    m, v = grid()
    other = 0.3 * v
    f = Gaussian(np.stack([0 * m, m], 1), np.stack([other, v], 1))
    one = Gaussian(m[:, None], (v + other)[:, None])
    two, logit = Categorical(np.zeros(2)), BernoulliLikelihood()
    y = jnp.ones((len(m), 1))
    for name in ("probability", "aleatoric"):
        np.testing.assert_allclose(getattr(two, name)(f), getattr(logit, name)(one), atol=1e-12)
    for name in ("log_predictive", "expected_log_prob"):
        ours, theirs = (getattr(k, name)(g, y) for k, g in ((two, f), (logit, one)))
        kept = m > -15  # where the sum of both is 1 to all digits that count
        np.testing.assert_allclose(ours[kept], theirs[kept], rtol=1e-5, atol=1e-9)


def test_softmax_looks_at_the_covariance_between_outputs(x64):
    """What all outputs have in common changes no probability."""
    mean = np.array([[1.0, 0.0, -1.0]])
    cov = np.diag([1.0, 0.5, 2.0])[None]
    likelihood = Categorical(np.zeros(3))
    alone = likelihood.probability(Gaussian(mean, np.array([[1.0, 0.5, 2.0]])))
    np.testing.assert_allclose(likelihood.probability(JointGaussian(mean, cov)), alone, rtol=1e-12)
    common = JointGaussian(mean, cov + 50.0)
    np.testing.assert_allclose(likelihood.probability(common), alone, rtol=1e-6)


def test_ordered_classes_agree_with_quadrature(x64):
    thresholds = np.array([-1.0, 0.2, 2.5])
    likelihood = Ordinal(thresholds)
    m, v = grid(np.array([-4.0, -0.5, 0.0, 1.0, 3.0]), np.array([0.0, 0.5, 4.0]))
    f = Gaussian(m[:, None], v[:, None])
    np.testing.assert_allclose(likelihood.thresholds, thresholds, rtol=1e-12)
    ends = np.concatenate([[-np.inf], thresholds, [np.inf]])
    probability = np.asarray(likelihood.probability(f))
    for k in range(4):

        def p(a, k=k):
            return ndtr(ends[k + 1] - a) - ndtr(ends[k] - a)

        def log_p(a, k=k):
            # Either tail, wherever the difference is accurate.
            a = a if ends[k] - a < 0 else 0.0
            return np.log(p(a, k))

        truth = np.array([averaged(p, *mv) for mv in zip(m, v, strict=True)])
        np.testing.assert_allclose(probability[:, k], truth, rtol=0, atol=1e-10)
        y = jnp.full((len(m), 1), float(k))
        claimed = likelihood.log_predictive(f, y)
        np.testing.assert_allclose(claimed, np.log(truth), rtol=1e-5, atol=1e-8)

    def entropy(a):
        every = np.diff(ndtr(ends - a))
        return -xlogy(every, every).sum()

    truth = [averaged(entropy, *mv) for mv in zip(m, v, strict=True)]
    np.testing.assert_allclose(likelihood.aleatoric(f), truth, rtol=0, atol=1e-6)
    draws = np.random.default_rng(0).normal(size=200_000)
    for row in range(len(m)):
        a = m[row] + np.sqrt(v[row]) * draws
        # From the side where both are small, or the difference would be lost.
        sign = np.where(ends[1] + ends[2] > 2 * a, -1, 1)
        inside = np.abs(ndtr(sign * (ends[2] - a)) - ndtr(sign * (ends[1] - a)))
        y = jnp.ones((1, 1))
        claimed = likelihood.expected_log_prob(Gaussian(m[row, None, None], v[row]), y)[0]
        error = np.log(inside).std() / np.sqrt(len(a))
        # 3.9 standard errors: a false alarm in one of 700 runs of all 15 rows.
        assert abs(claimed - np.log(inside).mean()) < 3.9 * error + 1e-3


@pytest.mark.parametrize(
    "likelihood",
    [
        BernoulliLikelihood(0.2),
        BernoulliLikelihood(0.2, link="probit"),
        Categorical(np.array([0.1, 0.0, -0.3], np.float32)),
        Ordinal(np.array([-0.5, 0.7], np.float32)),
    ],
    ids=["logit", "probit", "softmax", "ordinal"],
)
def test_gradients_agree_with_finite_differences(likelihood, x64):
    likelihood = jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), likelihood)
    rng = np.random.default_rng(1)
    d = likelihood.n_outputs
    mean, var = rng.normal(size=(4, d)), rng.uniform(0.2, 3, size=(4, d))
    y = jnp.array([[0.0], [1.0], [likelihood.n_classes - 1.0], [0.0]])
    for name in ("log_predictive", "expected_log_prob"):

        def total(m, v, model, name=name):
            return jnp.sum(getattr(model, name)(Gaussian(m, v), y))

        slopes = jax.grad(total, argnums=(0, 1, 2))(jnp.asarray(mean), jnp.asarray(var), likelihood)
        leaves, tree = jax.tree.flatten((jnp.asarray(mean), jnp.asarray(var), likelihood))
        for number, (leaf, slope) in enumerate(zip(leaves, jax.tree.leaves(slopes), strict=True)):
            step = 1e-5 * rng.choice([-1, 1], size=leaf.shape)
            ends = []
            for sign in (-1, 1):
                moved = [*leaves]
                moved[number] = leaf + sign * step
                ends.append(total(*jax.tree.unflatten(tree, moved)))
            np.testing.assert_allclose(
                (ends[1] - ends[0]) / 2, np.sum(slope * step), rtol=1e-4, atol=1e-11
            )


def test_start_is_at_the_frequencies(x64):
    shares = np.array([0.1, 0.6, 0.3])
    f = Gaussian(np.zeros((1, 3)), np.zeros((1, 3)))
    softmax = Categorical.of_frequencies(shares)
    np.testing.assert_allclose(softmax.probability(f)[0], shares, atol=2e-6)
    one = Gaussian(np.zeros((1, 1)), np.zeros((1, 1)))
    np.testing.assert_allclose(Ordinal.of_frequencies(shares).probability(one)[0], shares)
    for link in ("logit", "probit"):
        two = BernoulliLikelihood.of_frequencies([0.2, 0.8], link=link)
        np.testing.assert_allclose(two.probability(one)[0], [0.2, 0.8], atol=1e-6)
    codes = np.array([0, 0, 2])
    np.testing.assert_allclose(class_frequencies(codes), [7 / 12, 1 / 12, 4 / 12])
    np.testing.assert_allclose(class_frequencies(codes, np.array([1, 1, 4.0]))[2], (4 + 1 / 3) / 7)
    assert Categorical.start(1, y=codes[:, None]).n_classes == 3


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BernoulliLikelihood(link="cauchit"), "link must be one of"),
        (lambda: Ordinal([1.0, 0.0]), "thresholds must rise"),
        (lambda: Categorical(1.0), "an entry per class"),
        (lambda: Categorical.of_frequencies([1.0, 0.0]), "frequencies must be positive"),
        (lambda: BernoulliLikelihood.of_frequencies([0.2, 0.3, 0.5]), "one for each of 2 classes"),
        (lambda: Categorical.start(2), "classes are one target"),
    ],
)
def test_bad_input_is_one_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
@pytest.mark.parametrize(
    "likelihood", [BernoulliLikelihood(), Ordinal([0.0, 1.0]), Categorical(np.zeros(3))]
)
def test_outputs_that_do_not_fit_are_named(likelihood, method):
    """Thresholds would be compared with one output each, if there are as many."""
    f = Gaussian(jnp.zeros((4, 2)), 1.0)
    with pytest.raises(ValueError, match=r"needs [13] outputs of the network, .* gives 2 and"):
        getattr(likelihood, method)(f, jnp.zeros((4, 1)))


def test_one_class_by_itself_is_that_of_all_together(x64):
    """Training with independent outputs works out one class, with a covariance all of them."""
    rng = np.random.default_rng(3)
    likelihood = Categorical(jnp.asarray(rng.normal(size=5)))
    for scale in (0.1, 3.0, 60.0, 800.0):
        f = Gaussian(
            jnp.asarray(scale * rng.normal(size=(40, 5))), jnp.asarray(rng.gamma(1.0, size=(40, 5)))
        )
        y = jnp.asarray(rng.integers(5, size=(40, 1)), float)
        apart, together = (likelihood.expected_log_prob(g, y) for g in (f, f.to_joint()))
        np.testing.assert_allclose(apart, together, rtol=1e-9, atol=1e-12)
        slopes = jax.grad(
            lambda m, f=f, y=y: likelihood.expected_log_prob(Gaussian(m, f.var), y).sum()
        )
        assert np.isfinite(slopes(f.mean)).all()
