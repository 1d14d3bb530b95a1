"""Segments: rows round-trip bit for bit, and damage raises an error instead of returning wrong numbers."""

import asyncio
import shutil
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stores.stores import location_of, new_store, same_rows, segment_rows

from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.class_labels import Label
from ridgestream.stores.schema.row_batch import Rows, join_rows, regroup
from ridgestream.stores.segments.segment_format import CHUNK_BYTES, SegmentFacts, SegmentLayout, segment_path
from ridgestream.stores.segments.segment_writer import write_segment
from ridgestream.stores.segments.segments import Segment


def draw_rows(n: int, n_numeric: int = 3, n_categorical: int = 1, *, single: bool = False, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    numeric = rng.standard_normal((n, n_numeric))
    codes = rng.integers(0, 3, (n, n_categorical)).astype(np.int32)
    numeric = numeric.astype(np.float32).astype(np.float64) if single else numeric
    return Rows(numeric, codes, rng.standard_normal((n, 1)), rng.random(n))


def layout_of(rows: Rows, *, single: bool = False) -> SegmentLayout:
    return SegmentLayout(
        len(rows), rows.numeric.shape[1], rows.codes.shape[1], 1, single, weighted=rows.weights is not None
    )


def facts_of(rows: Rows) -> SegmentFacts:
    n_categorical = rows.codes.shape[1]
    moments = np.arange(5.0 * (rows.numeric.shape[1] + 1)).reshape(5, -1)
    moments[3:, 0] = np.inf, -np.inf
    tables = tuple(tuple(f"{i}-{j}-ä" for j in range(3)) for i in range(n_categorical))
    return SegmentFacts(moments, tables, ((0.1, 1 / 3, 2.0),) * n_categorical)


def write(root: zarr.Group, rows: Rows, batches: Iterable[Rows] | None = None, *, single: bool = False) -> None:
    write_segment(root, 0, layout_of(rows, single=single), [rows] if batches is None else batches, facts_of(rows))


def in_memory() -> zarr.Group:
    return zarr.group(store=zarr.storage.MemoryStore())


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 5000])
@pytest.mark.parametrize("n_categorical", [0, 2])
def test_a_segment_round_trips(n: int, n_categorical: int) -> None:
    root, rows = in_memory(), draw_rows(n, n_categorical=n_categorical)
    write(root, rows)
    assert same_rows(segment_rows(root, 0), rows)


def test_moments_and_categories_round_trip() -> None:
    root, rows = in_memory(), draw_rows(10, n_categorical=2)
    write(root, rows)
    facts = Segment.open(root, 0).facts()
    np.testing.assert_array_equal(facts.moments, facts_of(rows).moments)
    assert facts.categories == facts_of(rows).categories
    assert facts.category_counts == facts_of(rows).category_counts


def test_a_sketch_round_trips_in_the_same_array_as_the_moments() -> None:
    root, rows = in_memory(), draw_rows(10)
    sketch = np.random.default_rng(0).standard_normal((7, 4))
    write_segment(root, 0, layout_of(rows), [rows], replace(facts_of(rows), sketch=sketch))
    segment = Segment.open(root, 0)
    facts = segment.facts()
    assert facts.sketch is not None
    np.testing.assert_array_equal(facts.sketch, sketch)
    np.testing.assert_array_equal(facts.moments, facts_of(rows).moments)
    assert sorted(name for name, _ in segment.group.members()) == ["codes", "moments", "numeric", "targets", "weights"]


def test_a_segment_without_a_sketch_has_none() -> None:
    root, rows = in_memory(), draw_rows(10)
    write(root, rows)
    assert Segment.open(root, 0).facts().sketch is None


@pytest.mark.parametrize("classes", [(3, 1), ("ü", "a"), (True, False), (0.5, -1.0)], ids=str)
def test_classes_round_trip_and_present_ones_have_weight(classes: tuple[Label, ...]) -> None:
    root, rows = in_memory(), draw_rows(10)
    facts = replace(facts_of(rows), classes=classes, class_counts=(0.0, 1 / 3))
    write_segment(root, 0, layout_of(rows), [rows], facts)
    stored = Segment.open(root, 0).facts()
    assert (stored.classes, stored.class_counts) == (classes, (0.0, 1 / 3))
    assert [type(label) for label in stored.classes] == [type(label) for label in classes]
    assert stored.present_classes == classes[1:]


