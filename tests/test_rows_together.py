"""What rows have in common: covariances, totals, functions drawn, and the budget of a variance.

`Predictive` is tested with a kernel whose correlations are written down, against dense matrices;
networks against drawn networks and, where they are linear, against formulas.
"""

import dataclasses
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import cases
import tiny
import truth
from tiny import quick_jit
from varprop import Gaussian, JointGaussian, nn
from varprop.data.statistics import Scaling
from varprop.nn.sources import covariance_between_rows, layer_names, variance_budget
from varprop.predictive.blend import mixture as blended
from varprop.predictive.budget import DISAGREE, MODEL, NOISE, UNTOLD
from varprop.predictive.distribution import Predictive
from varprop.predictive.kernels import BLOCK, AbstractRowKernel, Shares
from varprop.predictive.simple import LinearModel, in_units
from varprop.predictive.warped import Warped
from varprop.predictive.warps import Log, YeoJohnson
from varprop.training.result import propagate

RNG = np.random.default_rng(0)
N = BLOCK + 20  # two blocks
FALSE_ALARM = 1e-5


# ---- a kernel that is written down ---------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Written(AbstractRowKernel):
    """Correlations (outputs, n, n) of rows whose number is their only feature."""

    corr: np.ndarray

    def correlate(self, rows, others):
        i, j = (self.x[part, 0].astype(int) for part in (rows, others))
        assert max(len(i), len(j)) <= BLOCK
        return self.corr[:, i][:, :, j]

    def shares(self):
        number = self.x[:, :1].astype(int) % 3
        inputs = np.repeat((number == 0) * 1.0, len(self.corr), axis=1)
        return Shares(inputs[None], {"weights of layer 1": 1 - inputs})


def written(n, d, seed):
    root = np.random.default_rng(seed).normal(size=(d, n, 5))
    cov = root @ root.swapaxes(1, 2) + 0.3 * np.eye(n)
    std = np.sqrt(np.einsum("dii->di", cov))
    return Written(np.arange(n)[:, None] * 1.0, None, None, cov / std[:, None] / std[..., None])


def member(n, d, seed, *, kernel=True, noise=(1,), joint=False):
    """One Gaussian of n rows, and the dense covariance between them of every output, (d, n, n)."""
    rng = np.random.default_rng(seed)
    mean, var = rng.normal(size=(n, d)), rng.uniform(0.5, 2, (n, d))
    noise = rng.uniform(0.1, 1, (n if noise == "rows" else 1, d))
    model = var
    if joint:
        model = 0.3 * np.sqrt(var[:, :, None] * var[:, None, :]) + 0.7 * var[..., None] * np.eye(d)
    found = Predictive(mean[None], model[None], noise[None], np.ones((1, 1)))
    corr = np.broadcast_to(np.eye(n), (d, n, n))
    if kernel:
        one = written(n, d, seed)
        found, corr = dataclasses.replace(found, between=(one,)), one.corr
    std = np.sqrt(var).T
    return found, corr * std[:, None] * std[..., None], np.broadcast_to(noise, (n, d))


def mixed(n, d, weights=(0.5, 0.3, 0.2)):
    """A mixture of three, one without a kernel; and the parts of it, densely."""
    parts = [
        member(n, d, 1),
        member(n, d, 2, kernel=False, noise="rows"),
        member(n, d, 3, joint=d > 1),
    ]
    return Predictive.mixture([p for p, _, _ in parts], weights), parts, np.array(weights)


def dense_cov(parts, weights):
    """The law of total covariance, for every output; noise on the diagonal."""
    means = np.stack([p.member_mean[0] for p, _, _ in parts])
    apart = means - np.tensordot(weights, means, 1)
    cov = sum(w * c for w, (_, c, _) in zip(weights, parts, strict=True))
    cov = cov + np.einsum("k,kid,kjd->dij", weights, apart, apart)
    noise = np.tensordot(weights, np.stack([s for _, _, s in parts]), 1)
    return cov + np.einsum("id,ij->dij", noise, np.eye(len(noise)))


@pytest.fixture(scope="module")
def mixture():
    return mixed(N, 2)


