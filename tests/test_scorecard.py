"""The scorecard: scores by hand, simple models, and noise that differs from row to row."""

import numpy as np
import pytest
from scipy import stats

from varprop.predictive import Predictive
from varprop.predictive.scorecard import (
    CONSTANT,
    LINEAR,
    MODEL,
    SCORES,
    LinearModel,
    constant_gaussian,
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
    line = LinearModel.fit(x, targets).predict_dist(x)
    flat = constant_gaussian(targets.mean(axis=0), targets.std(axis=0), len(x))
    shape = (400,) if d == 1 else (400, 2)
    assert line.shape == flat.shape == line.mean.shape == shape
    public = targets.reshape(shape)
    np.testing.assert_allclose(flat.std, np.broadcast_to(public.std(axis=0), shape))
    card = scorecard(public, {LINEAR: line, CONSTANT: flat})
    assert card[CONSTANT]["R2"] == pytest.approx(0.0, abs=1e-12)
    assert card[LINEAR]["R2"] > 0.3
