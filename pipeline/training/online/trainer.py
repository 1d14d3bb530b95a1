"""Training the online learner: the partitions that a model has not learned, streamed once each, in ledger order."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.memory_plan import TrainingPlan, check_plans, threads_within
from ridgestream.pipeline.batch.method import PassPlan, sum_pass
from ridgestream.pipeline.calibration.kept_predictions import KeptPredictions
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, Stream
from ridgestream.pipeline.dataset.feature_map_growth import Encodings, plan_encodings, with_feature_map
from ridgestream.pipeline.dataset.range_checks import check_ranges
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import make_kernel
from ridgestream.pipeline.models.calibration import kept_of, with_kept
from ridgestream.pipeline.models.cell_trials import TRIALS
from ridgestream.pipeline.models.model_record import Learner, check_complete, learner_of, n_basis_of, with_learner
from ridgestream.pipeline.monitoring.learning_curve import Course
from ridgestream.pipeline.online.experts.cell_learning import PART_BYTES
from ridgestream.pipeline.online.experts.local_experts import LocalExperts
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.pipeline.prediction.progressive_validation import Progressive, last_value_errors, mean_errors
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.online.cell_number import cell_basis, choose_number, most_cells
from ridgestream.pipeline.training.online.cells import place_cells
from ridgestream.pipeline.training.online.checkpoints import OnlineCheckpoints, Progress, key_of
from ridgestream.pipeline.training.online.choice import choose_for_learner
from ridgestream.pipeline.training.online.dictionary import (
    check_dictionary,
    draw_dictionary,
    partitions_to_draw_from,
    read_given,
)
from ridgestream.pipeline.training.online.stream import StreamTraining
from ridgestream.pipeline.training.pilot import run_pilot
from ridgestream.pipeline.training.request import CHOSEN, EXPERTS, Choice, OnlineRequest
from ridgestream.pipeline.training.training_result import Trained, begin_record
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import Arrays, ModelRecord, check_parameters
from ridgestream.stores.schema.column_rules import with_rules


@dataclass(frozen=True)
class OnlineTrainer:
    """Trains a model of the online learner."""

    request: OnlineRequest
    """The model that the job requests."""
    shares_passes: bool = False
    """Whether workers share the rows of a pass: no, they are learned in order, if each cell's by one worker."""
    is_dense: bool = False
    """Whether it holds a kernel matrix of all rows."""

    def check(self, ledger: Ledger, record: ModelRecord) -> None:
        """Raise ModelError, naming each parameter that differs, if the job asks for another model than the record's.

        Another regularization is the same model: training applies it. Records of older releases without a selection
        rule are supervised.
        """
        check_online_parameters(record, self.request)
        check_dictionary(ledger, record, self.request)

    def is_changed(self, record: ModelRecord | None) -> bool:
        """Return whether the job has another regularization than the record."""
        return record is not None and record.parameters["regularization"] != self.request.regularization

    def reads_all_rows(self, record: ModelRecord | None) -> bool:  # noqa: ARG002
        """Return whether training reads learned rows again: it never does."""
        return False

    def plan_memory(
        self,
        record: ModelRecord | None,
        n_rows: int,
        n_features: int,
        n_outputs: int,
    ) -> TrainingPlan:
        """Return the memory that training needs; without `max_basis`, for the present dictionary.

        Where the number of cells is chosen, it is for one dictionary or the most cells, whichever needs more.
        """
        request, n_values = self.request, n_features + n_outputs - 1
        part_bytes = PART_BYTES if request.experts > 1 else 0
        plans = [TrainingPlan(self._most_basis(record), n_values, BLOCK_BYTES, request.experts, part_bytes)]
        if EXPERTS in request.chooses:
            basis = cell_basis(request)
            most = most_cells(n_rows, basis)
            plans.append(TrainingPlan(basis, n_values, BLOCK_BYTES, most, PART_BYTES, chooses_experts=True))
        return max(plans, key=lambda plan: plan.total_bytes)

    def passes(self, record: ModelRecord | None, n_rows: int, new_rows: int) -> tuple[PassPlan, ...]:  # noqa: ARG002
        """Return the passes of a training: one over the new rows."""
        return (sum_pass(self._most_basis(record)),) if new_rows else ()

    def passes_are_certain(self, record: ModelRecord | None) -> bool:  # noqa: ARG002
        """Return whether `passes` is exact: it is."""
        return True

    def train(self, context: TrainingContext) -> Trained:
        """Learn the partitions that the record lacks; O(max_basis²) per row.

        The context's executor reads and standardizes rows; the learner processes them in this process, in order, but
        for local experts, whose cells the executor's workers share if there are enough rows. A long training saves
        checkpoints, and resumes from them with the same bits. Another regularization than the record's is applied
        before the first row. Raises ModelError if the request has other parameters than the record, MemoryRefused
        before a row is read, or before a dictionary without `max_basis` outgrows the memory, InputError for a category
        or class that the model does not know, and the errors of learner and store.
        """
        if context.record is not None:
            check_online_parameters(context.record, self.request)
        return _OnlineTraining.of(self.request, context, self).train()

    def _most_basis(self, record: ModelRecord | None) -> int:
        if self.request.max_basis is not None:
            return self.request.max_basis
        return max(n_basis_of(record) if record else 0, 1)