def test_rows_cov_is_the_law_of_total_covariance(mixture):
    p, parts, weights = mixture
    want = np.moveaxis(dense_cov(parts, weights), 0, -1)
    found = p.rows_cov()
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(np.einsum("iid->id", found), p.var, rtol=1e-13)
    np.testing.assert_array_equal(found, found.swapaxes(0, 1))
    assert np.linalg.eigvalsh(np.moveaxis(found, -1, 0)).min() > 0
    unit = np.array([2.0, 1e-3])
    np.testing.assert_allclose(p.times(unit).rows_cov(), want * unit**2, rtol=1e-12, atol=1e-13)
    rows = np.array([270, 3, 3, 100])  # a row may be asked for twice
    chosen = p[rows].rows_cov()
    some = want[rows][:, rows]
    off = ~np.eye(4, dtype=bool)
    off[1, 2] = off[2, 1] = False  # one row taken twice: not one row with itself
    np.testing.assert_allclose(chosen[off], some[off], rtol=1e-12, atol=1e-13)
    one = p.marginal(1)
    np.testing.assert_allclose(one.rows_cov(), want[..., 1], rtol=1e-12, atol=1e-13)
    turned = p.marginal([1, 0])[5:9].marginal([1])
    np.testing.assert_allclose(turned.rows_cov(), want[5:9, 5:9, :1], rtol=1e-12, atol=1e-13)


