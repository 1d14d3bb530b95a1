"""A basis vector gives way to another, compiled: what that does to two inverses and to the rows still to come.

Growing adds an outer product to an inverse, deleting takes one away: equations (12), (15) and (17), and (18) with its
minus sign. Both are done in one pass, and the new vector gets the place of the old. The rows to come keep L of
LLᵀ = I + C, and what is solved against it: there, too, an outer product is added and one is taken away, row after row
by a rotation and a hyperbolic one.
"""

import math
from typing import NamedTuple

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.compiled.jit import compiled_inline, compiled_part
from ridgestream.pipeline.online.compiled.vector_loops import add_multiple, add_two


class Exchange(NamedTuple):
    """What an inverse S becomes: S + ttᵀ − uuᵀ, once row and column `index` of S are cleared."""

    t: Floats
    """The new vector's column over the square root of its pivot, (m,)."""
    u: Floats
    """Column `index` after growing over the square root of its diagonal entry, (m,)."""
    tilt: float
    """What t was at `index` before the new vector took that place."""
    root: float
    """The square root of the diagonal entry at `index` after growing."""


@compiled_part
def make_exchange(index: int, grown: Floats, pivot: float, column: Floats) -> Exchange:
    """Return it for a new vector whose column is `grown`, but for its −1; `column`: S's at `index`; both (m,)."""
    m = len(grown)
    t, u = np.empty(m), np.empty(m)
    up = 1.0 / math.sqrt(pivot)
    tilt = -up * grown[index]
    root = math.sqrt(column[index] + tilt * tilt)
    for i in range(m):
        t[i] = -up * grown[i]
        u[i] = (column[i] + tilt * t[i]) / root
    t[index], u[index] = up, tilt * up / root
    return Exchange(t, u, tilt, root)


@compiled_part
def exchange_inverse(inverse: Floats, index: int, exchange: Exchange) -> None:
    """S += ttᵀ − uuᵀ with row and column `index` for the new vector, upper triangle, in place; O(m²)."""
    t, u = exchange.t, exchange.u
    for i in range(len(t)):
        inverse[min(i, index), max(i, index)] = 0.0
    for c in range(len(t)):
        add_two(inverse[c, c:], t[c], t[c:], u[c], u[c:])


@compiled_part
def exchange_columns(columns: Floats, tracked: Integers, index: int, exchange: Exchange) -> None:
    """Do to some columns of S, kept as rows, what happens to S, in place; O(columns · m)."""
    t, u = exchange.t, exchange.u
    for n in range(len(columns)):
        i = tracked[n]
        columns[n, index] = 0.0
        if i == index:
            columns[n] = 0.0
        add_two(columns[n], t[i], t, u[i], u)


@compiled_part
def exchange_rows(
    rows: Floats, columns: Integers, index: int, first: Floats, second: Floats, exchange: Exchange
) -> None:
    """Rows += first tᵀ − second uᵀ, rows of something times S in its `columns`, in place; O(rows · columns)."""
    t, u, place = np.empty(len(columns)), np.empty(len(columns)), -1
    for n in range(len(columns)):
        t[n], u[n] = exchange.t[columns[n]], exchange.u[columns[n]]
        if columns[n] == index:
            place = n
    for j in range(len(rows)):
        if place >= 0:
            rows[j, place] = 0.0
        add_two(rows[j], first[j], t, second[j], u)


@compiled_part
def exchange_diagonal(diagonal: Floats, index: int, exchange: Exchange) -> None:
    """Do to the diagonal of S what happens to S, in place; O(m)."""
    diagonal[index] = 0.0
    for i in range(len(diagonal)):
        diagonal[i] += exchange.t[i] * exchange.t[i] - exchange.u[i] * exchange.u[i]


@compiled_inline
def rotate(x: Floats, t: Floats, u: Floats, cosine: float, sine: float, slope: float) -> None:
    """Turn x and t by an angle, then x and u by a hyperbolic one, of tangent `slope`, in place."""
    root = math.sqrt(1.0 - slope * slope)
    scale = 1.0 / root
    for i in range(len(x)):
        turned = cosine * x[i] + sine * t[i]
        t[i] = cosine * t[i] - sine * x[i]
        x[i] = (turned - slope * u[i]) * scale
        u[i] = root * u[i] - slope * x[i]


@compiled_part
def exchange_swept(
    factor: Floats,
    swept: Floats,
    steps: Floats,
    start: int,
    limit: int,
    g: Floats,
    o: Floats,
    exchange: Exchange,
    up: Floats,
    down: Floats,
) -> int:
    """LLᵀ += ggᵀ − ooᵀ, LW̃ += gtᵀ − ouᵀ and Lϱ̃ += g·up − o·down for the rows from `start` to `limit`; O(rows · m).

    Spoils g, o, t, u, up and down. Returns where LLᵀ would not stay positive definite, `limit` if nowhere.
    """
    for n in range(limit - start):
        r = start + n
        length = math.sqrt(factor[r, r] * factor[r, r] + g[n] * g[n])
        cosine, sine, slope = factor[r, r] / length, g[n] / length, o[n] / length
        if not slope * slope < 1.0:
            return r
        rotate(factor[r, r:limit], g[n:], o[n:], cosine, sine, slope)
        rotate(swept[r], exchange.t, exchange.u, cosine, sine, slope)
        rotate(steps[r], up, down, cosine, sine, slope)
    return limit


@compiled_part
def entries_of(factor: Floats, swept: Floats, start: int, limit: int, index: int) -> Floats:
    """Return entry `index` of √w Kb P⁻¹ = LW̃ for the rows from `start` to `limit`."""
    entries = np.zeros(limit - start)
    for n in range(limit - start):
        add_multiple(entries[n:], swept[start + n, index], factor[start + n, start + n : limit])
    return entries
