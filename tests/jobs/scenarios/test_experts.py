"""Local experts: a learner in each cell, by the same job files, nights and commands as one learner."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import (
    REGRESSION,
    ROWS,
    Settings,
    Workplace,
    assert_same_model,
    draw_regression,
    draw_rows,
    open_store,
    set_column,
)
from support.jobs.recording import Notes
from support.points import points
from support.stores.stores import PicklingExecutor

from ridgestream import LocalExperts
from ridgestream.jobs.commands.history import run_rollback
from ridgestream.jobs.commands.inspect import run_inspect
from ridgestream.jobs.commands.plan import run_plan
from ridgestream.jobs.commands.train import Held
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.requests import model_request
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.report.cell_text import sentences_of_cells
from ridgestream.jobs.report.facts import night_facts
from ridgestream.jobs.report.page.html_page import render_page
from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.executor import InProcess, MemoryNeed
from ridgestream.pipeline.base.reporter import Fact, Stopped
from ridgestream.pipeline.models.cell_summary import summarize_cells
from ridgestream.pipeline.models.cell_trials import trials_of
from ridgestream.pipeline.models.model_record import is_refitted, learner_of, model_of
from ridgestream.pipeline.planning import timing
from ridgestream.pipeline.training.online import shared_cells
from ridgestream.pipeline.training.online.shared_cells import learn_cells
from ridgestream.pipeline.training.request import EXPERT_BASIS, OnlineRequest
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.repository.store_location import StoreLocation

EXPERTS: Settings = {"model.experts": 5, "model.max_basis": 8, "model.metric_options.rows": ROWS}


def column(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(table[name].to_numpy())


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """One run on partitions 00 to 03."""
    work = Workplace(tmp_path_factory.mktemp("straight"))
    work.put_all(range(4))
    work.run_here(EXPERTS)
    return work


def test_nights_are_one_run_bit_for_bit(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    for done in range(4):
        work.put_all(range(done, done + 1))
        summary = work.run_here(EXPERTS)
    assert summary["rows_seen"] == 4 * ROWS
    assert_same_model(work.model(), straight.model())
    assert work.model().history[-1].test_error == straight.model().history[-1].test_error
    assert 8 < summary["n_basis"] <= 40


class StopsAfterTwo(Notes):
    """A reporter that stops a training after two partitions."""

    learned = 0

    def advance(self, rows: int, **facts: Fact) -> None:
        super().advance(rows, **facts)
        self.learned += rows if "swaps" in facts else 0
        if self.learned == 2 * ROWS:
            raise Stopped(15)


class Workers:
    """So many workers, whose needs and tasks of cells are noted; tasks and results travel."""

    threads = 1

    def __init__(self, workers: int) -> None:
        self.workers, self.tasks, self.needs = workers, 0, [MemoryNeed(0)]

    def count_workers(self) -> int:
        return self.workers

    def admit(self, needs: Iterable[MemoryNeed]) -> None:
        self.needs += needs

    def broadcast(self, value: Any) -> Any:
        return value

    def run(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        sent = list(tasks)
        self.tasks += len(sent) if function is learn_cells else 0
        return PicklingExecutor().run(function, sent, *shared)

    def release(self) -> None:
        """Let nothing go: there are no processes."""


@pytest.fixture
def _shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers share few rows, too, in stretches of two partitions."""
    monkeypatch.setattr(shared_cells, "FEWEST_SHARED_A_CELL", 1)
    monkeypatch.setattr(shared_cells, "FEWEST_SHARED", 4 * ROWS)
    monkeypatch.setattr(shared_cells, "STRETCH_ROWS_A_CELL", 1)
    monkeypatch.setattr(shared_cells, "STRETCH_ROWS", 2 * ROWS)


