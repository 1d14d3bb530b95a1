"""From a command's options to the job or store that they name, and the frame in which the long commands run."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgestream.jobs.cli.exit_handling import ExitHandler, orderly_exit
from ridgestream.jobs.cli.options import (
    ClusterJobOptions,
    JobOptions,
    RunOptions,
    ServedOptions,
    StoreOptions,
    absolute_location,
)
from ridgestream.jobs.cli.results import print_result
from ridgestream.jobs.console.log_format import describe_run, route_libraries
from ridgestream.pipeline.base import events

if TYPE_CHECKING:
    from ridgestream.jobs.config.job_file import Job
    from ridgestream.jobs.report.report_files import Concluded
    from ridgestream.jobs.runs.metrics import RunMetrics
    from ridgestream.jobs.runs.recorder import Recorder
    from ridgestream.pipeline.base.executor import Executor
    from ridgestream.pipeline.base.reporter import Reporter
    from ridgestream.stores.repository.store_location import StoreLocation

NIGHTS = ("run", "train")
"""The commands that learn: each of them leaves a report."""

Step = Callable[["Job", "Executor", "Reporter"], dict[str, Any]]
"""What a long command does: from the job, its executor and a reporter to the result."""


def open_job(handler: ExitHandler, options: JobOptions) -> "Job":
    """Read the job that the options name, with their changes; from now on, something must move."""
    from ridgestream.jobs.config.requests import store_location
    from ridgestream.jobs.config.values import parse_flags

    handler.output_wanted |= options.as_json
    flags = parse_flags(options.settings or [])
    if options.store is not None:
        flags["store"] = absolute_location(options.store)
    if isinstance(options, ClusterJobOptions) and options.cluster is not None:
        path = options.cluster.removeprefix("file:")
        flags["cluster"] = options.cluster if path == options.cluster else f"file:{Path(path).absolute()}"
    if isinstance(options, RunOptions) and options.log is not None:
        flags["log"] = options.log
    job = _read_job(options, flags)
    location = store_location(job)
    describe_run(store=location.text, model=job.model.name)
    handler.watch(job.stall_seconds)
    return job


def _read_job(options: JobOptions, flags: dict[str, Any]) -> "Job":
    """Read the job file that the options name; where a model is only used, a store stands for a job."""
    from ridgestream.jobs.config.job_file import read_job
    from ridgestream.jobs.config.requests import job_of_store, names_store
    from ridgestream.jobs.config.values import JobFileError

    if not isinstance(options, ServedOptions) or not names_store(options.job):
        return read_job(Path(options.job), flags)
    if options.store is not None:
        raise JobFileError(f"--store goes with a job file, and {options.job} is a store")
    return job_of_store(absolute_location(options.job), flags)


def find_store(handler: ExitHandler, options: StoreOptions) -> "tuple[StoreLocation, Job | None]":
    """Return where the store is, and the job, if the options name one; from now on, something must move."""
    from ridgestream.jobs.config.requests import is_job_file, store_location
    from ridgestream.jobs.config.values import JobFileError
    from ridgestream.stores.repository.store_location import StoreLocation

    if is_job_file(options.location):
        named = JobOptions(
            job=options.location, settings=options.settings, store=options.store, as_json=options.as_json
        )
        job = open_job(handler, named)
        return store_location(job), job
    if options.store or options.settings:
        raise JobFileError(f"--store and --set go with a job file, and {options.location} is none")
    handler.output_wanted |= options.as_json
    location = StoreLocation.parse(options.location, Path.cwd())
    describe_run(store=location.text)
    handler.watch()
    return location, None


def run_step(options: RunOptions, step: Step, command: str) -> None:
    """Run one of the long commands: on the job's executor, with its progress shown, and stopped by signals.

    A night leaves a report if it fails, even before there is an executor, and any command its metrics.
    """
    from ridgestream.jobs.cli.signals import SOFT_SECONDS, StoppableReporter

    with orderly_exit(SOFT_SECONDS) as handler:
        from ridgestream.jobs.cluster.dask_executor import open_executor
        from ridgestream.jobs.config.requests import cluster_of
        from ridgestream.jobs.console.progress import open_reporter
        from ridgestream.jobs.report.report_files import report_stall

        metrics = _watch_metrics(handler, options, command)
        job = open_job(handler, options)
        handler.log, metrics.job = job.log, job
        reporter = open_reporter(job.log)
        with reporter as shown, _recorder(job, StoppableReporter(shown, handler.signals), command) as report:
            metrics.recorder = report
            if command in NIGHTS:
                handler.at_stall = partial(report_stall, job, report)
            with open_executor(*cluster_of(job), report) as executor:
                handler.signals.check()
                if job.log == "json":
                    route_libraries()
                result, ended = _conclude(lambda: step(job, executor, report))
            metrics.result = result
        handler.at_stall = None
        print_result(result, as_json=options.as_json, log=job.log)
        if ended is not None:
            handler.exit(str(ended), _code_of(ended), type(ended).__name__)


def _watch_metrics(handler: ExitHandler, options: RunOptions, command: str) -> "RunMetrics":
    """Return what collects the metrics of the command; they are written as it ends, if the options ask for that."""
    from ridgestream.jobs.runs.metrics import RunMetrics, check_file

    metrics, path = RunMetrics(command, options.job), options.metrics
    if path is not None:
        check_file(path)
        handler.at_exit = lambda code, has_time: _write_metrics(handler, metrics, path, code, has_time=has_time)
    return metrics


def _write_metrics(handler: ExitHandler, metrics: "RunMetrics", path: Path, code: int, *, has_time: bool) -> None:
    """Write the metrics; an error is a warning. A store that has just failed on a server is not asked again."""
    from ridgestream.jobs.cli.exit_codes import STORE, ending_of
    from ridgestream.jobs.config.requests import store_location
    from ridgestream.jobs.console.progress import LineReporter

    is_local = metrics.job is None or store_location(metrics.job).folder is not None
    try:
        metrics.write(path, code, ending_of(code), reads_store=has_time and (is_local or code != STORE))
    except Exception as error:  # noqa: BLE001 (how a run ends does not depend on its metrics)
        LineReporter(handler.log).warn(events.METRICS_NOT_WRITTEN, reason=str(error))


def _recorder(job: "Job", report: "Reporter", command: str) -> "AbstractContextManager[Recorder]":
    from ridgestream.jobs.report.report_files import recorded
    from ridgestream.jobs.runs.recorder import Recorder

    return recorded(job, report) if command in NIGHTS else nullcontext(Recorder(report))


def _conclude(step: Callable[[], dict[str, Any]]) -> "tuple[dict[str, Any], Concluded | None]":
    """Return the result of a step, and why it is not all that was asked for, if it committed."""
    from ridgestream.jobs.report.report_files import Concluded

    try:
        return step(), None
    except Concluded as ended:
        return ended.result, ended


def _code_of(ended: "Concluded") -> int:
    from ridgestream.jobs.cli.exit_codes import HELD, UNREPORTED
    from ridgestream.jobs.report.report_files import Unreported

    return UNREPORTED if isinstance(ended, Unreported) else HELD
