"""A swap: row j becomes basis vector `index`, in the inverses, in the rows not yet scanned, and in the exact sums.

To take a new vector into an empty index of the arrays is the same operation.
"""

import math
from typing import NamedTuple

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.online.compiled.arrays import Candidate, InformationArrays, Model, Rows, Tracking
from ridgestream.pipeline.online.compiled.jit import compiled_inline, compiled_part
from ridgestream.pipeline.online.compiled.rank_two import (
    Outer,
    RankTwo,
    product_entries,
    rank_two_update,
    update_columns,
    update_diagonal,
    update_factor,
    update_inverse,
    update_rows,
)
from ridgestream.pipeline.online.compiled.swap_bounds import measure_reach
from ridgestream.pipeline.online.compiled.vector_loops import add_multiple, copy, dot


class Replacement(NamedTuple):
    """A row of a block that becomes a basis vector."""

    row: int
    """Its index j in the block."""
    vector: int
    """The index of the basis vector."""
    limit: int
    """The end of the block's rows that are valid."""
    values: Floats
    """Kernel values of the rows after j with row j."""


@compiled_inline
def set_column(kernel: Floats, weighted_kernel: Floats, root_weights: Floats, index: int, values: Floats) -> None:
    """Write the kernel values with the new basis vector over those with the one that it replaces."""
    for i in range(len(kernel)):
        kernel[i, index] = values[i]
        weighted_kernel[i, index] = root_weights[i] * values[i]


@compiled_inline
def clear_column(rows: Floats, index: int, stop: int) -> None:
    """Set column `index` of the first `stop` rows to zero, so that products still to be added leave it out."""
    for i in range(stop):
        rows[i, index] = 0.0


@compiled_inline
def swap_in_inverses(rows: Rows, change: Replacement, model: Model, new: Candidate) -> int:
    """Make row j the basis vector `index` in the inverses, β, and the block's rows after j; O(m²).

    Returns the row up to which the block's rows remain valid.
    """
    j, index, limit = change.row, change.vector, change.limit
    inverses, tracking = model.inverses, model.tracking
    m, n_targets = len(new.a), len(new.kappa)
    column, gram_column = np.empty(m), np.empty(m)
    for i in range(m):
        column[i] = inverses.normal[min(i, index), max(i, index)]
        gram_column[i] = inverses.gram[min(i, index), max(i, index)]
    for r in range(j + 1):
        add_multiple(column, -rows.directions[r, index], rows.directions[r])
    gram = rank_two_update(index, new.a, new.scalars[0], gram_column)
    normal = rank_two_update(index, new.w_b, new.scalars[1], column)
    g, o = swap_in_kernel_rows(rows, change, gram_column, tracking, new, gram, normal)
    up, down = np.empty(n_targets), np.empty(n_targets)
    for c in range(n_targets):
        up[c] = new.kappa[c] * math.sqrt(new.scalars[1])
        down[c] = (inverses.beta[c, index] + up[c] * normal.tilt) / normal.root
    update_rows(inverses.beta, np.arange(m), index, up, down, normal)
    update_diagonal(inverses.diagonal, index, normal)
    update_diagonal(inverses.gram_diagonal, index, gram)
    update_inverse(inverses.gram, index, gram)
    update_inverse(inverses.normal, index, normal)
    update_columns(tracking.columns, tracking.tracked, index, gram)
    tracking.self_kernel[index] = rows.self_kernel[j]
    measure_reach(inverses.gram_diagonal, tracking)
    clear_column(rows.directions, index, limit)
    return update_factor(rows.factor, rows.directions, rows.steps, j + 1, limit, Outer(g, o, normal, -up, -down))


@compiled_part
def swap_in_kernel_rows(
    rows: Rows,
    change: Replacement,
    gram_column: Floats,
    tracking: Tracking,
    new: Candidate,
    gram: RankTwo,
    normal: RankTwo,
) -> tuple[Floats, Floats]:
    """Update Kb and A of the rows after j; return g and o with I + C + ggᵀ − ooᵀ the new I + C."""
    j, index, limit, values = change.row, change.vector, change.limit, change.values
    n_later, start, position = limit - j - 1, j + 1, -1
    for n in range(len(tracking.tracked)):
        if tracking.tracked[n] == index:
            position = n
    first, second, g = np.empty(n_later), np.empty(n_later), np.empty(n_later)
    o = product_entries(rows.factor, rows.directions, start, limit, index)
    novelty, schur = new.scalars[0], new.scalars[1]
    drop = novelty * math.sqrt(rows.weights[j] / rows.pivots[j])
    for n in range(n_later):
        i = start + n
        common = values[n] - dot(rows.kernel[i], new.a)
        before = rows.A[i, position] if position >= 0 else dot(rows.kernel[i], gram_column)
        first[n] = common / math.sqrt(novelty)
        second[n] = (before + first[n] * gram.tilt) / gram.root
        g[n] = (rows.root_weights[i] * common - drop * rows.factor[j, i]) / math.sqrt(schur)
        o[n] = (o[n] + g[n] * normal.tilt) / normal.root
    set_column(
        rows.kernel[start:limit], rows.weighted_kernel[start:limit], rows.root_weights[start:limit], index, values
    )
    update_rows(rows.A[start:limit], tracking.tracked, index, first, second, gram)
    return g, o


@compiled_inline
def swap_in_information(information: InformationArrays, index: int, rows: Rows, j: int, new: Candidate) -> None:
    """Make row j the basis vector `index` in D, K, P and z: the dictionary grows, and then that one is deleted."""
    k = rows.kernel[j]
    for i in range(len(k)):
        row, column = min(i, index), max(i, index)
        information.gram[row, column] = rows.self_kernel[j] if i == index else k[i]
        information.normal[row, column] = new.scalars[2] if i == index else new.normal[i]
    copy(new.rhs, information.rhs[index])
    copy(rows.X[j], information.vectors[index])
    information.row_numbers[index] = rows.row_numbers[j]
