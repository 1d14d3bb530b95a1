"""The cells of a new model of local experts: k-means centres of the rows by which its pilot goes."""

from dataclasses import replace

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.base.reporter import Reporter, Silent
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.selection.starts.kmeans import kmeans_centres
from ridgestream.pipeline.sums.row_set import RowSet
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.pilot import count_rows
from ridgestream.pipeline.training.request import OnlineRequest

PASSES = 8
"""Passes of k-means over the rows."""


def place_cells(context: TrainingContext, request: OnlineRequest, feature_map: FeatureMap) -> Floats | None:
    """Return the centres of a new model's cells, (n_cells, n_features), in its metric; None for one learner."""
    if request.experts == 1:
        return None
    limit = count_rows(request.pilot_options, feature_map.n_features)
    silent = replace(context, report=Silent(), keeper=None)
    rows = silent.rows([entry.segment for entry in context.ledger.entries], feature_map, limit)
    return centres_of(rows, request, context.report)


def centres_of(rows: RowSet, request: OnlineRequest, report: Reporter) -> Floats:
    """Return the centres of as many cells of these rows as the request asks for, (n_cells, n_features).

    They are fewer, with a warning, if the rows are fewer or not all different.
    """
    centres = kmeans_centres(rows, request.experts, request.pilot_options.random_seed, PASSES, Silent()).vectors
    if len(centres) < request.experts:
        report.warn(events.TRAIN_FEWER_CELLS, cells=len(centres), asked=request.experts, rows=rows.n_rows)
    return centres
