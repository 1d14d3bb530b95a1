"""Quantile sketches against the rows themselves, and samples that do not depend on batches."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ridgestream.pipeline.sums.moments import Moments
from ridgestream.pipeline.sums.quantile_sketch import LEVELS, SAMPLE_ROWS, Sample, Sketch, sample_indices

Array = npt.NDArray[np.float64]

numbers = st.floats(-1e6, 1e6, allow_subnormal=False) | st.sampled_from([0.0, 1.0, 2.0])
columns = arrays(np.float64, st.integers(1, 60), elements=numbers)


def share_upto(values: Array, weights: Array, x: float) -> float:
    return float(weights[values <= x].sum() / weights.sum())


def sample_in(values: Array, weights: Array | None, cuts: list[int]) -> Sketch:
    sample = Sample(len(values))
    for start, stop in pairwise([0, *sorted(cuts), len(values)]):
        sample.add(values[start:stop], None if weights is None else weights[start:stop])
    return sample.sketch(values.shape[1])


@given(values=columns, data=st.data())
def test_points_are_quantiles_and_shares_match_counts(values: Array, data: st.DataObject) -> None:
    weights = np.array(
        data.draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=len(values), max_size=len(values)))
    )
    sketch = Sketch.of(values[:, np.newaxis], weights)
    ascending = np.sort(values)
    for level, point, below, upto in zip(
        LEVELS, sketch.points[:, 0], sketch.below[:, 0], sketch.upto[:, 0], strict=True
    ):
        reached = next(v for v in ascending if share_upto(values, weights, v) >= level - 1e-9)
        assert point == reached
        assert upto == pytest.approx(share_upto(values, weights, point), abs=1e-12)
        assert below == pytest.approx(share_upto(values, weights, np.nextafter(point, -np.inf)), abs=1e-12)
    assert sketch.sampled[0] == pytest.approx(weights.sum() ** 2 / (weights**2).sum())


@given(values=columns)
def test_the_distribution_function_rises_from_zero_to_one_through_the_points(values: Array) -> None:
    sketch = Sketch.of(values[:, np.newaxis])
    at = np.sort(np.concatenate([values, values + 1.0, [values.min() - 1.0]]))
    shares = sketch.shares_upto(0, at)
    assert (np.diff(shares) >= 0).all()
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    np.testing.assert_array_equal(sketch.shares_upto(0, sketch.points[:, 0]), sketch.upto[:, 0])


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng: rng.standard_normal(3000),
        lambda rng: np.exp(2 * rng.standard_normal(3000)),
        lambda rng: rng.integers(0, 12, 3000).astype(float),
        lambda rng: np.where(rng.random(3000) < 0.6, 0.0, rng.standard_normal(3000)),
        lambda rng: (rng.random(3000) < 0.003).astype(float),
    ],
    ids=["normal", "long tail", "whole numbers", "many zeros", "rare flag"],
)
def test_shares_between_the_points_are_nearly_exact(draw: Any) -> None:
    values = draw(np.random.default_rng(0))
    sketch = Sketch.of(values[:, np.newaxis])
    at = np.unique(np.quantile(values, np.linspace(0, 1, 301)))
    true = np.searchsorted(np.sort(values), at, side="right") / len(values)
    assert np.abs(sketch.shares_upto(0, at) - true).max() < 0.015


@given(st.integers(0, 5 * SAMPLE_ROWS))
def test_a_sample_has_all_of_few_rows_and_one_row_per_run_of_many(n_rows: int) -> None:
    indices = sample_indices(n_rows)
    assert (np.diff(indices) > 0).all()
    assert len(indices) <= SAMPLE_ROWS
    if n_rows <= SAMPLE_ROWS:
        np.testing.assert_array_equal(indices, np.arange(n_rows))
    else:
        assert indices[0] >= 0
        assert indices[-1] < n_rows
        assert np.diff(indices).max() <= 2 * n_rows / SAMPLE_ROWS + 1
        assert len(indices) > SAMPLE_ROWS / 2


@pytest.mark.parametrize("period", [2, 3, 7, 16, 24, 100, 365])
def test_periodic_rows_are_sampled_evenly(period: int) -> None:
    n_rows = 48 * SAMPLE_ROWS
    counts = np.bincount(sample_indices(n_rows) % period, minlength=period) / SAMPLE_ROWS
    assert np.abs(counts - 1 / period).max() < 0.02


@given(
    n_rows=st.integers(1, 300) | st.integers(SAMPLE_ROWS - 2, 3 * SAMPLE_ROWS),
    cuts=st.lists(st.floats(0, 1), max_size=6),
    weighted=st.booleans(),
    seed=st.integers(0, 9),
)
def test_a_sample_does_not_depend_on_batches(n_rows: int, cuts: list[float], weighted: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n_rows, 2))
    weights = rng.choice([0.0, 1.0, 2.5], n_rows) if weighted else None
    whole = sample_in(values, weights, [])
    parts = sample_in(values, weights, [int(cut * n_rows) for cut in cuts])
    np.testing.assert_array_equal(parts.as_array(), whole.as_array())


def test_rows_of_weight_zero_and_missing_values_do_not_count() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.standard_normal((500, 2)), rng.choice([0.0, 1.0], 500)
    values[::7, 0] = np.nan
    sketch = Sketch.of(np.where(weights[:, np.newaxis] > 0, values, 1e9), weights)
    weighted = weights > 0
    first = values[weighted & ~np.isnan(values[:, 0]), 0]
    np.testing.assert_array_equal(sketch.as_array()[:, 0], Sketch.of(first[:, np.newaxis]).as_array()[:, 0])
    np.testing.assert_array_equal(sketch.as_array()[:, 1], Sketch.of(values[weighted, 1:]).as_array()[:, 0])


def test_a_sketch_without_values_is_stored_as_zeros() -> None:
    for values in (np.empty((0, 3)), np.full((4, 3), np.nan)):
        array = Sketch.of(values).as_array()
        assert array.shape == (3 * len(LEVELS) + 1, 3)
        assert not array.any()


def test_a_sketch_round_trips_through_its_array() -> None:
    sketch = Sketch.of(np.random.default_rng(0).standard_normal((50, 3)))
    restored = Sketch.from_array(sketch.as_array())
    for name in ("points", "below", "upto", "sampled"):
        np.testing.assert_array_equal(getattr(restored, name), getattr(sketch, name))


def test_a_sketch_of_moments_is_a_normal_distribution_within_the_range() -> None:
    values = np.random.default_rng(0).normal(5.0, 2.0, (20_000, 1))
    sketch = Sketch.of_moments(Moments.of(values), 20_000)
    assert np.abs(sketch.points[6:-6, 0] - np.quantile(values, LEVELS[6:-6])).max() < 0.1
    assert sketch.points[0, 0] >= values.min()
    assert sketch.points[-1, 0] <= values.max()
    assert sketch.sampled[0] == SAMPLE_ROWS


@pytest.mark.parametrize("share", [0.0, 0.0003, 0.25, 1.0])
def test_a_sketch_of_moments_is_exact_for_two_values(share: float) -> None:
    values = np.full((10_000, 1), -3.0)
    values[: round(share * 10_000)] = 8.0
    sketch = Sketch.of_moments(Moments.of(values), 10_000)
    np.testing.assert_allclose(
        sketch.shares_upto(0, np.array([-4.0, -3.0, 7.9, 8.0])), [0.0, 1 - share, 1 - share, 1.0]
    )


def test_a_sketch_of_empty_moments_is_empty() -> None:
    assert not Sketch.of_moments(Moments.empty(2), 0).as_array().any()
