"""First and second order: exact where hand-made truths exist, and what any network may ask of them.

Linear networks have covariances in closed form at any depth, whatever the weights are: the second
moment of each layer's output follows from that of its input. They are worked out in NumPy here,
with full matrices and no adjoint. First order takes the variances that random weights multiply, and
those only, from units taken as independent: it is exact as long as these are.
"""

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cases
import truth
from tiny import quick_jit
from varprop import Gaussian, JointGaussian, nn
from varprop.nn.checking import sample_outputs
from varprop.nn.propagation import PROPAGATIONS

pytestmark = pytest.mark.usefixtures("strict_promotion")

RNG = np.random.default_rng(0)
MEAN, VAR = RNG.normal(size=(4, 3)), RNG.uniform(0.0, 1.0, (4, 3))
ROOT = RNG.normal(size=(4, 3, 3))
COV = ROOT @ ROOT.swapaxes(1, 2)
COV[1] = np.outer([1.0, -2.0, 0.5], [1.0, -2.0, 0.5])  # singular: one error in all three inputs
FALSE_ALARM = 1e-5


def outputs(net, x):
    """Mean and covariance (or variance) as NumPy arrays."""
    arrays, static = eqx.partition(net, eqx.is_array)

    @quick_jit
    def of(arrays, x):
        out = eqx.combine(arrays, static).moments(x)
        return out.mean, out.dense_cov() if isinstance(out, JointGaussian) else out.variances()

    return [np.asarray(part) for part in of(arrays, x)]


# ---- linear networks, by hand --------------------------------------------------------------------


def by_hand(layers, mean, cov, *, first_order=False):
    """Mean and covariance of one row through independent weights and noise, layer by layer.

    `first_order`: the variances that a layer's own randomness multiplies are those of units taken
    as independent, from the second dense layer on.
    """
    var, n_dense = np.diag(cov), 0
    for layer in layers:
        if isinstance(layer, nn.Identity):
            continue
        if isinstance(layer, nn.Dropout):
            p, scale = np.asarray(layer.eps.p), np.asarray(layer.eps.scale)
            e, v = p * scale, p * (1 - p) * scale**2
            own = v * (var + mean**2)
            mean, cov, var = e * mean, e**2 * cov + np.diag(own), e**2 * var + own
        elif isinstance(layer, nn.GaussianWeightNoise):
            own = np.asarray(layer.eps.std) ** 2
            cov, var = cov + own * np.eye(len(cov)), var + own
        else:
            w, u = moments_of(layer.weight, layer.weight_noise)
            own = u @ (var + mean**2)
            mean = w @ mean
            if layer.bias is not None:
                b, c = moments_of(layer.bias, None)
                mean, own = mean + b, own + c
            cov, var, n_dense = w @ cov @ w.T + np.diag(own), w**2 @ var + own, n_dense + 1
        if not first_order or n_dense < 2:
            var = np.diag(cov)
    return mean, cov


def moments_of(weights, noise):
    """Mean and variance of weights, from their parameters."""
    if isinstance(weights, nn.GaussianWeights):
        m, v = np.asarray(weights.mean), np.exp(2 * np.asarray(weights.log_std))
    elif isinstance(weights, nn.BernoulliWeights):
        p, s = 1 / (1 + np.exp(-np.asarray(weights.logit))), np.exp(np.asarray(weights.log_scale))
        m, v = (p - 0.5) * s, p * (1 - p) * s**2
    else:
        m, v = np.asarray(weights.value), 0 * np.asarray(weights.value)
    if noise is not None:  # DropConnect that keeps a weight with probability p, as it is
        p = float(noise.eps.p)
        m, v = p * m, p * (v + m**2) - (p * m) ** 2
    return m, v


