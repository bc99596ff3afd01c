"""Cov[f(a), f(b)] of correlated Gaussians against quadrature in two dimensions, and as a kernel.

Errors are in units of the product of the two standard deviations of f, as docstrings state them.
"""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf, expit, ndtr

import truth
from tiny import quick_jit
from varprop import Gaussian, nn
from varprop.moments.pairs import (
    quadrature_coefficients,
    rectifier_coefficients,
    series_covariance,
    step_coefficients,
)

pytestmark = pytest.mark.usefixtures("strict_promotion")

# What `varprop.moments.pairs` states: the error up to |rho| = 0.5, to 0.9, and to 1.
STATED = {
    "relu": (nn.ReLU(), lambda x: np.maximum(x, 0), (3e-7, 5e-3, 0.08)),
    "leaky": (nn.LeakyReLU(0.1), lambda x: np.where(x > 0, x, 0.1 * x), (2e-7, 1e-3, 0.01)),
    "abs": (nn.LeakyReLU(-1.0), np.abs, (2e-7, 2e-3, 0.02)),
    "tanh": (nn.Tanh(), np.tanh, (5e-5, 2e-3, 0.02)),
    "sigmoid": (nn.Sigmoid(), expit, (3e-6, 1e-4, 1e-3)),
    "erf": (nn.Erf(), erf, (2e-5, 3e-3, 0.03)),
    "step": (nn.Heaviside(), lambda x: (x > 0) * 1.0, (1e-5, 0.08, 0.5)),
    "gelu": (nn.GELU(), lambda x: x * ndtr(x), (1e-3, 2e-3, 3e-3)),
    "silu": (nn.SiLU(), lambda x: x * expit(x), (2e-4, 3e-4, 3e-4)),
    "softplus": (nn.Softplus(), lambda x: np.logaddexp(0, x), (2e-5, 3e-5, 3e-5)),
    "identity": (nn.Identity(), lambda x: x, (1e-9, 1e-9, 1e-9)),
}
RHO = [-1.0, -0.999, -0.9, -0.5, 0.0, 0.3, 0.5, 0.9, 0.999, 1.0]
LEVEL = np.searchsorted([0.5, 0.9], np.abs(RHO))


def points():
    """Pairs (mean, std, mean, std, rho); the first of each rho is one variable with itself."""
    rng = np.random.default_rng(1)
    found = []
    for rho in RHO:
        found.append((0.7, 0.8, 0.7, 0.8, rho))
        for _ in range(6):
            (m, n), (s, t) = rng.normal(0, 1.2, 2), np.exp(rng.uniform(np.log(0.05), np.log(3), 2))
            found.append((m, s, n, t, rho))
    return np.array(found)


POINTS = points()


def covariance(activation, points):
    def of(m, s, n, t, rho):
        a, b = Gaussian(m, s**2), Gaussian(n, t**2)
        var = activation.moments(a).var * activation.moments(b).var
        return activation.covariance(a, b, rho * s * t, same=False), jnp.sqrt(var)

    return [np.asarray(part) for part in quick_jit(of)(*map(jnp.asarray, points.T))]


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", STATED)
def test_against_quadrature(name):
    activation, function, stated = STATED[name]
    found, scale = covariance(activation, POINTS)
    exact = np.array([truth.pair_covariance(function, p[:2], p[2:4], p[4]) for p in POINTS])
    # Where a variance is nothing beside the input's, as a rectifier's far below 0, so is its share.
    seen = scale > 1e-8 * POINTS[:, 1] * POINTS[:, 3]
    error = np.where(seen, np.abs(found - exact) / np.where(seen, scale, 1), 0)
    level = LEVEL[np.searchsorted(RHO, POINTS[:, 4])]
    for i, bound in enumerate(stated):
        assert error[level <= i].max() <= bound, i
    assert (found[POINTS[:, 4] == 0] == 0).all()
    itself = (POINTS[:, 4] == 1) & (POINTS[:, 0] == POINTS[:, 2])
    np.testing.assert_allclose(found[itself], scale[itself], rtol=1e-12)  # the variance


