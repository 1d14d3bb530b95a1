"""Prediction: Parquet in, Parquet out, row for row, a task and a file each partition; what is finished stays."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.serialization import hash_of
from ridgestream.pipeline.dataset.boolean_columns import with_boolean_fill
from ridgestream.pipeline.dataset.range_checks import check_predictions
from ridgestream.pipeline.dataset.task_label import needs_of
from ridgestream.pipeline.features.one_vs_rest import winners_of
from ridgestream.pipeline.models.predictor import Model
from ridgestream.pipeline.prediction.evaluate import predictions_of
from ridgestream.pipeline.prediction.input_checks import Asked, Asking
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.errors.transient import is_transient
from ridgestream.stores.files.paths import FileLocation, is_same_location
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import PartitionFile, check_unchanged, read_arrow_schema, read_batches
from ridgestream.stores.parquet.predictions import read_provenance, write_predictions
from ridgestream.stores.schema.class_labels import arrow_class_type, class_name
from ridgestream.stores.schema.column_types import check_column
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


RULES = 1
"""The rules by which predictions are made of a model; raised where a release changes a bit of them."""


@dataclass(frozen=True)
class PredictTask:
    """One partition to predict."""

    file: PartitionFile
    """Its rows."""
    output: FileLocation
    """The file to write."""
    keep: tuple[str, ...]
    """Columns of the input that the output repeats."""
    with_scores: bool = False
    """Whether each class's score is written."""
    made_by: str = ""
    """A fingerprint of model and options."""
    again: bool = False
    """Whether to predict it even if it is finished."""

    @property
    def made_of(self) -> dict[str, Any]:
        """What its predictions are made of, as the output says: they are finished if it says the same."""
        file = self.file
        return {"input": [file.name, file.size_bytes, file.modified_ns], "made_by": self.made_by}


@dataclass(frozen=True)
class Outcome:
    """What came of one partition."""

    asked: Asked = field(default_factory=Asked)
    """What was seen of its rows."""
    finished: bool = False
    """Whether it was finished before, and nothing was done."""
    error: str = ""
    """Why it cannot be predicted, if it cannot."""


@dataclass(frozen=True)
class Predicted:
    """What came of a folder of partitions."""

    asked: Asked = field(default_factory=Asked)
    """What was seen of all rows that have predictions now."""
    written: int = 0
    """The files that were written."""
    skipped: int = 0
    """Those that were finished before."""
    errors: tuple[str, ...] = ()
    """Why others cannot be predicted."""

    @property
    def rows(self) -> int:
        """The rows that have predictions now."""
        return self.asked.rows

    def with_outcome(self, outcome: Outcome) -> "Predicted":
        """Return it with one more partition."""
        if outcome.error:
            return replace(self, errors=(*self.errors, outcome.error))
        skipped = int(outcome.finished)
        return replace(
            self,
            asked=self.asked.merge(outcome.asked),
            written=self.written + 1 - skipped,
            skipped=self.skipped + skipped,
        )

    def check_all_predicted(self) -> None:
        """Raise PartitionError if a partition cannot be predicted: the first one's reason, and how many more."""
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
    with_scores: bool = False,
    policies: Policies | None = None,
    again: bool = False,
) -> Predicted:
    """Write a file of predictions below `output` for each partition, under its own name; return what came of them.

    A class against the rest gives `prediction` (int8: 1 or −1) and `score` (double: f(x)); classes each against the
    rest give `prediction` (in the type of the store's classes), and with `with_scores` `score_CLASS`, the largest of
    which wins; regression gives `prediction` (double, in target units), `prediction_TARGET` if there are several. A
    model with its uncertainty adds `std` and `std_observed`, of each target or class (double, in target units): the
    standard deviations of f(x) and of a new observation. The columns of `keep` come before them, as the input has them.
    `policies` (by default all errors) say what becomes of missing values and of categories that the model does not
    know; with `drop`, a row that lacks a value has null in all of these columns.

    A partition is finished, and not read again, if its file of predictions says that it was made of an input of this
    name, size and time stamp by the same bits of the model with the same options; `again` predicts it all the same. One
    that cannot be used, or in whose place there is a file of somebody else's, undoes no other: all others are written,
    then PartitionError is raised. Raises StoreError where nothing can be written; files finished before that stay.
    """
    inside = [file for file in files if is_same_location(output / file.name, file.path)]
    if inside:
        raise PartitionError(f"the predictions of {inside[0].path} would replace it: choose another output folder")
    keep, policies = tuple(dict.fromkeys(keep)), policies or Policies()
    model = replace(model, feature_map=with_boolean_fill(model.feature_map, schema))
    _tell_unnamed(schema, files, keep, report)
    made_by = hash_of((RULES, model, schema, keep, with_scores, policies.missing, policies.unseen_categories))
    tasks = [PredictTask(file, output / file.name, keep, with_scores, made_by, again) for file in files]
    executor.admit(needs_of(files))
    report.begin(events.STEP_PREDICT, None, partitions=len(tasks))
    done = Predicted()
    for outcome in executor.run(predict_partition, tasks, executor.broadcast(model), schema, policies):
        done = done.with_outcome(outcome)
        report.advance(outcome.asked.rows)
    counts = {"skipped": done.skipped, "failed": len(done.errors)}
    report.end(rows=done.rows, partitions=len(tasks), **{name: count for name, count in counts.items() if count})
    done.asked.tell(report, events.PREDICT_ROWS_LEFT_OUT)
    done.check_all_predicted()
    return done


