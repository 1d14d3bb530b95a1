"""The errors of the last value: as computed from all rows at once, however they are cut."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.prediction.last_value import LastValue


@given(cuts=st.lists(st.integers(0, 40), max_size=4), seed=st.integers(0, 99), classes=st.booleans())
def test_runs_of_rows_merge_to_the_errors_of_all_rows(cuts: list[int], seed: int, classes: bool) -> None:
    rng = np.random.default_rng(seed)
    targets, weights = rng.integers(0, 3, (40, 2)).astype(float), rng.integers(0, 3, 40).astype(float)
    edges = [0, *sorted(cuts), 40]
    parts = [LastValue.of(targets[start:stop], weights[start:stop], classes=classes) for start, stop in pairwise(edges)]
    merged = parts[0]
    for part in parts[1:]:
        merged = merged.merge(part)
    y, w = targets[weights > 0], weights[weights > 0]
    losses = (np.diff(y, axis=0) != 0).any(axis=1)[:, np.newaxis] if classes else np.diff(y, axis=0) ** 2
    np.testing.assert_allclose(merged.errors, np.average(losses, weights=w[1:], axis=0))


def test_without_a_row_before_there_is_no_error() -> None:
    assert LastValue.of(np.ones((1, 1)), None, classes=False).errors == ()
    assert LastValue().merge(LastValue.of(np.empty((0, 1)), None, classes=False)).errors == ()
    merged = LastValue.of(np.ones((1, 1)), None, classes=False).merge(
        LastValue.of(np.zeros((1, 1)), None, classes=False)
    )
    assert merged.errors == (1.0,)
    assert merged.weight == pytest.approx(1.0)
