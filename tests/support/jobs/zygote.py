"""Commands in a process of their own each, without the second that imports take: forked from one that has made them.

`Zygote` starts this file as a program. It imports the command, starts no thread, and forks for every command that it is
sent; a child may be killed with −9 as it enters its n-th call of a function of the stores.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

KILLED = -signal.SIGKILL


class Zygote:
    """Runs commands; close it when done."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def start(self, log: Path, *arguments: str | Path, die_at: int | None = None) -> int:
        """Start a command with its output in the file `log`; return its process number."""
        return int(self._ask({"start": [str(a) for a in arguments], "log": str(log), "die_at": die_at}))

    def wait(self, process: int) -> int:
        """Return the exit code of a command, or minus the signal that ended it."""
        return int(self._ask({"wait": process}))

    def run(self, log: Path, *arguments: str | Path, die_at: int | None = None) -> int:
        """Run a command to its end and return its exit code."""
        return self.wait(self.start(log, *arguments, die_at=die_at))

    def close(self) -> None:
        self._process.communicate(timeout=60)

    def _ask(self, request: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()


def _serve() -> None:
    import ridgestream.jobs.commands.run
    import ridgestream.jobs.commands.train  # noqa: F401
    from ridgestream.jobs.cli import app as cli

    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])
        else:
            answer = os.fork()
            if not answer:
                _become(request["start"], request["log"])
                if request["die_at"] is not None:
                    _die_at(request["die_at"])
                cli.main()
        print(answer, flush=True)  # noqa: T201


def _become(arguments: list[str], log: str) -> None:
    sys.argv = ["ridgestream", *arguments]
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(nothing, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)


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
