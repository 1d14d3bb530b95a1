"""Learning a metric: it finds what matters, is stopped by rows left out, and depends on nothing else."""

from functools import partial

import numpy as np
import pytest
from support.jobs.recording import Notes

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.kernels import RBF, Kernel, Linear, Polynomial
from ridgestream.pipeline.metric.column_shares import BinTask, sum_by_bins
from ridgestream.pipeline.metric.contest import KernelFamily
from ridgestream.pipeline.metric.learning import LearnedMetric, learn_metric
from ridgestream.pipeline.metric.settings import MetricName, MetricSettings
from ridgestream.pipeline.metric.split import LEARNED, Split
from ridgestream.pipeline.sums.row_set import ArrayRows

D = 6


def rbf(gamma: float | None) -> Kernel:
    return RBF(gamma=1 / D if gamma is None else gamma)


def features(n: int = 800, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(n, D))


def learn(
    u: Floats, y: Floats, *, form: MetricName = "full", weights: Floats | None = None, **more: int
) -> LearnedMetric:
    settings = MetricSettings(**{"rows": len(u), "basis": 60, "rounds": 4} | more)
    return learn_metric(ArrayRows(u, y, weights), KernelFamily(rbf, D), settings, Notes(), form=form)


@pytest.mark.parametrize("form", ["full", "diagonal"])
def test_columns_that_matter_get_the_weight(form: MetricName) -> None:
    u = features()
    learned = learn(u, np.sin(2 * u[:, 1]) + u[:, 4] ** 2, form=form)
    assert set(np.argsort(learned.metric.importance())[-2:].tolist()) == {1, 4}
    assert learned.metric.importance()[[1, 4]].sum() > 0.9
    assert learned.best is not None
    assert learned.best.errors.pooled < 0.6 * learned.rounds[0].errors.pooled


def test_a_full_metric_finds_a_direction() -> None:
    u = features()
    axis = np.array([3.0, 0, 0, -4.0, 0, 0]) / 5
    (leading,) = learn(u, np.sin(2 * u @ axis)).metric.directions(1)
    assert abs(leading.axis @ axis) > 0.99
    assert leading.share > 0.8


@pytest.mark.parametrize(("form", "tried"), [("full", 1), ("auto", 3)])
def test_noise_teaches_no_metric(form: MetricName, tried: int) -> None:
    u = features()
    learned = learn(u, np.random.default_rng(1).normal(size=len(u)), form=form)
    np.testing.assert_array_equal(learned.metric.root, np.ones(D))
    assert [each.kept for each in learned.rounds] == [True] + tried * [False]


def test_auto_finds_the_few_columns_that_matter_where_the_gradients_of_a_matrix_are_noise() -> None:
    few = np.random.default_rng(0).normal(size=(400, 60))
    settings, family = MetricSettings(basis=100), KernelFamily(lambda g: RBF(gamma=1 / 60 if g is None else g), 60)
    rows = ArrayRows(few, few[:, 1] ** 2 + np.sin(2 * few[:, 4]))
    full, auto = (learn_metric(rows, family, settings, Notes(), form=form) for form in ("full", "auto"))
    assert full.best is not None
    assert auto.best is not None
    assert auto.best.errors.pooled < 0.5 * full.best.errors.pooled
    assert set(np.argsort(auto.metric.importance())[-2:].tolist()) == {1, 4}


def test_auto_finds_an_oblique_direction() -> None:
    u = features()
    axis = np.array([3.0, 0, 0, -4.0, 0, 0]) / 5
    (leading,) = learn(u, np.sin(2 * u @ axis), form="auto").metric.directions(1)
    assert abs(leading.axis @ axis) > 0.99


