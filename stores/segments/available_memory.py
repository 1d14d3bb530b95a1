"""Available memory: that of the machine, or what the limits of the process and of its control groups leave."""

from collections.abc import Iterator
from pathlib import Path

import psutil

from ridgestream.stores.segments.memory_limits import left_in_limits


def available_bytes(groups: Path = Path("/sys/fs/cgroup"), process: Path = Path("/proc/self/cgroup")) -> int:
    """Return the available memory of the machine, or less if a limit of this process or its control groups leaves less.

    `groups` is the mount point of version 2 control groups; limits of version 1 are not detected.
    """
    return min([int(psutil.virtual_memory().available), *_left_in_groups(groups, process), *left_in_limits()])


def _left_in_groups(groups: Path, process: Path) -> Iterator[int]:
    """Yield what the limits of this process's control group and of its parents leave."""
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
    """Return the memory a group uses and cannot reclaim; unmodified file pages are cache."""
    pairs = (line.split() for line in (group / "memory.stat").read_text().splitlines())
    counts = {name: int(count) for name, count in pairs}
    cache = counts.get("inactive_file", 0) + counts.get("active_file", 0)
    return int((group / "memory.current").read_text()) - cache