def test_combinations_are_those_of_each_member(mixture):
    """Mean, variance and cdf of w^T y for dense matrices; a mixture stays one."""
    p, parts, weights = mixture
    by = np.zeros((4, N))
    by[0], by[1, [0, N - 1]], by[2] = 1.0, [1, -1], RNG.normal(size=N)  # and one of nothing
    found = p.times([1.0, 3.0]).combine(by)
    assert found.shape == (4, 2)
    assert not found.is_joint
    means = np.stack([by @ q.member_mean[0] for q, _, _ in parts])
    model = np.stack([np.einsum("mi,dij,mj->md", by, c, by) for _, c, _ in parts])
    noise = np.stack([by**2 @ s for _, _, s in parts])
    unit = np.array([1.0, 3.0])
    got_mean, got_std = found.member_moments()
    np.testing.assert_allclose(got_mean, unit * means, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(got_std, unit * np.sqrt(model + noise), rtol=1e-10)
    np.testing.assert_allclose(found.weights[:, 0], weights, rtol=1e-15)
    # So does the variance of the whole by the covariance between rows.
    cov = dense_cov(parts, weights)
    want = np.einsum("mi,dij,mj->md", by, cov, by)
    np.testing.assert_allclose(found.var, unit**2 * want, rtol=1e-10)
    np.testing.assert_allclose(p.total().var, want[:1], rtol=1e-10)
    np.testing.assert_allclose(p.average().var, want[:1] / N**2, rtol=1e-10)
    np.testing.assert_allclose(p.average().mean, p.mean.mean(axis=0)[None], rtol=1e-10)
    assert found.var[3].tolist() == [0.0, 0.0]


# ---- behind a transform --------------------------------------------------------------------------


def of_two(function, mean, cov, n=120):
    """Covariance of functions of two Gaussian variables, on a grid of quadrature."""
    z, w = np.polynomial.hermite_e.hermegauss(n)
    w = w / w.sum()
    root = np.linalg.cholesky(cov)
    a = function(mean[0] + root[0, 0] * z)[:, None]
    b = function(mean[1] + root[1, 0] * z[:, None] + root[1, 1] * z)
    return np.einsum("i,j,ij", w, w, a * b) - (w @ a[:, 0]) * np.einsum("i,j,ij", w, w, b)


def test_rows_of_a_log_normal_are_known_exactly():
    n, scale, shift = N, np.array([0.4, 0.7]), np.array([1.0, -0.5])
    latent, model, noise = member(n, 2, 7, noise="rows")
    found = Warped(latent, Log(scale, shift)).rows_cov()
    model = model * scale[:, None, None] ** 2
    spread = np.einsum("dii->di", model) + noise.T * scale[:, None] ** 2
    mean = np.exp(shift[:, None] + scale[:, None] * latent.member_mean[0].T + spread / 2)
    cov = mean[:, :, None] * mean[:, None] * np.expm1(model)
    at = np.arange(n)
    cov[:, at, at] = mean**2 * np.expm1(spread)
    np.testing.assert_allclose(np.moveaxis(found, -1, 0), cov, rtol=1e-9)
    assert np.linalg.eigvalsh(np.moveaxis(found, -1, 0)).min() > 0


@pytest.mark.parametrize("power", [0.0, 0.4, 1.0, 1.7])
def test_rows_behind_yeo_johnson_by_quadrature(power):
    latent, model, noise = member(6, 1, 8)
    warp = YeoJohnson(power, 2.0, 3.0)
    p = Warped(latent, warp)
    found = p.second_order().rows_cov()[..., 0]
    mean = latent.member_mean[0, :, 0]
    total = model[0] + np.diag(noise[:, 0])
    for i in range(6):
        for j in range(i):
            pair = np.ix_([i, j], [i, j])
            want = of_two(lambda z: warp.inverse(z[..., None])[..., 0], mean[[i, j]], total[pair])
            std = np.sqrt(found[i, i] * found[j, j])
            assert found[i, j] == pytest.approx(want, abs=1e-4 * std)
    np.testing.assert_allclose(np.diag(found), p.var[:, 0], rtol=1e-12)
    if power == 1.0:  # no transform at all
        np.testing.assert_allclose(found, 9.0 * total, rtol=1e-10)
    by = np.array([1.0, -2.0, 0.0, 0.5, 1.0, 0.0])
    one = p.combine(by)
    np.testing.assert_allclose(one.var[0, 0], by @ found @ by, rtol=1e-10)
    np.testing.assert_allclose(one.mean[0, 0], by @ p.mean[:, 0], rtol=1e-12)
    np.testing.assert_allclose(p[1:4].rows_cov()[..., 0], found[1:4, 1:4], rtol=1e-10)


def test_blends_of_kinds_are_the_law_of_total_covariance():
    (plain, cov, noise), (latent, _, _) = member(5, 1, 3), member(5, 1, 4)
    warped = Warped(latent, YeoJohnson(0.3, 1.0, 2.0))
    blend = blended([plain, warped], [0.25, 0.75])
    first = cov[0] + np.diag(noise[:, 0])
    second = warped.rows_cov()[..., 0]
    apart = plain.mean[:, 0] - warped.mean[:, 0]
    want = 0.25 * first + 0.75 * second + 0.25 * 0.75 * np.outer(apart, apart)
    np.testing.assert_allclose(blend.rows_cov()[..., 0], want, rtol=1e-10)
    np.testing.assert_allclose(blend.total().var[0, 0], want.sum(), rtol=1e-10)
    np.testing.assert_allclose(blend.average().std[0, 0], np.sqrt(want.sum()) / 5, rtol=1e-10)
    np.testing.assert_allclose(blend.output_cov[:, 0, 0], blend.var[:, 0], rtol=1e-10)
    budget = blend.budget(["age"])
    np.testing.assert_allclose(budget.variance.sum(axis=1), blend.var, rtol=1e-10)
    # Rows 0 and 3 have all of their model's variance from the input, whichever the part.
    from_age = budget.variance[:, budget.names.index("error of age"), 0]
    assert (from_age[[0, 3]] > 0).all()
    assert (from_age[[1, 2, 4]] == 0).all()
    assert not blended([plain, warped.unsplit()]).second_order().identified


def test_weights_that_are_the_same_in_all_rows_are_one_mixture():
    p, parts, weights = mixed(6, 1)
    by_row = np.broadcast_to(weights[:, None], (3, 6))
    q = Predictive.mixture([part for part, _, _ in parts], by_row)
    np.testing.assert_allclose(q.total().var, p.total().var, rtol=1e-13)
    np.testing.assert_allclose(q.combine(np.eye(6)[:2]).mean, q.mean[:2], rtol=1e-13)
    np.testing.assert_allclose(q.total().quantile(0.1), p.total().quantile(0.1), rtol=1e-9)
    with pytest.raises(ValueError, match="weights of their own cannot be taken together"):
        Predictive.mixture([part for part, _, _ in parts], RNG.uniform(size=(3, 6))).total()


def test_functions_drawn_have_the_covariance(mixture):
    """Of three rows of 276, with and without noise; members are drawn by their weights."""
    p, parts, weights = mixture
    n = 20_000
    rows = np.array([0, 100, 275])
    want = dense_cov(parts, weights)[:, rows][:, :, rows]
    quiet = np.tensordot(weights, np.stack([s for _, _, s in parts]), 1)[rows]
    limit = truth.threshold(FALSE_ALARM, 2 * 2 * 9)
    few = p[rows]
    for noise in (False, True):
        draws = few.sample_functions(n, random_state=3, noise=noise)
        assert draws.shape == (3, 2, n)
        for d in range(2):
            cov = want[d] - (0 if noise else np.diag(quiet[:, d]))
            assert np.abs(truth.covariance_z(draws[:, d].T, cov)).max() < limit
        z, _ = truth.sampling_z(np.moveaxis(draws, -1, 0), few.mean, few.var)
        assert np.abs(z).max() < limit
    # All rows at once: the variance of a total that they agree on.
    totals = p.marginal(0).sample_functions(2000, random_state=0, noise=True).sum(axis=0)
    _, z = truth.sampling_z(totals, p.total().mean[0, 0], p.total().var[0, 0])
    assert np.abs(z) < limit
    one = few.marginal(0)
    np.testing.assert_array_equal(
        one.sample_functions(4, random_state=1), one.sample_functions(4, random_state=1)
    )
    scaled = one.times(2.0).sample_functions(4, random_state=1)
    np.testing.assert_allclose(scaled, 2 * one.sample_functions(4, random_state=1))


def test_what_is_refused(monkeypatch):
    p, _, _ = mixed(5, 2)
    for bad in (np.ones(4), np.ones((2, 6)), np.ones((1, 5, 1)), 1.0):
        with pytest.raises(ValueError, match=r"there are 5 rows to combine.*\(5,\) or \(m, 5\)"):
            p.combine(bad)
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="infinite or missing"):
            p.combine([1, 1, bad, 0, 0])
    with pytest.raises(ValueError, match="must be numbers"):
        p.combine(["a"] * 5)
    with pytest.raises(IndexError):
        p[[7]]
    with pytest.raises(ValueError, match="n_samples must be at least 1"):
        p.sample_functions(0)
    single, _, _ = member(5, 2, 1, joint=True)
    seen = single.conditional({0: 1.0})
    for ask in (seen.rows_cov, seen.total, seen.sample_functions, seen.budget):
        with pytest.raises(ValueError, match=r"not known once outputs were observed.*ask before"):
            ask()
    monkeypatch.setattr(os, "sysconf", lambda name: 10 if "PAGES" in name else 1)
    for ask in (p.rows_cov, p.sample_functions):
        with pytest.raises(MemoryError, match=r"between 5 rows needs .* GiB are free: .*combine"):
            ask()
    p.total()  # needs no matrix

    def unknown(name):
        raise ValueError(name)

    monkeypatch.setattr(os, "sysconf", unknown)  # a system that does not tell
    assert p.rows_cov().shape == (5, 5, 2)


