"""Bounds that show for most rows, without K⁻¹k, that they replace no vector of a full dictionary.

Index i can be swapped out by a row only if

    δ φ²/Δ q_i + 2w (ϱ·β_i)(a_i + wδ/Δ (P⁻¹k)_i) > ‖β_i‖²(wδ + γΔ),     φ = w‖ϱ‖, q_i = (P⁻¹)_ii,

with β and q after the row. This is linear in δ, and δ lies between the novelty threshold and δ_T, the novelty to a few
basis vectors T alone, so both ends are tested. a_i = (K⁻¹k)_i is known for the weakest vectors, the tracked ones; for
any other |a_i|² ≤ (K⁻¹)_ii δ_T if i is not in T. T is the nearest basis vector first, then the nearest eight; K⁻¹k is
computed only for a row that neither rules out.
"""

import math
from typing import NamedTuple

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.compiled.arrays import Model, Neighbours, Rows, StripRules, Tracking
from ridgestream.pipeline.online.compiled.jit import compiled_inline, compiled_part
from ridgestream.pipeline.online.compiled.vector_loops import copy

NEIGHBOURS = 8
"""Basis vectors that a row is projected on before K⁻¹k is computed."""

_STRETCH = 32
"""Basis vectors that are compared together in the search for the nearest."""

_ROUNDING = 1e-7
"""Bounds are widened by this share, which is more than their rounding error; a novelty by this share of k*."""


@compiled_part
def gather_columns(gram_inverse: Floats, tracking: Tracking) -> None:
    """Fill `tracking.columns` from the upper triangle of K⁻¹."""
    tracked, columns = tracking.tracked, tracking.columns
    for i in range(len(gram_inverse)):
        for n in range(len(columns)):
            if i < tracked[n]:
                columns[n, i] = gram_inverse[i, tracked[n]]
    for n in range(len(columns)):
        copy(gram_inverse[tracked[n], tracked[n] :], columns[n, tracked[n] :])


@compiled_part
def measure_reach(gram_diagonal: Floats, tracking: Tracking) -> None:
    """Recompute `tracking.reach` from (K⁻¹)_ii."""
    for i in range(len(tracking.reach)):
        tracking.reach[i] = (1.0 + _ROUNDING) * math.sqrt(gram_diagonal[i])
    for n in range(len(tracking.tracked)):
        tracking.reach[tracking.tracked[n]] = 0.0


class Swapper(NamedTuple):
    """A row, just absorbed, that may replace a basis vector: the terms of the bound."""

    low: float
    """The least novelty with which it could be taken."""
    lead: float
    """φ²/Δ."""
    tilt: float
    """2w(w/Δ)^½."""
    weight: float
    """w."""
    ridge: float
    """γΔ."""
    direction: Floats
    """W̃, (m,)."""
    a: Floats
    """K⁻¹k of the tracked vectors."""
    cross: Floats
    """ϱ·β_i, (m,)."""
    norms: Floats
    """‖β_i‖² less its possible rounding error, (m,)."""
    q: Floats
    """(P⁻¹)_ii, (m,)."""


def make_neighbours(n_basis: int) -> Neighbours:
    """Return scratch memory for rows against `n_basis` vectors."""
    near = min(NEIGHBOURS, n_basis)
    indices, shares = np.zeros(max(near, 2), dtype=np.int64), np.zeros(max(near, 2))
    return Neighbours(indices, shares, np.zeros(near), np.zeros((near, near)), np.empty(n_basis), np.empty(n_basis))


@compiled_part
def nearest(kernel: Floats, diagonal: Floats, size: int, indices: Integers, shares: Floats) -> int:
    """Fill `indices` with the `size` vectors nearest to a row, by k_n²/k_nn in `shares`; return how many there are.

    The nearest comes first. Most stretches hold none nearer than those found before, which takes no branch to detect.
    """
    n_nearest, least = 0, 0.0
    for n in range(size):
        shares[n] = 0.0
    for start in range(0, len(kernel), _STRETCH):
        stop, nearer = min(start + _STRETCH, len(kernel)), 0
        for i in range(start, stop):
            nearer += 1 if kernel[i] * kernel[i] > least * diagonal[i] else 0
        for i in range(start, stop if nearer > 0 else start):
            share = kernel[i] * kernel[i] / diagonal[i]
            if share > least:
                position = min(n_nearest, size - 1)
                while position > 0 and shares[position - 1] < share:
                    shares[position], indices[position] = shares[position - 1], indices[position - 1]
                    position -= 1
                shares[position], indices[position] = share, i
                n_nearest = min(n_nearest + 1, size)
                least = shares[size - 1] if n_nearest == size else 0.0
    return n_nearest


@compiled_part
def project(kernel: Floats, self_kernel: float, gram: Floats, n_nearest: int, neighbours: Neighbours) -> float:
    """Return the novelty δ_T of a row to the first `n_nearest` neighbours alone; fill `neighbours.apart`; O(found³).

    `neighbours.apart` is the novelty to all of them but each: δ_T + a_i²/(K_T⁻¹)_ii with a_T = K_T⁻¹k, by the
    Cholesky factor of K_T. A vector in the span of those before it is skipped, and its `apart` is δ_T. The possible
    rounding error is added to the novelties. gram: K, upper triangle.
    """
    indices, apart, L = neighbours.indices, neighbours.apart, neighbours.L
    v, a = np.zeros(n_nearest), np.zeros(n_nearest)
    novelty = self_kernel
    for r in range(n_nearest):
        i = indices[r]
        v[r] = kernel[i]
        pivot = gram[i, i]
        for c in range(r):
            n = indices[c]
            value = gram[min(i, n), max(i, n)]
            for b in range(c):
                value -= L[r, b] * L[c, b]
            L[r, c] = value / L[c, c]
            pivot -= L[r, c] * L[r, c]
            v[r] -= L[r, c] * v[c]
        spanned = not pivot > 1e-8 * gram[i, i]
        if spanned:
            for c in range(r):
                L[r, c] = 0.0
        L[r, r] = 1.0 if spanned else math.sqrt(pivot)
        v[r] = 0.0 if spanned else v[r] / L[r, r]
        novelty -= v[r] * v[r]
    for r in range(n_nearest):
        column_size = 0.0
        a[r] = 1.0 / L[r, r]
        total = a[r] * v[r]
        column_size = a[r] * a[r]
        for b in range(r + 1, n_nearest):
            value = 0.0
            for c in range(r, b):
                value -= L[b, c] * a[c]
            a[b] = value / L[b, b]
            total += a[b] * v[b]
            column_size += a[b] * a[b]
        apart[r] = max(novelty, 0.0) + total * total / column_size + _ROUNDING * self_kernel
    return max(novelty, 0.0) + _ROUNDING * self_kernel


