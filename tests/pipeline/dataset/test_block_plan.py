"""Block plans: every row once, in order, on a grid determined by the store and the job."""

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgestream.pipeline.dataset.block_plan import BlockRange, plan_blocks
from ridgestream.stores.segments.segment_format import SegmentLayout

SegmentSizes = list[tuple[int, int, int]]


@st.composite
def segments(draw: st.DrawFn) -> tuple[SegmentSizes, int]:
    """Draw (order, rows, chunk rows) of segments, and the bytes of a row's features."""
    n_numeric = draw(st.integers(0, 5000))
    sizes = []
    for order in range(draw(st.integers(0, 5))):
        rows = draw(st.one_of(st.integers(0, 3), st.integers(0, 1000), st.integers(0, 300_000)))
        layout = SegmentLayout(rows, n_numeric, 0, 1, draw(st.booleans()), weighted=False)
        sizes.append((order, rows, max(1, min(rows, layout.chunk_rows))))
    return sizes, 8 * (n_numeric + draw(st.integers(0, 100)))


budgets = st.integers(1, 2**26)


@given(plan=segments(), block_bytes=budgets)
def test_blocks_cover_every_row_once_in_order(plan: tuple[SegmentSizes, int], block_bytes: int) -> None:
    sizes, row_bytes = plan
    blocks = list(plan_blocks(sizes, block_bytes, row_bytes))
    assert [order for order, _ in groupby(block.segment for block in blocks)] == [order for order, _, _ in sizes]
    for order, rows, _ in sizes:
        own = [block for block in blocks if block.segment == order]
        assert own[0].start == 0
        assert own[-1].stop == rows
        assert all(left.stop == right.start for left, right in pairwise(own))
        assert [block.ends_segment for block in own] == [False] * (len(own) - 1) + [True]
        assert rows == 0 or all(block.start < block.stop for block in own)


@given(plan=segments(), block_bytes=budgets)
def test_blocks_start_at_multiples_of_256_and_stay_within_their_bytes(
    plan: tuple[SegmentSizes, int], block_bytes: int
) -> None:
    sizes, row_bytes = plan
    for block in plan_blocks(sizes, block_bytes, row_bytes):
        rows = block.stop - block.start
        assert block.start % 256 == 0
        assert block.ends_segment or rows % 256 == 0
        assert rows <= 256 or rows * row_bytes <= block_bytes


@given(plan=segments(), block_bytes=budgets)
def test_no_block_spans_two_chunks(plan: tuple[SegmentSizes, int], block_bytes: int) -> None:
    sizes, row_bytes = plan
    chunk = {order: chunk_rows for order, _, chunk_rows in sizes}
    for block in plan_blocks(sizes, block_bytes, row_bytes):
        if block.stop > block.start:
            assert block.start // chunk[block.segment] == (block.stop - 1) // chunk[block.segment]


@given(plan=segments(), block_bytes=budgets, data=st.data())
def test_the_blocks_of_a_segment_do_not_depend_on_the_others(
    plan: tuple[SegmentSizes, int], block_bytes: int, data: st.DataObject
) -> None:
    sizes, row_bytes = plan
    cut = data.draw(st.integers(0, len(sizes)))
    parts = [*plan_blocks(sizes[:cut], block_bytes, row_bytes), *plan_blocks(sizes[cut:], block_bytes, row_bytes)]
    assert parts == list(plan_blocks(sizes, block_bytes, row_bytes))


def test_an_empty_segment_is_one_empty_last_block() -> None:
    assert list(plan_blocks([(3, 0, 1)], 1000, 8)) == [BlockRange(3, 0, 0, ends_segment=True)]


@pytest.mark.parametrize("row_bytes", [0, 1])
def test_rows_of_few_bytes_are_split_at_chunks(row_bytes: int) -> None:
    blocks = list(plan_blocks([(0, 100_000, 65536)], 2**23, row_bytes))
    assert [(block.start, block.stop) for block in blocks] == [(0, 65536), (65536, 100_000)]
