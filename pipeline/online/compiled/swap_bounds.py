"""Bounds that rule most rows out: no swap at the cap, without K⁻¹k.

Index i can be swapped out by a row only if

    δ φ²/Δ q_i + 2w (ϱ·β_i)(a_i + wδ/Δ (P⁻¹k)_i) > ‖β_i‖²(wδ + γΔ),     φ = w‖ϱ‖, q_i = (P⁻¹)_ii,

with β and q after the row. This is linear in δ, and δ lies between the novelty threshold and δ_T, the novelty to a few
basis vectors T alone, so both ends are looked at. a_i = (K⁻¹k)_i is at hand for the weakest vectors, the tracked ones;
for any other |a_i|² ≤ (K⁻¹)_ii δ_T if i is not in T. T is the nearest basis vector first, then the nearest eight;
only for a row that both let pass is K⁻¹k computed.
"""

import math
from typing import NamedTuple

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.compiled.buffers import Carried, Rows, Tracking
from ridgestream.pipeline.online.compiled.jit import compiled_inline, compiled_part
from ridgestream.pipeline.online.compiled.vector_loops import copy

NEIGHBOURS = 8
"""Basis vectors that a row is projected on before K⁻¹k is computed."""

_STRETCH = 32
"""Basis vectors that are looked at together for the nearest."""

_ROUNDING = 1e-7
"""The share by which bounds are widened, more than rounding takes from them; a novelty, by this share of k*."""


@compiled_part
def gather_columns(gram_inverse: Floats, tracking: Tracking) -> None:
    """Fill in `tracking.columns` from the upper triangle of K⁻¹."""
    tracked, columns = tracking.tracked, tracking.columns
    for i in range(len(gram_inverse)):
        for n in range(len(columns)):
            if i < tracked[n]:
                columns[n, i] = gram_inverse[i, tracked[n]]
    for n in range(len(columns)):
        copy(gram_inverse[tracked[n], tracked[n] :], columns[n, tracked[n] :])


@compiled_part
def measure_reach(gram_diagonal: Floats, tracking: Tracking) -> None:
    """Fill in `tracking.reach` anew, from (K⁻¹)_ii."""
    for i in range(len(tracking.reach)):
        tracking.reach[i] = (1.0 + _ROUNDING) * math.sqrt(gram_diagonal[i])
    for n in range(len(tracking.tracked)):
        tracking.reach[tracking.tracked[n]] = 0.0


class Facing(NamedTuple):
    """A row, just absorbed, that faces the dictionary: what the bound on a swap is made of."""

    low: float
    """The least novelty with which it would be taken."""
    lead: float
    """φ²/Δ."""
    tilt: float
    """2w(w/Δ)^½."""
    weight: float
    """w."""
    ridge: float
    """γΔ."""
    swept: Floats
    """W̃, (m,)."""
    a: Floats
    """K⁻¹k of the tracked vectors."""
    cross: Floats
    """ϱ·β_i, (m,)."""
    norms: Floats
    """‖β_i‖², less what rounding may make of it, (m,)."""
    q: Floats
    """(P⁻¹)_ii, (m,)."""


class Room(NamedTuple):
    """Where the scan keeps what it finds of a row."""

    which: Integers
    """The nearest basis vectors."""
    shares: Floats
    """k_n²/k_nn of each."""
    apart: Floats
    """The row's novelty to all of them but each."""
    L: Floats
    """Cholesky's factor of their kernel matrix."""
    cross: Floats
    """See Facing."""
    norms: Floats
    """See Facing."""


@compiled_part
def make_room(n_basis: int) -> Room:
    """Return room for rows that face `n_basis` vectors."""
    near = min(NEIGHBOURS, n_basis)
    which, shares = np.zeros(max(near, 2), dtype=np.int64), np.zeros(max(near, 2))
    return Room(which, shares, np.zeros(near), np.zeros((near, near)), np.empty(n_basis), np.empty(n_basis))


@compiled_part
def nearest(kernel: Floats, diagonal: Floats, size: int, which: Integers, shares: Floats) -> int:
    """Fill in the `size` vectors nearest to a row, by k_n²/k_nn in `shares`, nearest first; return how many there are.

    Most stretches of the vectors hold none that is nearer than those found before, which is told without a branch.
    """
    found, least = 0, 0.0
    for n in range(size):
        shares[n] = 0.0
    for start in range(0, len(kernel), _STRETCH):
        stop, nearer = min(start + _STRETCH, len(kernel)), 0
        for i in range(start, stop):
            nearer += 1 if kernel[i] * kernel[i] > least * diagonal[i] else 0
        for i in range(start, stop if nearer > 0 else start):
            share = kernel[i] * kernel[i] / diagonal[i]
            if share > least:
                place = min(found, size - 1)
                while place > 0 and shares[place - 1] < share:
                    shares[place], which[place] = shares[place - 1], which[place - 1]
                    place -= 1
                shares[place], which[place] = share, i
                found = min(found + 1, size)
                least = shares[size - 1] if found == size else 0.0
    return found


