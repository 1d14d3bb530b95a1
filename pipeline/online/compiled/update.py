"""A strip of rows from the first to the last, compiled: absorb them block by block, and change the dictionary."""

import math
from typing import NamedTuple

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.online.compiled.buffers import Carried, Rows, Tracking
from ridgestream.pipeline.online.compiled.jit import compiled, compiled_inline, compiled_part, zero
from ridgestream.pipeline.online.compiled.lapack import (
    Lapack,
    add_products,
    cross_products,
    times_symmetric,
    times_vector,
)
from ridgestream.pipeline.online.compiled.scan import END, GROW, REFUSED, UNSAFE, eliminate, scan_rows
from ridgestream.pipeline.online.compiled.swap import (
    Exchange,
    entries_of,
    exchange_columns,
    exchange_diagonal,
    exchange_inverse,
    exchange_rows,
    exchange_swept,
    make_exchange,
)
from ridgestream.pipeline.online.compiled.swap_bounds import gather_columns, make_room, measure_reach
from ridgestream.pipeline.online.compiled.vector_loops import (
    add_multiple,
    add_squares,
    add_two,
    copy,
    dot,
    squared_distance,
)

CONDITION_LIMIT = 1e12
"""A vector that would bring any P_ii (P⁻¹)_ii up to this would leave P singular within rounding, and is not taken.

The new vector's own pivot is not enough to look at: many vectors near the span compound.
"""

DRIFT_LIMIT = 1e-6
"""Where P(P⁻¹k) differs from k by more than this, relative to the largest entry, P⁻¹ is made anew before deciding."""

REFINEMENTS = 4
"""Corrections of K⁻¹k at most; they end sooner where the residual no longer halves."""

LAST_RESIDUAL = 1e-8
"""A residual of K⁻¹k up to this share of k needs but one correction more: each takes away as many digits again."""


class Dictionary(NamedTuple):
    """D, K, P and z, changed in place; symmetric matrices in their upper triangle."""

    vectors: Floats
    """D, (m, d)."""
    numbers: Integers
    """The row number in the stream of each basis vector, (m,)."""
    gram: Floats
    """K."""
    normal: Floats
    """P."""
    rhs: Floats
    """z, (m, c)."""


class Candidate(NamedTuple):
    """What P, K and z gain with the row that is to be a basis vector, filled by `settle`."""

    a: Floats
    """K⁻¹k, (m,)."""
    w_b: Floats
    """a + (wδ/Δ)P⁻¹k with P before the row, (m,): equation (14)."""
    normal: Floats
    """P a + wδk with P after the row, (m,)."""
    rhs: Floats
    """aᵀz + wδy, (c,)."""
    kappa: Floats
    """wϱ/(wδ + γΔ), (c,): equation (15)."""
    scalars: Floats
    """δ; Δ_b = γδ + wδ²/Δ, the slides' form; P's corner aᵀPa + γ(k* − aᵀk) + 2wδ aᵀk + wδ²."""


@compiled_part
def sum_rows(lapack: Lapack, rows: Rows, dictionary: Dictionary, stop: int) -> None:
    """P += Σ w kkᵀ, z += Σ w kyᵀ over the first `stop` rows: equation (11)."""
    add_products(lapack, 1.0, rows.scaled[:stop], dictionary.normal)
    total = np.empty(len(dictionary.rhs))
    for c in range(dictionary.rhs.shape[1]):
        copy(dictionary.rhs[:, c], total)
        for r in range(stop):
            add_multiple(total, rows.targets[r, c], rows.scaled[r])
        copy(total, dictionary.rhs[:, c])


@compiled_part
def times_normal(lapack: Lapack, normal: Floats, pending: Floats, x: Floats, out: Floats) -> Floats:
    """Fill out = P x, P with the rows √w k that are still `pending`; return their products with x."""
    times_vector(lapack, normal, x, out)
    shares: Floats = np.dot(pending, x)
    out += np.dot(shares, pending)
    return shares


@compiled_part
def is_stale(lapack: Lapack, normal: Floats, rows: Rows, j: int) -> bool:
    """Tell whether P⁻¹k of row j has drifted from what P, up to the row before, says."""
    k, m, scale = rows.kernel[j], rows.kernel.shape[1], math.sqrt(rows.pivots[j] / rows.weights[j])
    x, back = np.zeros(m), np.empty(m)
    add_multiple(x, scale, rows.swept[j])
    times_normal(lapack, normal, rows.scaled[:j], x, back)
    largest, worst = 0.0, 0.0
    for i in range(len(k)):
        largest = max(largest, abs(k[i]))
        worst = max(worst, abs(k[i] - back[i]))
    return bool(worst > DRIFT_LIMIT * largest)


