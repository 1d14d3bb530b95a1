"""Prediction: Parquet in, Parquet out, row for row, one task and one output file a partition."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ridgestream.pipeline.arrays import Floats, Integers
from ridgestream.pipeline.classes import winners_of
from ridgestream.pipeline.evaluate import code_maps_of
from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.model import Model
from ridgestream.pipeline.reporting import Reporter
from ridgestream.stores.classes import arrow_class_type, class_name
from ridgestream.stores.decoding import Decoder
from ridgestream.stores.errors import PartitionError
from ridgestream.stores.partitions import PartitionFile, check_unchanged, read_arrow_schema, read_batches
from ridgestream.stores.predictions import whole_parquet
from ridgestream.stores.rows import Rows
from ridgestream.stores.schema import Schema, check_column

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
) -> int:
    """Write a file of predictions below `output` for each partition, under its own name; return the rows predicted.

    A class against the rest gives `prediction` (int8: 1 or −1) and `score` (double: f(x)); classes each against the
    rest give `prediction` (in the type of the store's classes), and with `with_scores` `score_CLASS`, the largest of
    which wins; regression gives `prediction` (double, in target units), `prediction_TARGET` if there are several. A
    model with its uncertainty adds `std` and `std_observed`, of each target or class (double, in target units): the
    standard deviations of f(x) and of a new observation. Raises PartitionError for a partition that cannot be used,
    StoreError where nothing can be written; files finished before that stay.
    """
    inside = [file for file in files if (output / file.name).resolve() == file.path.resolve()]
    if inside:
        raise PartitionError(f"the predictions of {inside[0].path} would replace it: choose another output folder")
    keep = tuple(dict.fromkeys(keep))
    unnamed = [n for n in schema.unnamed(read_arrow_schema(files[0]).names) if n not in keep] if files else []
    if unnamed:
        report.say("columns that are not in the schema are not read", columns=", ".join(unnamed))
    tasks = [PredictTask(file, output / file.name, keep, with_scores) for file in files]
    report.begin("predict", None, partitions=len(tasks))
    rows = 0
    for done in executor.run(predict_partition, tasks, executor.broadcast(model), schema):
        rows += done
        report.advance(done)
    report.end(rows=rows, partitions=len(tasks))
    return rows


def predict_partition(task: PredictTask, model: Model, schema: Schema) -> int:
    """Write one file of predictions, whole or not at all; return its rows."""
    import pyarrow as pa

    arrow = read_arrow_schema(task.file)
    decoder = Decoder(schema, str(task.file.path), with_target=False)
    decoder.check(arrow)
    new = _prediction_fields(schema, model, with_scores=task.with_scores)
    _check_distinct([field.name for field in new], decoder.place)
    kept = _kept_fields(task, arrow, {field.name for field in new})
    out_schema = pa.schema([*kept, *new])
    with whole_parquet(task.output, out_schema) as writer:
        for batch, predicted in _predict_batches(task, model, decoder):
            columns = [batch.column(field.name) for field in kept] + predicted
            writer.write_batch(pa.record_batch(columns, schema=out_schema))
        check_unchanged(task.file)
    return decoder.rows


def _predict_batches(
    task: PredictTask, model: Model, decoder: Decoder
) -> "Iterator[tuple[pa.RecordBatch, list[pa.Array]]]":
    """Yield each batch with the columns of its predictions, as `_prediction_fields` names them."""
    import pyarrow as pa

    names = list(dict.fromkeys([*decoder.schema.columns(with_target=False), *task.keep]))
    for batch in read_batches(task.file, names):
        rows = decoder.decode(batch)
        maps = code_maps_of(model, decoder)
        outputs = model.predict(rows.numeric, rows.codes, maps)
        pairs = zip(*_deviations(model, rows, maps), strict=True) if model.uncertainty else ()
        deviations = [pa.array(column) for pair in pairs for column in pair]
        yield batch, [*_predictions(outputs, model, decoder.schema, with_scores=task.with_scores), *deviations]


def _predictions(outputs: Floats, model: Model, schema: Schema, *, with_scores: bool) -> "list[pa.Array]":
    """Return the winning class and the scores, or the outputs themselves."""
    import pyarrow as pa

    if schema.class_kind is not None:
        labels = pa.array(model.feature_map.classes, arrow_class_type(schema.class_kind))
        scores = model.feature_map.class_scores(outputs)
        return [labels.take(pa.array(winners_of(scores))), *(_columns(scores) if with_scores else ())]
    signs = [] if schema.positive is None else [pa.array(np.where(outputs[:, 0] > 0, 1, -1).astype(np.int8))]
    return [*signs, *_columns(outputs)]


def _deviations(model: Model, rows: Rows, maps: Sequence[Integers]) -> "tuple[list[Floats], list[Floats]]":
    """Return the two deviations of each target or class."""
    of_f, of_observed = (
        model.feature_map.class_deviations(d) for d in model.deviations(rows.numeric, rows.codes, maps)
    )
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
