"""Likelihoods without constant noise: both objectives against integrals done another way.

(f, a) is Gaussian: f the target without noise, a what bounds the log-variance l of its noise. Both
objectives take l as the best line through a, whose mean and slope are integrals here. Truth is then
a two-dimensional Gauss-Hermite rule over (f, l), in NumPy and float64, or draws; and over (f, a)
with the bound itself, from which the line is off by what the docstring says.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import tiny
from truth import sampling_z, threshold
from varprop import Gaussian, HeteroscedasticGaussian, JointGaussian
from varprop.learning.likelihoods import AbstractPointwise
from varprop.moments.covariance import DiagonalPlusLowRank

pytestmark = pytest.mark.usefixtures("strict_promotion")

STD = np.array([0.7, 1.4])  # the learned constant, whose logarithm is added to l / 2
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(60)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Case:
    """Four rows of two targets: four outputs, means first, with a covariance of full rank."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.mean, self.y = 0.6 * rng.normal(size=(4, 4)), rng.normal(size=(4, 2))
        self.diagonal = rng.uniform(0.05, 0.3, (4, 4))
        self.weight = rng.uniform(0.1, 0.4, (4, 3))
        self.factor = rng.normal(size=(4, 3, 4))
        low = np.einsum("rn,rni,rnj->rij", self.weight, self.factor, self.factor)
        self.cov = low + np.stack([np.diag(row) for row in self.diagonal])

    def output(self, kind):
        """What a network gives: the same numbers in each of the forms there are."""
        mean = jnp.asarray(self.mean)
        if kind == "diagonal":
            return Gaussian(mean, jnp.asarray(self.variances))
        if kind == "dense":
            return JointGaussian(mean, jnp.asarray(self.cov))
        parts = (self.diagonal, self.weight, self.factor)
        return JointGaussian(mean, DiagonalPlusLowRank(*map(jnp.asarray, parts)))

    @property
    def variances(self):
        return np.diagonal(self.cov, axis1=1, axis2=2)

    def pair(self, kind, target):
        """Moments of f and a of one target, and their covariance."""
        f, a = target, target + 2
        cov = 0 * self.mean[:, a] if kind == "diagonal" else self.cov[:, f, a]
        return self.mean[:, f], self.variances[:, f], self.mean[:, a], self.variances[:, a], cov

    def line(self, kind, target):
        """The same of f and of the best line of l through a, by quadrature."""
        mean, var, a, a_var, cov = self.pair(kind, target)
        at = a[:, None] + np.sqrt(a_var)[:, None] * NODES
        values = bounded(at, target)
        slope = (values * NODES) @ WEIGHTS / np.sqrt(a_var)
        return mean, var, values @ WEIGHTS, slope**2 * a_var, slope * cov


def bounded(a, target):
    """The log-variance of the noise: 6 to either side of the constant, at most."""
    return 2 * np.log(STD[target]) + 6 * special.erf(np.sqrt(np.pi) * a / 12)


@pytest.fixture
def case(x64):
    return Case()


def integral(function, mean, var, log_mean, log_var, cov):
    """E[function(f, l)] per row."""
    z, other = NODES[:, None], NODES[None, :]
    rows = []
    for m, v, a, s, c in zip(mean, var, log_mean, log_var, cov, strict=True):
        slope = c / np.sqrt(v)
        f, log = m + np.sqrt(v) * z, a + slope * z + np.sqrt(s - slope**2) * other
        rows.append(WEIGHTS @ np.broadcast_to(function(f, log, len(rows)), (60, 60)) @ WEIGHTS)
    return np.array(rows)


KINDS = ["diagonal", "dense", "low rank"]


@pytest.mark.parametrize("kind", KINDS)
def test_vi_is_the_expected_log_density(case, kind):
    claimed = HeteroscedasticGaussian(STD).expected_log_prob(case.output(kind), jnp.asarray(case.y))
    truth = np.zeros(4)
    for target in range(2):
        y = case.y[:, target]
        truth += integral(
            lambda f, log, row, y=y: stats.norm.logpdf(y[row], f, np.exp(log / 2)),
            *case.line(kind, target),
        )
    np.testing.assert_allclose(claimed, truth, rtol=1e-9)


