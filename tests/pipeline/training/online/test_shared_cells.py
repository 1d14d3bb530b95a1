"""Cells that workers share: how they are divided, where it is worth it, and whose rows an error names."""

from typing import Any

import numpy as np
import pytest
from support.stores.stores import PicklingExecutor

from ridgestream import RBF, LocalExperts
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.dataset.block_plan import BlockRange
from ridgestream.pipeline.dataset.block_stream import Block
from ridgestream.pipeline.dataset.task_label import TaskLabel
from ridgestream.pipeline.online.experts.cell_learning import learn_cell
from ridgestream.pipeline.training.online.shared_cells import CellTask, divide_cells, is_worth_sharing, learn_cells


def test_cells_are_divided_by_their_rows_and_each_is_in_one_group() -> None:
    rows = np.random.default_rng(0).geometric(1e-3, 300)
    groups = divide_cells(rows.tolist(), 4)
    assert sorted(np.concatenate(groups).tolist()) == list(range(300))
    assert all((np.diff(group) > 0).all() for group in groups)
    assert max(rows[group].sum() for group in groups) < 1.05 * rows.sum() / 4
    assert [group.tolist() for group in divide_cells([0, 0, 0], 9)] == [[0], [1], [2]]
    assert [group.tolist() for group in divide_cells([0, 7], 0)] == [[0, 1]]


class Here:
    """A stream whose tasks run in this process."""

    executor = PicklingExecutor()


class There:
    """A stream whose tasks run elsewhere."""

    executor: Any = None


def test_rows_are_shared_by_workers_alone_and_if_there_are_many_for_the_cells() -> None:
    parts = [(BlockRange(0, 0, 40_000, ends_segment=True),)]
    shared = [is_worth_sharing(stream, parts, n) for stream, n in ((There(), 300), (There(), 400), (Here(), 300))]  # type: ignore[arg-type]
    assert shared == [True, False, False]
    assert not is_worth_sharing(There(), [], 1)  # type: ignore[arg-type]


class Reader:
    """A reader of one part with a value that is not finite."""

    def read_joined(self, part: tuple[BlockRange, ...]) -> Block:
        return Block(part[0], np.array([[np.nan]]), np.ones((1, 1)), None)


def test_rows_that_cannot_be_learned_are_named_by_their_partition() -> None:
    class Entry:
        segment, name, content_sha256 = 3, "part-3", "a"

    state = LocalExperts(RBF(1.0), [[0.0], [1.0]]).state()
    parts = ((BlockRange(3, 0, 1, ends_segment=True),),)
    task = CellTask(np.array([0]), state, parts, 0, learn_cell, TaskLabel("part-3", 0, 1))
    with pytest.raises(InputError, match=r"partition part-3: .* nan"):
        learn_cells(task, Reader(), [Entry()])  # type: ignore[arg-type,list-item]
