"""What a pilot chooses from its judged models, and the memory that it takes."""

import numpy as np
import pytest

from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.memory_plan import check_plans
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.metric.candidate import JudgedErrors
from ridgestream.pipeline.metric.contest import KernelFamily
from ridgestream.pipeline.metric.learning import LearnedMetric, Round
from ridgestream.pipeline.metric.metric import Metric
from ridgestream.pipeline.metric.settings import MetricRequest, MetricSettings
from ridgestream.pipeline.sums.row_set import ArrayRows
from ridgestream.pipeline.training.pilot import Pilot, count_rows, plan_pilot
from ridgestream.pipeline.training.request import LARGEST_CHOSEN, Choice, OnlineRequest

ROWS = ArrayRows(np.zeros((100, 2)), np.zeros(100))
REQUEST = OnlineRequest(
    name="m",
    kernel="rbf",
    kernel_parameters={},
    regularization=1e-5,
    max_basis=LARGEST_CHOSEN,
    novelty_threshold=1e-2,
    usefulness_threshold=1e-4,
    scaling_rows=100,
    metric=MetricRequest("full", MetricSettings(basis=5_000, rows=50_000)),
    chooses=frozenset({"max_basis"}),
)


def errors(pooled: float) -> JudgedErrors:
    return JudgedErrors(pooled, pooled, pooled, 20)


def pilot(sizes: dict[int, float], regularization: float = 1e-3) -> Pilot:
    best = Round(100, 25, 0.5, regularization, errors(0.3), kept=True)
    judged = tuple((size, errors(error)) for size, error in sizes.items())
    learned = LearnedMetric(Metric.standardized(2), best, (best,), judged)
    return Pilot(
        ROWS, 1_000, is_full=True, family=KernelFamily(lambda gamma: RBF(gamma=gamma or 0.5), 2), learned=learned
    )


def test_the_size_is_the_least_whose_error_is_flat() -> None:
    assert pilot({200: 0.5, 300: 0.402, 500: 0.4, 700: 0.41}).max_basis == 300


@pytest.mark.parametrize("sizes", [{200: 0.5, 300: 0.45, 500: 0.4}, {60: 0.4}, {}], ids=["falling", "one", "none"])
def test_where_no_size_is_flat_it_is_the_largest(sizes: dict[int, float]) -> None:
    assert pilot(sizes).max_basis == LARGEST_CHOSEN


def test_the_penalty_of_the_pilot_s_fits_is_kept_on_all_rows() -> None:
    """The fits that are judged have four fifths of the pilot's 100 rows."""
    choice = pilot({200: 0.5}, regularization=1e-2).choice
    assert choice.regularization * 1_000 == pytest.approx(1e-2 * 80)
    assert choice.gamma == 0.5


def test_a_pilot_that_judged_nothing_leaves_the_kernel_and_shrinks_by_the_noise_of_a_row() -> None:
    unjudged = LearnedMetric(Metric.standardized(2), None, ())
    family = KernelFamily(lambda gamma: RBF(gamma=gamma or 0.5), 2)
    assert Pilot(ROWS, 50, is_full=False, family=family, learned=unjudged).choice == Choice(
        None, 1 / 50, LARGEST_CHOSEN
    )


def test_the_memory_is_that_of_the_rows_that_there_are() -> None:
    few, many = (plan_pilot(REQUEST, None, 54, rows) for rows in (1_000, 10**6))
    assert few is not None
    assert many is not None
    assert (few.basis, many.basis) == (250, 5_000)


def test_a_pilot_of_many_features_has_fewer_rows() -> None:
    counts = [count_rows(MetricSettings(), n_features) for n_features in (54, 335, 1_000, 10**6)]
    assert counts == [50_000, 50_000, 16_777, 1_000]


def test_a_pilot_that_does_not_fit_is_refused_with_the_numbers() -> None:
    plan = plan_pilot(REQUEST, None, 1, 10**6)
    assert plan is not None
    with pytest.raises(MemoryRefused, match=r"metric_options\.basis = 5000 needs .* of memory"):
        check_plans([plan], 10**9)
