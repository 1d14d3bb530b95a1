"""The errors of Icechunk, Zarr and the operating system as StoreError, with the place and what happened to it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile

from ridgestream.stores.errors.exceptions import ModelError, StoreError

_LONGEST = 500

_REMEDIES = (
    (
        re.compile(r"service error"),
        "the server refuses it: do the credentials of this process's environment reach there, to read and to write?",
    ),
    (
        re.compile(r"dispatch failure|timed out|timeout", re.IGNORECASE),
        "the server cannot be reached: check storage.endpoint_url or AWS_ENDPOINT_URL, and the network",
    ),
    (
        re.compile(r"No space left|os error 28\b|Errno 28|File too large|os error 27\b|quota", re.IGNORECASE),
        "make room, then run the same command again; `ridgestream clean` frees what runs that failed have left",
    ),
    (
        re.compile(r"not found|No such file|range|serializ|corrupt|checksum", re.IGNORECASE),
        "is a file of it lost or damaged? restore it from a copy",
    ),
)
"""What to do, by what an error says."""


@contextmanager
def store_errors(place: str) -> Iterator[None]:
    """Turn the errors of Icechunk and the operating system into StoreError; `place` is such as "the store /data"."""
    import icechunk

    try:
        yield
    except StoreError:
        raise
    except (icechunk.ConflictError, icechunk.IcechunkError, OSError) as error:
        if isinstance(error, icechunk.ConflictError) or "branch update conflict" in str(error):
            raise StoreError(f"another writer has committed to {place} meanwhile; run the job again") from error
        raise StoreError(f"{place} cannot be read or written: {_with_remedy(_first_line(error))}") from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise StoreError(f"{place} cannot be read or written: {_first_line(error)}; is it damaged?") from error


@contextmanager
def reading(place: str) -> Iterator[None]:
    """Turn what else comes of bytes that do not decode into StoreError, too; for code that does nothing but read."""
    try:
        with store_errors(place):
            yield
    except (StoreError, ModelError):
        raise
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise StoreError(f"{place} holds damaged data: {_first_line(error)}; restore it from a copy") from error


@contextmanager
def naming(place: str) -> Iterator[None]:
    """Put the place before what a StoreError says, where it does not say it: arrays do not know whose they are."""
    try:
        yield
    except StoreError as error:
        if place in str(error):
            raise
        raise type(error)(f"{place}: {error}") from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise StoreError(f"{place} cannot be read or written: {_first_line(error)}; is it damaged?") from error


def is_panic(error: BaseException) -> bool:
    """Tell whether native code has broken off, which is no Exception of Python's and has no type to be imported."""
    return type(error).__name__ == "PanicException"


def _with_remedy(told: str) -> str:
    """Return what was told, with what to do, where that is known."""
    return next((f"{told}; {remedy}" for signs, remedy in _REMEDIES if signs.search(told)), told)


def _first_line(error: BaseException) -> str:
    """Return the first paragraph of a message in one line, without the frame that Icechunk draws, and not too long."""
    lines = [line.strip(" │|x×`->╰─▶") for line in str(error).splitlines()]
    while lines and not lines[0]:
        del lines[0]
    told = " ".join(takewhile(lambda line: line and not line.startswith(("context:", "0:", "at ")), lines))
    told = told or type(error).__name__
    return told if len(told) <= _LONGEST else f"{told[:_LONGEST]} …"