@compiled_part
def refine(lapack: Lapack, gram: Floats, gram_inverse: Floats, k: Floats, a: Floats) -> None:
    """Refine a = K⁻¹k against K itself.

    P's new border is P a + …, so an error of a stays in the state for good. It does no harm as long as the residual
    k − K a is of the size of rounding, which a carried inverse does not give and a few corrections do.
    """
    residual, correction, size = np.empty(len(k)), np.empty(len(k)), np.inf
    for _ in range(REFINEMENTS):
        times_vector(lapack, gram, a, residual)
        before, size, largest = size, 0.0, 0.0
        for i in range(len(k)):
            residual[i] = k[i] - residual[i]
            size, largest = max(size, abs(residual[i])), max(largest, abs(k[i]))
        if size >= before / 2:
            break
        times_vector(lapack, gram_inverse, residual, correction)
        add_multiple(a, 1.0, correction)
        if size <= LAST_RESIDUAL * largest:
            break


@compiled_part
def settle(
    lapack: Lapack,
    rows: Rows,
    j: int,
    dictionary: Dictionary,
    carried: Carried,
    penalty: float,
    new: Candidate,
    counts: Integers,
) -> bool:
    """Fill in the candidate, row j; tell whether it may be taken; O(m²). The rows up to j are still to be added to P.

    It may not if its novelty, computed again with a refined a = K⁻¹k, is in the span after all, or if it would leave P
    singular within rounding, which is counted.
    """
    k, w, pivot, m = rows.kernel[j], rows.weights[j], rows.pivots[j], len(new.a)
    refine(lapack, dictionary.gram, carried.gram, k, new.a)
    ak = dot(new.a, k)
    novelty = rows.self_kernel[j] - ak
    new.scalars[0] = novelty
    if not novelty > rows.spans[j]:
        return False
    lift = w * novelty
    schur = penalty * novelty + lift * novelty / pivot
    pending = rows.scaled[: j + 1]
    shares = times_normal(lapack, dictionary.normal, pending, new.a, new.normal)
    corner = dot(new.a, new.normal) + penalty * novelty + 2.0 * lift * ak + lift * novelty
    new.scalars[1], new.scalars[2] = schur, corner
    worst = corner / schur
    diagonal = np.empty(m)
    for i in range(m):
        diagonal[i] = dictionary.normal[i, i]
    for r in range(j + 1):
        add_squares(diagonal, pending[r])
    for i in range(m):
        new.normal[i] += lift * k[i]
        new.w_b[i] = new.a[i] + novelty * math.sqrt(w / pivot) * rows.swept[j, i]
        worst = max(worst, diagonal[i] * (carried.diagonal[i] + new.w_b[i] ** 2 / schur))
    for c in range(len(new.kappa)):
        new.kappa[c] = w * rows.innovations[j, c] / (lift + penalty * pivot)
        new.rhs[c] = lift * rows.targets[j, c] / rows.roots[j]
        for r in range(j + 1):
            new.rhs[c] += shares[r] * rows.targets[r, c]
        for i in range(m):
            new.rhs[c] += new.a[i] * dictionary.rhs[i, c]
    counts[REFUSED] += 0 if worst < CONDITION_LIMIT else 1
    return bool(worst < CONDITION_LIMIT)


@compiled_part
def kernel_column(kind: int, numbers: Floats, X: Floats, x: Floats) -> Floats:
    """Return k(x_i, x) of the rows of X (n, d), as kernels.py defines the kernel of that kind, shape (n,)."""
    values = np.empty(len(X))
    for i in range(len(X)):
        if kind == 0:
            values[i] = math.exp(-numbers[0] * squared_distance(X[i], x))
        else:
            total = dot(X[i], x)
            values[i] = total if kind == 2 else (numbers[0] * total + numbers[2]) ** numbers[1]
    return values


@compiled_inline
def set_column(kernel: Floats, scaled: Floats, roots: Floats, index: int, values: Floats) -> None:
    """Put kernel values with a new basis vector in the place of those with the one that it replaces."""
    for i in range(len(kernel)):
        kernel[i, index] = values[i]
        scaled[i, index] = roots[i] * values[i]


@compiled_inline
def clear_column(rows: Floats, index: int, stop: int) -> None:
    """Leave column `index` of the first `stop` rows out of products yet to be added."""
    for i in range(stop):
        rows[i, index] = 0.0


