"""Groups of a pilot's rows: the last ones, those left out at random, the rest."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.metric.split import LATER, LEARNED, LEFT_OUT, Split


@given(
    st.builds(Split, st.integers(1, 400), st.sampled_from([1, 2, 4]), st.integers(0, 3), st.booleans()),
    st.lists(st.integers(1, 399), max_size=4),
)
def test_a_row_s_group_does_not_depend_on_how_rows_are_cut(split: Split, cuts: list[int]) -> None:
    n = split.n_rows
    bounds = [0, *sorted({cut for cut in cuts if cut < n}), n]
    parts = [split.groups(first, stop - first) for first, stop in pairwise(bounds)]
    np.testing.assert_array_equal(np.concatenate(parts), split.groups(0, n))


@pytest.mark.parametrize(("n", "stride"), [(1000, 1), (20_000, 4), (400, 2)])
def test_the_last_fifth_and_a_fifth_of_the_others_judge(n: int, stride: int) -> None:
    split = Split(n, stride)
    groups = split.groups(0, n)
    used = groups >= 0
    assert abs(used.sum() - n / stride) <= 1
    late = np.arange(n) >= 0.8 * n
    assert (groups[used & late] == LATER).all()
    assert not (groups[~late] == LATER).any()
    assert np.sum(groups == LEFT_OUT) == pytest.approx(0.8 * n / stride / 5, abs=2)
    assert set(groups[used & ~late].tolist()) == {LEARNED, LEFT_OUT}


@pytest.mark.parametrize(("n", "stride"), [(1000, 1), (20_000, 4), (400, 2)])
def test_random_rows_stand_for_the_last_ones_of_sorted_rows(n: int, stride: int) -> None:
    groups = Split(n, stride, is_sorted=True).groups(0, n)
    halves = np.split(groups, 2)
    for group, share in ((LATER, 0.2), (LEFT_OUT, 0.16), (LEARNED, 0.64)):
        for half in halves:
            assert np.mean(half == group) * stride == pytest.approx(share, abs=0.06)
