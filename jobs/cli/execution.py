"""From a command's options to the job or store that they name, and the frame in which the long commands run."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ridgestream.jobs.cli.exit_handling import ExitHandler, orderly_exit
from ridgestream.jobs.cli.options import ClusterOptions, JobOptions, RunOptions, StoreOptions, absolute_location
from ridgestream.jobs.cli.results import print_result
from ridgestream.jobs.console.log_format import route_libraries

if TYPE_CHECKING:
    from ridgestream.jobs.config.job_file import Job
    from ridgestream.pipeline.base.executor import Executor
    from ridgestream.pipeline.base.reporter import Reporter
    from ridgestream.stores.repository.store_location import StoreLocation


def open_job(handler: ExitHandler, options: JobOptions) -> "Job":
    """Read the job that the options name, with their changes; from now on its store's server is watched."""
    from ridgestream.jobs.config.job_file import read_job
    from ridgestream.jobs.config.requests import store_location
    from ridgestream.jobs.config.values import parse_flags

    flags = parse_flags(options.settings or [])
    if options.store is not None:
        flags["store"] = absolute_location(options.store)
    if isinstance(options, ClusterOptions) and options.cluster is not None:
        path = options.cluster.removeprefix("file:")
        flags["cluster"] = options.cluster if path == options.cluster else f"file:{Path(path).absolute()}"
    if isinstance(options, RunOptions) and options.log is not None:
        flags["log"] = options.log
    job = read_job(options.job, flags)
    handler.watch(store_location(job))
    return job


def find_store(handler: ExitHandler, options: StoreOptions) -> "tuple[StoreLocation, Job | None]":
    """Return where the store is, and the job, if the options name one; from now on the store's server is watched."""
    from ridgestream.jobs.config.requests import is_job_file, store_location
    from ridgestream.stores.repository.store_location import StoreLocation

    if is_job_file(options.location):
        job = open_job(handler, JobOptions(job=Path(options.location), settings=options.settings))
        return store_location(job), job
    location = StoreLocation.parse(options.location, Path.cwd())
    handler.watch(location)
    return location, None


def run_step(options: RunOptions, step: "Callable[[Job, Executor, Reporter], dict[str, Any]]") -> None:
    """Run one of the long commands: on the job's executor, with its progress shown, and stopped by signals."""
    from ridgestream.jobs.cli.signals import SOFT_SECONDS, StoppableReporter

    with orderly_exit(SOFT_SECONDS) as handler:
        from ridgestream.jobs.cluster.dask_executor import open_executor
        from ridgestream.jobs.config.requests import cluster_of
        from ridgestream.jobs.console.progress import open_reporter

        job = open_job(handler, options)
        handler.log = job.log
        with open_reporter(job.log) as report, open_executor(*cluster_of(job), report) as executor:
            handler.signals.check()
            if job.log == "json":
                route_libraries()
            result, message, code = _conclude(lambda: step(job, executor, StoppableReporter(report, handler.signals)))
        print_result(result, as_json=options.as_json)
        if code:
            handler.exit(message, code)


def _conclude(step: Callable[[], dict[str, Any]]) -> tuple[dict[str, Any], str, int]:
    """Return the result of a step; with a message and an exit code if it committed, but not all that was asked for."""
    from ridgestream.jobs.cli.exit_codes import HELD, UNREPORTED
    from ridgestream.jobs.report.report_files import Concluded, Unreported

    try:
        return step(), "", 0
    except Concluded as ended:
        return ended.result, str(ended), UNREPORTED if isinstance(ended, Unreported) else HELD
