"""Results of several threads: in order, taken ahead within bounds, errors where they belong; how many threads."""

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from threading import Event
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.base.blas_threads import ITEMS_PER_THREAD, MOST_THREADS, blas_threads, map_in_threads
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import InProcess, InThreads, in_threads
from ridgestream.pipeline.base.memory_plan import MetricPlan, RefitPlan, TrainingPlan, bytes_in_threads, threads_within


@given(items=st.lists(st.integers(), max_size=40), threads=st.integers(1, 5))
def test_results_come_in_the_order_of_the_items(items: list[int], threads: int) -> None:
    assert list(map_in_threads(lambda item: 2 * item, items, threads)) == [2 * item for item in items]


@given(bad=st.integers(0, 30), threads=st.integers(1, 5))
def test_an_error_is_raised_where_its_result_would_be(bad: int, threads: int) -> None:
    done: list[int] = []

    def fail(item: int) -> int:
        if item >= bad:
            raise InputError(f"item {item}")
        return item

    with pytest.raises(InputError, match=f"^item {bad}$"):
        done.extend(map_in_threads(fail, range(40), threads))
    assert done == list(range(bad))


def test_items_are_taken_ahead_within_bounds_and_what_runs_ends_with_the_caller() -> None:
    taken: list[int] = []
    finished: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    results = map_in_threads(finished.append, items(), 3)
    next(results)
    assert len(taken) == ITEMS_PER_THREAD * 3
    cast("Generator[None]", results).close()
    assert len(taken) == ITEMS_PER_THREAD * 3
    assert 1 <= len(finished) <= len(taken)


def test_threads_run_at_once_with_one_blas_thread_each_and_the_callers_settings_of_numpy() -> None:
    both = [Event(), Event()]

    def meet(number: int) -> tuple[set[int], str]:
        both[number].set()
        assert both[1 - number].wait(60)
        return set(blas_threads()), np.geterr()["over"]

    with np.errstate(over="raise"):
        assert list(map_in_threads(meet, range(2), 2)) == [({1}, "raise")] * 2


def test_an_executor_of_this_process_runs_in_threads_and_another_one_stays() -> None:
    here = in_threads(InProcess(3))
    assert (here.count_workers(), here.threads, InProcess(3).count_workers()) == (3, 3, 1)
    assert list(here.run(pow, [2, 3], 2)) == [4, 9]
    assert in_threads(InProcess(3), 2).count_workers() == 2

    class Other(InThreads):
        """Stands for an executor of workers."""

    other = Other(5)
    assert in_threads(other) is other


COUNT = "from ridgestream.pipeline.base.blas_threads import most_threads; print(most_threads())"


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_a_process_computes_in_as_many_threads_as_a_variable_says(variable: str) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", COUNT]
    for wanted in (1, 2, 50):  # more than there are cores are not had
        own = environment | {variable: str(wanted)}
        done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
        assert int(done.stdout) == min(wanted, os.cpu_count() or 1, MOST_THREADS)


@given(room=st.integers(0, 10), threads=st.integers(1, 8), basis=st.integers(1, 2000))
def test_there_are_no_more_threads_than_memory_has_room_for(room: int, threads: int, basis: int) -> None:
    for plan in (MetricPlan(basis, 9, 10**6), TrainingPlan(basis, 9, 10**6, 5, 10**6)):
        limit = plan.total_bytes + room * plan.thread_bytes
        assert threads_within(plan, limit, threads) == min(threads, 1 + room)
        assert threads_within(plan, limit - 1, threads) == min(threads, max(1, room))
        assert threads_within(plan, 0, threads) == 1
        assert plan.total_bytes <= bytes_in_threads(plan, limit, threads) <= limit
    one, refit = TrainingPlan(basis, 9, 10**6), RefitPlan(basis, 9, 10**6, 10**6)
    assert [bytes_in_threads(each, 2**60, threads) for each in (one, refit)] == [one.total_bytes, refit.total_bytes]
