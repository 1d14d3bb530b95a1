"""One pass of OROLS over the rows: the rows of largest residuals, and the products of new columns with known ones.

A pass computes the residuals of several models of each machine, each with one more vector than the one before, so it
may confirm several steps; it serves the machines of all targets.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.cholesky import symmetric
from ridgestream.pipeline.kernels import Kernel, gram
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.top_rows import NO_ROW, RowTable, TopRows, TopRowsAccumulator

Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Chain:
    """Models of one machine, each with one more vector than the one before."""

    target: int
    """The index of the machine's target."""
    columns: Integers
    """The positions of the last model's vectors in the basis of the pass."""
    coefficients: Floats
    """The coefficients of each model, the bias last, shape (len(columns) + 1, n_models)."""
    sizes: Integers
    """The number of vectors of each model, shape (n_models,)."""
    barred: Keys
    """The keys of the rows that must not be chosen, ascending and unique."""
    turns: Integers
    """For each key, the smallest model size to which this applies."""


@dataclass(frozen=True)
class Screening:
    """The argument of a pass."""

    basis: Basis
    """The columns, first those whose products with each other are known; with the constant function."""
    known: int
    """The number of columns whose products are known."""
    n_targets: int
    """The number of targets."""
    chains: tuple[Chain, ...]
    """The models whose residuals are computed."""
    depth: int
    """The number of rows of largest residuals to return for each model."""

    @property
    def n_models(self) -> int:
        """The number of models of all chains."""
        return sum(len(chain.sizes) for chain in self.chains)


@dataclass(frozen=True)
class Screened:
    """The result of a pass; a monoid under `merge`."""

    products: Floats
    """Σ w kkᵀ, its columns of the new vectors and the constant function, shape (n_functions, n_new + 1)."""
    rhs: Floats
    """Σ w kyᵀ of the new vectors and of the constant function, shape (n_new + 1, n_targets)."""
    target_square: Floats
    """Σ w y² of each target, shape (n_targets,)."""
    leaders: TopRows
    """The rows of largest |residual| of each model, chain by chain."""

    def merge(self, other: Self) -> Self:
        """Return the result over both sets of rows, those of `other` later."""
        return type(self)(
            self.products + other.products,
            self.rhs + other.rhs,
            self.target_square + other.target_square,
            self.leaders.merge(other.leaders),
        )


@named_pass("ridgestream.pipeline.learners.orols_pass", "screen_rows")
def screen_rows(screening: Screening, blocks: Iterable[RowBlock]) -> Screened:
    """Return the result over the rows of all blocks; n_functions kernel values per row, and products with new ones.

    Rows of weight zero are skipped. Memory: a block, kernel values of `basis.kernel_rows` rows, and the sums; BLAS runs
    on one thread.
    """
    growing = _Screen(screening)
    with one_blas_thread():
        for block in blocks:
            present = np.arange(len(block.features)) if block.weights is None else np.flatnonzero(block.weights)
            for start in range(0, len(present), screening.basis.kernel_rows):
                growing.add(block, present[start : start + screening.basis.kernel_rows])
    return growing.screened()


class _Screen:
    """Accumulates the result of a pass."""

    def __init__(self, screening: Screening) -> None:
        n_functions, n_targets = screening.basis.n_functions, screening.n_targets
        self._screening = screening
        self._products = np.zeros((n_functions, n_functions - screening.known))
        self._rhs = np.zeros((n_functions - screening.known, n_targets))
        self._target_square = np.zeros(n_targets)
        n_features = screening.basis.vectors.shape[1]
        self._board = TopRowsAccumulator(screening.n_models, screening.depth, n_features, n_targets)

    def add(self, block: RowBlock, chosen: Integers) -> None:
        """Add the chosen rows of a block."""
        weights = None if block.weights is None else block.weights[chosen]
        part = RowBlock(block.features[chosen], block.targets[chosen], weights, block.first)
        values = self._screening.basis.values(part.features)
        if self._screening.chains:
            keys = row_keys(part.features)
            scores = [_residuals(chain, values, part.targets, keys) for chain in self._screening.chains]
            self._board.add(np.concatenate(scores), block.first + chosen, part)
        self._sum(values, part.targets, weights)

    def _sum(self, values: Floats, targets: Floats, weights: Floats | None) -> None:
        new = values[:, self._screening.known :]
        weighted = new if weights is None else new * weights[:, np.newaxis]
        self._products += values.T @ weighted
        self._rhs += weighted.T @ targets
        self._target_square += np.einsum(
            "ij,ij->j", targets if weights is None else targets * weights[:, None], targets
        )

    def screened(self) -> Screened:
        return Screened(self._products, self._rhs, self._target_square, self._board.top_rows())


