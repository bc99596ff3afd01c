"""Three ways to the log-density of N(0, diag + weighted outer products), and what each costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

import truth
from varprop import JointGaussian
from varprop.moments.covariance import DiagonalPlusLowRank, dense_log_density

pytestmark = pytest.mark.usefixtures("strict_promotion")

METHODS = ["cholesky", "woodbury", "sherman-morrison"]
SIZES = [(3, 7), (7, 3), (4, 4), (0, 2)]  # outer products, outputs


def parts(n, d, *, noise=0.1, batch=(), seed=0, dtype=np.float64):
    """Diagonal, weights (one of them 0), factors and an error, as NumPy arrays."""
    rng = np.random.default_rng(seed)
    diagonal = noise * rng.uniform(0.5, 1.5, (*batch, d))
    weight = rng.gamma(1.0, 0.5, (*batch, n))
    weight[..., : min(n, 1)] = 0.0
    factor = rng.normal(0.0, 0.5, (n, d))
    error = rng.normal(0.0, 1.0, (*batch, d))
    return tuple(np.asarray(part, dtype) for part in (diagonal, weight, factor, error))


def dense(diagonal, weight, factor):
    diagonal, weight, factor = (np.float64(part) for part in (diagonal, weight, factor))
    return np.diag(diagonal) + factor.T @ np.diag(weight) @ factor


def density(diagonal, weight, factor, error, method):
    return DiagonalPlusLowRank(diagonal, weight, factor).log_density(error, method)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("size", SIZES)
def test_methods_agree_with_scipy(size):
    diagonal, weight, factor, error = parts(*size, batch=(5,))
    expected = [
        multivariate_normal.logpdf(e, cov=dense(d, w, factor))
        for d, w, e in zip(diagonal, weight, error, strict=True)
    ]
    arrays = [jnp.asarray(part) for part in (diagonal, weight, factor, error)]
    for method in [*METHODS, "auto"]:
        found = jax.jit(density, static_argnums=4)(*arrays, method)
        np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.usefixtures("x64")
def test_a_factor_for_each_row():
    """Factors may carry the batch's axes too, and one error may meet many matrices."""
    rows = [parts(3, 5, seed=seed) for seed in range(4)]
    diagonal, weight, factor, error = (
        jnp.asarray(np.stack(part)) for part in zip(*rows, strict=True)
    )
    expected = [multivariate_normal.logpdf(row[3], cov=dense(*row[:3])) for row in rows]
    one_error = [multivariate_normal.logpdf(rows[0][3], cov=dense(*row[:3])) for row in rows]
    for method in METHODS:
        evaluate = jax.jit(density, static_argnums=4)
        for errors, exact in ((error, expected), (error[0], one_error)):
            found = evaluate(diagonal, weight, factor, errors, method)
            np.testing.assert_allclose(found, exact, atol=1e-9)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("size", [(3, 7), (7, 3)])
def test_gradients_are_exact_also_at_a_weight_of_zero(size):
    """Of every method, in every argument, against differences of SciPy's density.

    Across a weight of 0 the derivative is one-sided for SciPy, whose matrix stays positive definite
    for a slightly negative weight: the difference may be central all the same.
    """
    arrays = [jnp.asarray(part) for part in parts(*size)]
    slopes = {
        method: jax.jit(jax.grad(density, (0, 1, 2, 3)), static_argnums=4)(*arrays, method)
        for method in METHODS
    }
    h = 1e-6

    def scipy_density(changed):
        diagonal, weight, factor, error = changed
        return multivariate_normal.logpdf(error, cov=dense(diagonal, weight, factor))

    for position in range(4):
        flat = np.ravel(arrays[position])
        expected = np.empty(flat.size)
        for i in range(flat.size):
            values = []
            for sign in (1, -1):
                changed = [np.array(part) for part in arrays]
                changed[position].reshape(-1)[i] += sign * h
                values.append(scipy_density(changed))
            expected[i] = (values[0] - values[1]) / (2 * h)
        for method in METHODS:
            found = np.ravel(slopes[method][position])
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
        for method in METHODS[1:]:
            np.testing.assert_allclose(
                slopes[method][position], slopes["cholesky"][position], rtol=1e-9, atol=1e-9
            )


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_finite_when_every_weight_is_zero(method):
    """A layer of dead units: the gradient must neither vanish nor be NaN, and differs from 0."""
    diagonal, weight, factor, error = (jnp.asarray(p) for p in parts(3, 7, dtype=np.float32))
    slopes = jax.jit(jax.grad(density, (0, 1, 2, 3)), static_argnums=4)(
        diagonal, 0 * weight, factor, error, method
    )
    assert all(np.all(np.isfinite(part)) for part in slopes)
    # d log N / d w_i at w = 0 is ((u_i . e/d)^2 - u_i . u_i / d) / 2.
    scaled = factor / diagonal
    expected = 0.5 * ((scaled @ error) ** 2 - jnp.sum(scaled * factor, axis=1))
    np.testing.assert_allclose(slopes[1], expected, rtol=2e-5, atol=1e-5)


@pytest.mark.usefixtures("x64")
def test_second_derivatives_of_the_dense_density():
    """The closed-form derivative can itself be differentiated."""
    diagonal, weight, factor, error = parts(3, 3)
    cov = jnp.asarray(dense(diagonal, weight, factor))
    by_error = jax.jit(jax.hessian(dense_log_density))(jnp.asarray(error), cov)
    np.testing.assert_allclose(by_error, -np.linalg.inv(cov), rtol=1e-9, atol=1e-9)


