"""Predicted classes, counts and bounds judged: against scikit-learn, SciPy and worked examples."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn_metrics

from varprop.predictive import Predictive, diagnostics
from varprop.predictive.bounds import Bounded
from varprop.predictive.categories import Categories
from varprop.predictive.class_diagnostics import (
    class_scores,
    confusion,
    judge_classes,
    reliability,
    roc,
)
from varprop.predictive.count_diagnostics import rootogram
from varprop.predictive.counts import Counts
from varprop.predictive.scorecard import (
    DO_NOT_USE,
    FREQUENCIES,
    LINEAR,
    MODEL,
    scorecard,
    simple_models,
    verdict,
)
from varprop.predictive.survival import bounded_pit, stated_survival, survival_curve


def made(n=400, c=3, *, seed=0, sharpen=1.0):
    """Probabilities, and labels drawn from them; stated ones may be sharper or flatter."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, c)) * 1.5
    true = np.exp(scores)
    true /= true.sum(axis=1, keepdims=True)
    names = np.array(["ash", "birch", "cedar", "date"][:c])
    y = names[(rng.uniform(size=(n, 1)) > np.cumsum(true, axis=1)[:, :-1]).sum(axis=1)]
    stated = true**sharpen
    return y, Categories(stated / stated.sum(axis=1, keepdims=True), classes=names)


def test_scores_are_those_of_scikit_learn():
    y, p = made()
    found = class_scores(y, p)
    assert found["log-loss"] == pytest.approx(
        sklearn_metrics.log_loss(y, p.proba, labels=p.classes)
    )
    assert found["accuracy"] == sklearn_metrics.accuracy_score(y, p.mode)
    one_hot = y[:, None] == p.classes
    assert found["Brier"] == pytest.approx(np.mean(np.sum((p.proba - one_hot) ** 2, axis=1)))
    # The calibration error, group by group, as it is defined.
    top, right = p.proba.max(axis=1), p.mode == y
    error = 0.0
    for low in np.arange(15) / 15:
        rows = (top >= low) & (top < low + 1 / 15)
        if rows.any():
            error += rows.mean() * abs(top[rows].mean() - right[rows].mean())
    assert found["calibration error"] == pytest.approx(error, rel=1e-9)


@pytest.mark.parametrize("label", ["ash", "cedar", None])
def test_roc_is_that_of_scikit_learn(label):
    y, p = made()
    p = Categories(
        p.proba.round(1) / p.proba.round(1).sum(axis=1, keepdims=True), classes=p.classes
    )
    code = 2 if label is None else list(p.classes).index(label)
    own = y == p.classes[code]
    false, true, _ = sklearn_metrics.roc_curve(own, p.proba[:, code], drop_intermediate=False)
    found = roc(y, p, label=label)
    np.testing.assert_allclose(found.false, false)
    np.testing.assert_allclose(found.true, true)
    assert found.area == pytest.approx(sklearn_metrics.roc_auc_score(own, p.proba[:, code]))
    assert np.isnan(roc(["ash"] * len(y), p, label="cedar").area)
    with pytest.raises(ValueError, match="label must be one of the classes, but is 'elm'"):
        roc(y, p, label="elm")


def test_confusion_is_that_of_scikit_learn():
    y, p = made(c=4)
    expected = sklearn_metrics.confusion_matrix(y, p.mode, labels=p.classes)
    np.testing.assert_array_equal(confusion(y, p), expected)


def test_reliability_counts_groups_as_they_are():
    y, p = made(c=2)
    found = reliability(y, p, n_bins=4)
    assert found.counts.sum() == len(y)
    stated, true = p.proba[:, 1], y == "birch"
    cuts = np.quantile(stated, [0, 0.25, 0.5, 0.75, 1])
    for k in range(4):
        rows = (stated > cuts[k] if k else stated >= 0) & (stated <= cuts[k + 1])
        assert found.observed[k] == pytest.approx(true[rows].mean(), abs=0.02)
        assert found.stated[k] == pytest.approx(stated[rows].mean(), abs=0.005)
        ends = stats.binom.interval(0.95, found.counts[k], found.stated[k])
        np.testing.assert_allclose(
            [found.lower[k], found.upper[k]], np.array(ends) / found.counts[k]
        )
    with pytest.raises(ValueError, match="n_bins must be at least 1"):
        reliability(y, p, n_bins=0)


