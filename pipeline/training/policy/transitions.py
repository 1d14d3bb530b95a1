"""Transitions of a store as rows with the features (x, x′, c), as sums of temporal differences take them."""

from dataclasses import dataclass, replace

import numpy as np

from ridgestream.pipeline.features.columns import NumericColumn
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.features.target_map import TargetMap
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.segments.segment_format import SegmentFacts
from ridgestream.stores.segments.segments import SegmentRows, SegmentSource

CONTINUES = NumericColumn("continues", centre=1.0, scale=-1.0, fill=0.0)
"""c = 1 − done, of the last column of `Rows.ahead`."""


@dataclass(frozen=True)
class TransitionSegments:
    """Segments whose rows have the raw columns of x, those of x′, and done."""

    segments: SegmentSource
    """The segments of transitions."""

    def __contains__(self, number: int) -> bool:
        return number in self.segments

    def __getitem__(self, number: int) -> "TransitionSegment":
        return TransitionSegment(self.segments[number])


@dataclass(frozen=True)
class TransitionSegment:
    """A segment of `TransitionSegments`."""

    segment: SegmentRows
    """The segment of the store."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.segment.rows

    @property
    def chunk_rows(self) -> int:
        """Rows per chunk."""
        return self.segment.chunk_rows

    def read(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` up to `stop`."""
        rows = self.segment.read(start, stop)
        assert rows.ahead is not None  # noqa: S101 (the schema says so)
        return replace(rows, numeric=np.column_stack([rows.numeric, rows.ahead]), ahead=None)

    def count_weighted_rows(self) -> int:
        """Return the number of rows of positive weight."""
        return self.segment.count_weighted_rows()

    def facts(self) -> SegmentFacts:
        """Return the statistics of x and of the rewards."""
        return self.segment.facts()


def reward_map(feature_map: FeatureMap) -> FeatureMap:
    """Return the map with rewards, and so values, in their own units: a shift of them would shift values."""
    n_outputs = feature_map.target.n_outputs
    return replace(feature_map, target=TargetMap((0.0,) * n_outputs, (1.0,) * n_outputs))


def transition_map(states: FeatureMap) -> FeatureMap:
    """Return the map of rows of `TransitionSegments` to (x, x′, c): x′ is standardized as x is."""
    ahead = (replace(column, name=f"{column.name} after the step") for column in states.numeric)
    return replace(states, numeric=(*states.numeric, *ahead, CONTINUES))
