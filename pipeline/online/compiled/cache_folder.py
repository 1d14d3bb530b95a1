"""Chooses the folder in which machine code is cached: the user's cache, never the installed package.

Numba's own index knows only the source file of a function that Python calls, not those of the functions compiled into
it. So the folder's name contains a digest of all sources that are compiled; a changed one gives another folder.
"""

import hashlib
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

import ridgestream.pipeline.kernels

UNUSED_DAYS = 30
"""Folders of other sources that were not used for this number of days are deleted when a new one is created."""


def compiled_sources() -> list[Path]:
    """Return the files with compiled functions: this folder's, and the kernels' formulas."""
    return [*sorted(Path(__file__).parent.glob("*.py")), Path(ridgestream.pipeline.kernels.__file__)]


def cache_folder(sources: Iterable[Path], numba_cache_dir: str = "") -> Path | None:
    """Return the folder for the machine code of these sources, created and marked as used; None if none is possible.

    It is in `numba_cache_dir` (NUMBA_CACHE_DIR) if that is set, else in `$XDG_CACHE_HOME/ridgestream`, by default
    `~/.cache/ridgestream`.
    """
    parent = _parent(numba_cache_dir)
    if parent is None:
        return None
    try:
        folder = parent / f"ridgestream-{_digest(sources)}"
        if not folder.is_dir():
            _delete_unused(parent)
            folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
    except OSError:
        return None
    return folder


def _parent(numba_cache_dir: str) -> Path | None:
    if numba_cache_dir:
        return Path(numba_cache_dir)
    for base in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):  # noqa: PTH111
        if os.path.isabs(base):  # noqa: PTH117
            return Path(base) / "ridgestream"
    return None


def _digest(sources: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        content = source.read_bytes()
        digest.update(f"{source.name} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _delete_unused(parent: Path) -> None:
    oldest = time.time() - UNUSED_DAYS * 86_400
    for folder in parent.glob("ridgestream-*"):
        if folder.is_dir() and folder.stat().st_mtime < oldest:
            shutil.rmtree(folder, ignore_errors=True)
