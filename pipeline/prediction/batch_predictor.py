"""Predictions of the batches of one file or table, after the checks of its columns and values."""

from typing import TYPE_CHECKING

import numpy as np

from ridgestream.pipeline.base.policies import Policies
from ridgestream.pipeline.models.learned_ranges import LearnedRanges
from ridgestream.pipeline.models.predictor import Model
from ridgestream.pipeline.prediction.evaluate import predictions_of
from ridgestream.pipeline.prediction.input_checks import InputChecker, InputSummary
from ridgestream.pipeline.prediction.prediction_columns import (
    Extras,
    mask_rows,
    prediction_columns,
    prediction_fields,
    uncertainty_columns,
)
from ridgestream.stores.parquet.decoder import Decoder
from ridgestream.stores.schema.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class BatchPredictor:
    """Predicts the batches of one file or table, in order, as `policies` say; `source` names it in messages.

    With the ranges of the rows that the model has learned, the rows outside of them are counted.
    """

    def __init__(
        self,
        model: Model,
        schema: Schema,
        source: str,
        *,
        extras: Extras,
        policies: Policies,
        ranges: LearnedRanges | None,
    ) -> None:
        self._model, self._extras = model, extras
        self._decoder = Decoder(schema, source, with_target=False, missing=policies.missing)
        self._checker = InputChecker(model.feature_map, self._decoder, policies, ranges)

    def open(self, arrow: "pa.Schema") -> "list[pa.Field]":
        """Return the names and types of the prediction columns.

        Raises PartitionError if a column is missing or has another type, or if two of the new ones have one name.
        """
        self._decoder.check(arrow)
        return prediction_fields(self._decoder.schema, self._model, self._decoder.file, self._extras)

    @property
    def columns(self) -> list[str]:
        """The columns that are read."""
        return self._decoder.schema.columns(with_target=False)

    @property
    def summary(self) -> InputSummary:
        """The counts of the rows predicted so far."""
        return self._checker.summary

    def predict(self, batch: "pa.RecordBatch") -> "list[pa.Array]":
        """Return the prediction columns of the next batch; null for rows that are left out."""
        decoder, model = self._decoder, self._model
        rows = decoder.decode(batch)
        answered, maps = self._checker.check(rows)
        numbers = np.arange(decoder.rows - len(rows), decoder.rows)
        outputs = predictions_of(model, rows, maps, decoder.file, numbers)
        columns = prediction_columns(outputs, model, decoder.schema, with_scores=self._extras.scores)
        columns += uncertainty_columns(model, self._extras, outputs, (rows, maps), decoder.file, numbers)
        return columns if answered.all() else [mask_rows(answered, column) for column in columns]
