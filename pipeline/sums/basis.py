"""A fixed set of basis functions: the kernel at basis vectors, and a constant function for a bias."""

from dataclasses import dataclass

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.memory_plan import KERNEL_BYTES
from ridgestream.pipeline.kernels import Kernel, check_kernel, gram


@dataclass(frozen=True)
class Basis:
    """A fixed set of basis vectors, S."""

    kernel: Kernel
    """k."""
    vectors: Floats
    """Basis vectors, standardized, shape (n_basis, n_features)."""
    centre: Floats
    """Origin for a stationary kernel's distances, shape (n_features,)."""
    constant: bool = False
    """Whether the constant function 1 follows the kernel functions, for a bias."""

    def __post_init__(self) -> None:
        check_kernel(self.kernel)

    @property
    def n_functions(self) -> int:
        """Number of basis functions: one per vector, plus the constant one if any."""
        return len(self.vectors) + self.constant

    @property
    def kernel_rows(self) -> int:
        """Number of rows whose kernel values are formed at a time."""
        return plan_kernel_rows(self.n_functions)

    def work(self, n_rows: int) -> Floats:
        """Return memory for the values at so many rows, `kernel_rows` of them at a time."""
        return np.empty((min(n_rows, self.kernel_rows), self.n_functions))

    def values(self, features: Floats, work: Floats | None = None) -> Floats:
        """Return all basis functions at rows (rows, n_features): shape (rows, n_functions); in `work`, if given."""
        values = np.empty((len(features), self.n_functions)) if work is None else work[: len(features)]
        self.kernel.block(features, self.vectors, self.centre, out=values[:, : len(self.vectors)])
        if self.constant:
            values[:, -1] = 1.0
        return values

    def expand(self, features: Floats, coefficients: Floats, work: Floats) -> Floats:
        """Return Σ β_i f_i at rows (rows, n_features), with coefficients (n_functions, n_outputs): (rows, n_outputs).

        `work` (rows, n_basis) is overwritten with kernel values. Multiplying it is faster than multiplying the result
        of `values`, whose rows are not contiguous without the column of the constant function.
        """
        block = self.kernel.block(features, self.vectors, self.centre, out=work)
        sums = block @ coefficients[: len(self.vectors)]
        return np.asarray(sums + coefficients[-1] if self.constant else sums)

    def outputs(self, features: Floats, coefficients: Floats) -> Floats:
        """Return Σ β_i f_i at any number of rows (rows, n_features), in O(n_functions) memory: (rows, n_outputs)."""
        outputs, work = np.empty((len(features), coefficients.shape[1])), self.work(len(features))
        for start in range(0, len(features), self.kernel_rows):
            part = slice(start, start + self.kernel_rows)
            outputs[part] = self.values(features[part], work) @ coefficients
        return outputs

    def penalty(self) -> Floats:
        """Return K, with a zero row and column for the constant function: shape (n_functions, n_functions)."""
        products = gram(self.kernel, self.vectors, self.centre)
        return np.pad(products, (0, 1)) if self.constant else products


def plan_kernel_rows(n_basis: int) -> int:
    """Return the number of rows whose kernel values are formed at a time: a power of two, at least 256."""
    fitting = max(256, KERNEL_BYTES // (8 * max(1, n_basis)))
    return int(1 << (fitting.bit_length() - 1))
