"""Ingest: each partition once, whole, in one order; an error in one leaves the last commit unchanged."""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.recording import Notes
from support.stores.partitions import REQUEST, column_of, mixed_columns, only_partition, write_mixed, write_partition
from support.stores.stores import (
    PicklingExecutor,
    ingest_folder,
    ledger_of,
    new_store,
    same_rows,
    segment_rows,
    stored_rows,
    stored_values,
)

from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.ingest import partition_task
from ridgestream.pipeline.ingest.ingest import TASKS_A_COMMIT, ingest
from ridgestream.pipeline.ingest.partition_profile import profile_partition
from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.parquet.partitions import list_partitions, read_arrow_schema
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.schema import SchemaRequest, infer_schema
from ridgestream.stores.segments.segment_format import SegmentFacts
from ridgestream.stores.segments.segments import Segment


def content_hash(path: Path, request: SchemaRequest = REQUEST, like: Path | None = None) -> str:
    """Return the content hash of a partition, with the schema of itself or of another."""
    first = only_partition(like or path)
    schema = infer_schema(request, read_arrow_schema(first), str(first.path))
    return profile_partition(only_partition(path), schema).content_sha256


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_mixed(tmp_path / "source", [300, 0, 500])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return new_store(tmp_path / "store")


def test_the_store_holds_the_rows_of_the_partitions(source: Path, store: Store) -> None:
    report = ingest_folder(store, source, REQUEST)
    table = pa.concat_tables([pq.read_table(file.path) for file in list_partitions(source)])
    rows = stored_rows(store)
    assert rows.targets is not None
    np.testing.assert_array_equal(rows.targets[:, 0], table["y"].to_numpy())
    np.testing.assert_array_equal(rows.numeric[:, 0], table["length"].to_numpy())
    np.testing.assert_array_equal(rows.numeric[:, 1], table["count"].to_numpy())
    np.testing.assert_array_equal(rows.numeric[:, 2], table["flag"].to_numpy().astype(float))
    np.testing.assert_array_equal(rows.numeric[:, 3], [t.timestamp() for t in table["seen"].to_pylist()])
    assert stored_values(store, 0) == table["colour"].to_pylist()
    assert [entry.name for entry in report.added] == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]
    assert [entry.rows for entry in ledger_of(store).entries] == [300, 0, 500]


def test_partitions_come_in_natural_order(tmp_path: Path, store: Store) -> None:
    for number in (10, 2, 1):
        write_partition(tmp_path / "source" / f"part-{number}.parquet", mixed_columns(3, seed=number))
    ingest_folder(store, tmp_path / "source", REQUEST)
    assert [(e.segment, e.name) for e in ledger_of(store).entries] == [
        (0, "part-1.parquet"),
        (1, "part-2.parquet"),
        (2, "part-10.parquet"),
    ]


def test_a_late_partition_is_added_at_the_end(source: Path, store: Store) -> None:
    ingest_folder(store, source, REQUEST)
    before = stored_rows(store)
    write_partition(source / "part--early.parquet", mixed_columns(7, seed=9))
    report = ingest_folder(store, source, REQUEST)
    assert [(e.segment, e.name) for e in report.added] == [(3, "part--early.parquet")]
    assert same_rows(stored_rows(store).part(0, len(before)), before)


def test_ingesting_twice_adds_nothing_and_commits_nothing(source: Path, store: Store) -> None:
    ingest_folder(store, source, REQUEST)
    snapshot = store.snapshot()
    assert ingest_folder(store, source, REQUEST).added == ()
    assert store.snapshot() == snapshot


def test_the_reporter_receives_rows_and_partitions(source: Path, store: Store) -> None:
    notes = Notes()
    ingest(store, list_partitions(source), REQUEST, InProcess(), notes)
    assert (notes.steps, notes.rows, notes.ended) == (["ingest"], 800, [{"partitions": 3, "rows": 800}])


def rewrite(path: Path, change: Callable[[pa.Table], pa.Table] = lambda table: table, **options: Any) -> None:
    """Write a partition again, with another time stamp."""
    write_partition(path, change(pq.read_table(path)), **options)
    os.utime(path, ns=(1_000_000_000, path.stat().st_mtime_ns + 1_000_000_000))


