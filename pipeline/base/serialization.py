"""Conversion of values to plain JSON plus arrays, and back; no code is stored, so reading cannot run any.

A value is a number, a string, None, an array, a tuple of values, or a dataclass of values. The type to convert back to
is always given by the caller, never taken from the data.
"""

import hashlib
import json
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base.errors import InputError

Arrays = dict[str, npt.NDArray[Any]]


def to_plain(value: Any) -> tuple[Any, Arrays]:  # noqa: ANN401
    """Return the value as JSON, with all arrays in a separate dict; raises InputError for values of other types."""
    arrays: Arrays = {}
    return _flatten(value, arrays, typed=False), arrays


def from_plain(kind: Any, plain: Any, arrays: Arrays) -> Any:  # noqa: ANN401
    """Return the value of type `kind` from the results of `to_plain`; raises InputError if they do not match it."""
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        names = [item.name for item in fields(kind)]
        if not isinstance(plain, dict) or sorted(plain) != sorted(names):
            raise InputError(f"a {kind.__name__} has the fields {', '.join(names)}; this has {plain!r:.100}")
        return kind(**{name: from_plain(hints[name], plain[name], arrays) for name in names})
    if get_origin(kind) is tuple and isinstance(plain, list):
        kinds = get_args(kind)
        each = [kinds[0]] * len(plain) if kinds[-1] is Ellipsis else kinds
        return tuple(from_plain(k, part, arrays) for k, part in zip(each, plain, strict=True))
    if isinstance(plain, dict) and list(plain) == ["array"]:
        return arrays[plain["array"]]
    if isinstance(plain, int | float | str | None):
        return plain
    raise InputError(f"the stored value is not a {kind}: {plain!r:.100}")


def hash_of(value: Any) -> str:  # noqa: ANN401
    """Return a hash of a value that depends only on its numbers, strings and types.

    A value with a method `hashed_form` is hashed as what that returns, so that its class may change its fields.
    """
    arrays: Arrays = {}
    plain = _flatten(value, arrays, typed=True)
    digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _flatten(value: Any, arrays: Arrays, *, typed: bool) -> Any:  # noqa: ANN401
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if is_dataclass(value) and not isinstance(value, type):
        if typed and hasattr(value, "hashed_form"):
            return _flatten(value.hashed_form(), arrays, typed=typed)
        plain = {item.name: _flatten(getattr(value, item.name), arrays, typed=typed) for item in fields(value)}
        return {_name_of(type(value)): plain} if typed else plain
    if isinstance(value, tuple | list):
        return [_flatten(part, arrays, typed=typed) for part in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"a {type(value).__name__} is not a plain value")


def _name_of(kind: type) -> str:
    """Return the name of a dataclass in hashes: its constant `hashed_as` if it has been renamed, else its own name."""
    return str(getattr(kind, "hashed_as", kind.__qualname__))
