"""Counts with an uncertain rate, against SciPy, mpmath, brute-force sums and draws."""

import mpmath as mp
import numpy as np
import pytest
import scoringrules
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from truth import sampling_z, threshold
from varprop.predictive import Counts, Predictive, diagnostics, metrics, mixture, scorecard
from varprop.predictive.rates import log_pmf, sum_rule, tail

RATES = np.array([0.01, 0.5, 3.0, 40.0, 1000.0])
ALPHA = np.array([1e-6, 0.05, 0.3, 0.5, 0.9, 0.999, 1 - 1e-9])


def known(rate, dispersion):
    """A prediction whose rates are known, and the same by SciPy, (n, 1)."""
    rate = np.asarray(rate)
    p = Counts(Predictive.gaussian(np.log(rate), 0 * rate, 0.0), dispersion)
    rate = rate[:, None]
    if dispersion == 0:
        return p, stats.poisson(rate)
    return p, stats.nbinom(1 / dispersion, 1 / (1 + dispersion * rate))


def members(n=3, seed=0):
    """A mixture of two members with dispersions of their own, and two outputs."""
    rng = np.random.default_rng(seed)
    parts = [
        Counts(Predictive.gaussian(rng.normal(m, 0.3, (n, 2)), np.full((n, 2), 0.1), 0.02), c)
        for m, c in ((1.0, [0.0, 0.5]), (2.0, [0.3, 0.1]))
    ]
    return parts, Counts.mixture(parts, [0.6, 0.4])


def averaged(k, mean, std, dispersion, what):
    """A probability averaged over the rate by the trapezoidal rule, 0.05 of any width apart."""
    width = min(std, np.sqrt(1 / (k + 1) + dispersion))
    f = np.linspace(mean - 14 * std, mean + 14 * std, int(28 * std / (0.05 * width)) + 2001)
    rate = np.exp(f)
    r = 1 / dispersion if dispersion else np.inf
    given = stats.nbinom(r, 1 / (1 + dispersion * rate)) if dispersion else stats.poisson(rate)
    return (stats.norm.pdf(f, mean, std) * getattr(given, what)(k)).sum() * (f[1] - f[0])


