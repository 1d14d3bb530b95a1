"""What a store says about the health of a job: its last night, feed, drift and guard; no row is read."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import store_location
from ridgestream.jobs.runs.guard import night_served
from ridgestream.jobs.runs.shortcomings import verdict_on
from ridgestream.jobs.runs.trivial_errors import night_skills
from ridgestream.pipeline.monitoring.drift import drifting_columns, recall_partitions
from ridgestream.stores.catalog.ledger import Ledger, read_ledger
from ridgestream.stores.catalog.models import ModelRecord, Night, read_model
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.repository.repository import Store


@dataclass(frozen=True)
class Health:
    """A store, and the job's model in it."""

    store: Store
    """The store."""
    ledger: Ledger
    """Its partitions."""
    committed_at: datetime
    """When the last commit was made, of whatever command."""
    record: ModelRecord | None
    """The model, without its arrays; None if there is none yet."""

    @property
    def night(self) -> Night | None:
        """The model's last night, which may be a rollback."""
        return self.record.history[-1] if self.record else None

    @property
    def finished_at(self) -> datetime | None:
        """When the last night was committed."""
        return datetime.fromisoformat(self.night.finished_at) if self.night else None

    @property
    def fed_at(self) -> datetime | None:
        """When the model last learned a new partition."""
        nights = reversed(self.record.history if self.record else ())
        return next((datetime.fromisoformat(night.finished_at) for night in nights if night.partitions), None)

    @property
    def run(self) -> dict[str, Any]:
        """What the run of the last night recorded; empty for a rollback, and if an older release ran it."""
        record, night = self.record, self.night
        return record.run if record and night and record.run.get("night") == night.number else {}

    @property
    def failure(self) -> str | None:
        """Why the last night, which has learned, could not be refitted or evaluated."""
        return self.run.get("failure")

    @cached_property
    def suspects(self) -> tuple[str, ...]:
        """The partitions of the last night that are unlike those before them, but for what has been accepted since."""
        drifts = recall_partitions(self.ledger, self.record) if self.record else ()
        return tuple(drift.name for drift in drifts if drift.is_suspect)

    @property
    def verdict(self) -> str | None:
        """How the last night's model compares with a constant; None if it is better, or weighs classes on purpose."""
        record, night = self.record, self.night
        if record is None or night is None or "class_weight" in record.parameters:
            return None
        return verdict_on(night.no_better_in or (), night_skills(night))

    @property
    def drifting(self) -> tuple[str, ...]:
        """The columns whose drift has begun, in whichever night, and not ended."""
        return tuple(drifting_columns(self.record)) if self.record else ()

    @property
    def served_night(self) -> int:
        """The night whose model is served; 0 if there is none, or an older release trained it."""
        return night_served(self.record) if self.record else 0

    @property
    def is_held_back(self) -> bool:
        """Whether the guard holds the last night's model back."""
        return bool(self.record and self.record.serves)


def read_health(job: Job) -> Health:
    """Return what the job's store says; raises StoreError if there is no store, or one that cannot be read."""
    store = Store.open(store_location(job))
    with prefix_errors(store.location.text):
        snapshot = store.snapshot()
        root = store.root(snapshot)
        committed_at = store.repository.lookup_snapshot(snapshot).written_at
        return Health(store, read_ledger(root), committed_at, read_model(root, job.model.name, with_arrays=False))
