"""Passes that go on where a killed process left them: what a pass has summed so far is kept from time to time.

A pass is known again by what it does: its function, its argument, its rows and how they are cut. Sums that were read
back are the bits that were kept, and tasks are summed in their order, so a pass that was interrupted ends in the bits
of one that was not; the clock only chooses after which tasks something is kept.
"""

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Protocol, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.serialization import from_plain, to_plain

KEEP_SECONDS = 15.0
"""How much work of a pass is lost at most by a kill, when nothing larger than KEEP_BYTES is to be kept."""

WORTH_SECONDS = 2.0
"""A pass that took less is not kept: a run that goes on makes it again."""

KEEP_BYTES = 512 * 2**20
"""Sums that take more are kept at the end of their pass alone."""


Kept = tuple[dict[str, Any], Mapping[str, npt.NDArray[Any]]]
"""A record, as JSON takes it, and arrays of numbers."""

Function = TypeVar("Function", bound=Callable[..., Any])

Make = Callable[[], Kept | None]
"""Makes what could be kept now; None where that does not pay."""


class Keeper(Protocol):
    """Where sums are kept."""

    def load(self, key: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
        """Return what was kept under the key, None for nothing."""

    def save(self, key: str, record: dict[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Keep it."""

    def set_pending(self, key: str, make: Make | None) -> None:
        """Have something at hand to be kept under the key if the run is stopped, or nothing any more."""


def named_pass(*name: str) -> Callable[[Function], Function]:
    """Give a function of blocks the name by which its checkpoints are found again.

    The name is a constant that is on disk: it stays when the function is moved or renamed. The names of version 0.1.0
    are the module and the name that the function had then, so that a pass that was killed under 0.1.0 goes on.
    """

    def mark(function: Function) -> Function:
        function.pass_name = name  # type: ignore[attr-defined]
        return function

    return mark


def name_of_pass(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the name that `named_pass` gave to a function; raise InputError for a function without one."""
    name: tuple[str, ...] | None = getattr(function, "pass_name", None)
    if name is None:
        raise InputError(f"{function!r} has no name to keep its sums by: decorate it with named_pass(...)")
    return name


class KeptPass:
    """One pass, as far as it has come."""

    def __init__(self, keeper: Keeper | None, key: str, function: Callable[..., Any]) -> None:
        self._keeper, self._key, self._kind = keeper, key, get_type_hints(function)["return"]
        self._kept_at = monotonic()

    def load(self) -> tuple[int, Any]:
        """Return after how many tasks the sums were kept, and them; zero and None where nothing is."""
        found = self._keeper.load(self._key) if self._keeper else None
        if found is None:
            return 0, None
        record, arrays = found
        try:
            return int(record["tasks"]), from_plain(self._kind, record["sums"], arrays)
        except (InputError, LookupError):
            return 0, None

    def offer(self, tasks: int, sums: object, *, whole: bool) -> None:
        """Keep the sums of so many tasks, if the last time was long enough ago; `whole` says that they are all.

        Otherwise they are at hand until the pass is done.
        """
        if self._keeper is None:
            return
        due = monotonic() - self._kept_at >= (WORTH_SECONDS if whole else KEEP_SECONDS)
        self._keeper.set_pending(self._key, None if due or whole else lambda: self._worth_keeping(tasks, sums))
        if due:
            self._keep(tasks, sums, whole=whole)

    def _keep(self, tasks: int, sums: object, *, whole: bool) -> None:
        plain, arrays = to_plain(sums)
        if self._keeper is not None and (whole or _count_bytes(arrays) <= KEEP_BYTES):
            self._keeper.save(self._key, {"tasks": tasks, "sums": plain}, arrays)
        self._kept_at = monotonic()

    def _worth_keeping(self, tasks: int, sums: object) -> Kept | None:
        plain, arrays = to_plain(sums)
        if monotonic() - self._kept_at < WORTH_SECONDS or _count_bytes(arrays) > KEEP_BYTES:
            return None
        return {"tasks": tasks, "sums": plain}, arrays


def _count_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    return sum(np.asarray(array).nbytes for array in arrays.values())
