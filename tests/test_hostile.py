"""At its defaults no model is much worse than knowing nothing, whatever the table.

The tables and the scores are in hostile.py; benchmarks/hostile.py prints them all, with more seeds
and with other options.
"""

import os

import jax
import numpy as np
import pytest

from hostile import CASES, judge
from varprop import FAWNRegressor, StackedRegressor, default_networks
from varprop.training import program

pytestmark = pytest.mark.usefixtures("as_users_run_it")
# What is dangerous for a network on its own, tried with more seeds.
BARE = ("95% zeros", "rows 10 times", "weights 1e6", "Cauchy noise", "20 rows", "targets of 1e-300")


FEW = ("2 rows", "3 rows")


@pytest.fixture(scope="module", autouse=True)
def steps_as_users_take_them():
    """Long trainings by XLA's newer code generator, which conftest.py leaves for its compile time.

    Its steps are more than twice as fast, and here there are millions of them.
    """
    if "fusion_emitters" not in os.environ.get("XLA_FLAGS", ""):
        yield
        return
    plain = program._run_single_threaded
    options = program.ONE_THREAD | {"xla_cpu_use_fusion_emitters": True}
    program._run_single_threaded = jax.jit(
        program._run_epochs, static_argnums=0, compiler_options=options
    )
    yield
    program._run_single_threaded = plain


@pytest.mark.parametrize(
    ("name", "seed"), [*((name, 0) for name in CASES if name not in FEW), *((n, 1) for n in BARE)]
)
def test_the_stack_is_never_over_sure(name, seed):
    case = CASES[name]
    found = judge(StackedRegressor(random_state=seed), case, seed)
    assert found.behind <= case.nats
    assert found.crps_ratio <= 1.02
    assert found.coverage >= 0.75


@pytest.mark.parametrize("name", FEW)
def test_few_rows_are_judged_over_many_draws(name):
    """Two rows may lie anywhere: no interval of theirs holds 75 % every time."""
    case = CASES[name]
    found = [judge(StackedRegressor(random_state=0), case, seed) for seed in range(200)]
    assert max(one.behind for one in found) <= case.nats
    assert np.mean([one.crps_ratio for one in found]) <= 1.0
    coverage = np.mean([one.coverage for one in found])
    assert coverage >= {"2 rows": 0.6, "3 rows": 0.7}[name]


@pytest.mark.parametrize("name", BARE)
def test_a_network_is_bounded(name):
    found = judge(FAWNRegressor(random_state=0), CASES[name], 0)
    assert found.behind <= 1.0
    assert found.coverage >= 0.75


@pytest.mark.parametrize(
    "options",
    [{"kl_weight": 0.1}, {"kl_weight": 0.3}, {"objective": "vi"}, {"weights": "bernoulli"}],
    ids=str,
)
@pytest.mark.parametrize("name", ["rows 10 times", "95% zeros"])
def test_options_do_not_change_that(name, options):
    case = CASES[name]
    network = judge(FAWNRegressor(random_state=0, **options), case, 0)
    assert network.behind <= 1.0
    assert network.coverage >= 0.75
    stack = judge(StackedRegressor(default_networks(**options), random_state=0), case, 0)
    assert stack.behind <= case.nats
    assert stack.crps_ratio <= 1.02
    assert stack.coverage >= 0.75


@pytest.mark.parametrize("seed", [1, 2])
def test_a_network_is_judged_by_its_own_spread(seed):
    """Without the fifth that is set aside it may end in another optimum, half as sure (seed 2)."""
    model = FAWNRegressor(objective="vi", random_state=seed)
    found = judge(model, CASES["rows 2 times"], seed)
    assert found.behind <= 0
    assert found.coverage >= 0.75


def test_the_papers_objective_is_not():
    """So that the tables above are known to be traps."""
    found = judge(FAWNRegressor(validation=None, random_state=0), CASES["rows 10 times"], 0)
    assert found.behind > 10
