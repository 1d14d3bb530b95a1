"""Reports of runs: what the JSON says is what the run and the store say, and there is one whatever happens."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs import (
    REGRESSION,
    ROWS,
    Outcome,
    Workplace,
    assert_same_model,
    clean_environment,
    draw_regression,
    draw_rows,
    run_command,
    set_column,
)

from ridgestream.jobs.inspect import run_inspect
from ridgestream.stores.locations import StoreLocation

HELD, UNREPORTED = 11, 12


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    place = Workplace(tmp_path)
    place.put_all(range(3))
    return place


def reported(work: Workplace, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run with reports where they go by default, and return what is told."""
    told = work.run_here({"report": None} | (changes or {}))
    assert told["report"]["json"].endswith(".json")
    return told


def read(told: dict[str, Any]) -> dict[str, Any]:
    facts = json.loads(Path(told["report"]["json"]).read_text())
    assert isinstance(facts, dict)
    return facts


def inspected(work: Workplace) -> dict[str, Any]:
    return run_inspect(StoreLocation(str(work.store)))


def reports(work: Workplace, folder: str = "store-reports") -> list[str]:
    return sorted(path.name for path in (work.folder / folder).iterdir())


def test_a_report_tells_what_the_run_and_the_store_tell(work: Workplace) -> None:
    told = reported(work)
    facts, model = read(told), inspected(work)["models"][0]
    figures = facts["figures"]
    for name in ("rows_seen", "n_basis", "test_error", "progressive_error", "refitted", "partitions_consumed"):
        assert figures[name] == told[name], name
    assert (figures["new_rows"], figures["new_partitions"]) == (3 * ROWS, 3)
    assert figures["train_seconds"] == told["train_seconds"]
    assert figures["swaps"] == model["counters"]["swaps"]
    assert (facts["model"], facts["night"], facts["event"]) == ("model", 1, "train")
    assert (facts["snapshot"], facts["data_snapshot"]) == (told["snapshot"], model["data_snapshot"])
    assert (facts["served_night"], facts["held"], facts["guard"], facts["failure"]) == (1, False, None, None)
    assert facts["numerics"]["normal_condition"] == told["condition"]
    assert facts["numerics"]["drift"] == told["drift"]
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
    told = reported(work)
    facts, drifts = read(told), inspected(work)["models"][0]["drift"]
    assert [each["partition"] for each in facts["partitions"]] == ["part-03.parquet"]
    (tonight,) = facts["partitions"]
    of_inspect = drifts[-1]
    for name in ("partition", "rows", "progressive_error", "error_limit", "suspect"):
        assert tonight[name] == of_inspect[name], name
    assert tonight["largest_psi"] == max(column["psi"] for column in of_inspect["columns"].values())
    assert (tonight["of_column"], tonight["moved"], tonight["suspect"]) == ("x3", ["x3"], True)
    assert told["suspects"] == ["part-03.parquet"]
    assert facts["words"]["state"] == "look"
    assert any("part-03.parquet: x3 moved" in sentence for sentence in facts["words"]["sentences"])


def test_the_course_ends_where_the_night_ends(work: Workplace) -> None:
    work.put(3, draw_rows(3, 2000))
    told = reported(work)
    course = read(told)["course"]
    assert course["rows"][-1] == told["new_rows"] == 2600
    assert course["n_basis"][-1] == told["n_basis"]
    assert course["swaps"][-1] == inspected(work)["models"][0]["counters"]["swaps"]
    assert course["running_error"][-1] == pytest.approx(told["progressive_error"], rel=1e-12)
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
    assert all(stage["seconds"] >= 0 for stage in stages.values())


def test_a_report_leaves_no_trace_in_the_model(work: Workplace, tmp_path: Path) -> None:
    other = Workplace(tmp_path / "other")
    other.put_all(range(3))
    reported(work)
    other.run_here()
    assert_same_model(work.model(), other.model())
    assert not (other.folder / "store-reports").exists()


def test_of_one_class_against_the_rest_the_confusion_adds_up(work: Workplace) -> None:
    told = reported(work)
    confusion = read(told)["evaluation"]["confusion"]
    weights = np.array(confusion["weights"])
    assert confusion["classes"] == ["2", "all others"]
    assert weights.sum() == ROWS
    assert (weights[0, 1] + weights[1, 0]) / ROWS == told["test_error"]
    judged = work.evaluate_here()
    assert (weights[0].sum(), weights[0, 0]) == (judged["positive"], judged["true_positive"])


