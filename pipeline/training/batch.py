"""Batch training: a method selects a dictionary from all rows of a model; later nights add their rows' sums to it.

The first training fits the method to every row in the store. A night with new partitions sums these alone over the
dictionary and solves again; `reselect` says whether it selects a new dictionary. Equal rows and jobs give equal bits,
on any number of workers.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from ridgestream.pipeline.base.executor import MemoryNeed
from ridgestream.pipeline.base.memory_plan import BatchPlan, check_plans
from ridgestream.pipeline.batch.method import Method, PassPlan, sum_pass
from ridgestream.pipeline.batch.registry import METHODS
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES
from ridgestream.pipeline.dataset.feature_map_growth import Encodings, plan_encodings
from ridgestream.pipeline.dataset.range_checks import check_errors, check_ranges
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.models.model_record import check_complete, widened, with_fitted
from ridgestream.pipeline.prediction.progressive_validation import Progressive, last_value_errors, mean_errors
from ridgestream.pipeline.training.batch_fit import BatchFit, check_fitted
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.new_row_errors import measure_new_rows
from ridgestream.pipeline.training.pilot import run_pilot
from ridgestream.pipeline.training.request import CHOSEN, BatchRequest
from ridgestream.pipeline.training.training_result import Trained, begin_record
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord, check_parameters
from ridgestream.stores.schema.column_rules import with_rules
from ridgestream.stores.segments.segments import SegmentSource


@dataclass(frozen=True)
class BatchTrainer:
    """Trains a model of a batch method."""

    request: BatchRequest
    """The model that the job requests."""
    shares_passes: bool = True
    """Whether workers share the work of a pass."""

    @property
    def method(self) -> Method[Any]:
        """The batch method."""
        return METHODS[self.request.method]

    @property
    def is_dense(self) -> bool:
        """Whether it holds a kernel matrix of all rows, at O(rows³)."""
        return bool(self.method.sizes(self.request.plan_task(1)).dense_rows)

    def check(self, ledger: Ledger, record: ModelRecord) -> None:  # noqa: ARG002
        """Raise ModelError, naming each parameter that differs, if the job asks for another model than the record's.

        Other regularizations are the same model: the next training compares them.
        """
        check_complete(record)
        names = ("learner", "regularization", CHOSEN)
        same: dict[str, Any] = {name: record.parameters[name] for name in names if name in record.parameters}
        check_parameters(
            replace(record, parameters=with_rules(record.parameters)), {**self.request.parameters(), **same}
        )

    def is_changed(self, record: ModelRecord | None) -> bool:
        """Return whether the job has other regularizations than those among which the model was selected."""
        return record is not None and bool(record.parameters["regularization"] != self.request.regularization)

    def reads_all_rows(self, record: ModelRecord | None) -> bool:
        """Return whether training is certain to select from all rows, not only to add the sums of new ones."""
        always = self.method.always_reselects or self.request.reselect == "always"
        return record is None or always or self.is_changed(record)

    def plan_memory(
        self,
        record: ModelRecord | None,  # noqa: ARG002
        n_rows: int,
        n_features: int,
        n_outputs: int,  # noqa: ARG002
    ) -> BatchPlan:
        """Return the memory that the method needs for `n_rows` rows; it depends only on the job and the store."""
        sized = self.method.sizes(self.request.plan_task(n_rows))
        folds = len(self.request.kernels) * (1 if sized.dense_rows else self.request.folds)
        return BatchPlan(self.request.method, sized.n_functions, folds, n_features, BLOCK_BYTES, sized.dense_rows)

    def passes(self, record: ModelRecord | None, n_rows: int, new_rows: int) -> tuple[PassPlan, ...]:
        """Return the passes of a training with `n_rows` rows in all, `new_rows` of them new."""
        errors = (sum_pass(1),) if record is not None and new_rows else ()
        if self.reads_all_rows(record):
            return errors + tuple(self.method.passes(self.request.plan_task(n_rows))) if n_rows else ()
        return (*errors, sum_pass(self._most_basis(record))) if new_rows else ()

    def passes_are_certain(self, record: ModelRecord | None) -> bool:
        """Return whether `passes` is exact, unless candidates run out; otherwise it depends on the rows."""
        return not self.reads_all_rows(record) or self.method.certain(self.request.settings)

    def train(self, context: TrainingContext) -> Trained:
        """Fit the method to all partitions, or add those that the record lacks.

        The sums of long passes are saved in checkpoints, from which a killed run resumes. Raises ModelError if the
        request has other parameters than the record, MemoryRefused before a row is read, InputError for a category or
        class that the model does not know, and the errors of method, executor and store.
        """
        began = perf_counter()
        if context.record is not None:
            self.check(context.ledger, context.record)
        encodings, request = self._plan(context)
        entries, learned = context.unlearned, context.record.learned if context.record else ()
        record = widened(context.record, encodings.first, encodings.last) if context.record else None
        fit = BatchFit(request, context, encodings.last)
        new = fit.rows([entry.segment for entry in entries])
        errors = self._errors_on(new, record, encodings, entries, context)
        fitted = fit.fit(record, new, [*learned, *(entry.segment for entry in entries)])
        check_fitted(fitted, context.report, shrinks=self.method.shrinks)
        parameters = request.parameters()
        record = record or begin_record(context.segments, context.ledger, self.request.name, parameters, encodings.last)
        record = with_fitted(replace(record, parameters=parameters), fitted)
        return _trained(record, entries, errors, encodings, context, perf_counter() - began)

    def _plan(self, context: TrainingContext) -> tuple[Encodings, BatchRequest]:
        """Return the feature maps of the partitions, and the request with the settings that its pilot chose.

        Raises, before the pilot, the errors that can be detected without reading a row.
        """
        ledger, entries = context.ledger, context.unlearned
        encodings = plan_encodings(
            context.segments,
            ledger,
            record=context.record,
            entries=entries,
            scaling_rows=self.request.scaling_rows,
            policy=self.request.unseen_categories,
            report=context.report,
            class_weight=self.request.class_weight,
            rules=self.request.rules,
            opens_scales=self.request.dictionary is None,
        )
        plan = self.plan_memory(context.record, ledger.rows, encodings.last.n_features, encodings.last.target.n_outputs)
        check_plans([plan], context.memory_limit_bytes)
        context.executor.admit([MemoryNeed(plan.worker_bytes)])
        check_ranges(context.segments, entries, encodings.last, context.targets)
        measured, request, _ = run_pilot(encodings, context, self.request)
        return measured, request

    def _errors_on(
        self,
        new: StoredRows,
        record: ModelRecord | None,
        encodings: Encodings,
        entries: tuple[LedgerEntry, ...],
        context: TrainingContext,
    ) -> Progressive | None:
        """Return the model's errors on new rows before it learns them; None without a model or new rows."""
        if record is None or not new.n_rows:
            return None
        errors = measure_new_rows(record, new, encodings.last, entries, classes=context.classifies)
        check_errors(errors.errors(), entries)
        return errors

    def _most_basis(self, record: ModelRecord | None) -> int:
        if self.request.max_basis is not None:
            return self.request.max_basis
        return len(record.arrays["basis_vectors"]) if record else 1