@pytest.mark.usefixtures("_shared")
def test_a_refit_is_served_until_the_next_night_and_has_the_same_bits_on_workers(
    tmp_path: Path, straight: Workplace
) -> None:
    refits: list[ModelRecord] = []
    for executor in (InProcess(), InProcess(3), Workers(2)):
        work = Workplace(tmp_path / str(len(refits)))
        work.folder.mkdir()
        work.put_all(range(4))
        assert work.run_here({**EXPERTS, "model.refit": True}, executor=executor)["refitted"]
        refits.append(work.model())
    for refit in refits[1:]:
        assert_same_model(refits[0], refit)
    np.testing.assert_array_equal(refits[0].arrays["cells"], straight.model().arrays["cells"])
    assert refits[0].history[-1].test_error != straight.model().history[-1].test_error
    work.put_all(range(4, 5))
    assert not work.run_here({**EXPERTS, "model.refit": False})["refitted"]
    assert not is_refitted(work.model())


@pytest.mark.usefixtures("_shared")
@pytest.mark.parametrize("workers", points([3, 1, 2, 9], [3]))
def test_cells_on_workers_learn_the_same_bits(tmp_path: Path, straight: Workplace, workers: int) -> None:
    work, notes, executor = Workplace(tmp_path), Notes(), Workers(workers)
    work.put_all(range(4))
    work.run_here(EXPERTS, executor=executor, report=notes)
    assert executor.tasks == 2 * min(workers, 5)
    assert_same_model(work.model(), straight.model())
    (here,), (there,) = (place.model().history for place in (straight, work))
    assert replace(there, finished_at="", seconds=0.0) == replace(here, finished_at="", seconds=0.0)
    assert work.model().run["course"] == straight.model().run["course"]
    assert sum(facts["rows_seen"] == 4 * ROWS for facts in notes.ended if "rows_seen" in facts) == 1


@pytest.mark.thorough
@pytest.mark.usefixtures("_shared")
def test_a_stopped_training_on_workers_goes_on_from_its_last_stretch(tmp_path: Path, straight: Workplace) -> None:
    work, notes = Workplace(tmp_path), Notes()
    work.put_all(range(4))
    with pytest.raises(Stopped):
        work.run_here(EXPERTS, executor=Workers(2), report=StopsAfterTwo())
    work.run_here(EXPERTS, executor=Workers(3), report=notes)
    assert ("train.started_from_checkpoint", {"rows": 2 * ROWS}) in notes.events
    assert_same_model(work.model(), straight.model())


def test_a_stopped_training_goes_on_from_its_checkpoint(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(4))
    with pytest.raises(Stopped):
        work.run_here(EXPERTS, report=StopsAfterTwo())
    notes = Notes()
    work.run_here(EXPERTS, report=notes)
    assert ("train.started_from_checkpoint", {"rows": 2 * ROWS}) in notes.events
    assert_same_model(work.model(), straight.model())


def test_a_night_changes_the_cells_that_it_touches_alone(tmp_path: Path) -> None:
    work, rng = Workplace(tmp_path), np.random.default_rng(0)
    changes = {**REGRESSION, **EXPERTS, "model.experts": 20, "evaluate.path": None}
    for night, X in enumerate((rng.normal(size=(400, 2)), 0.5 + 0.001 * rng.normal(size=(50, 2)))):
        before = work.model().arrays["cells"] if night else np.empty(0)
        work.put(night, pa.table({"size": X[:, 0], "age": X[:, 1], "price": rng.normal(size=len(X))}))
        work.run_here(changes)
    assert np.count_nonzero((before != work.model().arrays["cells"]).any(axis=1)) == 1


