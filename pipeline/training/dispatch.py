"""One door to every kind of training: the online learner's stream, or a batch method's passes."""

from typing import TYPE_CHECKING

from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.pass_checkpoint import Keeper
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.training.batch import (
    BatchRequest,
    check_batch_request,
    is_regrided,
    plan_batch,
    train_batch,
)
from ridgestream.pipeline.training.online import (
    ModelRequest,
    check_dictionary,
    check_request,
    is_retuned,
    plan_training,
    train,
)
from ridgestream.pipeline.training.refit import count_features
from ridgestream.pipeline.training.training_result import Trained, find_unlearned
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord

if TYPE_CHECKING:
    import zarr

Request = ModelRequest | BatchRequest
"""What a job asks a model to be."""


def check_asked(ledger: Ledger, record: ModelRecord, request: Request) -> None:
    """Raise ModelError, naming what differs, if the model was not asked to be what is asked now."""
    if isinstance(request, BatchRequest):
        check_batch_request(record, request)
    else:
        check_request(record, request)
        check_dictionary(ledger, record, request)


def check_memory(ledger: Ledger, new_rows: int, record: ModelRecord | None, request: Request, limit_bytes: int) -> None:
    """Raise MemoryRefused, with the numbers, if training on the ledger's rows and new ones cannot fit; none is read."""
    if isinstance(request, BatchRequest):
        plan_batch(request, ledger.rows + new_rows, count_features(ledger)).check(limit_bytes)
    else:
        plan_training(request, record, 1).check(limit_bytes)


def is_changed(record: ModelRecord | None, request: Request) -> bool:
    """Tell whether something is asked for that changes the model without a new row: another regularization."""
    if isinstance(request, BatchRequest):
        return record is not None and is_regrided(record, request)
    return is_retuned(record, request)


def learn(
    root: "zarr.Group",
    ledger: Ledger,
    record: ModelRecord | None,
    request: Request,
    memory_limit_bytes: int,
    executor: Executor,
    report: Reporter,
    keeper: Keeper | None = None,
) -> Trained:
    """Teach the model what it lacks; where that is nothing, return it as it is.

    Raises what `train` or `train_batch` raises.
    """
    if record is not None and not find_unlearned(ledger, record) and not is_changed(record, request):
        return Trained(record, (), None, (), 0.0)
    if isinstance(request, BatchRequest):
        return train_batch(root, ledger, record, request, memory_limit_bytes, executor, report, keeper)
    return train(root, ledger, record, request, memory_limit_bytes, report, keeper, executor)
