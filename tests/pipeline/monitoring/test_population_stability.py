"""The population stability index of sketches against that of the raw rows, and its values for known shifts."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ridgestream.pipeline.monitoring.population_stability import (
    LARGE,
    CategoryBins,
    NumericBins,
    Shares,
    Shift,
    compare_shares,
    mean_shares,
)
from ridgestream.pipeline.sums.quantile_sketch import SAMPLE_ROWS, Sample, Sketch

Array = npt.NDArray[np.float64]

numbers = st.floats(-1e100, 1e100, allow_subnormal=False) | st.sampled_from([0.0, 1.0, 2.0, 1e100, -1e100])
columns = arrays(np.float64, st.integers(1, 60), elements=numbers)

SHAPES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "long tail": lambda rng, n: np.exp(2 * rng.standard_normal(n)),
    "whole numbers": lambda rng, n: rng.integers(0, 6, n).astype(float),
    "many zeros": lambda rng, n: np.where(rng.random(n) < 0.55, 0.0, rng.standard_normal(n)),
    "rare flag": lambda rng, n: (rng.random(n) < 0.01).astype(float),
    "constant": lambda rng, n: np.full(n, 3.0),  # noqa: ARG005
}


def sketch_of(values: Array) -> Sketch:
    sample = Sample(len(values))
    sample.add(values[:, np.newaxis], None)
    return sample.sketch(1)


def shift_of(training: Sequence[Array], now: Array, missing: float = 0.0) -> Shift:
    """Return the shift of `now` from the training rows of several partitions, computed from sketches alone."""
    sketches, weights = [sketch_of(values) for values in training], [float(len(values)) for values in training]
    whole = np.concatenate(training)
    bins = NumericBins.of(sketches, weights, 0, whole.min(), whole.max())
    together = mean_shares([bins.count(sketch, 0.0) for sketch in sketches], weights)
    return compare_shares(together, bins.count(sketch_of(now), missing), 1)


def psi_of_rows(training: Array, now: Array) -> float:
    """Compute the definition: exact deciles of all training rows, exact counts, half a row added per bin."""
    deciles = np.quantile(training, np.arange(1, 10) / 10, method="inverted_cdf")
    edges = np.unique([np.nextafter(training.min(), -np.inf), *deciles, training.max()])
    sides = [np.bincount(np.searchsorted(edges, v), minlength=len(edges) + 1) for v in (training, now)]
    filled = (sides[0] > 0) | (sides[1] > 0)
    p, q = (_smooth(side[filled] / side.sum(), min(side.sum(), SAMPLE_ROWS)) for side in sides)
    return float(((p - q) * np.log(p / q)).sum())


def _smooth(shares: Array, n: int) -> Array:
    return np.asarray((shares * n + 0.5) / (n + 0.5 * len(shares)))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("change", ["none", "shifted", "stretched", "halved"])
def test_the_index_of_sketches_matches_that_of_the_rows(shape: str, change: str) -> None:
    rng = np.random.default_rng(1)
    training = [SHAPES[shape](rng, n) for n in (9000, 500, 2500)]
    now = SHAPES[shape](rng, 6000)
    now = {"none": now, "shifted": now + 0.5, "stretched": now * 1.5, "halved": np.maximum(now, 0.1)}[change]
    expected = psi_of_rows(np.concatenate(training), now)
    assert shift_of(training, now).psi == pytest.approx(expected, rel=0.1, abs=0.03)


@given(training=st.lists(columns, min_size=1, max_size=3), now=columns)
def test_the_index_is_finite_and_not_negative_whatever_the_values(training: list[Array], now: Array) -> None:
    shift = shift_of(training, now)
    assert np.isfinite([shift.psi, shift.chance]).all()
    assert shift.psi >= 0
    assert shift.chance >= 0


@given(training=columns)
def test_the_training_rows_themselves_have_not_drifted(training: Array) -> None:
    assert shift_of([training], training).psi == 0.0


@given(seed=st.integers(0, 2**32 - 1), shape=st.sampled_from(sorted(SHAPES)), n=st.integers(5, 3000))
def test_rows_of_the_same_distribution_raise_no_alarm(seed: int, shape: str, n: int) -> None:
    rng = np.random.default_rng(seed)
    training, now = SHAPES[shape](rng, 5000), SHAPES[shape](rng, n)
    shift = shift_of([training], now)
    assert not shift.is_large
    if n > 1000:
        assert shift.psi < 0.1


@given(seed=st.integers(0, 2**32 - 1), logarithms=st.booleans())
def test_the_index_grows_with_the_shift(seed: int, logarithms: bool) -> None:
    rng = np.random.default_rng(seed)
    training, now = rng.standard_normal(4000), rng.standard_normal(2000)
    transform = np.exp if logarithms else np.positive
    indices = [shift_of([transform(training)], transform(now + step)).psi for step in (0.0, 0.4, 1.0, 2.0)]
    assert all(after > before for before, after in pairwise(indices))
    assert indices[-1] > LARGE


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [30, 2000])
def test_other_units_raise_an_alarm(shape: str, n: int) -> None:
    rng = np.random.default_rng(0)
    training, now = SHAPES[shape](rng, 5000) + 40.0, SHAPES[shape](rng, n) + 40.0
    assert shift_of([training], now * 1.8 + 32.0).is_large


@pytest.mark.parametrize("stuck_at", [0.0, 0.7, -50.0, 50.0])
@pytest.mark.parametrize("n", [30, 2000])
def test_a_column_stuck_at_a_value_raises_an_alarm(stuck_at: float, n: int) -> None:
    training = SHAPES["normal"](np.random.default_rng(0), 5000)
    assert shift_of([training], np.full(n, stuck_at)).is_large


@pytest.mark.parametrize("value", [2.0, 4.0])
def test_a_changed_constant_raises_an_alarm(value: float) -> None:
    training = np.full(1000, 3.0)
    assert shift_of([training], training).psi == 0.0
    assert shift_of([training], np.full(50, value)).is_large


def test_values_below_and_above_the_training_range_have_their_own_bins() -> None:
    rng = np.random.default_rng(0)
    training = rng.random(4000)
    low, high = (np.where(rng.random(2000) < 0.3, value, rng.random(2000)) for value in (-5.0, 5.0))
    assert shift_of([training], low).is_large
    assert shift_of([training], high).is_large


def test_one_outlier_is_no_drift() -> None:
    rng = np.random.default_rng(0)
    training, now = rng.random(4000), rng.random(2000)
    now[7], now[8] = 1e9, -1e9
    assert shift_of([training], now).psi < 0.1


@given(missing=st.floats(0, 1))
def test_missing_values_are_a_bin(missing: float) -> None:
    values = np.random.default_rng(0).standard_normal(3000)
    shift = shift_of([values], values, missing)
    assert np.isfinite(shift.psi)
    assert shift.is_large == (missing > 0.05) or 0.02 < missing < 0.1


def test_a_column_that_is_missing_altogether_can_be_compared() -> None:
    values, nothing = np.random.default_rng(0).standard_normal((300, 2)), np.full((300, 1), np.nan)
    empty = Sketch.of(np.hstack([nothing, values]))
    full = Sketch.of(np.hstack([values, values[:, :1]]))
    bins = NumericBins.of([empty], [300.0], 0, np.inf, -np.inf)
    training = bins.count(empty, 1.0)
    assert training.bins[-1] == 1.0
    assert compare_shares(training, bins.count(empty, 1.0), 1).psi == 0.0
    assert compare_shares(training, bins.count(full, 0.0), 1).is_large


def test_without_rows_nothing_has_drifted() -> None:
    values = np.arange(100.0)
    bins = NumericBins.of([sketch_of(values)], [100.0], 0, 0.0, 99.0)
    nothing = bins.count(sketch_of(np.empty(0)), 0.0)
    assert compare_shares(bins.count(sketch_of(values), 0.0), nothing, 1) == Shift(0.0, 0.0)
    assert CategoryBins.of({"a": 2.0}).count({}, 0.0, 0.0).rows == 0.0


def category_shift(training: Mapping[Any, float], now: Mapping[Any, float]) -> Shift:
    bins = CategoryBins.of(training)
    before, after = (bins.count(counts, sum(counts.values()), sum(counts.values())) for counts in (training, now))
    return compare_shares(before, after, 1)


def test_the_index_of_categories_matches_its_definition() -> None:
    training, now = {"a": 500.0, "b": 300.0, "c": 200.0}, {"c": 90.0, "a": 200.0, "b": 110.0}
    p = _smooth(np.array([0.5, 0.3, 0.2]), 1000)
    q = _smooth(np.array([200, 110, 90]) / 400, 400)
    assert category_shift(training, now).psi == pytest.approx(float(((p - q) * np.log(p / q)).sum()), rel=1e-12)


def test_unseen_and_vanished_categories_raise_an_alarm() -> None:
    training = {"a": 500.0, "b": 300.0, "c": 200.0}
    assert not category_shift(training, {"a": 48.0, "b": 35.0, "c": 17.0}).is_large
    assert category_shift(training, {"a": 400.0, "b": 240.0, "new": 160.0}).is_large
    assert category_shift(training, {"a": 70.0, "b": 30.0}).is_large


def test_many_rare_categories_share_a_bin_and_raise_no_alarm() -> None:
    rng = np.random.default_rng(0)
    draws = [rng.integers(0, 2000, n) for n in (20_000, 3000)]
    training, now = ({int(v): float(n) for v, n in zip(*np.unique(d, return_counts=True), strict=True)} for d in draws)
    assert not category_shift(training, now).is_large
    assert category_shift(training, {str(v): n for v, n in now.items()}).is_large


@given(parts=st.lists(st.integers(0, 50), min_size=2, max_size=4), seed=st.integers(0, 99))
def test_mean_shares_of_partitions_are_the_shares_of_all_rows(parts: list[int], seed: int) -> None:
    assume(sum(parts) > 0)
    rng = np.random.default_rng(seed)
    values = [rng.integers(0, 4, n) for n in parts]
    counts = [np.bincount(v, minlength=4) for v in values]
    shares = [Shares(c / max(c.sum(), 1), float(c.sum())) for c in counts]
    together = mean_shares(shares, [float(n) for n in parts])
    np.testing.assert_allclose(together.bins, sum(counts) / sum(parts), atol=1e-12)
    assert together.rows == sum(parts)
