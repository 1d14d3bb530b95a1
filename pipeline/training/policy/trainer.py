"""Training value functions: online, transitions are learned once each, in ledger order; or passes sum them.

As in regression, the first partitions fix the standardization, of x and x′ alike. Rewards keep their units.
"""

from dataclasses import dataclass, replace
from time import perf_counter
from typing import cast

from ridgestream.pipeline.base.array_checks import Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import MemoryNeed
from ridgestream.pipeline.base.memory_plan import BatchPlan, TrainingPlan, check_plans
from ridgestream.pipeline.batch.efvs import EFVSSettings, select_basis
from ridgestream.pipeline.batch.method import PassPlan, PlanTask, sum_pass
from ridgestream.pipeline.batch.registry import METHODS
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, Stream
from ridgestream.pipeline.dataset.feature_map_growth import Encodings, plan_encodings
from ridgestream.pipeline.dataset.range_checks import check_ranges
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.models.model_record import check_complete
from ridgestream.pipeline.models.policy_record import policy_state_of, values_of, with_values
from ridgestream.pipeline.policy.value_function import ValueFunction
from ridgestream.pipeline.selection.initial_dictionary import StartingDictionary
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.policy.request import PolicyRequest
from ridgestream.pipeline.training.policy.stream import PolicyStream, training_key
from ridgestream.pipeline.training.policy.transitions import TransitionSegments, reward_map, transition_map
from ridgestream.pipeline.training.training_result import Trained, begin_record
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord, check_parameters
from ridgestream.stores.schema.column_rules import with_rules


