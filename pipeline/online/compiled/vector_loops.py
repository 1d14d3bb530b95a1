"""Loops over vectors, compiled."""

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.online.compiled.jit import compiled_inline


@compiled_inline
def dot(x: Floats, y: Floats) -> float:
    """Return xᵀy."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@compiled_inline
def copy(source: Floats, target: Floats) -> None:
    """Copy source to target."""
    for i in range(len(source)):
        target[i] = source[i]


@compiled_inline
def add_multiple(target: Floats, factor: float, x: Floats) -> None:
    """Add factor·x to target."""
    for i in range(len(target)):
        target[i] += factor * x[i]


@compiled_inline
def add_two(column: Floats, first: float, g: Floats, second: float, u: Floats) -> None:
    """Column += first·g − second·u."""
    for i in range(len(column)):
        column[i] += first * g[i] - second * u[i]


@compiled_inline
def add_squares(total: Floats, x: Floats) -> None:
    """Add x² to total."""
    for i in range(len(total)):
        total[i] += x[i] * x[i]


@compiled_inline
def squared_distance(x: Floats, y: Floats) -> float:
    """Return ‖x − y‖²."""
    total = 0.0
    for f in range(len(x)):
        total += (x[f] - y[f]) * (x[f] - y[f])
    return total
