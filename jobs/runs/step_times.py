"""How long the steps of a run take, and how many rows they read."""

import re
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from ridgestream.pipeline.base.events import Step

MAX_STEPS = 40
"""Steps that are kept apart; all others are one."""

OTHER = "other steps"


@dataclass
class StepTime:
    """The sums of a step, or of several whose names differ in a number only."""

    name: str
    times: int = 0
    rows: int = 0
    seconds: float = 0.0


@dataclass
class _CurrentStep:
    name: str
    total_rows: int | None
    began: float
    rows: int = 0


class StepTimes:
    """Adds up the rows and seconds of each step."""

    def __init__(self) -> None:
        self._steps: dict[str, StepTime] = {}
        self._current: _CurrentStep | None = None

    def begin(self, step: Step, total_rows: int | None) -> None:
        """Begin a step."""
        self._current = _CurrentStep(step.name, total_rows, perf_counter())

    def advance(self, rows: int) -> None:
        """Count rows of the current step."""
        if self._current is not None:
            self._current.rows += rows

    def end(self, rows: int | None = None) -> None:
        """End the current step; its rows are those counted, unless they are given."""
        current, self._current = self._current, None
        if current is not None:
            step = self._step_of(current.name)
            step.times += 1
            step.rows += current.rows if rows is None else rows
            step.seconds += perf_counter() - current.began

    def interrupt(self) -> dict[str, Any]:
        """End the current step because the run ends, and return how far it has come; empty between two steps."""
        current = self._current
        self.end()
        if current is None:
            return {}
        return {"step": current.name, "rows": current.rows, "of_rows": current.total_rows}

    def as_list(self) -> list[list[Any]]:
        """Return name, times, rows and seconds of each step, in the order in which they began."""
        return [[step.name, step.times, step.rows, round(step.seconds, 3)] for step in self._steps.values()]

    def _step_of(self, name: str) -> StepTime:
        """Return the step of that name, ignoring its numbers; OTHER for all beyond MAX_STEPS."""
        key = re.sub(r"\d+", "…", name)
        if key not in self._steps and len(self._steps) >= MAX_STEPS:
            key = name = OTHER
        step = self._steps.setdefault(key, StepTime(name))
        if step.name != name:
            step.name = key
        return step
