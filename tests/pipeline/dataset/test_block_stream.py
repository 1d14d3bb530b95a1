"""The block stream: all rows in order, standardized, decoded ahead in one thread that ends with the stream."""

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.stores.models import feature_map_of
from support.stores.partitions import REQUEST, mixed_columns, write_mixed, write_partition
from support.stores.stores import ingest_folder, new_store, segment_rows, stored_rows

from ridgestream.pipeline.dataset import block_stream as stream
from ridgestream.pipeline.dataset.block_stream import AHEAD, Block, Stream
from ridgestream.pipeline.features.columns import CategoricalColumn
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.segments import segment_format, segments
from ridgestream.stores.segments.segments import Segments

SIZES = [700, 0, 256, 1000, 1]
ORDERS = range(len(SIZES))


@pytest.fixture(autouse=True)
def _small_blocks_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use 256 rows per block and per chunk, so that few rows give several of each."""
    monkeypatch.setattr(stream, "BLOCK_BYTES", 1)
    monkeypatch.setattr(segment_format, "CHUNK_BYTES", 1)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = new_store(tmp_path / "store")
    ingest_folder(store, write_mixed(tmp_path / "source", SIZES), REQUEST)
    return store


def blocks_of(store: Store, orders: Any = ORDERS) -> Iterator[Block]:
    return Stream(Segments(store.root()), orders, feature_map_of(store)).blocks()


def decoding_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("decode")]


def test_blocks_hold_every_row_once_in_order(store: Store) -> None:
    feature_map, rows = feature_map_of(store), stored_rows(store)
    blocks = list(blocks_of(store))
    features = np.concatenate([block.features for block in blocks])
    targets = np.concatenate([block.targets for block in blocks])
    assert rows.targets is not None
    np.testing.assert_array_equal(targets, feature_map.target.standardize(rows.targets))
    np.testing.assert_array_equal(features[:, :4], (rows.numeric - feature_map.centre[:4]) / feature_map.scale[:4])
    assert [len(block.features) for block in blocks if block.block_range.segment == 0] == [256, 256, 188]


def test_no_block_spans_two_segments_and_each_segment_has_a_last_block(store: Store) -> None:
    blocks = [block.block_range for block in blocks_of(store)]
    assert [block.segment for block in blocks if block.ends_segment] == list(ORDERS)
    assert [sum(b.stop - b.start for b in blocks if b.segment == order) for order in ORDERS] == SIZES


def test_categories_become_the_model_s_indicators_whatever_the_segment_s_codes(tmp_path: Path) -> None:
    store, source = new_store(tmp_path / "store"), tmp_path / "source"
    tables = (["b", "a"], ["a", "c"], ["c", "b", "a"])
    for i, colours in enumerate(tables):
        write_partition(source / f"{i}.parquet", mixed_columns(300, seed=i, colours=colours))
    ingest_folder(store, source, REQUEST)
    feature_map = feature_map_of(store)
    first = len(feature_map.numeric)
    for order in range(3):
        table = segments.Segment.open(store.root(), order).facts().categories[0]
        values = [table[code] for code in segment_rows(store.root(), order).codes[:, 0]]
        features = np.concatenate([block.features for block in blocks_of(store, [order])])[:, first:]
        raw = np.rint(features * feature_map.scale[first:] + feature_map.centre[first:])
        np.testing.assert_array_equal(
            raw, [[v == category for category in feature_map.categorical[0].categories] for v in values]
        )


def test_segments_are_read_in_the_given_order(store: Store) -> None:
    assert [block.block_range.segment for block in blocks_of(store, [4, 2])] == [4, 2]
    assert list(blocks_of(store, [])) == []


def test_a_stream_can_start_at_any_block_of_its_plan(store: Store) -> None:
    stream = Stream(Segments(store.root()), ORDERS, feature_map_of(store))
    whole = list(stream.blocks())
    assert tuple(block.block_range for block in whole) == stream.ranges
    for begin in range(len(whole) + 1):
        rest = list(stream.blocks(begin))
        assert [block.block_range for block in rest] == [block.block_range for block in whole[begin:]]
        assert [b.features.tobytes() for b in rest] == [b.features.tobytes() for b in whole[begin:]]


def test_weights_belong_to_their_rows(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    weights = np.arange(600.0)
    write_partition(tmp_path / "source" / "part.parquet", mixed_columns(600) | {"w": weights})
    ingest_folder(store, tmp_path / "source", replace(REQUEST, weight="w"))
    streamed = [block.weights for block in blocks_of(store, [0])]
    np.testing.assert_array_equal(np.concatenate([w for w in streamed if w is not None]), weights)


def test_two_streams_of_a_store_are_bit_for_bit_equal(store: Store) -> None:
    for left, right in zip(blocks_of(store), blocks_of(store), strict=True):
        assert left.block_range == right.block_range
        assert left.features.tobytes() == right.features.tobytes()
        assert left.targets.tobytes() == right.targets.tobytes()


def damage(store: Store, rows: int) -> None:
    """Damage a chunk of the segment that has `rows` rows."""
    assert store.location.folder is not None
    chunks = store.location.folder / "chunks"
    for path in chunks.iterdir():
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        if is_damaged(store, SIZES.index(rows)):
            return
        path.write_bytes(whole)
    pytest.fail("no chunk belongs to that segment")


def is_damaged(store: Store, order: int) -> bool:
    try:
        segment_rows(store.root(), order)
    except StoreError:
        return True
    return False


def test_damage_raises_when_its_block_is_requested_and_not_before(store: Store) -> None:
    feature_map, root = feature_map_of(store), store.root()
    damage(store, 1000)
    blocks: list[Block] = []
    with pytest.raises(StoreError, match=r"segments/000003/\w+ of the store"):
        blocks.extend(Stream(Segments(root), ORDERS, feature_map).blocks())
    assert decoding_threads() == []
    blocks = []
    with pytest.raises(StoreError, match=r"segments/000003/\w+ of the store"):
        gather(Stream(Segments(root), ORDERS, feature_map).blocks(), blocks)
    assert {block.block_range.segment for block in blocks} >= {0, 1, 2}


def gather(blocks: Iterator[Block], gathered: list[Block]) -> None:
    for block in blocks:
        gathered.append(block)  # noqa: PERF402 (keeps the blocks before an error)


def test_a_missing_segment_raises(store: Store) -> None:
    with pytest.raises(StoreError, match="segments/000009 of the store"):
        next(blocks_of(store, [9]))


def test_a_category_unknown_to_the_model_has_all_indicators_zero(store: Store) -> None:
    """Whether unknown categories are allowed is checked before any row is read."""
    whole = feature_map_of(store)
    numeric = tuple(replace(column, centre=0.0, scale=1.0) for column in whole.numeric)
    colours = CategoricalColumn("colour", whole.categorical[0].categories[:2], (0.0, 0.0), (1.0, 1.0))
    smaller = replace(whole, numeric=numeric, categorical=(colours,))
    for block, full in zip(Stream(Segments(store.root()), ORDERS, smaller).blocks(), blocks_of(store), strict=True):
        indicators = (full.features * whole.scale + whole.centre)[:, 4:]
        np.testing.assert_allclose(block.features[:, 4:], indicators[:, :2], atol=1e-12)
    assert decoding_threads() == []


def test_a_stream_that_is_closed_early_leaves_no_thread(store: Store) -> None:
    blocks = Stream(Segments(store.root()), ORDERS, feature_map_of(store)).blocks()
    next(blocks)
    assert len(decoding_threads()) == 1
    blocks.close()  # type: ignore[attr-defined]
    assert decoding_threads() == []


def test_an_error_of_the_learner_leaves_no_thread(store: Store) -> None:
    with pytest.raises(ZeroDivisionError):
        learn_badly(store)
    gc.collect()
    assert decoding_threads() == []


def learn_badly(store: Store) -> None:
    for block in blocks_of(store):
        block.block_range.segment // 0


def test_a_stream_that_ends_leaves_no_thread(store: Store) -> None:
    list(blocks_of(store))
    assert decoding_threads() == []


class Counting(ThreadPoolExecutor):
    """A pool that counts its submitted tasks."""

    submitted = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        Counting.submitted += 1
        return super().submit(fn, *args, **kwargs)


def test_memory_is_bounded_by_the_blocks_read_ahead(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "ThreadPoolExecutor", Counting)
    monkeypatch.setattr(Counting, "submitted", 0)
    blocks = blocks_of(store)
    total = sum(max(1, -(-rows // 256)) for rows in SIZES)
    earlier: list[weakref.ref[Any]] = []
    for count in range(1, total + 1):
        block = next(blocks)
        assert Counting.submitted == min(count + AHEAD, total)
        assert [ref for ref in earlier if ref() is not None] == []
        earlier.append(weakref.ref(block.features))
        del block
    assert next(blocks, None) is None


def test_the_next_blocks_are_decoded_while_the_current_one_is_used(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, ahead = stream.BlockReader.read, threading.Event()

    def note(reader: Any, block_range: Any) -> Block:
        block = read(reader, block_range)
        if block_range.start == 512:
            ahead.set()
        return block

    monkeypatch.setattr(stream.BlockReader, "read", note)
    blocks = blocks_of(store)
    assert next(blocks).block_range.start == 0
    assert ahead.wait(60)  # the third block, although the second has not been requested
    blocks.close()  # type: ignore[attr-defined]
