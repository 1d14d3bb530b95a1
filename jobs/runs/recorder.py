"""What a run records for its report: steps with rows and seconds, events, what was ingested, who ran it.

It is stored with the model, so that a report of any night can be written later from the store alone.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from ridgestream.jobs.console.log_format import describe_run, finite
from ridgestream.jobs.runs.guard import Verdict
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.jobs.runs.step_times import StepTimes
from ridgestream.jobs.runs.surroundings import installed_versions, machine_type
from ridgestream.pipeline.base.events import Event, Step
from ridgestream.pipeline.base.reporter import Fact, Reporter
from ridgestream.pipeline.ingest.ingest_report import IngestReport
from ridgestream.pipeline.monitoring.learning_curve import Course
from ridgestream.pipeline.prediction.evaluate import Evaluation
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.files.credentials import hide_secrets
from ridgestream.stores.parquet.partitions import PartitionFile

MAX_EVENTS, MAX_CHARACTERS = 50, 300
"""Events that are recorded at most, and characters of a fact."""

MAX_NAMES, MAX_BARS, MAX_TARGETS = 20, 40, 6
"""Names in a list at most, bars of a histogram of residuals, and targets that have one."""


class Recorder:
    """A reporter that passes everything on to another one, without secrets, and records what a report needs."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._steps = StepTimes()
        self._events: list[tuple[Event, dict[str, Fact]]] = []
        self._omitted_events, self._casts_doubt = 0, False
        self._night = 0
        self.is_committed = False
        """Whether the night is in the store."""
        self.unreported = ""
        """Why there is no report of a night that is committed."""
        self.notes: dict[str, Any] = {}
        """Further parts of the record, by name; plain JSON."""

    @property
    def night(self) -> int:
        """The number that the night will have; 0 as long as the model has not been read."""
        return self._night

    @night.setter
    def night(self, number: int) -> None:
        self._night = number
        describe_run(night=number or None)

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:
        """Pass on, and record the step and the time."""
        self._steps.begin(step, total_rows)
        self._report.begin(step, total_rows, **facts)

    def advance(self, rows: int, **facts: Fact) -> None:
        """Pass on, and count the rows."""
        self._steps.advance(rows)
        self._report.advance(rows, **facts)

    def end(self, **facts: Fact) -> None:
        """Pass on, and record what the step took."""
        rows = facts.get("rows")
        self._steps.end(rows if isinstance(rows, int) else None)
        self._report.end(**facts)

    def say(self, event: Event, **facts: Fact) -> None:
        """Pass on, and record the event while there is room."""
        self._report.say(event, **self._record(event, facts))

    def warn(self, event: Event, **facts: Fact) -> None:
        """Pass on, and record the event while there is room."""
        self._report.warn(event, **self._record(event, facts))

    def _record(self, event: Event, facts: dict[str, Fact]) -> dict[str, Fact]:
        facts = {key: hide_secrets(value) for key, value in facts.items()}
        self._casts_doubt |= event.casts_doubt
        if len(self._events) < MAX_EVENTS:
            self._events.append((event, facts))
        else:
            self._omitted_events += 1
        return facts

    def interrupt(self) -> dict[str, Any]:
        """End the current step because the run ends, and return how far it has come; empty between two steps."""
        return self._steps.interrupt()

    @property
    def steps(self) -> list[list[Any]]:
        """Name, times, rows and seconds of each step, in the order in which they began."""
        return self._steps.as_list()

    def as_dict(self) -> dict[str, Any]:
        """Return the record as plain JSON, without secrets; some hundreds of numbers and names at most."""
        record = {
            "night": self.night,
            "steps": self.steps,
            "said": [[event.sentence, _shortened(facts)] for event, facts in self._events],
            "said_codes": [event.code for event, _ in self._events],
            "unsaid": self._omitted_events,
            "doubtful": self._casts_doubt,
            "peak_rss_bytes": peak_rss_bytes(),
            "versions": installed_versions(),
            "machine": machine_type(),
        }
        hidden: dict[str, Any] = hide_secrets(finite(record | self.notes))
        return hidden

    def note_ingest(self, done: IngestReport) -> None:
        """Record what an ingest did."""
        dropped = [{"partition": entry.name, "rows": entry.dropped} for entry in done.added if entry.dropped]
        self.notes["ingest"] = {
            "partitions": len(done.added),
            "rows": sum(entry.rows for entry in done.added),
            "dropped_rows": sum(entry.dropped for entry in done.added),
            "bytes": sum(entry.size_bytes for entry in done.added),
            "quarantined": _first(
                [{"partition": each.name, "reason": each.reason[:300]} for each in done.new_quarantine]
            ),
            "in_quarantine": _first([each.name for each in done.quarantined]),
            "renamed": _first([{"was": old, "is": new} for old, new in done.renamed]),
            "changed": _first(done.changed),
            "rebuilt": _first(done.rebuilt),
            "gone": _first(done.gone),
            "same_rows": _first([{"partition": name, "as": older} for name, older in done.duplicates]),
            "dropped": _first(dropped),
            "ignored_columns": _first(done.ignored_columns),
            "missing_values": _first([{"column": name, "values": n} for name, n in done.missing_values.items()]),
        }

    def note_evaluation(
        self, evaluation: Evaluation, files: Sequence[PartitionFile], targets: tuple[str, ...] = ()
    ) -> None:
        """Record the counts of an evaluation, and in regression the histograms of its residuals."""
        self.notes["evaluation"] = evaluation_notes(evaluation, files, targets)

    def note_end(
        self, course: Course | None, verdict: Verdict | None, margin: float, failure: Exception | None
    ) -> None:
        """Record the learning curve, the guard's verdict, and what failed after the learning."""
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


