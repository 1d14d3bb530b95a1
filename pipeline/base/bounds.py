"""Checks the fields of a frozen settings class against the bounds that their annotations declare."""

import math
from collections.abc import Iterator
from typing import Any, Literal, TypeGuard, get_args, get_origin, get_type_hints

import annotated_types
import numpy as np

from ridgestream.pipeline.base.errors import InputError


def check_bounds(settings: object) -> None:
    """Raise InputError for the first field of a dataclass whose value its annotation does not allow.

    Checked are `Annotated[float, Gt(0)]`, `Annotated[float, Ge(0)]`, `Annotated[int, Ge(n)]`, `Literal[...]`, and each
    of them `| None`; fields of other types are left alone.
    """
    for name, hint in get_type_hints(type(settings), include_extras=True).items():
        alternatives = get_args(hint) if _is_optional(hint) else (hint,)
        value = getattr(settings, name)
        if value is None and type(None) in alternatives:
            continue
        for requirement in _requirements(alternatives, value):
            raise InputError(f"{name} must be {requirement} it is {value!r}")


def is_finite_number(value: object) -> TypeGuard[float]:
    """Whether `value` is a real number, of Python or NumPy, that is neither infinite nor NaN."""
    return isinstance(value, int | float | np.integer | np.floating) and math.isfinite(value)


def _is_optional(hint: Any) -> bool:  # noqa: ANN401
    return type(None) in get_args(hint)


def _requirements(alternatives: tuple[Any, ...], value: Any) -> Iterator[str]:  # noqa: ANN401
    """Yield what a value would have to be, for each bound that it violates."""
    unbounded = ", or None for no bound;" if type(None) in alternatives else ","
    for alternative in alternatives:
        if get_origin(alternative) is Literal and value not in get_args(alternative):
            yield f"one of {', '.join(map(str, get_args(alternative)))},"
        if not hasattr(alternative, "__metadata__"):
            continue
        kind = get_args(alternative)[0]
        for marker in alternative.__metadata__:
            requirement = _requirement(kind, marker, value)
            if requirement:
                yield requirement + unbounded


def _requirement(kind: type, marker: object, value: Any) -> str | None:  # noqa: ANN401
    """Return what a value of this type would have to be by one marker; None if it is."""
    if isinstance(marker, annotated_types.Gt):
        least: Any = marker.gt
        return None if is_finite_number(value) and value > least else "a positive number"
    if isinstance(marker, annotated_types.Ge):
        least = marker.ge
        if kind is int:
            whole = isinstance(value, int | np.integer) and value >= least
            return None if whole else f"a whole number of at least {least}"
        return None if is_finite_number(value) and value >= least else "zero or positive"
    return None