def test_probabilities_are_judged():
    """A right model is called good 19 times in 20; a far sharper one never, nor a far flatter."""
    said = [judge_classes(*made(seed=seed)) for seed in range(60)]
    assert said.count("good") >= stats.binom.ppf(0.001, 60, 0.94)
    assert {judge_classes(*made(seed=s, sharpen=4.0)) for s in range(10)} == {"over"}
    assert {judge_classes(*made(seed=s, sharpen=0.2)) for s in range(10)} == {"under"}
    assert judge_classes(*made(n=9)) == "unknown"


def test_the_verdict_on_classes():
    y, p = made()
    flat = Categories(np.tile([0.3, 0.4, 0.3], (len(y), 1)), classes=p.classes)
    said = verdict(y, {MODEL: p, FREQUENCIES: flat})
    gain = p.logpdf(y) - flat.logpdf(y)
    assert said.startswith(
        "This model is clearly better than the class frequencies: log-loss lower"
    )
    assert f"by {gain.mean():.2f} ± {gain.std(ddof=1) / np.sqrt(len(y)):.2f}." in said
    sure = Categories(
        np.where(p.proba == p.proba.max(axis=1, keepdims=True), 1 - 2e-6, 1e-6), classes=p.classes
    )
    said = verdict(y, {MODEL: sure, FREQUENCIES: flat})
    wrong = int((p.mode != y).sum())
    assert said.startswith(
        f"{DO_NOT_USE}: it is far too sure on {wrong} of 400 rows, and its log-loss"
    )
    assert "use the class frequencies instead (varprop predict --model constant)" in said
    said = verdict(y, {MODEL: flat, LINEAR: p})
    assert said.startswith("The linear model is clearly better here: log-loss lower")
    assert "Too few rows to tell (5): log-loss" in verdict(
        y[:5], {MODEL: p[:5], FREQUENCIES: flat[:5]}
    )
    assert set(scorecard(y, {MODEL: p})[MODEL]) == {
        "log-loss",
        "accuracy",
        "Brier",
        "calibration error",
    }
    assert simple_models(p) == {"linear": LINEAR, "constant": FREQUENCIES}


# ---- counts -------------------------------------------------------------------------------------


def counted(n=500, *, seed=0, wide=0.0):
    rng = np.random.default_rng(seed)
    log_rate = rng.normal(0.5, 0.6, size=n)
    y = rng.poisson(np.exp(log_rate)).astype(float)
    return y, Counts(Predictive.gaussian(log_rate, np.full(n, wide), 0.0)), np.exp(log_rate)


def test_a_rootogram_has_the_expected_counts():
    y, p, rate = counted()
    found = rootogram(y, p)
    np.testing.assert_allclose(
        found.expected[:-1],
        [stats.poisson.pmf(k, rate).sum() for k in found.value[:-1]],
        rtol=1e-6,
    )
    assert found.expected.sum() == pytest.approx(len(y))
    assert found.observed[2] == (y == 2).sum()
    few = rootogram(y, p, most=3)
    assert few.observed.tolist() == [(y == 0).sum(), (y == 1).sum(), (y >= 2).sum()]
    inside = (found.observed >= found.lower) & (found.observed <= found.upper)
    assert inside.mean() > 0.8


def test_counts_that_are_right_are_called_right():
    """Intervals of whole numbers hold more than they state; judging must not call them too wide."""
    y, p, rate = counted()
    low, high = stats.poisson.interval(0.5, rate)
    assert np.mean((y >= low) & (y <= high)) > 0.6  # as they are, ends included
    curve = diagnostics.calibration_curve(y, p)
    outside = (curve.observed < curve.lower) | (curve.observed > curve.upper)
    assert outside.mean() < 0.2
    assert diagnostics.judge(y, p).spread == "good"
    assert diagnostics.judge(y, counted(wide=2.0)[1]).spread in ("under", "shape")
    bars = diagnostics.pit_histogram(y, p)
    assert stats.chisquare(bars.counts).pvalue > 1e-3


