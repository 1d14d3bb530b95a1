"""The online LS-SVM as Jung & Polani (2006) write it, one row at a time in NumPy: the baseline of the blocked form.

P⁻¹, K⁻¹ and β are updated from row to row in float64, O(m²) words of memory traffic per row, and never recomputed. It
serves to measure time, with the papers' misprints corrected and the departures that are needed for the same decisions:
γ = λ·2^⌊log₂ n⌋, and a vector of a full dictionary is replaced at its index. Unless `grow_and_prune` is set, which is
the paper's form, it compares the scores first and skips an update that would restore the state. (The reference for
numbers is `online`, in extended precision.)
"""

from typing import Self

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.online.state import OnlineState

Array = npt.NDArray[np.float64]


class NumPyRowByRow:
    """One output, rows of weight one, Gaussian kernel; letters as in the paper."""

    grow_and_prune = False
    """Whether every useful row enters a full dictionary and the weakest vector is then deleted, even the row's own."""

    D: Array
    K_inverse: Array
    P_inverse: Array
    beta: Array
    penalty: float

    def __init__(
        self, gamma: float, regularization: float, max_basis: int, novelty: float = 1e-2, usefulness: float = 1e-4
    ) -> None:
        self.gamma, self.regularization, self.max_basis = gamma, regularization, max_basis
        self.novelty_threshold, self.usefulness_threshold = novelty, usefulness
        self.basis_rows: list[int] = []
        self.rows_seen = self.swaps = 0
        self.closest = np.inf

    @classmethod
    def of(cls, state: OnlineState, gamma: float) -> Self:
        """Return one that continues from a learner's state."""
        p = state.parameters
        assert p.max_basis is not None
        form = cls(gamma, p.regularization, p.max_basis, p.novelty_threshold, p.usefulness_threshold)
        form.D, form.penalty = state.basis_vectors.copy(), state.penalty
        form.K_inverse, form.P_inverse = _inverse(state.gram), _inverse(state.normal_matrix)
        form.beta = form.P_inverse @ state.normal_rhs[:, 0]
        form.basis_rows, form.rows_seen, form.swaps = state.basis_rows.tolist(), state.rows_seen, state.swaps
        return form

    def learn(self, X: Array, y: Array) -> Self:
        """Learn rows X (rows, d) with targets y (rows,), one after another.

        `closest` becomes the smallest relative gap of the comparisons that decided on one of them.
        """
        self.closest = np.inf
        for x, target in zip(X, y, strict=True):
            if self.basis_rows:
                self._learn_row(x, float(target))
            else:
                self._begin(x, float(target))
            self.rows_seen += 1
            self._follow_penalty()
        return self

    def predict(self, X: Array) -> Array:
        """f of rows (rows, d) with the coefficients at the stream's γ, shape (rows,)."""
        return np.array([self._kernel(x) @ self.beta for x in X])

    def _kernel(self, x: Array) -> Array:
        difference = self.D - x
        return np.asarray(np.exp(-self.gamma * np.einsum("ij,ij->i", difference, difference)))

    def _begin(self, x: Array, y: float) -> None:
        """D = [x], K = [1], P = [1 + γ], z = [y]."""
        self.penalty = self.regularization
        self.D, self.K_inverse = x[None].copy(), np.ones((1, 1))
        self.P_inverse = np.full((1, 1), 1 / (1 + self.penalty))
        self.beta = self.P_inverse[0] * y
        self.basis_rows = [0]

    def _learn_row(self, x: Array, y: float) -> None:
        k = self._kernel(x)
        a, g = self.K_inverse @ k, self.P_inverse @ k
        delta, Delta, rho = max(1.0 - float(a @ k), 0.0), 1.0 + float(g @ k), y - float(k @ self.beta)
        self.P_inverse -= np.outer(g / Delta, g)  # (9)
        self.beta += (rho / Delta) * g
        if not self._exceeds(delta, self.novelty_threshold):
            return
        pivot = delta**2 / Delta + self.penalty * delta
        kappa = delta * rho / (Delta * pivot)
        gain = kappa**2 * pivot
        if not self._exceeds(delta * gain, self.usefulness_threshold):
            return
        w = a + (delta / Delta) * g
        leaving = self._weakest(w, pivot, kappa, gain) if len(self.D) >= self.max_basis else None
        if leaving == len(self.D) and not self.grow_and_prune:
            return
        self._grow(x, a, delta, w, pivot, kappa)
        if leaving is not None:
            self._replace(leaving)

    def _weakest(self, w: Array, pivot: float, kappa: float, gain: float) -> int:
        """The index of the smallest score (19) of the m + 1 vectors after growing; m, the new one's, in a tie."""
        scores = (self.beta - kappa * w) ** 2 / (np.diagonal(self.P_inverse) + w**2 / pivot)
        weakest = int(np.argmin(scores))
        if not self._exceeds(gain, float(scores[weakest])):
            return len(scores)
        if len(scores) > 1:
            self._exceeds(*np.partition(scores, 1)[1::-1].tolist())
        return weakest

    def _exceeds(self, value: float, bar: float) -> bool:
        self.closest = min(self.closest, abs(value - bar) / max(abs(value), abs(bar), 1e-300))
        return value > bar

    def _grow(self, x: Array, a: Array, delta: float, w: Array, pivot: float, kappa: float) -> None:
        """(10), (12) and (15)."""
        self.D = np.vstack([self.D, x])
        self.K_inverse = _bordered(self.K_inverse, a, delta)
        self.P_inverse = _bordered(self.P_inverse, w, pivot)
        self.beta = np.append(self.beta - kappa * w, kappa)
        self.basis_rows.append(self.rows_seen)

    def _replace(self, index: int) -> None:
        """Move the last vector to `index`, then delete the last: (17) and (18)."""
        order = np.arange(len(self.D))
        order[[index, -1]] = order[[-1, index]]
        self.K_inverse, _ = _shrunk(self.K_inverse[np.ix_(order, order)])
        self.P_inverse, share = _shrunk(self.P_inverse[np.ix_(order, order)])
        beta = self.beta[order]
        self.beta = beta[:-1] - beta[-1] * share
        self.D = self.D[order[:-1]]
        self.basis_rows = [self.basis_rows[i] for i in order[:-1]]
        self.swaps += index < len(self.D)

    def _follow_penalty(self) -> None:
        """γ doubles where n reaches a power of two: (P + γK)⁻¹ = P⁻¹ − P⁻¹(P⁻¹ + K⁻¹/γ)⁻¹P⁻¹.

        Not via P: inverting an inverse with rounding errors loses the small eigenvalues.
        """
        if self.rows_seen & (self.rows_seen - 1) or self.rows_seen == 1:
            return
        half = np.linalg.inv(np.linalg.cholesky(self.P_inverse + self.K_inverse / self.penalty))
        self.beta -= self.P_inverse @ (half.T @ (half @ self.beta))
        lost = half @ self.P_inverse
        self.P_inverse = self.P_inverse - lost.T @ lost
        self.penalty *= 2


def _inverse(A: Array) -> Array:
    """A⁻¹ from a Cholesky factor, which keeps it symmetric."""
    half = np.linalg.inv(np.linalg.cholesky(A))
    return np.asarray(half.T @ half)


def _bordered(inverse: Array, vector: Array, scale: float) -> Array:
    """The inverse of the matrix with one more row and column: [[A + vvᵀ/s, −v/s], [−vᵀ/s, 1/s]]."""
    column = vector[:, None]
    return np.block([[inverse + column @ column.T / scale, -column / scale], [-column.T / scale, np.eye(1) / scale]])


def _shrunk(inverse: Array) -> tuple[Array, Array]:
    """The inverse without the last row and column of its matrix, and u/u* of the deleted ones."""
    u, corner = inverse[:-1, -1], inverse[-1, -1]
    return inverse[:-1, :-1] - np.outer(u / corner, u), u / corner
