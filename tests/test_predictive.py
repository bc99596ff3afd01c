"""`Predictive` checked against scipy, mpmath, quadrature and its own samples."""

from __future__ import annotations

import ast
import doctest
import pickle
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import varprop.predictive
from varprop.predictive import Predictive
from varprop.predictive.mixtures import mixture_entropy, mixture_quantile

# A two-sided z-test at 6 standard errors: a false alarm in 2e-9 of the comparisons.
Z_LIMIT = 6.0


def random_mixture(rng, *, k=3, n=4, d=1, joint=False, scale=1.0, log_ratio=0.5):
    """A mixture with unequal weights and, if asked, correlated outputs."""
    members = []
    for _ in range(k):
        mean = scale * rng.standard_normal((n, d))
        var = (scale * np.exp(log_ratio * rng.standard_normal((n, d)))) ** 2
        noise = scale**2 * rng.uniform(0.1, 1.0, (n, d))
        if joint:
            root = scale * rng.standard_normal((n, d, d))
            members.append(Predictive.joint(mean, root @ root.swapaxes(-1, -2), noise))
        else:
            members.append(Predictive.gaussian(mean, var, noise))
    return Predictive.mixture(members, rng.uniform(0.2, 1.0, k))


def exact_quantile(alpha, w, m, s):
    """Bisection in 60 digits; the weights are made to sum to one exactly."""
    with mp.workdps(60):
        total = mp.fsum(mp.mpf(float(a)) for a in w)
        z = mp.mpf(float(stats.norm.ppf(alpha)))
        ends = [mp.mpf(float(b)) + mp.mpf(float(c)) * z for b, c in zip(m, s, strict=True)]
        lo, hi = min(ends) - mp.mpf(1e-6) * max(s), max(ends) + mp.mpf(1e-6) * max(s)
        for _ in range(160):
            mid = (lo + hi) / 2
            z = [(mid - mp.mpf(float(b))) / mp.mpf(float(c)) for b, c in zip(m, s, strict=True)]
            value = mp.fsum(mp.mpf(float(a)) * mp.ncdf(t) for a, t in zip(w, z, strict=True))
            lo, hi = (lo, mid) if value >= total * mp.mpf(float(alpha)) else (mid, hi)
        return float(hi)


def test_doctests():
    assert doctest.testmod(varprop.predictive).failed == 0


def test_no_jax():
    files = list(Path(varprop.predictive.__file__).parent.glob("*.py"))
    assert len(files) > 5
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            modules = []
            if isinstance(node, ast.Import):
                modules = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            assert not any(m.split(".")[0] in ("jax", "equinox") for m in modules)


