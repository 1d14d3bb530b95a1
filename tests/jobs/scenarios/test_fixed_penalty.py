"""A penalty fixed from the first row on, `stream_rows`: job, learner and cells agree, and it stays what it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs.jobs import ROWS, Settings, Workplace, assert_same_model, draw_rows

from ridgestream import RBF, LocalExperts, OnlineLSSVM
from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.models.model_record import learner_of, model_of
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import ModelError

FIXED: Settings = {"model.stream_rows": 1500, "source.precision": "float64", "evaluate.path": None}
CELLS: Settings = {**FIXED, "model.experts": 3, "model.metric_options.rows": ROWS}


def run(folder: Path, nights: list[int], changes: Settings) -> ModelRecord:
    work, done = Workplace.new(folder), 0
    for stop in nights:
        work.put_all(range(done, stop))
        work.run_here(changes)
        done = stop
    return work.model()


def features_of(record: ModelRecord, number: int) -> tuple[Floats, Floats]:
    table = draw_rows(number)
    raw = np.column_stack([table[f"x{i}"] for i in range(4)])
    codes = np.empty((len(raw), 0), np.int32)
    return model_of(record).feature_map.features(raw, codes, ()), np.where(table["label"].to_numpy() == 2, 1.0, -1.0)


@pytest.mark.parametrize("changes", [FIXED, CELLS], ids=["one dictionary", "experts"])
def test_nights_are_one_run_and_the_learner(tmp_path: Path, changes: Settings) -> None:
    record = run(tmp_path / "straight", [3], changes)
    assert record.parameters["stream_rows"] == 1500
    assert_same_model(run(tmp_path / "nights", [1, 3], changes), record)
    kernel = RBF(0.25)
    settings: dict[str, Any] = {"regularization": 1e-4, "max_basis": 20, "stream_rows": 1500}
    learner: OnlineLSSVM | LocalExperts = OnlineLSSVM(kernel, **settings, centre=np.zeros(4))
    stored = learner_of(record)
    if isinstance(stored, LocalExperts):
        settings |= {name: getattr(stored.parameters, name) for name in ("novelty_threshold", "usefulness_threshold")}
        learner = LocalExperts(kernel, stored.cells.centres, **settings)
    for number in range(3):
        X, y = features_of(record, number)
        learner.partial_fit(X, y).refresh()
    assert np.array_equal(learner.predict(X), stored.predict(X))
    assert stored.parameters.selection_penalty(ROWS) == pytest.approx(0.15 if changes is FIXED else 0.05)


def test_a_refit_has_the_same_penalty(tmp_path: Path) -> None:
    record = run(tmp_path / "rows", [2], {**FIXED, "model.refit": True})
    assert record.counters["refit_regularization"] * 2 * ROWS == pytest.approx(0.15)


def test_rows_beyond_the_stream_leave_it_as_it_is(tmp_path: Path) -> None:
    record = run(tmp_path / "rows", [2], {**FIXED, "model.stream_rows": ROWS})
    assert record.counters["penalty"] == pytest.approx(1e-4 * ROWS)


def test_another_stream_is_another_model(tmp_path: Path) -> None:
    run(tmp_path / "rows", [1], FIXED)
    with pytest.raises(ModelError, match="stream_rows was 1500, is 3000"):
        Workplace(tmp_path / "rows").run_here({**FIXED, "model.stream_rows": 3000})
    with pytest.raises(ModelError, match="stream_rows was 1500, is none"):
        Workplace(tmp_path / "rows").run_here({**FIXED, "model.stream_rows": None})