def test_several_targets_round_trip() -> None:
    root, plain_rows = in_memory(), draw_rows(300)
    rows = replace(plain_rows, targets=np.random.default_rng(1).normal(size=(300, 4)))
    write_segment(root, 0, replace(layout_of(rows), n_targets=4), [rows], facts_of(rows))
    assert same_rows(segment_rows(root, 0), rows)


def test_rows_without_weights_have_none() -> None:
    root, plain_rows = in_memory(), draw_rows(10)
    rows = Rows(plain_rows.numeric, plain_rows.codes, plain_rows.targets, None)
    write(root, rows)
    assert segment_rows(root, 0).weights is None


def test_a_segment_of_only_categories_round_trips() -> None:
    root, rows = in_memory(), draw_rows(300, n_numeric=0, n_categorical=2)
    write(root, rows)
    assert same_rows(segment_rows(root, 0), rows)


def test_single_precision_halves_features_and_keeps_targets_exact() -> None:
    root, rows = in_memory(), draw_rows(1000, single=True)
    write(root, rows, single=True)
    stored = segment_rows(root, 0)
    assert stored.numeric.dtype == np.float32
    np.testing.assert_array_equal(stored.numeric, rows.numeric)
    assert stored.targets is not None
    assert rows.targets is not None
    assert stored.targets.tobytes() == rows.targets.tobytes()


@settings(max_examples=25)
@given(cuts=st.lists(st.integers(0, 1000), max_size=8), seed=st.integers(0, 2**32 - 1))
def test_batches_do_not_change_the_stored_segment(cuts: list[int], seed: int) -> None:
    rows = draw_rows(1000, n_numeric=2, seed=seed)
    ends = [0, *sorted(cuts), 1000]
    root, straight = in_memory(), in_memory()
    write(root, rows, [rows.part(a, b) for a, b in pairwise(ends)])
    write(straight, rows)
    assert same_rows(segment_rows(root, 0), segment_rows(straight, 0))


@given(st.lists(st.integers(0, 40), max_size=10), st.integers(1, 50))
def test_regrouping_keeps_every_row_in_full_batches(sizes: list[int], run: int) -> None:
    rows = draw_rows(sum(sizes))
    ends = np.cumsum([0, *sizes])
    groups = list(regroup([rows.part(int(a), int(b)) for a, b in pairwise(ends)], run))
    assert [len(group) for group in groups] == [
        run if i < len(rows) // run else len(rows) % run for i in range(-(-len(rows) // run))
    ]
    if groups:
        assert same_rows(join_rows(groups), rows)


@given(n_numeric=st.integers(0, 200_000), rows=st.integers(0, 10**9), single=st.booleans())
def test_chunks_are_powers_of_two_within_their_bytes(n_numeric: int, rows: int, single: bool) -> None:
    chunk = SegmentLayout(rows, n_numeric, 0, 1, single, weighted=False).chunk_rows
    row_bytes = n_numeric * (4 if single else 8)
    assert chunk & (chunk - 1) == 0
    assert 256 <= chunk <= 65536
    assert chunk == 256 or chunk * row_bytes <= CHUNK_BYTES
    assert chunk == 65536 or 2 * chunk * max(1, row_bytes) > CHUNK_BYTES


def test_chunks_do_not_depend_on_the_number_of_rows() -> None:
    root = in_memory()
    rows = draw_rows(3000, n_numeric=2000, n_categorical=0)
    write(root, rows)
    segment = Segment.open(root, 0)
    assert segment.chunk_rows == 256
    assert {a.chunks[0] for name, a in segment.group.arrays() if name != "moments"} == {256}


@pytest.mark.parametrize("count", [9, 11, 0])
def test_another_number_of_rows_than_planned_is_refused(count: int) -> None:
    rows = draw_rows(11)
    batches = [rows.part(0, count)]
    with pytest.raises((StoreError, ValueError), match=r"segment 0 was planned with 10 rows|shape"):
        write_segment(in_memory(), 0, layout_of(rows.part(0, 10)), batches, facts_of(rows))


