"""The dense methods against their references: solutions, errors of rows left out, Suykens' pruning, memory."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge
from support.data.motorcycle import motorcycle
from support.jobs.recording import Notes
from support.references import dense as dense_reference
from support.references.dense import predict_dense, prune_dense, solve_dense
from support.references.isls import Data

from ridgestream.pipeline.base.errors import InputError, MemoryRefused, NumericalBreakdown
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.dense.kernel_matrix import DenseSystem, plan_dense_bytes
from ridgestream.pipeline.batch.dense.kernel_ridge import fit_kernel_ridge
from ridgestream.pipeline.batch.dense.leave_one_out import DenseSettings
from ridgestream.pipeline.batch.dense.ls_svm import fit_ls_svm
from ridgestream.pipeline.batch.dense.sls_svm import SLSSVMSettings, fit_sls_svm
from ridgestream.pipeline.batch.isls_svm import ISLSSVMSettings, fit_isls_svm
from ridgestream.pipeline.kernels import RBF, Polynomial, gram
from ridgestream.pipeline.selection.backward_elimination import plan_sizes
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import ArrayRows

Array = npt.NDArray[np.float64]
GRID = (1e-5, 1e-3, 1e-1)
GAMMAS = (0.3, 2.0)


def draw(rows: int, seed: int = 0, n_targets: int = 1, *, weighted: bool = True) -> Data:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 2))
    y = np.sin(2 * X[:, :1] + np.arange(n_targets)) + 0.3 * rng.standard_normal((rows, n_targets)) + 1.0
    return Data(X, y, rng.choice([0.0, 0.5, 1.0, 2.0], rows) if weighted else np.ones(rows))


def rows_of(data: Data) -> ArrayRows:
    return ArrayRows(data.X, data.y, data.w)


def present(data: Data) -> Data:
    return data.part(data.w > 0)


def assert_has_the_sums_of_all_rows(fitted: Fitted, data: Data) -> None:
    k, total = fitted.basis.values(data.X), fitted.sums.total()
    np.testing.assert_allclose(total.products, k.T @ (data.w[:, np.newaxis] * k), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(total.rhs, k.T @ (data.w[:, np.newaxis] * data.y), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_targets", [1, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_the_dense_models_are_the_references_and_are_chosen_by_rows_left_out(n_targets: int, bias: bool) -> None:
    data, notes = draw(70, 1, n_targets), Notes()
    fit = fit_ls_svm if bias else fit_kernel_ridge
    fitted = fit(rows_of(data), [RBF(g) for g in GAMMAS], DenseSettings(GRID), notes)
    path, rows_present = fitted.path, present(data)
    assert path is not None
    assert path.criterion == "leave_one_out"
    assert path.n_basis.tolist() == [len(rows_present.X)] * 6
    expected = [dense_reference.left_out_error(rows_present, g, r, bias=bias) for g in GAMMAS for r in GRID]
    np.testing.assert_allclose(path.value, expected, rtol=1e-8)
    assert path.width.tolist() == [0, 0, 0, 1, 1, 1]
    assert path.regularization.tolist() == [*GRID, *GRID]
    assert path.chosen == int(np.argmin(expected))
    gamma, regularization = GAMMAS[path.width[path.chosen]], GRID[path.chosen % 3]
    assert (fitted.basis.kernel, fitted.regularization) == (RBF(gamma), regularization)
    model = solve_dense(rows_present, gamma, regularization * data.w.sum(), bias=bias)
    expected_beta = np.vstack([model.beta, model.b]) if bias else model.beta
    np.testing.assert_allclose(fitted.coefficients, expected_beta, rtol=0, atol=1e-9 * np.abs(model.beta).max())
    np.testing.assert_array_equal(fitted.places, np.flatnonzero(data.w > 0))
    assert fitted.basis.constant is bias
    assert_has_the_sums_of_all_rows(fitted, data)
    assert [facts["gamma"] for _, facts in notes.events] == list(GAMMAS)


@given(seed=st.integers(0, 10**6), rows=st.integers(4, 25), bias=st.booleans(), exponent=st.integers(-6, 1))
def test_errors_of_rows_left_out_in_closed_form(seed: int, rows: int, bias: bool, exponent: int) -> None:
    data = replace(draw(rows, seed), w=np.random.default_rng(seed).uniform(0.2, 3, rows))
    system = DenseSystem.of(gram(RBF(1.0), data.X), data.w, bias=bias)
    penalty = 10.0**exponent * data.w.sum()
    left_out = system.left_out(penalty, data.y)
    for row in range(rows):
        training = data.part(np.arange(rows) != row)
        model = solve_dense(training, 1.0, penalty, bias=bias)
        expected = data.y[row] - predict_dense(model, training, data.X[[row]], 1.0)[0]
        np.testing.assert_allclose(left_out[row], expected, rtol=1e-7, atol=1e-8)


def test_kernel_ridge_is_scikit_learn_s() -> None:
    data = draw(80, 2, n_targets=2)
    fitted = fit_kernel_ridge(rows_of(data), [RBF(0.5)], DenseSettings((1e-3,)), Silent())
    rows_present = present(data)
    theirs = KernelRidge(kernel="rbf", gamma=0.5, alpha=1e-3 * data.w.sum()).fit(
        rows_present.X, rows_present.y, rows_present.w
    )
    np.testing.assert_allclose(fitted.coefficients, theirs.dual_coef_, rtol=1e-8, atol=1e-10)


def test_ls_svm_is_isls_svm_over_all_rows() -> None:
    """The same γ means the same model in both: ℓ/(2γ) in the dense system too."""
    data = draw(60, 3)
    dense = fit_ls_svm(rows_of(data), [RBF(2.0)], DenseSettings((1e-2,)), Silent())
    start = StartingDictionary.of_rows(rows_of(data), np.flatnonzero(data.w > 0))
    sparse = fit_isls_svm(rows_of(data), [RBF(2.0)], start, ISLSSVMSettings((1e-2,), folds=1), Silent())
    left_out, expected = (f.basis.values(data.X) @ f.coefficients for f in (sparse, dense))
    np.testing.assert_allclose(left_out, expected, rtol=0, atol=1e-7)


def test_a_weight_of_two_is_the_row_twice() -> None:
    data = draw(40, 4, weighted=False)
    settings = DenseSettings((1e-2,))
    heavy = fit_ls_svm(ArrayRows(data.X, data.y, np.full(40, 2.0)), [RBF(1.0)], settings, Silent())
    twice = fit_ls_svm(ArrayRows(np.tile(data.X, (2, 1)), np.tile(data.y, (2, 1))), [RBF(1.0)], settings, Silent())
    left_out, expected = (f.basis.values(data.X) @ f.coefficients for f in (twice, heavy))
    np.testing.assert_allclose(left_out, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("selection_folds", [0, 3])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_suykens_pruning_is_the_reference(selection_folds: int, n_targets: int) -> None:
    data = draw(45, 5, n_targets)
    rows_present, kernels = present(data), [RBF(g) for g in GAMMAS]
    settings = SLSSVMSettings(GRID, selection_folds=selection_folds, folds=3, random_seed=7, step=0.3, max_basis=10)
    fitted = fit_sls_svm(rows_of(data), kernels, settings, Silent())
    path = fitted.path
    assert path is not None
    sizes = plan_sizes(len(rows_present.X), 0.3, 2, 10)
    reference = dict(zip(sizes, prune_dense(rows_present, GAMMAS, GRID, sizes, selection_folds, 7), strict=True))
    assert path.n_basis.tolist() == [s for s in sizes if s <= (2 * len(rows_present.X)) // 3]
    assert path.regularization.tolist() == [reference[int(s)][3] for s in path.n_basis]
    assert [GAMMAS[w] for w in path.width] == [reference[int(s)][2] for s in path.n_basis]

    dealt, expected = deal_folds(0, len(rows_present.X), 3, 7), np.zeros(len(path.n_basis))
    for fold in range(3):
        training, held = rows_present.part(dealt != fold), rows_present.part(dealt == fold)
        inside = [len(training.X), *(int(s) for s in path.n_basis if s < len(training.X))]
        walked = prune_dense(training, GAMMAS, GRID, inside, selection_folds, 7)[-len(path.n_basis) :]
        for i, (left, model, gamma, _) in enumerate(walked):
            part = Data(training.X[left], training.y[left], training.w[left])
            expected[i] += dense_reference.squared_error(model, part, held, gamma)
    np.testing.assert_allclose(path.value, expected / (data.w.sum() * n_targets), rtol=1e-8)

    size = int(path.n_basis[path.chosen])
    assert path.value[path.chosen] == path.value[path.n_basis <= 10].min()
    left, model, gamma, regularization = reference[size]
    np.testing.assert_array_equal(fitted.places, np.flatnonzero(data.w > 0)[left])
    assert (fitted.basis.kernel, fitted.regularization) == (RBF(gamma), regularization)
    np.testing.assert_allclose(fitted.coefficients, np.vstack([model.beta, model.b]), rtol=0, atol=1e-8)
    assert_has_the_sums_of_all_rows(fitted, data)


def test_without_outer_folds_suykens_pruning_takes_the_largest_size_allowed() -> None:
    data = draw(40, 6, weighted=False)
    settings = SLSSVMSettings(GRID, folds=1, step=0.0, max_basis=12)
    fitted = fit_sls_svm(rows_of(data), [RBF(1.0)], settings, Silent())
    assert fitted.path is None
    left, model, _, _ = prune_dense(data, [1.0], GRID, plan_sizes(40, 0.0, 12), 4, 0)[-1]
    np.testing.assert_array_equal(fitted.places, left)
    np.testing.assert_allclose(fitted.coefficients, np.vstack([model.beta, model.b]), rtol=0, atol=1e-8)


@pytest.mark.thorough
def test_isls_svm_lies_below_sls_svm_along_the_path_on_rows_like_the_motorcycle_data() -> None:
    data = motorcycle(133, 1)
    rows, grid = rows_of(data), tuple(np.logspace(-7, 0, 15))
    sls = fit_sls_svm(rows, [RBF(2.0)], SLSSVMSettings(grid, folds=10), Silent()).path
    start = StartingDictionary.of_rows(rows, np.arange(133))
    isls = fit_isls_svm(rows, [RBF(2.0)], start, ISLSSVMSettings(grid, folds=10), Silent()).path
    assert sls is not None
    assert isls is not None
    whole = isls.n_basis == isls.n_basis.max()
    chosen_once = isls.regularization[whole][int(isls.value[whole].argmin())]
    enough = (isls.regularization == chosen_once) & (isls.n_basis >= 9)
    flat, sizes = isls.value[enough], isls.n_basis[enough]
    above = np.interp(sizes, sls.n_basis[::-1], sls.value[::-1])
    assert flat.max() < 1.05 * flat[0]  # down to 9 vectors, without selecting again
    assert (flat < above).all()
    assert flat.mean() < 0.5 * above.mean()
    assert abs(sls.value[0] / flat[0] - 1) < 0.1  # they begin as one model


def test_matrices_that_do_not_fit_are_refused_with_the_numbers_before_a_row_is_read() -> None:
    class Unread(ArrayRows):
        def take(self, places: npt.NDArray[np.int64]) -> RowBlock:
            raise AssertionError(places)

    rows = Unread(np.zeros((10_000, 3)), np.zeros((10_000, 1)))
    for fit in (fit_ls_svm, fit_kernel_ridge):
        with pytest.raises(MemoryRefused, match=r"10000 × 10000 numbers, 6\.4 GB in all, and 2 GB may be used"):
            fit(rows, [RBF(1.0)], DenseSettings(GRID, 2 * 10**9), Silent())
    with pytest.raises(MemoryRefused, match="raise the memory limit, give fewer rows, or take a sparse method"):
        fit_sls_svm(rows, [RBF(1.0)], SLSSVMSettings(GRID), Silent())
    assert plan_dense_bytes(1000, 4, 3) - plan_dense_bytes(1000, 4, 1) == 2 * 8 * 1000**2


def test_rows_that_cannot_be_fitted_are_refused() -> None:
    data = draw(20, 8, weighted=False)
    with pytest.raises(InputError, match=r"at least two rows of weight above zero \(n_samples=1\)"):
        fit_ls_svm(ArrayRows(data.X, data.y, np.r_[1.0, np.zeros(19)]), [RBF(1.0)], DenseSettings(GRID), Silent())
    with pytest.raises(InputError, match="at least one kernel and one regularization"):
        fit_kernel_ridge(rows_of(data), [], DenseSettings(GRID), Silent())
    with pytest.raises(InputError, match=r"must be a positive number or .*, it is \(0\.0,\)"):
        DenseSettings((0.0,))
    with pytest.raises(InputError, match="selection_folds must be 0"):
        SLSSVMSettings(GRID, selection_folds=1)
    with pytest.raises(InputError, match="smallest must be a whole number of at least 2"):
        SLSSVMSettings(GRID, smallest=1)
    with pytest.raises(InputError, match="folds must be a whole number of at least 1"):
        SLSSVMSettings(GRID, folds=0)
    with pytest.raises(InputError, match="the path ends at 18 vectors, and without a fold there are 10 rows"):
        fit_sls_svm(rows_of(data), [RBF(1.0)], SLSSVMSettings(GRID, folds=2, smallest=18), Silent())
    with (
        pytest.raises(
            NumericalBreakdown,
            match=r"kernel matrix of the rows \(20 × 20\) holds a value that is not finite: .* standardize",
        ),
        np.errstate(all="ignore"),
    ):
        fit_ls_svm(ArrayRows(data.X * 1e80, data.y), [Polynomial(1.0, 4)], DenseSettings(GRID), Silent())
