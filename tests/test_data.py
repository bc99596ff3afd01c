"""Data and Scaling: what is refused, what is computed, and padding to few shapes."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rows
from varprop import Data, Scaling
from varprop.data import ParquetSource, SourceError, Statistics, split_source
from varprop.data.source import Rows
from varprop.training.buffers import Feed
from varprop.training.schedule import Plan, bucket_size

X, Y = np.arange(12.0).reshape(4, 3), np.arange(4.0)


def with_entry(array, index, value):
    array = array.copy()
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Data(X[:0], Y[:0]), "there are no rows to train on"),
        (lambda: Data(X[:, :0], Y), "x has no columns"),
        (lambda: Data(X[:3], Y), "x has 3 rows, but y has 4"),
        (lambda: Data(X[:, 0], Y), r"x must have shape \(rows, columns\), not \(4,\)"),
        (lambda: Data(X, Y[:, None, None]), "y must have shape"),
        (lambda: Data(X.astype(str), Y), "x must hold numbers, but has dtype"),
        (lambda: Data(X, Y.astype(complex)), "y must hold numbers, but has dtype complex128"),
        (lambda: Data(X, Y, np.ones(3)), r"weight has shape \(3,\), but needs \(4,\)"),
        (lambda: Data(X, Y, x_var=X[:, :2]), "x_var has shape"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Data(with_entry(X, (2, 1), np.nan), Y), r"column 'x\[:, 1\]' is NaN in row 2: remove"),
        (Data(with_entry(X, (0, 2), -np.inf), Y), r"'x\[:, 2\]' is infinite \(-inf\) in row 0"),
        (Data(X, with_entry(Y, 3, np.inf)), r"column 'y\[:, 0\]' is infinite \(inf\) in row 3"),
        (
            Data(with_entry(X, (1, 0), 1.2e307), Y),
            r"'x\[:, 0\]' is 1.2e\+307 in row 1, too large to be squared: remove it or choose an",
        ),
        (Data(X, Y, with_entry(np.ones(4), 1, -2)), "'weight' is -2 in row 1: it must not be neg"),
        (Data(X, Y, with_entry(np.ones(4), 2, np.nan)), "column 'weight' is NaN in row 2"),
        (
            Data(X, Y, x_var=with_entry(X, (1, 2), -1)),
            r"the variance of column 'x\[:, 2\]' is -1 in row 1: it must not be negative",
        ),
        (
            Data(X, Y, x_var=with_entry(X, (1, 2), np.nan)),
            r"the variance of column 'x\[:, 2\]' is NaN in row 1",
        ),
        (
            Data(with_entry(X, (2, 1), np.nan), Y, names=["a", "b", "c", "y"], numbers=Y + 7),
            "column 'b' is NaN in row 9",
        ),
        (Data(X, Y, np.zeros(4)), "column 'weight' gives no row a positive weight"),
    ],
)
def test_numbers_that_are_none_are_refused_with_their_place(data, message):
    with pytest.raises(SourceError, match=message):
        Statistics.of(data)


def test_a_row_is_called_by_its_number_where_rows_are_taken():
    data = Data(with_entry(X, (2, 1), np.nan), Y, np.array([0.0, 1, 1, 1]))
    with pytest.raises(SourceError, match="is NaN in row 2:"):
        Statistics.of(data.take(None))
    with pytest.raises(SourceError, match="is NaN in row 2:"):
        Statistics.of(data.take(np.array([3, 2, 0])))


def test_large_values_are_not_mistaken_for_infinite_ones():
    """Their sum overflows, the values do not."""
    x = np.full((4, 1), 1.7e308)
    assert Statistics.of(Data(x, Y)).scaling.x_shift.tolist() == [1.7e308]


def test_shapes_and_dtypes_after_the_checks():
    data = Data(X.astype(int), Y > 1, np.array([1, 2, 0, 1]), X)
    assert (data.n_rows, data.x.shape, data.y.shape) == (4, (4, 3), (4, 1))
    parts = (data.x, data.y, data.weight, data.x_var)
    assert {part.dtype.name for part in parts} == {"float64"}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_are_not_copied(dtype):
    x = X.astype(dtype)
    assert Data(x, Y).x is x


class TestScaling:
    """Weighted mean and standard deviation, computed stably."""

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("offset", [0.0, 1.0, 1e4])
    def test_agrees_with_exact_sums(self, dtype, offset):
        """Against sums without rounding (math.fsum) of the very numbers that are stored."""
        rng = np.random.default_rng(0)
        x = (rng.normal(size=(200, 2)) + offset).astype(dtype)
        data = Data(x, rng.normal(size=200))
        scaling = Scaling.of(data)
        for column in range(2):
            values = data.x[:, column].astype(np.float64).tolist()
            mean = math.fsum(values) / 200
            std = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / 200)
            assert scaling.x_shift[column] == pytest.approx(mean, rel=1e-14)
            assert scaling.x_scale[column] == pytest.approx(std, rel=1e-12)

    def test_keeps_its_digits_at_a_large_offset(self):
        """A spread of 1 at 1e8: in float64 the difference of squares would have no digits left."""
        rng = np.random.default_rng(0)
        y = rng.normal(size=1000)
        scaling = Scaling.of(Data(np.zeros((1000, 1)), y + 1e8))
        assert scaling.y_scale[0] == pytest.approx(y.std(), rel=1e-7)
        assert scaling.y_shift[0] - 1e8 == pytest.approx(y.mean(), abs=2e-8)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("value", [0.0, 0.1, -3.7, 1e8, 1e-30])
    def test_a_constant_column_becomes_zero(self, dtype, value):
        data = Data(np.full((50, 1), value, dtype), np.arange(50.0))
        scaling = Scaling.of(data)
        assert scaling.x_scale[0] == 1.0
        assert np.all(scaling.inputs(data.x, None, dtype)[0] == 0)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_an_ulp_of_noise_is_no_spread(self, dtype):
        """Else rounding errors would be blown up to variance 1."""
        x = np.full((50, 1), dtype(1e8))
        x[::2] = np.nextafter(dtype(1e8), dtype(np.inf))
        scaled = Scaling.of(Data(x, np.arange(50.0))).inputs(x, None, np.float64)[0]
        assert np.abs(scaled).max() < 0.01

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_rows_are_shifted_before_they_are_rounded(self, dtype):
        """Against whole numbers that float64 holds exactly: times within ten minutes."""
        time = 1_700_000_000 + np.arange(601.0)
        scaling = Scaling.of(Data(time[:, None], 1e9 + time))
        rows = Rows(time[:, None], 1e9 + time[:, None], None, np.full((601, 1), 25.0))
        found = scaling.rows(rows, dtype)
        exact = (np.arange(601.0) - 300) / np.std(np.arange(601.0))
        tolerance = 4 * np.finfo(dtype).eps
        for part in (found.x, found.y):
            assert part.dtype == dtype
            np.testing.assert_allclose(part[:, 0], exact, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(found.x_var, 25.0 / np.var(np.arange(601.0)), rtol=tolerance)

    def test_weights_count_rows(self):
        repeats = np.array([1, 3, 0, 2])
        rows = np.repeat(np.arange(4), repeats)
        weighted, repeated = Scaling.of(Data(X, Y, repeats)), Scaling.of(Data(X[rows], Y[rows]))
        for field in dataclasses.fields(Scaling):
            a, b = getattr(weighted, field.name), getattr(repeated, field.name)
            np.testing.assert_allclose(a, b, rtol=1e-14)

    def test_rows_choose(self):
        chosen = Scaling.of(Data(X, Y).take(np.array([2, 0])))
        alone = Scaling.of(Data(X[[2, 0]], Y[[2, 0]]))
        for field in dataclasses.fields(Scaling):
            np.testing.assert_array_equal(getattr(chosen, field.name), getattr(alone, field.name))

    def test_blocks_do_not_show(self):
        """More rows than are worked on at a time, which is 2^20 numbers."""
        n = 2**20 + 1000
        x = np.zeros((n, 1), np.float32)
        x[-1000:] = 1.0
        scaling = Scaling.of(Data(x, np.zeros(n, np.float32)))
        mean = 1000 / n
        assert scaling.x_shift[0] == pytest.approx(mean, rel=1e-12)
        assert scaling.x_scale[0] == pytest.approx(math.sqrt(mean * (1 - mean)), rel=1e-12)

    def test_identity(self):
        same = Scaling.identity(3, 1)
        assert (same.x_shift.tolist(), same.x_scale.tolist()) == ([0] * 3, [1] * 3)
        assert (same.y_shift.tolist(), same.y_scale.tolist()) == ([0], [1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighted", [False, True])
def test_statistics_do_not_depend_on_blocks(tmp_path, dtype, weighted):
    """To 1e-12, also for a column that is large and nearly constant, and for whole targets."""
    rng = np.random.default_rng(0)
    columns = {
        "large": 1e6 + rng.normal(size=500),
        "small": 1e-8 * rng.normal(size=500),
        "constant": np.full(500, 0.1),
        "whole": rng.integers(-5, 5, 500),
        "y": rng.integers(0, 9, 500) / 2,
        "w": rng.integers(0, 3, 500),
    }
    columns = {name: values.astype(dtype) for name, values in columns.items()}
    source = ParquetSource(
        rows.write(tmp_path / "rows", columns, files=4, row_group_size=40),
        features=["large", "small", "constant", "whole"],
        targets="y",
        weight="w" if weighted else None,
    )
    x = np.stack([columns[name] for name in source.features], 1)
    weight = columns["w"] if weighted else None
    found, wanted = Statistics.of(source), Statistics.of(Data(x, columns["y"], weight))
    assert found.n_rows == wanted.n_rows == 500
    assert found.total_weight == wanted.total_weight == (weight.sum() if weighted else 500)
    for name in ("x_shift", "x_scale", "y_shift", "y_scale"):
        a, b = getattr(found.scaling, name), getattr(wanted.scaling, name)
        np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=name)
    np.testing.assert_array_equal(found.noise_floor, wanted.noise_floor)
    np.testing.assert_allclose(found.noise_floor, [0.05])


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
        numbers = np.arange(2.0 * n).reshape(n, 2)
        data = Data(numbers, numbers[:, 0])
        plan = Plan((n,), batch_size=n, buffer_rows=n + extra, shuffle=False, seed=())
        same = Scaling.identity(2, 1)
        feed = Feed(data, plan, same, np.dtype(float), Statistics.of(data))
        padded = feed.fill(data.read(0), n, n + extra).x
        assert padded.shape == (n + extra, 2)
        assert np.array_equal(padded[:n], numbers)
        assert np.all(padded[n:] == numbers[0])


def floor_of(y, weight=None, *, repeated=False):
    data = Data(np.zeros((len(y), 1)), y, weight, repeated=repeated)
    return Statistics.of(data).noise_floor


def test_the_noise_floor_follows_the_step_between_repeated_targets():
    whole = np.array([3.0, 5.0, 5.0, 8.0, 7.0, 3.0, 8.0, 7.0])[:, None]
    assert floor_of(whole) == pytest.approx([0.1])
    assert floor_of(1000 * whole + 5) == pytest.approx([100.0])  # in the target's units
    distinct = np.random.default_rng(0).normal(size=(50, 1))
    assert floor_of(distinct) == 0
    assert floor_of(np.ones((5, 1))) == 0  # a constant has no step
    assert floor_of(np.ones((1, 2))).tolist() == [0.0, 0.0]
    assert floor_of(np.hstack([whole, distinct[:8]]))[1] == 0


def test_a_few_odd_values_do_not_hide_the_step():
    """Wine's ratings, had someone typed 5.0001: that value does not repeat."""
    y = np.random.default_rng(0).integers(3, 9, 200).astype(float)
    assert floor_of(y) == pytest.approx([0.1])
    y[0], y[1] = 5.0001, 6.5
    assert floor_of(y) == pytest.approx([0.1])


