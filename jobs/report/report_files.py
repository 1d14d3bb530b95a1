"""Writes the report of a night, or of a run that failed, as JSON and as one page."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import report_folder, store_location
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.report.facts import failure_facts, night_facts
from ridgestream.jobs.report.failed_reports import FAILED, replace_failed_reports
from ridgestream.jobs.runs.recorder import Recorder
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.monitoring.drift import PartitionDrift
from ridgestream.stores.catalog.models import ModelRecord, check_model_name, next_night_number, read_model
from ridgestream.stores.errors.exceptions import ModelError, StoreError
from ridgestream.stores.files.paths import FileLocation, is_file, write_atomically
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_folder import may_hold_store
from ridgestream.stores.requests.activity import ACTIVITY


class Concluded(Exception):
    """The night is committed, with a problem that sets the exit code; `result` is what the run would have returned."""

    def __init__(self, message: str, result: dict[str, Any]) -> None:
        super().__init__(message)
        self.result = result


class Unreported(Concluded):
    """The night is committed, but its report could not be written."""


class Stalled(StoreError):
    """Nothing has moved in a run for as long as its job allows."""


class _CannotWrite(OSError):
    """A report cannot be written; the message names it."""


def run_report(job: Job, night: int | None) -> dict[str, Any]:
    """Write the report of a night of the job's model, the last one if None; return model, night and files."""
    folder = report_folder(job)
    if folder is None:
        raise JobFileError("give --report FOLDER, or the key report in the job file: the folder for reports")
    facts = night_facts(Store.open(store_location(job)), job.model.name, night)
    try:
        return {"model": facts["model"], "night": facts["night"]} | _write(facts, folder)
    except _CannotWrite as error:
        raise StoreError(str(error)) from error


@contextmanager
def recorded(job: Job, report: Reporter) -> Iterator[Recorder]:
    """Yield a recorder that passes on to `report`; if the run fails before its commit, write a report of that.

    A run that ends well, or is committed, replaces the reports of those that failed before it. If a report cannot be
    written or deleted, a warning says so, and the error stays the same. A `report` that is a recorder already is
    yielded as it is: whoever opened it does all that. Raises JobFileError or StoreError at once if the job's location
    for reports is not valid.
    """
    if isinstance(report, Recorder):
        yield report
        return
    report_folder(job)
    recorder = Recorder(report)
    try:
        yield recorder
    except BaseException as error:
        if not recorder.is_committed and not isinstance(error, Concluded):
            _report_failure(job, recorder, error)
        else:
            replace_failed_reports(job, recorder)
        raise
    replace_failed_reports(job, recorder)


def report_stall(job: Job, recorder: Recorder, message: str) -> None:
    """Write the report of a run that is ended because nothing moves in it, unless its night is committed."""
    if not recorder.is_committed:
        _report_failure(job, recorder, Stalled(message))


def _report_failure(job: Job, recorder: Recorder, error: BaseException) -> None:
    try:
        folder, store = report_folder(job), store_location(job).folder
        if folder is not None and (job.report is not None or store is None or may_hold_store(store)):
            recorder.night = recorder.night or _number_of_night(job, error)
            written = _write(failure_facts(job, recorder, error), folder)
            recorder.say(events.REPORT_FAILURE_WRITTEN, page=written["html"])
    except Exception as unwritten:  # noqa: BLE001 (the error to raise is the other one)
        recorder.warn(events.REPORT_FAILURE_NOT_WRITTEN, reason=_reason(unwritten))


def _number_of_night(job: Job, error: BaseException) -> int:
    """Return the number of a night that failed before its store was opened; 0 where the store is what failed."""
    if isinstance(error, StoreError) or not isinstance(error, Exception):  # a run that is stopped waits for no server
        return 0
    with suppress(StoreError, ModelError):
        return next_night_number(read_model(Store.open(store_location(job)).root(), job.model.name))
    return 0


def report_night(
    job: Job,
    store: Store,
    record: ModelRecord,
    report: Recorder,
    drifts: Sequence[PartitionDrift] | None = None,
    *,
    overwrite: bool = True,
) -> dict[str, str] | None:
    """Write the report of the last night of a committed record; return its files, None if there are none.

    `drifts` are those of the night's partitions, if they are known. A report that exists stays unless `overwrite`. An
    error is a warning and is noted in `report.unreported`: the model stays, and the same command, or
    `ridgestream report`, writes its report later.
    """
    folder, night = report_folder(job), record.history[-1].number
    if folder is None and job.report is None:
        report.warn(events.REPORT_NO_FOLDER)
    if folder is None or not night:  # a night of an older release has no number
        return None
    files = _files(folder, record.name, night)
    if not overwrite and _exist(files):
        return {kind: str(file) for kind, file in files.items()}
    try:
        with ACTIVITY.under_way(f"the report of night {night}"):
            written = _write(night_facts(store, record.name, night, drifts), folder)
    except Exception as error:  # noqa: BLE001 (the night is committed, with or without its report)
        report.unreported = _reason(error)
        report.warn(events.REPORT_NOT_WRITTEN, reason=report.unreported)
        return None
    report.say(events.REPORT_WRITTEN, page=written["html"])
    return written


def _reason(error: Exception) -> str:
    known = isinstance(error, _CannotWrite | StoreError | ModelError)
    return str(error) if known else f"the report cannot be made: {type(error).__name__}: {error}"


def concluded(result: dict[str, Any], report: Recorder) -> dict[str, Any]:
    """Return the result of a run; raises Unreported with it if the night's report could not be written."""
    if report.unreported:
        raise Unreported(
            f"{report.unreported}; the model has learned and is kept: run the same command again for its report", result
        )
    return result


def _files(folder: FileLocation, model: str, night: int, failed: str = "") -> dict[str, FileLocation]:
    name = f"{check_model_name(model)}-{night:04d}{failed}"
    return {"json": folder / f"{name}.json", "html": folder / f"{name}.html"}


def _exist(files: dict[str, FileLocation]) -> bool:
    """Return whether all files exist; False if that cannot be known, since writing them gives the reason."""
    with suppress(OSError, StoreError):
        return all(is_file(file) for file in files.values())
    return False


def _write(facts: dict[str, Any], folder: FileLocation) -> dict[str, str]:
    """Write `MODEL-NNNN.json` and `.html` into the folder, each whole or not at all, and return them."""
    from ridgestream.jobs.report.page.html_page import render_page

    files = _files(folder, facts["model"], facts["night"], FAILED if facts["event"] == "failed" else "")
    text = json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(files["json"], text, "application/json")
    write_whole(files["html"], render_page(facts), "text/html; charset=utf-8")
    return {kind: str(file) for kind, file in files.items()}


def write_whole(path: FileLocation, text: str, kind: str) -> None:
    """Replace the file by the text; raises StoreError if that fails, and the file stays as it was."""
    try:
        with write_atomically(path, kind) as sink:
            sink.write(text.encode(errors="replace"))
    except StoreError as error:  # which names the file
        raise _CannotWrite(f"the report {error}") from error
    except OSError as error:
        raise _CannotWrite(f"the report {path} cannot be written: {error.strerror or error}") from error
