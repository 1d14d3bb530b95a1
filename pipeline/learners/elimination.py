"""The sequential part of a block of the online LS-SVM, compiled: what row after row decides.

Absorbing the rows of a block one by one is Gaussian elimination on C = Kb P⁻¹ Kbᵀ; after each step the remaining rows
of W = Kb P⁻¹, of C and of the residuals read as if the one-row algorithm had arrived there. The scan stops at the first
row that changes the dictionary, for its caller to make that change with matrix operations.
"""

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numba import njit

from ridgestream.pipeline.arrays import Floats

END, GROW, SWAP, UNSAFE = 0, 1, 2, 3
"""What stopped the scan: the block's end, a row to add, a row to swap in, a pivot that is not safely positive."""


Scan = TypeVar("Scan", bound=Callable[..., tuple[int, int, int]])


def _compiled(function: Scan) -> Scan:
    """Compile; keep the machine code for the next process, unless neither the package nor a home can be written."""
    try:
        return cast("Scan", njit(cache=True, nogil=True)(function))
    except RuntimeError:
        return cast("Scan", njit(nogil=True)(function))


@_compiled
def scan_rows(  # noqa: C901
    start: int,
    weights: Floats,
    novelties: Floats,
    spans: Floats,
    A: Floats,
    W: Floats,
    C: Floats,
    residuals: Floats,
    coefficients: Floats,
    inverse_diagonal: Floats,
    pivots: Floats,
    penalty: float,
    usefulness_threshold: float,
    full: bool,
) -> tuple[int, int, int]:
    """Absorb rows from `start` on until one changes the dictionary; return (what, row, index swapped out or −1).

    Shapes: weights, novelties (B, B; its diagonal is δ), spans (B: the δ that a row must exceed), A and W (B, m),
    C (B, B, lower triangle), residuals (B, c), coefficients (m, c), inverse_diagonal (m), pivots (B). The row that
    stops the scan with GROW or SWAP is absorbed; the one that stops it with UNSAFE is not. Changes W, C, residuals,
    coefficients, inverse_diagonal and pivots (Δ of each absorbed row) in place. O(Bm + m) a row.
    """
    n_rows, n_basis = W.shape
    n_targets = residuals.shape[1]
    for j in range(start, n_rows):
        w = weights[j]
        pivot = 1.0 + w * C[j, j]
        if not (pivot > 1.0 - 1e-6):
            return UNSAFE, j, -1
        pivots[j] = pivot
        for c in range(n_targets):
            step = w * residuals[j, c] / pivot
            for i in range(n_basis):
                coefficients[i, c] += step * W[j, i]
        for i in range(n_basis):
            inverse_diagonal[i] -= (w / pivot) * W[j, i] * W[j, i]
            if not (inverse_diagonal[i] > 0.0):
                return UNSAFE, j, -1
        for row in range(j + 1, n_rows):
            factor = w * C[row, j] / pivot
            for i in range(n_basis):
                W[row, i] -= factor * W[j, i]
            for other in range(j + 1, row + 1):
                C[row, other] -= factor * C[other, j]
            for c in range(n_targets):
                residuals[row, c] -= factor * residuals[j, c]

        novelty = novelties[j, j]
        if not (novelty > spans[j]):
            continue
        schur = novelty * penalty + w * novelty * novelty / pivot
        gain = 0.0
        for c in range(n_targets):
            kappa = w * residuals[j, c] / (w * novelty + penalty * pivot)
            gain += kappa * kappa * schur
        if not (novelty * gain > usefulness_threshold):
            continue
        if not full:
            return GROW, j, -1
        weakest, smallest = -1, gain
        ratio = w * novelty / pivot
        for i in range(n_basis):
            border = A[j, i] + ratio * W[j, i]
            score = 0.0
            for c in range(n_targets):
                kappa = w * residuals[j, c] / (w * novelty + penalty * pivot)
                moved = coefficients[i, c] - kappa * border
                score += moved * moved
            score /= inverse_diagonal[i] + border * border / schur
            if score < smallest:
                weakest, smallest = i, score
        if weakest >= 0:
            return SWAP, j, weakest
    return END, n_rows, -1


def warm_up() -> None:
    """Compile the scan, or load it from the cache, on a block of one row."""
    one, vector = np.ones((1, 1)), np.ones(1)
    scan_rows(
        0,
        vector,
        one,
        vector,
        one,
        one.copy(),
        one.copy(),
        one.copy(),
        one.copy(),
        2 * vector,
        vector.copy(),
        1.0,
        1.0,
        True,
    )
