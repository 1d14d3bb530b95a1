"""The reference is itself tested: against all rows stored, against inverses of the true matrices, and by hand."""

import copy
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.data.streams import Stream, make_stream, streams
from support.references.extended_precision import (
    Array,
    GaussianKernel,
    Number,
    Real,
    bordered,
    cholesky,
    direct_coefficients,
    inverse_factor,
    solve,
)
from support.references.online import Candidate, RowByRow, relative_gap

EXACT = 1e-11
"""Relative; the arithmetic has 19 digits, the condition of the instances takes the rest."""


def close(actual: Array | Real, expected: Array | Real, tolerance: float = EXACT) -> bool:
    """Equal within a share of the largest expected entry."""
    scale = max(float(np.max(np.abs(expected), initial=0.0)), 1e-300)
    return bool(np.all(np.abs(np.asarray(actual) - np.asarray(expected)) <= tolerance * scale))


def learner_of(
    stream: Stream, dtype: Number = np.longdouble, refresh_every: int = 1, max_condition: float = 1e12
) -> RowByRow:
    return RowByRow(
        GaussianKernel(stream.gamma, dtype),
        stream.regularization,
        stream.max_basis,
        stream.novelty_threshold,
        stream.usefulness_threshold,
        dtype=dtype,
        refresh_every=refresh_every,
        max_condition=max_condition,
    )


def learn_all(learner: RowByRow, stream: Stream) -> RowByRow:
    for x, y, weight in zip(stream.X, stream.y, stream.weights, strict=True):
        learner.learn(x, y, weight)
    return learner


class AllRows:
    """The design K~ (t, m) that the paper does without, rows scaled by w^1/2, filled by decisions."""

    def __init__(self, kernel: GaussianKernel, c: int) -> None:
        self.kernel = kernel
        self.design, self.targets = np.zeros((0, 0), np.longdouble), np.zeros((0, c), np.longdouble)
        self.basis: list[Array] = []
        self.tolerance = 1e-16

    def add(self, x: Array, y: Array, weight: float) -> Array:
        """Append a row; return the column q that the row would append as a basis vector, [K~ a ; w^1/2 k*]."""
        root, k_self = np.sqrt(np.longdouble(weight)), self.kernel(x[None], x[None])[0]
        self.targets = np.vstack([self.targets, root * y])
        if not self.basis:
            self.design = np.zeros((len(self.targets), 0), np.longdouble)
            return np.append(self.design.sum(axis=1)[:-1], root * k_self)
        k, S_K = self.kernel(np.array(self.basis), x[None]), inverse_factor(self.gram())
        self.tolerance = max(self.tolerance, 1e-16 * float((S_K**2).sum()))
        column = np.vstack([self.design @ (S_K.T @ (S_K @ k)), root * k_self])[:, 0]
        self.design = np.vstack([self.design, root * k.T])
        return column

    def enter(self, x: Array, column: Array, index: int) -> None:
        if index == len(self.basis):
            self.basis.append(x)
            self.design = np.column_stack([self.design, column])
        else:
            self.basis[index] = x
            self.design[:, index] = column

    def gram(self) -> Array:
        return self.kernel(np.array(self.basis), np.array(self.basis))


def keep_all_rows(learner: RowByRow, stream: Stream) -> AllRows:
    """Apply the decisions of `learner` on `stream` with every row stored."""
    rows = AllRows(GaussianKernel(stream.gamma), stream.y.shape[1])
    for x, y, weight, decision in zip(stream.X, stream.y, stream.weights, learner.decisions, strict=True):
        if decision.action == "absent":
            continue
        column = rows.add(x, y, weight)
        if decision.index is not None:
            rows.enter(x, column, decision.index)
    return rows


