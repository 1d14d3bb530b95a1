"""Pydantic's errors as one line for each key of a job file."""

from typing import Any, get_args

from pydantic import BaseModel, ValidationError


def list_errors(error: ValidationError, job: type[BaseModel]) -> str:
    """Return one line a key; where a key may be of several types, with the message of each."""
    messages: dict[str, list[str]] = {}
    for e in error.errors():
        messages.setdefault(_key(e["loc"], job), []).append(_explain(e))
    return "\n".join(
        f"  {f'{key}: ' if key else ''}{'; '.join(dict.fromkeys(texts))}" for key, texts in messages.items()
    )


def _key(location: tuple[int | str, ...], job: type[BaseModel]) -> str:
    """Return the key as the job file has it; Pydantic goes on with the type that it tried, or a position in a list."""
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


def _explain(error: Any) -> str:  # noqa: ANN401
    if error["type"] == "extra_forbidden":
        return "there is no such key"
    if error["type"] == "missing":
        return "is missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    return message if isinstance(error["input"], dict) else f"{message} (it is {error['input']!r})"
