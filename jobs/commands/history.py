"""The history, tag and rollback commands: list the nights of a model, name one, and go back to one."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from ridgestream.jobs.config.job_file import Job
from ridgestream.jobs.config.requests import store_location
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.runs.guard import night_served
from ridgestream.jobs.runs.trivial_errors import night_skills, skill_cell
from ridgestream.pipeline.training.training_result import find_unlearned, standing_of
from ridgestream.stores.catalog.ledger import Ledger, read_ledger
from ridgestream.stores.catalog.models import (
    ModelRecord,
    Night,
    list_models,
    next_night_number,
    night_tag,
    require_model,
    write_model,
)
from ridgestream.stores.catalog.snapshots import check_tag, find_night, find_snapshot, record_of_night
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import prefix_errors
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation


def run_history(location: StoreLocation, model: str | None) -> dict[str, Any]:
    """Return the nights of a model, or of all models in the store, with the snapshot and tags of each."""
    store = Store.open(location)
    root = store.root()
    with prefix_errors(location.text):
        names = [model] if model else list(list_models(root))
        models = [_night_facts(store, read_ledger(root), require_model(root, name)) for name in names]
    return {"store": location.text, "models": models}


def _night_facts(store: Store, ledger: Ledger, record: ModelRecord) -> dict[str, Any]:
    tags = store.tags()
    user_tags: dict[str, list[str]] = {}
    for tag in sorted(tags):
        if not tag.startswith("night."):
            user_tags.setdefault(store.snapshot_of_tag(tag), []).append(tag)
    nights = []
    for night in record.history:
        tag = night_tag(record.name, night.number)
        snapshot = store.snapshot_of_tag(tag) if tag in tags else None
        nights.append(
            asdict(night) | night_skills(night) | {"snapshot": snapshot, "tags": user_tags.get(snapshot or "", [])}
        )
    names = {entry.segment: entry.name for entry in ledger.entries}
    excluded = [names[segment] for segment in record.excluded if segment in names]
    return {"name": record.name, "served_night": night_served(record), "excluded": excluded, "nights": nights}


def run_tag(job: Job, name: str, night: str | None) -> dict[str, Any]:
    """Tag a night of the job's model, or the last commit, and return the tag and its snapshot."""
    try:
        check_tag(name)
    except StoreError as error:
        raise JobFileError(str(error)) from error
    store = Store.open(store_location(job))
    with prefix_errors(store.location.text):
        require_model(store.root(), job.model.name)
        snapshot = find_snapshot(store, job.model.name, night) if night else store.snapshot()
        if (tagged := store.find_tag(name)) is not None:
            raise JobFileError(f"the tag {name!r} names {tagged} already, and stays: give another name")
        store.tag(name, snapshot)
    return {"tag": name, "snapshot": snapshot}


_FROM_FIRST_ROW = "trains from the first row: rows that the night had learned were ingested again since"


def run_rollback(job: Job, night: int | str, wait_seconds: float, *, replay: bool) -> dict[str, Any]:
    """Take the job's model back to a night, by number, tag or snapshot, in one commit, and return the result.

    The partitions that it has learned since are excluded, so they are not learned again, unless `replay` is true.
    """
    store = Store.open(store_location(job))
    with prefix_errors(store.location.text), store.lock(wait_seconds):
        store.restore_tags()
        root, name = store.root(), job.model.name
        number = find_night(store, name, str(night))
        now, then = require_model(root, name), record_of_night(store, name, number)
        since = [segment for segment in now.learned if segment not in then.learned]
        excluded = () if replay else tuple(dict.fromkeys([*now.excluded, *since]))
        record = replace(then, history=(*now.history, _rollback_night(now, then, number)), excluded=excluded, serves=0)
        with store.write(f"Take {name} back to night {number}", night_tag(name, next_night_number(now))) as writing:
            write_model(writing.root, record)
        standing = standing_of(store.root(), name, new_model=False)
    names = {entry.segment: entry.name for entry in read_ledger(root).entries}
    return {
        "model": name,
        "night": number,
        "rows_seen": int(record.counters["rows_seen"]),
        "excluded": [names[segment] for segment in excluded if segment in names],
        "from_first_row": standing.record is None,
        "next_run": "continues from that night" if standing.record else _FROM_FIRST_ROW,
        "to_learn": len(find_unlearned(standing.ledger, standing.record)),
        "snapshot": writing.snapshot,
    }


def _rollback_night(now: ModelRecord, then: ModelRecord, number: int) -> Night:
    last = then.history[-1]
    return replace(
        last,
        finished_at=datetime.now(UTC).isoformat(timespec="seconds"),
        partitions=(),
        rows=0,
        progressive_error=None,
        progressive_mse_of=None,
        progressive_errors=None,
        progressive_trivial_error=None,
        progressive_last_value_error=None,
        progressive_trivial_mse_of=None,
        coverage=None,
        refit_gain=None,
        segments=(),
        seconds=0.0,
        number=next_night_number(now),
        event=f"rollback to {number}",
        held=None,
        evaluated_at=None,
        drift=None,
    )


_COLUMNS = (
    "night",
    "finished (UTC)",
    "what",
    "parts",
    "rows",
    "seen",
    "basis",
    "progressive",
    "test",
    "skill",
    "tags",
    "snapshot",
)


def show_history(history: dict[str, Any]) -> None:
    """Print the nights as one table for each model."""
    from ridgestream.jobs.console.tables import fitted_table, open_console

    console = open_console()
    for model in history["models"]:
        served = f"night {model['served_night']} is served" if model["served_night"] else "the last night is served"
        table = fitted_table(
            f"model {model['name']}: {served}",
            _COLUMNS,
            [_night_cells(night) for night in model["nights"]],
            console.width,
            first=("night", "finished (UTC)", "rows", "test", "skill", "what"),
        )
        console.print(table)
        if model["excluded"]:
            console.print(f"excluded: {', '.join(model['excluded'])}", soft_wrap=True)


def _night_cells(night: dict[str, Any]) -> tuple[str, ...]:
    test = night["test_error"] if night["test_error"] is not None else night["test_mse"]
    what = night["event"] or ("train" if night["partitions"] else "refit")
    what = f"{what}, evaluated later" if night["evaluated_at"] else what
    return (
        str(night["number"] or ""),
        night["finished_at"][:16].replace("T", " "),
        f"{what}, held back" if night["held"] else what,
        str(len(night["partitions"])),
        f"{night['rows']:,}",
        f"{night['rows_seen']:,}",
        str(night["n_basis"]),
        "" if night["progressive_error"] is None else f"{night['progressive_error']:.4g}",
        "" if test is None else f"{test:.4g}",
        skill_cell(night),
        ", ".join(night["tags"]),
        night["snapshot"] or "",
    )
