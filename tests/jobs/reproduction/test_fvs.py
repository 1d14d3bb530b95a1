"""Conventional feature vector selection chooses as the efficient one does among all rows."""

from itertools import islice

import numpy as np

from ridgestream.jobs.reproduction.cawley_talbot.fvs import conventional_fvs
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.efvs import FVSSettings, as_efvs, select_basis
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.sums.row_set import ArrayRows


def test_conventional_feature_vector_selection_chooses_as_the_efficient_one() -> None:
    X, kernel = np.random.default_rng(0).standard_normal((40, 3)), RBF(0.4)
    chosen = select_basis(ArrayRows(X, np.zeros(40)), kernel, as_efvs(FVSSettings(max_basis=8)), Silent())
    assert list(islice(conventional_fvs(kernel, X), 8)) == chosen.places.tolist()


def test_it_ends_where_all_rows_are_spanned() -> None:
    X = np.repeat([[0.0], [1.0], [5.0]], 3, axis=0)
    assert sorted(X[list(conventional_fvs(RBF(1.0), X)), 0]) == [0.0, 1.0, 5.0]
