"""Dense, JointDense, Sequential and mlp(): the paper's equations, invariances, the known bias."""

from functools import partial

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import truth
from varprop import Gaussian, nn
from varprop.nn.checking import sample_outputs
from varprop.nn.layers import linear_moments

pytestmark = pytest.mark.usefixtures("strict_promotion")

# One compiled program for each structure, shared by the tests below.
propagate = eqx.filter_jit(lambda layer, x: layer.moments(x))

N, M = 3, 2
RNG = np.random.default_rng(0)
WEIGHT, WEIGHT_STD = RNG.normal(size=(M, N)), RNG.uniform(0.1, 1.0, (M, N))
BIAS, BIAS_STD = RNG.normal(size=M), RNG.uniform(0.1, 1.0, M)
MEAN, VAR = RNG.normal(size=(4, N)), RNG.uniform(0.0, 2.0, (4, N))


def layer(kind, dtype=None):
    arrays = [jnp.asarray(a, dtype) for a in (WEIGHT, WEIGHT_STD, BIAS, BIAS_STD)]
    return kind(nn.GaussianWeights(*arrays[:2]), nn.GaussianWeights(*arrays[2:]))


def by_the_paper(row, mean, var):
    """E[a] and V[a] of every unit of one row, in loops: sums of products of independents."""
    e, v = BIAS.copy(), BIAS_STD**2
    for i in range(M):
        for j in range(N):
            w, s2 = WEIGHT[i, j], WEIGHT_STD[i, j] ** 2
            e[i] += w * mean[row, j]
            v[i] += w**2 * var[row, j] + s2 * mean[row, j] ** 2 + s2 * var[row, j]
    return e, v


@pytest.mark.parametrize("kind", [nn.Dense, nn.JointDense])
def test_affine_moments(kind, dtype):
    eps = float(jnp.finfo(dtype).eps)
    dense = layer(kind, dtype)
    for var in (None, VAR):
        x = Gaussian(jnp.asarray(MEAN, dtype), None if var is None else jnp.asarray(var, dtype))
        out = propagate(dense, x)
        expected = [by_the_paper(row, MEAN, 0 * VAR if var is None else var) for row in range(4)]
        np.testing.assert_allclose(out.mean, [e for e, _ in expected], atol=50 * eps)
        np.testing.assert_allclose(out.variances(), [v for _, v in expected], rtol=50 * eps)


def test_joint_covariance():
    """C = V + sum_j V[x_j] mu_j mu_j^T, by hand; diagonal for a known input."""
    out = propagate(layer(nn.JointDense), Gaussian(MEAN, VAR))
    for row in range(4):
        cov = np.diag(by_the_paper(row, MEAN, VAR)[1])
        cov[0, 1] = cov[1, 0] = sum(VAR[row, j] * WEIGHT[0, j] * WEIGHT[1, j] for j in range(N))
        np.testing.assert_allclose(out.dense_cov()[row], cov, rtol=1e-5, atol=1e-6)
    known = propagate(layer(nn.JointDense), Gaussian(MEAN))
    assert known.cov.factor.shape == (0, M)  # no outer products at all
    np.testing.assert_allclose(known.dense_cov()[:, 0, 1], 0.0)


def test_joint_diagonal_equals_dense(dtype):
    for x in (
        Gaussian(jnp.asarray(MEAN, dtype)),
        Gaussian(jnp.asarray(MEAN, dtype), jnp.asarray(VAR, dtype)),
    ):
        dense, joint = (propagate(layer(kind, dtype), x) for kind in (nn.Dense, nn.JointDense))
        rtol = 16 * float(jnp.finfo(dtype).eps)
        np.testing.assert_allclose(joint.mean, dense.mean, rtol=rtol, atol=rtol)
        np.testing.assert_allclose(joint.variances(), dense.var, rtol=rtol)
        np.testing.assert_allclose(joint.marginals().var, dense.var, rtol=rtol)


