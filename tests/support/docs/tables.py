"""The parts of pages that the code writes; `PYTHONPATH=tests python -m support.docs.tables` writes them again."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from ridgestream.jobs.cli.app import app
from ridgestream.jobs.config.reference import Entry, list_keys
from ridgestream.jobs.drafts.schema import schema_text
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.events import Event

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
BEGIN = "<!-- Written by tests/support/docs/tables.py: change the code, and run it. -->\n"


def job_file_keys() -> Iterator[str]:
    """The keys of a job file, a table for each section."""
    sections: dict[str, list[Entry]] = {}
    for entry in list_keys():
        sections.setdefault(entry.key.rpartition(".")[0], []).append(entry)
    for section, entries in sections.items():
        yield f"\n## `[{section}]`\n\n" if section else "\n## Above all sections\n\n"
        yield from _table("key", "value", "default", "meaning")
        for entry in entries:
            yield _row(f"`{entry.key.rpartition('.')[2]}`", entry.type, _default(entry), entry.sentence)


def _default(entry: Entry) -> str:
    if entry.is_required:
        return "required"
    return "" if entry.default in (None, []) else f"`{json.dumps(entry.default)}`"


def event_codes() -> Iterator[str]:
    """The events that are logged, a table for each subject."""
    found = (value for value in vars(events).values() if isinstance(value, Event))
    for subject, those in groupby(sorted(found, key=lambda event: event.code), key=lambda e: e.code.partition(".")[0]):
        yield f"\n## {subject}\n\n"
        yield from _table("event", "message", "")
        for event in those:
            yield _row(f"`{event.code}`", event.sentence, "look" if event.casts_doubt else "")


def commands() -> Iterator[str]:
    """The commands with their arguments and options."""
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        yield f"\n## {name}\n\n{command.help}\n\n"
        yield from _table("argument or option", "meaning")
        for parameter in command.params:
            yield _row(f"`{_written(parameter)}`", getattr(parameter, "help", None) or "")


def _written(parameter: Any) -> str:
    """How a parameter is written on the command line."""
    if parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name)
    return "/".join([*parameter.opts, *parameter.secondary_opts]) + f" {parameter.metavar}" * bool(parameter.metavar)


def _table(*heads: str) -> Iterator[str]:
    yield _row(*heads)
    yield "|---" * len(heads) + "|\n"


def _row(*cells: str) -> str:
    return "| " + " | ".join(re.sub(r"([*|])", r"\\\1", " ".join(cell.split())) for cell in cells) + " |\n"


TABLES: dict[Path, Callable[[], Iterator[str]]] = {
    REFERENCE / "job-file.md": job_file_keys,
    REFERENCE / "events.md": event_codes,
    REFERENCE / "commands.md": commands,
}


def with_table(page: Path) -> str:
    """The text of the page with its table as the code has it now."""
    head, _, _ = page.read_text().partition(BEGIN)
    return head + BEGIN + "".join(TABLES[page]())


if __name__ == "__main__":
    for page in TABLES:
        page.write_text(with_table(page))
    (REFERENCE / "job.schema.json").write_text(schema_text())
