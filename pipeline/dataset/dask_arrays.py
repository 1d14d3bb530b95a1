"""The dataset as dask arrays, for a user's own analyses: all rows of the store in ledger order, read lazily."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ridgestream.stores.catalog.ledger import read_ledger
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.segments.checked_array import check_present
from ridgestream.stores.segments.row_arrays import RowArrays
from ridgestream.stores.segments.segment_format import ROW_DIMENSIONS, SegmentFacts, unmark_missing
from ridgestream.stores.segments.segments import Segment, Segments

if TYPE_CHECKING:
    import dask.array as da
    import xarray


@dataclass(frozen=True)
class DaskDataset:
    """The rows of a snapshot, as lazy arrays with the chunks of the store."""

    numeric: "da.Array"
    """Raw numeric features, shape (rows, n_numeric); NaN for a missing value."""
    codes: "da.Array"
    """Categorical features as indices into `categories`, shape (rows, n_categorical); −1 for a missing value."""
    targets: "da.Array"
    """Shape (rows, n_targets); ±1 for one class against the rest, indices into `classes` for multi-class targets."""
    weights: "da.Array | None"
    """Shape (rows,); None if the store has no weight column."""
    numeric_names: tuple[str, ...]
    """The names of the numeric features."""
    categorical_names: tuple[str, ...]
    """The names of the categorical features."""
    categories: tuple[tuple[str, ...], ...]
    """For each categorical feature, its values."""
    classes: tuple[Label, ...] = ()
    """In multi-class stores, the classes with a row of positive weight; rows of other classes have the target −1."""
    target_names: tuple[str, ...] = ()
    """The names of the targets."""

    def to_xarray(self) -> "xarray.Dataset":
        """Return the rows as a dataset of xarray, which has to be installed, with the names of columns as coordinates.

        Its dimensions are those of the store's own arrays.
        """
        import xarray

        arrays = {name: getattr(self, name) for name in ROW_DIMENSIONS if hasattr(self, name)}
        present = {name: (ROW_DIMENSIONS[name], array) for name, array in arrays.items() if array is not None}
        names = self.numeric_names, self.categorical_names, self.target_names
        columns = dict(zip(("numeric_column", "categorical_column", "target"), map(list, names), strict=True))
        return xarray.Dataset(present, columns)


def open_dask_arrays(store: Store, snapshot: str | None = None) -> DaskDataset:
    """Return the dataset of the last commit or of a snapshot; raises StoreError if nothing has been ingested yet."""
    import dask.array as da

    root = store.root(snapshot)
    ledger = read_ledger(root)
    if ledger.schema is None or not ledger.entries:
        raise StoreError(f"the store {store.location.text} holds no partition yet")
    numbers = [entry.segment for entry in ledger.entries if entry.rows] or [ledger.entries[0].segment]
    opened, schema = Segments(root), ledger.schema
    runs = join_runs(opened[number] for number in numbers)
    codes = [_codes(run, ledger.categories) for run in runs]
    return DaskDataset(
        numeric=da.concatenate([_numeric(run) for run in runs]),
        codes=da.concatenate(codes),
        targets=da.concatenate([_targets(run, ledger.classes) for run in runs]),
        weights=da.concatenate([_whole(run, "weights") for run in runs]) if schema.weight else None,
        numeric_names=tuple(f.name for f in schema.numeric),
        categorical_names=tuple(f.name for f in schema.categorical),
        categories=ledger.categories,
        classes=ledger.classes,
        target_names=schema.targets,
    )


@dataclass(frozen=True)
class _Run:
    """Segments whose rows follow each other in the same arrays: one large segment, or several of a pack."""

    arrays: RowArrays
    """The arrays."""
    start: int
    """The first row in them."""
    counts: tuple[int, ...]
    """The rows of each segment."""
    facts: tuple[SegmentFacts, ...]
    """Their facts."""

    @property
    def stop(self) -> int:
        """One past the last row in the arrays."""
        return self.start + sum(self.counts)

    def followed_by(self, later: "_Run") -> "_Run | None":
        """Return both runs as one; None if the later one does not begin where this one ends."""
        if later.arrays.group.path != self.arrays.group.path or later.start != self.stop:
            return None
        return _Run(self.arrays, self.start, self.counts + later.counts, self.facts + later.facts)

    def owners(self) -> npt.NDArray[np.int64]:
        """Return the position of the segment of each row, shape (rows,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


def join_runs(segments: Iterable[Segment]) -> list[_Run]:
    """Return the segments, in order, as the fewest runs."""
    runs: list[_Run] = []
    for segment in segments:
        run = _Run(segment.arrays, segment.first, (segment.rows,), (segment.facts(),))
        joined = runs[-1].followed_by(run) if runs else None
        runs[-1:] = [joined] if joined else [*runs[-1:], run]
    return runs


def _numeric(run: _Run) -> Any:  # noqa: ANN401
    """Return the numeric features, NaN for missing values: any that has one is stored as a number none reaches."""
    import dask.array as da

    whole = _whole(run, "numeric")
    counts = [facts.missing for facts in run.facts if facts.missing]
    missing = tuple(map(sum, zip(*counts, strict=True)))
    return da.map_blocks(unmark_missing, whole, missing, dtype=whole.dtype) if missing else whole


def _targets(run: _Run, classes: tuple[Label, ...]) -> Any:  # noqa: ANN401
    """Return the targets, classes as indices into the store's."""
    whole = _whole(run, "targets")
    if not classes:
        return whole
    positions = {label: position for position, label in enumerate(classes)}
    table = _CodeTable.of([[positions.get(label, -1) for label in facts.classes] for facts in run.facts])
    return _map_rows(_translate, whole, run, (table,), np.float64)


def _codes(run: _Run, categories: tuple[tuple[str, ...], ...]) -> Any:  # noqa: ANN401
    """Return the codes as indices into the store's tables."""
    import dask.array as da

    if not categories:
        return da.zeros((sum(run.counts), 0), dtype=np.int64, chunks=(run.arrays.chunk_rows, -1))
    tables = []
    for column, values in enumerate(categories):
        positions = {value: position for position, value in enumerate(values)}
        codes = [[positions[value] for value in facts.categories[column]] for facts in run.facts]
        tables.append(_CodeTable.of(codes))
    return _map_rows(_translate, _whole(run, "codes"), run, tuple(tables), np.int64)


def _whole(run: _Run, name: str) -> Any:  # noqa: ANN401
    """Return the run's rows of an array, whose chunks are checked when they are read."""
    import dask.array as da

    subject = f"{run.arrays.group.path}/{name} of the store"
    array = run.arrays.array(name)
    lazy = da.from_array(array, chunks=array.chunks, name=False)
    checked = da.map_blocks(
        check_present, lazy, subject=subject, dtype=lazy.dtype, meta=np.empty((0,) * lazy.ndim, lazy.dtype)
    )
    return checked[run.start : run.stop]


@dataclass(frozen=True)
class _CodeTable:
    """The new code of each code of several segments; the code −1 stays."""

    codes: npt.NDArray[np.int64]
    """The new codes, segment after segment, each after a −1."""
    starts: npt.NDArray[np.int64]
    """The position of the code 0 of each segment, shape (segments,)."""

    @classmethod
    def of(cls, codes: Sequence[Sequence[int]]) -> "_CodeTable":
        ends = np.cumsum([len(each) + 1 for each in codes])
        starts = np.concatenate([np.zeros(1, np.int64), ends])[:-1] + 1
        return cls(np.array([new for each in codes for new in (-1, *each)], dtype=np.int64), starts)


def _map_rows(
    function: Callable[..., Any],
    rows: Any,  # noqa: ANN401
    run: _Run,
    tables: tuple[_CodeTable, ...],
    dtype: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Return function(block, owners, tables) of each block of rows and the segments that they are of."""
    import dask.array as da

    owners = da.from_array(run.owners()[:, np.newaxis], chunks=(rows.chunks[0], 1))
    meta = np.empty((0, 0), dtype)
    return da.map_blocks(function, rows, owners, tables=tables, dtype=dtype, chunks=rows.chunks, meta=meta)


def _translate(
    codes: npt.NDArray[Any], owners: npt.NDArray[np.int64], tables: tuple[_CodeTable, ...]
) -> npt.NDArray[Any]:
    columns = [table.codes[table.starts[owners[:, 0]] + codes[:, i].astype(np.int64)] for i, table in enumerate(tables)]
    return np.column_stack(columns).astype(np.float64 if codes.dtype.kind == "f" else np.int64)
