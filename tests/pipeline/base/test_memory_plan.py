"""Memory as it is planned, where a figure is promised."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.jobs.config.values import parse_bytes
from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.memory_plan import (
    BatchPlan,
    MemoryPlan,
    MetricPlan,
    RefitPlan,
    TrainingPlan,
    check_plans,
    show_need,
)
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES


def test_a_worker_sums_four_thousand_candidates_of_one_fold_within_1200_megabytes() -> None:
    one, five = (BatchPlan("shard-merge-select", 4000, folds, 54, BLOCK_BYTES) for folds in (1, 5))
    assert one.worker_bytes < 1.2e9 < five.worker_bytes
    assert one.total_bytes < five.total_bytes


@pytest.mark.parametrize(
    ("plan", "remedy"),
    [
        (TrainingPlan(1_000, 9, 10**6), "lower max_basis"),
        (TrainingPlan(200, 9, 10**6, 450), "lower max_basis or experts"),
        (TrainingPlan(200, 9, 10**6, 450, chooses_experts=True), "lower max_basis, give experts a number"),
        (MetricPlan(1_000, 9, 10**6), "lower metric_options.basis"),
        (BatchPlan("ols", 1_000, 5, 9, 10**6), "lower the number of vectors or folds"),
    ],
)
def test_a_refusal_names_the_remedies_that_help(plan: MemoryPlan, remedy: str) -> None:
    with pytest.raises(MemoryRefused, match=rf"may be used: {re.escape(remedy)}, or raise memory_limit$"):
        check_plans([plan], plan.total_bytes - 1)
    with pytest.raises(MemoryRefused, match=r"may be used: raise memory_limit$"):
        check_plans([plan], plan.least_bytes - 1)


@given(count=st.integers(10**3, 10**14))
def test_a_need_is_rounded_up(count: int) -> None:
    assert count <= parse_bytes(show_need(count)) <= count * 1.01


@given(sizes=st.tuples(*[st.integers(1, 3000)] * 3))
def test_the_need_of_a_refusal_is_enough_for_all_plans(sizes: tuple[int, int, int]) -> None:
    plans: list[MemoryPlan] = [TrainingPlan(sizes[0], 9, 10**6), RefitPlan(sizes[1], 9, 10**6, 10**6)]
    plans.append(MetricPlan(sizes[2], 9, 10**6))
    with pytest.raises(MemoryRefused, match=r"needs [\d.]+ [MG]B of memory.*; 1 MB may be used: ") as refused:
        check_plans(plans, 10**6)
    check_plans(plans, parse_bytes(str(refused.value).partition(" needs ")[2].partition(" of ")[0]))
