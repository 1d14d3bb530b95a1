"""How a command ends: by itself, by an error, by a signal, or where a server is silent; in a word and a code."""

import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import typer

from ridgestream.jobs.console.log_format import Log, guess_log, write_end

if TYPE_CHECKING:
    from ridgestream.jobs.cli.server_watchdog import ServerWatch
    from ridgestream.jobs.cli.signals import Stopping
    from ridgestream.stores.repository.store_location import StoreLocation


UNREAD = 128 + signal.SIGPIPE
"""The exit code where what read standard output has gone, as the shell tells it of any other program."""


@dataclass
class Leaving:
    """How a command ends."""

    stopping: "Stopping"
    """Whether it has been asked to."""
    log: Log
    """How its last word is written."""
    watched: "ServerWatch | None" = None
    """What sees that the store's server answers."""

    def watch(self, location: "StoreLocation") -> None:
        """See from now on that the server of a store answers, and leave where it does not."""
        from ridgestream.jobs.cli.exit_codes import STORE
        from ridgestream.jobs.cli.server_watchdog import ServerWatch

        self.watched = ServerWatch(
            location, lambda: self.stopping.checked_at, lambda message: self.stopping.leave_now(message, STORE)
        )

    def close(self) -> None:
        """Look after nothing any more."""
        if self.watched is not None:
            self.watched.close()

    def stopped(self, number: int) -> NoReturn:
        """Leave because of a signal."""
        from ridgestream.jobs.cli.signals import name_of

        message = f"{name_of(number)}; the last commit stands, and the same command goes on from there"
        self.leave(message, 128 + number)

    def leave(self, message: str, code: int) -> NoReturn:
        """Say why, and leave with the exit code."""
        _forget_pending_tasks()
        end_log(self.log, message, code)
        raise typer.Exit(code)


@contextmanager
def orderly_exit(patient_seconds: float = 0.0) -> Iterator[Leaving]:
    """Turn errors and signals into one message on standard error and an exit code; what was committed before stands.

    A run may go on for so long after a signal, to the end of a piece of work.
    """
    from ridgestream.jobs.cli.exit_codes import CLUSTER, UNEXPECTED, exit_code_of
    from ridgestream.jobs.cli.signals import Stopping
    from ridgestream.pipeline.base.reporter import Stopped

    stopping = Stopping(patient_seconds, lambda message, code: end_log(leaving.log, message, code))
    leaving = Leaving(stopping, guess_log(sys.argv[1:], os.environ))
    try:
        with stopping.watching():
            yield leaving
        sys.stdout.flush()
    except Stopped as stopped:
        leaving.stopped(stopped.number)
    except typer.Exit:
        raise
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            raise typer.Exit(UNREAD) from error
        code = exit_code_of(error)
        if code == CLUSTER and stopping.number:  # which local workers may have heard, too
            leaving.stopped(stopping.number)
        if code == UNEXPECTED and leaving.log != "json":
            raise
        if code == UNEXPECTED:
            end_log("json", unexpected(error), code, error)
            raise typer.Exit(code) from error
        leaving.leave(str(error), code)
    finally:
        leaving.close()


def _nobody_reads() -> bool:
    """Tell whether what reads standard output has gone, as `| head` does; then what is left to say goes nowhere."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False


def end_log(log: Log, message: str, code: int, error: BaseException | None = None) -> None:
    """Write why a command ends, with the event of its exit code, and with a traceback where an error is given."""
    from ridgestream.jobs.cli.exit_codes import event_of

    write_end(log, event_of(code), message, code, error)


def unexpected(error: BaseException) -> str:
    """Return what is said of an error that nobody has foreseen."""
    return f"unexpected: {type(error).__name__}: {error}"


def _forget_pending_tasks() -> None:
    """Keep asyncio from a page about each of Zarr's reads and writes that was left unfinished, or failed too."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
