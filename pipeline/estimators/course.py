"""What an estimator has learned: the record of its model, as a store would keep it, and the rows that calibrate it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np

from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.calibration.priority_sample import PrioritySample, sample_size
from ridgestream.pipeline.estimators.array_segments import ArraySegment
from ridgestream.pipeline.models.calibration import calibrated_model_of, kept_of
from ridgestream.pipeline.models.learned_ranges import LearnedRanges, learned_ranges
from ridgestream.pipeline.models.model_record import is_batch, model_of
from ridgestream.pipeline.models.predictor import Model
from ridgestream.pipeline.training.calibrate import calibrate
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.refit import refit, refit_if_better
from ridgestream.pipeline.training.request import Request, adopt_settings
from ridgestream.pipeline.training.trainer import train, trainer_of
from ridgestream.pipeline.training.training_result import Trained
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.schema.schema import Schema


@dataclass(frozen=True)
class Limits:
    """What a training may take, and who hears of it."""

    memory_bytes: int
    """The number of bytes that this process may use."""
    report: Reporter
    """Receives progress and warnings."""


@dataclass(frozen=True)
class Course:
    """The partitions that were learned, one for each call, and the model after them."""

    ledger: Ledger
    """The partitions and their schema."""
    segments: Mapping[int, ArraySegment] = field(default_factory=dict)
    """The rows of each."""
    record: ModelRecord | None = None
    """The model; None before the first rows."""

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """Return the course before the first rows of this schema."""
        return cls(Ledger(schema))

    def learned(self, segment: ArraySegment, request: Request, limits: Limits, *, refits: bool | str) -> Self:
        """Return the course after one more partition has been learned; raises what a training raises.

        With `refits`, the coefficients are fitted to all rows once more, or, "auto", where that lowers the error on
        rows left out.
        """
        number, facts = self.ledger.next_segment, segment.facts()
        entry = LedgerEntry(number, f"rows from {self.ledger.rows} on", 0, 0, "", segment.rows)
        ledger = self.ledger.with_entries([entry], [facts.categories], [facts.present_classes])
        course = replace(self, ledger=ledger, segments={**self.segments, number: segment})
        asked = adopt_settings(request, self.record)
        trained = train(trainer_of(asked), course.context(limits))
        if refits == "auto":
            trained = refit_if_better(course.context(limits), asked, trained, [number])
        elif refits:
            trained = replace(trained, record=refit(course.context(limits), trained.record, [number]))
        learned = (*trained.record.learned, number)
        return replace(course, record=replace(trained.record, learned=learned))

    def forgetting(self) -> Self:
        """Return the course with those rows alone that calibrate its model: all that a further call needs."""
        kept = self._sampled_rows()
        segments, first = {}, 0
        for number in self.trained_record.learned:
            segment = self.segments[number]
            inside = slice(*np.searchsorted(kept, [first, first + segment.rows]))
            segments[number] = segment.keeping(kept[inside] - first)
            first += segment.rows
        return replace(self, segments=segments)

    @property
    def schema(self) -> Schema:
        """The columns and their kinds."""
        assert self.ledger.schema is not None  # noqa: S101 (`of` gives it)
        return self.ledger.schema

    @cached_property
    def ranges(self) -> LearnedRanges:
        """The range of each number in the rows learned."""
        return learned_ranges(self.segments, self.trained_record)

    @property
    def trained_record(self) -> ModelRecord:
        """The model, which there is after the first rows."""
        assert self.record is not None  # noqa: S101 (there is one after the first rows)
        return self.record

    def _sampled_rows(self) -> Integers:
        predictions = None if is_batch(self.trained_record) else kept_of(self.trained_record)
        if predictions is not None:
            return predictions.sample.rows
        n_outputs = len(self.trained_record.encoding["target_centre"])
        return PrioritySample.of(self.ledger.rows, sample_size(n_outputs)).rows

    def context(self, limits: Limits) -> TrainingContext:
        """Return what a training of the course sees."""
        return TrainingContext(
            segments=self.segments,
            ledger=self.ledger,
            record=self.record,
            memory_limit_bytes=limits.memory_bytes,
            report=limits.report,
        )


@dataclass(frozen=True, eq=False)
class Served:
    """The models of a course, each made when it is first asked for."""

    course: Course
    """What was learned."""
    limits: Limits
    """What calibration may take."""

    @cached_property
    def plain(self) -> Model:
        """The model of f alone."""
        return model_of(self.course.trained_record)

    @cached_property
    def calibrated(self) -> Model:
        """The model with error bars or probabilities, by a sample of rows predicted as if they were not learned.

        O(n_basis²) a row of the sample.
        """
        record = self.course.trained_record
        context = replace(self.course.context(self.limits), record=None)
        trained = Trained(record, self.course.ledger.entries, None, (), 0.0)
        return calibrated_model_of(calibrate(context, trained, record.learned).record)


@dataclass(frozen=True, eq=False)
class Given:
    """A served model that was trained elsewhere."""

    calibrated: Model
    """The model."""

    @property
    def plain(self) -> Model:
        """The model of f alone."""
        return self.calibrated