# ---- one Gaussian -----------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-150, 1e-3, 1.0, 1e8, 1e150])
def test_gaussian_equals_scipy(scale):
    rng = np.random.default_rng(0)
    mean = scale * rng.standard_normal(7)
    var = scale**2 * rng.uniform(0.5, 2.0, 7)
    p = Predictive.gaussian(mean, var, 0.25 * scale**2)
    ref = stats.norm(mean, np.sqrt(var + 0.25 * scale**2))
    y = ref.rvs(random_state=1)
    np.testing.assert_allclose(p.mean, mean)
    np.testing.assert_allclose(p.var, ref.var(), rtol=1e-14)
    np.testing.assert_allclose(p.model_var + p.noise_var, p.var, rtol=1e-14)
    np.testing.assert_allclose(p.cdf(y), ref.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(p.logpdf(y), ref.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(p.pdf(y), np.exp(p.logpdf(y)))
    np.testing.assert_allclose(p.marginal_logpdf(y), p.logpdf(y))
    np.testing.assert_allclose(p.entropy(), ref.entropy(), rtol=1e-12)
    alpha = np.array([[1e-300, 1e-10, 0.3], [0.5, 0.9, 1 - 1e-15]])
    expected = np.moveaxis(ref.ppf(alpha[..., None]), -1, 0)
    assert p.quantile(alpha).shape == (7, 2, 3)
    np.testing.assert_allclose(p.quantile(alpha), expected, atol=1e-12 * scale, rtol=1e-12)


def test_std_below_the_root_of_the_smallest_number_is_a_point_mass():
    p = Predictive.gaussian([1.0], [1e-300 * 1e-300], 0.0)
    assert p.std.tolist() == [0.0]
    assert p.cdf(np.nextafter(1.0, 0.0)).tolist() == [0.0]
    assert p.cdf(1.0).tolist() == [1.0]
    assert p.logpdf(1.0).tolist() == [np.inf]
    assert p.logpdf(2.0).tolist() == [-np.inf]
    assert p.quantile(0.01).tolist() == [1.0]
    assert p.entropy().tolist() == [-np.inf]
    assert p.sample(3, 0).tolist() == [[1.0] * 3]


def test_joint_equals_scipy_in_any_units():
    rng = np.random.default_rng(1)
    root = rng.standard_normal((5, 3, 3))
    unit = np.array([1e-120, 1.0, 1e120])
    cov = root @ root.swapaxes(-1, -2)
    mean, noise = rng.standard_normal((5, 3)), rng.uniform(0.1, 1.0, 3)
    p = Predictive.joint(mean * unit, cov * unit * unit[:, None], noise * unit**2)
    y = rng.standard_normal((5, 3))
    total = cov + noise * np.eye(3)
    ref = [stats.multivariate_normal(m, c) for m, c in zip(mean, total, strict=True)]
    expected = [r.logpdf(v) for r, v in zip(ref, y, strict=True)]
    shift = np.log(unit).sum()
    np.testing.assert_allclose(p.logpdf(y * unit), np.array(expected) - shift, rtol=1e-9)
    np.testing.assert_allclose(p.entropy(), [r.entropy() + shift for r in ref], rtol=1e-9)
    np.testing.assert_allclose(p.output_cov, total * unit * unit[:, None], rtol=1e-12)


# ---- mixtures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("joint", [False, True])
def test_mixture_moments_are_the_law_of_total_variance(joint):
    p = random_mixture(np.random.default_rng(2), k=4, d=2, joint=joint)
    w = p.weights[:, 0]
    mean = np.einsum("k,knd->nd", w, p.member_mean)
    apart = p.member_mean - mean
    var = np.diagonal(p.member_model, axis1=-2, axis2=-1) if joint else p.member_model
    np.testing.assert_allclose(p.mean, mean)
    np.testing.assert_allclose(p.noise_var, np.einsum("k,knd->nd", w, p.member_noise))
    np.testing.assert_allclose(p.model_var, np.einsum("k,knd->nd", w, var + apart**2))
    np.testing.assert_allclose(np.diagonal(p.output_cov, axis1=-2, axis2=-1), p.var)
    between = np.einsum("k,kni,knj->nij", w, apart, apart)
    cross = np.einsum("k,knij->nij", w, p.member_model)[:, 0, 1] if joint else 0.0
    np.testing.assert_allclose(p.output_cov[:, 0, 1], between[:, 0, 1] + cross, atol=1e-14)


@pytest.mark.parametrize("alpha", [1e-200, 1e-9, 0.05, 0.5, 0.8, 1 - 1e-12])
@pytest.mark.parametrize(("log_ratio", "scale"), [(0.3, 1.0), (3.0, 1e-140), (5.0, 1e140)])
def test_mixture_quantile_against_mpmath(alpha, log_ratio, scale):
    rng = np.random.default_rng(3)
    k, n = 3, 4
    w = rng.dirichlet(np.ones(k), n).T
    m = scale * rng.standard_normal((k, n))
    s = scale * np.exp(log_ratio * rng.standard_normal((k, n)))
    got = mixture_quantile(alpha, w, m, s)
    std = np.sqrt((w * (s / scale) ** 2).sum(axis=0)) * scale
    for j in range(n):
        exact = exact_quantile(alpha, w[:, j], m[:, j], s[:, j])
        assert abs(got[j] - exact) <= 1e-10 * std[j] + 2 * np.spacing(abs(exact))


@pytest.mark.parametrize(
    ("m", "s", "w", "expected"),
    [
        ([-100.0, 100.0], [1.0, 1.0], [0.5, 0.5], 0.0),  # both tails underflow in the gap
        ([-100.0, 100.0], [1.0, 2.0], [0.5, 0.5], -100 / 3),  # equal z: (x + 100) = (100 - x) / 2
        ([0.0, 1.0], [1e-5, 1e-5], [0.5, 0.5], 0.5),
        ([0.0, 1.0], [0.0, 0.0], [0.5, 0.5], 0.0),  # two point masses: smallest x with cdf >= 1/2
        ([0.0, 1.0], [0.0, 0.0], [0.4, 0.6], 1.0),
        ([0.0, 0.0], [0.0, 1.0], [0.5, 0.5], 0.0),
        ([0.3, 0.0, 9e99], [1e-150] * 3, [0.1, 0.9, 0.0], stats.norm.ppf(5 / 9) * 1e-150),
        ([-1e150, 1e150], [1e-100, 1e-100], [0.3, 0.7], 1e150),
        ([-1e308, 1e308], [1e150, 1e150], [0.5, 0.5], 0.0),  # farther apart than the largest float
        ([1.0, 1.0], [1e3, 1e3], [0.3, 0.7], 1.0),  # an ulp of x is less than the cdf's rounding
    ],
)
def test_median_of_awkward_mixtures(m, s, w, expected):
    m, s, w = (np.array(a)[:, None] for a in (m, s, w))
    got = mixture_quantile(0.5, w, m, s)[0]
    assert got == pytest.approx(expected, rel=1e-12, abs=1e-11 * s.max())


def test_quantile_next_to_point_mass():
    a = Predictive.gaussian([0.0], [0.0], 0.0)
    b = Predictive.gaussian([0.0], [1.0], 0.0)
    p = Predictive.mixture([a, b])
    # The jump at zero spans (0.25, 0.75]; outside it the Gaussian half decides.
    assert p.quantile([0.26, 0.5, 0.74])[0].tolist() == [0.0] * 3
    np.testing.assert_allclose(p.quantile([0.05, 0.9])[0], stats.norm.ppf([0.1, 0.8]), 1e-10)


finite = st.floats(-5, 5)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(finite, st.floats(-7, 7), st.floats(0.01, 1)), min_size=1, max_size=10),
    st.floats(1e-12, 1 - 1e-12),
)
def test_cdf_inverts_quantile(members, alpha):
    m, e, w = (np.array(c)[:, None] for c in zip(*members, strict=True))
    p = Predictive.mixture(
        [Predictive.gaussian(a, 10.0 ** (2 * b), 0.0) for a, b in zip(m, e, strict=True)], w[:, 0]
    )
    q = p.quantile(alpha)
    # q is correct to an ulp; where a member is narrow an ulp of q is more of the cdf.
    slack = p.cdf(q + 2 * np.spacing(np.abs(q))) - p.cdf(q - 2 * np.spacing(np.abs(q)))
    assert abs(p.cdf(q)[0] - alpha) <= slack[0] + 4e-15


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.floats(-40, 40), st.floats(-100, 100), st.booleans())
def test_affine_equivariance(seed, log_scale, shift, flip):
    rng = np.random.default_rng(seed)
    p = random_mixture(rng)
    a = np.exp(log_scale) * (-1 if flip else 1)
    b = shift * abs(a)
    q = Predictive(a * p.member_mean + b, a**2 * p.member_model, a**2 * p.member_noise, p.weights)
    alpha = np.array([0.01, 0.3, 0.9])
    y = p.sample(1, rng)[..., 0]
    near = {"rtol": 1e-9, "atol": 1e-11 * abs(a)}
    np.testing.assert_allclose(q.mean, a * p.mean + b, **near)
    np.testing.assert_allclose(q.std, abs(a) * p.std, rtol=1e-9)
    expected = a * p.quantile(1 - alpha if flip else alpha) + b
    np.testing.assert_allclose(q.quantile(alpha), expected, **near)
    np.testing.assert_allclose(q.logpdf(a * y + b), p.logpdf(y) - np.log(abs(a)), atol=1e-9)
    np.testing.assert_allclose(q.entropy(), p.entropy() + np.log(abs(a)), atol=1e-7)


