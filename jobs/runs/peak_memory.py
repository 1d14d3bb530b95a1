"""The memory of this process: its peak so far."""

import resource
import sys
from pathlib import Path


def peak_rss_bytes() -> int:
    """Return this process's own peak of resident memory (VmHWM; the system's figure for the process elsewhere)."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