@pytest.mark.parametrize("dispersion", [0.0, 1e-4, 0.3, 2.0])
def test_known_rates_are_scipys(dispersion):
    p, truth = known(RATES, dispersion)
    np.testing.assert_array_equal(p.quantile(ALPHA), truth.ppf(ALPHA))
    y = truth.ppf([0.001, 0.3, 0.9, 1 - 1e-9])
    np.testing.assert_allclose(p.logpdf(y), truth.logpmf(y), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(p.cdf(y), truth.cdf(y), rtol=0, atol=1e-8)
    np.testing.assert_allclose(p.cdf(y, left=True), truth.cdf(y - 1), rtol=0, atol=1e-8)
    np.testing.assert_allclose(p.cdf(y + 0.5), truth.cdf(y), rtol=0, atol=1e-8)
    np.testing.assert_allclose(p.survival(y), truth.sf(y), rtol=1e-4, atol=1e-14)
    np.testing.assert_allclose(p.mean, RATES, rtol=1e-12)
    np.testing.assert_allclose(p.var, RATES + dispersion * RATES**2, rtol=1e-12)
    assert (p.model_var == 0).all()


@pytest.mark.parametrize("dispersion", [0.0, 1e-3, 0.3, 5.0])
@pytest.mark.parametrize("std", [1e-3, 0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("mean", [-5.0, 0.0, 2.0, 7.0])
def test_uncertain_rates_are_averaged(dispersion, std, mean):
    """The stated errors: 1e-7 in the cdf and in the log probability."""
    k = np.unique(np.floor(np.exp(mean + std * np.array([-9, -3, -1, 0, 1, 3]))))
    every = np.full(len(k), 1.0)
    arguments = k, mean * every, std * every, dispersion * every
    cdf = [averaged(one, mean, std, dispersion, "cdf") for one in k]
    np.testing.assert_allclose(tail(*arguments), cdf, rtol=0, atol=1e-7)
    np.testing.assert_allclose(tail(*arguments, upper=True), 1 - np.array(cdf), rtol=0, atol=1e-7)
    pmf = [averaged(one, mean, std, dispersion, "pmf") for one in k]
    np.testing.assert_allclose(log_pmf(*arguments), np.log(pmf), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("dispersion", [1e-15, 1e-12, 1e-9, 1e-6, 20.0])
def test_probabilities_at_extreme_dispersions(dispersion):
    """SciPy's own lose their digits there."""
    k, rate = np.array([0.0, 3.0, 50.0, 1200.0]), 60.0
    with mp.workdps(60):
        r = 1 / mp.mpf(dispersion)
        truth = [
            float(
                mp.loggamma(y + r)
                - mp.loggamma(r)
                - mp.loggamma(y + 1)
                + y * mp.log(rate / (r + rate))
                + r * mp.log(r / (r + rate))
            )
            for y in map(mp.mpf, map(float, k))
        ]
    every = np.ones(len(k))
    found = log_pmf(k, np.log(rate) * every, 0 * every, dispersion * every)
    np.testing.assert_allclose(found, truth, rtol=1e-7, atol=1e-7)


def test_far_counts_keep_their_digits():
    """An integral between a narrow Gaussian and a far count, by mpmath."""
    mean, std, y = 0.0, 0.1, 1000.0
    with mp.workdps(40):

        def log_integrand(f):
            return y * f - mp.exp(f) - (f - mean) ** 2 / (2 * mp.mpf(std) ** 2)

        top = mp.findroot(lambda f: y - mp.exp(f) - f / mp.mpf(std) ** 2, 4.0)
        cuts = [top + t for t in (-1, -0.3, 0, 0.3, 1)]
        whole = mp.quad(lambda f: mp.exp(log_integrand(f) - log_integrand(top)), cuts)
        truth = log_integrand(top) + mp.log(whole / (std * mp.sqrt(2 * mp.pi))) - mp.loggamma(y + 1)
    one = np.ones(1)
    found = log_pmf(y * one, mean * one, std * one, 0 * one)[0]
    assert abs(found - float(truth)) < 1e-7
    assert found < -1000


def test_what_is_no_count_is_impossible():
    p, _ = known(RATES, 0.3)
    for y in (-1.0, 0.5, np.inf):
        assert (p.logpdf(y) == -np.inf).all()
        assert (p.marginal_logpdf(y) == -np.inf).all()
    assert p.cdf(-0.5).tolist() == [0.0] * 5 == p.cdf(0.0, left=True).tolist()
    assert p.cdf(np.inf).tolist() == [1.0] * 5
    assert p.survival(-1.0).tolist() == [1.0] * 5


def test_probabilities_sum_to_one_and_to_the_cdf():
    _, p = members()
    k = np.arange(400.0)
    every = np.broadcast_to(k, (3, 2, 400))
    total = np.exp(p.marginal_logpdf(every)).cumsum(axis=-1)
    np.testing.assert_allclose(total, p.cdf(every), rtol=0, atol=1e-7)
    np.testing.assert_allclose(total[..., -1], 1.0, rtol=0, atol=1e-6)
    # Outputs are independent within a member, not in the mixture.
    a, b = np.meshgrid(k[:150], k[:150], indexing="ij")
    pairs = np.broadcast_to(np.stack([a, b]), (3, 2, 150, 150))
    joint = np.exp(p.logpdf(pairs))
    one = np.exp(p.marginal_logpdf(every[..., :150]))
    np.testing.assert_allclose(joint.sum(axis=2), one[:, 0], rtol=0, atol=1e-4)
    assert np.abs(joint - one[:, 0, :, None] * one[:, 1, None]).max() > 1e-3


def test_moments_are_sums_over_counts():
    parts, p = members()
    k = np.arange(3000.0)
    pmf = np.exp(p.marginal_logpdf(np.broadcast_to(k, (3, 2, len(k)))))
    mean = (pmf * k).sum(axis=-1)
    np.testing.assert_allclose(p.mean, mean, rtol=1e-7)
    np.testing.assert_allclose(p.var, (pmf * k**2).sum(axis=-1) - mean**2, rtol=1e-6)
    np.testing.assert_allclose(p.model_var + p.noise_var, p.var, rtol=1e-13)
    # The model's part: the variance, over weights and members, of the mean given them.
    f = np.concatenate(
        [one.log_rate.member_mean + np.sqrt(0.1) * np.linspace(-9, 9, 4001)[:, None, None]
         for one in parts]
    )  # fmt: skip
    density = stats.norm.pdf(np.linspace(-9, 9, 4001)) * 18 / 4000
    weight = np.concatenate([0.6 * density, 0.4 * density])[:, None, None]
    given = np.exp(f + 0.01)  # the Gaussian noise of f, of variance 0.02, is no part of it
    model = (weight * given**2).sum(axis=0) - (weight * given).sum(axis=0) ** 2
    np.testing.assert_allclose(p.model_var, model, rtol=1e-8)


def test_draws_have_the_stated_distribution():
    """False alarms: 1e-4 in all."""
    n = 40_000
    _, p = members()
    drawn = p.sample(n, random_state=1)
    assert drawn.shape == (3, 2, n)
    assert (drawn == np.floor(drawn)).all()
    z_mean, z_var = sampling_z(np.moveaxis(drawn, -1, 0), p.mean, p.var)
    k = np.broadcast_to([0.0, 2.0, 5.0, 12.0], (3, 2, 4))
    expected = p.cdf(k)
    share = (drawn[..., None] <= k[:, :, None]).mean(axis=2)
    z_share = (share - expected) / np.sqrt(expected * (1 - expected) / n)
    z = np.concatenate([np.ravel(a) for a in (z_mean, z_var, z_share)])
    assert np.abs(z).max() < threshold(1e-4, len(z))
    # One member draws all outputs of a row: their covariance is that of the members' means.
    means = [np.exp(one.log_rate.member_mean[0] + 0.06) for one in members()[0]]
    cov = 0.24 * np.prod(means[0] - means[1], axis=-1)
    away = np.prod(drawn - p.mean[..., None], axis=1)
    z = (away.mean(axis=1) - cov) / (away.std(axis=1) / np.sqrt(n))
    assert np.abs(z).max() < threshold(1e-4, len(z))


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, 3.0])
def test_crps_is_closed_for_known_rates(share):
    rate = np.array([0.01, 0.5, 3.0, 40.0])
    y = np.floor(rate * share)
    p, _ = known(rate, 0.0)
    np.testing.assert_allclose(p.crps(y), scoringrules.crps_poisson(y, rate), rtol=1e-7)
    p, _ = known(rate, 0.4)
    truth = scoringrules.crps_negbinom(y, 2.5, 1 / (1 + 0.4 * rate))
    np.testing.assert_allclose(p.crps(y), truth, rtol=1e-7)


@pytest.mark.parametrize(("rate", "dispersion"), [(5e3, 0.0), (5e3, 0.1), (300.0, 3.0)])
def test_crps_of_many_counts_is_the_sum(rate, dispersion):
    p, truth = known(np.full(4, rate), dispersion)
    y = np.array([-2.0, 0.0, np.floor(0.9 * rate), 30 * rate])
    k = np.arange(40 * rate)
    gap = truth.cdf(k)[0] - (k >= y[:, None])
    np.testing.assert_allclose(p.crps(y), (gap**2).sum(axis=1) + np.maximum(-y, 0), rtol=1e-5)


def test_crps_of_a_mixture_is_the_sum():
    _, p = members()
    y = np.array([[0.0, 3.0], [5.0, 20.0], [100.0, 1.0]])
    k = np.arange(4000.0)
    gap = p.cdf(np.broadcast_to(k, (3, 2, len(k)))) - (k >= y[..., None])
    np.testing.assert_allclose(p.crps(y), (gap**2).sum(axis=-1), rtol=1e-6)


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 100, 10_001])
def test_the_rule_for_sums(count):
    nodes, weights = sum_rule(np.array([float(count)] * 2))
    k = np.arange(count)
    for function in (np.cos, np.ones_like) if count <= 8 else ():
        np.testing.assert_allclose((weights[1] * function(nodes[1])).sum(), function(k).sum())
    scaled = 2 * nodes[0] / count - 1
    for degree in (0, 1, 2, 7, 14, 15):
        truth = ((2 * k / count - 1) ** degree).sum()
        assert abs((weights[0] * scaled**degree).sum() - truth) < 1e-10 * count


