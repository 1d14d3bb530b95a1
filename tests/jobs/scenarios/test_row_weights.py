"""Jobs with a column of row weights: rows of weight zero are absent, others count by their weight."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.jobs.jobs import (
    ROWS,
    Workplace,
    assert_same_model,
    draw_rows,
    set_column,
)
from support.jobs.recording import Notes

from ridgestream.stores.errors.exceptions import PartitionError


def place(path: Path, name: str) -> Workplace:
    folder = path / name
    folder.mkdir()
    return Workplace(folder)


def column(table: pa.Table, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values: np.ndarray[tuple[int], np.dtype[np.float64]] = table[name].to_numpy()
    return values


def with_weights(seed: int, weights: np.ndarray[Any, Any]) -> pa.Table:
    return set_column(draw_rows(seed, len(weights)), "w", weights)


WEIGHTED = {"source.weight": "w"}


def test_rows_of_weight_zero_are_as_if_absent(tmp_path: Path) -> None:
    """Values agree to rounding: blocks of rows are cut by position, and an absent row has none."""
    full, thinned = place(tmp_path, "full"), place(tmp_path, "thinned")
    for number in range(3):
        weights = np.random.default_rng([number, 2]).choice([0.0, 1.0, 2.0], ROWS)
        table = with_weights(number, weights)
        table = set_column(table, "x1", np.where(weights > 0, column(table, "x1"), 1e9))
        full.put(number, table)
        thinned.put(number, table.filter(pa.compute.greater(table["w"], 0)))
    for work in (full, thinned):
        work.put(0, with_weights(1000, np.ones(ROWS)), where="held-out")
    changes = {**WEIGHTED, "model.scaling_rows": "all"}
    summary = [work.run_here(changes) for work in (full, thinned)]
    one, other = full.model(), thinned.model()
    assert one.counters["rows_seen"] == 3 * ROWS > other.counters["rows_seen"]
    for key in ("weight_seen", "penalty", "swaps"):
        assert one.counters[key] == other.counters[key]
    for key in ("basis_vectors", "gram", "normal_matrix", "normal_rhs", "target_square", "coefficients"):
        np.testing.assert_allclose(one.arrays[key], other.arrays[key], rtol=1e-8, atol=1e-8, err_msg=key)
    assert summary[0]["test_error"] == summary[1]["test_error"]
    assert summary[0]["progressive_error"] == pytest.approx(summary[1]["progressive_error"], rel=1e-12)


@pytest.mark.samples
@pytest.mark.parametrize("weight", [1e-3, 0.9, 40.0])
def test_rows_to_standardize_by_count_as_one_whatever_their_weight(tmp_path: Path, weight: float) -> None:
    """Else a later night would have changed what the first one fixed, without a word."""
    one_by_one, at_once = place(tmp_path, "one by one"), place(tmp_path, "at once")
    changes = {**WEIGHTED, "evaluate.path": None, "model.scaling_rows": 2 * ROWS - 50}
    for number in range(4):
        weights = np.full(ROWS, weight)
        weights[:20] = 0.0
        for work in (one_by_one, at_once):
            work.put(number, with_weights(number, weights))
        if number:
            one_by_one.run_here(changes)
    at_once.run_here(changes)
    assert one_by_one.model().scaled_by == at_once.model().scaled_by == (0, 1)
    assert_same_model(one_by_one.model(), at_once.model())


@pytest.mark.samples
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_partition_whose_rows_all_have_weight_zero_teaches_nothing(tmp_path: Path, number: int) -> None:
    work = Workplace(tmp_path)
    for n in range(3):
        work.put(n, with_weights(n, np.zeros(ROWS) if n == number else np.ones(ROWS)))
    work.put(0, with_weights(1000, np.ones(ROWS)), where="held-out")
    summary = work.run_here({**WEIGHTED, "model.scaling_rows": "all"})
    assert (summary["rows_seen"], summary["n_basis"]) == (3 * ROWS, 20)
    assert work.model().counters["weight_seen"] == 2 * ROWS
    assert summary["test_error"] < 0.5


def test_a_first_night_of_rows_of_weight_zero_can_be_continued(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0, with_weights(0, np.zeros(ROWS)))
    work.put(0, with_weights(1000, np.ones(ROWS)), where="held-out")
    summary = work.run_here(WEIGHTED)
    assert (summary["model"], summary["n_basis"], summary["partitions_consumed"]) == (
        None,
        0,
        0,
    )  # nothing to begin it with
    work.put(1, with_weights(1, np.ones(ROWS)))
    summary = work.run_here(WEIGHTED)
    assert (summary["n_basis"], summary["partitions_consumed"]) == (20, 2)
    assert np.isfinite(work.model().arrays["coefficients"]).all()


@pytest.mark.parametrize(("bad", "said"), [(-1.0, "-1.0 in row 7"), (np.nan, "nan in row 7"), (np.inf, "inf in row 7")])
def test_an_invalid_weight_is_refused_with_partition_and_row(tmp_path: Path, bad: float, said: str) -> None:
    work = Workplace(tmp_path)
    weights = np.ones(ROWS)
    weights[7] = bad
    work.put(0, with_weights(0, weights))
    with pytest.raises(PartitionError, match=rf"part-00\.parquet: column 'w' has the value {said}"):
        work.run_here({**WEIGHTED, "evaluate.path": None})


@pytest.mark.parametrize("method", ["online", "ols"])
def test_rows_that_all_have_weight_zero_are_reported_with_the_column(tmp_path: Path, method: str) -> None:
    work, notes = place(tmp_path, "work"), Notes()
    changes = {**WEIGHTED, "model.method": method, "evaluate.path": None}
    work.put(0, with_weights(0, np.zeros(ROWS)))
    assert work.run_here(changes, report=notes)["model"] is None
    assert notes.facts("train.no_rows") == {"rows": ROWS, "weight": "w", "model": "model", "partitions": 1}
    work.put(1, with_weights(1, np.ones(ROWS)))
    work.run_here(changes, report=notes)
    assert "train.weights_all_zero" not in notes.codes
    work.put(2, with_weights(2, np.zeros(ROWS)))
    work.run_here(changes, report=notes)
    assert notes.facts("train.weights_all_zero") == {"weight": "w"}
    assert work.model().history[-1].progressive_error is None
