"""Rules for any scalar function: exact where they must be, and as good as documented elsewhere."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, ndtr

import truth
from varprop import Gaussian, nn
from varprop.nn.parameters import count_parameters

pytestmark = pytest.mark.usefixtures("strict_promotion")


def moments(rule, mean, var):
    found = eqx.filter_jit(rule.uncertain_moments)(mean, var)
    return tuple(np.asarray(part, np.float64) for part in found)


def cubic(x):
    return x**3 - 2 * x


def cubic_truth(m, v):
    """Mean and variance of a^3 - 2a from the Gaussian's raw moments."""
    mean = m**3 + 3 * m * v - 2 * m
    sixth = m**6 + 15 * m**4 * v + 45 * m**2 * v**2 + 15 * v**3
    fourth = m**4 + 6 * m**2 * v + 3 * v**2
    return mean, sixth - 4 * fourth + 4 * (m**2 + v) - mean**2


MEANS = np.array([-2.0, -0.5, 0.0, 1.0, 3.0])
VARIANCES = np.array([0.25, 1.0, 2.0, 0.5, 4.0])


@pytest.mark.usefixtures("x64")
def test_gauss_hermite_is_exact_for_polynomials():
    """A cubic's square has degree 6, for which 4 nodes are enough and 3 are not."""
    exact = cubic_truth(MEANS, VARIANCES)
    m, v = jnp.asarray(MEANS), jnp.asarray(VARIANCES)
    for n_nodes in (4, 32):
        found = moments(nn.GaussHermite(cubic, n_nodes=n_nodes), m, v)
        np.testing.assert_allclose(found[0], exact[0], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[1], exact[1], rtol=1e-12)
    short = moments(nn.GaussHermite(cubic, n_nodes=3), m, v)
    np.testing.assert_allclose(short[0], exact[0], rtol=1e-12, atol=1e-12)
    assert np.all(np.abs(short[1] - exact[1]) > 1e-3)


@pytest.mark.usefixtures("x64")
def test_gauss_hermite_converges():
    """Spectrally for a smooth function; as 1 / n_nodes for a kink."""
    m, v = jnp.asarray(MEANS), jnp.asarray(VARIANCES)
    exact_mean = np.sin(MEANS) * np.exp(-VARIANCES / 2)
    exact_var = 0.5 * (1 - np.cos(2 * MEANS) * np.exp(-2 * VARIANCES)) - exact_mean**2
    found = moments(nn.GaussHermite(jnp.sin), m, v)
    np.testing.assert_allclose(found[0], exact_mean, atol=1e-12)
    np.testing.assert_allclose(found[1], exact_var, atol=1e-10)
    exact = truth.rectifier(MEANS, VARIANCES)
    worst = [
        np.abs(moments(nn.GaussHermite(jax.nn.relu, n_nodes=n), m, v)[0] - exact[0]).max()
        for n in (8, 32, 128)
    ]
    assert worst[0] < 0.1
    assert worst[1] < worst[0] / 2
    assert worst[2] < worst[1] / 2


@pytest.mark.usefixtures("x64")
def test_unscented_transform():
    """Exact for the mean of a quadratic whatever kappa; for its variance at kappa = 2 only."""
    m, v = jnp.asarray(MEANS), jnp.asarray(VARIANCES)
    exact_mean, exact_var = MEANS**2 + VARIANCES, 4 * MEANS**2 * VARIANCES + 2 * VARIANCES**2
    for kappa in (0.0, 1.0, 2.0):
        mean, var = moments(nn.Unscented(jnp.square, kappa=kappa), m, v)
        np.testing.assert_allclose(mean, exact_mean, rtol=1e-12)
        # The nodes' fourth moment is 1 + kappa, where the Gaussian's is 3.
        np.testing.assert_allclose(var, exact_var + (kappa - 2) * VARIANCES**2, rtol=1e-12)
    np.testing.assert_allclose(
        moments(nn.Unscented(jnp.tanh), m, v),
        moments(nn.GaussHermite(jnp.tanh, n_nodes=3), m, v),
        atol=1e-14,
    )


