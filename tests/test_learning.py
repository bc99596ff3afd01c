"""Learning at all: a noisy sine, held-out rows, and bounds that a broken method cannot meet.

y = sin(2x) + noise of 0.3 on [-2, 2]. The density of the truth itself has an expected NLL of
log(0.3) + (1 + log 2 pi) / 2 = 0.215, a constant prediction one of about 1.2. Held-out rows are
2,000, so that the NLL of the truth has a standard error of 0.016 and the coverage of a correct 90 %
interval one of 0.0067.
"""

import jax
import numpy as np
import pytest
from scipy import stats

from varprop import ROPD, VI, Data, Recipe, SampledVI, StopRule, fit, regression_model
from varprop.nn import BernoulliWeights

NOISE = 0.3
BEST_NLL = np.log(NOISE) + 0.5 * np.log(2 * np.pi) + 0.5


def sine(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (n, 1))
    return x, np.sin(2 * x) + NOISE * rng.normal(size=(n, 1))


def held_out(objective, max_steps, **options):
    """NLL and coverage of the 90 % interval on fresh rows, in the target's own units."""
    x, y = sine(200, 0)
    recipe = Recipe(
        learning_rate=1e-2,
        kl_warmup=max_steps // 3,
        cooldown=max_steps // 4,
        max_steps=max_steps,
        batch_size=None,
        stop=StopRule(tol=0.0),
    )
    model = regression_model(1, 1, key=jax.random.key(0), hidden_layer_sizes=(20,), **options)
    result = fit(model, Data(x, 10 * y + 50), objective, key=jax.random.key(1), recipe=recipe)
    x, y = sine(2000, 1)
    out = result.predictive(x)
    std = out.std
    error = (10 * y + 50) - out.mean
    nll = -stats.norm.logpdf(error, 0.0, std).mean() - np.log(10)
    return nll, np.mean(np.abs(error) < stats.norm.ppf(0.95) * std)


@pytest.mark.parametrize("objective", [VI(), ROPD()], ids=["VI", "ROPD"])
def test_a_sine_is_learned(objective):
    """Within a twentieth of a nat of the truth, which a constant misses by a nat."""
    nll, coverage = held_out(objective, 3000)
    assert BEST_NLL - 0.05 < nll < BEST_NLL + 0.05
    assert 0.88 < coverage < 0.95


def test_a_sine_is_learned_by_sampling():
    nll, coverage = held_out(SampledVI(n_samples=2), 6000)
    assert BEST_NLL - 0.05 < nll < BEST_NLL + 0.06
    assert 0.88 < coverage < 0.96


def test_a_sine_is_learned_by_binary_weights():
    """Coarser, since the spread of binary weights cannot shrink one by one."""
    nll, coverage = held_out(ROPD(), 6000, weights=BernoulliWeights.init)
    assert BEST_NLL - 0.05 < nll < BEST_NLL + 0.25
    assert 0.88 < coverage < 0.96
