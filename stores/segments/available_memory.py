"""The memory that may still be used: the machine's, or what is left within a limit of the process's control groups."""

from collections.abc import Iterator
from pathlib import Path

import psutil


def available_bytes(groups: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")) -> int:
    """Return the memory that is free for use: the machine's, or what a limit of this process's control groups leaves.

    `groups` is where control groups of version 2 are mounted; of version 1, Linux shows no limit here.
    """
    return min([int(psutil.virtual_memory().available), *_left_in_groups(groups, process)])


def _left_in_groups(groups: Path, process: Path) -> Iterator[int]:
    """Yield what each limited group, this process's own and those around it, leaves."""
    try:
        own = next(line[3:] for line in process.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        return
    folder = groups / own.strip("/")
    for group in [folder, *folder.parents]:
        if not group.is_relative_to(groups):
            return
        try:
            limit = (group / "memory.max").read_text().strip()
            if limit != "max":
                yield max(0, int(limit) - _held(group))
        except (OSError, ValueError):
            continue


def _held(group: Path) -> int:
    """Return what a group holds and could not give back: file pages that were only read or written are cache."""
    pairs = (line.split() for line in (group / "memory.stat").read_text().splitlines())
    counts = {name: int(count) for name, count in pairs}
    cache = counts.get("inactive_file", 0) + counts.get("active_file", 0)
    return int((group / "memory.current").read_text()) - cache
