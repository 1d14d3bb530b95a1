"""ISLS-SVM and subset of regressors against their dense references: choices, errors by fold, coefficients."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs.recording import Notes
from support.references import isls as isls_reference
from support.references.isls import Data

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.reporter import Fact, Silent
from ridgestream.pipeline.batch.isls_svm import METHOD, ISLSSVMSettings, fit_isls_svm
from ridgestream.pipeline.batch.method import FitTask, PlanTask
from ridgestream.pipeline.batch.subset_of_regressors import SubsetOfRegressorsSettings, fit_subset_of_regressors
from ridgestream.pipeline.kernels import RBF, Linear
from ridgestream.pipeline.selection.backward_elimination import PrunedModel, Score, _ShrinkingFactor, plan_sizes, walk
from ridgestream.pipeline.selection.cross_validation import squared_errors
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.sums.normal_equations import (
    BlockStatistics,
    SeveralStatistics,
    Summing,
    sum_rows,
    sum_together,
)
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import ArrayRows

Array = npt.NDArray[np.float64]
GAMMA = 0.6
GRID = (1e-6, 1e-4, 1e-2)


def draw(rows: int, seed: int = 0, n_targets: int = 1) -> Data:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, 3))
    y = np.sin(2 * X[:, :n_targets]) + 0.3 * rng.standard_normal((rows, n_targets)) + 0.5
    return Data(X, y, rng.choice([0.0, 0.5, 1.0, 2.0], rows))


def rows_of(data: Data) -> ArrayRows:
    return ArrayRows(data.X, data.y, data.w)


def start_of(data: Data, n_basis: int) -> StartingDictionary:
    return StartingDictionary.of_rows(rows_of(data), np.flatnonzero(data.w > 0)[:n_basis])


@dataclass(frozen=True)
class CountingRows(ArrayRows):
    """Counts its passes."""

    passes: list[str] = None  # type: ignore[assignment]

    def reduce(
        self,
        function: Callable[[Any, Iterable[RowBlock]], Any],
        argument: Any,
        step: Step,
        parts: int | None = None,
    ) -> Any:
        self.passes.append(step.name)
        return super().reduce(function, argument, step, parts)


def assert_is_the_reference(
    fitted: Fitted, data: Data, start: StartingDictionary, gammas: Sequence[float], folds: int, seed: int, *, bias: bool
) -> None:
    path = fitted.path
    assert path is not None
    assert path.criterion == "fold_error"
    margin = np.inf
    for width, gamma in enumerate(gammas):
        for regularization in GRID:
            points = np.flatnonzero((path.width == width) & (path.regularization == regularization))
            errors, least = isls_reference.fold_errors(
                data, start.vectors, gamma, regularization, path.n_basis[points].tolist(), folds, seed, bias=bias
            )
            margin = min(margin, least)
            if least > 1e-10:
                np.testing.assert_allclose(path.value[points], errors, rtol=1e-7)
    assert margin > 1e-10  # or the draw shows nothing
    assert path.value[path.chosen] == path.value.min()


def assert_is_refitted(fitted: Fitted, data: Data, start: StartingDictionary, *, bias: bool) -> None:
    path = fitted.path
    assert path is not None
    gamma, regularization = fitted.basis.kernel.parameters()["gamma"], float(path.regularization[path.chosen])
    assert fitted.regularization == regularization
    mine = (path.regularization == regularization) & (path.width == path.width[path.chosen])
    sizes = [int(size) for size in path.n_basis[mine] if size >= path.n_basis[path.chosen]]
    model = isls_reference.prune(data, start.vectors, gamma, regularization, sizes, bias=bias)[-1]
    np.testing.assert_array_equal(fitted.places, start.places[model.chosen])
    np.testing.assert_array_equal(fitted.basis.vectors, data.X[fitted.places])
    expected = isls_reference.predict(model, start.vectors, data.X, gamma)
    predictions = fitted.basis.values(data.X) @ fitted.coefficients
    np.testing.assert_allclose(predictions, expected, rtol=0, atol=1e-8 * np.abs(expected).max())
    k = fitted.basis.values(data.X)
    total = fitted.sums.total()
    np.testing.assert_allclose(total.products, k.T @ (data.w[:, np.newaxis] * k), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(total.rhs, k.T @ (data.w[:, np.newaxis] * data.y), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("n_targets", [1, 3])
@pytest.mark.parametrize("step", [0.0, 0.05, 0.4])
def test_the_path_and_the_model_are_the_paper_s(n_targets: int, step: float) -> None:
    data = draw(150, seed=1, n_targets=n_targets)
    start, settings = start_of(data, 20), ISLSSVMSettings(GRID, folds=3, random_seed=5, step=step)
    fitted = fit_isls_svm(rows_of(data), [RBF(GAMMA)], start, settings, Silent())
    assert fitted.path is not None
    assert fitted.path.n_basis[fitted.path.regularization == GRID[0]].tolist() == plan_sizes(20, step)
    assert_is_the_reference(fitted, data, start, [GAMMA], 3, 5, bias=True)
    assert_is_refitted(fitted, data, start, bias=True)


class Advances(Notes):
    """Records what is said of a step, besides its rows."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[dict[str, Fact]] = []

    def advance(self, rows: int, **facts: Fact) -> None:
        super().advance(rows)
        self.said += [facts] if facts else []