def check_online_parameters(record: ModelRecord, request: OnlineRequest) -> None:
    """Raise ModelError, naming each parameter that differs, except the regularization; reads no file."""
    check_complete(record)
    same = {
        name: record.parameters[name] for name in ("learner", "regularization", CHOSEN) if name in record.parameters
    }
    known = replace(record, parameters={"selection": "supervised", **with_rules(record.parameters)})
    check_parameters(known, {**request.parameters(), **same})


def new_learner(
    request: OnlineRequest,
    n_features: int,
    dictionary: StartingDictionary | None = None,
    centres: Floats | None = None,
) -> Learner:
    """Return the learner that the request describes, in cells around `centres` if there are any.

    Rows are standardized, so that the distances of one learner are measured from zero.
    """
    kernel = make_kernel(request.kernel, request.kernel_parameters, n_features)
    settings: dict[str, Any] = {
        "regularization": request.regularization,
        "max_basis": request.max_basis,
        "novelty_threshold": request.novelty_threshold,
        "usefulness_threshold": request.usefulness_threshold,
        "selection": request.selection,
        "stream_rows": request.stream_rows,
    }
    if centres is not None:
        return LocalExperts(kernel, centres, **settings)
    return OnlineLSSVM(
        kernel,
        **settings,
        dictionary=dictionary.vectors if dictionary else None,
        dictionary_rows=dictionary.places if dictionary else None,
        centre=np.zeros(n_features),
    )


