"""The candidate: a row that may become a basis vector, what P, K and z would gain, and whether it may be taken."""

import math

import numpy as np

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.online.compiled.arrays import Model, Rows, Scratch
from ridgestream.pipeline.online.compiled.jit import compiled_inline, compiled_part
from ridgestream.pipeline.online.compiled.lapack import Lapack, times_vector
from ridgestream.pipeline.online.compiled.swap_criterion import REFUSED
from ridgestream.pipeline.online.compiled.vector_loops import add_multiple, add_squares, dot

CONDITION_LIMIT = 1e12
"""A vector that would raise any P_ii (P⁻¹)_ii to this value would leave P singular within rounding, and is refused.

To test the new vector's own pivot is not enough: many vectors near the span add up.
"""

DRIFT_LIMIT = 1e-6
"""Where P(P⁻¹k) differs from k by more than this share of its largest entry, a refresh comes before the decision."""

REFINEMENTS = 4
"""Most corrections of K⁻¹k; they end sooner where the residual no longer halves."""

LAST_RESIDUAL = 1e-8
"""A residual of K⁻¹k of at most this share of k needs only one more correction: each removes as many digits again."""


@compiled_part
def times_normal(lapack: Lapack, normal: Floats, pending: Floats, x: Floats, out: Floats) -> Floats:
    """Compute out = P x, where P includes the rows √w k still `pending`; return their products with x."""
    times_vector(lapack, normal, x, out)
    shares: Floats = np.dot(pending, x)
    out += np.dot(shares, pending)
    return shares


@compiled_inline
def is_stale(lapack: Lapack, normal: Floats, rows: Rows, j: int) -> bool:
    """Whether P⁻¹k of row j has drifted: P of the rows before it times P⁻¹k is not k."""
    k, m, scale = rows.kernel[j], rows.kernel.shape[1], math.sqrt(rows.pivots[j] / rows.weights[j])
    x, back = np.zeros(m), np.empty(m)
    add_multiple(x, scale, rows.directions[j])
    times_normal(lapack, normal, rows.weighted_kernel[:j], x, back)
    largest, worst = 0.0, 0.0
    for i in range(len(k)):
        largest = max(largest, abs(k[i]))
        worst = max(worst, abs(k[i] - back[i]))
    return bool(worst > DRIFT_LIMIT * largest)


@compiled_part
def refine(lapack: Lapack, gram: Floats, gram_inverse: Floats, k: Floats, a: Floats) -> None:
    """Refine a = K⁻¹k against K itself.

    The new border of P is P a + …, so an error of a stays in the state. It is harmless if the residual k − K a is of
    the size of rounding, which an updated inverse does not give and a few corrections do.
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


@compiled_inline
def evaluate(scratch: Scratch, model: Model, rows: Rows, j: int, penalty: float) -> bool:
    """Fill the candidate from row j; return whether it may be taken; O(m²). P does not yet include the rows up to j.

    It may not if its novelty, computed again with a refined a = K⁻¹k, is too small after all, or if it would leave P
    singular within rounding, which is counted.
    """
    lapack, new, information = scratch.lapack, scratch.candidate, model.information
    k, w, pivot, m = rows.kernel[j], rows.weights[j], rows.pivots[j], len(new.a)
    refine(lapack, information.gram, model.inverses.gram, k, new.a)
    ak = dot(new.a, k)
    novelty = rows.self_kernel[j] - ak
    new.scalars[0] = novelty
    if not novelty > rows.least_novelty[j]:
        return False
    lift = w * novelty
    schur = penalty * novelty + lift * novelty / pivot
    pending = rows.weighted_kernel[: j + 1]
    shares = times_normal(lapack, information.normal, pending, new.a, new.normal)
    corner = dot(new.a, new.normal) + penalty * novelty + 2.0 * lift * ak + lift * novelty
    new.scalars[1], new.scalars[2] = schur, corner
    worst = corner / schur
    diagonal = np.empty(m)
    for i in range(m):
        diagonal[i] = information.normal[i, i]
    for r in range(j + 1):
        add_squares(diagonal, pending[r])
    for i in range(m):
        new.normal[i] += lift * k[i]
        new.w_b[i] = new.a[i] + novelty * math.sqrt(w / pivot) * rows.directions[j, i]
        worst = max(worst, diagonal[i] * (model.inverses.diagonal[i] + new.w_b[i] ** 2 / schur))
    for c in range(len(new.kappa)):
        new.kappa[c] = w * rows.innovations[j, c] / (lift + penalty * pivot)
        new.rhs[c] = lift * rows.targets[j, c] / rows.root_weights[j]
        for r in range(j + 1):
            new.rhs[c] += shares[r] * rows.targets[r, c]
        for i in range(m):
            new.rhs[c] += new.a[i] * information.rhs[i, c]
    scratch.counts[REFUSED] += 0 if worst < CONDITION_LIMIT else 1
    return bool(worst < CONDITION_LIMIT)
