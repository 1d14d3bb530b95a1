"""The ledger: what it records about each partition, and how it grows."""

from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.stores.partitions import mixed_columns, only_partition, write_partition
from support.stores.stores import as_format_3, ledger_of, location_of, new_store

from ridgestream.stores.catalog import ledger as module
from ridgestream.stores.catalog.ledger import Ledger, LedgerEntry, Quarantined, write_ledger
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.requests.limited_store import LimitedStore
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.schema import Feature, Schema

SCHEMA = Schema("y", 2, (Feature("a", "numeric"), Feature("b", "categorical"), Feature("c", "categorical")))


def entry(number: int, rows: int = 10) -> LedgerEntry:
    return LedgerEntry(
        number, f"day={number}/ä part.parquet", 2**40 + number, 1_700_000_000_123_456_789, "ab" * 32, rows
    )


def test_a_store_without_partitions_has_an_empty_ledger(tmp_path: Path) -> None:
    assert ledger_of(new_store(tmp_path / "store")) == Ledger()


@pytest.mark.parametrize("positive", [None, True, 2, 2.0, "b"])
def test_a_ledger_round_trips(tmp_path: Path, positive: Label | None) -> None:
    schema = replace(SCHEMA, positive=positive, ignore=("z",), weight="w")
    ledger = Ledger(schema, (entry(0), entry(1, rows=0)), (("x", "", "ü\n\"'"), ()))
    with new_store(tmp_path / "store").write("ledger") as writing:
        write_ledger(writing.root, ledger)
    ledger_read = ledger_of(Store.open(location_of(tmp_path / "store")))
    assert ledger_read == ledger
    assert ledger_read.schema is not None
    assert type(ledger_read.schema.positive) is type(positive)


def test_a_store_that_wrote_or_read_a_ledger_knows_it_until_another_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, place = new_store(tmp_path / "store"), location_of(tmp_path / "store")
    with writer.write("first") as writing:
        write_ledger(writing.root, Ledger(SCHEMA, (entry(0),), (("3.00",), ("x",))))
    reader = Store.open(place)
    first = ledger_of(reader)
    monkeypatch.setattr(module, "read_lines", lambda *_: pytest.fail("it is read again"))
    assert ledger_of(reader) is first
    assert repr(ledger_of(writer)) == repr(first)
    monkeypatch.undo()
    with Store.open(place).write("second") as writing:
        write_ledger(writing.root, Ledger(SCHEMA, (entry(0), entry(1)), ((), ())))
    for store in (writer, reader):
        assert [each.segment for each in ledger_of(store).entries] == [0, 1]


