"""Moments against NumPy, merged in any grouping."""

from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ridgestream.pipeline.sums.moments import Moments, merge_moments

Array = npt.NDArray[np.float64]

values = arrays(
    np.float64, st.tuples(st.integers(0, 40), st.integers(1, 3)), elements=st.floats(-1e6, 1e6, allow_subnormal=False)
)
weights_of = st.sampled_from([0.0, 0.25, 1.0, 2.0, 1000.0])


def plain(x: Array, w: Array) -> Moments:
    """Compute the definitions directly in extended precision."""
    x, w = x[w > 0].astype(np.longdouble), w[w > 0].astype(np.longdouble)
    if not len(x):
        return Moments.empty(x.shape[1])
    mean = (w[:, np.newaxis] * x).sum(axis=0) / w.sum()
    squares = (w[:, np.newaxis] * (x - mean) ** 2).sum(axis=0)
    count = np.full(x.shape[1], w.sum())
    return Moments(*(np.asarray(v, dtype=np.float64) for v in (count, mean, squares, x.min(axis=0), x.max(axis=0))))


def assert_close(actual: Moments, expected: Moments, size: float) -> None:
    """Check equality up to rounding, relative to the values for means and to weight times values² for squares."""
    np.testing.assert_allclose(actual.count, expected.count, rtol=1e-14)
    np.testing.assert_allclose(actual.mean, expected.mean, rtol=1e-13, atol=1e-13 * size + 1e-300)
    weight = expected.count.max(initial=0.0)
    np.testing.assert_allclose(actual.squares, expected.squares, rtol=1e-12, atol=1e-15 * weight * size**2 + 1e-300)
    np.testing.assert_array_equal(actual.minimum, expected.minimum)
    np.testing.assert_array_equal(actual.maximum, expected.maximum)


def largest(x: Array) -> float:
    return float(np.abs(x).max(initial=0.0))


@given(x=values, data=st.data())
def test_moments_match_their_definitions(x: Array, data: st.DataObject) -> None:
    w = np.array(data.draw(st.lists(weights_of, min_size=len(x), max_size=len(x))), dtype=np.float64)
    assert_close(Moments.of(x, w), plain(x, w), largest(x))
    assert_close(Moments.of(x), plain(x, np.ones(len(x))), largest(x))


@given(x=values, data=st.data())
def test_merging_in_any_grouping_gives_the_moments_of_all(x: Array, data: st.DataObject) -> None:
    w = np.array(data.draw(st.lists(weights_of, min_size=len(x), max_size=len(x))), dtype=np.float64)
    cuts = data.draw(st.lists(st.integers(0, len(x)), max_size=5))
    ends = [0, *sorted(cuts), len(x)]
    parts = [Moments.of(x[a:b], w[a:b]) for a, b in pairwise(ends)]
    whole = plain(x, w)
    assert_close(merge_moments(parts, x.shape[1]), whole, largest(x))
    assert_close(reduce(lambda right, left: left.merge(right), reversed(parts)), whole, largest(x))
    assert_close(merge_moments(parts[::-1], x.shape[1]), whole, largest(x))


@given(x=values)
def test_merging_empty_moments_changes_nothing(x: Array) -> None:
    moments, empty = Moments.of(x), Moments.empty(x.shape[1])
    for merged in (moments.merge(empty), empty.merge(moments)):
        np.testing.assert_array_equal(merged.as_array(), moments.as_array())


@given(x=values)
def test_a_weight_of_two_counts_the_row_twice_and_zero_not_at_all(x: Array) -> None:
    w = np.arange(len(x)) % 3
    assert_close(Moments.of(x, w.astype(np.float64)), Moments.of(np.repeat(x, w, axis=0)), largest(x))


def test_rows_of_weight_zero_are_left_out_even_with_nan() -> None:
    x = np.array([[1.0], [np.nan], [3.0]])
    np.testing.assert_array_equal(Moments.of(x, np.array([1.0, 0.0, 1.0])).as_array(), Moments.of(x[[0, 2]]).as_array())


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e8])
def test_a_large_mean_does_not_cancel_the_deviation(shift: float) -> None:
    noise = np.random.default_rng(0).standard_normal((100_000, 1))
    parts = [Moments.of(part + shift) for part in np.array_split(noise, 37)]
    deviation = merge_moments(parts, 1).deviation()
    np.testing.assert_allclose(deviation, noise.std(axis=0), rtol=1e-7 if shift else 1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e100, 1e-300, 5e-324])
@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_a_constant_column_has_deviation_one_despite_rounding(value: float, rows: int) -> None:
    x = np.full((rows, 1), value)
    halves = Moments.of(x).merge(Moments.of(x, np.full(rows, 0.3)))
    for moments in (Moments.of(x), halves):
        assert moments.constant().all()
        np.testing.assert_array_equal(moments.deviation(), [1.0])


def test_columns_without_values_have_deviation_one() -> None:
    np.testing.assert_array_equal(Moments.empty(2).deviation(), [1.0, 1.0])
    assert Moments.empty(2).constant().all()


def test_two_different_constants_merge_to_a_column_that_is_not_constant() -> None:
    merged = Moments.of(np.full((3, 1), 1.0)).merge(Moments.of(np.full((1, 1), 5.0)))
    assert not merged.constant().any()
    np.testing.assert_allclose(merged.deviation(), np.std([1, 1, 1, 5]))


def test_the_largest_values_that_ingest_accepts_do_not_overflow() -> None:
    x = np.array([[1e100], [-1e100]])
    moments = merge_moments([Moments.of(x, np.array([1e3, 1e3]))] * 1000, 1)
    assert np.isfinite(moments.as_array()).all()
    np.testing.assert_allclose(moments.deviation(), [1e100])


@given(x=values)
def test_moments_round_trip_through_an_array(x: Array) -> None:
    moments = Moments.of(x)
    restored: Any = Moments.from_array(moments.as_array())
    assert restored.as_array().tobytes() == moments.as_array().tobytes()


def test_merging_no_moments_is_empty() -> None:
    np.testing.assert_array_equal(merge_moments([], 2).as_array(), Moments.empty(2).as_array())
