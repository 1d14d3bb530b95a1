"""Decoding Arrow batches into rows: column types are checked against the schema, categories become codes."""

from typing import TYPE_CHECKING

import numpy as np

from ridgestream.stores.parquet.column_reader import ERROR, ColumnReader
from ridgestream.stores.parquet.target_decoder import TargetDecoder
from ridgestream.stores.parquet.transition_decoder import TransitionDecoder
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.column_types import BOOLEAN, NUMERIC, check_column, check_type, is_lagged
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class Decoder:
    """Decodes one partition, batch by batch; its category tables grow in the order in which values appear.

    `file` names the partition in messages. `with_target` says whether targets and weights are read, `missing` how
    missing values are treated (ERROR, DROP or IMPUTE); in a dictionary they are always refused.
    """

    def __init__(
        self,
        schema: Schema,
        file: str,
        *,
        with_target: bool = True,
        missing: str = ERROR,
        is_dictionary: bool = False,
    ) -> None:
        self.schema, self.file, self.missing = schema, file, missing
        self._reader = ColumnReader(schema, file, missing, is_dictionary)
        self._targets, self._transitions = TargetDecoder(self._reader), TransitionDecoder(self._reader)
        self.with_target = with_target
        self.categories: list[dict[str, int]] = [{} for _ in schema.categorical]
        """For each categorical feature, the code of each value."""

    @property
    def rows(self) -> int:
        """Number of rows decoded so far."""
        return self._reader.rows

    @property
    def absent(self) -> dict[str, int]:
        """Number of missing values of each column that has any."""
        return self._reader.absent

    @property
    def drops(self) -> bool:
        """Whether rows that lack a value are left out: by the policy, or since earlier rows are columns."""
        return self._reader.drops

    @property
    def classes(self) -> dict[Label, int]:
        """For a multi-class target, the code of each class."""
        return self._targets.classes

    def check(self, arrow: "pa.Schema") -> None:
        """Raise PartitionError if a column is missing or its type does not fit the schema."""
        new_columns = self.schema.unused_columns(arrow.names)
        for name in self.schema.columns(with_target=self.with_target):
            check_column(name, arrow, self.file, new_columns)
        for feature in self.schema.features:
            check_type(feature.kind, arrow.field(feature.name), self.file)
        if self.with_target:
            for name in self.schema.targets:
                self._targets.check_type(arrow.field(name))
            if self.schema.weight:
                check_type(NUMERIC, arrow.field(self.schema.weight), self.file)
            self._transitions.check_types(arrow)

    def decode(self, batch: "pa.RecordBatch") -> Rows:
        """Return the batch's rows; raises PartitionError for the first value that cannot be used."""
        reader = self._reader
        reader.lagged = frozenset(each.name for each in batch.schema if is_lagged(each))
        numeric = np.empty((batch.num_rows, len(self.schema.numeric)))
        for column, feature in enumerate(self.schema.numeric):
            with reader.arrow_errors(feature.name):
                read = reader.booleans if feature.kind == BOOLEAN else reader.numbers
                numeric[:, column] = read(feature.name, batch)
        codes = np.empty((batch.num_rows, len(self.schema.categorical)), dtype=np.int32)
        for column, feature in enumerate(self.schema.categorical):
            with reader.arrow_errors(feature.name):
                codes[:, column] = reader.codes(feature.name, batch, self.categories[column])
        targets = weights = ahead = None
        if self.with_target:
            targets = np.column_stack([self._targets.decode(name, batch) for name in self.schema.targets])
            if self.schema.weight:
                with reader.arrow_errors(self.schema.weight):
                    weights = reader.weights(self.schema.weight, batch)
            if self.schema.ahead:
                ahead = self._transitions.decode(batch)
        reader.rows += batch.num_rows
        return Rows(numeric, codes, targets, weights, ahead)