@compiled_part
def project(
    kernel: Floats, self_kernel: float, gram: Floats, which: Integers, found: int, apart: Floats, L: Floats
) -> float:
    """Return the novelty δ_T of a row to the basis vectors `which` alone, and in `apart` that to all of them but one.

    By Cholesky's factor of K_T, O(len(which)³); vectors that are in the span of those before them are passed over, and
    their `apart` is δ_T. What rounding may take away is added. By (K_T⁻¹)_ii and a_T = K_T⁻¹k the novelty without i is
    δ_T + a_i²/(K_T⁻¹)_ii. gram: K, upper triangle.
    """
    v, a = np.zeros(found), np.zeros(found)
    novelty = self_kernel
    for r in range(found):
        i = which[r]
        v[r] = kernel[i]
        pivot = gram[i, i]
        for c in range(r):
            n = which[c]
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
    for r in range(found):
        column_size = 0.0
        a[r] = 1.0 / L[r, r]
        total = a[r] * v[r]
        column_size = a[r] * a[r]
        for b in range(r + 1, found):
            value = 0.0
            for c in range(r, b):
                value -= L[b, c] * a[c]
            a[b] = value / L[b, b]
            total += a[b] * v[b]
            column_size += a[b] * a[b]
        apart[r] = max(novelty, 0.0) + total * total / column_size + _ROUNDING * self_kernel
    return max(novelty, 0.0) + _ROUNDING * self_kernel


@compiled_inline
def weigh(beta: Floats, innovation: Floats, room: Room) -> None:
    """Find ϱ·β_i and ‖β_i‖² of every basis vector."""
    cross, norms, first, rho = room.cross, room.norms, beta[0], innovation[0]
    for i in range(len(cross)):
        cross[i] = rho * first[i]
        norms[i] = (1.0 - _ROUNDING) * first[i] * first[i]
    for c in range(1, len(beta)):
        for i in range(len(cross)):
            cross[i] += innovation[c] * beta[c, i]
            norms[i] += (1.0 - _ROUNDING) * beta[c, i] * beta[c, i]


@compiled_inline
def count_hits(row: Facing, high: float, far: float, reach: Floats) -> int:
    """Count the basis vectors for which the bound, with |a_i| ≤ reach_i·far, does not rule a swap out."""
    swept, cross, norms, q = row.swept, row.cross, row.norms, row.q
    lead, tilt, weight, ridge, low, hits = row.lead, row.tilt, row.weight, row.ridge, row.low, 0
    for i in range(len(q)):
        slope = lead * q[i] + tilt * cross[i] * swept[i] - weight * norms[i]
        rest = far * abs(cross[i]) * reach[i] - norms[i] * ridge
        hits += 1 if low * slope + rest > 0.0 or high * slope + rest > 0.0 else 0
    return hits


@compiled_inline
def may_leave(row: Facing, i: int, a_i: float, high: float) -> bool:
    """Tell whether basis vector i may give way, with (ϱ·β_i)a_i at most `a_i`."""
    slope = row.lead * row.q[i] + row.tilt * row.cross[i] * row.swept[i] - row.weight * row.norms[i]
    return bool(max(row.low * slope, high * slope) + 2.0 * row.weight * a_i > row.norms[i] * row.ridge)


@compiled_part
def count_weaker(row: Facing, novelty: float) -> int:
    """Count the basis vectors that may be weaker than the row, `row.a` being K⁻¹k of them all."""
    hits = 0
    for i in range(len(row.q)):
        hits += may_leave(row, i, row.cross[i] * row.a[i], novelty)
    return hits


@compiled_part
def may_swap(row: Facing, high: float, found: int, room: Room, tracked: Integers, reach: Floats) -> bool:
    """Tell whether the row may replace a basis vector; O(n_basis).

    `high` is its novelty to the first `found` of the nearest vectors alone.
    """
    far = 2.0 * row.weight * math.sqrt(high)
    hits = count_hits(row, high, far, reach)
    for n in range(len(tracked)):
        i = tracked[n]
        hits += may_leave(row, i, row.cross[i] * row.a[n], high)
    for n in range(found):
        i = room.which[n]
        hits += may_leave(row, i, abs(row.cross[i]) * reach[i] * math.sqrt(room.apart[n]), high)
    return bool(hits > 0)


@compiled_part
def is_ruled_out(
    j: int,
    rows: Rows,
    carried: Carried,
    tracking: Tracking,
    gram: Floats,
    phi: float,
    penalty: float,
    usefulness_threshold: float,
    room: Room,
) -> bool:
    """Tell whether bounds show that row j, whose φ² is `phi`, changes nothing; O(n_basis)."""
    w, pivot, k, self_kernel = rows.weights[j], rows.pivots[j], rows.kernel[j], rows.self_kernel[j]
    found = nearest(k, tracking.self_kernel, 2, room.which, room.shares)
    low, high, ridge = rows.spans[j], self_kernel - room.shares[0], penalty * pivot
    if not high > low:
        return True
    if phi * high * high <= (1.0 - _ROUNDING) * usefulness_threshold * pivot * (w * high + ridge):
        return True
    weigh(carried.beta, rows.innovations[j], room)
    tilt, q = 2.0 * w * math.sqrt(w / pivot), carried.diagonal
    row = Facing(low, phi / pivot, tilt, w, ridge, rows.swept[j], rows.A[j], room.cross, room.norms, q)
    room.apart[0] = self_kernel - room.shares[1]
    if not may_swap(row, high, min(found, 1), room, tracking.tracked, tracking.reach):
        return True
    found = nearest(k, tracking.self_kernel, len(room.apart), room.which, room.shares)
    high = project(k, self_kernel, gram, room.which, found, room.apart, room.L)
    return not (high > low and may_swap(row, high, found, room, tracking.tracked, tracking.reach))
