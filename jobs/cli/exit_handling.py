"""How a command ends: normally, by an error, by a signal, or by a silent server; with one message and an exit code."""

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
    from ridgestream.jobs.cli.server_watchdog import ServerWatchdog
    from ridgestream.jobs.cli.signals import SignalHandler
    from ridgestream.stores.repository.store_location import StoreLocation


OUTPUT_CLOSED = 128 + signal.SIGPIPE
"""The exit code when the reader of standard output has gone, as shells report it for any other program."""


@dataclass
class ExitHandler:
    """Ends the command, with a message in the format of the log."""

    signals: "SignalHandler"
    """What has been signalled."""
    log: Log
    """The format of the last message."""
    watchdog: "ServerWatchdog | None" = None
    """Checks that the store's server answers."""

    def watch(self, location: "StoreLocation") -> None:
        """Check from now on that the server of a store answers, and end the process if it does not."""
        from ridgestream.jobs.cli.exit_codes import STORE
        from ridgestream.jobs.cli.server_watchdog import ServerWatchdog

        self.watchdog = ServerWatchdog(
            location, lambda: self.signals.checked_at, lambda message: self.signals.exit_now(message, STORE)
        )

    def close(self) -> None:
        """Stop the watchdog."""
        if self.watchdog is not None:
            self.watchdog.close()

    def exit_for_signal(self, number: int) -> NoReturn:
        """Exit because of a signal."""
        from ridgestream.jobs.cli.signals import name_of

        message = f"{name_of(number)}; the last commit stands, and the same command goes on from there"
        self.exit(message, 128 + number)

    def exit(self, message: str, code: int) -> NoReturn:
        """Write the reason, and exit with the code."""
        _silence_pending_tasks()
        end_log(self.log, message, code)
        raise typer.Exit(code)


@contextmanager
def orderly_exit(grace_seconds: float = 0.0) -> Iterator[ExitHandler]:
    """Turn errors and signals into one message on standard error and an exit code; what was committed before stands.

    After a signal, a run may continue for `grace_seconds`, to the end of a piece of work.
    """
    from ridgestream.jobs.cli.exit_codes import CLUSTER, UNEXPECTED, exit_code_of
    from ridgestream.jobs.cli.signals import SignalHandler
    from ridgestream.pipeline.base.reporter import Stopped

    signals = SignalHandler(grace_seconds, lambda message, code: end_log(handler.log, message, code))
    handler = ExitHandler(signals, guess_log(sys.argv[1:], os.environ))
    try:
        with signals.installed():
            yield handler
        sys.stdout.flush()
    except Stopped as stopped:
        handler.exit_for_signal(stopped.number)
    except typer.Exit:
        raise
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _is_output_closed():
            raise typer.Exit(OUTPUT_CLOSED) from error
        code = exit_code_of(error)
        if code == CLUSTER and signals.number:  # local workers may have received the signal, too
            handler.exit_for_signal(signals.number)
        if code == UNEXPECTED and handler.log != "json":
            raise
        if code == UNEXPECTED:
            end_log("json", unexpected(error), code, error)
            raise typer.Exit(code) from error
        handler.exit(str(error), code)
    finally:
        handler.close()


def _is_output_closed() -> bool:
    """Return whether the reader of standard output has gone, as with `| head`; further output is then discarded."""
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
    """Return the message for an error that has no exit code of its own."""
    return f"unexpected: {type(error).__name__}: {error}"


def _silence_pending_tasks() -> None:
    """Keep asyncio from printing a page about each of Zarr's reads and writes that is unfinished or failed too."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