def test_what_is_solved_is_named_between_the_pass_and_the_model() -> None:
    data, report = draw(60, seed=1), Advances()
    fit_isls_svm(rows_of(data), [RBF(GAMMA)], start_of(data, 5), ISLSSVMSettings(GRID, folds=2), report)
    assert report.said == [
        {"fold_left_out": fold, "folds": 2, "regularization": regularization}
        for fold in (1, 2)
        for regularization in GRID
    ]


@given(seed=st.integers(0, 10**6), n_basis=st.integers(1, 12), folds=st.integers(2, 4))
def test_any_rows_give_the_reference_s_choices(seed: int, n_basis: int, folds: int) -> None:
    data = draw(60, seed)
    start = start_of(data, n_basis)
    settings = ISLSSVMSettings(GRID, folds=folds, random_seed=seed, step=0.0)
    fitted = fit_isls_svm(rows_of(data), [RBF(GAMMA)], start, settings, Silent())
    assert_is_the_reference(fitted, data, start, [GAMMA], folds, seed, bias=True)
    assert_is_refitted(fitted, data, start, bias=True)


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("step", [0.0, 0.3])
def test_by_cost_the_vector_of_least_increase_of_the_cost_is_removed(n_targets: int, step: float) -> None:
    data = draw(120, seed=14, n_targets=n_targets)
    start = start_of(data, 14)
    settings = ISLSSVMSettings((1e-3, 1e-2), folds=3, random_seed=1, step=step, score="cost")
    fitted = fit_isls_svm(rows_of(data), [RBF(GAMMA)], start, settings, Silent())
    path = fitted.path
    assert path is not None
    sizes = plan_sizes(14, step)
    for regularization in (1e-3, 1e-2):
        mine = path.regularization == regularization
        errors, margin = isls_reference.fold_errors(
            data, start.vectors, GAMMA, regularization, sizes, 3, 1, bias=True, score="cost"
        )
        assert margin > 1e-6
        np.testing.assert_allclose(path.value[mine], errors, rtol=1e-7)
    left = [size for size in sizes if size >= path.n_basis[path.chosen]]
    whole = isls_reference.prune(data, start.vectors, GAMMA, fitted.regularization, left, score="cost")[-1]
    np.testing.assert_array_equal(fitted.places, start.places[whole.chosen])
    np.testing.assert_allclose(fitted.coefficients, np.vstack([whole.beta, whole.b]), rtol=1e-7)


def test_by_cost_a_smaller_dictionary_is_better() -> None:
    """Where vectors are close to each other, |β| says little about their worth."""
    data = draw(1500, seed=15)
    start, errors = start_of(data, 150), {}
    for score in ("coefficient", "cost"):
        settings = ISLSSVMSettings((1e-5,), folds=3, max_basis=25, score=score)
        path = fit_isls_svm(rows_of(data), [RBF(GAMMA)], start, settings, Silent()).path
        assert path is not None
        errors[score] = float(path.value[path.n_basis == 25][0])
    assert errors["cost"] < 0.9 * errors["coefficient"]


