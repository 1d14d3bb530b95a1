"""The information form: sums that absorb a row, and borders that add or replace a basis vector without past rows.

Jung & Polani (2006) propagate P⁻¹; here P, K and z themselves are carried, so that nothing drifts and P⁻¹ can be had
anew at any time. Symmetric matrices are kept in the lower triangle of Fortran-ordered arrays, as BLAS updates them.
"""

import sys
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import TOO_LARGE, NumericalBreakdown
from ridgestream.pipeline.cholesky import symmetric
from ridgestream.pipeline.online.state import OnlineState

LARGEST_SELF_KERNEL = 1e154
"""The square of a kernel value beyond this leaves float64."""

TOO_SMALL = "scale the weights, or the features, up"


class Information:
    """D, K, P, z and yᵀy while they change, with room for `capacity` basis vectors, of which `n_basis` are there.

    The others are empty: their kernel values with all rows are zero, and K and P are the identity there, so they touch
    nothing, and to grow is to put a row in the place of an empty one.
    """

    def __init__(self, state: OnlineState) -> None:
        self.n_basis = state.n_basis
        self.vectors: Floats = state.basis_vectors.copy()
        self.row_numbers: Integers = state.basis_rows.copy()
        self.gram_room: Floats = np.array(state.gram, order="F")
        self.normal_room: Floats = np.array(state.normal_matrix, order="F")
        self.rhs_room: Floats = state.normal_rhs.copy()
        self.target_square: Floats = state.target_square.copy()
        self.penalty: float = state.penalty

    @property
    def capacity(self) -> int:
        """The number of basis vectors that there is room for."""
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
        return self.gram_room[: self.n_basis, : self.n_basis]

    @property
    def normal_matrix(self) -> Floats:
        """P, lower triangle, shape (n_basis, n_basis)."""
        return self.normal_room[: self.n_basis, : self.n_basis]

    @property
    def normal_rhs(self) -> Floats:
        """z, shape (n_basis, n_targets)."""
        return self.rhs_room[: self.n_basis]

    def reserve(self, capacity: int) -> None:
        """Make room for just so many basis vectors; O(capacity²) if it is not there already."""
        if capacity != self.capacity:
            self.vectors = padded(self.basis_vectors, capacity)
            self.row_numbers = padded(self.basis_rows, capacity)
            self.gram_room = padded_symmetric(self.gram, capacity)
            self.normal_room = padded_symmetric(self.normal_matrix, capacity)
            self.rhs_room = padded(self.normal_rhs, capacity)

    def begin(self, x: Floats, row: int, self_kernel: float, weight: float, y: Floats, penalty: float) -> None:
        """Make the row x, number `row` of the stream, the dictionary: K = [k*], P = [wk*² + γk*], z = [wk*y].

        Raises NumericalBreakdown where P or γ leaves float64, above or below.
        """
        if not self_kernel < LARGEST_SELF_KERNEL:
            raise NumericalBreakdown(f"k(x, x) of row {row} is {self_kernel:.6g}: {TOO_LARGE}")
        normal = weight * self_kernel**2 + penalty * self_kernel
        if not (penalty > 0 and normal >= sys.float_info.min):
            raise NumericalBreakdown(
                f"row {row}, the first of the dictionary, has k(x, x) = {self_kernel:.6g} and weight {weight:.6g}: "
                f"products of them are below what float64 holds; {TOO_SMALL}"
            )
        self.n_basis, self.penalty = 1, penalty
        self.vectors, self.row_numbers = x[np.newaxis].copy(), np.array([row])
        self.gram_room = np.array([[self_kernel]])
        self.normal_room = np.array([[normal]])
        self.rhs_room = (weight * self_kernel * y)[np.newaxis]

    def absorb(self, kernel_rows: Floats, targets: Floats, weights: Floats) -> None:
        """P += Σ w kkᵀ, z += Σ w kyᵀ for rows of kernel values (rows, n_basis): equation (11); O(n_basis²) a row."""
        self.reserve(self.n_basis)
        scaled = kernel_rows * np.sqrt(weights)[:, np.newaxis]
        self.normal_room = blas.dsyrk(1.0, scaled.T, beta=1.0, c=self.normal_room, lower=1, overwrite_c=1)
        self.rhs_room += kernel_rows.T @ (targets * weights[:, np.newaxis])

    def absorb_targets(self, targets: Floats, weights: Floats) -> None:
        """yᵀy += Σ w yyᵀ."""
        self.target_square += targets.T @ (targets * weights[:, np.newaxis])

    def set_penalty(self, penalty: float) -> None:
        """P += (γ′ − γ)K: the regularization changes exactly. Raises NumericalBreakdown for a γ′ of zero."""
        if not penalty > 0:
            raise NumericalBreakdown(f"regularization times all weights so far is zero in float64: {TOO_SMALL}")
        normal = self.normal_matrix
        normal += (penalty - self.penalty) * self.gram
        self.penalty = penalty

    def symmetric_matrices(self) -> tuple[Floats, Floats]:
        """Return K and P in full."""
        return symmetric(self.gram), symmetric(self.normal_matrix)


Kind = TypeVar("Kind", bound=np.generic)


def padded(array: npt.NDArray[Kind], length: int) -> npt.NDArray[Kind]:
    """Return the array made `length` long with zeros."""
    longer = np.zeros((length, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def padded_symmetric(matrix: Floats, size: int) -> Floats:
    """Return the square matrix made (size, size) with the identity; Fortran order."""
    larger = np.zeros((size, size), order="F")
    larger[np.diag_indices(size)] = 1.0
    larger[: len(matrix), : len(matrix)] = matrix
    return larger
