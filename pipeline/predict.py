"""Prediction: Parquet in, Parquet out, row for row, one task and one output file a partition."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.answering import Asked, Asking
from ridgestream.pipeline.arrays import Floats, Integers
from ridgestream.pipeline.arrivals import Policies
from ridgestream.pipeline.booleans import knowing_booleans
from ridgestream.pipeline.classes import winners_of
from ridgestream.pipeline.evaluate import predictions_of
from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.model import Model
from ridgestream.pipeline.ranges import check_predictions
from ridgestream.pipeline.reporting import Reporter
from ridgestream.stores.classes import arrow_class_type, class_name
from ridgestream.stores.columns import check_column
from ridgestream.stores.decoding import Decoder
from ridgestream.stores.errors import PartitionError
from ridgestream.stores.partitions import PartitionFile, check_unchanged, read_arrow_schema, read_batches
from ridgestream.stores.predictions import whole_parquet
from ridgestream.stores.rows import Rows
from ridgestream.stores.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class PredictTask:
    """One partition to predict."""

    file: PartitionFile
    """Its rows."""
    output: Path
    """The file to write."""
    keep: tuple[str, ...]
    """Columns of the input that the output repeats."""
    with_scores: bool = False
    """Whether each class's score is written."""


def predict(
    model: Model,
    schema: Schema,
    files: Sequence[PartitionFile],
    output: Path,
    keep: tuple[str, ...],
    executor: Executor,
    report: Reporter,
    *,
    with_scores: bool = False,
    policies: Policies | None = None,
) -> Asked:
    """Write a file of predictions below `output` for each partition, under its own name; return what was seen of them.

    A class against the rest gives `prediction` (int8: 1 or −1) and `score` (double: f(x)); classes each against the
    rest give `prediction` (in the type of the store's classes), and with `with_scores` `score_CLASS`, the largest of
    which wins; regression gives `prediction` (double, in target units), `prediction_TARGET` if there are several. A
    model with its uncertainty adds `std` and `std_observed`, of each target or class (double, in target units): the
    standard deviations of f(x) and of a new observation. `policies` (by default all errors) say what becomes of
    missing values and of categories that the model does not know; with `drop`, a row that lacks a value has null in all
    of these columns. Raises PartitionError for a partition that cannot be used,
    StoreError where nothing can be written; files finished before that stay.
    """
    inside = [file for file in files if (output / file.name).resolve() == file.path.resolve()]
    if inside:
        raise PartitionError(f"the predictions of {inside[0].path} would replace it: choose another output folder")
    keep, policies = tuple(dict.fromkeys(keep)), policies or Policies()
    model = replace(model, feature_map=knowing_booleans(model.feature_map, schema))
    unnamed = [n for n in schema.unnamed(read_arrow_schema(files[0]).names) if n not in keep] if files else []
    if unnamed:
        report.say("columns that are not in the schema are not read", columns=", ".join(unnamed))
    tasks = [PredictTask(file, output / file.name, keep, with_scores) for file in files]
    report.begin("predict", None, partitions=len(tasks))
    asked = Asked()
    for seen in executor.run(predict_partition, tasks, executor.broadcast(model), schema, policies):
        asked = asked.merge(seen)
        report.advance(seen.rows)
    report.end(rows=asked.rows, partitions=len(tasks))
    asked.tell(report, "have no prediction")
    return asked


def predict_partition(task: PredictTask, model: Model, schema: Schema, policies: Policies) -> Asked:
    """Write one file of predictions, whole or not at all; return what was seen of its rows."""
    import pyarrow as pa

    arrow = read_arrow_schema(task.file)
    decoder = Decoder(schema, str(task.file.path), with_target=False, missing=policies.missing)
    decoder.check(arrow)
    asking = Asking(model.feature_map, decoder, policies)
    new = _prediction_fields(schema, model, with_scores=task.with_scores)
    _check_distinct([field.name for field in new], decoder.place)
    kept = _kept_fields(task, arrow, {field.name for field in new})
    out_schema = pa.schema([*kept, *new])
    with whole_parquet(task.output, out_schema) as writer:
        for batch, predicted in _predict_batches(task, model, decoder, asking):
            columns = [batch.column(field.name) for field in kept] + predicted
            writer.write_batch(pa.record_batch(columns, schema=out_schema))
        check_unchanged(task.file)
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
        labels = pa.array(model.feature_map.classes, arrow_class_type(schema.class_kind))
        scores = model.feature_map.class_scores(outputs)
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
    of_f, of_observed = (model.feature_map.class_deviations(d) for d in deviations)
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
        endings = [f"_{class_name(label)}" for label in model.feature_map.classes]
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
