"""The predict command: Parquet in, Parquet out, by a model in the store."""

from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import listed_partitions, open_served, policies
from ridgestream.jobs.config.sections import PredictSection
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.console.log_format import describe_run
from ridgestream.jobs.runs.guard import night_served
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.models.model_record import model_of
from ridgestream.pipeline.prediction.predict import predict
from ridgestream.stores.files.paths import FileLocation
from ridgestream.stores.parquet.partitions import check_apart, linked_folders


def run_predict(
    job: Job,
    source: FileLocation | None,
    output: FileLocation | None,
    executor: Executor,
    report: Reporter,
    *,
    with_std: bool = False,
    with_scores: bool = False,
    snapshot: str | None = None,
    again: bool = False,
) -> dict[str, Any]:
    """Predict the rows of `source` into `output` (by default those of the job) and return the result.

    Partitions whose predictions are finished are skipped, unless `again` is true.
    """
    section = job.predict or PredictSection()
    source = source or (job.location(section.path) if section.path else None)
    output = output or (job.location(section.output) if section.output else None)
    if source is None or output is None:
        raise JobFileError("give INPUT and OUTPUT, or a [predict] section with path and output in the job file")
    served = open_served(job, snapshot)
    describe_run(night=night_served(served.record) or None)
    served.warn_if_held(report)
    if with_scores and not served.schema.classifies:
        raise JobFileError("--scores is for classes; the job regresses on a number")
    files = listed_partitions(job, source, report)
    for location in (source, *linked_folders(source, files), job.location(job.source.path)):
        check_apart(location, output)
    model = model_of(served.record, with_uncertainty=with_std)
    where = served.schema, files, output, section.keep, executor, report
    done = predict(model, *where, with_scores=with_scores, policies=policies(job), again=again)
    return {
        "model": served.record.name,
        "rows": done.rows,
        "partitions": len(files),
        "written": done.written,
        "skipped": done.skipped,
        "output": str(output),
        **done.summary.as_dict(),
        "peak_rss_bytes": peak_rss_bytes(),
        "snapshot": served.snapshot,
    }
