"""Values of job files as flags and the environment write them: TOML or text, assignments, sizes in bytes."""

import re
import tomllib
from collections.abc import Iterable
from typing import Any

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class JobFileError(ValueError):
    """The job file, the environment or the flags do not make a job; the message lists every key that is wrong."""


def parse_flags(assignments: list[str]) -> dict[str, Any]:
    """Parse assignments such as `model.max_basis=100` into nested settings; values are TOML, or text where that fails.

    `source.positive=` with nothing behind it takes back what the environment or the file says.
    """
    pairs = []
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", key):
            raise JobFileError(f"--set takes KEY=VALUE, such as model.max_basis=100; {assignment!r} is not")
        pairs.append((key, parse_value(text) if text else None))
    return nest_keys(pairs)


def nest_keys(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return settings nested like a job file from dotted keys; raises JobFileError if a key with a value has keys."""
    nested: dict[str, Any] = {}
    for key, value in pairs:
        section = nested
        *parents, last = key.split(".")
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                raise JobFileError(f"{key} cannot be set: {parent} is given a value, too, so it has no keys")
        section[last] = value
    return nested


def parse_value(text: str) -> Any:  # noqa: ANN401
    """Return what the text is as the value of a TOML key; the text itself if it is none."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except RecursionError as error:
        raise JobFileError(f"the value {text[:20]} … is nested too deeply") from error
    except ValueError:  # of TOML, or a number that is too long
        return text
    return parsed["value"] if len(parsed) == 1 else text


def parse_bytes(text: str) -> int:
    """Return the bytes of "500MB", "4 GiB" and the like; raise ValueError for anything else."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if not match or match[2] not in _UNITS:
        raise ValueError(f"a size is a number with one of {', '.join(u for u in _UNITS if u)}, such as 4GB")
    return int(float(match[1]) * _UNITS[match[2]])
