"""Incomplete Cholesky dictionaries against LAPACK's pivoted factorization of the whole kernel matrix."""

import numpy as np
import pytest
from scipy.linalg import lapack

from ridgestream import RBF, InputError, Linear
from ridgestream.pipeline.kernels import gram
from ridgestream.pipeline.selection.starts.incomplete_cholesky import find_pivots, pivoted_rows
from ridgestream.pipeline.sums.row_set import ArrayRows

X = np.random.default_rng(0).standard_normal((60, 2))


def test_pivots_are_those_of_the_whole_matrix() -> None:
    kernel = RBF(0.7)
    _, pivots, _, _ = lapack.dpstrf(gram(kernel, X), lower=1)
    assert find_pivots(kernel, X, 20).tolist() == (pivots[:20] - 1).tolist()


def test_it_ends_where_all_rows_are_spanned() -> None:
    assert len(find_pivots(Linear(), X, 10)) == 2


def test_rows_of_weight_zero_are_absent_and_pivots_are_among_rows_drawn() -> None:
    weights = np.where(np.arange(60) % 2, 1.0, 0.0)
    dictionary = pivoted_rows(ArrayRows(X, np.zeros(60), weights), RBF(0.7), 2, seed=0)
    assert len(dictionary.places) == 2
    assert (weights[dictionary.places] > 0).all()
    assert (X[dictionary.places] == dictionary.vectors).all()


def test_without_a_row_there_is_no_pivot() -> None:
    with pytest.raises(InputError, match="no row of 60 could be a pivot"):
        pivoted_rows(ArrayRows(X, np.zeros(60), np.zeros(60)), RBF(0.7), 2, seed=0)
