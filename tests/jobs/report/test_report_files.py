"""Reports of runs: they agree with the run and the store, and there is one for failed runs too."""

import json
import os
from pathlib import Path
from typing import Any

import icechunk
import numpy as np
import pytest
from support.jobs.jobs import (
    REGRESSION,
    ROWS,
    Workplace,
    assert_same_model,
    clean_environment,
    draw_regression,
    draw_rows,
    run_command,
    set_column,
)
from support.jobs.recording import Notes

from ridgestream.jobs.cli.exit_codes import UNREPORTED
from ridgestream.jobs.commands.ingest import run_ingest
from ridgestream.jobs.commands.inspect import run_inspect
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.commands.train import Held, run_train
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.requests import report_folder
from ridgestream.jobs.config.values import JobFileError
from ridgestream.jobs.report.page import html_page as report_page
from ridgestream.jobs.report.report_files import Unreported, report_night, run_report
from ridgestream.jobs.runs.recorder import Recorder
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.training.online.checkpoints import OnlineCheckpoints
from ridgestream.stores.errors.exceptions import ModelError, PartitionError, StoreError
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(3))
    return work


def reported(work: Workplace, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run with reports where they go by default, and return the result."""
    result = work.run_here({"report": None} | (changes or {}))
    assert result["report"]["json"].endswith(".json")
    return result


def read(result: dict[str, Any]) -> dict[str, Any]:
    facts = json.loads(Path(result["report"]["json"]).read_text())
    assert isinstance(facts, dict)
    return facts


def inspected(work: Workplace) -> dict[str, Any]:
    return run_inspect(StoreLocation(str(work.store)))


def reports(work: Workplace, folder: str = "store-reports") -> list[str]:
    return sorted(path.name for path in (work.folder / folder).iterdir())


def test_a_report_agrees_with_the_run_and_the_store(work: Workplace) -> None:
    result = reported(work)
    facts, model = read(result), inspected(work)["models"][0]
    figures = facts["figures"]
    for name in ("rows_seen", "n_basis", "test_error", "progressive_error", "refitted", "partitions_consumed"):
        assert figures[name] == result[name], name
    assert (figures["new_rows"], figures["new_partitions"]) == (3 * ROWS, 3)
    assert figures["train_seconds"] == result["train_seconds"]
    assert figures["swaps"] == model["counters"]["swaps"]
    assert (facts["model"], facts["night"], facts["event"]) == ("model", 1, "train")
    assert (facts["snapshot"], facts["data_snapshot"]) == (result["snapshot"], model["data_snapshot"])
    assert (facts["served_night"], facts["held"], facts["guard"], facts["failure"]) == (1, False, None, None)
    assert facts["numerics"]["normal_condition"] == result["condition"]
    assert facts["numerics"]["rounding_error"] == result["rounding_error"]
    card = facts["card"]
    assert card["parameters_hash"] == model["parameters_hash"]
    assert card["regularization"] == model["parameters"]["regularization"]
    assert card["kernel"] == model["parameters"]["learner"]["kernel"]
    assert (card["rows_in_store"], card["partitions_in_store"]) == (3 * ROWS, 3)
    assert {"python", "ridgestream", "numpy", "icechunk"} <= card["versions"].keys()


def test_partitions_and_their_drift_are_those_of_inspect(work: Workplace) -> None:
    broken = set_column(draw_rows(3), "x3", np.asarray(draw_rows(3)["x3"]) + 70.0)
    reported(work)
    work.put(3, broken)
    result = reported(work)
    facts, drifts = read(result), inspected(work)["models"][0]["drift"]
    assert [each["partition"] for each in facts["partitions"]] == ["part-03.parquet"]
    (tonight,) = facts["partitions"]
    of_inspect = drifts[-1]
    for name in ("partition", "rows", "progressive_error", "error_limit", "suspect"):
        assert tonight[name] == of_inspect[name], name
    assert tonight["largest_psi"] == max(column["psi"] for column in of_inspect["columns"].values())
    assert (tonight["of_column"], tonight["moved"], tonight["suspect"]) == ("x3", ["x3"], True)
    assert result["suspects"] == ["part-03.parquet"]
    assert facts["words"]["state"] == "look"
    assert any("part-03.parquet: x3 moved" in sentence for sentence in facts["words"]["sentences"])


def test_the_course_ends_where_the_night_ends(work: Workplace) -> None:
    work.put(3, draw_rows(3, 2000))
    result = reported(work)
    course = read(result)["course"]
    assert course["rows"][-1] == result["new_rows"] == 2600
    assert course["n_basis"][-1] == result["n_basis"]
    assert course["swaps"][-1] == inspected(work)["models"][0]["counters"]["swaps"]
    assert course["running_error"][-1] == pytest.approx(result["progressive_error"], rel=1e-12)
    assert len({len(column) for column in course.values()}) == 1
    assert len(course["rows"]) > 8


def test_the_stages_are_those_of_the_run(work: Workplace) -> None:
    stages = {stage["stage"]: stage for stage in read(reported(work, {"model.refit": True}))["stages"]}
    assert {"ingest", "train", "evaluate"} <= stages.keys()
    assert [stages[name]["rows"] for name in ("ingest", "train", "evaluate")] == [3 * ROWS, 3 * ROWS, ROWS]
    sizes = {name: sum(path.stat().st_size for path in (work.folder / name).iterdir()) for name in ("rows", "held-out")}
    assert stages["ingest"]["bytes"] == sizes["rows"]
    assert stages["evaluate"]["bytes"] == sizes["held-out"]
    assert stages["train"]["bytes"] >= 3 * ROWS * 4 * 4
    assert sum(stage["seconds"] for stage in stages.values()) > 0


def test_a_report_leaves_no_trace_in_the_model(work: Workplace, tmp_path: Path) -> None:
    other = Workplace(tmp_path / "other")
    other.put_all(range(3))
    reported(work)
    other.run_here()
    assert_same_model(work.model(), other.model())
    assert not (other.folder / "store-reports").exists()


def test_the_confusion_matrix_of_one_class_against_the_rest_adds_up(work: Workplace) -> None:
    result = reported(work)
    confusion = read(result)["evaluation"]["confusion"]
    weights = np.array(confusion["weights"])
    assert confusion["classes"] == ["2", "all others"]
    assert weights.sum() == ROWS
    assert (weights[0, 1] + weights[1, 0]) / ROWS == result["test_error"]
    judged = work.evaluate_here()
    assert (weights[0].sum(), weights[0, 0]) == (judged["positive"], judged["true_positive"])


@pytest.mark.parametrize(("positive", "name"), [(0, "0"), (False, "false")])
def test_the_class_that_counts_may_be_zero_or_false(tmp_path: Path, positive: int, name: str) -> None:
    work = Workplace(tmp_path)
    for where in ("rows", "held-out"):
        rows = draw_rows(0)
        labels = [type(positive)(label.as_py() == 2) for label in rows["label"]]
        work.put(0, set_column(rows, "label", labels), where)
    confusion = read(reported(work, {"source.positive": positive}))["evaluation"]["confusion"]
    assert confusion["classes"] == [name, "all others"]


def test_the_confusion_matrix_of_several_classes_is_that_of_inspect(work: Workplace) -> None:
    result = reported(work, {"source.positive": None, "source.classes": "all"})
    assert read(result)["evaluation"]["confusion"] == inspected(work)["models"][0]["confusion"]


@pytest.mark.parametrize(("policy", "rows"), [("impute", ROWS), ("drop", ROWS - 2)])
def test_a_night_with_missing_values_says_how_many_each_column_lacks(work: Workplace, policy: str, rows: int) -> None:
    values = draw_rows(3)["x1"].to_pylist()
    work.put(3, set_column(draw_rows(3), "x1", [None, None, *values[2:]]))
    result = reported(work, {"source.missing": policy})
    assert read(result)["arrivals"]["missing_values"] == {"count": 1, "first": [{"column": "x1", "values": 2}]}
    assert read(result)["figures"]["new_rows"] == 3 * ROWS + rows
    assert "missing values (1): x1 (2 values)" in Path(result["report"]["html"]).read_text()


def test_the_residuals_of_a_regression_are_those_of_all_rows(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number in range(3):
        work.put(number, draw_regression(number))
    work.put(0, draw_regression(1000, 500), where="held-out")
    result = reported(work, dict(REGRESSION))
    facts = read(result)
    assert facts["figures"]["test_mse"] == result["test_mse"]
    (residuals,) = facts["evaluation"]["residuals"]
    assert residuals["target"] == "price"
    assert sum(residuals["weights"]) + residuals["below"] + residuals["above"] == 500
    predicted = np.asarray(work.predict_here("held-out", dict(REGRESSION))["prediction"])
    errors = predicted - np.asarray(draw_regression(1000, 500)["price"])
    edges = residuals["begin"] + residuals["width"] * np.arange(len(residuals["weights"]) + 1)
    assert np.abs(np.histogram(errors, edges)[0] - residuals["weights"]).sum() <= 2


def test_each_night_has_its_report_and_names_sort_by_night(work: Workplace) -> None:
    first = reported(work)
    work.put(3)
    second = reported(work)
    names = ["model-0001.html", "model-0001.json", "model-0002.html", "model-0002.json"]
    assert reports(work) == names
    assert [night["number"] for night in read(second)["nights"]] == [1, 2]
    assert [night["test_error"] for night in read(second)["nights"]] == [first["test_error"], second["test_error"]]


def test_a_run_with_nothing_new_keeps_the_last_report_and_writes_a_missing_one(work: Workplace) -> None:
    first = reported(work)
    kept = {kind: Path(name).read_bytes() for kind, name in first["report"].items()}
    times = {kind: Path(name).stat().st_mtime_ns for kind, name in first["report"].items()}
    again = reported(work)
    assert again["new_rows"] == 0
    assert again["report"] == first["report"]
    assert {kind: Path(name).stat().st_mtime_ns for kind, name in again["report"].items()} == times
    Path(first["report"]["html"]).unlink()
    assert reported(work)["report"] == first["report"]
    assert {kind: Path(name).read_bytes() for kind, name in first["report"].items()} == kept


@pytest.mark.thorough
def test_a_report_of_any_night_is_written_again_from_the_store_alone(work: Workplace) -> None:
    first = reported(work)
    kept = {kind: Path(name).read_bytes() for kind, name in first["report"].items()}
    work.put(3)
    reported(work)
    for path in (work.folder / "rows").iterdir():
        path.unlink()
    done = run_command("report", work.job(), "--night", "1", "--report", work.folder / "again", "--json").result
    assert (done["model"], done["night"]) == ("model", 1)
    assert {kind: Path(done[kind]).read_bytes() for kind in kept} == kept
    assert reports(work, "again") == ["model-0001.html", "model-0001.json"]
    with pytest.raises(ModelError, match="has no night 7: its nights are 1, 2"):
        run_report(read_job(work.job({"report": "out"}), {}), 7)
    with pytest.raises(JobFileError, match="give --report FOLDER"):
        run_report(read_job(work.job({"report": "none"}), {}), None)


def test_a_job_says_where_reports_go_or_that_there_are_none(work: Workplace) -> None:
    result = reported(work, {"report": "out/nights"})
    assert result["report"]["json"] == str(work.folder / "out" / "nights" / "model-0001.json")
    assert work.run_here({"report": "none", "model.name": "quiet"})["report"] is None
    assert list(work.folder.glob("**/quiet*.json")) == []
    with pytest.raises(JobFileError, match="'ftp://host/reports' must be a path, or a URL of s3, gs"):
        work.run_here({"report": "ftp://host/reports", "model.name": "nowhere"})
    assert {model["name"] for model in inspected(work)["models"]} == {"model", "quiet"}


@pytest.mark.parametrize(
    ("store", "folder"),
    [
        ("store", "/folder/store-reports"),
        ("s3://bucket/stores/a/", "s3://bucket/stores/a-reports"),
        ("abfs://container@account/a", "abfs://container@account/a-reports"),
        ("gs://bucket", "None"),
    ],
)
def test_reports_go_beside_the_store_and_into_no_other_bucket(store: str, folder: str, work: Workplace) -> None:
    at = report_folder(read_job(work.job({"report": None, "store": store}), {}))
    assert str(at).replace(str(work.folder), "/folder") == folder


def test_a_store_that_is_a_whole_bucket_has_no_folder_for_reports_which_is_a_warning(work: Workplace) -> None:
    work.run_here()
    job = read_job(work.job({"report": None, "store": "s3://bucket"}), {})
    notes = Notes()
    assert report_night(job, Store.open(StoreLocation(str(work.store))), work.model(), Recorder(notes)) is None
    assert notes.codes[-1] == "report.no_folder"


@pytest.mark.thorough
def test_the_flag_goes_before_the_job_file_and_is_relative_to_the_user(work: Workplace, tmp_path: Path) -> None:
    where = tmp_path / "elsewhere"
    where.mkdir()
    result = run_command("run", work.job({"report": "none"}), "--report", "mine", "--json", cwd=where).result
    assert result["report"] == {kind: str(where / "mine" / f"model-0001.{kind}") for kind in ("json", "html")}
    assert reports(work, "elsewhere/mine") == ["model-0001.html", "model-0001.json"]


def test_a_night_that_the_guard_holds_back_is_reported_with_what_the_guard_did(work: Workplace) -> None:
    job = {"report": "out", "model.guard": 0.02, "model.usefulness_threshold": 1.0}
    work.run_here(job)
    for number in (3, 4):
        spoilt = np.asarray(draw_rows(number)["label"])
        work.put(number, set_column(draw_rows(number), "label", np.where(spoilt == 2, 1, 2)))
    with pytest.raises(Held, match="night 1 continues to be served") as raised:
        work.run_here(job)
    facts = read(raised.value.result)
    assert (facts["night"], facts["held"], facts["served_night"]) == (2, True, 1)
    assert facts["guard"]["now"] == raised.value.result["test_error"]
    assert facts["guard"]["now"] > facts["guard"]["before"] + facts["guard"]["margin"]
    assert (facts["guard"]["margin"], facts["guard"]["served"]) == (0.02, 1)
    assert facts["words"]["state"] == "held"
    assert any("night 1 continues to be served" in sentence for sentence in facts["words"]["sentences"])
    assert reports(work, "out") == [f"model-000{night}.{kind}" for night in (1, 2) for kind in ("html", "json")]


def test_a_night_that_could_not_be_evaluated_is_reported_with_the_reason(work: Workplace) -> None:
    work.put(0, set_column(draw_rows(1000), "x0", [1e99] * ROWS), where="held-out")
    overflows = {"report": "out", "model.kernel.name": "polynomial", "model.kernel.degree": 5}
    with pytest.raises(PartitionError, match=r"held-out/part-00.parquet.*; the model has learned and is kept"):
        work.run_here(overflows)
    facts = json.loads((work.folder / "out" / "model-0001.json").read_text())
    assert facts["words"]["state"] == "unjudged"
    assert "held-out/part-00.parquet" in facts["failure"]
    assert reports(work, "out") == ["model-0001.html", "model-0001.json"]


def failed(work: Workplace, night: int) -> dict[str, Any]:
    """What the report of a failure has to say, and that it is the last word of that night so far."""
    facts = json.loads((work.folder / "out" / f"model-{night:04d}.failed.json").read_text())
    assert (facts["event"], facts["words"]["state"], facts["night"]) == ("failed", "failed", night)
    assert (facts["model"], facts["method"], facts["store"]) == ("model", "online", str(work.store))
    assert isinstance(facts, dict)
    return facts


def test_a_run_that_fails_leaves_a_report_of_why_and_how_far_it_came(work: Workplace) -> None:
    work.run_here({"report": "out"})
    work.put(3)
    work.put(4, set_column(draw_rows(4), "x1", [None] * ROWS))
    with pytest.raises(PartitionError, match=r"part-04.parquet: column 'x1'") as raised:
        work.run_here({"report": "out"})
    facts = failed(work, 2)
    assert facts["failure"] == str(raised.value)
    assert (facts["error"], facts["where"]["step"]) == ("PartitionError", "ingest")
    assert [stage["stage"] for stage in facts["stages"]] == ["ingest"]
    work.put(4)
    assert work.run_here({"report": "out"})["new_partitions"] == 2
    names = [f"model-{name}.{kind}" for name in ("0001", "0002") for kind in ("html", "json")]
    assert reports(work, "out") == sorted(names)


def test_a_run_that_is_stopped_leaves_a_report_of_how_far_it_came(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(OnlineCheckpoints, "offer", stopped)
    with pytest.raises(KeyboardInterrupt):
        work.run_here({"report": "out"})
    facts = failed(work, 1)
    assert (facts["failure"], facts["where"]) == (
        "KeyboardInterrupt",
        {"step": "train", "rows": 0, "of_rows": 3 * ROWS},
    )
    assert [(stage["stage"], stage["rows"]) for stage in facts["stages"]] == [
        ("ingest", 3 * ROWS),
        ("check held-out rows", ROWS),
        ("train", 0),
    ]


@pytest.mark.parametrize("nights", [0, 1])
def test_a_run_that_fails_before_the_model_is_read_has_its_number_if_there_is_a_store(
    work: Workplace, nights: int
) -> None:
    for _ in range(nights):
        work.run_here({"report": "out"})
    with pytest.raises(PartitionError, match="nowhere"):
        work.run_here({"report": "out", "source.path": "nowhere"})
    facts = failed(work, 2 * nights)
    assert facts["where"] == {}
    assert "nowhere" in facts["failure"]


@pytest.mark.thorough
def test_a_report_that_cannot_be_written_is_an_error_and_the_night_stays(work: Workplace) -> None:
    (work.folder / "out").write_text("no folder")
    done = run_command("run", work.job({"report": "out"}), "--json")
    assert done.code == UNREPORTED, done
    result = json.loads(done.out)
    assert result["report"] is None
    assert result["seconds"] > 0
    assert (result["rows_seen"], result["new_rows"]) == (3 * ROWS, 3 * ROWS)
    assert f"the report {work.folder}/out/model-0001.json cannot be written" in done.err.splitlines()[-1]
    assert work.model().history[-1].rows_seen == 3 * ROWS
    (work.folder / "out").unlink()
    again = work.run_here({"report": "out"})
    assert again["new_rows"] == 0
    assert read(again)["night"] == 1


def test_a_night_that_is_committed_and_not_named_has_not_failed(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object, **__: object) -> None:
        raise OSError("no answer")

    work.run_here()
    work.put(3)
    with monkeypatch.context() as patched:
        patched.setattr(icechunk.Repository, "create_tag_async", refuse)
        with pytest.raises(StoreError, match="cannot be read or written: no answer"):
            reported(work)
    assert not (work.folder / "store-reports").exists()
    assert reported(work)["new_partitions"] == 0
    assert reports(work) == ["model-0002.html", "model-0002.json"]


def test_a_training_alone_is_reported_too_or_its_missing_report_is_an_error(work: Workplace) -> None:
    run_ingest(read_job(work.job(), {}), InProcess(), Silent(), 0.0)
    (work.folder / "out").write_text("no folder")
    job = read_job(work.job({"report": "out"}), {})
    with pytest.raises(Unreported, match=r"out/model-0001.json cannot be written.*has learned and is kept") as raised:
        run_train(job, InProcess(), Silent(), 0.0, new_model=False)
    assert raised.value.result["new_rows"] == 3 * ROWS
    (work.folder / "out").unlink()
    result = run_train(job, InProcess(), Silent(), 0.0, new_model=False)
    assert (read(result)["night"], result["new_rows"]) == (1, 0)


def test_an_error_in_a_report_is_no_failure_of_the_night(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_page, "render_page", lambda facts: facts["nothing"])
    with pytest.raises(Unreported, match="the report cannot be made: KeyError: 'nothing'"):
        work.run_here({"report": "out"})
    assert work.model().history[-1].rows_seen == 3 * ROWS


def test_an_error_stays_the_same_if_its_report_cannot_be_written(work: Workplace) -> None:
    (work.folder / "out").write_text("no folder")
    work.put(0, set_column(draw_rows(4), "x1", [None] * ROWS))
    notes = Notes()
    with pytest.raises(PartitionError, match=r"part-00\.parquet"):
        run_job(read_job(work.job({"report": "out"}), {}), InProcess(), notes, 0.0, new_model=False)
    (code, facts) = notes.events[-1]
    assert code == "report.failure_not_written"
    assert "model-0001.failed.json cannot be written" in str(facts["reason"])


def test_a_report_appears_whole_or_not_at_all(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    result = reported(work)
    before = Path(result["report"]["json"]).read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    work.put(3)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unreported, match=r"model-0002.json cannot be written: No space left on device"):
        reported(work)
    assert reports(work) == ["model-0001.html", "model-0001.json"]
    assert Path(result["report"]["json"]).read_bytes() == before


def test_secrets_are_in_no_log_report_or_commit(work: Workplace) -> None:
    secret = "wJalrXUtnFEMI-K7MDENG"  # noqa: S105
    work.put(3, set_column(draw_rows(3), secret, [1.0] * ROWS))
    (work.folder / "rows" / "part-03.parquet").rename(work.folder / "rows" / f"{secret}.parquet")
    environment = clean_environment(AWS_SECRET_ACCESS_KEY=secret)
    job = work.job({"report": "out", "source.on_bad": "quarantine", "source.features": [f"x{i}" for i in range(4)]})
    work.put(5, set_column(draw_rows(5), "x1", [None] * ROWS)).rename(work.folder / "rows" / f"z-{secret}.parquet")
    done = run_command("run", job, environment=environment)
    assert done.code == 0, done
    assert "***" in done.err
    assert secret not in done.err
    for name in reports(work, "out"):
        text = (work.folder / "out" / name).read_text()
        assert "z-***.parquet" in text
        assert secret not in text
    assert secret not in json.dumps(work.model().run)


@pytest.mark.parametrize("key", ["store", "source.path", "evaluate.path"])
def test_credentials_in_a_url_of_a_job_are_refused_without_being_repeated(work: Workplace, key: str) -> None:
    with pytest.raises(JobFileError, match=f"{key} has credentials in its URL, .* leave them to") as raised:
        read_job(work.job({key: "s3://AKIAEXAMPLE:wJalrXUtnFEMI@bucket/place"}), {})
    assert "wJalrXUtnFEMI" not in str(raised.value)


def test_an_error_is_shown_without_credentials(work: Workplace) -> None:
    answer = run_command("inspect", work.job({"source.wrong": "s3://AKIAEXAMPLE:wJalrXUtnFEMI@bucket/place"}))
    assert answer.code == 2
    assert "source.wrong" in answer.err
    assert "wJalrXUtnFEMI" not in answer.err + answer.out