@compiled_part
def swap(
    rows: Rows, j: int, limit: int, index: int, values: Floats, carried: Carried, tracking: Tracking, new: Candidate
) -> int:
    """Put row j in the place of basis vector `index`, for the inverses, β, and the rows after j; O(m²).

    `values`: the kernel values of the rows after j with row j. Returns up to where the block's rows are still good.
    """
    m, n_targets = len(new.a), len(new.kappa)
    column, gram_column = np.empty(m), np.empty(m)
    for i in range(m):
        column[i] = carried.normal[min(i, index), max(i, index)]
        gram_column[i] = carried.gram[min(i, index), max(i, index)]
    for r in range(j + 1):
        add_multiple(column, -rows.swept[r, index], rows.swept[r])
    gram = make_exchange(index, new.a, new.scalars[0], gram_column)
    normal = make_exchange(index, new.w_b, new.scalars[1], column)
    g, o = exchange_kernel_rows(rows, j, limit, index, values, gram_column, tracking, new, gram, normal)
    up, down = np.empty(n_targets), np.empty(n_targets)
    for c in range(n_targets):
        up[c] = new.kappa[c] * math.sqrt(new.scalars[1])
        down[c] = (carried.beta[c, index] + up[c] * normal.tilt) / normal.root
    exchange_rows(carried.beta, np.arange(m), index, up, down, normal)
    exchange_diagonal(carried.diagonal, index, normal)
    exchange_diagonal(carried.gram_diagonal, index, gram)
    exchange_inverse(carried.gram, index, gram)
    exchange_inverse(carried.normal, index, normal)
    exchange_columns(tracking.columns, tracking.tracked, index, gram)
    tracking.self_kernel[index] = rows.self_kernel[j]
    measure_reach(carried.gram_diagonal, tracking)
    clear_column(rows.swept, index, limit)
    return exchange_swept(rows.factor, rows.swept, rows.steps, j + 1, limit, g, o, normal, -up, -down)


@compiled_part
def exchange_kernel_rows(
    rows: Rows,
    j: int,
    limit: int,
    index: int,
    values: Floats,
    gram_column: Floats,
    tracking: Tracking,
    new: Candidate,
    gram: Exchange,
    normal: Exchange,
) -> tuple[Floats, Floats]:
    """Carry Kb and A of the rows after j over to the dictionary with row j in the place of `index`.

    Returns g and o: what is to be added to and taken away from their I + C.
    """
    n_later, start, place = limit - j - 1, j + 1, -1
    for n in range(len(tracking.tracked)):
        if tracking.tracked[n] == index:
            place = n
    first, second, g = np.empty(n_later), np.empty(n_later), np.empty(n_later)
    o = entries_of(rows.factor, rows.swept, start, limit, index)
    novelty, schur = new.scalars[0], new.scalars[1]
    drop = novelty * math.sqrt(rows.weights[j] / rows.pivots[j])
    for n in range(n_later):
        i = start + n
        common = values[n] - dot(rows.kernel[i], new.a)
        before = rows.A[i, place] if place >= 0 else dot(rows.kernel[i], gram_column)
        first[n] = common / math.sqrt(novelty)
        second[n] = (before + first[n] * gram.tilt) / gram.root
        g[n] = (rows.roots[i] * common - drop * rows.factor[j, i]) / math.sqrt(schur)
        o[n] = (o[n] + g[n] * normal.tilt) / normal.root
    set_column(rows.kernel[start:limit], rows.scaled[start:limit], rows.roots[start:limit], index, values)
    exchange_rows(rows.A[start:limit], tracking.tracked, index, first, second, gram)
    return g, o


@compiled_part
def replace(dictionary: Dictionary, index: int, rows: Rows, j: int, new: Candidate) -> None:
    """Put row j in the place of basis vector `index` in D, K, P and z: to grow and then to delete that one."""
    k = rows.kernel[j]
    for i in range(len(k)):
        row, column = min(i, index), max(i, index)
        dictionary.gram[row, column] = rows.self_kernel[j] if i == index else k[i]
        dictionary.normal[row, column] = new.scalars[2] if i == index else new.normal[i]
    copy(new.rhs, dictionary.rhs[index])
    copy(rows.X[j], dictionary.vectors[index])
    dictionary.numbers[index] = rows.numbers[j]


