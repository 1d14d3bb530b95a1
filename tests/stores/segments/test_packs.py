"""Packs: small segments that share arrays, how they are found, merged and dropped, and what metadata they cost."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.stores import location_of, new_store, same_rows, segment_rows
from zarr.storage import MemoryStore

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.row_batch import Rows
from ridgestream.stores.segments.pack_merging import drop_segments, merge_packs
from ridgestream.stores.segments.pack_reader import list_packs
from ridgestream.stores.segments.packs import MOST_MEMBERS
from ridgestream.stores.segments.segment_format import SEGMENTS, SegmentFacts, SegmentLayout
from ridgestream.stores.segments.segment_writer import SegmentWriter
from ridgestream.stores.segments.segments import Segments

N_NUMERIC = 3


def in_memory() -> zarr.Group:
    root = zarr.create_group(MemoryStore())
    root.create_group(SEGMENTS)
    return root


def rows_of(number: int, n: int) -> Rows:
    """Return rows that tell the number of their segment."""
    rng = np.random.default_rng(number)
    numeric = rng.standard_normal((n, N_NUMERIC)).astype(np.float32)
    codes = rng.integers(-1, 2, (n, 1)).astype(np.int32)
    return Rows(numeric, codes, np.full((n, 1), float(number)), rng.random(n))


def facts_of(number: int, *, sketched: bool = False, missing: tuple[int, ...] = ()) -> SegmentFacts:
    return SegmentFacts(
        moments=np.full((5, N_NUMERIC + 1), float(number)),
        categories=((f"a{number}", "ü"),),
        category_counts=((1.0, float(number)),),
        classes=(number, -1),
        class_counts=(0.0, 2.0),
        sketch=np.full((94, N_NUMERIC + 1), number + 0.5) if sketched else None,
        missing=missing,
    )


def write(root: zarr.Group, segments: dict[int, int], *, doubles: frozenset[int] = frozenset()) -> None:
    """Write segments, number of rows by number, with one writer; those in `doubles` as float64."""
    writer = SegmentWriter(root)
    for number, n in segments.items():
        layout = SegmentLayout(n, N_NUMERIC, 1, 1, number not in doubles, weighted=True)
        missing = (1, 0, 0, 1) if number % 3 == 0 else ()
        writer.write(number, layout, [rows_of(number, n)], facts_of(number, sketched=number % 2 == 0, missing=missing))
    writer.finish()


def assert_intact(root: zarr.Group, segments: dict[int, int], doubles: frozenset[int] = frozenset()) -> None:
    opened = Segments(root)
    assert opened.numbers() == sorted(segments)
    for number, n in segments.items():
        rows, expected = segment_rows(root, number), rows_of(number, n)
        width = np.float64 if number in doubles else np.float32
        assert same_rows(rows, replace(expected, numeric=expected.numeric.astype(width)))
        facts, written = opened[number].facts(), facts_of(number, sketched=number % 2 == 0)
        np.testing.assert_array_equal(facts.moments, written.moments)
        assert (facts.categories, facts.category_counts) == (written.categories, written.category_counts)
        assert (facts.classes, facts.class_counts) == (written.classes, written.class_counts)
        assert (facts.sketch is None) == (written.sketch is None)
        assert facts.missing == ((1, 0, 0, 1) if number % 3 == 0 else ())


def groups_of(root: zarr.Group) -> list[str]:
    return sorted(cast("zarr.Group", root[SEGMENTS]).group_keys())


def test_small_segments_share_a_group_and_large_ones_have_their_own() -> None:
    root, segments = in_memory(), {0: 5, 1: 0, 2: 40_000, 3: 7}
    write(root, segments)
    assert groups_of(root) == ["000000-000003", "000002"]
    assert_intact(root, segments)


def test_segments_of_both_float_widths_are_packed_apart() -> None:
    root, segments, doubles = in_memory(), dict.fromkeys(range(8), 4), frozenset({1, 5, 6})
    write(root, segments, doubles=doubles)
    assert groups_of(root) == ["000000-000007", "000001-000006"]
    assert_intact(root, segments, doubles)


def test_a_pack_has_a_limit_of_members_and_of_rows() -> None:
    root = in_memory()
    write(root, dict.fromkeys(range(MOST_MEMBERS + 1), 2))
    write(root, dict.fromkeys(range(1000, 1005), 16_384))  # a quarter of a chunk each
    names = ["000000-000255", "000256-000256", "001000-001003", "001004-001004"]
    assert groups_of(root) == names


@settings(max_examples=8)
@given(
    sizes=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    cuts=st.lists(st.integers(1, 59), max_size=20),
    dropped=st.sets(st.integers(0, 59), max_size=20),
    doubles=st.sets(st.integers(0, 59), max_size=10),
)
def test_any_commits_merges_and_drops_leave_the_other_segments_as_they_were(
    sizes: list[int], cuts: list[int], dropped: set[int], doubles: set[int]
) -> None:
    root, segments = in_memory(), dict(enumerate(sizes))
    for start, stop in pairwise([0, *sorted({cut for cut in cuts if cut < len(sizes)}), len(sizes)]):
        write(root, {number: segments[number] for number in range(start, stop)}, doubles=frozenset(doubles))
        merge_packs(root)
    gone = dropped & segments.keys()
    drop_segments(root, gone)
    assert_intact(root, {number: n for number, n in segments.items() if number not in gone}, frozenset(doubles))
    for name in list_packs(root):  # no row of a dropped segment is left
        targets = np.asarray(cast("zarr.Array[Any]", root[f"{name.path}/targets"])[:])
        assert not gone & {int(value) for value in np.unique(targets)}


def commits_of_one(folder: Path, count: int) -> Iterator[Store]:
    """Yield a store after each commit that adds a segment."""
    store = new_store(folder / "store")
    for number in range(count):
        with store.write(f"segment {number}") as writing:
            write(writing.root, {number: 4})
            merge_packs(writing.root)
        yield Store.open(location_of(folder / "store"))


@pytest.mark.thorough
def test_commits_of_single_segments_leave_few_groups(tmp_path: Path) -> None:
    """At most fifteen packs of each size besides the full ones; before, each segment was a group."""
    most = 0
    for number, store in enumerate(commits_of_one(tmp_path, 40)):
        groups = groups_of(store.root())
        most = max(most, len(groups))
        assert len(groups) <= number // 16 + 16
    assert most <= 18
    assert_intact(store.root(), dict.fromkeys(range(40), 4))


def test_a_missing_segment_between_the_members_of_a_pack_is_an_error() -> None:
    root = in_memory()
    write(root, {0: 4, 9: 4})
    assert 5 not in Segments(root)
    with pytest.raises(StoreError, match="segments/000005 of the store"):
        Segments(root)[5]


@pytest.mark.parametrize("name", ["members", "moments", "sketches", "tables", "numeric", "codes", "targets", "weights"])
def test_a_lost_array_of_a_pack_is_damage(name: str) -> None:
    root = in_memory()
    write(root, {0: 4, 1: 4})
    del root[f"segments/000000-000001/{name}"]
    with pytest.raises(StoreError, match="segments/000000-000001 of the store"):
        assert_intact(root, {0: 4, 1: 4})


@pytest.mark.parametrize(
    "listing",
    [
        [[0, 4, 0], [0, 4, -1]],
        [[0, 5, 0], [1, 4, -1]],
        [[0, -4, 0], [1, 12, -1]],
        [[0, 4, 7], [1, 4, -1]],
        [[0, 4, 0]],
        [[0, 4], [1, 4]],
    ],
    ids=["twice", "too many rows", "negative", "no such sketch", "too short", "no sketches"],
)
def test_an_untrue_listing_is_damage(listing: list[list[int]]) -> None:
    root = in_memory()
    write(root, {0: 4, 1: 4})
    pack = cast("zarr.Group", root["segments/000000-000001"])
    array = pack.create_array("members", data=np.array(listing, dtype=np.int64), overwrite=True)
    assert array.dtype == np.int64
    with pytest.raises(StoreError, match="segments/000000-000001"):
        Segments(root)[0].facts()
