"""Checkpoints of the online learner: the state and progress of a training, saved at some of the learner's refreshes.

A checkpoint is found by what the training began from (`key`), and used only if the blocks up to it have the same
contents (`_trail`); partitions after them do not matter. Training from the state of a scheduled refresh gives the same
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
from ridgestream.pipeline.dataset.block_stream import BLOCK_BYTES, Stream
from ridgestream.pipeline.features.feature_map import FeatureMap
from ridgestream.pipeline.models.model_record import learner_of, with_state
from ridgestream.pipeline.monitoring.learning_curve import Course
from ridgestream.pipeline.online.online_ls_svm import OnlineLSSVM
from ridgestream.pipeline.online.schedule import REFRESH_ROWS
from ridgestream.pipeline.online.state import OnlineState
from ridgestream.pipeline.prediction.progressive_validation import Progressive
from ridgestream.stores.catalog.ledger import LedgerEntry
from ridgestream.stores.catalog.models import Arrays, ModelRecord
from ridgestream.stores.errors.exceptions import StoreError

KEEP_SECONDS = 30.0
"""The most work that a kill costs, beside the rows between two refreshes; shorter trainings save no checkpoint."""

COST = 20.0
"""At least this many times the duration of saving one checkpoint passes before the next one is saved."""

_FORMAT = 3
"""Increased when the same rows give other bits, or a checkpoint has other contents."""


@dataclass(frozen=True)
class Progress:
    """How far a training has come, with what its result reports."""

    sums: Progressive
    """The errors of the predictions made before their rows were learned."""
    jittered: int
    """How often jitter had been added before the first row."""
    seconds: float = 0.0
    """How long it took, in the runs that were killed too."""
    blocks: int = 0
    """Blocks of the stream that are learned."""
    rows: int = 0
    """Their rows."""
    course: Course = Course()  # noqa: RUF009 (frozen)
    """How the learner went along them."""
    refused: int = 0
    """How many rows had been refused for P's condition before the first row."""

    def after(self, rows: int, part: Progressive, course: Course) -> Self:
        """Return the progress after one more block of `rows` rows, with its errors and the course to its end."""
        sums, blocks = self.sums.merge(part), self.blocks + 1
        return replace(self, sums=sums, blocks=blocks, rows=self.rows + rows, course=course)


def key_of(request: dict[str, Any], feature_map: FeatureMap, record: ModelRecord | None, origin: object) -> str:
    """Return the key of a training: a hash of the request and of the state before its first row.

    The state is the record of an existing model; for a new one, `origin` says where its dictionary comes from.
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
    """The checkpoints of one training; without a keeper none is saved."""

    def __init__(
        self, keeper: CheckpointStore | None, key: str, stream: Stream, entries: Sequence[LedgerEntry], report: Reporter
    ) -> None:
        self._keeper, self._key, self._stream, self._report = keeper, key, stream, report
        self._contents = {entry.segment: entry.content_sha256 for entry in entries}
        self._began, self._before = perf_counter(), 0.0
        self._due = monotonic() + KEEP_SECONDS

    def load(self) -> tuple[OnlineLSSVM, Progress] | None:
        """Return the saved learner and its progress; None without a checkpoint of these rows that is undamaged."""
        saved = self._keeper.load(self._key) if self._keeper else None
        try:
            checkpoint = self._read(*saved) if saved else None
        except (ValueError, TypeError, LookupError, ArithmeticError):
            return None
        if checkpoint is not None:
            self._before = checkpoint[1].seconds
            self._report.say(events.TRAIN_STARTED_FROM_CHECKPOINT, rows=checkpoint[1].rows)
        return checkpoint

    def offer(self, learner: OnlineLSSVM, progress: Progress) -> None:
        """Keep the state, where it is one to go on from and the last time was long enough ago; else have it at hand.

        A checkpoint that cannot be saved gets a warning; the training goes on, and takes longer only if it is killed.
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
        """Return the progress with the seconds up to now, those of earlier runs included."""
        return replace(progress, seconds=self._before + perf_counter() - self._began)

    def _plain(self, state: OnlineState, progress: Progress) -> tuple[dict[str, Any], Arrays]:
        stored_model = with_state(ModelRecord(self._key, {}, {}), state)
        last = self._stream.ranges[progress.blocks - 1]
        plain = {
            "trail": self._trail(progress.blocks),
            "segment": last.segment,
            "row": last.stop,
            "progress": to_plain(progress)[0],
            "learner": state.parameters.as_dict(),
            "counters": stored_model.counters,
        }
        return plain, stored_model.arrays

    def _read(self, plain: dict[str, Any], arrays: Arrays) -> tuple[OnlineLSSVM, Progress] | None:
        """Return the saved learner and progress; None for other rows. Damaged records raise one of several errors."""
        progress: Progress = from_plain(Progress, plain["progress"], {})
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
