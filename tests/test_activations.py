"""Activations in closed form against mpmath, approximate ones against their documented error."""

import equinox as eqx
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from scipy.special import erf, expit

import truth
from varprop import Gaussian, nn
from varprop.nn.parameters import count_parameters

pytestmark = pytest.mark.usefixtures("strict_promotion")

R = np.concatenate([np.linspace(-12, 12, 97), [-1e4, -100.0, -30.0, 30.0, 100.0, 1e4]])
VARS = np.array([1e-20, 1e-6, 1.0, 1e12])


def grid(dtype):
    """Means and variances that float32 holds exactly, over many scales."""
    r, var = np.meshgrid(R, VARS.astype(np.float32), indexing="ij")
    mean = (r * np.sqrt(var)).astype(np.float32)
    return mean, var, jnp.asarray(mean, dtype), jnp.asarray(var, dtype)


def moments(activation, mean, var):
    found = eqx.filter_jit(activation.uncertain_moments)(mean, var)
    return tuple(np.asarray(part, np.float64) for part in found)


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.5, 1.0, -1.0, -3.0])
def test_leaky_rectifier_against_mpmath(slope, dtype):
    slope = float(np.float32(slope))
    mean, var, m, v = grid(dtype)
    exact_mean, exact_var = truth.leaky_rectifier(mean, var, slope)
    out_mean, out_var = moments(nn.LeakyReLU(slope), m, v)
    eps = float(jnp.finfo(dtype).eps)
    scale = np.abs(np.float64(mean)) + np.sqrt(np.float64(var))
    assert np.all(np.abs(out_mean - exact_mean) <= 8 * eps * scale * max(abs(slope), 1))
    # Where the slope is 0 only the tail is left on the negative side; test_rectifier sees to it.
    seen = exact_var > (1e-6 * var if slope == 0 else 0.0)
    error = truth.relative_error(out_var, np.where(seen, exact_var, 1))[seen]
    assert error.max() <= 40 * eps


def test_leaky_rectifier_special_cases(dtype):
    _, _, m, v = grid(dtype)
    relu, leaky = moments(nn.ReLU(), m, v), moments(nn.LeakyReLU(0.0), m, v)
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(leaky, relu, rtol=1000 * eps)  # tails amplify rounding by r^2
    # The absolute value's second moment is the Gaussian's own.
    mean, var = moments(nn.LeakyReLU(-1.0), m, v)
    second = np.float64(m) ** 2 + np.float64(v)
    np.testing.assert_allclose(mean**2 + var, second, rtol=8 * eps)


def test_heaviside_against_mpmath(dtype):
    mean, var, m, v = grid(dtype)
    above, _, exact_var = truth.step(mean, var)
    out_mean, out_var = moments(nn.Heaviside(), m, v)
    smallest = float(np.finfo(np.float32).tiny) if dtype == jnp.float32 else 1e-290
    r = np.float64(mean) / np.sqrt(np.float64(var))
    bound = 8 * float(jnp.finfo(dtype).eps) * (1 + r**2)
    for found, exact in ((out_mean, above), (out_var, exact_var)):
        seen = exact > smallest
        assert np.all((truth.relative_error(found, np.where(seen, exact, 1)) <= bound)[seen])
    assert np.all(out_var <= 0.25)


def test_identity_changes_nothing(dtype):
    _, _, m, v = grid(dtype)
    out = nn.Identity().moments(Gaussian(m, v))
    np.testing.assert_array_equal(out.mean, m)
    np.testing.assert_array_equal(out.var, v)


BOTH = ("float32", "float64")

