"""What was seen: new rows of the same kind raise no alarm, rows unlike any do."""

import numpy as np
import pytest

from varprop.data.domain import MOST_CORRELATED, Domain


def gaussian(rng, n, d):
    mix = np.linalg.cholesky(0.7 * np.ones((d, d)) + 0.3 * np.eye(d))
    return rng.normal(size=(n, d)) @ mix.T


def lognormal(rng, n, d):
    return np.exp(rng.normal(size=(n, d)))


def one_hot(rng, n, d):
    levels = np.eye(4)[rng.choice(4, p=[0.5, 0.3, 0.14, 0.06], size=n)]
    return np.hstack([levels, rng.normal(size=(n, d)), lognormal(rng, n, 1)])


def collinear(rng, n, d):
    a = rng.normal(size=(n, d))
    return np.hstack([a, a.sum(axis=1, keepdims=True), 3 * a[:, :1], np.ones((n, 1))])


KINDS = {
    "gaussian": gaussian,
    "uniform": lambda rng, n, d: rng.uniform(size=(n, d)),
    "lognormal": lognormal,
    "one_hot": one_hot,
    "collinear": collinear,
}


@pytest.mark.parametrize(("n", "d"), [(50, 2), (50, 5), (50, 60), (200, 5), (200, 30), (2000, 5)])
@pytest.mark.parametrize("kind", KINDS)
def test_new_rows_of_the_same_kind_raise_no_alarm(kind, n, d):
    rng = np.random.default_rng(0)
    far, beyond = [], []
    for _ in range(60 if n <= 200 else 6):
        domain = Domain.of(KINDS[kind](rng, n, d))
        found = domain.outside(KINDS[kind](rng, 500, d))
        far.append(found.far.mean())
        beyond.append(found.beyond.mean())
    assert np.mean(far) < 0.01
    # A new extreme would be an alarm for 2 / n of the values.
    assert np.mean(beyond) < (0.8 if kind == "lognormal" else 0.25) / n


@pytest.mark.parametrize("seed", range(5))
def test_a_row_that_breaks_a_relation_is_far(seed):
    rng = np.random.default_rng(seed)
    a, others = rng.normal(size=(200, 1)), rng.normal(size=(200, 3))
    noisy = np.hstack([a, 0.95 * a + np.sqrt(1 - 0.95**2) * rng.normal(size=(200, 1)), others])
    found = Domain.of(noisy).outside(np.array([[2.0, -2, 0, 0, 0], [2.0, 2, 0, 0, 0]]))
    assert found.far.tolist() == [True, False]
    assert not found.beyond.any()
    assert found.rows.tolist() == [True, False]
    # An exact relation: half a standard deviation is enough.
    found = Domain.of(np.hstack([a, 2 * a, others])).outside(
        np.array([[0.5, 0, 0, 0, 0], [0.5, 1, 0, 0, 0]])
    )
    assert found.far.tolist() == [True, False]
    # One outlier, of either kind, does not hide it.
    noisy = np.concatenate([np.concatenate([noisy + 0.01 * i for i in range(5)]), noisy[:2]])
    noisy[-1] = [1e9, -1e9, 0, 0, 0]
    noisy[-2] = [1.5, -1.5, 0, 0, 0]
    assert Domain.of(noisy).outside(np.array([[2.0, -2, 0, 0, 0]])).far.all()


def test_two_levels_at_once_are_far():
    rng = np.random.default_rng(0)
    domain = Domain.of(one_hot(rng, 300, 2))
    rows = np.array([[1.0, 0, 0, 0, 0, 0, 1], [1.0, 1, 0, 0, 0, 0, 1], [0.0, 0, 0, 0, 0, 0, 1]])
    assert domain.outside(rows).far.tolist() == [False, True, True]


def test_a_value_beyond_the_range():
    depth = np.linspace(43, 79, 100)[:, None]
    domain = Domain.of(np.hstack([depth, np.full((100, 1), 0.1)]))
    x = np.array([[43, 0.1], [79, 0.1], [80, 0.1], [6000, 0.1], [-6000, 0.1], [60, 0.10001]])
    found = domain.outside(x)
    assert found.beyond.tolist() == [[False, False]] * 3 + [[True, False]] * 2 + [[False, True]]
    assert not found.far.any()  # one column that varies is no combination
    assert found.rows.tolist() == [False] * 3 + [True] * 3
    names = ["depth", "rate"]
    assert domain.words(x[2], names) == ""
    assert domain.words(x[3], names) == "depth is 6000, seen 43 to 79"
    assert domain.words(x[5], names) == "rate is 0.10001, seen only 0.1"
    assert domain.words(np.array([-1e5, 3.0]), names) == (
        "depth is -100000, seen 43 to 79; rate is 3, seen only 0.1"
    )


