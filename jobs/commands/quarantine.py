"""The quarantine and accept commands: what a user decides of a partition, and of a column that drifts."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import source_partitions, store_location
from ridgestream.jobs.runs.drift_warnings import check_columns
from ridgestream.pipeline.monitoring.drift import accept_columns, drifting_columns
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, Quarantined, read_ledger, write_ledger
from ridgestream.stores.catalog.models import list_models, require_model, write_model
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.repository.repository import Store


def run_quarantine(job: Job, name: str, reason: str, wait_seconds: float, *, release: bool) -> dict[str, Any]:
    """Put a partition into quarantine, or take it out, in one commit, and return the result.

    The rows of an ingested partition are no longer learned; when it is released, it comes last in the order of the
    store. The result names the models that have learned it; they keep what they have learned. Raises PartitionError if
    there is no such partition.
    """
    store = Store.open(store_location(job))
    with prefix_errors(store.location.text), store.lock(wait_seconds):
        root = store.root()
        ledger = read_ledger(root)
        new_ledger, entry = _released(ledger, name) if release else _rejected(job, ledger, name, reason)
        learned = [
            model
            for model in list_models(root)
            if entry is not None and entry.segment in require_model(root, model).learned
        ]
        with store.write(f"{'Release' if release else 'Quarantine'} {name}") as writing:
            write_ledger(writing.root, new_ledger)
    return {"partition": name, "quarantined": not release, "learned_by": learned, "snapshot": writing.snapshot}


def run_accept(job: Job, columns: Sequence[str], wait_seconds: float) -> dict[str, Any]:
    """Take what columns that drift are now as normal, in one commit, and return the result; nothing is learned."""
    store = Store.open(store_location(job))
    with prefix_errors(store.location.text), store.lock(wait_seconds):
        root = store.root()
        record = require_model(root, job.model.name)
        check_columns("accept", columns, read_ledger(root).schema)
        record = accept_columns(record, columns)
        with store.write(f"Accept {', '.join(columns)} of {record.name}") as writing:
            write_model(writing.root, record)
    drifting = drifting_columns(record)
    return {"model": record.name, "accepted": [*columns], "drifting": drifting, "snapshot": writing.snapshot}


def _rejected(job: Job, ledger: Ledger, name: str, reason: str) -> tuple[Ledger, LedgerEntry | None]:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    entry = ledger.by_name().get(name)
    if entry is not None:
        rejected = Quarantined(name, reason, entry.size_bytes, entry.modified_ns, since, by_hand=True, entry=entry)
        return ledger.without({name}).with_quarantined([rejected]), entry
    previous = next((each for each in ledger.quarantined if each.name == name), None)
    if previous is not None:
        return ledger.with_quarantined([replace(previous, reason=reason, by_hand=True)]), previous.entry
    file = next((file for file in source_partitions(job) if file.name == name), None)
    if file is None:
        raise PartitionError(
            f"there is no partition {name!r} in the store or the source; `ridgestream inspect` lists their names"
        )
    rejected = Quarantined(name, reason, file.size_bytes, file.modified_ns, since, by_hand=True)
    return ledger.with_quarantined([rejected]), None


def _released(ledger: Ledger, name: str) -> tuple[Ledger, LedgerEntry | None]:
    rejected = next((each for each in ledger.quarantined if each.name == name), None)
    if rejected is None:
        names = ", ".join(each.name for each in ledger.quarantined) or "none"
        raise PartitionError(f"the partition {name!r} is not in quarantine; in quarantine: {names}")
    ledger = ledger.with_quarantined([], released=[name])
    if rejected.entry is None:
        return ledger, None
    return replace(ledger, entries=(*ledger.entries, rejected.entry)), rejected.entry
