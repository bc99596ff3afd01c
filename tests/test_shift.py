"""Sketches of columns, and tests of a shift: against counting, SciPy's exact laws, sampling."""

import itertools

import numpy as np
import pytest
from scipy import stats

from varprop.data.domain import Domain
from varprop.data.shift import count_is_off, counts_differ, more_extreme, together
from varprop.data.sketch import N_CELLS, Sketch, least_moved


def test_a_sketch_of_few_values_is_all_of_them():
    values = np.array([3.0, 1.0, 1.0, -2.0, 3.0, 3.0])
    found = Sketch.of(values, missing=2)
    assert found == Sketch((-2.0, 1.0, 3.0), (0, 1, 3), (1, 3, 6), 6, 2)
    assert found.is_sound
    assert (found.quantile(0.0), found.quantile(0.5), found.quantile(1.0)) == (-2.0, 1.0, 3.0)


@pytest.mark.parametrize("seed", range(4))
def test_of_few_values_the_gap_is_that_of_scipy(seed):
    """All values are in the sketch, so that nothing is lost; ties among them."""
    rng = np.random.default_rng(seed)
    old, new = rng.poisson(3, 25) * 1.0, rng.poisson(4, 40) * 1.0
    moved = Sketch.of(old).moved(new)
    assert moved.size == pytest.approx(stats.ks_2samp(old, new).statistic)
    assert moved.up == pytest.approx(stats.ks_2samp(old, new, alternative="greater").statistic)
    assert moved.down == pytest.approx(stats.ks_2samp(old, new, alternative="less").statistic)


def test_of_many_values_a_cell_is_lost_at_most():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=5000), rng.normal(0.3, size=900)
    found, truth = Sketch.of(old).moved(new).size, stats.ks_2samp(old, new).statistic
    assert len(Sketch.of(old).values) == N_CELLS + 1
    assert truth - 1 / N_CELLS < found <= truth


@pytest.mark.parametrize("sizes", [(5, 5), (10, 10), (20, 20), (7, 30), (50, 40), (200, 200)])
def test_the_bound_is_no_less_than_the_exact_probability_and_not_far_from_it(sizes):
    """SciPy counts the paths; from a probability of a fifth on, as that is what decides."""
    n, m = sizes
    ratios = {"two-sided": [], "greater": []}
    for step in range(0, m + 1):
        # Of the new values so many lie below all of the old ones.
        old = np.arange(n) + m * 1.0
        new = np.concatenate([np.full(step, -1.0) - np.arange(step), np.arange(m - step) + 3 * m])
        for side, found in ratios.items():
            moved = Sketch(tuple(old.tolist()), tuple(range(n)), tuple(range(1, n + 1)), n).moved(
                new
            )
            law = stats.ks_2samp(old, new, alternative=side, method="exact")
            p = moved.p if side == "two-sided" else moved.p_up
            if 1e-12 < law.pvalue < 0.2:
                found.append(p / law.pvalue)
    for found in ratios.values():
        if found:
            assert min(found) >= 1
    # It is of use: near where decisions fall it is not much too large.
    assert min(ratios["two-sided"], default=1) < 3.5


@pytest.mark.parametrize("law", ["normal", "poisson", "spike"])
def test_false_alarms_are_no_more_than_stated(law):
    rng = np.random.default_rng(1)
    draw = {
        "normal": rng.normal,
        "poisson": lambda size: rng.poisson(1.5, size) * 1.0,
        "spike": lambda size: np.where(rng.random(size) < 0.9, 0.0, rng.normal(size=size)),
    }[law]
    ps = np.array([Sketch.of(draw(size=150)).moved(draw(size=60)).p for _ in range(1500)])
    for level in (0.2, 0.05):
        # At most the level, to four standard errors; a fair part of it where there are no ties.
        assert (ps <= level).mean() < level + 4 * np.sqrt(level * (1 - level) / len(ps))
    if law == "normal":
        assert (ps <= 0.2).mean() > 0.06


