"""Earlier states of a store: nights by number, a user's own tags, and snapshots by id."""

import re

from ridgestream.stores.catalog.models import NIGHT, ModelRecord, night_tag, require_model
from ridgestream.stores.errors.exceptions import ModelError, StoreError
from ridgestream.stores.repository.repository import Store

_TAG = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


def find_snapshot(store: Store, model: str, name: str) -> str:
    """Return the snapshot of a night of the model given by number, of a tag, or with this id.

    Raises ModelError if there is no such night, tag or snapshot.
    """
    if name.isdecimal():
        return snapshot_of_night(store, model, int(name))
    tagged = store.find_tag(name)
    if tagged is not None:
        return tagged
    if not store.has_snapshot(name):
        raise ModelError(
            f"the store {store.location.text} has no night, tag or snapshot {name!r}; `ridgestream history` lists them"
        )
    return name


def snapshot_of_night(store: Store, model: str, number: int) -> str:
    """Return the snapshot of a night; raises ModelError if there is none, or if an older release made it."""
    tagged = store.find_tag(night_tag(model, number))
    if tagged is not None:
        return tagged
    record, tags = require_model(store.root(), model), store.tags()
    numbers = [night.number for night in record.history if night_tag(model, night.number) in tags]
    existing = (
        f"its nights are {', '.join(map(str, numbers))}" if numbers else "nights of older releases have no number"
    )
    if any(night.number == number for night in record.history):
        raise ModelError(
            f"the model {model!r} cannot go back to night {number}, which a cleaning has deleted: {existing}"
        )
    raise ModelError(f"the model {model!r} has no night {number}: {existing}")


def find_night(store: Store, model: str, name: str) -> int:
    """Return the number of the model's night that is given by its number, or is the last one at a tag or snapshot.

    Raises ModelError if there is no such night.
    """
    if name.isdecimal():
        return int(name)
    return require_model(store.root(find_snapshot(store, model, name)), model).history[-1].number


def record_of_night(store: Store, model: str, number: int) -> ModelRecord:
    """Return the model as it was after a night; raises ModelError if there is no such night."""
    return require_model(store.root(snapshot_of_night(store, model, number)), model)


def served_record(store: Store, record: ModelRecord) -> ModelRecord:
    """Return the served model: the record itself, or that of the night served instead."""
    return record_of_night(store, record.name, record.serves) if record.serves else record


def check_tag(name: str) -> str:
    """Return the name of a tag; raises StoreError unless it is letters, digits and `_.-`, and not a night's tag."""
    if not _TAG.fullmatch(name) or name.startswith(NIGHT):
        raise StoreError(
            f"a tag begins with a letter, not with {NIGHT!r}, and is made of letters, digits, '_', '.' and '-', 64 at "
            f"most; {name!r} is not"
        )
    return name