UNCHANGED: dict[str, Callable[[Path], None]] = {
    "touched": lambda path: os.utime(path, ns=(0, 0)),
    "another codec": lambda path: rewrite(path, compression="gzip"),
    "other row groups": lambda path: rewrite(path, row_group_size=17),
    "no dictionaries": lambda path: rewrite(path, use_dictionary=False),
    "columns permuted": lambda path: rewrite(path, lambda t: t.select(sorted(t.column_names, reverse=True))),
    "an extra column": lambda path: rewrite(path, lambda t: t.append_column("extra", pa.nulls(len(t)))),
    "wider integers": lambda path: rewrite(path, lambda t: replace_column(t, "count", t["count"].cast(pa.int64()))),
    "text as a dictionary": lambda path: rewrite(path, lambda t: replace_column(t, "colour", shuffled(t["colour"]))),
    "nanoseconds": lambda path: rewrite(path, lambda t: replace_column(t, "seen", t["seen"].cast(pa.timestamp("ns")))),
}


def replace_column(table: pa.Table, name: str, column: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def shuffled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return text as a dictionary that is not in the order of appearance, with a value that is not used."""
    values = sorted({"unused", *column.to_pylist()}, reverse=True)
    indices = pa.array([values.index(value) for value in column.to_pylist()], pa.int8())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(indices, pa.array(values))])


@pytest.mark.parametrize("change", UNCHANGED.values(), ids=UNCHANGED.keys())
def test_a_rewritten_partition_with_the_same_values_is_unchanged(
    source: Path, store: Store, change: Callable[[Path], None]
) -> None:
    ingest_folder(store, source, REQUEST)
    before, snapshot = only_partition(source / "part-0.parquet"), store.snapshot()
    change(source / "part-0.parquet")
    after = only_partition(source / "part-0.parquet")
    assert (before.size_bytes, before.modified_ns) != (after.size_bytes, after.modified_ns)
    assert ingest_folder(store, source, REQUEST).added == ()
    assert store.snapshot() == snapshot


CHANGED: dict[str, Callable[[pa.Table], pa.Table]] = {
    "one value, by one bit": lambda t: replace_column(t, "length", nudged(t["length"])),
    "the target": lambda t: replace_column(t, "y", nudged(t["y"])),
    "a category": lambda t: replace_column(t, "colour", pa.chunked_array([["violet", *t["colour"].to_pylist()[1:]]])),
    "two categories swapped": lambda t: replace_column(
        t, "colour", pa.chunked_array([[{"red": "blue", "blue": "red"}.get(c, c) for c in t["colour"].to_pylist()]])
    ),
    "the order of rows": lambda t: t.take(list(reversed(range(len(t))))),
    "an additional row": lambda t: pa.concat_tables([t, t.slice(0, 1)]),
    "one row fewer": lambda t: t.slice(0, len(t) - 1),
    "no rows": lambda t: t.slice(0, 0),
    "two columns swapped": lambda t: replace_column(replace_column(t, "length", t["y"]), "y", t["length"]),
}


def nudged(column: pa.ChunkedArray) -> pa.ChunkedArray:
    values = column.to_numpy().copy()
    values[-1] = np.nextafter(values[-1], 1e300)
    return pa.chunked_array([values])


@pytest.mark.samples
@pytest.mark.parametrize("change", CHANGED.values(), ids=CHANGED.keys())
def test_a_partition_with_other_values_is_an_error_and_leaves_the_store_unchanged(
    source: Path, store: Store, change: Callable[[pa.Table], pa.Table]
) -> None:
    ingest_folder(store, source, REQUEST)
    before, snapshot = stored_rows(store), store.snapshot()
    rewrite(source / "part-0.parquet", change)
    write_partition(source / "part-9.parquet", mixed_columns(5))
    message = (
        r"part-0\.parquet was ingested with other values .*restore the file, give the new one another name, or choose"
    )
    with pytest.raises(PartitionError, match=message):
        ingest_folder(store, source, REQUEST)
    assert store.snapshot() == snapshot
    assert same_rows(stored_rows(Store.open(store.location)), before)


@pytest.mark.parametrize("damage", ["truncated", "emptied", "no longer Parquet"])
def test_a_partition_that_was_damaged_after_its_ingest_is_an_error(source: Path, store: Store, damage: str) -> None:
    ingest_folder(store, source, REQUEST)
    path, snapshot = source / "part-0.parquet", store.snapshot()
    whole = path.read_bytes()
    path.write_bytes({"truncated": whole[:-100], "emptied": b"", "no longer Parquet": b"a,b\n"}[damage])
    with pytest.raises(PartitionError, match=r"part-0\.parquet is (not a readable Parquet file|empty)"):
        ingest_folder(store, source, REQUEST)
    assert store.snapshot() == snapshot


def test_the_content_hash_does_not_depend_on_row_groups(tmp_path: Path) -> None:
    columns = mixed_columns(40_000)
    hashes = {
        content_hash(write_partition(tmp_path / f"{size}.parquet", columns, row_group_size=size))
        for size in (997, 16_384, 40_000)
    }
    assert len(hashes) == 1


def test_the_content_hash_covers_weights(tmp_path: Path) -> None:
    request = replace(REQUEST, weight="w")
    columns = mixed_columns(10)
    one = write_partition(tmp_path / "one.parquet", columns | {"w": np.ones(10)})
    two = write_partition(tmp_path / "two.parquet", columns | {"w": np.full(10, 2.0)})
    assert content_hash(one, request) != content_hash(two, request)


def test_the_content_hash_depends_on_the_positions_of_values(tmp_path: Path) -> None:
    a = write_partition(tmp_path / "a.parquet", {"p": [1.0, 2.0], "q": [3.0, 4.0], "y": [0.0, 0.0]})
    b = write_partition(tmp_path / "b.parquet", {"p": [1.0, 3.0], "q": [2.0, 4.0], "y": [0.0, 0.0]})
    assert content_hash(a) != content_hash(b)


def test_a_partition_that_is_gone_is_reported_and_its_rows_stay(source: Path, store: Store) -> None:
    ingest_folder(store, source, REQUEST)
    before = stored_rows(store)
    (source / "part-0.parquet").unlink()
    report = ingest_folder(store, source, REQUEST)
    assert (report.added, report.gone) == ((), ("part-0.parquet",))
    assert same_rows(stored_rows(store), before)


def test_columns_that_the_schema_does_not_name_are_reported(source: Path, store: Store) -> None:
    assert ingest_folder(store, source, replace(REQUEST, ignore=("seen",))).ignored_columns == ()
    columns = mixed_columns(5) | {"new": np.zeros(5), "newer": ["a"] * 5}
    write_partition(source / "part-7.parquet", columns)
    assert ingest_folder(store, source, replace(REQUEST, ignore=("seen",))).ignored_columns == ("new", "newer")


def test_columns_may_come_in_another_order(tmp_path: Path, store: Store) -> None:
    columns = mixed_columns(50)
    write_partition(tmp_path / "source" / "part-0.parquet", columns)
    write_partition(tmp_path / "source" / "part-1.parquet", dict(reversed(columns.items())))
    ingest_folder(store, tmp_path / "source", REQUEST)
    root = store.root()
    assert same_rows(segment_rows(root, 0), segment_rows(root, 1))


@pytest.mark.parametrize("rows", [[0, 20, 30], [20, 0, 30], [20, 30, 0], [0], [0, 0]], ids=str)
def test_partitions_without_rows_are_counted_as_ingested(tmp_path: Path, store: Store, rows: list[int]) -> None:
    source = write_mixed(tmp_path / "source", rows)
    ingest_folder(store, source, REQUEST)
    assert [entry.rows for entry in ledger_of(store).entries] == rows
    assert len(stored_rows(store)) == sum(rows)
    assert ingest_folder(store, source, REQUEST).added == ()


def test_a_first_partition_without_rows_or_types_leaves_the_schema_to_the_next(tmp_path: Path, store: Store) -> None:
    columns = mixed_columns(10)
    write_partition(tmp_path / "part-0.parquet", {name: pa.nulls(0) for name in columns})
    write_partition(tmp_path / "part-1.parquet", columns)
    ingest_folder(store, tmp_path, REQUEST)
    schema = ledger_of(store).schema
    assert schema is not None
    inferred = infer_schema(REQUEST, read_arrow_schema(only_partition(tmp_path / "part-1.parquet")), "part-1")
    assert schema == replace(inferred, precision=schema.precision)
    assert [entry.rows for entry in ledger_of(store).entries] == [0, 10]


def test_an_empty_frame_written_by_pandas_is_a_partition_without_rows(source: Path, store: Store) -> None:
    write_partition(source / "part-3.parquet", {name: pa.nulls(0) for name in mixed_columns(0)})
    assert ingest_folder(store, source, REQUEST).added[-1].rows == 0


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "a NaN": (
        lambda path: write_partition(path, mixed_columns(3) | {"length": [0.0, np.nan, 1.0]}),
        r"column 'length' has the value nan in row 1; .*finite",
    ),
    "a null": (
        lambda path: write_partition(path, mixed_columns(2) | {"colour": pa.array(["red", None])}),
        r"column 'colour' has the value null in row 1; .*fill or remove the row",
    ),
    "1e200": (
        lambda path: write_partition(path, mixed_columns(2) | {"length": [0.0, 1e200]}),
        r"column 'length' has the value 1e\+200 in row 1",
    ),
    "infinite target": (
        lambda path: write_partition(path, mixed_columns(2) | {"y": [0.0, -np.inf]}),
        r"column 'y' has the value -inf in row 1",
    ),
    "a string where numbers were": (
        lambda path: write_partition(path, mixed_columns(2) | {"length": ["1", "2"]}),
        r"column 'length' has type string, the store has it as numeric, which takes .*; write the file again",
    ),
    "no target": (
        lambda path: write_partition(path, {n: c for n, c in mixed_columns(2).items() if n != "y"}),
        r" has no column 'y'; it has length, count",
    ),
    "no feature": (
        lambda path: write_partition(path, {n: c for n, c in mixed_columns(2).items() if n != "flag"}),
        r" has no column 'flag'; it has length, count",
    ),
    "an empty file": (lambda path: path.write_bytes(b""), r"is empty \(0 bytes\)"),
    "no Parquet": (lambda path: path.write_bytes(b"x" * 100), "is not a readable Parquet file"),
}


@pytest.mark.samples(3)
@pytest.mark.parametrize(("spoil", "message"), BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("first", [True, False], ids=["first ingest", "later ingest"])
def test_a_bad_partition_leaves_the_last_commit_unchanged(
    source: Path, store: Store, spoil: Callable[[Path], object], message: str, first: bool
) -> None:
    if not first:
        ingest_folder(store, source, REQUEST)
    before, snapshot = ledger_of(store), store.snapshot()
    spoil(source / "part-3.parquet")
    write_partition(source / "part-4.parquet", mixed_columns(10, seed=4))
    with pytest.raises(PartitionError, match=rf"/part-3\.parquet:? ?{message}"):
        ingest_folder(store, source, REQUEST)
    assert (store.snapshot(), ledger_of(store)) == (snapshot, before)
    (source / "part-3.parquet").unlink()
    added = ingest_folder(store, source, REQUEST).added
    assert added[-1].name == "part-4.parquet"


def test_waves_before_a_bad_partition_stay_committed(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ridgestream.pipeline.ingest.ingest.TASK_FILES", 1)
    source = write_mixed(tmp_path / "source", [2] * (TASKS_A_COMMIT + 3))
    (source / f"part-{TASKS_A_COMMIT + 1}.parquet").write_bytes(b"")
    with pytest.raises(PartitionError, match=r"is empty \(0 bytes\)"):
        ingest_folder(store, source, REQUEST)
    assert len(ledger_of(store).entries) == TASKS_A_COMMIT
    write_partition(source / f"part-{TASKS_A_COMMIT + 1}.parquet", mixed_columns(2))
    assert len(ingest_folder(store, source, REQUEST).added) == 3


def test_a_file_that_changes_between_its_two_readings_is_not_ingested(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = profile_partition

    def profile_then_change(*arguments: Any) -> Any:
        result = profile(*arguments)
        rewrite(source / "part-0.parquet", CHANGED["one value, by one bit"])
        return result

    monkeypatch.setattr(partition_task, "profile_partition", profile_then_change)
    with pytest.raises(PartitionError, match=r"part-0\.parquet was changed while it was read; move finished files"):
        ingest_folder(store, source, REQUEST)
    assert ledger_of(store).entries == ()


def test_a_file_that_loses_rows_between_its_two_readings_is_not_ingested(
    source: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = profile_partition

    def profile_then_cut(*arguments: Any) -> Any:
        result = profile(*arguments)
        rewrite(source / "part-0.parquet", CHANGED["one row fewer"])
        return result

    monkeypatch.setattr(partition_task, "profile_partition", profile_then_cut)
    with pytest.raises((PartitionError, StoreError), match=r"was changed while it was read|was planned with 300 rows"):
        ingest_folder(store, source, REQUEST)
    assert ledger_of(store).entries == ()


def test_the_schema_is_that_of_the_first_ingest(source: Path, store: Store) -> None:
    ingest_folder(store, source, REQUEST)
    snapshot = store.snapshot()
    write_partition(source / "part-9.parquet", mixed_columns(5))
    for request, key in (
        (replace(REQUEST, target="length"), "with target = 'y'"),
        (replace(REQUEST, positive=1), "without positive"),
        (replace(REQUEST, weight="count"), "without weight"),
        (replace(REQUEST, ignore=("flag",)), "with 'flag' as a feature"),
        (replace(REQUEST, categorical=("count",)), "with 'count' as a number"),
        (replace(REQUEST, features=("length",)), "with other features"),
    ):
        with pytest.raises(StoreError, match=rf"the store .*/store was made {key}"):
            ingest_folder(store, source, request)
    assert store.snapshot() == snapshot


def test_a_job_without_new_partitions_is_checked_against_the_schema_too(source: Path, store: Store) -> None:
    ingest_folder(store, source, REQUEST)
    with pytest.raises(StoreError, match="was made with target = 'y', the job says 'count'"):
        ingest_folder(store, source, replace(REQUEST, target="count"))


def two_stores(tmp_path: Path) -> tuple[Store, Store]:
    return new_store(tmp_path / "here"), new_store(tmp_path / "elsewhere")


def test_the_store_does_not_depend_on_where_or_how_often_tasks_run(tmp_path: Path) -> None:
    """Tasks are pickled, run in reverse order, and each twice, as by a cluster that lost results."""
    source = tmp_path / "source"
    tables: tuple[list[str], ...] = (["green", "red"], ["blue", "red"], [], ["grey", "green"], ["red"])
    for i, colours in enumerate(tables):
        rows = 300 * bool(colours)
        write_partition(source / f"part-{i}.parquet", mixed_columns(rows, seed=i, colours=colours or ["none"]))
    here, elsewhere = two_stores(tmp_path)
    ingest_folder(here, source, REQUEST)
    ingest_folder(elsewhere, source, REQUEST, PicklingExecutor())
    assert ledger_of(here) == ledger_of(elsewhere)
    assert [entry.segment for entry in ledger_of(here).entries] == [0, 1, 2, 3, 4]
    for order in range(5):
        assert same_rows(segment_rows(here.root(), order), segment_rows(elsewhere.root(), order))
        facts = Segment.open(here.root(), order).facts(), Segment.open(elsewhere.root(), order).facts()
        assert facts[0].moments.tobytes() == facts[1].moments.tobytes()
        assert same_sketch(*facts) or order == 2  # a partition without rows
        assert facts[0].categories == facts[1].categories


def test_categories_are_in_ledger_order_and_each_segment_has_its_own_table(tmp_path: Path, store: Store) -> None:
    source = tmp_path / "source"
    for i, colours in enumerate((["b", "a"], ["c", "b"], ["a", "d"])):
        write_partition(source / f"{i}.parquet", column_of("colour", colours))
    ingest_folder(store, source, REQUEST, PicklingExecutor())
    assert ledger_of(store).categories == (("b", "a", "c", "d"),)
    assert Segment.open(store.root(), 1).facts().categories == (("c", "b"),)
    assert stored_values(store, 0) == ["b", "a", "c", "b", "a", "d"]


def same_sketch(one: SegmentFacts, other: SegmentFacts) -> bool:
    return one.sketch is not None and other.sketch is not None and one.sketch.tobytes() == other.sketch.tobytes()


class FailingExecutor(InProcess):
    """An executor that fails after some tasks."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def run(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        for number, task in enumerate(tasks):
            if number == self.after:
                raise ConnectionError("the workers are gone")
            yield function(task, *shared)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupted_ingest_can_be_repeated_with_the_same_result(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr("ridgestream.pipeline.ingest.ingest.TASK_FILES", 1)
    straight, broken = two_stores(tmp_path)
    ingest_folder(straight, source, REQUEST)
    with pytest.raises(ConnectionError, match="the workers are gone"):
        ingest_folder(broken, source, REQUEST, FailingExecutor(after))
    assert ledger_of(broken).entries == ()
    ingest_folder(broken, source, REQUEST)
    assert ledger_of(broken) == ledger_of(straight)
    assert same_rows(stored_rows(broken), stored_rows(straight))


class CommittingReporter(Notes):
    """A reporter that lets another job commit once this one has read the ledger."""

    def __init__(self, other: Callable[[], object]) -> None:
        super().__init__()
        self.other = other

    def begin(self, step: Step, total_rows: int | None, **facts: Any) -> None:
        super().begin(step, total_rows, **facts)
        self.other()


def test_concurrent_ingests_lose_nothing_even_without_a_lock(tmp_path: Path, source: Path) -> None:
    """As in a bucket: the second to commit is refused; run again, it adds the partitions that are missing."""
    store = new_store(tmp_path / "store")
    late = write_mixed(tmp_path / "late", [5])
    shutil.move(late / "part-0.parquet", late / "late.parquet")
    report = CommittingReporter(lambda: ingest_folder(Store.open(store.location), source, REQUEST))
    with pytest.raises(
        StoreError, match=r"another writer has committed to the store .*/store meanwhile; run the job ag"
    ):
        ingest(store, list_partitions(late), REQUEST, InProcess(), report)
    assert len(ledger_of(store).entries) == 3
    assert [entry.segment for entry in ingest_folder(store, late, REQUEST).added] == [3]
