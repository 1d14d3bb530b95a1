"""The reference of job files: every key with its type, bounds, default and sentence, from the sections themselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.stores.catalog.models import NAME_PATTERN

_BOUNDS = {"minimum": "≥ {}", "exclusiveMinimum": "> {}", "maximum": "≤ {}", "exclusiveMaximum": "< {}"}
"""How bounds of a JSON schema are written."""

_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "a table",
}
"""What a JSON schema calls the types of plain values, in words."""


_PATTERNS = {NAME_PATTERN: " of 1 to 64 letters, digits, '_', '.' and '-' that begins with a letter or digit"}
"""What a pattern of text says, in words."""


@dataclass(frozen=True)
class Entry:
    """One key of a job file."""

    key: str
    """The key with its sections, such as `model.ols.patience`."""
    type: str
    """What its value may be, with bounds."""
    default: Any
    """Its value if it is absent; None for no value."""
    is_required: bool
    """Whether a job without it is refused."""
    sentence: str
    """What it means."""


def list_keys() -> tuple[Entry, ...]:
    """Return every key of a job file in the order of the sections."""
    schema = Job.model_json_schema()
    return tuple(_entries(schema, schema.get("$defs", {}), ""))


def _entries(section: dict[str, Any], definitions: dict[str, Any], prefix: str) -> Iterator[Entry]:
    required = section.get("required", [])
    for name, field in section["properties"].items():
        inner = _section_of(field, definitions)
        if inner is not None:
            yield from _entries(inner, definitions, f"{prefix}{name}.")
        else:
            sentence = " ".join(field.get("description", "").split())
            yield Entry(f"{prefix}{name}", _type_of(field), field.get("default"), name in required, sentence)


def _section_of(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of the section that a key holds; None for a plain value."""
    for part in (field, *field.get("anyOf", []), *field.get("allOf", [])):
        if "$ref" in part:
            section: dict[str, Any] = definitions[part["$ref"].rsplit("/", 1)[-1]]
            return section
    return None


def _type_of(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        # a list comes last, since what follows it would read as a part of it
        parts = sorted(schema["anyOf"], key=lambda part: part.get("type") == "array")
        return " or ".join(_type_of(part) for part in parts if part.get("type") != "null")
    if "const" in schema or "enum" in schema:
        words = schema.get("enum", [schema.get("const")])
        return " or ".join(f'"{word}"' if isinstance(word, str) else str(word) for word in words)
    if schema.get("type") == "object":
        return f"a table of {_type_of(schema['additionalProperties'])} each"
    if schema.get("type") == "array":
        return f"a list{' of one or more' * ('minItems' in schema)}, each {_type_of(schema.get('items', {}))}"
    bounds = [text.format(f"{schema[key]:g}") for key, text in _BOUNDS.items() if key in schema]
    word = _WORDS.get(schema.get("type", ""), "any value")
    word += _PATTERNS[schema["pattern"]] if "pattern" in schema else ", not empty" * ("minLength" in schema)
    return " ".join([word, " and ".join(bounds)]) if bounds else word