def test_quantiles_of_uncertain_rates_are_the_smallest():
    _, p = members()
    q = p.quantile(ALPHA)
    assert q.shape == (3, 2, len(ALPHA))
    assert (p.cdf(q) >= ALPHA - 1e-9).all()
    assert (p.cdf(q - 1) < ALPHA).all()
    low, high = p.interval(0.9)
    np.testing.assert_array_equal(low, p.quantile(0.05))
    np.testing.assert_array_equal(high, p.quantile(0.95))


def test_a_quantile_is_the_count_that_just_reaches_it():
    """Three in four have no event, all others hundreds: 0 has a cdf of 0.75 to the last digit."""
    never, often = (Counts(Predictive.gaussian([m], [0.0], 0.0), 0.0) for m in (-800.0, 6.0))
    p = Counts.mixture([never, often], [0.75, 0.25])
    assert [p.quantile(a).item() for a in (0.1, 0.5, 0.75)] == [0, 0, 0]
    assert p.quantile(0.76).item() == stats.poisson(np.exp(6.0)).ppf(0.04)


def test_exposure_multiplies_rates():
    _, p = members()
    exposure = np.array([1.0, 0.1, 30.0])
    q = p.with_exposure(exposure)
    np.testing.assert_allclose(q.mean, exposure[:, None] * p.mean, rtol=1e-12)
    square = exposure[:, None] ** 2
    np.testing.assert_allclose(q.model_var, square * p.model_var, rtol=1e-10)
    np.testing.assert_allclose(q.noise_var - q.mean, square * (p.noise_var - p.mean), rtol=1e-9)
    np.testing.assert_allclose(q[0].logpdf([[1.0, 2.0]]), p[0].logpdf([[1.0, 2.0]]), rtol=1e-12)
    each = p.with_exposure(np.repeat(exposure[:, None], 2, axis=1))
    np.testing.assert_array_equal(each.mean, q.mean)
    for bad in ([1.0, 0.0, 1.0], [1.0, np.nan, 1.0], [1.0, -2.0, 1.0]):
        with pytest.raises(ValueError, match="exposure must be finite and positive"):
            p.with_exposure(bad)
    with pytest.raises(ValueError, match=r"exposure has shape \(2,\)"):
        p.with_exposure([1.0, 1.0])


