"""Rollback to a night, tags, and the guard that decides which model is served."""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

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
    run_command,
    set_column,
)
from support.jobs.recording import Notes

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.cluster.cluster_error import ClusterError
from ridgestream.jobs.commands.clean import run_clean
from ridgestream.jobs.commands.evaluate import run_evaluate, run_evaluate_night
from ridgestream.jobs.commands.history import run_history, run_rollback, run_tag
from ridgestream.jobs.commands.predict import run_predict
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.commands.status import run_status
from ridgestream.jobs.commands.train import Held
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.report.report_files import run_report
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.prediction.evaluate import evaluate_partition
from ridgestream.stores.errors.exceptions import ModelError
from ridgestream.stores.repository.store_location import StoreLocation

GUARD = {"model.guard": 0.02}


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    """Three nights of two partitions each."""
    work = Workplace(tmp_path)
    work.put(0, draw_rows(1000), where="held-out")
    for night in range(3):
        for number in (2 * night, 2 * night + 1):
            work.put(number)
        work.run_here()
    return work


def flipped(seed: int) -> Any:
    """Rows with the wrong class."""
    table = draw_rows(seed)
    return set_column(table, "label", [1 if label == 2 else 2 for label in table["label"].to_pylist()])


def rollback(work: Workplace, night: int, *, replay: bool = False, changes: Settings | None = None) -> dict[str, Any]:
    return run_rollback(read_job(work.job(changes), {}), night, 0.0, replay=replay)


def nights_of(work: Workplace, model: str = "model") -> list[dict[str, Any]]:
    (result,) = run_history(StoreLocation(str(work.store)), model)["models"]
    nights: list[dict[str, Any]] = result["nights"]
    return nights


def predict_at(work: Workplace, snapshot: str | None, changes: Settings | None = None) -> Any:
    output = work.folder / f"predictions-{snapshot}"
    job = read_job(work.job(changes), {})
    run_predict(job, work.folder / "held-out", output, InProcess(), Silent(), snapshot=snapshot)
    return pq.read_table(output)


def straight(tmp_path: Path, numbers: list[int]) -> Workplace:
    work = Workplace(tmp_path / "straight")
    work.put(0, draw_rows(1000), where="held-out")
    for number in numbers:
        work.put(number)
    work.run_here()
    return work


def test_the_history_names_every_night_and_its_snapshot(work: Workplace) -> None:
    nights = nights_of(work)
    assert [night["number"] for night in nights] == [1, 2, 3]
    assert [night["rows_seen"] for night in nights] == [2 * ROWS, 4 * ROWS, 6 * ROWS]
    assert nights[-1]["snapshot"] == work.snapshot()
    assert len({night["snapshot"] for night in nights}) == 3


@pytest.mark.thorough
def test_a_rollback_excludes_what_was_learned_since_for_good(tmp_path: Path, work: Workplace) -> None:
    result = rollback(work, 2)
    assert result["excluded"] == ["part-04.parquet", "part-05.parquet"]
    assert (result["rows_seen"], result["to_learn"], result["from_first_row"]) == (4 * ROWS, 0, False)
    assert work.model().learned == (0, 1, 2, 3)
    snapshot, nothing_new = work.snapshot(), work.run_here()
    assert (nothing_new["new_partitions"], nothing_new["progressive_error"]) == (0, None)
    assert work.snapshot() == snapshot
    work.put(6)
    assert work.run_here()["rows_seen"] == 5 * ROWS
    one, other = work.model(), straight(tmp_path, [0, 1, 2, 3, 6]).model()
    for key, array in other.arrays.items():
        assert array.tobytes() == one.arrays[key].tobytes(), key
    assert (one.counters, one.encoding) == (other.counters, other.encoding)
    events = [(n["number"], n["event"], len(n["partitions"])) for n in nights_of(work)]
    assert events == [(1, None, 2), (2, None, 2), (3, None, 2), (4, "rollback to 2", 0), (5, None, 1)]


