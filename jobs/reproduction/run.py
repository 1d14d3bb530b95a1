"""Measures a study's cells, keeps what is measured, and shows it beside the paper's values: the command reproduce."""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

import ridgestream
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.reproduction.data import DataFolder
from ridgestream.jobs.reproduction.page import is_page, page_of, write_page
from ridgestream.jobs.reproduction.registry import STUDIES
from ridgestream.jobs.reproduction.study import Bench, Cell, Outcome, Study, summarize
from ridgestream.jobs.runs.surroundings import machine_type
from ridgestream.pipeline.base.executor import Executor, InProcess
from ridgestream.stores.files.paths import write_atomically


def list_studies() -> list[dict[str, Any]]:
    """Return what there is to reproduce."""
    return [
        {
            "name": name,
            "title": study.title,
            "source": study.source,
            "needs": ", ".join(f"{each}.parquet" for each in study.needs) or "nothing",
            "repeats": study.repeats,
            "takes": study.takes,
        }
        for name, study in STUDIES.items()
    ]


def run_reproduce(
    name: str,
    repeats: int | None,
    folder: Path,
    data: Path | None = None,
    executor: Executor | None = None,
    only: str = "",
) -> dict[str, Any]:
    """Measure what `folder` does not have yet, and return the facts.

    Raises JobFileError, before anything is measured, for an unknown study or cell, for a folder that cannot be written,
    and for files there that this does not write.

    Each measurement is written at once, so that a run that was killed continues. Measurements with other settings, of
    other rows, or by another version, are not used. A row of the table that has more repeats than the file has
    measurements stays as it is, until there are as many. With `only`, cells whose names have this text are measured.
    Last come the picture and the page of all studies measured there.
    """
    if name not in STUDIES:
        raise JobFileError(f"there is no study {name!r}: reproduce takes one of {', '.join(STUDIES)}")
    if not any(only in cell.name for cell in STUDIES[name].cells):
        names = ", ".join(repr(cell.name) for cell in STUDIES[name].cells)
        raise JobFileError(f"no cell of {name} has {only!r} in its name: they are {names}")
    kept = _Kept.open(name, folder, DataFolder(data))
    _check_output(folder)
    tasks = list(kept.pending(repeats, only))
    kept.choose({number for number, _ in tasks})
    measured = (executor or InProcess()).run(_measure, tasks, name, kept.bench)
    for (number, _), outcomes in zip(tasks, measured, strict=True):
        kept.add(number, outcomes)
    write_page(folder)
    return kept.facts()


def _check_output(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise JobFileError(f"the folder {folder} cannot be written: {reason}; give --output another one") from error
    if not is_page(page_of(folder)):
        raise JobFileError(
            f"the page of {folder} would replace {page_of(folder)}, which is something else: move it, or give --output "
            "another folder"
        )


def _measure(task: tuple[int, int], name: str, bench: Bench) -> tuple[Outcome, ...]:
    """Measure one repeat of a study's measurement with this number."""
    number, repeat = task
    return STUDIES[name].measurements[number].measure(bench, repeat)


@dataclass
class _Kept:
    """The measurements of a study that a folder has."""

    name: str
    study: Study
    path: Path
    settings: dict[str, Any]
    """What measurements are valid for."""
    bench: Bench
    outcomes: dict[str, list[Outcome]]
    """By cell."""
    rows: dict[str, dict[str, Any]]
    """The rows of the table as they are in the file, by cell."""

    @classmethod
    def open(cls, name: str, folder: Path, data: DataFolder) -> Self:
        """Read what there is; nothing if there is no file, or it is of other settings."""
        study, path = STUDIES[name], folder / f"{name}.json"
        given = {"version": ridgestream.__version__, **study.given}
        settings = json.loads(json.dumps({**given, "data": data.hashes(study.needs)}))
        try:
            record: Any = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"settings": None}
            if record["settings"] != settings:
                record = {"chosen": {}, "outcomes": {}, "cells": []}
            outcomes = {cell: [Outcome(**each) for each in list_] for cell, list_ in record["outcomes"].items()}
            rows = {row["name"]: row for row in record["cells"]}
            return cls(name, study, path, settings, Bench(data, record["chosen"]), outcomes, rows)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise JobFileError(
                f"{path} has no measurements of this command ({error}): move it, or give --output another folder"
            ) from error

    def choose(self, numbers: Collection[int]) -> None:
        """Choose the open settings that the measurements with these numbers use."""
        used = [self.study.measurements[number].uses for number in numbers]
        for key, choose in self.study.choices.items():
            if key not in self.bench.chosen and any(names is None or key in names for names in used):
                self.bench.chosen[key] = choose(self.bench.data)
                self._write()

    def pending(self, repeats: int | None, only: str) -> Iterator[tuple[int, int]]:
        """Yield number and repeat of each measurement that is missing: the first repeat of all of them comes first."""
        wanted = repeats or self.study.repeats
        for repeat in range(wanted):
            for number, measurement in enumerate(self.study.measurements):
                have = len(self.outcomes.get(measurement.cells[0].name, ()))
                if not any(only in cell.name for cell in measurement.cells):
                    continue
                if have <= repeat < min(wanted, measurement.repeats or wanted):
                    yield number, repeat

    def add(self, number: int, outcomes: tuple[Outcome, ...]) -> None:
        """Keep a measurement."""
        for cell, outcome in zip(self.study.measurements[number].cells, outcomes, strict=True):
            self.outcomes.setdefault(cell.name, []).append(outcome)
        self._write()

    def facts(self) -> dict[str, Any]:
        """Return what is known."""
        study = self.study
        rows = (self._row(cell) for cell in study.cells)
        return {
            "name": self.name,
            "title": study.title,
            "source": study.source,
            "error": study.error,
            "settings": self.settings,
            "chosen": self.bench.chosen,
            "machine": machine_type(),
            "date": datetime.now(UTC).date().isoformat(),
            "cells": [row for row in rows if row],
        }

    def _row(self, cell: Cell) -> dict[str, Any]:
        """Return the row of a cell, that of the file if it has more repeats; empty if there is neither."""
        outcomes, row = self.outcomes.get(cell.name, []), self.rows.get(cell.name, {})
        if not outcomes or row.get("repeats", 0) > len(outcomes):
            return row
        return summarize(cell, outcomes)

    def _write(self) -> None:
        """Replace the file at once."""
        text = _as_json(self.facts(), self.outcomes)
        with write_atomically(self.path, "application/json") as sink:
            sink.write(text.encode())


def _as_json(facts: dict[str, Any], outcomes: dict[str, list[Outcome]]) -> str:
    """Return facts and measurements as JSON in which each measurement has a line."""
    cells = [
        f"  {json.dumps(name)}: [\n   " + ",\n   ".join(json.dumps(_filled(each)) for each in measured) + "\n  ]"
        for name, measured in outcomes.items()
    ]
    return json.dumps(facts, indent=1)[:-2] + ',\n "outcomes": {\n' + ",\n".join(cells) + "\n }\n}\n"


def _filled(outcome: Outcome) -> dict[str, Any]:
    """Return the fields of an outcome that are not empty."""
    return {name: value for name, value in vars(outcome).items() if value != {}}
