"""OROLS against explicit columns and matrices; what must not change its choices; and unusual data."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.jobs.recording import Notes
from support.references.orols import DenseMachine

from ridgestream.pipeline.base.errors import InputError, NumericalBreakdown
from ridgestream.pipeline.base.events import Step as Event
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.batch.orols.binary_machine import PathRule, Step
from ridgestream.pipeline.batch.orols.criteria import LARGEST_SHARE, CrossValidation
from ridgestream.pipeline.batch.orols.orols import OrolsFitted, OROLSSettings, fit_orols
from ridgestream.pipeline.batch.orols.residual_pass import row_keys
from ridgestream.pipeline.kernels import RBF, Kernel, Linear, Polynomial, gram
from ridgestream.pipeline.sums.normal_equations import SeveralStatistics, Summing, sum_rows, sum_together
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.pipeline.sums.row_set import Argument, ArrayRows, RowSet, Summed

Array = npt.NDArray[np.float64]
KERNEL = RBF(0.4)
SETTINGS = OROLSSettings(tolerance=1e-2, patience=3, condition_limit=1e3)


def draw_rows(n: int = 200, n_targets: int = 1, seed: int = 0, weighted: bool = False) -> ArrayRows:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 3))
    Y = np.sin(X @ rng.standard_normal((3, n_targets)) * 1.5) + 0.3 * rng.standard_normal((n, n_targets))
    return ArrayRows(X, Y, rng.choice([0.0, 1.0, 2.0, 0.5], n) if weighted else None)


def classes(n: int = 240, seed: int = 0) -> ArrayRows:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    label = (np.arctan2(X[:, 1], X[:, 0]) // (2 * np.pi / 3)).astype(int) % 3
    return ArrayRows(X, np.where(label[:, np.newaxis] == np.arange(3), 1.0, -1.0))


def dense(rows: ArrayRows, kernel: Kernel, wanted: OROLSSettings, target: int = 0) -> DenseMachine:
    weights = np.ones(rows.n_rows) if rows.weights is None else rows.weights
    return DenseMachine(
        gram(kernel, rows.features),
        rows.targets[:, target],
        weights,
        wanted.tolerance,
        wanted.patience,
        wanted.limit,
        wanted.condition_limit,
    ).run()


def fit(rows: RowSet, kernel: Kernel = KERNEL, wanted: OROLSSettings = SETTINGS) -> OrolsFitted:
    return fit_orols(rows, kernel, wanted, Silent())


def own(fitted: OrolsFitted, target: int) -> list[int]:
    """The rows of one machine, in its order."""
    turns = fitted.machines.turns[:, target]
    return [int(fitted.places[vector]) for vector in np.argsort(turns) if turns[vector] >= 0]


def assert_is_dense(fitted: OrolsFitted, machine: DenseMachine, rows: ArrayRows, target: int = 0) -> None:
    assert own(fitted, target) == machine.chosen
    weight = float(machine.w.sum())
    slack = 1e-12 * fitted.notes["condition"] ** 2
    np.testing.assert_allclose(fitted.machines.regularization[target] * weight, machine.penalties[-1], rtol=slack)
    predicted = fitted.basis.values(rows.features) @ fitted.coefficients[:, target]
    expected = np.column_stack(machine.columns) @ machine.coefficients()
    np.testing.assert_allclose(predicted, expected, rtol=0, atol=slack * np.abs(machine.y).max())
    absent = np.append(fitted.machines.turns[:, target] < 0, False)
    assert (fitted.coefficients[absent, target] == 0).all()


@dataclass(frozen=True)
class CutRows:
    """Rows cut into parts that are looked through apart and merged, as tasks do."""

    rows: ArrayRows
    cuts: tuple[int, ...]

    @property
    def n_rows(self) -> int:
        return self.rows.n_rows

    @property
    def n_features(self) -> int:
        return self.rows.n_features

    @property
    def n_targets(self) -> int:
        return self.rows.n_targets

    def take(self, places: npt.NDArray[np.int64]) -> RowBlock:
        return self.rows.take(places)

    def reduce(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        argument: Argument,
        step: Event,
        parts: int | None = None,
    ) -> Summed:
        assert step.name
        assert parts is None
        function, argument = pickle.loads(pickle.dumps((function, argument)))  # noqa: S301  (as they travel)
        ends = [0, *sorted(self.cuts), self.n_rows]
        return reduce(lambda a, b: a.merge(b), (function(argument, [self._part(*ends)]) for ends in pairwise(ends)))

    def reduce_each(
        self,
        function: Callable[[Argument, Iterable[RowBlock]], Summed],
        arguments: Sequence[Argument],
        step: Event,
        parts: int | None = None,
    ) -> Iterator[Summed]:
        return (self.reduce(function, argument, step, parts) for argument in arguments)

    def statistics(self, summings: Sequence[Summing], step: Event) -> SeveralStatistics:
        return self.reduce(sum_together, summings, step)

    def _part(self, start: int, stop: int) -> RowBlock:
        rows, part = self.rows, slice(start, stop)
        weights = None if rows.weights is None else rows.weights[part]
        return RowBlock(rows.features[part], rows.targets[part], weights, start)


@pytest.mark.parametrize("kernel", [RBF(0.4), Polynomial(0.3, 2, 1.0), Linear()], ids=lambda k: k.name)
@pytest.mark.parametrize("weighted", [False, True])
def test_it_chooses_and_predicts_as_explicit_columns_do(kernel: Kernel, weighted: bool) -> None:
    rows = draw_rows(weighted=weighted)
    machine, fitted = dense(rows, kernel, SETTINGS), fit(rows, kernel)
    assert min(machine.margins) > 1e-9
    assert_is_dense(fitted, machine, rows)
    assert fitted.path is not None
    weight = float(machine.w.sum())
    slack = 1e-12 * fitted.notes["condition"] ** 2
    np.testing.assert_allclose(fitted.path.regularization * weight, machine.penalties[1:], rtol=slack)
    np.testing.assert_allclose(fitted.path.value, machine.gcv, rtol=slack)
    np.testing.assert_array_equal(fitted.path.n_basis, np.arange(1, len(machine.chosen) + 1))
    assert fitted.path.chosen == len(machine.chosen) - 1
    np.testing.assert_array_equal(fitted.basis.vectors, rows.features[fitted.places])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(8, 70), weighted=st.booleans(), foreseen=st.integers(0, 9))
def test_any_rows_are_chosen_as_by_explicit_columns(seed: int, n: int, weighted: bool, foreseen: int) -> None:
    rows = draw_rows(n, seed=seed, weighted=weighted)
    if rows.weights is not None:
        rows.weights[:4] = 1.0
    wanted = replace(SETTINGS, condition_limit=100.0, foreseen=foreseen, pool=1 + seed % 9)
    machine = dense(rows, KERNEL, wanted)
    if min(machine.margins) > 1e-8:
        assert_is_dense(fit(rows, wanted=wanted), machine, rows)


def test_each_class_has_the_machine_that_it_has_alone() -> None:
    rows = classes()
    fitted = fit(rows)
    for target in range(3):
        assert_is_dense(fitted, dense(rows, KERNEL, SETTINGS, target), rows, target)
        alone = fit(ArrayRows(rows.features, rows.targets[:, target : target + 1]))
        assert own(fitted, target) == list(alone.places)
        np.testing.assert_allclose(fitted.machines.regularization[target], alone.regularization, rtol=1e-6)
    assert len(set(fitted.places)) == len(fitted.places) < sum(len(own(fitted, target)) for target in range(3))
    assert fitted.regularization == fitted.machines.regularization.mean()


@pytest.mark.parametrize(("foreseen", "pool"), [(0, 1), (1, 3), (4, 16), (16, 64)])
def test_confirming_several_steps_per_pass_changes_no_choice(foreseen: int, pool: int) -> None:
    rows = classes(seed=3)
    plain = fit(rows, wanted=replace(SETTINGS, foreseen=0, pool=1))
    compared = fit(rows, wanted=replace(SETTINGS, foreseen=foreseen, pool=pool))
    np.testing.assert_array_equal(compared.places, plain.places)
    np.testing.assert_array_equal(compared.machines.turns, plain.machines.turns)
    np.testing.assert_allclose(compared.coefficients, plain.coefficients, rtol=1e-6)
    assert compared.path is not None
    assert plain.path is not None
    np.testing.assert_allclose(compared.path.regularization, plain.path.regularization, rtol=1e-6)


def test_several_steps_per_pass_need_fewer_passes_than_steps() -> None:
    rows = draw_rows(400)
    fitted = fit(rows, wanted=replace(SETTINGS, patience=10**6, max_basis=60))
    assert fitted.notes["largest_machine"] == len(fitted.places)
    assert 50 < len(fitted.places) <= 60  # of 60 steps, those up to the least GCV
    assert fitted.notes["passes"] < 30
    assert fit(rows, wanted=replace(SETTINGS, patience=10**6, max_basis=60, foreseen=0, pool=1)).notes["passes"] > 60


@pytest.mark.parametrize("max_basis", [1, 2, 7, 20])
@pytest.mark.parametrize("foreseen", [0, 8])
def test_machines_take_turns_until_the_dictionary_is_full(max_basis: int, foreseen: int) -> None:
    rows = classes()
    wanted = replace(SETTINGS, max_basis=max_basis, foreseen=foreseen)
    fitted, whole = fit(rows, wanted=wanted), fit(rows)
    np.testing.assert_array_equal(fitted.places, whole.places[:max_basis])
    seen: set[int] = set()
    turns: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for turn in range(max_basis):
        for target in range(3):
            if len(seen) < max_basis and turn < len(own(whole, target)):
                turns[target].append(own(whole, target)[turn])
                seen.add(turns[target][-1])
    assert [own(fitted, target) for target in range(3)] == list(turns.values())


@settings(max_examples=15, deadline=None)
@given(cuts=st.lists(st.integers(0, 240), min_size=1, max_size=4), weighted=st.booleans())
def test_rows_searched_in_parts_give_the_same_choice(cuts: list[int], weighted: bool) -> None:
    rows = draw_rows(240, 2, weighted=weighted)
    wanted = replace(SETTINGS, max_basis=25)
    whole, parts = fit(rows, wanted=wanted), fit(CutRows(rows, tuple(cuts)), wanted=wanted)
    np.testing.assert_array_equal(parts.places, whole.places)
    np.testing.assert_allclose(parts.coefficients, whole.coefficients, rtol=1e-7, atol=1e-9)


def test_a_row_of_weight_two_is_two_rows_and_one_of_weight_zero_is_absent() -> None:
    rows = draw_rows(150)
    weights = np.random.default_rng(5).integers(0, 3, 150).astype(float)
    twice = np.repeat(np.arange(150), weights.astype(int))
    weighted = fit(ArrayRows(rows.features, rows.targets, weights))
    repeated = fit(ArrayRows(rows.features[twice], rows.targets[twice]))
    np.testing.assert_array_equal(weighted.places, twice[repeated.places])
    assert (np.diff(np.sort(repeated.places)) > 0).all()
    X = rows.features
    predicted = repeated.basis.values(X) @ repeated.coefficients
    np.testing.assert_allclose(weighted.basis.values(X) @ weighted.coefficients, predicted, rtol=0, atol=1e-7)
    assert (weights[weighted.places] > 0).all()


def test_equal_rows_of_other_targets_enter_once_and_do_not_end_selection() -> None:
    rows = draw_rows(120)
    doubled = ArrayRows(np.repeat(rows.features, 2, axis=0), np.repeat(rows.targets, 2, axis=0) + [[0.2], [-0.2]] * 120)
    wanted = replace(SETTINGS, patience=8)
    fitted, machine = fit(doubled, wanted=wanted), dense(doubled, KERNEL, wanted)
    assert machine.refused
    assert_is_dense(fitted, machine, doubled)
    assert len(set(fitted.places // 2)) == len(fitted.places) > 3


@pytest.mark.thorough
def test_many_copies_with_other_targets_cost_no_passes() -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(-2, 3, (40, 3)).astype(float), 15, axis=0)
    rows = ArrayRows(X, np.where(rng.random(600) < 0.2, -1.0, 1.0)[:, np.newaxis] * np.sign(X[:, :1] + 0.5))
    wanted = replace(SETTINGS, tolerance=0.0, pool=20)
    fitted = fit(rows, wanted=wanted)
    assert len(np.unique(fitted.basis.vectors, axis=0)) == len(fitted.places) > 20
    assert fitted.notes["passes"] < 2 * len(fitted.places)
    assert_is_dense(fitted, dense(rows, KERNEL, wanted), rows)


def test_keys_differ_for_different_rows_and_agree_for_equal_ones() -> None:
    grid = np.stack(np.meshgrid(*[np.arange(-10.0, 11.0)] * 4), axis=-1).reshape(-1, 4)
    keys = row_keys(grid)
    assert len(np.unique(keys)) == len(grid)
    np.testing.assert_array_equal(row_keys(np.negative(-grid[::-1]))[::-1], keys)
    assert row_keys(np.array([[0.0, -0.0]])) == row_keys(np.array([[-0.0, 0.0]]))


def test_equal_rows_of_equal_targets_the_first_is_taken() -> None:
    rows = draw_rows(300)
    order = np.r_[np.arange(300), np.random.default_rng(0).permutation(300)]
    doubled = ArrayRows(rows.features[order], rows.targets[order])
    assert (fit(doubled).places < 300).all()


@pytest.mark.parametrize("value", [0.0, 3.5, -1e6])
def test_a_constant_target_is_left_to_the_bias(value: float) -> None:
    rows = ArrayRows(draw_rows().features, np.full((200, 1), value))
    fitted = fit(rows)
    np.testing.assert_array_equal(fitted.places, [0])
    np.testing.assert_allclose(fitted.basis.values(rows.features) @ fitted.coefficients, value, rtol=1e-12)
    assert np.isfinite(fitted.coefficients).all()
    assert fitted.path is not None
    assert np.isfinite(fitted.path.value).all()


def test_a_constant_target_beside_another_changes_nothing_of_it() -> None:
    rows = draw_rows()
    both = fit(ArrayRows(rows.features, np.c_[rows.targets, np.ones(200)]))
    assert own(both, 0) == list(fit(rows).places)
    assert own(both, 1) == [0]


def test_it_stops_on_targets_that_the_kernel_represents_exactly() -> None:
    X = draw_rows().features
    fitted = fit(ArrayRows(X, X @ [[1.0], [2.0], [-1.0]] + 4), Linear())
    assert len(fitted.places) == 3
    np.testing.assert_allclose(
        fitted.basis.values(X) @ fitted.coefficients, X @ [[1.0], [2.0], [-1.0]] + 4, rtol=0, atol=1e-9
    )


def test_an_ill_conditioned_kernel_stops_it() -> None:
    rows = draw_rows(300)
    fitted = fit(rows, RBF(1e-3), replace(SETTINGS, patience=10**6, condition_limit=1e4))
    assert fitted.notes["condition"] <= 1e4
    assert len(fitted.places) < 60
    assert np.isfinite(fitted.coefficients).all()


def test_the_reported_condition_is_that_of_explicit_columns() -> None:
    rows = draw_rows()
    lengths = [float(q @ q) for q in dense(rows, KERNEL, SETTINGS).q]
    assert fit(rows).notes["condition"] == pytest.approx(np.sqrt(max(lengths) / min(lengths)), rel=1e-6)


def test_a_refit_needs_only_the_sums_to_which_new_rows_are_added() -> None:
    rows, more = draw_rows(240, 2), draw_rows(300, 2, seed=8, weighted=True)
    fitted = fit(rows)
    old = fitted.sums.total()
    np.testing.assert_array_equal(fitted.machines.coefficients(old), fitted.coefficients)
    block = RowBlock(more.features, more.targets, more.weights, 240)
    together = old.merge(sum_rows(Summing(fitted.basis, 2), [block]).total())
    refitted = fitted.machines.coefficients(together)
    assert more.weights is not None
    weights = np.r_[np.ones(240), more.weights]
    X, Y = np.r_[rows.features, more.features], np.r_[rows.targets, more.targets]
    for target in range(2):
        machine = DenseMachine(np.empty((0, 0)), Y[:, target], weights, 0.0, 1)
        machine.columns = [np.ones(540), *KERNEL.block(rows.features[own(fitted, target)], X)]
        Q, R = np.linalg.qr(np.sqrt(weights)[:, None] * np.column_stack(machine.columns))
        machine.q = list((Q * np.diagonal(R)).T)
        machine.penalties = [fitted.machines.regularization[target] * weights.sum()]
        expected = np.column_stack(machine.columns) @ machine.coefficients()
        np.testing.assert_allclose(fitted.basis.values(X) @ refitted[:, target], expected, atol=1e-7)


def test_sums_are_handed_over_by_folds() -> None:
    rows = draw_rows()
    fitted = fit(rows, wanted=replace(SETTINGS, folds=4, random_seed=2))
    expected = sum_rows(Summing(fitted.basis, 1, 4, 2), [RowBlock(rows.features, rows.targets, None)])
    assert len(fitted.sums.folds) == 4
    for part, fold in zip(fitted.sums.folds, expected.folds, strict=True):
        np.testing.assert_array_equal(part.products, fold.products)
        np.testing.assert_array_equal(part.rhs, fold.rhs)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(8, 30), noise=st.sampled_from([0.01, 0.5, 20.0]))
def test_lambda_has_the_least_gcv_of_explicit_hat_matrices(seed: int, n: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.standard_normal((n, n // 2)))
    Q *= np.exp(rng.uniform(-3, 3, n // 2))
    y = Q @ rng.standard_normal(n // 2) + noise * rng.standard_normal(n)
    lengths = np.sum(Q**2, axis=0)
    penalty, gcv = CrossValidation(lengths, Q.T @ y / np.sqrt(lengths), float(y @ y), n).least()
    penalties = np.append(np.geomspace(1e-6 * lengths.min(), 1e6 * lengths.max(), 100), penalty)
    ridges = np.linalg.inv(Q.T @ Q + penalties[:, np.newaxis, np.newaxis] * np.eye(n // 2))
    left = np.eye(n) - Q @ ridges @ Q.T
    explicit = n * np.sum((left @ y) ** 2, axis=1) / np.trace(left, axis1=1, axis2=2) ** 2
    assert explicit.min() >= gcv * (1 - 1e-9)
    assert explicit[-1] == pytest.approx(gcv, rel=1e-9)


@pytest.mark.parametrize(("strength", "minimum"), [(3.0, 3.66e6), (3.6, 0.333)])
def test_of_two_minima_of_gcv_the_lower_one_is_taken(strength: float, minimum: float) -> None:
    along = np.array([strength] * 10 + [3.0] * 10)
    curve = CrossValidation(np.array([1e6] * 10 + [1.0] * 10), along, float(along @ along) + 9.0, 24.0)
    turns = np.sign(curve.slopes(np.geomspace(1e-5, 1e11, 1000)))
    assert np.count_nonzero(np.diff(turns) > 0) == 2
    assert curve.least()[0] == pytest.approx(minimum, rel=0.01)


def test_lambda_is_at_an_end_of_its_range_where_gcv_falls_towards_it() -> None:
    nothing = CrossValidation(np.array([10.0, 2.0]), np.array([1e-160, 0.0]), 5.0, 10.0)
    penalty, gcv = nothing.least()
    assert penalty == LARGEST_SHARE * 10
    assert gcv == pytest.approx(0.5, rel=1e-5)
    assert CrossValidation(np.array([10.0]), np.array([0.0]), 0.0, 10.0).least() == (0.0, 0.0)


def test_it_reports_its_progress() -> None:
    notes = Notes()
    fitted = fit_orols(draw_rows(), KERNEL, SETTINGS, notes)
    assert notes.events[-1][1]["machines_at_work"] == 0
    n_basis = notes.events[-1][1]["n_basis"]
    assert isinstance(n_basis, int)
    assert n_basis >= len(fitted.places)  # it serves the point of its path with the least GCV
    assert [fact["passes"] for _, fact in notes.events] == list(range(2, int(fitted.notes["passes"])))


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(InputError, match=r"weights of the 2 rows sum to 2; OROLS needs more than 2"):
        fit(draw_rows(2))
    with pytest.raises(InputError, match=r"sum to 0\.2"):
        fit(replace(draw_rows(200), weights=np.full(200, 1e-3)))


def test_rows_without_a_usable_column_are_refused() -> None:
    with pytest.raises(NumericalBreakdown, match="no row has a usable column"):
        fit(ArrayRows(np.zeros((50, 3)), draw_rows(50).targets))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_basis", 0, "max_basis must be a whole number of at least 1"),
        ("patience", 0, "patience must be a whole number of at least 1"),
        ("foreseen", -1, "foreseen must be a whole number of at least 0"),
        ("pool", 0, "pool must be a whole number of at least 1"),
        ("folds", 0, "folds must be a whole number of at least 1"),
        ("random_seed", -1, "random_seed must be a whole number of at least 0"),
        ("tolerance", -0.1, "tolerance must be zero or positive"),
        ("tolerance", float("nan"), "tolerance must be zero or positive"),
        ("condition_limit", 1.0, "condition_limit must be above 1"),
        ("condition_limit", float("nan"), "condition_limit must be above 1, it is nan"),
    ],
)
def test_invalid_settings_are_refused(name: str, value: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        OROLSSettings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [2, 6, 7, 10])
def test_the_point_of_least_gcv_is_served_and_never_a_worse_model_of_the_path(seed: int) -> None:
    """λ runs to its largest share on few noisy rows, where it stands still: the constant model ended such a path."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 13))
    y = np.sign(X[:, :1]) * X[:, 1:2] + 2 * rng.standard_normal((60, 1))
    fitted = fit_orols(ArrayRows(X, y / y.std()), RBF(0.05), OROLSSettings(), Silent())
    path = fitted.path
    assert path is not None
    assert path.value[path.chosen] == path.value.min()
    assert len(path.value) == len(fitted.places)