def test_several_widths_share_one_read_of_the_rows_and_the_best_wins() -> None:
    data = draw(200, seed=3)
    start, notes = start_of(data, 15), Notes()
    rows = CountingRows(data.X, data.y, data.w, passes=[])
    kernels, settings = [RBF(30.0), RBF(0.5), RBF(0.01)], ISLSSVMSettings(GRID, folds=3, step=0.2)
    fitted = fit_isls_svm(rows, kernels, start, settings, notes)
    assert rows.passes == ["isls-svm"]
    assert fitted.basis.kernel == RBF(0.5)
    assert [facts["gamma"] for _, facts in notes.events] == [30.0, 0.5, 0.01]
    assert fitted.path is not None
    alone = fit_isls_svm(rows_of(data), [RBF(0.5)], start, settings, Silent())
    assert alone.path is not None
    np.testing.assert_array_equal(alone.path.value, fitted.path.value[fitted.path.width == 1])
    np.testing.assert_array_equal(alone.coefficients, fitted.coefficients)


def test_no_more_vectors_than_asked_and_that_very_size_is_on_the_path() -> None:
    data = draw(200, seed=4)
    start = start_of(data, 40)
    settings = ISLSSVMSettings(GRID, folds=3, step=0.3, smallest=3, max_basis=13)
    fitted = fit_isls_svm(rows_of(data), [RBF(GAMMA)], start, settings, Silent())
    assert fitted.path is not None
    assert sorted(set(fitted.path.n_basis.tolist()), reverse=True) == [40, 28, 20, 14, 13, 10, 7, 5, 4, 3]
    fitting = fitted.path.n_basis <= 13
    assert fitted.path.value[fitted.path.chosen] == fitted.path.value[fitting].min() > fitted.path.value.min()
    assert len(fitted.basis.vectors) == fitted.path.n_basis[fitted.path.chosen] <= 13


def test_without_folds_the_largest_size_allowed_is_fitted() -> None:
    data = draw(100, seed=5)
    start = start_of(data, 20)
    settings = ISLSSVMSettings((1e-4,), folds=1, max_basis=9)
    fitted = fit_isls_svm(rows_of(data), [RBF(GAMMA)], start, settings, Silent())
    assert fitted.path is None
    model = isls_reference.prune(data, start.vectors, GAMMA, 1e-4, plan_sizes(20, 0.05, 9))[-1]
    np.testing.assert_array_equal(fitted.places, start.places[model.chosen])
    np.testing.assert_allclose(fitted.coefficients, np.vstack([model.beta, model.b]), rtol=1e-7)


def test_lambda_is_one_over_twice_the_paper_s_gamma() -> None:
    """The gradient of the paper's objective (3), γ/ℓ Σ(y − f)² + ½ βᵀKβ, vanishes."""
    data = replace(draw(80, seed=6), w=np.ones(80))
    paper_gamma = 300.0
    settings = ISLSSVMSettings((1 / (2 * paper_gamma),), folds=1)
    fitted = fit_isls_svm(rows_of(data), [RBF(GAMMA)], start_of(data, 10), settings, Silent())
    k, S = fitted.basis.values(data.X), fitted.basis.vectors
    residual = data.y - k @ fitted.coefficients
    pulls = -2 * paper_gamma / len(data.X) * k.T @ residual
    pulls[:-1] += isls_reference.rbf(S, S, GAMMA) @ fitted.coefficients[:-1]
    assert np.abs(pulls).max() < 1e-9 * np.abs(2 * paper_gamma / len(data.X) * k.T @ np.abs(data.y)).max()


def test_a_weight_of_two_is_the_row_twice() -> None:
    data = replace(draw(60, seed=7), w=np.ones(60))
    start, settings = start_of(data, 10), ISLSSVMSettings((1e-4,), folds=1, step=0.0, max_basis=5)
    heavy = fit_isls_svm(ArrayRows(data.X, data.y, np.full(60, 2.0)), [RBF(GAMMA)], start, settings, Silent())
    twice = ArrayRows(np.tile(data.X, (2, 1)), np.tile(data.y, (2, 1)))
    doubled = fit_isls_svm(twice, [RBF(GAMMA)], start, settings, Silent())
    np.testing.assert_array_equal(heavy.places, doubled.places)
    np.testing.assert_allclose(heavy.coefficients, doubled.coefficients, rtol=1e-8)


