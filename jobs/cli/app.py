"""The command `ridgestream`. What a command does is imported when it runs, so that help and completion are quick."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Annotated, NoReturn
from uuid import uuid4

import typer

from ridgestream import __version__
from ridgestream.jobs.cli import draft_commands, run_commands, store_commands
from ridgestream.jobs.cli.exit_handling import end_log, unexpected
from ridgestream.jobs.cli.interpreter import prepare_process
from ridgestream.jobs.cli.options import expand_options
from ridgestream.jobs.console.log_format import describe_run, guess_log, write_end
from ridgestream.jobs.console.standard_streams import open_standard_streams
from ridgestream.pipeline.base import events

NAME = "ridgestream"

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Stream Parquet partitions through chunked Zarr storage into sparse kernel least-squares models.",
    epilog="Exit codes: 0 done, 1 unexpected, 2 usage or job file, 3 input data, 4 store, 5 store in use, 6 numerics, "
    "7 memory, 8 cluster, 9 model, 11 held back by the guard, 12 committed, but without its report, "
    "of status alone: 13 feed stopped, 14 last night failed, 15 drift, 17 quality; "
    "16 done, but the output could not be written, 130 interrupted, 141 done, but nobody read the output, "
    "143 terminated.",
)

app.command()(draft_commands.init)
for _command in (
    run_commands.run,
    run_commands.plan,
    run_commands.select,
    run_commands.ingest,
    run_commands.train,
    run_commands.evaluate,
    run_commands.predict,
    store_commands.status,
    store_commands.inspect,
    store_commands.history,
    store_commands.report,
    store_commands.tag,
    store_commands.rollback,
    store_commands.quarantine,
    store_commands.accept,
    store_commands.clean,
    store_commands.export,
):
    app.command()(expand_options(_command))
app.command()(draft_commands.schema)
app.command()(store_commands.warm)
app.command()(store_commands.reproduce)


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        typer.echo(__version__)
        raise typer.Exit


def main() -> NoReturn:
    """Run the command line, then end the process at once, without the interpreter's shutdown.

    Threads of the storage engine may be about to enter Python when that begins; CPython up to 3.13 ends such threads in
    a way that aborts the process, after all is done and committed, and a scheduler would see a failed job.
    """
    open_standard_streams()
    for number in (signal.SIGTERM, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit_at_once)  # until a command handles them
    prepare_process()
    code = _run_app()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _exit_at_once(number: int, _: object) -> NoReturn:
    """End the process because of a signal before there is anything to keep."""
    event = events.EXIT_TERMINATED if number == signal.SIGTERM else events.EXIT_INTERRUPTED
    write_end(
        guess_log(sys.argv[1:], os.environ), event, f"{event.sentence}, before it began", 128 + number, kind="Stopped"
    )
    os._exit(128 + number)


def _run_app() -> int:
    as_json = guess_log(sys.argv[1:], os.environ) == "json"
    describe_run(run=uuid4().hex)
    try:
        code = app(prog_name=NAME, standalone_mode=not as_json)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException as error:  # noqa: BLE001
        if as_json:
            return _log_failure(error)
        end_log("text", "", 1, error)
        return 1
    return code if isinstance(code, int) else 0


def _log_failure(error: BaseException) -> int:
    """Write a usage error or an unexpected error as a line of JSON, and return the exit code."""
    format_message: Callable[[], str] | None = getattr(error, "format_message", None)
    if format_message is None:
        end_log("json", unexpected(error), 1, error)
        return 1
    code = int(getattr(error, "exit_code", 1))
    message = format_message() or "give a command; --help lists them"
    end_log("json", message, code, kind=type(error).__name__)
    return code