def _residuals(chain: Chain, values: Floats, targets: Floats, keys: Keys) -> Floats:
    """Return |y − f| of each model, NO_ROW for rows that must not be chosen: shape (n_models, rows)."""
    predicted = chain.coefficients[:-1].T @ values[:, chain.columns].T
    predicted += chain.coefficients[-1][:, np.newaxis]
    residuals = np.abs(np.subtract(targets[:, chain.target], predicted, out=predicted), out=predicted)
    if len(chain.barred):
        matches = np.minimum(np.searchsorted(chain.barred, keys), len(chain.barred) - 1)
        rows = np.flatnonzero(chain.barred[matches] == keys)
        barred = residuals[:, rows]
        barred[chain.sizes[:, np.newaxis] >= chain.turns[matches[rows]]] = NO_ROW
        residuals[:, rows] = barred
    return residuals


def row_keys(features: Floats) -> Keys:
    """Return a 64-bit hash of each row (rows, n_features), the same for equal rows.

    The bits b of a value give b·M, folded onto its lower half and multiplied by an odd number of the value's column.
    """
    columns = np.random.default_rng(0).integers(0, 2**64, features.shape[1], dtype=np.uint64) | np.uint64(1)
    bits = (features + 0.0).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # −0 + 0 is 0
    bits ^= bits >> np.uint64(32)
    bits *= columns
    return np.asarray(bits.sum(axis=1, dtype=np.uint64))


@dataclass(frozen=True)
class Library:
    """The rows whose columns are known, with the products of these columns over all rows."""

    rows: RowTable
    """The rows, by index."""
    gram: Floats
    """k between them, shape (n, n)."""
    products: Floats
    """Σ w kkᵀ, the constant function last, shape (n + 1, n + 1)."""
    rhs: Floats
    """Σ w kyᵀ, the constant function last, shape (n + 1, n_targets)."""

    @classmethod
    def empty(cls, n_features: int, n_targets: int) -> Self:
        """Return a library without rows, before any pass."""
        rows = RowTable(np.empty(0, np.int64), np.empty((0, n_features)), np.empty((0, n_targets)))
        return cls(rows, np.empty((0, 0)), np.zeros((1, 1)), np.zeros((1, n_targets)))

    def __contains__(self, place: int) -> bool:
        where = int(np.searchsorted(self.rows.places, place))
        return where < len(self.rows.places) and int(self.rows.places[where]) == place

    def find(self, places: Integers) -> Integers:
        """Return the positions in the library of the rows with these indices, which must be in it."""
        return np.asarray(np.searchsorted(self.rows.places, places))

    def missing(self, places: Integers) -> Integers:
        """Return the row indices that are not in the library, ascending and unique."""
        return np.setdiff1d(places, self.rows.places)

    def keep(self, places: Integers) -> Self:
        """Return the library of its rows with these indices."""
        return self.reorder(np.flatnonzero(np.isin(self.rows.places, places)))

    def absorb(self, kernel: Kernel, centre: Floats, new: RowTable, screened: Screened) -> Self:
        """Return the library with new rows, which followed its own in the basis of the pass that `screened` is from."""
        n = len(self.rows.places)
        whole = _bordered(self.products[:n, :n], screened.products[:n], symmetric(screened.products[n:]))
        features = np.concatenate([self.rows.features, new.features])
        border = kernel.block(self.rows.features, new.features, centre)
        values = _bordered(self.gram, border, gram(kernel, new.features, centre))
        rhs = np.concatenate([self.rhs[:n], screened.rhs])
        rows = RowTable(
            np.concatenate([self.rows.places, new.places]),
            features,
            np.concatenate([self.rows.targets, new.targets]),
        )
        return type(self)(rows, values, whole, rhs).reorder(np.argsort(rows.places))

    def reorder(self, order: Integers) -> Self:
        """Return the library of the rows at these positions, in this order."""
        rows, ends = self.rows, np.append(order, len(self.rows.places))
        rows = RowTable(rows.places[order], rows.features[order], rows.targets[order])
        return type(self)(rows, self.gram[np.ix_(order, order)], self.products[np.ix_(ends, ends)], self.rhs[ends])


def _bordered(old: Floats, border: Floats, new: Floats) -> Floats:
    """Return [[old, border], [borderᵀ, new]]."""
    return np.block([[old, border], [border.T, new]])
