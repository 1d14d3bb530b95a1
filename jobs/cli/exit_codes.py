"""Exit codes, one for each kind of failure, so that a scheduler can distinguish them."""

from ridgestream.jobs.cluster.cluster_error import ClusterError
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.errors import InputError, NumericalBreakdown
from ridgestream.pipeline.exports.export_errors import MissingExtra, NotExportable
from ridgestream.stores.errors.exceptions import (
    ModelError,
    NewerFormat,
    PartitionError,
    SchemaMismatch,
    StoreError,
    StoreLocked,
)
from ridgestream.stores.errors.exhaustion import is_exhausted

UNEXPECTED, USAGE, DATA, STORE, LOCKED = 1, 2, 3, 4, 5
NUMERICS, MEMORY, CLUSTER, MODEL = 6, 7, 8, 9
HELD, UNREPORTED = 11, 12  # version 0.1.0 used 10
FEED_STOPPED, NIGHT_FAILED, DRIFTED = 13, 14, 15  # of the command status alone
OUTPUT_LOST = 16
LASTING = 17  # of the command status alone
INTERRUPTED, OUTPUT_UNREAD, TERMINATED = 130, 141, 143

_EVENTS = {
    UNEXPECTED: events.EXIT_UNEXPECTED,
    USAGE: events.EXIT_USAGE,
    DATA: events.EXIT_INPUT_DATA,
    STORE: events.EXIT_STORE,
    LOCKED: events.EXIT_STORE_IN_USE,
    NUMERICS: events.EXIT_NUMERICS,
    MEMORY: events.EXIT_MEMORY,
    CLUSTER: events.EXIT_CLUSTER,
    MODEL: events.EXIT_MODEL,
    HELD: events.EXIT_HELD_BACK,
    UNREPORTED: events.EXIT_UNREPORTED,
    OUTPUT_LOST: events.EXIT_OUTPUT_LOST,
    INTERRUPTED: events.EXIT_INTERRUPTED,
    TERMINATED: events.EXIT_TERMINATED,
}

_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (JobFileError, USAGE),
    (MissingExtra, USAGE),
    (NotExportable, MODEL),
    (StoreLocked, LOCKED),
    (NewerFormat, STORE),
    (SchemaMismatch, MODEL),
    (StoreError, STORE),
    (PartitionError, DATA),
    (ModelError, MODEL),
    (InputError, DATA),
    (NumericalBreakdown, NUMERICS),
    (MemoryError, MEMORY),
    (ClusterError, CLUSTER),
)

STATUS_CODES = {
    "ok": 0,
    "store": STORE,
    "failed": NIGHT_FAILED,
    "feed": FEED_STOPPED,
    "model": MODEL,
    "guard": HELD,
    "drift": DRIFTED,
    "quality": LASTING,
}
"""The exit code of the command status for each status of a job."""

_ENDINGS = {HELD: "held_back", UNREPORTED: "unreported", INTERRUPTED: "stopped", TERMINATED: "stopped"}
_DONE = (0, OUTPUT_LOST, OUTPUT_UNREAD)


def exit_code_of(error: BaseException) -> int:
    """Return the exit code of an error that a user can do something about; UNEXPECTED for any other."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), UNEXPECTED)
    return MEMORY if code == UNEXPECTED and is_exhausted(error) else code


def event_of(code: int) -> events.Event:
    """Return the event that ends the log of a command with this exit code."""
    return _EVENTS.get(code, events.EXIT_UNEXPECTED)


def ending_of(code: int) -> str | None:
    """Return how a run ended that did not succeed, as its metrics name it; None if all but its output is as asked."""
    return None if code in _DONE else _ENDINGS.get(code, "failed")