@dataclass(frozen=True)
class PolicyTrainer:
    """Trains a value function."""

    request: PolicyRequest
    """The model that the job requests."""
    is_dense: bool = False
    """Whether it holds a kernel matrix of all rows."""

    @property
    def shares_passes(self) -> bool:
        """Whether workers share the rows of a pass: not online, where they are learned in order."""
        return not self.request.is_online

    def check(self, ledger: Ledger, record: ModelRecord) -> None:  # noqa: ARG002
        """Raise ModelError, naming each parameter that differs, if the job asks for another model than the record's."""
        check_complete(record)
        known = {"learner": record.parameters["learner"]}
        check_parameters(
            replace(record, parameters=with_rules(record.parameters)), {**self.request.parameters(), **known}
        )

    def is_changed(self, record: ModelRecord | None) -> bool:  # noqa: ARG002
        """Return whether the job asks for a change that needs no new row: another λ is another model."""
        return False

    def reads_all_rows(self, record: ModelRecord | None) -> bool:  # noqa: ARG002
        """Return whether training reads learned rows again: it never does."""
        return False

    def plan_memory(
        self,
        record: ModelRecord | None,  # noqa: ARG002
        n_rows: int,
        n_features: int,
        n_outputs: int,
    ) -> TrainingPlan | BatchPlan:
        """Return the memory that training needs, of rows with the features before a step and after it."""
        values = 2 * n_features + n_outputs
        if self.request.is_online:
            return TrainingPlan(self.request.max_basis, values, BLOCK_BYTES)
        sized = METHODS["efvs"].sizes(self._selecting(n_rows))
        return BatchPlan(self.request.method, max(sized.n_functions, self.request.max_basis), 1, values, BLOCK_BYTES)

    def passes(self, record: ModelRecord | None, n_rows: int, new_rows: int) -> tuple[PassPlan, ...]:
        """Return the passes of a training."""
        if not new_rows:
            return ()
        selects = record is None and not self.request.is_online
        selection = tuple(METHODS["efvs"].passes(self._selecting(n_rows))) if selects else ()
        return (*selection, sum_pass(self.request.max_basis))

    def passes_are_certain(self, record: ModelRecord | None) -> bool:  # noqa: ARG002
        """Return whether `passes` is exact, unless candidates run out."""
        return True

    def train(self, context: TrainingContext) -> Trained:
        """Learn the partitions that the record lacks; O(max_basis²) a transition.

        A killed training resumes with the same bits. Raises ModelError if the request has other parameters than the
        record, MemoryRefused before a row is read, InputError for a store without transitions, for rewards that add up
        without end, and the errors of learner, executor and store.
        """
        began = perf_counter()
        encodings = self._plan(context)
        states = reward_map(encodings.first)
        train = self._train_online if self.request.is_online else self._sum
        record = context.record or begin_record(
            context.segments, context.ledger, self.request.name, self.request.parameters(), states
        )
        record = train(context, replace(encodings, first=states), record)
        return Trained(record, context.unlearned, None, (), perf_counter() - began)

    def _plan(self, context: TrainingContext) -> Encodings:
        """Return the feature maps; raises the errors that can be detected without reading a row."""
        ledger, record, entries = context.ledger, context.record, context.unlearned
        if record is not None:
            self.check(ledger, record)
        if ledger.schema is None or not ledger.schema.ahead:
            raise InputError(
                "method lstd learns transitions, and the rows of this store are none: give source.next, the columns "
                "after a step, and another store"
            )
        encodings = plan_encodings(
            context.segments,
            ledger,
            record=record,
            entries=entries,
            scaling_rows=self.request.scaling_rows,
            policy=self.request.unseen_categories,
            report=context.report,
            rules=self.request.rules,
            opens_scales=False,  # a column that is constant before the steps may vary after them
        )
        plan = self.plan_memory(record, ledger.rows, encodings.first.n_features, encodings.first.target.n_outputs)
        check_plans([plan], context.memory_limit_bytes)
        if isinstance(plan, BatchPlan):
            context.executor.admit([MemoryNeed(plan.worker_bytes)])
        check_ranges(context.segments, entries, encodings.first, context.targets)
        return encodings

    def _train_online(self, context: TrainingContext, encodings: Encodings, record: ModelRecord) -> ModelRecord:
        entries, states = context.unlearned, encodings.first
        names = {entry.segment: entry.name for entry in entries}
        wide = transition_map(states)
        stream = Stream(TransitionSegments(context.segments), tuple(names), wide, None, context.executor, names)
        learner = self.request.learner(states.n_features)
        if context.record is not None:
            learner.continue_from(policy_state_of(context.record))
        key = training_key(self.request.parameters(), wide, context)
        PolicyStream(stream, entries, context.report, context.keeper).learn(learner, key)
        return with_values(record, learner.values, learner.basis_rows, learner.online_state())

    def _sum(self, context: TrainingContext, encodings: Encodings, record: ModelRecord) -> ModelRecord:
        """Return the record with the new transitions in its sums, over the dictionary of the first training."""
        if context.record is not None:
            values, places = values_of(record), cast("Integers", record.arrays["basis_rows"])
        else:
            dictionary = self._select(context, encodings.first)
            basis = dictionary.basis(self.request.make_kernel(encodings.first.n_features), constant=False)
            values = ValueFunction.empty(basis, self.request.lstd, encodings.first.target.n_outputs)
            places = dictionary.places
        numbers = [entry.segment for entry in context.unlearned]
        transitions = replace(context, segments=TransitionSegments(context.segments))
        return with_values(record, values.learn(transitions.rows(numbers, transition_map(encodings.first))), places)

    def _select(self, context: TrainingContext, states: FeatureMap) -> StartingDictionary:
        """Return the dictionary that EFVS chooses from the states of the first training."""
        rows = context.rows([entry.segment for entry in context.unlearned], states)
        kernel, settings = self.request.make_kernel(states.n_features), self._selecting(rows.n_rows).settings
        chosen = select_basis(rows, kernel, settings, context.report)
        return StartingDictionary(chosen.vectors, rows.numbers(chosen.places)).independent(kernel)

    def _selecting(self, n_rows: int) -> PlanTask[EFVSSettings]:
        settings = EFVSSettings(max_basis=self.request.max_basis).bounded(n_rows)
        return PlanTask(settings=settings, others={}, n_rows=n_rows, n_kernels=1, given_basis=0)