def test_what_was_seen_is_not_beyond():
    rng = np.random.default_rng(0)
    x = rng.standard_t(1, size=(500, 3))
    x[7, 1] = 1e12
    assert not Domain.of(x).outside(x).beyond.any()


def test_a_column_that_ends_sharply_is_widened_less_than_a_skewed_one():
    rng = np.random.default_rng(0)
    x = np.hstack([rng.uniform(0, 1, size=(1000, 1)), lognormal(rng, 1000, 1)])
    domain = Domain.of(x)
    wider = (domain.most - domain.low) / (domain.high - domain.low)
    assert domain.outside(np.array([[1.5, 1.0], [-0.5, 1.0]])).beyond[:, 0].all()
    assert not domain.outside(np.array([[1.2, 1.0], [-0.2, 1.0]])).beyond.any()
    assert wider[0] < 1.5
    assert not domain.outside(np.array([[0.5, 1.2 * domain.high[1]]])).beyond.any()


def test_words_tell_numbers_apart_and_are_few():
    times = 1_700_000_000 + np.arange(100.0)
    domain = Domain.of(np.tile(times[:, None], 5))
    row = np.full(5, 1_700_009_000.0)
    said = domain.words(row, list("abcde"))
    assert said.startswith("a is 1700009000, seen 1700000000 to 1700000099; b is ")
    assert said.endswith("; and 2 more")


@pytest.mark.parametrize("n", [1, 2, 3, 19])
@pytest.mark.parametrize("d", [1, 2, 40])
def test_few_rows_say_little(n, d):
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, d))
    domain = Domain.of(x)
    assert not domain.outside(rng.normal(size=(50, d))).far.any()
    assert not domain.outside(x).rows.any()
    assert domain.outside(np.full((1, d), 1e6)).beyond.all()


@pytest.mark.parametrize("size", [1e-300, 1e-200, 1.0, 1e200, 1e300, 1e306])
def test_values_of_any_size(size):
    x = np.random.default_rng(0).uniform(-1, 1, size=(200, 3))
    x[:, 2] = x[:, 0] + 0.1 * x[:, 1]
    rows = np.array([[0.0, 0, 0], [0.9, 0, -0.9], [3.0, 0, 3.0]])
    domain = Domain.of(size * x)
    found = domain.outside(size * rows)
    assert found.far.tolist()[:2] == [False, True]
    assert found.beyond.tolist() == [[False] * 3, [False] * 3, [True, False, True]]
    assert domain.outside(np.full((1, 3), 1.7e308)).beyond.all()
    assert domain.outside(np.full((1, 3), -1.7e308)).beyond.all()
    assert domain.outside(np.full((1, 3), np.inf)).beyond.all()


def test_repeated_rows_and_rows_of_no_weight_change_nothing():
    rng = np.random.default_rng(0)
    x = gaussian(rng, 150, 3)
    wanted = Domain.of(x)
    weight = np.r_[np.ones(300), 0.0]
    twice = np.concatenate([x[::-1], x, np.full((1, 3), 1e9)])
    for name in ("low", "high", "least", "most", "shift", "scale", "whitening", "limit"):
        same = getattr(Domain.of(twice, weight), name)
        assert np.array_equal(same, getattr(wanted, name)), name
        blocks = Domain.of_blocks([x[:70], x[:0], x[50:]])
        assert np.array_equal(getattr(blocks, name), getattr(wanted, name)), name


def test_many_rows_are_drawn_from_but_all_give_the_range(monkeypatch):
    monkeypatch.setattr("varprop.data.domain._MOST_ROWS", 500)
    rng = np.random.default_rng(0)
    x = gaussian(rng, 5000, 3)
    whole, parts = Domain.of(x), Domain.of_blocks(np.array_split(x, 6))
    assert np.array_equal(whole.low, x.min(axis=0))
    assert np.array_equal(whole.high, x.max(axis=0))
    assert np.array_equal(whole.whitening, parts.whitening)
    assert whole.outside(gaussian(rng, 5000, 3)).far.mean() < 0.01
    np.testing.assert_allclose(whole.scale, x.std(axis=0), rtol=0.2)


def test_wide_tables_keep_no_correlations():
    rng = np.random.default_rng(0)
    d = MOST_CORRELATED + 1
    domain = Domain.of(rng.normal(size=(100, d)))
    assert domain.whitening.shape == (d,)
    assert domain.outside(rng.normal(size=(500, d))).far.mean() < 0.01
    assert domain.outside(2 * rng.normal(size=(500, d))).far.all()
    assert Domain.of(rng.normal(size=(100, d - 1))).whitening.shape == (d - 1, d - 1)


def test_no_rows():
    with pytest.raises(ValueError, match="there are no rows to learn a range from"):
        Domain.of(np.ones((2, 2)), np.zeros(2))
