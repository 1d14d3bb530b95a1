"""Values of job files as flags and the environment write them: TOML or text, assignments, sizes in bytes."""

import re
import tomllib
from typing import Any

_UNITS = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


class JobFileError(ValueError):
    """The job file, the environment or the flags do not make a job; the message lists every key that is wrong."""


def parse_flags(assignments: list[str]) -> dict[str, Any]:
    """Parse assignments such as `model.max_basis=100` into nested settings; values are TOML, or text where that fails.

    `source.positive=` with nothing behind it takes back what the environment or the file says.
    """
    flags: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals or not re.fullmatch(r"\w+(\.\w+)*", key):
            raise JobFileError(f"--set takes KEY=VALUE, such as model.max_basis=100; {assignment!r} is not")
        section = flags
        *parents, last = key.split(".")
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                raise JobFileError(f"--set {assignment}: another --set gives {parent} a value, so it has no keys")
        section[last] = parse_value(text) if text else None
    return flags


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
        raise ValueError(f"a size is a number with one of {', '.join(u for u in _UNITS if u)}; {text!r} is not")
    return int(float(match[1]) * _UNITS[match[2]])
