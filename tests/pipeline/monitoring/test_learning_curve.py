"""The course of a learner: recording it does not change the learner, and its size does not grow with the rows."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.stores.partitions import REQUEST, mixed_columns, write_partition
from support.stores.stores import ingest_folder, new_store
from support.stores.training import MODEL, context_of

from ridgestream.pipeline.monitoring.learning_curve import POINTS, Course
from ridgestream.pipeline.online.schedule import GRID_ROWS
from ridgestream.pipeline.training.online.trainer import OnlineTrainer
from ridgestream.pipeline.training.training_result import Trained


def record_course(blocks: list[int]) -> tuple[Course, list[int]]:
    """The course over blocks with these numbers of rows, each with an error of its square root, and its cuts."""
    course, rows, cuts = Course(), 0, []
    for block in blocks:
        for piece in course.cuts(block):
            cuts.append(rows + piece.stop)
            course = course.after(rows + piece.stop, cuts[-1] // 100, cuts[-1] // 10, 2.0 * cuts[-1], cuts[-1] ** 0.5)
        rows += block
    return course, cuts


@pytest.mark.parametrize("blocks", [[1], [300], [4096] * 3, [1000] * 999, [70_001] * 301, [1] * 700, [16_384] * 5000])
def test_a_learning_curve_is_short_and_evenly_spaced_and_ends_at_the_last_row(blocks: list[int]) -> None:
    course, cuts = record_course(blocks)
    assert course.rows[-1] == sum(blocks)
    assert len(course.rows) <= POINTS
    assert len(course.rows) >= min(len(cuts), sum(blocks) // (2 * GRID_ROWS), POINTS // 3)
    gaps = [after - before for before, after in pairwise(course.rows)]
    assert all(gap > 0 for gap in gaps)
    assert all(gap >= course.step for gap in gaps[:-1])
    assert max(gaps, default=0) <= 2 * max(course.step, *blocks)
    for rows, n_basis, swaps, weight in zip(course.rows, course.n_basis, course.swaps, course.weights, strict=True):
        assert (n_basis, swaps, weight) == (rows // 100, rows // 10, 2.0 * rows)


def test_a_learning_curve_cuts_any_number_of_rows_into_few_pieces() -> None:
    blocks = [16_384] * 5000
    assert len(record_course(blocks)[1]) < len(blocks) + 16 * POINTS
    assert all(piece.start % GRID_ROWS == 0 for piece in Course(step=4 * GRID_ROWS).cuts(70_001))


def test_errors_between_points_add_up_to_those_over_all_rows() -> None:
    course = Course((10, 20, 30, 40), (1,) * 4, (0,) * 4, (0.0, 4.0, 4.0, 8.0), (0.0, 1.0, 1.0, 4.0))
    assert course.running_errors == [None, 0.25, 0.25, 0.5]
    assert course.errors_between == [None, 0.25, None, 0.75]


REQUESTS = {
    "number": REQUEST,
    "numbers": replace(REQUEST, target=("y", "length")),
    "class": replace(REQUEST, target="colour", positive="red"),
    "classes": replace(REQUEST, target="colour", classes="all"),
}


def trained(path: Path, kind: str, *, weighted: bool) -> Trained:
    for i, rows in enumerate([1400, 0, 700, 1, 2600]):
        more = {"w": np.random.default_rng(i).choice([0.0, 0.5, 2.0], rows)} if weighted else {}
        write_partition(path / "source" / f"part-{i}.parquet", mixed_columns(rows, seed=i) | more)
    store = new_store(path / "store")
    request = replace(REQUESTS[kind], weight="w" if weighted else None)
    ingest_folder(store, path / "source", request)
    return OnlineTrainer(MODEL).train(context_of(store))


@pytest.mark.samples
@pytest.mark.parametrize(("kind", "weighted"), [("number", True), ("class", False), ("classes", True)])
def test_recording_a_learning_curve_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, weighted: bool
) -> None:
    followed = trained(tmp_path / "a", kind, weighted=weighted)
    monkeypatch.setattr(Course, "cuts", lambda _, rows: [slice(0, rows)])
    whole = trained(tmp_path / "b", kind, weighted=weighted)
    assert followed.course is not None
    assert whole.course is not None
    assert (len(followed.course.rows), len(whole.course.rows)) == (18, 3)
    assert followed.record.arrays.keys() == whole.record.arrays.keys()
    for name, array in followed.record.arrays.items():
        assert array.tobytes() == whole.record.arrays[name].tobytes(), name
    assert followed.record.counters == whole.record.counters
    assert followed.progressive_error == whole.progressive_error
    assert followed.progressive_errors == whole.progressive_errors


@pytest.mark.samples
@pytest.mark.parametrize("kind", REQUESTS)
def test_a_learning_curve_ends_with_the_totals_of_the_training(tmp_path: Path, kind: str) -> None:
    done = trained(tmp_path, kind, weighted=True)
    course = done.course
    assert course is not None
    assert course.rows[-1] == done.record.counters["rows_seen"] == 4701
    assert course.n_basis[-1] == len(done.record.arrays["basis_vectors"])
    assert course.swaps[-1] == done.record.counters["swaps"] > 0
    assert course.running_errors[-1] == pytest.approx(done.progressive_error, rel=1e-12)
    between = [error or 0.0 for error in course.errors_between]
    total = sum(e * (w - v) for e, (v, w) in zip(between, pairwise((0.0, *course.weights)), strict=True))
    assert total == pytest.approx(course.losses[-1], rel=1e-9)
