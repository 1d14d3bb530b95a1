"""One block of rows against one dictionary: products formed once, then run through by compiled code."""

import functools

import numpy as np
from scipy.linalg import blas

from ridgestream.pipeline.arrays import Floats, Integers
from ridgestream.pipeline.factorization import symmetric
from ridgestream.pipeline.kernels import Kernel
from ridgestream.pipeline.learners.block_run import Candidate, Dictionary, run_rows
from ridgestream.pipeline.learners.elimination import Carried, Rows, Tracking, measure_reach
from ridgestream.pipeline.learners.information import Border, Information
from ridgestream.pipeline.learners.inverses import Inverses
from ridgestream.pipeline.learners.lapack_calls import Lapack, find_lapack

SPAN_TOLERANCE = 1e-10
"""A row whose novelty is below this share of k(x, x) lies in the span of the dictionary, within rounding."""

BLUR_LIMIT = 1e-6
"""The share of the novelty threshold that rounding may reach before K⁻¹k is refined for every row."""

REFINEMENTS = 3
"""Corrections of K⁻¹k for every row, where rounding could blur its novelty."""

TRACKED_SHARE = 8
"""In a screened block one basis vector in so many, the weakest, has its entry of K⁻¹k computed for every row."""


class Block:
    """Kb = k(X, D), W = Kb P⁻¹ and A = Kb K⁻¹ of B weighted rows, by matrix products: O(B·n_basis²).

    A `screened` block computes K⁻¹k only where a bound does not rule a swap out; any other has A for all its rows.
    """

    def __init__(
        self,
        kernel: Kernel,
        centre: Floats | None,
        information: Information,
        inverses: Inverses,
        X: Floats,
        numbers: Integers,
        targets: Floats,
        weights: Floats,
        novelty_threshold: float,
        *,
        screened: bool,
    ) -> None:
        self.kernel, self.information, self.inverses = kernel, information, inverses
        kernel_rows, self_kernel = kernel.block(X, information.basis_vectors, centre), kernel.diagonal(X)
        spans = np.maximum(novelty_threshold, SPAN_TOLERANCE * self_kernel)
        self.careful = _blurs_novelty(inverses, self_kernel, spans)
        n_basis, n_rows = information.n_basis, len(X)
        self.tracking = _track(inverses, information, screened=screened and not self.careful)
        A = np.ascontiguousarray(kernel_rows @ inverses.gram[:, self.tracking.tracked])
        if self.careful:
            _refine_all(A, kernel_rows, information, inverses)
        roots = np.sqrt(weights)
        even = bool((weights == 1.0).all())
        scaled = kernel_rows if even else kernel_rows * roots[:, np.newaxis]
        self.rows = Rows(
            X=X,
            numbers=numbers,
            weights=weights,
            roots=roots,
            targets=targets * roots[:, np.newaxis],
            self_kernel=self_kernel,
            spans=spans,
            kernel=kernel_rows,
            scaled=scaled,
            products=np.asarray(blas.dsymm(1.0, inverses.normal, scaled.T, side=0, lower=1).T),
            swept=np.empty((n_rows, n_basis)),
            steps=np.empty_like(targets),
            pivots=np.empty(n_rows),
            innovations=np.empty_like(targets),
            A=A,
            factor=np.empty((n_rows, n_rows)),
        )
        n_targets = targets.shape[1]
        self.candidate = Candidate(
            np.empty(n_basis),
            np.empty(n_basis),
            np.empty(n_basis),
            np.empty(n_targets),
            np.empty(n_targets),
            np.empty(3),
        )

    def run(self, usefulness_threshold: float, *, full: bool, fresh: bool, counts: Integers) -> tuple[int, int, int]:
        """Learn until the block's end, a growth, or where a refresh is wanted: (what, rows learned, swaps made).

        At a growth the last row learned is to be given to `grow`.
        """
        information, inverses = self.information, self.inverses
        what, stop, swaps = run_rows(
            _lapack(),
            self.rows,
            Dictionary(
                information.basis_vectors,
                information.basis_rows,
                information.gram.T,
                information.normal_matrix.T,
                information.normal_rhs,
            ),
            Carried(inverses.gram.T, inverses.normal.T, inverses.beta, inverses.diagonal),
            self.tracking,
            self.candidate,
            self.kernel.kind,
            np.array([*self.kernel.parameters().values(), 0.0, 0.0, 0.0]),
            information.penalty,
            usefulness_threshold,
            full,
            self.careful,
            fresh,
            counts,
        )
        return what, stop, swaps

    def grow(self, j: int) -> None:
        """Append row j, at which `run` stopped with GROW, to the dictionary. The block ends with it."""
        new, rows = self.candidate, self.rows
        novelty, schur, corner = map(float, new.scalars)
        self.inverses.grow(new.a, novelty, new.w_b, schur, new.kappa)
        border = Border(new.normal, corner, new.rhs, rows.kernel[j], float(rows.self_kernel[j]))
        self.information.grow(border, rows.X[j], int(rows.numbers[j]))


@functools.cache
def _lapack() -> Lapack:
    return find_lapack()


def _blurs_novelty(inverses: Inverses, self_kernel: Floats, spans: Floats) -> bool:
    """Tell whether K⁻¹ is so large that rounding could blur the novelties that matter.

    Then K⁻¹k is refined for every row, and every change of the dictionary is followed by a refresh.
    """
    largest = float(self_kernel.max())
    rounding = float(np.trace(inverses.gram)) * largest**2 * np.finfo(np.float64).eps
    return bool(rounding > BLUR_LIMIT * spans.min())


def _refine_all(A: Floats, kernel_rows: Floats, information: Information, inverses: Inverses) -> None:
    K = symmetric(information.gram)
    for _ in range(REFINEMENTS):
        A += (kernel_rows - A @ K) @ inverses.gram


def _track(inverses: Inverses, information: Information, *, screened: bool) -> Tracking:
    """Choose whose entries of K⁻¹k are computed for every row: where √(K⁻¹)_ii/‖β_i‖ is largest, or all."""
    diagonal = np.diagonal(inverses.gram)
    order, n_tracked = np.arange(information.n_basis), information.n_basis
    if screened:
        n_tracked = max(1, information.n_basis // TRACKED_SHARE)
        order = np.argpartition(np.sum(inverses.beta**2, axis=0) / diagonal, n_tracked - 1)
    tracking = Tracking(order[:n_tracked], np.empty(information.n_basis), np.diagonal(information.gram).copy())
    measure_reach(inverses.gram.T, tracking)
    return tracking