@pytest.mark.thorough
def test_numbers_have_error_bars_and_intervals(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number in range(3):
        work.put(number, draw_regression(number))
    work.put(0, draw_regression(1000), where="held-out")
    changes = {**EXPERTS, **REGRESSION}
    summary = work.run_here(changes)
    table = work.predict_here("held-out", changes, with_std=True, level=0.9)
    truth, predicted = column(draw_regression(1000), "price"), column(table, "prediction")
    assert np.mean((truth - predicted) ** 2) == pytest.approx(summary["test_mse"], rel=1e-9)
    assert summary["test_mse"] < 0.2 * truth.var()
    assert 0.8 <= np.mean((column(table, "lower") <= truth) & (truth <= column(table, "upper"))) <= 1.0
    assert (column(table, "std_observed") > column(table, "std")).all()


def test_classes_weights_and_probabilities(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number in range(3):
        weights = np.random.default_rng(number).choice([0.0, 1.0, 2.0], ROWS)
        work.put(number, set_column(draw_rows(number), "w", weights))
    work.put(0, set_column(draw_rows(1000), "w", np.ones(ROWS)), where="held-out")
    changes = {**EXPERTS, "source.positive": None, "source.classes": "all", "source.weight": "w"}
    summary = work.run_here(changes)
    table = work.predict_here("held-out", changes, with_scores=True, with_probabilities=True)
    share = np.mean(column(table, "prediction") != column(draw_rows(1000), "label"))
    assert share == pytest.approx(summary["test_error"])
    assert summary["test_error"] < 0.5
    probabilities = np.stack([column(table, f"probability_{label}") for label in (1, 2, 3)])
    np.testing.assert_allclose(probabilities.sum(axis=0), 1.0)


def clusters(seed: int, labels: tuple[int, ...]) -> pa.Table:
    """Rows around places far from each other, those of one place all of the class that `labels` gives it."""
    rng, place = np.random.default_rng(seed), np.repeat(np.arange(3), 20)
    X = rng.normal(size=(60, 2)) + 20.0 * np.stack([place == 1, place == 2], axis=1)
    return pa.table({"x0": X[:, 0], "x1": X[:, 1], "label": np.array(labels)[place]})


def test_a_class_that_a_cell_lacks_is_not_predicted_there_until_it_arrives(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    three: Settings = {"model.experts": 3, "model.metric_options.rows": 60, "evaluate.path": None}
    changes = {**EXPERTS, **three, "source.positive": None, "source.classes": "all"}
    work.put(0, clusters(0, (1, 2, 3)))
    work.put(0, clusters(9, (1, 2, 3)), where="held-out")
    for night in range(2):
        work.run_here(changes)
        table = work.predict_here("held-out", changes, with_probabilities=True, with_std=True)
        expected = np.repeat((1, 2, 3) if not night else (1, 2, 1), 20)
        np.testing.assert_array_equal(column(table, "prediction"), expected)
        probabilities = np.stack([column(table, f"probability_{label}") for label in (1, 2, 3)])
        np.testing.assert_allclose(probabilities.sum(axis=0), 1.0)
        work.put(1, pa.concat_tables([clusters(seed, (1, 2, 1)) for seed in range(10, 20)]))
    assert len(work.model().arrays["cells"]) == 3


def test_a_cell_of_one_row_has_error_bars(tmp_path: Path) -> None:
    work, rng = Workplace(tmp_path), np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(100, 2)), [[99.0, 99.0]]])
    work.put(0, pa.table({"size": X[:, 0], "age": X[:, 1], "price": X[:, 0] + 1.0}))
    changes = {**EXPERTS, **REGRESSION, "model.experts": 2, "evaluate.path": None}
    work.run_here(changes)
    assert sorted(each["rows"] for each in summarize_cells(work.model())["cells"]) == [1, 100]
    table = work.predict_here("rows", changes, with_std=True, level=0.9)
    for name in ("prediction", "std", "std_observed", "lower", "upper"):
        assert np.isfinite(column(table, name)).all()
    assert column(table, "prediction")[-1] == pytest.approx(100.0, rel=0.2)


