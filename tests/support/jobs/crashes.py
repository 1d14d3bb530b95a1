"""Kills a run in any way, at any moment, runs the same command again, and checks what must hold then."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import numpy as np
import psutil
from support.jobs.clusters import Cluster, real_cluster
from support.jobs.jobs import PATIENCE, Workplace, bits_of, clean_environment, draw_rows, run_program
from support.stores.faulty_proxy import FaultyProxy, Rule, faulty_proxy
from support.stores.object_store import ObjectStore, object_store_environment
from support.stores.storage_calls import Strike, open_trap, start_in_session

from ridgestream.jobs.cli.exit_codes import CLUSTER
from ridgestream.jobs.commands.inspect import run_inspect
from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.catalog.models import night_tag, read_model, require_model
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.segments.segments import Segments

MODES = ("alone", "cluster", "worker", "scheduler", "experts", "experts-cluster", "experts-worker")
"""Who is killed: a run in one process; a run with workers of its own, all of them; one worker; the scheduler; and the
first three of a run of local experts.
"""

VICTIMS = {"experts": "alone", "experts-cluster": "cluster", "experts-worker": "worker"}
"""The mode of the same victim, of a model with one dictionary."""

MOMENTS = ("time", "call", "request")
"""When it is killed: at a second, at a change of the store's folder, or at a request to its S3-protocol server."""

CHANGES_AS = {"cluster": "alone", "worker": "alone", "scheduler": "alone", "experts-worker": "experts-cluster"}
"""Modes whose runs change the store's folder as often as those of another mode."""

PARTITIONS, ROWS = 20, 100

PROGRAM = """
import sys
import ridgestream.jobs.cli.app
import ridgestream.pipeline.ingest.ingest
import ridgestream.pipeline.training.online.shared_cells as shared_cells
sys.modules["ridgestream.pipeline.ingest.ingest"].TASKS_A_COMMIT = 4
shared_cells.FEWEST_SHARED, shared_cells.STRETCH_ROWS = 0, 400
if __name__ == "__main__":
    ridgestream.jobs.cli.app.main()
"""
"""The command, with few tasks to a commit, and few rows to an exchange of the states of cells, so that there are
several of both; the workers that it starts run this, too.
"""

EVERY_CHECKPOINT = """
import ridgestream.pipeline.training.online.checkpoints as checkpoints
checkpoints.KEEP_SECONDS = checkpoints.COST = 0.0
"""
"""Saves a checkpoint at the end of every partition, as a long training would."""


@dataclass(frozen=True)
class Kill:
    """Who is killed, and when."""

    mode: str
    """One of MODES."""
    moment: str
    """One of MOMENTS."""
    share: float
    """How far the run has come, as a share of what it takes undisturbed: seconds, calls or requests."""
    forward: bool = False
    """Whether the request at which it is killed still reaches the server."""


@dataclass(frozen=True)
class KillResult:
    """The outcome of one kill."""

    kill: Kill
    """Whom to kill, and when."""
    landed: bool
    """Whether there was still something to kill."""
    code: int
    """The exit code of the run."""
    partitions: int
    """Partitions in the store after the kill."""
    models: int
    """Models in the store after the kill."""
    where: str
    """The second, call or request of the kill."""


class Trap(Protocol):
    """A running command that will be struck at some moment."""

    @property
    def calls(self) -> Sequence[str]:
        """The calls or requests counted so far."""

    def wait(self, seconds: float) -> int:
        """Wait for the command's end and return its code."""


class _TimeTrap:
    def __init__(self, command: Sequence[str], kill_at: Strike, at: float, log: Path, environment: Mapping[str, str]):
        self.calls: list[str] = []
        self._began, self._process = monotonic(), start_in_session(command, log, environment)
        self._timer = threading.Timer(at, kill_at, (self._process.pid, 0)) if at else None
        if self._timer:
            self._timer.start()

    def wait(self, seconds: float) -> int:
        code = self._process.wait(seconds)
        if self._timer:
            self._timer.cancel()
            self._timer.join()
        return code


