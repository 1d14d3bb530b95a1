"""The rules of OROLS for λ and the number of vectors, against explicit matrices and selections on other rows."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.references.orols import DenseMachine

from ridgestream.pipeline.base.errors import InputError, MemoryRefused
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.orols.criteria import (
    PENALTIES,
    SCORES,
    CrossValidation,
    Directions,
    Evidence,
    RegularizationRule,
    SizeRule,
    re_estimated,
)
from ridgestream.pipeline.batch.orols.orols import OrolsFitted, OROLSSettings, fit_orols
from ridgestream.pipeline.batch.orols.pursuit import SelectionRule
from ridgestream.pipeline.kernels import RBF, gram
from ridgestream.pipeline.selection.candidate_rounds import NumberOrAll, draw_round
from ridgestream.pipeline.sums.folds import deal_folds
from ridgestream.pipeline.sums.row_set import ArrayRows

Array = npt.NDArray[np.float64]
KERNEL = RBF(0.4)
SETTINGS = OROLSSettings(tolerance=1e-2, patience=3, condition_limit=1e3)


def draw_rows(n: int = 150, n_targets: int = 1, seed: int = 0) -> ArrayRows:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    Y = np.sin(X @ rng.standard_normal((3, n_targets)) * 1.5) + 0.3 * rng.standard_normal((n, n_targets))
    return ArrayRows(X, Y)


def fit(rows: ArrayRows, wanted: OROLSSettings) -> OrolsFitted:
    return fit_orols(rows, KERNEL, wanted, Silent())


def draw_columns(seed: int, n: int, noise: float) -> tuple[Array, Array]:
    """Orthogonal columns of different lengths, and a target."""
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((n, n // 2)))
    Q *= np.exp(rng.uniform(-3, 3, n // 2))
    return Q, Q @ rng.standard_normal(n // 2) + noise * rng.standard_normal(n)


def directions(Q: Array, y: Array) -> Directions:
    lengths = np.sum(Q**2, axis=0)
    return Directions(lengths, Q.T @ y / np.sqrt(lengths), float(y @ y), len(y))


def log_evidence(Q: Array, y: Array, penalty: float) -> float:
    """Of y ~ N(0, σ²(I + QQᵀ/λ)), at the best σ²."""
    covariance = np.eye(len(y)) + Q @ Q.T / penalty
    noise = float(y @ np.linalg.solve(covariance, y)) / len(y)
    return -0.5 * float(len(y) * np.log(2 * np.pi * noise) + np.linalg.slogdet(covariance)[1] + len(y))


def projection(Q: Array, penalty: complex) -> npt.NDArray[np.complex128]:
    ridge = np.linalg.inv(Q.T @ Q + penalty * np.eye(Q.shape[1], dtype=complex))
    return np.asarray(np.eye(len(Q)) - Q @ ridge @ Q.T, dtype=complex)


def published(Q: Array, y: Array, penalty: float) -> float:
    """Equation (30), its derivatives by complex steps."""
    P = projection(Q, penalty).real
    bent = projection(Q, penalty + 1e-30j).imag / 1e-30
    weights = np.linalg.solve(Q.T @ Q + penalty * np.eye(Q.shape[1]), Q.T @ y)
    below = float(weights @ np.linalg.solve(Q.T @ Q + penalty * np.eye(Q.shape[1]), weights))
    return float(np.trace(bent) * (y @ P @ P @ y) / (np.trace(P) * below))


def explicit_score(rule: SizeRule, Q: Array, y: Array, penalty: float) -> float:
    P = projection(Q, penalty).real
    n, error, g = len(y), float(y @ P @ P @ y), len(y) - float(np.trace(P))
    if rule == "bic":
        return float(n * np.log(error / n) + g * np.log(n))
    if rule == "mdl" and 1 - error / (y @ y) <= g / n:
        return float(n / 2 * np.log(y @ y / n) + np.log(n) / 2)
    if rule == "mdl":  # equation (19) of Hansen & Yu
        S = error / (n - g)
        F = (float(y @ y) - error) / (g * S)
        return float(n / 2 * np.log(S) + g / 2 * np.log(F) + np.log(n))
    return n * error / float(np.trace(P)) ** 2


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(8, 30), noise=st.sampled_from([0.01, 0.5, 20.0]))
def test_the_evidence_is_that_of_a_dense_gaussian(seed: int, n: int, noise: float) -> None:
    Q, y = draw_columns(seed, n, noise)
    curve = Evidence(**vars(directions(Q, y)))
    penalty, value = curve.least()
    grid = np.geomspace(1e-6 * curve.lengths.min(), 1e6 * curve.lengths.max(), 60)
    dense = np.array([log_evidence(Q, y, each) for each in [*grid, penalty]])
    assert dense.max() <= dense[-1] + 1e-4
    np.testing.assert_allclose(np.diff(curve.values(grid)), -2 * np.diff(dense[:-1]), atol=1e-3)
    assert value == pytest.approx(curve.values(np.array([penalty]))[0])


def test_lambda_of_the_largest_evidence_is_a_fixed_point_of_mackays_re_estimation() -> None:
    Q, y = draw_columns(3, 40, 0.5)
    model = directions(Q, y)
    penalty = PENALTIES["evidence"](model, 0.0)
    error, g = model.at(penalty)
    weights = Q.T @ y / (penalty + model.lengths)
    assert penalty == pytest.approx(g / (len(y) - g) * error / float(weights @ weights), rel=1e-6)


@pytest.mark.parametrize("before", [0.0, 1e-3, 0.4, 50.0])
def test_a_re_estimation_is_the_published_one(before: float) -> None:
    Q, y = draw_columns(5, 30, 0.5)
    assert re_estimated(directions(Q, y), before) == pytest.approx(published(Q, y, before), rel=1e-8)


def test_re_estimations_end_where_gcv_is_stationary() -> None:
    Q, y = draw_columns(1, 40, 0.5)
    model, penalty = directions(Q, y), 0.0
    for _ in range(500):
        penalty = re_estimated(model, penalty)
    curve = CrossValidation(**vars(model))
    assert curve.least()[0] == pytest.approx(penalty, rel=1e-6)


def test_a_target_without_anything_to_fit_gets_the_largest_lambda_by_re_estimation() -> None:
    model = Directions(np.array([10.0, 2.0]), np.zeros(2), 5.0, 10.0)
    assert re_estimated(model, 0.0) == 1e7


@pytest.mark.parametrize("rule", ["gcv", "bic", "mdl"])
@pytest.mark.parametrize("noise", [0.01, 0.5, 20.0])
def test_scores_are_those_of_explicit_matrices(rule: SizeRule, noise: float) -> None:
    Q, y = draw_columns(2, 30, noise)
    for penalty in (0.0, 0.3, 1e4):
        found = SCORES[rule](directions(Q, y), penalty)
        assert found == pytest.approx(explicit_score(rule, Q, y, penalty), rel=1e-9)


@pytest.mark.parametrize("regularization", ["gcv", "evidence", "re-estimation"])
@pytest.mark.parametrize("size", ["bic", "mdl", "stationary"])
def test_each_step_of_a_fit_has_the_lambda_and_score_of_explicit_columns(
    regularization: RegularizationRule, size: SizeRule
) -> None:
    rows = draw_rows()
    y = rows.targets[:, 0]
    fitted = fit(rows, replace(SETTINGS, regularization_rule=regularization, size_rule=size, max_basis=25))
    K = np.column_stack([np.ones(150), KERNEL.block(rows.features, rows.features[fitted.places], np.zeros(3))])
    Q, R = np.linalg.qr(K)
    Q, path, before = Q * np.diagonal(R), fitted.path, 0.0
    assert path is not None
    assert path.criterion == ("gcv" if size == "stationary" else size)
    for n_basis, penalty, score in zip(path.n_basis, path.regularization * 150, path.value, strict=True):
        model = directions(Q[:, : n_basis + 1], y)
        assert penalty == pytest.approx(PENALTIES[regularization](model, before), rel=1e-4)
        assert score == pytest.approx(explicit_score(size, Q[:, : n_basis + 1], y, penalty), rel=1e-6)
        before = penalty
    if size != "stationary":
        assert path.value[-1] == path.value.min()


def test_a_published_path_ends_where_lambda_stands_still_whatever_gcv_does() -> None:
    fitted = fit(draw_rows(), replace(SETTINGS, regularization_rule="re-estimation", size_rule="stationary"))
    assert fitted.path is not None
    penalties = [0.0, *fitted.path.regularization]
    still = [abs(b - a) <= 1e-2 * b for a, b in pairwise(penalties)]
    assert still[-3:] == [True] * 3
    assert not any(all(still[end - 3 : end]) for end in range(3, len(still)))


@pytest.mark.parametrize("seed", [0, 3])
def test_more_rows_end_a_path_at_smaller_changes_of_lambda(seed: int) -> None:
    """24,000 rows, by weights, have √(4000/24000) of the tolerance, and so of the statistical error, of 4,000."""
    rows = draw_rows(seed=seed)
    many = ArrayRows(rows.features, rows.targets, np.full(rows.n_rows, 160.0))
    fitted = fit(many, replace(SETTINGS, size_rule="stationary", tolerance=5e-2, condition_limit=1e6))
    assert fitted.path is not None
    changes = [abs(b - a) / b for a, b in pairwise([0.0, *fitted.path.regularization])]
    largest = [max(changes[end - 3 : end]) for end in range(3, len(changes) + 1)]
    assert min(largest[:-1]) <= 5e-2
    assert largest[-1] <= 5e-2 / np.sqrt(6) < min(largest[:-1])


def test_the_size_by_cross_validation_has_the_least_error_of_selections_on_other_rows() -> None:
    rows = draw_rows(80, 2)
    wanted = replace(SETTINGS, size_rule="cv", folds=4, random_seed=1, max_basis=12, patience=1000)
    dealt, fitted = deal_folds(0, 80, 4, 1), fit(replace(rows, targets=rows.targets[:, :1]), wanted)
    errors = np.zeros(12)
    for fold in range(4):
        left = dealt != fold
        kept = ArrayRows(rows.features[left], rows.targets[left, :1])
        for size in range(1, 13):
            model = fit(kept, replace(wanted, size_rule="stationary", max_basis=size))
            outputs = model.basis.values(rows.features[~left]) @ model.coefficients
            errors[size - 1] += np.sum((rows.targets[~left, :1] - outputs) ** 2)
    assert 1 < int(np.argmin(errors)) + 1 == len(fitted.places)


def test_each_machine_has_its_own_size_by_cross_validation() -> None:
    rows = draw_rows(80, 2)
    wanted = replace(SETTINGS, size_rule="cv", folds=4, max_basis=30)
    both = fit(rows, wanted)
    for target in range(2):
        alone = fit(ArrayRows(rows.features, rows.targets[:, target]), wanted)
        assert np.count_nonzero(both.machines.turns[:, target] >= 0) == len(alone.places)


def pursue_slowly(
    rows: ArrayRows, target: int, wanted: OROLSSettings, rounds: Iterable[npt.NDArray[np.int64]]
) -> DenseMachine:
    """Choose among the columns themselves, each made orthogonal to those before."""
    K, y = gram(KERNEL, rows.features), rows.targets[:, target]
    w = np.ones(len(y)) if rows.weights is None else rows.weights
    root, one = np.sqrt(w), np.ones(len(y))
    machine = DenseMachine(K, y, w, 0.0, 1)
    machine.columns, machine.q, machine.penalties = [one], [root * one], [0.0]
    for places in rounds:
        if len(machine.chosen) == wanted.limit:
            break
        best = (-1.0, -1, one)
        for place in sorted(set(places.tolist()) - set(machine.chosen)):
            q = root * K[place]
            square = float(q @ q)
            for other in [*machine.q, *machine.q]:
                q = q - other * (other @ q) / (other @ other)
            if w[place] == 0 or q @ q <= 1e-10 * square:
                continue
            left = root * machine.residual() if wanted.selection_rule == "matching-pursuit" else root * y
            score = float((left @ (root * K[place])) ** 2 / square)
            if wanted.selection_rule == "order-recursive":
                score = float((left @ q) ** 2 / (q @ q))
            best = max(best, (score, place, q), key=lambda each: each[0])
        if best[1] >= 0:
            machine.chosen.append(best[1])
            machine.columns.append(K[best[1]])
            machine.q.append(best[2])
            machine.estimate()
    return machine.at_least_gcv()


@pytest.mark.parametrize("rule", ["matching-pursuit", "order-recursive"])
@pytest.mark.parametrize("candidates", [9, "all"])
@pytest.mark.parametrize("weighted", [False, True])
def test_pursuits_choose_as_explicit_columns_do(rule: SelectionRule, candidates: NumberOrAll, weighted: bool) -> None:
    rows = draw_rows(90, 2)
    if weighted:
        rows = replace(rows, weights=np.random.default_rng(1).choice([0.0, 1.0, 2.0, 0.5], 90))
    wanted = replace(
        SETTINGS, selection_rule=rule, candidates=candidates, max_basis=9, patience=1000, condition_limit=1e6
    )
    drawn = [np.arange(90) if candidates == "all" else draw_round(0, number, 90, 9) for number in range(40)]
    for target in range(2):
        fitted = fit(replace(rows, targets=rows.targets[:, [target]]), wanted)
        machine = pursue_slowly(rows, target, wanted, drawn)
        assert fitted.places.tolist() == machine.chosen
        predicted = fitted.basis.values(rows.features) @ fitted.coefficients[:, 0]
        expected = np.column_stack(machine.columns) @ machine.coefficients()
        np.testing.assert_allclose(predicted, expected, atol=1e-6)
    assert fitted.notes["passes"] < (4 if candidates == "all" else 8)


def test_machines_share_the_candidates_and_the_dictionary_of_a_pursuit() -> None:
    rows = draw_rows(90, 3)
    wanted = replace(SETTINGS, selection_rule="order-recursive", candidates=9, max_basis=30)
    both = fit(rows, wanted)
    for target in range(3):
        alone = fit(ArrayRows(rows.features, rows.targets[:, target]), wanted)
        turns = both.machines.turns[:, target]
        own = both.places[np.argsort(np.where(turns < 0, 99, turns))][: np.count_nonzero(turns >= 0)]
        assert own.tolist() == alone.places[: len(own)].tolist()
    assert len(both.places) <= 30


def test_a_pursuit_ends_where_no_candidate_has_a_usable_column() -> None:
    rows = ArrayRows(np.repeat([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], 20, axis=0), draw_rows(40).targets)
    fitted = fit(rows, replace(SETTINGS, selection_rule="matching-pursuit", candidates=5, patience=1000, max_basis=30))
    assert len(fitted.places) == 1


def test_candidates_that_do_not_fit_in_memory_are_refused() -> None:
    wanted = replace(SETTINGS, selection_rule="order-recursive", candidates="all", max_basis=5, memory_limit=10**5)
    with pytest.raises(MemoryRefused, match="all rows as candidates need"):
        fit(draw_rows(150), wanted)


def test_cross_validation_needs_two_folds() -> None:
    with pytest.raises(InputError, match=r'size_rule = "cv" needs folds of at least 2, it is 1'):
        OROLSSettings(size_rule="cv", folds=1)


def test_rules_are_refused_by_name() -> None:
    with pytest.raises(InputError, match="size_rule must be"):
        OROLSSettings(size_rule="aic")  # type: ignore[arg-type]