@pytest.mark.thorough
@pytest.mark.parametrize("refit", [False, True])
def test_missing_values_and_a_category_that_arrives_late(tmp_path: Path, refit: bool) -> None:
    work = Workplace(tmp_path)
    few = {"model.scaling_rows": 100, "model.metric_options.rows": 100, "model.refit": refit}
    changes = {**EXPERTS, **REGRESSION, **few, "source.unseen_categories": "extend", "source.missing": "drop"}
    for number, kinds in enumerate((["a", "b"], ["a", "b", "c"])):
        rng = np.random.default_rng(number)
        table = set_column(draw_regression(number), "kind", pa.array(rng.choice(kinds, ROWS)))
        table = set_column(table, "age", pa.array(np.where(rng.random(ROWS) < 0.1, np.nan, column(table, "age"))))
        work.put(number, table)
        work.run_here({**changes, "evaluate.path": None})
    together = Workplace(tmp_path / "together")
    together.folder.mkdir()
    for number in range(2):
        source = work.folder / "rows" / f"part-{number:02d}.parquet"
        together.put(number, pq.read_table(source))
    together.run_here({**changes, "evaluate.path": None})
    assert work.model().arrays["cell_centres"].shape == (5, 5)
    assert_same_model(work.model(), together.model())


@pytest.mark.thorough
def test_another_regularization_holds_for_all_cells(tmp_path: Path, straight: Workplace) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(4))
    work.run_here(EXPERTS)
    work.run_here({**EXPERTS, "model.regularization": 1e-2})
    one, other = (learner_of(place.model()) for place in (work, straight))
    other.set_regularization(1e-2)
    assert isinstance(one, LocalExperts)
    assert isinstance(other, LocalExperts)
    for mine, theirs in zip(one.state().packed, other.state().published().packed, strict=True):
        np.testing.assert_array_equal(mine[:4], theirs[:4])
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.thorough
def test_fewer_different_rows_than_cells_make_fewer_cells(tmp_path: Path) -> None:
    work, notes = Workplace(tmp_path), Notes()
    row = draw_regression(0).slice(0, 2)
    work.put(0, pa.concat_tables([row] * 50))
    work.run_here({**EXPERTS, **REGRESSION, "evaluate.path": None}, report=notes)
    assert ("train.fewer_cells", {"cells": 2, "asked": 5, "rows": 100}) in notes.events
    assert len(work.model().arrays["cell_centres"]) == 2
    predicted = work.predict_here("rows", {**EXPERTS, **REGRESSION})
    assert np.isfinite(column(predicted, "prediction")).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model.selection": "fixed", "model.random_basis": 4, "model.max_basis": None}, "selection is not fixed"),
        ({"model.max_basis": "unlimited"}, "max_basis not unlimited"),
        ({"model.method": "ols"}, "method ols takes no experts"),
    ],
)
def test_what_experts_cannot_have_is_refused(tmp_path: Path, changes: Settings, said: str) -> None:
    with pytest.raises(JobFileError, match=said):
        read_job(Workplace(tmp_path).job({**EXPERTS, **changes}), {})


def test_dictionaries_of_experts_are_bounded_where_they_are_left_open(tmp_path: Path) -> None:
    request = model_request(read_job(Workplace(tmp_path).job({**EXPERTS, "model.max_basis": "auto"}), {}))
    assert request.max_basis == EXPERT_BASIS
    assert "max_basis" not in request.chooses


@pytest.mark.parametrize(
    ("settings", "thresholds"),
    [
        ({}, (1e-2, 1e-4)),
        ({"model.experts": 3}, (1e-3, 1e-5)),
        ({"model.experts": 3, "model.novelty_threshold": 0.5}, (0.5, 1e-5)),
        ({"model.experts": "auto"}, (1e-2, 1e-4)),  # until there are cells
    ],
)
def test_cells_have_lower_thresholds_unless_others_are_given(
    tmp_path: Path, settings: Settings, thresholds: tuple[float, float]
) -> None:
    request = model_request(read_job(Workplace(tmp_path).job(settings), {}))
    assert isinstance(request, OnlineRequest)
    assert (request.novelty_threshold, request.usefulness_threshold) == thresholds


def test_a_model_keeps_the_thresholds_that_it_has(tmp_path: Path) -> None:
    """Models from before cells had thresholds of their own have those of one learner."""
    work = Workplace(tmp_path)
    work.put_all(range(1))
    work.run_here({**EXPERTS, "model.novelty_threshold": 1e-2, "model.usefulness_threshold": 1e-4})
    work.put(1)
    work.run_here(EXPERTS)
    assert learner_of(work.model()).parameters.novelty_threshold == 1e-2


