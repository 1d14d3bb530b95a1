"""Checks the fields of a frozen settings class against the bounds that their annotations declare."""

import math
from types import NoneType, UnionType
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

import annotated_types
import numpy as np

from ridgestream.pipeline.base.errors import InputError


def check_bounds(settings: object) -> None:
    """Raise InputError for the first field of a dataclass whose value its annotation does not allow.

    Checks `Annotated[int, …]` and `Annotated[float, …]` with `Gt`, `Ge`, `Lt`, `Le`, `Literal[...]`, `bool`, tuples and
    unions of them, and `None`; fields of other types are not checked.
    """
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        if get_origin(hint) is not None or hint is bool:
            _check(name, alternatives_of(hint), getattr(settings, name))


def is_finite_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a real number, of Python or NumPy, that is neither infinite nor NaN."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return is_number and math.isfinite(value)  # type: ignore[arg-type]


def alternatives_of(hint: Any) -> tuple[Any, ...]:  # noqa: ANN401
    """Return the members of a union, including nested ones; for any other type, the type itself."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(member for part in get_args(hint) for member in alternatives_of(part))
    if get_origin(hint) is not None and hasattr(hint, "__metadata__") and get_origin(get_args(hint)[0]) in _UNIONS:
        return alternatives_of(get_args(hint)[0])
    return (hint,)


_UNIONS = (Union, UnionType)


def describe(hint: Any) -> str | None:  # noqa: ANN401
    """Return what a value of this type must be, such as "a whole number of at least 1"; None for an unchecked type."""
    if hint is bool:
        return "true or false"
    if get_origin(hint) is Literal:
        words = [f'"{word}"' if isinstance(word, str) else str(word) for word in get_args(hint)]
        return words[0] if len(words) == 1 else f"one of {', '.join(map(str, get_args(hint)))}"
    if get_origin(hint) is tuple:
        return f"several of them, each {describe(get_args(hint)[0])}"
    if not hasattr(hint, "__metadata__"):
        return None
    return _describe_number(get_args(hint)[0], hint.__metadata__)


def _describe_number(kind: type, markers: tuple[Any, ...]) -> str | None:
    bounds = {type(marker): marker for marker in markers}
    above, least = bounds.get(annotated_types.Gt), bounds.get(annotated_types.Ge)
    below, most = bounds.get(annotated_types.Lt), bounds.get(annotated_types.Le)
    if above is None and least is None:
        return None
    if most is not None and least is not None:
        return f"from {least.ge:g} to {most.le:g}"
    if kind is int:
        return f"a whole number of at least {least.ge}" if least else f"a whole number above {above.gt}"  # type: ignore[union-attr]
    if below is not None:
        return f"from {least.ge:g} to less than {below.lt:g}" if least else f"above {above.gt:g} and below {below.lt:g}"  # type: ignore[union-attr]
    if above is not None:
        return "a positive number" if above.gt == 0 else f"above {above.gt:g}"
    return "zero or positive" if least.ge == 0 else f"at least {least.ge:g}"  # type: ignore[union-attr]


def _check(name: str, alternatives: tuple[Any, ...], value: Any) -> None:  # noqa: ANN401
    requirements = [describe(alternative) for alternative in alternatives if alternative is not NoneType]
    if None in requirements or any(_allows(alternative, value) for alternative in alternatives):
        return
    unbounded = ", or None for no bound;" if NoneType in alternatives else ","
    raise InputError(f"{name} must be {' or '.join(str(r) for r in requirements)}{unbounded} it is {value!r}")


def _allows(hint: Any, value: Any) -> bool:  # noqa: ANN401
    if hint is NoneType:
        return value is None
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if get_origin(hint) is Literal:
        return any(type(value) is type(word) and value == word for word in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and bool(value) and all(_allows(get_args(hint)[0], part) for part in value)
    kind, markers = get_args(hint)[0], hint.__metadata__
    if not is_finite_number(value) or (kind is int and not isinstance(value, int | np.integer)):
        return False
    return all(_is_within(marker, value) for marker in markers)


def _is_within(marker: object, value: float) -> bool:
    if isinstance(marker, annotated_types.Gt):
        return bool(value > marker.gt)  # type: ignore[operator]
    if isinstance(marker, annotated_types.Ge):
        return bool(value >= marker.ge)  # type: ignore[operator]
    if isinstance(marker, annotated_types.Le):
        return bool(value <= marker.le)  # type: ignore[operator]
    return bool(value < marker.lt) if isinstance(marker, annotated_types.Lt) else True  # type: ignore[operator]
