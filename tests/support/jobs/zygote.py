"""Runs each command in a process of its own, without the seconds for imports and for loading compiled code.

`Zygote` starts this file as a program. It imports the command, loads the compiled learner, starts no thread of its own,
and forks for every command that it is sent. A child may be killed with −9 as it enters its n-th call of a function of
the stores.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

KILLED = -signal.SIGKILL

RUNTIME_PREFIXES = ("RIDGESTREAM_", "AWS_", "PYTEST_")
"""Variables that are read when a command runs. All others may have been read by the imports before."""

_FORKABLE = ("icechunk",) if version("icechunk").startswith("1.") else ()
"""Icechunk 2 starts threads as it is imported, which a fork does not have."""

MODULES = (
    *_FORKABLE,
    *("pandas", "pyarrow.compute", "rich.table", "structlog", "zarr"),
    *(f"ridgestream.jobs.commands.{name}" for name in ("evaluate", "history", "inspect", "plan", "predict", "run")),
    *(f"ridgestream.jobs.{name}" for name in ("cli.exit_codes", "cli.signals", "console.progress")),
    *("ridgestream.jobs.cluster.dask_executor", "ridgestream.jobs.report.report_files"),
)
"""The modules that commands import, some of them lazily."""


class Zygote:
    """Runs commands; close it when done."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a command in this environment may be forked: it differs in what is read at run time only."""
        differences = environment.items() ^ self._environment.items()
        return all(name.startswith(RUNTIME_PREFIXES) for name, _ in differences)

    def start(
        self,
        log: Path,
        *arguments: str | Path,
        die_at: int | None = None,
        out: Path | None = None,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        setup: str = "",
    ) -> int:
        """Start a command with its output in the file `log`; return its process number.

        Standard output goes to `out`, if that is given; `setup` is Python that its process runs first.
        """
        request = {
            "start": [str(a) for a in arguments],
            "err": str(log),
            "out": str(out or log),
            "die_at": die_at,
            "environment": dict(environment) if environment else None,
            "cwd": str(cwd or Path.cwd()),
            "setup": setup,
        }
        return int(self._ask(request))

    def wait(self, process: int) -> int:
        """Return the exit code of a command, or minus the signal that ended it."""
        return int(self._ask({"wait": process}))

    def run(self, log: Path, *arguments: str | Path, **more: Any) -> int:
        """Run a command to its end and return its exit code; the rest as for `start`."""
        return self.wait(self.start(log, *arguments, **more))

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _ask(self, request: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def _serve() -> None:
    from ridgestream.jobs.cli import app as cli

    _load()
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                _become(request)
                if request["die_at"] is not None:
                    _die_at(request["die_at"])
                exec(request["setup"], {"__name__": "__main__"})  # noqa: S102
                cli.main()
        print(answer, flush=True)  # noqa: T201


def _load() -> None:
    """Import what commands import, and load the compiled learner."""
    for module in MODULES:
        import_module(module)

    from ridgestream import RBF, OnlineLSSVM

    rows = np.random.default_rng(0).normal(size=(16, 2))
    OnlineLSSVM(RBF(1.0), max_basis=4).partial_fit(rows, rows[:, :1])


def _become(request: dict[str, Any]) -> None:
    sys.argv = ["ridgestream", *request["start"]]
    os.chdir(request["cwd"])
    if request["environment"] is not None:
        os.environ.clear()
        os.environ.update(request["environment"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for path, stream in ((request["out"], 1), (request["err"], 2)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666), stream)


def _die_at(call: int) -> None:
    """Arrange that the process kills itself as it makes its n-th call of a function of the stores."""
    left = [call]

    def count(frame: FrameType, event: str, argument: object) -> None:  # noqa: ARG001
        if event == "call" and "/ridgestream/stores/" in frame.f_code.co_filename:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(count)


if __name__ == "__main__":
    _serve()