@dataclass(frozen=True)
class Instance:
    """A learner with one more row absorbed, and the same row as a column and a border of the true matrices."""

    learner: RowByRow
    candidate: Candidate
    penalty: float
    weight: float
    design: Array
    """[K~ q], shape (t, m + 1)."""
    targets: Array
    gram: Array
    """[[K, k], [k^T, k*]]."""

    @property
    def true_matrix(self) -> Array:
        return self.design.T @ self.design + self.penalty * self.gram

    @property
    def true_inverse(self) -> Array:
        return solve(self.true_matrix, np.eye(len(self.gram), dtype=np.longdouble))


def make_instance(seed: int, n: int, d: int, c: int, weight: float) -> Instance:
    """A cloud with thresholds low enough that swaps occur, then one row of the given weight."""
    X, y, weights = make_stream("cloud", "smooth", "mixed", seed, n=n + 1, d=d, c=c, centres=5)
    weights[0] = 1.0
    stream = Stream(
        X[:-1],
        y[:-1],
        weights[:-1],
        max_basis=4,
        gamma=1.0 / d,
        regularization=1e-2,
        novelty_threshold=1e-3,
        usefulness_threshold=0.0,
    )
    learner = learn_all(learner_of(stream), stream)
    rows = keep_all_rows(learner, stream)
    column = rows.add(X[-1], y[-1], weight)
    candidate = learner.absorb(*(np.asarray(v, np.longdouble) for v in (X[-1], y[-1], weight)))
    gram = bordered(rows.gram(), candidate.similarity, candidate.self_similarity)
    penalty = float(learner.penalty)
    return Instance(learner, candidate, penalty, weight, np.column_stack([rows.design, column]), rows.targets, gram)


def instances() -> st.SearchStrategy[Instance]:
    sizes = {"n": st.integers(1, 25), "d": st.integers(1, 4), "c": st.integers(1, 3)}
    weights = st.sampled_from([1.0, 0.3, 2.0])
    return st.builds(make_instance, st.integers(0, 2**32 - 1), **sizes, weight=weights).filter(
        lambda instance: instance.candidate.novelty > 1e-4
    )


@given(instances())
@settings(max_examples=100, deadline=None)
def test_growth_is_block_inversion(instance: Instance) -> None:
    inverse, candidate = instance.true_inverse, instance.candidate
    assert close(candidate.pivot, 1 / inverse[-1, -1])
    assert close(candidate.direction, -inverse[:-1, -1] / inverse[-1, -1])
    assert close(candidate.coefficients, (inverse @ instance.design.T @ instance.targets)[-1])
    assert close(candidate.border, instance.true_matrix[-1, :-1])
    assert close(candidate.corner, instance.true_matrix[-1, -1])
    assert close(candidate.rhs, instance.design[:, -1] @ instance.targets)


def printed_pivot(instance: Instance) -> float:
    """Equation (14) as printed, without weights."""
    candidate, m = instance.candidate, len(instance.gram) - 1
    k, k_self, delta, w_b = candidate.similarity, candidate.self_similarity, candidate.novelty, candidate.direction
    old = instance.learner.normal_matrix - np.outer(k, k)
    quadratic = (k[None] @ solve(old, k.reshape(m, 1)))[0, 0]
    bracket = 2 * delta - 2 * k_self + instance.penalty
    return float(k_self**2 + delta * bracket - delta**2 * quadratic - (w_b @ k) ** 2)


def test_equation_14_is_misprinted() -> None:
    """Its pivot is right only for a row far from all others, where k = 0, and can be negative."""
    instances = [make_instance(seed, n=12, d=2, c=1, weight=1.0) for seed in range(20)]
    near = [instance for instance in instances if 1e-3 < instance.candidate.novelty < 0.8]
    assert len(near) > 10
    assert all(relative_gap(printed_pivot(instance), instance.candidate.pivot) > 0.05 for instance in near)
    assert any(printed_pivot(instance) < 0 for instance in near)


def minimum(P: Array, z: Array, target_square: Array) -> Real:
    """min over beta of the cost: trace(yy - z^T P^-1 z)."""
    cost: Real = np.trace(target_square - z.T @ solve(P, z))
    return cost


