"""What a run remembers of itself for its report: steps with rows and seconds, messages, what came in, who ran it.

It is kept with the model, so that a report of any night can be made later from the store alone.
"""

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from ridgestream.jobs.cluster.package_versions import version_of
from ridgestream.jobs.console.log_format import finite
from ridgestream.jobs.runs.guard import Verdict
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.pipeline.base.events import Event
from ridgestream.pipeline.base.reporter import Fact, Reporter
from ridgestream.pipeline.ingest.ingest_report import IngestReport
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.pipeline.training.learning_curve import Course
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.files.credentials import hide_secrets
from ridgestream.stores.parquet.partitions import PartitionFile

STEPS, SAYINGS, CHARACTERS = 40, 50, 300
"""Steps and messages that are kept at most, and characters of a text."""

NAMES, BARS, TARGETS = 20, 40, 6
"""Partitions of a kind that are named at most, bars of a histogram of residuals, and targets that have one."""

OTHER = "other steps"

PACKAGES = ("ridgestream", "numpy", "scipy", "numba", "dask", "distributed", "zarr", "icechunk", "pyarrow")
"""Packages whose versions matter to bits, or to what is on disk."""


@dataclass
class Step:
    """What a step came to, or several that differ by a number in their name."""

    name: str
    times: int = 0
    rows: int = 0
    seconds: float = 0.0


