"""Data and Scaling: what is refused, what is computed, and padding to few shapes."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from varprop.data.arrays import bucket_size, noise_floor, pad_rows

from varprop import Data, Scaling

X, Y = np.arange(12.0).reshape(4, 3), np.arange(4.0)


def with_entry(array, index, value):
    array = array.copy()
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Data(with_entry(X, (2, 1), np.nan), Y), "x holds nan in row 2, column 1"),
        (lambda: Data(with_entry(X, (0, 2), -np.inf), Y), "x holds -inf in row 0, column 2"),
        (lambda: Data(X, with_entry(Y, 3, np.inf)), "y holds inf in row 3, column 0"),
        (lambda: Data(with_entry(X, (1, 0), 1e300), Y), "x holds inf in row 1, column 0"),
        (lambda: Data(X[:0], Y[:0]), "there are no rows to train on"),
        (lambda: Data(X[:, :0], Y), "x has no columns"),
        (lambda: Data(X[:3], Y), "x has 3 rows, but y has 4"),
        (lambda: Data(X[:, 0], Y), r"x must have shape \(rows, columns\), but has shape \(4,\)"),
        (lambda: Data(X, Y[:, None, None]), "y must have shape"),
        (lambda: Data(X.astype(str), Y), "x must hold numbers, but has dtype"),
        (lambda: Data(X, Y.astype(complex)), "y must hold numbers, but has dtype complex128"),
        (lambda: Data(X, Y, np.ones(3)), r"weight has shape \(3,\), but needs \(4,\)"),
        (lambda: Data(X, Y, with_entry(np.ones(4), 1, -2)), "negative, but is -2.0 in row 1"),
        (lambda: Data(X, Y, with_entry(np.ones(4), 2, np.nan)), "weight holds nan in row 2"),
        (lambda: Data(X, Y, x_var=X[:, :2]), "x_var has shape"),
        (
            lambda: Data(X, Y, x_var=with_entry(X, (1, 2), -1)),
            "x_var must not be negative, but is in row 1, column 2",
        ),
        (lambda: Data(X, Y, x_var=with_entry(X, (1, 2), np.nan)), "x_var holds nan in row 1"),
    ],
)
def test_bad_data_is_refused_with_its_place(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_large_values_are_not_mistaken_for_infinite_ones():
    """Their sum overflows, the values do not."""
    x = np.full((4, 1), 1.7e308)
    assert np.array_equal(Data(x, Y, dtype=np.float64).x, x)


def test_shapes_and_dtypes_after_the_checks():
    data = Data(X.astype(int), Y > 1, np.array([1, 2, 0, 1]), X)
    assert (data.n_rows, data.x.shape, data.y.shape) == (4, (4, 3), (4, 1))
    assert {part.dtype for part in (data.x, data.y, data.weight, data.x_var)} == {
        np.dtype(np.float32)
    }
    assert Data(X, Y, dtype=np.float64).y.dtype == np.float64


def test_arrays_that_fit_are_not_copied():
    x = X.astype(np.float32)
    assert Data(x, Y).x is x


class TestScaling:
    """Weighted mean and standard deviation, computed stably."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("offset", [0.0, 1.0, 1e4])
    def test_agrees_with_exact_sums(self, dtype, offset):
        """Against sums without rounding (math.fsum) of the very numbers that are stored."""
        rng = np.random.default_rng(0)
        data = Data(rng.normal(size=(200, 2)) + offset, rng.normal(size=200), dtype=dtype)
        scaling = Scaling.of(data)
        for column in range(2):
            values = data.x[:, column].astype(np.float64).tolist()
            mean = math.fsum(values) / 200
            std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / 200)
            assert scaling.x_shift[column] == pytest.approx(float(dtype(mean)), rel=1e-15)
            assert scaling.x_scale[column] == pytest.approx(std, rel=1e-12)

    def test_keeps_its_digits_at_a_large_offset(self):
        """A spread of 1 at 1e8: in float64 the difference of squares would have no digits left."""
        rng = np.random.default_rng(0)
        y = rng.normal(size=1000)
        scaling = Scaling.of(Data(np.zeros((1000, 1)), y + 1e8, dtype=np.float64))
        assert scaling.y_scale[0] == pytest.approx(y.std(), rel=1e-7)
        assert scaling.y_shift[0] - 1e8 == pytest.approx(y.mean(), abs=2e-8)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("value", [0.0, 0.1, -3.7, 1e8, 1e-30])
    def test_a_constant_column_becomes_zero(self, dtype, value):
        data = Data(np.full((50, 1), value), np.arange(50.0), dtype=dtype)
        scaling = Scaling.of(data)
        assert scaling.x_scale[0] == 1.0
        assert np.all(data.x - scaling.x_shift.astype(dtype) == 0)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_an_ulp_of_noise_is_no_spread(self, dtype):
        """Else rounding errors would be blown up to variance 1."""
        x = np.full((50, 1), dtype(1e8))
        x[::2] = np.nextafter(dtype(1e8), dtype(np.inf))
        assert Scaling.of(Data(x, np.arange(50.0), dtype=dtype)).x_scale[0] == 1.0

    def test_what_is_subtracted_is_what_is_added_again(self):
        """The shift is a number of the data's dtype, so that float32 rounds it no further."""
        y = np.random.default_rng(0).normal(1e6, 10.0, 100)
        shift = Scaling.of(Data(np.zeros((100, 1)), y)).y_shift[0]
        assert float(np.float32(shift)) == shift

    def test_weights_count_rows(self):
        repeats = np.array([1, 3, 0, 2])
        rows = np.repeat(np.arange(4), repeats)
        weighted, repeated = Scaling.of(Data(X, Y, repeats)), Scaling.of(Data(X[rows], Y[rows]))
        for field in dataclasses.fields(Scaling):
            a, b = getattr(weighted, field.name), getattr(repeated, field.name)
            np.testing.assert_allclose(a, b, rtol=1e-14)

    def test_rows_choose(self):
        chosen = Scaling.of(Data(X, Y), np.array([2, 0]))
        alone = Scaling.of(Data(X[[2, 0]], Y[[2, 0]]))
        for field in dataclasses.fields(Scaling):
            np.testing.assert_array_equal(getattr(chosen, field.name), getattr(alone, field.name))

    def test_blocks_do_not_show(self):
        """More rows than one block holds, which is 2^22 numbers."""
        n = 2**22 + 1000
        x = np.zeros((n, 1), np.float32)
        x[-1000:] = 1.0
        scaling = Scaling.of(Data(x, np.zeros(n, np.float32)))
        mean = 1000 / n
        assert scaling.x_shift[0] == pytest.approx(float(np.float32(mean)), rel=1e-15)
        assert scaling.x_scale[0] == pytest.approx(math.sqrt(mean * (1 - mean)), rel=1e-12)

    def test_no_positive_weight_is_refused(self):
        with pytest.raises(ValueError, match="no rows of positive weight"):
            Scaling.of(Data(X, Y, np.zeros(4)))

    def test_identity(self):
        same = Scaling.identity(Data(X, Y))
        assert (same.x_shift.tolist(), same.x_scale.tolist()) == ([0] * 3, [1] * 3)
        assert (same.y_shift.tolist(), same.y_scale.tolist()) == ([0], [1])