def evaluation_notes(
    evaluation: Evaluation, files: Sequence[PartitionFile], targets: tuple[str, ...]
) -> dict[str, Any]:
    """Return the counts of an evaluation, and in regression the histograms of its residuals, as plain JSON."""
    return {
        "partitions": len(files),
        "bytes": sum(file.size_bytes for file in files),
        "weight": evaluation.weight,
        "mistakes": evaluation.mistakes,
        "positive": evaluation.positive,
        "true_positive": evaluation.true_positive,
        "left_out": evaluation.left_out,
        "rows": evaluation.rows,
        "rows_outside_range": evaluation.rows_outside,
        "outside_range": dict(evaluation.outside[:MAX_NAMES]),
        "residuals": [asdict(histogram.shown(MAX_BARS)) for histogram in evaluation.residuals[:MAX_TARGETS]],
        **uncertainty_facts(evaluation, targets),
    }


def uncertainty_facts(evaluation: Evaluation, targets: tuple[str, ...]) -> dict[str, Any]:
    """Return coverage and width of intervals, and how reliable probabilities are, as far as they were evaluated."""
    facts: dict[str, Any] = {}
    if evaluation.coverage is not None and evaluation.coverage.weight:
        facts["intervals"] = evaluation.coverage.as_dict(targets[:MAX_TARGETS])
    if evaluation.reliability is not None and evaluation.weight:
        facts["probabilities"] = evaluation.reliability.as_dict()
    return facts


def coverage_facts(evaluation: Evaluation | None, targets: tuple[str, ...]) -> dict[str, Any]:
    """Return what shows whether intervals hold: their coverage, and the number of rows; empty without an evaluation."""
    return {"rows": evaluation.rows, **uncertainty_facts(evaluation, targets)} if evaluation else {}


def with_run(record: ModelRecord, recorder: Recorder) -> ModelRecord:
    """Return the model's record with that of the run which made its last night."""
    recorder.night = record.history[-1].number
    return replace(record, run=recorder.as_dict())


def _first(items: Sequence[Any]) -> dict[str, Any]:
    """Return how many items there are, and the first of them."""
    return {"count": len(items), "first": list(items[:MAX_NAMES])}


def _shortened(facts: dict[str, Fact]) -> dict[str, Fact]:
    return {key: _shorten(value) for key, value in facts.items()}


def _shorten(fact: Fact) -> Fact:
    return f"{fact[:MAX_CHARACTERS]}…" if isinstance(fact, str) and len(fact) > MAX_CHARACTERS else fact
