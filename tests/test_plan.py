"""Which rows come when, and when training warms up, cools down and ends: without JAX or data.

A lane is played here: its losses are made up, and the schedule says what to do.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varprop.training.recipe import Recipe, StopRule
from varprop.training.schedule import MAX_PASSES, Outcome, Plan, Schedule, cooled, warmth


def test_a_schedule_needs_no_jax():
    """In a process of its own, from the plan to the end."""
    code = """
import sys
from varprop.training.recipe import Recipe
from varprop.training.schedule import Plan, Schedule
schedule = Schedule(Recipe(max_steps=30), Plan.of((100,), Recipe(batch_size=10), row_bytes=8))
while schedule.saw([1.0] * schedule.passes(), finite=True) is None:
    pass
print(schedule.max_steps, [name for name in ("jax", "equinox", "optax") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "30 []"


# ---- plans --------------------------------------------------------------------------------------

shapes = st.tuples(
    st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 20), st.integers(1, 5)
)


def plan_of(shape):
    blocks, batch, batches = shape
    return Plan(tuple(blocks), batch, batch * batches, shuffle=True, seed=(1, 2))


@given(shapes, st.integers(0, 30))
def test_steps_add_up(shape, number):
    """Counted buffer by buffer; an epoch has the rows there are and as many steps as in memory."""
    plan = plan_of(shape)
    assert sum(plan.rows_of(g) for g in range(plan.n_buffers)) == sum(plan.block_rows)
    assert sum(plan.steps_of(g) for g in range(plan.n_buffers)) == plan.steps_per_epoch
    assert plan.steps_per_epoch == -(-sum(plan.block_rows) // plan.batch_size)
    assert plan.steps_before(number) == sum(plan.steps_of(g) for g in range(number))


@given(shapes, st.integers(0, 12), st.integers(0, 60))
def test_lengths_are_whole_buffers_never_shorter_than_asked(shape, number, steps):
    plan = plan_of(shape)
    at = plan.steps_before(number)
    after, before = plan.after(number, steps), plan.before(number, steps)
    assert plan.steps_before(after) >= at + steps
    assert after == number or plan.steps_before(after - 1) < at + steps
    assert plan.steps_before(before) <= max(0, at - steps)
    assert plan.steps_before(before + 1) > max(0, at - steps)


@given(shapes, st.integers(0, 5))
def test_an_epoch_has_every_block_once(shape, epoch):
    plan = plan_of(shape)
    order = plan.order(epoch)
    assert sorted(order) == list(range(len(plan.block_rows)))
    np.testing.assert_array_equal(order, plan.order(epoch))
    if plan.n_buffers == 1:
        assert order.tolist() == sorted(order)


def test_epochs_and_seeds_have_orders_of_their_own():
    def plan(seed):
        return Plan((10,) * 30, 10, 100, shuffle=True, seed=(seed,))

    orders = [tuple(plan(seed).order(epoch)) for seed in (0, 1) for epoch in range(3)]
    assert len(set(orders)) == 6


def test_a_plan_for_rows_in_memory():
    plan = Plan.of((300,), Recipe(batch_size=32), row_bytes=40, buffer_rows=300)
    assert (plan.n_buffers, plan.batch_size, plan.shuffle) == (1, 32, True)
    assert plan.buffer_rows == 320  # padded, so that similar counts share a program
    shared = Plan.of((300,), Recipe(batch_size=32), row_bytes=40, buffer_rows=300, room=1000)
    assert shared.buffer_rows == 1024
    for batch_size in (320, 1000, None):
        whole = Plan.of((300,), Recipe(batch_size=batch_size), row_bytes=40)
        assert (whole.batch_size, whole.shuffle, whole.steps_per_epoch) == (320, False, 1)


def test_a_plan_for_more_rows_than_a_buffer_holds():
    assert Plan.of((10**6, 10**6), Recipe(), row_bytes=40).buffer_rows == 2**20
    assert (
        Plan.of((10**6, 10**6), Recipe(), row_bytes=1000).buffer_rows == 2**27 // 1000 // 128 * 128
    )
    plan = Plan.of((50, 50), Recipe(batch_size=16), row_bytes=8, buffer_rows=40)
    assert (plan.buffer_rows, plan.n_buffers, plan.steps_per_epoch) == (32, 4, 7)


# ---- the KL's and the learning rate's share -----------------------------------------------------


def test_shares_of_kl_and_learning_rate():
    steps = np.arange(8)
    np.testing.assert_allclose(warmth(steps, 4), [0, 0.25, 0.5, 0.75, 1, 1, 1, 1])
    np.testing.assert_array_equal(warmth(steps, 0), 1)
    np.testing.assert_allclose(cooled(steps, 3, 4), [1, 1, 1, 1, 0.75, 0.5, 0.25, 0])


# ---- schedules ----------------------------------------------------------------------------------


def schedule_of(n_rows=100, *, batch_size=10, buffer_rows=None, **changes):
    plain = {"kl_warmup": 0, "cooldown": 0, "stop": StopRule(tol=0.0)}
    recipe = Recipe(**{"batch_size": batch_size, **plain, **changes})
    return Schedule(recipe, Plan.of((n_rows,), recipe, row_bytes=8, buffer_rows=buffer_rows))


def play(schedule, loss=lambda epoch: 1.0):
    """Run to the end on made-up losses of epochs; return the outcome and every call's passes."""
    calls, outcome = [], None
    while outcome is None:
        calls.append(schedule.passes())
        epochs = [(schedule.position + i) // schedule.plan.n_buffers for i in range(calls[-1])]
        outcome = schedule.saw([loss(epoch) for epoch in epochs], finite=True)
    return outcome, calls


BUFFERS = pytest.mark.parametrize("buffer_rows", [None, 30], ids=["one buffer", "four buffers"])


@BUFFERS
@pytest.mark.parametrize("max_steps", [1, 10, 25])
def test_the_limit_of_steps_is_rounded_up_to_whole_buffers(buffer_rows, max_steps):
    schedule = schedule_of(max_steps=max_steps, buffer_rows=buffer_rows)
    outcome, calls = play(schedule)
    assert outcome is Outcome.MAX_STEPS
    assert sum(calls) == schedule.position == schedule.last
    expected = {1: (10, 3), 10: (10, 10), 25: (30, 26)}[max_steps][buffer_rows is not None]
    assert schedule.max_steps == schedule.plan.steps_before(schedule.position) == expected


def test_long_runs_are_cut_into_calls():
    _, calls = play(schedule_of(max_steps=50_000, stop=StopRule(window=10**6, tol=0.0)))
    assert max(calls) == MAX_PASSES
    assert sum(calls) == 5000


@BUFFERS
def test_the_cooldown_ends_with_the_limit(buffer_rows):
    """Ten steps an epoch: of a hundred, the last thirty."""
    schedule = schedule_of(max_steps=100, cooldown=30, buffer_rows=buffer_rows)
    while schedule.plan.steps_before(schedule.position) < 70:
        schedule.passes()
        assert schedule.cooldown_steps()[0] > 1e20  # not yet
        assert schedule.saw([1.0], finite=True) is None
    schedule.passes()
    assert schedule.cooldown_steps() == (70.0, 30.0)
    assert play(schedule)[0] is Outcome.MAX_STEPS


def test_a_cooldown_longer_than_training_takes_all_of_it():
    schedule = schedule_of(max_steps=50, cooldown=1000)
    schedule.passes()
    assert schedule.cooldown_steps() == (0.0, 50.0)


@BUFFERS
@pytest.mark.parametrize(("warmup", "cooldown"), [(0, 0), (35, 0), (0, 30), (35, 30)])
def test_a_flat_loss_converges(buffer_rows, warmup, cooldown):
    """Windows of two epochs after the warm-up: one for reference, two flat ones, the cool-down."""
    schedule = schedule_of(
        max_steps=10_000,
        kl_warmup=warmup,
        cooldown=cooldown,
        stop=StopRule(window=20, tol=1e-3, patience=2),
        buffer_rows=buffer_rows,
    )
    outcome, _ = play(schedule)
    assert outcome is Outcome.CONVERGED
    assert schedule.window_means == [1.0] * 3
    warm = 40 if warmup else 0
    assert schedule.plan.steps_before(schedule.position) == warm + 60 + cooldown
    if cooldown:
        assert schedule.cooldown_steps() == (warm + 60.0, 30.0)


def test_convergence_near_the_limit_cools_down_within_it():
    schedule = schedule_of(
        max_steps=100, cooldown=30, stop=StopRule(window=30, tol=1e-3, patience=1)
    )
    assert play(schedule)[0] is Outcome.CONVERGED
    assert schedule.cooldown_steps() == (60.0, 30.0)
    late = schedule_of(max_steps=100, cooldown=30, stop=StopRule(window=35, tol=1e-3, patience=1))
    assert play(late)[0] is Outcome.MAX_STEPS
    assert late.cooldown_steps() == (70.0, 30.0)


@BUFFERS
def test_a_falling_loss_does_not_converge(buffer_rows):
    schedule = schedule_of(
        max_steps=500, stop=StopRule(window=10, tol=1e-3, patience=3), buffer_rows=buffer_rows
    )
    assert play(schedule, lambda epoch: 10 - 0.1 * epoch)[0] is Outcome.MAX_STEPS
    np.testing.assert_allclose(schedule.losses, 10 - 0.1 * np.arange(50))


def test_the_loss_of_an_epoch_weighs_buffers_by_their_steps():
    """Buffers of 3, 3, 3 and 1 steps; a mean of all ten."""
    schedule = schedule_of(max_steps=20, buffer_rows=30)
    for loss in (1.0, 2.0, 3.0, 4.0):
        assert schedule.saw([loss], finite=True) is None
    assert schedule.losses == pytest.approx([(3 + 6 + 9 + 4) / 10])
    # What is begun is told too, but not compared.
    schedule.saw([5.0], finite=True)
    assert schedule.history(Outcome.INTERRUPTED) == pytest.approx([2.2, 5.0])
    assert schedule.history(Outcome.NONFINITE) == pytest.approx([2.2])


def test_a_loss_that_is_not_finite_ends_it():
    schedule = schedule_of(max_steps=100)
    assert schedule.saw([2.0, 1.0], finite=False) is Outcome.NONFINITE
    assert schedule.history(Outcome.NONFINITE).tolist() == [2.0, 1.0]


@BUFFERS
@pytest.mark.parametrize("cut", [1, 5, 9, 12])
def test_a_schedule_taken_up_again_goes_on_as_it_was(buffer_rows, cut):
    """Its state is JSON, and says all that there is."""

    def fresh():
        return schedule_of(
            max_steps=200,
            kl_warmup=20,
            cooldown=40,
            stop=StopRule(window=20, tol=0.01, patience=2),
            buffer_rows=buffer_rows,
        )

    def loss(epoch):
        return max(1.0, 2.0 - 0.2 * epoch)

    whole, half, again = fresh(), fresh(), fresh()
    for _ in range(cut):
        epochs = half.position // half.plan.n_buffers + np.arange(half.passes())
        if half.saw([loss(epoch) for epoch in epochs], finite=True) is not None:
            return  # it was over before
    again.restore(json.loads(json.dumps(half.state())))
    assert again.state() == half.state()
    assert play(again, loss)[0] is play(whole, loss)[0]
    assert again.state() == whole.state()
