"""Settings that a job leaves open: chosen by a new model's first rows, kept from then on, on any executor."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.jobs.jobs import REGRESSION, ROWS, Settings, Workplace, assert_same_model, draw_regression, set_column
from support.jobs.recording import NEVER, Killed, Notes
from support.stores.stores import PicklingExecutor

from ridgestream.pipeline.base.array_checks import Floats
from ridgestream.pipeline.dataset.feature_map_growth import feature_map_of
from ridgestream.pipeline.models.model_record import state_of
from ridgestream.stores.errors.exceptions import ModelError

OPEN: Settings = {
    "model.kernel.gamma": None,
    "model.regularization": None,
    "model.max_basis": None,
    "model.metric": None,
    "model.metric_options.rows": ROWS,
}
METHODS: dict[str, Settings] = {
    "online": {},
    "ols": {"model.method": "ols", "model.max_basis": 20},
    "efvs": {"model.method": "efvs", "model.max_basis": 20, "model.metric": "standardized"},
    "orols": {"model.method": "orols"},
    "kernel-ridge": {"model.method": "kernel-ridge"},
    "isls-svm": {"model.method": "isls-svm", "model.isls_svm.start_basis": 30},
    "subset-of-regressors": {"model.method": "subset-of-regressors", "model.subset_of_regressors.start_basis": 30},
}


def run(work: Workplace, changes: Settings, **more: Any) -> dict[str, Any]:
    return work.run_here({**OPEN, **changes}, **more)


@pytest.mark.samples
@pytest.mark.parametrize("method", METHODS)
def test_nights_without_a_setting_are_one_run_and_the_choice_is_kept(tmp_path: Path, method: str) -> None:
    straight, nights = Workplace.new(tmp_path / "straight", range(3)), Workplace.new(tmp_path / "nights")
    always = {"model.reselect": "always"} if method in ("ols", "efvs", "isls-svm", "subset-of-regressors") else {}
    changes = {**METHODS[method], **always}
    nights.put_all(range(1))
    run(nights, changes)
    first = nights.model().parameters
    nights.put_all(range(1, 3))
    run(nights, changes)
    last = nights.model().parameters
    assert {name: last[name] for name in first if name != "learner"} == {
        name: first[name] for name in first if name != "learner"
    }
    assert "kernel.gamma" in first["chosen"]
    if method == "online":
        run(straight, changes)
        assert_same_model(straight.model(), nights.model())


@pytest.mark.at_most(2)
@pytest.mark.samples
@pytest.mark.parametrize("method", METHODS)
def test_where_tasks_are_done_changes_no_bit_of_the_choice(tmp_path: Path, method: str) -> None:
    here, there = (Workplace.new(tmp_path / name, range(2)) for name in ("here", "there"))
    run(here, METHODS[method])
    run(there, METHODS[method], executor=PicklingExecutor())
    assert_same_model(here.model(), there.model())


@pytest.mark.thorough
def test_a_run_killed_in_its_pilot_or_its_stream_ends_in_the_same_bits(tmp_path: Path) -> None:
    straight, killed = Workplace.new(tmp_path / "straight", range(2)), Workplace.new(tmp_path / "killed", range(2))
    counting = Killed(NEVER)
    run(straight, {}, executor=counting)
    for after in range(2, counting.done, max(1, counting.done // 6)):
        with suppress(KeyboardInterrupt):
            run(killed, {}, executor=Killed(after))
    run(killed, {})
    assert_same_model(straight.model(), killed.model())


def test_the_report_says_what_was_chosen(tmp_path: Path) -> None:
    work, notes = Workplace.new(tmp_path / "work", range(2)), Notes()
    run(work, {"model.metric": "standardized"}, report=notes)
    chosen, parameters = notes.facts("pilot.chosen"), work.model().parameters
    assert chosen["regularization"] == parameters["regularization"]
    assert chosen["gamma"] == parameters["kernel"]["gamma"]
    assert chosen["max_basis"] == parameters["max_basis"]
    assert parameters["chosen"] == ["kernel.gamma", "max_basis", "regularization"]
    state = state_of(work.model())
    assert state.parameters.regularization == parameters["regularization"]
    assert state.parameters.max_basis == parameters["max_basis"]


def test_a_job_may_state_what_was_chosen_but_nothing_else(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work", range(1))
    run(work, {"model.metric": "standardized"})
    gamma = work.model().parameters["kernel"]["gamma"]
    work.put_all(range(1, 2))
    assert run(work, {"model.metric": "standardized", "model.kernel.gamma": gamma})["new_partitions"] == 1
    work.put_all(range(2, 3))
    with pytest.raises(ModelError, match=rf"kernel\.gamma was {gamma}, is {2 * gamma}"):
        run(work, {"model.metric": "standardized", "model.kernel.gamma": 2 * gamma})


def test_another_regularization_is_the_job_s_from_then_on(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work", range(1))
    run(work, {})
    run(work, {"model.regularization": 0.5})
    record = work.model()
    assert record.parameters["regularization"] == 0.5
    assert "regularization" not in record.parameters["chosen"]
    run(work, {})
    assert work.model().parameters["regularization"] == 0.5


def test_a_model_of_stated_settings_goes_on_with_a_job_that_states_none(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work", range(1))
    stated = {"model.kernel.gamma": 0.7, "model.regularization": 1e-3, "model.max_basis": 9}
    run(work, {**stated, "model.metric": "standardized", "model.metric_options.rows": None})
    work.put_all(range(1, 2))
    run(work, {})
    parameters = work.model().parameters
    assert (parameters["kernel"]["gamma"], parameters["regularization"], parameters["max_basis"]) == (0.7, 1e-3, 9)
    assert "metric" not in parameters
    assert "chosen" not in parameters


def test_a_refit_has_the_regularization_of_least_gcv(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work")
    work.put(0, draw_regression(0))
    work.put(0, draw_regression(9), where="held-out")
    changes = {**REGRESSION, "model.refit": True}
    run(work, changes)
    counters, parameters = work.model().counters, work.model().parameters
    assert counters["refit_regularization"] != parameters["regularization"]
    with_std = work.predict_here("held-out", {**OPEN, **changes}, with_std=True)
    assert np.isfinite(with_std["std"].to_numpy()).all()


def test_a_target_of_noise_is_shrunk_to_a_constant(tmp_path: Path) -> None:
    work, rng = Workplace.new(tmp_path / "work"), np.random.default_rng(0)
    for number, where in ((0, "rows"), (1, "rows"), (0, "held-out")):
        table = draw_regression(number)
        work.put(number, set_column(table, "price", rng.normal(size=len(table))), where=where)
    result = run(work, {**REGRESSION, "model.refit": True, "model.metric_options.rows": None})
    assert result["test_mse"] < 1.1 * result["trivial_error"]


@pytest.mark.parametrize("is_sorted", [False, True])
def test_rows_sorted_by_target_teach_as_much_and_are_reported(tmp_path: Path, is_sorted: bool) -> None:
    work, notes, held_out = Workplace.new(tmp_path / "work"), Notes(), draw_regression(1)
    table = draw_regression(0)
    work.put(0, table.sort_by("price") if is_sorted else table)
    work.put(0, held_out, where="held-out")
    result = run(work, REGRESSION, report=notes)
    assert result["test_mse"] < 0.2 * result["trivial_error"]
    assert bool(notes.all("pilot.rows_sorted")) is is_sorted


@pytest.mark.parametrize("changes", [{}, {"model.experts": 3}, {"model.method": "subset-of-regressors"}])
def test_first_rows_of_one_target_choose_nothing_and_a_later_night_learns(tmp_path: Path, changes: Settings) -> None:
    work, notes = Workplace.new(tmp_path / "work"), Notes()
    table = draw_regression(0)
    work.put(0, set_column(table, "price", np.full(len(table), 3_000.0)))
    work.put(0, draw_regression(9), where="held-out")
    run(work, {**REGRESSION, **changes, "evaluate.path": None}, report=notes)
    assert notes.facts("pilot.target_constant") == {"rows": len(table)}
    assert not notes.all("metric.round")
    assert not notes.all("pilot.chosen")
    assert not notes.all("metric.not_judged")
    for number in range(1, 4):
        work.put(number, draw_regression(number))
    result = run(work, {**REGRESSION, **changes})
    assert result["test_mse"] < 0.5 * result["trivial_error"]


def put_far_out(work: Workplace, number: int, where: str = "rows") -> None:
    table = draw_regression(number if where == "rows" else 9)
    work.put(number, set_column(table, "size", np.exp(2 * table["size"].to_numpy())), where=where)


def test_columns_with_values_far_out_are_compressed_and_nights_are_one_run(tmp_path: Path) -> None:
    straight, nights = (Workplace.new(tmp_path / name) for name in ("straight", "nights"))
    for work in (straight, nights):
        put_far_out(work, 0, "held-out")
        put_far_out(work, 0)
    notes = Notes()
    run(nights, REGRESSION, report=notes)
    assert notes.facts("features.compressed") == {"columns": "size"}
    for work in (straight, nights):
        put_far_out(work, 1)
        run(work, REGRESSION)
    assert_same_model(straight.model(), nights.model())
    assert [column.spread > 0 for column in feature_map_of(nights.model()).numeric] == [True, False]


@pytest.mark.parametrize(("shape", "centre"), [(np.log, np.min), (np.arcsinh, np.median)], ids=["one end", "median"])
def test_distances_are_from_one_end_where_that_predicts_better(
    tmp_path: Path, shape: Callable[[Floats], Floats], centre: Callable[[Floats], float]
) -> None:
    work, rng = Workplace.new(tmp_path / "work"), np.random.default_rng(0)
    size = np.exp(2 * rng.normal(size=800))
    table = pa.table({"size": size, "price": shape(size) + 0.3 * rng.normal(size=800)})
    work.put(0, table)
    work.put(0, table, where="held-out")
    run(work, {**REGRESSION, "model.metric_options.rows": len(size)})
    [column] = feature_map_of(work.model()).numeric
    assert column.spread > 0
    assert column.centre == pytest.approx(centre(size))


def test_no_column_is_compressed_beside_a_stated_metric(tmp_path: Path) -> None:
    work = Workplace.new(tmp_path / "work")
    put_far_out(work, 0)
    put_far_out(work, 0, "held-out")
    run(work, {**REGRESSION, "model.metric": "full"})
    assert not any(column.spread for column in feature_map_of(work.model()).numeric)
