"""Histograms of errors: the same bins however rows are split, and displayed bars that add up to all rows."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ridgestream.pipeline.sums.error_histogram import MOST_BINS, ErrorHistogram

ERRORS = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), max_size=60)


def of(errors: list[float]) -> ErrorHistogram:
    return ErrorHistogram.of(np.array(errors, dtype=float), None)


@given(st.lists(ERRORS, max_size=5))
@example([[0.0], [0.25]])
def test_parts_add_up_to_the_whole(parts: list[list[float]]) -> None:
    whole = of([error for part in parts for error in part])
    assert reduce(ErrorHistogram.merge, map(of, parts), ErrorHistogram()) == whole


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e12])
def test_many_rows_have_few_bins_and_the_same_ones_for_any_split(scale: float) -> None:
    errors = scale * np.random.default_rng(0).standard_t(2, size=20_000)
    whole = ErrorHistogram.of(errors, None)
    assert MOST_BINS / 8 < len(whole.bins) <= MOST_BINS
    parts = [ErrorHistogram.of(part, None) for part in np.array_split(errors, 7)]
    assert reduce(ErrorHistogram.merge, parts) == whole
    edges = np.ldexp(np.array([*whole.bins, whole.bins[-1] + 1], dtype=float), whole.exponent)
    for lower, weight in zip(edges[:-1], whole.weights, strict=True):
        assert weight == ((errors >= lower) & (errors < lower + 2.0**whole.exponent)).sum()


def test_rows_count_by_their_weight() -> None:
    histogram = ErrorHistogram.of(np.array([0.5, 0.5, 1e300]), np.array([2.0, 0.5, 0.0]))
    assert histogram.weights == (2.5,)
    assert histogram == ErrorHistogram.of(np.array([0.5]), np.array([2.5]))


def test_the_middle_is_shown_and_the_weight_outside_is_reported() -> None:
    errors = np.concatenate([np.random.default_rng(1).normal(size=10_000), [1e5, -3e4]])
    bars = ErrorHistogram.of(errors, None).shown(40)
    assert 20 <= len(bars.weights) <= 40
    assert bars.below + sum(bars.weights) + bars.above == len(errors)
    assert max(bars.below, bars.above) <= 0.005 * len(errors)
    assert bars.begin < -2 < 2 < bars.begin + bars.width * len(bars.weights)
    for i, weight in enumerate(bars.weights):
        lower = bars.begin + i * bars.width
        assert weight == ((errors >= lower) & (errors < lower + bars.width)).sum()


@pytest.mark.parametrize("errors", [[], [0.0, 0.0], [5e-324, -5e-324], [1e300, -1e300, 1.0]])
def test_few_odd_errors_can_be_shown(errors: list[float]) -> None:
    bars = of(errors).shown(40)
    assert bars.below + sum(bars.weights) + bars.above == len(errors)
    assert len(bars.weights) <= 40