@pytest.mark.parametrize("joint", [False, True])
def test_mixture_of_identical_members_is_the_member(joint):
    rng = np.random.default_rng(5)
    p = random_mixture(rng, k=1, d=2, joint=joint)
    q = Predictive.mixture([p] * 10)
    y = p.sample(1, rng)[..., 0]
    assert q.n_members == 10
    assert (q.mean == p.mean).all()
    np.testing.assert_allclose(q.output_cov, p.output_cov, rtol=1e-14)
    np.testing.assert_allclose(q.logpdf(y), p.logpdf(y), rtol=1e-13)
    np.testing.assert_allclose(q.cdf(y), p.cdf(y), rtol=1e-13)
    np.testing.assert_allclose(q.quantile([0.1, 0.9]), p.quantile([0.1, 0.9]), rtol=1e-12)
    np.testing.assert_allclose(q.marginal(0).entropy(), p.marginal(0).entropy(), atol=1e-8)
    assert Predictive.mixture([p]).n_members == 1


def test_nested_mixture_is_flat():
    rng = np.random.default_rng(6)
    a, b, c = (random_mixture(rng, k=1) for _ in range(3))
    nested = Predictive.mixture([Predictive.mixture([a, b]), c])
    flat = Predictive.mixture([a, b, c], [1, 1, 2])
    np.testing.assert_allclose(nested.quantile(0.3), flat.quantile(0.3), rtol=1e-12)


