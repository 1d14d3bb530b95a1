"""The online LS-SVM: the decisions of the one-row algorithm, its algebra, its bits, and refused input."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.data.streams import INPUTS, Stream, streams
from support.points import points
from support.references.extended_precision import GaussianKernel, direct_coefficients
from support.references.online import Decision, RowByRow

from ridgestream.pipeline.base.errors import InputError, InputWarning, NumericalBreakdown
from ridgestream.pipeline.kernels import RBF, Kernel, Linear, Polynomial, gram, make_kernel
from ridgestream.pipeline.online import carried_model
from ridgestream.pipeline.online.compiled.candidate import CONDITION_LIMIT
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.online.row_strip import plan_block_rows
from ridgestream.pipeline.online.schedule import GRID_ROWS, REFRESH_ROWS
from ridgestream.pipeline.online.state import OnlineState

Array = npt.NDArray[np.float64]
EPS = 2.0**-53
ROUNDINGS = 1e4
"""Predictions and ξ agree within this multiple of cond·eps, cond the worst that the dictionary has gone through."""


def learner_for(stream: Stream) -> OnlineLSSVM:
    return OnlineLSSVM(
        RBF(stream.gamma),
        regularization=stream.regularization,
        max_basis=stream.max_basis,
        novelty_threshold=stream.novelty_threshold,
        usefulness_threshold=stream.usefulness_threshold,
    )


def empty_reference(stream: Stream) -> RowByRow:
    return RowByRow(
        GaussianKernel(stream.gamma),
        stream.regularization,
        stream.max_basis,
        stream.novelty_threshold,
        stream.usefulness_threshold,
        max_condition=CONDITION_LIMIT,
    )


def reference_for(stream: Stream, rows: int) -> RowByRow:
    reference = empty_reference(stream)
    for row in range(rows):
        reference.learn(stream.X[row], stream.y[row], stream.weights[row])
    return reference


def is_clear(decision: Decision) -> bool:
    """Whether it was made by a margin that float64 can see."""
    return decision.margin >= max(1e-10, 1e3 * decision.condition * EPS)


def clear_rows(stream: Stream) -> int:
    """Return the number of rows before the first one for which either choice is right, so that learners may differ."""
    reference = empty_reference(stream)
    for row in range(len(stream.X)):
        if not is_clear(reference.learn(stream.X[row], stream.y[row], stream.weights[row])):
            return row
    return len(stream.X)


def assert_decides_alike(stream: Stream, rows: int) -> RowByRow:
    """Compare dictionary, predictions and ξ after this number of rows."""
    reference = reference_for(stream, rows)
    part = slice(0, rows)
    learner = learner_for(stream).partial_fit(stream.X[part], stream.y[part], stream.weights[part])
    learner.refresh()
    state = learner.state()
    assert state.basis_rows.tolist() == reference.basis_rows
    assert state.penalty == float(reference.penalty)
    assert state.weight_seen == reference.weight_seen
    worst = max([1.0, *(d.condition for d in reference.decisions)])
    expected = np.asarray(reference.predict(stream.X), dtype=np.float64)
    scale = max(np.abs(expected).max(), np.abs(stream.y).max())
    assert np.abs(learner.predict(stream.X) - expected).max() <= ROUNDINGS * worst * EPS * scale
    square = float(np.trace(reference.target_square))
    assert abs(learner.cost() - float(reference.cost())) <= ROUNDINGS * worst * EPS * square
    return reference


STREAMS_A_KIND = 30
"""Thirty at least of each of eight kinds of rows: 270 streams."""


def screen_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried_model, "SCREEN_BASIS", 1)
    monkeypatch.setattr(carried_model, "SCREEN_ROWS", 0)


@pytest.mark.at_most(5)
@pytest.mark.samples
@pytest.mark.parametrize("screened", points([False, True], [True]))
@pytest.mark.parametrize("inputs", sorted(INPUTS))
def test_the_blocked_form_decides_as_the_one_row_form(
    inputs: str, screened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if screened:
        screen_always(monkeypatch)
    compared: list[Decision] = []
    outputs: set[int] = set()
    weighted: set[bool] = set()

    n_streams = STREAMS_A_KIND * (2 if inputs == "near_duplicates" else 1)  # these swap seldom

    @settings(max_examples=n_streams, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(stream=streams(inputs=inputs))
    def check(stream: Stream) -> None:
        rows = clear_rows(stream)
        if stream.weights[:rows].any():
            compared.extend(assert_decides_alike(stream, rows).decisions)
            outputs.add(stream.y.shape[1])
            weighted.add(bool(np.ptp(stream.weights[:rows]) > 0))
        whole = learner_for(stream).partial_fit(stream.X, stream.y, stream.weights)
        assert np.isfinite(whole.predict(stream.X)).all()

    check()
    actions = Counter(decision.action for decision in compared)
    print(f"{inputs}: {dict(actions)} in {n_streams} streams")  # noqa: T201
    assert outputs == {1, 2, 3}
    assert weighted == {False, True}
    assert actions["grow"] >= STREAMS_A_KIND / 2
    assert actions["swap"] >= STREAMS_A_KIND or inputs == "all_equal", "too few swaps for a comparison"


def forest_like(n: int, d: int = 6, c: int = 1, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sign(np.sin(2 * X[:, :c]) + 0.5 * X[:, 1 : c + 1] + 0.3 * rng.standard_normal((n, c)))


def small(max_basis: int = 20, **settings: float) -> OnlineLSSVM:
    return OnlineLSSVM(RBF(0.2), **{"regularization": 1e-4, "max_basis": max_basis, **settings})  # type: ignore[arg-type]


def assert_same_bits(a: OnlineLSSVM, b: OnlineLSSVM) -> None:
    one, other = a.state(), b.state()
    for name in ("basis_vectors", "basis_rows", "gram", "normal_matrix", "normal_rhs", "target_square", "centre"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert (one.rows_seen, one.weight_seen, one.penalty) == (other.rows_seen, other.weight_seen, other.penalty)
    assert one.swaps == other.swaps
    assert np.array_equal(a.coefficients(), b.coefficients())


@pytest.mark.parametrize("weighted", points([False, True], [True]))
@pytest.mark.parametrize("outputs", points([1, 3], [3]))
@pytest.mark.parametrize("kernel", [RBF(0.2), RBF(0.02), RBF(2.0), Polynomial(0.3, 3, 1.0)], ids=str)
def test_the_screen_misses_no_swap(
    kernel: Kernel, outputs: int, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = forest_like(6000, c=outputs)
    weights = np.random.default_rng(1).uniform(0.1, 3.0, len(X)) if weighted else np.ones(len(X))
    plain, screened = (OnlineLSSVM(kernel, max_basis=60, regularization=1e-5) for _ in range(2))
    plain.partial_fit(X, y, weights)
    screen_always(monkeypatch)
    screened.partial_fit(X, y, weights)
    assert plain.state().basis_rows.tolist() == screened.state().basis_rows.tolist()
    assert plain.swaps == screened.swaps >= 20
    assert plain.suspected_share == 1.0
    if kernel == RBF(0.02) and outputs == 1:
        assert screened.suspected_share < 0.6, "the screen rules next to nothing out, so it was not tried"


@settings(max_examples=40, deadline=None)
@given(data=st.data(), max_basis=st.sampled_from([10, 40]))
def test_calls_split_on_the_block_grid_do_not_change_bits(data: st.DataObject, max_basis: int) -> None:
    X, y = forest_like(700)
    whole, parts = small(max_basis).partial_fit(X, y), small(max_basis)
    step = GRID_ROWS
    cuts = sorted(data.draw(st.sets(st.integers(0, len(X) // step), max_size=6)))
    bounds = [0, *(step * cut for cut in cuts), len(X)]
    for start, stop in pairwise(bounds):
        parts.partial_fit(X[start:stop], y[start:stop])
    whole.refresh()
    parts.refresh()
    assert_same_bits(whole, parts)


@settings(max_examples=25, deadline=None)
@given(nights=st.lists(st.integers(1, 300), min_size=2, max_size=5))
def test_a_state_taken_at_a_refresh_continues_bit_for_bit(nights: list[int]) -> None:
    X, y = forest_like(sum(nights))
    straight, resumed, start = small(), small(), 0
    for rows in nights:
        part = slice(start, start + rows)
        for learner in (straight, resumed):
            learner.partial_fit(X[part], y[part])
            learner.refresh()
        resumed = OnlineLSSVM.from_state(resumed.state())
        start += rows
    assert_same_bits(straight, resumed)


@settings(max_examples=40, deadline=None)
@given(cuts=st.sets(st.integers(1, 399), max_size=8))
def test_another_block_size_gives_the_same_dictionary_and_values_to_rounding(cuts: set[int]) -> None:
    X, y = forest_like(400)
    whole, parts = small().partial_fit(X, y), small()
    for start, stop in pairwise([0, *sorted(cuts), 400]):
        parts.partial_fit(X[start:stop], y[start:stop])
    assert np.array_equal(whole.state().basis_rows, parts.state().basis_rows)
    assert np.allclose(whole.predict(X), parts.predict(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize("weights", ["ones", "mixed"])
@pytest.mark.parametrize("c", [1, 3])
def test_a_fixed_dictionary_gives_the_direct_solution(weights: str, c: int) -> None:
    rng = np.random.default_rng(4)
    X, y = forest_like(600, c=c)
    w = np.ones(600) if weights == "ones" else rng.choice([0.0, 0.5, 1.0, 2.0], size=600)
    w[:15] = 1.0
    learner = small(15, novelty_threshold=0.0, usefulness_threshold=0.0).partial_fit(X[:15], y[:15], w[:15])
    state = learner.state()
    assert len(state.basis_rows) == 15
    closed = OnlineLSSVM.from_state(with_novelty(state, 1e9)).partial_fit(X[15:], y[15:], w[15:])
    basis, n = closed.state().basis_vectors, float(w.sum())
    first = closed.state().normal_matrix  # the first rows were absorbed while the dictionary grew: take them from P
    K, G = gram(RBF(0.2), basis), RBF(0.2).block(X[15:], basis)
    base = state.normal_matrix - state.penalty * K
    P = base + (G.T * w[15:]) @ G + closed.state().penalty * K
    assert np.allclose(first, P, rtol=1e-11)
    rhs = state.normal_rhs + (G.T * w[15:]) @ y[15:]
    beta = np.linalg.solve(base + (G.T * w[15:]) @ G + 1e-4 * n * K, rhs)
    assert np.allclose(closed.predict(X), RBF(0.2).block(X, basis) @ beta, atol=1e-9)


def test_a_dictionary_given_before_the_rows_gives_the_normal_equations_of_all_rows() -> None:
    X, y = forest_like(300)
    basis = X[:12]
    K = gram(RBF(0.2), basis)
    state = small(12).partial_fit(X[:1], y[:1]).state()
    empty = OnlineState(
        **{
            **{name: getattr(state, name) for name in state.__dataclass_fields__},
            "parameters": with_novelty(state, 1e9).parameters,
            "basis_vectors": basis,
            "basis_rows": np.arange(12),
            "gram": K,
            "normal_matrix": 1e-4 * K,
            "normal_rhs": np.zeros((12, 1)),
            "target_square": np.zeros((1, 1)),
            "rows_seen": 0,
            "weight_seen": 0.0,
            "penalty": 1e-4,
        }
    )
    learner = OnlineLSSVM.from_state(empty).partial_fit(X, y)
    beta = direct_coefficients(GaussianKernel(0.2), basis, X, y, np.ones(300), 1e-4 * 300)
    expected = RBF(0.2).block(X, basis) @ np.asarray(beta, dtype=np.float64)
    assert np.allclose(learner.predict(X), expected, atol=1e-10)


def with_novelty(state: OnlineState, threshold: float) -> OnlineState:
    parameters = type(state.parameters)(**{**vars(state.parameters), "novelty_threshold": threshold})
    return OnlineState(**{**{n: getattr(state, n) for n in state.__dataclass_fields__}, "parameters": parameters})


def test_a_row_of_weight_two_counts_as_two_rows_and_of_weight_zero_as_none() -> None:
    X, y = forest_like(200)
    fixed = OnlineLSSVM.from_state(with_novelty(small(10).partial_fit(X[:100], y[:100]).state(), 1e9)).state()
    twice, doubled = OnlineLSSVM.from_state(fixed), OnlineLSSVM.from_state(fixed)
    twice.partial_fit(np.repeat(X[100:], 2, axis=0), np.repeat(y[100:], 2, axis=0))
    doubled.partial_fit(
        np.vstack([X[100:], X[:50]]), np.vstack([y[100:], y[:50]]), np.r_[np.full(100, 2.0), np.zeros(50)]
    )
    one, other = twice.state(), doubled.state()
    assert np.allclose(one.normal_rhs, other.normal_rhs, rtol=1e-12)
    assert one.weight_seen == other.weight_seen == 300
    assert np.allclose(twice.predict(X), doubled.predict(X), atol=1e-10)


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: np.tile(rng.standard_normal((1, 3)), (200, 1)),
        lambda rng: rng.standard_normal((4, 3))[rng.integers(4, size=200)],
        lambda rng: np.repeat(rng.standard_normal((100, 3)), 2, axis=0),
        lambda rng: np.repeat(rng.standard_normal((100, 3)), 2, axis=0) + 1e-12 * rng.standard_normal((200, 3)),
    ],
    ids=["all equal", "four rows", "pairs", "pairs 1e-12 apart"],
)
@pytest.mark.parametrize("novelty_threshold", [0.0, 1e-6, 1e-2])
def test_duplicates_never_enter_the_dictionary(
    make: Callable[[np.random.Generator], Array], novelty_threshold: float
) -> None:
    rng = np.random.default_rng(5)
    X = make(rng)
    y = np.sign(X[:, :1] + 0.1 * rng.standard_normal((200, 1)))
    learner = small(30, novelty_threshold=novelty_threshold, usefulness_threshold=0.0).partial_fit(X, y)
    basis = learner.state().basis_vectors
    distances = np.linalg.norm(basis[:, None] - basis[None], axis=2) + np.eye(len(basis))
    assert distances.min() > 1e-9
    assert np.isfinite(learner.predict(X)).all()


def test_near_duplicates_keep_p_positive_definite_over_many_rows() -> None:
    rng = np.random.default_rng(6)
    centres = rng.standard_normal((60, 4))
    X = np.vstack([centres, centres + 1e-7])[rng.integers(120, size=20_000)] + 1e-3 * rng.standard_normal((20_000, 4))
    y = np.sin(X.sum(axis=1, keepdims=True))
    for regularization in (0.1 / 20_000, 1e-6 / 20_000):
        learner = OnlineLSSVM(RBF(0.5), regularization=regularization, max_basis=60, novelty_threshold=1e-6)
        learner.partial_fit(X, y).refresh()
        state = learner.state()
        assert np.linalg.eigvalsh(state.normal_matrix).min() > 0
        beta = np.linalg.solve(
            state.normal_matrix + (regularization * 20_000 - state.penalty) * state.gram, state.normal_rhs
        )
        direct = RBF(0.5).block(X[:500], state.basis_vectors) @ beta
        condition = np.linalg.cond(state.normal_matrix)
        assert np.abs(learner.predict(X[:500]) - direct).max() <= 100 * condition * EPS * np.abs(y).max()


def test_the_penalty_doubles_at_powers_of_two_and_the_published_one_is_exact() -> None:
    X, y = forest_like(100)
    learner = small(regularization=1e-3)
    for n in range(1, 101):
        learner.partial_fit(X[n - 1 : n], y[n - 1 : n])
        assert learner.state().penalty == 1e-3 * 2 ** (n.bit_length() - 1)
    state = learner.state()
    matrix = state.normal_matrix + (1e-3 * 100 - state.penalty) * state.gram
    assert np.allclose(matrix @ learner.coefficients(), state.normal_rhs, atol=1e-9)


def test_predictions_before_learning_use_the_rows_before_only() -> None:
    X, y = forest_like(300)
    learner, one_by_one = small(), small()
    predictions = learner.predict_then_learn(X, y)
    for i in range(300):
        expected = one_by_one.predict_then_learn(X[i : i + 1], y[i : i + 1])
        assert np.allclose(predictions[i], expected[0], atol=1e-8), i


def test_rows_with_zero_self_kernel_are_counted_and_harmless() -> None:
    X = np.zeros((10, 3))
    X[6:] = np.eye(4, 3)
    learner = OnlineLSSVM(Linear(), max_basis=5).partial_fit(X, np.ones(10))
    assert learner.rows_seen == 10
    assert learner.state().target_square[0, 0] == 10
    assert 1 <= learner.n_basis <= 3
    assert np.array_equal(learner.predict(np.zeros((2, 3))), np.zeros((2, 1)))


def test_a_linear_kernel_takes_no_more_vectors_than_dimensions() -> None:
    X, y = forest_like(500, d=4)
    learner = OnlineLSSVM(Linear(), regularization=1e-6, max_basis=50, novelty_threshold=0, usefulness_threshold=0)
    learner.partial_fit(X, y)
    assert learner.n_basis == 4
    ridge = np.linalg.solve(X.T @ X, X.T @ y)
    assert np.allclose(learner.predict(X), X @ ridge, atol=0.02)


@pytest.mark.parametrize("shift", [1e4, -1e6])
def test_a_shift_of_the_inputs_changes_no_decision(shift: float) -> None:
    rng = np.random.default_rng(7)
    X = rng.integers(-8, 8, size=(500, 5)) / 8.0
    y = np.sign(X[:, :1] - X[:, 1:2] ** 2 + 0.05)
    plain, shifted = small().partial_fit(X, y), small().partial_fit(X + shift, y)
    assert np.array_equal(plain.state().basis_rows, shifted.state().basis_rows)
    assert np.allclose(plain.predict(X), shifted.predict(X + shift), atol=1e-8)


@pytest.mark.parametrize(
    ("X", "y", "weights", "message"),
    [
        (np.array([[0.0, np.nan]]), [1.0], None, r"X has the value nan at row 0, column 1; values must be finite"),
        (np.array([[0.0, np.inf]]), [1.0], None, r"X has the value inf at row 0, column 1"),
        (np.array([[0.0, 1e200]]), [1.0], None, r"X has the value 1e\+200 at row 0, column 1"),
        (np.zeros((1, 2)), [np.nan], None, r"y has the value nan at row 0"),
        (np.zeros((1, 2)), [1.0, 2.0], None, r"y must have one entry or one row for each of the 1 rows"),
        (np.zeros((1, 2)), [1.0], [-1.0], r"sample_weight of row 0 is -1.0; weights must be zero or positive"),
        (np.zeros((1, 2)), [1.0], [np.nan], r"sample_weight has the value nan"),
        (np.zeros((1, 3)), [1.0], None, r"X must have 2 features, it has 3"),
        (np.zeros((1, 2)), np.zeros((1, 0)), None, r"y must have at least one target, it has none"),
        (np.zeros((1, 2)), [[1.0, 2.0]], None, r"y must have 1 targets, it has 2"),
        (np.zeros(2), [1.0], None, r"X must have two dimensions"),
    ],
)
def test_bad_rows_are_refused_and_nothing_has_changed(
    X: Array, y: list[float], weights: list[float] | None, message: str
) -> None:
    rows, targets = forest_like(50, d=2)
    learner, untouched = small().partial_fit(rows, targets), small().partial_fit(rows, targets)
    with pytest.raises(InputError, match=message):
        learner.partial_fit(X, y, weights)
    assert_same_bits(learner, untouched)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_basis": 0}, "max_basis must be a whole number of at least 1, or None for no bound; it is 0"),
        ({"max_basis": 2.0}, "max_basis must be a whole number of at least 1, or None for no bound; it is 2.0"),
        ({"max_basis": "unlimited"}, "max_basis must be a whole number of at least 1, .*; it is 'unlimited'"),
        ({"max_basis": float("nan")}, "max_basis must be a whole number of at least 1, .*; it is nan"),
        ({"max_basis": float("inf")}, "max_basis must be a whole number of at least 1, .*; it is inf"),
        ({"novelty_threshold": "x"}, "novelty_threshold must be zero or positive, it is 'x'"),
        ({"usefulness_threshold": None}, "usefulness_threshold must be zero or positive, it is None"),
        ({"centre": ["x"]}, "centre must hold real numbers"),
        ({"regularization": 0.0}, "regularization must be a positive number, it is 0.0"),
        ({"regularization": "5"}, "regularization must be a positive number, it is '5'"),
        ({"novelty_threshold": -1.0}, "novelty_threshold must be zero or positive, it is -1.0"),
        ({"usefulness_threshold": float("nan")}, "usefulness_threshold must be zero or positive, it is nan"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OnlineLSSVM(RBF(1.0), **settings)


@pytest.mark.parametrize("kernel", ["rbf", None, RBF, make_kernel])
def test_an_object_that_is_not_a_kernel_is_refused(kernel: Any) -> None:
    with pytest.raises(InputError, match=r"kernel must be one of RBF, Polynomial, Linear, .* it is"):
        OnlineLSSVM(kernel)


def test_a_centre_may_be_a_list() -> None:
    X, y = forest_like(50, d=2)
    learners = [OnlineLSSVM(RBF(1.0), centre=centre).partial_fit(X, y) for centre in ([0, 0], np.zeros(2))]
    assert_same_bits(*learners)


@pytest.mark.parametrize("centre", [np.zeros(3), np.array([0.0, np.nan])])
def test_an_invalid_centre_is_refused(centre: Array) -> None:
    with pytest.raises(InputError, match="centre must be 2 finite numbers, as the rows have features; it is"):
        OnlineLSSVM(RBF(1.0), centre=centre).partial_fit(np.ones((3, 2)), np.ones(3))


def test_a_kernel_that_calls_all_rows_unlike_each_other_is_warned_of_at_prediction() -> None:
    X, y = forest_like(200, d=4)
    learner = OnlineLSSVM(RBF(1.0), max_basis=20).partial_fit(1e4 * X, y)
    for _ in range(2):
        with pytest.warns(
            InputWarning, match="nearly zero, and so are most predictions: standardize the features"
        ) as w:
            learner.predict(X)
        assert w[0].filename == __file__
        learner.predict(X)
        learner.partial_fit(1e4 * X, y)
    OnlineLSSVM(RBF(0.1), max_basis=20).partial_fit(X, y).predict(X)


def test_a_learner_without_rows_reports_that() -> None:
    with pytest.raises(InputError, match="the learner has seen no row yet"):
        small().predict(np.zeros((1, 2)))


def test_a_damaged_state_is_refused() -> None:
    X, y = forest_like(100)
    state = small().partial_fit(X, y).state()
    values = {name: getattr(state, name) for name in state.__dataclass_fields__}
    spoilt = state.gram.copy()
    spoilt[0, 0] = np.nan
    with pytest.raises(InputError, match="the state's gram holds a value that is not finite"):
        OnlineLSSVM.from_state(OnlineState(**{**values, "gram": spoilt}))
    with pytest.raises(InputError, match=r"the state's normal_rhs must have shape"):
        OnlineLSSVM.from_state(OnlineState(**{**values, "normal_rhs": state.normal_rhs[:-1]}))


def test_a_state_shares_no_memory_with_its_learner() -> None:
    X, y = forest_like(300)
    learner = small().partial_fit(X[:150], y[:150])
    state = learner.state()
    before = {name: np.copy(getattr(state, name)) for name in ("gram", "normal_matrix", "basis_vectors", "basis_rows")}
    learner.partial_fit(X[150:], y[150:])
    assert all(np.array_equal(getattr(state, name), value) for name, value in before.items())


def test_every_block_size_divides_the_grid_and_the_refresh_interval() -> None:
    assert 256 % GRID_ROWS == REFRESH_ROWS % GRID_ROWS == 0
    for max_basis in (1, 20, 64, 65, 500, 1024, 1025, 5000):
        assert GRID_ROWS % plan_block_rows(max_basis) == 0


def test_a_row_whose_squared_kernel_value_overflows_is_learned_where_the_square_is_not_needed() -> None:
    X = np.random.default_rng(0).normal(size=(300, 4))
    learner = OnlineLSSVM(Linear(), max_basis=20).partial_fit(X, X[:, 0])
    learner.partial_fit(1e85 * X[:3], 1e85 * X[:3, 0])
    np.testing.assert_allclose(learner.predict(1e85 * X[:3])[:, 0], 1e85 * X[:3, 0], rtol=1e-6)


@pytest.mark.parametrize("selection", ["supervised", "novelty", "fixed"])
@pytest.mark.parametrize(("kernel", "scale"), [(Polynomial(1.0), 1e30), (Polynomial(1.0), 1e60), (Linear(), 1e99)])
def test_kernel_values_that_overflow_are_reported_with_a_remedy(kernel: Kernel, scale: float, selection: str) -> None:
    X, y = forest_like(50)
    dictionary = X[:3] * scale if selection == "fixed" else None
    learner = OnlineLSSVM(kernel, selection=selection, dictionary=dictionary)
    remedy = r"too large to compute with: standardize the features, lower the kernel's gamma or degree"
    with np.errstate(over="ignore"), pytest.raises(NumericalBreakdown, match=remedy):
        learner.partial_fit(X * scale, y)


@pytest.mark.parametrize("selection", ["supervised", "fixed"])
def test_weights_that_underflow_are_reported_with_a_remedy(selection: str) -> None:
    X, y = forest_like(50)
    learner = OnlineLSSVM(RBF(1.0), selection=selection, dictionary=X[:3] if selection == "fixed" else None)
    with pytest.raises(NumericalBreakdown, match=r"float64.* scale the weights, or the features, up"):
        learner.partial_fit(X, y, np.full(50, 5e-324))
    tiny = OnlineLSSVM(RBF(1.0), max_basis=20).partial_fit(X, y, np.full(50, 1e-300))
    assert np.isfinite(tiny.predict(X)).all()
