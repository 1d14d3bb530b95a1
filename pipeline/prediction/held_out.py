"""Reads held-out partitions for an evaluation, and checks them before a training: what the evaluation would refuse."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats, Integers
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import Executor
from ridgestream.pipeline.base.policies import ERROR, Policies
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.feature_map_fit import fit_feature_map
from ridgestream.pipeline.dataset.feature_map_growth import encoding_of
from ridgestream.pipeline.dataset.task_label import partition_needs
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.models.learned_ranges import LearnedRanges
from ridgestream.pipeline.prediction.input_checks import InputChecker, InputSummary
from ridgestream.stores.catalog.ledger import Ledger
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.parquet.partitions import PartitionFile, check_unchanged, read_arrow_schema, read_batches
from ridgestream.stores.parquet.source_walk import escape_path
from ridgestream.stores.requests.activity import ACTIVITY
from ridgestream.stores.schema.column_rules import ColumnRules
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.schema.schema import Schema
from ridgestream.stores.segments.segments import Segments

if TYPE_CHECKING:
    import zarr

Batch = tuple[Rows, Sequence[Integers], Floats, Integers]
"""Rows with a prediction, the code maps of their categories, their encoded targets, and their numbers in the file."""


class HeldOutReader:
    """Reads a held-out partition, batch by batch, and checks its rows against a model's feature map."""

    def __init__(
        self,
        file: PartitionFile,
        feature_map: FeatureMap,
        schema: Schema,
        policies: Policies,
        ranges: LearnedRanges | None = None,
    ) -> None:
        self._file, self._map, self._schema = file, feature_map, schema
        self._decoder = Decoder(schema, str(file.path), missing=policies.missing)
        self._checker = InputChecker(feature_map, self._decoder, policies, ranges)

    @property
    def summary(self) -> InputSummary:
        """The counts of the rows read so far."""
        return self._checker.summary

    def batches(self) -> Iterator[Batch]:
        """Yield the rows; raises PartitionError, naming file, column, row and value, for one that cannot be used."""
        decoder = self._decoder
        decoder.check(read_arrow_schema(self._file))
        for batch in read_batches(self._file, self._schema.columns(with_target=True)):
            decoded = decoder.decode(batch)
            answered, maps = self._checker.check(decoded)
            rows = decoded if answered.all() else decoded.take(answered)
            if rows.targets is not None:
                numbers = decoder.rows - len(decoded) + np.flatnonzero(answered)
                yield rows, maps, self._targets(rows.targets, rows.weights), numbers
        check_unchanged(self._file)

    def _targets(self, raw: Floats, weights: Floats | None) -> Floats:
        """Return the encoded targets; raises PartitionError naming the file for a class unknown to the model."""
        table = list(self._decoder.classes)
        present = raw[:, 0] if weights is None else raw[weights > 0, 0]
        try:
            self._map.target.check_classes([table[int(code)] for code in np.unique(present)] if table else [])
        except InputError as error:
            raise PartitionError(f"{self._decoder.file}: {error}") from error
        return self._map.target.encode(raw, table)


def check_partitions(files: Sequence[PartitionFile], schema: Schema) -> None:
    """Raise PartitionError for a file that is not Parquet, or has a missing or unsuitable column; reads no row."""
    for file in ACTIVITY.counted(files, "the columns of held-out partitions"):
        Decoder(schema, str(file.path)).check(read_arrow_schema(file))


def check_held_out(
    files: Sequence[PartitionFile],
    feature_map: FeatureMap | None,
    schema: Schema,
    executor: Executor,
    report: Reporter,
    policies: Policies,
) -> None:
    """Raise PartitionError for a row that the evaluation of a model with this feature map would refuse, or for no rows.

    Reads every row, one task for each partition. Without a feature map, any category and class is taken for known; what
    depends on the model's coefficients is not known yet.
    """
    check_partitions(files, schema)
    executor.admit(partition_needs(files))
    report.begin(events.STEP_CHECK_HELD_OUT, None, partitions=len(files))
    counted = 0
    for rows, evaluated in executor.run(check_partition, files, executor.broadcast(feature_map), schema, policies):
        report.advance(rows)
        counted += evaluated
    report.end()
    if not counted:
        names = escape_path(files[0].path) + (f" and {len(files) - 1} more" if len(files) > 1 else "")
        raise PartitionError(
            f"the held-out partitions have no rows to evaluate a model on: {names}; give evaluate.path others, or "
            "leave it out of the job file"
        )


def check_partition(
    file: PartitionFile, feature_map: FeatureMap | None, schema: Schema, policies: Policies
) -> tuple[int, int]:
    """Return the number of rows of a partition, and of those that count; raises PartitionError for an unusable one."""
    if feature_map is None:
        decoder = Decoder(schema, str(file.path), missing=policies.missing)
        batches = read_batches(file, schema.columns(with_target=True))
        counted = sum(_count_weighted(decoder.decode(batch)) for batch in batches)
        return decoder.rows, counted
    reader = HeldOutReader(file, feature_map, schema, policies)
    counted = sum(_count_weighted(rows) for rows, *_ in reader.batches())
    return reader.summary.rows, counted


def _count_weighted(rows: Rows) -> int:
    """Return the number of rows of positive weight."""
    return len(rows) if rows.weights is None else int(np.count_nonzero(rows.weights))


def held_out_feature_map(
    root: "zarr.Group",
    ledger: Ledger,
    record: ModelRecord | None,
    scaling_rows: int | None,
    rules: ColumnRules,
    policy: str,
) -> FeatureMap:
    """Return a feature map with all classes, and with `policy` "error" all categories, of the model after a training.

    With the other policies an unknown category is no error, so it does not matter which ones the training adds.
    `record` is the model before it, None for a new one.
    """
    if record is not None:
        return encoding_of(record, ledger.schema)
    return fit_feature_map(Segments(root), ledger, scaling_rows, rules, whole_ledger=policy == ERROR)
