"""Local experts: each cell is the learner of its rows alone; bits, states, empty cells, and refused input."""

import doctest
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from ridgestream import RBF, ExpertsState, InputError, LocalExperts, NumericalBreakdown, OnlineLSSVM, OnlineState
from ridgestream.pipeline.online.experts import cell_learning, local_experts
from ridgestream.pipeline.online.experts.cell_learning import part_rows

Array = npt.NDArray[np.float64]
KERNEL = RBF(2.0)
CENTRES = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
PART = 256


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cell_learning, "PART_ROWS", PART)


def rows(n: int = 1500, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    y = np.stack([np.sin(3 * X[:, 0]), X[:, 1] ** 2], axis=1) + 0.1 * rng.normal(size=(n, 2))
    return X, y, rng.integers(0, 3, n).astype(np.float64)


def experts(centres: Array = CENTRES) -> LocalExperts:
    return LocalExperts(KERNEL, centres, max_basis=8, regularization=1e-4)


def nearest(X: Array, centres: Array = CENTRES) -> npt.NDArray[np.int64]:
    return np.asarray(np.argmin(((X[:, np.newaxis] - centres) ** 2).sum(axis=2), axis=1))


def alone(cell: int, n_targets: int = 2) -> OnlineLSSVM:
    empty = OnlineState.empty(experts().parameters, 2, n_targets)
    return OnlineLSSVM.from_state(replace(empty, centre=CENTRES[cell]))


def assert_same_state(one: OnlineState, other: OnlineState, *, but: tuple[str, ...] = ()) -> None:
    for name, value in vars(one).items():
        if name not in but:
            np.testing.assert_array_equal(value, getattr(other, name), err_msg=name)


def assert_same(one: ExpertsState, other: ExpertsState) -> None:
    assert one.parameters == other.parameters
    for cell, (packed, its) in enumerate(zip(one.packed, other.packed, strict=True)):
        np.testing.assert_array_equal(packed, its, err_msg=f"cell {cell}")


def test_each_cell_is_the_learner_of_its_rows_alone_bit_for_bit() -> None:
    X, y, w = rows()
    learner = experts()
    predictions = learner.predict_then_learn(X, y, w)
    for cell in range(3):
        own, single = np.flatnonzero(nearest(X) == cell), alone(cell)
        for start in range(0, len(X), PART):
            part = own[(own >= start) & (own < start + PART)]
            single = OnlineLSSVM.from_state(single.state())
            before = single.predict_then_learn(X[part], y[part], w[part])
            np.testing.assert_array_equal(predictions[part], before)
        state = learner.state().state_of(cell)
        assert_same_state(state, single.state(), but=("basis_rows",))
        np.testing.assert_array_equal(X[state.basis_rows], state.basis_vectors)


def test_a_stream_split_on_the_grid_and_continued_from_states_has_the_same_bits() -> None:
    X, y, w = rows()
    straight, resumed = experts(), experts()
    for start, stop in ((0, 700), (700, 1500)):
        before = straight.predict_then_learn(X[start:stop], y[start:stop], w[start:stop])
        for first in range(start, stop, PART):
            part = slice(first, min(first + PART, stop))
            predicted = resumed.predict_then_learn(X[part], y[part], w[part])
            np.testing.assert_array_equal(predicted, before[first - start : first - start + PART])
            resumed = LocalExperts.from_state(resumed.state())
    assert_same(straight.state(), resumed.state())
    assert (straight.n_basis, straight.swaps, straight.rows_seen) == (resumed.n_basis, resumed.swaps, 1500)
    assert straight.weight_seen == w.sum()


def test_parts_are_small_enough_for_rows_of_many_features(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert [part_rows(n) for n in (1, 54, 1000, 10**6)] == [131_072, 131_072, 8192, 4096]


def test_cells_without_new_rows_are_not_touched() -> None:
    X, y, w = rows()
    learner = experts().partial_fit(X, y, w)
    learner.refresh()
    before = learner.state().packed
    own = nearest(X) == 1
    learner.partial_fit(X[own], y[own])
    assert [one is other for one, other in zip(learner.state().packed, before, strict=True)] == [True, False, True]


def test_an_empty_cell_is_answered_by_the_nearest_that_has_vectors_and_ties_go_to_the_lower_number() -> None:
    X, y, _ = rows()
    left = nearest(X) == 0
    learner = experts().partial_fit(X[left], y[left])
    single = alone(0).partial_fit(X[left], y[left])
    np.testing.assert_allclose(learner.predict(X), single.predict(X), rtol=1e-12, atol=1e-12)
    assert experts().cells.nearest(np.array([[0.0, 0.0], [0.0, -5.0]])).tolist() == [0, 0]


def test_how_many_rows_are_routed_at_once_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    cells = experts(np.unique(rng.normal(size=(40, 2)).round(1), axis=0)).cells
    X = cells.centres[rng.integers(0, len(cells), (2, 500))].mean(axis=0)  # halfway between two centres: ties
    assert cells.nearest(X).tolist() == [int(cells.nearest(x[np.newaxis])[0]) for x in X]
    differences = ((X[:, np.newaxis] - cells.centres) ** 2).sum(axis=2)
    np.testing.assert_allclose(differences[np.arange(500), cells.nearest(X)], differences.min(axis=1), atol=1e-14)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_rows_and_duplicates(n: int) -> None:
    X, y, _ = rows(1)
    learner = experts().partial_fit(np.repeat(X, n, axis=0), np.repeat(y, n, axis=0))
    assert (learner.rows_seen, learner.n_basis) == (n, min(n, 1))
    predictions = learner.predict(rows(50)[0])
    assert predictions.shape == (50, 2)
    assert np.isfinite(predictions).all()
    assert LocalExperts.from_state(learner.state()).partial_fit(*rows(20)).rows_seen == n + 20


def test_no_rows_are_predicted_and_learned() -> None:
    learner = experts().partial_fit(*rows())
    assert learner.predict(np.empty((0, 2))).shape == (0, 2)
    assert learner.predict_then_learn(np.empty((0, 2)), np.empty((0, 2))).shape == (0, 2)


def test_all_rows_in_one_cell() -> None:
    X, y, w = rows()
    far = experts(CENTRES + np.array([[0.0, 0.0], [99.0, 0.0], [0.0, 99.0]])).partial_fit(X, y, w)
    assert [far.state().state_of(cell).rows_seen for cell in range(3)] == [1500, 0, 0]


def test_widening_and_another_regularization_are_those_of_each_learner() -> None:
    X, y, w = rows()
    learner = experts().partial_fit(X, y, w)
    learner.refresh()
    single = OnlineLSSVM.from_state(learner.state().state_of(2))
    learner.widen(np.array([1]))
    learner.set_regularization(1e-2)
    single.widen(np.array([1]))
    single.set_regularization(1e-2)
    assert_same_state(learner.state().state_of(2), single.state(), but=("numerics",))
    assert learner.parameters.regularization == 1e-2
    wide = np.insert(X, 1, 0.5, axis=1)
    own = np.argmin(((wide[:, np.newaxis] - np.insert(CENTRES, 1, 0.0, axis=1)) ** 2).sum(axis=2), axis=1) == 2
    np.testing.assert_array_equal(
        learner.predict_then_learn(wide[own][:200], y[own][:200]),
        single.predict_then_learn(wide[own][:200], y[own][:200]),
    )


def test_a_call_that_fails_leaves_the_learner_as_it_was() -> None:
    learner = LocalExperts(RBF(1.0), CENTRES).partial_fit(CENTRES[:2], np.ones(2))
    before = learner.state()
    with pytest.raises(NumericalBreakdown, match="underflow"):
        learner.partial_fit(CENTRES[::-1], np.ones(3), np.array([1e-320, 1.0, 1.0]))
    assert learner.state() is before
    assert learner.partial_fit(CENTRES, np.ones(3)).rows_seen == 5


@pytest.mark.parametrize(
    ("centres", "more", "said"),
    [
        (np.empty((0, 2)), {}, "at least one row"),
        ([[0.0], [1.0], [0.0]], {}, "centres 0 and 2 are the same"),
        ([[np.nan]], {}, "centres has the value nan"),
        (CENTRES, {"max_basis": None}, "max_basis a number"),
        (CENTRES, {"selection": "fixed"}, "selection is not 'fixed'"),
    ],
)
def test_settings_that_no_cell_can_have_are_refused(centres: Array, more: dict[str, None], said: str) -> None:
    with pytest.raises(InputError, match=said):
        LocalExperts(KERNEL, centres, **more)  # type: ignore[arg-type]


def test_input_is_refused_in_words() -> None:
    with pytest.raises(InputError, match="call partial_fit first"):
        experts().predict(rows(3)[0])
    with pytest.raises(InputError, match="must have 2 features"):
        experts().partial_fit(np.zeros((3, 5)), np.zeros(3))
    with pytest.raises(InputError, match="must have 2 targets"):
        experts().partial_fit(*rows(9)).partial_fit(np.zeros((3, 2)), np.zeros(3))


def test_a_damaged_state_is_refused() -> None:
    state = experts().partial_fit(*rows()).state()
    for damaged, said in (
        (replace(state, packed=state.packed[:-1]), "3 centres and 2 cells"),
        (replace(state, packed=(state.packed[0][:-1], *state.packed[1:])), "its state is damaged"),
        (replace(state, packed=(state.packed[0] * np.nan, *state.packed[1:])), "not finite"),
    ):
        with pytest.raises(InputError, match=said):
            LocalExperts.from_state(damaged)


def test_the_example_in_the_docstring_runs() -> None:
    result = doctest.testmod(local_experts)
    assert result.attempted >= 6
    assert result.failed == 0


@pytest.mark.parametrize("threads", [2, 5])
def test_no_bit_depends_on_the_threads_that_share_the_cells(threads: int) -> None:
    X, y, w = rows()
    one, several = experts(), experts()
    several.threads = threads
    for part in np.array_split(np.arange(len(X)), 3):
        expected = one.predict_then_learn(X[part], y[part], w[part])
        assert several.predict_then_learn(X[part], y[part], w[part]).tobytes() == expected.tobytes()
    assert_same(one.state(), several.state())


def test_cells_that_fail_in_several_threads_end_the_call_and_leave_the_learner_as_it_was() -> None:
    """More cells fail than there are threads, before and after others that do not."""
    centres = np.stack([np.arange(20.0), np.zeros(20)], axis=1)
    learner = LocalExperts(RBF(1.0), centres).partial_fit(centres[:4], np.ones(4))
    learner.threads, before = 3, learner.state()
    weights = np.where(np.arange(20) % 3 == 2, 1e-320, 1.0)
    with pytest.raises(NumericalBreakdown, match=r"row 9, .* underflow"):  # of cell 5, the first that fails
        learner.partial_fit(centres, np.ones(20), weights)
    assert learner.state() is before
    assert learner.partial_fit(centres, np.ones(20)).rows_seen == 24
