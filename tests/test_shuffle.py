"""The order of rows in an epoch: a permutation, the padding last, all permutations alike."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from varprop.training.program import shuffled

# Each of the uniformity tests below fails a correct shuffle with this probability; the seeds are
# fixed, so that they do not fail by chance from run to run.
FALSE_ALARM = 1e-4


def orders(n_rows, padded, n_epochs):
    rows = jnp.arange(padded, dtype=jnp.int32)
    run = jax.jit(jax.vmap(shuffled, in_axes=(None, None, 0)))
    return np.asarray(run(rows, jnp.int32(n_rows), jax.random.split(jax.random.key(3), n_epochs)))


@pytest.mark.parametrize(("n", "padded"), [(1, 32), (2, 32), (31, 32), (32, 32), (455, 512)])
def test_every_row_once_and_the_padding_last(n, padded):
    for order in orders(n, padded, 5):
        assert sorted(order[:n]) == list(range(n))
        np.testing.assert_array_equal(order[n:], np.arange(n, padded))


def test_the_order_does_not_depend_on_the_padding():
    np.testing.assert_array_equal(orders(100, 104, 3)[:, :100], orders(100, 128, 3)[:, :100])


def test_all_permutations_of_five_rows_are_equally_likely():
    _, counts = np.unique(orders(5, 8, 60_000)[:, :5], axis=0, return_counts=True)
    assert len(counts) == 120
    assert chisquare(counts).pvalue > FALSE_ALARM


def test_every_row_is_equally_likely_in_every_place():
    n = 50
    drawn = orders(n, 56, 20_000)[:, :n]
    counts = np.array([np.bincount(drawn[:, place], minlength=n) for place in range(n)])
    # Rows and columns have fixed sums, hence the degrees of freedom (n - 1)^2.
    assert chisquare(counts.ravel(), ddof=2 * n - 2).pvalue > FALSE_ALARM


def test_neighbours_in_one_epoch_are_unrelated():
    n = 50
    drawn = orders(n, 56, 20_000)[:, :n].astype(int)
    for lag in (1, 7, 25):
        steps = np.bincount((drawn[:, lag] - drawn[:, 0]) % n, minlength=n)[1:]
        assert chisquare(steps).pvalue > FALSE_ALARM / 3


def test_epochs_are_unrelated():
    n = 50
    drawn = orders(n, 56, 20_001)[:, :n].astype(int)
    steps = np.bincount((drawn[1:, 0] - drawn[:-1, 0]) % n, minlength=n)
    assert chisquare(steps).pvalue > FALSE_ALARM
