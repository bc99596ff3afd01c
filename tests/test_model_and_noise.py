"""Model part and noise part are what they are called: VI with noise that depends on the input.

Truth comes from how the targets were made, and from weighted least squares; nothing of it runs
varprop. What full training does with up to 20,000 rows is in benchmarks/model_and_noise.py.
"""

import numpy as np
import pytest

from varprop import FAWNRegressor, Recipe

SIZES = (200, 2000)
SHORT = Recipe(kl_warmup=2_000, cooldown=2_000, max_steps=8_000)
AT = np.linspace(-1.9, 1.9, 77)[:, None]


def fitted(kind, n_rows, seed=0, **options):
    """Return the prediction at AT, and the rows: inputs and targets."""
    mean, std = KINDS[kind]
    rng = np.random.default_rng([seed, n_rows])
    x = rng.uniform(-2, 2, (n_rows, 1))
    y = mean(x[:, 0]) + std(x[:, 0]) * rng.standard_normal(n_rows)
    model = FAWNRegressor(
        **{
            "objective": "vi",
            "likelihood": "heteroscedastic",
            "prior": "ard",
            "recipe": SHORT,
            "random_state": seed,
            **options,
        }
    )
    return model.fit(x, y).predict_dist(AT), x[:, 0], y


# How targets are made: their mean, and the noise, whose std varies by a factor of four in both.
KINDS = {
    "line": (lambda x: 0.5 + x, lambda x: 0.4 * 2 ** (x / 2)),
    "curve": (lambda x: np.sin(2 * x) + 0.5 * x, lambda x: 0.3 * 2 ** np.sin(1.5 * x)),
}


@pytest.fixture(scope="module")
def lines():
    # A fixed prior can be put into least squares; "ard" would call an intercept near 0 of no use.
    options = {"hidden_layer_sizes": (), "prior": "fixed", "validation": None}
    return {n: fitted("line", n, **options) for n in SIZES}


@pytest.fixture(scope="module")
def curves():
    return {n: fitted("curve", n, hidden_layer_sizes=(20,))[0] for n in SIZES}


@pytest.mark.parametrize(("n_rows", "tolerance"), [(200, 0.12), (2000, 0.08)])
def test_model_part_of_a_line_is_that_of_weighted_least_squares(lines, n_rows, tolerance):
    dist, x, y = lines[n_rows]
    _, std = KINDS["line"]
    # Standardized, with a standard normal prior; intercept and slope are factorized.
    z, at = (x - x.mean()) / x.std(), (AT[:, 0] - x.mean()) / x.std()
    precision = (y.std() / std(x)) ** 2
    intercept, slope = 1 + precision.sum(), 1 + (precision * z**2).sum()
    expected = y.std() * np.sqrt(1 / intercept + at**2 / slope)
    np.testing.assert_allclose(dist.model_std, expected, rtol=tolerance)


@pytest.mark.parametrize(("n_rows", "tolerance"), [(200, 0.3), (2000, 0.1)])
def test_noise_of_a_line_is_the_true_one_everywhere(lines, n_rows, tolerance):
    _, std = KINDS["line"]
    np.testing.assert_allclose(lines[n_rows][0].noise_std, std(AT[:, 0]), rtol=tolerance)


def test_noise_of_a_curve_is_within_a_tenth_at_2000_rows(curves):
    _, std = KINDS["curve"]
    off = np.abs(curves[2000].noise_std / std(AT[:, 0]) - 1)
    assert np.median(off) < 0.1
    assert np.quantile(off, 0.9) < 0.2


def test_model_part_of_a_curve_is_as_large_as_the_error(curves):
    mean, _ = KINDS["curve"]
    error = np.sqrt(np.mean((curves[2000].mean - mean(AT[:, 0])) ** 2))
    stated = np.sqrt(np.mean(curves[2000].model_var))
    assert 0.5 * error < stated < 2 * error


def test_model_part_falls_with_the_root_of_rows_and_noise_stays(curves):
    few, many = (curves[n] for n in SIZES)
    slope = np.log(np.median(many.model_std) / np.median(few.model_std)) / np.log(10)
    assert -0.65 < slope < -0.35
    assert 0.8 < np.median(many.noise_std / few.noise_std) < 1.25