def test_of_each_class_the_confusion_is_that_of_inspect(work: Workplace) -> None:
    told = reported(work, {"source.positive": None, "source.classes": "all"})
    assert read(told)["evaluation"]["confusion"] == inspected(work)["models"][0]["confusion"]


def test_of_a_regression_the_residuals_are_all_rows(tmp_path: Path) -> None:
    work = Workplace(tmp_path)
    for number in range(3):
        work.put(number, draw_regression(number))
    work.put(0, draw_regression(1000, 500), where="held-out")
    told = reported(work, dict(REGRESSION))
    facts = read(told)
    assert facts["figures"]["test_mse"] == told["test_mse"]
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


def test_a_run_with_nothing_new_leaves_the_last_report_and_makes_up_for_one_that_lacks(work: Workplace) -> None:
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


def test_a_report_is_made_again_of_any_night_from_the_store_alone(work: Workplace) -> None:
    first = reported(work)
    kept = {kind: Path(name).read_bytes() for kind, name in first["report"].items()}
    work.put(3)
    reported(work)
    for path in (work.folder / "rows").iterdir():
        path.unlink()
    done = run_command("report", work.job(), "--night", "1", "--report", work.folder / "again", "--json").told
    assert (done["model"], done["night"]) == ("model", 1)
    assert {kind: Path(done[kind]).read_bytes() for kind in kept} == kept
    assert reports(work, "again") == ["model-0001.html", "model-0001.json"]
    missing = run_command("report", work.job({"report": "out"}), "--night", "7")
    assert missing.code == 9
    assert "has no night 7: there are 1, 2" in missing.err


def test_a_job_says_where_reports_go_or_that_there_are_none(work: Workplace) -> None:
    assert reports(work, str(Path(reported(work, {"report": "out/nights"})["report"]["json"]).parent))
    assert work.run_here({"report": "none", "model.name": "quiet"})["report"] is None
    assert [path.name for path in work.folder.glob("**/quiet*")] == []
    refused = run_command("run", work.job({"report": "s3://bucket/reports"}))
    assert refused.code == 2
    assert "report: Value error, reports go into a local folder" in refused.err
    off = run_command("report", work.job({"report": "none"}))
    assert off.code == 2
    assert "give --report FOLDER" in off.err


def test_the_flag_goes_before_the_job_file_and_is_relative_to_where_the_user_is(
    work: Workplace, tmp_path: Path
) -> None:
    where = tmp_path / "elsewhere"
    where.mkdir()
    told = run_command("run", work.job({"report": "out"}), "--report", "mine", "--json", cwd=where).told
    assert told["report"]["json"] == str(where / "mine" / "model-0001.json")
    assert run_command("train", work.job({"report": "out"}), "--report", "none", "--json").told["report"] is None
    assert not (work.folder / "out").exists()


def test_a_night_that_the_guard_holds_back_is_reported_with_what_the_guard_did(work: Workplace) -> None:
    job = {"report": "out", "model.guard": 0.02, "model.usefulness_threshold": 1.0}
    run_command("run", work.job(job))
    spoilt = draw_rows(3)
    work.put(3, set_column(spoilt, "label", np.where(np.asarray(spoilt["label"]) == 2, 1, 2)))
    work.put(4, set_column(draw_rows(4), "label", np.where(np.asarray(draw_rows(4)["label"]) == 2, 1, 2)))
    done = run_command("run", work.job(job), "--json")
    assert done.code == HELD, done
    told = json.loads(done.out)
    facts = read(told)
    assert (facts["night"], facts["held"], facts["served_night"]) == (2, True, 1)
    assert facts["guard"]["now"] == told["test_error"] > facts["guard"]["before"] + facts["guard"]["margin"]
    assert facts["guard"]["margin"] == 0.02
    assert facts["words"]["state"] == "held"
    assert any("night 1 goes on being served" in sentence for sentence in facts["words"]["sentences"])