class TestBuckets:
    """Few sizes, little padding."""

    @given(st.integers(1, 10**9))
    def test_hold_the_rows_with_little_padding(self, n):
        size = bucket_size(n)
        assert n <= size
        assert size - n < max(32, n / 8)
        assert bucket_size(size) == size
        assert size % 32 == 0

    @given(st.integers(1, 10**9))
    def test_are_monotone(self, n):
        assert bucket_size(n) <= bucket_size(n + 1)

    def test_are_few(self):
        """At most eight per octave."""
        for octave in range(8, 16):
            sizes = {bucket_size(n) for n in range(2**octave + 1, 2 ** (octave + 1) + 1)}
            assert len(sizes) == 8

    @given(st.integers(1, 20), st.integers(0, 20))
    def test_padding_repeats_the_first_row(self, n, extra):
        rows = np.arange(2.0 * n).reshape(n, 2)
        padded = pad_rows(rows, n + extra)
        assert padded.shape == (n + extra, 2)
        assert np.array_equal(padded[:n], rows)
        assert np.all(padded[n:] == rows[0])

    def test_what_fits_is_not_copied(self):
        assert pad_rows(X, 4) is X


def test_the_noise_floor_follows_the_step_between_repeated_targets():
    whole = np.array([3.0, 5.0, 5.0, 8.0, 7.0])[:, None]
    assert noise_floor(whole) == pytest.approx([0.1])
    assert noise_floor(1000 * whole + 5) == pytest.approx([100.0])  # in the target's units
    distinct = np.random.default_rng(0).normal(size=(50, 1))
    assert noise_floor(distinct) == 0
    assert noise_floor(np.ones((5, 1))) == 0  # a constant has no step
    assert noise_floor(np.ones((1, 2))).tolist() == [0.0, 0.0]
    assert noise_floor(np.hstack([whole, distinct[:5]]))[1] == 0