# ---- the budget of a mixture ---------------------------------------------------------------------


def test_the_budget_of_a_mixture_by_hand(mixture):
    p, parts, weights = mixture
    budget = p.times([1.0, 2.0]).budget(["size"])
    unit = np.array([1.0, 4.0])
    np.testing.assert_allclose(budget.variance.sum(axis=1), unit * p.var, rtol=1e-12)
    np.testing.assert_allclose(budget.shares.sum(axis=1), 1.0, rtol=1e-12)
    found = {name: budget.variance[:, i] / unit for i, name in enumerate(budget.names)}
    assert list(found) == ["error of size", "weights of layer 1", MODEL, DISAGREE, NOISE]
    third = np.arange(N)[:, None] % 3 == 0
    own = [np.einsum("dii->id", c) for _, c, _ in parts]
    known = weights[0] * own[0] + weights[2] * own[2]
    np.testing.assert_allclose(found["error of size"], np.where(third, known, 0), atol=1e-13)
    np.testing.assert_allclose(found["weights of layer 1"], np.where(third, 0, known), atol=1e-13)
    np.testing.assert_allclose(found[MODEL], weights[1] * own[1], rtol=1e-12)
    noise = np.tensordot(weights, np.stack([s for _, _, s in parts]), 1)
    np.testing.assert_allclose(found[NOISE], noise, rtol=1e-12)
    untold = p.unsplit().budget()
    assert untold.names == ["error of X[:, 0]", UNTOLD, DISAGREE]
    np.testing.assert_allclose(untold.variance.sum(axis=1), p.var, rtol=1e-12)
    together = found["weights of layer 1"] + found[MODEL] + found[NOISE]
    np.testing.assert_allclose(untold.variance[:, 1], together, rtol=1e-12)
    one = p.marginal(1)[3:5].budget()
    np.testing.assert_allclose(one.variance.sum(axis=1), p.var[3:5, 1], rtol=1e-12)