class _RequestTrap:
    def __init__(
        self,
        proxy: FaultyProxy,
        command: Sequence[str],
        kill_at: Strike,
        at: int,
        log: Path,
        environment: Mapping[str, str],
        forward: bool,
    ):
        proxy.arm(Rule("lose" if forward else "drop", at=at, then=lambda: kill_at(self._process.pid, 0)))
        self._proxy, self._process = proxy, start_in_session(command, log, environment)

    @property
    def calls(self) -> list[str]:
        return [request.partition("?")[0] for request in self._proxy.seen]

    def wait(self, seconds: float) -> int:
        return self._process.wait(seconds)


class CrashBench:
    """Twenty partitions, the job over them, and the model of an undisturbed run.

    A `quick` one finishes a killed run by what the command calls, where no worker is part of it, and keeps no
    checkpoints in an object store.
    """

    def __init__(self, folder: Path, server: ObjectStore | None = None, *, quick: bool = False) -> None:
        self._work, self._server, self._quick = Workplace(folder), server, quick
        self._amounts: dict[tuple[str, str], float] = {}
        self._calls: dict[str, list[str]] = {}
        self._stores, self._port, self._cluster = 0, 0, None
        self._stack = ExitStack()
        (folder / "program.py").write_text(PROGRAM)
        (folder / "keeping.py").write_text(EVERY_CHECKPOINT + PROGRAM)
        for number in range(PARTITIONS):
            self._work.put(number, draw_rows(number, ROWS))
        self._undisturbed: dict[bool, dict[str, Any]] = {}

    _cluster: Cluster | None

    def kill_at(self, *kills: Kill) -> Iterator[KillResult]:
        """Kill runs on one new store, one after the other, then let the command finish.

        After each kill the store is looked at; in the end the model is that of the undisturbed run.
        """
        location = self._new_location(kills[0].moment)
        for kill in kills:
            at = kill.share * self.measure(kill)
            yield self._kill_once(kill, location, at if kill.moment == "time" else 1 + int(at))
        self._finish(kills[-1], location)

    def close(self) -> None:
        """End the scheduler and the workers."""
        self._stack.close()

    def _kill_once(self, kill: Kill, location: StoreLocation, at: float) -> KillResult:
        landed: list[int] = []

        def kill_at(process: int, caller: int) -> None:
            with suppress(psutil.NoSuchProcess, ProcessLookupError):
                self._kill(kill.mode, process, caller)
                landed.append(process)

        with self._start(kill, location, at, kill_at) as trap:
            code = trap.wait(2 * PATIENCE)
        goes_on = victim(kill.mode) in ("worker", "scheduler")
        struck = bool(landed) and (goes_on or code != 0)  # a run that has ended takes a signal until it is reaped
        expected = {0, CLUSTER} if goes_on else {-signal.SIGKILL}
        assert code in (expected if struck else {0}), (kill, at, code, self._log(location).read_text())
        where = f"{at:.2f} s" if kill.moment == "time" else next(iter(trap.calls[int(at) - 1 : int(at)]), "")
        return KillResult(kill, struck, code, *self._look(location), where)

    @contextmanager
    def _start(self, kill: Kill, location: StoreLocation, at: float, kill_at: Strike) -> Iterator[Trap]:
        command, log = self._command(kill.mode, location), self._log(location)
        environment = self._environment()
        if kill.moment == "call":
            assert location.folder
            counted = (
                location.folder / "chunks" if victim(kill.mode) == "worker" else location.folder
            )  # the others are the run's
            yield open_trap(command, counted, kill_at, int(at), log, environment)
        elif kill.moment == "time":
            yield _TimeTrap(command, kill_at, at, log, environment)
        else:
            assert self._server
            with faulty_proxy(self._server.port) as proxy:
                yield _RequestTrap(
                    proxy,
                    command,
                    kill_at,
                    int(at),
                    log,
                    environment | object_store_environment(proxy.port),
                    kill.forward,
                )

    def _kill(self, mode: str, process: int, caller: int) -> None:
        """Kill whom the mode names; raise NoSuchProcess if there is nobody any more, or not yet."""
        if victim(mode) in ("alone", "cluster"):
            os.killpg(process, signal.SIGKILL)
        elif victim(mode) == "worker":
            workers = [
                child for child in psutil.Process(process).children() if "spawn_main" in "".join(child.cmdline())
            ]
            if not workers:
                raise psutil.NoSuchProcess(process)
            callers = [worker for worker in workers if caller in {thread.id for thread in worker.threads()}]
            (callers or workers)[0].kill()
        else:
            assert self._cluster
            psutil.Process(self._cluster.scheduler.pid).kill()

    def _finish(self, kill: Kill, location: StoreLocation) -> None:
        """Run the same command again, undisturbed, and compare; then once more, which must change nothing."""
        if not self._quick or victim(kill.mode) != "alone":
            done = run_program(self._command(kill.mode, location), environment=self._environment())
            assert done.code == 0, (kill, done)
        else:
            self._work.run_here(self._settings(location.text, kill.mode))
        assert self._look(location) == (PARTITIONS, 1)
        store = Store.open(location)
        root = store.root()
        record = require_model(root, "model")
        differs = [key for key, value in self.undisturbed(kill.mode).items() if bits_of(record)[key] != value]
        assert differs == [], (kill, differs)
        entries = read_ledger(root).entries
        assert sorted(record.learned) == sorted(entry.segment for entry in entries)
        assert sum(entry.rows for entry in entries) == record.counters["rows_seen"] == PARTITIONS * ROWS
        assert {night_tag("model", night.number) for night in record.history} <= store.tags()

    def _look(self, location: StoreLocation) -> tuple[int, int]:
        """Return how many partitions and models the store has, each of them once; none if it is not there yet."""
        if not Store.exists(location):
            return 0, 0
        inspected = run_inspect(location)
        root = Store.open(location).root()
        ledger, record = read_ledger(root), read_model(root, "model")
        names = [entry.name for entry in ledger.entries]
        assert names == sorted(set(names))
        assert len(inspected["partitions"]) == len(names)
        assert Segments(root).numbers() == sorted(entry.segment for entry in ledger.entries)
        if record is not None:
            assert len(set(record.learned)) == len(record.learned)
            assert record.counters["rows_seen"] == ROWS * len(record.learned)
        return len(names), len(inspected["models"])

    def measure(self, kill: Kill) -> float:
        """Return the seconds, calls or requests of a run that nobody disturbs."""
        if kill.moment == "call":
            chunks = "/chunks/" if victim(kill.mode) == "worker" else ""
            return float(sum(chunks in call for call in self._undisturbed_calls(kill.mode)))
        mode, moment = kill.mode, kill.moment
        if (mode, moment) not in self._amounts:
            location, began = self._new_location(moment), monotonic()
            with self._start(kill, location, 0, lambda *_: None) as trap:
                assert trap.wait(2 * PATIENCE) == 0, self._log(location).read_text()
            self._amounts[mode, moment] = monotonic() - began if moment == "time" else float(len(trap.calls))
        return self._amounts[mode, moment]

    def undisturbed(self, mode: str) -> dict[str, Any]:
        """Return the bits of the model of an undisturbed run; the first time for a mode, carry it out."""
        if has_cells(mode) not in self._undisturbed:
            location = StoreLocation(str(self._work.folder / f"undisturbed-{has_cells(mode)}"))
            self._work.run_here(self._settings(location.text, mode))
            self._undisturbed[has_cells(mode)] = bits_of(require_model(Store.open(location).root(), "model"))
        return self._undisturbed[has_cells(mode)]

    def _undisturbed_calls(self, mode: str) -> Sequence[str]:
        """Return what a run changes in its folder, with or without workers, unless they share its cells."""
        measured = CHANGES_AS.get(mode, mode)
        if measured not in self._calls:
            location, began = self._new_location("call"), monotonic()
            with self._start(Kill(measured, "call", 0.0), location, 0, lambda *_: None) as trap:
                assert trap.wait(2 * PATIENCE) == 0, self._log(location).read_text()
            self._calls[measured] = list(trap.calls)
            self._amounts[measured, "time"] = monotonic() - began
        return self._calls[measured]

    def _command(self, mode: str, location: StoreLocation) -> list[str]:
        address = self._address() if mode == "scheduler" else ""
        cluster = {"alone": "none", "scheduler": address}.get(victim(mode), "local:2")
        job = self._work.job(self._settings(location.text, mode), f"{location.text.rpartition('/')[2]}.toml")
        program = "program.py" if self._quick and location.folder is None else "keeping.py"
        return [sys.executable, str(self._work.folder / program), "run", str(job), "--cluster", cluster]

    def _address(self) -> str:
        """Return the address of a scheduler that lives, the same every time."""
        if self._cluster is None or self._cluster.scheduler.poll() is not None:
            self._stack.close()
            cluster = real_cluster(self._work.folder, 2, port=self._port)
            self._cluster = self._stack.enter_context(cluster)
            self._port = int(self._cluster.address.rpartition(":")[2])
        return self._cluster.address

    def _environment(self) -> dict[str, str]:
        """Return the environment of commands: with the server, and little patience with a scheduler that is gone."""
        server = self._server.environment if self._server else {}
        return clean_environment(**server, DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT="5s")

    def _new_location(self, moment: str) -> StoreLocation:
        self._stores += 1
        name = f"store-{self._stores}"
        if moment == "request":
            assert self._server
            return StoreLocation(self._server.location(name))
        return StoreLocation(str(self._work.folder / name))

    @staticmethod
    def _settings(store: str, mode: str) -> dict[str, str | int | None]:
        small = {"model.max_basis": 10, "model.scaling_rows": ROWS}
        cells = {"model.experts": 4, "model.metric_options.rows": ROWS} if has_cells(mode) else {}
        return {"store": store, "evaluate.path": None, "cluster_seconds": 20, **small, **cells}

    def _log(self, location: StoreLocation) -> Path:
        return self._work.folder / f"log-{location.text.rpartition('/')[2]}"


