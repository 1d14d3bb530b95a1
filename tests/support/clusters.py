"""Real Dask clusters for the tests: each scheduler and worker a process of its own, at an address on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import numpy as np
import numpy.typing as npt
from distributed import Client
from support.jobs import PATIENCE, clean_environment, wait_until


@dataclass(frozen=True)
class Cluster:
    """A scheduler and workers, each a process of its own."""

    address: str
    scheduler: subprocess.Popen[bytes]
    workers: tuple[subprocess.Popen[bytes], ...]


@contextmanager
def real_cluster(folder: Path, workers: int, *options: str, port: int = 0) -> Iterator[Cluster]:
    """Start a scheduler and workers by Dask's commands, with further options of the workers; kill them at the end.

    Port 0 is any.
    """
    with ExitStack() as stack:

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
            with (folder / "cluster.log").open("ab") as log:
                environment = clean_environment(PYTHONPATH=str(Path(__file__).parents[1]))
                process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            stack.callback(process.wait, PATIENCE)
            stack.callback(process.kill)
            return process

        note = folder / "scheduler.json"
        note.unlink(missing_ok=True)
        scheduler = start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--scheduler-file", str(note))
        wait_until(note.is_file, scheduler)
        wait_until(lambda: note.read_text().endswith("}"), scheduler)
        address = json.loads(note.read_text())["address"]
        names = [("worker", address, "--nthreads", "1", "--no-nanny", "--name", str(n)) for n in range(workers)]
        started = tuple(start(*arguments, "--local-directory", str(folder), *options) for arguments in names)
        with Client(address, timeout=PATIENCE) as client:
            wait_until(lambda: len(client.nthreads()) == workers)
        yield Cluster(address, scheduler, started)


def multiply(task: int, shared: npt.NDArray[np.float64]) -> float:
    """A task for workers, who can import `support` but not a test's own module: slow enough to be killed."""
    sleep(0.1)
    return task * float(shared.sum())


def get_pid(task: int) -> int:  # noqa: ARG001
    """A task that tells which process runs it."""
    return os.getpid()