def test_mixed_joint_and_plain_members():
    rng = np.random.default_rng(7)
    a, b = random_mixture(rng, k=1, d=2), random_mixture(rng, k=1, d=2, joint=True)
    y = a.mean
    p = Predictive.mixture([a, b])
    expected = np.logaddexp(a.logpdf(y), b.logpdf(y)) - np.log(2)
    np.testing.assert_allclose(p.logpdf(y), expected, rtol=1e-12)


def test_pdf_is_the_derivative_of_cdf_and_integrates_to_one():
    p = random_mixture(np.random.default_rng(8), n=1)

    def density(y):
        return p.pdf([[y]])[0]

    total, _ = integrate.quad(density, -60, 60, limit=500, epsabs=1e-12)
    below, _ = integrate.quad(density, -60, 0.4, limit=500, epsabs=1e-12)
    assert total == pytest.approx(1.0, abs=1e-9)
    assert below == pytest.approx(p.cdf(0.4)[0, 0], abs=1e-9)


@pytest.mark.parametrize(("spread", "ratio"), [(1.0, 1.0), (20.0, 1.0), (3.0, 1e-4)])
def test_mixture_entropy_against_mpmath(spread, ratio):
    w, m = np.array([0.3, 0.7]), np.array([0.0, spread])
    s = np.array([1.0, ratio])
    with mp.workdps(30):
        f = [
            lambda x, a=a, b=b, c=c: a * mp.npdf(x, mp.mpf(b), mp.mpf(c))
            for a, b, c in zip(w.tolist(), m.tolist(), s.tolist(), strict=True)
        ]

        def minus_f_log_f(x):
            v = f[0](x) + f[1](x)
            return -v * mp.log(v) if v > 0 else mp.mpf(0)

        grid = {
            mp.mpf(b) + mp.mpf(c) * t for b, c in zip(m, s, strict=True) for t in range(-12, 13)
        }
        exact = float(mp.quad(minus_f_log_f, sorted(grid)))
    got = mixture_entropy(w[:, None], m[:, None], s[:, None])[0]
    assert got == pytest.approx(exact, abs=1e-6)


def test_entropy_of_far_members_is_the_sum_rule():
    w, k, n = np.full((10, 1), 0.1), 10, 3
    m, s = np.arange(k)[:, None] * 1e6 * np.ones(n), np.ones((k, n))
    expected = 0.5 * np.log(2 * np.pi * np.e) + np.log(10)
    np.testing.assert_allclose(
        mixture_entropy(np.broadcast_to(w, m.shape), m, s), expected, atol=1e-9
    )


def test_entropy_resolves_a_member_far_below_the_spacing_of_its_mean():
    w, m, s = np.array([[0.3], [0.7]]), np.array([[0.0], [1.0]]), np.array([[1.0], [1e-150]])
    alone = 0.5 * np.log(2 * np.pi * np.e) + np.log(s)
    # The members' overlap is worth about 1e-148 nats here.
    expected = (w * (alone - np.log(w))).sum()
    assert mixture_entropy(w, m, s)[0] == pytest.approx(expected, abs=1e-6)


def test_entropy_of_several_outputs_is_refused_with_a_way_out():
    p = random_mixture(np.random.default_rng(9), d=2)
    with pytest.raises(ValueError, match=r"logpdf\(p\.sample"):
        p.entropy()