def linear(*, certain=False):
    """Every sort of weights and noise, Identity between them, three outputs.

    `certain`: nothing is random any more once units are correlated.
    """
    rng = np.random.default_rng(3)
    layers = [
        nn.GaussianWeightNoise(0.3),
        nn.Dense(cases.gaussian((4, 3), 1), cases.gaussian((4,), 2)),
        nn.Identity(),
        nn.Dropout(0.3),
        nn.Dense(cases.bernoulli((5, 4)), cases.bernoulli((5,)), weight_noise=nn.DropConnect(0.2)),
        nn.Identity(),
        nn.Dense(nn.PointWeights(rng.normal(size=(4, 5)))),
    ]
    if certain:
        return [*layers, nn.JointDense(nn.PointWeights(rng.normal(size=(3, 4))))]
    last = nn.JointDense(cases.gaussian((3, 4), 3), cases.gaussian((3,), 4))
    return [*layers, nn.Dropout(0.2, rescale=False), nn.Identity(), last]


def inputs():
    """By name, as the library takes them and as covariances."""
    return {
        "known": (Gaussian(MEAN), np.zeros((4, 3, 3))),
        "random": (Gaussian(MEAN, VAR), np.einsum("ri,ij->rij", VAR, np.eye(3))),
        "correlated": (JointGaussian(MEAN, COV), COV),
    }


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("propagation", "certain"),
    [("first-order", True), ("first-order", False), ("second-order", False)],
)
def test_linear_networks_by_hand(propagation, certain):
    """Known, random and correlated inputs, the last also singular: all covariances of outputs."""
    layers = linear(certain=certain)
    first = propagation == "first-order" and not certain
    for name, (x, cov) in inputs().items():
        pairs = zip(MEAN, cov, strict=True)
        expected = [by_hand(layers, *row, first_order=first) for row in pairs]
        mean, spread = outputs(nn.Sequential(layers, propagation), x)
        np.testing.assert_allclose(mean, [m for m, _ in expected], rtol=1e-12, err_msg=name)
        want = np.array([c for _, c in expected])
        np.testing.assert_allclose(spread, want, rtol=1e-11, atol=1e-11, err_msg=name)


@pytest.mark.usefixtures("x64")
def test_outputs_without_covariance_and_noise_at_the_end():
    *layers, last = linear(certain=True)
    plain = nn.Dense(last.weight)
    want = np.stack(
        [np.diag(by_hand([*layers, plain], *row)[1]) for row in zip(MEAN, COV, strict=True)]
    )
    for more, extra in (([], 0.0), ([nn.Identity(), nn.GaussianWeightNoise(0.5)], 0.25)):
        _, var = outputs(nn.Sequential([*layers, plain, *more]), JointGaussian(MEAN, COV))
        np.testing.assert_allclose(var, want + extra, rtol=1e-11)


@pytest.mark.usefixtures("x64")
def test_independent_propagation_is_not_exact_for_those():
    """What the test above would see: the difference is large."""
    layers = linear()
    _, cov = by_hand(layers, MEAN[0], np.diag(VAR[0]))
    _, found = outputs(nn.Sequential(layers, "independent"), Gaussian(MEAN, VAR))
    assert np.abs(np.diag(found[0]) / np.diag(cov) - 1).max() > 0.05


# ---- against G S G^T with Jacobians by differences -----------------------------------------------


def tanh_moments(mean, var):
    """Mean and variance of tanh by Gauss-Hermite with 80 nodes."""
    z, w = np.polynomial.hermite_e.hermegauss(80)
    values = np.tanh(mean[..., None] + np.sqrt(var)[..., None] * z)
    first = values @ (w / w.sum())
    return first, values**2 @ (w / w.sum()) - first**2