class Recorder:
    """Passes on what it is told to the reporter that shows it, without secrets, and remembers what a report needs."""

    def __init__(self, shown: Reporter) -> None:
        self._shown = shown
        self._steps: dict[str, Step] = {}
        self._step, self._rows, self._began = "", 0, 0.0
        self._total: int | None = None
        self._said: list[tuple[Event, dict[str, Fact]]] = []
        self._unsaid, self._doubtful = 0, False
        self.night = 0
        """The number that the night will have; 0 as long as the model has not been looked at."""
        self.is_committed = False
        """Whether the night is in the store."""
        self.unreported = ""
        """Why there is no report of a night that is committed."""
        self.notes: dict[str, Any] = {}
        """What else is to be kept of a run, by name; plain JSON."""

    def begin(self, step: str, total_rows: int | None, **facts: Fact) -> None:
        """Pass on, and note the step and the time."""
        self._step, self._total, self._rows, self._began = step, total_rows, 0, perf_counter()
        self._shown.begin(step, total_rows, **facts)

    def advance(self, rows: int, **facts: Fact) -> None:
        """Pass on, and count the rows."""
        self._rows += rows
        self._shown.advance(rows, **facts)

    def end(self, **facts: Fact) -> None:
        """Pass on, and add up what the step took."""
        self._add(facts.get("rows"))
        self._step = ""
        self._shown.end(**facts)

    def say(self, event: Event, **facts: Fact) -> None:
        """Pass on, and keep the event while there is room."""
        self._shown.say(event, **self._keep(event, facts))

    def warn(self, event: Event, **facts: Fact) -> None:
        """Pass on, and keep the event while there is room."""
        self._shown.warn(event, **self._keep(event, facts))

    def _keep(self, event: Event, facts: dict[str, Fact]) -> dict[str, Fact]:
        facts = {key: hide_secrets(value) for key, value in facts.items()}
        self._doubtful |= event.casts_doubt
        if len(self._said) < SAYINGS:
            self._said.append((event, facts))
        else:
            self._unsaid += 1
        return facts

    def _add(self, rows: Fact = None) -> None:
        step = self._step_of(self._step)
        step.times += 1
        step.rows += rows if isinstance(rows, int) else self._rows
        step.seconds += perf_counter() - self._began

    def _step_of(self, name: str) -> Step:
        """Return the step of that name, in which numbers do not count; beyond STEPS, all others are one."""
        key = re.sub(r"\d+", "…", name)
        if key not in self._steps and len(self._steps) >= STEPS:
            key = name = OTHER
        step = self._steps.setdefault(key, Step(name))
        if step.name != name:
            step.name = key
        return step

    def end_amid(self) -> dict[str, Any]:
        """End the step that the run is in, since the run ends there, and return where it was; empty between steps."""
        if not self._step:
            return {}
        self._add()
        where = {"step": self._step, "rows": self._rows, "of_rows": self._total}
        self._step = ""
        return where

    def plain(self) -> dict[str, Any]:
        """Return all of it as JSON takes it, without secrets, some hundreds of numbers and names at most."""
        steps = [[step.name, step.times, step.rows, round(step.seconds, 3)] for step in self._steps.values()]
        said = [[e.sentence, {key: _shortened(value) for key, value in facts.items()}] for e, facts in self._said]
        kept = {
            "night": self.night,
            "steps": steps,
            "said": said,
            "said_codes": [event.code for event, _ in self._said],
            "doubtful": self._doubtful,
            "unsaid": self._unsaid,
            "peak_rss_bytes": peak_rss_bytes(),
            "versions": tell_versions(),
            "machine": tell_machine(),
        }
        hidden: dict[str, Any] = hide_secrets(finite(kept | self.notes))
        return hidden

    def note_ingest(self, done: IngestReport) -> None:
        """Keep what an ingest did."""
        self.notes["ingest"] = {
            "partitions": len(done.added),
            "rows": sum(entry.rows for entry in done.added),
            "dropped_rows": sum(entry.dropped for entry in done.added),
            "bytes": sum(entry.size_bytes for entry in done.added),
            "quarantined": _named(
                [{"partition": each.name, "reason": each.reason[:300]} for each in done.new_quarantine]
            ),
            "in_quarantine": _named([each.name for each in done.quarantined]),
            "renamed": _named([{"was": old, "is": new} for old, new in done.renamed]),
            "changed": _named(done.changed),
            "rebuilt": _named(done.rebuilt),
            "gone": _named(done.gone),
            "same_rows": _named([{"partition": name, "as": older} for name, older in done.duplicates]),
            "dropped": _named(
                [{"partition": entry.name, "rows": entry.dropped} for entry in done.added if entry.dropped]
            ),
            "ignored_columns": _named(done.ignored_columns),
            "missing_values": _named([{"column": name, "values": n} for name, n in done.missing_values.items()]),
        }

    def note_evaluation(self, judged: Evaluation, files: Sequence[PartitionFile]) -> None:
        """Keep the counts of an evaluation, and in regression the histogram of its residuals."""
        self.notes["evaluation"] = {
            "partitions": len(files),
            "bytes": sum(file.size_bytes for file in files),
            "weight": judged.weight,
            "mistakes": judged.mistakes,
            "positive": judged.positive,
            "true_positive": judged.true_positive,
            "left_out": judged.left_out,
            "residuals": [asdict(histogram.shown(BARS)) for histogram in judged.residuals[:TARGETS]],
        }

    def note_end(
        self, course: Course | None, verdict: Verdict | None, margin: float, failure: Exception | None
    ) -> None:
        """Keep how the learner went along, what the guard said, and what went wrong after the learning."""
        if course is not None and course.rows:
            self.notes["course"] = {
                "rows": list(course.rows),
                "n_basis": list(course.n_basis),
                "swaps": list(course.swaps),
                "running_error": course.running_errors,
                "error_between": course.errors_between,
            }
        if verdict is not None:
            before, now = verdict.error_before, verdict.error_now
            self.notes["guard"] = {"served": verdict.served, "before": before, "now": now, "margin": margin}
        if failure is not None:
            self.notes["failure"] = str(failure)[:1000]


def with_run(record: ModelRecord, recorder: Recorder) -> ModelRecord:
    """Return the record with what is kept of the run that made its last night."""
    recorder.night = record.history[-1].number
    return replace(record, run=recorder.plain())


def _named(items: Sequence[Any]) -> dict[str, Any]:
    """Return how many there are, and the first of them."""
    return {"count": len(items), "first": list(items[:NAMES])}


def _shortened(value: Fact) -> Fact:
    return f"{value[:CHARACTERS]}…" if isinstance(value, str) and len(value) > CHARACTERS else value


def tell_versions() -> dict[str, str]:
    """Return the version of Python and of each of PACKAGES that is installed."""
    found = {name: version_of(name) for name in PACKAGES}
    return {"python": platform.python_version()} | {name: version for name, version in found.items() if version}


def tell_machine() -> dict[str, str | int]:
    """Return what type of machine this is; neither its name nor its address."""
    told: dict[str, str | int] = {"system": platform.system(), "architecture": platform.machine()}
    processor = _processor()
    if processor:
        told["processor"] = processor
    return told | {"logical_processors": os.cpu_count() or 1}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
