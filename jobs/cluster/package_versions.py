"""Versions of packages in a process, and which differences between job and worker matter."""

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from ridgestream import __version__

OWN = "ridgestream"
OWN_VERSION = "ridgestream:__version__"
"""Where the version of the running code is found; the working directory may hold metadata of any version."""

DECISIVE = (OWN, "numpy", "scipy", "numba", "icechunk")
"""Packages of which another version may give other bits, or may not understand a task."""

REPORTED = ("dask", "distributed", "zarr", "pyarrow", "cloudpickle")
"""Packages of which another version is only reported."""

PYTHON = "python"

Versions = Mapping[str, str | None]
"""The version of each package; None if it is not installed."""


@cache
def version_of(name: str) -> str | None:
    """Return the version of a package, None if it is not installed; for Python, its feature release such as 3.11."""
    if name == OWN:
        return __version__
    if name == PYTHON:
        return f"{sys.version_info[0]}.{sys.version_info[1]}"
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def decisive_versions() -> dict[str, str | None]:
    """Return this process's versions of Python and of the packages that decide results."""
    return {name: version_of(name) for name in (PYTHON, *DECISIVE)}


def reported_versions() -> dict[str, str | None]:
    """Return this process's versions of the packages that are only reported."""
    return {name: version_of(name) for name in REPORTED}


def differences(here: Versions, there: Versions) -> list[str]:
    """Return, as text, each version of `here` that is another one, or missing, in `there`."""
    return [
        f"{name} {there.get(name) or 'missing'} (here {version or 'missing'})"
        for name, version in here.items()
        if version != there.get(name)
    ]


def feature_release(python: str | None) -> str | None:
    """Return 3.11 for 3.11.9.final.0: it decides which bytecode a Python understands."""
    return ".".join(python.split(".")[:2]) if python else None
