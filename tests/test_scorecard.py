"""The scorecard: scores by hand, simple models, and noise that differs from row to row."""

import re

import numpy as np
import pytest
from scipy import stats

import made_up
from varprop.predictive import Predictive
from varprop.predictive.scorecard import (
    CONSTANT,
    LINEAR,
    MODEL,
    SCORES,
    by_target,
    scorecard,
    scores,
    verdict,
)


@pytest.fixture(scope="module")
def rows():
    """Inputs, targets whose noise grows with the first input, and the truth about them."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, size=(400, 2))
    truth = Predictive.gaussian(x @ [1.0, 2.0], np.full(400, 0.01), (0.1 + x[:, 0]) ** 2)
    return x, truth.sample(random_state=1)[..., 0], truth


def test_scores_by_hand_with_noise_per_row(rows):
    _, y, truth = rows
    card = scores(y, truth)
    assert list(card) == list(SCORES)
    total = np.sqrt(truth.model_var + truth.noise_var)
    assert np.ptp(truth.noise_var) > 0.5
    assert card["NLL"] == pytest.approx(-stats.norm.logpdf(y, truth.mean, total).mean())
    inside = np.abs(y - truth.mean) <= stats.norm.ppf(0.95) * total
    assert card["coverage 90 %"] == pytest.approx(inside.mean())
    assert card["RMSE"] == pytest.approx(np.sqrt(np.mean((y - truth.mean) ** 2)))


def test_noise_per_row_beats_one_noise_for_all(rows):
    _, y, truth = rows
    same = Predictive.gaussian(truth.mean, truth.model_var, truth.noise_var.mean())
    card = scorecard(y, {MODEL: truth, CONSTANT: same})
    assert card[MODEL]["RMSE"] == card[CONSTANT]["RMSE"]
    assert card[MODEL]["NLL"] < card[CONSTANT]["NLL"] - 0.05
    assert verdict(y, {MODEL: truth, CONSTANT: same}).startswith("This model is clearly better")
    assert "is clearly better here" in verdict(y, {MODEL: same, CONSTANT: truth})
    assert verdict(y, {MODEL: same, CONSTANT: same}).startswith("No clear difference")


@pytest.mark.parametrize("d", [1, 2])
def test_simple_models_have_the_shape_of_the_targets(rows, d):
    x, y, _ = rows
    targets = np.column_stack([y, 3 * y + 100])[:, :d]
    line = made_up.line(x, targets).predict_dist(x)
    flat = made_up.flat(targets.mean(axis=0), targets.std(axis=0), len(x))
    shape = (400,) if d == 1 else (400, 2)
    assert line.shape == flat.shape == line.mean.shape == shape
    public = targets.reshape(shape)
    np.testing.assert_allclose(flat.std, np.broadcast_to(public.std(axis=0), shape))
    card = scorecard(public, {LINEAR: line, CONSTANT: flat}, ["a", "b"][:d])
    tables = by_target(card)
    assert list(tables) == ([""] if d == 1 else ["", "a", "b"])
    for name in ["a", "b"] if d == 2 else [""]:
        assert tables[name][CONSTANT]["R2"] == pytest.approx(0.0, abs=1e-12)
        assert tables[name][LINEAR]["R2"] > 0.3
    assert (list(tables[""][LINEAR]) == ["NLL"]) == (d == 2)


def test_targets_are_never_pooled_over_units(rows):
    _, y, truth = rows
    both = np.column_stack([y, 1e6 * y])
    p = Predictive.gaussian(
        np.column_stack([truth.mean, 1e6 * truth.mean]), np.zeros((400, 2)), [1.0, 1e12]
    )
    found, one = scores(both, p, ["small", "large"]), scores(y, p.marginal(0))
    assert found["NLL"] == pytest.approx(2 * one["NLL"] + np.log(1e6))
    for name in SCORES:
        if name == "NLL":
            continue
        assert found[name]["small"] == pytest.approx(one[name])
        factor = 1e6 if name in ("RMSE", "CRPS") else 1.0
        assert found[name]["large"] == pytest.approx(factor * one[name])
    assert list(scores(both, p)["RMSE"]) == ["output 0", "output 1"]


# ---- the verdict ------------------------------------------------------------------------------


def said(gain, monkeypatch):
    """The verdict on row-wise gains, with everything else beside the point."""
    n = len(gain)
    y = np.linspace(-2, 2, n)
    model = Predictive.gaussian(np.zeros(n), np.zeros(n), 1.0)
    other = Predictive.gaussian(np.zeros(n), np.zeros(n), 1.0)
    densities = {id(model): np.asarray(gain, float), id(other): np.zeros(n)}
    with monkeypatch.context() as patch:
        patch.setattr(Predictive, "logpdf", lambda self, y: densities[id(self)])
        return verdict(y, {MODEL: model, CONSTANT: other})


NULLS = {
    "normal": (0.01, lambda rng, n: rng.normal(size=n)),
    "t with 2 degrees": (0.01, lambda rng, n: rng.standard_t(2, size=n)),
    "Cauchy": (0.01, lambda rng, n: rng.standard_cauchy(n)),
    "squared Gaussian": (0.05, lambda rng, n: rng.normal(size=n) ** 2 - 1),
    "over-sure": (0.05, lambda rng, n: 1 - rng.normal(size=n) ** 2),
}


@pytest.mark.parametrize("n", [2, 5, 10, 30, 300])
@pytest.mark.parametrize("null", NULLS)
def test_clearly_is_rarely_said_without_a_difference(null, n, monkeypatch):
    rate, draw = NULLS[null]
    rng = np.random.default_rng(n)
    repeats = 400
    # Small, so that no total comes near what refutes a model.
    clear = sum("clearly" in said(1e-3 * draw(rng, n), monkeypatch) for _ in range(repeats))
    if n < 30:
        assert clear == 0
    # What is stated, plus three standard errors of this simulation.
    assert clear / repeats <= rate + 3 * np.sqrt(rate * (1 - rate) / repeats)


@pytest.mark.parametrize("n", [2, 5, 10, 30, 300])
def test_a_true_model_is_rarely_refuted(n):
    # The rival knows nothing; what is stated is true. By Markov's inequality below 1 %.
    rng, wrong, repeats = np.random.default_rng(n), 0, 300
    for _ in range(repeats):
        x = rng.normal(size=n)
        p = Predictive.gaussian(x, np.zeros(n), rng.uniform(0.5, 2.0, n))
        y = p.sample(random_state=rng)[..., 0]
        flat = Predictive.gaussian(0 * x, np.zeros(n), 1.0 + rng.uniform(0, 1))
        wrong += verdict(y, {MODEL: p, CONSTANT: flat}).startswith("Do not use")
    assert wrong / repeats <= 0.01 + 3 * np.sqrt(0.01 * 0.99 / repeats)


def test_a_catastrophe_is_called_one():
    # As measured: a handful of rows with NLL of 1e5 each, so that the mean is 1.7 standard errors.
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    var = np.full(200, 0.5)
    var[:3] = 1e-7
    collapsed = Predictive.gaussian(0.5 * y, var, 0.0)
    flat = made_up.flat(np.zeros(1), np.ones(1), 200)
    text = verdict(y, {MODEL: collapsed, CONSTANT: flat})
    rows = int(re.search(r"far too sure on (\d+) of 200 rows", text)[1])
    assert 1 <= rows <= 3
    assert text.startswith("Do not use this model")
    assert "use the constant Gaussian instead (varprop predict --model constant)" in text
    linear = verdict(y, {MODEL: collapsed, LINEAR: flat})
    assert linear.endswith("use the linear model instead (varprop predict --model linear).")
    certain = Predictive.gaussian(np.zeros(200), np.zeros(200), 0.0)
    assert verdict(y, {MODEL: certain, CONSTANT: flat}).startswith("Do not use this model")


def test_one_row_in_a_thousand_is_a_catastrophe_too():
    y = np.random.default_rng(1).normal(size=1000)
    var = np.ones(1000)
    var[7] = 1e-3 * y[7] ** 2
    text = verdict(
        y,
        {
            MODEL: Predictive.gaussian(0 * y, var, 0.0),
            CONSTANT: made_up.flat(np.zeros(1), np.ones(1), 1000),
        },
    )
    assert "too sure on 1 of 1,000 rows" in text
    assert "far" not in text  # half a nat a row


def test_too_cautious_is_not_called_too_sure():
    y = np.random.default_rng(2).normal(size=60)
    wide = Predictive.gaussian(0 * y, 0 * y, 400.0)
    text = verdict(y, {MODEL: wide, CONSTANT: made_up.flat(np.zeros(1), np.ones(1), 60)})
    assert "far too cautious" in text
    assert "too sure" not in text


def test_few_rows_are_too_few():
    y = np.array([0.0, 0.1])
    sharp = Predictive.gaussian(y, 0 * y, 0.01)
    text = verdict(y, {MODEL: sharp, CONSTANT: made_up.flat(np.zeros(1), np.ones(1), 2)})
    assert text.startswith("Too few rows to tell (2): NLL lower than the constant Gaussian's by")
    one = verdict(y[:1], {MODEL: sharp[0], CONSTANT: made_up.flat(np.zeros(1), np.ones(1), 1)})
    assert "±" not in one


def test_a_real_difference_is_found():
    rng = np.random.default_rng(3)
    x = rng.normal(size=100)
    y = x + 0.5 * rng.normal(size=100)
    model = Predictive.gaussian(x, 0 * x, 0.25)
    flat = made_up.flat(np.zeros(1), np.array([1.1]), 100)
    assert "clearly better than the constant Gaussian" in verdict(y, {MODEL: model, CONSTANT: flat})