@given(instances())
@settings(max_examples=100, deadline=None)
def test_score_is_the_rise_of_the_cost_without_the_vector(instance: Instance) -> None:
    learner, m = instance.learner, len(instance.gram) - 1
    assume(m > 1)
    learner.target_square = instance.targets.T @ instance.targets
    P, z = learner.normal_matrix, learner.normal_rhs
    for i, score in enumerate(learner.scores()):
        rest = np.delete(np.arange(m), i)
        rise = minimum(P[np.ix_(rest, rest)], z[rest], learner.target_square) - learner.cost()
        assert abs(score - rise) <= EXACT * np.trace(learner.target_square)


@given(instances())
@settings(max_examples=100, deadline=None)
def test_scores_after_growing_are_those_of_the_grown_learner(instance: Instance) -> None:
    learner, candidate = instance.learner, instance.candidate
    expected = np.append(learner.scores_if_grown(candidate), candidate.gain)
    before = learner.cost()
    learner._enter(candidate, len(learner.basis_rows))
    assert close(learner.scores(), expected, 1e-9)
    assert close(before - learner.cost(), candidate.gain, 1e-9)


@given(instances())
@settings(max_examples=100, deadline=None)
def test_the_swap_condition_agrees_with_the_scores_after_growing(instance: Instance) -> None:
    """w^2 delta rho^2/Delta + 2 w rho (beta_i/q_i) w_b,i > eps_i (w delta + gamma Delta), summed over outputs."""
    learner, candidate, w, gamma = instance.learner, instance.candidate, instance.weight, instance.penalty
    Delta = w * candidate.novelty**2 / (candidate.pivot - gamma * candidate.novelty)
    scale = w * candidate.novelty + gamma * Delta
    rho = candidate.coefficients * scale / w
    q = np.diag(solve(learner.normal_matrix, np.eye(len(learner.basis_rows), dtype=np.longdouble)))
    left = w**2 * candidate.novelty * (rho @ rho) / Delta + 2 * w * (learner.beta() @ rho) / q * candidate.direction
    right = learner.scores() * scale
    scores = learner.scores_if_grown(candidate)
    clear = np.array([relative_gap(candidate.gain, score) > 1e-9 for score in scores])
    assert np.array_equal((left > right)[clear], (candidate.gain > scores)[clear])


@given(streams(max_rows=80))
@settings(max_examples=100, deadline=None)
def test_state_is_that_of_all_rows_stored(stream: Stream) -> None:
    learner = learn_all(learner_of(stream), stream)
    rows = keep_all_rows(learner, stream)
    assert np.array_equal(learner.basis_vectors, stream.X[learner.basis_rows])
    assert close(learner.target_square, rows.targets.T @ rows.targets)
    if rows.basis:
        P = rows.design.T @ rows.design + learner.penalty * rows.gram()
        assert np.array_equal(learner.gram, rows.gram())
        assert close(learner.normal_matrix, P, rows.tolerance)
        assert close(learner.normal_rhs, rows.design.T @ rows.targets, rows.tolerance)


@given(streams(max_rows=80))
@settings(max_examples=60, deadline=None)
def test_swap_in_place_is_grow_then_delete(stream: Stream) -> None:
    learner, m = learner_of(stream), stream.max_basis
    for x, y, weight in zip(stream.X, stream.y, stream.weights, strict=True):
        wider = copy.deepcopy(learner)
        wider.max_basis = m + 1
        penalty, decision = learner.penalty, learner.learn(x, y, weight)
        if decision.action == "swap":
            assert wider.learn(x, y, weight).action == "grow"
            order = [m if i == decision.index else i for i in range(m)]
            assert np.array_equal(learner.basis_vectors, wider.basis_vectors[order])
            assert close(learner.normal_matrix, wider.normal_matrix[np.ix_(order, order)])
            assert close(learner.normal_rhs, wider.normal_rhs[order])
            if learner.penalty == penalty and decision.margin > 1e-6:
                assert decision.index == np.argmin(wider.scores())


