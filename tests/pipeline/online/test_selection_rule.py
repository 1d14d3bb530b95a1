"""Selection rules: novelty alone, a given dictionary, no limit; each against a dense reference, and its bits."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.references.extended_precision import GaussianKernel, direct_coefficients
from support.references.krls import KRLS

from ridgestream.pipeline.base.errors import InputError, MemoryRefused, NumericalBreakdown
from ridgestream.pipeline.base.memory_plan import plan_learner_bytes
from ridgestream.pipeline.cholesky import JITTERS
from ridgestream.pipeline.kernels import RBF, Linear, Polynomial, gram
from ridgestream.pipeline.online.diagnostics import Numerics, rounding_error_of
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.online.schedule import GRID_ROWS
from ridgestream.pipeline.online.selection_rule import SELECTIONS
from ridgestream.pipeline.online.settings import OnlineSettings
from ridgestream.pipeline.selection.independence import find_independent

Array = npt.NDArray[np.float64]
KERNEL = RBF(0.2)
LAMBDA = 1e-4


def rows(n: int, d: int = 4, c: int = 1, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, np.sin(2 * X[:, :c]) + 0.5 * X[:, 1 : c + 1] + 0.3 * rng.standard_normal((n, c))


DICTIONARY = rows(15, seed=9)[0]
RULES: dict[str, dict[str, Any]] = {
    "supervised": {"max_basis": 20},
    "supervised without a limit": {"max_basis": None, "novelty_threshold": 0.1},
    "novelty": {"selection": "novelty", "max_basis": 20},
    "novelty without a limit": {"selection": "novelty", "max_basis": None, "novelty_threshold": 0.3},
    "fixed": {"selection": "fixed", "dictionary": DICTIONARY},
}


def learner_of(rule: str) -> OnlineLSSVM:
    return OnlineLSSVM(KERNEL, **{"regularization": LAMBDA, "novelty_threshold": 0.05, **RULES[rule]})


def assert_same_bits(a: OnlineLSSVM, b: OnlineLSSVM) -> None:
    one, other = a.state(), b.state()
    for name in ("basis_vectors", "basis_rows", "gram", "normal_matrix", "normal_rhs", "target_square", "centre"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert one.parameters == other.parameters
    assert (one.rows_seen, one.weight_seen, one.penalty) == (other.rows_seen, other.weight_seen, other.penalty)
    assert np.array_equal(a.coefficients(), b.coefficients())


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 250),
    c=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
    threshold=st.sampled_from([0.02, 0.1, 0.3, 0.7]),
    max_basis=st.sampled_from([None, 1, 8, 30]),
    weighted=st.booleans(),
)
def test_novelty_is_krls_row_by_row(
    n: int, c: int, seed: int, threshold: float, max_basis: int | None, weighted: bool
) -> None:
    X, y = rows(n, c=c, seed=seed)
    weights = np.random.default_rng(seed).choice([0.5, 1.0, 2.0], size=n) if weighted else np.ones(n)
    reference = KRLS(GaussianKernel(0.2), threshold, max_basis).fit(X, y, weights)
    assume(all(abs(novelty - threshold) > 1e-9 for novelty in reference.novelties))
    learner = OnlineLSSVM(
        KERNEL, selection="novelty", regularization=LAMBDA, novelty_threshold=threshold, max_basis=max_basis
    ).partial_fit(X, y, weights)
    state = learner.state()
    assert state.basis_rows.tolist() == reference.basis_rows
    assert learner.swaps == 0
    expected = np.asarray(reference.predict(X, LAMBDA), dtype=np.float64)
    assert np.allclose(learner.predict(X), expected, rtol=0, atol=1e-8)
    unpenalized = OnlineLSSVM.from_state(replace(state, parameters=replace(state.parameters, unpenalized=True)))
    engels = np.asarray(reference.predict(X, 0.0), dtype=np.float64)
    assert np.allclose(unpenalized.predict(X), engels, rtol=0, atol=1e-6 * np.abs(engels).max())


def test_novelty_does_not_test_usefulness() -> None:
    X, _ = rows(300)
    untested = OnlineLSSVM(KERNEL, selection="novelty", novelty_threshold=0.05, usefulness_threshold=1e9)
    tested = OnlineLSSVM(KERNEL, novelty_threshold=0.05, usefulness_threshold=1e9)
    assert untested.partial_fit(X, np.zeros(300)).n_basis > 20
    assert tested.partial_fit(X, np.zeros(300)).n_basis == 1


@pytest.mark.parametrize("c", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3000])
def test_a_given_dictionary_has_the_coefficients_of_the_direct_solution(n: int, c: int, weighted: bool) -> None:
    X, y = rows(n, c=c)
    weights = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 2.0], size=n) if weighted else np.ones(n)
    weights[-1] = 1.0
    learner = learner_of("fixed").partial_fit(X, y, weights)
    assert learner.n_basis == 15
    assert learner.state().basis_rows.tolist() == [-1] * 15
    beta = direct_coefficients(GaussianKernel(0.2), DICTIONARY, X, y, weights, LAMBDA * float(weights.sum()))
    probe = rows(100, seed=3)[0]
    expected = KERNEL.block(probe, DICTIONARY) @ np.asarray(beta, dtype=np.float64)
    assert np.allclose(learner.predict(probe), expected, rtol=0, atol=1e-8 * np.abs(expected).max())


def test_the_cost_of_a_given_dictionary_is_the_regularized_residual() -> None:
    X, y = rows(700)
    learner = learner_of("fixed").partial_fit(X, y)
    K, G, penalty = gram(KERNEL, DICTIONARY), KERNEL.block(X, DICTIONARY), learner.state().penalty
    beta = np.linalg.solve(G.T @ G + penalty * K, G.T @ y)
    cost = float(np.sum((y - G @ beta) ** 2) + penalty * np.sum(beta * (K @ beta)))
    assert learner.cost() == pytest.approx(cost, rel=1e-9)
    learner.refresh()
    assert learner.cost() == pytest.approx(cost, rel=1e-9)


def test_predictions_before_learning_use_the_rows_before_only() -> None:
    X, y = rows(4096)
    learner = learner_of("fixed")
    before = learner.predict_then_learn(X, y)
    spoilt = y.copy()
    spoilt[3000:] += 1e3
    other = learner_of("fixed").predict_then_learn(X, spoilt)
    assert np.array_equal(before[:3001], other[:3001])
    assert np.array_equal(before[0], [0.0])
    assert np.mean((before[1024:] - y[1024:]) ** 2) < 0.75 * np.mean(y**2)


@pytest.mark.parametrize("rule", RULES)
def test_calls_split_on_the_block_grid_do_not_change_bits(rule: str) -> None:
    X, y = rows(5 * GRID_ROWS + 77)
    whole, parts = learner_of(rule).partial_fit(X, y), learner_of(rule)
    step = GRID_ROWS
    for start, stop in pairwise([0, step, 3 * step, 4 * step, len(X)]):
        parts.partial_fit(X[start:stop], y[start:stop])
    whole.refresh()
    parts.refresh()
    assert_same_bits(whole, parts)


@pytest.mark.parametrize("rule", RULES)
def test_a_state_taken_at_a_refresh_continues_bit_for_bit(rule: str) -> None:
    X, y = rows(900)
    straight, resumed = learner_of(rule), learner_of(rule)
    for start, stop in pairwise([0, 1, 300, 317, 900]):
        for learner in (straight, resumed):
            learner.partial_fit(X[start:stop], y[start:stop])
            learner.refresh()
        resumed = OnlineLSSVM.from_state(resumed.state())
    assert_same_bits(straight, resumed)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("step", [1, 7, 100])
def test_another_block_size_gives_the_same_dictionary_and_values_to_rounding(rule: str, step: int) -> None:
    X, y = rows(400)
    whole, parts = learner_of(rule).partial_fit(X, y), learner_of(rule)
    for start in range(0, 400, step):
        parts.partial_fit(X[start : start + step], y[start : start + step])
    assert np.array_equal(whole.state().basis_rows, parts.state().basis_rows)
    assert np.allclose(whole.predict(X), parts.predict(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_settings_are_restored_from_a_dictionary(rule: str) -> None:
    parameters = learner_of(rule).parameters
    assert OnlineSettings.from_dict(parameters.as_dict()) == parameters
    assert parameters.rule is SELECTIONS[parameters.selection]


def test_settings_without_a_selection_rule_are_supervised() -> None:
    plain = learner_of("supervised").parameters.as_dict()
    del plain["selection"]
    assert OnlineSettings.from_dict(plain) == learner_of("supervised").parameters


def test_without_a_limit_the_dictionary_is_that_of_a_limit_never_reached() -> None:
    X, y = rows(500)
    free = learner_of("supervised without a limit").partial_fit(X, y)
    capped = OnlineLSSVM(KERNEL, regularization=LAMBDA, novelty_threshold=0.1, max_basis=500).partial_fit(X, y)
    assert 20 < free.n_basis < 500
    assert np.array_equal(free.state().basis_rows, capped.state().basis_rows)


@pytest.mark.parametrize(
    ("dictionary", "message"),
    [
        (DICTIONARY[[0, 1, 2, 1]], r"row 3 of the dictionary \(from zero, of 4\) equals row 1, .* K singular: remove"),
        (np.vstack([DICTIONARY, DICTIONARY[4] + 1e-9]), r"row \d+ of the dictionary \(from zero, of 16\) lies in the"),
        (np.array([[1.0, np.nan]]), "dictionary has the value nan at row 0, column 1"),
        (DICTIONARY[:, :3], "the rows have 4 features, the dictionary has 3"),
        (np.empty((0, 4)), "dictionary must have at least one row, it has none"),
    ],
)
def test_an_unusable_dictionary_is_refused_with_the_row(dictionary: Array, message: str) -> None:
    X, y = rows(5)
    with pytest.raises(InputError, match=message):
        OnlineLSSVM(KERNEL, selection="fixed", dictionary=dictionary).partial_fit(X, y)


@pytest.mark.parametrize("max_basis", [None, 500, 3, 7])
def test_a_dictionary_sets_max_basis_where_it_is_not_larger(max_basis: int | None) -> None:
    learner = OnlineLSSVM(KERNEL, selection="fixed", dictionary=DICTIONARY[:3], max_basis=max_basis)
    assert learner.parameters.max_basis == 3


def test_a_dictionary_larger_than_max_basis_is_refused_unless_that_is_the_default() -> None:
    with pytest.raises(InputError, match="max_basis is 2, the dictionary has 3 rows: leave max_basis out"):
        OnlineLSSVM(KERNEL, selection="fixed", dictionary=DICTIONARY[:3], max_basis=2)
    many = np.arange(501.0)[:, np.newaxis]
    assert OnlineLSSVM(KERNEL, selection="fixed", dictionary=many).parameters.max_basis == 501


@pytest.mark.parametrize(
    ("dictionary", "places", "came"),
    [
        (DICTIONARY[:3], [0, 1], r"3 rows .* shape \(2,\) and type int64"),
        (DICTIONARY[:3], [0.0, 1.0, 2.0], r"3 rows .* shape \(3,\) and type float64"),
        (None, [0, 1], r"0 rows .* shape \(2,\) and type int64"),
    ],
)
def test_dictionary_rows_must_be_whole_numbers_one_for_each(
    dictionary: Array | None, places: list[float], came: str
) -> None:
    selection = "supervised" if dictionary is None else "fixed"
    with pytest.raises(InputError, match=f"dictionary_rows must be whole numbers, one for each of the {came}"):
        OnlineLSSVM(KERNEL, selection=selection, dictionary=dictionary, dictionary_rows=places)


@pytest.mark.parametrize("settings", [{"selection": "fixed"}, {"selection": "novelty", "dictionary": DICTIONARY}])
def test_a_dictionary_goes_with_the_fixed_rule_only(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="a dictionary is given if selection is 'fixed', and only then"):
        OnlineLSSVM(KERNEL, **settings)


def test_an_unknown_rule_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="selection must be one of supervised, novelty, fixed, it is 'greedy'"):
        OnlineLSSVM(KERNEL, selection="greedy")


def test_independent_rows_are_a_largest_set() -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((30, 4))
    assert len(find_independent(Linear(), X, None)) == 4
    assert len(find_independent(Polynomial(1.0, degree=2, coef0=1.0), X, None)) == 15
    assert len(find_independent(KERNEL, np.repeat(X, 3, axis=0), None)) == 30
    assert find_independent(Linear(), np.zeros((3, 4)), None).tolist() == []
    scaled = X * 10.0 ** rng.integers(-6, 6, size=(30, 1))
    chosen = find_independent(Linear(), scaled, None)
    assert np.linalg.matrix_rank(X[chosen]) == len(chosen) == 4


def test_a_dictionary_waits_for_a_row_of_positive_weight() -> None:
    X, y = rows(10)
    learner = learner_of("fixed").partial_fit(X, y, np.zeros(10))
    assert np.array_equal(learner.predict(X), np.zeros((10, 1)))
    again = OnlineLSSVM.from_state(learner.state()).partial_fit(X, y)
    assert np.allclose(again.predict(X), learner_of("fixed").partial_fit(X, y).predict(X), rtol=0, atol=1e-10)


@pytest.mark.parametrize("changed", [1e-7, 1e-4, 3e-2])
@pytest.mark.parametrize("cut", [0, 1, 700, 1500])
def test_another_regularization_during_the_stream_applies_to_all_rows(cut: int, changed: float) -> None:
    X, y = rows(1500, c=2)
    learner = learner_of("fixed")
    if cut:
        learner.partial_fit(X[:cut], y[:cut])
    learner.set_regularization(changed)
    if cut < 1500:
        learner.partial_fit(X[cut:], y[cut:])
    beta = direct_coefficients(GaussianKernel(0.2), DICTIONARY, X, y, np.ones(1500), changed * 1500)
    expected = KERNEL.block(X, DICTIONARY) @ np.asarray(beta, dtype=np.float64)
    assert np.allclose(learner.predict(X), expected, rtol=0, atol=1e-7)
    assert learner.state().penalty == changed * 1024


@pytest.mark.parametrize("rule", RULES)
def test_another_regularization_changes_p_by_its_share_of_k_alone(rule: str) -> None:
    X, y = rows(700)
    learner = learner_of(rule).partial_fit(X, y)
    before = learner.state()
    learner.set_regularization(5e-3)
    after = learner.state()
    assert np.allclose(after.normal_matrix - before.normal_matrix, 512 * (5e-3 - LAMBDA) * before.gram, atol=1e-9)
    assert np.array_equal(after.normal_rhs, before.normal_rhs)
    assert np.array_equal(after.basis_rows, before.basis_rows)
    beta = np.linalg.solve(after.normal_matrix + (5e-3 * 700 - after.penalty) * after.gram, after.normal_rhs)
    assert np.allclose(learner.predict(X), KERNEL.block(X, after.basis_vectors) @ beta, rtol=0, atol=1e-9)
    learner.partial_fit(X, y)
    assert learner.state().penalty == 5e-3 * 1024


@pytest.mark.parametrize("rule", RULES)
def test_a_change_of_regularization_gives_the_same_bits_after_an_interruption(rule: str) -> None:
    X, y = rows(900)
    straight, resumed = learner_of(rule), learner_of(rule)
    for (start, stop), regularization in zip(pairwise([0, 1, 300, 317, 900]), [2e-4, 2e-4, 1e-6, 1e-3], strict=True):
        for learner in (straight, resumed):
            learner.set_regularization(regularization)
            learner.partial_fit(X[start:stop], y[start:stop])
            learner.refresh()
        resumed = OnlineLSSVM.from_state(resumed.state())
    assert_same_bits(straight, resumed)
    assert straight.numerics == resumed.numerics


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_an_invalid_regularization_is_refused_and_nothing_has_changed(bad: float) -> None:
    X, y = rows(100)
    learner, untouched = (learner_of("supervised").partial_fit(X, y) for _ in range(2))
    with pytest.raises(InputError, match=f"regularization must be a positive number, it is {bad}"):
        learner.set_regularization(bad)
    assert_same_bits(learner, untouched)


@pytest.mark.parametrize("rule", ["supervised without a limit", "novelty without a limit"])
def test_a_dictionary_without_a_limit_is_refused_before_it_needs_too_much(rule: str) -> None:
    X, y = rows(2000)
    full = learner_of(rule).partial_fit(X, y)
    learner = learner_of(rule)
    learner.memory_limit_bytes = plan_learner_bytes(full.n_basis, 4)
    assert learner.partial_fit(X, y).n_basis == full.n_basis
    learner = learner_of(rule)
    learner.memory_limit_bytes = plan_learner_bytes(full.n_basis, 4) - 1
    message = rf"cannot grow beyond {full.n_basis - 1} basis vectors, .* memory_limit, .* max_basis of at most"
    with pytest.raises(MemoryRefused, match=message):
        learner.partial_fit(X, y)
    assert learner.n_basis == full.n_basis - 1


def test_numerics_report_condition_drift_and_jitter() -> None:
    X, y = rows(3000, d=2)
    learner = OnlineLSSVM(KERNEL, regularization=1e-7, max_basis=30, novelty_threshold=1e-5)
    assert learner.numerics == Numerics()
    learner.partial_fit(X, y).refresh()
    state, numerics = learner.state(), learner.numerics
    for estimate, matrix in ((numerics.normal_condition, state.normal_matrix), (numerics.gram_condition, state.gram)):
        exact = np.linalg.cond(matrix, 1)
        assert 0.3 * exact < estimate < 1.1 * exact
    assert 0 < numerics.rounding_error <= numerics.largest_rounding_error < 1e-3
    assert (numerics.largest_jitter, numerics.jitter_count) == (0.0, 0)
    learner.refresh()
    assert learner.numerics == numerics


def test_drift_is_the_error_of_predictions_at_the_dictionary() -> None:
    K = gram(KERNEL, DICTIONARY)
    fresh = np.linspace(-1, 1, 15)[:, np.newaxis]
    carried = fresh + np.linalg.solve(K, np.full((15, 1), 1e-3 * np.abs(K @ fresh).max()))
    assert rounding_error_of(np.tril(K), carried, fresh) == pytest.approx(1e-3)


def test_jitter_is_counted_and_stays_within_its_bound() -> None:
    X, y = rows(3000, d=2)
    learner = OnlineLSSVM(KERNEL, selection="fixed", dictionary=rows(60, d=2, seed=5)[0][:25], regularization=1e-14)
    learner.partial_fit(X, y).refresh()
    numerics = learner.numerics
    assert numerics.jitter_count > 0
    assert 0 < numerics.largest_jitter <= JITTERS[-1] * np.diagonal(learner.state().normal_matrix).max()
    assert OnlineLSSVM.from_state(learner.state()).numerics == numerics
    assert np.isfinite(learner.predict(X)).all()


@pytest.mark.parametrize("settings", [{"selection": "fixed", "dictionary": DICTIONARY}, {"selection": "novelty"}])
def test_predictions_of_a_closed_dictionary_follow_a_target_that_jumps(settings: dict[str, Any]) -> None:
    X, y = rows(9000)
    y[5000:] += 3.0
    often, alone = (OnlineLSSVM(KERNEL, **{"max_basis": 15, **settings}) for _ in range(2))
    parts = []
    for start in range(0, 9000, 100):
        parts.append(often.predict_then_learn(X[start : start + 100], y[start : start + 100]))
        often.refresh()
    fresh, at_once = np.concatenate(parts), alone.predict_then_learn(X, y)
    errors = [np.mean((predicted[5000:] - y[5000:]) ** 2) for predicted in (fresh, at_once)]
    assert errors[1] == pytest.approx(errors[0], rel=0.1)


def test_rows_refused_for_the_condition_of_p_are_counted() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, (3000, 2))
    learner = OnlineLSSVM(RBF(0.5), regularization=1e-9, max_basis=None, novelty_threshold=1e-6, selection="novelty")
    learner.partial_fit(X, np.sin(3 * X[:, 0])).refresh()
    refused = np.linalg.cond(learner.state().normal_matrix) > 1e9 and learner.numerics.refused
    assert refused > 100
    again = OnlineLSSVM.from_state(learner.state())
    assert again.numerics == learner.numerics


def test_a_learner_interrupted_by_an_error_learns_no_more() -> None:
    X, y = rows(600)
    learner = OnlineLSSVM(KERNEL, max_basis=None, novelty_threshold=1e-9, usefulness_threshold=0.0)
    learner.memory_limit_bytes = 100_000
    with pytest.raises(MemoryRefused, match="basis vectors"):
        learner.partial_fit(X, y)
    for use in (lambda: learner.partial_fit(X, y), learner.state):
        with pytest.raises(NumericalBreakdown, match="interrupted this learner in the middle of a block"):
            use()


def test_coefficients_cannot_be_changed_in_place() -> None:
    learner = OnlineLSSVM(KERNEL, max_basis=15).partial_fit(*rows(300))
    with pytest.raises(ValueError, match="read-only"):
        learner.coefficients()[0] = 0.0