@compiled_part
def multiply(
    lapack: Lapack, rows: Rows, dictionary: Dictionary, carried: Carried, tracking: Tracking, careful: bool
) -> None:
    """Form √w Kb P⁻¹ and the tracked columns of Kb K⁻¹ of a block by matrix products; refine these where `careful`."""
    if len(tracking.columns) > 0:
        cross_products(lapack, rows.kernel, tracking.columns, rows.A, 0)
    else:
        times_symmetric(lapack, carried.gram, rows.kernel, rows.A)
    for _ in range(REFINEMENTS if careful else 0):
        correction = np.empty_like(rows.swept)
        times_symmetric(lapack, dictionary.gram, rows.A, rows.swept)
        for r in range(len(rows.kernel)):
            add_two(rows.swept[r], -2.0, rows.swept[r], -1.0, rows.kernel[r])
        times_symmetric(lapack, carried.gram, rows.swept, correction)
        for r in range(len(rows.kernel)):
            add_multiple(rows.A[r], 1.0, correction[r])
    times_symmetric(lapack, carried.normal, rows.scaled, rows.swept)


@compiled_part
def cut_block(rows: Rows, first: int, stop: int) -> Rows:
    """Return the rows from `first` to `stop`, with the room that blocks share."""
    block, n = slice(first, stop), stop - first
    return Rows(
        rows.X[block],
        rows.numbers[block],
        rows.weights[block],
        rows.roots[block],
        rows.targets[block],
        rows.self_kernel[block],
        rows.spans[block],
        rows.kernel[block],
        rows.scaled[block],
        rows.swept[:n],
        rows.steps[:n],
        rows.pivots[:n],
        rows.innovations[block],
        rows.A[:n],
        rows.factor,
    )


@compiled
def run_rows(
    lapack: Lapack,
    strip: Rows,
    dictionary: Dictionary,
    carried: Carried,
    tracking: Tracking,
    new: Candidate,
    kernel_kind: int,
    kernel_numbers: Floats,
    penalty: float,
    usefulness_threshold: float,
    n_basis: int,
    max_basis: int,
    closes_at: int,
    careful: bool,
    blurred: float,
    fresh: bool,
    counts: Integers,
) -> tuple[int, int, int, int]:
    """Learn the rows of a strip, block by block, until its end, or where room or a refresh is wanted.

    Returns (what, rows learned, basis vectors, swaps made). At a GROW the next row is to grow the dictionary and there
    is no room. A `fresh` strip comes right after a refresh: its first row cannot be helped by another. Where `careful`,
    each change wants a refresh; so does, in any strip, a trace of K⁻¹ above `blurred`, and a dictionary of `closes_at`
    vectors, on which nothing more is decided.
    """
    n_rows, first, swaps, what = len(strip.X), zero(), zero(), END
    room = make_room(len(new.a))
    gather_columns(carried.gram, tracking)
    measure_reach(carried.gram_diagonal, tracking)
    while first < n_rows and what == END:
        stop = min(first + len(strip.swept), n_rows)
        rows, rest_kernel, rest_scaled = cut_block(strip, first, stop), strip.kernel[stop:], strip.scaled[stop:]
        multiply(lapack, rows, dictionary, carried, tracking, careful)
        row, limit = zero(), eliminate(lapack, rows, carried.beta)
        while True:
            what, row, index = scan_rows(
                lapack,
                row,
                limit,
                rows,
                carried,
                tracking,
                dictionary.gram,
                new.a,
                penalty,
                usefulness_threshold,
                n_basis >= max_basis,
                room,
                counts,
            )
            if what == END and limit < stop - first:
                what = UNSAFE
            if what in (END, UNSAFE) or (what == GROW and n_basis == len(new.a)):
                break
            if not (fresh and first + row == 0) and is_stale(lapack, dictionary.normal, rows, row):
                what = UNSAFE
                break
            j, row = row, row + 1
            if not settle(lapack, rows, j, dictionary, carried, penalty, new, counts):
                continue
            if what == GROW:
                index, n_basis = n_basis, n_basis + 1
            else:
                swaps += 1
            values = kernel_column(kernel_kind, kernel_numbers, strip.X[first + row :], rows.X[j])
            limit = swap(rows, j, limit, index, values, carried, tracking, new)
            replace(dictionary, index, rows, j, new)
            set_column(rest_kernel, rest_scaled, strip.roots[stop:], index, values[stop - first - row :])
            clear_column(rows.scaled, index, row)
            if careful or n_basis >= closes_at or carried.gram_diagonal[:n_basis].sum() > blurred:
                what = UNSAFE
                break
        sum_rows(lapack, rows, dictionary, row)
        add_products(lapack, -1.0, rows.swept[:row], carried.normal)
        first += row
    return what, first, n_basis, swaps
