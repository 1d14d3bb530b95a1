"""Shard, merge, select: the same dictionaries, choices and errors as by the slow way, from two passes."""

import tracemalloc
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from support.data.row_sets import CountedRows
from support.references.forward_selection import choose_slowly

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.shard_merge_select import (
    ShardMergeSelectSettings,
    fit_shard_merge_select,
    learn_shards,
    select,
    select_on_sums,
)
from ridgestream.pipeline.kernels import RBF, gram
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.normal_equations import Summing, sum_rows
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import ArrayRows, cut_evenly

Array = npt.NDArray[np.float64]
KERNEL = RBF(0.5)
SETTINGS = ShardMergeSelectSettings((1e-4, 1e-3), max_basis=12, shards=4, shard_basis=10, folds=3, random_seed=5)


def draw_rows(n_rows: int = 600, n_targets: int = 1, *, weighted: bool = False, seed: int = 0) -> CountedRows:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n_rows, 2))
    waves = np.column_stack([np.sin(X[:, 0]) * X[:, 1], np.cos(2 * X[:, 1])])[:, :n_targets]
    weights = rng.choice([0.0, 0.5, 2.0], n_rows) if weighted else None
    return CountedRows(X, waves + 0.1 * rng.standard_normal(waves.shape), weights)


def weights_of(rows: ArrayRows) -> Array:
    return np.ones(rows.n_rows) if rows.weights is None else rows.weights


def union_of_shards(rows: ArrayRows) -> npt.NDArray[np.int64]:
    """The places that a learner of each quarter takes, one row after another."""
    places = []
    for start, stop in cut_evenly(rows.n_rows, SETTINGS.shards):
        learner = OnlineLSSVM(KERNEL, max_basis=SETTINGS.shard_basis, centre=np.zeros(2))
        weights = None if rows.weights is None else rows.weights[start:stop]
        learner.partial_fit(rows.features[start:stop], rows.targets[start:stop], weights)
        places.append(start + learner.state().basis_rows)
    return np.concatenate(places)


def sums_over(
    rows: ArrayRows, kept: npt.NDArray[np.bool_], candidates: Array, regularization: float
) -> tuple[Array, Array]:
    """P and z of the candidates over some of the rows, from the definitions."""
    w, K = weights_of(rows)[kept], KERNEL.block(rows.features[kept], candidates)
    normal = K.T @ (w[:, np.newaxis] * K) + regularization * w.sum() * gram(KERNEL, candidates)
    return normal, K.T @ (w[:, np.newaxis] * rows.targets[kept])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_it_equals_the_slow_reference(n_targets: int, weighted: bool) -> None:
    rows = draw_rows(n_targets=n_targets, weighted=weighted)
    fitted = fit_shard_merge_select(rows, KERNEL, SETTINGS, Silent())
    places = union_of_shards(rows)
    candidates, dealt, everything = rows.features[places], deal_folds(0, rows.n_rows, 3, 5), np.ones(600, dtype=bool)
    errors = np.zeros((2, SETTINGS.limit))
    for i, regularization in enumerate(SETTINGS.regularizations):
        for fold in range(3):
            normal, rhs = sums_over(rows, dealt != fold, candidates, regularization)
            choices = choose_slowly(normal, rhs, [range(len(places))] * 12, 12)
            assert min(choices.margins) > 1e-9
            out = dealt == fold
            for size in range(1, 13):
                chosen = choices.places[:size]
                beta = np.linalg.solve(normal[np.ix_(chosen, chosen)], rhs[chosen])
                residual = rows.targets[out] - KERNEL.block(rows.features[out], candidates[chosen]) @ beta
                errors[i, size - 1] += float(np.sum(weights_of(rows)[out][:, np.newaxis] * residual**2))
    errors /= weights_of(rows).sum() * n_targets
    assert fitted.path is not None
    np.testing.assert_allclose(fitted.path.value.reshape(2, 12), errors, rtol=1e-7)
    best, size = divmod(int(np.argmin(errors)), 12)
    assert (fitted.regularization, len(fitted.places)) == (SETTINGS.regularizations[best], size + 1)
    assert fitted.path.chosen == best * 12 + size
    normal, rhs = sums_over(rows, everything, candidates, fitted.regularization)
    chosen = choose_slowly(normal, rhs, [range(len(places))] * (size + 1), size + 1).places
    np.testing.assert_array_equal(fitted.places, places[chosen])
    np.testing.assert_array_equal(fitted.basis.vectors, rows.features[fitted.places])
    beta = np.linalg.solve(normal[np.ix_(chosen, chosen)], rhs[chosen])
    values = KERNEL.block(rows.features, candidates[chosen])
    np.testing.assert_allclose(values @ fitted.coefficients, values @ beta, atol=1e-8)