def test_least_moved_is_where_the_probability_is_the_level():
    level, n, m = 0.01, 400, 100
    gap = least_moved(level, n, m)
    for count, below in ((int(gap * m), False), (int(gap * m) + 1, True)):
        new = np.concatenate([np.full(count, -1.0), np.full(m - count, 2.0)])
        # All old values are between the two, and as many of them are made to lie below.
        old = Sketch((0.0, 2.0), (0, 0), (0, n), n)
        assert (old.moved(new).p < level) is below


def test_counts_are_compared_by_counting():
    n, m, old, new = 7, 5, 2, 4
    rows = range(n + m)
    marked = set(range(old + new))
    drawn = [len(marked & set(chosen)) for chosen in itertools.combinations(rows, m)]
    tails = [np.mean([d <= new for d in drawn]), np.mean([d >= new for d in drawn])]
    assert counts_differ(old, n, new, m) == pytest.approx(min(1, 2 * min(tails)))
    assert counts_differ(0, 10, 0, 20) == 1
    draws = [sum(bits) for bits in itertools.product([0, 1], repeat=6)]
    tail = np.mean([d >= 5 for d in draws])
    assert (
        count_is_off(5, 6, 0.5) == pytest.approx(2 * tail) == pytest.approx(count_is_off(1, 6, 0.5))
    )


@pytest.mark.parametrize("rank", [1, 2])
def test_what_is_more_extreme_is_counted_too(rank):
    n, m = 5, 4
    counts = []
    for places in itertools.combinations(range(n + m), n):  # where the old values stand
        counts.append(n + m - 1 - places[-rank] - (rank - 1))
    for new in range(m + 1):
        assert more_extreme(rank, n, new, m) == pytest.approx(np.mean(np.array(counts) >= new))


def test_both_ends_of_a_range_have_rank_two():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(20_000, 30)), rng.normal(size=(20_000, 20))
    low, high = old.min(axis=1, keepdims=True), old.max(axis=1, keepdims=True)
    outside = ((new < low) | (new > high)).sum(axis=1)
    for count in (1, 2, 4):
        p, found = more_extreme(2, 30, count, 20), (outside >= count).mean()
        assert abs(found - p) < 4 * np.sqrt(p * (1 - p) / len(old))


def test_holm_by_hand():
    assert together([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert together([]) == []
    assert together([0.9, 0.8]) == [1.0, 1.0]


def test_the_limit_of_distances_has_the_rank_that_is_said():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 4))
    n, rank = Domain.learned_from(1000, 4)
    assert (n, rank) == (1000, 6)
    assert Domain.learned_from(10**6, 4)[0] == 2**14
    far = Domain.of(x).outside(x).far.sum()
    assert far < rank  # also of distances that have the row itself in them


def test_cells_are_shares():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=1000), rng.normal(1, size=300)
    cuts, past, now = Sketch.of(old).cells(new)
    edges = np.concatenate([[-np.inf], cuts, [np.inf]])
    for shares, values in ((past, old), (now, new)):
        counted = [((values > a) & (values <= b)).mean() for a, b in itertools.pairwise(edges)]
        np.testing.assert_allclose(shares, counted, atol=1e-12)
    assert len(cuts) == 7
    assert len(Sketch.of(np.full(9, 2.0)).cells(new)[0]) == 0


def damaged():
    good = {"values": (0.0, 1.0), "less": (0, 1), "upto": (1, 2), "n": 2, "missing": 0}
    yield good | {"values": (1.0, 0.0)}
    yield good | {"values": (0.0, 0.0)}
    yield good | {"values": (0.0, float("nan"))}
    yield good | {"values": ()}
    yield good | {"less": (1, 0)}
    yield good | {"upto": (1, 3)}
    yield good | {"upto": (1,)}
    yield good | {"n": 2.0}
    yield good | {"n": -1}
    yield good | {"missing": -1}
    yield good | {"values": [0.0, 1.0]}


@pytest.mark.usefixtures("as_users_run_it")
@pytest.mark.parametrize("fields", list(damaged()))
def test_a_damaged_sketch_is_told(fields):
    assert not Sketch(**fields).is_sound