def predict_partition(task: PredictTask, model: Model, schema: Schema, policies: Policies) -> Outcome:
    """Write one file of predictions, whole or not at all, unless it is finished; return what came of it."""
    made_of = None
    try:
        made_of = read_provenance(task.output)
        if made_of is not None and not task.again and made_of.items() >= task.made_of.items():
            return Outcome(Asked(**made_of["asked"]), finished=True)
        return Outcome(_predict_rows(task, model, schema, policies))
    except PartitionError as error:
        if is_transient(error):  # no fault of the partition
            raise
        stays = f"; {task.output} stays as it was, of an earlier input or model" if made_of is not None else ""
        return Outcome(error=f"{error}{stays}")


def _tell_unnamed(schema: Schema, files: Sequence[PartitionFile], keep: tuple[str, ...], report: Reporter) -> None:
    """Say which columns of the first file are not read; what is wrong with a file is said when it is predicted."""
    with suppress(PartitionError):
        names = read_arrow_schema(files[0]).names if files else []
        unnamed = [name for name in schema.unused_columns(names) if name not in keep]
        if unnamed:
            report.say(events.PREDICT_COLUMNS_IGNORED, columns=", ".join(unnamed))


def _predict_rows(task: PredictTask, model: Model, schema: Schema, policies: Policies) -> Asked:
    import pyarrow as pa

    arrow = read_arrow_schema(task.file)
    decoder = Decoder(schema, str(task.file.path), with_target=False, missing=policies.missing)
    decoder.check(arrow)
    asking = Asking(model.feature_map, decoder, policies)
    new = _prediction_fields(schema, model, with_scores=task.with_scores)
    _check_distinct([field.name for field in new], decoder.place)
    kept = _kept_fields(task, arrow, {field.name for field in new})
    out_schema = pa.schema([*kept, *new])
    with write_predictions(task.output, out_schema) as writer:
        for batch, predicted in _predict_batches(task, model, decoder, asking):
            columns = [batch.column(field.name) for field in kept] + predicted
            writer.write_batch(pa.record_batch(columns, schema=out_schema))
        check_unchanged(task.file)
        writer.set_provenance({**task.made_of, "asked": asdict(asking.asked)})
    return asking.asked


