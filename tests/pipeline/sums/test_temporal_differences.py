"""Sums over transitions against their definition, split and merged in any order, and their solutions."""

import pickle
from functools import reduce

import numpy as np
import pytest
from scipy.linalg import solve

from ridgestream.pipeline.base.errors import InputError, NumericalBreakdown
from ridgestream.pipeline.base.events import STEP_SUM_TRANSITIONS
from ridgestream.pipeline.base.serialization import from_plain, to_plain
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import ArrayRows, cut_evenly
from ridgestream.pipeline.sums.temporal_differences import TransitionStatistics, TransitionSumming, sum_transitions

BASIS = Basis(RBF(0.3), np.random.default_rng(1).standard_normal((6, 2)), np.zeros(2))
SUMMING = TransitionSumming(BASIS, discount=0.9, n_rewards=2)


def draw(n_rows: int, seed: int = 0) -> ArrayRows:
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, 2, (n_rows, 1))
    features = np.hstack([rng.standard_normal((n_rows, 4)), ends])
    return ArrayRows(features, rng.standard_normal((n_rows, 2)), rng.choice([0.0, 0.5, 3.0], n_rows))


def test_sums_are_what_they_are_defined_to_be() -> None:
    rows = draw(50)
    assert rows.weights is not None
    A, b = np.zeros((6, 6)), np.zeros((6, 2))
    for features, rewards, weight in zip(rows.features, rows.targets, rows.weights, strict=True):
        now, then = (BASIS.values(features[np.newaxis, part])[0] for part in (slice(0, 2), slice(2, 4)))
        A += weight * np.outer(now, now - 0.9 * features[4] * then)
        b += weight * np.outer(now, rewards)
    sums = rows.reduce(sum_transitions, SUMMING, STEP_SUM_TRANSITIONS)
    np.testing.assert_allclose(sums.products, A, atol=1e-13)
    np.testing.assert_allclose(sums.rhs, b, atol=1e-13)
    assert (sums.weight, sums.rows) == (rows.weights.sum(), 50)
    assert not np.allclose(A, A.T)


def test_more_rows_than_are_evaluated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = draw(700)
    whole = rows.reduce(sum_transitions, SUMMING, STEP_SUM_TRANSITIONS)
    monkeypatch.setattr(Basis, "kernel_rows", 64)
    parts = rows.reduce(sum_transitions, SUMMING, STEP_SUM_TRANSITIONS)
    np.testing.assert_allclose(parts.products, whole.products, atol=1e-11)
    assert (parts.rows, parts.weight) == (700, whole.weight)


def test_workers_in_any_order_give_the_bits_of_one_process() -> None:
    """Parts are summed in any order, sent as a checkpoint or a pickle, and merged in the order of the rows."""
    rows = draw(90)
    assert rows.weights is not None
    whole, parts = rows.reduce(sum_transitions, SUMMING, STEP_SUM_TRANSITIONS, parts=4), {}
    for start, stop in reversed(cut_evenly(90, 4)):
        part = slice(start, stop)
        block = RowBlock(rows.features[part], rows.targets[part], rows.weights[part], start)
        sums = sum_transitions(SUMMING, [block])
        parts[start] = pickle.loads(pickle.dumps(from_plain(TransitionStatistics, *to_plain(sums))))  # noqa: S301
    merged = reduce(TransitionStatistics.merge, (parts[start] for start in sorted(parts)))
    assert merged.products.tobytes() == whole.products.tobytes()
    assert merged.rhs.tobytes() == whole.rhs.tobytes()


def test_no_transition_has_the_value_zero() -> None:
    sums = TransitionStatistics.empty(6, 2)
    assert not sums.solve(BASIS.penalty(), 1e-3).any()


def test_sums_of_other_shapes_are_refused() -> None:
    with pytest.raises(InputError, match=r"sums of shapes \(6, 2\) and \(6, 1\) are not of one basis and rewards"):
        TransitionStatistics.empty(6, 2).merge(TransitionStatistics.empty(6, 1))


def test_sums_of_combined_functions_are_those_of_their_values() -> None:
    rng, values = np.random.default_rng(3), np.random.default_rng(4).standard_normal((20, 6))
    ahead, rewards, T = rng.standard_normal((20, 6)), rng.standard_normal((20, 1)), rng.standard_normal((4, 6))
    sums = TransitionStatistics(values.T @ (values - ahead), values.T @ rewards, 20.0, 20).project(T)
    new, new_ahead = values @ T.T, ahead @ T.T
    np.testing.assert_allclose(sums.products, new.T @ (new - new_ahead), atol=1e-12)
    np.testing.assert_allclose(sums.rhs, new.T @ rewards, atol=1e-12)


def test_a_solution_is_that_of_the_penalized_system() -> None:
    sums, K = draw(50).reduce(sum_transitions, SUMMING, STEP_SUM_TRANSITIONS), BASIS.penalty()
    expected = solve(sums.products + 1e-3 * sums.weight * K, sums.rhs)
    np.testing.assert_allclose(sums.solve(K, 1e-3), expected, rtol=1e-9)


def test_a_matrix_that_is_almost_singular_gets_a_jitter() -> None:
    sums = TransitionStatistics(np.diag([1.0, 1e-20]), np.array([[1.0], [0.0]]), 1.0, 1)
    np.testing.assert_allclose(sums.solve(np.zeros((2, 2)), 1.0), [[1.0], [0.0]], atol=1e-9)


def test_a_singular_matrix_is_refused_with_a_remedy() -> None:
    sums = TransitionStatistics(np.zeros((2, 2)), np.ones((2, 1)), 1.0, 1)
    with pytest.raises(NumericalBreakdown, match=r"singular within rounding.*raise regularization, or lower discount"):
        sums.solve(np.zeros((2, 2)), 1.0)