def test_the_constant_stays_to_the_end_however_small_and_a_tie_drops_the_first() -> None:
    sums = BlockStatistics(np.eye(4), np.array([[1.0], [-1.0], [3.0], [1e-9]]), np.eye(1), 1.0, 1)
    remaining = [model.kept.tolist() for model in walk(sums, np.zeros((4, 4)), 0.1, [3, 2, 1], constant=True)]
    assert remaining == [[0, 1, 2, 3], [1, 2, 3], [2, 3]]
    remaining = [model.kept.tolist() for model in walk(sums, np.zeros((4, 4)), 0.1, [4, 2, 1], constant=False)]
    assert remaining == [[0, 1, 2, 3], [1, 2], [2]]


def test_vectors_go_by_the_norm_over_targets() -> None:
    rhs = np.array([[2.0, 0.0], [1.0, 1.9], [1.5, 1.5]])
    sums = BlockStatistics(np.eye(3), rhs, np.eye(2), 1.0, 1)
    remaining = [model.kept.tolist() for model in walk(sums, np.zeros((3, 3)), 0.1, [3, 2, 1], constant=False)]
    assert remaining == [[0, 1, 2], [1, 2], [1]]


@pytest.mark.parametrize("score", ["coefficient", "cost"])
@pytest.mark.parametrize("step", [0.0, 0.05])
def test_a_factor_that_is_cut_solves_as_a_fresh_one_does(
    step: float, score: Score, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every size of a long path: the solution, and that the smallest went; mostly without factorizing afresh."""
    fresh: list[int] = []
    data = draw(400, seed=13, n_targets=2)
    basis = start_of(data, 80).basis(RBF(GAMMA), constant=True)
    sums = sum_rows(Summing(basis, 2), [RowBlock(data.X, data.y, data.w)]).total()
    plain = _ShrinkingFactor._factorize

    def counted(factor: _ShrinkingFactor, order: npt.NDArray[np.int64]) -> None:
        fresh.append(len(order))
        plain(factor, order)

    monkeypatch.setattr(_ShrinkingFactor, "_factorize", counted)
    models = list(walk(sums, basis.penalty(), 1e-4, plan_sizes(80, step), constant=True, score=score))
    P = sums.products + 1e-4 * sums.weight * basis.penalty()
    for before, after in pairwise(models):
        part = P[np.ix_(after.kept, after.kept)]
        expected, within = np.linalg.solve(part, sums.rhs[after.kept]), 10 * np.finfo(float).eps * np.linalg.cond(part)
        np.testing.assert_allclose(after.coefficients, expected, rtol=0, atol=within * np.abs(expected).max())
        norms = (before.coefficients[:-1] ** 2).sum(axis=1)
        if score == "cost":
            norms /= np.diagonal(np.linalg.inv(P[np.ix_(before.kept, before.kept)]))[:-1]
        went = ~np.isin(before.kept[:-1], after.kept)
        assert norms[went].max() < norms[~went].min()
        assert after.kept[-1] == 80
    assert 1 < len(fresh) < 0.4 * len(models)


def test_after_jitter_the_rest_is_factorized_afresh() -> None:
    """Twins leave P singular; once one of them is dropped, nothing of the jitter is left."""
    k = np.random.default_rng(0).standard_normal((50, 4))
    k[:, 3] = k[:, 0]
    sums = BlockStatistics(k.T @ k, k.T @ (k @ np.array([[0.1], [2.0], [3.0], [0.2]])), np.eye(1), 50.0, 50)
    first, second = walk(sums, np.zeros((4, 4)), 0.1, [4, 3], constant=False)
    assert (first.jitter > 0, second.jitter) == (True, 0.0)
    expected = np.linalg.solve(sums.products[np.ix_(second.kept, second.kept)], sums.rhs[second.kept])
    np.testing.assert_allclose(second.coefficients, expected, rtol=1e-10)


def test_a_singular_matrix_takes_jitter_and_reports_it() -> None:
    sums = BlockStatistics(np.ones((3, 3)), np.ones((3, 1)), np.eye(1), 1.0, 1)
    (model,) = walk(sums, np.zeros((3, 3)), 0.1, [3], constant=False)
    assert 0 < model.jitter < 1e-12
    assert abs(float(model.coefficients.sum()) - 1) < 1e-6


def test_dependent_vectors_are_removed_and_reported() -> None:
    data = draw(100, seed=9)
    first = start_of(data, 6)
    doubled = StartingDictionary(np.vstack([first.vectors, first.vectors[:3]]), np.r_[first.places, -1, -1, -1])
    settings = ISLSSVMSettings(GRID, folds=3)
    fitted = fit_isls_svm(rows_of(data), [RBF(GAMMA)], doubled, settings, Silent())
    plain = fit_isls_svm(rows_of(data), [RBF(GAMMA)], first, settings, Silent())
    assert (fitted.notes["dependent"], plain.notes["dependent"]) == (3, 0)
    np.testing.assert_allclose(fitted.path.value, plain.path.value, rtol=1e-9)  # type: ignore[union-attr]


def test_an_error_within_rounding_is_not_reported_as_zero() -> None:
    """Where the formula comes out below zero, the error is at least what rounding may have taken from it."""
    beta, formulas = np.array([[1e9], [-1e9]]), []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        k = rng.standard_normal((500, 1)) + 1e-9 * rng.standard_normal((500, 2))
        y = rng.standard_normal((500, 1))
        held = BlockStatistics(k.T @ k, k.T @ y, y.T @ y, 500.0, 500)
        formulas.append(float(np.vdot(y, y) - 2 * np.vdot(beta, held.rhs) + np.vdot(beta, held.products @ beta)))
        true = float(((y.astype(np.longdouble) - k.astype(np.longdouble) @ beta) ** 2).sum())
        (predictions,) = squared_errors(held, iter([PrunedModel(np.arange(2), beta, 0.0)]))
        assert predictions > 0.5 * true > 100
        (plain,) = squared_errors(held, iter([PrunedModel(np.arange(2), np.array([[0.3], [0.2]]), 0.0)]))
        assert abs(plain / float(((y[:, 0] - k @ [0.3, 0.2]) ** 2).sum()) - 1) < 1e-12
    assert min(formulas) < 0


@pytest.mark.parametrize("n_targets", [1, 2])
def test_subset_of_regressors_is_the_reference_over_widths_and_regularizations(n_targets: int) -> None:
    data = draw(150, seed=11, n_targets=n_targets)
    start, gammas = start_of(data, 12), [0.1, 1.0]
    rows = CountingRows(data.X, data.y, data.w, passes=[])
    settings = SubsetOfRegressorsSettings(GRID, folds=4, random_seed=2)
    fitted = fit_subset_of_regressors(rows, [RBF(g) for g in gammas], start, settings, Silent())
    assert len(rows.passes) == 1
    assert not fitted.basis.constant
    assert fitted.path is not None
    assert fitted.path.n_basis.tolist() == [12] * 6
    assert_is_the_reference(fitted, data, start, gammas, 4, 2, bias=False)
    assert_is_refitted(fitted, data, start, bias=False)


def test_settings_without_a_criterion_are_refused() -> None:
    data = draw(40)
    start = start_of(data, 5)
    with pytest.raises(InputError, match="folds = 1 cannot choose from 1 kernels and 3 regularizations"):
        ISLSSVMSettings(GRID, folds=1)
    with pytest.raises(InputError, match="folds = 1 cannot choose from 2 kernels"):
        fit_isls_svm(rows_of(data), [RBF(1.0), RBF(2.0)], start, ISLSSVMSettings((1e-3,), folds=1), Silent())
    with pytest.raises(InputError, match="at least one kernel"):
        fit_subset_of_regressors(rows_of(data), [], start, SubsetOfRegressorsSettings(GRID), Silent())
    with pytest.raises(InputError, match=r"must be a positive number or .*, it is \(-1\.0,\)"):
        SubsetOfRegressorsSettings((-1.0,))
    with pytest.raises(InputError, match="folds must be a whole number of at least 1"):
        ISLSSVMSettings(GRID, folds=0)
    with pytest.raises(InputError, match=r"step must be from 0 to less than 1, it is 1\.0"):
        ISLSSVMSettings(GRID, step=1.0)
    with pytest.raises(InputError, match="score must be one of coefficient, cost, it is 'size'"):
        ISLSSVMSettings(GRID, score="size")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="smallest must be a whole number of at least 1"):
        ISLSSVMSettings(GRID, smallest=0)
    with pytest.raises(InputError, match="max_basis = 3 is below smallest = 5"):
        ISLSSVMSettings(GRID, smallest=5, max_basis=3)


def test_dictionaries_and_rows_that_do_not_fit_are_refused() -> None:
    data, settings = draw(40), SubsetOfRegressorsSettings(GRID, folds=2)
    rows, kernels = rows_of(data), [RBF(1.0)]
    with pytest.raises(InputError, match="needs vectors of 3 features"):
        fit_subset_of_regressors(rows, kernels, StartingDictionary(np.ones((2, 4)), np.arange(2)), settings, Silent())
    with pytest.raises(InputError, match="needs as many row indices"):
        fit_subset_of_regressors(rows, kernels, StartingDictionary(np.ones((2, 3)), np.arange(3)), settings, Silent())
    zeros = StartingDictionary(np.zeros((2, 3)), np.arange(2))
    with pytest.raises(InputError, match="zero to the kernel"):
        fit_subset_of_regressors(rows, [Linear()], zeros, settings, Silent())
    with pytest.raises(InputError, match="has weight zero and cannot be a basis vector"):
        StartingDictionary.of_rows(rows, np.flatnonzero(data.w == 0)[:1])
    empty = ArrayRows(data.X, data.y, np.zeros(40))
    with pytest.raises(InputError, match="no row of weight above zero"):
        fit_subset_of_regressors(empty, kernels, start_of(data, 2), settings, Silent())
    lonely = ArrayRows(data.X, data.y, np.r_[1.0, np.zeros(39)])
    with pytest.raises(InputError, match="one fold holds every row"):
        fit_subset_of_regressors(lonely, kernels, start_of(data, 2), settings, Silent())


@given(largest=st.integers(1, 400), share=st.floats(0, 0.9), smallest=st.integers(1, 50), through=st.integers(1, 400))
def test_sizes_fall_by_the_share_to_the_smallest(largest: int, share: float, smallest: int, through: int) -> None:
    sizes = plan_sizes(largest, share, smallest, through)
    assert sizes[0] == largest
    assert sizes[-1] == (smallest if smallest < largest else largest)
    assert all(a - max(1, int(share * a)) <= b < a for a, b in pairwise(sizes))
    assert (through in sizes) == (sizes[-1] <= through <= largest)


def test_five_percent_of_500_takes_the_paper_s_steps() -> None:
    assert plan_sizes(500, 0.05)[:4] == [500, 475, 452, 430]
    assert plan_sizes(3, 0.0) == [3, 2, 1]


def test_sums_come_from_any_row_set() -> None:
    """The same choices where the rows are summed in parts."""
    data = draw(300, seed=12)

    class Parts(ArrayRows):
        def statistics(self, summings: Sequence[Summing], step: Step) -> SeveralStatistics:  # noqa: ARG002
            half = len(self.features) // 2
            blocks = [
                RowBlock(data.X[:half], data.y[:half], data.w[:half], 0),
                RowBlock(data.X[half:], data.y[half:], data.w[half:], half),
            ]
            first, second = (sum_together(summings, [block]) for block in blocks)
            return first.merge(second)

    start, settings = start_of(data, 15), ISLSSVMSettings(GRID, folds=3, step=0.0)
    straight = fit_isls_svm(rows_of(data), [RBF(GAMMA)], start, settings, Silent())
    parts = fit_isls_svm(Parts(data.X, data.y, data.w), [RBF(GAMMA)], start, settings, Silent())
    np.testing.assert_array_equal(straight.places, parts.places)
    np.testing.assert_allclose(straight.path.value, parts.path.value, rtol=1e-9)  # type: ignore[union-attr]


@pytest.mark.parametrize("start", ["all", "incomplete-cholesky", "matching-pursuit"])
def test_it_starts_from_all_rows_or_from_rows_chosen_among_them(start: Any) -> None:
    """From all rows, it is the path over a given dictionary of all rows; planned sizes hold in each case."""
    data = draw(60)
    settings = ISLSSVMSettings(regularization=1e-3, start=start, start_basis=12, folds=2)
    task: FitTask[Any] = FitTask(
        rows=rows_of(data), kernels=(RBF(0.5),), settings=settings, others={}, given=None,
        memory_limit_bytes=2**30, report=Silent(),
    )  # fmt: skip
    fitted, plan = METHOD.fit(task), PlanTask(settings=settings, others={}, n_rows=60)
    present = int(np.count_nonzero(data.w))
    assert fitted.path is not None
    assert fitted.path.n_basis.max() == (present if start == "all" else 12)
    assert METHOD.sizes(plan).n_functions == {"all": 61, "incomplete-cholesky": 13, "matching-pursuit": 49}[start]
    assert len([*METHOD.passes(plan)]) == (2 if start == "matching-pursuit" else 1)
