"""The order of the targets of a pilot's rows."""

from functools import reduce
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.metric.target_order import TargetOrder, find_target_order
from ridgestream.pipeline.sums.row_block import RowBlock

RNG = np.random.default_rng(0)
CLASSES = np.sort(RNG.integers(0, 3, 300))
NUMBERS = np.sort(RNG.normal(size=300))


def one_against_rest(classes: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return np.where(classes[:, np.newaxis] == np.arange(classes.max() + 1), 1.0, -1.0)


def order_of(targets: npt.NDArray[np.float64], *cuts: int) -> TargetOrder:
    columns = targets.reshape(len(targets), -1)
    parts = [TargetOrder.of(columns[start:stop]) for start, stop in pairwise([0, *sorted(cuts), len(columns)])]
    return reduce(TargetOrder.merge, parts)


SORTED = {
    "ascending": NUMBERS,
    "descending": NUMBERS[::-1],
    "two sorted files": np.concatenate([np.arange(3000.0), np.arange(2000.0)]),
    "sorted but for some rows": np.concatenate([NUMBERS[:150], NUMBERS[[280, 10, 160]], NUMBERS[150:]]),
    "two classes": np.where(CLASSES > 1, 1.0, -1.0),
    "classes": one_against_rest(CLASSES),
    "classes in another order": one_against_rest((CLASSES + 1) % 3),
    "one target of two": np.column_stack([RNG.permutation(NUMBERS), NUMBERS]),
}
OTHERS = {
    "random": RNG.permutation(NUMBERS),
    "a smooth season": np.sin(np.arange(300) / 20),
    "a trend with noise": NUMBERS + RNG.normal(size=300),
    "states that last long": np.repeat([1.0, 3.0, 2.0, 5.0, 4.0, 2.0], 50),
    "one episode": np.repeat([-1.0, 1.0, -1.0], 100),
    "random classes": one_against_rest(RNG.permutation(CLASSES)),
    "classes that come again": one_against_rest(np.concatenate([CLASSES, CLASSES])),
    "a constant": np.ones(300),
    "few rows": NUMBERS[:49],
}


@pytest.mark.parametrize("case", SORTED)
def test_rows_in_the_order_of_their_target_are_seen(case: str) -> None:
    assert order_of(SORTED[case]).is_sorted


@pytest.mark.parametrize("case", OTHERS)
def test_rows_in_another_order_are_not(case: str) -> None:
    assert not order_of(OTHERS[case]).is_sorted


@given(st.sampled_from([*SORTED, *OTHERS]), st.lists(st.integers(0, 300), max_size=4))
def test_blocks_may_be_cut_anywhere(case: str, cuts: list[int]) -> None:
    targets = {**SORTED, **OTHERS}[case]
    whole, cut = order_of(targets), order_of(targets, *(min(place, len(targets)) for place in cuts))
    for name, value in vars(whole).items():
        np.testing.assert_array_equal(getattr(cut, name), value)


def test_rows_of_weight_zero_do_not_count() -> None:
    mixed, weights = np.column_stack([NUMBERS, -9 * np.ones(300)]).reshape(-1, 1), np.tile([1.0, 0.0], 300)
    assert find_target_order(1, [RowBlock(np.zeros((600, 1)), mixed, weights)]).is_sorted
    assert not find_target_order(1, []).is_sorted
