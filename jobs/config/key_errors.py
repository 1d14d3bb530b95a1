"""Pydantic's errors as one line for each key of a job file."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

_UNKNOWN, _MISSING = "there is no such key", "is missing"


def list_errors(error: ValidationError, job: type[BaseModel]) -> str:
    """Return one line a key, which says what its value must be and what it is."""
    from ridgestream.jobs.config.reference import list_keys

    types = {entry.key: entry.type for entry in list_keys()}
    errors: dict[str, dict[str, object]] = {}
    for e in error.errors():
        key = _key(e["loc"], job)
        said = _explain(e, types.get(key, "a table"))
        errors.setdefault(key, {}).setdefault(said + _suggestion(key, types) * (said == _UNKNOWN), e["input"])
    return "\n".join(
        f"  {f'{key}: ' if key else ''}{'; '.join(_with_value(*each) for each in messages.items())}"
        for key, messages in errors.items()
    )


def _key(location: tuple[int | str, ...], job: type[BaseModel]) -> str:
    """Return the key as the job file has it; Pydantic appends the type that it tried, or a position in a list."""
    parts: list[str] = []
    section: type[BaseModel] | None = job
    for part in map(str, location):
        if section is None:
            break
        parts.append(part)
        kind = section.model_fields[part].annotation if part in section.model_fields else None
        members = (kind, *get_args(kind))
        section = next((m for m in members if isinstance(m, type) and issubclass(m, BaseModel)), None)
    return ".".join(parts)


def _explain(error: Any, type_: str) -> str:  # noqa: ANN401
    """Return an error in plain words; what is not refused by a check of ours has another type, or is out of bounds."""
    if error["type"] == "extra_forbidden":
        return _UNKNOWN
    if error["type"] == "missing":
        return _MISSING
    if error["type"] == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    return f"must be {type_}"


def _suggestion(key: str, keys: Iterable[str]) -> str:
    """Return the keys that may be meant by one that there is not, as a question: alike, or of another section."""
    section, dot, name = key.rpartition(".")
    beside = {each.removeprefix(section + dot).split(".")[0] for each in keys if each.startswith(section + dot)}
    alike = [f"{section}{dot}{each}" for each in get_close_matches(name, sorted(beside), n=1)]
    alike = alike or [each for each in keys if each.endswith(f".{name}")]
    return f"; did you mean {' or '.join(alike[:3])}?" if alike else ""


def _with_value(message: str, value: object) -> str:
    is_shown = not message.startswith((_UNKNOWN, _MISSING)) and not isinstance(value, dict)
    return f"{message} (it is {value!r})" if is_shown else message
