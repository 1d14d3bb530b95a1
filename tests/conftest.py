"""Hypothesis draws the same examples on every run and knows no clock; `--hypothesis-profile=search` draws new ones.

A script that starts the tests in the background makes them ignore SIGINT, and so would every process that they start.
The default is restored first, so that a test of Ctrl-C tests Ctrl-C. What numba compiles is kept in one folder for all
processes of the tests, and for the next run.

Temporary folders lie in a memory file system where there is a large one: tests flush thousands of small stores, which
takes minutes on a disk. TMPDIR names another folder.
"""

import os
import shutil
import signal
from pathlib import Path

from hypothesis import settings

settings.register_profile("fixed", derandomize=True, deadline=None)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("fixed")

signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(__file__).parents[1] / ".pytest_cache" / "numba"))

MEMORY_FILES = Path("/dev/shm")  # noqa: S108
ROOM_BYTES = 4 * 2**30
"""The tests fill about a quarter of it."""

if "TMPDIR" not in os.environ and MEMORY_FILES.is_dir() and shutil.disk_usage(MEMORY_FILES).free >= ROOM_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FILES))
