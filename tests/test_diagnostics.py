"""Calibration numbers: exact where counting is exact, and the ranges hold what they promise."""

import numpy as np
import pytest
from scipy import stats

from varprop import metrics
from varprop.predictive import Predictive
from varprop.predictive.diagnostics import (
    calibration_curve,
    chance_range,
    error_by_std,
    judge,
    pit_histogram,
)


def honest(n, seed=0):
    """Predictions with spreads from 0.5 to 2, and targets drawn from them."""
    rng = np.random.default_rng(seed)
    p = Predictive.gaussian(rng.normal(size=n), rng.uniform(0.1, 3.0, n), 0.15)
    return p.sample(random_state=rng)[..., 0], p


@pytest.mark.parametrize("n", [1, 2, 17, 120, 5000])
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9])
def test_chance_range_is_the_smallest_that_suffices(n, share):
    lower, upper = (round(float(v) * n) for v in chance_range(n, share, 0.9))
    binomial = stats.binom(n, share)
    assert binomial.cdf(upper) >= 0.95
    assert binomial.sf(lower - 1) >= 0.95
    assert binomial.cdf(upper - 1) < 0.95 or upper == 0
    assert binomial.sf(lower) < 0.95 or lower == n


def test_calibration_curve_agrees_with_interval_coverage():
    y, p = honest(200)
    mixture = Predictive.mixture([p, Predictive.gaussian(-p.mean, p.model_var, 0.15)])
    for prediction in (p, mixture):
        curve = calibration_curve(y, prediction, levels=[0.1, 0.5, 0.93])
        expected = [metrics.interval_coverage(y, prediction, coverage=c) for c in curve.level]
        np.testing.assert_array_equal(curve.observed, expected)


def test_ranges_hold_honest_models_as_often_as_they_say():
    """Over 300 data sets; the allowance is 5 standard errors of that experiment."""
    inside = np.zeros((300, 3))
    for i in range(300):
        y, p = honest(60, seed=i)
        curve = calibration_curve(y, p, levels=[0.5], probability=0.9)
        pit = pit_histogram(y, p, n_bins=4, probability=0.9)
        error = error_by_std(y, p, n_bins=1, probability=0.9)
        inside[i] = [
            curve.lower[0] <= curve.observed[0] <= curve.upper[0],
            pit.lower <= pit.counts[0] <= pit.upper,
            error.lower[0] <= error.error[0] <= error.upper[0],
        ]
    low, high = (float(v) * 60 for v in chance_range(60, 0.5, 0.9))
    exact = stats.binom.cdf(round(high), 60, 0.5) - stats.binom.cdf(round(low) - 1, 60, 0.5)
    low, high = (float(v) * 60 for v in chance_range(60, 0.25, 0.9))
    quarter = stats.binom.cdf(round(high), 60, 0.25) - stats.binom.cdf(round(low) - 1, 60, 0.25)
    slack = 5 * np.sqrt(0.9 * 0.1 / 300)
    np.testing.assert_allclose(inside.mean(axis=0), [exact, quarter, 0.9], atol=slack)


def test_wrong_spreads_leave_the_ranges():
    y, p = honest(1000)
    narrow = Predictive.gaussian(p.mean, p.model_var / 9, 0.15 / 9)
    curve = calibration_curve(y, narrow)
    assert (curve.observed < curve.lower)[5:45].all()
    histogram = pit_histogram(y, narrow)
    assert histogram.counts[0] > histogram.upper < histogram.counts[-1]
    groups = error_by_std(y, narrow)
    assert len(groups.counts) == 10
    assert (groups.error > groups.upper).all()


def test_point_masses():
    p = Predictive.gaussian([1.0, 2.0, 3.0], [0.0, 0.0, 0.0], 0.0)
    y = np.array([1.0, 2.0, 4.0])
    assert calibration_curve(y, p, levels=[0.01, 0.99]).observed.tolist() == [2 / 3, 2 / 3]
    assert pit_histogram(y, p, n_bins=5).counts.tolist() == [0, 0, 2, 0, 1]
    groups = error_by_std(y, p)
    assert (groups.stated, groups.upper) == (0.0, 0.0)
    np.testing.assert_allclose(groups.error, 1 / np.sqrt(3))


