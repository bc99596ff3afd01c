"""Bayesian linear regression, where everything is known in closed form: training must get there.

One Dense layer with Gaussian weights and a fixed Gaussian prior N(m, s^2). With the design matrix P
(a column of ones for the bias) and noise of standard deviation t the exact posterior is Gaussian
with precision A = P'P / t^2 + I / s^2 and mean A^-1 (P'y / t^2 + m / s^2). The mean-field optimum
of VI has the same mean and the variances 1 / A_jj, and

    ELBO = log evidence - KL[q || posterior],   KL = (sum_j log A_jj - log det A) / 2.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from varprop import (
    ROPD,
    VI,
    Data,
    GaussianLikelihood,
    Model,
    Outcome,
    Recipe,
    Scaling,
    StopRule,
    fit,
)
from varprop.learning.likelihoods import AbstractGaussianMixture
from varprop.learning.priors import FixedGaussian
from varprop.nn import Dense, GaussianWeights
from varprop.nn.parameters import constant

PRIOR_MEAN, PRIOR_STD, NOISE = 0.2, 0.8, 0.6
N = 40


class KnownNoise(AbstractGaussianMixture):
    """A Gaussian likelihood of which nothing is learned."""

    inner: GaussianLikelihood = constant()
    column_scaling: ClassVar[tuple[bool, ...]] = (False,)
    wants_joint: ClassVar[bool] = False

    @classmethod
    def start(cls, n_targets, *, noise_std=0.5, y=None):
        return cls(GaussianLikelihood.start(n_targets, noise_std=noise_std))

    @property
    def n_targets(self):
        return self.inner.n_targets

    @property
    def n_outputs(self):
        return self.inner.n_outputs

    @property
    def noise_var(self):
        return self.inner.noise_var

    def floored(self, floor):
        return self

    def expected_log_prob(self, f, y):
        return self.inner.expected_log_prob(f, y)

    def log_predictive(self, f, y):
        return self.inner.log_predictive(f, y)

    def predictive(self, f):
        return self.inner.predictive(f)


def correlated_design():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 2)) @ np.array([[1.0, 0.7], [0.0, 0.5]]) + np.array([0.5, 0.0])
    return x, x @ np.array([1.0, -2.0]) + 0.3 + NOISE * rng.normal(size=N)


def orthogonal_design():
    """Columns orthogonal to each other and to the column of ones, of different length."""
    rng = np.random.default_rng(1)
    q, _ = np.linalg.qr(np.column_stack([np.ones(N), rng.normal(size=(N, 2))]))
    x = q[:, 1:] * np.array([3.0, 7.0])
    return x, x @ np.array([1.0, -0.5]) + 0.3 + NOISE * rng.normal(size=N)


class Truth:
    """The closed forms above for one noise, in NumPy."""

    def __init__(self, x, y, noise, weight=None):
        design = np.column_stack([x, np.ones(len(x))])
        root = np.ones(len(x)) if weight is None else np.sqrt(weight)
        self.design, y = design * root[:, None], y * root
        self.precision = self.design.T @ self.design / noise**2 + np.eye(3) / PRIOR_STD**2
        shift = self.design.T @ y / noise**2 + PRIOR_MEAN / PRIOR_STD**2
        self.mean = np.linalg.solve(self.precision, shift)
        self.std = 1 / np.sqrt(np.diag(self.precision))
        prior = stats.multivariate_normal(
            design @ np.full(3, PRIOR_MEAN),
            noise**2 * np.eye(len(x)) + PRIOR_STD**2 * design @ design.T,
        )
        self.log_evidence = prior.logpdf(y) if weight is None else np.nan
        self.gap = 0.5 * (
            np.log(np.diag(self.precision)).sum() - np.linalg.slogdet(self.precision)[1]
        )
        self.elbo = self.log_evidence - self.gap
        # Where the noise is learned, its optimum given this q:
        spread = (y - self.design @ self.mean) ** 2 + self.design**2 @ self.std**2
        self.best_noise = np.sqrt(spread.mean())


def start(likelihood):
    weight = GaussianWeights(jnp.zeros((1, 2)), 0.1)
    bias = GaussianWeights(jnp.zeros(1), 0.1)
    return Model(Dense(weight, bias), likelihood, FixedGaussian(PRIOR_MEAN, PRIOR_STD))


def train(x, y, likelihood, objective=None, weight=None, kl_weight=1.0):
    """Full-batch gradient descent in float64, cooled down to a standstill."""
    recipe = Recipe(
        learning_rate=0.03,
        kl_weight=kl_weight,
        kl_warmup=0,
        cooldown=4000,
        max_steps=8000,
        batch_size=None,
        stop=StopRule(tol=0.0),
    )
    data = Data(x, y, weight)
    return fit(
        start(likelihood),
        data,
        VI() if objective is None else objective,
        key=jax.random.key(0),
        recipe=recipe,
        scaling=Scaling.identity(2, 1),
    )


def posterior(result):
    """Means and standard deviations of the two weights and the bias."""
    layer = result.model.network
    mean = np.append(np.ravel(layer.weight.mean), layer.bias.mean)
    return mean, np.exp(np.append(np.ravel(layer.weight.log_std), layer.bias.log_std))


@pytest.fixture(scope="module")
def known():
    """The correlated design with known noise, trained."""
    with jax.enable_x64(True):
        x, y = correlated_design()
        yield Truth(x, y, NOISE), train(x, y, KnownNoise(GaussianLikelihood(jnp.array([NOISE]))))


def test_vi_reaches_the_mean_field_optimum(known):
    truth, result = known
    mean, std = posterior(result)
    np.testing.assert_allclose(mean, truth.mean, atol=1e-9)
    np.testing.assert_allclose(std, truth.std, rtol=1e-9)


def test_vi_reaches_the_optimal_elbo(known):
    """The loss is minus the ELBO per row: no more than rounding apart."""
    truth, result = known
    np.testing.assert_allclose(-N * result.loss, truth.elbo, rtol=1e-12)


def test_the_elbo_bounds_the_evidence_with_the_known_gap(known):
    truth, result = known
    assert truth.gap > 0.1  # the design is correlated, so that mean-field must lose something
    np.testing.assert_allclose(truth.log_evidence + N * result.loss, truth.gap, rtol=1e-9)
    # Every loss on the way is a bound as well.
    assert np.all(-N * result.history <= truth.log_evidence)


def test_an_orthogonal_design_gives_the_exact_posterior(x64):
    x, y = orthogonal_design()
    result = train(x, y, KnownNoise(GaussianLikelihood(jnp.array([NOISE]))))
    truth = Truth(x, y, NOISE)
    np.testing.assert_allclose(truth.gap, 0.0, atol=1e-12)
    mean, std = posterior(result)
    np.testing.assert_allclose(mean, truth.mean, atol=1e-9)
    np.testing.assert_allclose(np.diag(std**2), np.linalg.inv(truth.precision), atol=1e-9)
    np.testing.assert_allclose(-N * result.loss, truth.log_evidence, rtol=1e-12)


def test_learned_noise_reaches_the_joint_optimum(x64):
    """The noise is then the fixed point of t^2 = mean((y - E[f])^2 + V[f])."""
    x, y = correlated_design()
    noise = NOISE
    for _ in range(2000):
        noise = Truth(x, y, noise).best_noise
    truth = Truth(x, y, noise)
    np.testing.assert_allclose(truth.best_noise, noise, rtol=1e-14)
    result = train(x, y, GaussianLikelihood(jnp.array([1.0])))
    mean, std = posterior(result)
    np.testing.assert_allclose(np.exp(result.model.likelihood.log_std), noise, rtol=1e-8)
    np.testing.assert_allclose(mean, truth.mean, atol=1e-8)
    np.testing.assert_allclose(std, truth.std, rtol=1e-8)
    np.testing.assert_allclose(-N * result.loss, truth.elbo, rtol=1e-12)


def test_sample_weights_enter_the_posterior(x64):
    """A weight multiplies the row's precision."""
    x, y = correlated_design()
    weight = np.random.default_rng(2).uniform(0.2, 4.0, N)
    result = train(x, y, KnownNoise(GaussianLikelihood(jnp.array([NOISE]))), weight=weight)
    truth = Truth(x, y, NOISE, weight)
    mean, std = posterior(result)
    np.testing.assert_allclose(mean, truth.mean, atol=1e-9)
    np.testing.assert_allclose(std, truth.std, rtol=1e-9)


