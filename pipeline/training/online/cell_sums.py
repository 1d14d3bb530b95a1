"""The exact sums of every cell's rows for its dictionary as it is: what a refit of local experts is made from."""

from collections.abc import Iterator, Sequence

from ridgestream.pipeline.base import events
from ridgestream.pipeline.dataset.block_plan import Part
from ridgestream.pipeline.dataset.block_stream import Stream
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.online.experts.cell_learning import check_block, learn_block, part_rows, sum_cell
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.training.context import TrainingContext
from ridgestream.pipeline.training.online.shared_cells import SharedCells, is_worth_sharing
from ridgestream.stores.catalog.ledger import LedgerEntry


def sum_cells(
    context: TrainingContext, state: ExpertsState, feature_map: FeatureMap, segments: Sequence[int]
) -> ExpertsState:
    """Return the dictionaries with the sums of all rows of these segments, by the workers if there are enough rows."""
    learned, report = set(segments), context.report
    entries = [entry for entry in context.ledger.entries if entry.segment in learned]
    names, rows = {entry.segment: entry.name for entry in entries}, sum(entry.rows for entry in entries)
    stream = Stream(context.segments, tuple(names), feature_map, None, context.executor, names)
    state = state.without_sums()
    report.begin(events.STEP_REFIT, rows, partitions=len(entries))
    for summed, more in _summed(stream, entries, state, list(stream.parts(0, part_rows))):
        state = summed
        report.advance(more)
    report.end(rows=rows)
    return state


def _summed(
    stream: Stream, entries: Sequence[LedgerEntry], state: ExpertsState, parts: Sequence[Part]
) -> Iterator[tuple[ExpertsState, int]]:
    """Yield the state after more and more rows, and how many more."""
    if is_worth_sharing(stream, parts, len(state.cells)):
        for summed, blocks in SharedCells(stream, entries, sum_cell).learn(state, parts):
            yield summed, sum(len(block.targets) for block in blocks)
        return
    for block in stream.joined(parts, 0):
        checked = check_block(state, block.features, block.targets, block.weights, 0)
        state = learn_block(state, checked, step=sum_cell, threads=stream.executor.threads)[0]
        yield state, len(block.targets)