def victim(mode: str) -> str:
    """Return the mode of the same victim, of a model with one dictionary."""
    return VICTIMS.get(mode, mode)


def has_cells(mode: str) -> bool:
    """Return whether the model of a mode has local experts."""
    return mode in VICTIMS


def spread(mode: str, moment: str, count: int, seed: int = 0, until: float = 1.0) -> list[Kill]:
    """Return kills at moments drawn from as many equal parts of a run, up to the share `until` of it."""
    shares = (np.arange(count) + np.random.default_rng(seed).uniform(size=count)) / count * until
    return [Kill(mode, moment, share, forward=bool(i % 2)) for i, share in enumerate(shares.tolist())]


def kill_all(bench: CrashBench, series: Sequence[Sequence[Kill]], at_once: int = 1) -> list[KillResult]:
    """Strike each series on a store of its own, several at once, and return the outcomes of all kills."""
    for kills in series:
        bench.measure(kills[0])
        bench.undisturbed(kills[0].mode)
    with ThreadPoolExecutor(at_once) as threads:
        return [
            result for results in threads.map(lambda kills: list(bench.kill_at(*kills)), series) for result in results
        ]


@contextmanager
def crash_bench(folder: Path, server: ObjectStore | None = None, *, quick: bool = False) -> Iterator[CrashBench]:
    """Open a bench; end its scheduler and workers at the end."""
    bench = CrashBench(folder, server, quick=quick)
    try:
        yield bench
    finally:
        bench.close()
