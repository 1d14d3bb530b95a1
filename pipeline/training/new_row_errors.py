"""The errors of a batch model on rows that it has not learned: one pass over new partitions, before they are added."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.pass_checkpoint import named_pass
from ridgestream.pipeline.dataset.stored_rows import StoredRows
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.models.model_record import fitted_of
from ridgestream.pipeline.prediction.evaluate import Evaluation, compare
from ridgestream.pipeline.prediction.progressive_validation import Progressive
from ridgestream.pipeline.sums.basis import Basis
from ridgestream.pipeline.sums.row_block import RowBlock
from ridgestream.stores.catalog.ledger import LedgerEntry
from ridgestream.stores.catalog.models import ModelRecord


@dataclass(frozen=True)
class _Judging:
    """A model and the parameters of its errors; the argument of a pass."""

    basis: Basis
    """The dictionary."""
    coefficients: Floats
    """β, shape (n_functions, n_targets)."""
    feature_map: FeatureMap
    """The classes, if there are any."""
    classes: bool
    """Whether the target is a class."""
    segments: tuple[int, ...]
    """The segments of the rows."""
    firsts: tuple[int, ...]
    """The index of the first row of each."""

    def segment_of(self, index: int) -> int:
        """Return the segment of a row; segments without rows have none."""
        return self.segments[bisect_right(self.firsts, index) - 1]


@named_pass("ridgestream.pipeline.batch", "judge_rows")
def judge_rows(judging: _Judging, blocks: Iterable[RowBlock]) -> Progressive:
    """Return the errors on the rows of all blocks, by segment."""
    total = Progressive(Evaluation(classes=judging.classes))
    for block in blocks:
        with (
            one_blas_thread(),
            np.errstate(over="ignore", invalid="ignore"),
        ):  # refused later, by partition
            predictions = judging.basis.outputs(block.features, judging.coefficients)
        if len(predictions):
            own_weights = judging.feature_map.target.unweigh(block.targets, block.weights)
            errors = compare(predictions, block.targets, own_weights, judging.feature_map, classes=judging.classes)
            total = total.merge(Progressive.of(judging.segment_of(block.first), errors, judging.feature_map))
    return total


def measure_new_rows(
    record: ModelRecord,
    rows: StoredRows,
    feature_map: FeatureMap,
    entries: tuple[LedgerEntry, ...],
    *,
    classes: bool,
) -> Progressive:
    """Return the errors of the record's model on the rows of the partitions `entries`; one pass, O(n_basis) a row."""
    before = fitted_of(record)
    judging = _Judging(
        basis=before.basis,
        coefficients=before.coefficients,
        feature_map=feature_map,
        classes=classes,
        segments=tuple(entry.segment for entry in entries),
        firsts=tuple(accumulate((entry.rows for entry in entries[:-1]), initial=0)),
    )
    return rows.reduce(judge_rows, judging, events.STEP_PREDICT_NEW_ROWS)
