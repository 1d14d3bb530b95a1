"""A learned metric in jobs: one run and nights give the same bits with it, in every method, on any executor."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.data.missing_values import draw_with_missing
from support.jobs.jobs import (
    REGRESSION,
    ROWS,
    Settings,
    Workplace,
    assert_same_model,
    draw_regression,
    draw_rows,
    set_column,
)
from support.jobs.recording import NEVER, Killed, Notes
from support.stores.stores import PicklingExecutor

from ridgestream.jobs.commands.inspect import run_inspect
from ridgestream.jobs.commands.plan import run_plan
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base import pass_checkpoint
from ridgestream.pipeline.base.blas_threads import map_in_threads
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.dataset import stored_rows
from ridgestream.pipeline.dataset.feature_map_growth import feature_map_of
from ridgestream.pipeline.metric import candidate
from ridgestream.pipeline.models.model_record import expansion_of
from ridgestream.pipeline.training import pilot
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.repository.store_location import StoreLocation

OPTIONS: Settings = {
    "model.kernel.gamma": "auto",
    "model.metric_options.rows": ROWS,
    "model.metric_options.basis": 40,
    "model.metric_options.rounds": 2,
}
FULL: Settings = {"model.metric": "full", **OPTIONS}
LARGER: Settings = {**FULL, "model.metric_options.rows": 5 * ROWS, "model.metric_options.basis": 80}
"""A pilot that teaches a metric; the smaller one may teach none."""

DIAGONAL: Settings = {"model.metric": "diagonal", **OPTIONS}
OPEN: Settings = {"model.metric": "auto", **OPTIONS}
METHODS: dict[str, Settings] = {
    "online": {},
    "ols": {"model.method": "ols", "model.reselect": "always"},
    "kernel-ridge": {"model.method": "kernel-ridge", "model.max_basis": None},
    "subset-of-regressors": {
        "model.method": "subset-of-regressors",
        "model.max_basis": None,
        "model.subset_of_regressors.start_basis": 30,
        "model.reselect": "always",
    },
}


@pytest.mark.at_most(4)
@pytest.mark.samples
@pytest.mark.parametrize("metric", [FULL, DIAGONAL, OPEN], ids=["full", "diagonal", "auto"])
@pytest.mark.parametrize("method", METHODS)
def test_nights_are_one_run_bit_for_bit(tmp_path: Path, method: str, metric: Settings) -> None:
    straight, nights = Workplace.new(tmp_path / "straight", range(4)), Workplace.new(tmp_path / "nights")
    changes = {**METHODS[method], **metric}
    straight.run_here(changes)
    for night in (range(1), range(1, 3), range(3, 4)):
        nights.put_all(night)
        nights.run_here(changes)
    assert_same_model(straight.model(), nights.model())


@pytest.mark.at_most(3)
@pytest.mark.samples
@pytest.mark.parametrize("metric", [FULL, OPEN], ids=["full", "auto"])
@pytest.mark.parametrize("method", METHODS)
def test_where_tasks_are_done_changes_no_bit(tmp_path: Path, method: str, metric: Settings) -> None:
    here = Workplace.new(tmp_path / "here", range(3))
    here.run_here({**METHODS[method], **metric})
    for name, executor in {"there": PicklingExecutor(), "in threads": InProcess(3)}.items():
        work = Workplace.new(tmp_path / name, range(3))
        work.run_here({**METHODS[method], **metric}, executor=executor)
        assert_same_model(here.model(), work.model())


@pytest.mark.parametrize("executor", [InProcess(4), PicklingExecutor(4)], ids=["here", "there"])
def test_fits_are_solved_in_as_many_threads_as_the_memory_limit_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: InProcess
) -> None:
    used: list[int] = []

    def recorded(*given: Any) -> Iterator[Any]:
        used.append(given[2])
        return map_in_threads(*given)

    monkeypatch.setattr(pilot, "threads_within", lambda plan, limit, threads: threads - 3)  # noqa: ARG005
    monkeypatch.setattr(candidate, "map_in_threads", recorded)
    Workplace.new(tmp_path / "work", range(1)).run_here(FULL, executor=executor)
    assert set(used) == {1}


@pytest.mark.thorough
@pytest.mark.parametrize("metric", [FULL, OPEN], ids=["full", "auto"])
def test_a_killed_pilot_goes_on_and_ends_in_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: Settings
) -> None:
    monkeypatch.setattr(pass_checkpoint, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(pass_checkpoint, "WORTH_SECONDS", 0.0)
    monkeypatch.setattr(pass_checkpoint, "WORTH_BYTES", 2**62)
    monkeypatch.setattr(stored_rows, "TASK_ROWS", 256)
    straight, killed = Workplace.new(tmp_path / "straight", range(2)), Workplace.new(tmp_path / "killed", range(2))
    counting = Killed(NEVER)
    straight.run_here(metric, executor=counting)
    for after in (5, 3):
        with suppress(KeyboardInterrupt):
            killed.run_here(metric, executor=Killed(after))
    ending = Killed(NEVER)
    killed.run_here(metric, executor=ending)
    assert ending.done < counting.done - 3
    assert_same_model(killed.model(), straight.model())


@pytest.mark.thorough
def test_the_served_model_measures_by_the_metric(tmp_path: Path) -> None:
    """A prediction is the kernel expansion in the metric's coordinates."""
    work = Workplace.new(tmp_path / "work", range(5))
    work.run_here(LARGER)
    model = expansion_of(work.model())
    table = draw_rows(7)
    feature_map = model.feature_map
    assert feature_map.metric is not None
    raw = np.column_stack([table[f"x{i}"].to_numpy() for i in range(4)])
    rows = ((raw - feature_map.centre) / feature_map.scale) @ feature_map.metric.root
    distances = ((rows[:, np.newaxis] - model.basis.vectors) ** 2).sum(axis=2)
    expected = np.exp(-distances / 4) @ model.coefficients
    predicted = model.predict(raw.astype(np.float32).astype(float), np.empty((len(raw), 0), np.int32), [])
    np.testing.assert_allclose(predicted, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("asked", "settings"),
    [(FULL, "metric, kernel.gamma"), ({"model.experts": 3, "model.metric": "standardized"}, "cells")],
)
def test_it_is_said_once_that_a_small_first_night_has_chosen_for_ten_times_its_rows(
    tmp_path: Path, asked: Settings, settings: str
) -> None:
    work, notes = Workplace(tmp_path), Notes()
    for number, rows in enumerate((60, 500, 200, 2000)):
        work.put(number, draw_rows(number, rows))
        work.run_here({**asked, "evaluate.path": None}, report=notes)
        said = notes.all("pilot.outgrown")
        assert said == ([{"rows": 60, "rows_now": 760, "settings": settings}] if number > 1 else [])