@pytest.mark.parametrize("share", [0.5, 0.88, 0.99])
def test_a_spike_among_continuous_values_is_no_step(share):
    rng = np.random.default_rng(0)
    y = np.where(np.arange(1000) < 1000 * share, 0.0, rng.normal(size=1000))
    assert floor_of(y) == 0


def test_a_tenth_of_the_rows_may_be_off_the_steps():
    rng = np.random.default_rng(0)
    two = np.where(np.arange(1000) < 500, 0.0, 2.0)
    two[:101] = rng.normal(size=101)
    assert floor_of(two) == 0
    two[:2] = 0.0
    assert floor_of(two) == pytest.approx([0.2])


def test_rows_that_were_merged_count_as_often_as_they_occurred():
    y = np.array([3.0, 5.0, 6.0, 5.5])
    counts = np.array([10.0, 12.0, 30.0, 1.0])
    wanted = floor_of(np.repeat(y, counts.astype(int)))
    assert wanted == pytest.approx([0.1])
    assert floor_of(y, counts, repeated=True) == wanted
    assert floor_of(y, counts) == 0  # weights of rows that are what they are
    # Weights that are no counts: each may have been several rows.
    assert floor_of(y, counts / 53, repeated=True) == pytest.approx([0.05])
    assert floor_of(y, np.append(counts[:3], 0.0), repeated=True) == wanted
    data = Data(np.zeros((4, 1)), y, counts, repeated=True)
    assert data.take(np.arange(3)).repeated
    train, held = split_source(data, share=0.5, seed=1)
    assert train.repeated
    assert held.repeated


