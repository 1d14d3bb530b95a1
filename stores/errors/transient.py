"""Transient errors: failures of reading and writing that a retry may resolve, never errors in the data."""

import errno
import re
from collections.abc import Iterator

_NAMES = (
    *("EIO", "EAGAIN", "EINTR", "EBUSY", "ESTALE", "EREMOTEIO", "ETIMEDOUT", "EHOSTDOWN", "EHOSTUNREACH"),
    *("ENETDOWN", "ENETUNREACH", "ENETRESET", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "ENOTCONN", "EPIPE"),
    *("ESHUTDOWN", "EADDRNOTAVAIL", "EADDRINUSE", "ENOBUFS", "EMFILE", "ENFILE"),
)
_MAY_PASS = {getattr(errno, name) for name in _NAMES if hasattr(errno, name)}
"""Error numbers of transient failures; a missing file, denied permission or a full disk is not transient."""

_SAID_TO_PASS = re.compile(
    r"connect|network|time[d -]*out|dispatch failure|sending request|slow ?down|throttl|temporar|unavailable|"
    r"internal ?error|internal_failure|reset by peer|broken pipe|end of file before|os error 5\)",
    re.IGNORECASE,
)
"""Messages of transient failures from libraries whose errors have no number: Icechunk, and Arrow's object stores."""


_CUT_OFF = re.compile(r"streaming error|error reading a body|end of file before", re.IGNORECASE)


def is_cut_off(error: BaseException) -> bool:
    """Return whether an answer ended too early, which Icechunk does not always ask for again."""
    return bool(_CUT_OFF.search("\n".join([str(error), *getattr(error, "__notes__", ())])))


def is_transient(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, is a failure of reading or writing that a retry may resolve."""
    return any(_may_pass(link) for link in _links(error))


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _MAY_PASS
    foreign = type(error).__module__.split(".")[0] in ("icechunk", "botocore", "aiohttp")
    return (foreign or type(error) is OSError) and bool(_SAID_TO_PASS.search(str(error)))


def _links(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
