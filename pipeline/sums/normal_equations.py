"""Block statistics: the sums over rows from which batch methods are computed, for a fixed set of basis vectors.

With k the kernel values of a row against the basis vectors, y its targets and w its weight, these are G = Σ w kkᵀ, z =
Σ w kyᵀ, Σ w yyᵀ and n = Σ w. Sums over disjoint sets of rows add up, so rows can be summed anywhere, and sums can be
stored, added and subtracted without the rows. The coefficients of subset of regressors follow from them, (G + λnK)β =
z, with K the kernel matrix of the basis vectors. A bias is one more basis function, constant and not penalized: the
last row of G then holds Σ w k and n, and that of z holds Σ w y.

Sums are float64 whatever the dtype of the stored rows. Addition is associative only up to rounding: identical bits
require the same division of the rows and the same order. Sums kept separately for several folds, to which rows are
assigned by their indices, allow evaluating a model on rows that it was not fitted to.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.cholesky import Cholesky, cholesky, first_packed, mirror, pack, unpack
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.row_block import RowBlock, drop_absent
from ridgestream.pipeline.unlocked_lapack import add_products

NORMAL_MATRIX = "normal matrix P"
"""What is factorized, for messages."""


@dataclass(frozen=True)
class _RowSums:
    """Sums over rows; a commutative monoid under `merge`, up to rounding."""

    products: Floats
    """G = Σ w kkᵀ, or one triangle of it."""
    rhs: Floats
    """z = Σ w kyᵀ, shape (n_basis, n_targets)."""
    target_square: Floats
    """Σ w yyᵀ, shape (n_targets, n_targets)."""
    weight: float
    """n = Σ w."""
    rows: int
    """The number of rows, those of weight zero included."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows; raises InputError if their shapes differ; O(n_basis²)."""
        if self.rhs.shape != other.rhs.shape:
            raise InputError(f"sums of shapes {self.rhs.shape} and {other.rhs.shape} are not of one basis and targets")
        return type(self)(
            products=self.products + other.products,
            rhs=self.rhs + other.rhs,
            target_square=self.target_square + other.target_square,
            weight=self.weight + other.weight,
            rows=self.rows + other.rows,
        )

    def subtract(self, part: Self) -> Self:
        """Return the sums over the rows that are not in `part`, a subset of these rows; O(n_basis²)."""
        return type(self)(
            products=self.products - part.products,
            rhs=self.rhs - part.rhs,
            target_square=self.target_square - part.target_square,
            weight=self.weight - part.weight,
            rows=self.rows - part.rows,
        )

    @property
    def _others(self) -> tuple[Floats, Floats, float, int]:
        """All but G."""
        return self.rhs, self.target_square, self.weight, self.rows


@dataclass(frozen=True)
class PackedStatistics(_RowSums):
    """Sums with one triangle of G, n_basis(n_basis + 1)/2 numbers: to be kept, merged and sent."""

    def first(self, n_basis: int) -> Self:
        """Return the sums of the first basis functions."""
        return type(self)(first_packed(self.products, n_basis), self.rhs[:n_basis], *self._others[1:])

    def whole(self) -> "BlockStatistics":
        """Return the sums with all of G."""
        return BlockStatistics(unpack(self.products), *self._others)

    def factorize(self, penalty: Floats, regularization: float) -> Cholesky:
        """Return the Cholesky factor of G + λnK, with a triangle of K as `penalty` and λ per row; O(n_basis³).

        Raises NumericalBreakdown if the matrix is not positive definite within rounding.
        """
        normal = unpack(self.products + regularization * self.weight * penalty)
        return cholesky(normal, NORMAL_MATRIX, overwrite=True)