@given(streams(max_rows=60))
@settings(max_examples=60, deadline=None)
def test_duplicates_never_enter(stream: Stream) -> None:
    learner = learn_all(learner_of(stream), stream)
    assert len(np.unique(learner.basis_vectors, axis=0)) == len(learner.basis_rows) <= stream.max_basis


def fixed_dictionary(stream: Stream, k: int) -> RowByRow:
    """A learner that takes the first k rows into the dictionary and only absorbs later ones."""
    learner = RowByRow(GaussianKernel(stream.gamma), stream.regularization, k, 0.0, 0.0)
    for x, y, weight in zip(stream.X[:k], stream.y[:k], stream.weights[:k], strict=True):
        learner.learn(x, y, weight)
    assert learner.basis_rows == list(range(k))
    learner.novelty_threshold = np.inf
    return learner


def easy_stream(n: int, c: int = 2) -> Stream:
    X, y, weights = make_stream("cloud", "smooth", "ones", 7, n=n, d=3, c=c, centres=1)
    return Stream(
        X, y, weights, max_basis=20, gamma=1 / 3, regularization=1e-3, novelty_threshold=1e-2, usefulness_threshold=1e-4
    )


def test_fixed_dictionary_gives_the_direct_solution() -> None:
    stream, k = easy_stream(100), 8
    learner = fixed_dictionary(stream, k)
    for n in range(k, 100):
        learner.learn(stream.X[n], stream.y[n])
        rows, targets = stream.X[: n + 1].astype(np.longdouble), stream.y[: n + 1].astype(np.longdouble)
        weights, kernel, basis = np.ones(n + 1, np.longdouble), learner.kernel, learner.basis_vectors
        published = direct_coefficients(kernel, basis, rows, targets, weights, stream.regularization * (n + 1))
        assert close(learner.beta(), direct_coefficients(kernel, basis, rows, targets, weights, float(learner.penalty)))
        assert close(learner.published_coefficients(), published)
    assert close(learner.predict(stream.X), kernel(rows, basis) @ published)


def test_weight_two_is_the_row_twice_for_a_fixed_dictionary() -> None:
    stream = easy_stream(60)
    once, twice = fixed_dictionary(stream, 8), fixed_dictionary(stream, 8)
    for x, y in zip(stream.X[8:], stream.y[8:], strict=True):
        once.learn(x, y, 2.0)
        twice.learn(x, y)
        twice.learn(x, y)
    assert once.penalty == twice.penalty == 1e-3 * 64
    assert once.weight_seen == twice.weight_seen == 112
    assert close(once.normal_matrix, twice.normal_matrix)
    assert close(once.published_coefficients(), twice.published_coefficients())
    assert close(once.cost(), twice.cost())


@given(streams(max_rows=60))
@settings(max_examples=60, deadline=None)
def test_rows_of_weight_zero_are_absent(stream: Stream) -> None:
    present = np.flatnonzero(stream.weights)
    learner = learn_all(learner_of(stream), stream)
    without = learner_of(stream)
    for row in present:
        without.learn(stream.X[row], stream.y[row], stream.weights[row])
    assert learner.basis_rows == [present[i] for i in without.basis_rows]
    assert (learner.rows_seen, len(learner.decisions)) == (len(present), len(stream.X))
    assert np.array_equal(learner.normal_matrix, without.normal_matrix)


def test_penalty_doubles_after_the_row_that_reaches_a_power_of_two() -> None:
    learner, weights = RowByRow(GaussianKernel(1.0), 1.0, 5, np.inf), [0.3125, 0.25, 0.4375, 1.0, 5.0, 0.0, 1.0]
    penalties = [(learner.learn([0.0], [1.0], weight), float(learner.penalty))[1] for weight in weights]
    assert penalties == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 8.0]
    assert close(learner.normal_matrix, np.full((1, 1), 8.0 + 8.0))


