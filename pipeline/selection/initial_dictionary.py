"""Initial dictionaries: vectors chosen elsewhere, which a method fits, prunes or compares."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.independence import find_independent
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_set import RowSet


@dataclass(frozen=True)
class StartingDictionary:
    """Vectors and the indices of their rows."""

    vectors: Floats
    """Standardized, shape (n_basis, n_features)."""
    places: Integers
    """The row index of each vector, −1 if it is not a row, shape (n_basis,)."""

    @classmethod
    def of_rows(cls, rows: RowSet, indices: Integers) -> Self:
        """Return the rows with these indices; raises InputError for one of weight zero."""
        block = rows.take(indices)
        if block.weights is not None and not block.weights.all():
            absent = int(indices[np.flatnonzero(block.weights == 0)[0]])
            raise InputError(
                f"row {absent} has weight zero and cannot be a basis vector: choose rows of weight above 0"
            )
        return cls(block.features, indices)

    def check(self, n_features: int) -> None:
        """Raise InputError unless there are vectors of `n_features` features, each with a row index."""
        if not len(self.vectors) or self.vectors.ndim != 2 or self.vectors.shape[1] != n_features:
            raise InputError(
                f"a starting dictionary needs vectors of {n_features} features, its shape is {self.vectors.shape}"
            )
        if self.places.shape != (len(self.vectors),):
            raise InputError(
                f"a starting dictionary of {len(self.vectors)} vectors needs as many row indices, "
                f"their shape is {self.places.shape}"
            )

    def independent(self, kernel: Kernel) -> Self:
        """Return the vectors that are linearly independent in the kernel's feature space, in their order; O(n_basis³).

        The others would not change a model beyond rounding. Raises InputError if none is left.
        """
        independent = find_independent(kernel, self.vectors, None)
        if not len(independent):
            raise InputError("every vector of the starting dictionary is zero to the kernel: give others")
        return type(self)(self.vectors[independent], self.places[independent])

    def basis(self, kernel: Kernel, *, constant: bool) -> Basis:
        """Return the basis over these vectors; if `constant`, with the constant function for a bias."""
        return Basis(kernel, self.vectors, np.zeros(self.vectors.shape[1]), constant)