def test_another_number_of_experts_is_another_model(straight: Workplace) -> None:
    with pytest.raises(ModelError, match="experts was 5, is 6"):
        straight.run_here({**EXPERTS, "model.experts": 6})
    with pytest.raises(ModelError, match="experts was 5, is none"):
        straight.run_here({**EXPERTS, "model.experts": None, "model.metric_options.rows": None})


def test_the_number_is_chosen_once_and_stays(tmp_path: Path) -> None:
    work, notes = Workplace(tmp_path), Notes()
    for number in range(3):
        X = np.random.default_rng(number).uniform(-3, 3, size=(ROWS, 2))
        bumps = np.sin(2 * X[:, 0]) * np.cos(2 * X[:, 1])  # more than four vectors can follow
        work.put(number, pa.table({"size": X[:, 0], "age": X[:, 1], "price": bumps}))
    auto: Settings = {"model.experts": "auto", "model.max_basis": 4, "model.metric_options.rows": 3 * ROWS}
    changes = {**REGRESSION, **EXPERTS, **auto, "model.kernel.gamma": 2.0, "evaluate.path": None}
    job, most = read_job(work.job(changes), {}), 3 * ROWS // (5 * 4)
    assert run_plan(job, InProcess(), new_model=False)["experts"] == f"1 to {most}, chosen at the first training"
    work.run_here(changes, report=notes)
    first = work.model()
    number = first.parameters["experts"]
    assert 1 < number <= most
    assert "experts" in first.parameters["chosen"]
    assert len(first.arrays["cell_centres"]) == number
    assert [facts["cells"] for code, facts in notes.events if code == "pilot.cells_tried"] == [
        trial["cells"] for trial in trials_of(first)
    ]
    assert dict(notes.events)["pilot.chosen"]["experts"] == number
    for night, again in ((3, changes), (4, {**changes, "model.experts": number})):
        work.put(night, draw_regression(night))
        work.run_here(again)
    last = work.model()
    assert (last.parameters["experts"], last.counters["rows_seen"]) == (number, 5 * ROWS)
    np.testing.assert_array_equal(last.arrays["cell_trials"], first.arrays["cell_trials"])
    np.testing.assert_array_equal(last.arrays["cell_centres"], first.arrays["cell_centres"])


def test_a_number_that_is_not_chosen_yet_bounds_memory(straight: Workplace) -> None:
    changes = {**EXPERTS, "model.name": "other", "model.experts": "auto", "memory_limit": "10MB"}
    with pytest.raises(MemoryRefused, match=r"in each of up to \d+ cells needs .*used: raise memory_limit$"):
        straight.run_here(changes)


def test_cells_are_summarized_by_rows_error_and_place(straight: Workplace) -> None:
    record = straight.model()
    cells = summarize_cells(record)
    (model,) = run_inspect(StoreLocation(str(straight.folder / "store")))["models"]
    assert model["cells"] == json.loads(json.dumps(cells))
    listed = cells["cells"]
    assert cells["count"] == len(listed) == 5
    assert sum(each["rows"] for each in listed) == record.counters["rows_seen"]
    assert sum(each["n_basis"] for each in listed) == record.counters["n_basis"]
    noise = model_of(record, with_uncertainty=True).noise_variance[0]
    assert cells["error"] == pytest.approx(noise, rel=1e-9)
    assert set(cells["weak"]) == {each["cell"] for each in listed if each["error"] > 2 * cells["error"]}


def test_cells_with_one_row_or_none_are_starved(straight: Workplace) -> None:
    record = straight.model()
    rows = record.arrays["cells"].copy()
    rows[1, 2] = 1.0  # as many rows as ROWS_SEEN says
    rows[3] = 0.0
    cells = summarize_cells(replace(record, arrays=record.arrays | {"cells": rows}))
    assert cells["starved"] == [1, 3]
    assert (cells["cells"][3]["rows"], cells["cells"][3]["error"], cells["cells"][3]["rounding_error"]) == (
        0,
        None,
        None,
    )
    assert [*sentences_of_cells({"cells": cells})][-1].endswith("with few rows for their vectors or none: 1, 3.")