def test_the_line_is_close_to_the_bound(case):
    """Within 0.01 nats for a variance of at most 0.3, in both objectives, and not equal."""
    case.cov = 0.3 * case.cov / case.cov[:, 2:, 2:].max()
    f, y = case.output("dense"), jnp.asarray(case.y)
    likelihood = HeteroscedasticGaussian(STD)
    expected, noise = np.zeros(4), []
    for target in range(2):
        own, pair = case.y[:, target], case.pair("dense", target)
        expected += integral(
            lambda f, a, row, own=own, target=target: stats.norm.logpdf(
                own[row], f, np.exp(bounded(a, target) / 2)
            ),
            *pair,
        )
        noise.append(integral(lambda f, a, row, t=target: np.exp(bounded(a, t)), *pair))
    errors = [np.abs(likelihood.expected_log_prob(f, y) - expected)]
    stated = np.asarray(likelihood.predictive(f)[0].noise_var)
    errors.append(np.abs(np.log(stated / np.stack(noise, 1))).sum(axis=1))
    assert 1e-6 < np.max(errors) < 0.01


def test_far_rows_have_bounded_noise():
    """However far out a row lies, its noise is within a factor of 20 of the constant."""
    likelihood = HeteroscedasticGaussian(STD)
    for a in (-1e6, 1e6):
        f = Gaussian(jnp.array([[0.0, 0.0, a, a]]), jnp.array([[1.0, 1.0, 1e4, 1e4]]))
        ratio = np.sqrt(likelihood.predictive(f)[0].noise_var[0]) / STD
        assert (ratio > 1 / 20.5).all()
        assert (ratio < 20.5).all()
        assert np.isfinite(likelihood.expected_log_prob(f, jnp.zeros((1, 2)))).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("floor", [None, np.array([0.5, 0.2])], ids=["no floor", "floor"])
def test_ropd_is_the_density_of_the_matched_gaussian(case, kind, floor):
    """Its variance by the law of total variance: V f + E exp l, by quadrature; a floor on top."""
    claimed = HeteroscedasticGaussian(STD, floor=floor).log_predictive(
        case.output(kind), jnp.asarray(case.y)
    )
    noise = [
        integral(lambda f, log, row: np.exp(log), *case.line(kind, target)) for target in (0, 1)
    ]
    noise = np.stack(noise, 1) + (0 if floor is None else floor**2)
    own = case.cov[:, :2, :2]
    if kind == "diagonal":
        own = own * np.eye(2)
    truth = [
        stats.multivariate_normal(m[:2], c + np.diag(n)).logpdf(y)
        for m, c, n, y in zip(case.mean, own, noise, case.y, strict=True)
    ]
    np.testing.assert_allclose(claimed, truth, rtol=1e-9)


def test_the_floor_bounds_vi_from_below(case):
    """Noise on top of f's own spread; the exact value, with exp(l) + floor^2, lies above it."""
    floor = np.array([0.5, 0.2])
    likelihood = HeteroscedasticGaussian(STD, floor=floor)
    claimed = np.asarray(likelihood.expected_log_prob(case.output("dense"), jnp.asarray(case.y)))
    bound, exact = np.zeros(4), np.zeros(4)
    for target in range(2):
        y, own = case.y[:, target], floor[target] ** 2
        mean, var, *log = case.line("dense", target)
        bound += integral(
            lambda f, log, row, y=y: stats.norm.logpdf(y[row], f, np.exp(log / 2)),
            mean,
            var + own,
            *log,
        )
        exact += integral(
            lambda f, log, row, y=y, own=own: stats.norm.logpdf(
                y[row], f, np.sqrt(np.exp(log) + own)
            ),
            mean,
            var,
            *log,
        )
    np.testing.assert_allclose(claimed, bound, rtol=1e-9)
    assert np.all(claimed < exact)


def test_the_predictive_agrees_with_sampling(case):
    """Draws of f, l and the noise; one false alarm in a million runs over all entries."""
    floor = np.array([0.3, 0.0])
    (component,) = HeteroscedasticGaussian(STD, floor=floor).predictive(case.output("low rank"))
    rng = np.random.default_rng(1)
    n = 100_000
    out = np.stack(
        [rng.multivariate_normal(m, c, n) for m, c in zip(case.mean, case.cov, strict=True)],
        axis=1,
    )
    logs = []
    for target in range(2):
        _, _, mean, var, _ = case.line("low rank", target)
        _, _, a, a_var, _ = case.pair("low rank", target)
        logs.append(mean + np.sqrt(var / a_var) * (out[..., 2 + target] - a))
    std = np.sqrt(np.exp(np.stack(logs, -1)) + floor**2)
    draws = out[..., :2] + std * rng.normal(size=(n, 4, 2))
    total = component.total
    claims = [
        sampling_z(draws, total.mean, total.marginals().variances()),
        sampling_z(out[..., :2], component.model.mean, component.model.marginals().variances()),
    ]
    z = np.concatenate([np.ravel(part) for pair in claims for part in pair])
    assert np.abs(z).max() < threshold(1e-6, z.size)