def _trained(
    record: ModelRecord,
    entries: tuple[LedgerEntry, ...],
    errors: Progressive | None,
    encodings: Encodings,
    context: TrainingContext,
    seconds: float,
) -> Trained:
    if errors is None:
        return Trained(record, entries, None, (), seconds, _has_one_class(context.segments, context.ledger, entries))
    error, errors_of_targets = mean_errors(errors.total, encodings.last)
    errors_of_segments = errors.errors()
    return Trained(
        record=record,
        entries=entries,
        progressive_error=error,
        progressive_mse_of=errors_of_targets,
        seconds=seconds,
        one_class=errors.total.one_class,
        progressive_errors=tuple(errors_of_segments.get(entry.segment) for entry in entries),
        last_value_errors=last_value_errors(errors.total, encodings.last),
    )


def _has_one_class(segments: SegmentSource, ledger: Ledger, entries: Iterable[LedgerEntry]) -> bool:
    """Return whether all rows with weight of these partitions are of one class."""
    facts = [segments[entry.segment].facts() for entry in entries if entry.rows]
    if ledger.schema is not None and ledger.schema.positive is not None:
        signs = np.array([fact.moments[3:, -1] for fact in facts if fact.moments[0, -1] > 0])
        return bool(signs.size) and float(signs.min()) == float(signs.max())
    return bool(facts) and len({label for fact in facts for label in fact.present_classes}) == 1
