"""SciPy's BLAS and LAPACK, called so that other threads of this process run meanwhile.

`scipy.linalg.blas` and `scipy.linalg.lapack` hold Python's lock until they return. These are the same routines, with
the same bits, at the addresses that SciPy publishes for Cython. Matrices are float64 in Fortran order, and symmetric
ones are read from their lower triangle, and written there.
"""

import ctypes
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
from scipy.linalg import cython_blas, cython_lapack

from ridgestream.pipeline.base.array_checks import Floats

_LOWER, _NOT_TRANSPOSED, _ONE = b"L", b"N", b"1"


def _routine(module: ModuleType, name: str, n_arguments: int, result: Any = None) -> Callable[..., Any]:  # noqa: ANN401
    """Return a routine of one of SciPy's Cython modules: all of its arguments are addresses."""
    capsule, api = module.__pyx_capi__[name], ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    prototype = ctypes.CFUNCTYPE(result, *[ctypes.c_void_p] * n_arguments)
    routine: Callable[..., Any] = prototype(address_of(capsule, name_of(capsule)))
    return routine


_dsyrk = _routine(cython_blas, "dsyrk", 10)
_dpotrf = _routine(cython_lapack, "dpotrf", 5)
_dpotri = _routine(cython_lapack, "dpotri", 5)
_dpotrs = _routine(cython_lapack, "dpotrs", 8)
_dlansy = _routine(cython_lapack, "dlansy", 6, ctypes.c_double)


def add_products(rows: Floats, sums: Floats) -> None:
    """Add Σ xxᵀ over rows (n_rows, n) to the lower triangle of `sums` (n, n); O(n²) a row."""
    n_rows, n = rows.shape
    if rows.size:
        rows, one, size = np.ascontiguousarray(rows), ctypes.c_double(1.0), ctypes.c_int(n)
        shape = ctypes.byref(size), ctypes.byref(ctypes.c_int(n_rows))
        matrices = (*_matrix(rows.T), ctypes.byref(one), *_matrix(sums))
        _dsyrk(_LOWER, _NOT_TRANSPOSED, *shape, ctypes.byref(one), *matrices)


def factorize(matrix: Floats) -> int:
    """Replace the lower triangle of a matrix (n, n) by its Cholesky factor; return LAPACK's `info`; O(n³/3)."""
    return _call(_dpotrf, len(matrix), *_matrix(matrix))


def invert(factor: Floats) -> int:
    """Replace a Cholesky factor (n, n) by the inverse of its matrix; return LAPACK's `info`; O(2n³/3)."""
    return _call(_dpotri, len(factor), *_matrix(factor))


def solve(factor: Floats, right: Floats) -> int:
    """Replace `right` (n, n_columns) by the solution for a Cholesky factor (n, n); return LAPACK's `info`."""
    columns = ctypes.byref(ctypes.c_int(right.shape[1]))
    return _call(_dpotrs, len(factor), columns, *_matrix(factor), *_matrix(right))


def one_norm(matrix: Floats) -> float:
    """Return the 1-norm of a matrix (n, n): NaN if it has any, and infinity if a sum overflows; O(n²)."""
    work, size = np.empty(len(matrix)), ctypes.byref(ctypes.c_int(len(matrix)))
    return float(_dlansy(_ONE, _LOWER, size, *_matrix(matrix), work.ctypes.data))


def _matrix(matrix: Floats) -> tuple[Any, Any]:
    """Return the arguments for a matrix: its address, and the length of its columns."""
    if not (matrix.flags.f_contiguous and matrix.dtype == np.float64):
        raise ValueError(f"a matrix of shape {matrix.shape} is not float64 in Fortran order")
    return matrix.ctypes.data, ctypes.byref(ctypes.c_int(max(len(matrix), 1)))


def _call(routine: Callable[..., Any], size: int, *arguments: object) -> int:
    """Call a routine of the lower triangle of a matrix of this size; return its `info`."""
    info = ctypes.c_int(0)
    routine(_LOWER, ctypes.byref(ctypes.c_int(size)), *arguments, ctypes.byref(info))
    return info.value