def test_rows_outputs_and_mixtures():
    parts, p = members()
    y = p.quantile(0.4)
    np.testing.assert_allclose(p.cdf(y), 0.6 * parts[0].cdf(y) + 0.4 * parts[1].cdf(y), rtol=1e-10)
    assert isinstance(mixture(parts), Counts)
    np.testing.assert_array_equal(p[1:].crps(y[1:]), p.crps(y)[1:])
    np.testing.assert_array_equal(p[2].quantile(0.4), y[2:])
    one = p.marginal(1)
    assert one.shape == (3,)
    np.testing.assert_allclose(one.logpdf(y[:, 1]), p.marginal_logpdf(y)[:, 1], rtol=1e-12)
    np.testing.assert_allclose(p.marginal([1, 0]).logpdf(y[:, ::-1]), p.logpdf(y), rtol=1e-12)
    refused = p.unsplit()
    assert not hasattr(refused, "model_var")
    np.testing.assert_array_equal(refused.var, p.var)
    with pytest.raises(TypeError, match="Counts and Predictive"):
        mixture([p, Predictive.gaussian(y, y, 1.0)])


@pytest.mark.parametrize("dispersion", [-0.1, np.nan, [0.1, 0.2, 0.3]])
def test_bad_dispersions_are_refused(dispersion):
    with pytest.raises(ValueError, match="dispersion"):
        Counts(Predictive.gaussian([[0.0, 0.0]], [[0.0, 0.0]], 0.0), dispersion)
    with pytest.raises(ValueError, match="without a covariance"):
        Counts(Predictive.joint([[0.0, 0.0]], [np.eye(2)], 0.0))


