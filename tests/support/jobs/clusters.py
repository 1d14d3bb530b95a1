"""Real Dask clusters for tests: each scheduler and worker is a process of its own, at an address on loopback."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time, sleep
from typing import Any

import numpy as np
import numpy.typing as npt
from support.jobs.jobs import PATIENCE, clean_environment, wait_until

from ridgestream.jobs.cluster.connection import open_client
from ridgestream.pipeline.base.blas_threads import blas_threads, numba_threads
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.training.online.shared_cells import CellsLearned, CellTask, learn_cells
from ridgestream.stores.parquet.partitions import PartitionFile

TESTS = Path(__file__).parents[2]


@dataclass
class Cluster:
    """A scheduler and workers, each a process of its own, started by Dask's commands."""

    folder: Path
    port: int = 0
    """The scheduler's port; 0 for any."""
    scheduler_options: Sequence[str] = ()
    scheduler_environment: Mapping[str, str] = field(default_factory=dict)
    security: Any = None
    """The certificates of a client."""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """In the order in which they were started."""

    @property
    def note(self) -> Path:
        """The scheduler's file."""
        return self.folder / "scheduler.json"

    @property
    def address(self) -> str:
        return str(json.loads(self.note.read_text())["address"])

    @property
    def log(self) -> str:
        return (self.folder / "cluster.log").read_text()

    def start_scheduler(self, host: str = "127.0.0.1", within: Sequence[str] = ()) -> None:
        """Start the scheduler, or start it again at the same port."""
        self.note.unlink(missing_ok=True)
        options = ("--host", host, "--port", str(self.port), "--scheduler-file", str(self.note))
        self.scheduler = self._start(
            "scheduler", *options, *self.scheduler_options, within=within, environment=self.scheduler_environment
        )
        wait_until(self.note.is_file, self.scheduler)
        wait_until(lambda: self.note.read_text().endswith("}"), self.scheduler)
        self.port = int(self.address.rpartition(":")[2])

    def start_worker(
        self,
        *options: str,
        environment: Mapping[str, str] | None = None,
        nanny: bool = False,
        within: Sequence[str] = (),
    ) -> subprocess.Popen[bytes]:
        """Start one more worker; it takes a moment until it is connected."""
        defaults = () if nanny else ("--no-nanny",)
        threads = () if "--nthreads" in options else ("--nthreads", "1")
        arguments = (*defaults, *threads, "--local-directory", str(self.folder), *options)
        self.workers.append(self._start("worker", self.address, *arguments, environment=environment, within=within))
        return self.workers[-1]

    def wait_for(self, count: int) -> list[str]:
        """Wait until this number of workers is connected and return their addresses."""
        with open_client(self.address, PATIENCE, self.security) as client:
            wait_until(lambda: len(client.nthreads()) == count)
            return list(client.nthreads())

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait(PATIENCE)

    def _start(
        self, *arguments: str, environment: Mapping[str, str] | None = None, within: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        command = [*within, sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
        path = {"PYTHONPATH": str(TESTS)}
        if environment and "PYTHONPATH" in environment:
            path = {"PYTHONPATH": f"{environment['PYTHONPATH']}:{TESTS}"}
        with (self.folder / "cluster.log").open("ab") as log:
            variables = clean_environment(**{**(environment or {}), **path})
            return subprocess.Popen(command, stdout=log, stderr=log, env=variables)


@contextmanager
def real_cluster(folder: Path, workers: int, *options: str, port: int = 0, **more: Any) -> Iterator[Cluster]:
    """Start a scheduler and workers with further options, and kill them at the end; `more` are fields of Cluster."""
    cluster = Cluster(folder, port, **more)
    with ExitStack() as stack:
        cluster.start_scheduler()
        stack.callback(cluster.close)
        for number in range(workers):
            cluster.start_worker("--name", str(number), *options)
        cluster.wait_for(workers)
        yield cluster


def multiply(task: int, shared: npt.NDArray[np.float64]) -> float:
    """A task that is slow enough to be killed; workers can import `support`, but not a test's own module."""
    sleep(0.1)
    return task * float(shared.sum())


def compute(seconds: float) -> float:
    """A task that computes for so long, and reports nothing meanwhile."""
    until = process_time() + seconds
    while process_time() < until:
        pass
    return seconds


def get_pid(task: int) -> int:  # noqa: ARG001
    """A task that returns the process that runs it."""
    return os.getpid()


def learn_cells_or_die(notes: Path, deaths: int, task: CellTask, *shared: Any) -> CellsLearned:
    """Learn some cells; the first workers that do so die of it."""
    for death in range(deaths):
        with suppress(FileExistsError):
            (notes / str(death)).touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
    return learn_cells(task, *shared)


def count_threads(task: int) -> tuple[int, int]:  # noqa: ARG001
    """A task that returns how many threads BLAS and numba would use."""
    return max(blas_threads()), numba_threads()


def fail_at_first(task: tuple[Path, int, str]) -> int:
    """A task that fails some times with an error, and then returns how often it was tried."""
    notes, times, error = task
    tries = len(list(notes.iterdir()))
    (notes / str(tries)).touch()
    if tries < times:
        raise {
            "reset": ConnectionResetError("the connection was reset"),
            "damaged": InputError("column 'x' has the value nan"),
            "gone": FileNotFoundError(2, "No such file or directory"),
            "full": OSError(28, "No space left on device"),
        }[error]
    return tries + 1


def wait_for_release(file: PartitionFile, folder: Path) -> int:
    """A task that notes its process and does not end before `folder` has a file called go."""
    (folder / f"pid-{os.getpid()}").touch()
    while not (folder / "go").exists():
        sleep(0.01)
    return file.size_bytes


def use_memory(file: PartitionFile, limit_bytes: int) -> int:
    """A task that allocates more memory than the limit."""
    arrays: list[npt.NDArray[np.float64]] = []
    while len(arrays) * 2**24 < 3 * limit_bytes:
        arrays.append(np.ones(2**21))
        sleep(0.02)
    sleep(60)
    return len(arrays) + file.size_bytes