@pytest.mark.thorough
def test_replayed_partitions_are_learned_again(tmp_path: Path, work: Workplace) -> None:
    rollback(work, 1)
    result = rollback(work, 1, replay=True)
    assert (result["excluded"], result["to_learn"]) == ([], 4)
    assert work.run_here()["rows_seen"] == 6 * ROWS
    assert_same_model(work.model(), straight(tmp_path, list(range(6))).model())


@pytest.mark.thorough
def test_a_new_model_learns_excluded_partitions(tmp_path: Path, work: Workplace) -> None:
    rollback(work, 1)
    assert work.run_here(new_model=True)["rows_seen"] == 6 * ROWS
    assert_same_model(work.model(), straight(tmp_path, list(range(6))).model())
    assert [night["number"] for night in nights_of(work)] == [5]


@pytest.mark.thorough
def test_excluded_partitions_stay_excluded_when_a_model_is_rebuilt(tmp_path: Path, work: Workplace) -> None:
    rollback(work, 2)
    work.put(0, draw_rows(77))
    work.run_here({"source.on_changed": "rebuild"})
    names = [night["partitions"] for night in nights_of(work)][-1]
    assert list(names) == [f"part-0{n}.parquet" for n in (0, 1, 2, 3)]
    other = Workplace(tmp_path / "other")
    other.put(0, draw_rows(1000), where="held-out")
    other.put(0, draw_rows(77))
    for number in (1, 2, 3):
        other.put(number)
    other.run_here()
    assert work.model().arrays["coefficients"].tobytes() == other.model().arrays["coefficients"].tobytes()


@pytest.mark.samples
@pytest.mark.parametrize("replay", [False, True])
def test_a_rollback_to_before_a_rebuild_says_that_training_starts_again(work: Workplace, replay: bool) -> None:
    notes = Notes()
    assert rollback(work, 3)["next_run"] == "continues from that night"
    work.put(0, draw_rows(77))
    work.run_here({"source.on_changed": "rebuild"})
    result = rollback(work, 3, replay=replay)
    assert (result["from_first_row"], result["to_learn"]) == (True, 5 + replay)
    assert result["next_run"].startswith("trains from the first row")
    again = work.run_here({"source.on_changed": "rebuild"}, report=notes)
    assert again["rows_seen"] == (5 + replay) * ROWS
    assert notes.facts("train.from_first_row") == {
        "rows": (5 + replay) * ROWS,
        "rows_before": 6 * ROWS,
        "rows_excluded": (1 - replay) * ROWS,
    }


def test_a_rollback_goes_to_a_tag_or_a_snapshot(work: Workplace) -> None:
    run_tag(read_job(work.job(), {}), "monday", "2")
    snapshot = nights_of(work)[0]["snapshot"]
    for name, night in (("monday", 2), (snapshot, 1), ("3", 3)):
        assert run_rollback(read_job(work.job(), {}), name, 0.0, replay=False)["night"] == night
    with pytest.raises(ModelError, match="has no night, tag or snapshot 'tuesday'"):
        run_rollback(read_job(work.job(), {}), "tuesday", 0.0, replay=False)