@pytest.mark.parametrize("weighted", [False, True])
def test_with_one_fold_gcv_of_explicit_hat_matrices_chooses(weighted: bool) -> None:
    rows = draw_rows(n_targets=2, weighted=weighted)
    fitted = fit_shard_merge_select(rows, KERNEL, replace(SETTINGS, folds=1), Silent())
    places, w = union_of_shards(rows), weights_of(rows)
    candidates, n = rows.features[places], w.sum()
    expected = np.empty((2, 12))
    for i, regularization in enumerate(SETTINGS.regularizations):
        normal, rhs = sums_over(rows, np.ones(600, dtype=bool), candidates, regularization)
        choices = choose_slowly(normal, rhs, [range(len(places))] * 12, 12).places
        for size in range(1, 13):
            chosen = choices[:size]
            K = KERNEL.block(rows.features, candidates[chosen])
            hat = K @ np.linalg.solve(normal[np.ix_(chosen, chosen)], K.T * w)
            error = np.sum(w[:, np.newaxis] * (rows.targets - hat @ rows.targets) ** 2) / n
            expected[i, size - 1] = error / (1 - np.trace(hat) / n) ** 2
    assert fitted.path is not None
    assert fitted.path.criterion == "gcv"
    np.testing.assert_allclose(fitted.path.value.reshape(2, 12), expected, rtol=1e-7)
    best, size = divmod(int(np.argmin(expected)), 12)
    assert (fitted.regularization, len(fitted.places)) == (SETTINGS.regularizations[best], size + 1)


def test_there_are_two_passes_whatever_is_compared() -> None:
    rows = draw_rows()
    fit_shard_merge_select(rows, KERNEL, replace(SETTINGS, regularization=(1e-5, 1e-4, 1e-3), folds=5), Silent())
    assert rows.labels == ["learn 4 shards", "sum 40 candidates"]


def test_a_dictionary_of_all_candidates_is_subset_of_regressors_over_their_union() -> None:
    rows = draw_rows()
    candidates, _ = learn_shards(rows, KERNEL, SETTINGS)
    basis = Basis(KERNEL, candidates, np.zeros(2))
    sums = sum_rows(Summing(basis, 1), [RowBlock(rows.features, rows.targets, None)]).total()
    columns, models = select(sums, basis, 1e-3, len(candidates))
    assert sorted(columns) == list(range(len(candidates)))
    normal, rhs = sums_over(rows, np.ones(600, dtype=bool), candidates, 1e-3)
    expected = KERNEL.block(rows.features, candidates) @ np.linalg.solve(normal, rhs)
    choices = KERNEL.block(rows.features, candidates[columns]) @ models.coefficients(len(models))
    np.testing.assert_allclose(choices, expected, atol=1e-7)


def test_a_selection_takes_three_matrices_beside_the_sums() -> None:
    n, rng = 300, np.random.default_rng(0)
    X = rng.normal(size=(3 * n, 6))
    basis = Basis(RBF(0.3), X[:n].copy(), np.zeros(6))
    sums = sum_rows(Summing(basis, 1), [RowBlock(X, np.sin(2 * X[:, :1]), None)])
    settings = ShardMergeSelectSettings((1e-6,), max_basis=n - 50, folds=1)
    tracemalloc.start()
    select_on_sums(basis, np.arange(n), sums, settings, Silent())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3.4 * 8 * n**2


def test_the_same_row_in_every_shard_is_taken_once() -> None:
    some = draw_rows(100)
    rows = CountedRows(np.tile(some.features, (4, 1)), np.tile(some.targets, (4, 1)))
    fitted = fit_shard_merge_select(rows, KERNEL, replace(SETTINGS, max_basis=40), Silent())
    assert len(np.unique(fitted.basis.vectors, axis=0)) == len(fitted.places)
    assert np.isfinite(fitted.coefficients).all()


def test_fewer_rows_than_shards_do() -> None:
    fitted = fit_shard_merge_select(draw_rows(3), KERNEL, replace(SETTINGS, folds=1), Silent())
    assert 1 <= len(fitted.places) <= 3


def test_nothing_to_learn_from_is_an_error() -> None:
    rows = CountedRows(np.zeros((5, 2)), np.ones((5, 1)), np.zeros(5))
    with pytest.raises(InputError, match="no shard found a basis vector: every row has weight zero"):
        fit_shard_merge_select(rows, KERNEL, SETTINGS, Silent())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shards": 0}, "shards must be a whole number of at least 1, it is 0"),
        ({"regularization": ()}, "regularization must be a positive number or several of them"),
        ({"regularization": (1e-5, 0.0)}, r"regularization must be a positive number or .*, it is \(1e-05, 0.0\)"),
        ({"shard_regularization": -1.0}, "regularization must be a positive number, it is -1"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        replace(SETTINGS, **changes)  # type: ignore[arg-type]
