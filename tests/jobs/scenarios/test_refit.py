"""Refit as an option of a night: what is served changes, what was learned does not, and the next night may differ."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_diabetes
from support.jobs.jobs import (
    FOREST,
    REGRESSION,
    ROWS,
    Settings,
    Workplace,
    assert_same_model,
    draw_regression,
    draw_rows,
    forest_job,
    open_store,
    put_forest,
    run_command,
    set_column,
)
from support.jobs.recording import Notes
from support.references.dense_refit import assert_solves, dense_refit

from ridgestream.jobs.cluster.cluster_error import ClusterError
from ridgestream.jobs.commands.predict import run_predict
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.commands.train import run_train
from ridgestream.jobs.config.job_file import read_job
from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.memory_plan import RefitPlan
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.dataset.stored_rows import run_task
from ridgestream.pipeline.planning import run_plan
from ridgestream.pipeline.prediction.prediction_columns import Extras
from ridgestream.pipeline.training import refit as refitting
from ridgestream.stores.catalog.models import ModelRecord
from ridgestream.stores.errors.exceptions import StoreError

REFIT: dict[str, Any] = {"model.refit": True}
SERVED = {"coefficients", "refit_products", "refit_rhs", "refit_target_square"}
CALIBRATED = {
    *("probability_scores", "probability_values"),
    *("interval_scores", "interval_weights", "interval_outside", "interval_powers"),
}
PARTITIONS = 6


def assert_same_learner(one: ModelRecord, other: ModelRecord) -> None:
    """Everything from which tomorrow continues is the same, bit for bit."""
    assert (one.parameters, one.encoding, one.learned) == (other.parameters, other.encoding, other.learned)
    for name in (one.arrays.keys() | other.arrays.keys()) - SERVED - CALIBRATED:
        assert one.arrays[name].tobytes() == other.arrays[name].tobytes(), name
    for name in ("rows_seen", "weight_seen", "penalty", "swaps"):
        assert one.counters[name] == other.counters[name], name


def run_with_notes(work: Workplace, changes: Settings) -> tuple[dict[str, Any], Notes]:
    notes = Notes()
    return run_job(read_job(work.job(changes), {}), InProcess(), notes, 0.0, new_model=False), notes


def nights(folder: Path, *ends: tuple[int, bool | str]) -> Workplace:
    """Run after each of these numbers of partitions, with a refit or without."""
    folder.mkdir(exist_ok=True)
    work = Workplace(folder)
    work.put_all(range(0))
    work.put(0, draw_rows(1000), where="held-out")
    done = 0
    for stop, refit in ends:
        work.put_all(range(done, stop), held_out=0)
        work.run_here({"model.refit": refit})
        done = stop
    return work


OPEN: Settings = dict.fromkeys(
    ("model.kernel.gamma", "model.regularization", "model.max_basis", "model.metric", "model.scaling_rows")
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """One run without a refit."""
    return nights(tmp_path_factory.mktemp("plain"), (PARTITIONS, False))


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """One run with a refit."""
    return nights(tmp_path_factory.mktemp("straight"), (PARTITIONS, True))


def test_a_refit_leaves_the_learner_as_it_is_and_serves_the_direct_solution(
    plain: Workplace, straight: Workplace
) -> None:
    one, other = plain.model(), straight.model()
    assert_same_learner(one, other)
    assert set(other.arrays) - set(one.arrays) == SERVED - {"coefficients"}
    assert_solves(other, dense_refit(open_store(straight.store), other))
    assert one.arrays["coefficients"].tobytes() != other.arrays["coefficients"].tobytes()
    assert (one.history[-1].refitted, other.history[-1].refitted) == (False, True)
    assert one.history[-1].progressive_error == other.history[-1].progressive_error


@pytest.mark.samples
@pytest.mark.parametrize(
    "ends",
    [
        [(1, False), (PARTITIONS, True)],
        [(3, True), (PARTITIONS, True)],
        [(1, True), (2, False), (5, True), (PARTITIONS, True)],
        [(PARTITIONS, False), (PARTITIONS, True)],
        [(5, True), (PARTITIONS, False), (PARTITIONS, True)],
    ],
)
def test_where_nights_ended_and_which_were_refitted_leaves_no_trace(
    tmp_path: Path, straight: Workplace, ends: list[tuple[int, bool]]
) -> None:
    work = nights(tmp_path / "work", *ends)
    assert_same_model(work.model(), straight.model())
    assert work.model().history[-1].test_error == straight.model().history[-1].test_error
    assert [night.refitted for night in work.model().history] == [refit for _, refit in ends]


@pytest.mark.thorough
def test_a_night_without_a_refit_serves_the_stream_again_and_says_so(tmp_path: Path, plain: Workplace) -> None:
    work = nights(tmp_path / "work", (4, True))
    work.put_all(range(4, PARTITIONS), held_out=0)
    summary, notes = run_with_notes(work, {})
    assert summary["refitted"] is False
    assert "train.not_refitted" in notes.codes
    assert_same_model(work.model(), plain.model())
    work.put(PARTITIONS)
    assert "train.not_refitted" not in run_with_notes(work, {})[1].codes


@pytest.mark.thorough
def test_a_refit_requested_later_is_a_separate_night_and_is_done_once(tmp_path: Path, straight: Workplace) -> None:
    work = nights(tmp_path / "work", (PARTITIONS, False))
    before = work.model()
    summary, notes = run_with_notes(work, REFIT)
    assert notes.steps == ["ingest", "check_held_out", "refit", "evaluate"]
    assert (summary["new_partitions"], summary["new_rows"], summary["refitted"]) == (0, 0, True)
    assert summary["test_error"] == straight.model().history[-1].test_error
    assert summary["progressive_error"] == before.history[-1].progressive_error
    assert summary["train_seconds"] > 0
    night = work.model().history[-1]
    assert (night.partitions, night.rows, night.rows_seen) == ((), 0, PARTITIONS * ROWS)
    assert (night.progressive_error, night.refitted) == (None, True)
    assert_same_model(work.model(), straight.model())
    for changes in (REFIT, {}):
        again, notes = run_with_notes(work, changes)
        assert (again["snapshot"], again["refitted"], again["train_seconds"]) == (summary["snapshot"], True, 0.0)
        assert notes.steps == ["ingest"]
    message = next(iter(open_store(work.store).repository.ancestry(branch="main"))).message
    assert message == "Refit model"


def test_train_alone_refits_too(tmp_path: Path, straight: Workplace) -> None:
    work = nights(tmp_path / "work", (PARTITIONS, False))
    summary = run_train(read_job(work.job(REFIT), {}), InProcess(), Silent(), 0.0, new_model=False)
    assert (summary["new_partitions"], summary["refitted"]) == (0, True)
    assert_same_model(work.model(), straight.model())


@pytest.mark.thorough
def test_a_new_model_begins_with_a_refit(tmp_path: Path, straight: Workplace) -> None:
    work = nights(tmp_path / "work", (PARTITIONS, False))
    assert work.run_here(REFIT, new_model=True)["refitted"] is True
    assert_same_model(work.model(), straight.model())
    assert len(work.model().history) == 1


def test_a_store_without_a_model_has_nothing_to_refit(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    work.put(0, draw_rows(0).slice(0, 0))
    summary = work.run_here({**REFIT, "evaluate.path": None})
    assert (summary["model"], summary["refitted"], summary["n_basis"]) == (None, False, 0)


@pytest.mark.thorough
def test_a_partition_without_rows_changes_no_bit_of_a_refit(tmp_path: Path, straight: Workplace) -> None:
    work = nights(tmp_path / "work", (PARTITIONS, True))
    work.put(PARTITIONS, draw_rows(0).slice(0, 0))
    assert work.run_here(REFIT)["partitions_consumed"] == PARTITIONS + 1
    one, other = work.model(), straight.model()
    for name, array in one.arrays.items():
        assert array.tobytes() == other.arrays[name].tobytes(), name


def test_rows_of_weight_zero_are_absent_and_others_count_by_their_weights(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number in range(3):
        weights = np.random.default_rng([number, 2]).choice([0.0, 1.0, 2.5], ROWS)
        work.put(number, set_column(draw_rows(number), "w", np.zeros(ROWS) if number == 1 else weights))
    changes = {**REFIT, "source.weight": "w", "evaluate.path": None, "model.scaling_rows": "all"}
    work.run_here(changes)
    record, dense = work.model(), dense_refit(open_store(work.store), work.model())
    assert_solves(record, dense)
    assert record.counters["refit_weight"] == record.counters["weight_seen"] == dense.weights.sum()
    assert record.counters["refit_rows"] == 3 * ROWS > (dense.weights > 0).sum()


def test_error_bars_of_a_refitted_model_are_those_of_the_direct_formula(tmp_path: Path) -> None:
    """On the rows learned, whose kernel values the dense refit has, as the store rounded them; in target units."""
    work = Workplace(tmp_path)
    for number in range(3):
        work.put(number, draw_regression(number))
    changes = {**REGRESSION, **REFIT, "evaluate.path": None}
    work.run_here(changes)
    job = read_job(work.job(changes), {})
    run_predict(job, work.folder / "rows", work.folder / "out", InProcess(), Silent(), extras=Extras(std=True))
    table, record = pq.read_table(work.folder / "out"), work.model()
    dense = dense_refit(open_store(work.store), record)
    k, scale = dense.values, record.encoding["target_scale"][0]
    novelty = np.maximum(1 - np.einsum("ij,ij->i", k @ np.linalg.inv(dense.gram), k), 0)
    leverage = np.einsum("ij,ij->i", k @ np.linalg.inv(dense.normal_matrix), k)
    variance = dense.noise * (novelty / dense.penalty + leverage)
    np.testing.assert_allclose(table["std"].to_numpy(), scale * np.sqrt(variance), rtol=1e-4)
    np.testing.assert_allclose(table["std_observed"].to_numpy(), scale * np.sqrt(variance + dense.noise), rtol=1e-6)
    predicted = (k @ dense.coefficients)[:, 0] * scale + record.encoding["target_centre"][0]
    np.testing.assert_allclose(table["prediction"].to_numpy(), predicted, rtol=1e-7)


def test_a_refit_beyond_the_memory_limit_is_refused_before_any_ingest(tmp_path: Path) -> None:
    work = nights(tmp_path / "work", (2, False))
    work.put(2)
    snapshot = work.snapshot()
    for model in ("model", "other"):
        changes = {"model.name": model, "model.max_basis": 20, "memory_limit": "460MB"}
        with pytest.raises(MemoryRefused, match=r"refitting with max_basis = 20 needs .* 460 MB may be used"):
            work.run_here({**changes, **REFIT})
        assert work.snapshot() == snapshot
    assert work.run_here({"memory_limit": "460MB"})["new_partitions"] == 1


class LosesWorkers(InProcess):
    """An executor whose cluster dies at a refit's task."""

    def run(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        for done, result in enumerate(super().run(function, tasks, *shared)):
            if function is run_task and done == 2:
                raise ClusterError("the cluster has lost its workers")
            yield result


@pytest.mark.thorough
def test_a_cluster_lost_in_mid_refit_keeps_what_was_learned_and_the_same_command_refits(
    tmp_path: Path, plain: Workplace, straight: Workplace
) -> None:
    work = nights(tmp_path / "work")
    work.put_all(range(PARTITIONS), held_out=0)
    job = read_job(work.job(REFIT), {})
    said = "lost its workers; the model has learned and is kept, without its refit and a test error"
    with pytest.raises(ClusterError, match=said):
        run_job(job, LosesWorkers(), Silent(), 0.0, new_model=False)
    assert_same_model(work.model(), plain.model())
    assert work.model().history[-1].refitted is False
    snapshot = work.snapshot()
    with pytest.raises(ClusterError, match=r"the cluster has lost its workers$"):
        run_job(job, LosesWorkers(), Silent(), 0.0, new_model=False)
    assert work.snapshot() == snapshot
    assert work.run_here(REFIT)["refitted"] is True
    assert_same_model(work.model(), straight.model())


def test_old_rows_that_are_gone_are_an_error_that_changes_nothing(tmp_path: Path) -> None:
    work = nights(tmp_path / "work", (3, False))
    before, snapshot = work.model(), work.snapshot()
    chunks = sorted((work.store / "chunks").rglob("*"), key=lambda path: path.stat().st_size)
    chunks[-2].unlink()  # the largest has the predictions that the model keeps
    with pytest.raises(StoreError, match=r"segments/[-\d]+/?\w* of the store"):
        work.run_here(REFIT)
    assert work.snapshot() == snapshot
    assert work.model().history == before.history


def test_the_flag_goes_before_the_job_file_and_the_command_shows_what_was_refitted(tmp_path: Path) -> None:
    work = nights(tmp_path / "work")
    work.put_all(range(2), held_out=0)
    done = run_command("run", work.job(), "--refit")
    assert done.events[:5] == ["ingest", "check_held_out", "train", "refit", "evaluate"]
    assert "            refitted  yes\n" in done.out
    work.put(2)
    summary = run_command("run", work.job(REFIT), "--set", "model.refit=true", "--no-refit", "--json").result
    assert summary["refitted"] is False
    summary = run_command("train", work.job(), "--set", "model.refit=true", "--json").result
    assert summary["refitted"] is True
    inspected = run_command("inspect", work.store, "--json").result["models"][0]
    assert inspected["refitted"] is True
    assert [night["refitted"] for night in inspected["history"]] == [True, False, True]
    shown = run_command("inspect", work.store).out
    assert "model model: 20 basis vectors, refitted, 3 partitions consumed" in shown
    assert (shown.count(" 20* "), shown.count(" 20 "), shown.count("* refitted")) == (2, 2, 1)  # the title has a 20


def test_a_refit_lowers_the_error_of_a_small_dictionary_on_forest(tmp_path: Path) -> None:
    """10,000 rows, 100 vectors: some points; the benchmark forest_error.py has the figures on the whole test set."""
    work = Workplace(tmp_path)
    put_forest(work, 10_000, 2)
    work.put(0, pq.read_table(FOREST / "test" / "part-00.parquet").slice(0, 20_000), where="held-out")
    changes = {
        **forest_job(10_000, 2, max_basis=100),
        "model.regularization": 1e-5,
        "model.kernel.gamma": 1 / 54,
        "evaluate.path": "held-out",
    }
    without = work.run_here(changes)["test_error"]
    summary = work.run_here({**changes, **REFIT})
    assert summary["test_error"] < without - 0.03
    assert summary["test_error"] < 0.26


def test_a_refit_is_kept_where_rows_are_few_for_the_dictionary(tmp_path: Path, straight: Workplace) -> None:
    work = nights(tmp_path / "auto", (PARTITIONS, "auto"))
    record = work.model()
    night = record.history[-1]
    assert night.refitted
    assert night.refit_gain is not None
    assert night.refit_gain > 0.01
    assert_same_model(record, straight.model())


def test_a_refit_is_tried_again_where_only_the_penalty_changes(tmp_path: Path) -> None:
    work = nights(tmp_path / "auto", (PARTITIONS, "auto"))
    changed = {"model.refit": "auto", "model.regularization": 1e-4}
    assert work.run_here(changed)["refitted"]
    assert work.model().history[-1].refit_gain is not None


def test_a_refit_is_left_to_the_rows_by_default(tmp_path: Path) -> None:
    assert read_job(Workplace(tmp_path).job({"model.refit": None}), {}).model.refit == "auto"


def test_a_refit_that_gains_nothing_is_dropped_and_leaves_the_learner_s_coefficients(
    tmp_path: Path, plain: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ridgestream.pipeline.training.refit.LEAST_GAIN", 0.9)
    work = nights(tmp_path / "auto", (PARTITIONS, "auto"))
    record = work.model()
    assert not record.history[-1].refitted
    assert_same_model(record, plain.model())


@pytest.mark.thorough
def test_rows_are_left_out_of_each_model_with_its_own_penalty(tmp_path: Path) -> None:
    """By the leverage of the other's λ, the learner's error would seem smaller: a refit is kept where it is better."""
    data = load_diabetes()
    table = pa.table({**{f"x{i}": x for i, x in enumerate(data.data.T)}, "target": data.target})
    order = np.random.default_rng(1).permutation(len(table))
    work = Workplace(tmp_path)
    work.put(0, table.take(order[:200]))
    work.put(0, table.take(order[200:]), where="held-out")
    changes = {**OPEN, "source.target": "target", "source.positive": None}
    kept = work.run_here({**changes, "model.refit": None})
    plain = work.run_here({**changes, "model.refit": False, "model.name": "plain"})
    assert kept["refitted"]
    assert kept["test_mse"] < plain["test_mse"]


def test_no_refit_is_tried_where_rows_are_many_or_the_dictionary_is_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ridgestream.pipeline.training.refit.FEW_ROWS", 5)
    assert nights(tmp_path / "many", (2, "auto")).model().history[-1].refit_gain is None
    monkeypatch.undo()
    (tmp_path / "fixed").mkdir()
    work = Workplace(tmp_path / "fixed")
    work.put_all(range(1))
    fixed = {"model.refit": "auto", "model.max_basis": None, "model.selection": "fixed", "model.random_basis": 10}
    work.run_here(fixed)
    assert work.model().history[-1].refit_gain is None


@pytest.mark.parametrize("planned", ["plan_refit", "plan_refit_of"], ids=["before", "after"])
def test_a_refit_that_does_not_fit_is_refused_and_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: str
) -> None:
    """Before the first row is learned, as far as that can be known; memory never decides which model is served."""
    large = RefitPlan(10**5, 3, 2**20, 2**20)
    monkeypatch.setattr(run_plan if planned == "plan_refit" else refitting, planned, lambda *_: large)
    work = Workplace.new(tmp_path / "work", range(1))
    changes: Settings = {"model.refit": "auto", "memory_limit": "2GB"}
    with pytest.raises(MemoryRefused, match=r"refitting with max_basis = 100000 .* set refit = false"):
        work.run_here(changes)
    if planned == "plan_refit_of":
        assert len(work.model().history) == 1
    assert Workplace.new(tmp_path / "other", range(1)).run_here({**changes, "model.refit": False})["refitted"] is False
