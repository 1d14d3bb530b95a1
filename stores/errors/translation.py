"""Translation of errors of Icechunk, Zarr and the operating system into StoreError with location and remedy."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from traceback import walk_tb
from types import ModuleType

from ridgestream.stores.errors.exceptions import ModelError, StoreError
from ridgestream.stores.errors.exhaustion import is_exhausted
from ridgestream.stores.errors.library_check import failing_library

_MAX_CHARACTERS = 500

_LOST = "is a file of it lost or damaged? restore it from a copy"
_REFUSED = "the server refuses it: do the credentials of this process's environment reach there, to read and to write?"

_REMEDIES = (
    (re.compile(r"NoSuchKey|NoSuchVersion"), _LOST),
    (
        re.compile(r"AccessDenied|Forbidden|service error: Error\b"),
        f"{_REFUSED} Where they may not list it, a lost object is refused in the same way: then restore it from a copy",
    ),
    (re.compile(r"service error"), _REFUSED),
    (
        re.compile(r"snapshot timestamp is invalid"),
        "this machine's clock is minutes away from that of the object store: set it (is it synchronized, by NTP?)",
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
        re.compile(r"more modern version"),
        "has a newer release of Icechunk written it? upgrade this one; else it is damaged: restore it from a copy",
    ),
    (
        re.compile(
            r"not found|cannot be found|No such file|range|serializ|corrupt|checksum|\binvalid\b|I/O error|file type",
            re.IGNORECASE,
        ),
        _LOST,
    ),
)
"""Remedies, by the pattern of the error message."""

_ANSWER = re.compile(r"[>▶] *[A-Z]\w+(: |$)")
"""A line with the code that a server has answered, such as `|-> NoSuchKey: The specified key does not exist.`"""

_FRAME = re.compile(r"^ *(?:[x×|│](?: |$)|(?:`-|[╰├]─)[>▶])? *")
"""What Icechunk's report puts before a line."""

_BROKEN_WORD = re.compile(r"\S[-/]$")
"""A line of Icechunk's report that ends inside a word: it is wrapped after hyphens and slashes, too."""

_KEY = re.compile(r'\bkey="([^"]+)" range=')
"""The object that was read, in Icechunk's report."""


@contextmanager
def store_errors(subject: str) -> Iterator[None]:
    """Translate errors of Icechunk and the operating system into StoreError; `subject` is like "the store /data"."""
    import icechunk

    try:
        yield
    except StoreError:
        raise
    except (icechunk.ConflictError, icechunk.IcechunkError, OSError) as error:
        _raise_if_exhausted(subject, error)
        if isinstance(error, icechunk.ConflictError) or "branch update conflict" in str(error):
            raise StoreError(f"another writer has committed to {subject} meanwhile; run the job again") from error
        raise StoreError(f"{subject} cannot be read or written: {_with_remedy(_with_cause(error))}") from error
    except BaseException as error:
        if not is_panic(error):
            raise
        _raise_if_exhausted(subject, error)
        raise StoreError(f"{subject} cannot be read or written: {_first_line(error)}; {_LOST}") from error


_DAMAGE = (ValueError, LookupError, TypeError, RuntimeError)
"""What decoders raise for bytes that are not what was written."""

_NO_DAMAGE = (NotImplementedError, RecursionError)
"""Kinds of these that say more about the library."""


@contextmanager
def read_errors(subject: str) -> Iterator[None]:
    """Like `store_errors`, and translates errors of decoding, too; for code that only reads.

    A store is called damaged only by an error of decoding, and only if the libraries can read a sound one.
    """
    try:
        with store_errors(subject):
            yield
    except (StoreError, ModelError, MemoryError):
        raise
    except Exception as error:
        _raise_if_exhausted(subject, error)
        raise _decoding_error(subject, error) from error


def _decoding_error(subject: str, error: Exception) -> StoreError:
    failing = failing_library()
    if failing:
        return StoreError(
            f"{subject} cannot be read, and neither can a sound sample: {failing}; the installation or its settings "
            "are at fault, not the store: look at the variables of the environment, or install the libraries again"
        )
    if (isinstance(error, _DAMAGE) and not isinstance(error, _NO_DAMAGE)) or _is_of_another_type(error):
        return StoreError(f"{subject} holds damaged data: {_first_line(error)}; restore it from a copy")
    return StoreError(
        f"{subject} cannot be decoded: a library fails with {type(error).__name__}: {_first_line(error)}; does another "
        "installation, or another release of Zarr, read it?"
    )


def _is_of_another_type(error: Exception) -> bool:
    """Return whether code of this package found something of another type in a store than it keeps there."""
    if not isinstance(error, AttributeError) or isinstance(error.obj, ModuleType) or error.__traceback__ is None:
        return False
    *_, (frame, _) = walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("ridgestream.")


def _raise_if_exhausted(subject: str, error: BaseException) -> None:
    """Raise MemoryError for an error that says nothing about the store: the process has come to a limit."""
    if is_exhausted(error):
        raise MemoryError(f"{subject} cannot be read or written: {_first_line(error)}") from error


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
        _raise_if_exhausted(subject, error)
        raise StoreError(f"{subject} cannot be read or written: {_first_line(error)}; {_LOST}") from error


def is_panic(error: BaseException) -> bool:
    """Return whether an exception is a Rust panic: not a subclass of Exception, and not importable as a type."""
    return type(error).__name__ == "PanicException"


def _with_remedy(message: str) -> str:
    """Return the message, followed by the remedy if one is known."""
    return next((f"{message}; {remedy}" for pattern, remedy in _REMEDIES if pattern.search(message)), message)


def _with_cause(error: BaseException) -> str:
    """Return the message, followed by the server's own answer and the object, where Icechunk has them further below."""
    message, report = _first_line(error), "\n".join([str(error), *getattr(error, "__notes__", ())])
    if "service error" not in message:
        return message
    answer = [line.strip(" │|x×`->╰├─▶") for line in report.splitlines() if _ANSWER.search(line)]
    key = _KEY.search(report)
    return ": ".join([message, *answer[-1:]]) + (f" ({key[1]})" if key else "")


def _first_line(error: BaseException) -> str:
    """Return the first paragraph of a message as one line, without Icechunk's frame, at most _MAX_CHARACTERS long."""
    lines = [_FRAME.sub("", line).rstrip() for line in str(error).splitlines()]
    while lines and not lines[0]:
        del lines[0]
    message = _unwrap(takewhile(lambda line: line and not line.startswith(("context:", "0:", "at ")), lines))
    message = message or type(error).__name__
    return message if len(message) <= _MAX_CHARACTERS else f"{message[:_MAX_CHARACTERS]} …"


def _unwrap(lines: Iterable[str]) -> str:
    """Join the lines into which Icechunk has wrapped a message, also where it has broken one inside a word."""
    return "".join(line if _BROKEN_WORD.search(line) else f"{line} " for line in lines).rstrip()