def test_a_given_gamma_is_kept_and_a_missing_one_chosen(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work", range(2))
    notes = Notes()
    work.run_here(FULL, report=notes)
    chosen = float(str(notes.facts("pilot.chosen")["gamma_within_metric"]))
    model = expansion_of(work.model())
    assert model.basis.kernel.parameters() == {"gamma": 0.25}
    metric = model.feature_map.metric
    assert metric is not None
    assert np.sum(metric.root**2) == pytest.approx(4 * chosen * 4)
    given = {**FULL, "model.kernel.gamma": 0.7, "model.name": "given"}
    work.run_here(given)
    kept = expansion_of(work.model("given"))
    assert kept.basis.kernel.parameters() == {"gamma": 0.7}
    assert kept.feature_map.metric is not None
    assert np.sum(kept.feature_map.metric.root**2) == pytest.approx(4)


def test_a_category_that_comes_later_is_an_axis_of_its_own(tmp_path: Path) -> None:
    colours = (("red", "green"), ("red", "green", "blue"), ("grey", "green"))
    changes = {
        **FULL,
        "source.target": "y",
        "source.positive": None,
        "source.missing": "impute",
        "source.unseen_categories": "extend",
        "model.kernel.gamma": 0.3,
        "evaluate.path": None,
    }
    straight, nights = Workplace.new(tmp_path / "straight"), Workplace.new(tmp_path / "nights")
    for number, each in enumerate(colours):
        straight.put(number, draw_with_missing(ROWS, number, share=0.1, colours=each))
    straight.run_here(changes)
    for number, each in enumerate(colours):
        nights.put(number, draw_with_missing(ROWS, number, share=0.1, colours=each))
        nights.run_here(changes)
    record = straight.model()
    assert_same_model(record, nights.model())
    metric = feature_map_of(record).metric
    assert metric is not None
    assert record.encoding["extended_by"] == 2
    axes = metric.apply(np.eye(metric.n_features))[-2:]
    average = np.sqrt(np.mean(np.sum(metric.apply(np.eye(metric.n_features))[:-2] ** 2, axis=1)))
    np.testing.assert_allclose(axes, average * np.eye(metric.n_features)[-2:])
    predictions = [work.predict_here("rows", changes)["prediction"] for work in (straight, nights)]
    assert predictions[0].equals(predictions[1])


def test_classes_and_several_targets_share_a_metric(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work", range(2))
    work.run_here({**FULL, "source.positive": None, "source.classes": "all"})
    assert work.model().arrays["metric"].shape == (4, 4)
    prices = Workplace.new(tmp_path / "prices")
    for number in range(2):
        table = draw_regression(number)
        prices.put(number, set_column(table, "half", pa.array(table["price"].to_numpy() / 2)))
    both = {**REGRESSION, **FULL, "source.target": ["price", "half"], "evaluate.path": None}
    prices.run_here(both)
    predicted = prices.predict_here("rows", both, with_std=True)
    assert np.isfinite(predicted["std_price"].to_numpy()).all()


@pytest.mark.thorough
def test_rollback_and_refit_keep_the_metric(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work", range(2))
    work.run_here(FULL)
    metric = work.model().arrays["metric"]
    work.put_all(range(2, 3))
    work.run_here({**FULL, "model.refit": True})
    np.testing.assert_array_equal(work.model().arrays["metric"], metric)
    assert work.model().counters["refit_rows"] == 3 * ROWS


def test_another_metric_is_another_model(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work", range(2))
    work.run_here()
    with pytest.raises(ModelError, match=r"metric was none, is 'full'"):
        work.run_here({**FULL, "model.kernel.gamma": 0.25})
    work.run_here({**FULL, "model.name": "full"})
    work.put_all(range(2, 3))
    with pytest.raises(ModelError, match=r"metric_options\.rows was 200, is 100"):
        work.run_here({**FULL, "model.name": "full", "model.metric_options.rows": 100})


@pytest.mark.thorough
def test_the_store_says_what_distances_depend_on(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work", range(5))
    work.run_here(LARGER)
    (model,) = run_inspect(StoreLocation.parse(str(work.store), Path()))["models"]
    importance = model["metric"]["importance"]
    assert {each["column"] for each in importance[:2]} == {"x0", "x1"}
    assert sum(each["share"] for each in importance) == pytest.approx(1)
    assert {entry["feature"] for entry in model["metric"]["directions"][0]["features"][:2]} == {"x0", "x1"}


def test_options_go_with_a_metric(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work", range(1))
    with pytest.raises(JobFileError, match="metric_options goes with a metric to learn"):
        read_job(work.job({**OPTIONS, "model.kernel.gamma": 0.25}), {})


def test_the_plan_has_the_memory_and_the_time_of_the_pilot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pilot, "learn_metric")
    work = Workplace.new(tmp_path / "work", range(1))
    plain, measured = (
        run_plan(read_job(work.job(changes), {}), InProcess(), new_model=False) for changes in ({}, FULL)
    )
    assert measured["process_memory_bytes"] >= plain["process_memory_bytes"]
    assert measured["pilot_seconds"] > plain["pilot_seconds"] == 0.0
    steps = ("ingest", "pilot", "train", "refit")
    assert measured["total_seconds"] == pytest.approx(sum(measured[f"{step}_seconds"] for step in steps), abs=0.03)
    assert str(measured["based_on"]).endswith("a pilot all of whose rounds are kept")


@pytest.mark.parametrize("rows", [1, 3, 60])
def test_a_few_rows_and_rows_of_weight_zero_make_a_model(tmp_path: Path, rows: int) -> None:
    work = Workplace.new(tmp_path / "work")
    weights = pa.array(np.arange(rows) % 3 == 0, type=pa.bool_()).cast(pa.float64())
    table = draw_rows(0, rows)
    work.put(0, set_column(table, "weight", weights))
    changes = {**FULL, "source.weight": "weight", "evaluate.path": None, "source.positive": table["label"][0].as_py()}
    assert work.run_here(changes)["rows_seen"] == rows
    assert np.isfinite(work.model().arrays["coefficients"]).all()
