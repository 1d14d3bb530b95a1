"""Where a run takes place: the versions of packages, and the type of machine."""

import os
import platform
from pathlib import Path

from ridgestream.jobs.cluster.package_versions import version_of

PACKAGES = ("ridgestream", "numpy", "scipy", "numba", "dask", "distributed", "zarr", "icechunk", "pyarrow")
"""Packages whose versions matter to bits, or to what is on disk."""


def installed_versions() -> dict[str, str]:
    """Return the version of Python and of each of PACKAGES that is installed."""
    versions = {name: version_of(name) for name in PACKAGES}
    return {"python": platform.python_version()} | {name: version for name, version in versions.items() if version}


def machine_type() -> dict[str, str | int]:
    """Return what type of machine this is; neither its name nor its address."""
    machine: dict[str, str | int] = {"system": platform.system(), "architecture": platform.machine()}
    processor = _processor()
    if processor:
        machine["processor"] = processor
    return machine | {"logical_processors": os.cpu_count() or 1}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
