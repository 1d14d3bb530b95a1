"""How a command ends: normally, by an error, by a signal, or because nothing moves; with one message and exit code."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import typer

from ridgestream.jobs.console.log_format import Log, guess_log, write_end

if TYPE_CHECKING:
    from ridgestream.jobs.cli.signals import SignalHandler
    from ridgestream.jobs.cli.watchdog import Watchdog


OUTPUT_CLOSED = 128 + signal.SIGPIPE
"""The exit code when the reader of standard output has gone, as shells report it for any other program."""


@dataclass
class ExitHandler:
    """Ends the command, with a message in the format of the log."""

    grace_seconds: float
    """How long a run may go on after a signal, to the end of a piece of work."""
    log: Log
    """The format of the last message."""
    signals: "SignalHandler" = field(init=False)
    """What has been signalled."""
    watchdog: "Watchdog | None" = None
    """Checks that something moves."""
    at_exit: Callable[[int, bool], None] | None = None
    """Called once with the exit code, and whether there is time left to read the store."""

    def __post_init__(self) -> None:
        from ridgestream.jobs.cli.signals import SignalHandler

        self.signals = SignalHandler(self.grace_seconds, self.end_at_once)

    def watch(self, stall_seconds: float | None = None) -> None:
        """End the process from now on if nothing moves for so long."""
        from ridgestream.jobs.cli.exit_codes import STORE
        from ridgestream.jobs.cli.watchdog import STALL_SECONDS, Watchdog

        self.close()
        self.watchdog = Watchdog(
            stall_seconds or STALL_SECONDS, lambda message: self.signals.exit_now(message, STORE, "Stalled")
        )

    def close(self) -> None:
        """Stop the watchdog."""
        if self.watchdog is not None:
            self.watchdog.close()

    def exit_for_signal(self, number: int) -> NoReturn:
        """Exit because of a signal."""
        from ridgestream.jobs.cli.signals import name_of

        message = f"{name_of(number)}; the last commit stands, and the same command goes on from there"
        self.exit(message, 128 + number, "Stopped")

    def exit(self, message: str, code: int, kind: str) -> NoReturn:
        """Write the reason, and exit with the code; `kind` is the class of the error."""
        _silence_pending_tasks()
        end_log(self.log, message, code, kind=kind)
        self.finish(code)
        raise typer.Exit(code)

    def finish(self, code: int, *, has_time: bool = True) -> None:
        """Call what is to be called at the end, once."""
        call, self.at_exit = self.at_exit, None
        if call is not None:
            call(code, has_time)

    def end_at_once(self, message: str, code: int, kind: str) -> None:
        """Write the reason of an end that leaves no time for anything else."""
        end_log(self.log, message, code, kind=kind)
        self.finish(code, has_time=False)


@contextmanager
def orderly_exit(grace_seconds: float = 0.0) -> Iterator[ExitHandler]:
    """Turn errors and signals into one message on standard error and an exit code; what was committed before stands.

    After a signal, a run may continue for `grace_seconds`, to the end of a piece of work.
    """
    from ridgestream.jobs.cli.exit_codes import CLUSTER, UNEXPECTED, exit_code_of
    from ridgestream.pipeline.base.reporter import Stopped

    handler = ExitHandler(grace_seconds, guess_log(sys.argv[1:], os.environ))
    signals = handler.signals
    try:
        with signals.installed():
            yield handler
        sys.stdout.flush()
        handler.finish(0)
    except Stopped as stopped:
        handler.exit_for_signal(stopped.number)
    except typer.Exit:
        raise
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _is_output_closed():
            handler.finish(OUTPUT_CLOSED)
            raise typer.Exit(OUTPUT_CLOSED) from error
        code = exit_code_of(error)
        if code == CLUSTER and signals.number:  # local workers may have received the signal, too
            handler.exit_for_signal(signals.number)
        if code != UNEXPECTED:
            handler.exit(str(error), code, type(error).__name__)
        if handler.log == "json":
            end_log("json", unexpected(error), code, error)
        handler.finish(code)
        if handler.log == "json":
            raise typer.Exit(code) from error
        raise
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


def end_log(log: Log, message: str, code: int, error: BaseException | None = None, *, kind: str | None = None) -> None:
    """Write why a command ends, with the event of its exit code, and with a traceback where an error is given."""
    from ridgestream.jobs.cli.exit_codes import event_of

    write_end(log, event_of(code), message, code, error, kind=kind)


def unexpected(error: BaseException) -> str:
    """Return the message for an error that has no exit code of its own."""
    return f"unexpected: {type(error).__name__}: {error}"


def _silence_pending_tasks() -> None:
    """Keep asyncio from printing a page about each of Zarr's reads and writes that is unfinished or failed too."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