@given(streams(max_rows=100))
@settings(max_examples=60, deadline=None)
def test_float64_makes_the_same_decisions_where_margin_and_condition_allow(stream: Stream) -> None:
    exact, rounded = learner_of(stream), learner_of(stream, np.float64)
    for x, y, weight in zip(stream.X, stream.y, stream.weights, strict=True):
        decision = exact.learn(x, y, weight)
        if decision.margin < max(1e-10, 1e3 * decision.condition * 2**-53):
            return
        other = rounded.learn(x, y, weight)
        assert (other.action, other.index) == (decision.action, decision.index)


def test_only_the_condition_of_all_vectors_keeps_the_matrix_regular() -> None:
    """Each vector keeps the pivot rule, yet P ends singular in float64; the rule for all diagonal entries holds it."""
    rows = make_stream("cloud", "spikes", "ones", 1, n=150, d=1, c=1, centres=22)
    stream = Stream(*rows, 21, 1.0, 1e-7, novelty_threshold=0.0, usefulness_threshold=0.0)
    with pytest.raises(ArithmeticError, match="not positive definite"):
        learn_all(learner_of(stream, np.float64, max_condition=np.inf), stream)
    learner = learn_all(learner_of(stream, np.float64), stream)
    assert 1e6 < learner._condition() < 1e13


def linear(A: Array, B: Array) -> Array:
    return A @ B.T


def test_a_first_row_with_zero_self_kernel_is_only_counted() -> None:
    learner = RowByRow(linear, 0.5, 3)
    learner.learn([0.0, 0.0], [3.0])
    assert (learner.rows_seen, len(learner.basis_rows), float(learner.cost())) == (1, 0, 9.0)
    assert np.array_equal(learner.predict([[1.0, 1.0]]), [[0.0]])
    assert learner.learn([1.0, 1.0], [2.0]).action == "grow"
    assert learner.basis_rows == [1]
    assert np.array_equal(learner.normal_matrix, [[2.0 * 2.0 + 1.0 * 2.0]])
    assert np.array_equal(learner.normal_rhs, [[4.0]])
    assert learner.learn([0.0, 0.0], [1.0]).action == "absorb"
    assert (learner.rows_seen, float(learner.target_square[0, 0])) == (3, 14.0)


@given(streams(max_rows=100))
@settings(max_examples=60, deadline=None)
def test_rank_one_updates_decide_as_recomputed_factors_do(stream: Stream) -> None:
    fresh, updated = learn_all(learner_of(stream), stream), learn_all(learner_of(stream, refresh_every=1000), stream)
    clear = fresh.margins.min() > 1e-10
    assert not clear or fresh.basis_rows == updated.basis_rows
    assert not clear or close(updated.normal_matrix, fresh.normal_matrix)


def test_margins_show_how_close_a_refusal_was() -> None:
    """The second row has novelty 1 - exp(-2): just above it as threshold, just below it, and far above."""
    delta = 1 - np.exp(np.longdouble(-2))
    for factor, action, margin in ((1 + 1e-6, "absorb", 1e-6), (1 - 1e-6, "grow", 1e-6), (2.0, "absorb", 0.5)):
        learner = RowByRow(GaussianKernel(1.0), 0.1, 5, float(delta * factor), 1e-9)
        learner.learn([0.0], [1.0])
        decision = learner.learn([1.0], [-1.0])
        assert decision.action == action
        assert decision.margin == pytest.approx(margin, rel=1e-3)


def test_cholesky_has_the_digits_of_extended_precision() -> None:
    """The Hilbert matrix of order 9 has condition 5e11."""
    n = np.arange(9)
    hilbert = 1 / (n[:, None] + n + 1).astype(np.longdouble)
    L, S = cholesky(hilbert), inverse_factor(hilbert)
    assert close(L @ L.T, hilbert, 1e-18)
    assert close(S @ L, np.eye(9), 1e-13)


def test_cholesky_reports_the_pivot_that_fails() -> None:
    with pytest.raises(ArithmeticError, match="not positive definite: pivot 1 of 2 is 0"):
        cholesky(np.ones((2, 2), np.longdouble))


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="expected regularization > 0, max_basis >= 1"):
        RowByRow(GaussianKernel(1.0), 0.0, 5)
