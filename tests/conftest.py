"""Hypothesis draws the same examples on every run and knows no clock; `--hypothesis-profile=search` draws new ones.

A script that starts the tests in the background makes them ignore SIGINT, and so would every process that they start.
The default is restored first, so that a test of Ctrl-C tests Ctrl-C. What numba compiles is kept in one folder for all
processes of the tests, and for the next run.

Temporary folders lie in a memory file system where there is a large one: tests flush thousands of small stores, which
takes minutes on a disk. TMPDIR names another folder.

Of the cases of a test marked `samples(n)`, the ordinary run takes n, one without a number; the others are thorough. Of
the thorough cases of a test marked `at_most(n)`, `-m thorough` takes n; the others are slow.
"""

import os
import shutil
import signal
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import pytest
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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    sampled = (item for item in items if item.get_closest_marker("samples") and not item.get_closest_marker("thorough"))
    for cases in _tests(sampled):
        _mark_thorough(cases)
    bounded = (item for item in items if item.get_closest_marker("at_most") and item.get_closest_marker("thorough"))
    for cases in _tests(bounded):
        _mark_slow(cases)


def _tests(items: Iterable[pytest.Item]) -> Iterator[list[pytest.Item]]:
    """Yield the cases of each test."""
    for _, cases in groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        yield list(cases)


def _mark_thorough(cases: Sequence[pytest.Item]) -> None:
    """Mark all cases of a test but its samples, which are evenly spread."""
    for case in _others(cases, "samples"):
        case.add_marker(pytest.mark.thorough)


def _mark_slow(cases: Sequence[pytest.Item]) -> None:
    """Mark all thorough cases of a test but as many as it takes, which are evenly spread."""
    for case in _others(cases, "at_most"):
        case.own_markers = [marker for marker in case.own_markers if marker.name != "thorough"]
        case.add_marker(pytest.mark.slow)


def _others(cases: Sequence[pytest.Item], name: str) -> Iterator[pytest.Item]:
    """Yield the cases of a test but those that are evenly spread, as many as its marker of this name says."""
    marker = cases[0].get_closest_marker(name)
    count = marker.args[0] if marker and marker.args else 1
    taken = {number * len(cases) // count for number in range(count)}
    yield from (case for number, case in enumerate(cases) if number not in taken)
