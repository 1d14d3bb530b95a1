"""Helpers to create stores in a test's folder and read them, and an executor that imitates a cluster."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import zarr

from ridgestream.pipeline.base.executor import Executor, InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.pipeline.ingest.ingest_report import IngestReport
from ridgestream.stores.catalog.ledger import Ledger, as_plain, read_ledger
from ridgestream.stores.catalog.models import LISTS
from ridgestream.stores.parquet.partitions import list_partitions
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.schema.row_batch import Rows, join_rows
from ridgestream.stores.schema.schema import SchemaRequest
from ridgestream.stores.segments.segments import Segment
from ridgestream.stores.segments.text_array import read_lines

Task = TypeVar("Task")
Result = TypeVar("Result")


def new_store(folder: Path) -> Store:
    """Create an empty store in `folder`."""
    return Store.create(location_of(folder))


def location_of(folder: Path) -> StoreLocation:
    return StoreLocation.parse(str(folder), Path("/"))


def ingest_folder(store: Store, source: Path, request: SchemaRequest, executor: Executor | None = None) -> IngestReport:
    """Ingest the partitions of a folder, in this process unless another executor is given."""
    with store.lock():
        return ingest(store, list_partitions(source), request, executor or InProcess(), Silent())


def as_format_3(root: zarr.Group) -> zarr.Group:
    """Make a root one of format version 3, which has no hashes; the commit then lists those of what a test wrote."""
    ledger = read_ledger(root)
    root.attrs["ridgestream"] = {"format_version": 3}
    if ledger.schema is not None:
        root.create_group("ledger", overwrite=True, attributes=cast("Any", as_plain(ledger)))
    for group in cast("zarr.Group", root["models"]).groups() if "models" in root else ():
        _keep_in_attributes(group[1])
    return root


def _keep_in_attributes(model: zarr.Group) -> None:
    """Give a model's group the layout of format version 3."""
    plain = plain_model(model)
    for name in LISTS:
        del model[name]
    model.attrs.put({**plain, "format_version": 3})


def plain_model(model: zarr.Group) -> dict[str, Any]:
    """Return the record of a model's group as plain JSON, without its arrays."""
    learned = [number for line in read_lines(model, "learned") for number in line]
    return {**model.attrs.asdict(), "history": read_lines(model, "history"), "learned": learned}


def ledger_of(store: Store) -> Ledger:
    return read_ledger(store.root())


def segment_rows(root: zarr.Group, order: int) -> Rows:
    """Return all rows of a segment."""
    segment = Segment.open(root, order)
    return segment.read(0, segment.rows)


def stored_rows(store: Store) -> Rows:
    """Return all rows of a store, in ledger order; codes are those of each segment."""
    root = store.root()
    return join_rows([segment_rows(root, entry.segment) for entry in read_ledger(root).entries])


def stored_values(store: Store, column: int) -> list[str]:
    """Return the values of a categorical feature, row by row, in ledger order."""
    root, values = store.root(), []
    for entry in read_ledger(root).entries:
        segment = Segment.open(root, entry.segment)
        table = segment.facts().categories[column]
        values += [table[code] for code in segment.read(0, segment.rows).codes[:, column]]
    return values


def same_rows(left: Rows, right: Rows) -> bool:
    """Return whether all arrays are equal in values, dtypes and shapes."""
    return all(_same(getattr(left, n), getattr(right, n)) for n in ("numeric", "codes", "targets", "weights"))


def _same(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    return left.dtype == right.dtype and left.shape == right.shape and bool(np.array_equal(left, right))


class PicklingExecutor(InProcess):
    """Runs tasks as a cluster might: arguments and results pickled, tasks in reverse order, each twice."""

    def run(self, function: Callable[..., Result], tasks: Iterable[Task], *shared: Any) -> Iterator[Result]:
        calls = [pickle.dumps((function, task, shared)) for task in tasks]
        results = [pickle.dumps(self._call(call)) for call in reversed(calls) for _ in range(2)]
        for result in reversed(results[1::2]):
            yield pickle.loads(result)  # noqa: S301

    def _call(self, call: bytes) -> Any:
        function, task, shared = pickle.loads(call)  # noqa: S301
        return function(task, *shared)
