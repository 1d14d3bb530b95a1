"""The clean command: deletes what a store no longer needs, under the writer's lock."""

from datetime import timedelta
from time import perf_counter
from typing import Any

from ridgestream.stores.catalog.expiry import clean
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.repository.garbage_collection import measure_bytes
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation


def run_clean(
    location: StoreLocation,
    older_than_hours: float,
    wait_seconds: float,
    *,
    keep_nights: int | None = None,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Clean the store and return the result; sizes in bytes are known for a local store only."""
    started_at = perf_counter()
    store = Store.open(location)
    with prefix_errors(location.text), store.lock(wait_seconds):
        bytes_before = measure_bytes(store)
        deleted = clean(store, timedelta(hours=older_than_hours), keep_nights=keep_nights, dry_run=dry_run)
        bytes_after = measure_bytes(store)
    return {
        "store": location.text,
        "expired_snapshots": deleted.expired_snapshots,
        "forgotten_nights": deleted.forgotten_nights,
        "dropped_checkpoints": len(deleted.dropped_checkpoints),
        "freed_bytes": deleted.freed_bytes,
        "bytes_before": bytes_before,
        "bytes_after": bytes_after,
        "readers": deleted.readers,
        "dry_run": dry_run,
        "seconds": round(perf_counter() - started_at, 3),
    }