def _predict_batches(
    task: PredictTask, model: Model, decoder: Decoder, asking: Asking
) -> "Iterator[tuple[pa.RecordBatch, list[pa.Array]]]":
    """Yield each batch with the columns of its predictions, as `_prediction_fields` names them."""
    import pyarrow as pa

    names = list(dict.fromkeys([*decoder.schema.columns(with_target=False), *task.keep]))
    for batch in read_batches(task.file, names):
        rows = decoder.decode(batch)
        answered, maps = asking.look(rows)
        numbers = np.arange(decoder.rows - len(rows), decoder.rows)
        outputs = predictions_of(model, rows, maps, decoder.place, numbers)
        pairs = zip(*_deviations(model, rows, maps, decoder.place, numbers), strict=True) if model.uncertainty else ()
        deviations = [pa.array(column) for pair in pairs for column in pair]
        columns = [*_predictions(outputs, model, decoder.schema, with_scores=task.with_scores), *deviations]
        yield batch, columns if answered.all() else [_only(answered, column) for column in columns]


def _only(answered: npt.NDArray[np.bool_], column: "pa.Array") -> "pa.Array":
    """Return the column with null where there is no answer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pa.array(answered), column, pa.scalar(None, column.type))


def _predictions(outputs: Floats, model: Model, schema: Schema, *, with_scores: bool) -> "list[pa.Array]":
    """Return the winning class and the scores, or the outputs themselves."""
    import pyarrow as pa

    if schema.class_kind is not None:
        labels = pa.array(model.feature_map.target.classes, arrow_class_type(schema.class_kind))
        scores = model.feature_map.target.class_scores(outputs)
        return [labels.take(pa.array(winners_of(scores))), *(_columns(scores) if with_scores else ())]
    signs = [] if schema.positive is None else [pa.array(np.where(outputs[:, 0] > 0, 1, -1).astype(np.int8))]
    return [*signs, *_columns(outputs)]


def _deviations(
    model: Model, rows: Rows, maps: Sequence[Integers], place: str, numbers: Integers
) -> "tuple[list[Floats], list[Floats]]":
    """Return the two deviations of each target or class."""
    with np.errstate(over="ignore", invalid="ignore"):
        deviations = model.deviations(rows.numeric, rows.codes, maps)
    check_predictions(np.hstack(deviations), place, numbers)
    of_f, of_observed = (model.feature_map.target.class_deviations(d) for d in deviations)
    return list(of_f.T), list(of_observed.T)


def _columns(values: Floats) -> "list[pa.Array]":
    import pyarrow as pa

    return [pa.array(column) for column in values.T]


def _kept_fields(task: PredictTask, arrow: "pa.Schema", taken: set[str]) -> "list[pa.Field]":
    for name in task.keep:
        check_column(name, arrow, str(task.file.path))
        if name in taken:
            raise PartitionError(f"{task.file.path}: column {name!r} cannot be kept, the predictions have that name")
    return [arrow.field(name) for name in task.keep]


def _prediction_fields(schema: Schema, model: Model, *, with_scores: bool) -> "list[pa.Field]":
    import pyarrow as pa

    columns: list[tuple[str, pa.DataType]] = []
    endings = [f"_{name}" for name in schema.targets] if len(schema.targets) > 1 else [""]
    if schema.class_kind is not None:
        endings = [f"_{class_name(label)}" for label in model.feature_map.target.classes]
        columns = [("prediction", arrow_class_type(schema.class_kind))]
        columns += [(f"score{ending}", pa.float64()) for ending in endings if with_scores]
    elif schema.positive is not None:
        columns = [("prediction", pa.int8()), ("score", pa.float64())]
    else:
        columns = [(f"prediction{ending}", pa.float64()) for ending in endings]
    if model.uncertainty is not None:
        columns += [(f"{std}{ending}", pa.float64()) for ending in endings for std in ("std", "std_observed")]
    return [pa.field(name, kind) for name, kind in columns]


def _check_distinct(names: list[str], place: str) -> None:
    """Raise PartitionError if two columns of predictions have one name: targets `a` and `observed_a` make it happen."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PartitionError(
            f"{place}: two columns of its predictions would be called {twice!r}; rename a target or class, or leave "
            "out --std"
        )
