"""Rows by their content: hashes, folds that keep equal rows together, what a model has seen."""

import numpy as np
import pytest

from varprop.data.fingerprints import Fingerprints, fold_numbers, row_hashes

RNG = np.random.default_rng(0)


def bits(hashes):
    """The 64 bits of every hash, shape (rows, 64)."""
    return (hashes[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)


def test_what_is_equal_has_one_hash():
    x = RNG.normal(size=(5, 3))
    whole = row_hashes(x)
    assert whole.dtype == np.uint64
    assert whole.shape == (5,)
    assert np.array_equal(whole[[3, 1]], row_hashes(x[[3, 1]]))  # wherever a row stands
    assert np.array_equal(whole, row_hashes(np.asfortranarray(x), None))
    assert row_hashes(np.array([[0.0, 1.0]])) == row_hashes(np.array([[-0.0, 1.0]]))
    quiet = np.array([[0x7FF8000000000001]], dtype=np.uint64).view(np.float64)
    assert row_hashes(np.array([[-np.nan]])) == row_hashes(quiet)
    assert row_hashes(np.array([[3]])) == row_hashes(np.array([[3.0]], dtype=np.float32))
    # These stand in model files, so they must never change.
    assert row_hashes(np.array([[1.5, -2.0]]), np.array([[3.0]])).tolist() == [11979267650304335172]


def test_what_differs_has_another():
    a, b = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    forms = [
        (a, b), (b, a), (a[:, ::-1], b), (a,), (a, None, b), (None, a, b), (a[:, :1], a[:, 1:], b),
        (np.hstack([a, b]),), (np.zeros((1, 1)),), (np.zeros((1, 2)),), (np.zeros((1, 3)),),
    ]  # fmt: skip
    assert len({int(row_hashes(*form)[0]) for form in forms}) == len(forms)


def test_a_million_rows_have_a_million_hashes():
    """Rows of small whole numbers, which have few bits that differ."""
    numbers = np.arange(10**6)
    x = np.stack([numbers % 100, numbers // 100 % 100, numbers // 10_000], 1).astype(float)
    hashes = row_hashes(x)
    assert len(np.unique(hashes)) == 10**6
    assert len(Fingerprints.of(hashes, most=10**6).values) == 10**6
    assert np.abs(bits(hashes[:100_000]).mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(100_000)


@pytest.mark.parametrize("bit", [0, 20, 51, 52, 61, 63])
@pytest.mark.parametrize("column", [0, 2])
def test_one_bit_changes_half_of_all(bit, column):
    x = RNG.normal(size=(20_000, 3))
    other = x.copy()
    other[:, column] = (x[:, column].view(np.uint64) ^ np.uint64(1 << bit)).view(np.float64)
    changed = bits(row_hashes(x) ^ row_hashes(other)).mean(axis=0)
    assert np.abs(changed - 0.5).max() < 5 * 0.5 / np.sqrt(20_000)


class TestFolds:
    """Equal rows in one fold, whatever else."""

    hashes = row_hashes(RNG.normal(size=(103, 2)))

    def test_are_balanced(self):
        folds = fold_numbers(self.hashes, 5, seed=1)
        assert sorted(np.bincount(folds)) == [20, 20, 21, 21, 21]

    def test_follow_the_order_of_different_rows_and_the_seed_alone(self):
        folds = fold_numbers(self.hashes, 5, seed=1)
        assert np.array_equal(fold_numbers(np.sort(self.hashes), 5, seed=1), folds)
        repeats = RNG.integers(1, 40, 103)
        repeated = fold_numbers(np.repeat(self.hashes, repeats), 5, seed=1)
        assert np.array_equal(repeated, np.repeat(folds, repeats))
        assert (fold_numbers(self.hashes, 5, seed=2) != folds).mean() > 0.5

    def test_do_not_follow_what_is_kept_of_them(self):
        """Neither the order of hashes nor of rows may decide."""
        folds = fold_numbers(np.sort(self.hashes), 2, seed=0)
        assert 0.3 < np.mean(folds[1:] == folds[:-1]) < 0.7

    @pytest.mark.parametrize("distinct", [1, 2, 3, 4])
    def test_of_few_rows_are_fewer(self, distinct):
        folds = fold_numbers(np.tile(self.hashes[:distinct], 7), 5, seed=0)
        assert sorted(set(folds.tolist())) == list(range(distinct))

    def test_are_at_least_two(self):
        with pytest.raises(ValueError, match="n_folds must be at least 2, but is 1"):
            fold_numbers(self.hashes, 1, seed=0)


class TestFingerprints:
    """Which rows were trained on."""

    def test_of_few_rows_are_exact(self):
        hashes = row_hashes(RNG.normal(size=(5000, 4)))
        known = Fingerprints.of(np.repeat(hashes[:3000], 2))
        assert known.threshold == 2.0**52
        assert len(known.values) == 3000
        assert known.share_seen(hashes) == 0.6
        assert np.array_equal(known.seen(hashes), np.arange(5000) < 3000)
        assert known.share_seen(np.concatenate([hashes[:1], hashes[:1], hashes[-1:]])) == 2 / 3

    def test_survive_a_file_of_floats(self):
        hashes = row_hashes(RNG.normal(size=(1000, 2)))
        known = Fingerprints.of(hashes)
        assert known.values.dtype == np.float64
        assert (np.diff(known.values) > 0).all()
        assert known.values.max() < 2**52
        wanted = np.sort([int(number) >> 12 for number in hashes])
        assert np.array_equal(known.values.astype(np.int64), wanted)
        again = Fingerprints(np.frombuffer(known.values.tobytes()), float(known.threshold))
        assert again.seen(hashes).all()

    @pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
    def test_of_many_rows_give_the_share_without_bias(self, share):
        found = []
        for seed in range(200):
            x = np.random.default_rng(seed).normal(size=(3000, 2))
            known = Fingerprints.of(row_hashes(x[:2000]), most=200)
            assert len(known.values) == 200
            assert known.seen(row_hashes(x)) is None
            n_seen = int(share * 1000)
            found.append(known.share_seen(row_hashes(x[2000 - n_seen : 3000 - n_seen])))
        # One estimate has the error of about 100 rows.
        error = np.sqrt(share * (1 - share) / 100 / 200)
        assert abs(np.mean(found) - share) <= 4 * error

    def test_do_not_depend_on_blocks(self):
        hashes = row_hashes(RNG.normal(size=(4000, 2)))
        whole = Fingerprints.of(hashes, most=500)
        parts = Fingerprints.of_blocks(np.array_split(np.tile(hashes, 2), 7), most=500)
        assert np.array_equal(whole.values, parts.values)
        assert whole.threshold == parts.threshold
        assert whole.values[-1] < whole.threshold

    def test_rows_that_cannot_be_compared(self):
        known = Fingerprints.of(row_hashes(RNG.normal(size=(4000, 2))), most=5)
        high = np.array([2**64 - 1], dtype=np.uint64)
        assert np.isnan(known.share_seen(high))

    def test_take_no_new_row_for_a_known_one(self):
        known = Fingerprints.of(row_hashes(np.arange(60_000.0)[:, None]))
        assert known.share_seen(row_hashes(np.arange(60_000.0, 10**6)[:, None])) == 0