def test_a_budget_of_nothing_and_of_very_much():
    p = Predictive.gaussian([1.0, 2.0], [0.0, 0.0], 0.0)
    assert p.budget().variance.shape == (2, 0)
    q = Predictive.gaussian([1.0], [1.0], 1.0).times(1e200)  # no warning, as of `var`
    assert np.isinf(q.budget().variance).all()


# ---- networks ------------------------------------------------------------------------------------


X = np.array([[0.5, -1.0, 0.3], [0.6, -0.9, 0.2], [-1.0, 0.4, 1.5], [2.0, 1.0, 0.0]])


def networks():
    start = {"weights": cases.starts(), "hidden_layer_sizes": (5,), "key": cases.key()}
    linear = {"activation": nn.Identity(), "input_noise": nn.GaussianWeightNoise(0.4)}
    connect = {"activation": nn.Tanh(), "hidden_noise": nn.Dropout(0.2)}
    return {
        "relu": nn.mlp(3, 1, **start),
        "linear with noise on the input": nn.mlp(3, 1, **start, **linear),
        "tanh with dropout": nn.mlp(3, 1, **start, **connect),
        "binary, dropped connections": nn.Sequential(
            [
                nn.Dense(cases.gaussian((5, 3))),
                nn.LeakyReLU(0.1),
                nn.AdditiveNoise(nn.Uniform(-0.5, 1.0)),
                nn.Dense(cases.bernoulli((1, 5)), weight_noise=nn.DropConnect(0.3)),
            ]
        ),
    }


def double(net):
    return jax.tree.map(lambda a: np.asarray(a, np.float64), net)


def between(net, x, z=None):
    """`covariance_between_rows` in double precision."""
    layers = double(net).flat
    found = quick_jit(lambda x, z: covariance_between_rows(layers, x, z))(x, x if z is None else z)
    return np.asarray(found)


def budget(net, x):
    layers = double(net).flat
    return np.asarray(quick_jit(lambda x: variance_budget(layers, x))(x))


@pytest.mark.parametrize("name", networks())
def test_rows_of_100_000_drawn_networks(name):
    net = networks()[name]
    x, keys = jnp.asarray(X), jax.random.split(cases.key(1), 100_000)
    draws = np.asarray(quick_jit(jax.vmap(lambda key: net.sample(key)(x)))(keys))[..., 0]
    with jax.enable_x64(True):
        x = Gaussian(X)
        cov = between(net, x)[0]
        whole = budget(net, x).sum(axis=0)[:, 0]
    limit = truth.threshold(FALSE_ALARM / 4, 10)
    assert np.abs(truth.covariance_z(draws, cov)).max() < limit
    np.testing.assert_allclose(np.diag(cov), whole, rtol=1e-9)
    assert np.abs(truth.covariance_z(draws, cov * (1.1 - 0.1 * np.eye(4)))).max() > limit


def hand_made():
    """Weights of two linear layers, of a net with X_std, and what is expected of them."""
    first, last = (
        nn.Dense(cases.gaussian(s, 1), cases.gaussian(s[:1], 2)) for s in ((4, 3), (2, 4))
    )
    return nn.Sequential([first, nn.Identity(), last])


def numbers(dense):
    return [
        np.asarray(a, np.float64)
        for w in (dense.weight, dense.bias)
        for a in (w.mean, np.exp(2 * np.asarray(w.log_std, np.float64)))
    ]