@dataclass(frozen=True)
class BlockStatistics(_RowSums):
    """Sums with all of G, exactly symmetric, shape (n_basis, n_basis)."""

    @classmethod
    def empty(cls, n_basis: int, n_targets: int) -> Self:
        """Return the sums over no row."""
        square = np.zeros((n_targets, n_targets))
        return cls(np.zeros((n_basis, n_basis)), np.zeros((n_basis, n_targets)), square, 0.0, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel between processes with one triangle of G, half its bytes."""
        return PackedStatistics.whole, (self.packed(),)

    def packed(self) -> PackedStatistics:
        """Return the sums with one triangle of G."""
        return PackedStatistics(pack(self.products), *self._others)

    def factorize(self, penalty: Floats, regularization: float) -> Cholesky:
        """Return the Cholesky factor of G + λnK, with K (n_basis, n_basis) as `penalty` and λ per row; O(n_basis³).

        Raises NumericalBreakdown if the matrix is not positive definite within rounding.
        """
        normal = self.products + regularization * self.weight * penalty
        return cholesky(normal, NORMAL_MATRIX, overwrite=True)

    def choose(self, indices: Integers) -> Self:
        """Return the sums of the basis functions with these indices, shape (n_chosen,), in this order."""
        return type(self)(
            products=np.ascontiguousarray(self.products[np.ix_(indices, indices)]),
            rhs=self.rhs[indices],
            target_square=self.target_square,
            weight=self.weight,
            rows=self.rows,
        )

    def squared_error(self, coefficients: Floats) -> Floats:
        """Return Σ w (y − kᵀβ)² of each target, shape (n_targets,), clipped at zero; O(n_basis²) per target."""
        return np.asarray(np.maximum(self.residual_square(coefficients), 0.0))

    def residual_square(self, coefficients: Floats) -> Floats:
        """Return the same as `squared_error`, but not clipped: rounding may make it negative."""
        error = np.diagonal(self.target_square) - 2 * np.sum(coefficients * self.rhs, axis=0)
        return np.asarray(error + np.sum(coefficients * (self.products @ coefficients), axis=0))


@dataclass(frozen=True)
class FoldedStatistics:
    """Separate sums for each of several folds; a commutative monoid under `merge`, up to rounding."""

    folds: tuple[BlockStatistics, ...]
    """The sums of each fold; a single one if there are no folds."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows, fold by fold."""
        return type(self)(tuple(a.merge(b) for a, b in zip(self.folds, other.folds, strict=True)))

    def choose(self, indices: Integers) -> Self:
        """Return the sums of the basis functions with these indices, in this order."""
        return type(self)(tuple(fold.choose(indices) for fold in self.folds))

    def total(self) -> BlockStatistics:
        """Return the sums over all rows."""
        return reduce(BlockStatistics.merge, self.folds)


@dataclass(frozen=True)
class SeveralStatistics:
    """Sums for several bases over the same rows."""

    parts: tuple[FoldedStatistics, ...]
    """The sums of each basis."""

    def merge(self, other: Self) -> Self:
        """Return the sums over both sets of rows, basis by basis."""
        return type(self)(tuple(a.merge(b) for a, b in zip(self.parts, other.parts, strict=True)))


@dataclass(frozen=True)
class Summing:
    """The sums to form; the argument of a pass."""

    basis: Basis
    """The basis functions."""
    n_targets: int
    """Number of targets."""
    folds: int = 1
    """Number of folds."""
    seed: int = 0
    """Seed of the assignment of rows to folds."""


def sum_rows(summing: Summing, blocks: Iterable[RowBlock]) -> FoldedStatistics:
    """Return the sums over the rows of all blocks, added in order; O(n_basis·(n_basis + n_features)) per row.

    Rows of weight zero are skipped. Memory: one block, kernel values of `basis.kernel_rows` rows, and the sums; BLAS
    runs on one thread.
    """
    return sum_together((summing,), blocks).parts[0]


@named_pass("ridgestream.pipeline.block_statistics", "sum_together")
def sum_together(summings: Sequence[Summing], blocks: Iterable[RowBlock]) -> SeveralStatistics:
    """Return the sums for several bases from one read of the rows, each with the same bits as from `sum_rows`."""
    accumulators = [_FoldAccumulator(summing) for summing in summings]
    with one_blas_thread():
        for block in blocks:
            for accumulator in accumulators:
                accumulator.add(block)
        return SeveralStatistics(tuple(accumulator.statistics() for accumulator in accumulators))


class _FoldAccumulator:
    """Accumulates the sums of every fold."""

    def __init__(self, summing: Summing) -> None:
        self._basis, self._n_folds, self._seed = summing.basis, summing.folds, summing.seed
        self._folds = [SumAccumulator(summing.basis.n_functions, summing.n_targets) for _ in range(summing.folds)]

    def add(self, block: RowBlock) -> None:
        folds = deal_folds(block.first, len(block.features), self._n_folds, self._seed)
        for fold, sums in enumerate(self._folds):
            sums.rows += int(np.count_nonzero(folds == fold))
        if block.weights is not None:
            folds, block = folds[block.weights > 0], drop_absent(block)
        step = self._basis.kernel_rows
        for start in range(0, len(folds), step):
            self._add_part(block, start, folds[start : start + step])

    def _add_part(self, block: RowBlock, start: int, folds: Integers) -> None:
        """Add the rows from `start` on, which belong to `folds`; gathers each fold's rows, in order."""
        order = start + np.argsort(folds, kind="stable") if self._n_folds > 1 else slice(start, start + len(folds))
        values, targets = self._basis.values(block.features[order]), block.targets[order]
        weights = None if block.weights is None else block.weights[order]
        ends = np.cumsum(np.bincount(folds, minlength=self._n_folds))
        for sums, begin, end in zip(self._folds, np.r_[0, ends], ends, strict=False):
            sums.add(values[begin:end], targets[begin:end], None if weights is None else weights[begin:end])

    def statistics(self) -> FoldedStatistics:
        return FoldedStatistics(tuple(sums.statistics() for sums in self._folds))


class SumAccumulator:
    """Accumulates sums over rows; G in the lower triangle of a Fortran-ordered array, as BLAS updates it."""

    def __init__(self, n_functions: int, n_targets: int) -> None:
        self._products: Floats = np.zeros((n_functions, n_functions), order="F")
        self._rhs: Floats = np.zeros((n_functions, n_targets))
        self._target_square: Floats = np.zeros((n_targets, n_targets))
        self._weight, self.rows = 0.0, 0

    def add(self, values: Floats, targets: Floats, weights: Floats | None) -> None:
        """Add rows with basis function values (rows, n_functions), which are overwritten."""
        weighted = targets if weights is None else targets * weights[:, np.newaxis]
        self._weight += float(len(targets) if weights is None else weights.sum())
        self._target_square += targets.T @ weighted
        if not values.size:
            return
        self._rhs += values.T @ weighted
        if weights is not None:
            values *= np.sqrt(weights)[:, np.newaxis]
        add_products(values, self._products)

    def statistics(self) -> BlockStatistics:
        """Return the sums, which share the accumulator's memory: add nothing after this."""
        return BlockStatistics(mirror(self._products), *self._others)

    def packed(self) -> PackedStatistics:
        """Return the sums with one triangle of G: add nothing after this."""
        return PackedStatistics(pack(self._products.T), *self._others)

    @property
    def _others(self) -> tuple[Floats, Floats, float, int]:
        return self._rhs, self._target_square, self._weight, self.rows
