"""The reports of runs that failed: the success that follows replaces them, so that those that exist are news."""

import json
import re
from contextlib import suppress
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import report_folder
from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.folder_contents import delete_file, list_files, read_file
from ridgestream.stores.files.paths import FileLocation

FAILED = ".failed"
"""What the name of such a report has before its suffix."""


def failed_reports(folder: FileLocation, model: str) -> list[FileLocation]:
    """Return the files of a model's failed runs, JSON and pages; raises OSError or StoreError."""
    name = re.compile(rf"{re.escape(model)}-\d{{4,}}{re.escape(FAILED)}\.(json|html)")
    return [file for file in list_files(folder) if name.fullmatch(file.name)]


def last_failure(job: Job) -> dict[str, Any] | None:
    """Return the report of the last failed run of the job's model; None if there is none, or no folder for reports.

    Raises OSError or StoreError if the folder cannot be read.
    """
    folder = report_folder(job)
    files = [] if folder is None else failed_reports(folder, job.model.name)
    failures = [facts for file in files if file.name.endswith(".json") and (facts := _read(file))]
    return max(failures, key=lambda facts: str(facts["finished_at"]), default=None)


def _read(file: FileLocation) -> dict[str, Any]:
    """Return the report; empty if it is gone or no report any more."""
    with suppress(FileNotFoundError, ValueError):
        facts = json.loads(read_file(file))
        if isinstance(facts, dict) and "finished_at" in facts:
            return facts
    return {}


def replace_failed_reports(job: Job, report: Reporter) -> None:
    """Delete the reports of failed runs because one has succeeded; an error is a warning."""
    try:
        folder = report_folder(job)
        for file in [] if folder is None else failed_reports(folder, job.model.name):
            delete_file(file)
    except (OSError, StoreError) as error:
        report.warn(events.REPORT_FAILURE_NOT_DELETED, reason=str(error))
