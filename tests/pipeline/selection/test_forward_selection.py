"""Choosing on sums: the choices of one fit a candidate, whatever the block, and nested models of every size."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.references.forward_selection import choose_slowly, fitted_gain

import ridgestream.pipeline.selection.forward_selection as module
from ridgestream.pipeline.base.errors import InputError, NumericalBreakdown
from ridgestream.pipeline.selection.forward_selection import Chosen, choose_by_gain

Array = npt.NDArray[np.float64]


def draw(n: int, seed: int = 0, n_targets: int = 1, ridge: float = 0.1) -> tuple[Array, Array]:
    """P and z of random functions, correlated enough that a choice changes the others' gains."""
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((3 * n, n)) @ (np.eye(n) + rng.standard_normal((n, n)) / 2)
    targets = rng.standard_normal((3 * n, n_targets))
    return mixed.T @ mixed + ridge * np.eye(n), mixed.T @ targets


def assert_same(choices: Chosen, normal: Array, rhs: Array, rounds: list[npt.NDArray[np.int64]], n_wanted: int) -> None:
    slow = choose_slowly(normal, rhs, rounds, n_wanted)
    unsure = [i for i, margin in enumerate(slow.margins) if margin < 1e-10]
    clear = unsure[0] if unsure else len(slow.places)
    assert choices.columns[:clear].tolist() == slow.places[:clear]
    assert len(choices.columns) == len(slow.places) or unsure


def assert_factorizes(choices: Chosen, normal: Array, rhs: Array) -> None:
    P, z = normal[np.ix_(choices.columns, choices.columns)], rhs[choices.columns]
    L, u = choices.factor, choices.half_solution
    assert (np.triu(L, 1) == 0).all()
    np.testing.assert_allclose(L @ L.T, P, rtol=0, atol=1e-11 * np.abs(P).max(initial=1.0))
    np.testing.assert_allclose(L @ u, z, rtol=0, atol=1e-10 * np.abs(z).max(initial=1.0))


@pytest.mark.parametrize("n_targets", [1, 3])
@pytest.mark.parametrize("block", [1, 7, 64])
def test_it_chooses_what_a_fit_a_candidate_would(n_targets: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_CHOICES", block)
    normal, rhs = draw(40, n_targets=n_targets)
    choices = choose_by_gain(normal, rhs, 30)
    assert_same(choices, normal, rhs, [np.arange(40)] * 30, 30)
    assert_factorizes(choices, normal, rhs)
    assert choices.rounds.tolist() == list(range(30))
    gains = [fitted_gain(normal, rhs, choices.columns[: m + 1].tolist()) for m in range(30)]
    np.testing.assert_allclose(np.cumsum(choices.gains), gains, rtol=1e-9)


def test_more_choices_than_a_block_leave_the_factor_exact() -> None:
    normal, rhs = draw(300, ridge=50.0)
    choices = choose_by_gain(normal, rhs, 300)
    assert sorted(choices.columns) == list(range(300))
    assert_factorizes(choices, normal, rhs)
    assert (choices.pivots > 0).all()


@given(seed=st.integers(0, 10**6), n=st.integers(1, 14), n_targets=st.integers(1, 3), wanted=st.integers(0, 16))
def test_rounds_choose_among_their_own_candidates(seed: int, n: int, n_targets: int, wanted: int) -> None:
    normal, rhs = draw(n, seed, n_targets)
    rng = np.random.default_rng(seed)
    rounds = [np.sort(rng.choice(n, rng.integers(0, n + 1), replace=False)) for _ in range(10)]
    choices = choose_by_gain(normal, rhs, wanted, allowed=rounds)
    assert_same(choices, normal, rhs, rounds, wanted)
    assert_factorizes(choices, normal, rhs)
    assert all(column in rounds[number] for column, number in zip(choices.columns, choices.rounds, strict=True))


@given(seed=st.integers(0, 10**6), n_before=st.integers(0, 12))
def test_continuing_from_earlier_choices_gives_the_same(seed: int, n_before: int) -> None:
    normal, rhs = draw(12, seed, 2)
    straight = choose_by_gain(normal, rhs, 12)
    order = np.concatenate([straight.columns[:n_before], np.setdiff1d(np.arange(12), straight.columns[:n_before])])
    resumed = choose_by_gain(normal[np.ix_(order, order)], rhs[order], 12, n_before=n_before)
    assert (order[resumed.columns] == straight.columns).all()
    rounds = [np.arange(12)] * 12  # which name those chosen before, too
    again = choose_by_gain(normal[np.ix_(order, order)], rhs[order], 12, n_before=n_before, allowed=rounds)
    assert (again.columns == resumed.columns).all()
    assert resumed.rounds.tolist() == [-1] * n_before + list(range(12 - n_before))
    np.testing.assert_allclose(resumed.factor, straight.factor, rtol=0, atol=1e-9 * np.abs(straight.factor).max())
    np.testing.assert_allclose(resumed.half_solution, straight.half_solution, rtol=1e-6, atol=1e-9)


def test_a_column_spanned_by_the_chosen_ones_is_no_candidate() -> None:
    rng = np.random.default_rng(5)
    functions = rng.standard_normal((50, 6))
    functions = functions[:, [0, 1, 2, 0, 3, 4, 5, 2]]
    choices = choose_by_gain(functions.T @ functions, functions.T @ rng.standard_normal((50, 1)), 8)
    assert len(choices.columns) == 6
    assert not {3, 7} & set(choices.columns.tolist())  # the first of two equal ones wins


def test_the_first_wins_a_tie_and_a_target_of_zeros_is_no_obstacle() -> None:
    assert choose_by_gain(np.eye(4), np.ones((4, 1)), 4).columns.tolist() == [0, 1, 2, 3]
    assert choose_by_gain(np.eye(3), np.zeros((3, 1)), 2).columns.tolist() == [0, 1]


def test_without_candidates_nothing_is_chosen() -> None:
    choices = choose_by_gain(np.empty((0, 0)), np.empty((0, 2)), 5)
    assert (choices.factor.shape, choices.half_solution.shape) == ((0, 0), (0, 2))
    chosen = choose_by_gain(np.eye(2), np.ones((2, 1)), 5, n_before=2)
    assert chosen.columns.tolist() == [0, 1]


@pytest.mark.parametrize("overwrite", [False, True])
def test_p_stays_as_it_was_unless_it_may_be_lost(overwrite: bool) -> None:
    normal, rhs = draw(100, ridge=20.0)
    given_normal, given_rhs = normal.copy(), rhs.copy()
    expected = choose_by_gain(normal, rhs, 90)
    choices = choose_by_gain(given_normal, given_rhs, 90, overwrite=overwrite)
    assert choices.factor.tobytes() == expected.factor.tobytes()
    assert (given_normal == normal).all() is np.bool_(not overwrite)
    assert (given_rhs == rhs).all()


def test_a_matrix_that_cannot_be_factorized_is_named() -> None:
    with pytest.raises(InputError, match=r"P of shape \(3, 3\), z of shape \(2, 1\)"):
        choose_by_gain(np.eye(3), np.ones((2, 1)), 1)
    with pytest.raises(NumericalBreakdown, match="not finite"):
        choose_by_gain(np.full((2, 2), np.nan), np.ones((2, 1)), 1)
    with pytest.raises(NumericalBreakdown, match="2 vectors chosen so far is not positive definite"):
        choose_by_gain(np.ones((3, 3)), np.ones((3, 1)), 3, n_before=2)