def test_columns_have_the_shares_that_they_explain_by_themselves() -> None:
    rng = np.random.default_rng(0)
    u, weights = rng.normal(size=(4_000, 4)), rng.integers(0, 3, 4_000).astype(float)
    u[:, 3] = 2.0
    y = np.column_stack([np.sign(u[:, 0]), u[:, 1] ** 2 - 1]) + np.where(weights > 0, 0.0, 1e6)[:, np.newaxis]
    rows, task = ArrayRows(u, y, weights), BinTask(Split(len(u)), 4, 2)
    first, second, third, constant = rows.reduce(sum_by_bins, task, events.STEP_COLUMN_SHARES, 3).shares.tolist()
    assert first == pytest.approx(1 / 3, rel=0.1)
    assert 0.5 * 2 / 3 < second < 2 / 3
    assert 0 < third < 0.01
    assert constant == 0
    learned = np.flatnonzero(Split(len(u)).groups(0, len(u)) == LEARNED)
    y[np.setdiff1d(np.arange(len(u)), learned)] = 7.0
    again = ArrayRows(u, y, weights).reduce(sum_by_bins, task, events.STEP_COLUMN_SHARES, 1).shares
    np.testing.assert_allclose(again[:2], [first, second])


@pytest.mark.parametrize(("n_features", "n_targets"), [(5, 1), (5, 3), (65, 1), (60, 20)])
def test_columns_that_explain_only_together_have_what_they_explain_more(n_features: int, n_targets: int) -> None:
    """Up to 64 columns are looked at in pairs, fewer of many targets."""
    u = np.random.default_rng(0).uniform(-1.7, 1.7, (6_000, n_features))
    y = np.sin(3 * u[:, 0]) * np.sin(3 * u[:, 1]) + 0.5 * u[:, 2]
    task, rows = BinTask(Split(len(u)), n_features, n_targets), ArrayRows(u, np.tile(y[:, np.newaxis], n_targets))
    shares = rows.reduce(sum_by_bins, task, events.STEP_COLUMN_SHARES, 3).shares
    assert 0.4 < shares[2] < 0.5
    assert shares[3:].max() < 0.01
    assert np.all(shares[:2] > 0.25) if n_features == 5 else np.all(shares[:2] < 0.01)


def test_auto_finds_waves_of_two_columns_that_a_wide_kernel_does_not_see() -> None:
    u = np.random.default_rng(0).uniform(-1.7, 1.7, (4_000, D))
    y = 4 * np.sin(4 * u[:, 0]) * np.sin(4 * u[:, 1]) + u[:, 2] + np.sign(u[:, 3])
    full, auto = (learn(u, y, form=form, basis=400) for form in ("full", "auto"))
    assert auto.best is not None
    assert full.best is not None
    assert auto.best.errors.pooled < 0.5 * full.best.errors.pooled


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_teach_a_metric_only_while_there_are_mistakes_to_be_improved_on(n_classes: int) -> None:
    u = features()
    classes = np.searchsorted([-0.5, 0.5] if n_classes == 3 else [0.0], u[:, 1])
    clear = np.abs(u[:, 1]) > 0.8 if n_classes == 2 else np.abs(np.abs(u[:, 1]) - 0.5) > 0.4
    y = 2.0 * (classes[:, np.newaxis] == np.arange(n_classes)) - 1
    y = y[:, 1:] if n_classes == 2 else y
    easy, hard = learn(u[clear], y[clear]), learn(u, y)
    assert easy.rounds[1].errors.pooled < 0.8 * easy.rounds[0].errors.pooled
    assert not easy.rounds[1].kept
    assert hard.metric.importance()[1] > 0.8
    numbers = learn(u[clear], 2 * y[clear])
    assert numbers.metric.importance()[1] > 0.8


def test_a_round_that_only_neighbours_in_time_like_is_not_kept() -> None:
    """A clock explains every row of its own time, and none of a later one."""
    rng, u = np.random.default_rng(0), features()
    time = np.arange(len(u)) / len(u)
    u[:, 5] = (time - time.mean()) / time.std()
    y = np.repeat(rng.normal(size=40), 20) + 0.3 * np.sin(2 * u[:, 0])
    assert learn(u, y).metric.importance()[5] < 0.5


