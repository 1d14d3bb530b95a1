"""Nested models: every size's coefficients, errors on any rows and degrees of freedom are those of a fit of its own."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.selection.nested_models import NestedModels
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, Summing, sum_rows
from ridgestream.pipeline.sums.row_block import RowBlock

Array = npt.NDArray[np.float64]
REGULARIZATION = 1e-3


class Case:
    """Weighted rows of two folds against a basis, as sums and as arrays."""

    def __init__(self, n_basis: int = 9, n_targets: int = 2, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        block = RowBlock(rng.standard_normal((80, 2)), rng.standard_normal((80, n_targets)), rng.uniform(0.1, 3, 80))
        self.basis = Basis(RBF(0.4), rng.standard_normal((n_basis, 2)), np.zeros(2))
        self.train, self.held_out = sum_rows(Summing(self.basis, n_targets, folds=2), [block]).folds
        self.penalty = self.basis.penalty()
        self.models = NestedModels.of(self.train, self.penalty, REGULARIZATION)

    def alone(self, size: int) -> tuple[BlockStatistics, Array, Array]:
        """The sums of the first functions, P and β of a fit of their own."""
        sums = self.train.choose(np.arange(size))
        normal = sums.products + REGULARIZATION * sums.weight * self.penalty[:size, :size]
        return sums, normal, np.asarray(np.linalg.solve(normal, sums.rhs), np.float64)


@settings(max_examples=30)
@given(n_basis=st.integers(0, 9), n_targets=st.integers(1, 3), seed=st.integers(0, 1000))
def test_every_size_is_a_fit_of_its_own(n_basis: int, n_targets: int, seed: int) -> None:
    case = Case(n_basis, n_targets, seed)
    assert len(case.models) == n_basis
    errors, freedoms = case.models.squared_errors(case.held_out), case.models.freedoms(case.train)
    gcv = case.models.gcv(case.train)
    assert errors.shape == (n_basis + 1, n_targets)
    for size in range(n_basis + 1):
        sums, normal, beta = case.alone(size)
        held_out = case.held_out.choose(np.arange(size))
        np.testing.assert_allclose(
            case.models.coefficients(size), beta, rtol=0, atol=1e-7 * np.abs(beta).max(initial=1)
        )
        np.testing.assert_allclose(errors[size], held_out.squared_error(beta), rtol=1e-7)
        trace = float(np.trace(np.linalg.solve(normal, sums.products)))
        assert freedoms[size] == pytest.approx(trace, rel=1e-8)
        expected = sums.squared_error(beta).sum() / sums.weight / (1 - trace / sums.weight) ** 2
        assert gcv[size] == pytest.approx(expected, rel=1e-7)


@settings(max_examples=20)
@given(n_before=st.integers(0, 9), n_targets=st.integers(1, 3))
def test_measures_of_the_last_sizes_alone_are_those_of_all(n_before: int, n_targets: int) -> None:
    case = Case(9, n_targets)
    errors, growth = case.models.after(n_before, case.train)
    np.testing.assert_allclose(errors, case.models.squared_errors(case.train)[n_before + 1 :], rtol=1e-8)
    np.testing.assert_allclose(growth, np.diff(case.models.freedoms(case.train))[n_before:], rtol=1e-8)


def test_a_perfect_fit_has_no_error_below_zero() -> None:
    rng = np.random.default_rng(3)
    basis = Basis(RBF(0.5), rng.standard_normal((12, 2)), np.zeros(2))
    rows = RowBlock(basis.vectors, rng.standard_normal((12, 1)), None)
    sums = sum_rows(Summing(basis, 1), [rows]).total()
    models = NestedModels.of(sums, basis.penalty(), 1e-13)
    assert (models.squared_errors(sums) >= 0).all()
    assert models.squared_errors(sums)[-1] < 1e-6
    assert not np.isnan(models.gcv(sums)).any()


def test_as_many_parameters_as_rows_leave_gcv_without_a_bound() -> None:
    sums = BlockStatistics(np.eye(2) * 4.0, np.ones((2, 1)), np.ones((1, 1)), 2.0, 2)
    assert NestedModels.of(sums, np.zeros((2, 2)), 1.0).gcv(sums)[-1] == np.inf
