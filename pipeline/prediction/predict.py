"""Prediction: for each Parquet partition a task and an output file, row by row; finished files are kept."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.dataset.boolean_columns import with_boolean_fill
from ridgestream.pipeline.dataset.task_label import partition_needs
from ridgestream.pipeline.models.learned_ranges import LearnedRanges
from ridgestream.pipeline.models.predictor import Model
from ridgestream.pipeline.prediction.batch_predictor import BatchPredictor
from ridgestream.pipeline.prediction.input_checks import InputSummary
from ridgestream.pipeline.prediction.prediction_columns import Extras
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.errors.transient import is_transient
from ridgestream.stores.files.paths import FileLocation, is_same_location
from ridgestream.stores.parquet.partitions import PartitionFile, check_unchanged, read_arrow_schema, read_batches
from ridgestream.stores.parquet.predictions import read_provenance, write_predictions
from ridgestream.stores.schema.column_types import check_column
from ridgestream.stores.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


RULES = 1
"""The version of the prediction rules; increased when a release changes any bit of predictions for the same model."""


@dataclass(frozen=True)
class PredictTask:
    """A partition to predict."""

    file: PartitionFile
    """The partition."""
    output: FileLocation
    """The file to write."""
    keep: tuple[str, ...]
    """Input columns copied to the output."""
    extras: Extras = Extras()  # noqa: RUF009 (frozen)
    """The columns in addition to the predictions."""
    made_by: str = ""
    """A fingerprint of model and options."""
    again: bool = False
    """Whether to predict it even if its output is up to date."""

    @property
    def provenance(self) -> dict[str, Any]:
        """The provenance of its predictions; an existing output with the same provenance is up to date."""
        file = self.file
        before = {"before": hash_of([_stamp(earlier) for earlier in file.before])} if file.lags is not None else {}
        return {"input": _stamp(file), "made_by": self.made_by, **before}


def _stamp(file: PartitionFile) -> list[str | int]:
    return [file.name, file.size_bytes, file.modified_ns]


@dataclass(frozen=True)
class PartitionOutcome:
    """The outcome of one partition."""

    summary: InputSummary = field(default_factory=InputSummary)
    """The counts of its rows."""
    finished: bool = False
    """Whether its output was up to date, so that nothing was done."""
    error: str = ""
    """Why it cannot be predicted, if it cannot."""


@dataclass(frozen=True)
class PredictionResult:
    """The outcome of all partitions."""

    summary: InputSummary = field(default_factory=InputSummary)
    """The counts of all rows that now have predictions."""
    written: int = 0
    """Number of files written."""
    skipped: int = 0
    """Number of files that were up to date."""
    errors: tuple[str, ...] = ()
    """Why the other partitions cannot be predicted."""

    @property
    def rows(self) -> int:
        """Number of rows that now have predictions."""
        return self.summary.rows

    def with_outcome(self, outcome: PartitionOutcome) -> "PredictionResult":
        """Return the result with one more partition."""
        if outcome.error:
            return replace(self, errors=(*self.errors, outcome.error))
        skipped = int(outcome.finished)
        return replace(
            self,
            summary=self.summary.merge(outcome.summary),
            written=self.written + 1 - skipped,
            skipped=self.skipped + skipped,
        )

    def check_all_predicted(self) -> None:
        """Raise PartitionError if a partition cannot be predicted, with the first reason and the number of others."""
        if self.errors:
            others = f" ({len(self.errors) - 1:,} more partitions cannot be predicted)" if self.errors[1:] else ""
            raise PartitionError(self.errors[0] + others)


def predict(
    model: Model,
    schema: Schema,
    files: Sequence[PartitionFile],
    output: FileLocation,
    keep: tuple[str, ...],
    executor: Executor,
    report: Reporter,
    *,
    extras: Extras | None = None,
    policies: Policies | None = None,
    again: bool = False,
    ranges: LearnedRanges | None = None,
) -> PredictionResult:
    """Write a file of predictions below `output` for each partition, under its own name; return the counts.

    Binary classification gives `prediction` (int8: 1 or −1) and `score` (double: f(x)). Multi-class classification
    gives `prediction` (in the type of the store's classes). Regression gives `prediction` (double, in target units), or
    `prediction_TARGET` for several targets. `extras` add `score_CLASS` for each of many classes, the largest of which
    wins; `std` and `std_observed` for each target or class (double, in target units), the standard deviations of f(x)
    and of a new observation; `lower` and `upper` of an interval for each target; `probability_CLASS` for each class, or
    for the positive one alone. The columns of `keep` precede them, as in the
    input. `policies` (by default all errors) determine the treatment of missing values and of categories unknown to the
    model; with `drop`, rows with a missing value have null in all of these columns. With the ranges of the rows that
    the model has learned, the rows outside of them are counted.

    A partition is skipped if its output file states that it was made from an input of this name, size and time stamp by
    bitwise the same model with the same options, unless `again`. One that cannot be used, or whose output file was not
    written by predict, does not affect the others: all others are written, then PartitionError is raised. Raises
    StoreError if nothing can be written; files finished before that are kept.
    """
    inside = [file for file in files if is_same_location(output / file.name, file.path)]
    if inside:
        raise PartitionError(f"the predictions of {inside[0].path} would replace it: choose another output folder")
    keep, policies, extras = tuple(dict.fromkeys(keep)), policies or Policies(), extras or Extras()
    model = model.having(feature_map=with_boolean_fill(model.feature_map, schema))
    _report_unused_columns(schema, files, keep, report)
    made_by = hash_of((RULES, model, schema, keep, extras, policies.missing, policies.unseen_categories))
    tasks = [PredictTask(file, output / file.name, keep, extras, made_by, again) for file in files]
    executor.admit(partition_needs(files))
    report.begin(events.STEP_PREDICT, None, partitions=len(tasks))
    result = PredictionResult()
    for outcome in executor.run(predict_partition, tasks, executor.broadcast(model), schema, policies, ranges):
        result = result.with_outcome(outcome)
        report.advance(outcome.summary.rows)
    counts = {"skipped": result.skipped, "failed": len(result.errors)}
    report.end(rows=result.rows, partitions=len(tasks), **{name: count for name, count in counts.items() if count})
    result.summary.report_to(report, events.PREDICT_ROWS_LEFT_OUT, ranges)
    result.check_all_predicted()
    return result


def predict_partition(
    task: PredictTask, model: Model, schema: Schema, policies: Policies, ranges: LearnedRanges | None = None
) -> PartitionOutcome:
    """Write one file of predictions atomically, unless it is up to date; return the outcome."""
    provenance = None
    try:
        provenance = read_provenance(task.output)
        if provenance is not None and not task.again and provenance.items() >= task.provenance.items():
            return PartitionOutcome(InputSummary(**provenance["asked"]), finished=True)
        return PartitionOutcome(_predict_rows(task, model, schema, policies, ranges))
    except PartitionError as error:
        if is_transient(error):  # no fault of the partition
            raise
        note = f"; {task.output} is unchanged, from an earlier input or model" if provenance is not None else ""
        return PartitionOutcome(error=f"{error}{note}")


def _report_unused_columns(
    schema: Schema, files: Sequence[PartitionFile], keep: tuple[str, ...], report: Reporter
) -> None:
    """Report which columns of the first file are not read; errors of a file are reported when it is predicted."""
    with suppress(PartitionError):
        names = read_arrow_schema(files[0]).names if files else []
        unnamed = [name for name in schema.unused_columns(names) if name not in keep]
        if unnamed:
            report.say(events.PREDICT_COLUMNS_IGNORED, columns=", ".join(unnamed))


def _predict_rows(
    task: PredictTask, model: Model, schema: Schema, policies: Policies, ranges: LearnedRanges | None
) -> InputSummary:
    import pyarrow as pa

    arrow = read_arrow_schema(task.file)
    path = str(task.file.path)
    predictor = BatchPredictor(model, schema, path, extras=task.extras, policies=policies, ranges=ranges)
    new = predictor.open(arrow)
    copied = _copied_fields(task, arrow, {field.name for field in new})
    out_schema = pa.schema([*copied, *new])
    with write_predictions(task.output, out_schema) as writer:
        for batch in read_batches(task.file, list(dict.fromkeys([*predictor.columns, *task.keep]))):
            columns = [batch.column(field.name) for field in copied] + predictor.predict(batch)
            writer.write_batch(pa.record_batch(columns, schema=out_schema))
        check_unchanged(task.file)
        writer.set_provenance({**task.provenance, "asked": asdict(predictor.summary)})
    return predictor.summary


def _copied_fields(task: PredictTask, arrow: "pa.Schema", names: set[str]) -> "list[pa.Field]":
    for name in task.keep:
        check_column(name, arrow, str(task.file.path))
        if name in names:
            raise PartitionError(f"{task.file.path}: column {name!r} cannot be kept, the predictions have that name")
    return [arrow.field(name) for name in task.keep]
