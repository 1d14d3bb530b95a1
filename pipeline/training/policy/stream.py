"""A stream of transitions, learned block by block, with checkpoints from which a killed training resumes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.pass_checkpoint import CheckpointStore, ResumablePass
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, Block, Stream
from ridgestream.pipeline.dataset.range_checks import naming_partition
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.online.schedule import REFRESH_ROWS
from ridgestream.pipeline.policy.online_lstd import OnlineLSTD
from ridgestream.pipeline.policy.policy_state import PolicyState
from ridgestream.pipeline.sums.row_set import ArrayRows
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.online.stream import compile_learner_as_step
from ridgestream.stores.catalog.ledger import LedgerEntry

_FORMAT = 1
"""Increased if the same transitions give other bits, or the contents of a checkpoint change."""


def training_key(parameters: dict[str, Any], feature_map: FeatureMap, context: TrainingContext) -> str:
    """Return the key of a training's checkpoints: a hash of the request, the model before it and its partitions."""
    record, contents = context.record, [entry.content_sha256 for entry in context.unlearned]
    before = [record.arrays[name] for name in sorted(record.arrays)] if record else []
    text = json.dumps([parameters, record.counters if record else {}], sort_keys=True)
    return hash_of(("lstd", _FORMAT, BLOCK_BYTES, REFRESH_ROWS, text, feature_map, contents, before))


@dataclass(frozen=True)
class PolicyStream:
    """Transitions to be learned in order."""

    stream: Stream
    """The blocks, with the features (x, x′, c)."""
    entries: Sequence[LedgerEntry]
    """Their partitions."""
    report: Reporter
    """Receives progress."""
    keeper: CheckpointStore | None
    """Saves checkpoints; None saves none."""

    def learn(self, learner: OnlineLSTD, key: str) -> None:
        """Learn the blocks, after those of a checkpoint; raises InputError naming the partition of one that cannot be.

        Each partition ends with a refresh, so that where a night ended leaves no trace.
        """
        compile_learner_as_step(self.report)
        checkpoint = ResumablePass(self.keeper, key, _state_of)
        done, state = checkpoint.load()
        before = learner.rows_seen
        if state is not None:
            learner.continue_from(state)
            self.report.say(events.TRAIN_STARTED_FROM_CHECKPOINT, rows=learner.rows_seen - before)
        self.report.begin(events.STEP_TRAIN, sum(entry.rows for entry in self.entries), partitions=len(self.entries))
        self.report.advance(learner.rows_seen - before)
        for number, block in enumerate(self.stream.blocks(done), done + 1):
            self._learn_block(learner, block)
            if learner.is_refreshed:
                checkpoint.update(number, _state_of(learner), complete=number == len(self.stream.ranges))
            self.report.advance(len(block.features), n_basis=learner.n_basis, swaps=learner.swaps)
        self.report.end(rows_seen=learner.rows_seen, n_basis=learner.n_basis, swaps=learner.swaps)

    def _learn_block(self, learner: OnlineLSTD, block: Block) -> None:
        with naming_partition(self.entries, block.block_range.segment):
            learner.learn(ArrayRows(block.features, block.targets, block.weights))
            if block.block_range.ends_segment:
                learner.refresh()


def _state_of(learner: OnlineLSTD) -> PolicyState:
    """Return the state that a checkpoint keeps."""
    return learner.state()