@pytest.mark.usefixtures("x64")
def test_one_hidden_layer_is_exact():
    """Mean, variance and cross-output covariance of a network, from mpmath's rectified Gaussian.

    A hidden unit is max(a, 0) with a Gaussian; outputs are sums over independent units.
    """
    size = {"hidden_layer_sizes": (5,), "weights": cases.starts(), "key": jax.random.key(0)}
    net = nn.mlp(N, M, joint=True, **size)
    first, _, last = net.layers
    a = propagate(first, Gaussian(MEAN))
    h_mean, h_var = truth.rectifier(a.mean, a.var)
    w, w_var = last.weight.moments().mean, last.weight.moments().var
    b, b_var = last.bias.moments().mean, last.bias.moments().var
    out = propagate(net, Gaussian(MEAN))
    np.testing.assert_allclose(out.mean, h_mean @ w.T + b, rtol=1e-12, atol=1e-12)
    for row in range(4):
        second = h_mean[row] ** 2 + h_var[row]
        cov = np.einsum("j,ij,kj->ik", h_var[row], w, w) + np.diag(w_var @ second + b_var)
        np.testing.assert_allclose(out.dense_cov()[row], cov, rtol=1e-11)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"joint": True, "hidden_noise": nn.Dropout(0.2)},
        {"activation": nn.LeakyReLU(), "input_noise": nn.GaussianWeightNoise(0.1)},
    ],
    ids=["plain", "joint", "noisy input"],
)
def test_a_batch_is_its_rows(options):
    """Any number of leading axes: a batch runs as columns inside, which must not show."""
    size = {"hidden_layer_sizes": (5,), "weights": cases.starts(), "key": jax.random.key(0)}
    net = nn.mlp(N, M, **size, **options)
    moments = partial(propagate, net)
    for x in (Gaussian(MEAN), Gaussian(MEAN, VAR)):
        batch = moments(x)
        assert batch.shape == (4, M)
        for row in range(4):
            one = moments(jax.tree.map(lambda leaf, row=row: leaf[row], x))
            np.testing.assert_allclose(batch.mean[row], one.mean, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(batch.variances()[row], one.variances(), rtol=1e-5)
        more = moments(jax.tree.map(lambda leaf: leaf.reshape(2, 2, N), x))
        assert more.shape == (2, 2, M)
        np.testing.assert_allclose(more.mean.reshape(4, M), batch.mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(more.variances().reshape(4, M), batch.variances(), rtol=1e-5)


ACTIVATIONS = [
    nn.ReLU(),
    nn.LeakyReLU(0.1),
    nn.Heaviside(),
    nn.Erf(),
    nn.Unscented(jnp.sin),
]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: type(a).__name__)
def test_variance_to_zero_is_the_plain_network(activation):
    """Weights of vanishing spread: the plain network's output, and no variance."""
    size = {"hidden_layer_sizes": (5, 5), "activation": activation, "key": jax.random.key(1)}
    start = cases.starts(scale=0.7)
    point = nn.mlp(N, M, weights=lambda *a: nn.PointWeights(start(*a).mean), **size)
    x = jnp.asarray(MEAN)
    plain = point.sample(jax.random.key(0))(x)
    known = propagate(point, x)
    assert known.var is None
    np.testing.assert_allclose(known.mean, plain, rtol=1e-5, atol=1e-6)

    def is_point(node):
        return isinstance(node, nn.PointWeights)

    narrow = jax.tree.map(
        lambda node: nn.GaussianWeights(node.value, 1e-12) if is_point(node) else node,
        point,
        is_leaf=is_point,
    )
    for var in (None, 1e-24):
        out = propagate(narrow, Gaussian(x, var))
        np.testing.assert_allclose(out.mean, plain, rtol=1e-5, atol=1e-6)
        assert np.all(np.asarray(out.var) < 1e-13)


def test_permuting_hidden_units_changes_nothing():
    order = np.array([3, 0, 4, 1, 2])
    size = {"hidden_layer_sizes": (5,), "weights": cases.starts(), "key": jax.random.key(0)}
    net = nn.mlp(N, M, joint=True, **size)
    first, activation, last = net.layers
    permuted = nn.Sequential(
        [
            jax.tree.map(lambda leaf: leaf[order], first),
            activation,
            eqx.tree_at(lambda d: d.weight, last, jax.tree.map(lambda w: w[:, order], last.weight)),
        ]
    )
    for x in (Gaussian(MEAN), Gaussian(MEAN, VAR)):
        a, b = propagate(net, x), propagate(permuted, x)
        np.testing.assert_allclose(a.mean, b.mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(a.dense_cov(), b.dense_cov(), rtol=1e-5, atol=1e-7)


def test_gradients_against_finite_differences(x64):
    """Of a whole network's log-density, in a handful of directions."""
    size = {"hidden_layer_sizes": (5, 5), "weights": cases.starts(), "key": jax.random.key(0)}
    net = nn.mlp(N, M, joint=True, **size)
    x, y = Gaussian(MEAN, VAR), jnp.asarray(RNG.normal(size=(4, M)))
    flat, unflatten = jax.flatten_util.ravel_pytree(net)

    def loss(flat):
        return jnp.sum(unflatten(flat).moments(x).log_prob(y))

    slope = jax.jit(jax.grad(loss))(flat)
    value = jax.jit(loss)
    h = 1e-5
    for seed in range(5):
        direction = np.random.default_rng(seed).normal(size=flat.size)
        difference = (value(flat + h * direction) - value(flat - h * direction)) / (2 * h)
        np.testing.assert_allclose(slope @ direction, difference, rtol=1e-6)


def test_mlp_options():
    """The structure alone, without making a single array."""
    key = jax.random.key(0)
    build = partial(eqx.filter_eval_shape, nn.mlp, key=key)

    def kinds(net):
        return [type(part).__name__ for part in net.layers]

    assert kinds(build(3, 1)) == ["Dense", "ReLU", "Dense"]
    assert build(3, 1).layers[0].weight.shape == (50, 3)
    assert kinds(build(3, 2, hidden_layer_sizes=())) == ["Dense"]
    full = build(
        3,
        2,
        hidden_layer_sizes=(4, 5),
        activation=nn.Tanh(),
        weights=nn.BernoulliWeights.init,
        joint=True,
        bias=False,
        input_noise=nn.Dropout(0.1),
        hidden_noise=nn.Dropout(0.2),
        weight_noise=nn.DropConnect(0.3),
        bias_noise=nn.GaussianWeightNoise(0.1),
    )
    assert kinds(full) == ["Dropout", *["Dense", "Tanh", "Dropout"] * 2, "JointDense"]
    dense = [part for part in full.layers if isinstance(part, nn.Dense | nn.JointDense)]
    assert [part.weight.shape for part in dense] == [(4, 3), (5, 4), (2, 5)]
    assert all(isinstance(part.weight, nn.BernoulliWeights) for part in dense)
    assert all(part.bias is None and part.bias_noise is None for part in dense)
    assert all(isinstance(part.weight_noise, nn.DropConnect) for part in dense)
    biased = build(3, 2, bias_noise=nn.GaussianWeightNoise(0.1))
    assert all(biased.layers[i].bias_noise is not None for i in (0, 2))


def test_no_two_arrays_of_weights_start_alike():
    sizes = {"hidden_layer_sizes": (2, 2), "weights": nn.PointWeights.init}
    net = nn.mlp(2, 2, key=jax.random.key(0), **sizes)
    starts = [float(np.ravel(leaf)[0]) for leaf in jax.tree.leaves(net)]
    assert len(set(starts)) == len(starts) == 6


@pytest.mark.usefixtures("as_users_run_it")
def test_sizes_may_be_numpys_whole_numbers():
    sizes = np.array([4, 5])
    net = eqx.filter_eval_shape(
        lambda key: nn.mlp(np.int64(3), 1, hidden_layer_sizes=sizes, key=key), jax.random.key(0)
    )
    assert net.layers[2].weight.shape == (5, 4)


def test_layers_can_be_nested():
    inner = nn.Sequential([layer(nn.Dense), nn.ReLU()])
    outer = nn.Sequential([inner, nn.Dense(nn.PointWeights(np.ones((1, M))))])
    flat = nn.Sequential([*inner.layers, outer.layers[1]])
    for x in (jnp.asarray(MEAN), jnp.asarray(MEAN[0])):
        nested, straight = propagate(outer, x), propagate(flat, x)
        np.testing.assert_allclose(nested.mean, straight.mean, rtol=1e-6)
        np.testing.assert_allclose(nested.var, straight.var, rtol=1e-6)
    empty = nn.Sequential([])
    np.testing.assert_array_equal(empty.moments(jnp.ones((2, 3))).mean, np.ones((2, 3)))
    np.testing.assert_array_equal(empty.sample(jax.random.key(0))(jnp.ones(3)), np.ones(3))


def test_the_bias_of_depth_has_the_size_theory_gives():
    """One random unit copied to n units and summed: the truth is n^2 V, independence says n V.

    This is the whole reason why two hidden layers are not exact. No sampling is needed to see it.
    """
    n = 4
    shared = nn.Dense(nn.GaussianWeights(np.full((1, 1), 5.0), 0.1))  # never below zero
    copies = nn.Dense(nn.PointWeights(np.ones((n, 1))))
    total = nn.Dense(nn.PointWeights(np.ones((1, n))))
    layers = [shared, nn.ReLU(), copies, nn.ReLU(), total]
    truth = {"independent": 0.01 * n, "first-order": 0.01 * n**2, "second-order": 0.01 * n**2}
    for name, var in truth.items():
        # Parts of a network are layers too, and what they share is not lost.
        for parts in (layers, [nn.Sequential(layers[:3]), nn.Sequential(layers[3:])]):
            out = propagate(nn.Sequential(parts, name), jnp.ones(1))
            np.testing.assert_allclose(out.mean, 5.0 * n, rtol=1e-5)
            np.testing.assert_allclose(out.var, var, rtol=1e-4)
    draws = 5.0 + 0.1 * np.random.default_rng(0).normal(size=1000)  # the shared unit, by hand
    sums = np.maximum(draws[:, None] * np.ones(n), 0).sum(axis=1)
    np.testing.assert_allclose(sums.var(), n**2 * draws.var(), rtol=1e-10)


def test_the_bias_of_a_toy_net_is_recorded(record_property):
    """Propagated over sampled variance with three hidden layers, by way of propagation.

    One hidden layer is exact (test_twins.py). Other nets are biased otherwise, some the other way
    (docs/what-is-exact.md); this one is kept as it is so that a change of the propagation shows.
    """
    weights = partial(nn.GaussianWeights.init, scale=0.5, std=0.1)
    sizes = {"hidden_layer_sizes": (5, 5, 5), "bias": False}
    net = nn.mlp(N, M, weights=weights, key=jax.random.key(3), **sizes)
    x = jnp.asarray([[1.0, -1.0, 0.5], [2.0, 1.0, 0.0]])
    draws = sample_outputs(net, x, jax.random.key(1), 100_000)
    sampled = np.asarray(draws, np.float64).var(axis=0)
    recorded = {
        "independent": [[0.587, 0.493], [0.754, 0.717]],
        "first-order": [[0.943, 0.954], [0.990, 1.010]],
        "second-order": [[0.919, 0.940], [0.989, 1.010]],
    }
    for name, expected in recorded.items():
        ratio = propagate(nn.Sequential(net.layers, name), x).var / sampled
        record_property(f"variance_ratio_{name}", np.asarray(ratio).tolist())
        # Products of four weights have heavier tails than a Gaussian: known to about 1 %.
        np.testing.assert_allclose(ratio, expected, rtol=0.04)


# ---- the linear rule ----------------------------------------------------------------------------


@pytest.mark.parametrize("known", [(), ("x",), ("weight",), ("bias",), ("x", "weight", "bias")])
def test_the_linear_rule_entry_by_entry(x64, known):
    """Products and sums of independents, written out in NumPy; rows, columns and the own part."""
    rng = np.random.default_rng(0)
    shapes = {"x": (5, 3), "weight": (2, 3), "bias": (2,)}
    means = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    spreads = {name: rng.uniform(0.1, 2, size=shape) for name, shape in shapes.items()}
    spreads |= {name: 0 * spreads[name] for name in known}
    given = {
        name: Gaussian(means[name], None if name in known else spreads[name]) for name in shapes
    }
    mean, var, own = np.zeros((5, 2)), np.zeros((5, 2)), np.zeros((5, 2))
    for row, out in np.ndindex(5, 2):
        mean[row, out], var[row, out] = means["bias"][out], spreads["bias"][out]
        own[row, out] = spreads["bias"][out]
        for i in range(3):
            m, v = means["x"][row, i], spreads["x"][row, i]
            w, s = means["weight"][out, i], spreads["weight"][out, i]
            mean[row, out] += m * w
            var[row, out] += (m**2 + v) * (w**2 + s) - m**2 * w**2  # E[x^2] E[w^2] - (E[x] E[w])^2
            own[row, out] += (m**2 + v) * s
    x, weight, bias = given.values()
    for got, want in [
        (linear_moments(x, weight, bias), (mean, var)),
        (linear_moments(x, weight, bias, own=True), (mean, own)),
        (linear_moments(x.T, weight, bias, columns=True), (mean.T, var.T)),
    ]:
        np.testing.assert_allclose(got[0], want[0], rtol=1e-12)
        if got[1] is None:
            assert set(known) == set(shapes) or (known == ("weight", "bias") and not want[1].any())
        else:
            np.testing.assert_allclose(got[1], want[1], rtol=1e-12)


class Turned(nn.AbstractLayer):
    """A layer that knows only rows: the contract's default brings it columns."""

    inner: nn.AbstractLayer

    def moments(self, x):
        assert x.shape[-1] == 3, "rows, not columns"
        return self.inner.moments(x)

    def sample(self, key):
        return self.inner.sample(key)


def test_layers_that_know_only_rows_stand_among_those_that_take_columns():
    dense = nn.Dense(nn.GaussianWeights.init(jax.random.key(0), (4, 3)))
    x = Gaussian(jnp.ones((6, 3)), 0.5)
    for layers in ([dense], [dense, nn.ReLU()]):
        want = nn.Sequential(layers).moments(x)
        got = nn.Sequential([Turned(layers[0]), *layers[1:]]).moments(x)
        np.testing.assert_allclose(got.mean, want.mean, rtol=1e-5)
        np.testing.assert_allclose(got.var, want.var, rtol=1e-5)
