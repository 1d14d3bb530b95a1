"""Exit codes, one for each kind of trouble, so that a scheduler can tell them apart."""

from ridgestream.jobs.cluster.dask_executor import ClusterError
from ridgestream.jobs.config.job_file import JobFileError
from ridgestream.pipeline.base.errors import InputError, MemoryRefused, NumericalBreakdown
from ridgestream.stores.errors.exceptions import ModelError, NewerFormat, PartitionError, StoreError, StoreLocked

UNEXPECTED, USAGE, DATA, STORE, LOCKED, NUMERICS, MEMORY, CLUSTER, MODEL = range(1, 10)
HELD, UNREPORTED = 11, 12  # version 0.1.0 used 10
INTERRUPTED, TERMINATED = 130, 143

_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (JobFileError, USAGE),
    (StoreLocked, LOCKED),
    (NewerFormat, STORE),
    (StoreError, STORE),
    (PartitionError, DATA),
    (ModelError, MODEL),
    (InputError, DATA),
    (NumericalBreakdown, NUMERICS),
    (MemoryRefused, MEMORY),
    (ClusterError, CLUSTER),
)


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of an error that a user can do something about; UNEXPECTED for any other."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), UNEXPECTED)