@dataclass(frozen=True, kw_only=True)
class _OnlineTraining:
    """One training of the online learner: the partitions to learn, and how they are read."""

    request: OnlineRequest
    context: TrainingContext
    entries: tuple[LedgerEntry, ...]
    policy: str
    """The policy for categories without an indicator."""
    encodings: Encodings
    """The feature maps of the partitions."""
    choice: Choice | None
    """What the pilot of a new model chose; None without one."""
    room_bytes: int
    """The memory that the limit leaves for a learner without `max_basis`."""
    threads: int
    """The threads that cells are shared by in this process."""

    @classmethod
    def of(cls, request: OnlineRequest, context: TrainingContext, trainer: OnlineTrainer) -> "_OnlineTraining":
        """Plan the training; raises the errors that can be detected without reading a row."""
        record, ledger, entries = context.record, context.ledger, context.unlearned
        policy = request.unseen_categories if record else request.first_categories
        encodings = plan_encodings(
            context.segments,
            ledger,
            record=record,
            entries=entries,
            scaling_rows=request.scaling_rows,
            policy=policy,
            report=context.report,
            class_weight=request.class_weight,
            rules=request.rules,
            opens_scales=request.dictionary is None,
        )
        choose = choose_number if EXPERTS in request.chooses else choose_for_learner
        asked = partial(choose, request=request, report=context.report)
        encodings, request, choice = run_pilot(encodings, context, request, asked)
        plan = trainer.plan_memory(record, ledger.rows, encodings.last.n_features, encodings.first.target.n_outputs)
        check_plans([plan], context.memory_limit_bytes)
        check_ranges(context.segments, entries, encodings.first, context.targets)
        return cls(
            request=request,
            context=context,
            entries=entries,
            policy=policy,
            encodings=encodings,
            choice=choice,
            room_bytes=plan.learner_room_bytes(context.memory_limit_bytes),
            threads=threads_within(plan, context.memory_limit_bytes, context.executor.threads),
        )

    @property
    def feature_map(self) -> FeatureMap:
        return self.encodings.first

    def train(self) -> Trained:
        context, given = self.context, read_given(self.context, self.request, self.feature_map)
        names = {entry.segment: entry.name for entry in self.entries}
        stream = Stream(context.segments, tuple(names), self.feature_map, self.encodings.maps, context.executor, names)
        checkpoints = OnlineCheckpoints(context.keeper, self._key(given), stream, self.entries, context.report)
        learner, progress = checkpoints.load() or self._begin(given)
        if isinstance(learner, OnlineLSSVM):
            learner.memory_limit_bytes = self.room_bytes
        else:
            learner.threads = self.threads
        training = StreamTraining(
            stream=stream,
            entries=self.entries,
            feature_map=self.feature_map,
            checkpoints=checkpoints,
            report=context.report,
        )
        progress = checkpoints.timed(training.learn(learner, progress))
        return self._trained(learner, progress)

    def _key(self, given: StartingDictionary | None) -> str:
        """Return the key of the training's checkpoints."""
        parameters = {**self.request.parameters(), "unseen_categories": self.policy}
        origin = given or partitions_to_draw_from(self.context, self.request)
        return key_of(parameters, self.encodings.known, self.context.record, origin)

    def _begin(self, given: StartingDictionary | None) -> tuple[Learner, Progress]:
        """Return the learner before the first row of this training, and its initial progress."""
        context = self.context
        if context.record is None:
            dictionary = given or draw_dictionary(context, self.request, self.feature_map)
            learner = new_learner(self.request, self.feature_map.n_features, dictionary, self._centres())
        else:
            learner = _restore(context.record, self.request, context)
        sums, before = Progressive(Evaluation(classes=context.classifies)), learner.numerics
        kept = kept_of(context.record) if context.record else None
        kept = kept or KeptPredictions.none(self.feature_map.target.n_outputs)
        course = Course(step=learner.grid_rows)
        return learner, Progress(sums, kept, before.jitter_count, course=course, refused=before.refused)

    def _centres(self) -> Floats | None:
        if self.choice is not None and self.choice.centres is not None:
            return self.choice.centres
        return place_cells(self.context, self.request, self.feature_map)

    def _trained(self, learner: Learner, progress: Progress) -> Trained:
        total, errors_of = progress.sums.total, progress.sums.errors()
        error, errors = mean_errors(total, self.feature_map)
        return Trained(
            record=with_kept(with_learner(self._record(learner), learner), progress.kept),
            entries=self.entries,
            progressive_error=error,
            progressive_mse_of=errors,
            seconds=progress.seconds,
            one_class=total.one_class,
            progressive_errors=tuple(errors_of.get(entry.segment) for entry in self.entries),
            last_value_errors=last_value_errors(total, self.feature_map),
            course=progress.course,
        )

    def _trials(self) -> Arrays:
        return {TRIALS: self.choice.trials} if self.choice is not None and self.choice.trials is not None else {}

    def _record(self, learner: Learner) -> ModelRecord:
        """Return the record with the requested parameters, without the learner's state."""
        context, last = self.context, self.encodings.last
        if context.record is None:
            parameters = {**self.request.parameters(), "learner": learner.parameters.as_dict()}
            record = begin_record(context.segments, context.ledger, self.request.name, parameters, last)
            return replace(record, arrays=record.arrays | self._trials())
        changed: dict[str, Any] = {"regularization": self.request.regularization}
        parameters = context.record.parameters
        parameters = parameters | changed | {"learner": parameters["learner"] | changed}
        if CHOSEN in parameters:
            parameters[CHOSEN] = sorted(self.request.chosen)
        return with_feature_map(replace(context.record, parameters=parameters), last)


def _restore(record: ModelRecord, request: OnlineRequest, context: TrainingContext) -> Learner:
    """Return the record's learner, with the request's regularization."""
    learner = learner_of(record)
    if record.parameters["regularization"] != request.regularization:
        context.report.say(
            events.TRAIN_REGULARIZATION_CHANGED,
            was=learner.parameters.regularization,
            now=request.regularization,
        )
        learner.set_regularization(request.regularization)
    return learner