def test_a_linear_network_with_input_errors_by_hand():
    """Rows share weights and not errors; the budget is the variance, term by term."""
    net = hand_made()
    (w, u, b, c), (v, t, _, f) = numbers(net.layers[0]), numbers(net.layers[2])
    x_var = RNG.uniform(0.1, 1, X.shape)
    root = RNG.normal(size=(4, 3, 3))
    x_cov = root @ root.swapaxes(1, 2)
    h = X @ w.T + b
    for given, var in ((x_var, x_var), (x_cov, np.einsum("rii->ri", x_cov))):
        with jax.enable_x64(True):
            x = Gaussian(X, given) if given.ndim == 2 else JointGaussian(X, given)
            cov, parts = between(net, x), budget(net, x)
            found = double(net).moments(x).var if given.ndim == 2 else None
        shared = np.einsum("ji,ri,si->jrs", u, X, X) + c[:, None, None]
        want = np.einsum("dj,jrs->drs", v**2 + t, shared) + np.einsum("dj,rj,sj->drs", t, h, h)
        want += f[:, None, None]
        off = ~np.eye(4, dtype=bool)
        np.testing.assert_allclose(cov[:, off], want[:, off], rtol=1e-10)
        gain = v @ w
        first = np.einsum("dj,rj->rd", v**2, (X**2 + var) @ u.T + c)
        if given.ndim == 2:
            inputs = np.einsum("di,ri->ird", gain**2, var)
            spread = (X**2 + var) @ u.T + c + var @ (w**2).T
        else:
            alone = np.einsum("di,ri->ird", gain**2, var)
            together = np.einsum("di,rij,dj->rd", gain, given, gain)
            inputs = alone / alone.sum(axis=0) * together
            spread = (X**2 + var) @ u.T + c + np.einsum("ji,rik,jk->rj", w, given, w)
        second = (h**2 + spread) @ t.T + f
        np.testing.assert_allclose(parts[:3], inputs, rtol=1e-10)
        np.testing.assert_allclose(parts[3], first, rtol=1e-10)
        np.testing.assert_allclose(parts[4], 0)
        np.testing.assert_allclose(parts[5], second, rtol=1e-10)
        if found is not None:
            np.testing.assert_allclose(parts.sum(axis=0), found, rtol=1e-10)


def deep(joint=False):
    return nn.mlp(
        3,
        2,
        key=cases.key(),
        weights=cases.starts(std=0.3),
        hidden_layer_sizes=(4, 4),
        joint=joint,
        input_noise=nn.Dropout(0.1),
        hidden_noise=nn.Dropout(0.2),
    )


@pytest.mark.usefixtures("x64")
def test_deep_networks_hang_together():
    """The budget sums to the propagated variance, and lies on the diagonal between rows; it is
    positive semidefinite, and what is asked in two halves is the same."""
    correlated = JointGaussian(X, np.tile(0.1 + 0.2 * np.eye(3), (4, 1, 1)))
    net = double(deep())
    for x in (Gaussian(X), correlated):
        parts = budget(net, x)
        found = quick_jit(lambda x: net.moments(x).var)(x)
        np.testing.assert_allclose(parts.sum(axis=0), found, rtol=1e-10)
        assert (parts >= 0).all()
        assert not parts[5].any()  # an activation draws nothing
        if x is not correlated:
            near = np.concatenate([X, X + 1e-6, X])
            wide = between(net, Gaussian(near))
            np.testing.assert_allclose(np.einsum("drr->rd", wide)[:4], found, rtol=1e-9)
            assert np.linalg.eigvalsh(wide).min() > -1e-12 * np.trace(wide[0])
            halves = between(net, Gaussian(near), Gaussian(near[3:5]))
            np.testing.assert_allclose(halves, wide[:, :, 3:5], rtol=1e-10)


def test_names_of_layers():
    assert layer_names(deep().flat) == {
        0: "Dropout on the inputs",
        1: "weights of layer 1",
        3: "Dropout after layer 1",
        4: "weights of layer 2",
        6: "Dropout after layer 2",
        7: "weights of layer 3",
    }


def test_a_layer_that_does_not_know():
    class Own(nn.AbstractLayer):
        def moments(self, x):
            return x

        def sample(self, key):
            return lambda x: x

    class Flip(nn.AbstractNoise):
        def moments(self, x):
            return Gaussian(0 * x.mean, x.second_moment())

        def corrupt(self, key, x):
            return -x

    for layer, word in ((Own(), "between_rows"), (Flip(), "covariance")):
        with pytest.raises(TypeError, match=f"not known for {type(layer).__name__}.*`{word}`"):
            covariance_between_rows([layer], Gaussian(X), Gaussian(X))