@pytest.mark.parametrize(
    ("function", "factor"), [(jnp.cos, 2.0), (jnp.tanh, 1.0)], ids=["even", "monotonic"]
)
def test_monte_carlo_error_is_as_documented(function, factor):
    """Over 2,000 rules the root-mean-square error of the mean stays below its stated bound.

    Its square is a mean of 2,000 squares, whose relative standard error is below 4 %: a factor of
    1.2 is five of them. An even function reaches the bound.
    """
    n_samples, n_rules = 64, 2000
    reference = np.cos if function is jnp.cos else np.tanh
    exact, var = truth.expectation(reference, 0.0, 1.0, singularity=1.0)
    x = jnp.zeros(1), jnp.ones(1)
    rules = jax.vmap(
        lambda key: nn.MonteCarlo(function, key=key, n_samples=n_samples).uncertain_moments(*x)[0]
    )
    errors = np.asarray(jax.jit(rules)(jax.random.split(jax.random.key(0), n_rules))) - exact
    ratio = np.mean(errors**2) / (factor * var / n_samples)
    assert ratio < 1.2
    assert function is not jnp.cos or ratio > 1 / 1.2


def test_monte_carlo_is_deterministic_and_not_trained():
    rule = nn.MonteCarlo(jnp.tanh, key=jax.random.key(3), n_samples=10)
    again = nn.MonteCarlo(jnp.tanh, key=jax.random.key(3), n_samples=10)
    np.testing.assert_array_equal(rule.draws, again.draws)
    assert count_parameters(rule) == 0
    np.testing.assert_allclose(jnp.sum(rule.draws), 0.0, atol=1e-6)  # antithetic


def gelu(x):
    return x * ndtr(x)


def silu(x):
    return x * expit(x)


def softplus(x):
    return np.logaddexp(0, x)


