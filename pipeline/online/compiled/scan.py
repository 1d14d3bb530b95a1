"""The sequential part of a block of the online LS-SVM, compiled: what row after row decides.

Absorbing the rows of a block one by one is Cholesky's factorization of I + C, C = Kb P⁻¹ Kbᵀ, and that is made as if no
row changed the dictionary. The scan then walks along the rows with β and the diagonal of P⁻¹ as each leaves them, and
stops at the first row that does change the dictionary, for its caller to make that change. At the cap `screening` rules
most rows out first.
"""

import math

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.compiled.buffers import Carried, Rows, Tracking
from ridgestream.pipeline.online.compiled.jit import compiled_inline, compiled_part
from ridgestream.pipeline.online.compiled.lapack import Lapack, cross_products, factorize, sweep, times_vector
from ridgestream.pipeline.online.compiled.swap_bounds import Facing, Room, count_weaker, is_ruled_out, weigh
from ridgestream.pipeline.online.compiled.vector_loops import copy, dot

END, GROW, SWAP, UNSAFE = 0, 1, 2, 3
"""What stopped the scan: the block's end, a row to add, a row to swap in, a pivot that is not safely positive."""

HALF_ROWS = 24
"""Rows of C that are formed at a time, from their diagonal on."""

SCANNED, SUSPECTED, REFUSED = 0, 1, 2
"""Counters: rows scanned at the cap, those of them that no bound ruled out, and rows refused for P's condition."""


@compiled_part
def cross_triangle(lapack: Lapack, left: Floats, right: Floats, out: Floats) -> None:
    """Out = left rightᵀ, known to be symmetric, in the upper triangle of the leading (n, n) of a larger array."""
    n = len(left)
    for r in range(0, n, HALF_ROWS):
        part = slice(r, min(r + HALF_ROWS, n))
        cross_products(lapack, left[part], right[r:], out[part], r)


@compiled_part
def eliminate(lapack: Lapack, rows: Rows, beta: Floats) -> int:
    """Absorb the rows of a block as if none changed the dictionary: factor, swept and steps; O(n²m) for n rows.

    By Cholesky's factor of I + √w C √w. Returns where that breaks down, the number of rows if nowhere.
    """
    n_rows, n_targets = rows.targets.shape
    limit, broken = n_rows, True
    while broken and limit > 0:
        cross_triangle(lapack, rows.swept[:limit], rows.scaled[:limit], rows.factor)
        for r in range(limit):
            rows.factor[r, r] += 1.0
        info = factorize(lapack, limit, rows.factor)
        broken = info != 0
        limit = info - 1 if broken else limit
    for r in range(limit):
        for c in range(n_targets):
            rows.steps[r, c] = rows.targets[r, c] - dot(rows.scaled[r], beta[c])
    if limit > 0:
        sweep(lapack, rows.factor, rows.swept[:limit])
        sweep(lapack, rows.factor, rows.steps[:limit])
    return int(limit)


@compiled_inline
def absorb(swept: Floats, step: Floats, beta: Floats, q: Floats) -> bool:
    """β += ϱ̃ W̃, q −= W̃² for one row; tell whether every q is still above zero."""
    n_targets, n_basis = beta.shape
    for c in range(n_targets):
        for i in range(n_basis):
            beta[c, i] += step[c] * swept[i]
    spent = 0
    for i in range(n_basis):
        q[i] -= swept[i] * swept[i]
        spent += 0 if q[i] > 0.0 else 1
    return spent == 0


@compiled_part
def choose(
    a: Floats,
    novelty: float,
    lift: float,
    swept: Floats,
    kappa: Floats,
    schur: float,
    gain: float,
    beta: Floats,
    q: Floats,
) -> int:
    """Return whom a row replaces that has the usefulness `gain`: whose score after growing is smallest; −1 for none.

    The scores are Σ_c (β_i − κ w_b,i)²/(q_i + w_b,i²/Δ_b) with w_b = a + δ·lift·W̃. O(n_basis).
    """
    weakest, smallest = -1, gain
    for i in range(len(q)):
        border = a[i] + novelty * lift * swept[i]
        score = 0.0
        for c in range(len(kappa)):
            moved = beta[c, i] - kappa[c] * border
            score += moved * moved
        score /= q[i] + border * border / schur
        if score < smallest:
            weakest, smallest = i, score
    return weakest


@compiled_part
def scan_rows(  # noqa: C901
    lapack: Lapack,
    start: int,
    stop: int,
    rows: Rows,
    carried: Carried,
    tracking: Tracking,
    gram: Floats,
    a: Floats,
    penalty: float,
    usefulness_threshold: float,
    full: bool,
    room: Room,
    counts: Integers,
) -> tuple[int, int, int]:
    """Absorb rows from `start` on until one changes the dictionary: (what, row, index swapped out or −1).

    The row that stops the scan with GROW or SWAP is absorbed, with K⁻¹k in `a`; the one that stops it with UNSAFE is
    not. Changes β, q, innovations, a and counts. gram: K, upper triangle. O(m) a row, O(m²) where K⁻¹k is needed.
    """
    beta, q = carried.beta, carried.diagonal
    n_targets, everything = len(beta), len(tracking.tracked) == len(q)
    kappa = np.empty(n_targets)
    for j in range(start, stop):
        rows.pivots[j] = rows.factor[j, j] ** 2
        w, pivot, k = rows.weights[j], rows.pivots[j], rows.kernel[j]
        if not (pivot > 1.0 - 1e-6 and absorb(rows.swept[j], rows.steps[j], beta, q)):
            return UNSAFE, j, -1
        phi, scale = 0.0, math.sqrt(pivot / w)
        for c in range(n_targets):
            rows.innovations[j, c] = rows.steps[j, c] * scale
            phi += (w * rows.innovations[j, c]) ** 2
        counts[SCANNED] += full
        if everything:
            copy(rows.A[j], a)
        elif is_ruled_out(j, rows, carried, tracking, gram, phi, penalty, usefulness_threshold, room):
            continue
        else:
            times_vector(lapack, carried.gram, k, a)
        counts[SUSPECTED] += full
        novelty = rows.self_kernel[j] - dot(k, a)
        if not novelty > rows.spans[j]:
            continue
        schur = novelty * penalty + w * novelty * novelty / pivot
        gain = 0.0
        for c in range(n_targets):
            kappa[c] = w * rows.innovations[j, c] / (w * novelty + penalty * pivot)
            gain += kappa[c] * kappa[c] * schur
        if not novelty * gain > usefulness_threshold:
            continue
        if not full:
            return GROW, j, -1
        weigh(beta, rows.innovations[j], room)
        tilt, ridge = 2.0 * w * math.sqrt(w / pivot), penalty * pivot
        facing = Facing(novelty, phi / pivot, tilt, w, ridge, rows.swept[j], a, room.cross, room.norms, q)
        if count_weaker(facing, novelty) == 0:
            continue
        index = choose(a, novelty, math.sqrt(w / pivot), rows.swept[j], kappa, schur, gain, beta, q)
        if index >= 0:
            return SWAP, j, index
    return END, stop, -1
