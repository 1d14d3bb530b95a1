"""Assignment of rows to folds: equal sizes, determined by row numbers, without a period."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.sums.folds import deal_folds


@given(first=st.integers(0, 10**12), count=st.integers(0, 200), n_folds=st.integers(1, 20), seed=st.integers(0, 2**63))
def test_the_fold_of_a_row_does_not_depend_on_its_block(first: int, count: int, n_folds: int, seed: int) -> None:
    whole = deal_folds(first, count, n_folds, seed)
    assert len(whole) == count
    half = count // 2
    parts = [deal_folds(first, half, n_folds, seed), deal_folds(first + half, count - half, n_folds, seed)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


@given(run=st.integers(0, 10**9), n_folds=st.integers(2, 20))
def test_every_run_of_rows_has_one_row_in_each_fold(run: int, n_folds: int) -> None:
    folds = deal_folds(run * n_folds, n_folds, n_folds, 0)
    assert sorted(folds) == list(range(n_folds))


def test_the_order_of_runs_has_no_period_and_depends_on_the_seed() -> None:
    folds = deal_folds(0, 50_000, 5, 0).reshape(-1, 5)
    counts = np.array([np.bincount(position, minlength=5) for position in folds.T])
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(2000)  # each fold equally often at each position
    repeats = float(np.mean(np.all(folds[1:] == folds[:-1], axis=1)))
    assert abs(repeats - 1 / 120) < 0.006
    assert np.any(deal_folds(0, 50_000, 5, 1) != folds.ravel())