def test_names_of_segments_sort_by_their_number() -> None:
    assert sorted(segment_path(order) for order in (10, 2, 999_999)) == [segment_path(o) for o in (2, 10, 999_999)]


ROWS = draw_rows(3000)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one segment, which tests copy."""
    folder = tmp_path_factory.mktemp("template") / "store"
    with new_store(folder).write("one segment") as writing:
        write(writing.root, ROWS)
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "store")


def read_segment(root: zarr.Group) -> tuple[Rows, SegmentFacts]:
    return segment_rows(root, 0), Segment.open(root, 0).facts()


def read_all(folder: Path) -> tuple[Rows, SegmentFacts]:
    return read_segment(Store.open(location_of(folder)).root())


def is_as_written(read: tuple[Rows, SegmentFacts]) -> bool:
    rows, facts = read
    expected = facts_of(ROWS)
    tables = (facts.categories, facts.category_counts) == (expected.categories, expected.category_counts)
    return same_rows(rows, ROWS) and np.array_equal(facts.moments, expected.moments) and tables


def chunk_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "chunks").rglob("*") if path.is_file())


def test_a_copied_store_is_intact(folder: Path) -> None:
    assert is_as_written(read_all(folder))
    assert len(chunk_files(folder)) == 4


@pytest.mark.parametrize("which", range(4))
def test_a_deleted_chunk_raises(folder: Path, which: int) -> None:
    chunk_files(folder)[which].unlink()
    with pytest.raises(StoreError, match=r"segments/000000/\w+ of the store cannot be read or written: .*not found"):
        read_all(folder)


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("damage", ["cut", "emptied", "zeroed"])
def test_a_truncated_or_zeroed_chunk_raises(folder: Path, which: int, damage: str) -> None:
    path = chunk_files(folder)[which]
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "emptied": b"", "zeroed": bytes(len(whole))}[damage])
    with pytest.raises(StoreError, match=r"segments/000000/\w+ of the store (holds damaged data|cannot be read)"):
        read_all(folder)


@pytest.mark.samples
@pytest.mark.parametrize("which", range(4))
def test_a_flipped_bit_in_a_chunk_raises_and_never_changes_a_number(folder: Path, which: int) -> None:
    path = chunk_files(folder)[which]
    whole = path.read_bytes()
    positions = [*range(18), *np.random.default_rng(which).integers(18, len(whole), 16), *range(-6, 0)]
    errors = 0
    for position in positions:
        for mask in (0x04, 0xFF):
            flipped = bytearray(whole)
            flipped[position] ^= mask
            path.write_bytes(flipped)
            try:
                sound = is_as_written(read_all(folder))  # an unused bit of the frame's header
            except StoreError:
                errors += 1
            else:
                assert sound
    assert errors >= 2 * len(positions) - 8


def test_a_chunk_missing_from_the_manifest_raises_instead_of_zeros(folder: Path) -> None:
    store = Store.open(location_of(folder))
    with store.write("lose a chunk") as writing:
        asyncio.run(writing.session.store.delete("segments/000000/numeric/c/0/0"))
    with pytest.raises(StoreError, match="segments/000000/numeric of the store holds damaged data: a chunk is missing"):
        read_all(folder)


@pytest.mark.parametrize("name", ["codes", "targets", "weights", "moments"])
def test_missing_chunks_of_every_array_raise(name: str) -> None:
    root = in_memory()
    write(root, ROWS)
    path = f"{segment_path(0)}/{name}/c/0" + ("" if name == "weights" else "/0")
    asyncio.run(root.store.delete(path))
    with pytest.raises(StoreError, match=rf"segments/000000/{name} of the store holds damaged data: a chunk is miss"):
        read_segment(root)


def test_a_missing_segment_raises(folder: Path) -> None:
    root = Store.open(location_of(folder)).root()
    with pytest.raises(StoreError, match="segments/000001 of the store"):
        Segment.open(root, 1)


def test_a_damaged_manifest_raises(folder: Path) -> None:
    manifests = [path for path in (folder / "manifests").rglob("*") if path.is_file()]
    assert manifests
    for path in manifests:
        path.unlink()
    with pytest.raises(StoreError, match=r"segments/000000/\w+ of the store cannot be read or written"):
        read_all(folder)
