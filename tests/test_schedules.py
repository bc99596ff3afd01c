"""Which rows a step takes, and the KL weight and learning rate of every step, read off a probe."""

import dataclasses

import jax
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from probe import Linear, model
from varprop import Data, Outcome, Scaling, StopRule, fit
from varprop.training.recipe import Recipe


def run(y, recipe, *, kl=0.0, **options):
    """Train the probe in float64 without scaling."""
    data = Data(np.zeros((len(y), 1)), np.asarray(y))
    return fit(
        model(kl),
        data,
        Linear(),
        key=jax.random.key(0),
        recipe=recipe,
        scaling=Scaling.identity(1, 1),
        **options,
    )


@pytest.mark.parametrize("n_rows", [40, 33, 32, 31, 1])
def test_an_epoch_uses_every_row_once(n_rows, x64):
    """Row i has y = 2^i, so the bits of theta after one epoch count how often each was used.

    A batch has 32 rows: partial last batches of 8 and of 1 row, whole ones, and data smaller than
    one batch.
    """
    y = 2.0 ** np.arange(n_rows)
    n_batches = -(-n_rows // 32)
    result = run(y, tiny.recipe(max_steps=n_batches), optimizer=optax.sgd(1.0))
    assert result.n_steps == n_batches
    assert round(float(result.model.network.theta) * n_rows / n_batches) == 2**n_rows - 1


def test_epochs_are_shuffled_anew(x64):
    """The first of two batches, seen in the loss: theta moves by its sum before the second.

    history = -theta_1 * (sum of batch 2) * 2 / n / 2, with theta_1 the sum of batch 1 * 2 / n.
    """
    y = 2.0 ** np.arange(40)
    result = run(y, tiny.recipe(max_steps=8), optimizer=optax.sgd(1e-30))
    assert len(result.history) == 4
    assert len(set(result.history)) == 4


@pytest.mark.parametrize("batch_size", [64, 1000, None])
def test_a_batch_larger_than_the_data_is_full_batch(batch_size, x64):
    result = run(
        np.ones(40), tiny.recipe(max_steps=3, batch_size=batch_size), optimizer=optax.sgd(0.5)
    )
    assert (result.n_steps, result.n_epochs) == (3, 3)
    assert float(result.model.network.theta) == pytest.approx(1.5, rel=1e-14)


def test_the_kl_weight_rises_linearly_from_zero(x64):
    """One step per epoch, so the history shows every step; the KL is 40 for 40 rows."""
    recipe = tiny.recipe(max_steps=12, batch_size=None, kl_warmup=5, kl_weight=0.5)
    result = run(np.zeros(40), recipe, kl=40.0)
    expected = 0.5 * np.minimum(1.0, np.arange(12) / 5)
    np.testing.assert_allclose(result.history, expected, rtol=1e-15)


def test_without_warmup_the_kl_weight_is_full_from_the_start(x64):
    recipe = tiny.recipe(max_steps=3, batch_size=None, kl_weight=0.5)
    np.testing.assert_array_equal(run(np.zeros(40), recipe, kl=40.0).history, 0.5)


def test_the_final_loss_has_the_full_kl_weight(x64):
    """Also when training ends in the middle of the warm-up."""
    recipe = tiny.recipe(max_steps=3, batch_size=None, kl_warmup=100, kl_weight=0.5)
    result = run(np.zeros(40), recipe, kl=40.0)
    np.testing.assert_allclose(result.history[-1], 0.5 * 2 / 100)
    assert result.loss == 0.5


@pytest.mark.parametrize("optimizer", [None, optax.sgd(0.01)], ids=["Adam", "SGD"])
def test_the_learning_rate_falls_linearly_to_the_end(optimizer, x64):
    """With a constant gradient of 1 Adam steps by the learning rate: theta shows it.

    The rate is constant for 8 steps and falls over the last 4: 1, 3/4, 2/4, 1/4 of it.
    """
    recipe = tiny.recipe(max_steps=12, batch_size=None, cooldown=4, learning_rate=0.01)
    result = run(np.ones(40), recipe, optimizer=optimizer)
    theta = np.append(-result.history, result.model.network.theta)
    rates = 0.01 * np.append(np.ones(8), [1, 0.75, 0.5, 0.25])
    np.testing.assert_allclose(np.diff(theta), rates, rtol=1e-6)  # Adam's eps is 1e-8
    assert result.outcome is Outcome.MAX_STEPS


def test_a_cooldown_longer_than_training_takes_all_of_it(x64):
    recipe = tiny.recipe(max_steps=4, batch_size=None, cooldown=100)
    result = run(np.ones(40), recipe, optimizer=optax.sgd(1.0))
    assert result.n_steps == 4
    assert float(result.model.network.theta) == pytest.approx(2.5, rel=1e-14)


def test_convergence_starts_the_cooldown(x64):
    """A flat loss: one window for reference and two flat ones of 2 steps, then 4 of cool-down."""
    recipe = tiny.recipe(
        max_steps=100,
        batch_size=None,
        cooldown=4,
        stop=StopRule(window=2, tol=1e-3, patience=2),
    )
    result = run(np.zeros(40), recipe, kl=1.0)
    assert result.outcome is Outcome.CONVERGED
    assert result.n_steps == 3 * 2 + 4


def test_convergence_without_cooldown_ends_at_once(x64):
    recipe = tiny.recipe(
        max_steps=100, batch_size=None, stop=StopRule(window=2, tol=1e-3, patience=2)
    )
    result = run(np.zeros(40), recipe, kl=1.0)
    assert (result.outcome, result.n_steps) == (Outcome.CONVERGED, 6)


def test_a_plan_without_a_rule_goes_to_its_end(x64):
    """However flat the loss: what ends is the plan, and the last steps are the cool-down's."""
    recipe = tiny.recipe(max_steps=30, batch_size=None, cooldown=4, stop=None)
    result = run(np.zeros(40), recipe, kl=1.0)
    assert (result.outcome, result.n_steps) == (Outcome.COMPLETED, 30)
    assert result.recipe == Recipe.from_dict(dataclasses.asdict(result.recipe))
    limited = run(np.zeros(40), recipe.replace(stop=StopRule(window=2, tol=0.0)), kl=1.0)
    assert (limited.outcome, limited.n_steps) == (Outcome.MAX_STEPS, 30)
    np.testing.assert_array_equal(result.history, limited.history)


def test_nothing_counts_before_the_warmup_is_over(x64):
    """Losses of growing KL weight cannot be compared: three windows after the 10 steps of it."""
    recipe = tiny.recipe(
        max_steps=100,
        batch_size=None,
        kl_warmup=10,
        stop=StopRule(window=2, tol=1e-3, patience=2),
    )
    result = run(np.zeros(40), recipe, kl=1.0)
    assert (result.outcome, result.n_steps) == (Outcome.CONVERGED, 10 + 6)


def test_a_falling_loss_never_converges(x64):
    """It falls by twice the tolerance per window."""
    recipe = tiny.recipe(
        max_steps=40,
        batch_size=None,
        learning_rate=1e-3,
        stop=StopRule(window=2, tol=1e-3, patience=2),
    )
    result = run(np.ones(40), recipe)
    assert (result.outcome, result.n_steps) == (Outcome.MAX_STEPS, 40)


@pytest.mark.parametrize(("max_steps", "n_steps"), [(1, 2), (4, 4), (5, 6)])
def test_the_limit_of_steps_is_rounded_up_to_epochs(max_steps, n_steps, x64):
    """Forty rows are two batches of 32."""
    result = run(np.zeros(40), tiny.recipe(max_steps=max_steps))
    assert result.n_steps == n_steps
    assert result.n_epochs * 2 == n_steps


def test_a_tolerance_of_zero_trains_to_the_end(x64):
    recipe = tiny.recipe(
        max_steps=50, batch_size=None, stop=StopRule(window=1, tol=0.0, patience=1)
    )
    result = run(np.zeros(40), recipe, kl=1.0)
    assert (result.outcome, result.n_steps) == (Outcome.MAX_STEPS, 50)


class TestStopRule:
    """The written rule itself."""

    rule = StopRule(tol=0.01, patience=3)

    def test_needs_patience_flat_windows_after_the_first(self):
        assert not self.rule.is_converged([1.0, 1.0, 1.0])
        assert self.rule.is_converged([1.0, 1.0, 1.0, 1.0])

    def test_one_drop_within_the_patience_starts_over(self):
        assert not self.rule.is_converged([1.0, 1.0, 1.0, 0.98])
        assert not self.rule.is_converged([1.0, 1.0, 0.98, 0.98, 0.98])
        assert self.rule.is_converged([1.0, 1.0, 0.98, 0.98, 0.98, 0.98])

    def test_is_measured_against_the_best_so_far(self):
        """A rise and a fall back is no progress."""
        assert self.rule.is_converged([1.0, 2.0, 1.5, 1.0])

    def test_is_relative_to_large_losses_and_absolute_for_small_ones(self):
        assert self.rule.is_converged([100.0, 99.5, 99.5, 99.5])
        assert not self.rule.is_converged([1.0, 0.985, 0.97, 0.955])
        assert self.rule.is_converged([0.01, 0.005, 0.001, 0.0])

    def test_negative_losses(self):
        assert self.rule.is_converged([-100.0, -100.5, -100.5, -100.5])
        assert not self.rule.is_converged([-100.0, -102.0, -104.0, -107.0])
        assert not self.rule.is_converged([-1.0, -1.02, -1.04, -1.06])

    def test_a_plateau_shorter_than_the_patience_is_survived(self):
        """The default rule waits ten windows of 1000 steps, as the plateaus seen were long."""
        default = StopRule()
        plateau = [2.0] + [1.0] * 10
        assert not default.is_converged(plateau)
        assert not default.is_converged([*plateau, 0.9])
        assert default.is_converged([*plateau, 1.0])

    @given(st.lists(st.floats(-1e6, 1e6), max_size=30))
    def test_zero_tolerance_never_stops(self, windows):
        assert not StopRule(tol=0.0, patience=1).is_converged(windows)

    @given(st.lists(st.floats(-10, 10), min_size=5, max_size=20), st.integers(1, 4))
    def test_equals_its_sentence(self, windows, patience):
        """Written out window by window."""
        rule = StopRule(tol=0.1, patience=patience)
        flat = [False]
        for i in range(1, len(windows)):
            best = min(windows[:i])
            flat.append(best - windows[i] < 0.1 * max(1.0, abs(best)))
        expected = len(windows) > patience and all(flat[-patience:])
        # At equality rounding decides; such cases are no test.
        margins = [
            abs(min(windows[:i]) - windows[i] - 0.1 * max(1.0, abs(min(windows[:i]))))
            for i in range(1, len(windows))
        ]
        if min(margins) > 1e-9:
            assert rule.is_converged(windows) == expected


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Recipe(kl_weight=-0.1), "kl_weight must be finite and not negative, but is -0.1"),
        (lambda: Recipe(kl_weight=float("nan")), "kl_weight must be finite"),
        (lambda: Recipe(learning_rate=float("inf")), "learning_rate must be finite"),
        (lambda: Recipe(kl_warmup=-1), "kl_warmup must not be negative, but is -1"),
        (lambda: Recipe(cooldown=-1), "cooldown must not be negative, but is -1"),
        (lambda: Recipe(max_steps=0), "max_steps must be at least 1, but is 0"),
        (lambda: Recipe(batch_size=0), "batch_size must be at least 1 or None, but is 0"),
        (lambda: StopRule(window=0), "window and patience must be at least 1"),
        (lambda: StopRule(patience=0), "window and patience must be at least 1"),
        (lambda: StopRule(tol=-1.0), "tol must not be negative"),
        (lambda: StopRule(tol=float("nan")), "tol must not be negative, but is nan"),
    ],
)
def test_impossible_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_papers_protocol_by_name():
    """Adam at 1e-3, batches of 128, the full KL from the start and a constant rate."""
    paper = Recipe.paper()
    assert (paper.learning_rate, paper.batch_size, paper.kl_weight) == (1e-3, 128, 1.0)
    assert (paper.kl_warmup, paper.cooldown) == (0, 0)
