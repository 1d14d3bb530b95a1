"""Block statistics against their definitions, split and merged in any way, and solutions computed from them."""

import pickle
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.base.errors import InputError, NumericalBreakdown
from ridgestream.pipeline.base.memory_plan import KERNEL_BYTES
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.cholesky import pack
from ridgestream.pipeline.kernels import RBF, Kernel, Linear, Polynomial, gram
from ridgestream.pipeline.sums.basis import Basis, plan_kernel_rows
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, Summing, sum_rows, sum_together
from ridgestream.pipeline.sums.row_block import RowBlock

Array = npt.NDArray[np.float64]
KERNELS: list[Kernel] = [RBF(0.3), Polynomial(0.5, 2, 1.0), Linear()]


def draw_block(rows: int, seed: int = 0, n_targets: int = 2, weighted: bool = True) -> RowBlock:
    rng = np.random.default_rng(seed)
    weights = rng.choice([0.0, 0.5, 1.0, 3.0], rows) if weighted else None
    return RowBlock(rng.standard_normal((rows, 3)), rng.standard_normal((rows, n_targets)), weights)


def basis_of(n_basis: int, kernel: Kernel = KERNELS[0]) -> Basis:
    rng = np.random.default_rng(99)
    return Basis(kernel, rng.standard_normal((n_basis, 3)), np.zeros(3))


def plain(basis: Basis, block: RowBlock) -> dict[str, Any]:
    """Compute the definitions directly in extended precision."""
    w = (np.ones(len(block.features)) if block.weights is None else block.weights).astype(np.longdouble)
    k = basis.kernel.block(block.features, basis.vectors, basis.centre).astype(np.longdouble)
    y = block.targets.astype(np.longdouble)
    weighted = w[:, np.newaxis]
    return {"products": k.T @ (weighted * k), "rhs": k.T @ (weighted * y), "target_square": y.T @ (weighted * y)}


