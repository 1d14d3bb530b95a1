"""Trainers, found by the name of a method: the online learner's stream, or a batch method's passes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.memory_plan import BatchPlan, TrainingPlan
from ridgestream.pipeline.batch.method import PassPlan
from ridgestream.pipeline.batch.registry import METHODS
from ridgestream.pipeline.kernels import are_unrelated
from ridgestream.pipeline.models.learned_ranges import with_ranges
from ridgestream.pipeline.models.model_record import LSTD, ONLINE, bases_of
from ridgestream.pipeline.prediction.trivial_model import learned_targets, merge_targets, segment_targets
from ridgestream.pipeline.training.batch import BatchTrainer
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.online.trainer import OnlineTrainer
from ridgestream.pipeline.training.policy.trainer import PolicyTrainer
from ridgestream.pipeline.training.request import Request
from ridgestream.pipeline.training.training_result import Trained
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import TARGET_MOMENTS, ModelRecord


class Trainer(Protocol):
    """Checks, plans and carries out the training that a request asks for."""

    @property
    def request(self) -> Request:
        """What the job asks the model to be."""

    @property
    def shares_passes(self) -> bool:
        """Whether workers share the work of a pass."""

    @property
    def is_dense(self) -> bool:
        """Whether it holds a kernel matrix of all rows, at O(rows³)."""

    def check(self, ledger: Ledger, record: ModelRecord) -> None:
        """Raise ModelError, naming each parameter that differs, if the job asks for another model than the record's."""

    def is_changed(self, record: ModelRecord | None) -> bool:
        """Return whether the job asks for a change of the model that needs no new row: another regularization."""

    def reads_all_rows(self, record: ModelRecord | None) -> bool:
        """Return whether training is certain to read learned rows again, not only new ones."""

    def plan_memory(
        self, record: ModelRecord | None, n_rows: int, n_features: int, n_outputs: int
    ) -> TrainingPlan | BatchPlan:
        """Return the memory that training needs, with this many rows in all."""

    def passes(self, record: ModelRecord | None, n_rows: int, new_rows: int) -> tuple[PassPlan, ...]:
        """Return the passes of a training with this many rows in all, `new_rows` of them not learned; no refit."""

    def passes_are_certain(self, record: ModelRecord | None) -> bool:
        """Return whether `passes` is exact unless candidates run out; otherwise the rows decide."""

    def train(self, context: TrainingContext) -> Trained:
        """Train the context's record, or a new one, on the partitions that it lacks."""


TRAINERS: dict[str, Callable[[Any], Trainer]] = {
    ONLINE: OnlineTrainer,
    LSTD: PolicyTrainer,
    **dict.fromkeys(METHODS, BatchTrainer),
}
"""The trainer of each method, made from a request for it."""


def trainer_of(request: Request) -> Trainer:
    """Return the trainer of the request's method."""
    return TRAINERS[request.method](request)


def train(trainer: Trainer, context: TrainingContext) -> Trained:
    """Train the model on the partitions that it lacks; where nothing is new or changed, return it as it is.

    Raises what the trainer's `train` raises.
    """
    record = context.record
    if record is not None and not context.unlearned and not trainer.is_changed(record):
        return Trained(record, (), None, (), 0.0)
    trained = _with_targets(trainer.train(context), context)
    new = [entry.segment for entry in trained.entries]
    trained = replace(trained, record=with_ranges(trained.record, record, context.segments, new))
    alone = [are_unrelated(basis.kernel, basis.vectors, basis.centre) for basis in bases_of(trained.record)]
    if sum(alone) > len(alone) // 2:
        context.report.warn(events.TRAIN_VECTORS_UNRELATED)
    return trained


def _with_targets(trained: Trained, context: TrainingContext) -> Trained:
    """Return the result with the moments of all targets learned, and the errors of their constant on the new rows.

    New rows that all have weight zero are reported; they have no error.
    """
    schema, before, record = context.ledger.schema, context.record, trained.record
    if schema is None:
        return trained
    new = segment_targets(context.segments, schema, record, [entry.segment for entry in trained.entries])
    new_rows = merge_targets(new)
    if not new_rows.weight:
        trained = replace(trained, progressive_error=None, progressive_mse_of=())
        if any(entry.rows for entry in trained.entries):
            context.report.warn(events.TRAIN_WEIGHTS_ALL_ZERO, weight=schema.weight)
    learned = merge_targets([learned_targets(context.segments, schema, before), *new] if before else new)
    if not learned.weight:
        return trained
    record = replace(record, arrays=record.arrays | {TARGET_MOMENTS: learned.as_array()})
    if trained.progressive_error is None:
        return replace(trained, record=record)
    errors = learned.constant_errors(new_rows, classes=schema.classifies)
    return replace(trained, record=record, trivial_errors=errors)
