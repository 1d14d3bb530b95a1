"""Hiding of secrets in logs and stores: credentials in URLs, and values of secret environment variables."""

import os
import re
from collections.abc import Sequence
from typing import Any

HIDDEN = "***"

WHERE_CREDENTIALS_GO = "where whoever reads it sees them: leave them to the environment, such as AWS_SECRET_ACCESS_KEY"
"""Advice about credentials in a URL."""

_NAMES = r"secret|token|passw|credential|signature|api_?key|access_?key|account_?key|private_?key"
_IN_AUTHORITY = re.compile(
    r"(\b(?:(?:abfss?|az|wasbs?)://(?=[^\s@/]*:)|(?!abfss?:|az:|wasbs?:)[A-Za-z][A-Za-z0-9+.-]*://))"
    r"(?:[^\s'\"@/]*:[^\s'\"@]*|[^\s'\"@/]+)@"
)
"""User information before a host; an Azure container before its account is not secret."""
_IN_QUERY = re.compile(rf"([?&;](?:[^=&;\s]*(?:{_NAMES})[^=&;\s]*|sig)=)[^&;\s'\"]+", re.IGNORECASE)

_VARIABLE = re.compile(rf"{_NAMES}|connection_string|(?:^|_)sas(?:_|$)", re.IGNORECASE)
_ALWAYS_SECRET = re.compile(r"^(?:AWS|AZURE|GOOGLE)_|passw|connection_string", re.IGNORECASE)
"""Variables whose value is a secret even if it is made of plain words."""
_OF_A_FILE = re.compile(r"(?:file|path|dir|credentials)$", re.IGNORECASE)
_NO_SECRET = re.compile(r"(?:ur[li]|endpoint|host|header|type|mode|method|provider|backend)$", re.IGNORECASE)
"""Endings of variables that say where or how a secret is used."""
_FILE_NAME = re.compile(r"(?:[\w.=~+-]*/)*[\w=~+-][\w.=~+-]*\.[a-z][a-z0-9]{0,7}")
_PLAIN = re.compile(r"[a-z]+(?:[-_. ][a-z]+)*|[A-Z]+(?:[-_. ][A-Z]+)*|[A-Z][a-z]+|\d{1,12}|\d{4}-\d\d-\d\d")
"""Words, numbers and dates, which may be the name of anything."""
_SHORTEST = 8
"""Shorter values are not treated as secrets: they would match in any text."""


def without_secrets(text: str) -> str:
    """Return the text with anything that looks like credentials, and all secrets of the environment, hidden."""
    return _hide(text, _values())


def hide_secrets(plain: Any) -> Any:  # noqa: ANN401
    """Return a JSON value with the secrets hidden in all of its strings, including keys."""
    return _hide_all(plain, _values())


def has_credentials(url: str) -> bool:
    """Return whether a URL contains user, key or password before its host, or a signature in its query."""
    return bool(_IN_AUTHORITY.match(url) or _IN_QUERY.search(url))


def _values() -> list[str]:
    """Return the secrets of the environment, longest first, since one may be part of another."""
    secrets = {value for name, value in os.environ.items() if _VARIABLE.search(name) and not _is_harmless(name, value)}
    return sorted(secrets, key=lambda value: (-len(value), value))


def _is_harmless(name: str, value: str) -> bool:
    """Return whether a variable named like a secret holds none: what is no secret must stay legible in reports."""
    if len(value) < _SHORTEST or _NO_SECRET.search(name) or _FILE_NAME.fullmatch(value):
        return True
    if os.path.exists(value) or (value.startswith("/") and _OF_A_FILE.search(name)):  # noqa: PTH110 (of any length)
        return True
    return bool(_PLAIN.fullmatch(value)) and not _ALWAYS_SECRET.search(name)


def _hide(text: str, values: Sequence[str]) -> str:
    for value in values:  # before the patterns: they would hide a part of a secret inside a URL
        text = text.replace(value, HIDDEN)
    return _IN_QUERY.sub(rf"\1{HIDDEN}", _IN_AUTHORITY.sub(rf"\1{HIDDEN}@", text))


def _hide_all(plain: Any, values: Sequence[str]) -> Any:  # noqa: ANN401
    if isinstance(plain, str):
        return _hide(plain, values)
    if isinstance(plain, dict):
        return {_hide_all(key, values): _hide_all(value, values) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_hide_all(part, values) for part in plain]
    return plain
