"""Where the stream is cut into blocks and when inverses are recomputed: by row counts and weights, never by a clock.

A resumed run thus repeats the cuts and refreshes of an uninterrupted one, and with them its bits.
"""

import math

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats

REFRESH_ROWS = 32768
"""Rows of a partition between two refreshes; a multiple of every block size.

Inverses drift with the condition of P rather than with the rows: no more over this number than over a fourth of it.
"""

GRID_ROWS = 256
"""Rows whose kernel values are computed at once; a multiple of every block size."""

SOLVED_SHARE, SOLVED_ROWS = 16, 8192
"""When the dictionary is fixed, re-solve the coefficients every rows_seen / 16 rows, at most every 8,192."""


def octave(weight: float) -> int:
    """Return ⌊log₂ weight⌋ exactly; for zero, a number below any other."""
    return math.frexp(weight)[1] - 1 if weight > 0 else -(10**6)


def selection_penalty(regularization: float, weight: float) -> float:
    """Return γ = λ·2^⌊log₂ n⌋, with which rows are selected, for the weight n seen."""
    return math.ldexp(regularization, octave(weight))


def next_cut(weights: Floats, position: int, weight_seen: float, n_basis: int) -> tuple[int, float]:
    """Return the number of rows in the next block and the weight seen after it.

    The block ends where the grid does, at the row that reaches a power of two, or, while the dictionary is empty, at
    the first row of positive weight. `position` is the number of rows since the grid's origin.
    """
    stop = min(GRID_ROWS - position % GRID_ROWS, len(weights))
    sums = np.cumsum(np.concatenate([[weight_seen], weights[:stop]]))
    if n_basis and octave(float(sums[-1])) == octave(weight_seen):
        return stop, float(sums[-1])
    crossed = np.frexp(sums[1:])[1] - 1 != octave(weight_seen)
    cuts = (sums[1:] > weight_seen) & (crossed | (n_basis == 0))
    rows = int(np.argmax(cuts)) + 1 if cuts.any() else stop
    return rows, float(sums[rows])


def rows_between_solutions(rows_seen: int) -> int:
    """Return after how many rows the coefficients of a fixed dictionary are solved for again."""
    return min(rows_seen // SOLVED_SHARE, SOLVED_ROWS)