def test_a_constant_column_is_an_axis_of_its_own() -> None:
    u = features()
    u[:, 2] = 0.0
    root = learn(u, np.sin(2 * u[:, 1])).metric.root
    np.testing.assert_array_equal(root[2], np.eye(D)[2])


def test_rows_of_weight_zero_are_absent() -> None:
    u, rng = features(), np.random.default_rng(2)
    y, weights = np.sin(2 * u[:, 1]), rng.integers(0, 2, len(u)).astype(float)
    spoiled = np.where(weights > 0, y, 1e6)
    one, other = (learn(u, targets, weights=weights) for targets in (y, spoiled))
    np.testing.assert_array_equal(one.metric.root, other.metric.root)


def test_several_targets_share_the_metric() -> None:
    u = features()
    learned = learn(u, np.column_stack([np.sin(2 * u[:, 1]), np.sin(2 * u[:, 3])]))
    assert set(np.argsort(learned.metric.importance())[-2:].tolist()) == {1, 3}


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_a_few_rows_make_a_metric_or_none_but_no_error(n: int) -> None:
    u = features(n)
    learned = learn(u, u[:, 0])
    assert np.isfinite(learned.metric.root).all()


def test_equal_rows_make_no_metric() -> None:
    u = np.ones((50, D))
    assert np.isfinite(learn(u, np.arange(50.0)).metric.root).all()


def test_the_narrowest_of_the_widths_that_are_about_as_good_is_taken_if_more_rows_follow() -> None:
    u = features()
    rows, settings = ArrayRows(u, u[:, 1] + u[:, 4] + features(seed=1)[:, 0]), MetricSettings(basis=60)
    learned = (
        learn_metric(rows, KernelFamily(rbf, D), settings, Notes(), form="standardized", narrower_loss=loss).best
        for loss in (0.0, 1.0)
    )
    best, narrow = ((best.gamma or 0.0, best.errors.pooled) for best in learned if best is not None)
    assert best[0] < narrow[0]
    assert best[1] < narrow[1] <= 2 * best[1]


def test_a_given_width_is_that_of_the_last_kernel_after_the_metric_of_an_open_one() -> None:
    u = features()
    rows, settings = ArrayRows(u, np.sin(2 * u[:, 1])), MetricSettings(basis=60, rounds=3)
    given = KernelFamily(rbf, D, chooses=False, given=(1e-4, 2e-4))
    one, open_ = (learn_metric(rows, each, settings, Notes(), form="full") for each in (given, KernelFamily(rbf, D)))
    np.testing.assert_array_equal(one.metric.root, open_.metric.root)
    assert open_.metric.importance()[1] > 0.5
    assert one.best is not None
    assert one.best.gamma in given.given


def test_given_widths_are_the_only_ones_tried_without_a_metric() -> None:
    u = features()
    family = KernelFamily(rbf, D, chooses=False, given=(0.1, 0.7))
    learned = learn_metric(ArrayRows(u, u[:, 1]), family, MetricSettings(basis=60), Notes(), form="standardized")
    assert {each.gamma for each in learned.rounds} <= {0.1, 0.7}


@pytest.mark.parametrize("kernel", [Linear(), Polynomial(gamma=0.2, degree=2)], ids=repr)
def test_kernels_of_the_inner_product_learn_one_too(kernel: Kernel) -> None:
    u = features()
    family = KernelFamily(partial(_only, kernel), D, chooses=False)
    learned = learn_metric(
        ArrayRows(u, u[:, 1] + u[:, 1] ** 2), family, MetricSettings(basis=60, rounds=3), Notes(), form="diagonal"
    )
    assert np.isfinite(learned.metric.root).all()
    assert learned.metric.importance()[1] >= 1 / D


def _only(kernel: Kernel, gamma: float | None) -> Kernel:  # noqa: ARG001
    return kernel
