"""The context of a training, the same for every method: the store's contents, limits, executor and reporter."""

from collections.abc import Iterable
from dataclasses import dataclass

from ridgestream.pipeline.base.executor import Executor, InProcess
from ridgestream.pipeline.base.pass_checkpoint import CheckpointStore
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.training.training_result import find_unlearned
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.segments.segments import SegmentSource


@dataclass(frozen=True, kw_only=True)
class TrainingContext:
    """The data, limits, executor, reporter and checkpoints of a training."""

    segments: SegmentSource
    """The rows."""
    ledger: Ledger
    """The partitions that the model learns, in order."""
    record: ModelRecord | None
    """The model so far; None for a new one."""
    memory_limit_bytes: int
    """The number of bytes that this process may use."""
    report: Reporter
    """Receives progress."""
    executor: Executor = InProcess()  # noqa: RUF009 (without state)
    """Runs tasks; by default in this process."""
    keeper: CheckpointStore | None = None
    """Saves checkpoints; None saves none."""

    @property
    def unlearned(self) -> tuple[LedgerEntry, ...]:
        """The partitions that the model has not learned yet, in ledger order."""
        return find_unlearned(self.ledger, self.record)

    @property
    def targets(self) -> tuple[str, ...]:
        """The names of the target columns."""
        return self.ledger.schema.targets if self.ledger.schema else ()

    @property
    def classifies(self) -> bool:
        """Whether the target is a class."""
        return self.ledger.schema is not None and self.ledger.schema.classifies

    def rows(self, numbers: Iterable[int], feature_map: FeatureMap, limit: int | None = None) -> StoredRows:
        """Return the rows of these segments, or the first `limit`, as a row set that the executor's tasks read."""
        return StoredRows(
            self.segments,
            self.ledger,
            numbers,
            feature_map,
            self.executor,
            report=self.report,
            checkpoints=self.keeper,
            limit=limit,
        )
