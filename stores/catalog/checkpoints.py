"""Checkpoints of a training under way: named values on branches of their own, which no reader of the store sees.

Each key of a model has a branch with its last checkpoint alone, upon the empty snapshot that every repository begins
with; the branch moves to the next one at once. All are deleted when the training has committed what they were for.
Losing a checkpoint, or finding one damaged, costs the time that it would have saved and nothing else.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.catalog.models import check_model_name
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import reading, store_errors
from ridgestream.stores.repository.garbage_collection import collect
from ridgestream.stores.repository.lease import FIRST_SNAPSHOT
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.segments.checked_array import create_array, read_array
from ridgestream.stores.segments.size_limits import check_metadata

if TYPE_CHECKING:
    import zarr

COLLECT_BYTES = 2**30
"""How many bytes of superseded checkpoints may lie about before they are collected."""

_GROUP = "checkpoints"
_WRITING = "writing"
_ROWS_A_CHUNK = 1024
_BRANCH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")

Arrays = Mapping[str, npt.NDArray[Any]]

Make = Callable[[], tuple[dict[str, Any], Arrays] | None]
"""Makes the record and the arrays of a checkpoint; None where it is not worth it."""


class Checkpoints:
    """The checkpoints of one model, by keys that say what each is of; for who holds the writer's lock."""

    def __init__(self, store: Store, model: str) -> None:
        self._store, self._model = store, check_model_name(model)
        self._superseded, self._saved = 0, False
        self._held: dict[str, Make] = {}

    def load(self, key: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
        """Return the record and the arrays that were kept under the key; None where there are none that are sound."""
        import zarr

        branch = self._branch(key)
        with suppress(StoreError), reading(f"the checkpoint {key}"):
            if branch in self._store.repository.list_branches():
                kept = self._store.repository.readonly_session(branch).store
                check_metadata(kept, _GROUP, members=True)
                root = zarr.open_group(kept, mode="r")
                group = cast("zarr.Group", root[_GROUP])
                plain = cast("dict[str, Any]", group.attrs.asdict())
                if plain["sha256"] == _hash_of(plain["record"]):
                    return plain["record"], {name: read_array(array) for name, array in group.arrays()}
        return None

    def save(self, key: str, record: dict[str, Any], arrays: Arrays) -> None:
        """Keep a record, as JSON takes it, and arrays of numbers under the key, in the place of what was there.

        It is there whole or not at all. Raises StoreError where the store cannot be written.
        """
        branch, plain = self._branch(key), json.loads(json.dumps(record))
        with store_errors(f"the store {self._store.location.text}"):
            known = branch in self._store.repository.list_branches()
            snapshot = self._write(plain, arrays)
            self._store.flush()
            self._store.check_held()
            self._move(branch, snapshot, known=known)
        self._saved = True
        self._superseded += sum(array.nbytes for array in arrays.values()) if known else 0
        if self._superseded > COLLECT_BYTES:
            self._collect()

    def hold(self, key: str, make: Make | None) -> None:
        """Have at hand what `save_held` is to save under the key, in the place of what was; None for nothing."""
        self._held.pop(key, None)
        if make is not None:
            self._held[key] = make

    def save_held(self) -> int:
        """Save what is at hand, and return how many there were; raise what `save` raises."""
        made = {key: made for key, make in self._held.items() if (made := make()) is not None}
        self._held = {}
        for key, (record, arrays) in made.items():
            self.save(key, record, arrays)
        return len(made)

    def drop(self) -> None:
        """Forget all checkpoints of the model, and collect what they took; where nothing was kept, do nothing.

        What cannot be forgotten does no harm, and is left for a cleaning.
        """
        self._held = {}
        with suppress(StoreError), store_errors(f"the store {self._store.location.text}"):
            for branch in self._store.repository.list_branches():
                if model_of(branch) == self._model:
                    forget(self._store, branch)
                    self._saved = True
        if self._saved:
            self._collect()
        self._saved = False

    def _write(self, record: dict[str, Any], arrays: Arrays) -> str:
        """Return a snapshot that holds the record and the arrays and nothing else."""
        import zarr

        repository, writing = self._store.repository, self._branch(_WRITING)
        if writing in repository.list_branches():
            forget(self._store, writing)
        repository.create_branch(writing, _first_snapshot(self._store))
        session = repository.writable_session(writing)
        group = zarr.open_group(session.store, mode="a").create_group(_GROUP, overwrite=True)
        group.attrs.update({"record": cast("Any", record), "sha256": _hash_of(record)})
        for name, array in arrays.items():
            values = np.ascontiguousarray(array)
            create_array(group, name, values.shape, str(values.dtype), _ROWS_A_CHUNK)[...] = values
        return str(session.commit("Keep a checkpoint"))

    def _move(self, branch: str, snapshot: str, *, known: bool) -> None:
        """Point the branch at the snapshot; a branch that is damaged is made anew."""
        import icechunk

        repository = self._store.repository
        try:
            if known:
                repository.reset_branch(branch, snapshot)
        except icechunk.IcechunkError:
            forget(self._store, branch)
            known = False
        if not known:
            repository.create_branch(branch, snapshot)
        repository.delete_branch(self._branch(_WRITING))

    def _collect(self) -> None:
        """Collect what is superseded; what cannot be collected costs space alone, until the next time."""
        self._superseded = 0
        with suppress(StoreError):
            collect(self._store)

    def _branch(self, key: str) -> str:
        return f"{_GROUP}.{key}.{self._model}"


def forget(store: Store, branch: str) -> None:
    """Delete the branch of a checkpoint, also one that is damaged, which Icechunk does not do."""
    import icechunk

    try:
        store.repository.delete_branch(branch)
    except icechunk.IcechunkError:
        if store.location.folder is None or not _BRANCH.fullmatch(branch):  # a name may lead out of the folder
            raise
        shutil.rmtree(store.location.folder / "refs" / f"branch.{branch}")


def _first_snapshot(store: Store) -> str:
    """Return the empty snapshot; where Icechunk should call it by another name, the last one, which serves as well."""
    import icechunk

    try:
        return store.repository.lookup_snapshot(FIRST_SNAPSHOT).id
    except icechunk.IcechunkError:
        return store.snapshot()


def model_of(branch: str) -> str | None:
    """Return the model whose checkpoint a branch holds; None for a branch that holds none.

    A key has no dot; a model's name may.
    """
    group, _, rest = branch.partition(".")
    return rest.partition(".")[2] if group == _GROUP else None


def _hash_of(record: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