@pytest.mark.thorough
def test_a_batch_model_goes_back_too(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    batch = {
        "model.method": "subset-of-regressors",
        "model.max_basis": None,
        "model.subset_of_regressors.start_basis": 9,
    }
    work.put(0, draw_rows(1000), where="held-out")
    arrays = []
    for number in range(3):
        work.put(number)
        work.run_here(batch)
        arrays.append(work.model().arrays)
    rollback(work, 2, changes=batch)
    for key, array in arrays[1].items():
        assert array.tobytes() == work.model().arrays[key].tobytes(), key
    work.put(3)
    assert work.run_here(batch)["rows_seen"] == 3 * ROWS


@pytest.mark.thorough
def test_predictions_by_a_night_or_a_tag_are_those_of_its_time(work: Workplace) -> None:
    then = predict_at(work, None)
    run_tag(read_job(work.job(), {}), "release-1", None)
    third = nights_of(work)[2]
    assert third["tags"] == ["release-1"]
    run_tag(read_job(work.job(), {}), "first", "1")
    rollback(work, 1)
    now = predict_at(work, None)
    assert not now.equals(then)
    for name in ("3", "release-1", third["snapshot"]):
        assert predict_at(work, name).equals(then)
    for name in ("1", "4", "first"):
        assert predict_at(work, name).equals(now)
    evaluated = run_evaluate(read_job(work.job(), {}), InProcess(), Silent(), snapshot="2")
    assert evaluated["test_error"] == nights_of(work)[1]["test_error"]


def test_unknown_nights_and_tags_are_refused_with_the_known_ones(work: Workplace) -> None:
    with pytest.raises(ModelError, match="the model 'model' has no night 9: its nights are 1, 2, 3"):
        predict_at(work, "9")
    with pytest.raises(ModelError, match="no night 7"):
        rollback(work, 7)
    with pytest.raises(ModelError, match="has no night, tag or snapshot 'release-9'"):
        predict_at(work, "release-9")
    with pytest.raises(ModelError, match="has no night, tag or snapshot 'ZZZZZZZZZZZZZZZZZZZZ'"):
        predict_at(work, "ZZZZZZZZZZZZZZZZZZZZ")
    job = read_job(work.job(), {})
    for name in ("night.model.0009", "9", "a/b", "../x", ""):
        with pytest.raises(JobFileError, match="a tag begins with a letter"):
            run_tag(job, name, None)
    run_tag(job, "mine", "1")
    with pytest.raises(JobFileError, match=r"the tag 'mine' names \w+ already"):
        run_tag(job, "mine", "2")


def guarded(work: Workplace, changes: Settings) -> tuple[dict[str, Any], Notes, bool]:
    notes = Notes()
    try:
        return run_job(read_job(work.job(changes), {}), InProcess(), notes, 0.0, new_model=False), notes, False
    except Held as held:
        return held.result, notes, True


@pytest.mark.thorough
def test_a_model_that_was_held_back_answers_for_its_night_and_can_be_served_after_all(work: Workplace) -> None:
    served = predict_at(work, None)
    for number in (6, 7, 8):
        work.put(number, flipped(number))
    guarded(work, GUARD)
    own = predict_at(work, "4")
    assert predict_at(work, nights_of(work)[-1]["snapshot"]).equals(served)
    for night, is_reported in (("3", False), ("4", True)):
        notes = Notes()
        run_evaluate(read_job(work.job(), {}), InProcess(), notes, snapshot=night)
        assert ("guard.showing_held_model" in notes.codes) == is_reported
    rollback(work, 4)
    assert predict_at(work, None).equals(own)
    assert not own.equals(served)


@pytest.mark.thorough
def test_a_model_that_got_worse_learns_on_and_is_not_served(tmp_path: Path, work: Workplace) -> None:
    served = predict_at(work, None)
    for number in (6, 7, 8):
        work.put(number, flipped(number))
    result, notes, held = guarded(work, GUARD)
    assert held
    assert (result["rows_seen"], result["served_night"], result["dropped_rows"]) == (9 * ROWS, 3, 0)
    facts = notes.facts("guard.model_held_back")
    assert facts["served_night"] == 3
    assert facts["learned"] == "part-06.parquet, part-07.parquet, part-08.parquet"
    assert facts["error"] == result["test_error"] > facts["its_error"] + 0.02  # type: ignore[operator]
    assert predict_at(work, None).equals(served)
    assert not predict_at(work, "4").equals(served)
    assert work.evaluate_here()["test_error"] == facts["its_error"]
    same, _, held = guarded(work, GUARD)
    assert (same["new_partitions"], held) == (0, False)
    work.put(9, flipped(9))
    result, _, held = guarded(work, GUARD)
    assert (held, result["served_night"]) == (True, 3)
    assert predict_at(work, None).equals(served)
    unguarded = Workplace(tmp_path / "unguarded")
    unguarded.put(0, draw_rows(1000), where="held-out")
    for number in range(6):
        unguarded.put(number)
    for number in (6, 7, 8, 9):
        unguarded.put(number, flipped(number))
    unguarded.run_here()
    assert work.model().arrays["normal_matrix"].tobytes() == unguarded.model().arrays["normal_matrix"].tobytes()
    rollback(work, 3)
    work.put(10)
    result, _, held = guarded(work, GUARD)
    assert (held, result["served_night"]) == (False, 6 + 1)
    assert [night["held"] for night in nights_of(work)] == [None, None, None, True, True, None, None]


@pytest.mark.thorough
def test_a_model_that_recovers_is_served_again(work: Workplace) -> None:
    for number in (6, 7):
        work.put(number, flipped(number))
    assert guarded(work, GUARD)[2]
    for number in range(8, 20):
        work.put(number)
    result, _, held = guarded(work, {"model.guard": 0.1})
    assert (held, result["served_night"]) == (False, 5)
    assert work.evaluate_here()["test_error"] == result["test_error"]


@pytest.mark.thorough
def test_in_regression_the_guard_is_a_fraction_of_the_error(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    changes = {**REGRESSION, "model.guard": 0.5}
    work.put(0, draw_regression(1000), where="held-out")
    for number in range(3):
        work.put(number, draw_regression(number))
    assert not guarded(work, changes)[2]
    table = draw_regression(3)
    work.put(3, set_column(table, "price", [0.0] * ROWS))
    result, _, held = guarded(work, changes)
    assert (held, result["served_night"]) == (True, 1)


class LosesEvaluation(InProcess):
    """An executor whose cluster dies as the model is evaluated."""

    def run(self, function: Callable[..., Any], tasks: Iterable[Any], *shared: Any) -> Iterator[Any]:
        if function is evaluate_partition:
            raise ClusterError("the cluster has lost its workers")
        yield from super().run(function, tasks, *shared)


def test_a_model_that_cannot_be_evaluated_is_not_served(work: Workplace) -> None:
    served = predict_at(work, None)
    work.put(6)
    with pytest.raises(ClusterError, match="the model has learned and is kept, without a test error"):
        run_job(read_job(work.job(GUARD), {}), LosesEvaluation(), Silent(), 0.0, new_model=False)
    assert work.model().serves == 3
    assert predict_at(work, None).equals(served)


def test_an_evaluation_that_failed_is_made_up_for_and_its_model_is_served(work: Workplace, tmp_path: Path) -> None:
    work.put(6)
    job = read_job(work.job({**GUARD, "report": "out"}), {})
    with pytest.raises(ClusterError, match=r"without a test error: `ridgestream evaluate JOB.toml --record` makes up"):
        run_job(job, LosesEvaluation(), Silent(), 0.0, new_model=False)
    learned = work.model()
    result = run_evaluate_night(job, InProcess(), Silent(), 0.0)
    (model,) = run_history(StoreLocation(str(work.store)), "model")["models"]
    night = model["nights"][-1]
    assert (len(model["nights"]), night["number"], night["test_error"], night["held"]) == (
        4,
        4,
        result["test_error"],
        None,
    )
    evaluated = work.evaluate_here()
    assert (night["test_error"], night["skill"]) == (evaluated["test_error"], evaluated["skill"])
    assert run_status(job, None)["skill"] == evaluated["skill"]
    assert (model["served_night"], result["served_night"], night["evaluated_at"] is not None) == (4, 4, True)
    assert work.model().arrays.keys() == learned.arrays.keys()
    assert run_status(job, None)["status"] != "failed"
    facts = json.loads((tmp_path / "out" / "model-0004.json").read_text())
    assert (facts["failure"], facts["figures"]["test_error"]) == (None, night["test_error"])
    with pytest.raises(ModelError, match="night 4 of the model 'model' has its errors on held-out rows already"):
        run_evaluate_night(job, InProcess(), Silent(), 0.0)
    work.put(7)
    run_job(job, InProcess(), Silent(), 0.0, new_model=False)
    (tmp_path / "out" / "model-0004.json").unlink()
    assert run_report(job, 4)["night"] == 4
    later = json.loads((tmp_path / "out" / "model-0004.json").read_text())
    assert (later["failure"], later["figures"]) == (None, facts["figures"])


def test_a_guard_needs_held_out_rows(work: Workplace) -> None:
    with pytest.raises(JobFileError, match=r"model\.guard compares errors on held-out rows: it needs evaluate\.path"):
        read_job(work.job({**GUARD, "evaluate.path": None}), {})


@pytest.mark.thorough
def test_the_commands_print_the_same(work: Workplace) -> None:
    job = work.job(GUARD)
    result = run_command("history", job, "--json").result
    assert [night["number"] for night in result["models"][0]["nights"]] == [1, 2, 3]
    shown = run_command("history", work.store)
    assert run_command("history", job, "--json", "--set", "store=nowhere", "--store", work.store).result == result
    assert run_command("inspect", work.store, "--store", work.store).code == exit_codes.USAGE
    assert all(night["snapshot"] in shown.out for night in result["models"][0]["nights"])
    assert all(f" {night['skill']:.3f} " in shown.out for night in result["models"][0]["nights"])
    assert run_command("tag", job, "monday", "--snapshot", "2").code == 0
    assert "monday" in run_command("history", job).out
    for number in (6, 7):
        work.put(number, flipped(number))
    held = run_command("run", job, "--json")
    assert (held.code, json.loads(held.out)["served_night"]) == (exit_codes.HELD, 3)
    assert "the model of night 3 continues to be served" in held.err
    back = run_command("rollback", job, "3", "--json")
    assert back.result["excluded"] == ["part-06.parquet", "part-07.parquet"]
    assert "part-06.parquet" in run_command("history", job).out
    assert run_command("rollback", job, "3", "--replay", "--json").result["to_learn"] == 2
    rejected = run_command("quarantine", job, "part-06.parquet", "--reason", "labels flipped", "--json")
    assert rejected.result["quarantined"] is True
    assert "labels flipped" in run_command("inspect", job).out
    assert run_command("predict", job, work.folder / "held-out", work.folder / "p", "--snapshot", "monday").code == 0
    refused = run_command("rollback", job, "99")
    assert (refused.code, refused.out) == (exit_codes.MODEL, "")


def clean(work: Workplace, keep_nights: int | None) -> dict[str, Any]:
    return run_clean(StoreLocation(str(work.store)), 0.0, 0.0, keep_nights=keep_nights)


@pytest.mark.thorough
def test_a_cleaning_leaves_every_night_or_the_last_ones_and_what_has_a_tag(work: Workplace) -> None:
    run_tag(read_job(work.job(), {}), "first", "1")
    before = predict_at(work, "1")
    assert clean(work, None)["forgotten_nights"] == 0
    assert clean(work, 4)["forgotten_nights"] == clean(work, 3)["forgotten_nights"] == 0
    assert predict_at(work, "1").equals(before)
    assert clean(work, 1)["forgotten_nights"] == 1
    assert predict_at(work, "first").equals(before)
    with pytest.raises(
        ModelError, match="cannot go back to night 2, which a cleaning has deleted: its nights are 1, 3"
    ):
        rollback(work, 2)
    nights = nights_of(work)
    assert [night["number"] for night in nights] == [1, 2, 3]
    assert [bool(night["snapshot"]) for night in nights] == [True, False, True]
    assert "first" in nights[0]["tags"]
    work.put(6)
    assert work.run_here()["rows_seen"] == 7 * ROWS
    assert clean(work, 1)["forgotten_nights"] == 1
    assert clean(work, 1)["forgotten_nights"] == 0
    rollback(work, 1)
    assert predict_at(work, None).equals(before)


@pytest.mark.thorough
def test_a_cleaning_leaves_the_night_that_is_served(work: Workplace) -> None:
    served = predict_at(work, None)
    for number in (6, 7, 8):
        work.put(number, flipped(number))
        guarded(work, GUARD)
    clean(work, 1)
    assert [night["number"] for night in nights_of(work) if night["snapshot"]] == [3, 6]
    assert predict_at(work, None).equals(served)
