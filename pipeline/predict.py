"""Prediction: Parquet in, Parquet out, row for row, one task and one output file a partition."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ridgestream.pipeline.evaluate import code_maps_of
from ridgestream.pipeline.executor import Executor
from ridgestream.pipeline.model import Model
from ridgestream.pipeline.reporting import Reporter
from ridgestream.stores.decoding import Decoder
from ridgestream.stores.errors import PartitionError
from ridgestream.stores.partitions import PartitionFile, check_unchanged, read_arrow_schema, read_batches
from ridgestream.stores.predictions import whole_parquet
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


def predict(
    model: Model,
    schema: Schema,
    files: Sequence[PartitionFile],
    output: Path,
    keep: tuple[str, ...],
    executor: Executor,
    report: Reporter,
) -> int:
    """Write a file of predictions below `output` for each partition, under its own name; return the rows predicted.

    A class against the rest gives `prediction` (int8: 1 or −1) and `score` (double: f(x)), regression `prediction`
    (double, in target units); a model with its uncertainty adds `std` and `std_observed` (double, in target units): the
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
    tasks = [PredictTask(file, output / file.name, keep) for file in files]
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
    new = _prediction_fields(schema, with_std=model.uncertainty is not None)
    kept = _kept_fields(task, arrow, {field.name for field in new})
    out_schema = pa.schema([*kept, *new])
    with whole_parquet(task.output, out_schema) as writer:
        for batch, predicted in _predict_batches(task, model, decoder):
            columns = [batch.column(field.name) for field in kept] + [pa.array(column) for column in predicted]
            writer.write_batch(pa.record_batch(columns, schema=out_schema))
        check_unchanged(task.file)
    return decoder.rows


def _predict_batches(
    task: PredictTask, model: Model, decoder: Decoder
) -> "Iterator[tuple[pa.RecordBatch, list[npt.NDArray[Any]]]]":
    """Yield each batch with the columns of its predictions."""
    names = list(dict.fromkeys([*decoder.schema.columns(with_target=False), *task.keep]))
    for batch in read_batches(task.file, names):
        rows = decoder.decode(batch)
        maps = code_maps_of(model, decoder)
        scores = model.predict(rows.numeric, rows.codes, maps)[:, 0]
        classes = [] if decoder.schema.positive is None else [np.where(scores > 0, 1, -1).astype(np.int8)]
        deviations = model.deviations(rows.numeric, rows.codes, maps) if model.uncertainty else ()
        yield batch, [*classes, scores, *(deviation[:, 0] for deviation in deviations)]


def _kept_fields(task: PredictTask, arrow: "pa.Schema", taken: set[str]) -> "list[pa.Field]":
    for name in task.keep:
        check_column(name, arrow, str(task.file.path))
        if name in taken:
            raise PartitionError(f"{task.file.path}: column {name!r} cannot be kept, the predictions have that name")
    return [arrow.field(name) for name in task.keep]


def _prediction_fields(schema: Schema, *, with_std: bool) -> "list[pa.Field]":
    import pyarrow as pa

    classes = [("prediction", pa.int8()), ("score", pa.float64())]
    columns = classes if schema.positive is not None else [("prediction", pa.float64())]
    if with_std:
        columns += [("std", pa.float64()), ("std_observed", pa.float64())]
    return [pa.field(name, kind) for name, kind in columns]
