"""Learns a strip of rows block by block: absorbs them, and changes the dictionary where a row enters it."""

import numpy as np

from ridgestream.pipeline.online.compiled.arrays import InformationArrays, Model, Rows, Scratch, StripRules
from ridgestream.pipeline.online.compiled.candidate import REFINEMENTS, evaluate, is_stale
from ridgestream.pipeline.online.compiled.jit import compiled, compiled_inline, zero
from ridgestream.pipeline.online.compiled.kernel_column import KernelCode, kernel_column
from ridgestream.pipeline.online.compiled.lapack import Lapack, add_products, cross_products, times_symmetric
from ridgestream.pipeline.online.compiled.swap import (
    Replacement,
    clear_column,
    set_column,
    swap_in_information,
    swap_in_inverses,
)
from ridgestream.pipeline.online.compiled.swap_bounds import gather_columns, measure_reach
from ridgestream.pipeline.online.compiled.swap_criterion import END, GROW, UNSAFE, eliminate, scan_rows
from ridgestream.pipeline.online.compiled.vector_loops import add_multiple, add_two, copy


@compiled_inline
def sum_rows(lapack: Lapack, rows: Rows, information: InformationArrays, stop: int) -> None:
    """Add Σ w kkᵀ to P and Σ w kyᵀ to z over the first `stop` rows: equation (11)."""
    add_products(lapack, 1.0, rows.weighted_kernel[:stop], information.normal)
    total = np.empty(len(information.rhs))
    for c in range(information.rhs.shape[1]):
        copy(information.rhs[:, c], total)
        for r in range(stop):
            add_multiple(total, rows.targets[r, c], rows.weighted_kernel[r])
        copy(total, information.rhs[:, c])


@compiled_inline
def multiply(lapack: Lapack, rows: Rows, model: Model, refines: bool) -> None:
    """Compute √w Kb P⁻¹ and the tracked columns of Kb K⁻¹ of a block by matrix products; refine the latter if asked."""
    information, inverses, tracking = model.information, model.inverses, model.tracking
    if len(tracking.columns) > 0:
        cross_products(lapack, rows.kernel, tracking.columns, rows.A, 0)
    else:
        times_symmetric(lapack, inverses.gram, rows.kernel, rows.A)
    for _ in range(REFINEMENTS if refines else 0):
        correction = np.empty_like(rows.directions)
        times_symmetric(lapack, information.gram, rows.A, rows.directions)
        for r in range(len(rows.kernel)):
            add_two(rows.directions[r], -2.0, rows.directions[r], -1.0, rows.kernel[r])
        times_symmetric(lapack, inverses.gram, rows.directions, correction)
        for r in range(len(rows.kernel)):
            add_multiple(rows.A[r], 1.0, correction[r])
    times_symmetric(lapack, inverses.normal, rows.weighted_kernel, rows.directions)


@compiled_inline
def cut_block(rows: Rows, first: int, stop: int) -> Rows:
    """Return the rows from `first` to `stop`, with the memory that blocks share."""
    block, n = slice(first, stop), stop - first
    return Rows(
        X=rows.X[block],
        row_numbers=rows.row_numbers[block],
        weights=rows.weights[block],
        root_weights=rows.root_weights[block],
        targets=rows.targets[block],
        self_kernel=rows.self_kernel[block],
        least_novelty=rows.least_novelty[block],
        kernel=rows.kernel[block],
        weighted_kernel=rows.weighted_kernel[block],
        directions=rows.directions[:n],
        steps=rows.steps[:n],
        pivots=rows.pivots[:n],
        innovations=rows.innovations[block],
        A=rows.A[:n],
        factor=rows.factor,
    )


@compiled
def run_rows(
    scratch: Scratch, model: Model, strip: Rows, kernel: KernelCode, rules: StripRules, n_basis: int
) -> tuple[int, int, int, int]:
    """Learn the rows of a strip, block by block, until its end or until more memory or a refresh is needed.

    Returns (why, rows learned, basis vectors, swaps made). GROW: the next row should enter the dictionary, and the
    arrays have no index left. UNSAFE: a refresh is due.
    """
    lapack, new, information, inverses = scratch.lapack, scratch.candidate, model.information, model.inverses
    n_rows, first, swaps, why = len(strip.X), zero(), zero(), END
    gather_columns(inverses.gram, model.tracking)
    measure_reach(inverses.gram_diagonal, model.tracking)
    while first < n_rows and why == END:
        stop = min(first + len(strip.directions), n_rows)
        rows, rest_kernel, rest_weighted = (
            cut_block(strip, first, stop),
            strip.kernel[stop:],
            strip.weighted_kernel[stop:],
        )
        multiply(lapack, rows, model, rules.refines)
        row, limit = zero(), eliminate(lapack, rows, inverses.beta)
        while True:
            why, row, index = scan_rows(scratch, model, rows, row, limit, rules, n_basis >= rules.max_basis)
            if why == END and limit < stop - first:
                why = UNSAFE
            if why in (END, UNSAFE) or (why == GROW and n_basis == len(new.a)):
                break
            if not (rules.is_fresh and first + row == 0) and is_stale(lapack, information.normal, rows, row):
                why = UNSAFE
                break
            j, row = row, row + 1
            if not evaluate(scratch, model, rows, j, rules.penalty):
                continue
            if why == GROW:
                index, n_basis = n_basis, n_basis + 1
            else:
                swaps += 1
            values = kernel_column(kernel, strip.X[first + row :], rows.X[j])
            limit = swap_in_inverses(rows, Replacement(j, index, limit, values), model, new)
            swap_in_information(information, index, rows, j, new)
            set_column(rest_kernel, rest_weighted, strip.root_weights[stop:], index, values[stop - first - row :])
            clear_column(rows.weighted_kernel, index, row)
            trace = inverses.gram_diagonal[:n_basis].sum()
            if rules.refines or n_basis >= rules.closed_size or trace > rules.largest_trace:
                why = UNSAFE
                break
        sum_rows(lapack, rows, information, row)
        add_products(lapack, -1.0, rows.directions[:row], inverses.normal)
        first += row
    return why, first, n_basis, swaps
