"""Kernel matching pursuit: Vincent & Bengio (2002), "Kernel matching pursuit", in its basic form, from sums over rows.

Each step adds a multiple of the kernel function that lowers the squared error of all rows most. Nothing that was added
before is fitted again, so a function may be added more than once. With G = Σ w kkᵀ and z = Σ w kr, r being what is left
of the targets, c is the candidate with the largest ‖z_c‖²/G_cc. Then r loses k_c z_c/G_cc, and z becomes z − G_·c
z_c/G_cc. The functions that were added are the dictionary.

Departures: the candidates are some random rows per vector, so that one pass sums their products; with several targets,
their errors are added.
"""

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.events import STEP_MATCHING_PURSUIT_PASS
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.selection.starts.random_rows import draw_rows
from ridgestream.pipeline.sums.normal_equations import BlockStatistics, Summing
from ridgestream.pipeline.sums.row_set import RowSet

CANDIDATES = 4
"""Candidates per vector."""

STEPS = 20
"""The largest number of steps per vector: after that, the functions added before are as good as any."""


def pursued_rows(rows: RowSet, kernel: Kernel, n_basis: int, seed: int) -> StartingDictionary:
    """Return at most `n_basis` rows, in the order in which they were first added; one pass of O(n_basis²) a row.

    There are fewer if no other candidate lowers the error. Raises InputError if no row can be drawn.
    """
    pool = draw_rows(rows, kernel, CANDIDATES * n_basis, seed)
    summing = Summing(pool.basis(kernel, constant=False), rows.n_targets)
    sums = rows.statistics((summing,), STEP_MATCHING_PURSUIT_PASS).parts[0].total()
    chosen = pursue(sums, n_basis)
    return StartingDictionary(pool.vectors[chosen], pool.places[chosen])


def pursue(sums: BlockStatistics, n_basis: int) -> Integers:
    """Return the functions that are added, at least one and at most `n_basis`; O(n_functions) a step."""
    left: Floats = sums.rhs.copy()
    lengths = np.maximum(np.diagonal(sums.products), np.finfo(np.float64).tiny)
    chosen: dict[int, None] = {}
    for _ in range(STEPS * n_basis):
        best = int(np.argmax(np.sum(left**2, axis=1) / lengths))
        chosen[best] = None
        if len(chosen) == n_basis:
            break
        left -= np.outer(sums.products[:, best], left[best] / lengths[best])
    return np.array([*chosen], dtype=np.int64)