def test_what_is_known_of_a_store_stays_in_its_process(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    with store.write("first") as writing:
        write_ledger(writing.root, Ledger(SCHEMA, (entry(0),), ((), ())))
    root = store.root()
    assert cast("LimitedStore", root.store).known
    assert not cast("LimitedStore", copy(root.store)).known  # as it is pickled


@pytest.mark.parametrize(("names", "as_written"), [(("0", "-0"), ("b",)), (("3.00",), ("b",)), (("3", "a"), ())])
def test_columns_with_names_of_earlier_releases_keep_naming_numbers_so(
    tmp_path: Path, names: tuple[str, ...], as_written: tuple[str, ...]
) -> None:
    with new_store(tmp_path / "store").write("ledger") as writing:
        write_ledger(writing.root, Ledger(SCHEMA, (entry(0),), (names, ("0.5", "1e-7", "-2"))))
    schema = ledger_of(Store.open(location_of(tmp_path / "store"))).schema
    assert schema is not None
    assert schema.as_written == as_written


@pytest.mark.parametrize("classes", [(), (3, 1), ("ü", "a"), (True, False), (0.5, -1.0)], ids=str)
def test_classes_round_trip(tmp_path: Path, classes: tuple[Label, ...]) -> None:
    ledger = Ledger(replace(SCHEMA, positive=None, classes="all", class_kind="text"), (entry(0),), ((), ()), classes)
    with new_store(tmp_path / "store").write("ledger") as writing:
        write_ledger(writing.root, ledger)
    ledger_read = ledger_of(Store.open(location_of(tmp_path / "store")))
    assert ledger_read == ledger
    assert [type(label) for label in ledger_read.classes] == [type(label) for label in classes]


def test_a_later_ledger_replaces_the_earlier_and_nothing_else(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    with store.write("first") as writing:
        writing.root.create_group("other")
        write_ledger(writing.root, Ledger(SCHEMA, (entry(0), entry(1)), (("x",), ("y",))))
    with store.write("second") as writing:
        write_ledger(writing.root, Ledger(SCHEMA, (entry(0),), (("z",), ())))
    assert ledger_of(store) == Ledger(SCHEMA, (entry(0),), (("z",), ()))
    assert "other" in store.root()


def test_classes_stay_in_order_of_first_appearance() -> None:
    ledger = Ledger(SCHEMA).with_entries([entry(0), entry(1)], [[[], []]] * 2, [[2, 1], [3, 1]])
    assert ledger.with_entries([entry(2)], [[[], []]], [[0, 2]]).classes == (2, 1, 3, 0)


def test_a_ledger_without_a_schema_is_not_written(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    with pytest.raises(StoreError, match="a ledger without a schema cannot be written"), store.write("") as writing:
        write_ledger(writing.root, Ledger())


def test_a_damaged_ledger_raises(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    with store.write("damage") as writing:
        as_format_3(writing.root).create_group("ledger", attributes={"entries": [["part-0", 1]]})
    with pytest.raises(StoreError, match=r"the store's ledger holds damaged data: .*; restore it from a copy"):
        ledger_of(store)


def test_rows_and_names() -> None:
    ledger = Ledger(SCHEMA, (entry(0, rows=3), entry(1, rows=0), entry(2, rows=4)))
    assert ledger.rows == 7
    assert [e.segment for e in ledger.by_name().values()] == [0, 1, 2]


tables = st.lists(st.lists(st.sampled_from("abcdef"), unique=True), min_size=2, max_size=2)


@given(partitions=st.lists(tables, max_size=6), cut=st.integers(0, 6))
def test_categories_are_in_order_of_first_appearance_however_the_ledger_grew(
    partitions: list[list[list[str]]], cut: int
) -> None:
    entries = [entry(order) for order in range(len(partitions))]
    at_once = Ledger(SCHEMA).with_entries(entries, partitions)
    in_parts = Ledger(SCHEMA).with_entries(entries[:cut], partitions[:cut])
    assert in_parts.with_entries(entries[cut:], partitions[cut:]) == at_once
    for position, values in enumerate(at_once.categories):
        assert list(values) == list(dict.fromkeys(v for partition in partitions for v in partition[position]))


def test_a_known_category_keeps_its_position() -> None:
    ledger = Ledger(SCHEMA).with_entries([entry(0)], [[["b", "a"], []]])
    assert ledger.with_entries([entry(1)], [[["a", "c", "b"], ["x"]]]).categories == (("b", "a", "c"), ("x",))


def test_a_ledger_without_a_schema_accepts_no_entries() -> None:
    with pytest.raises(StoreError, match="the ledger has no schema yet"):
        Ledger().with_entries([entry(0)], [[]])


def test_size_and_modification_time_are_compared_first(tmp_path: Path) -> None:
    file = only_partition(write_partition(tmp_path / "part-0.parquet", mixed_columns(5)))
    stored = LedgerEntry(0, file.name, file.size_bytes, file.modified_ns, "ab" * 32, 5)
    assert stored.looks_like(file)
    assert not stored.looks_like(replace(file, size_bytes=file.size_bytes + 1))
    assert not stored.looks_like(replace(file, modified_ns=file.modified_ns + 1))


def test_a_ledger_of_format_2_is_read(tmp_path: Path) -> None:
    """Its entries had no field names, and their positions were the segment numbers."""
    plain = {"schema": SCHEMA.as_dict(), "categories": [["x"], []]}
    values = [[e.name, e.size_bytes, e.modified_ns, e.content_sha256, e.rows] for e in (entry(0), entry(1))]
    store = new_store(tmp_path / "store")
    with store.write("from the past") as writing:
        as_format_3(writing.root).create_group("ledger", attributes=cast("Any", {**plain, "entries": values}))
    assert ledger_of(store) == Ledger(SCHEMA, (entry(0), entry(1)), (("x",), ()), next_segment=2)


def test_quarantined_partitions_round_trip_and_segments_keep_their_numbers(tmp_path: Path) -> None:
    bad = Quarantined("bad.parquet", "no footer", 7, 8, "2026-01-02T03:04:05+00:00")
    excluded = replace(bad, name="taken.parquet", by_hand=True, entry=replace(entry(3), dropped=2))
    ledger = Ledger(SCHEMA, (entry(5), entry(1)), (("x",), ()), quarantined=(bad, excluded), next_segment=9)
    store = new_store(tmp_path / "store")
    with store.write("ledger") as writing:
        write_ledger(writing.root, ledger)
    assert ledger_of(store) == ledger
    assert ledger.with_entries([entry(11)], [[[], []]]).next_segment == 12