def test_equal_spreads_stay_in_one_group_and_scale_does_not_matter():
    y, p = honest(400)
    same = Predictive.gaussian(p.mean, np.ones(400), 0.0)
    assert error_by_std(y, same).counts.tolist() == [400]
    for scale in (1e-150, 1e140):
        scaled = Predictive.gaussian(p.mean * scale, p.model_var * scale**2, 0.15 * scale**2)
        for small, big in zip(error_by_std(y, p), error_by_std(y * scale, scaled), strict=True):
            if not np.array_equal(small, big):
                np.testing.assert_allclose(big / scale, small, rtol=1e-9)


@pytest.mark.parametrize("function", [calibration_curve, pit_histogram, error_by_std])
def test_bad_input_is_named(function):
    wide = Predictive.gaussian([[1.0, 2.0]], [[1.0, 1.0]], 0.0)
    one = Predictive.gaussian([1.0], [1.0], 0.0)
    with pytest.raises(ValueError, match=r"2 outputs: choose one by prediction.marginal"):
        function(np.ones((1, 2)), wide)
    with pytest.raises(ValueError, match=r"y has shape \(2,\) but the prediction has \(1,\)"):
        function([1.0, 2.0], one)
    with pytest.raises(ValueError, match="y is not finite at row 0"):
        function([np.nan], one)
    with pytest.raises(ValueError, match="probability must lie"):
        function([1.0], one, probability=1.5)
    assert function([1.0], one) is not None
    if function is not calibration_curve:
        with pytest.raises(ValueError, match="n_bins must be at least 1"):
            function([1.0], one, n_bins=0)
    else:
        with pytest.raises(ValueError, match="levels must be"):
            function([1.0], one, levels=[1.0])


def test_noise_of_its_own_for_every_row_is_seen_and_judged():
    rng = np.random.default_rng(7)
    noise = rng.uniform(0.01, 4.0, 3000)
    truth = Predictive.gaussian(np.zeros(3000), np.full(3000, 0.01), noise)
    y = truth.sample(random_state=8)[..., 0]
    groups = error_by_std(y, truth, n_bins=6, probability=0.999)
    assert groups.stated[-1] > 3 * groups.stated[0]
    assert ((groups.lower <= groups.error) & (groups.error <= groups.upper)).all()
    curve = calibration_curve(y, truth, levels=[0.5, 0.9], probability=0.999)
    assert ((curve.lower <= curve.observed) & (curve.observed <= curve.upper)).all()
    # With one noise for all, of the same size on average, the shape is wrong and is said to be.
    same = Predictive.gaussian(truth.mean, truth.model_var, noise.mean())
    curve = calibration_curve(y, same, levels=[0.3], probability=0.999)
    assert curve.observed[0] > curve.upper[0]


def judged(stretch=1.0, shift=0.0, n=200, seed=0, *, heavy=False):
    rng = np.random.default_rng(seed)
    p = Predictive.gaussian(rng.normal(size=n), np.full(n, 1.0), 0.0)
    noise = rng.standard_t(3, size=n) / 1.43 if heavy else rng.normal(size=n)
    return judge(p.mean + stretch * noise + shift, p)


def test_a_perfect_model_is_mostly_judged_good():
    for n in (30, 200, 2000):
        good = np.mean([judged(n=n, seed=seed) == ("good", "") for seed in range(300)])
        assert good > 0.9 - 3 * np.sqrt(0.09 / 300)


def test_the_judgement_names_what_is_wrong():
    assert judged(2.0).spread == "over"
    assert judged(0.4).spread == "under"
    assert judged(shift=-0.4).bias == "high"  # the predictions are
    assert judged(shift=0.4).bias == "low"
    assert judged(n=9) == ("unknown", "")
    far = np.random.default_rng(2).normal(size=300)
    p = Predictive.gaussian(np.zeros(300), np.ones(300), 0.0)
    assert judge(far, p).spread == "good"
    far[5] = 40.0
    assert judge(far, p).spread == "tails"
    # Too wide nearly everywhere, and wildly too narrow on two rows.
    mixed = Predictive.gaussian(np.zeros(300), np.r_[1e-9, 1e-9, np.full(298, 9.0)], 0.0)
    assert judge(far, mixed).spread == "shape"
    two = np.sign(far) * 1.0  # neither near nor far, as a Gaussian's would be
    assert judge(two, p).spread in ("shape", "under", "over")
    assert {judged(heavy=True, n=3000, seed=seed).spread for seed in range(5)} == {"shape"}
