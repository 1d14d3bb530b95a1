"""Errors of a process that has come to a limit of its memory or its threads, however a library words them."""

import re

_EXHAUSTED = re.compile(
    r"can't start new thread|can't spawn|cannot spawn|failed to spawn thread|cannot allocate memory|out of memory|"
    r"os error 12\b|Errno 12\b",
    re.IGNORECASE,
)


def is_exhausted(error: BaseException) -> bool:
    """Return whether an error says that there is no memory, or no thread, to be had."""
    if isinstance(error, MemoryError):
        return True
    worded = isinstance(error, RuntimeError | OSError) or type(error).__name__ == "PanicException"
    return worded and bool(_EXHAUSTED.search(str(error)))
