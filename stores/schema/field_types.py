"""Checks that the fields of records read from JSON have the declared types, without converting any value."""

from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Record = TypeVar("Record")


def strictly_typed(kind: type[Record]) -> type[Record]:
    """Have `check_types` check the fields of this dataclass, and of its instances inside other records.

    An integer is also a float; a boolean is not a number. Elements of arrays are not checked.
    """
    strict = {"strict": True, "revalidate_instances": "always", "arbitrary_types_allowed": True}
    kind.__pydantic_config__ = strict  # type: ignore[attr-defined]
    return kind


def check_types(record: Any) -> None:  # noqa: ANN401
    """Raise TypeError, naming the field, if a field of a `strictly_typed` dataclass is not of its declared type."""
    from pydantic import ValidationError

    kind: type = type(record)
    try:
        _adapter(kind).validate_python(record)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, (kind.__name__, *first["loc"])))
        raise TypeError(f"{field} cannot be {first['input']!r:.100}") from None


@cache
def _adapter(kind: type) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
