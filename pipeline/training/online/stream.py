"""The online learner on a stream of blocks: each row predicted, then learned; progress, checkpoints and warnings.

The learner is compiled ahead of the first row: a run says what it waits for, and its rates are those of learning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.blas_threads import one_blas_thread
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.dataset.block_plan import Part
from ridgestream.pipeline.dataset.block_stream import Block, Stream
from ridgestream.pipeline.dataset.range_checks import check_errors, naming_partition
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.kernels import RBF
from ridgestream.pipeline.models.model_record import Learner
from ridgestream.pipeline.monitoring.learning_curve import Course
from ridgestream.pipeline.online.compiled.jit import noticing_compilation
from ridgestream.pipeline.online.compiled.update import run_rows
from ridgestream.pipeline.online.diagnostics import Numerics
from ridgestream.pipeline.online.experts.cell_learning import part_rows
from ridgestream.pipeline.online.experts.local_experts import LocalExperts
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.prediction.progressive_validation import mean_errors
from ridgestream.pipeline.training.online.checkpoints import OnlineCheckpoints, Progress
from ridgestream.pipeline.training.online.learned_block import LearnedBlock, Point
from ridgestream.pipeline.training.online.shared_cells import SharedCells, is_worth_sharing
from ridgestream.stores.catalog.ledger import LedgerEntry

FAR_WEIGHT = 100.0
"""A mean weight above this, or below its inverse, gets a warning."""

_ROWS, _BASIS = 16, 4
"""Rows by which the learner is compiled, and the size of its dictionary then."""


@dataclass(frozen=True, kw_only=True)
class StreamTraining:
    """Learns a stream of partitions."""

    stream: Stream
    """The blocks."""
    entries: Sequence[LedgerEntry]
    """Their partitions."""
    feature_map: FeatureMap
    """The map of the first partition."""
    checkpoints: OnlineCheckpoints
    """Saves states during the training."""
    report: Reporter
    """Receives progress."""

    def learn(self, learner: Learner, progress: Progress) -> Progress:
        """Learn the blocks after `progress`; return the progress at the end, with the errors of earlier predictions.

        Raises InputError naming the partition whose rows cannot be learned.
        """
        report = self.report
        compile_learner_as_step(report)
        report.begin(events.STEP_TRAIN, sum(entry.rows for entry in self.entries), partitions=len(self.entries))
        report.advance(progress.rows)
        parts = list(self.stream.parts(progress.blocks, _most_rows(learner)))
        if isinstance(learner, LocalExperts) and is_worth_sharing(self.stream, parts, len(learner.cells)):
            progress = self._learn_there(learner, parts, progress)
        else:
            progress = self._learn_here(learner, parts, progress)
        report.end(rows_seen=learner.rows_seen, n_basis=learner.n_basis, swaps=learner.swaps)
        _warn_of_numerics(learner.numerics, progress, report)
        _warn_of_weights(learner, report)
        return progress

    def _learn_here(self, learner: Learner, parts: Sequence[Part], progress: Progress) -> Progress:
        for part, block in zip(parts, self.stream.joined(parts, progress.blocks), strict=True):
            with naming_partition(self.entries, part[0].segment):
                learned = _learn_block(learner, part, block, progress.course)
            progress = self._keep(learner, [learned], progress)
        return progress

    def _learn_there(self, learner: LocalExperts, parts: Sequence[Part], progress: Progress) -> Progress:
        for state, learned in SharedCells(self.stream, self.entries).learn(learner.state(), parts):
            learner.continue_from(state)
            progress = self._keep(learner, learned, progress)
        return progress

    def _keep(self, learner: Learner, learned: Sequence[LearnedBlock], progress: Progress) -> Progress:
        """Return the progress after blocks, the last that the learner has learned; it is saved, then reported."""
        for block in learned:
            progress = self._after(block, progress)
        self.checkpoints.offer(learner, progress)
        total = progress.sums.total
        running = mean_errors(total, self.feature_map)[0] if total.weight else None
        for block in learned:
            last = block.points[-1]
            self.report.advance(len(block.targets), n_basis=last.n_basis, swaps=last.swaps, running_error=running)
        return progress

    def _after(self, block: LearnedBlock, progress: Progress) -> Progress:
        with naming_partition(self.entries, block.part[0].segment):
            errors, kept, course = block.sums(progress, self.feature_map)
        check_errors(errors.errors(), self.entries)
        return progress.after(len(block.part), len(block.targets), errors, kept, course)


def _most_rows(learner: Learner) -> Callable[[int], int]:
    """Return how many rows of some number of features the learner takes at once: one learner, a block of the store."""
    return part_rows if isinstance(learner, LocalExperts) else lambda n_features: 0  # noqa: ARG005


def _learn_block(learner: Learner, part: Part, block: Block, course: Course) -> LearnedBlock:
    """Predict a block's rows, then learn them.

    The learning curve cuts the block on the learner's grid, which changes no bit.
    """
    learner.widen(block.new_features)
    first, predictions, points = learner.rows_seen, [np.empty((0, block.targets.shape[1]))], []
    for piece in course.cuts(len(block.features)):
        weights = None if block.weights is None else block.weights[piece]
        # values that are not finite are refused afterwards, with the partition's name
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            predictions.append(learner.predict_then_learn(block.features[piece], block.targets[piece], weights))
        points.append(Point(piece.stop, learner.n_basis, learner.swaps))
    if part[-1].ends_segment and learner.rows_seen:
        learner.refresh()
    points = points or [Point(0, learner.n_basis, learner.swaps)]
    return LearnedBlock(part, first, np.concatenate(predictions), block.targets, block.weights, points)


def _warn_of_numerics(numerics: Numerics, progress: Progress, report: Reporter) -> None:
    if numerics.jitter_count > progress.jittered:
        report.warn(
            events.TRAIN_JITTER_ADDED,
            times=numerics.jitter_count - progress.jittered,
            largest_ever=numerics.largest_jitter,
            condition=numerics.normal_condition,
        )
    if numerics.refused > progress.refused:
        report.warn(
            events.TRAIN_ROWS_REFUSED,
            rows=numerics.refused - progress.refused,
            condition=numerics.normal_condition,
        )


def _warn_of_weights(learner: Learner, report: Reporter) -> None:
    """Warn of weights whose mean is far from one, since the thresholds are in units of weight."""
    mean = learner.weight_seen / learner.rows_seen if learner.rows_seen else 1.0
    if not 1 / FAR_WEIGHT <= mean <= FAR_WEIGHT:
        report.warn(events.TRAIN_WEIGHTS_FAR_FROM_ONE, mean_weight=float(f"{mean:.3g}"))


def compile_learner(begin: Callable[[], None]) -> None:
    """Compile what learning takes, some ten seconds, or load it from the cache, less than one, by learning a few rows.

    `begin` is called once before the compilation, and never where the machine code is in the cache. All kernels and
    selection rules share the code.
    """
    rng = np.random.default_rng(0)
    with noticing_compilation(begin):
        learner = OnlineLSSVM(RBF(gamma=1.0), regularization=1e-3, max_basis=_BASIS)
        learner.partial_fit(rng.normal(size=(_ROWS, 2)), rng.normal(size=_ROWS))


def compile_learner_as_step(report: Reporter) -> None:
    """Compile the learner as a step of its own; nothing is reported where it is in the cache."""
    begun = []

    def begin() -> None:
        begun.append(True)
        report.say(events.TRAIN_COMPILING)
        report.begin(events.STEP_COMPILE, None)

    compile_learner(begin)
    if begun:
        report.end()


def cache_path() -> str | None:
    """Return the folder in which the learner's machine code is cached; None where it is not."""
    statistics = getattr(cast("Any", run_rows), "stats", None)  # none where numba is set not to compile
    return statistics.cache_path if statistics is not None else None
