"""The rank-two update that a swap makes to an inverse, and to the Cholesky factor of the rows not yet scanned.

Adding a basis vector adds an outer product to an inverse, deleting one subtracts an outer product: equations (12), (15)
and (17), and (18) with its minus sign. A swap does both in one pass and gives the new vector the index of the old one.
The rows not yet scanned have L of LLᵀ = I + C and what was solved against it: there, too, an outer product is added and
one is subtracted, row after row, by a plane rotation and a hyperbolic rotation.
"""

import math
from typing import NamedTuple

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.compiled.jit import compiled_inline, compiled_part
from ridgestream.pipeline.online.compiled.vector_loops import add_multiple, add_two


class RankTwo(NamedTuple):
    """The update S + ttᵀ − uuᵀ of an inverse S whose row and column `index` have been set to zero."""

    t: Floats
    """The new vector's column over the square root of its pivot, (m,)."""
    u: Floats
    """Column `index` after growing over the square root of its diagonal entry, (m,)."""
    tilt: float
    """The entry `index` of t before the new vector took that index."""
    root: float
    """The square root of the diagonal entry at `index` after growing."""


@compiled_part
def rank_two_update(index: int, border: Floats, pivot: float, column: Floats) -> RankTwo:
    """Return the update for a new vector with this border and pivot; `column` is column `index` of S; both (m,)."""
    m = len(border)
    t, u = np.empty(m), np.empty(m)
    up = 1.0 / math.sqrt(pivot)
    tilt = -up * border[index]
    root = math.sqrt(column[index] + tilt * tilt)
    for i in range(m):
        t[i] = -up * border[i]
        u[i] = (column[i] + tilt * t[i]) / root
    t[index], u[index] = up, tilt * up / root
    return RankTwo(t, u, tilt, root)


@compiled_part
def update_inverse(inverse: Floats, index: int, update: RankTwo) -> None:
    """Update the upper triangle of S in place; O(m²)."""
    t, u = update.t, update.u
    for i in range(len(t)):
        inverse[min(i, index), max(i, index)] = 0.0
    for c in range(len(t)):
        add_two(inverse[c, c:], t[c], t[c:], u[c], u[c:])


@compiled_part
def update_columns(columns: Floats, tracked: Integers, index: int, update: RankTwo) -> None:
    """Update the columns `tracked` of S, stored as rows (tracked, m), in place; O(tracked · m)."""
    t, u = update.t, update.u
    for n in range(len(columns)):
        i = tracked[n]
        columns[n, index] = 0.0
        if i == index:
            columns[n] = 0.0
        add_two(columns[n], t[i], t, u[i], u)


@compiled_part
def update_rows(rows: Floats, columns: Integers, index: int, first: Floats, second: Floats, update: RankTwo) -> None:
    """Rows += first tᵀ − second uᵀ in these columns, in place; rows of a product with S; O(rows · columns)."""
    t, u, position = np.empty(len(columns)), np.empty(len(columns)), -1
    for n in range(len(columns)):
        t[n], u[n] = update.t[columns[n]], update.u[columns[n]]
        if columns[n] == index:
            position = n
    for j in range(len(rows)):
        if position >= 0:
            rows[j, position] = 0.0
        add_two(rows[j], first[j], t, second[j], u)


@compiled_part
def update_diagonal(diagonal: Floats, index: int, update: RankTwo) -> None:
    """Update the diagonal of S in place; O(m)."""
    diagonal[index] = 0.0
    for i in range(len(diagonal)):
        diagonal[i] += update.t[i] * update.t[i] - update.u[i] * update.u[i]


@compiled_inline
def rotate(x: Floats, t: Floats, u: Floats, cosine: float, sine: float, slope: float) -> None:
    """Rotate x and t, then x and u by a hyperbolic rotation of tangent `slope`, in place."""
    root = math.sqrt(1.0 - slope * slope)
    scale = 1.0 / root
    for i in range(len(x)):
        turned = cosine * x[i] + sine * t[i]
        t[i] = cosine * t[i] - sine * x[i]
        x[i] = (turned - slope * u[i]) * scale
        u[i] = root * u[i] - slope * x[i]


class Outer(NamedTuple):
    """The outer products that a swap adds to the rows not yet scanned; `update_factor` overwrites them."""

    g: Floats
    """LLᵀ += ggᵀ − ooᵀ, (rows,)."""
    o: Floats
    """See `g`."""
    normal: RankTwo
    """LW̃ += gtᵀ − ouᵀ."""
    up: Floats
    """Lϱ̃ += g·up − o·down, (c,)."""
    down: Floats
    """See `up`."""


@compiled_part
def update_factor(factor: Floats, directions: Floats, steps: Floats, start: int, limit: int, outer: Outer) -> int:
    """Update L, W̃ and ϱ̃ of the rows from `start` to `limit` in place; O(rows · m).

    Returns the first row at which LLᵀ would no longer be positive definite, `limit` if there is none.
    """
    g, o = outer.g, outer.o
    for n in range(limit - start):
        r = start + n
        length = math.sqrt(factor[r, r] * factor[r, r] + g[n] * g[n])
        cosine, sine, slope = factor[r, r] / length, g[n] / length, o[n] / length
        if not slope * slope < 1.0:
            return r
        rotate(factor[r, r:limit], g[n:], o[n:], cosine, sine, slope)
        rotate(directions[r], outer.normal.t, outer.normal.u, cosine, sine, slope)
        rotate(steps[r], outer.up, outer.down, cosine, sine, slope)
    return limit


@compiled_part
def product_entries(factor: Floats, directions: Floats, start: int, limit: int, index: int) -> Floats:
    """Return entry `index` of √w Kb P⁻¹ = LW̃ for the rows from `start` to `limit`."""
    entries = np.zeros(limit - start)
    for n in range(limit - start):
        add_multiple(entries[n:], directions[start + n, index], factor[start + n, start + n : limit])
    return entries