@pytest.mark.usefixtures("x64")
def test_a_network_of_three_hidden_layers_by_differences():
    """Sources and derivatives worked out once more: a mean moves the variances above it too."""
    sizes = {"hidden_layer_sizes": (4, 3, 4), "weights": cases.starts(std=0.3)}
    net = nn.mlp(3, 2, activation=nn.Tanh(), joint=True, key=cases.key(), **sizes)
    x, v = MEAN[0], VAR[0]
    dense = [(*moments_of(d.weight, None), *moments_of(d.bias, None)) for d in net.layers[::2]]

    pre, post = [], [(x, v)]  # what came out
    for i, (w, u, b, c) in enumerate(dense):
        m, s = post[-1]
        pre.append((w @ m + b, w**2 @ s + u @ (m**2 + s) + c))
        if i < 3:
            post.append(tanh_moments(*pre[-1]))

    def end(layer, means, *, after):
        """The outputs' means if the means after `layer` (0: the input) were these."""
        var = post[layer][1] if after else pre[layer][1]
        if not after:
            means, var = tanh_moments(means, var)
        for w, u, b, c in dense[layer + (not after) :]:
            means, var = w @ means + b, w**2 @ var + u @ (means**2 + var) + c
            if len(means) > 2:  # the outputs are two, and as they are
                means, var = tanh_moments(means, var)
        return means

    def jacobian(function, at, h=1e-5):
        steps = h * np.eye(len(at))
        return np.stack([(function(at + e) - function(at - e)) / (2 * h) for e in steps], axis=1)

    cov = np.zeros((2, 2))
    g = jacobian(lambda m: end(0, m, after=True), x)
    cov += g @ np.diag(v) @ g.T
    for i, (_, u, _, c) in enumerate(dense):
        m, s = post[i]
        own = np.diag(u @ (m**2 + s) + c)
        if i == 3:
            cov += own
            continue
        g = jacobian(lambda m, i=i: end(i, m, after=False), pre[i][0])
        cov += g @ own @ g.T
        slope = np.diag(jacobian(lambda m, i=i: tanh_moments(m, pre[i][1])[0], pre[i][0]))
        g = jacobian(lambda m, i=i: end(i + 1, m, after=True), post[i + 1][0])
        cov += g @ np.diag(post[i + 1][1] - slope**2 * pre[i][1]) @ g.T
    mean, found = outputs(net, Gaussian(x, v))
    np.testing.assert_allclose(mean, end(0, x, after=True), atol=2e-5)
    # The library's tanh is right to 3e-6.
    np.testing.assert_allclose(found, cov, rtol=5e-5, atol=2e-5)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "layer",
    [nn.ReLU(), nn.LeakyReLU(0.2), nn.Tanh(), nn.Dropout(0.3), nn.GaussianWeightNoise(0.5)],
    ids=lambda layer: type(layer).__name__,
)
def test_derivatives_of_moments_by_differences(layer):
    x, h = Gaussian(3 * MEAN, 0.1 + VAR), 1e-5
    found = layer.partials(x)

    def difference(by_mean, by_var):
        up, down = (
            layer.moments(Gaussian(x.mean + s * by_mean, x.var + s * by_var)) for s in (h, -h)
        )
        return (up.mean - down.mean) / (2 * h), (up.variances() - down.variances()) / (2 * h)

    slope, tilt = difference(1, 0)
    bend, gain = difference(0, 1)
    for name, want in {"slope": slope, "bend": bend, "tilt": tilt, "gain": gain}.items():
        np.testing.assert_allclose(getattr(found, name), want, atol=1e-7, err_msg=name)


# ---- where nothing is approximate ----------------------------------------------------------------


@pytest.mark.parametrize("joint", [False, True])
def test_one_hidden_layer_and_known_input_equal_independent_to_the_bit(joint):
    for activation in (nn.ReLU(), nn.Tanh()):
        nets = [
            nn.mlp(
                3,
                2,
                key=cases.key(),
                weights=cases.starts(),
                hidden_layer_sizes=(5,),
                activation=activation,
                joint=joint,
                hidden_noise=nn.Dropout(0.1),
                propagation=name,
            )
            for name in ("independent", "first-order")
        ]
        paper, first = (outputs(net, Gaussian(MEAN)) for net in nets)
        for a, b in zip(paper, first, strict=True):
            np.testing.assert_array_equal(a, b)


class Own(nn.AbstractLayer):
    """A layer of a user's: W x + b by rows, known to the library by its moments alone."""

    inner: nn.Dense

    def moments(self, x):
        return self.inner.moments(x)

    def sample(self, key):
        return self.inner.sample(key)


@pytest.mark.usefixtures("x64")
def test_a_layer_of_ones_own_goes_by_the_default():
    layers = nn.mlp(
        3, 2, key=cases.key(), weights=cases.starts(), hidden_layer_sizes=(4, 5), joint=True
    ).layers
    for place in (2,):
        changed = list(layers)
        changed[place] = Own(layers[place])
        for x in (Gaussian(MEAN), Gaussian(MEAN, VAR), JointGaussian(MEAN, COV)):
            for a, b in zip(
                outputs(nn.Sequential(layers), x), outputs(nn.Sequential(changed), x), strict=True
            ):
                np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.usefixtures("x64")
