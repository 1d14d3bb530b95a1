"""What stays wrong with a model: it is no better than a constant, or its intervals cover too few values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Self

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.calibration.intervals import COVERAGE_LEVEL

NO_BETTER, WITHIN_CHANCE = "no better than a constant", "not better than a constant beyond chance"
"""How a model compares with a constant that has no larger error, or one larger by no more than chance explains."""

_SURE = 4.0
"""Standard errors by which a coverage has to be below its level."""


def verdict_on(no_better_in: Sequence[str], skills: Mapping[str, Any]) -> str | None:
    """Return how a model compares with a constant, by its skills on the rows that judge; None if it is better."""
    if not no_better_in:
        return None
    kind = "skill" if skills["skill"] is not None else "progressive_skill"
    several = skills[f"{kind}_of"]
    judged = [several[name] for name in no_better_in] if several else [skills[kind]]
    return WITHIN_CHANCE if all(skill is not None and skill > 0 for skill in judged) else NO_BETTER


@dataclass(frozen=True)
class Shortfall:
    """Rows whose values lie in their intervals far less often than the level says."""

    measured_on: str
    """Held-out rows or new rows."""
    level: float
    """The level of the intervals."""
    coverage: float
    """The share of values inside."""
    rows: int
    """Number of rows."""

    @property
    def is_far(self) -> bool:
        """Whether, beyond chance, the misses are three times as many as the level allows, or the hits half as many."""
        far = min(2 * (1 - self.level), self.level / 2)
        chance = sqrt(self.level * (1 - self.level) / self.rows) if self.rows else self.level
        return self.level - self.coverage > max(far, _SURE * chance)

    @classmethod
    def all_of(cls, evaluation: Mapping[str, Any], coverage: float | None, new_rows: int) -> list[Self]:
        """Return those of an evaluation, as a report has it, and of the new rows that the model before covered."""
        return [each for each in cls._of(evaluation, coverage, new_rows) if each.is_far]

    @classmethod
    def _of(cls, evaluation: Mapping[str, Any], coverage: float | None, new_rows: int) -> Iterator[Self]:
        if intervals := evaluation.get("intervals"):
            yield cls("held-out rows", intervals["level"], intervals["coverage"], evaluation["rows"])
        if coverage is not None:
            yield cls("new rows", COVERAGE_LEVEL, coverage, new_rows)

    def warn(self, report: Reporter) -> None:
        """Warn of it."""
        report.warn(
            events.EVALUATE_COVERAGE_LOW,
            measured_on=self.measured_on,
            interval=self.level,
            coverage=self.coverage,
            rows=self.rows,
        )


def warn_of_coverage(
    report: Reporter, evaluation: Mapping[str, Any], coverage: float | None = None, new_rows: int = 0
) -> None:
    """Warn where intervals cover too few values, by an evaluation and by the new rows that the model before covered."""
    for shortfall in Shortfall.all_of(evaluation, coverage, new_rows):
        shortfall.warn(report)
