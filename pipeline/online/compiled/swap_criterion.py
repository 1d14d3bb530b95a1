"""The swap test, row by row: absorbs the rows of a block and finds the first one that changes the dictionary.

Absorbing the rows of a block one by one is the Cholesky factorization of I + C, C = Kb P⁻¹ Kbᵀ, computed as if no row
changed the dictionary. The scan then goes through the rows with β and the diagonal of P⁻¹ as each leaves them, and
stops at the first row that does change the dictionary: by growing it, or, when it is full, by taking the place of the
weakest basis vector (`weakest_vector`; `swap_bounds` rules most rows out before). `update` makes the change.
"""

import math

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.online.compiled.arrays import Model, Rows, Scratch, StripRules
from ridgestream.pipeline.online.compiled.jit import compiled_inline, compiled_part
from ridgestream.pipeline.online.compiled.lapack import Lapack, cross_products, factorize, solve_lower, times_vector
from ridgestream.pipeline.online.compiled.swap_bounds import Swapper, count_weaker, is_ruled_out, weigh
from ridgestream.pipeline.online.compiled.vector_loops import copy, dot

END, GROW, SWAP, UNSAFE = 0, 1, 2, 3
"""Why a scan stopped: end of the block, a row to add, a row to swap in, a pivot that is not safely positive."""

HALF_ROWS = 24
"""Rows of C that are computed at a time, from their diagonal on."""

SCANNED, SUSPECTED, REFUSED = 0, 1, 2
"""Counters: rows scanned against a full dictionary, those no bound ruled out, rows refused for the condition of P."""


@compiled_part
def cross_triangle(lapack: Lapack, left: Floats, right: Floats, out: Floats) -> None:
    """Compute out = left rightᵀ, which is symmetric: the upper triangle of the leading (n, n) part of `out`."""
    n = len(left)
    for r in range(0, n, HALF_ROWS):
        part = slice(r, min(r + HALF_ROWS, n))
        cross_products(lapack, left[part], right[r:], out[part], r)


@compiled_inline
def eliminate(lapack: Lapack, rows: Rows, beta: Floats) -> int:
    """Compute factor, directions and steps of a block as if no row changed the dictionary; O(n²m) for n rows.

    By the Cholesky factor of I + √w C √w. Returns the row at which that breaks down, the number of rows if none.
    """
    n_rows, n_targets = rows.targets.shape
    limit, broken = n_rows, True
    while broken and limit > 0:
        cross_triangle(lapack, rows.directions[:limit], rows.weighted_kernel[:limit], rows.factor)
        for r in range(limit):
            rows.factor[r, r] += 1.0
        info = factorize(lapack, limit, rows.factor)
        broken = info != 0
        limit = info - 1 if broken else limit
    for r in range(limit):
        for c in range(n_targets):
            rows.steps[r, c] = rows.targets[r, c] - dot(rows.weighted_kernel[r], beta[c])
    if limit > 0:
        solve_lower(lapack, rows.factor, rows.directions[:limit])
        solve_lower(lapack, rows.factor, rows.steps[:limit])
    return int(limit)


@compiled_inline
def absorb(direction: Floats, step: Floats, beta: Floats, q: Floats) -> bool:
    """β += ϱ̃ W̃, q −= W̃² for one row; return whether every q is still positive."""
    n_targets, n_basis = beta.shape
    for c in range(n_targets):
        for i in range(n_basis):
            beta[c, i] += step[c] * direction[i]
    not_positive = 0
    for i in range(n_basis):
        q[i] -= direction[i] * direction[i]
        not_positive += 0 if q[i] > 0.0 else 1
    return not_positive == 0


@compiled_inline
def weakest_vector(row: Swapper, lift: float, kappa: Floats, schur: float, gain: float, beta: Floats) -> int:
    """Return the index of the basis vector that the row replaces, −1 if none: the swap test; O(m).

    It is the vector with the smallest score after growing by the row, unless the row's own, its gain, is smaller.

    The scores are Σ_c (β_i − κ w_b,i)²/(q_i + w_b,i²/Δ_b) with w_b = a + δ·lift·W̃; `row.low` is δ.
    """
    weakest, smallest = -1, gain
    for i in range(len(row.q)):
        border = row.a[i] + row.low * lift * row.direction[i]
        score = 0.0
        for c in range(len(kappa)):
            moved = beta[c, i] - kappa[c] * border
            score += moved * moved
        score /= row.q[i] + border * border / schur
        if score < smallest:
            weakest, smallest = i, score
    return weakest


@compiled_inline
def scan_rows(  # noqa: C901
    scratch: Scratch, model: Model, rows: Rows, start: int, stop: int, rules: StripRules, is_full: bool
) -> tuple[int, int, int]:
    """Absorb rows from `start` on until one changes the dictionary; return (why, row, index to swap out or −1).

    A row that stops the scan with GROW or SWAP is absorbed, with K⁻¹k in the candidate's `a`; one that stops it with
    UNSAFE is not. Changes β, q, innovations, a and counts. O(m) per row, O(m²) where K⁻¹k is computed.
    """
    inverses, tracking = model.inverses, model.tracking
    neighbours, counts, a, penalty = scratch.neighbours, scratch.counts, scratch.candidate.a, rules.penalty
    beta, q = inverses.beta, inverses.diagonal
    n_targets, everything = len(beta), len(tracking.tracked) == len(q)
    kappa = np.empty(n_targets)
    for j in range(start, stop):
        rows.pivots[j] = rows.factor[j, j] ** 2
        w, pivot, k = rows.weights[j], rows.pivots[j], rows.kernel[j]
        if not (pivot > 1.0 - 1e-6 and absorb(rows.directions[j], rows.steps[j], beta, q)):
            return UNSAFE, j, -1
        phi, scale = 0.0, math.sqrt(pivot / w)
        for c in range(n_targets):
            rows.innovations[j, c] = rows.steps[j, c] * scale
            phi += (w * rows.innovations[j, c]) ** 2
        counts[SCANNED] += is_full
        if everything:
            copy(rows.A[j], a)
        elif is_ruled_out(j, phi, rows, model, rules, neighbours):
            continue
        else:
            times_vector(scratch.lapack, inverses.gram, k, a)
        counts[SUSPECTED] += is_full
        novelty = rows.self_kernel[j] - dot(k, a)
        if not novelty > rows.least_novelty[j]:
            continue
        schur = novelty * penalty + w * novelty * novelty / pivot
        gain = 0.0
        for c in range(n_targets):
            kappa[c] = w * rows.innovations[j, c] / (w * novelty + penalty * pivot)
            gain += kappa[c] * kappa[c] * schur
        if not novelty * gain > rules.least_usefulness:
            continue
        if not is_full:
            return GROW, j, -1
        weigh(beta, rows.innovations[j], neighbours)
        tilt, ridge = 2.0 * w * math.sqrt(w / pivot), penalty * pivot
        row = Swapper(
            low=novelty,
            lead=phi / pivot,
            tilt=tilt,
            weight=w,
            ridge=ridge,
            direction=rows.directions[j],
            a=a,
            cross=neighbours.cross,
            norms=neighbours.norms,
            q=q,
        )
        if count_weaker(row, novelty) == 0:
            continue
        index = weakest_vector(row, math.sqrt(w / pivot), kappa, schur, gain, beta)
        if index >= 0:
            return SWAP, j, index
    return END, stop, -1