def test_the_kl_weight_tempers_the_posterior(x64):
    """Weighting the KL by k is the posterior of data counted 1 / k times."""
    x, y = correlated_design()
    result = train(x, y, KnownNoise(GaussianLikelihood(jnp.array([NOISE]))), kl_weight=4.0)
    truth = Truth(x, y, NOISE, np.full(N, 0.25))
    mean, std = posterior(result)
    np.testing.assert_allclose(mean, truth.mean, atol=1e-9)
    np.testing.assert_allclose(std, truth.std, rtol=1e-9)


def test_ropd_reaches_a_stationary_point_below_vi(known, x64):
    """ROPD's loss at VI's optimum bounds its own optimum, since log E exceeds E log."""
    truth, vi = known
    x, y = correlated_design()
    likelihood = KnownNoise(GaussianLikelihood(jnp.array([NOISE])))
    result = train(x, y, likelihood, ROPD())
    layer = vi.model.network
    out = layer.moments(jnp.asarray(x))
    density = stats.norm.logpdf(y[:, None], out.mean, np.sqrt(out.var + NOISE**2))
    at_vi = -density.mean() + float(vi.model.prior.kl(layer)) / N
    assert result.loss < at_vi < vi.loss
    # Where the gradient is zero, a thousand further steps change nothing.
    assert result.outcome is Outcome.MAX_STEPS
    assert abs(result.history[-1] - result.history[-1000]) < 1e-9
    # The predictive density pays for spread where VI does not: q stays wider.
    assert np.all(posterior(result)[1] > truth.std)