def test_rows_batches_and_vmap():
    """One row, several leading axes, none, vmap: the same numbers."""
    net = nn.mlp(
        3, 2, key=cases.key(), weights=cases.starts(), hidden_layer_sizes=(4, 4), joint=True
    )
    for x in (Gaussian(MEAN), Gaussian(MEAN, VAR), JointGaussian(MEAN, COV)):
        mean, cov = outputs(net, x)
        one = outputs(net, jax.tree.map(lambda leaf: leaf[1], x))
        np.testing.assert_allclose(one[0], mean[1], rtol=1e-12)
        np.testing.assert_allclose(one[1], cov[1], rtol=1e-11, atol=1e-14)
        more = outputs(net, jax.tree.map(lambda leaf: leaf.reshape(2, 2, *leaf.shape[1:]), x))
        np.testing.assert_allclose(more[1].reshape(4, 2, 2), cov, rtol=1e-11, atol=1e-14)
        mapped = quick_jit(jax.vmap(lambda x: net.moments(x).dense_cov()))(x)
        np.testing.assert_allclose(mapped, cov, rtol=1e-11, atol=1e-14)
        none = outputs(net, jax.tree.map(lambda leaf: leaf[:0], x))
        assert none[0].shape == (0, 2)
        assert none[1].shape == (0, 2, 2)


@pytest.mark.parametrize("propagation", PROPAGATIONS)
def test_nothing_in_nothing_out(propagation):
    empty = nn.Sequential([], propagation)
    np.testing.assert_array_equal(empty.moments(jnp.ones((2, 3))).mean, np.ones((2, 3)))
    x = JointGaussian(jnp.ones(2), jnp.eye(2))
    np.testing.assert_array_equal(empty.moments(x).dense_cov(), np.eye(2))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("propagation", ["first-order", "second-order"])
def test_gradients_against_differences(propagation):
    """Of the log-density of outputs, by every weight and by the input's mean and variance."""
    size = {"hidden_layer_sizes": (2, 2) if propagation == "first-order" else (2,)}
    net = nn.mlp(3, 2, key=cases.key(), weights=cases.starts(), joint=True, **size)
    layers = [*net.layers[:-1], nn.Dropout(0.1), net.layers[-1]]
    layers[1] = nn.LeakyReLU(0.2)  # whose line is traced; the rectifier's is not
    net = nn.Sequential(layers, propagation)
    y = jnp.asarray(RNG.normal(size=(4, 2)))
    flat, unflatten = jax.flatten_util.ravel_pytree((net, Gaussian(MEAN, 0.1 + VAR)))

    def density(flat):
        net, x = unflatten(flat)
        return jnp.sum(net.moments(x).log_prob(y))

    loss, slope = quick_jit(density), quick_jit(jax.grad(density))(flat)
    assert np.isfinite(slope).all()
    for seed in range(4):
        direction = np.random.default_rng(seed).normal(size=flat.size)
        h = 1e-5
        difference = (loss(flat + h * direction) - loss(flat - h * direction)) / (2 * h)
        np.testing.assert_allclose(slope @ direction, difference, rtol=2e-5)


@pytest.mark.usefixtures("x64")
def test_units_of_which_a_common_unit_moves_the_variance():
    """Weights of mean 0 carry no covariance, yet all their units grow with what they multiply.

    f is the mean of n rectified w_j h, each w_j standard normal: h / sqrt(2 pi) but for chance, for
    h > 0. Its variance is known: V[h] / (2 pi) + E[h^2] V[max(w, 0)] / n.
    """
    n, mean, std = 200, 3.0, 0.4
    layers = [
        nn.Dense(nn.PointWeights(np.ones((1, 1)))),
        nn.Dense(nn.GaussianWeights(np.zeros((n, 1)), 1.0)),
        nn.ReLU(),
        nn.Dense(nn.PointWeights(np.full((1, n), 1 / n))),
    ]
    x = Gaussian(np.array([[mean]]), np.array([[std**2]]))
    chance = (mean**2 + std**2) * (0.5 - 0.5 / np.pi) / n
    want = std**2 / (2 * np.pi) + chance
    found = {name: outputs(nn.Sequential(layers, name), x)[1].item() for name in PROPAGATIONS}
    np.testing.assert_allclose(found["first-order"], want, rtol=0.02)
    for name in ("independent", "second-order"):
        np.testing.assert_allclose(found[name], chance, rtol=0.02)


