"""Resumable passes: partial sums are saved from time to time, so that a killed pass can be resumed.

A pass is identified by its function, its argument, its rows and their division into tasks. Restored sums have the same
bits as the saved ones, and tasks are summed in order, so an interrupted pass ends with the same bits as an
uninterrupted one; the clock only determines after which tasks the sums are saved.
"""

from collections.abc import Callable, Mapping
from inspect import unwrap
from time import monotonic
from typing import Any, Protocol, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.serialization import from_plain, to_plain

KEEP_SECONDS = 15.0
"""Interval between checkpoints: the most work that a kill can lose, unless the sums exceed KEEP_BYTES."""

WORTH_SECONDS = 2.0
"""A pass that takes less is not saved: repeating it is cheap."""

WORTH_BYTES = 8 * 2**20
"""Nor are sums of more bytes for each of its seconds: to write them takes about a tenth of the time that they save."""

KEEP_BYTES = 512 * 2**20
"""Larger sums are saved only at the end of their pass."""


Checkpoint = tuple[dict[str, Any], Mapping[str, npt.NDArray[Any]]]
"""A JSON record, and arrays of numbers."""

Function = TypeVar("Function", bound=Callable[..., Any])

CheckpointBuilder = Callable[[], Checkpoint | None]
"""Builds a checkpoint of the current state; returns None if it is not worth saving."""


class CheckpointStore(Protocol):
    """Stores checkpoints by key."""

    def load(self, key: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
        """Return the checkpoint saved under the key, None if there is none."""

    def save(self, key: str, record: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Save a checkpoint under the key."""

    def set_pending(self, key: str, build: CheckpointBuilder | None) -> None:
        """Set the checkpoint to be saved under the key if the run is stopped; None for nothing."""


def named_pass(*name: str) -> Callable[[Function], Function]:
    """Name a function of blocks; its checkpoints are found by this name.

    The name is stored on disk: it stays the same when the function is moved or renamed. The names from version 0.1.0
    are the module and name that the function had then, so that passes killed under 0.1.0 can be resumed.
    """

    def mark(function: Function) -> Function:
        function.pass_name = name  # type: ignore[attr-defined]
        return function

    return mark


def name_of_pass(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the name given to a function by `named_pass`; raises InputError for a function without one."""
    name: tuple[str, ...] | None = getattr(function, "pass_name", None)
    if name is None:
        raise InputError(f"{function!r} has no name for its checkpoints: decorate it with named_pass(...)")
    return name


class ResumablePass:
    """The checkpoint of one pass."""

    def __init__(self, checkpoints: CheckpointStore | None, key: str, function: Callable[..., Any]) -> None:
        self._checkpoints, self._key, self._kind = checkpoints, key, get_type_hints(unwrap(function))["return"]
        self._saved_at = monotonic()

    def start_clock(self) -> None:
        """Count the seconds of the pass from now on."""
        self._saved_at = monotonic()

    def load(self) -> tuple[int, Any]:
        """Return the number of tasks summed so far and their sums; zero and None if nothing was saved."""
        checkpoint = self._checkpoints.load(self._key) if self._checkpoints else None
        if checkpoint is None:
            return 0, None
        record, arrays = checkpoint
        try:
            return int(record["tasks"]), from_plain(self._kind, record["sums"], arrays)
        except (InputError, LookupError):
            return 0, None

    def update(self, tasks: int, sums: object, *, complete: bool) -> None:
        """Save the sums of the first `tasks` tasks if a checkpoint is due; `complete` if these are all tasks.

        Otherwise they stay pending until the pass is complete.
        """
        if self._checkpoints is None:
            return
        plain, arrays = to_plain(sums)
        least = max(WORTH_SECONDS if complete else KEEP_SECONDS, _count_bytes(arrays) / WORTH_BYTES)
        due = monotonic() - self._saved_at >= least
        self._checkpoints.set_pending(self._key, None if due or complete else lambda: self._build(tasks, sums))
        if due:
            self._save(tasks, plain, arrays, complete=complete)

    def _save(self, tasks: int, plain: object, arrays: Mapping[str, npt.NDArray[Any]], *, complete: bool) -> None:
        if self._checkpoints is not None and (complete or _count_bytes(arrays) <= KEEP_BYTES):
            self._checkpoints.save(self._key, {"tasks": tasks, "sums": plain}, arrays)
        self._saved_at = monotonic()

    def _build(self, tasks: int, sums: object) -> Checkpoint | None:
        plain, arrays = to_plain(sums)
        if monotonic() - self._saved_at < WORTH_SECONDS or _count_bytes(arrays) > KEEP_BYTES:
            return None
        return {"tasks": tasks, "sums": plain}, arrays


def _count_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    return sum(np.asarray(array).nbytes for array in arrays.values())
