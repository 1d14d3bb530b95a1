"""Block statistics against their definitions, cut and merged in any way, and what is solved from them."""

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
    """The definitions, in one go, in extended precision."""
    w = (np.ones(len(block.features)) if block.weights is None else block.weights).astype(np.longdouble)
    k = basis.kernel.block(block.features, basis.vectors, basis.centre).astype(np.longdouble)
    y = block.targets.astype(np.longdouble)
    weighted = w[:, np.newaxis]
    return {"products": k.T @ (weighted * k), "rhs": k.T @ (weighted * y), "target_square": y.T @ (weighted * y)}


def assert_close(found: BlockStatistics, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        size = float(np.abs(value).max(initial=1.0))
        np.testing.assert_allclose(getattr(found, name), np.asarray(value, float), rtol=0, atol=1e-13 * size)


def cut(block: RowBlock, cuts: list[int]) -> Iterator[RowBlock]:
    for start, stop in pairwise([0, *sorted(cuts), len(block.features)]):
        part = slice(start, stop)
        weights = None if block.weights is None else block.weights[part]
        yield RowBlock(block.features[part], block.targets[part], weights, start)


def sum_up(basis: Basis, blocks: Iterable[RowBlock], n_targets: int) -> BlockStatistics:
    return sum_rows(Summing(basis, n_targets), blocks).total()


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_their_definitions(kernel: Kernel, weighted: bool) -> None:
    block, basis = draw_block(1000, weighted=weighted), basis_of(17, kernel)
    found = sum_up(basis, [block], 2)
    assert_close(found, plain(basis, block))
    assert found.weight == (1000 if block.weights is None else block.weights.sum())
    assert found.rows == 1000
    assert (found.products == found.products.T).all()


def test_more_rows_than_kernel_values_are_formed_at_once() -> None:
    basis = basis_of(100)
    rows = basis.kernel_rows + 300
    block = draw_block(rows)
    assert_close(sum_up(basis, [block], 2), plain(basis, block))


@pytest.mark.parametrize(("n_basis", "rows"), [(0, KERNEL_BYTES // 8), (500, 4096), (10**6, 256)])
def test_the_rows_at_once_are_a_power_of_two_within_the_budget(n_basis: int, rows: int) -> None:
    assert plan_kernel_rows(n_basis) == rows
    assert rows == 256 or 8 * n_basis * rows <= KERNEL_BYTES


@given(rows=st.integers(0, 60), cuts=st.lists(st.integers(0, 60), max_size=5), weighted=st.booleans())
def test_cut_in_blocks_or_merged_from_parts_they_are_the_same(rows: int, cuts: list[int], weighted: bool) -> None:
    block, basis = draw_block(rows, seed=rows, weighted=weighted), basis_of(5)
    inside = [c for c in cuts if c <= rows]
    empty = BlockStatistics.empty(5, 2)
    in_blocks = sum_up(basis, cut(block, inside), 2)
    merged = reduce(BlockStatistics.merge, (sum_up(basis, [part], 2) for part in cut(block, inside)), empty)
    for found in (in_blocks, merged):
        assert_close(found, plain(basis, block))
        assert found.rows == rows
    assert merged.weight == in_blocks.weight  # multiples of a half: exact


def test_a_row_of_weight_zero_is_absent_whatever_its_values() -> None:
    block, basis = draw_block(200), basis_of(5, Polynomial(1.0, 4, 1.0))  # 1e99⁴ is infinite, and times zero no number
    assert block.weights is not None
    present = block.weights > 0
    features = np.where(present[:, np.newaxis], block.features, 1e99)
    targets = np.where(present[:, np.newaxis], block.targets, 1e99)
    found = sum_up(basis, [RowBlock(features, targets, block.weights)], 2)
    kept = RowBlock(block.features[present], block.targets[present], block.weights[present])
    expected = sum_up(basis, [kept], 2)
    for name in ("products", "rhs", "target_square"):
        assert getattr(found, name).tobytes() == getattr(expected, name).tobytes()
    assert (found.weight, found.rows, expected.rows) == (expected.weight, 200, int(present.sum()))


def test_a_weight_of_two_is_the_row_twice() -> None:
    block, basis = draw_block(50, weighted=False), basis_of(5)
    twice = sum_up(basis, [RowBlock(block.features, block.targets, np.full(50, 2.0))], 2)
    repeated = sum_up(basis, [block, block], 2)
    np.testing.assert_allclose(twice.products, repeated.products, rtol=1e-14)
    np.testing.assert_allclose(twice.rhs, repeated.rhs, rtol=1e-12, atol=1e-14)
    assert twice.weight == repeated.weight == 100


@given(rows=st.integers(0, 80), cuts=st.lists(st.integers(0, 80), max_size=4), weighted=st.booleans())
def test_each_fold_has_the_sums_of_its_own_rows(rows: int, cuts: list[int], weighted: bool) -> None:
    block, basis = draw_block(rows, seed=rows, weighted=weighted), basis_of(5)
    found = sum_rows(Summing(basis, 2, folds=3, seed=7), cut(block, [c for c in cuts if c <= rows]))
    dealt = deal_folds(0, rows, 3, 7)
    for fold, sums in enumerate(found.folds):
        mine = dealt == fold
        weights = None if block.weights is None else block.weights[mine]
        assert_close(sums, plain(basis, RowBlock(block.features[mine], block.targets[mine], weights)))
        assert sums.rows == int(mine.sum())
    assert_close(found.total(), plain(basis, block))
    rest = found.total().subtract(found.folds[0])
    assert_close(
        rest, {name: plain(basis, block)[name] - getattr(found.folds[0], name) for name in ("products", "rhs")}
    )


def test_a_constant_function_brings_the_sums_of_a_bias() -> None:
    block, basis = draw_block(300), basis_of(5)
    assert block.weights is not None
    biased = Basis(basis.kernel, basis.vectors, basis.centre, constant=True)
    found, without = sum_up(biased, [block], 2), sum_up(basis, [block], 2)
    values = basis.values(block.features)
    np.testing.assert_allclose(found.products[:5, :5], without.products, rtol=1e-13)
    np.testing.assert_allclose(found.products[5], np.r_[block.weights @ values, block.weights.sum()], rtol=1e-12)
    np.testing.assert_allclose(found.rhs[5], block.weights @ block.targets, rtol=1e-12)
    np.testing.assert_array_equal(biased.penalty()[5], np.zeros(6))
    np.testing.assert_array_equal(biased.penalty()[:5, :5], gram(basis.kernel, basis.vectors, basis.centre))


def test_several_bases_share_a_read_and_get_their_own_bits() -> None:
    block, narrow, wide = draw_block(300), basis_of(5), basis_of(4, RBF(0.05))
    summings = Summing(narrow, 2, folds=2), Summing(wide, 2)
    together = sum_together(summings, cut(block, [100]))
    for part, summing in zip(together.parts, summings, strict=True):
        alone = sum_rows(summing, cut(block, [100]))
        for a, b in zip(part.folds, alone.folds, strict=True):
            assert a.products.tobytes() == b.products.tobytes()


def test_some_functions_are_chosen_from_sums_as_if_only_they_had_been_summed() -> None:
    block, basis, kept = draw_block(300), basis_of(5), np.array([3, 0, 4])
    fewer = Basis(basis.kernel, basis.vectors[kept], basis.centre)
    found = sum_rows(Summing(basis, 2, folds=2), [block]).choose(kept).total()
    assert_close(found, plain(fewer, block))


def test_the_error_of_coefficients_follows_from_the_sums() -> None:
    block, basis = draw_block(300), basis_of(5)
    assert block.weights is not None
    beta = np.random.default_rng(3).standard_normal((5, 2))
    residual = block.targets - basis.values(block.features) @ beta
    found = sum_up(basis, [block], 2).squared_error(beta)
    np.testing.assert_allclose(found, block.weights @ residual**2, rtol=1e-12)


def test_no_part_is_no_row() -> None:
    empty = BlockStatistics.empty(5, 2)
    assert (empty.weight, empty.rows, empty.rhs.shape) == (0.0, 0, (5, 2))
    assert not empty.products.any()
    basis = basis_of(0)
    found = sum_up(basis, [draw_block(10, weighted=False)], 2)
    assert (found.products.shape, found.rhs.shape, found.weight) == ((0, 0), (0, 2), 10.0)


def test_sums_of_other_sizes_are_not_added() -> None:
    with pytest.raises(InputError, match=r"sums of shapes \(5, 2\) and \(1, 2\) are not of one basis and targets"):
        BlockStatistics.empty(5, 2).merge(BlockStatistics.empty(1, 2))


@pytest.mark.parametrize("kernel", KERNELS[:2], ids=lambda k: k.name)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_solution_is_that_of_a_dense_least_squares_problem(kernel: Kernel, weighted: bool) -> None:
    """minimize Σ w (y − kᵀβ)² + λn βᵀKβ, by QR on the stacked rows √w·k and √(λn)·Lᵀ, for two targets."""
    block, basis, regularization = draw_block(800, weighted=weighted), basis_of(8, kernel), 1e-3
    K = gram(kernel, basis.vectors, basis.centre)
    sums = sum_up(basis, cut(block, [100, 333]), 2)
    found = sums.factorize(K, regularization).solve(sums.rhs)
    root = np.ones(800) if block.weights is None else np.sqrt(block.weights)
    penalty = regularization * float((root**2).sum())
    k = kernel.block(block.features, basis.vectors)
    rows = np.vstack([root[:, np.newaxis] * k, np.sqrt(penalty) * np.linalg.cholesky(K).T])
    right = np.vstack([root[:, np.newaxis] * block.targets, np.zeros((8, 2))])
    expected = np.linalg.lstsq(rows, right, rcond=None)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())


def test_vectors_that_cannot_be_told_apart_are_solved_with_a_jitter_or_refused() -> None:
    basis = basis_of(3)
    twins = Basis(basis.kernel, basis.vectors[[0, 0, 1, 1, 2, 2]], basis.centre)
    sums = sum_up(twins, [draw_block(100)], 2)
    assert sums.factorize(gram(twins.kernel, twins.vectors), 1e-3).jitter > 0
    with pytest.raises(NumericalBreakdown, match=r"the normal matrix P .* is not positive definite within rounding"):
        sums.factorize(-gram(twins.kernel, twins.vectors), 10.0)