# ---- from a model to a Predictive ----------------------------------------------------------------


@pytest.fixture(scope="module")
def predicted():
    """Of 276 rows by a deep model with several targets, scaled; and the covariance at one go."""
    model = tiny.model(n_inputs=3, n_outputs=2, hidden_layer_sizes=(3, 3))
    x, x_var = RNG.normal(size=(N, 3)), RNG.uniform(0, 0.2, (N, 3))
    scaling = Scaling(
        np.array([1.0, 0, 0]), np.array([2.0, 1, 1]), np.ones(2), np.array([3.0, 0.5])
    )
    found = propagate(model, x, x_var=x_var, scaling=scaling)
    with jax.enable_x64(True):
        scaled = Gaussian((x - scaling.x_shift) / scaling.x_scale, x_var / scaling.x_scale**2)
        cov, parts = between(model.network, scaled), budget(model.network, scaled)
    return found, cov * scaling.y_scale[:, None, None] ** 2, parts


def test_a_networks_rows_in_blocks_are_those_at_one_go(predicted):
    found, cov, parts = predicted
    off = ~np.eye(N, dtype=bool)
    got = np.moveaxis(found.rows_cov(), -1, 0)
    # The variances are of single precision.
    size = np.sqrt(np.einsum("dii->di", got))
    error = np.abs(got - cov) / size[:, None] / size[..., None]
    assert error[:, off].max() < 1e-5
    np.testing.assert_allclose(np.einsum("dii->id", got), found.var, rtol=1e-12)
    assert np.linalg.eigvalsh(got).min() > 0
    share = found.budget()
    np.testing.assert_allclose(share.variance.sum(axis=1), found.var, rtol=1e-10)
    names = [f"error of X[:, {i}]" for i in range(3)]
    names += [f"weights of layer {i}" for i in (1, 2, 3)]
    assert share.names == [*names, NOISE]
    want = parts[[0, 1, 2, 3, 5, 7]] / parts.sum(axis=0) * found.model_var
    np.testing.assert_allclose(np.moveaxis(share.variance[:, :-1], 1, 0), want, rtol=1e-6)


def linear_model(n_targets=2):
    scaling = Scaling(np.ones(3), np.full(3, 2.0), np.zeros(n_targets), np.full(n_targets, 3.0))
    root = RNG.normal(size=(n_targets, 3, 3))
    return LinearModel(
        scaling,
        np.array([0.1, 0.2, 0.3]),
        RNG.normal(size=(n_targets, 3)),
        np.ones(n_targets),
        np.full(n_targets, 0.5),
        root @ root.swapaxes(1, 2),
    )


@pytest.mark.parametrize("kind", ["known", "variances", "covariances"])
def test_the_linear_models_rows_by_hand(kind):
    model = linear_model()
    root = RNG.normal(size=(4, 3, 3))
    x_cov = {
        "known": None,
        "variances": np.einsum("ri,ij->rij", RNG.uniform(0.1, 1, (4, 3)), np.eye(3)),
        "covariances": root @ root.swapaxes(1, 2),
    }[kind]
    x_var = np.einsum("rii->ri", x_cov) if kind == "variances" else x_cov
    p = model.predict_dist(X, x_var)
    z = (X - 1) / 2 - model.center
    cov = 9 * np.einsum("ri,tij,sj->trs", z, model.cov, z)
    for t in range(2):
        extra = np.full(4, 9 * 0.5)
        if x_cov is not None:
            second = np.outer(model.coef[t], model.coef[t]) + model.cov[t]
            extra = extra + 9 / 4 * np.einsum("rij,ij->r", x_cov, second)
        np.testing.assert_allclose(p.rows_cov()[..., t], cov[t] + np.diag(extra), rtol=1e-10)
    share = p.budget()
    np.testing.assert_allclose(share.variance.sum(axis=1), p.var, rtol=1e-12)
    assert (share.variance >= 0).all()
    assert "linear coefficients" in share.names


def test_a_single_joint_target_keeps_its_rows():
    p = in_units(
        np.zeros((3, 1)), np.ones((3, 1, 1)), np.ones(1), Scaling.identity(3, 1), squeeze=True
    )
    assert p.rows_cov().tolist() == (2 * np.eye(3)).tolist()
