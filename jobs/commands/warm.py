"""The warm command: compiles the learner into the cache, so that the first run after an installation need not."""

from pathlib import Path
from time import perf_counter
from typing import Any

from ridgestream.pipeline.base.reporter import Reporter


class NotCached(Exception):
    """The machine code could not be cached."""


def run_warm(report: Reporter) -> dict[str, Any]:
    """Compile the learner, unless that is done, and return what was done; raises NotCached if nothing is cached."""
    from ridgestream.pipeline.training.online.stream import cache_path, compile_learner_as_step

    began, before = perf_counter(), _contents(cache_path())
    compile_learner_as_step(report)
    after = _contents(cache_path())
    if not after:
        raise NotCached(
            f"the machine code is not in the cache {cache_path() or ''}: can NUMBA_CACHE_DIR, or ~/.cache, be written?"
        )
    seconds = round(perf_counter() - began, 2)
    return {"compiled": after != before, "seconds": seconds, "cache": cache_path(), "bytes": sum(after.values())}


def _contents(folder: str | None) -> dict[str, int]:
    """Return the files of machine code with their sizes."""
    return {path.name: path.stat().st_size for path in Path(folder).glob("*.nb*")} if folder else {}
