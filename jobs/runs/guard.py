"""The guard: a model that became worse on the held-out rows keeps learning, but is not served."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.stores.catalog.models import ModelRecord

_NAMED = 3
"""The largest number of partitions of a night that are named."""


@dataclass(frozen=True)
class Verdict:
    """Whether the new model is served, and the errors that decide it."""

    served: int
    """The night whose model is served instead; 0 if the new one is served."""
    error_before: float
    """The error of the model that was served so far, on the current held-out rows."""
    error_now: float
    """The error of the new model on the same rows."""


def compare_with_served(served: ModelRecord, before: Evaluation, now: Evaluation, margin: float) -> Verdict | None:
    """Compare the errors `now` of the new model with those, `before`, of the `served` one; None without such errors.

    It is worse if its share of misclassified rows is larger by more than `margin`, or, in regression, if its mean
    squared error is more than 1 + `margin` times as large.
    """
    if now.test_error is not None and before.test_error is not None:
        worse = now.test_error > before.test_error + margin
        errors = before.test_error, now.test_error
    elif now.test_mse is not None and before.test_mse is not None:
        worse = now.test_mse > before.test_mse * (1 + margin)
        errors = before.test_mse, now.test_mse
    else:
        return None
    return Verdict(night_served(served) if worse else 0, *errors)


def report_held_back(verdict: Verdict, names: Sequence[str], report: Reporter) -> None:
    """Report that the model is held back, with the errors and the partitions that it has just learned."""
    report.warn(
        events.GUARD_MODEL_HELD_BACK,
        learned=", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""),
        error=verdict.error_now,
        served_night=verdict.served,
        its_error=verdict.error_before,
    )


def hold_back(record: ModelRecord, served: int) -> ModelRecord:
    """Return the record marked as held back: the model of the night `served` is served instead."""
    *earlier, last = record.history
    return replace(record, serves=served, history=(*earlier, replace(last, held=True)))


def night_served(record: ModelRecord) -> int:
    """Return the night whose model is served; 0 if an older release trained it."""
    return record.serves or record.history[-1].number
