"""BLAS and LAPACK in compiled code: scipy's own routines, called by their addresses.

Numba's `np.dot` has neither symmetric products nor triangular solves, and machine code with a function pointer in a
global cannot be cached, so the addresses are arguments. Rows are C-ordered (n, m) arrays, which Fortran reads as
(m, n); symmetric matrices are in the upper triangle of C-ordered arrays, which is Fortran's lower.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import get_cython_function_address, intrinsic

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.compiled.jit import compiled_part

_ROUTINES = {"cython_blas": ("dsymm", "dsyrk", "dgemm", "dtrsm", "dsymv"), "cython_lapack": ("dpotrf",)}


class Lapack(NamedTuple):
    """Addresses of the routines and memory for their arguments, since Fortran takes everything by reference."""

    addresses: Integers
    """Addresses of dsymm, dsyrk, dgemm, dtrsm, dsymv and dpotrf."""
    letters: npt.NDArray[np.uint8]
    """The letters L, N, R, T."""
    integers: npt.NDArray[np.int32]
    """Sizes, leading dimensions and the `info` of the current call."""
    reals: Floats
    """Scalar factors of the current call."""


def make_lapack() -> Lapack:
    """Return the routines with memory for the arguments of one call at a time: threads must not share it."""
    letters = np.frombuffer(b"LNRT", dtype=np.uint8).copy()
    return Lapack(_find_addresses(), letters, np.zeros(8, dtype=np.int32), np.zeros(4))


@functools.cache
def _find_addresses() -> Integers:
    addresses = [
        get_cython_function_address(f"scipy.linalg.{module}", name)
        for module, names in _ROUTINES.items()
        for name in names
    ]
    return np.array(addresses, dtype=np.int64)


def _make_call(typing_context: Any, address: Any, arguments: Any) -> Any:  # noqa: ANN401, ARG001
    """Generate a call of the routine at an address with a tuple of pointers."""

    def generate(context: Any, builder: Any, _: Any, values: Any) -> Any:  # noqa: ANN401
        pointers = [builder.extract_value(values[1], i) for i in range(arguments.count)]
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * arguments.count)
        builder.call(builder.inttoptr(values[0], kind.as_pointer()), pointers)
        return context.get_dummy_value()

    return types.void(address, arguments), generate


_call: Callable[[int, tuple[int, ...]], None] = cast("Any", intrinsic(_make_call))


@compiled_part
def times_symmetric(lapack: Lapack, S: Floats, rows: Floats, out: Floats) -> None:
    """Compute out = rows S for rows (n, m)."""
    letter, size, real = lapack.letters.ctypes.data, lapack.integers.ctypes.data, lapack.reals.ctypes.data
    n, m = rows.shape
    lapack.integers[0], lapack.integers[1] = m, n
    lapack.reals[0], lapack.reals[1] = 1.0, 0.0
    s, b, c = S.ctypes.data, rows.ctypes.data, out.ctypes.data
    _call(lapack.addresses[0], (letter, letter, size, size + 4, real, s, size, b, size, real + 8, c, size))


@compiled_part
def add_products(lapack: Lapack, factor: float, rows: Floats, S: Floats) -> None:
    """Add factor · rowsᵀ rows to S for rows (n, m)."""
    letter, size, real = lapack.letters.ctypes.data, lapack.integers.ctypes.data, lapack.reals.ctypes.data
    n, m = rows.shape
    if n == 0:
        return
    lapack.integers[0], lapack.integers[1] = m, n
    lapack.reals[0], lapack.reals[1] = factor, 1.0
    a, c = rows.ctypes.data, S.ctypes.data
    _call(lapack.addresses[1], (letter, letter + 1, size, size + 4, real, a, size, real + 8, c, size))


@compiled_part
def cross_products(lapack: Lapack, left: Floats, right: Floats, out: Floats, first: int) -> None:
    """Compute out[:p, first:first + q] = left rightᵀ for rows (p, m) and (q, m)."""
    letter, size, real = lapack.letters.ctypes.data, lapack.integers.ctypes.data, lapack.reals.ctypes.data
    lapack.integers[0], lapack.integers[1], lapack.integers[2] = len(right), len(left), left.shape[1]
    lapack.integers[3] = out.shape[1]
    lapack.reals[0], lapack.reals[1] = 1.0, 0.0
    a, b, c = right.ctypes.data, left.ctypes.data, out.ctypes.data + 8 * first
    t, n = letter + 3, letter + 1
    _call(lapack.addresses[2], (t, n, size, size + 4, size + 8, real, a, size + 8, b, size + 8, real + 8, c, size + 12))


@compiled_part
def factorize(lapack: Lapack, n: int, C: Floats) -> int:
    """Replace the upper triangle of the leading n × n part of C by its Cholesky factor Lᵀ; return LAPACK's info."""
    letter, size = lapack.letters.ctypes.data, lapack.integers.ctypes.data
    lapack.integers[0], lapack.integers[1], lapack.integers[2] = n, C.shape[1], 0
    _call(lapack.addresses[5], (letter, size, C.ctypes.data, size + 4, size + 8))
    return int(lapack.integers[2])


@compiled_part
def solve_lower(lapack: Lapack, factor: Floats, rows: Floats) -> None:
    """Replace rows (n, m) by L⁻¹ rows, L from `factorize`."""
    letter, size, real = lapack.letters.ctypes.data, lapack.integers.ctypes.data, lapack.reals.ctypes.data
    n, m = rows.shape
    lapack.integers[0], lapack.integers[1], lapack.integers[2] = m, n, factor.shape[1]
    lapack.reals[0] = 1.0
    right, lower, t, no = letter + 2, letter, letter + 3, letter + 1
    a, b = factor.ctypes.data, rows.ctypes.data
    _call(lapack.addresses[3], (right, lower, t, no, size, size + 4, real, a, size + 8, b, size))


@compiled_part
def times_vector(lapack: Lapack, S: Floats, x: Floats, out: Floats) -> None:
    """Compute out = S x."""
    letter, size, real = lapack.letters.ctypes.data, lapack.integers.ctypes.data, lapack.reals.ctypes.data
    lapack.integers[0], lapack.integers[1] = len(x), 1
    lapack.reals[0], lapack.reals[1] = 1.0, 0.0
    a, b, c = S.ctypes.data, x.ctypes.data, out.ctypes.data
    _call(lapack.addresses[4], (letter, size, real, a, size, b, size + 4, real + 8, c, size + 4))