@compiled_inline
def weigh(beta: Floats, innovation: Floats, neighbours: Neighbours) -> None:
    """Compute ϱ·β_i and ‖β_i‖² for every basis vector."""
    cross, norms, first, rho = neighbours.cross, neighbours.norms, beta[0], innovation[0]
    for i in range(len(cross)):
        cross[i] = rho * first[i]
        norms[i] = (1.0 - _ROUNDING) * first[i] * first[i]
    for c in range(1, len(beta)):
        for i in range(len(cross)):
            cross[i] += innovation[c] * beta[c, i]
            norms[i] += (1.0 - _ROUNDING) * beta[c, i] * beta[c, i]


@compiled_inline
def count_hits(row: Swapper, high: float, far: float, reach: Floats) -> int:
    """Count the basis vectors for which the bound, with |a_i| ≤ reach_i·far, does not rule a swap out."""
    direction, cross, norms, q = row.direction, row.cross, row.norms, row.q
    lead, tilt, weight, ridge, low, hits = row.lead, row.tilt, row.weight, row.ridge, row.low, 0
    for i in range(len(q)):
        slope = lead * q[i] + tilt * cross[i] * direction[i] - weight * norms[i]
        rest = far * abs(cross[i]) * reach[i] - norms[i] * ridge
        hits += 1 if low * slope + rest > 0.0 or high * slope + rest > 0.0 else 0
    return hits


@compiled_inline
def may_leave(row: Swapper, i: int, a_i: float, high: float) -> bool:
    """Whether basis vector i may be replaced, with (ϱ·β_i)a_i at most `a_i`."""
    slope = row.lead * row.q[i] + row.tilt * row.cross[i] * row.direction[i] - row.weight * row.norms[i]
    return bool(max(row.low * slope, high * slope) + 2.0 * row.weight * a_i > row.norms[i] * row.ridge)


@compiled_inline
def count_weaker(row: Swapper, novelty: float) -> int:
    """Count the basis vectors that may be weaker than the row, `row.a` being K⁻¹k of them all."""
    hits = 0
    for i in range(len(row.q)):
        hits += may_leave(row, i, row.cross[i] * row.a[i], novelty)
    return hits


@compiled_part
def may_swap(
    row: Swapper, high: float, n_nearest: int, neighbours: Neighbours, tracked: Integers, reach: Floats
) -> bool:
    """Return whether the row may replace a basis vector; O(n_basis).

    `high` is its novelty to the first `n_nearest` neighbours alone.
    """
    far = 2.0 * row.weight * math.sqrt(high)
    hits = count_hits(row, high, far, reach)
    for n in range(len(tracked)):
        i = tracked[n]
        hits += may_leave(row, i, row.cross[i] * row.a[n], high)
    for n in range(n_nearest):
        i = neighbours.indices[n]
        hits += may_leave(row, i, abs(row.cross[i]) * reach[i] * math.sqrt(neighbours.apart[n]), high)
    return bool(hits > 0)


@compiled_part
def is_ruled_out(j: int, phi: float, rows: Rows, model: Model, rules: StripRules, neighbours: Neighbours) -> bool:
    """Whether bounds show that row j, with φ² = `phi`, does not change the dictionary; O(n_basis)."""
    inverses, tracking, gram = model.inverses, model.tracking, model.information.gram
    w, pivot, k, self_kernel = rows.weights[j], rows.pivots[j], rows.kernel[j], rows.self_kernel[j]
    n_nearest = nearest(k, tracking.self_kernel, 2, neighbours.indices, neighbours.shares)
    low, high, ridge = rows.least_novelty[j], self_kernel - neighbours.shares[0], rules.penalty * pivot
    if not high > low:
        return True
    if phi * high * high <= (1.0 - _ROUNDING) * rules.least_usefulness * pivot * (w * high + ridge):
        return True
    weigh(inverses.beta, rows.innovations[j], neighbours)
    tilt, q = 2.0 * w * math.sqrt(w / pivot), inverses.diagonal
    row = Swapper(
        low=low,
        lead=phi / pivot,
        tilt=tilt,
        weight=w,
        ridge=ridge,
        direction=rows.directions[j],
        a=rows.A[j],
        cross=neighbours.cross,
        norms=neighbours.norms,
        q=q,
    )
    neighbours.apart[0] = self_kernel - neighbours.shares[1]
    if not may_swap(row, high, min(n_nearest, 1), neighbours, tracking.tracked, tracking.reach):
        return True
    n_nearest = nearest(k, tracking.self_kernel, len(neighbours.apart), neighbours.indices, neighbours.shares)
    high = project(k, self_kernel, gram, n_nearest, neighbours)
    return not (high > low and may_swap(row, high, n_nearest, neighbours, tracking.tracked, tracking.reach))
