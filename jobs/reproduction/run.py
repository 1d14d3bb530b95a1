"""Measures a study's cells, keeps what is measured, and shows it beside the paper's values: the command reproduce."""

import json
from pathlib import Path
from typing import Any

import ridgestream
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.reproduction.registry import STUDIES
from ridgestream.jobs.reproduction.study import Outcome, Study, summarize
from ridgestream.stores.files.paths import write_atomically

_RIGHT = ("here", "repeats")
"""Columns of numbers."""


def list_studies() -> list[dict[str, Any]]:
    """Return what there is to reproduce."""
    return [
        {"name": name, "title": study.title, "source": study.source, "repeats": study.repeats, "takes": study.takes}
        for name, study in STUDIES.items()
    ]


def run_reproduce(name: str, repeats: int | None, folder: Path) -> dict[str, Any]:
    """Measure what `folder` does not have yet, and return the facts; raises JobFileError for an unknown study.

    Each measurement is written at once, so that a killed run continues. Measurements with other settings, or by
    another version, are not used.
    """
    if name not in STUDIES:
        raise JobFileError(f"there is no study {name!r}: reproduce takes one of {', '.join(STUDIES)}")
    study, path = STUDIES[name], folder / f"{name}.json"
    settings = {"version": ridgestream.__version__, **study.settings()}
    kept = _read(path, settings)
    for cell in study.cells:
        outcomes = kept.setdefault(cell.name, [])
        for repeat in range(len(outcomes), (repeats or study.repeats) if cell.is_repeated else 1):
            outcomes.append(cell.measure(repeat))
            _write(path, _facts(name, study, settings, kept), kept)
    return _facts(name, study, settings, kept)


def show_reproduction(facts: dict[str, Any]) -> None:
    """Print the table."""
    from ridgestream.jobs.console.tables import fitted_table, open_console

    console, columns = open_console(), ("method", "paper", "here", "repeats")
    rows = [(cell["name"], cell["published"], _shown(cell), str(cell["repeats"])) for cell in facts["cells"]]
    caption = f"{facts['error']}, mean ± standard deviation (vectors); {facts['source']}"
    console.print(
        fitted_table(
            facts["title"], columns, rows, console.width, first=("method", "here"), right=_RIGHT, caption=caption
        )
    )


def _shown(cell: dict[str, Any]) -> str:
    spread = f" ± {cell['std']:.2g}" if cell["repeats"] > 1 else ""
    return f"{cell['mean']:.2g}{spread} ({cell['vectors']:.4g})"


def _facts(name: str, study: Study, settings: dict[str, Any], kept: dict[str, list[Outcome]]) -> dict[str, Any]:
    cells = [summarize(cell, kept[cell.name]) for cell in study.cells if kept.get(cell.name)]
    return {
        "name": name,
        "title": study.title,
        "source": study.source,
        "error": study.error,
        "settings": settings,
        "cells": cells,
    }


def _read(path: Path, settings: dict[str, Any]) -> dict[str, list[Outcome]]:
    """Return the outcomes of a file, by cell; none if there is no such file, or it is of other settings."""
    if not path.exists():
        return {}
    record = json.loads(path.read_text(encoding="utf-8"))
    if record["settings"] != settings:
        return {}
    return {name: [Outcome(**outcome) for outcome in outcomes] for name, outcomes in record["outcomes"].items()}


def _write(path: Path, facts: dict[str, Any], kept: dict[str, list[Outcome]]) -> None:
    """Replace the file at once."""
    outcomes = {name: [vars(outcome) for outcome in each] for name, each in kept.items()}
    text = json.dumps({**facts, "outcomes": outcomes}, indent=1) + "\n"
    with write_atomically(path, "application/json") as sink:
        sink.write(text.encode())