def test_a_continuous_target_has_no_floor(monkeypatch):
    monkeypatch.setattr("varprop.data.statistics._MANY_VALUES", 50)
    y = np.arange(100.0)
    y[-1] = 0.0
    assert floor_of(y).tolist() == [0.0]


@pytest.mark.parametrize("block", [2**20, 64])
@pytest.mark.parametrize("size", [1e-300, 1e-200, 1e-9, 1e9, 1e200, 1e300, 1e306])
def test_columns_of_any_size_are_scaled_alike(monkeypatch, size, block):
    """By powers of two nothing but the exponent changes; the unit grows on the way."""
    monkeypatch.setattr("varprop.data.statistics._BLOCK_NUMBERS", block)
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 2)) * np.linspace(0.01, 1, 300)[:, None] + [0.0, 5.0]
    unit = 2.0 ** np.floor(np.log2(size))
    weight = rng.uniform(size=300)
    one, other = (Statistics.of(Data(x, x, weight)) for x in (z, z * unit))
    assert np.array_equal(one.std * unit, other.std)
    assert np.array_equal(one.scaling.x_shift * unit, other.scaling.x_shift)
    assert np.array_equal(one.scaling.y_scale * unit, other.scaling.y_scale)
    mean = np.average(z, axis=0, weights=weight)
    std = np.sqrt(np.average((z - mean) ** 2, axis=0, weights=weight))
    np.testing.assert_allclose(one.scaling.x_shift, mean, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(one.scaling.x_scale, std, rtol=1e-12)
    rows = Rows(z * unit, z * unit)
    for part in other.scaling.rows(rows, np.float64)[:2]:
        np.testing.assert_allclose(part, (z - mean) / std, rtol=1e-9, atol=1e-12)


def test_the_largest_floats_are_standardized():
    scaling = Scaling.of(Data(np.array([[0.0], [1.1e307], [0.0], [0.0]]), np.arange(4.0)))
    found = scaling.inputs(np.array([[1.7e308], [-1.79e308]]), None, np.float64)[0].ravel()
    wanted = (np.array([17, -17.9]) / 1.1 - 0.25) / np.sqrt(3 / 16)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_the_rounding_of_a_huge_constant_is_not_blown_up():
    x = np.full((50, 1), 1e300)
    x[::2] = np.nextafter(1e300, np.inf)
    scaled = Scaling.of(Data(x, np.arange(50.0))).inputs(x, None, np.float32)[0]
    assert np.abs(scaled).max() < 0.01
