"""The parts of a report that come from the record of the run: stages, what was ingested, events."""

from collections.abc import Sequence
from typing import Any, TypeVar

from ridgestream.jobs.report.stored_night import StoredNight
from ridgestream.stores.segments.segments import Segments

Item = TypeVar("Item")

_SEGMENTS = 8
"""The largest number of segments from which the size of a row is computed."""


def stage_facts(run: dict[str, Any], row_bytes: float | None) -> list[dict[str, Any]]:
    """Return each stage with seconds, rows and bytes: of Parquet files, or of rows as the store keeps them."""
    parquet = {
        name: run[key]["bytes"] for name, key in (("ingest", "ingest"), ("evaluate", "evaluation")) if key in run
    }
    stages = []
    for name, times, rows, seconds in run.get("steps", ()):
        size = parquet.get(name, None if row_bytes is None else round(rows * row_bytes))
        stages.append({"stage": name, "times": times, "rows": rows, "seconds": seconds, "bytes": size})
    return stages


def arrival_facts(run: dict[str, Any]) -> dict[str, Any]:
    """Return what was unusual in the ingest, by kind: how many partitions or columns, and the first of them."""
    return {key: value for key, value in run.get("ingest", {}).items() if isinstance(value, dict)}


def event_facts(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the events of the run, each with its facts; runs of release 0.1.0 recorded no codes."""
    events = run.get("said", ())
    codes = run.get("said_codes", [None] * len(events))
    return [{"code": code, "message": message, **facts} for code, (message, facts) in zip(codes, events, strict=True)]


def is_doubtful(run: dict[str, Any]) -> bool:
    """Return whether an event casts doubt on the model; release 0.1.0 recorded sentences only."""
    return bool(run.get("doubtful", any("singular" in message for message, _ in run.get("said", ()))))


def mean_row_bytes(stored: StoredNight) -> float | None:
    """Return the uncompressed size of a row in some segments of the night, or of all that were learned."""
    numbers, segments = (
        [entry.segment for entry in stored.entries] or list(stored.record.learned),
        Segments(stored.root),
    )
    opened = [segments[number] for number in thinned(numbers, _SEGMENTS) if number in segments]
    rows = sum(segment.rows for segment in opened)
    return sum(segment.rows * segment.row_bytes for segment in opened) / rows if rows else None


def thinned(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most `most` items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]