def worst_error(size, noise, method):
    """Largest error in nats over 30 random matrices, in float32, at a typical draw."""
    evaluate = jax.jit(density, static_argnums=4)
    errors = []
    for seed in range(30):
        diagonal, weight, factor, _ = parts(*size, noise=noise, seed=seed, dtype=np.float32)
        cov = dense(diagonal, weight, factor)
        draw = np.linalg.cholesky(cov) @ np.random.default_rng(seed).normal(size=size[1])
        draw = draw.astype(np.float32)
        white = np.linalg.solve(np.linalg.cholesky(cov), np.float64(draw))
        log_det = np.linalg.slogdet(cov)[1]
        exact = -0.5 * (size[1] * np.log(2 * np.pi) + log_det + white @ white)
        errors.append(abs(float(evaluate(diagonal, weight, factor, draw, method)) - exact))
    return max(errors)


@pytest.mark.parametrize("size", [(50, 7), (7, 50)])
def test_float32_error(size):
    """As the docstring states: at a noise of 1e-5 the automatic choice is right to 5e-4."""
    assert worst_error(size, 1.0, "auto") < 2e-5
    assert worst_error(size, 1e-2, "auto") < 5e-5
    assert worst_error(size, 1e-5, "auto") < 5e-4
    for other in {*METHODS} - {"woodbury" if size[1] > size[0] else "cholesky"}:
        assert 0.01 < worst_error(size, 1e-5, other) < 0.7


def shapes_in(jaxpr):
    """The shape of every array that a traced program makes, inner programs included."""
    for equation in jaxpr.eqns:
        for variable in equation.outvars:
            yield variable.aval.shape
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else [value]:
                if hasattr(inner, "jaxpr"):
                    yield from shapes_in(inner.jaxpr)
                elif hasattr(inner, "eqns"):
                    yield from shapes_in(inner)


@pytest.mark.parametrize("size", [(5, 200), (200, 5)])
def test_cost_of_the_automatic_choice(size):
    """Only the small system is formed, in value and gradient: no (200, 200) array anywhere."""
    n, d = size
    arrays = [jnp.asarray(part) for part in parts(n, d, dtype=np.float32)]

    def largest(method):
        step = jax.value_and_grad(lambda *a: density(*a, method), (0, 1, 2, 3))
        return max(int(np.prod(shape)) for shape in shapes_in(jax.make_jaxpr(step)(*arrays).jaxpr))

    assert largest("auto") == n * d
    assert largest("cholesky" if d > n else "woodbury") == 200 * 200


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("size", SIZES)
def test_dense_and_variances(size):
    diagonal, weight, factor, _ = parts(*size)
    cov = DiagonalPlusLowRank(diagonal, weight, factor)
    expected = dense(diagonal, weight, factor)
    assert cov.shape == expected.shape
    np.testing.assert_allclose(cov.dense(), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(cov.dense(), np.transpose(cov.dense()))
    np.testing.assert_allclose(cov.variances(), np.diag(expected), rtol=1e-12)
    by = np.linspace(-1.0, 2.0, size[1])
    np.testing.assert_allclose(
        cov.scale(jnp.asarray(by)).dense(), by[:, None] * expected * by, rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(cov.scale(jnp.asarray(3.0)).dense(), 9 * expected, rtol=1e-12)
    extra = np.linspace(0.0, 1.0, size[1])
    np.testing.assert_allclose(
        cov.add_diagonal(jnp.asarray(extra)).dense(), expected + np.diag(extra), rtol=1e-12
    )


@pytest.mark.parametrize("size", [(3, 7), (7, 3)], ids=["sum of factors", "cholesky"])
def test_samples_have_the_covariance(size):
    """Overall false-alarm rate 1e-6."""
    diagonal, weight, factor, _ = parts(*size, dtype=np.float32)
    mean = np.linspace(-1, 1, size[1], dtype=np.float32)
    joint = JointGaussian(mean, DiagonalPlusLowRank(diagonal, weight, factor))
    draws = jax.jit(lambda key: joint.sample(key, (100_000,)))(jax.random.key(1))
    cov = dense(diagonal, weight, factor)
    d = size[1]
    limit = truth.threshold(1e-6, d + d * (d + 1) // 2)
    assert np.abs(truth.sampling_z(draws, mean, np.diag(cov))[0]).max() < limit
    assert np.abs(truth.covariance_z(draws, cov)).max() < limit
    # Power: a covariance that misses one outer product is seen.
    assert np.abs(truth.covariance_z(draws, dense(diagonal, 0.95 * weight, factor))).max() > limit


def test_not_positive_definite():
    cov = jnp.asarray([[1.0, 2.0], [2.0, 1.0]])
    assert np.isnan(jax.jit(dense_log_density)(jnp.zeros(2), cov))
    singular = DiagonalPlusLowRank(jnp.zeros(3), jnp.ones(4), jnp.zeros((4, 3)))
    for method in METHODS:
        found = jax.jit(lambda error, method=method: singular.log_density(error, method))(
            jnp.ones(3)
        )
        assert not np.isfinite(found)