# ---- against sampling ----------------------------------------------------------------------------


def linked():
    """A net whose units share two random units below: squares of what they share come out."""
    first = nn.Dense(nn.GaussianWeights(np.array([[1.0, -0.5], [-0.5, 1.0]]), 0.7))
    mixed = np.array([[1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [0.5, -1.0]])
    second, last = nn.Dense(nn.PointWeights(mixed)), nn.Dense(nn.PointWeights(np.ones((1, 4))))
    return [first, nn.Identity(), second, nn.ReLU(), last]


def sampled_variance(net, x, n=400_000):
    """Variance over drawn networks, and its standard error."""
    draws = np.asarray(sample_outputs(net, x, cases.key(5), n), np.float64)
    squares = (draws - draws.mean(axis=0)) ** 2
    return squares.mean(axis=0), squares.std(axis=0) / np.sqrt(n)


def test_second_order_agrees_with_sampling_where_first_does_not():
    """|a| + ... of one shared a: what is not linear is shared too, which first order leaves out."""
    layers, x = linked(), Gaussian(np.array([[1.0, 1.0], [0.3, -0.2]]))
    exact, error = sampled_variance(nn.Sequential(layers), x)
    limit = truth.threshold(FALSE_ALARM, 2)
    spread = {name: outputs(nn.Sequential(layers, name), x)[1] for name in PROPAGATIONS}
    z = {name: np.abs(var - exact) / error for name, var in spread.items()}
    # The series itself is right to 0.4 % for these correlations of -1, beyond 0.9.
    assert (np.abs(spread["second-order"] / exact - 1) <= limit * error / exact + 0.004).all()
    assert z["first-order"].max() > 3 * limit
    assert (np.abs(spread["first-order"] / exact - 1) > 0.05).any()


@pytest.mark.usefixtures("x64")
def test_second_order_keeps_the_variances_exact():
    """Those of single hidden units are what the independent rule says wherever that is exact."""
    net = [nn.Dense(cases.gaussian((5, 3))), nn.ReLU()]
    _, exact = outputs(nn.Sequential(net, "independent"), Gaussian(MEAN))
    _, found = outputs(nn.Sequential(net, "second-order"), Gaussian(MEAN))
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    joint = [*net, nn.JointDense(nn.PointWeights(np.eye(5)))]  # shows the covariance of the units
    _, cov = outputs(nn.Sequential(joint, "second-order"), Gaussian(MEAN, VAR))
    _, single = outputs(nn.Sequential(net, "second-order"), Gaussian(MEAN, VAR))
    np.testing.assert_allclose(np.einsum("rii->ri", cov), single, rtol=1e-12)
    assert np.linalg.eigvalsh(cov).min() > -1e-12
    # Units i and j: the pair's covariance by quadrature.
    w, u = moments_of(net[0].weight, None)
    pre = w @ np.diag(VAR[0]) @ w.T + np.diag(u @ (MEAN[0] ** 2 + VAR[0]))
    mean, std = w @ MEAN[0], np.sqrt(np.diag(pre))
    for i, j in ((0, 1), (1, 4), (2, 3)):
        rho = pre[i, j] / std[i] / std[j]
        exact = truth.pair_covariance(
            lambda a: np.maximum(a, 0), (mean[i], std[i]), (mean[j], std[j]), rho
        )
        np.testing.assert_allclose(
            cov[0, i, j], exact, atol=5e-3 * np.sqrt(cov[0, i, i] * cov[0, j, j])
        )


def test_correlated_input_errors_against_sampling():
    """Small errors of a tanh net: first order is right to 1 %; without covariance it is not."""
    size = {"hidden_layer_sizes": (6,), "weights": cases.starts(std=0.02), "key": cases.key()}
    net = nn.mlp(3, 2, activation=nn.Tanh(), **size)
    cov = 0.02 * np.array([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 0.0]])
    n = 200_000
    rng = np.random.default_rng(0)
    x = (MEAN[0] + rng.multivariate_normal(np.zeros(3), cov, n)).astype(np.float32)
    keys = jax.random.split(cases.key(1), n)
    draws = np.asarray(quick_jit(jax.vmap(lambda k, x: net.sample(k)(x)))(keys, jnp.asarray(x)))
    exact = draws.var(axis=0)
    error = ((draws - draws.mean(axis=0)) ** 2).std(axis=0) / np.sqrt(n)
    limit = truth.threshold(FALSE_ALARM, 2)
    joint = outputs(net, JointGaussian(MEAN[:1], cov[None]))[1][0]
    assert (np.abs(joint - exact) <= limit * error + 0.01 * exact).all()
    apart = outputs(net, Gaussian(MEAN[:1], np.diag(cov)[None]))[1][0]
    assert (np.abs(apart - exact) > limit * error + 0.01 * exact).any()