# ---- sampling ---------------------------------------------------------------------------------


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("k", [1, 10])
def test_sample_has_the_stated_moments_and_quantiles(k, joint):
    p = random_mixture(np.random.default_rng(10), k=k, n=3, d=2, joint=joint)
    draws = p.sample(40_000, random_state=11)
    root_n = np.sqrt(40_000)
    assert draws.shape == (3, 2, 40_000)
    nats = -p.logpdf(draws)
    assert nats.shape == (3, 40_000)
    draws, nats = np.moveaxis(draws, -1, 0), nats.T
    z = (draws.mean(axis=0) - p.mean) / p.std * root_n
    assert np.abs(z).max() < Z_LIMIT
    apart = draws - p.mean
    products = np.einsum("sni,snj->snij", apart, apart)
    z = (products.mean(axis=0) - p.output_cov) / products.std(axis=0) * root_n
    assert np.abs(z).max() < Z_LIMIT
    for coverage in (0.5, 0.9):
        lower, upper = p.interval(coverage)
        inside = ((draws >= lower) & (draws <= upper)).mean(axis=0)
        z = (inside - coverage) / np.sqrt(coverage * (1 - coverage)) * root_n
        assert np.abs(z).max() < Z_LIMIT
    # E[-log p(Y)] by sampling, against the closed form where there is one.
    if k == 1:
        z = (nats.mean(axis=0) - p.entropy()) / nats.std(axis=0) * root_n
        assert np.abs(z).max() < Z_LIMIT


def test_sample_is_reproducible_and_takes_every_kind_of_seed():
    p = random_mixture(np.random.default_rng(12))
    np.testing.assert_array_equal(p.sample(3, 5), p.sample(3, 5))
    np.testing.assert_array_equal(p.sample(3, 5), p.sample(3, np.random.default_rng(5)))
    assert p.sample(3, np.random.RandomState(5)).shape == (4, 1, 3)
    assert p.sample().shape == (4, 1, 1)
    with pytest.raises(ValueError, match="at least 1"):
        p.sample(0)


def test_sample_of_singular_covariance():
    p = Predictive.joint([[0.0, 0.0]], [[[1.0, 2.0], [2.0, 4.0]]], 0.0)
    draws = p.sample(100, 0)[0]
    np.testing.assert_allclose(draws[1], 2 * draws[0], atol=1e-6)
    with pytest.raises(ValueError, match="singular at row 0"):
        p.logpdf([[0.0, 0.0]])


def test_members_of_weight_zero_never_matter():
    a, b = Predictive.gaussian([0.0], [1.0], 0.0), Predictive.gaussian([1e100], [1.0], 0.0)
    p = Predictive.mixture([a, b], [1.0, 0.0])
    assert np.abs(p.sample(10_000, 0)).max() < 10
    np.testing.assert_allclose(p.quantile(0.9), a.quantile(0.9), rtol=1e-14)
    np.testing.assert_allclose(p.logpdf(0.3), a.logpdf(0.3), rtol=1e-14)


# ---- marginals and conditionals ---------------------------------------------------------------


