"""The online LS-SVM one row at a time, in extended precision: the reference that tests compare with.

T. Jung and D. Polani, Sequential Learning with LS-SVM for Large-Scale Data Sets (2006), section 3, with a weight for
each row and a regularization that grows with the rows. Two departures, both needed for the numbers to be right:

- Equation (14) is misprinted; the new pivot is w delta^2/Delta + gamma delta. (18) lacks a minus, but no step here
  needs it.
- The state is P itself, not its inverse. A triangular S with S^T S = P^-1 is recomputed from P every `refresh_every`
  rows and after every change of the dictionary or the penalty; in between, (9) is applied to S in Potter's form.

Letters in the docstrings: m basis vectors, d features, c outputs; k = k(D, x), k* = k(x, x), gamma the penalty.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from support.references.extended_precision import Array, Kernel, Number, Real, bordered, inverse_factor, solve

SPAN_FLOOR = 1e-10
"""A novelty below this share of k* is rounding: the row is in the span of the dictionary."""
PIVOT_FLOOR = 1e-13
"""A pivot below this share of the new diagonal entry would make P numerically singular. That it is above does not keep
P regular, since many small steps compound; `max_condition` asks the same of every diagonal entry, and does."""


def relative_gap(a: Real | float, b: Real | float) -> float:
    """|a - b| / max(|a|, |b|); 0 for equals, 1 beside an infinite threshold."""
    if a == b:
        return 0.0
    return 1.0 if math.isinf(a) or math.isinf(b) else float(np.abs(a - b) / np.maximum(np.abs(a), np.abs(b)))


@dataclass(frozen=True)
class Decision:
    """What one row did to the dictionary."""

    action: Literal["absent", "absorb", "grow", "swap"]
    """'absent' is a row of weight 0."""
    index: int | None = None
    """Where the row entered the dictionary, if it did."""
    margin: float = math.inf
    """The relative gap of the closest comparison that could have changed the action or the index."""
    condition: float = 1.0
    """max_i P_ii (P^-1)_ii of the matrix decided on. Float64 is off by this times 2^-53, give or take a factor of ten:
    smaller margins decide nothing there."""


@dataclass(frozen=True)
class Candidate:
    """The row just absorbed, seen as one more basis vector: equations (4), (11) and (13) to (16) with weight w."""

    vector: Array
    """x, shape (d,)."""
    similarity: Array
    """k, shape (m,)."""
    self_similarity: Real
    """k*."""
    novelty: Real
    """delta = k* - k^T K^-1 k, clipped at 0."""
    direction: Array
    """w_b = a + (w delta/Delta) P^-1 k with a = K^-1 k and P before the row, shape (m,)."""
    border: Array
    """The new row of P: P a + w delta k with P after the row, shape (m,)."""
    corner: Real
    """The new diagonal entry of P: a^T P a + gamma (k* - a^T k) + 2 w delta a^T k + w delta^2."""
    rhs: Array
    """The new row of z: a^T z + w delta y with z after the row, shape (c,)."""
    pivot: Real
    """Delta_b = gamma delta + w delta^2/Delta."""
    coefficients: Array
    """kappa = w rho/(w delta + gamma Delta) with rho before the row, shape (c,)."""

    @property
    def gain(self) -> Real:
        """The fall of the cost if the vector is taken, and its own pruning score: sum_c kappa_c^2 Delta_b."""
        gain: Real = (self.coefficients**2).sum() * self.pivot
        return gain


class RowByRow:
    """The learner, its whole state {D, K, P, z, y^T y, n} in public attributes, and its decision for each row."""

    def __init__(
        self,
        kernel: Kernel,
        regularization: float,
        max_basis: int,
        novelty_threshold: float = 1e-2,
        usefulness_threshold: float = 1e-4,
        dtype: Number = np.longdouble,
        refresh_every: int = 1,
        max_condition: float = math.inf,
        stream_rows: int | None = None,
    ) -> None:
        if not (regularization > 0 and max_basis >= 1 and refresh_every >= 1):
            raise ValueError("expected regularization > 0, max_basis >= 1 and refresh_every >= 1")
        self.kernel, self.regularization, self.max_basis = kernel, regularization, max_basis
        self.novelty_threshold, self.usefulness_threshold = novelty_threshold, usefulness_threshold
        self.dtype, self.refresh_every, self.max_condition = dtype, refresh_every, max_condition
        self.stream_rows = stream_rows
        self.basis_vectors: Array = np.zeros((0, 0), dtype)
        self.basis_rows: list[int] = []
        self.gram: Array = np.zeros((0, 0), dtype)
        self.normal_matrix: Array = np.zeros((0, 0), dtype)
        self.normal_rhs: Array = np.zeros((0, 0), dtype)
        self.target_square: Array = np.zeros((0, 0), dtype)
        self.rows_seen = 0
        self.weight_seen = 0.0
        self.penalty: Real = dtype(0)
        self.decisions: list[Decision] = []

    @property
    def margins(self) -> npt.NDArray[np.float64]:
        """The margin of each row's decision, by row number."""
        return np.array([decision.margin for decision in self.decisions])

    def learn(self, x: npt.ArrayLike, y: npt.ArrayLike, weight: float = 1.0) -> Decision:
        """Absorb one row x (d,) with outputs y (c,), decide on it, and let the penalty follow the weight seen."""
        vector, outputs = np.asarray(x, self.dtype), np.atleast_1d(np.asarray(y, self.dtype))
        if self.target_square.size == 0:
            self._shape(len(vector), len(outputs))
        decision = Decision("absent") if weight == 0 else self._count(vector, outputs, self.dtype(weight))
        self.decisions.append(decision)
        return decision

    def beta(self) -> Array:
        """P^-1 z at the penalty of the stream, shape (m, c)."""
        return solve(self.normal_matrix, self.normal_rhs)

    def published_coefficients(self) -> Array:
        """(P + (lambda n - gamma) K)^-1 z: the coefficients at exactly lambda n, or lambda t, shape (m, c)."""
        correction = self.dtype(self.regularization) * self.dtype(self.stream_rows or self.weight_seen) - self.penalty
        return solve(self.normal_matrix + correction * self.gram, self.normal_rhs)

    def predict(self, X: npt.ArrayLike) -> Array:
        """Outputs (rows, c) of the published coefficients."""
        rows = np.asarray(X, self.dtype)
        if not self.basis_rows:
            return np.zeros((len(rows), len(self.target_square)), self.dtype)
        return self.kernel(rows, self.basis_vectors) @ self.published_coefficients()

    def cost(self) -> Real:
        """The regularized cost at its minimum over the coefficients, all outputs: sum_c yy_cc - z_c^T beta_c."""
        cost: Real = np.trace(self.target_square) - (self.normal_rhs * self.beta()).sum()
        return cost

    def scores(self) -> Array:
        """The rise of the cost if each vector were deleted, equation (19): sum_c beta_ic^2 / (P^-1)_ii, shape (m,)."""
        scores: Array = (self._coefficients() ** 2).sum(axis=1) / (self._S_P**2).sum(axis=0)
        return scores

    def scores_if_grown(self, candidate: Candidate) -> Array:
        """The scores of the m old vectors if the candidate were taken: (12) and (15) put into (19), shape (m,)."""
        beta = self._coefficients() - np.outer(candidate.direction, candidate.coefficients)
        scores: Array = (beta**2).sum(axis=1) / self._inverse_diagonal_if_grown(candidate)[:-1]
        return scores

    def _inverse_diagonal_if_grown(self, candidate: Candidate) -> Array:
        """The diagonal of (12), shape (m + 1,)."""
        old = (self._S_P**2).sum(axis=0) + candidate.direction**2 / candidate.pivot
        return np.append(old, 1 / candidate.pivot)

    def _condition(self) -> float:
        return float(np.max(np.diag(self.normal_matrix) * (self._S_P**2).sum(axis=0)))

    def _condition_if_grown(self, candidate: Candidate) -> float:
        if not candidate.pivot > 0:
            return math.inf
        diagonal = np.append(np.diag(self.normal_matrix), candidate.corner)
        return float(np.max(diagonal * self._inverse_diagonal_if_grown(candidate)))

    def _coefficients(self) -> Array:
        return self._S_P.T @ (self._S_P @ self.normal_rhs)

    def _shape(self, n_features: int, n_outputs: int) -> None:
        self.basis_vectors = np.zeros((0, n_features), self.dtype)
        self.normal_rhs = np.zeros((0, n_outputs), self.dtype)
        self.target_square = np.zeros((n_outputs, n_outputs), self.dtype)

    def _count(self, x: Array, y: Array, weight: Any) -> Decision:
        self.rows_seen += 1
        self.weight_seen += float(weight)
        self.target_square += weight * np.outer(y, y)
        decision = self._decide(self.absorb(x, y, weight)) if self.basis_rows else self._start(x, y, weight)
        self._follow_penalty()
        return decision

    def _penalty_due(self) -> Real:
        """gamma = lambda 2^floor(log2 n); frexp takes the floor without rounding."""
        regularization = self.dtype(self.regularization)
        if self.stream_rows is not None:
            return regularization * self.dtype(self.stream_rows)
        penalty: Real = np.ldexp(regularization, math.frexp(self.weight_seen)[1] - 1)
        return penalty

    def _follow_penalty(self) -> None:
        change = self._penalty_due() - self.penalty
        self.penalty = self.penalty + change
        if change != 0 and self.basis_rows:
            self.normal_matrix = self.normal_matrix + change * self.gram
            self._refresh()

    def _start(self, x: Array, y: Array, weight: Any) -> Decision:
        """The first row that has a length: K = [k*], P = [w k*^2 + gamma k*], z = [w k* y]."""
        self_similarity = self.kernel(x[None], x[None])
        if not self_similarity[0, 0] > 0:
            return Decision("absorb")
        self.penalty = self._penalty_due()
        self.basis_vectors, self.gram = x[None], self_similarity
        self.normal_matrix = weight * self_similarity**2 + self.penalty * self_similarity
        self.normal_rhs = weight * self_similarity * y
        self.basis_rows = [len(self.decisions)]
        self._refresh()
        return Decision("grow", 0)

    def _refresh(self) -> None:
        """Recompute S_K and S_P from K and P."""
        self._S_K, self._S_P = inverse_factor(self.gram), inverse_factor(self.normal_matrix)
        self._rows_since_refresh = 0

    def absorb(self, x: Array, y: Array, weight: Any) -> Candidate:
        """The normal step, (11): P += w k k^T, z += w k y. Returns the candidate for growing with the same row."""
        k, k_self = self.kernel(x[None], self.basis_vectors)[0], self.kernel(x[None], x[None])[0, 0]
        s_K, s_P = self._S_K @ k, self._S_P @ k
        a, g, Delta = self._S_K.T @ s_K, self._S_P.T @ s_P, 1 + weight * (s_P @ s_P)
        innovation = y - k @ self._coefficients()
        delta = max(k_self - s_K @ s_K, self.dtype(0))
        self.normal_matrix = self.normal_matrix + weight * np.outer(k, k)
        self.normal_rhs = self.normal_rhs + weight * np.outer(k, y)
        self._update_factor(s_P, g, weight, Delta)
        P_a = self.normal_matrix @ a
        return Candidate(
            vector=x,
            similarity=k,
            self_similarity=k_self,
            novelty=delta,
            direction=a + (weight * delta / Delta) * g,
            border=P_a + weight * delta * k,
            corner=a @ P_a + self.penalty * delta + 2 * weight * delta * (a @ k) + weight * delta**2,
            rhs=a @ self.normal_rhs + weight * delta * y,
            pivot=self.penalty * delta + weight * delta**2 / Delta,
            coefficients=weight * innovation / (weight * delta + self.penalty * Delta),
        )

    def _update_factor(self, s: Array, g: Array, weight: Any, Delta: Any) -> None:
        """S -= w/(Delta + sqrt Delta) s g^T, whose square is P^-1 -= (w/Delta) g g^T, equation (9)."""
        self._rows_since_refresh += 1
        if self._rows_since_refresh < self.refresh_every:
            self._S_P = self._S_P - (weight / (Delta + np.sqrt(Delta))) * np.outer(s, g)
        else:
            self._S_P, self._rows_since_refresh = inverse_factor(self.normal_matrix), 0

    def _decide(self, candidate: Candidate) -> Decision:
        """Absorb only, grow, or swap: a row refused by several tests is as safe as the clearest refusal."""
        condition = self._condition_if_grown(candidate)
        tests = (
            (candidate.novelty, np.maximum(self.novelty_threshold, SPAN_FLOOR * candidate.self_similarity)),
            (candidate.novelty * candidate.gain, self.usefulness_threshold),
            (candidate.pivot, PIVOT_FLOOR * candidate.corner),
            (1 / condition, 1 / self.max_condition),
        )
        gaps = [relative_gap(value, bar) for value, bar in tests]
        passed = [bool(value > bar) for value, bar in tests]
        if not all(passed):
            margin = max(gap for gap, well in zip(gaps, passed, strict=True) if not well)
            decided_on = min(condition, self.max_condition) if passed[0] else self._condition()
            return Decision("absorb", None, margin, decided_on)
        if len(self.basis_rows) >= self.max_basis:
            return self._compete(candidate, min(gaps), condition)
        self._enter(candidate, len(self.basis_rows))
        return Decision("grow", len(self.basis_rows) - 1, min(gaps), condition)

    def _compete(self, candidate: Candidate, margin: float, condition: float) -> Decision:
        """Delete the weakest of the m + 1 vectors; the new one if it ties with the weakest old one."""
        scores = self.scores_if_grown(candidate)
        weakest = int(np.argmin(scores))
        against_weakest = relative_gap(candidate.gain, scores[weakest])
        if not candidate.gain > scores[weakest]:
            return Decision("absorb", None, against_weakest, condition)
        runners_up = [relative_gap(score, scores[weakest]) for score in np.delete(scores, weakest)]
        self._enter(candidate, weakest)
        return Decision("swap", weakest, min(margin, against_weakest, *runners_up), condition)

    def _enter(self, candidate: Candidate, index: int) -> None:
        """Grow by the candidate, which replaces the vector at `index`, if there is one."""
        m, similarity = len(self.basis_rows), candidate.similarity
        order = [m if i == index else i for i in range(max(m, index + 1))]
        self.basis_vectors = np.vstack([self.basis_vectors, candidate.vector])[order]
        self.basis_rows = [[*self.basis_rows, len(self.decisions)][i] for i in order]
        self.gram = bordered(self.gram, similarity, candidate.self_similarity)[np.ix_(order, order)]
        self.normal_matrix = bordered(self.normal_matrix, candidate.border, candidate.corner)[np.ix_(order, order)]
        self.normal_rhs = np.vstack([self.normal_rhs, candidate.rhs])[order]
        self._refresh()