def test_the_truth_knows_closed_forms():
    """Of the quadrature: the arcsine law, the rectifier's at mean 0, and a line."""
    for rho in (-1.0, -0.999, -0.3, 0.0, 0.6, 0.999, 1.0):
        step = truth.pair_covariance(STATED["step"][1], (0, 2), (0, 0.3), rho)
        np.testing.assert_allclose(step, np.arcsin(rho) / (2 * np.pi), atol=1e-6)
        angle = np.arccos(rho)
        product = (np.sin(angle) + (np.pi - angle) * rho) / (2 * np.pi)
        relu = truth.pair_covariance(STATED["relu"][1], (0, 2), (0, 0.3), rho)
        np.testing.assert_allclose(relu, 0.6 * (product - 1 / (2 * np.pi)), atol=1e-6)
        line = truth.pair_covariance(lambda x: 3 * x + 1, (5, 2), (-1, 0.3), rho)
        np.testing.assert_allclose(line, 9 * 0.6 * rho, atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["relu", "step", "tanh"])
def test_positive_semidefinite(name):
    """As a kernel over 60 points in general position, some of them nearly the same."""
    rng = np.random.default_rng(2)
    z = rng.normal(size=(60, 4)) * np.exp(rng.normal(size=(60, 1)))
    z[40:] = z[:20] + 1e-7 * rng.normal(size=(20, 4))
    z[-1] = z[0]
    mean, cov = rng.normal(size=60), z @ z.T
    mean[40:] = mean[:20]
    a = [Gaussian(mean[axis], np.diag(cov)[axis]) for axis in (np.s_[:, None], np.s_[None])]
    activation = STATED[name][0]
    found = quick_jit(lambda a, b, c: activation.covariance(a, b, c, same=True))(
        *a, jnp.asarray(cov)
    )
    found = np.asarray(found)
    np.testing.assert_allclose(found, found.T, rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(found).min() >= -1e-12 * np.trace(found)
    var = np.asarray(activation.moments(Gaussian(mean, np.diag(cov))).var)
    np.testing.assert_allclose(np.diag(found), var, rtol=1e-9)


def test_known_and_extreme_values(dtype):
    """No NaN anywhere; what is known has no covariance; a correlation beyond 1 is rounding."""
    means = [0.0, 1e-30, 1.0, -1.0, 1e10, -1e30, 1e30]
    variances = [0.0, 1e-38, 1e-20, 1.0, 1e18]
    mean, var = (jnp.asarray(a.ravel(), dtype) for a in np.meshgrid(means, variances))
    a = Gaussian(mean, var)
    for coefficients in (rectifier_coefficients, step_coefficients):
        found = np.asarray(quick_jit(series_covariance, static_argnums=0)(coefficients, a, a, var))
        assert np.isfinite(found).all()
        assert (found >= 0).all()
        assert (found[np.asarray(var) == 0] == 0).all()
    one, known = Gaussian(jnp.ones((), dtype), 1.0), Gaussian(jnp.ones((), dtype), 0.0)
    two = jnp.asarray(2.0, dtype)
    assert series_covariance(rectifier_coefficients, one, known, two) == 0
    within = series_covariance(rectifier_coefficients, one, one, jnp.asarray(1.0, dtype))
    assert series_covariance(rectifier_coefficients, one, one, two) == within
    # Far above 0 the rectifier is a line, however small the variance.
    far = Gaussian(jnp.asarray(1e3, dtype), jnp.asarray(1e-24, dtype))
    half = series_covariance(rectifier_coefficients, far, far, jnp.asarray(0.5e-24, dtype))
    np.testing.assert_allclose(half, 0.5e-24, rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_coefficients_are_those_of_hermite_polynomials():
    """E[f(a) He_k(z)] / sqrt(k!) by the trapezoidal rule, with the polynomials written out."""
    z = np.linspace(-12, 12, 4801)
    w = np.exp(-0.5 * z**2)
    w /= w.sum()
    he = [z, z**2 - 1, z**3 - 3 * z, z**4 - 6 * z**2 + 3, z**5 - 10 * z**3 + 15 * z]
    mean, std = 0.6, 1.3
    values = mean + std * z
    a = Gaussian(jnp.asarray(mean), std**2)
    relu, step, sine = (
        [w @ (f(values) * h) / np.sqrt(f_k) for h, f_k in zip(he, (1, 2, 6, 24, 120), strict=True)]
        for f in (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0, np.sin)
    )
    np.testing.assert_allclose(rectifier_coefficients(a, 5)[0], relu, atol=1e-5)
    np.testing.assert_allclose(step_coefficients(a, 5)[0], step, atol=2e-3)
    np.testing.assert_allclose(quadrature_coefficients(jnp.sin, a, 5), sine, atol=1e-12)
