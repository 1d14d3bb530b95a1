"""How a command ends: normally, by an error, by a signal, or because nothing moves; with one message and exit code."""

import errno
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

import typer

from ridgestream.jobs.cli.interpreter import check_process, keep_modules
from ridgestream.jobs.console.log_format import Log, guess_log, write_end
from ridgestream.jobs.console.standard_streams import lost_output

if TYPE_CHECKING:
    from ridgestream.jobs.cli.signals import SignalHandler
    from ridgestream.jobs.cli.watchdog import Watchdog

STALL_REPORT_SECONDS = 10.0
"""How long writing the report of a run in which nothing moves may take."""


@dataclass
class ExitHandler:
    """Ends the command, with a message in the format of the log."""

    grace_seconds: float
    """How long a run may continue after a signal, to the end of a piece of work."""
    log: Log
    """The format of the last message."""
    signals: "SignalHandler" = field(init=False)
    """What has been signalled."""
    watchdog: "Watchdog | None" = None
    """Checks that something moves."""
    output_wanted: bool = False
    """Whether the command is for its output: JSON was asked for, or the command only shows something."""
    at_exit: Callable[[int, bool], None] | None = None
    """Called once with the exit code, and whether there is time left to read the store."""
    at_stall: Callable[[str], None] | None = None
    """Called with the reason before the process is ended because nothing moves; it has STALL_REPORT_SECONDS."""

    def __post_init__(self) -> None:
        from ridgestream.jobs.cli.signals import SignalHandler

        self.signals = SignalHandler(self.grace_seconds, self.end_at_once)

    def watch(self, stall_seconds: float | None = None) -> None:
        """End the process from now on if nothing moves for so long."""
        from ridgestream.jobs.cli.watchdog import STALL_SECONDS, Watchdog

        self.close()
        self.watchdog = Watchdog(stall_seconds or STALL_SECONDS, self._end_stalled)

    def _end_stalled(self, message: str) -> NoReturn:
        """End the process, whatever its threads are doing; what reports the reason may wait for the same disk."""
        from ridgestream.jobs.cli.exit_codes import STORE

        if self.at_stall is not None:
            reporting = threading.Thread(target=self.at_stall, args=(message,), name="ridgestream-stall", daemon=True)
            reporting.start()
            reporting.join(STALL_REPORT_SECONDS)
        self.signals.exit_now(message, STORE, "Stalled")

    def close(self) -> None:
        """Stop the watchdog."""
        if self.watchdog is not None:
            self.watchdog.close()

    def exit_for_signal(self, number: int) -> NoReturn:
        """Exit because of a signal."""
        from ridgestream.jobs.cli.signals import name_of

        message = f"{name_of(number)}; the last commit stands, and the same command continues from there"
        self.exit(message, 128 + number, "Stopped")

    def check_output(self) -> None:
        """Exit with a code of its own if output that was wanted could not be written; the work is done all the same."""
        from ridgestream.jobs.cli.exit_codes import OUTPUT_LOST, OUTPUT_UNREAD

        failure = lost_output() if self.output_wanted else None
        if failure is None:
            return
        if failure.errno == errno.EPIPE:
            self.finish(OUTPUT_UNREAD)
            raise typer.Exit(OUTPUT_UNREAD)
        message = f"the command is done, but its output could not be written: {failure.strerror}"
        self.exit(message, OUTPUT_LOST, type(failure).__name__)

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
    from ridgestream.stores.errors.zarr_settings import use_zarr_defaults

    keep_modules()
    handler = ExitHandler(grace_seconds, guess_log(sys.argv[1:], os.environ))
    signals = handler.signals
    try:
        with signals.installed():
            use_zarr_defaults()
            yield handler
        handler.check_output()
        handler.finish(0)
    except Stopped as stopped:
        handler.exit_for_signal(stopped.number)
    except typer.Exit:
        raise
    except Exception as error:
        code = exit_code_of(error)
        if code == CLUSTER and signals.number:  # local workers may have received the signal, too
            handler.exit_for_signal(signals.number)
        if code != UNEXPECTED:
            handler.exit(message_of(error), code, type(error).__name__)
        end_log(handler.log, unexpected(error), code, error)
        handler.finish(code)
        raise typer.Exit(code) from error
    finally:
        handler.close()


@contextmanager
def last_resort() -> Iterator[None]:
    """End the command with message and exit code for an error outside `orderly_exit`, or in a process that is unfit.

    No other error reaches Click, which takes an EOFError for a user at a terminal and prints nothing but "Aborted.",
    and ends without a word for a pipe that broke anywhere.
    """
    try:
        check_process()
        yield
    except typer.Exit:
        raise
    except Exception as error:
        from ridgestream.jobs.cli.exit_codes import UNEXPECTED, exit_code_of

        code, log = exit_code_of(error), guess_log(sys.argv[1:], os.environ)
        if code == UNEXPECTED:
            end_log(log, unexpected(error), code, error)
        else:
            end_log(log, message_of(error), code, kind=type(error).__name__)
        raise typer.Exit(code) from error


def end_log(log: Log, message: str, code: int, error: BaseException | None = None, *, kind: str | None = None) -> None:
    """Write why a command ends, with the event of its exit code, and with a traceback where an error is given."""
    from ridgestream.jobs.cli.exit_codes import event_of

    write_end(log, event_of(code), message, code, error, kind=kind)


def message_of(error: BaseException) -> str:
    """Return the message for an error that has an exit code; a library's MemoryError says little by itself."""
    from ridgestream.pipeline.base.errors import MemoryRefused
    from ridgestream.stores.errors.exhaustion import is_exhausted

    if isinstance(error, MemoryRefused) or not is_exhausted(error):
        return str(error)
    detail = f": {error}" if str(error) else ""
    return (
        f"the process gets no more memory, or no more threads{detail}; give it more (a larger machine or container, "
        "ulimit -v, ulimit -u), or lower what the job needs, such as max_basis; the last commit stands, and the same "
        "command continues from there"
    )


def unexpected(error: BaseException) -> str:
    """Return the message for an error that has no exit code of its own."""
    return f"unexpected: {type(error).__name__}: {error}"


def _silence_pending_tasks() -> None:
    """Keep asyncio from printing a page about each of Zarr's reads and writes that is unfinished or failed too."""
    logging.getLogger("asyncio").setLevel(logging.CRITICAL + 1)
