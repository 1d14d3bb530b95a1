"""The guard: a model that got worse on the held-out rows learns on, but is not served."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.stores.catalog.models import ModelRecord

_NAMED = 3
"""Partitions of a night that are named at most."""


@dataclass(frozen=True)
class Verdict:
    """What the guard says of tonight's model."""

    served: int
    """The night whose model goes on being served; 0 if tonight's is served."""
    error_before: float
    """The error on tonight's held-out rows of the model that was served so far."""
    error_now: float
    """That of tonight's model."""


def compare_with_served(kept: ModelRecord, before: Evaluation, judged: Evaluation, margin: float) -> Verdict | None:
    """Compare tonight's errors with those, `before`, of the model served so far on the same rows.

    It is worse if it misclassifies more by `margin`, a fraction of the rows, or, in regression, if its mean squared
    error is larger by that share. None without held-out rows.
    """
    if judged.test_error is not None and before.test_error is not None:
        worse = judged.test_error > before.test_error + margin
        errors = before.test_error, judged.test_error
    elif judged.test_mse is not None and before.test_mse is not None:
        worse = judged.test_mse > before.test_mse * (1 + margin)
        errors = before.test_mse, judged.test_mse
    else:
        return None
    return Verdict(night_served(kept) if worse else 0, *errors)


def tell_of_verdict(verdict: Verdict, names: Sequence[str], report: Reporter) -> None:
    """Say that the model is held back, why, and which partitions it has learned tonight."""
    report.warn(
        events.GUARD_MODEL_HELD_BACK,
        learned=", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""),
        error=verdict.error_now,
        served_night=verdict.served,
        its_error=verdict.error_before,
    )


def hold_back(record: ModelRecord, served: int) -> ModelRecord:
    """Return the record, in the place of whose model that of an earlier night is served."""
    *earlier, tonight = record.history
    return replace(record, serves=served, history=(*earlier, replace(tonight, held=True)))


def night_served(record: ModelRecord) -> int:
    """Return the night whose model is served; 0 where an older release made it."""
    return record.serves or record.history[-1].number
