"""Kernel matching pursuit against the paper's loop over the residuals of all rows."""

import numpy as np
import numpy.typing as npt

from ridgestream import RBF
from ridgestream.pipeline.selection.starts.matching_pursuit import pursue, pursued_rows
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import Summing, sum_rows
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import ArrayRows

RNG = np.random.default_rng(0)
X = RNG.uniform(-3, 3, (200, 1))
y = np.sin(X) + 0.05 * RNG.standard_normal((200, 1))


def pursue_residuals(values: npt.NDArray[np.float64], steps: int) -> list[int]:
    """Add the function of least remaining error, step by step, and return all that were added."""
    residual, added = y.copy(), []
    for _ in range(steps):
        multiples = (values.T @ residual)[:, 0] / np.sum(values**2, axis=0)
        errors = [float(np.sum((residual - m * c[:, None]) ** 2)) for m, c in zip(multiples, values.T, strict=True)]
        best = int(np.argmin(errors))
        residual = residual - multiples[best] * values[:, best : best + 1]
        added.append(best)
    return added


def test_functions_are_added_as_in_the_paper() -> None:
    basis = Basis(RBF(1.0), X[:30], np.zeros(1))
    chosen = pursue(sum_rows(Summing(basis, 1), [RowBlock(X, y, None)]).total(), 8).tolist()
    added = pursue_residuals(basis.values(X), 160)
    assert chosen == list(dict.fromkeys(added))[:8]
    assert len(added) > len(set(added))


def test_the_rows_that_are_added_are_the_dictionary() -> None:
    dictionary = pursued_rows(ArrayRows(X, y), RBF(1.0), 6, seed=0)
    assert len({*dictionary.places.tolist()}) == 6
    assert (X[dictionary.places] == dictionary.vectors).all()


def test_targets_that_are_zero_need_one_function() -> None:
    assert len(pursued_rows(ArrayRows(X, np.zeros(200)), RBF(1.0), 6, seed=0).places) == 1
