"""Checkpoints of the online learner: the state and progress of a training, saved at some of the learner's refreshes.

A checkpoint has the key of its training's initial state (`key_of`), and is used only if the blocks before it have the
same contents (`_trail`); later partitions do not matter. Training from the state of a scheduled refresh gives the same
bits, so the clock only decides which refreshes are saved.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from typing import Any, Self

from ridgestream.pipeline.base import events
from ridgestream.pipeline.base.pass_checkpoint import CheckpointStore
from ridgestream.pipeline.base.reporter import Reporter
from ridgestream.pipeline.base.serialization import from_plain, hash_of, to_plain
from ridgestream.pipeline.calibration.kept_predictions import KeptPredictions
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, Stream
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.models.model_record import Learner, learner_of, with_state
from ridgestream.pipeline.monitoring.learning_curve import Course
from ridgestream.pipeline.online.experts.experts_state import ExpertsState
from ridgestream.pipeline.online.schedule import REFRESH_ROWS
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.prediction.progressive_validation import Progressive
from ridgestream.stores.catalog.ledger import LedgerEntry
from ridgestream.stores.catalog.models import Arrays, ModelRecord
from ridgestream.stores.errors.exceptions import StoreError

KEEP_SECONDS = 30.0
"""The most work lost by a kill, besides the rows between two refreshes; shorter trainings save no checkpoint."""

COST = 20.0
"""The least time between two checkpoints, as a multiple of the time to save one."""

_FORMAT = 6
"""Increased if the same rows give other bits, or the contents of a checkpoint change."""

_PROGRESS = "progress_"
"""Prefix of the arrays of the progress in a checkpoint."""


@dataclass(frozen=True)
class Progress:
    """The progress of a training, with the figures of its result."""

    sums: Progressive
    """The errors of the predictions made before their rows were learned."""
    kept: KeptPredictions
    """The predictions themselves, of a sample of all rows of the model."""
    jittered: int
    """The learner's `jitter_count` before the first row."""
    seconds: float = 0.0
    """The duration, including that of killed runs."""
    blocks: int = 0
    """The number of blocks learned."""
    rows: int = 0
    """The number of rows learned."""
    course: Course = Course()  # noqa: RUF009 (frozen)
    """The learning curve so far."""
    refused: int = 0
    """The number of rows refused for P's condition before the first row."""

    def after(self, ranges: int, rows: int, part: Progressive, kept: KeptPredictions, course: Course) -> Self:
        """Return the progress after `rows` more rows, of so many blocks, with their errors and the learning curve."""
        sums, blocks = self.sums.merge(part), self.blocks + ranges
        return replace(self, sums=sums, kept=kept, blocks=blocks, rows=self.rows + rows, course=course)


def key_of(request: dict[str, Any], feature_map: FeatureMap, record: ModelRecord | None, origin: object) -> str:
    """Return the key of a training: a hash of the request and of the state before its first row.

    The state is the record of an existing model; for a new one, `origin` is the source of its dictionary.
    """
    return hash_of(("online", _FORMAT, BLOCK_BYTES, REFRESH_ROWS, _text(request), feature_map, _of(record), origin))


def _of(record: ModelRecord | None) -> object:
    if record is None:
        return None
    plain = _text([record.parameters, record.encoding, record.learned, record.counters])
    return plain, sorted(record.arrays), [record.arrays[name] for name in sorted(record.arrays)]


def _text(plain: object) -> str:
    return json.dumps(plain, sort_keys=True)


class OnlineCheckpoints:
    """The checkpoints of one training; without a checkpoint store, none is saved."""

    def __init__(
        self, keeper: CheckpointStore | None, key: str, stream: Stream, entries: Sequence[LedgerEntry], report: Reporter
    ) -> None:
        self._keeper, self._key, self._stream, self._report = keeper, key, stream, report
        self._contents = {entry.segment: entry.content_sha256 for entry in entries}
        self._began, self._before = perf_counter(), 0.0
        self._due = monotonic() + KEEP_SECONDS

    def load(self) -> tuple[Learner, Progress] | None:
        """Return the saved learner and its progress; None without an intact checkpoint of these rows."""
        saved = self._keeper.load(self._key) if self._keeper else None
        try:
            checkpoint = self._read(*saved) if saved else None
        except (ValueError, TypeError, LookupError, ArithmeticError):
            return None
        if checkpoint is not None:
            self._before = checkpoint[1].seconds
            self._report.say(events.TRAIN_STARTED_FROM_CHECKPOINT, rows=checkpoint[1].rows)
        return checkpoint

    def offer(self, learner: Learner, progress: Progress) -> None:
        """Save the state after a scheduled refresh if the last checkpoint is old enough, else set it as pending.

        If it cannot be saved, a warning is reported and the training continues; it loses more rows if it is killed.
        """
        began = monotonic()
        if self._keeper is None or not learner.is_refreshed:
            return
        state, timed = learner.state(), self.timed(progress)
        if began < self._due:
            self._keeper.set_pending(self._key, lambda: self._plain(state, timed))
            return
        self._keeper.set_pending(self._key, None)
        try:
            self._keeper.save(self._key, *self._plain(state, timed))
        except StoreError as error:
            self._report.warn(events.TRAIN_CHECKPOINT_NOT_SAVED, reason=str(error))
        now = monotonic()
        self._due = now + max(KEEP_SECONDS, COST * (now - began))

    def timed(self, progress: Progress) -> Progress:
        """Return the progress with the seconds until now, including those of earlier runs."""
        return replace(progress, seconds=self._before + perf_counter() - self._began)

    def _plain(self, state: OnlineState | ExpertsState, progress: Progress) -> tuple[dict[str, Any], Arrays]:
        stored_model = with_state(ModelRecord(self._key, {}, {}), state)
        last = self._stream.ranges[progress.blocks - 1]
        plain_progress, arrays = to_plain(progress)
        plain = {
            "trail": self._trail(progress.blocks),
            "segment": last.segment,
            "row": last.stop,
            "progress": plain_progress,
            "learner": state.parameters.as_dict(),
            "counters": stored_model.counters,
        }
        return plain, stored_model.arrays | {f"{_PROGRESS}{name}": array for name, array in arrays.items()}

    def _read(self, plain: dict[str, Any], arrays: Arrays) -> tuple[Learner, Progress] | None:
        """Return the saved learner and progress; None for other rows. Damaged records raise one of several errors."""
        own = {name.removeprefix(_PROGRESS): array for name, array in arrays.items() if name.startswith(_PROGRESS)}
        progress: Progress = from_plain(Progress, plain["progress"], own)
        if self._trail(progress.blocks) != plain["trail"]:
            return None
        stored_model = ModelRecord(
            self._key, {"learner": plain["learner"]}, {}, counters=plain["counters"], arrays=arrays
        )
        return learner_of(stored_model), progress

    def _trail(self, blocks: int) -> str:
        """Return a hash of the first blocks of the stream: which rows of which contents, and how they are cut."""
        digest = hashlib.sha256()
        for where in self._stream.ranges[:blocks]:
            content = self._contents[where.segment]
            digest.update(f"{where.segment} {where.start} {where.stop} {content} {where.ends_segment}\n".encode())
        return digest.hexdigest()
