"""Checkpoints of a running training: named values on branches of their own, invisible to readers of the store.

Each key of a model has a branch that holds only its latest checkpoint, on top of the empty first snapshot of the
repository; the branch moves to the next checkpoint atomically. All are deleted once the training has committed its
result. A lost or damaged checkpoint costs the time that it would have saved and nothing else.
"""

import json
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.catalog.models import check_model_name, rows_a_chunk
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.errors.translation import read_errors, store_errors
from ridgestream.stores.errors.zarr_settings import ZARR_FORMAT
from ridgestream.stores.repository.client import FIRST_SNAPSHOT
from ridgestream.stores.repository.garbage_collection import collect
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.record_hash import hash_arrays, hash_plain
from ridgestream.stores.segments.checked_array import create_array, read_array
from ridgestream.stores.segments.size_limits import check_metadata

if TYPE_CHECKING:
    import zarr

COLLECT_BYTES = 2**30
"""Size of superseded checkpoints at which garbage is collected."""

_GROUP = "checkpoints"
_WRITING = "writing"
_BRANCH = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")

Arrays = Mapping[str, npt.NDArray[Any]]

CheckpointBuilder = Callable[[], tuple[dict[str, Any], Arrays] | None]
"""Builds the record and the arrays of a checkpoint; returns None if it is not worth saving."""


class Checkpoints:
    """The checkpoints of one model, by key; the caller holds the writer's lock."""

    def __init__(self, store: Store, model: str) -> None:
        self._store, self._model = store, check_model_name(model)
        self._superseded_bytes, self._saved = 0, False
        self._pending: dict[str, CheckpointBuilder] = {}

    def load(self, key: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
        """Return the record and the arrays saved under the key; None if there are none, or if they are damaged."""
        import zarr

        branch = self._branch(key)
        with suppress(StoreError), read_errors(f"the checkpoint {key}"):
            if branch in self._store.repository.list_branches():
                repository = self._store.repository
                store = repository.store_of(repository.readonly_session(branch))
                check_metadata(store, _GROUP, members=True)
                root = zarr.open_group(store, mode="r", zarr_format=ZARR_FORMAT)
                group = cast("zarr.Group", root[_GROUP])
                plain = cast("dict[str, Any]", group.attrs.asdict())
                arrays = {name: read_array(array) for name, array in group.arrays()}
                if plain["sha256"] == _hash_of(plain["record"], arrays):
                    return plain["record"], arrays
        return None

    def save(self, key: str, record: dict[str, Any], arrays: Arrays) -> None:
        """Save a JSON record and arrays of numbers under the key, replacing what was there, atomically.

        Raises StoreError if the store cannot be written.
        """
        branch, plain = self._branch(key), json.loads(json.dumps(record))
        with store_errors(f"the store {self._store.location.text}"):
            exists = branch in self._store.repository.list_branches()
            snapshot = self._write(plain, arrays)
            self._store.flush()
            self._store.check_lease()
            self._move(branch, snapshot, exists=exists)
        self._saved = True
        self._superseded_bytes += sum(array.nbytes for array in arrays.values()) if exists else 0
        if self._superseded_bytes > COLLECT_BYTES:
            self._collect()

    def set_pending(self, key: str, build: CheckpointBuilder | None) -> None:
        """Set what `save_pending` saves under the key, replacing what was set before; None for nothing."""
        self._pending.pop(key, None)
        if build is not None:
            self._pending[key] = build

    def save_pending(self) -> int:
        """Save the pending checkpoints and return their number; raises the errors of `save`."""
        built = {key: checkpoint for key, build in self._pending.items() if (checkpoint := build()) is not None}
        self._pending = {}
        for key, (record, arrays) in built.items():
            self.save(key, record, arrays)
        return len(built)

    def delete(self) -> None:
        """Delete all checkpoints of the model and collect their garbage; does nothing if none was saved.

        A checkpoint that cannot be deleted does no harm; `clean` deletes it later.
        """
        self._pending = {}
        with suppress(StoreError), store_errors(f"the store {self._store.location.text}"):
            for branch in self._store.repository.list_branches():
                if model_of_branch(branch) == self._model:
                    delete_branch(self._store, branch)
                    self._saved = True
        if self._saved:
            self._collect()
        self._saved = False

    def _write(self, record: dict[str, Any], arrays: Arrays) -> str:
        """Write a snapshot that contains the record and the arrays and nothing else, and return its id."""
        import zarr

        repository, writing = self._store.repository, self._branch(_WRITING)
        if writing in repository.list_branches():
            delete_branch(self._store, writing)
        repository.create_branch(writing, _first_snapshot(self._store))
        session = repository.writable_session(writing)
        root = zarr.open_group(repository.store_of(session), mode="a", zarr_format=ZARR_FORMAT)
        group = root.create_group(_GROUP, overwrite=True)
        contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        group.attrs.update({"record": cast("Any", record), "sha256": _hash_of(record, contiguous)})
        for name, values in contiguous.items():
            create_array(group, name, values.shape, str(values.dtype), rows_a_chunk(name))[...] = values
        return repository.flush(session, "Keep a checkpoint")

    def _move(self, branch: str, snapshot: str, *, exists: bool) -> None:
        """Point the branch to the snapshot; recreates a damaged branch."""
        import icechunk

        repository = self._store.repository
        try:
            if exists:
                repository.reset_branch(branch, snapshot)
        except icechunk.IcechunkError:
            delete_branch(self._store, branch)
            exists = False
        if not exists:
            repository.create_branch(branch, snapshot)
        repository.delete_branch(self._branch(_WRITING))

    def _collect(self) -> None:
        """Collect superseded checkpoints; a failure costs only space, until the next time."""
        self._superseded_bytes = 0
        with suppress(StoreError):
            collect(self._store)

    def _branch(self, key: str) -> str:
        return f"{_GROUP}.{key}.{self._model}"


def delete_branch(store: Store, branch: str) -> None:
    """Delete the branch of a checkpoint, even a damaged one, which Icechunk refuses to delete."""
    import icechunk

    try:
        store.repository.delete_branch(branch)
    except icechunk.IcechunkError:
        if store.location.folder is None or not _BRANCH.fullmatch(branch):  # the name could point outside the folder
            raise
        shutil.rmtree(store.location.folder / "refs" / f"branch.{branch}")


def _first_snapshot(store: Store) -> str:
    """Return the id of the empty first snapshot, or else the last snapshot, which serves as well."""
    import icechunk

    try:
        return store.repository.lookup_snapshot(FIRST_SNAPSHOT).id
    except icechunk.IcechunkError:
        return store.snapshot()


def model_of_branch(branch: str) -> str | None:
    """Return the model whose checkpoint a branch holds; None if it holds none.

    Keys contain no dot; names of models may.
    """
    group, _, rest = branch.partition(".")
    return rest.partition(".")[2] if group == _GROUP else None


def _hash_of(record: dict[str, Any], arrays: Arrays) -> str:
    return hash_plain({"record": record, "arrays": hash_arrays(arrays)})