# The docstrings' figures: largest std, errors of mean and variance.
DOCUMENTED = {
    nn.GELU: (gelu, 1.0, {2: ("1e-6", "1.2e-4"), 4: ("0.005", "0.045"), 10: ("0.08", "1.2")}),
    nn.SiLU: (silu, np.pi, {2: ("5e-7", "7e-6"), 4: ("0.0007", "0.008"), 10: ("0.05", "0.75")}),
    nn.Softplus: (
        softplus,
        np.pi,
        {2: ("3e-8", "2.2e-7"), 4: ("0.0001", "0.0008"), 10: ("0.014", "0.22")},
    ),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", DOCUMENTED)
def test_documented_errors_of_quadrature(kind):
    """Upper bounds, and no more than twice what is reached."""
    function, singularity, figures = DOCUMENTED[kind]
    mean, std = np.meshgrid(
        np.linspace(-10, 10, 101), np.concatenate([[0], np.geomspace(0.01, 10, 49), [2.0, 4.0]])
    )
    found = moments(kind(), jnp.asarray(mean), jnp.asarray(std**2))
    exact = truth.expectation(function, mean, std, singularity=singularity)
    errors = [np.abs(a - b) for a, b in zip(found, exact, strict=True)]
    for std_max, stated in figures.items():
        assert " and ".join(stated) in kind.__doc__
        for error, figure in zip(errors, stated, strict=True):
            worst = error[std <= std_max].max()
            assert worst <= float(figure) <= 2 * worst


@pytest.mark.parametrize("kind", DOCUMENTED)
def test_ready_made_quadrature_in_both_precisions(kind, dtype):
    function, singularity, _ = DOCUMENTED[kind]
    mean, std = np.meshgrid(np.linspace(-5, 5, 21), [0.1, 0.5, 1.0])
    x = jnp.linspace(-8, 8, 33, dtype=dtype)
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(kind()(x), function(np.float64(x)), rtol=8 * eps, atol=4 * eps)
    found = moments(kind(), jnp.asarray(mean, dtype), jnp.asarray(std**2, dtype))
    exact = truth.expectation(function, mean, std, singularity=singularity)
    for value, expected in zip(found, exact, strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-6 if dtype == jnp.float32 else 1e-10)
    more = kind(n_nodes=200)  # as the docstring advises for large standard deviations
    wide = moments(more, jnp.asarray(mean, dtype), jnp.asarray(0 * std + 16.0, dtype))
    exact = truth.expectation(function, mean, 0 * std + 4.0, singularity=singularity)
    np.testing.assert_allclose(wide, exact, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def tables():
    made = {}
    for name in ("float32", "float64"):
        with jax.enable_x64(name == "float64"):
            made[name] = {f: nn.Table(f) for f in (jnp.tanh, jnp.sin)}
    return made


@pytest.mark.parametrize(
    ("function", "reference", "stated"),
    [(jnp.tanh, np.tanh, ("2.6e-4", "2e-4")), (jnp.sin, np.sin, ("4e-4", "3.2e-4"))],
    ids=["tanh", "sin"],
)
def test_documented_errors_of_the_table(tables, function, reference, stated, dtype):
    table = tables[dtype.name][function]
    mean, std = np.meshgrid(
        np.linspace(-10, 10, 333), np.concatenate([[0], np.geomspace(1e-3, 9.99, 67)])
    )
    m, v = jnp.asarray(mean, dtype), jnp.asarray(std**2, dtype)
    exact = truth.expectation(reference, np.float64(m), np.sqrt(np.float64(v)), singularity=1.0)
    for found, expected, figure in zip(moments(table, m, v), exact, stated, strict=True):
        worst = np.abs(found - expected).max()
        assert worst <= float(figure) <= 1.3 * worst
        assert figure in nn.Table.__doc__


def test_table_at_its_borders(tables, dtype):
    """The corners are inside, and at zero variance the table is the function itself."""
    table = tables[dtype.name][jnp.tanh]
    corner = moments(table, jnp.asarray([-10.0, 10.0], dtype), jnp.asarray([100.0, 100.0], dtype))
    exact = truth.expectation(np.tanh, [-10.0, 10.0], 10.0, singularity=1.0)
    np.testing.assert_allclose(corner, exact, atol=3e-4)
    x = jnp.linspace(-10, 10, 77, dtype=dtype)
    mean, var = moments(table, x, jnp.zeros_like(x))
    np.testing.assert_array_equal(mean, jnp.tanh(x))
    np.testing.assert_array_equal(var, 0.0)
    # V -> f'^2 var: interpolated between exact slopes.
    _, small = moments(table, x, jnp.full_like(x, 1e-10))
    slope = 1 - np.tanh(np.float64(x)) ** 2
    np.testing.assert_allclose(small / 1e-10, slope**2, atol=1e-3)


def test_table_is_differentiable_and_not_trained(tables):
    table = tables["float32"][jnp.tanh]
    assert count_parameters(table) == 0
    mean, var = jnp.asarray([-3.0, 0.0, 2.01]), jnp.asarray([0.0, 1.0, 4.0])
    for k in (0, 1):
        slopes = jax.grad(lambda m, v, k=k: jnp.sum(table.uncertain_moments(m, v)[k]), (0, 1))
        assert all(np.all(np.isfinite(part)) for part in jax.jit(slopes)(mean, var))
    # The slope of a linear interpolation is that of its cell: close to the true dE/dmean.
    h = 1e-4
    exact = (
        truth.expectation(np.tanh, 2.01 + h, 2.0, singularity=1.0)[0]
        - truth.expectation(np.tanh, 2.01 - h, 2.0, singularity=1.0)[0]
    ) / (2 * h)
    found = jax.grad(lambda m: jnp.sum(table.uncertain_moments(m, var)[0]))(mean)[2]
    np.testing.assert_allclose(found, exact, atol=5e-3)


RULES = {
    "GaussHermite": nn.GaussHermite(jnp.tanh),
    "Unscented": nn.Unscented(jnp.tanh),
    "MonteCarlo": nn.MonteCarlo(jnp.tanh, key=jax.random.key(0), n_samples=64),
    "GELU": nn.GELU(),
    "SiLU": nn.SiLU(),
    "Softplus": nn.Softplus(),
}


@pytest.mark.parametrize("name", RULES)
def test_zero_variance_is_the_plain_function(name):
    rule, dtype = RULES[name], jnp.float32
    x = jnp.asarray([-30.0, -1.0, 0.0, 0.3, 30.0], dtype)
    mean, var = moments(rule, x, jnp.zeros_like(x))
    np.testing.assert_allclose(mean, rule(x), rtol=2 * float(jnp.finfo(dtype).eps))
    np.testing.assert_array_equal(var, 0.0)
    known = rule.moments(Gaussian(x))
    assert known.var is None
    np.testing.assert_array_equal(known.mean, rule(x))
    by_mean, by_var = jax.jit(
        jax.grad(lambda m, v: sum(jnp.sum(part) for part in rule.uncertain_moments(m, v)), (0, 1))
    )(x, jnp.zeros_like(x))
    np.testing.assert_allclose(
        by_mean, jax.vmap(jax.grad(rule))(x), rtol=1e-5, atol=float(jnp.finfo(dtype).eps)
    )
    np.testing.assert_array_equal(by_var, 0.0)  # documented