# ---- bounds -------------------------------------------------------------------------------------


def test_kaplan_and_meier():
    """Freireich's remission times of 21 patients on 6-MP, as every book on survival has them."""
    exact = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    open_ = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    lower = np.array(exact + open_, float)
    upper = np.array(exact + [np.inf] * len(open_))
    found = survival_curve(lower, upper)
    assert found.at.tolist() == [6, 7, 10, 13, 16, 22, 23]
    np.testing.assert_allclose(
        found.share, [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448], atol=5e-4
    )
    error = (found.upper - found.share)[[1, 4]] / 1.959964  # 1 at most, so not the first
    np.testing.assert_allclose(error, [0.0869, 0.1141], atol=5e-4)


def test_survival_from_the_other_end():
    rng = np.random.default_rng(0)
    time, limit = rng.normal(size=200), rng.normal(size=200)
    lower = np.where(time > limit, time, -np.inf)
    upper = np.maximum(time, limit)
    found = survival_curve(lower, upper)
    turned = survival_curve(-upper, -lower)  # what is at most is at least, turned around
    # P(T > t) and P(-T > -t) sum to 1, but for the step at t.
    for t, share in zip(found.at, found.share, strict=True):
        below = turned.at < -t
        other = turned.share[below][-1] if below.any() else 1.0
        assert share == pytest.approx(1 - other, abs=1e-12)
    assert ((found.lower <= found.share + 1e-12) & (found.share <= found.upper + 1e-12)).all()


def test_ranges_are_estimated_as_exact_values_where_they_are():
    rng = np.random.default_rng(1)
    time = np.sort(rng.exponential(size=60)).round(3)
    lower, upper = time.copy(), time.copy()
    upper[::3] = np.inf
    known = survival_curve(lower, upper)
    # One range that says nothing new makes it go the other way through the code.
    more = survival_curve(np.append(lower, -1.0), np.append(upper, 1e6))
    place = np.searchsorted(more.at, known.at)
    np.testing.assert_allclose(more.share[place], known.share, atol=0.02)
    assert np.isnan(more.lower).all()
    # Of disjoint ranges each holds its share.
    found = survival_curve(np.array([0.0, 0.0, 2.0, 4.0]), np.array([1.0, 1.0, 3.0, 5.0]))
    np.testing.assert_allclose(found.share, [0.5, 0.25, 0.0], atol=1e-6)


def test_stated_survival_and_places_inside_bounds():
    p = Predictive.gaussian([0.0, 1.0], [1.0, 4.0], 0.0)
    expected = np.mean([stats.norm.sf(0.5), stats.norm.sf(0.5, 1, 2)])
    assert stated_survival(p, np.array([0.5]))[0] == pytest.approx(expected)
    rng = np.random.default_rng(0)
    mean = rng.normal(size=2000)
    t, c = mean + rng.normal(size=2000), rng.normal(size=2000)
    lower, upper = np.minimum(t, c), np.where(t <= c, t, np.inf)
    p = Predictive.gaussian(mean, np.ones(2000), 0.0)
    low, high = bounded_pit(lower, upper, p)
    np.testing.assert_allclose(low, stats.norm.cdf(lower - mean), atol=1e-12)
    np.testing.assert_allclose(high, stats.norm.cdf(upper - mean), atol=1e-12)
    assert stats.chisquare(diagnostics.histogram_of(low, high).counts).pvalue > 1e-3
    shifted = Predictive.gaussian(mean + 0.3, np.ones(2000), 0.0)
    bars = diagnostics.histogram_of(*bounded_pit(lower, upper, shifted))
    assert stats.chisquare(bars.counts).pvalue < 1e-6
    card = scorecard(
        np.stack([lower, upper], axis=1), {MODEL: Bounded(p, lower[:, None], upper[:, None])}
    )
    nll = -np.where(t <= c, stats.norm.logpdf(t - mean), stats.norm.logsf(c - mean)).mean()
    assert card[MODEL]["NLL"] == pytest.approx(nll)
    assert set(card[MODEL]) == {"NLL", "CRPS"}
