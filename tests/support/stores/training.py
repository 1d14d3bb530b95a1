"""Training without a job file: a small online request, and a training context for a store's last commit."""

from typing import Any

from support.stores.stores import ledger_of

from ridgestream.pipeline.base.executor import Executor, InProcess
from ridgestream.pipeline.base.pass_checkpoint import CheckpointStore
from ridgestream.pipeline.base.reporter import Reporter, Silent
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.request import OnlineRequest
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.column_rules import ELAPSED, ColumnRules
from ridgestream.stores.segments.segments import Segments

MODEL = OnlineRequest(
    name="m",
    kernel="rbf",
    kernel_parameters={},
    regularization=1e-5,
    max_basis=12,
    novelty_threshold=1e-2,
    usefulness_threshold=1e-4,
    scaling_rows=100,
    rules=ColumnRules(timestamps=ELAPSED),
)


def context_of(
    store: Store,
    record: ModelRecord | None = None,
    *,
    ledger: Ledger | None = None,
    report: Reporter | None = None,
    executor: Executor | None = None,
    keeper: CheckpointStore | Any = None,
) -> TrainingContext:
    """Return the context for training on the store's last commit, with practically unlimited memory."""
    return TrainingContext(
        segments=Segments(store.root()),
        ledger=ledger or ledger_of(store),
        record=record,
        memory_limit_bytes=2**40,
        report=report or Silent(),
        executor=executor or InProcess(),
        keeper=keeper,
    )
