"""OROLS as a batch method: its memory and passes, and the refit of its machines."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.batch.method import (
    FitTask,
    Method,
    PassPlan,
    PlanTask,
    Sizes,
    greedy_sizes,
    round_passes,
    sum_pass,
)
from ridgestream.pipeline.batch.orols.orols import Machines, OROLSSettings, fit_orols
from ridgestream.pipeline.selection.fit_result import Fitted
from ridgestream.pipeline.sums.normal_equations import BlockStatistics

LEAST_REGULARIZATION = 1e-12
"""The smallest λ per row used for error bars: λ of OROLS may be zero, which would leave them without a prior."""

_VECTORS_A_PASS = 5
"""The usual number of vectors that a pass confirms."""


def _fit(task: FitTask[OROLSSettings]) -> Fitted:
    settings = replace(task.settings.bounded(task.rows.n_rows), memory_limit=task.memory_limit_bytes)
    fitted = fit_orols(task.rows, task.kernels[0], settings, task.report)
    machines = fitted.machines
    own: dict[str, Floats | Integers] = {
        "turns": machines.turns,
        "machine_regularization": machines.regularization,
    }
    return replace(fitted, regularization=max(fitted.regularization, LEAST_REGULARIZATION), own=own)


def _solve(fitted: Fitted, sums: BlockStatistics) -> Floats:
    """Return the orthogonal solution of each machine at its own λ."""
    turns, regularization = fitted.own["turns"], fitted.own["machine_regularization"]
    return Machines(cast("Integers", turns), cast("Floats", regularization)).coefficients(sums)


def _sizes(task: PlanTask[OROLSSettings]) -> Sizes:
    settings = task.settings.bounded(task.n_rows)
    if settings.selection_rule == "residual":
        return Sizes(settings.limit + settings.pool + 1)
    return Sizes(greedy_sizes(settings.limit, task.n_rows, settings.candidates, None).n_functions + 1)


def _passes(task: PlanTask[OROLSSettings]) -> Iterator[PassPlan]:
    settings = task.settings.bounded(task.n_rows)
    for _ in range(1 + settings.folds if settings.size_rule == "cv" else 1):
        yield from _selection_passes(settings, task.n_rows)
        yield sum_pass(settings.limit + 1)


def _selection_passes(settings: OROLSSettings, n_rows: int) -> Iterator[PassPlan]:
    """Yield the passes of one selection."""
    if settings.selection_rule != "residual":
        yield from round_passes(settings.limit, n_rows, settings.candidates, None, settings.limit)
        return
    for n_basis in range(0, settings.limit, _VECTORS_A_PASS):
        yield PassPlan(n_basis + settings.pool, settings.pool * (n_basis + settings.pool))


METHOD = Method(
    settings=OROLSSettings,
    fit=_fit,
    sizes=_sizes,
    passes=_passes,
    solve=_solve,
    chooses_size=True,
    certain=lambda settings: False,  # noqa: ARG005
)