# ---- bad input, extreme numbers ------------------------------------------------------------------


def test_what_is_refused():
    dense, x = nn.Dense(cases.gaussian((3, 3))), JointGaussian(MEAN, COV)
    with pytest.raises(ValueError, match=r"'first-order', 'second-order', 'independent'.*'third'"):
        nn.Sequential([dense], "third")
    early = nn.Sequential([nn.JointDense(cases.gaussian((3, 3))), dense])
    for name in PROPAGATIONS:
        with pytest.raises(ValueError, match=r"layers\[0\], JointDense, gives a JointGaussian"):
            nn.Sequential(early.layers, name).moments(Gaussian(MEAN))
    with pytest.raises(ValueError, match="correlated input errors need propagation='first-order'"):
        nn.Sequential([dense], "independent").moments(x)
    with pytest.raises(TypeError, match="first layer that is dense, or noise"):
        nn.Sequential([nn.ReLU(), dense]).moments(x)


class Unsaid(nn.AbstractLayer):
    """Gives a JointGaussian without having said so."""

    def moments(self, x):
        return x.to_joint()

    def sample(self, key):
        return lambda x: x


def test_a_joint_layer_that_had_not_said_so():
    dense, x = nn.Dense(cases.gaussian((3, 3))), Gaussian(MEAN, VAR)
    with pytest.raises(ValueError, match=r"layers\[0\], Unsaid, gives a JointGaussian"):
        nn.Sequential([Unsaid(), dense]).moments(x)
    with pytest.raises(TypeError, match="does not know the covariance of Unsaid"):
        nn.Sequential([dense, Unsaid()]).moments(x)


_HOSTILE = nn.mlp(
    2, 2, key=cases.key(), weights=cases.starts(), hidden_layer_sizes=(3, 3), joint=True
)


@quick_jit
def _hostile(scale, mean, var):
    net = jax.tree.map(lambda w: w, _HOSTILE)
    first = net.layers[0]
    scaled = nn.Dense(nn.GaussianWeights(first.weight.mean * scale, jnp.exp(first.weight.log_std)))
    net = nn.Sequential([scaled, *net.layers[1:]])
    return net.moments(Gaussian(mean, var)).variances()


@given(
    st.sampled_from([1e-15, 1e-4, 1.0, 1e4]),
    st.lists(st.sampled_from([0.0, 1e-30, 1e-8, 1.0, -3.0, 1e4, -1e4]), min_size=2, max_size=2),
    st.lists(st.sampled_from([0.0, 1e-38, 1e-12, 1.0, 1e8]), min_size=2, max_size=2),
)
def test_huge_and_tiny_numbers(scale, mean, var):
    """float32: no NaN, and no variance below 0."""
    found = np.asarray(_hostile(*(np.asarray(a, np.float32) for a in (scale, [mean], [var]))))
    assert np.isfinite(found).all()
    assert (found >= 0).all()
