"""Recurrent layers: against their own sampling, against what they must equal, by differences.

Comparisons with sampling have one stated false-alarm rate for the file; what is an approximation
(what `varprop.nn.recurrent` says it does not follow) has two-sided bounds on the ratio instead.
"""

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import truth
from tiny import quick_jit
from varprop import Gaussian, Recipe, SequenceRegressor, load_model, nn, save_model
from varprop.learning.likelihoods import GaussianLikelihood
from varprop.learning.model import Model
from varprop.learning.priors import default_prior, weights_by_layer
from varprop.moments.pairs import product
from varprop.nn.cells import CELLS
from varprop.nn.checking import sample_outputs
from varprop.nn.contract import Adjoint
from varprop.nn.sources import variance_budget

pytestmark = pytest.mark.usefixtures("strict_promotion")

FALSE_ALARM = 1e-5
N_SAMPLES, N_STEPS, N_INPUTS, UNITS = 40_000, 3, 2, 3
RNG = np.random.default_rng(0)
MEAN, VAR = RNG.normal(size=(2, N_STEPS * N_INPUTS)), RNG.uniform(0.02, 0.2, (2, 6))


def network(cell="gru", *, n_steps=N_STEPS, std=0.1, scale=0.5, **options):
    """A network of three units, other weights for every cell; `std=None` makes points of them."""
    rng = np.random.default_rng(1 + list(CELLS).index(cell))

    def weights(_, shape):
        values = rng.normal(0.0, scale, shape)
        return nn.PointWeights(values) if std is None else nn.GaussianWeights(values, std)

    return nn.rnn(
        N_INPUTS,
        1,
        n_steps=n_steps,
        key=jax.random.key(0),
        cell=cell,
        units=UNITS,
        weights=weights,
        **options,
    )


def moments(layer, x):
    """Mean and variance as NumPy arrays."""
    arrays, static = eqx.partition(layer, eqx.is_array)

    @quick_jit
    def of(arrays, x):
        out = eqx.combine(arrays, static).moments(x)
        return out.mean, out.variances()

    return [np.asarray(part, np.float64) for part in of(arrays, x)]


# ---- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [None, -0.9, 0.4, 1.0])
def test_product_against_quadrature(rho):
    """Gauss-Hermite in two dimensions, exact for polynomials."""
    z, w = np.polynomial.hermite_e.hermegauss(8)
    w = np.outer(w, w) / w.sum() ** 2
    for (m, s), (n, t) in (((0.3, 1.2), (-0.7, 0.4)), ((0.0, 1.0), (2.0, 0.5))):
        r = rho or 0.0
        a = (m + s * z)[:, None]
        b = n + t * (r * z[:, None] + (1 - r**2) ** 0.5 * z)
        mean = (w * a * b).sum()
        var = (w * (a * b - mean) ** 2).sum()
        cov = None if rho is None else jnp.asarray(r * s * t)
        out = product(Gaussian(m, s**2), Gaussian(n, t**2), cov)
        np.testing.assert_allclose([out.mean, out.var], [mean, var], rtol=1e-5, atol=1e-6)


# ---- against their own sampling ------------------------------------------------------------------

CASES = [
    *((cell, 1, "each-step", 0.005, 0.03) for cell in CELLS),
    ("gru", N_STEPS, "each-step", 0.01, 0.05),
    *((cell, N_STEPS, "once", 0.01, 0.05) for cell in CELLS),
]


@pytest.mark.parametrize(("cell", "n_steps", "drawn", "mean_slack", "ratio_slack"), CASES)
def test_states_against_sampling(cell, n_steps, drawn, mean_slack, ratio_slack):
    """Uncertain inputs, so that gates and states depend on one another from the first step on.

    The slack is for gates and products that are no Gaussians: of a state's mean, which lies within
    (-1, 1), and of the ratio of variances; plus what sampling may be off by.
    """
    layer = network(cell, n_steps=n_steps, weights_drawn=drawn).layers[0]
    x = Gaussian(MEAN[:, : n_steps * N_INPUTS], VAR[:, : n_steps * N_INPUTS])
    mean, var = moments(layer, x)
    draws = sample_outputs(layer, x, jax.random.key(3), N_SAMPLES)
    z = truth.threshold(FALSE_ALARM / len(CASES), 2 * mean.size)
    sampled = draws.var(axis=0, ddof=1)
    assert (np.abs(mean - draws.mean(axis=0)) < mean_slack + z * (sampled / N_SAMPLES) ** 0.5).all()
    assert (np.abs(var / sampled - 1) < ratio_slack + z * (3 / N_SAMPLES) ** 0.5).all()