def assert_close(sums: BlockStatistics, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        size = float(np.abs(value).max(initial=1.0))
        np.testing.assert_allclose(getattr(sums, name), np.asarray(value, float), rtol=0, atol=1e-13 * size)


def cut(block: RowBlock, cuts: list[int]) -> Iterator[RowBlock]:
    for start, stop in pairwise([0, *sorted(cuts), len(block.features)]):
        part = slice(start, stop)
        weights = None if block.weights is None else block.weights[part]
        yield RowBlock(block.features[part], block.targets[part], weights, start)


def sum_up(basis: Basis, blocks: Iterable[RowBlock], n_targets: int) -> BlockStatistics:
    return sum_rows(Summing(basis, n_targets), blocks).total()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_match_their_definitions(kernel: Kernel, weighted: bool) -> None:
    block, basis = draw_block(1000, weighted=weighted), basis_of(17, kernel)
    sums = sum_up(basis, [block], 2)
    assert_close(sums, plain(basis, block))
    assert sums.weight == (1000 if block.weights is None else block.weights.sum())
    assert sums.rows == 1000
    assert (sums.products == sums.products.T).all()


@pytest.mark.thorough
def test_more_rows_than_are_evaluated_at_once() -> None:
    basis = basis_of(100)
    rows = basis.kernel_rows + 300
    block = draw_block(rows)
    assert_close(sum_up(basis, [block], 2), plain(basis, block))


@pytest.mark.parametrize(("n_basis", "rows"), [(0, KERNEL_BYTES // 8), (500, 4096), (10**6, 256)])
def test_kernel_rows_are_a_power_of_two_within_the_budget(n_basis: int, rows: int) -> None:
    assert plan_kernel_rows(n_basis) == rows
    assert rows == 256 or 8 * n_basis * rows <= KERNEL_BYTES


@given(rows=st.integers(0, 60), cuts=st.lists(st.integers(0, 60), max_size=5), weighted=st.booleans())
def test_sums_are_the_same_in_blocks_or_merged_from_parts(rows: int, cuts: list[int], weighted: bool) -> None:
    block, basis = draw_block(rows, seed=rows, weighted=weighted), basis_of(5)
    inside = [c for c in cuts if c <= rows]
    empty = BlockStatistics.empty(5, 2)
    in_blocks = sum_up(basis, cut(block, inside), 2)
    merged = reduce(BlockStatistics.merge, (sum_up(basis, [part], 2) for part in cut(block, inside)), empty)
    for sums in (in_blocks, merged):
        assert_close(sums, plain(basis, block))
        assert sums.rows == rows
    assert merged.weight == in_blocks.weight  # multiples of a half: exact


def test_a_row_of_weight_zero_does_not_count_whatever_its_values() -> None:
    block, basis = draw_block(200), basis_of(5, Polynomial(1.0, 4, 1.0))  # 1e99⁴ is infinite, zero times it NaN
    assert block.weights is not None
    present = block.weights > 0
    features = np.where(present[:, np.newaxis], block.features, 1e99)
    targets = np.where(present[:, np.newaxis], block.targets, 1e99)
    sums = sum_up(basis, [RowBlock(features, targets, block.weights)], 2)
    positive = RowBlock(block.features[present], block.targets[present], block.weights[present])
    expected = sum_up(basis, [positive], 2)
    for name in ("products", "rhs", "target_square"):
        assert getattr(sums, name).tobytes() == getattr(expected, name).tobytes()
    assert (sums.weight, sums.rows, expected.rows) == (expected.weight, 200, int(present.sum()))


def test_a_weight_of_two_counts_the_row_twice() -> None:
    block, basis = draw_block(50, weighted=False), basis_of(5)
    twice = sum_up(basis, [RowBlock(block.features, block.targets, np.full(50, 2.0))], 2)
    repeated = sum_up(basis, [block, block], 2)
    np.testing.assert_allclose(twice.products, repeated.products, rtol=1e-14)
    np.testing.assert_allclose(twice.rhs, repeated.rhs, rtol=1e-12, atol=1e-14)
    assert twice.weight == repeated.weight == 100


@given(rows=st.integers(0, 80), cuts=st.lists(st.integers(0, 80), max_size=4), weighted=st.booleans())
def test_each_fold_has_the_sums_of_its_own_rows(rows: int, cuts: list[int], weighted: bool) -> None:
    block, basis = draw_block(rows, seed=rows, weighted=weighted), basis_of(5)
    folded = sum_rows(Summing(basis, 2, folds=3, seed=7), cut(block, [c for c in cuts if c <= rows]))
    folds = deal_folds(0, rows, 3, 7)
    for fold, sums in enumerate(folded.folds):
        in_fold = folds == fold
        weights = None if block.weights is None else block.weights[in_fold]
        assert_close(sums, plain(basis, RowBlock(block.features[in_fold], block.targets[in_fold], weights)))
        assert sums.rows == int(in_fold.sum())
    assert_close(folded.total(), plain(basis, block))
    rest = folded.total().subtract(folded.folds[0])
    assert_close(
        rest, {name: plain(basis, block)[name] - getattr(folded.folds[0], name) for name in ("products", "rhs")}
    )


def test_a_constant_basis_function_gives_the_sums_of_a_bias() -> None:
    block, basis = draw_block(300), basis_of(5)
    assert block.weights is not None
    biased = Basis(basis.kernel, basis.vectors, basis.centre, constant=True)
    biased_sums, plain_sums = sum_up(biased, [block], 2), sum_up(basis, [block], 2)
    values = basis.values(block.features)
    np.testing.assert_allclose(biased_sums.products[:5, :5], plain_sums.products, rtol=1e-13)
    np.testing.assert_allclose(biased_sums.products[5], np.r_[block.weights @ values, block.weights.sum()], rtol=1e-12)
    np.testing.assert_allclose(biased_sums.rhs[5], block.weights @ block.targets, rtol=1e-12)
    np.testing.assert_array_equal(biased.penalty()[5], np.zeros(6))
    np.testing.assert_array_equal(biased.penalty()[:5, :5], gram(basis.kernel, basis.vectors, basis.centre))


def test_several_bases_summed_in_one_pass_give_the_same_bits_as_alone() -> None:
    block, narrow, wide = draw_block(300), basis_of(5), basis_of(4, RBF(0.05))
    summings = Summing(narrow, 2, folds=2), Summing(wide, 2)
    together = sum_together(summings, cut(block, [100]))
    for part, summing in zip(together.parts, summings, strict=True):
        alone = sum_rows(summing, cut(block, [100]))
        for a, b in zip(part.folds, alone.folds, strict=True):
            assert a.products.tobytes() == b.products.tobytes()


def test_choosing_functions_from_sums_equals_summing_only_those() -> None:
    block, basis, indices = draw_block(300), basis_of(5), np.array([3, 0, 4])
    fewer = Basis(basis.kernel, basis.vectors[indices], basis.centre)
    sums = sum_rows(Summing(basis, 2, folds=2), [block]).choose(indices).total()
    assert_close(sums, plain(fewer, block))


def test_the_error_of_coefficients_follows_from_the_sums() -> None:
    block, basis = draw_block(300), basis_of(5)
    assert block.weights is not None
    beta = np.random.default_rng(3).standard_normal((5, 2))
    residual = block.targets - basis.values(block.features) @ beta
    squared_error = sum_up(basis, [block], 2).squared_error(beta)
    np.testing.assert_allclose(squared_error, block.weights @ residual**2, rtol=1e-12)


def test_sums_without_rows_or_basis_are_empty() -> None:
    empty = BlockStatistics.empty(5, 2)
    assert (empty.weight, empty.rows, empty.rhs.shape) == (0.0, 0, (5, 2))
    assert not empty.products.any()
    basis = basis_of(0)
    sums = sum_up(basis, [draw_block(10, weighted=False)], 2)
    assert (sums.products.shape, sums.rhs.shape, sums.weight) == ((0, 0), (0, 2), 10.0)


@pytest.mark.parametrize("n_basis", [0, 1, 40])
def test_sums_travel_as_one_triangle_without_a_changed_bit(n_basis: int) -> None:
    sums = sum_up(basis_of(n_basis), [draw_block(50)], 2)
    sent = pickle.dumps(sums)
    received = pickle.loads(sent)  # noqa: S301
    for name in ("products", "rhs", "target_square"):
        np.testing.assert_array_equal(getattr(received, name), getattr(sums, name), strict=True)
    assert received.products.flags.c_contiguous
    assert (received.weight, received.rows) == (sums.weight, sums.rows)
    assert len(sent) < 8 * n_basis * (n_basis + 1) / 2 + 8 * 2 * n_basis + 1000


def test_sums_of_different_sizes_are_not_merged() -> None:
    with pytest.raises(InputError, match=r"sums of shapes \(5, 2\) and \(1, 2\) are not of one basis and targets"):
        BlockStatistics.empty(5, 2).merge(BlockStatistics.empty(1, 2))


@pytest.mark.parametrize("kernel", KERNELS[:2], ids=lambda k: k.name)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_solution_is_that_of_a_dense_least_squares_problem(kernel: Kernel, weighted: bool) -> None:
    """minimize Σ w (y − kᵀβ)² + λn βᵀKβ, by QR on the stacked rows √w·k and √(λn)·Lᵀ, for two targets."""
    block, basis, regularization = draw_block(800, weighted=weighted), basis_of(8, kernel), 1e-3
    K = gram(kernel, basis.vectors, basis.centre)
    sums = sum_up(basis, cut(block, [100, 333]), 2)
    beta = sums.factorize(K, regularization).solve(sums.rhs)
    root = np.ones(800) if block.weights is None else np.sqrt(block.weights)
    penalty = regularization * float((root**2).sum())
    k = kernel.block(block.features, basis.vectors)
    rows = np.vstack([root[:, np.newaxis] * k, np.sqrt(penalty) * np.linalg.cholesky(K).T])
    right = np.vstack([root[:, np.newaxis] * block.targets, np.zeros((8, 2))])
    expected = np.linalg.lstsq(rows, right, rcond=None)[0]
    np.testing.assert_allclose(beta, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())


def same(sums: BlockStatistics, others: BlockStatistics) -> bool:
    return hash_of(sums) == hash_of(others)


@pytest.mark.parametrize("n_basis", [1, 9])
def test_a_triangle_has_the_bits_of_the_whole(n_basis: int) -> None:
    basis = basis_of(n_basis)
    sums, others = (sum_up(basis, [draw_block(50, seed)], 2) for seed in (0, 1))
    merged, triangle = sums.merge(others), sums.packed().merge(others.packed())
    assert same(triangle.whole(), merged)
    assert same(triangle.subtract(others.packed()).whole(), merged.subtract(others))
    for size in range(n_basis + 1):
        assert same(triangle.first(size).whole(), merged.choose(np.arange(size)))
    K = gram(basis.kernel, basis.vectors)
    whole, packed = merged.factorize(K, 1e-3), triangle.factorize(pack(K), 1e-3)
    assert np.array_equal(whole.solve(merged.rhs), packed.solve(triangle.rhs))


def test_duplicate_vectors_are_solved_with_a_jitter_or_refused() -> None:
    basis = basis_of(3)
    twins = Basis(basis.kernel, basis.vectors[[0, 0, 1, 1, 2, 2]], basis.centre)
    sums = sum_up(twins, [draw_block(100)], 2)
    assert sums.factorize(gram(twins.kernel, twins.vectors), 1e-3).jitter > 0
    with pytest.raises(NumericalBreakdown, match=r"the normal matrix P .* is not positive definite within rounding"):
        sums.factorize(-gram(twins.kernel, twins.vectors), 10.0)
