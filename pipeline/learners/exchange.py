"""A basis vector gives way to another, compiled: what that does to two inverses and to the rows still to come.

Growing adds an outer product to an inverse, deleting takes one away: equations (12), (15) and (17), and (18) with its
minus sign. Both are done in one pass, and the new vector gets the place of the old.
"""

import numpy as np

from ridgestream.pipeline.arrays import Floats, Integers
from ridgestream.pipeline.learners.compiling import compiled_part
from ridgestream.pipeline.learners.vectors import add_two


@compiled_part
def exchange_inverse(inverse: Floats, index: int, grown: Floats, scale: float, removed: Floats, both: bool) -> None:
    """S += ggᵀ/scale − uuᵀ/u* with row and column `index` for the new vector, in place; O(m²).

    S is whole, if `both`, or only its upper triangle is kept. grown: the new vector's column without
    its −1; removed: column `index` after growing, without its last entry, which is −g_index/scale.
    """
    m = len(grown)
    g, u = np.empty(m), np.empty(m)
    for i in range(m):
        g[i], u[i] = -grown[i], removed[i]
    g[index], u[index] = 1.0, -grown[index] / scale
    corner = removed[index]
    for i in range(m):
        inverse[i, index] = 0.0
        inverse[index, i] = 0.0
    for c in range(m):
        start = 0 if both else c
        add_two(inverse[c, start:], g[c] / scale, g[start:], u[c] / corner, u[start:])


@compiled_part
def exchange_rows(
    rows: Floats, columns: Integers, index: int, grown: Floats, scale: float, removed: Floats, last: Floats, out: Floats
) -> None:
    """Rows of kernel values times an inverse, in place, for the inverse's `columns`; O(rows · columns).

    last: what each row has in common with the new vector; out: each row's entry for the leaving one, after growing.
    """
    corner, end = removed[index], -grown[index] / scale
    g, u, place = np.empty(len(columns)), np.empty(len(columns)), -1
    for n in range(len(columns)):
        g[n], u[n] = grown[columns[n]], removed[columns[n]]
        if columns[n] == index:
            place = n
    for j in range(len(rows)):
        first, second = last[j] / scale, out[j] / corner
        add_two(rows[j], -first, g, second, u)
        if place >= 0:
            rows[j, place] = first - second * end


@compiled_part
def exchange_coefficients(
    beta: Floats, q: Floats, index: int, w_b: Floats, schur: float, kappa: Floats, removed: Floats
) -> None:
    """β (c, m) and the diagonal q of P⁻¹ after growing by κ and deleting `index`, in place; O(m)."""
    n_targets, m = beta.shape
    corner, end = removed[index], -w_b[index] / schur
    for c in range(n_targets):
        leaving = (beta[c, index] - w_b[index] * kappa[c]) / corner
        for i in range(m):
            beta[c, i] -= w_b[i] * kappa[c] + removed[i] * leaving
        beta[c, index] = kappa[c] - end * leaving
    for i in range(m):
        q[i] += w_b[i] * w_b[i] / schur - removed[i] * removed[i] / corner
    q[index] = 1.0 / schur - end * end / corner