def test_known_inputs_into_one_step_are_exact():
    """A GRU from nothing is (1 - z) tanh(...), a product of independents: no slack, z-scores."""
    for cell in ("rnn", "gru"):
        layer = network(cell, n_steps=1, weights_drawn="each-step").layers[0]
        x = MEAN[:, :N_INPUTS]
        mean, var = moments(layer, Gaussian(x))
        draws = sample_outputs(layer, x, jax.random.key(4), N_SAMPLES)
        limit = truth.threshold(FALSE_ALARM / 2, 2 * mean.size)
        assert all(np.abs(z).max() < limit for z in truth.sampling_z(draws, mean, var))


def test_the_readings_differ_as_their_draws_do():
    """A state that remembers adds up what a weight does: drawn once, it varies far more."""
    rng, n_steps = np.random.default_rng(2), 8
    into = nn.GaussianWeights(rng.normal(0.0, 0.1, (UNITS, N_INPUTS)), 0.05)
    keep = nn.GaussianWeights(0.7 * np.eye(UNITS), 0.02)
    x = np.ones((1, n_steps * N_INPUTS))
    stated, sampled = [], []
    for drawn in ("once", "each-step"):
        layer = nn.Recurrent(
            nn.Dense(into), nn.Dense(keep), n_steps, cell="rnn", weights_drawn=drawn
        )
        stated.append(moments(layer, Gaussian(x))[1][0])
        sampled.append(sample_outputs(layer, Gaussian(x), jax.random.key(5), N_SAMPLES).var(axis=0))
    assert (sampled[0] > 2 * sampled[1]).all()
    ratio = np.sqrt(np.array(stated) / np.concatenate(sampled))
    assert (np.abs(ratio - 1) < 0.1).all()  # by hand, in NumPy: 1.06, 0.94 and 0.95 for "once"


def test_following_gates_brings_the_variance_nearer():
    """In a GRU whose gates see a very uncertain input, independent gates are farther off."""
    x, errors = Gaussian(MEAN, 1.0), []
    for followed in (True, False):
        layer = network("gru", scale=0.8, std=0.01, gate_covariance=followed).layers[0]
        var = moments(layer, x)[1]
        draws = sample_outputs(layer, x, jax.random.key(6), N_SAMPLES)
        errors.append(np.abs(np.log(var / draws.var(axis=0))).mean())
    assert errors[0] < 0.7 * errors[1]


# ---- what they must equal ------------------------------------------------------------------------


