"""A store that is open for reading, for Python: its models by name, its partitions, and its rows as arrays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ridgestream.jobs.api.stored_model import StoredModel
from ridgestream.jobs.config.sections import StorageSection
from ridgestream.jobs.config.values import JobFileError
from ridgestream.stores.catalog.ledger import Ledger, read_ledger
from ridgestream.stores.catalog.models import list_models
from ridgestream.stores.catalog.snapshots import find_snapshot
from ridgestream.stores.errors.exceptions import ModelError, StoreError
from ridgestream.stores.files.object_storage import StorageSettings
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.schema.schema import Schema

if TYPE_CHECKING:
    import zarr

    from ridgestream.pipeline.dataset.dask_arrays import DaskDataset


class Models(dict[str, StoredModel]):
    """The models of a store by name."""

    def __missing__(self, name: str) -> StoredModel:
        raise ModelError(f"the store has no model {name!r}; its models: {', '.join(self) or 'none'}")


@dataclass(frozen=True)
class OpenStore:
    """A store at a snapshot: later nights do not change what it shows, and `clean` leaves what it reads."""

    location: str
    """Where it is: a path or a URL."""
    snapshot: str
    """The snapshot."""
    store: Store = field(repr=False)
    """The repository."""
    root: "zarr.Group" = field(repr=False)
    """The root group at the snapshot, read-only: `root.store` is what `xarray.open_zarr` takes."""

    @cached_property
    def models(self) -> Models:
        """The models by name."""
        return Models({name: StoredModel(name, self.snapshot, self.store) for name in list_models(self.root)})

    @cached_property
    def ledger(self) -> Ledger:
        """The partitions, in the order of learning, the schema, and the categories and classes."""
        return read_ledger(self.root)

    @property
    def schema(self) -> Schema | None:
        """The role and kind of each column; None before the first ingest."""
        return self.ledger.schema

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.ledger.rows

    def dataset(self) -> "DaskDataset":
        """Return all rows as dask arrays with the names of their columns, read when they are computed.

        Its `to_xarray` makes a dataset of xarray of them. Raises StoreError if there are none yet.
        """
        from ridgestream.pipeline.dataset.dask_arrays import open_dask_arrays

        return open_dask_arrays(self.store, self.snapshot)


def open(  # noqa: A001 (ridgestream.open)
    location: str | Path, *, snapshot: str | None = None, storage: Mapping[str, Any] | None = None
) -> OpenStore:
    """Open a store for reading: a local path, or the URL of an object store (`s3://bucket/name`).

    `snapshot` is a tag or the id of a snapshot, the last commit if None. `storage` has the keys of the section
    `[storage]` of a job file, such as `endpoint_url`; credentials come from the environment.

    Raises StoreError if there is no such store, ModelError if there is no such snapshot or tag, JobFileError for keys
    that there are not.
    """
    if not isinstance(snapshot, str | None):
        raise StoreError(
            f"a snapshot is a tag or an id, a text, it is {snapshot!r}; nights: store.models[NAME].at(NIGHT)"
        )
    store = Store.open(StoreLocation.parse(str(location), Path.cwd(), _settings(storage or {})))
    if snapshot is not None and snapshot.isdecimal():
        raise StoreError(f"a night is one of a model: in place of {snapshot!r}, use store.models[NAME].at({snapshot})")
    found = find_snapshot(store, "", snapshot) if snapshot else store.snapshot()
    return OpenStore(store.location.text, found, store, store.root(found))


def _settings(storage: Mapping[str, Any]) -> StorageSettings:
    try:
        return StorageSection(**storage).settings
    except ValidationError as error:
        raise JobFileError(f"storage cannot be used: {error.errors()[0]['msg']}") from error
