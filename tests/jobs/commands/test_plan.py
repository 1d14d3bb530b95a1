"""The plan of a job compared with what its run does; planning changes nothing."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.jobs.clusters import real_cluster
from support.jobs.jobs import REGRESSION, Workplace, draw_regression, draw_rows, run_command, set_column
from support.jobs.recording import Notes
from support.points import points

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.commands.history import run_rollback
from ridgestream.jobs.commands.plan import run_plan
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.requests import model_request
from ridgestream.pipeline.base import memory_plan
from ridgestream.pipeline.base.errors import MemoryRefused
from ridgestream.pipeline.base.events import Step
from ridgestream.pipeline.base.executor import Executor, InProcess
from ridgestream.pipeline.base.memory_plan import BatchPlan
from ridgestream.pipeline.base.reporter import Fact
from ridgestream.pipeline.batch.ols import OLSSettings
from ridgestream.pipeline.batch.registry import METHODS
from ridgestream.pipeline.planning import run_estimate
from ridgestream.pipeline.planning.timing import Estimate, Timing
from ridgestream.pipeline.training.online import shared_cells
from ridgestream.pipeline.training.request import BatchRequest
from ridgestream.pipeline.training.trainer import trainer_of
from ridgestream.stores.errors.exceptions import ModelError, PartitionError

GRID = [1e-5, 1e-4]
SETTINGS: dict[str, dict[str, Any]] = {
    "online": {},
    "shard-merge-select": {"shard_merge_select.shards": 3, "shard_merge_select.shard_basis": 30},
    "ols": {},
    "efvs": {},
    "fvs": {},
    "orols": {"regularization": None},
    "isls-svm": {"isls_svm.start_basis": 60, "isls_svm.start": "efvs", "kernel.gamma": [0.3, 0.4]},
    "subset-of-regressors": {
        "max_basis": None,
        "subset_of_regressors.start": "k-means",
        "subset_of_regressors.start_basis": 40,
    },
    "ls-svm": {"max_basis": None, "regularization": GRID},
    "sls-svm": {"sls_svm.step": 0.5, "folds": 2},
    "kernel-ridge": {"max_basis": None, "regularization": GRID},
}


def settings_of(method: str, **changes: Any) -> dict[str, Any]:
    settings = {"method": method, "kernel.gamma": 0.4, "max_basis": 40, **SETTINGS[method], **changes}
    return {f"model.{key}": value for key, value in settings.items()}


class Passes(Notes):
    """Counts the passes over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def begin(self, step: Step, total_rows: int | None, **facts: Fact) -> None:
        super().begin(step, total_rows, **facts)
        self.passes += total_rows is not None


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    return work


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that plans admitted, in order."""
    byte_counts: list[int] = []
    real = memory_plan.check_plans

    def check(plans: Sequence[Any], limit_bytes: int) -> None:
        real(plans, limit_bytes)
        byte_counts.extend(each.total_bytes for each in plans)

    for module in ("pipeline.training.online.trainer", "pipeline.training.batch", "jobs.commands.train"):
        monkeypatch.setattr(f"ridgestream.{module}.check_plans", check)
    return byte_counts


def plan(
    work: Workplace, changes: dict[str, Any], executor: Executor | None = None, *, new_model: bool = False
) -> dict[str, Any]:
    return run_plan(read_job(work.job(changes), {}), executor or InProcess(), new_model=new_model)


class ThreeWorkers(InProcess):
    """An executor that reports three workers."""

    def count_workers(self) -> int:
        return 3


def run(work: Workplace, changes: dict[str, Any]) -> Passes:
    report = Passes()
    run_job(read_job(work.job(changes), {}), InProcess(), report, 0.0, new_model=False)
    return report


def test_every_method_has_settings_here() -> None:
    assert SETTINGS.keys() == {"online", *METHODS}


@pytest.mark.samples
@pytest.mark.parametrize("method", points(SETTINGS, ["online", "ols", "orols", "shard-merge-select"]))
def test_rows_passes_and_memory_equal_those_of_the_run(method: str, work: Workplace, admitted: list[int]) -> None:
    for rows, new in ((600, 600), (800, 200)):
        if rows > 600:
            work.put(3)
        facts = plan(work, settings_of(method))
        assert (facts["new_rows"], facts["rows_to_learn"], facts["rows"]) == (new, new, rows)
        assert (facts["store_exists"], facts["new_partitions"]) == (rows > 600, new // 200)
        admitted.clear()
        report = run(work, settings_of(method))
        assert facts["process_memory_bytes"] == admitted[-1]
        if facts["passes_are"] == "as planned":
            assert facts["passes"] == report.passes
        seconds = [facts[f"{step}_seconds"] for step in ("ingest", "train", "refit")]
        assert facts["total_seconds"] == pytest.approx(sum(seconds), abs=0.02)
        assert "rows, learned in" in facts["based_on"]
        assert json.loads(json.dumps(facts)) == facts
    assert plan(work, settings_of(method))["based_on"] == "nothing new to learn"


@pytest.mark.thorough
def test_the_number_of_passes_is_a_guess_only_for_orols_and_gcv(work: Workplace) -> None:
    guesses = [m for m in METHODS if plan(work, settings_of(m))["passes_are"] != "as planned"]
    assert guesses == ["orols"]
    assert plan(work, settings_of("ols", **{"ols.gcv": True}))["passes_are"] != "as planned"


def test_a_refit_is_a_pass_and_has_its_own_memory(work: Workplace, admitted: list[int]) -> None:
    facts = plan(work, settings_of("online", refit=True, max_basis=300))
    admitted.clear()
    report = run(work, settings_of("online", refit=True, max_basis=300))
    assert facts["passes"] == report.passes == 2
    assert facts["process_memory_bytes"] == max(admitted)
    seconds = [facts[f"{step}_seconds"] for step in ("ingest", "train", "refit")]
    assert facts["total_seconds"] == pytest.approx(sum(seconds), abs=0.02)


@pytest.mark.samples
@pytest.mark.parametrize("method", ["isls-svm", "shard-merge-select", "kernel-ridge"])
def test_other_regularizations_are_compared_on_all_rows(method: str, work: Workplace, admitted: list[int]) -> None:
    run(work, settings_of(method))
    other = settings_of(method, regularization=[1e-3, 1e-2])
    facts = plan(work, other)
    assert (facts["new_rows"], facts["rows_to_learn"], facts["rows"]) == (0, 0, 600)
    assert facts["tasks_a_pass"] == 3
    assert "rows, learned in" in facts["based_on"]
    admitted.clear()
    report = run(work, other)
    assert facts["passes"] == report.passes > 0
    assert facts["process_memory_bytes"] == admitted[-1]


def test_another_regularization_of_a_stream_costs_a_refit_alone(work: Workplace) -> None:
    run(work, settings_of("online", refit=True))
    other = settings_of("online", refit=True, regularization=1e-3)
    facts = plan(work, other)
    assert (facts["rows_to_learn"], facts["passes"]) == (0, 1)
    assert run(work, other).passes == 2  # the stream, over no rows, and the refit


@pytest.mark.thorough
def test_partitions_that_a_rollback_excluded_are_not_new(work: Workplace) -> None:
    run(work, settings_of("online"))
    work.put(3)
    run(work, settings_of("online"))
    run_rollback(read_job(work.job(settings_of("online")), {}), 1, 0.0, replay=False)
    facts = plan(work, settings_of("online"))
    assert (facts["new_partitions"], facts["rows_to_learn"], facts["rows"], facts["passes"]) == (0, 0, 600, 0)
    assert facts["based_on"] == "nothing new to learn"
    assert run(work, settings_of("online")).codes[-1] == "train.nothing_new"
    work.put(4)
    facts = plan(work, settings_of("online"))
    assert (facts["new_partitions"], facts["rows_to_learn"], facts["rows"], facts["passes"]) == (1, 200, 800, 1)
    assert plan(work, settings_of("online"), new_model=True)["rows_to_learn"] == 1000
    run(work, settings_of("online"))
    assert work.model().learned == (0, 1, 2, 4)


@pytest.mark.samples
@pytest.mark.parametrize(("method", "changes"), [("online", {"refit": True}), ("kernel-ridge", {})])
def test_a_new_partition_without_rows_is_learned_by_a_model(
    method: str, changes: dict[str, Any], work: Workplace
) -> None:
    run(work, settings_of(method, **changes))
    assert plan(work, settings_of(method, **changes))["passes"] == 0
    work.put(3, draw_rows(3).slice(0, 0))
    facts = plan(work, settings_of(method, **changes))
    assert (facts["new_partitions"], facts["rows_to_learn"], facts["rows"]) == (1, 0, 600)
    assert facts["passes"] > 0
    run(work, settings_of(method, **changes))
    assert work.model().learned == (0, 1, 2, 3)
    assert plan(work, settings_of(method, **changes))["passes"] == 0


@pytest.mark.thorough
def test_plan_changes_nothing_and_waits_for_no_lock(work: Workplace) -> None:
    before = sorted(work.folder.rglob("*"))
    job = work.job()
    facts = run_command("plan", job, "--json").result
    assert facts["rows"] == 600
    assert sorted(work.folder.rglob("*")) == sorted([*before, job])
    work.run_here()
    work.put(3)
    files = {path: path.read_bytes() for path in work.store.rglob("*") if path.is_file()}
    work.store.joinpath("writer.lock").touch()
    outcome = run_command("plan", job)
    assert outcome.code == 0
    assert "new_rows  200\n" in outcome.out
    assert {p: p.read_bytes() for p in work.store.rglob("*") if p.is_file() and p.name != "writer.lock"} == {
        path: content for path, content in files.items() if path.name != "writer.lock"
    }


@pytest.mark.parametrize("method", SETTINGS)
def test_a_job_that_cannot_fit_is_refused_as_by_the_run(method: str, work: Workplace) -> None:
    """Before a row is read, with the same message."""
    changes = {**settings_of(method), "memory_limit": 10**6}
    with pytest.raises(MemoryRefused, match="; 1 MB may be used") as planned:
        plan(work, changes)
    assert not work.store.exists()
    with pytest.raises(MemoryRefused, match="; 1 MB may be used") as refused:
        run(work, changes)
    assert str(planned.value) == str(refused.value)


@pytest.mark.parametrize("method", ["isls-svm", "subset-of-regressors"])
def test_all_rows_of_a_given_dictionary_are_planned(method: str, work: Workplace, tmp_path: Path) -> None:
    pq.write_table(draw_rows(9).drop_columns(["label"]), tmp_path / "dictionary.parquet")
    section = method.replace("-", "_")
    given = {f"{section}.start": "given", f"{section}.start_basis": 4, "dictionary": "dictionary.parquet"}
    changes = settings_of(method, **{**given, "kernel.gamma": 0.4})
    admitted_by = trainer_of(model_request(read_job(work.job(changes), {}))).plan_memory(None, 600, 4, 1)
    assert isinstance(admitted_by, BatchPlan)
    assert admitted_by.n_functions == 200 + 1
    assert plan(work, changes)["process_memory_bytes"] == admitted_by.total_bytes


def test_a_job_that_does_not_fit_because_of_its_features_is_refused_with_the_numbers(work: Workplace) -> None:
    wide = draw_rows(0)
    for column in range(400):
        wide = set_column(wide, f"z{column}", wide["x0"].to_numpy() * column)
    for number in range(3):
        work.put(number, wide)
    changes = {**settings_of("online", max_basis=900), "evaluate.path": None}
    needed = plan(work, changes)["process_memory_bytes"]
    changes["memory_limit"] = needed - 1
    with pytest.raises(MemoryRefused, match="lower max_basis, or raise memory_limit") as planned:
        plan(work, changes)
    with pytest.raises(MemoryRefused, match="lower max_basis, or raise memory_limit") as refused:
        run(work, changes)
    assert str(planned.value) == str(refused.value)


@pytest.mark.thorough
def test_another_model_and_missing_folders_are_refused_too(work: Workplace) -> None:
    work.run_here()
    work.put(3)
    with pytest.raises(ModelError, match="max_basis was 20, is 21"):
        plan(work, {"model.max_basis": 21})
    assert plan(work, {"model.max_basis": 21}, new_model=True)["rows_to_learn"] == 800
    with pytest.raises(PartitionError, match="nowhere does not exist"):
        plan(work, {"source.path": "nowhere"})
    outcome = run_command("plan", work.job({"memory_limit": "1MB"}))
    assert (outcome.code, outcome.out) == (exit_codes.MEMORY, "")


def test_unusable_rows_that_would_be_quarantined_give_no_estimate(work: Workplace) -> None:
    for number in range(3):
        work.put(number, set_column(draw_rows(number), "x1", [float("nan")] * 200))
    facts = plan(work, {"source.on_bad": "quarantine"})
    assert facts["based_on"].startswith("no estimate")
    assert facts["rows"] == 600


def test_a_new_model_of_stored_rows_is_estimated_without_those_in_quarantine(work: Workplace) -> None:
    work.put(0, set_column(draw_rows(0), "x1", [float("nan")] * 200))
    quarantines = {"source.on_bad": "quarantine"}
    work.run_here(quarantines)
    facts = plan(work, quarantines, new_model=True)
    assert facts["n_features"] == 4
    assert facts["based_on"].startswith("the first 400 rows")


def break_rows(work: Workplace) -> dict[str, Any]:
    work.put(2, set_column(draw_rows(2), "x1", [*[0.5] * 150, float("nan"), *[0.5] * 49]))
    return {}


def change_type(work: Workplace) -> dict[str, Any]:
    work.put(2, set_column(draw_rows(2), "x1", ["a"] * 200))
    return {}


def cut_short(work: Workplace) -> dict[str, Any]:
    path = work.folder / "rows" / "part-01.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    return {}


def ask_for_another_class(work: Workplace) -> dict[str, Any]:
    work.run_here()
    work.put(3)
    return {"source.positive": 9}


@pytest.mark.samples
@pytest.mark.parametrize(
    "prepare", points([break_rows, change_type, cut_short, ask_for_another_class], [break_rows, cut_short])
)
def test_errors_in_names_footers_and_first_rows_are_refused_in_the_words_of_the_run(
    work: Workplace, prepare: Callable[[Workplace], dict[str, Any]]
) -> None:
    job = work.job(prepare(work))
    planned, refused = run_command("plan", job), run_command("run", job)
    assert planned.code == refused.code != 0
    assert planned.err == refused.err.splitlines(keepends=True)[-1]


def test_workers_share_passes_but_not_a_stream(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_estimate, "calibrate", lambda *_: Estimate(1.0, 10.0, 600, 1.0))
    one = plan(work, settings_of("ols"))
    three = plan(work, settings_of("ols"), ThreeWorkers())
    assert (one["train_seconds"], three["train_seconds"]) == (610.0, 210.0)
    assert (three["workers"], three["tasks_a_pass"], three["ingest_tasks"]) == (3, 3, 3)
    assert plan(work, settings_of("online"), ThreeWorkers())["train_seconds"] == 610.0


def test_workers_share_cells_but_each_reads_all_rows(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_cells, "FEWEST_SHARED", 600)
    monkeypatch.setattr(run_estimate, "EVERY_WORKERS_SECONDS", 0.25)
    monkeypatch.setattr(run_estimate, "calibrate", lambda *_: Estimate(1.0, 10.0, 600, 1.0))
    cells = {**settings_of("online"), "model.experts": 2}
    assert [plan(work, cells, *workers)["train_seconds"] for workers in ((), (ThreeWorkers(),))] == [610.0, 385.0]
    monkeypatch.setattr(shared_cells, "FEWEST_SHARED", 601)  # too few to be worth sending
    assert plan(work, cells, ThreeWorkers())["train_seconds"] == 610.0


def test_a_trial_that_has_learned_all_rows_is_the_estimate(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timing, "whole_estimate", lambda _, n_rows: Estimate(1.0, 10.0, n_rows, 1.0))
    assert plan(work, settings_of("online", max_basis=1000))["train_seconds"] == 610.0


@pytest.mark.thorough
@pytest.mark.parametrize("cluster", points(["tcp://127.0.0.1:1", "file:nowhere.json"], ["file:nowhere.json"]))
def test_an_unreachable_cluster_is_refused_as_by_the_run(work: Workplace, cluster: str) -> None:
    job = work.job({"cluster_seconds": 1})
    outcomes = [run_command(verb, job, "--cluster", cluster) for verb in ("run", "plan")]
    assert [outcome.code for outcome in outcomes] == [exit_codes.CLUSTER] * 2
    assert len({outcome.err.splitlines()[-1] for outcome in outcomes}) == 1, outcomes
    assert not work.store.exists()


@pytest.mark.thorough
@pytest.mark.parametrize("method", points(["online", "ols"], ["ols"]))
def test_a_task_that_does_not_fit_a_worker_is_refused_with_the_numbers_of_the_run(
    work: Workplace, tmp_path: Path, method: str
) -> None:
    job = work.job(settings_of(method))
    unpaused = {"DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False"}  # a worker's imports take about as much
    with real_cluster(tmp_path, 0) as cluster:
        cluster.start_worker("--memory-limit", "410MB", environment=unpaused)
        cluster.wait_for(1)
        outcomes = [run_command(verb, job, "--cluster", cluster.address) for verb in ("plan", "run")]
    assert [outcome.code for outcome in outcomes] == [exit_codes.MEMORY] * 2, outcomes
    assert outcomes[0].err.splitlines()[-1] == outcomes[1].err.splitlines()[-1]
    assert "of memory, and the worker tcp://" in outcomes[0].err


@pytest.mark.thorough
def test_plan_counts_the_present_workers(work: Workplace, tmp_path: Path) -> None:
    with real_cluster(tmp_path, 2) as cluster:
        assert run_command("plan", work.job(), "--cluster", cluster.address, "--json").result["workers"] == 2
    assert run_command("plan", work.job(), "--cluster", "local:2", "--json").result["workers"] == 2


def test_regression_and_several_classes_can_be_planned(work: Workplace, tmp_path: Path) -> None:
    classes = plan(work, {"source.positive": None, "source.classes": "all"})
    assert (classes["rows"], classes["passes"], classes["n_features"]) == (600, 1, 4)
    prices = Workplace(tmp_path / "prices")
    prices.put(0, draw_regression(0))
    assert plan(prices, {**REGRESSION, "evaluate.path": None})["n_features"] == 2


def test_a_method_makes_no_pass_without_rows() -> None:
    request = BatchRequest(
        name="model", method="ols", kernel="rbf", kernels=({},), settings=OLSSettings(max_basis=5), scaling_rows=None
    )
    trainer = trainer_of(request)
    assert trainer.passes(None, 0, 0) == ()
    assert trainer.passes_are_certain(None)
