"""Cholesky factorizations: solutions, inverses, a condition estimate, and the jitter that was needed."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from ridgestream.pipeline import unlocked_lapack
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.errors import TOO_LARGE, NumericalBreakdown

JITTERS = (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10)
"""Multiples of the largest diagonal entry that are tried in turn; past the last one the matrix is refused."""

COLUMNS = 128
"""Columns of a triangle that are read at once."""


@dataclass(frozen=True)
class Cholesky:
    """A lower Cholesky factor of a symmetric matrix."""

    factor: Floats
    """L with A + jitter·I = LLᵀ, shape (m, m), Fortran order; above the diagonal it holds no information."""
    jitter: float
    """The amount added to the diagonal, zero if none was needed."""
    norm: float
    """‖A + jitter·I‖ in the 1-norm."""

    @property
    def condition(self) -> float:
        """LAPACK's estimate of the condition number in the 1-norm, to three digits; O(m²)."""
        if not len(self.factor):
            return 1.0
        reciprocal, info = lapack.dpocon(self.factor, self.norm, uplo="L")
        check_info("dpocon", info)
        return _three_digits(1.0 / reciprocal) if reciprocal > 0 else math.inf

    def condition_of(self, inverse: Floats) -> float:
        """Return the condition number in the 1-norm, to three digits, given the lower triangle of A⁻¹; O(m²)."""
        condition = self.norm * unlocked_lapack.one_norm(inverse)
        return _three_digits(condition) if math.isfinite(condition) else math.inf

    def solve(self, right: Floats) -> Floats:
        """Return A⁻¹ right, shape of `right`; O(m²) per column."""
        if not len(self.factor):
            return np.zeros_like(right)
        solution = np.array(right.reshape(len(right), -1), order="F")
        check_info("dpotrs", unlocked_lapack.solve(self.factor, solution))
        return solution.reshape(right.shape)

    def inverse(self) -> Floats:
        """Return A⁻¹ in the lower triangle of a Fortran-ordered (m, m) matrix; O(m³)."""
        if not len(self.factor):
            return self.factor
        inverse = self.factor.copy(order="F")
        check_info("dpotri", unlocked_lapack.invert(inverse))
        return inverse


def cholesky(matrix: Floats, name: str, *, overwrite: bool = False) -> Cholesky:
    """Factorize the symmetric positive definite `matrix` (m, m), read from its lower triangle; O(m³/3).

    With `overwrite`, the factor is in the memory of the matrix, which has C order; its lower triangle stays. Raises
    NumericalBreakdown, with `name` and a remedy, if a jitter of 10⁻¹⁰ of the largest entry does not suffice.
    """
    if not len(matrix):
        return Cholesky(np.empty((0, 0)), 0.0, 1.0)

    def copied() -> Floats:
        return mirror(matrix) if overwrite else np.array(matrix, order="F")

    attempt, diagonal = copied(), np.diagonal(matrix).copy()
    norm = unlocked_lapack.one_norm(attempt)
    if not math.isfinite(norm):
        check_kernel_sums(np.tril(matrix), name)
    for jitter in (relative * float(diagonal.max()) for relative in JITTERS):
        np.fill_diagonal(attempt, diagonal + jitter)
        if unlocked_lapack.factorize(attempt) == 0:
            return Cholesky(attempt, jitter, norm + jitter)
        attempt = copied()
    raise NumericalBreakdown(
        f"the {name} ({len(matrix)} × {len(matrix)}) is not positive definite within rounding, even with "
        f"{JITTERS[-1]:g} of its largest entry added to the diagonal; raise novelty_threshold or regularization"
    )


def symmetric(lower: Floats) -> Floats:
    """Return the full symmetric matrix, C order, whose lower triangle is given."""
    return np.ascontiguousarray(np.tril(lower) + np.tril(lower, -1).T)


def mirror(lower: Floats) -> Floats:
    """Return the full symmetric matrix, C order, of the lower triangle of a Fortran-ordered one, in its own memory."""
    for start in range(0, len(lower), COLUMNS):
        stop = min(start + COLUMNS, len(lower))
        lower[start:stop, start:stop] = symmetric(lower[start:stop, start:stop])
        lower[start:stop, stop:] = lower[stop:, start:stop].T
    return lower.T


def pack(symmetric: Floats) -> Floats:
    """Return one triangle of a symmetric matrix (n, n), n(n + 1)/2 numbers; its upper triangle is read."""
    packed, info = lapack.dtrttp(symmetric.T, uplo="L") if len(symmetric) else (np.empty(0), 0)
    check_info("dtrttp", info)
    return np.asarray(packed)


def unpack(packed: Floats, *, whole: bool = True) -> Floats:
    """Return the symmetric matrix, C order, of which `pack` returned a triangle; unless `whole`, its upper triangle."""
    n = _packed_size(packed)
    lower, info = lapack.dtpttr(n, packed, uplo="L") if n else (np.empty((0, 0)), 0)
    check_info("dtpttr", info)
    lower = np.asfortranarray(lower)
    return mirror(lower) if whole else lower.T


def first_packed(packed: Floats, size: int) -> Floats:
    """Return what `pack` returns of the matrix's first `size` rows and columns; O(size²)."""
    n = _packed_size(packed)
    starts = (row * n - row * (row - 1) // 2 for row in range(size))
    return np.concatenate([packed[:0], *(packed[start : start + size - row] for row, start in enumerate(starts))])


def _packed_size(packed: Floats) -> int:
    return (math.isqrt(8 * len(packed) + 1) - 1) // 2


def check_kernel_sums(values: Floats, name: str) -> None:
    """Raise NumericalBreakdown, with `name` and a remedy, unless these kernel values, or sums of them, are finite."""
    if not np.isfinite(values).all():
        shape = " × ".join(map(str, values.shape))
        raise NumericalBreakdown(f"the {name} ({shape}) holds a value that is not finite: {TOO_LARGE}")


def check_info(routine: str, info: int) -> None:
    """Raise NumericalBreakdown unless LAPACK's `info` is zero."""
    if info:
        raise NumericalBreakdown(f"LAPACK's {routine} failed with info = {info}")


def _three_digits(condition: float) -> float:
    """Return the number without the digits that depend on the address of LAPACK's workspace."""
    return float(f"{condition:.3g}")
