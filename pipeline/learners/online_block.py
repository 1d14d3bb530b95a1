"""One block of rows against one dictionary: products formed once, and what a swap does to the rows still to come."""

import numpy as np
from scipy.linalg import blas

from ridgestream.pipeline.arrays import Floats
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.learners import elimination
from ridgestream.pipeline.learners.information import Border, Information
from ridgestream.pipeline.learners.inverses import Inverses, Swap

SPAN_TOLERANCE = 1e-10
"""A row whose novelty is below this share of k(x, x) lies in the span of the dictionary, within rounding."""

CONDITION_LIMIT = 1e12
"""A vector that would bring any P_ii (P⁻¹)_ii up to this would leave P singular within rounding, and is not taken.

The new vector's own pivot is not enough to look at: many vectors near the span compound.
"""

DRIFT_LIMIT = 1e-6
"""Where P(P⁻¹k) differs from k by more than this, relative to the largest entry, P⁻¹ is made anew before deciding."""

BLUR_LIMIT = 1e-6
"""The share of the novelty threshold that rounding may reach before K⁻¹k is refined for every row."""

REFINEMENTS = 4
"""Corrections of K⁻¹k at most; they end sooner where the residual no longer halves."""


class Block:
    """Kb = k(X, D), A = Kb K⁻¹, R = k(X, X) − A Kbᵀ, W = Kb P⁻¹, C = W Kbᵀ and the residuals, for B weighted rows.

    Making it costs O(B·n_basis²) in matrix products. `scan` then decides row by row, `swap` carries the change of
    dictionary over to the rows still to come, `finish` brings P, z and P⁻¹ up to the last scanned row.
    """

    def __init__(
        self,
        kernel: Kernel,
        centre: Floats | None,
        information: Information,
        inverses: Inverses,
        X: Floats,
        targets: Floats,
        weights: Floats,
        novelty_threshold: float,
    ) -> None:
        self.information, self.inverses = information, inverses
        self.X, self.targets, self.weights = X, targets, weights
        self.kernel_rows = kernel.block(X, information.basis_vectors, centre)
        self.row_gram = kernel.block(X, X, centre)
        self.self_kernel = kernel.diagonal(X)
        np.fill_diagonal(self.row_gram, self.self_kernel)
        self.spans = np.maximum(novelty_threshold, SPAN_TOLERANCE * self.self_kernel)
        self.A = _times_symmetric(inverses.gram, self.kernel_rows)
        self.careful = self._blurs_novelty()
        if self.careful:
            self._refine_all()
        self.R = self.row_gram - self.A @ self.kernel_rows.T
        self.W = _times_symmetric(inverses.normal, self.kernel_rows)
        self.C = self.W @ self.kernel_rows.T
        self.residuals = targets - self.kernel_rows @ inverses.coefficients
        self.inverse_diagonal = np.diagonal(inverses.normal).copy()
        self.pivots = np.ones(len(X))
        self.summed = 0

    def scan(self, start: int, usefulness_threshold: float, *, full: bool) -> tuple[int, int, int]:
        """Absorb rows from `start` until one changes the dictionary: (what, row, index), as elimination.scan_rows."""
        return elimination.scan_rows(
            start,
            self.weights,
            self.R,
            self.spans,
            self.A,
            self.W,
            self.C,
            self.residuals,
            self.inverses.coefficients,
            self.inverse_diagonal,
            self.pivots,
            self.information.penalty,
            usefulness_threshold,
            full,
        )

    def sum_rows(self, stop: int) -> None:
        """Add the rows before `stop` that are not yet in P and z, with the dictionary as it is."""
        rows = slice(self.summed, stop)
        self.information.absorb(self.kernel_rows[rows], self.targets[rows], self.weights[rows])
        self.summed = stop

    def finish(self, stop: int) -> None:
        """Bring P, z and P⁻¹ up to the rows before `stop`."""
        self.sum_rows(stop)
        self.inverses.absorb(self.W[:stop], self.weights[:stop], self.pivots[:stop])

    def is_stale(self, j: int) -> bool:
        """Tell whether P⁻¹k of row j has drifted from what P, up to the row before, says; O(n_basis²)."""
        self.sum_rows(j)
        k = self.kernel_rows[j]
        residual = k - blas.dsymv(1.0, self.information.normal_matrix, self.W[j], lower=1)
        return bool(np.abs(residual).max() > DRIFT_LIMIT * np.abs(k).max())

    def border(self, j: int) -> Border | None:
        """Return the border of row j, just scanned, or None if the row is better not taken; O(n_basis²).

        None if its novelty, computed again with a refined a = K⁻¹k, is in the span after all, or if it would leave P
        singular within rounding.
        """
        self.sum_rows(j + 1)
        self._refine(j)
        novelty, weight = float(self.R[j, j]), float(self.weights[j])
        if novelty <= self.spans[j]:
            return None
        kernel, self_kernel = self.kernel_rows[j], float(self.self_kernel[j])
        border = self.information.border(self.A[j], novelty, weight, kernel, self_kernel, self.targets[j])
        w_b, _ = self.new_column(j)
        grown = np.diagonal(self.information.normal_matrix) * (self.inverse_diagonal + w_b**2 / self.schur(j))
        condition = max(float(grown.max()), border.corner / self.schur(j))
        return border if condition < CONDITION_LIMIT else None

    def _refine(self, j: int) -> None:
        """Refine a = K⁻¹k of row j against K itself, and δ with it.

        P's new border is P a + …, so an error of a stays in the state for good. It does no harm as long as the residual
        k − K a is of the size of rounding, which a carried inverse does not give and a few corrections do.
        """
        k, a = self.kernel_rows[j], self.A[j]
        size = np.inf
        for _ in range(REFINEMENTS):
            residual = k - blas.dsymv(1.0, self.information.gram, a, lower=1)
            before, size = size, float(np.abs(residual).max())
            if size >= before / 2:
                break
            a += blas.dsymv(1.0, self.inverses.gram, residual, lower=1)
        self.R[j, j] = self.self_kernel[j] - k @ a

    def _blurs_novelty(self) -> bool:
        """Tell whether K⁻¹ is so large that rounding could blur the novelties that matter.

        Then K⁻¹k is refined for every row, and every change of the dictionary is followed by a refresh.
        """
        largest = float(self.self_kernel.max())
        rounding = float(np.trace(self.inverses.gram)) * largest**2 * np.finfo(np.float64).eps
        return bool(rounding > BLUR_LIMIT * self.spans.min())

    def _refine_all(self) -> None:
        for _ in range(REFINEMENTS - 1):
            residual = self.kernel_rows - _times_symmetric(self.information.gram, self.A)
            self.A += _times_symmetric(self.inverses.gram, residual)

    def schur(self, j: int) -> float:
        """Δ_b = γδ + wδ²/Δ: the slides' form; equation (14) as printed is not the Schur complement of P."""
        novelty = self.R[j, j]
        return float(self.information.penalty * novelty + self.weights[j] * novelty**2 / self.pivots[j])

    def new_column(self, j: int) -> tuple[Floats, Floats]:
        """Return w_b = a + (wδ/Δ) P⁻¹k and κ = wϱ/(wδ + γΔ) of row j: equations (14) and (15)."""
        lift = self.weights[j] * self.R[j, j]
        w_b = self.A[j] + (lift / self.pivots[j]) * self.W[j]
        kappa = self.weights[j] * self.residuals[j] / (lift + self.information.penalty * self.pivots[j])
        return w_b, kappa

    def grow(self, j: int, border: Border, row: int) -> None:
        """Append row j, number `row` of the stream, to the dictionary. The block ends with it."""
        w_b, kappa = self.new_column(j)
        self.finish(j + 1)
        self.inverses.grow(self.A[j], float(self.R[j, j]), w_b, self.schur(j), kappa)
        self.information.grow(border, self.X[j], row)

    def swap(self, j: int, index: int, border: Border, row: int) -> None:
        """Put row j in the place of basis vector `index`, for the state and for the rows after j."""
        w_b, kappa = self.new_column(j)
        done = slice(0, j + 1)
        column = self.inverses.normal_column(index, self.W[done], self.weights[done], self.pivots[done])
        normal = Swap.of(index, column, w_b, self.schur(j))
        gram = Swap.of(index, self.inverses.gram_column(index), self.A[j].copy(), float(self.R[j, j]))
        self._swap_later_rows(j, normal, gram, kappa)
        self._swap_coefficients(normal, kappa)
        self.W[done, index] = 0.0
        self.inverses.swap(gram, normal)
        self.information.replace(index, border, self.X[j], row)

    def _swap_later_rows(self, j: int, normal: Swap, gram: Swap, kappa: Floats) -> None:
        later = slice(j + 1, None)
        r = self.R[later, j]
        g = r - (self.weights[j] * self.R[j, j] / self.pivots[j]) * self.C[later, j]
        out = _swap_rows(self.W[later], normal, g)
        self.C[later, later] += np.outer(g, g / normal.scale) - np.outer(out, out / normal.removed_diagonal)
        leaving = self.inverses.coefficients[normal.index] - normal.grown[normal.index] * kappa
        self.residuals[later] += np.outer(out, leaving / normal.removed_diagonal) - np.outer(g, kappa)
        out = _swap_rows(self.A[later], gram, r)
        self.R[later, later] += np.outer(out, out / gram.removed_diagonal) - np.outer(r, r / gram.scale)
        self.kernel_rows[later, normal.index] = self.row_gram[later, j]

    def _swap_coefficients(self, normal: Swap, kappa: Floats) -> None:
        beta, index = self.inverses.coefficients, normal.index
        beta -= np.outer(normal.grown, kappa)
        leaving = beta[index] / normal.removed_diagonal
        beta -= np.outer(normal.removed, leaving)
        beta[index] = kappa - normal.removed_last * leaving
        self.inverse_diagonal += normal.grown**2 / normal.scale - normal.removed**2 / normal.removed_diagonal
        self.inverse_diagonal[index] = 1.0 / normal.scale - normal.removed_last**2 / normal.removed_diagonal


def _swap_rows(rows: Floats, swap: Swap, last: Floats) -> Floats:
    """Apply a swap to rows of kernel values times an inverse, in place; return their entries for the leaving vector.

    `last` is what the rows have in common with the new vector: g for P⁻¹, r for K⁻¹ (shape: rows).
    """
    rows -= np.outer(last / swap.scale, swap.grown)
    out = rows[:, swap.index].copy()
    share = out / swap.removed_diagonal
    rows -= np.outer(share, swap.removed)
    rows[:, swap.index] = last / swap.scale - share * swap.removed_last
    return out


def _times_symmetric(lower: Floats, rows: Floats) -> Floats:
    """Return rows @ S for the symmetric S kept in its lower triangle; C order."""
    return np.asarray(blas.dsymm(1.0, lower, rows.T, side=0, lower=1).T)
