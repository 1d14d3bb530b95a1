"""Connects to a scheduler, by its address or by the file that it writes, with certificates if the job has them."""

import gc
import json
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from ridgestream.jobs.cluster.cluster_error import ClusterError
from ridgestream.jobs.config.cluster_options import FILE, ClusterOptions

_GREETINGS = 3
"""How often a connection to a scheduler is tried."""


def connect(address: str, patience_seconds: float, options: ClusterOptions, stack: ExitStack) -> Any:  # noqa: ANN401
    """Return a client of the scheduler at an address, or in a file (`file:PATH`), closed with the stack.

    Raises ClusterError if none answers.
    """
    if address.startswith(FILE):
        address = _read_address(Path(address.removeprefix(FILE)), patience_seconds)
    security = _security(options, address)
    try:
        return stack.enter_context(open_client(address, patience_seconds, security))
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        remedy = "start it, or use --cluster none or local"
        if address.startswith("tls://"):
            remedy += "; with tls://, it must know the certificates of cluster_options.tls_ca, tls_cert and tls_key"
        raise ClusterError(f"no scheduler answers at {address}: {error}; {remedy}") from error


def open_client(scheduler: Any, patience_seconds: float, security: Any = None) -> Any:  # noqa: ANN401
    """Return a client of the scheduler at an address, or of a local cluster; raises OSError if none answers.

    Dask's client asserts that a scheduler's first two messages come one by one, which a busy one may send as one, and
    that its thread starts within ten seconds, which it may not on a busy machine: then the connection is tried again.
    Other versions of packages on workers are no warning here: each worker's are compared before it does a task.
    """
    from distributed import Client
    from distributed.versions import VersionMismatchWarning

    for _ in range(_GREETINGS):
        gc.collect()  # a client that failed closes when it is collected; while another one starts, that would lock
        with suppress(AssertionError), warnings.catch_warnings():
            warnings.simplefilter("ignore", VersionMismatchWarning)
            return Client(scheduler, timeout=patience_seconds, security=security)
    raise ConnectionError("its first message is not understood")


def _security(options: ClusterOptions, address: str) -> Any:  # noqa: ANN401
    """Return the job's certificates; None if it has none, so that Dask's own configuration holds."""
    from distributed import Security

    if not options.tls_files:
        return None
    if not address.startswith("tls://"):
        raise ClusterError(
            f"the scheduler's address {address} is not encrypted, and the job has certificates "
            "(cluster_options.tls_ca): start the scheduler with --tls-ca-file, --tls-cert and --tls-key, or take "
            "them out of the job"
        )
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
