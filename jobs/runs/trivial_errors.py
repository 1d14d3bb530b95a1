"""Errors beside those of the constant that fits the learned rows best, and a warning of models that are no better."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Fact, Reporter
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.pipeline.prediction.progressive_validation import LEAST_ROWS
from ridgestream.pipeline.prediction.trivial_model import is_no_better, skill_of
from ridgestream.pipeline.training.training_result import Trained
from ridgestream.stores.catalog.models import Night


@dataclass(frozen=True)
class Comparison:
    """The errors of a model and of a constant on the same rows."""

    measured_on: str
    """Held-out rows or new rows."""
    targets: tuple[str, ...]
    """The target columns."""
    errors: tuple[float, ...]
    """The model's: a misclassified fraction, or the mean square of each target."""
    trivial_errors: tuple[float, ...]
    """The constant's."""
    chance: tuple[float, ...]
    """The standard errors of their differences; zero if they are unknown."""

    @classmethod
    def of_evaluation(cls, evaluation: Evaluation, targets: tuple[str, ...]) -> Self | None:
        """Return the comparison on held-out rows; None without them."""
        if not evaluation.trivial_errors:
            return None
        sums = evaluation.test_errors, evaluation.trivial_errors, evaluation.chance
        return cls("held-out rows", targets, *sums)

    @classmethod
    def of_training(cls, trained: Trained, targets: tuple[str, ...]) -> Self | None:
        """Return the comparison on new rows, predicted before they were learned; None for fewer than LEAST_ROWS."""
        rows = sum(entry.rows for entry in trained.entries)
        if trained.progressive_error is None or not trained.trivial_errors or rows < LEAST_ROWS:
            return None
        errors = trained.progressive_mse_of or (trained.progressive_error,)
        return cls("new rows", targets, errors, trained.trivial_errors, (0.0,) * len(errors))

    @property
    def no_better_in(self) -> tuple[str, ...]:
        """The targets in which the model is no better than the constant."""
        sums = zip(self.targets, self.errors, self.trivial_errors, self.chance, strict=True)
        return tuple(name for name, *errors in sums if is_no_better(*errors))

    @property
    def _is_within_chance(self) -> bool:
        """Whether the model has a smaller error than the constant in all these targets, though not beyond chance."""
        sums = zip(self.targets, self.errors, self.trivial_errors, strict=True)
        return all(error < trivial for name, error, trivial in sums if name in self.no_better_in)

    def warn(self, report: Reporter) -> None:
        """Warn of a model that is no better than a constant, or not beyond chance."""
        if not self.no_better_in:
            return
        facts: dict[str, Fact] = {"measured_on": self.measured_on}
        if len(self.targets) > 1:
            facts["targets"] = ", ".join(self.no_better_in)
        else:
            facts |= {"error": self.errors[0], "trivial_error": self.trivial_errors[0], "chance": self.chance[0]}
        no_better, within_chance = events.EVALUATE_NO_BETTER_THAN_CONSTANT, events.EVALUATE_NOT_BETTER_BEYOND_CHANCE
        report.warn(within_chance if self._is_within_chance else no_better, **facts)


def compare(trained: Trained, evaluation: Evaluation | None, targets: tuple[str, ...]) -> Comparison | None:
    """Return the comparison that judges a night: on held-out rows, or if it has none on its new ones."""
    if evaluation and evaluation.weight:
        return Comparison.of_evaluation(evaluation, targets)
    return Comparison.of_training(trained, targets)


def mean_of(errors: Sequence[float]) -> float | None:
    """Return the mean over the targets; None without errors."""
    return sum(errors) / len(errors) if errors else None


def night_skills(night: Night) -> dict[str, Any]:
    """Return the constant's errors and the skills of a night on its test rows and on its new ones, as plain JSON."""
    test = night.test_error if night.test_error is not None else night.test_mse
    return {
        "trivial_error": night.trivial_error,
        "skill": skill_of(test, night.trivial_error),
        "skill_of": _skills(night.test_mse_of, night.trivial_mse_of),
        "progressive_trivial_error": night.progressive_trivial_error,
        "progressive_skill": skill_of(night.progressive_error, night.progressive_trivial_error),
        "progressive_skill_of": _skills(night.progressive_mse_of, night.progressive_trivial_mse_of),
        "last_value_error": night.last_value_error,
        "skill_over_last_value": skill_of(test, night.last_value_error),
        "progressive_last_value_error": night.progressive_last_value_error,
        "progressive_skill_over_last_value": skill_of(night.progressive_error, night.progressive_last_value_error),
    }


def over_last_value(skills: dict[str, Any]) -> float | None:
    """Return the skill over the last value on the test rows, or without them on the new ones, None if it is unknown."""
    skill: float | None = skills["skill_over_last_value"]
    return skills["progressive_skill_over_last_value"] if skill is None else skill


def warn_of_last_value(night: Night, report: Reporter) -> None:
    """Warn of a model of rows ordered in time that is no better than the target of the row before."""
    skill = over_last_value(night_skills(night))
    if skill is not None and skill <= 0:
        report.warn(events.EVALUATE_NO_BETTER_THAN_LAST_VALUE, skill=skill)


def skill_of_night(night: Night) -> float | None:
    """Return the skill, in regression R², on the test rows of a night, or without them on its new ones."""
    skills = night_skills(night)
    skill: float | None = skills["skill"] if skills["skill"] is not None else skills["progressive_skill"]
    return skill


def skill_cell(night: dict[str, Any]) -> str:
    """Return the skill of a night, as JSON has it, for a table."""
    skill = night["skill"] if night["skill"] is not None else night["progressive_skill"]
    return "" if skill is None else f"{skill:.3f}"


def _skills(
    errors: Mapping[str, float] | None, trivial_errors: Mapping[str, float] | None
) -> dict[str, float | None] | None:
    """Return the skill in each of several targets; None for one target."""
    return (
        {name: skill_of(error, (trivial_errors or {}).get(name)) for name, error in errors.items()} if errors else None
    )