def steps_of(penalties: Sequence[float], gcv: Sequence[float]) -> list[Step]:
    return [Step(i, penalty, value) for i, (penalty, value) in enumerate(zip(penalties, gcv, strict=True))]


def test_a_path_ends_where_lambda_is_stationary_at_the_least_gcv() -> None:
    rule = PathRule(100, 1e-2, 3, 1e5)
    assert rule.ended(steps_of([1, 1.001, 1.002, 1.003], [4, 3, 2, 1])) == "lambda is stationary"
    assert rule.ended(steps_of([1, 1.1, 1.102, 1.103], [4, 3, 2, 1])) == ""
    assert rule.ended(steps_of([1, 1.001, 1.002, 1.003], [4, 3, 1, 2])) == ""


def test_lambda_at_an_end_of_its_range_ends_a_path_only_when_gcv_has_long_not_fallen() -> None:
    rule = PathRule(100, 1e-2, 3, 1e5)
    risen = [1 + i / 1000 for i in range(7)]
    assert rule.ended(steps_of([1e6] * 6, risen[:6])) == ""
    assert rule.ended(steps_of([1e6] * 7, risen)) == "GCV has stopped falling"


def test_a_dictionary_without_room_for_the_least_gcv_serves_the_least_that_it_holds() -> None:
    rows = draw_rows(60, 3, seed=4)
    rows.targets[:] += 2 * np.random.default_rng(0).standard_normal((60, 3))
    for max_basis in range(1, 12):
        fitted = fit(rows, wanted=replace(SETTINGS, max_basis=max_basis))
        for target in range(3):
            alone = ArrayRows(rows.features, rows.targets[:, target : target + 1])
            size = len(own(fitted, target))
            path = dense(alone, KERNEL, replace(SETTINGS, max_basis=max(size, 1)))
            assert own(fitted, target) in ([], path.chosen)
