"""The algebra of Gaussian and JointGaussian, and that an exactly known value costs nothing."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import truth
from varprop import Gaussian, JointGaussian, nn
from varprop.moments.covariance import DiagonalPlusLowRank
from varprop.moments.gaussian import add_variances, as_gaussian

pytestmark = pytest.mark.usefixtures("strict_promotion")

A = np.array([[1.0, -2.0, 0.5], [3.0, 0.0, -1.0]])
VA = np.array([[0.5, 1.0, 2.0], [0.0, 3.0, 0.25]])
B = np.array([[2.0, 1.0, -1.0], [0.5, -3.0, 4.0]])
VB = np.array([[1.0, 0.25, 0.0], [2.0, 0.5, 1.5]])


def same(found, mean, var, dtype):
    rtol = 16 * float(jnp.finfo(dtype).eps)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.mean, mean, rtol=rtol)
    if var is None:
        assert found.var is None
    else:
        np.testing.assert_allclose(found.var, var, rtol=rtol)


def test_algebra_of_independents(dtype):
    a = Gaussian(jnp.asarray(A, dtype), jnp.asarray(VA, dtype))
    b = Gaussian(jnp.asarray(B, dtype), jnp.asarray(VB, dtype))
    c = jnp.asarray([2.0, -1.0, 0.5], dtype)
    c64 = np.float64(c)
    same(a + b, A + B, VA + VB, dtype)
    same(a - b, A - B, VA + VB, dtype)
    same(-a, -A, VA, dtype)
    same(a * b, A * B, VA * VB + VA * B**2 + A**2 * VB, dtype)
    same(a * c, A * c64, VA * c64**2, dtype)
    same(2.0 * a, 2 * A, 4 * VA, dtype)
    same(c + a, A + c64, VA, dtype)
    same(c - a, c64 - A, VA, dtype)
    matrix = np.array([[1.0, 2.0], [-1.0, 0.5], [3.0, 0.0]])
    offset = np.array([10.0, -10.0])
    found = a.affine(jnp.asarray(matrix, dtype), jnp.asarray(offset, dtype))
    same(found, A @ matrix + offset, VA @ matrix**2, dtype)
    np.testing.assert_allclose(a.second_moment(), A**2 + VA, rtol=1e-6)


@pytest.mark.parametrize("other", [np.array([2.0, -1.0, 0.5]), 3.0, np.float32(2.0)])
def test_numpy_arrays_and_numbers_on_either_side(other):
    a = Gaussian(A, VA)
    for left, right, sign in ((other + a, a + other, 1), (other - a, a - other, -1)):
        assert isinstance(left, Gaussian)
        np.testing.assert_array_equal(left.mean, sign * right.mean)
        np.testing.assert_array_equal(left.var, right.var)
    np.testing.assert_array_equal((other * a).var, (a * other).var)


def test_products_and_sums_against_sampling():
    """False-alarm rate 1e-6 for the whole test."""
    a, b = Gaussian(A, VA), Gaussian(B, VB)
    matrix = jnp.asarray([[1.0, 2.0], [-1.0, 0.5], [3.0, 0.0]])

    @jax.jit
    def draws(key):
        keys = jax.random.split(key)
        x, y = a.sample(keys[0], (200_000,)), b.sample(keys[1], (200_000,))
        return x + y, x * y, (x - y) @ matrix

    claimed = (a + b, a * b, (a - b).affine(matrix))
    limit = truth.threshold(1e-6, 2 * (6 + 6 + 4))
    for sample, moments in zip(draws(jax.random.key(0)), claimed, strict=True):
        for z in truth.sampling_z(sample, moments.mean, moments.var):
            assert np.abs(z).max() < limit


def test_a_known_value_stays_known():
    known, uncertain = Gaussian(A), Gaussian(B, VB)
    matrix = jnp.ones((3, 2))
    for result in (
        known + known,
        known - 1.0,
        -known,
        known * known,
        2.0 * known,
        known.affine(matrix),
    ):
        assert result.var is None
    same(known + uncertain, A + B, VB, jnp.float32)
    same(known * uncertain, A * B, A**2 * VB, jnp.float32)
    assert add_variances(None, None) is None
    assert jax.tree.structure(known) != jax.tree.structure(uncertain)
    assert len(jax.tree.leaves(known)) == 1
    np.testing.assert_array_equal(known.variances(), np.zeros_like(A))
    np.testing.assert_array_equal(known.sample(jax.random.key(0), (2,)), np.stack([A, A]))


def count(jaxpr, name):
    """How often an operation occurs in a traced program, inner programs included."""
    total = 0
    for equation in jaxpr.eqns:
        total += equation.primitive.name == name
        for value in equation.params.values():
            for inner in value if isinstance(value, list | tuple) else [value]:
                if hasattr(inner, "jaxpr"):
                    total += count(inner.jaxpr, name)
                elif hasattr(inner, "eqns"):
                    total += count(inner, name)
    return total


def products(layer, x):
    arrays, static = eqx.partition((layer, x), eqx.is_array)

    def run(arrays):
        layer, x = eqx.combine(arrays, static)
        out = layer.moments(x)
        return eqx.filter(out, eqx.is_array)

    return count(jax.make_jaxpr(run)(arrays).jaxpr, "dot_general")


@pytest.mark.parametrize("batch", [(), (5,)], ids=["row", "batch"])
def test_what_is_known_costs_nothing(batch):
    """Matrix products: one for the mean, one for each source of variance that exists."""
    key = jax.random.key(0)
    known, uncertain = Gaussian(jnp.ones((*batch, 3))), Gaussian(jnp.ones((*batch, 3)), 1.0)
    random = nn.Dense(nn.GaussianWeights.init(key, (4, 3)), nn.GaussianWeights.init(key, (4,)))
    point = nn.Dense(nn.PointWeights.init(key, (4, 3)), nn.PointWeights.init(key, (4,)))
    assert products(random, known) == 2
    assert products(random, uncertain) == 3
    assert products(point, known) == 1
    assert products(point, uncertain) == 2
    assert point.moments(known).var is None

    sizes = {"hidden_layer_sizes": (4, 4), "key": key}
    plain = nn.mlp(3, 2, weights=nn.PointWeights.init, **sizes)
    assert products(plain, known) == 3  # one per layer
    assert plain.moments(known).var is None
    assert products(nn.mlp(3, 2, propagation="independent", **sizes), known) == 2 + 3 + 3
    # First order is that wherever units are independent.
    assert products(nn.mlp(3, 2, hidden_layer_sizes=(4,), key=key), known) == 2 + 3


def joint_parts(kind, dtype):
    """A JointGaussian of batch 2 and dimension 3 in either form, and its covariance."""
    rng = np.random.default_rng(0)
    diagonal, weight = rng.uniform(0.5, 1.5, (2, 3)), rng.uniform(0.1, 1.0, (2, 4))
    factor = rng.normal(size=(4, 3))
    cov = np.einsum("bn,nd,ne->bde", weight, factor, factor) + np.eye(3) * diagonal[:, None]
    cov = 0.5 * (cov + np.swapaxes(cov, 1, 2))
    if kind == "dense":
        return JointGaussian(jnp.asarray(A, dtype), jnp.asarray(cov, dtype)), cov
    low_rank = DiagonalPlusLowRank(*(jnp.asarray(p, dtype) for p in (diagonal, weight, factor)))
    return JointGaussian(jnp.asarray(A, dtype), low_rank), cov


def same_joint(found, mean, cov, dtype):
    eps = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(found.mean, mean, rtol=16 * eps, atol=16 * eps)
    np.testing.assert_allclose(found.dense_cov(), cov, rtol=50 * eps, atol=100 * eps)
    variances = np.diagonal(np.broadcast_to(cov, found.dense_cov().shape), axis1=-2, axis2=-1)
    np.testing.assert_allclose(found.variances(), variances, rtol=50 * eps)
    np.testing.assert_allclose(found.marginals().var, variances, rtol=50 * eps)


@pytest.mark.parametrize("kind", ["dense", "low rank"])
def test_algebra_of_joint_gaussians(kind, dtype):
    joint, cov = joint_parts(kind, dtype)
    other = Gaussian(jnp.asarray(B, dtype), jnp.asarray(VB, dtype))
    diagonal = np.eye(3) * VB[:, None]
    c = np.array([2.0, -1.0, 0.5])
    same_joint(joint + other, A + B, cov + diagonal, dtype)
    same_joint(other + joint, A + B, cov + diagonal, dtype)
    same_joint(joint - other, A - B, cov + diagonal, dtype)
    same_joint(other - joint, B - A, cov + diagonal, dtype)
    same_joint(joint + joint, 2 * A, 2 * cov, dtype)
    same_joint(-joint, -A, cov, dtype)
    same_joint(joint - jnp.asarray(c, dtype), A - c, cov, dtype)
    same_joint(joint * jnp.asarray(c, dtype), A * c, cov * np.outer(c, c), dtype)
    same_joint(-3.0 * joint, -3 * A, 9 * cov, dtype)
    means_a, means_b = A[:, :, None] * A[:, None], B[:, :, None] * B[:, None]
    product = cov * diagonal + cov * means_b + means_a * diagonal
    same_joint(joint * other, A * B, product, dtype)
    same_joint(other * joint, A * B, product, dtype)
    same_joint(joint * joint, A**2, cov * cov + 2 * cov * means_a, dtype)
    matrix, offset = np.array([[1.0, 2.0], [-1.0, 0.5], [3.0, 0.0]]), np.array([1.0, -1.0])
    moved = joint.affine(jnp.asarray(matrix, dtype), jnp.asarray(offset, dtype))
    same_joint(moved, A @ matrix + offset, matrix.T @ cov @ matrix, dtype)
    same_joint(other.to_joint(), B, diagonal, dtype)


def test_joint_product_against_sampling():
    """The one formula of the algebra that is not linear; false-alarm rate 1e-6."""
    joint, _ = joint_parts("dense", jnp.float32)
    row = JointGaussian(joint.mean[0], joint.cov[0])
    other = Gaussian(B[0], VB[0])

    @jax.jit
    def draws(key):
        keys = jax.random.split(key)
        return row.sample(keys[0], (200_000,)) * other.sample(keys[1], (200_000,))

    claimed = row * other
    z = truth.covariance_z(draws(jax.random.key(0)), claimed.dense_cov())
    assert np.abs(z).max() < truth.threshold(1e-6, 6)


@pytest.mark.usefixtures("x64")
def test_log_prob_against_scipy():
    y = np.array([[0.3, -1.0, 2.0], [2.5, 1.0, -1.0]])
    scale = np.sqrt(VA + 0.1)
    gaussian = Gaussian(A, VA + 0.1)
    np.testing.assert_allclose(
        gaussian.log_prob(y), stats.norm.logpdf(y, A, scale).sum(axis=-1), rtol=1e-12
    )
    more = np.stack([y, y + 1, y - 1])  # further leading axes
    np.testing.assert_allclose(
        gaussian.log_prob(more), stats.norm.logpdf(more, A, scale).sum(axis=-1), rtol=1e-12
    )
    scalar = Gaussian(1.0, 4.0)
    np.testing.assert_allclose(scalar.log_prob(2.0), stats.norm.logpdf(2.0, 1.0, 2.0), rtol=1e-12)
    for kind in ("dense", "low rank"):
        joint, cov = joint_parts(kind, jnp.float64)
        expected = [stats.multivariate_normal.logpdf(y[i], A[i], cov[i]) for i in (0, 1)]
        np.testing.assert_allclose(joint.log_prob(y), expected, rtol=1e-10)
        assert joint.log_prob(more).shape == (3, 2)
        np.testing.assert_allclose(joint.log_prob(more)[0], expected, rtol=1e-10)


def test_log_prob_of_a_point_mass():
    """A variance of exactly 0 is a point: +inf at it, -inf elsewhere."""
    gaussian = Gaussian(jnp.asarray([1.0, 2.0]), jnp.asarray([1.0, 0.0]))
    assert gaussian.log_prob(jnp.asarray([1.0, 2.0])) == np.inf
    assert gaussian.log_prob(jnp.asarray([1.0, 2.5])) == -np.inf


def test_through_jit_vmap_and_grad():
    a = Gaussian(A, VA)
    doubled = jax.jit(lambda g: g + g)(a)
    same(doubled, 2 * A, 2 * VA, jnp.float32)
    rows = jax.vmap(lambda g: g.affine(jnp.ones((3, 1))))(a)
    same(rows, A.sum(axis=1, keepdims=True), VA.sum(axis=1, keepdims=True), jnp.float32)
    slope = jax.grad(lambda g: jnp.sum(g.log_prob(jnp.zeros((2, 3)))))(Gaussian(A, VA + 1))
    np.testing.assert_allclose(slope.mean, -A / (VA + 1), rtol=1e-6)
    joint, _ = joint_parts("low rank", jnp.float32)
    assert jax.jit(lambda g: g * g)(joint).shape == (2, 3)
    # One factor matrix serves all rows, the rest has a leading axis.
    axes = eqx.tree_at(lambda j: j.cov.factor, jax.tree.map(lambda _: 0, joint), None)
    single = jax.vmap(lambda g: g.log_prob(jnp.zeros(3)), in_axes=(axes,))(joint)
    np.testing.assert_allclose(single, joint.log_prob(jnp.zeros((2, 3))), rtol=1e-5)


def test_dtypes():
    assert Gaussian([1, 2]).dtype == jnp.float32  # whole numbers become floats
    assert Gaussian(np.ones(2, np.float64)).dtype == jnp.float32  # as in jax.numpy itself
    assert Gaussian(jnp.ones(2, jnp.bfloat16), 1.0).var.dtype == jnp.bfloat16
    assert as_gaussian(Gaussian(1.0)).mean == 1.0
    with jax.enable_x64(True):
        assert Gaussian(np.ones(2)).dtype == jnp.float64
        assert Gaussian(np.ones(2, np.float32), np.ones(2)).var.dtype == jnp.float32


SENTENCES = [
    (
        lambda: Gaussian(jnp.ones(3), jnp.ones(2)),
        ValueError,
        "var has shape (2,), but (3,) is needed: it must match the mean.",
    ),
    (
        lambda: Gaussian(jnp.ones((2, 2)), jnp.asarray([[0.0, 1.0], [-0.5, 1.0]])),
        ValueError,
        "var must not be negative, but is -0.5 at index (1, 0).",
    ),
    (
        lambda: Gaussian(jnp.ones(3), jnp.ones(3, jnp.bfloat16)),
        TypeError,
        "var has dtype bfloat16, but float32 is needed here: convert one of the two with .astype.",
    ),
    (
        lambda: Gaussian("three"),
        TypeError,
        "mean must be an array of real numbers, but is str.",
    ),
    (
        lambda: Gaussian(np.ones(2) * 1j),
        TypeError,
        "mean must be an array of real numbers, but is ndarray.",
    ),
    (
        lambda: Gaussian(jnp.ones(2, jnp.complex64)),
        TypeError,
        "mean must be real numbers, but has dtype complex64.",
    ),
    (
        lambda: Gaussian(jnp.ones(3)).log_prob(jnp.ones(3)),
        ValueError,
        "var is None: an exactly known value has no density.",
    ),
    (
        lambda: Gaussian(jnp.ones((3, 1)), 1.0).log_prob(jnp.ones(3)),
        ValueError,
        "y has shape (3,), but the mean has (3, 1): y needs the same shape, with any number of "
        "axes before it.",
    ),
    (
        lambda: Gaussian(jnp.ones(3)).affine(jnp.ones((2, 3))),
        ValueError,
        "matrix has shape (2, 3), but the mean of shape (3,) needs (3, m).",
    ),
    (
        lambda: JointGaussian(1.0, jnp.ones((1, 1))),
        ValueError,
        "mean has no axis: a JointGaussian needs a mean of shape (..., d).",
    ),
    (
        lambda: JointGaussian(jnp.ones(2), jnp.ones((3, 3))),
        ValueError,
        "cov has shape (3, 3), but (2, 2) is needed: mean has shape (2,).",
    ),
    (
        lambda: JointGaussian(jnp.ones(2), jnp.asarray([[1.0, 0.5], [0.0, 1.0]])),
        ValueError,
        "cov must be symmetric, but differs from its transpose by 0.5.",
    ),
    (
        lambda: JointGaussian(jnp.ones(2), jnp.asarray([[1.0, 0.0], [0.0, -1.0]])),
        ValueError,
        "the diagonal of cov must not be negative, but is -1 at index 1.",
    ),
    (
        lambda: JointGaussian(np.ones(2), np.array([[1, 2], [2, 1]])).log_prob(np.ones(2)),
        ValueError,
        "cov is not positive definite: add a noise variance to it.",
    ),
    (
        lambda: JointGaussian(np.ones(2), np.zeros((2, 2))).sample(jax.random.key(0)),
        ValueError,
        "cov is not positive definite: add a noise variance to it.",
    ),
    (
        lambda: JointGaussian(jnp.ones(2), jnp.eye(2)).log_prob(jnp.ones(2), method="woodbury"),
        ValueError,
        "method 'woodbury' needs a DiagonalPlusLowRank covariance, but this one is dense.",
    ),
    (
        lambda: DiagonalPlusLowRank(jnp.ones(3), jnp.ones(2), jnp.ones((2, 4))),
        ValueError,
        "factor of shape (2, 4) needs a diagonal ending in 4 and weights ending in 2, but they "
        "have shapes (3,) and (2,).",
    ),
    (
        lambda: DiagonalPlusLowRank(jnp.ones(4), jnp.asarray([1.0, -2.0]), jnp.ones((2, 4))),
        ValueError,
        "weight must not be negative, but is -2 at index 1.",
    ),
]


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize(
    ("call", "error", "sentence"), SENTENCES, ids=[s[2][:40] for s in SENTENCES]
)
def test_one_sentence_says_what_is_wrong(call, error, sentence):
    with pytest.raises(error, match="^" + re.escape(sentence) + "$"):
        call()
