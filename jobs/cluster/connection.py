"""The way to a cluster: its scheduler by address or file, certificates, and workers that are fit for the job."""

import asyncio
import json
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from pkgutil import resolve_name
from time import monotonic, sleep
from typing import Any, cast

from ridgestream.jobs.cluster.worker_task import (
    DECISIVE,
    OWN,
    OWN_VERSION,
    PYTHON,
    TOLD,
    Sight,
    Versions,
    compare_versions,
    feature_release,
    look,
    own_versions,
)
from ridgestream.jobs.config.cluster_options import FILE, ClusterOptions
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.memory_plan import show_bytes
from ridgestream.pipeline.base.reporter import Reporter

LOOK_SECONDS = 1.0
"""How often a wait looks whether what it waits for has changed."""

ANSWER_SECONDS = 10.0
"""How long a worker that has come may take to say what it has."""

_PROBED, _PROBE_SECONDS = 3, 2.0

_GREETINGS = 3
"""How often a scheduler is greeted."""


class ClusterError(RuntimeError):
    """The cluster cannot be had or has lost its workers; the message says what to do."""


def connect(address: str, patience_seconds: float, options: ClusterOptions, stack: ExitStack) -> Any:  # noqa: ANN401
    """Return a client of the scheduler at an address, or in a file: `file:PATH`; raise ClusterError if none answers."""
    from distributed.versions import VersionMismatchWarning

    if address.startswith(FILE):
        address = _read_address(Path(address.removeprefix(FILE)), patience_seconds)
    if options.tls_files and not address.startswith("tls://"):
        raise ClusterError(
            f"the scheduler's address {address} is not encrypted, and the job has certificates "
            "(cluster_options.tls_ca): start the scheduler with --tls-ca-file, --tls-cert and --tls-key, or take "
            "them out of the job"
        )
    security = _security(options)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)  # each worker's versions are looked at
            return stack.enter_context(open_client(address, patience_seconds, security))
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        remedy = "start it, or use --cluster none or local"
        if address.startswith("tls://"):
            remedy += "; with tls://, it must know the certificates of cluster_options.tls_ca, tls_cert and tls_key"
        raise ClusterError(f"no scheduler answers at {address}: {error}; {remedy}") from error


def open_client(address: str, patience_seconds: float, security: Any = None) -> Any:  # noqa: ANN401
    """Return a client of the scheduler at an address; raise OSError if none answers.

    A scheduler that is busy may send its first two messages as one, which Dask's client asserts that it does not: that
    is tried again.
    """
    from distributed import Client

    for _ in range(_GREETINGS):
        with suppress(AssertionError):
            return Client(address, timeout=patience_seconds, security=security)
    raise ConnectionError("it greets in a way that is not understood")


def tell_of_workers(client: Any, workers: Mapping[str, Any], threads: int, seconds: float, report: Reporter) -> None:  # noqa: ANN401
    """Tell how many workers there are and what a task has in them, which a task in each looks at."""
    from distributed import wait

    looks = {a: client.submit(look, threads, workers=[a], pure=False, allow_other_workers=False) for a in workers}
    with suppress(TimeoutError):
        wait(list(looks.values()), timeout=min(seconds, ANSWER_SECONDS))
    sights: list[Sight] = []
    for look_there in looks.values():
        if look_there.status == "finished":
            with suppress(Exception):  # a worker that has gone meanwhile is told of elsewhere
                sights.append(look_there.result(timeout=LOOK_SECONDS))
    client.cancel(list(looks.values()))
    limits = [worker["memory_limit"] for worker in workers.values() if worker.get("memory_limit")]
    report.say(
        events.CLUSTER_WORKERS_CONNECTED,
        workers=len(workers),
        task_threads=sum(worker["nthreads"] for worker in workers.values()),
        blas_threads=max((sight.blas for sight in sights), default=threads),
        numba_threads=max((sight.numba for sight in sights), default=threads),
        memory_limit=show_bytes(min(limits)) if limits else "none",
    )