def test_conditional_equals_the_formula():
    rng = np.random.default_rng(13)
    p = random_mixture(rng, k=1, d=4, n=6, joint=True)
    y = p.sample(1, rng)[..., 0]
    q = p.conditional({3: y[:, 3], 1: y[:, 1]})
    rest, seen = [0, 2], [3, 1]
    for i in range(6):
        c = p.output_cov[i]
        gain = c[np.ix_(rest, seen)] @ np.linalg.inv(c[np.ix_(seen, seen)])
        mean = p.mean[i, rest] + gain @ (y[i, seen] - p.mean[i, seen])
        cov = c[np.ix_(rest, rest)] - gain @ c[np.ix_(seen, rest)]
        np.testing.assert_allclose(q.mean[i], mean, rtol=1e-9)
        np.testing.assert_allclose(q.output_cov[i], cov, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(q.noise_var, p.noise_var[:, rest])


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("k", [1, 4])
def test_chain_rule(k, joint):
    rng = np.random.default_rng(14)
    p = random_mixture(rng, k=k, d=3, joint=joint)
    y = p.sample(1, rng)[..., 0]
    q = p.conditional({-1: y[:, 2]})
    total = p.marginal(2).logpdf(y[:, 2]) + q.logpdf(y[:, :2])
    np.testing.assert_allclose(total, p.logpdf(y), rtol=1e-10)
    # Row by row the weights differ now; rows must still be sliceable and mixable.
    np.testing.assert_allclose(q[1:3].logpdf(y[1:3, :2]), q.logpdf(y[:, :2])[1:3])
    again = Predictive.mixture([q, q])
    np.testing.assert_allclose(again.logpdf(y[:, :2]), q.logpdf(y[:, :2]), rtol=1e-12)


def test_conditional_of_a_mixture_against_sampling():
    rng = np.random.default_rng(15)
    p = random_mixture(rng, k=3, n=1, d=2, joint=True)
    draws = p.sample(2_000_000, rng)[0].T
    value, width = float(p.mean[0, 0]), 0.01
    near = draws[np.abs(draws[:, 0] - value) < width, 1]
    q = p.conditional({0: value})
    # A window of this width biases the mean by far less than its standard error (about 1%).
    z = (near.mean() - q.mean[0, 0]) / q.std[0, 0] * np.sqrt(len(near))
    assert len(near) > 1000
    assert abs(z) < Z_LIMIT
    assert stats.kstest(near, lambda v: q.cdf(v[None, None])[0, 0]).pvalue > 1e-9


def test_conditional_far_out_keeps_the_best_member():
    a = Predictive.gaussian([[0.0, 0.0]], [[1.0, 1.0]], 0.0)
    b = Predictive.gaussian([[0.0, 5.0]], [[4.0, 1.0]], 0.0)
    q = Predictive.mixture([a, b]).conditional({0: 1e6})
    np.testing.assert_allclose(q.mean, [[5.0]])
    with pytest.raises(ValueError, match="zero density at row 0"):
        Predictive.mixture([a, b]).conditional({0: 1e200})


def test_marginal():
    p = random_mixture(np.random.default_rng(16), d=3, joint=True)
    one, two = p.marginal(1), p.marginal([2, 0])
    assert one.mean.shape == (4,)
    assert two.mean.shape == (4, 2)
    np.testing.assert_allclose(one.var, p.var[:, 1])
    np.testing.assert_allclose(two.output_cov, p.output_cov[:, [2, 0]][:, :, [2, 0]])
    np.testing.assert_allclose(one.quantile(0.2), p.quantile(0.2)[:, 1])
    np.testing.assert_allclose(one.logpdf(0.1), p.marginal_logpdf(0.1)[:, 1])


# ---- shapes, rows, errors ---------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("shape", [(1,), (5,), (1, 1), (5, 1), (1, 3), (5, 3)])
def test_public_shapes(shape, k):
    one = Predictive.gaussian(np.zeros(shape), np.ones(shape), 0.5)
    p = Predictive.mixture([one] * k)
    n = shape[0]
    for a in (p.mean, p.var, p.std, p.model_var, p.noise_var, *p.interval(), p.quantile(0.5)):
        assert a.shape == shape
        assert a.dtype == np.float64
    d = p.n_outputs
    assert p.output_cov.shape == (n, d, d)
    assert p.sample(7, 0).shape == (*shape, 7)
    assert p.quantile(np.full((2, 4), 0.5)).shape == (*shape, 2, 4)
    for f, tail in ((p.cdf, shape), (p.marginal_logpdf, shape), (p.logpdf, (n,)), (p.pdf, (n,))):
        assert f(0.0).shape == tail
        assert f(np.zeros(shape)).shape == tail
        assert f(np.zeros((*shape, 2, 4))).shape == (*tail, 2, 4)
    assert len(p) == n
    assert p[0].mean.shape == (1, *shape[1:])
    assert len(list(p)) == n
    p.mean[...] = 7.0  # results are copies
    assert (p.mean == 0).all()


def test_rows_and_pickle():
    p = random_mixture(np.random.default_rng(17), n=6, d=2, joint=True)
    mask = np.array([True, False, True, False, False, True])
    for rows in (slice(1, 4), [0, 2], mask, np.array([-1])):
        np.testing.assert_array_equal(p[rows].mean, p.mean[rows])
        np.testing.assert_array_equal(p[rows].output_cov, p.output_cov[rows])
    np.testing.assert_array_equal(p[-1].mean, p.mean[-1:])
    copy = pickle.loads(pickle.dumps(p))
    np.testing.assert_array_equal(copy.quantile(0.3), p.quantile(0.3))
    assert repr(p) == "Predictive(n_rows=6, n_outputs=2, n_members=3, joint=True)"
    with pytest.raises(IndexError):
        p[6]
    with pytest.raises(IndexError):
        p[np.zeros((2, 2), dtype=int)]
    with pytest.raises(ValueError, match="no rows"):
        p[3:3]


EYE = np.eye(2)[None]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Predictive.gaussian([], [], 1.0), "at least one row"),
        (lambda: Predictive.gaussian(1.0, 1.0, 1.0), r"shape \(n,\) or \(n, d\)"),
        (lambda: Predictive.gaussian([0.0], [1.0, 2.0], 1.0), r"model_var has shape \(2,\)"),
        (lambda: Predictive.gaussian([[0, 0]], [[1, -2]], 1.0), "negative at row 0, output 1: -2"),
        (lambda: Predictive.gaussian([0.0, np.nan], [1, 1], 1.0), "mean is not finite at row 1"),
        (lambda: Predictive.gaussian([0.0], [np.inf], 1.0), "model_var is not finite at row 0"),
        (lambda: Predictive.gaussian([0.0], [1.0], -1.0), "noise_var must be finite"),
        (
            lambda: Predictive.gaussian([0, 0], [1, 1], [1.0, -1.0]),
            "noise_var is negative at row 1",
        ),
        (lambda: Predictive.gaussian([0.0, 0.0], [1, 1], [1.0] * 3), r"noise_var has shape \(3,\)"),
        (lambda: Predictive.gaussian(["a"], [1.0], 1.0), "mean must be numbers"),
        (lambda: Predictive.joint([0.0], [[[1.0]]], 1.0), "joint needs a mean"),
        (lambda: Predictive.joint([[0, 0]], [[1.0, 1.0]], 1.0), "model_cov has shape"),
        (lambda: Predictive.joint([[0, 0]], [[[1, 2], [2, 1]]], 1.0), "semi-definite at row 0"),
        (lambda: Predictive.joint([[0, 0]], [[[1, 0.5], [0, 1]]], 1.0), "not symmetric at row 0"),
        (
            lambda: Predictive.joint([[0, 0]], [[[1, 0], [0, -1]]], 1.0),
            "negative at row 0, output 1",
        ),
        (lambda: Predictive.joint([[0, 0]], EYE * np.nan, 1.0), "model_cov is not finite"),
        (lambda: Predictive.mixture([]), "at least one member"),
        (lambda: Predictive.mixture([PLAIN, PLAIN], [1.0]), "weights has shape"),
        (lambda: Predictive.mixture([PLAIN, PLAIN], [0.0, 0.0]), "not all zero"),
        (lambda: Predictive.mixture([PLAIN, PLAIN.marginal(0)]), "Member 1 has shape"),
        (lambda: PLAIN.quantile(0.0), "strictly between"),
        (lambda: PLAIN.quantile([0.5, np.nan]), "strictly between"),
        (lambda: PLAIN.interval(1.0), "strictly between"),
        (lambda: PLAIN.cdf([0.0, 0.0]), "y has shape"),
        (lambda: PLAIN.marginal(2), "Output 2 does not exist"),
        (lambda: PLAIN.marginal([0, -2]), "distinct"),
        (lambda: PLAIN.conditional({}), "distinct"),
        (lambda: PLAIN.conditional({0: 1.0, 1: 1.0}), "none is left"),
        (lambda: PLAIN.conditional({1: np.nan}), "not finite at row 0, output 1"),
        (lambda: PLAIN.conditional({1: [1.0, 2.0]}), "values of output 1 have shape"),
        (lambda: POINT.conditional({1: 1.0}), "Output 1 has zero variance at row 0"),
    ],
)
def test_mistakes_are_named(build, message):
    with pytest.raises(ValueError, match=message):
        build()


PLAIN = Predictive.gaussian([[0.0, 0.0]], [[1.0, 1.0]], 0.0)
POINT = Predictive.gaussian([[0.0, 0.0]], [[1.0, 0.0]], 0.0)


def test_single_precision_covariances_pass():
    rng = np.random.default_rng(18)
    root = rng.standard_normal((1000, 5, 2)).astype(np.float32)  # rank two
    cov = root @ root.swapaxes(-1, -2)
    p = Predictive.joint(np.zeros((1000, 5)), cov, 1e-3)
    assert np.isfinite(p.logpdf(0.0)).all()
    q = p.conditional({0: 1.0, 1: -1.0, 2: 0.5})
    assert (q.model_var >= 0).all()
