"""Whether values that were read from JSON are of the types that the fields of a dataclass say."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Check = Callable[[Any], bool]


def check_types(value: Any) -> None:  # noqa: ANN401
    """Raise TypeError, naming the field, unless each field of a dataclass is of its type, all the way down.

    A whole number is a float, too; a truth value is no number. Types of arrays are not looked at.
    """
    kind: type = type(value)
    for name, holds in _fields_of(kind):
        if not holds(getattr(value, name)):
            raise TypeError(f"{type(value).__name__}.{name} cannot be {getattr(value, name)!r:.100}")


@cache
def _fields_of(kind: type) -> tuple[tuple[str, Check], ...]:
    hints = get_type_hints(kind)
    return tuple((item.name, _check(hints[item.name])) for item in fields(kind))


@cache
def _check(hint: Any) -> Check:  # noqa: ANN401
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        checks = tuple(_check(argument) for argument in arguments)
        return lambda value: any(check(value) for check in checks)
    if origin is Literal:
        return lambda value: value in arguments
    if origin is tuple:
        return _check_tuple(arguments)
    if origin is dict:
        key, each = map(_check, arguments)
        return lambda value: type(value) is dict and all(key(k) and each(v) for k, v in value.items())
    if isinstance(hint, type) and is_dataclass(hint):
        kind: type = hint
        return lambda value: isinstance(value, kind) and all(h(getattr(value, n)) for n, h in _fields_of(kind))
    return _check_plain(hint)


def _check_tuple(arguments: Sequence[Any]) -> Check:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        each = _check(arguments[0])
        return lambda value: type(value) is tuple and all(map(each, value))
    checks = tuple(map(_check, arguments))
    return lambda value: type(value) is tuple and len(value) == len(checks) and _all_hold(checks, value)


def _all_hold(checks: Sequence[Check], values: Sequence[Any]) -> bool:
    return all(check(value) for check, value in zip(checks, values, strict=True))


def _check_plain(hint: Any) -> Check:  # noqa: ANN401
    kinds: Mapping[Any, tuple[type, ...]] = {
        bool: (bool,),
        int: (int,),
        float: (float, int),
        str: (str,),
        NoneType: (NoneType,),
    }
    known = kinds.get(hint)
    return (lambda _: True) if known is None else lambda value: type(value) in known
