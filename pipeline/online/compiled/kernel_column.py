"""Kernel values of many rows with one, compiled from the formulas in `ridgestream.pipeline.kernels`."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple, cast

import numpy as np
from numba.np.unsafe import ndarray

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.kernels import KERNELS, Kernel
from ridgestream.pipeline.online.compiled.jit import compiled_inline, compiled_part
from ridgestream.pipeline.online.compiled.vector_loops import dot, squared_distance

_to_tuple: Any = ndarray.to_fixed_tuple

FillColumn = Callable[[int, Floats, Floats, Floats, Floats], None]


class KernelCode(NamedTuple):
    """A kernel as compiled code takes it."""

    position: int
    """Its position in KERNELS."""
    parameters: Floats
    """Its parameters in the order of its fields."""


def encode_kernel(kernel: Kernel) -> KernelCode:
    """Return the kernel's position and parameters; raises ValueError for one that is not in KERNELS."""
    return KernelCode(
        list(KERNELS.values()).index(type(kernel)), np.array([*kernel.parameters().values()], dtype=float)
    )


def _compile_column(position: int, kernel: Any, others: FillColumn) -> FillColumn:  # noqa: ANN401
    """Return a function that fills in the values of the kernel at `position`, and leaves all else to `others`."""
    formula = compiled_inline(kernel.formula)
    measure = squared_distance if kernel.is_stationary else dot
    n_parameters = len(fields(kernel))

    @compiled_part
    def fill(code: int, parameters: Floats, X: Floats, x: Floats, values: Floats) -> None:
        if code != position:
            others(code, parameters, X, x, values)
            return
        numbers = _to_tuple(parameters, n_parameters)
        for i in range(len(X)):
            values[i] = formula(measure(X[i], x), *numbers)

    return fill


@compiled_part
def _fill_nothing(code: int, parameters: Floats, X: Floats, x: Floats, values: Floats) -> None:  # noqa: ARG001
    """No kernel is left; `encode_kernel` lets none come here."""
    values[:] = np.nan


def _compile_columns() -> FillColumn:
    fill: Any = _fill_nothing
    for position, kernel in reversed(list(enumerate(KERNELS.values()))):
        fill = _compile_column(position, kernel, fill)
    return cast("FillColumn", fill)


_fill_column = _compile_columns()


@compiled_part
def kernel_column(kernel: KernelCode, X: Floats, x: Floats) -> Floats:
    """Return k(x_i, x) for the rows x_i of X (n, d), shape (n,)."""
    values = np.empty(len(X))
    _fill_column(kernel.position, kernel.parameters, X, x, values)
    return values