# The grid that the docstrings name, and the errors they state: class, function, distance of its
# nearest singularity from the real axis, largest |mean|, largest std, errors per dtype.
DOCUMENTED = {
    "Erf": (nn.Erf(), erf, 1.0, 50, 100, {"float32": ("4e-7", "4e-7"), "float64": ("2e-15",) * 2}),
    "Sigmoid": (nn.Sigmoid(), expit, np.pi, 50, 100, dict.fromkeys(BOTH, ("8e-7", "7e-7"))),
    "Tanh": (nn.Tanh(), np.tanh, np.pi / 2, 25, 50, dict.fromkeys(BOTH, ("1.6e-6", "2.6e-6"))),
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_documented_errors(name, dtype):
    """The docstring's figures are upper bounds, and at most four times what is reached."""
    activation, function, singularity, mean_max, std_max, figures = DOCUMENTED[name]
    # Denser around a variance of 1, where the sigmoid changes from quadrature to its mixture.
    stds = np.concatenate([[0, 1e-6], np.geomspace(1e-3, 1, 40), np.linspace(1, 1.3, 13)])
    stds = np.concatenate([stds, np.geomspace(1.4, 100, 40)]) * std_max / 100
    mean, std = np.meshgrid(np.linspace(-mean_max, mean_max, 401), stds, indexing="ij")
    m, v = jnp.asarray(mean, dtype), jnp.asarray(std**2, dtype)
    exact = truth.expectation(
        function, np.float64(m), np.sqrt(np.float64(v)), singularity=singularity
    )
    for found, expected, stated in zip(
        moments(activation, m, v), exact, figures[dtype.name], strict=True
    ):
        worst = np.abs(found - expected).max()
        assert worst <= float(stated) <= 4 * worst
        assert stated in type(activation).__doc__


def test_the_probit_approximation_is_as_bad_as_stated():
    mean, std = np.meshgrid(np.linspace(-50, 50, 201), np.geomspace(1e-2, 100, 60))
    exact, _ = truth.expectation(expit, mean, std, singularity=np.pi)
    worst = np.abs(expit(mean / np.sqrt(1 + np.pi * std**2 / 8)) - exact).max()
    assert round(worst, 3) == 0.018
    assert "is off by 0.018" in nn.Sigmoid.__doc__


def test_trapezoidal_truth_against_mpmath():
    """The truth used above, checked by another route at points of every kind."""
    for mean, std in ((0.5, 1.0), (-7.0, 2.5), (20.0, 0.3), (3.0, 100.0)):
        kink = -mean / std
        pieces = sorted({-14.0, 14.0, *(p for p in (kink - 1, kink, kink + 1) if abs(p) < 14)})
        for function, exact in (
            (expit, lambda a: 1 / (1 + mp.exp(-a))),
            (erf, mp.erf),
            (np.tanh, mp.tanh),
        ):
            first, second = (
                mp.quad(lambda z, k=k: exact(mean + std * z) ** k * mp.npdf(z), pieces)  # noqa: B023
                for k in (1, 2)
            )
            found = truth.expectation(function, mean, std, singularity=1.0)
            assert found[0] == pytest.approx(float(first), abs=1e-13)
            assert found[1] == pytest.approx(float(second - first**2), abs=1e-13)


def test_erf_variance_keeps_its_digits_at_small_variance(dtype):
    """V -> f'(mean)^2 var: a difference of two moments would have lost it below the rounding."""
    mean = jnp.linspace(-2, 2, 41, dtype=dtype)
    var = jnp.full_like(mean, 1e-12)
    slope = 2 / np.sqrt(np.pi) * np.exp(-(np.float64(mean) ** 2))
    expected = slope**2 * np.float64(var)
    rtol = 2e-6 if dtype == jnp.float32 else 1e-9  # the next term is of relative order var
    np.testing.assert_allclose(moments(nn.Erf(), mean, var)[1], expected, rtol=rtol)


PLAIN = {
    "Identity": (nn.Identity(), lambda x: x),
    "ReLU": (nn.ReLU(), lambda x: np.maximum(x, 0)),
    "LeakyReLU": (nn.LeakyReLU(0.25), lambda x: np.where(x > 0, x, 0.25 * x)),
    "Heaviside": (nn.Heaviside(), lambda x: np.where(x > 0, 1.0, 0.0)),
    "Erf": (nn.Erf(), erf),
    "Sigmoid": (nn.Sigmoid(), expit),
    "Tanh": (nn.Tanh(), np.tanh),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_call_and_zero_variance(name, dtype):
    activation, function = PLAIN[name]
    x = jnp.asarray([-1e4, -30.0, -2.0, -1e-3, 0.0, 1e-3, 0.7, 5.0, 30.0, 1e4], dtype)
    plain = activation(x)
    assert plain.dtype == dtype
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(plain, function(np.float64(x)), rtol=8 * eps, atol=2 * eps)
    known = activation.moments(Gaussian(x))
    assert known.var is None
    np.testing.assert_array_equal(known.mean, plain)
    mean, var = moments(activation, x, jnp.zeros_like(x))
    np.testing.assert_allclose(mean, plain, atol=4 * eps, rtol=4 * eps)
    np.testing.assert_array_equal(var, 0.0)


@pytest.mark.parametrize("name", PLAIN)
def test_gradients_at_zero_variance_are_finite(name):
    activation, _ = PLAIN[name]
    mean = jnp.asarray([-1e4, -1.0, -1e-20, 0.0, 1e-20, 1.0, 1e4], jnp.float32)

    @jax.jit
    def slopes(mean, var):
        _, pullback = jax.vjp(activation.uncertain_moments, mean, var)
        return pullback((jnp.ones_like(mean), jnp.ones_like(mean)))

    for var in (0.0, 1e-38, 1e-30):
        for part in slopes(mean, jnp.full_like(mean, var)):
            assert np.all(np.isfinite(part))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", PLAIN)
def test_gradients_against_finite_differences_of_the_truth(name):
    """At regular points; the approximations are as close as their error over the step allows."""
    activation, function = PLAIN[name]
    mean = np.array([-2.0, -0.4, 0.1, 0.9, 3.0])
    var = np.array([0.3, 2.0, 0.7, 1.7, 4.0])
    h = 1e-3

    def exact(mean, var):
        if name == "ReLU":
            return truth.rectifier(mean, var)
        if name == "LeakyReLU":
            return truth.leaky_rectifier(mean, var, 0.25)
        if name == "Heaviside":
            above, _, product = truth.step(mean, var)
            return above, product
        return truth.expectation(function, mean, np.sqrt(var), singularity=1.0)

    for k in (0, 1):
        by_mean, by_var = jax.grad(
            lambda m, v, k=k: jnp.sum(activation.uncertain_moments(m, v)[k]), (0, 1)
        )(jnp.asarray(mean), jnp.asarray(var))
        difference = exact(mean + h, var)[k] - exact(mean - h, var)[k]
        np.testing.assert_allclose(by_mean, difference / (2 * h), atol=1e-5)
        difference = exact(mean, var + h)[k] - exact(mean, var - h)[k]
        np.testing.assert_allclose(by_var, difference / (2 * h), atol=1e-5)


def test_negative_slope_is_not_trained():
    assert count_parameters(nn.LeakyReLU(0.1)) == 0
