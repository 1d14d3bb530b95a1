"""The information form: the sums P, K, z and yᵀy, to which rows are added exactly.

Jung & Polani (2006) propagate P⁻¹; here P, K and z are carried, so that nothing drifts and P⁻¹ can be recomputed at any
time. Symmetric matrices are in the lower triangle of Fortran-ordered arrays, as BLAS updates them.
"""

import sys
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import TOO_LARGE, NumericalBreakdown
from ridgestream.pipeline.cholesky import symmetric
from ridgestream.pipeline.online.row_block import RowBlock
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.unlocked_lapack import add_products

LARGEST_SELF_KERNEL = 1e154
"""The square of a larger kernel value overflows float64."""

TOO_SMALL = "scale the weights, or the features, up"


class Information:
    """D, K, P, z and yᵀy while they change, in arrays for `capacity` basis vectors, of which `n_basis` exist.

    The others are empty: their kernel values with all rows are zero, and K and P are the identity there, so that they
    affect nothing, and a new basis vector replaces an empty one.
    """

    def __init__(self, state: OnlineState) -> None:
        self.n_basis = state.n_basis
        self.vectors: Floats = state.basis_vectors.copy()
        self.row_numbers: Integers = state.basis_rows.copy()
        self.gram_array: Floats = np.array(state.gram.T, order="F")
        self.normal_array: Floats = np.array(state.normal_matrix.T, order="F")
        self.rhs_array: Floats = state.normal_rhs.copy()
        self.target_square: Floats = state.target_square.copy()
        self.penalty: float = state.penalty

    @property
    def capacity(self) -> int:
        """The number of basis vectors that the arrays hold."""
        return len(self.vectors)

    @property
    def basis_vectors(self) -> Floats:
        """D, shape (n_basis, n_features)."""
        return self.vectors[: self.n_basis]

    @property
    def basis_rows(self) -> Integers:
        """The row number in the stream of each basis vector, shape (n_basis,)."""
        return self.row_numbers[: self.n_basis]

    @property
    def gram(self) -> Floats:
        """K, lower triangle, shape (n_basis, n_basis)."""
        return self.gram_array[: self.n_basis, : self.n_basis]

    @property
    def normal_matrix(self) -> Floats:
        """P, lower triangle, shape (n_basis, n_basis)."""
        return self.normal_array[: self.n_basis, : self.n_basis]

    @property
    def normal_rhs(self) -> Floats:
        """z, shape (n_basis, n_targets)."""
        return self.rhs_array[: self.n_basis]

    def reserve(self, capacity: int) -> None:
        """Resize the arrays to this number of basis vectors; O(capacity²) unless they have it already."""
        if capacity != self.capacity:
            self.vectors = padded(self.basis_vectors, capacity)
            self.row_numbers = padded(self.basis_rows, capacity)
            self.gram_array = padded_symmetric(self.gram, capacity)
            self.normal_array = padded_symmetric(self.normal_matrix, capacity)
            self.rhs_array = padded(self.normal_rhs, capacity)

    def start(self, block: RowBlock, self_kernel: float, penalty: float) -> None:
        """Make the first row of the block the dictionary: D = [x], K = [k*], P = [wk*² + γk*], z = [wk*y].

        Raises NumericalBreakdown if P or γ overflows float64, or underflows to zero.
        """
        x, y, weight, row = block.X[0], block.targets[0], float(block.weights[0]), int(block.row_numbers[0])
        if not self_kernel < LARGEST_SELF_KERNEL:
            raise NumericalBreakdown(f"k(x, x) of row {row} is {self_kernel:.6g}: {TOO_LARGE}")
        normal = weight * self_kernel**2 + penalty * self_kernel
        if not (penalty > 0 and normal >= sys.float_info.min):
            raise NumericalBreakdown(
                f"row {row}, the first of the dictionary, has k(x, x) = {self_kernel:.6g} and weight {weight:.6g}: "
                f"their products underflow float64; {TOO_SMALL}"
            )
        self.n_basis, self.penalty = 1, penalty
        self.vectors, self.row_numbers = x[np.newaxis].copy(), np.array([row])
        self.gram_array = np.array([[self_kernel]])
        self.normal_array = np.array([[normal]])
        self.rhs_array = (weight * self_kernel * y)[np.newaxis]

    def absorb(self, kernel_rows: Floats, targets: Floats, weights: Floats) -> None:
        """P += Σ w kkᵀ, z += Σ w kyᵀ for kernel values (rows, n_basis): equation (11); O(n_basis²) per row."""
        self.reserve(self.n_basis)
        scaled = kernel_rows * np.sqrt(weights)[:, np.newaxis]
        add_products(scaled, self.normal_array)
        self.rhs_array += kernel_rows.T @ (targets * weights[:, np.newaxis])

    def absorb_targets(self, targets: Floats, weights: Floats) -> None:
        """yᵀy += Σ w yyᵀ."""
        self.target_square += targets.T @ (targets * weights[:, np.newaxis])

    def set_penalty(self, penalty: float) -> None:
        """P += (γ′ − γ)K, which is exact. Raises NumericalBreakdown for a γ′ of zero."""
        if not penalty > 0:
            raise NumericalBreakdown(f"regularization times all weights so far is zero in float64: {TOO_SMALL}")
        normal = self.normal_matrix
        normal += (penalty - self.penalty) * self.gram
        self.penalty = penalty

    def matrices(self, *, whole: bool) -> tuple[Floats, Floats]:
        """Return K and P, C order: in full, or their upper triangles, in memory that changes with the next row."""
        if whole:
            return symmetric(self.gram), symmetric(self.normal_matrix)
        return self.gram.T, self.normal_matrix.T


Scalar = TypeVar("Scalar", bound=np.generic)


def padded(array: npt.NDArray[Scalar], length: int) -> npt.NDArray[Scalar]:
    """Return the array extended with zeros to `length`."""
    longer = np.zeros((length, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def padded_symmetric(matrix: Floats, size: int) -> Floats:
    """Return the square matrix extended with the identity to (size, size), Fortran order."""
    larger = np.zeros((size, size), order="F")
    larger[np.diag_indices(size)] = 1.0
    larger[: len(matrix), : len(matrix)] = matrix
    return larger
