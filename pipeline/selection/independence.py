"""Linear independence of a given dictionary's rows in feature space.

A dependent row would make K singular. A pivoted Cholesky factorization of K, scaled to a unit diagonal, finds a set of
independent rows: a row is dependent if its pivot, its novelty given the rows before over k(x, x), is within rounding
(SPAN_TOLERANCE).
"""

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from ridgestream.pipeline.base.array_checks import Floats, Integers, check_rows
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.cholesky import check_kernel_sums
from ridgestream.pipeline.kernels import Kernel, gram

SPAN_TOLERANCE = 1e-10
"""A row whose novelty is below this share of k(x, x) lies in the span of the dictionary, within rounding."""


def find_independent(kernel: Kernel, rows: Floats, centre: Floats | None) -> Integers:
    """Return the positions, ascending, of a largest set of rows (rows, n_features) that are independent; O(rows³).

    Raises NumericalBreakdown if a kernel value is not finite.
    """
    lengths = kernel.diagonal(rows)
    present = np.flatnonzero(lengths > 0)
    if not len(present):
        return present.astype(np.int64)
    with one_blas_thread():
        K = gram(kernel, rows[present], centre)
        check_kernel_sums(K, "kernel matrix K of the dictionary")
        scale = np.sqrt(lengths[present])
        K /= np.outer(scale, scale)
        _, pivots, rank, _ = lapack.dpstrf(K, tol=SPAN_TOLERANCE, lower=1)
    return np.sort(present[pivots[:rank] - 1]).astype(np.int64)


def check_given(dictionary: npt.ArrayLike, max_basis: int | None) -> Floats:
    """Return the rows (n_basis, n_features); raise InputError if there is none, or there are more than `max_basis`."""
    rows = check_rows(dictionary, name="dictionary")
    if not len(rows):
        raise InputError("dictionary must have at least one row, it has none")
    if max_basis is not None and max_basis < len(rows):
        raise InputError(f"max_basis is {max_basis}, the dictionary has {len(rows)} rows: leave max_basis out")
    return rows


def check_indices(indices: npt.ArrayLike | None, dictionary: Floats | None) -> Integers | None:
    """Return the rows' numbers in the stream; raise InputError unless there is a whole one for each row."""
    if indices is None:
        return None
    numbers, n_basis = np.asarray(indices), 0 if dictionary is None else len(dictionary)
    if numbers.shape != (n_basis,) or numbers.dtype.kind not in "iu":
        raise InputError(
            f"dictionary_rows must be whole numbers, one for each of the {n_basis} rows of the dictionary, they are of "
            f"shape {numbers.shape} and type {numbers.dtype}"
        )
    return numbers.astype(np.int64)


def check_independent(kernel: Kernel, rows: Floats, centre: Floats | None) -> None:
    """Raise InputError naming the first row that duplicates another one or lies in the span of the others; O(rows³)."""
    dependent = np.setdiff1d(np.arange(len(rows)), find_independent(kernel, rows, centre))
    if not len(dependent):
        return
    row = int(dependent[0])
    equal = np.flatnonzero((rows == rows[row]).all(axis=1))
    row = int(equal[-1])
    what = f"equals row {equal[0]}" if len(equal) > 1 else "lies in the span of the others, within rounding"
    raise InputError(
        f"row {row} of the dictionary (from zero, of {len(rows)}) {what}, which would leave K singular: remove it"
    )
