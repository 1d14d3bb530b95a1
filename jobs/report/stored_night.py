"""A night of a model, with the store at its commit."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, read_ledger
from ridgestream.stores.catalog.models import ModelRecord, Night, night_tag, require_model
from ridgestream.stores.catalog.snapshots import snapshot_of_night
from ridgestream.stores.repository.repository import Store

if TYPE_CHECKING:
    import zarr


@dataclass(frozen=True)
class StoredNight:
    """The last night of a record, and the store at its commit."""

    root: "zarr.Group"
    """The store's root at the snapshot."""
    snapshot: str
    """The night's commit."""
    ledger: Ledger
    """The partitions that the store had."""
    record: ModelRecord
    """The model."""

    @property
    def night(self) -> Night:
        """The night's entry in the history."""
        return self.record.history[-1]

    @property
    def run(self) -> dict[str, Any]:
        """What the run recorded; empty if an older release ran it, and for a rollback."""
        return self.record.run if self.record.run.get("night") == self.night.number else {}

    @property
    def entries(self) -> tuple[LedgerEntry, ...]:
        """The partitions of the night that the store still has."""
        segments = set(self.night.segments or ())
        return tuple(entry for entry in self.ledger.entries if entry.segment in segments)

    @property
    def task(self) -> str:
        """One of regression, binary and classes."""
        schema = self.ledger.schema
        if schema is None or not schema.classifies:
            return "regression"
        return "classes" if self.record.encoding.get("classes") else "binary"


def open_night(store: Store, model: str, number: int | None) -> StoredNight:
    """Return a night of a model, the last one if the number is None; raises ModelError if it does not exist."""
    snapshot = last = store.snapshot()
    latest = require_model(store.root(last), model, with_arrays=False)
    number = latest.history[-1].number if number is None else number
    snapshot = (store.find_tag(night_tag(model, number)) if number else None) or snapshot
    root = store.root(snapshot)
    record = require_model(root, model)
    if record.history[-1].number != number:
        snapshot = snapshot_of_night(store, model, number)  # its error lists the nights that exist
        root = store.root(snapshot)
        record = require_model(root, model)
    night = next((each for each in latest.history if each.number == number and each.evaluated_at), None)
    if night is not None:
        record = require_model(store.root(last), model) if night is latest.history[-1] else _with_errors(record, night)
    return StoredNight(root, snapshot, read_ledger(root), record)


def _with_errors(record: ModelRecord, night: Night) -> ModelRecord:
    """Return the record of a night with the errors that were found after its commit."""
    run = {key: value for key, value in record.run.items() if key != "failure"}
    return replace(record, history=(*record.history[:-1], night), run=run)