def check_versions(client: Any, workers: Sequence[str], report: Reporter) -> set[str]:  # noqa: ANN401
    """Raise ClusterError, naming each worker, if one has another version of what decides results or protocol.

    Other packages are told. Those that do not answer are told and returned: their tasks look for themselves.
    """
    here, found = own_versions(), client.sync(_ask_versions, client, workers)
    unfit: dict[str, list[str]] = defaultdict(list)
    told: dict[str, list[str]] = defaultdict(list)
    for address, versions in found.items():
        decisive, others = compare_versions(here, _versions_of(versions))
        if decisive:
            unfit["; ".join(decisive)].append(address)
        elif others:
            told["; ".join(others)].append(address)
    if unfit:
        lines = [f"{', '.join(addresses)}: {differing}" for differing, addresses in unfit.items()]
        raise ClusterError(
            "workers have other versions than this job, which could change its results: "
            + " | ".join(lines)
            + "; install the same versions there, or stop these workers"
        )
    for differing, addresses in told.items():
        report.warn(events.CLUSTER_VERSIONS_DIFFER, workers=", ".join(addresses), differing=differing)
    silent = {address for address in workers if address not in found}
    if silent:
        report.warn(events.CLUSTER_WORKERS_SILENT, workers=", ".join(sorted(silent)))
    return silent


async def _ask_versions(client: Any, workers: Sequence[str]) -> dict[str, Any]:  # noqa: ANN401
    """Return the versions on each worker, without a task; a worker that does not answer is left out."""

    async def ask(address: str) -> dict[str, Any]:
        question = {"op": "versions", "packages": [*DECISIVE, *TOLD]}
        asking = client.scheduler.broadcast(msg=question, workers=[address], on_error="ignore")
        running = client.run(resolve_name, OWN_VERSION, workers=[address], on_error="return")
        try:
            installed, own = await asyncio.wait_for(asyncio.gather(asking, running), ANSWER_SECONDS)
        except TimeoutError:
            return {}
        for answer in installed.values():
            answer["packages"][OWN] = _own_version_of(own.get(address))
        return cast("dict[str, Any]", installed)

    answers = await asyncio.gather(*map(ask, workers))
    return {address: versions for answer in answers for address, versions in answer.items()}


def _own_version_of(answer: object) -> str | None:
    """Return the version of Ridgestream that a worker has, from its answer; None if the worker cannot import it."""
    if isinstance(answer, ModuleNotFoundError):
        return None
    return answer if isinstance(answer, str) else "of an unknown version"


def reaches_workers(client: Any) -> bool:  # noqa: ANN401
    """Tell whether workers can be reached from here, past the scheduler: results need not pass through it then."""
    import socket

    from distributed.comm.addressing import get_address_host_port

    for address in list(client.nthreads())[:_PROBED]:
        try:
            with socket.create_connection(get_address_host_port(address), timeout=_PROBE_SECONDS):
                pass
        except (OSError, ValueError):
            return False
    return True


def _versions_of(worker: dict[str, Any]) -> Versions:
    packages = cast("dict[str, str | None]", worker["packages"])
    return packages | {PYTHON: feature_release(packages.get("python"))}


def _security(options: ClusterOptions) -> Any:  # noqa: ANN401
    """Return how to talk to the scheduler; Dask's own configuration holds where the job gives no certificates."""
    from distributed import Security

    if not options.tls_files:
        return None
    for key, path in options.tls_files.items():
        if not Path(path).is_file():
            raise ClusterError(f"there is no file {path} (cluster_options.{key})")
    return Security(
        tls_ca_file=options.tls_ca,
        tls_client_cert=options.tls_cert,
        tls_client_key=options.tls_key,
        require_encryption=True,
    )


def _read_address(path: Path, patience_seconds: float) -> str:
    """Return the address that a scheduler has written into its file, waiting for it to appear."""
    give_up = monotonic() + patience_seconds
    while True:
        try:
            return str(json.loads(path.read_text())["address"])
        except (OSError, ValueError, LookupError, TypeError) as error:
            if monotonic() > give_up:
                raise ClusterError(
                    f"the scheduler's file {path} names no address after {patience_seconds:g} s: {error!r}; start the "
                    "scheduler with --scheduler-file, or use --cluster none or local"
                ) from error
        sleep(min(0.1, patience_seconds))
