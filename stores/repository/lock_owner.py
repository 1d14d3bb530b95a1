"""The process that writes to a store, and whether it is still alive."""

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
"""Processes of the same number whose start times differ by more are different processes."""


@dataclass(frozen=True)
class Owner:
    """A process that writes to a store."""

    process: int
    """Its process id."""
    host: str
    """The name of its machine."""
    since: str
    """When it began writing, local time of its machine."""
    process_table: str
    """Identifies the process table that its id belongs to: the machine since its last boot, or a container in it."""
    started_seconds: float
    """When the process started, in seconds since boot."""

    @classmethod
    def of_this_process(cls) -> Self:
        """Return the current process."""
        process = os.getpid()
        since = time.strftime("%Y-%m-%d %H:%M:%S%z")
        return cls(process, socket.gethostname(), since, _process_table(), _started_seconds(process) or 0.0)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the owner from the result of `as_dict`; raises KeyError or TypeError for anything else."""
        return cls(**{field.name: plain[field.name] for field in fields(cls)})

    def as_dict(self) -> dict[str, Any]:
        """Return the owner as a JSON object."""
        return asdict(self)

    def is_gone(self) -> bool:
        """Return whether the process has certainly ended; False for one on another machine or in a container."""
        if self.process_table != _process_table():
            return False
        started = _started_seconds(self.process)
        return started is None or abs(started - self.started_seconds) > _START_TOLERANCE_SECONDS

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} since {self.since}"


def _process_table() -> str:
    parts = [socket.gethostname()]
    with suppress(OSError):  # these exist on Linux only
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)


def _started_seconds(process: int) -> float | None:
    """Return when a process started, in seconds since boot; None if there is none, or only a zombie."""
    try:
        running = psutil.Process(process)
        if running.status() == psutil.STATUS_ZOMBIE:
            return None
        return running.create_time() - psutil.boot_time()  # unaffected by later changes of the clock
    except psutil.NoSuchProcess:
        return None
