"""The predict command: Parquet in, Parquet out, by a model in the store."""

from dataclasses import replace
from typing import Any, TypeVar

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import listed_partitions, open_served, policies
from ridgestream.jobs.config.sections import PredictSection
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.console.log_format import describe_run
from ridgestream.jobs.runs.guard import night_served
from ridgestream.jobs.runs.peak_memory import peak_rss_bytes
from ridgestream.pipeline.base.errors import Names, errors_renamed
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.calibration.intervals import Intervals
from ridgestream.pipeline.calibration.probabilities import Probabilities
from ridgestream.pipeline.features.feature_map import UNSEEN_REMEDY
from ridgestream.pipeline.models.calibration import intervals_of, probabilities_of
from ridgestream.pipeline.models.model_record import model_of
from ridgestream.pipeline.models.predictor import Model
from ridgestream.pipeline.prediction.predict import predict
from ridgestream.pipeline.prediction.prediction_columns import Extras
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.files.paths import FileLocation
from ridgestream.stores.parquet.partitions import check_apart, linked_folders
from ridgestream.stores.schema.schema import Schema

Part = TypeVar("Part", Intervals, Probabilities)


_NAMES: Names = {
    UNSEEN_REMEDY: "correct the rows, or pass over such categories by --set source.unseen_categories=ignore"
}


@errors_renamed(_NAMES)
def run_predict(
    job: Job,
    source: FileLocation | None,
    output: FileLocation | None,
    executor: Executor,
    report: Reporter,
    *,
    extras: Extras | None = None,
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
    extras = _extras(extras or Extras(), section, served.schema)
    files = listed_partitions(job, source, report)
    for location in (source, *linked_folders(source, files), job.location(job.source.path)):
        check_apart(location, output)
    model = model_with(served.record, extras)
    where = served.schema, files, output, section.keep, executor, report
    done = predict(model, *where, extras=extras, policies=policies(job), again=again, ranges=served.ranges())
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


def _extras(asked: Extras, section: PredictSection, schema: Schema) -> Extras:
    """Return the columns that command and job ask for; raises JobFileError if the target cannot have one of them."""
    level = asked.level if asked.level is not None else section.interval
    return check_extras(replace(asked, level=level, probabilities=asked.probabilities or section.proba), schema)


def check_extras(extras: Extras, schema: Schema) -> Extras:
    """Return the columns that are asked for; raises JobFileError if the target cannot have one of them."""
    if extras.scores and not schema.classifies:
        raise JobFileError("--scores is for classes, and the target is a number")
    if extras.probabilities and not schema.classifies:
        raise JobFileError("--proba is for classes, and the target is a number: --interval has intervals")
    if extras.level is not None and not 0 < extras.level < 1:
        raise JobFileError(f"--interval takes a level above 0 and below 1, such as 0.9; it is {extras.level:g}")
    if extras.level is not None and schema.classifies:
        raise JobFileError("--interval is for numbers, and the target is a class: --proba has the probability of each")
    return extras


def model_with(record: ModelRecord, extras: Extras) -> Model:
    """Return the model of a record with what the columns take; raises ModelError or InputError if it lacks that."""
    model = model_of(record, with_uncertainty=extras.std or extras.level is not None)
    if extras.level is not None:
        intervals = _present(intervals_of(record), record, "intervals")
        model = model.having(intervals=intervals)
        intervals.factors(extras.level)  # its error comes before any row is read
    if extras.probabilities:
        model = model.having(probabilities=_present(probabilities_of(record), record, "probabilities"))
    return model


def _present(part: Part | None, record: ModelRecord, name: str) -> Part:
    if part is None:
        raise ModelError(
            f"the model {record.name!r} has no {name}: an older release trained it, or it could not be calibrated; the "
            "next night that learns rows calibrates it"
        )
    return part
