"""Measures the cost of a row for the online learner against the dictionary's size, and against the rows seen."""

from dataclasses import dataclass
from typing import Any

from benchmarks.measuring import Took, learn, lower_bound, new_learner, say
from support.data.forest import Rows, standardized_forest, stream_like_forest


@dataclass(frozen=True)
class Plan:
    """The points of the curves."""

    sizes: tuple[int, ...]
    """Values of max_basis for the first curve."""
    filling_rows: int
    """Rows learned before the clock of the first curve runs, so that the dictionary is full."""
    timed_rows: int
    """Rows that are timed."""
    max_basis: int
    """The dictionary's size for the second curve."""
    marks: tuple[int, ...]
    """Row counts between which the second curve takes its means."""


FULL = Plan(
    sizes=(100, 200, 300, 500, 700, 1000, 1500, 2000),
    filling_rows=50_000,
    timed_rows=50_000,
    max_basis=300,
    marks=(10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000),
)
QUICK = Plan(sizes=(10, 20, 40), filling_rows=1000, timed_rows=1000, max_basis=20, marks=(500, 1000, 2000))


def measure_curves(plan: Plan) -> dict[str, Any]:
    """Measure both curves; the time to draw synthetic rows is not counted."""
    return {"against_basis": against_basis(plan), "against_rows": against_rows(plan)}


def against_basis(plan: Plan) -> list[dict[str, Any]]:
    """Return CPU microseconds per row for each size: of the learner with a full dictionary, and of the lower bound."""
    rows, _ = standardized_forest(plan.filling_rows + plan.timed_rows)
    timed = Rows(rows.X[plan.filling_rows :], rows.y[plan.filling_rows :])
    points = []
    for max_basis in plan.sizes:
        learner = new_learner(max_basis)
        learn(learner, rows.first(plan.filling_rows))
        before = learner.swaps
        took = learn(learner, timed)
        _, bound = lower_bound(timed, learner.state().basis_vectors)
        point = {
            "max_basis": max_basis,
            "n_basis": learner.n_basis,
            "cpu_microseconds_per_row": took.cpu_microseconds_per(plan.timed_rows),
            "lower_bound_cpu_microseconds_per_row": bound.cpu_microseconds_per(plan.timed_rows),
            "swaps_per_1000_rows": round(1000 * (learner.swaps - before) / plan.timed_rows, 2),
        }
        say(f"a row against the dictionary's size: {point}")
        points.append(point)
    return points


def against_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return, for each mark, the mean CPU microseconds per row since the mark before it."""
    learner, points, seen, since, took = new_learner(plan.max_basis), [], 0, 0, Took(0.0, 0.0)
    marks = list(plan.marks)
    for partition in stream_like_forest():
        start = 0
        while start < len(partition.X) and marks:
            stop = min(len(partition.X), start + marks[0] - seen)
            took += learn(learner, Rows(partition.X[start:stop], partition.y[start:stop]))
            seen, start = seen + stop - start, stop
            if seen == marks[0]:
                point = {
                    "rows": marks.pop(0),
                    "cpu_microseconds_per_row": took.cpu_microseconds_per(seen - since),
                    "swaps": learner.swaps,
                }
                say(f"a row against the rows seen: {point}")
                points.append(point)
                since, took = seen, Took(0.0, 0.0)
        if not marks:
            return points
    return points
