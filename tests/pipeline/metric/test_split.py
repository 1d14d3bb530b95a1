"""Groups of a pilot's rows: the last ones, those left out at random, the rest."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.metric.split import FEW_ROWS, LATER, UNJUDGED, Split


@given(st.integers(1, 400), st.sampled_from([1, 2, 4]), st.integers(0, 3), st.lists(st.integers(1, 399), max_size=4))
def test_a_row_s_group_does_not_depend_on_how_rows_are_cut(n: int, stride: int, seed: int, cuts: list[int]) -> None:
    split = Split(n, stride, seed)
    bounds = [0, *sorted({cut for cut in cuts if cut < n}), n]
    parts = [split.groups(first, stop - first) for first, stop in pairwise(bounds)]
    np.testing.assert_array_equal(np.concatenate(parts), split.groups(0, n))


@pytest.mark.parametrize(("n", "stride", "judges"), [(1000, 1, 6), (FEW_ROWS, 1, 2), (4 * FEW_ROWS, 4, 2), (400, 2, 6)])
def test_the_last_fifth_and_a_fifth_of_the_others_judge(n: int, stride: int, judges: int) -> None:
    split = Split(n, stride)
    groups = split.groups(0, n)
    used = groups >= 0
    assert abs(used.sum() - n / stride) <= 1
    assert len(split.judged) == judges
    late = np.arange(n) >= 0.8 * n
    assert (groups[used & late] == LATER).all()
    assert not (groups[~late] == LATER).any()
    for group in split.judged[1:]:
        assert np.sum(groups == group) == pytest.approx(0.8 * n / stride / 5, abs=2)
    assert set(np.unique(groups[used])) <= {UNJUDGED, *split.judged}
