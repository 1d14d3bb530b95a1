"""What a command prints on standard output when it is done: one JSON object, or a line for each value."""

import json
from typing import Any

import typer

from ridgestream.jobs.console.escaping import harmless_cells
from ridgestream.jobs.console.log_format import Log, json_line
from ridgestream.pipeline.base import events

_DIGITS = 6
"""Significant digits of a number that a person reads; JSON has all."""

_UNPRINTED = {"by_class", "probabilities.reliability"}
"""What is printed with the confusion, or only in reports."""


def print_result(result: dict[str, Any], *, as_json: bool, log: Log = "auto") -> None:
    """Print the result of a command; where the log is JSON, as one more line of that kind."""
    if log == "json":
        typer.echo(json_line("info", events.COMMAND_RESULT.code, events.COMMAND_RESULT.sentence, **result))
    elif as_json:
        typer.echo(json.dumps(result))
    else:
        _print_lines(harmless_cells(result))


def _print_lines(result: dict[str, Any]) -> None:
    for key, value in result.items():
        if key == "confusion":
            _print_confusion(value)
        elif isinstance(value, dict):
            _print_lines({f"{key}.{name}": part for name, part in value.items()})
        elif value is not None and key not in _UNPRINTED:
            typer.echo(f"{key:>20}  {_format(value)}")


def _format(value: Any) -> str:  # noqa: ANN401
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_format, value)) or "none"
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _print_confusion(confusion: dict[str, Any]) -> None:
    from ridgestream.jobs.console.confusion_table import print_confusion
    from ridgestream.jobs.console.tables import open_console

    print_confusion(open_console(), confusion)
