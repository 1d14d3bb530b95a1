"""The ranges of the rows learned, and which counts of rows outside are no chance."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.jobs.jobs import ROWS, Workplace, draw_rows, open_store, set_column

from ridgestream.pipeline.models.learned_ranges import CHANCE, LearnedRanges, learned_ranges
from ridgestream.stores.catalog.models import LEARNED_RANGES
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.segments.segments import Segments

RANGES = LearnedRanges(("a", "b", "c"), (0, 2), np.array([[0.0, 5.0, -1.0], [1.0, 6.0, 1.0]]), 1000)


def test_rows_outside_are_counted_by_column_and_missing_values_are_not() -> None:
    rows = np.array([[0.0, 9.0, 1.0], [1.5, 5.0, 0.0], [np.nan, 5.0, -1.1], [-0.1, 5.0, 2.0]])
    outside = RANGES.outside(rows)
    assert outside.tolist() == [[False, False], [True, False], [False, True], [True, True]]
    assert RANGES.by_name(outside.sum(axis=0)) == {"a": 2, "c": 2}
    assert RANGES.by_name(np.array([0, 3])) == {"c": 3}


@pytest.mark.parametrize(("learned", "rows"), [(20, 400), (200, 200), (1000, 50)])
def test_chance_hardly_ever_has_so_many_rows_outside(learned: int, rows: int) -> None:
    """Of exchangeable rows: how many of the new ones lie outside the range of the others is a matter of ranks."""
    ranges, trials = LearnedRanges(("a",), (0,), np.zeros((2, 1)), learned), 20_000
    rng = np.random.default_rng(0)
    least, largest = (side(rng.random((trials, learned)), axis=1) for side in (np.min, np.max))
    outside = rng.binomial(rows, least + 1 - largest)
    limit = next(n for n in range(rows + 2) if n > rows or ranges.unlikely({"a": n}, rows))
    assert np.mean(outside >= limit) <= 10 * CHANCE
    assert limit <= rows
    assert ranges.unlikely({"a": 0}, 0) == {}


def test_ranges_are_those_of_all_nights_and_models_without_them_take_the_store_s(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    tables = [draw_rows(number) for number in range(3)]
    tables[2] = set_column(tables[2], "x0", tables[2]["x0"].to_numpy() + 50.0)
    for number, table in enumerate(tables):
        work.put(number, table)
        work.run_here({"evaluate.path": None})
    record = work.model()
    values = np.concatenate([np.column_stack([table[f"x{i}"].to_numpy() for i in range(4)]) for table in tables])
    np.testing.assert_array_equal(record.arrays[LEARNED_RANGES], [values.min(axis=0), values.max(axis=0)])
    root, extremes = open_store(work.store).root(), record.arrays.pop(LEARNED_RANGES)
    older = learned_ranges(Segments(root), record)
    np.testing.assert_array_equal(older.extremes, extremes)
    assert (older.columns, older.rows) == (("x0", "x1", "x2", "x3"), 3 * ROWS)
    for array in (extremes[:, :3], extremes.astype(np.int64)):
        damaged = replace(record, arrays=record.arrays | {LEARNED_RANGES: array})
        with pytest.raises(ModelError, match=r"is damaged: learned_ranges has the shape \(2, "):
            learned_ranges(Segments(root), damaged)