def test_the_page_of_a_report_shows_the_cells(straight: Workplace) -> None:
    facts = night_facts(open_store(straight.store), "model")
    page = render_page(facts)
    assert "<h2>Cells</h2>" in page
    assert [f'<th scope="row">{cell} <span' in page for cell in facts["cells"]["weak"]] == [True] * len(
        facts["cells"]["weak"]
    )


def test_a_damaged_table_of_trials_is_refused(straight: Workplace) -> None:
    record = straight.model()
    assert trials_of(record) == []
    with pytest.raises(ModelError, match="cell_trials has the shape"):
        trials_of(replace(record, arrays=record.arrays | {"cell_trials": np.zeros((2, 3))}))


def test_a_plan_tells_the_memory_and_the_time_of_all_cells_and_of_a_worker_s_share(
    straight: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "BUDGET_SECONDS", 0.0)  # the cells of the sample are placed all the same
    workers = Workers(2)
    plans = [
        run_plan(read_job(straight.job({**EXPERTS, "model.experts": n}), {}), workers, new_model=True)
        for n in (2, 20_000)
    ]
    (need,) = [each for each in workers.needs if each.of == "a share of 20000 cells with max_basis = 8"]
    assert need.bytes == plans[1]["worker_memory_bytes"] > plans[0]["worker_memory_bytes"]
    assert plans[1]["process_memory_bytes"] > plans[0]["process_memory_bytes"] + 8 * 20_000 * 6 * 8**2
    assert plans[0]["train_seconds"] > 0


def test_cells_that_do_not_fit_into_memory_are_refused(straight: Workplace) -> None:
    with pytest.raises(MemoryRefused, match=r"max_basis = 8 in each of 90000 cells needs .*lower max_basis or experts"):
        straight.run_here({**EXPERTS, "model.name": "other", "model.experts": 90_000, "memory_limit": "600MB"})


def test_a_damaged_record_is_refused(straight: Workplace) -> None:
    record = straight.model()
    cells = record.arrays["cells"]
    longer = cells.copy()
    longer[2, 0] = 1e6
    for damaged in (cells.astype(np.int64), cells.ravel(), cells[:, :9], cells[1:], longer, None):
        arrays = {name: array for name, array in record.arrays.items() if name != "cell_centres" or damaged is not None}
        broken = replace(record, arrays=arrays | ({} if damaged is None else {"cells": damaged}))
        for read in (learner_of, model_of):
            with pytest.raises(ModelError, match="damaged"):
                read(broken)
    for damaged in (cells.ravel(), cells[1:], longer):
        with pytest.raises(ModelError, match="damaged"):
            model_of(replace(record, arrays=record.arrays | {"refit_cells": damaged}))


@pytest.mark.thorough
def test_several_targets_a_rollback_and_a_guard(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    changes = {**EXPERTS, **REGRESSION, "source.target": ["price", "other"], "model.guard": 0.1}
    for number, where in ((0, "rows"), (1, "rows"), (1000, "held-out")):
        table = draw_regression(number)
        work.put(number, set_column(table, "other", pa.array(np.cos(column(table, "age")))), where=where)
    work.run_here(changes)
    first = work.model()
    wrong = draw_regression(2)
    wrong = set_column(wrong, "price", pa.array(column(wrong, "price")[::-1].copy()))
    work.put(2, set_column(wrong, "other", pa.array(np.full(ROWS, 40.0))))
    with pytest.raises(Held):
        work.run_here(changes)
    held = work.predict_here("held-out", changes)
    run_rollback(read_job(work.job(changes), {}), 1, 0.0, replay=False)
    assert_same_model(work.model(), first)
    assert work.predict_here("held-out", changes)["prediction_other"].equals(held["prediction_other"])
