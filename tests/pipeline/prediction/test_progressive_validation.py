"""Progressive errors: sums by partition that do not depend on blocks, and limits that detect a high error."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.base.serialization import from_plain, to_plain
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.pipeline.prediction.progressive_validation import Progressive, find_limits

MAP = FeatureMap((), (), TargetMap((0.0, 0.0), (2.0, 3.0)))


def sums_of(segment: int, rng: np.random.Generator, rows: int, *, classes: bool) -> Progressive:
    predicted, truth = rng.standard_normal((2, rows, 1 if classes else 2))
    return Progressive.of(segment, Evaluation.of(predicted, truth, None, classes=classes), MAP)


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5), cuts=st.lists(st.integers(1, 4)), seed=st.integers())
def test_sums_by_partition_do_not_depend_on_blocks(sizes: list[int], cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(abs(seed))
    rows = [(segment, rng.standard_normal((2, n, 2))) for segment, n in enumerate(sizes)]
    blocks = [
        Progressive.of(segment, Evaluation.of(part[0], part[1], None, classes=False), MAP)
        for segment, (predicted, truth) in rows
        for part in zip(np.array_split(predicted, 3), np.array_split(truth, 3), strict=True)
    ]
    merged = reduce(Progressive.merge, blocks, Progressive(Evaluation(classes=False)))
    grouped: list[Progressive] = [Progressive(Evaluation(classes=False))]
    for i, block in enumerate(blocks):
        grouped[-1] = grouped[-1].merge(block)
        if i in cuts:
            grouped.append(Progressive(Evaluation(classes=False)))
    merged_groups = reduce(Progressive.merge, grouped)
    expected = {segment: float((((p - t) * [2.0, 3.0]) ** 2).mean(axis=1).mean()) for segment, (p, t) in rows if len(p)}
    for sums in (merged, merged_groups):
        assert sums.segments == tuple(range(len(sizes)))
        assert sums.errors() == pytest.approx(expected)
        assert sums.total.weight == sum(sizes)


def test_sums_round_trip_through_plain_values() -> None:
    sums = sums_of(3, np.random.default_rng(0), 20, classes=True)
    assert from_plain(Progressive, *to_plain(sums)) == sums


def test_a_partition_whose_rows_all_have_weight_zero_has_no_error() -> None:
    nothing = Evaluation.of(np.ones((2, 1)), np.ones((2, 1)), np.zeros(2), classes=True)
    assert Progressive.of(0, nothing, MAP).errors() == {}


@pytest.mark.parametrize("classes", [True, False])
def test_the_first_error_and_missing_ones_have_no_limit(classes: bool) -> None:
    limits = find_limits([None, 0.3, None, 0.3], [10, 10, 0, 10], classes=classes)
    assert [limit is None for limit in limits] == [True, True, True, False]


@given(p=st.floats(0.0, 0.5), n=st.integers(10, 5000), seed=st.integers(0, 2**32 - 1), partitions=st.integers(2, 30))
def test_random_variation_seldom_exceeds_the_limit(p: float, n: int, seed: int, partitions: int) -> None:
    errors = np.random.default_rng(seed).binomial(n, p, partitions) / n
    limits = find_limits(list(errors), [n] * partitions, classes=True)
    above = [error for error, limit in zip(errors, limits, strict=True) if limit is not None and error > limit]
    assert len(above) <= 1


@pytest.mark.parametrize("n", [30, 200, 50_000])
def test_flipped_labels_exceed_the_limit(n: int) -> None:
    rng = np.random.default_rng(0)
    errors = [*(rng.binomial(n, 0.2, 15) / n), 0.8]
    limit = find_limits(errors, [n] * 16, classes=True)[-1]
    assert limit is not None
    assert 0.2 < limit < 0.8


def test_one_bad_partition_does_not_hide_the_next() -> None:
    errors = [0.2, 0.21, 0.19, 0.2, 0.8, 0.2, 0.8]
    limits = find_limits(errors, [1000] * 7, classes=True)
    assert [limit is not None and error > limit for error, limit in zip(errors, limits, strict=True)] == [
        *(4 * [False]),
        True,
        False,
        True,
    ]


def test_the_limit_is_at_least_half_above_the_usual_error_for_any_number_of_rows() -> None:
    assert find_limits([0.2, 0.2, 0.2], [10**6] * 3, classes=True)[-1] == pytest.approx(0.3)


def test_the_limit_of_a_regression_is_wider_for_small_partitions() -> None:
    small, large = (find_limits([4.0, 4.0, 4.0], [3, 3, n], classes=False)[-1] for n in (10, 10_000))
    assert large == pytest.approx(6.0)
    assert small == pytest.approx(4.0 + 12.0 * 4.0 * (8 / 10) ** 0.5)
