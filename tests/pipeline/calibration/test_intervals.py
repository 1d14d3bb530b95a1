"""Conformal intervals: their coverage, their weights, and how the level follows the nights."""

from dataclasses import replace
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.calibration.intervals import LEVELS, Intervals, conformal_quantile

SCORES = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=30, unique=True)


@settings(max_examples=50)
@given(SCORES, st.integers(1, 99))
def test_the_quantile_is_the_order_statistic_of_split_conformal_prediction(scores: list[float], percent: int) -> None:
    number = ceil(Fraction(percent, 100) * (len(scores) + 1))
    found = conformal_quantile(np.array(scores), np.ones(len(scores)), percent / 100)
    assert found == (sorted(scores)[number - 1] if number <= len(scores) else np.inf)


@settings(max_examples=50)
@given(SCORES.filter(lambda scores: len(scores) > 1), st.floats(0.05, 0.95))
def test_exchangeable_scores_are_covered_by_the_level_and_hardly_more(scores: list[float], level: float) -> None:
    n, values = len(scores) - 1, np.array(scores)
    covered = [values[i] <= conformal_quantile(np.delete(values, i), np.ones(n), level) for i in range(n + 1)]
    assert level - 1e-9 <= np.mean(covered) <= level + 1 / (n + 1) + 1e-9


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 3)), min_size=1, max_size=12), st.floats(0.05, 0.95))
def test_a_whole_weight_is_as_many_rows(rows: list[tuple[float, int]], level: float) -> None:
    scores, weights = (np.array(part, dtype=float) for part in zip(*rows, strict=True))
    if not weights.any():
        return
    repeated = np.repeat(scores, weights.astype(int))
    heaviest = int(weights.max())
    wanted = level * (len(repeated) + heaviest) * (1 - 1e-12)
    reached = [s for n, s in enumerate(sorted(repeated), start=1) if n >= wanted]
    assert conformal_quantile(scores, weights, level) == (reached[0] if reached else np.inf)


def test_too_few_rows_for_a_level_are_refused_with_what_helps() -> None:
    few = Intervals.of(np.arange(5.0)[:, np.newaxis], np.ones(5))
    assert few.factors(0.5).tolist() == [2.0]
    with pytest.raises(InputError, match=r"^5 rows are too few for intervals of the level 0\.9, which need 9"):
        few.factors(0.9)


def test_the_level_follows_the_coverage_of_the_nights() -> None:
    rng = np.random.default_rng(0)
    intervals = Intervals.of(np.abs(rng.normal(size=(2000, 1))), np.ones(2000))
    first = intervals.factors(0.9)[0]
    for _ in range(30):  # the noise is half as large again as that of the scores
        scores = np.abs(1.5 * rng.normal(size=(2000, 1)))
        shares = intervals.shares_outside(scores, np.ones(2000))
        intervals = intervals.adapted(intervals, shares, 2000)
    assert first == pytest.approx(1.645, abs=0.1)
    assert intervals.factors(0.9)[0] == pytest.approx(1.5 * 1.645, abs=0.15)
    assert intervals.factors(0.8)[0] == pytest.approx(1.5 * 1.282, abs=0.15)


def test_a_night_of_few_rows_hardly_moves_the_level() -> None:
    intervals = Intervals.of(np.linspace(0, 3, 1000)[:, np.newaxis], np.ones(1000))
    all_outside = np.ones((1, len(LEVELS)))
    few, many = (intervals.adapted(intervals, all_outside, rows).outside[0, 2] for rows in (4, 40_000))
    assert 0.09 < few < 0.1
    assert many == pytest.approx(0.01)


def test_levels_between_are_interpolated_and_ascend() -> None:
    shares = np.array([[0.4, 0.5, 0.05, 0.05, 0.02]])
    intervals = replace(Intervals.of(np.linspace(0, 1, 1001)[:, np.newaxis], np.ones(1001)), outside=shares)
    levels = np.linspace(0.05, 0.99, 40)
    factors = [intervals.factors(level)[0] for level in levels]
    assert factors == sorted(factors)
    assert intervals.factors(0.85)[0] == pytest.approx(1 - (0.4 + 0.05) / 2, abs=2e-3)


@pytest.mark.parametrize(("true_power", "found"), [(1.0, 1.0), (0.0, 0.0)])
def test_intervals_follow_the_deviations_as_far_as_these_tell_rows_apart(true_power: float, found: float) -> None:
    rng = np.random.default_rng(0)
    deviations = np.exp(rng.normal(size=(4000, 1)))
    errors = np.abs(rng.normal(size=(4000, 1))) * deviations**true_power
    intervals = Intervals.fit(errors, deviations, np.array([0.3]), np.ones(4000))
    assert intervals.powers.tolist() == [found]
    radius = intervals.factors(0.9) * intervals.scales(deviations, np.array([0.3]))
    assert np.mean(errors <= radius) == pytest.approx(0.9, abs=2e-3)


def test_a_model_without_noise_has_intervals_of_a_finite_width() -> None:
    errors = np.zeros((50, 1))
    intervals = Intervals.fit(errors, errors, np.zeros(1), np.ones(50))
    assert (intervals.factors(0.9) * intervals.scales(errors, np.zeros(1)) < 1e-9).all()
