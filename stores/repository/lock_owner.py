"""Who writes to a store: a process, and whether it can still be alive."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import psutil

_START_TOLERANCE_SECONDS = 2.0
"""Two processes with one number that began further apart are not the same."""


@dataclass(frozen=True)
class Owner:
    """A process that writes to a store."""

    process: int
    """Its number."""
    host: str
    """The name of its machine."""
    since: str
    """When it began to write, as its clock says."""
    process_table: str
    """Which table of processes its number is of: the machine's, since it was started, or that of a container in it."""
    started_seconds: float
    """When the process began, in seconds since the machine was started."""

    @classmethod
    def of_this_process(cls) -> Self:
        """Return the process that asks."""
        process = os.getpid()
        since = time.strftime("%Y-%m-%d %H:%M:%S%z")
        return cls(process, socket.gethostname(), since, _process_table(), _started_seconds(process) or 0.0)

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Self:
        """Return the process that `as_dict` has told of; raise KeyError or TypeError for anything else."""
        return cls(**{field.name: told[field.name] for field in fields(cls)})

    def as_dict(self) -> dict[str, Any]:
        """Return the process as JSON takes it."""
        return asdict(self)

    def is_gone(self) -> bool:
        """Tell whether the process has ended for certain: False, too, where it is of another machine or container."""
        if self.process_table != _process_table():
            return False
        started = _started_seconds(self.process)
        return started is None or abs(started - self.started_seconds) > _START_TOLERANCE_SECONDS

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} since {self.since}"


def _process_table() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):  # only Linux has these
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _started_seconds(process: int) -> float | None:
    """Return when the process began, None if there is none of that number, or only what its parent has not buried."""
    try:
        found = psutil.Process(process)
        if found.status() == psutil.STATUS_ZOMBIE:
            return None
        return found.create_time() - psutil.boot_time()  # of both, the clock may have been set since
    except psutil.NoSuchProcess:
        return None
