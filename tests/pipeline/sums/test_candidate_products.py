"""Sums for candidates match their definitions however rows are split, and can be pickled."""

import pickle
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from ridgestream.pipeline.kernels import RBF, Kernel, Linear, Polynomial
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.candidate_products import CandidateSumming, CandidateSums, sum_candidates
from ridgestream.pipeline.sums.normal_equations import Summing, sum_rows
from ridgestream.pipeline.sums.residual_products import ResidualSumming, ResidualSums, sum_residuals
from ridgestream.pipeline.sums.row_block import RowBlock

Array = npt.NDArray[np.float64]
KERNELS: list[Kernel] = [RBF(0.3), Polynomial(0.5, 2, 1.0), Linear()]
SUMMED = ("own", "across", "rhs", "target_square")


def draw(rows: int = 400, weighted: bool = True) -> RowBlock:
    rng = np.random.default_rng(1)
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], rows) if weighted else None
    X = rng.standard_normal((rows, 3))
    X[5] = 0.0
    return RowBlock(X, rng.standard_normal((rows, 2)), weights)


def cut(block: RowBlock, cuts: list[int]) -> list[RowBlock]:
    parts = [slice(start, stop) for start, stop in pairwise([0, *cuts, len(block.features)])]
    weights = [None if block.weights is None else block.weights[part] for part in parts]
    return [RowBlock(block.features[p], block.targets[p], w, p.start) for p, w in zip(parts, weights, strict=True)]


def candidate_summing(kernel: Kernel, n_basis: int) -> CandidateSumming:
    rng = np.random.default_rng(2)
    return CandidateSumming(kernel, rng.standard_normal((n_basis, 3)), rng.standard_normal((11, 3)), 2)


def residual_summing(kernel: Kernel, n_basis: int) -> ResidualSumming:
    summing = candidate_summing(kernel, n_basis)
    K, across = kernel.block(summing.vectors, summing.vectors), kernel.block(summing.vectors, summing.candidates)
    return ResidualSumming(kernel, summing.vectors, summing.candidates, np.asarray(np.linalg.solve(K, across)))


def assert_sums(sums: CandidateSums, summing: CandidateSumming, block: RowBlock) -> None:
    w = np.ones(len(block.features)) if block.weights is None else block.weights
    k, q = (summing.kernel.block(block.features, Z) for Z in (summing.vectors, summing.candidates))
    y, W = block.targets, np.diag(w)
    for name, expected in zip(SUMMED, (q.T @ W @ q, q.T @ W @ k, q.T @ W @ y, y.T @ W @ y), strict=True):
        np.testing.assert_allclose(getattr(sums, name), expected, rtol=0, atol=1e-11 * np.abs(expected).max(initial=1))
    assert (sums.weight, sums.rows) == (w.sum(), len(w))
    assert (sums.own == sums.own.T).all()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("n_basis", [0, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_candidate_sums_match_their_definitions(kernel: Kernel, n_basis: int, weighted: bool) -> None:
    block, summing = draw(weighted=weighted), candidate_summing(kernel, n_basis)
    assert_sums(sum_candidates(summing, [block]), summing, block)
    assert_sums(sum_candidates(summing, cut(block, [1, 7, 7, 390])), summing, block)
    first, *others = (sum_candidates(summing, [part]) for part in cut(block, [1, 7, 7, 390]))
    for other in others:
        first = first.merge(other)
    assert_sums(first, summing, block)


def test_more_rows_than_are_evaluated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ridgestream.pipeline.sums.basis.KERNEL_BYTES", 1)
    block, summing = draw(700), candidate_summing(KERNELS[0], 3)
    assert_sums(sum_candidates(summing, [block]), summing, block)
    assert_residuals(sum_residuals(residual_summing(KERNELS[0], 3), [block]), KERNELS[0], 3, block)


def test_candidate_sums_extend_the_sums_of_chosen_vectors() -> None:
    block, summing = draw(), candidate_summing(KERNELS[0], 3)
    centre = np.zeros(3)
    chosen_sums = sum_rows(Summing(Basis(summing.kernel, summing.vectors, centre), 2), [block]).total()
    both = Basis(summing.kernel, np.concatenate([summing.vectors, summing.candidates]), centre)
    expected = sum_rows(Summing(both, 2), [block]).total()
    sums = sum_candidates(summing, [block]).extend(chosen_sums)
    for name in ("products", "rhs", "target_square", "weight", "rows"):
        np.testing.assert_allclose(getattr(sums, name), getattr(expected, name), rtol=1e-11, atol=1e-11)


def assert_residuals(sums: ResidualSums, kernel: Kernel, n_basis: int, block: RowBlock) -> None:
    summing = candidate_summing(kernel, n_basis)
    lengths = kernel.diagonal(block.features)
    w = np.ones(len(lengths)) if block.weights is None else block.weights
    k, q = (kernel.block(block.features, Z) for Z in (summing.vectors, summing.candidates))
    E = q - k @ np.linalg.solve(
        kernel.block(summing.vectors, summing.vectors), kernel.block(summing.vectors, summing.candidates)
    )
    shares = np.where(lengths > 0, w / np.where(lengths > 0, lengths, 1.0), 0.0)
    expected = E.T @ (shares[:, np.newaxis] * E)
    np.testing.assert_allclose(sums.own, expected, rtol=0, atol=1e-10 * np.abs(expected).max(initial=1.0))
    assert sums.weight == w[lengths > 0].sum()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("n_basis", [0, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_residual_sums_match_their_definitions(kernel: Kernel, n_basis: int, weighted: bool) -> None:
    block, summing = draw(weighted=weighted), residual_summing(kernel, n_basis)
    assert_residuals(sum_residuals(summing, [block]), kernel, n_basis, block)
    first, *others = (sum_residuals(summing, [part]) for part in cut(block, [1, 7, 7, 390]))
    for other in others:
        first = first.merge(other)
    assert_residuals(first, kernel, n_basis, block)


def test_functions_and_arguments_can_be_pickled() -> None:
    block = draw()
    function, summing = pickle.loads(pickle.dumps((sum_candidates, candidate_summing(KERNELS[0], 3))))  # noqa: S301
    assert_sums(function(summing, [block]), candidate_summing(KERNELS[0], 3), block)
    function, residual = pickle.loads(pickle.dumps((sum_residuals, residual_summing(KERNELS[0], 3))))  # noqa: S301
    assert_residuals(function(residual, [block]), KERNELS[0], 3, block)


def test_sums_without_rows_are_zero() -> None:
    sums = sum_candidates(candidate_summing(KERNELS[0], 3), [])
    assert (sums.weight, sums.rows, sums.across.shape) == (0.0, 0, (11, 3))
    assert not sums.own.any()
    assert not sum_residuals(residual_summing(KERNELS[0], 3), []).own.any()
