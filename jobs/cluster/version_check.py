"""Checks that workers have the job's versions: those that decide results must be the same."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, cast

from ridgestream.jobs.cluster.cluster_error import ClusterError
from ridgestream.jobs.cluster.package_versions import (
    DECISIVE,
    OWN,
    OWN_VERSION,
    PYTHON,
    REPORTED,
    Versions,
    decisive_versions,
    differences,
    feature_release,
    reported_versions,
)
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter

ANSWER_SECONDS = 10.0
"""How long a worker that has come may take to answer."""

Client = Any
"""A client of distributed, which has no types."""


def check_versions(client: Client, workers: Sequence[str], report: Reporter) -> set[str]:
    """Raise ClusterError, naming each worker, if one has another version of what decides results or protocol.

    Other differences are reported. Workers that do not answer are reported and returned: their tasks check themselves.
    """
    answers: dict[str, Any] = client.sync(_ask_versions, client, workers)
    unfit: dict[str, list[str]] = defaultdict(list)
    differing: dict[str, list[str]] = defaultdict(list)
    for address, answer in answers.items():
        there = _versions_of(answer)
        decisive, others = differences(decisive_versions(), there), differences(reported_versions(), there)
        if decisive:
            unfit["; ".join(decisive)].append(address)
        elif others:
            differing["; ".join(others)].append(address)
    if unfit:
        raise _unfit_workers(unfit)
    for text, addresses in differing.items():
        report.warn(events.CLUSTER_VERSIONS_DIFFER, workers=", ".join(addresses), differing=text)
    silent = set(workers) - answers.keys()
    if silent:
        report.warn(events.CLUSTER_WORKERS_SILENT, workers=", ".join(sorted(silent)))
    return silent


def _unfit_workers(unfit: Mapping[str, list[str]]) -> ClusterError:
    lines = [f"{', '.join(addresses)}: {differing}" for differing, addresses in unfit.items()]
    return ClusterError(
        f"workers have other versions than this job, which could change its results: {' | '.join(lines)}; install the "
        "same versions there, or stop these workers"
    )


async def _ask_versions(client: Client, workers: Sequence[str]) -> dict[str, Any]:
    """Return the versions on each worker, without a task; a worker that does not answer is left out."""
    answers = await asyncio.gather(*(_ask_version(client, address) for address in workers))
    return {address: versions for answer in answers for address, versions in answer.items()}


async def _ask_version(client: Client, address: str) -> dict[str, Any]:
    question = {"op": "versions", "packages": [*DECISIVE, *REPORTED]}
    asking = client.scheduler.broadcast(msg=question, workers=[address], on_error="ignore")
    running = client.run(resolve_name, OWN_VERSION, workers=[address], on_error="return")
    try:
        installed, own = await asyncio.wait_for(asyncio.gather(asking, running), ANSWER_SECONDS)
    except TimeoutError:
        return {}
    for answer in installed.values():
        answer["packages"][OWN] = _own_version_of(own.get(address))
    return cast("dict[str, Any]", installed)


def _own_version_of(answer: object) -> str | None:
    """Return the version of Ridgestream that a worker has, from its answer; None if the worker cannot import it."""
    if isinstance(answer, ModuleNotFoundError):
        return None
    return answer if isinstance(answer, str) else "of an unknown version"


def _versions_of(answer: dict[str, Any]) -> Versions:
    packages = cast("dict[str, str | None]", answer["packages"])
    return packages | {PYTHON: feature_release(packages.get("python"))}
