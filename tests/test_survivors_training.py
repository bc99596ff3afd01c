"""What mutants of training had survived."""

import contextlib
import time

import jax
import numpy as np
import pytest

import tiny
from varprop import ROPD, Recipe, StopRule, fit_many
from varprop.data import Statistics
from varprop.training import runner as running
from varprop.training.preparation import Lane, prepare
from varprop.training.schedule import MAX_PASSES, Outcome, Plan, Schedule


@pytest.mark.parametrize(
    ("before", "after", "flat"),
    [
        (0.5, 0.42, True),  # the tolerance is absolute where losses are small
        (0.5, 0.38, False),
        (10.0, 9.2, True),  # and relative where they are not
        (10.0, 8.8, False),
        (-10.0, -10.8, True),
        (-10.0, -11.2, False),
    ],
)
def test_how_much_less_a_loss_must_be(before, after, flat):
    assert StopRule(tol=0.1, patience=1).is_converged([before, after]) is flat


class Bar:
    """What a progress bar is told."""

    def __init__(self):
        self.total, self.told = None, []

    def add_task(self, description, *, total, loss):
        self.total = total
        return 0

    def update(self, task, **fields):
        self.told.append(fields)


def test_the_bar_counts_steps_of_all_lanes(monkeypatch):
    """Lanes of 4 and 12 steps: each is as long as the longest, one that has ended counts whole."""
    bar, advance = Bar(), running.Runner.advance

    def slowly(self):
        time.sleep(0.02)
        advance(self)

    monkeypatch.setattr(running, "_progress_bar", lambda: contextlib.nullcontext(bar))
    monkeypatch.setattr(running, "_POLL_SECONDS", 1e-3)
    monkeypatch.setattr(running.Runner, "advance", slowly)
    lanes = [
        Lane(model=tiny.model(), key=jax.random.key(i), recipe=tiny.recipe(max_steps=steps))
        for i, steps in enumerate((4, 12))
    ]
    fits = fit_many(lanes, tiny.data(64), ROPD(), progress=True)
    assert [fit.n_steps for fit in fits] == [4, 12]
    completed = np.array([fields["completed"] for fields in bar.told])
    assert bar.total == 24
    assert completed[0] < completed[-1] == 24
    assert (np.diff(completed) >= 0).all()
    assert bar.told[-1]["description"] == "lanes 2/2"
    bar.told.clear()
    fit_many(lanes, tiny.data(64), ROPD())
    assert not bar.told


def test_only_one_large_lane_may_use_several_threads():
    """Small products are faster on one, and lanes side by side have one each."""
    data = tiny.data(200)

    def lanes(*widths):
        recipe = tiny.recipe(batch_size=128)
        models = (tiny.model(hidden_layer_sizes=(width,)) for width in widths)
        return [Lane(model=model, key=jax.random.key(0), recipe=recipe) for model in models]

    def found(*widths):
        return [runner.program.multi_thread for runner in prepare(lanes(*widths), data, ROPD())]

    assert found(70_000) == [True]
    assert found(4) == [False]
    assert found(70_000, 70_000) == [False, False]


def test_no_lanes_and_foreign_statistics_are_refused():
    with pytest.raises(ValueError, match="no lanes"):
        fit_many([], tiny.data(8), ROPD())
    lane = Lane(model=tiny.model(), key=jax.random.key(0))
    assert lane.recipe == Recipe()
    for other in (tiny.data(9), tiny.data(8, n_inputs=3)):
        with pytest.raises(ValueError, match="statistics belong to other rows"):
            prepare([lane], tiny.data(8), ROPD(), statistics=Statistics.of(other))


def test_no_call_passes_the_end_of_a_window():
    """Windows of one and a half calls: what follows a whole call is the half that is left."""
    plan = Plan((10,), batch_size=10, buffer_rows=10, shuffle=True, seed=(0,))
    window = MAX_PASSES * 3 // 2
    stop = StopRule(window=window, tol=1e-3, patience=1)
    recipe = Recipe(kl_warmup=0, cooldown=0, max_steps=10 * window, stop=stop)
    schedule, calls, outcome = Schedule(recipe, plan), [], None
    while outcome is None:
        calls.append(schedule.passes())
        outcome = schedule.saw([1.0] * calls[-1], finite=True)
    assert calls == [MAX_PASSES, window - MAX_PASSES] * 2
    assert outcome is Outcome.CONVERGED
