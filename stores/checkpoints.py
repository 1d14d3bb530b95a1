"""Checkpoints of a training under way: named values on a branch of the model's own, which no reader of the store sees.

The branch begins at the store's last commit and is deleted when the training has committed what it was for. Losing a
checkpoint, or finding one damaged, costs the time that it would have saved and nothing else.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from ridgestream.stores.arrays import create_array, read_array
from ridgestream.stores.errors import StoreError
from ridgestream.stores.guarding import reading, store_errors
from ridgestream.stores.models import check_model_name
from ridgestream.stores.repository import BRANCH, Store

if TYPE_CHECKING:
    import zarr

_GROUP = "checkpoints"
_ROWS_A_CHUNK = 1024

Arrays = Mapping[str, npt.NDArray[Any]]


class Checkpoints:
    """The checkpoints of one model, by keys that say what each is of."""

    def __init__(self, store: Store, model: str) -> None:
        self._store, self._branch = store, f"{_GROUP}.{check_model_name(model)}"

    def load(self, key: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] | None:
        """Return the record and the arrays that were kept under the key; None where there are none that are sound."""
        import zarr

        path = f"{_GROUP}/{key}"
        try:
            with reading(f"the checkpoint {key}"):
                if self._branch not in self._store.repository.list_branches():
                    return None
                root = zarr.open_group(self._store.repository.readonly_session(self._branch).store, mode="r")
                if path not in root:
                    return None
                group = cast("zarr.Group", root[path])
                record = cast("dict[str, Any]", group.attrs.asdict())["record"]
                return record, {name: read_array(array) for name, array in group.arrays()}
        except StoreError:
            return None

    def save(self, key: str, record: dict[str, Any], arrays: Arrays) -> None:
        """Keep a record, as JSON takes it, and arrays of numbers under the key, in the place of what was there.

        Raises StoreError where the store cannot be written, or where another writer saves at the same time.
        """
        import zarr

        with store_errors(f"the store {self._store.location.text}"):
            repository = self._store.repository
            if self._branch not in repository.list_branches():
                repository.create_branch(self._branch, repository.lookup_branch(BRANCH))
            session = repository.writable_session(self._branch)
            root = zarr.open_group(session.store, mode="a")
            group = root.create_group(f"{_GROUP}/{key}", overwrite=True)
            group.attrs["record"] = cast("Any", json.loads(json.dumps(record)))
            for name, array in arrays.items():
                values = np.ascontiguousarray(array)
                create_array(group, name, values.shape, str(values.dtype), _ROWS_A_CHUNK)[...] = values
            session.commit(f"Keep a checkpoint {key}")

    def drop(self) -> None:
        """Forget all checkpoints of the model."""
        with store_errors(f"the store {self._store.location.text}"):
            if self._branch in self._store.repository.list_branches():
                self._store.repository.delete_branch(self._branch)