@pytest.mark.parametrize("cell", CELLS)
def test_without_variance_it_is_the_plain_network(cell):
    net = network(cell, std=None)
    mean, var = moments(net, Gaussian(MEAN))
    np.testing.assert_allclose(
        mean, net.sample(jax.random.key(0))(jnp.asarray(MEAN)), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(var, 0.0, atol=1e-12)


def test_plain_cells_by_hand():
    """One drawn network of each cell, worked out in NumPy step by step."""

    def sigmoid(a):
        return 1 / (1 + np.exp(-a))

    for cell in CELLS:
        layer = network(cell).layers[0]
        plain = layer.sample(jax.random.key(1))
        w, b, u = (
            np.asarray(a)
            for a in (plain.from_input.weight, plain.from_input.bias, plain.from_state.weight)
        )
        h, c = np.zeros(UNITS), np.zeros(UNITS)
        for x in MEAN[0].reshape(N_STEPS, N_INPUTS):
            i, s = np.split(w @ x + b, len(b) // UNITS), np.split(u @ h, len(b) // UNITS)
            if cell == "rnn":
                h = np.tanh(i[0] + s[0])
            elif cell == "gru":
                z, new = sigmoid(i[0] + s[0]), np.tanh(i[2] + sigmoid(i[1] + s[1]) * s[2])
                h = z * h + (1 - z) * new
            else:
                f, into, new, out = (a + b for a, b in zip(i, s, strict=True))
                c = sigmoid(f) * c + sigmoid(into) * np.tanh(new)
                h = sigmoid(out) * np.tanh(c)
        np.testing.assert_allclose(plain(jnp.asarray(MEAN))[0], h, rtol=1e-4, atol=1e-6)


def test_one_step_of_the_simple_cell_is_a_dense_layer():
    net = network("rnn", n_steps=1, weights_drawn="each-step")
    recurrent, last = net.layers
    dense = nn.Sequential([recurrent.from_input, nn.Tanh(), last])
    x = Gaussian(MEAN[:, :N_INPUTS], VAR[:, :N_INPUTS])
    for found, want in zip(moments(net, x), moments(dense, x), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("cell", "drawn"), [("lstm", "once"), ("rnn", "each-step")])
def test_a_mask_leaves_steps_out(cell, drawn):
    """At the end and in between: the same as the sequence without them; padding does not count."""
    short = network(cell, n_steps=2, weights_drawn=drawn)
    long = network(cell, n_steps=4, weights_drawn=drawn, masked=True)
    first, second = np.split(MEAN[:, :4], 2, axis=1)
    one, two = np.split(VAR[:, :4], 2, axis=1)
    none, junk = 0 * one, np.full_like(first, 7.0)
    want = moments(short, Gaussian(MEAN[:, :4], VAR[:, :4]))
    for mask in ([1, 1, 0, 0], [0, 1, 0, 1]):
        filled = iter([(first, one), (second, two)])
        steps = [next(filled) if there else (junk, none) for there in mask]
        columns = np.tile(mask, (2, 1))
        x = np.concatenate([*(mean for mean, _ in steps), columns], axis=1)
        v = np.concatenate([*(var for _, var in steps), 0 * columns], axis=1)
        for found, part in zip(moments(long, Gaussian(x, v)), want, strict=True):
            np.testing.assert_allclose(found, part, rtol=1e-5, atol=1e-7)
        if drawn == "once":
            key = jax.random.key(2)
            plain = [
                net.sample(key)(jnp.asarray(a)) for net, a in ((long, x), (short, MEAN[:, :4]))
            ]
            np.testing.assert_allclose(*plain, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("cell", CELLS)
def test_sources_are_derivatives(cell):
    """Of the recursion of means and variances, by differences of weights and of inputs.

    Without the covariance of gates: what a weight changes through it is not followed.
    """
    layer = network(cell, gate_covariance=False).layers[0]
    x = Gaussian(MEAN[:1].T, VAR[:1].T)

    def out(layer, mean):
        found = layer.linearized(Gaussian(mean, x.var)).out
        return jnp.stack([found.mean, found.var])

    wanted = Adjoint(jnp.eye(UNITS)[..., None], 0.3 * jnp.eye(UNITS)[..., None])
    at = layer.linearized(x).pull(wanted)
    score = eqx.filter_jit(lambda layer, mean: jnp.array([1.0, 0.3]) @ out(layer, mean)[:, :, 0])
    eps = 1e-5
    for i in (0, 3):
        move = jnp.zeros(x.shape).at[i].set(eps)
        by = (score(layer, x.mean + move) - score(layer, x.mean - move)) / (2 * eps)
        np.testing.assert_allclose(at.mean[i, :, 0], by, rtol=1e-6, atol=1e-9)
    # Weights are sources one by one, those to the gates first: of the first gate they lie as in
    # the layer, inputs before outputs.
    var, g = at.sources[1]
    g, n = g.reshape(-1, N_INPUTS + UNITS, UNITS), N_INPUTS
    for name, i, j, place in (("from_input", 1, 0, 0), ("from_state", 2, 1, n + 1)):

        def moved(step, name=name, i=i, j=j):
            def where(tree):
                return getattr(tree, name).weight.mean

            return score(eqx.tree_at(where, layer, where(layer).at[i, j].add(step)), x.mean)

        by = (moved(eps) - moved(-eps)) / (2 * eps)
        np.testing.assert_allclose(g[i, place], by, rtol=1e-6, atol=1e-9)
    used = var.reshape(-1, N_INPUTS + UNITS)[:UNITS]
    np.testing.assert_allclose(used, 0.1**2, rtol=1e-12)


def test_what_follows_knows_what_units_share():
    """A dense layer of known weights on top: the variance is w' C w, C of the sources; a budget."""
    net = network("rnn", weights_drawn="once")
    layer, last = net.layers
    sure = nn.PointWeights(last.weight.mean)
    x = Gaussian(MEAN, VAR)
    step = layer.linearized(x.T)
    at = step.pull(Adjoint())
    cov = jnp.einsum("nr,njr,nkr->rjk", x.var.T, at.mean, at.mean)
    for s, g in at.sources:
        cov = cov + jnp.einsum("nr,njr,nkr->rjk", jnp.broadcast_to(s, g[:, 0].shape), g, g)
    want = jnp.einsum("ij,rjk,ik->ri", sure.value, cov, sure.value)
    for kind in (nn.Dense, nn.JointDense):
        way = "second-order" if kind is nn.Dense else "first-order"
        found = moments(nn.Sequential([layer, kind(sure)], way), x)[1]
        np.testing.assert_allclose(found, want, rtol=1e-4)
    alone = moments(nn.Sequential([layer, nn.Dense(sure)], "independent"), x)[1]
    assert (np.abs(alone / want - 1) > 0.01).any()
    parts = variance_budget(net.layers, x)
    assert (np.asarray(parts) >= 0).all()
    np.testing.assert_allclose(parts.sum(axis=0), moments(net, x)[1], rtol=1e-4)


# ---- models, files, bad input --------------------------------------------------------------------


def test_its_weights_are_found_and_it_goes_into_files(tmp_path):
    net = network("lstm", masked=True)
    shapes = [[w.shape for w in layer] for layer in weights_by_layer(net)]
    assert shapes == [[(12, 2), (12,)], [(12, 3)], [(1, 3), (1,)]]
    model = Model(net, GaussianLikelihood.start(1), default_prior(net))
    save_model(model, tmp_path / "model.safetensors")
    assert eqx.tree_equal(load_model(tmp_path / "model.safetensors").network, net)


def test_bad_networks():
    with pytest.raises(
        ValueError, match="cell must be one of 'rnn', 'gru', 'lstm', but is 'elman'"
    ):
        nn.rnn(1, 1, n_steps=2, key=jax.random.key(0), cell="elman")
    with pytest.raises(ValueError, match="weights_drawn must be one of 'once', 'each-step', but"):
        network(weights_drawn="twice")
    wrong = nn.Dense(nn.PointWeights(np.ones((4, 2))))
    with pytest.raises(ValueError, match=r"from_input has weights of shape \(4, 2\), but 3 units"):
        nn.Recurrent(wrong, network().layers[0].from_state, 3)
    with pytest.raises(ValueError, match=r"x has shape \(2, 5\), but this layer needs \(..., 6\)"):
        network().moments(Gaussian(MEAN[:, :5]))


SHORT = Recipe(max_steps=300, kl_warmup=100, cooldown=100, batch_size=64, learning_rate=1e-2)


def sequences(n_rows, seed=0):
    """Sequences of two to four steps; the target is the sum of the first input over the steps."""
    rng = np.random.default_rng(seed)
    X = 100 + 10 * rng.normal(size=(n_rows, 4, 2))
    mask = np.arange(4) < rng.integers(2, 5, n_rows)[:, None]
    return X, ((X[..., 0] - 100) * mask).sum(axis=1) + rng.normal(size=n_rows), mask


@pytest.fixture(scope="module")
def fitted():
    X, y, mask = sequences(200)
    spoilt = np.where(mask[..., None], X, np.nan)  # what is no step may hold anything
    model = SequenceRegressor(cell="rnn", units=4, recipe=SHORT, random_state=0, kl_weight=0.1)
    return model.fit(spoilt, y, mask)


def test_training_beats_the_constant(fitted):
    X, y, mask = sequences(200, 1)
    assert fitted.score(X, y, mask) > 0.6
    constant = -0.5 * np.log(2 * np.pi * y.var()) - 0.5
    assert fitted.log_score(X, y, mask) > constant + 0.3
    # Noise of 1; so short a training leaves it wide.
    assert 1 < fitted.predict_dist(X, mask).std.mean() < 0.8 * y.std()
    lower, upper = fitted.predict_dist(X, mask).interval(0.9)
    assert ((lower < y) & (y < upper)).mean() > 0.8
    padded = np.where(mask[..., None], X, -1e6)
    np.testing.assert_array_equal(fitted.predict(padded, mask), fitted.predict(X, mask))
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X, mask), fitted.predict(X, mask))
    rough = fitted.predict_dist(X, mask, X_std=[5.0, 0.0])
    assert (rough.std > fitted.predict_dist(X, mask).std).all()


def test_bad_sequences(fitted):
    X, y, mask = sequences(5)
    model = SequenceRegressor(recipe=SHORT)
    lists = [row[: 2 + i % 2] for i, row in enumerate(X)]
    with pytest.raises(ValueError, match="sequences of 2 to 3 steps: pad them to one"):
        model.fit(lists, y)
    bad = X.copy()
    bad[3, 1, 0] = np.nan
    with pytest.raises(ValueError, match="X is nan in row 3, step 1, input 0"):
        model.fit(bad, y)
    with pytest.raises(ValueError, match=r"X has shape \(5, 8\), but sequences need \(rows, steps"):
        model.fit(X.reshape(5, 8), y)
    with pytest.raises(ValueError, match=r"mask has shape \(5, 3\), but X .* needs \(5, 4\)"):
        model.fit(X, y, mask[:, :3])
    with pytest.raises(ValueError, match="row 2 has no step: its mask is all 0"):
        model.fit(X, y, mask & (np.arange(5) != 2)[:, None])
    with pytest.raises(ValueError, match="mask must be 1 where there is a step"):
        model.fit(X, y, 2 * mask)
    with pytest.raises(
        ValueError, match="likelihood must be one of plain numbers, but is 'poisson'"
    ):
        SequenceRegressor(likelihood="poisson", recipe=SHORT).fit(X, y)
    with pytest.raises(ValueError, match="fitted with sequences of 4 steps and 2 inputs"):
        fitted.predict(X[:, :3], mask[:, :3])
