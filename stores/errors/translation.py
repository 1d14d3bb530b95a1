"""Translation of errors of Icechunk, Zarr and the operating system into StoreError with location and remedy."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile

from ridgestream.stores.errors.exceptions import ModelError, StoreError

_MAX_CHARACTERS = 500
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
"""Remedies, by the pattern of the error message."""


@contextmanager
def store_errors(subject: str) -> Iterator[None]:
    """Translate errors of Icechunk and the operating system into StoreError; `subject` is like "the store /data"."""
    import icechunk

    try:
        yield
    except StoreError:
        raise
    except (icechunk.ConflictError, icechunk.IcechunkError, OSError) as error:
        if isinstance(error, icechunk.ConflictError) or "branch update conflict" in str(error):
            raise StoreError(f"another writer has committed to {subject} meanwhile; run the job again") from error
        raise StoreError(f"{subject} cannot be read or written: {_with_remedy(_first_line(error))}") from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise StoreError(f"{subject} cannot be read or written: {_first_line(error)}; is it damaged?") from error


@contextmanager
def read_errors(subject: str) -> Iterator[None]:
    """Like `store_errors`, and translates errors of decoding, too; for code that only reads."""
    try:
        with store_errors(subject):
            yield
    except (StoreError, ModelError):
        raise
    except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise StoreError(f"{subject} holds damaged data: {_first_line(error)}; restore it from a copy") from error


@contextmanager
def prefix_errors(subject: str) -> Iterator[None]:
    """Prefix the message of a StoreError with `subject` unless it contains it: arrays do not know their store."""
    try:
        yield
    except StoreError as error:
        if subject in str(error):
            raise
        raise type(error)(f"{subject}: {error}") from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise StoreError(f"{subject} cannot be read or written: {_first_line(error)}; is it damaged?") from error


def is_panic(error: BaseException) -> bool:
    """Return whether an exception is a Rust panic: not a subclass of Exception, and not importable as a type."""
    return type(error).__name__ == "PanicException"


def _with_remedy(message: str) -> str:
    """Return the message, followed by the remedy if one is known."""
    return next((f"{message}; {remedy}" for pattern, remedy in _REMEDIES if pattern.search(message)), message)


def _first_line(error: BaseException) -> str:
    """Return the first paragraph of a message as one line, without Icechunk's frame, at most _MAX_CHARACTERS long."""
    lines = [line.strip(" │|x×`->╰─▶") for line in str(error).splitlines()]
    while lines and not lines[0]:
        del lines[0]
    message = " ".join(takewhile(lambda line: line and not line.startswith(("context:", "0:", "at ")), lines))
    message = message or type(error).__name__
    return message if len(message) <= _MAX_CHARACTERS else f"{message[:_MAX_CHARACTERS]} …"