def test_a_night_that_could_not_be_judged_is_reported_with_the_reason(work: Workplace) -> None:
    held_out = work.folder / "held-out" / "part-00.parquet"
    strange = set_column(draw_rows(1000), "x0", [1e200] * ROWS)
    work.put(0, strange, where="held-out")
    done = run_command("run", work.job({"report": "out"}))
    assert done.code == 3, done
    assert str(held_out) in done.err
    facts = json.loads((work.folder / "out" / "model-0001.json").read_text())
    assert facts["words"]["state"] == "unjudged"
    assert str(held_out) in facts["failure"]
    assert reports(work, "out") == ["model-0001.html", "model-0001.json"]


def failed(work: Workplace, night: int, code: int, *arguments: str | Path) -> tuple[Outcome, dict[str, Any]]:
    done = run_command("run", work.job({"report": "out"}), *arguments)
    assert done.code == code, done
    name = f"model-{night:04d}.failed"
    assert {f"{name}.html", f"{name}.json"} <= set(reports(work, "out"))
    facts = json.loads((work.folder / "out" / f"{name}.json").read_text())
    assert (facts["event"], facts["words"]["state"]) == ("failed", "failed")
    return done, facts


def test_a_run_that_fails_leaves_a_report_of_why_and_how_far_it_came(work: Workplace) -> None:
    run_command("run", work.job({"report": "out"}))
    work.put(3)
    work.put(4, set_column(draw_rows(4), "x1", [None] * ROWS))
    done, facts = failed(work, 2, 3)
    assert "part-04.parquet" in done.err
    assert done.err.rstrip().endswith(facts["failure"])
    assert (facts["night"], facts["error"], facts["where"]["step"]) == (2, "PartitionError", "ingest")
    assert (facts["model"], facts["method"]) == ("model", "online")
    work.put(4)
    assert run_command("run", work.job({"report": "out"}), "--json").told["new_partitions"] == 2
    assert "model-0002.json" in reports(work, "out")


def test_a_run_that_fails_before_the_model_is_looked_at_is_of_night_zero(work: Workplace) -> None:
    _, facts = failed(work, 0, 3, "--set", "source.path=nowhere")
    assert (facts["night"], facts["where"]) == (0, {})
    assert "nowhere" in facts["failure"]


@pytest.mark.parametrize("step", ["run", "train"])
def test_a_report_that_cannot_be_written_is_told_and_the_night_is_kept(work: Workplace, step: str) -> None:
    run_command("ingest", work.job())
    (work.folder / "out").write_text("no folder")
    done = run_command(step, work.job({"report": "out"}), "--json")
    assert done.code == UNREPORTED, done
    told = json.loads(done.out)
    assert told["report"] is None
    assert told["seconds"] > 0
    assert (told["rows_seen"], told["new_rows"]) == (3 * ROWS, 3 * ROWS)
    assert f"the report {work.folder}/out/model-0001.json cannot be written" in done.err.splitlines()[-1]
    assert work.model().history[-1].rows_seen == 3 * ROWS
    (work.folder / "out").unlink()
    again = run_command(step, work.job({"report": "out"}), "--json").told
    assert again["new_rows"] == 0
    assert read(again)["night"] == 1


def test_an_error_stays_what_it_was_where_its_report_cannot_be_written(work: Workplace) -> None:
    (work.folder / "out").write_text("no folder")
    work.put(0, set_column(draw_rows(4), "x1", [None] * ROWS))
    done = run_command("run", work.job({"report": "out"}))
    assert done.code == 3
    assert "there is no report of what failed" in done.err
    assert "part-00.parquet" in done.err.splitlines()[-1]


def test_a_report_appears_whole_or_not_at_all(work: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    told = reported(work)
    before = Path(told["report"]["json"]).read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    work.put(3)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Exception, match=r"model-0002.json cannot be written: No space left on device"):
        reported(work)
    assert reports(work) == ["model-0001.html", "model-0001.json"]
    assert Path(told["report"]["json"]).read_bytes() == before


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
def test_credentials_in_a_url_are_refused_without_being_repeated(work: Workplace, key: str) -> None:
    done = run_command("run", work.job({key: "s3://AKIAEXAMPLE:wJalrXUtnFEMI@bucket/place"}))
    assert done.code == 2, done
    assert f"{key} has credentials in its URL" in done.err
    assert "wJalrXUtnFEMI" not in done.err + done.out
    asked = run_command("inspect", "s3://AKIAEXAMPLE:wJalrXUtnFEMI@bucket/place")
    assert asked.code == 4
    assert "s3://***@bucket/place" in asked.err
    assert "wJalrXUtnFEMI" not in asked.err + asked.out