# ---- judging --------------------------------------------------------------------------------


def judged(true, stated, n=200, repeats=60):
    """Judgements of counts drawn from (rate, dispersion), as stated by another such pair."""
    rng = np.random.default_rng(5)
    for _ in range(repeats):
        pair = [
            Counts(Predictive.gaussian(np.full(n, np.log(m)), np.full(n, 0.05), 0.0), c)
            for m, c in (true, stated)
        ]
        yield diagnostics.judge(pair[0].sample(1, rng)[:, 0], pair[1])


@pytest.mark.parametrize("stated", [(0.2, 0.0), (4.0, 0.5)])
def test_true_counts_are_judged_good(stated):
    """Though plain coverage is far above what is stated; nine in ten, in standard errors."""
    good = [one == diagnostics.Judgement("good", "") for one in judged(stated, stated)]
    assert np.mean(good) > 0.9 - 3 * np.sqrt(0.09 / len(good))


def test_wrong_counts_are_not():
    assert {one.spread for one in judged((4.0, 0.5), (4.0, 0.0), repeats=10)} == {"over"}
    assert {one.spread for one in judged((4.0, 0.0), (4.0, 1.0), repeats=10)} == {"under"}
    assert {one.bias for one in judged((2.0, 0.0), (3.0, 0.0), repeats=10)} == {"high"}
    assert {one.bias for one in judged((3.0, 0.0), (2.0, 0.0), repeats=10)} == {"low"}


def test_coverage_of_counts_is_what_it_says():
    """Averaged over what is predicted, shares held are the levels; plain ones are above."""
    n = 2000
    p, truth = known(np.full(n, 1.3), 0.0)
    levels = np.array([0.1, 0.5, 0.9])
    k = np.arange(40.0)
    held = np.stack(list(metrics.held(k[:, None], p[:40], levels)))[..., 0]
    np.testing.assert_allclose(held @ stats.poisson(1.3).pmf(k), levels, atol=1e-9)
    y = truth.rvs(random_state=2)[:, 0].astype(float)
    card = scorecard.scores(y, p)
    for level in (0.5, 0.9):
        error = np.sqrt(level * (1 - level) / n)
        assert abs(card[f"coverage {100 * level:.0f} %"] - level) < 4 * error
    assert metrics.interval_coverage(y, p, coverage=0.5) > 0.5 + 10 * np.sqrt(0.25 / n)
    histogram = diagnostics.pit_histogram(y, p, n_bins=10)
    assert histogram.counts.sum() == pytest.approx(n)
    assert np.abs(histogram.counts - n / 10).max() < 4 * np.sqrt(0.09 * n)


def test_a_verdict_on_counts():
    rng = np.random.default_rng(0)
    n = 150
    log_rate = rng.normal(1.0, 0.8, n)
    y = rng.poisson(np.exp(log_rate)).astype(float)
    right, _ = known(np.exp(log_rate), 0.0)
    flat, _ = known(np.full(n, y.mean()), 0.3)
    said = scorecard.verdict(y, {scorecard.MODEL: right, scorecard.CONSTANT: flat})
    assert said.startswith("This model is clearly better than the constant Gaussian")
    sure, _ = known(np.full(n, 40.0), 0.0)
    said = scorecard.verdict(y, {scorecard.MODEL: sure, scorecard.CONSTANT: flat})
    assert said.startswith("Do not use this model: it is far too sure on ")


@given(
    mean=st.floats(-6.0, 8.0),
    std=st.floats(0.0, 2.0),
    dispersion=st.sampled_from([0.0, 1e-6, 0.1, 3.0]),
    alpha=st.floats(1e-4, 1 - 1e-4),
)
def test_quantile_and_cdf_undo_each_other(mean, std, dispersion, alpha):
    p = Counts(Predictive.gaussian([mean], [std**2], 0.0), dispersion)
    k = p.quantile(alpha)
    assert k[0] >= 0
    assert k[0] == np.floor(k[0])
    assert p.cdf(k)[0] >= alpha - 1e-9
    assert p.cdf(k, left=True)[0] < alpha + 1e-9