@pytest.mark.parametrize("method", ["expected_log_prob", "log_predictive"])
@pytest.mark.parametrize("kind", ["diagonal", "dense"])
def test_gradients_agree_with_finite_differences(case, method, kind):
    """In the constant, all outputs' means and the size of their covariance."""
    y = jnp.asarray(case.y)

    def total(vector):
        output = case.output(kind)
        mean, scale = output.mean + vector[2:6], jnp.exp(vector[6])
        f = (
            Gaussian(mean, output.var * scale)
            if kind == "diagonal"
            else JointGaussian(mean, output.cov * scale)
        )
        likelihood = HeteroscedasticGaussian(jnp.asarray(STD) * jnp.exp(vector[:2]))
        return jnp.sum(getattr(likelihood, method)(f, y))

    numeric = tiny.finite_differences(tiny.quick_jit(total), np.zeros(7), 1e-5)
    gradient = tiny.quick_jit(jax.grad(total))(jnp.zeros(7))
    np.testing.assert_allclose(gradient, numeric, rtol=1e-7, atol=1e-7)


# ---- by quadrature, from log p(y | f) alone -----------------------------------------------------


class NormalByNodes(AbstractPointwise):
    """A Gaussian whose integrals are known in closed form; nothing is learned."""

    std: ClassVar[float] = 0.8

    @classmethod
    def start(cls, n_targets, *, noise_std=0.5, y=None):
        return cls()

    @property
    def n_targets(self):
        return 2

    def log_prob(self, f, y):
        return jax.scipy.stats.norm.logpdf(y, f, self.std)

    def predictive(self, f):
        raise NotImplementedError


class PoissonByNodes(AbstractPointwise):
    """Counts of rate exp(f), which have E[log p(y | f)] in closed form."""

    column_scaling: ClassVar[tuple[bool, ...]] = (False,)

    @classmethod
    def start(cls, n_targets, *, noise_std=0.5, y=None):
        return cls()

    @property
    def n_targets(self):
        return 2

    def log_prob(self, f, y):
        return y * f - jnp.exp(f) - jax.scipy.special.gammaln(y + 1)

    def predictive(self, f):
        raise NotImplementedError


@pytest.fixture
def outputs(x64):
    rng = np.random.default_rng(3)
    return rng.normal(size=(5, 2)), rng.uniform(0.05, 0.6, (5, 2)), rng.poisson(2.0, (5, 2)) + 0.0


def test_nodes_agree_with_the_gaussians_closed_forms(outputs):
    mean, var, y = outputs
    f, std = Gaussian(mean, var), NormalByNodes.std
    expected = stats.norm.logpdf(y, mean, std) - var / (2 * std**2)
    np.testing.assert_allclose(
        NormalByNodes().expected_log_prob(f, jnp.asarray(y)), expected.sum(axis=1), rtol=1e-12
    )
    density = stats.norm.logpdf(y, mean, np.sqrt(var + std**2))
    np.testing.assert_allclose(
        NormalByNodes().log_predictive(f, jnp.asarray(y)), density.sum(axis=1), rtol=1e-6
    )


def test_nodes_agree_with_the_poissons_closed_form(outputs):
    mean, var, y = outputs
    truth = y * mean - np.exp(mean + var / 2) - special.gammaln(y + 1)
    claimed = PoissonByNodes().expected_log_prob(Gaussian(mean, var), jnp.asarray(y))
    np.testing.assert_allclose(claimed, truth.sum(axis=1), rtol=1e-12)


def test_known_outputs_need_no_integral(outputs):
    """All nodes are one: both methods are the log-density itself."""
    mean, _, y = outputs
    truth = stats.poisson.logpmf(y, np.exp(mean)).sum(axis=1)
    for method in ("expected_log_prob", "log_predictive"):
        claimed = getattr(PoissonByNodes(), method)(Gaussian(mean), jnp.asarray(y))
        np.testing.assert_allclose(claimed, truth, rtol=1e-12)


def test_nodes_take_no_covariance(case):
    f = JointGaussian(jnp.zeros((3, 2)), jnp.tile(jnp.eye(2), (3, 1, 1)))
    with pytest.raises(TypeError, match="takes every target by itself: leave out the covariance"):
        PoissonByNodes().log_predictive(f, jnp.zeros((3, 2)))
