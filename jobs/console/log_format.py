"""The log of a long command on standard error: one line for each event, as text for people or as JSON for programs.

A line of JSON has `timestamp` (ISO 8601, UTC), `level` (info, warning, error), `event` (a code that stays as it is from
release to release) and `message` (a sentence for people), then `run` (an id of this run of the command), `store`,
`model` and `night` (null until they are known); what else is known are further keys. The last line of a command that
failed is of level error and has its `exit_code` and the `kind` of the error.
"""

import json
import logging
import math
import sys
import traceback
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from ridgestream.jobs.console.escaping import harmless
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.events import Event
from ridgestream.stores.files.credentials import hide_secrets, without_secrets

Log = Literal["auto", "text", "json"]
"""How a long command shows its progress: bars on a terminal and text elsewhere (auto), text, or JSON."""

LOGS: tuple[Log, ...] = ("auto", "text", "json")


def guess_log(arguments: Sequence[str], environment: Mapping[str, str]) -> Log:
    """Return the log that the flags or the environment ask for, before a job file is read."""
    given = environment.get("RIDGESTREAM_LOG", "auto")
    for flag, following in zip(arguments, [*arguments[1:], ""], strict=False):
        if flag == "--log":
            given = following
        elif flag.startswith("--log="):
            given = flag.removeprefix("--log=")
    return next((log for log in LOGS if log == given), "auto")


_run: dict[str, Any] = {"run": None, "store": None, "model": None, "night": None}
"""What each line of JSON of this process says about its run."""


def describe_run(**facts: Any) -> None:  # noqa: ANN401
    """Say these facts in each further line of JSON: `run`, `store`, `model` or `night`."""
    _run.update(facts)


def json_line(level: str, event: str, message: str, **facts: Any) -> str:  # noqa: ANN401
    """Return a line of JSON; values that JSON does not know are written as text."""
    timestamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = {"timestamp": timestamp, "level": level, "event": event, "message": message, **_run, **facts}
    return json.dumps(hide_secrets(finite(line)), default=str)


def write_json(level: str, event: str, message: str, **facts: Any) -> None:  # noqa: ANN401
    """Write a line of JSON on standard error."""
    print(json_line(level, event, message, **facts), file=sys.stderr, flush=True)  # noqa: T201


def write_end(
    log: Log, event: Event, message: str, code: int, error: BaseException | None = None, *, kind: str | None = None
) -> None:
    """Write why a command ends, with a traceback where an error is given; `kind` is the class of what it ends by."""
    trace = _traceback(error)
    if log == "json":
        kind = type(error).__name__ if error is not None else kind
        write_json("error", event.code, message or event.sentence, exit_code=code, kind=kind, **trace)
    else:
        text = trace.get("traceback", f"ridgestream: {message}")
        print(harmless(without_secrets(text)), file=sys.stderr, flush=True)  # noqa: T201


def _traceback(error: BaseException | None) -> dict[str, str]:
    return {} if error is None else {"traceback": "".join(traceback.format_exception(error))}


def route_libraries() -> None:
    """Write warnings, and what libraries log, as lines of JSON too; call it again after a library sets up its log."""
    logging.captureWarnings(capture=True)
    handler = _AsJson(logging.WARNING)
    loggers = [logging.getLogger(), *map(logging.getLogger, ("distributed", "distributed.client", "bokeh", "tornado"))]
    for logger in loggers:
        if logger.handlers or logger.parent is None:
            logger.handlers = [handler]


class _AsJson(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        failed = record.levelno >= logging.ERROR
        error = record.exc_info[1] if record.exc_info else None
        message = record.getMessage().strip() or (f"{type(error).__name__}: {error}" if error is not None else "")
        if message:
            level, event = ("error", events.LIBRARY_FAILED) if failed else ("warning", events.LIBRARY_WARNED)
            write_json(level, event.code, message, logger=record.name, **_traceback(error))


def finite(plain: Any) -> Any:  # noqa: ANN401
    """Return plain JSON with None for NaN and infinite numbers."""
    if isinstance(plain, float):
        return plain if math.isfinite(plain) else None
    if isinstance(plain, dict):
        return {key: finite(value) for key, value in plain.items()}
    return [finite(part) for part in plain] if isinstance(plain, list | tuple) else plain
