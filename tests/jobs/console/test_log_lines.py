"""Lines of JSON: each says its run, store, model and night, errors their kind and exit code, and the result is one."""

import json
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.jobs.jobs import ROWS, Settings, Workplace, draw_rows, open_store, run_command, run_prepared, set_column

from ridgestream.jobs.cli import exit_codes


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(1))
    return work


def lines_of(text: str) -> list[dict[str, Any]]:
    """The lines, each with what every line has, in this order."""
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        assert list(line)[:8] == ["timestamp", "level", "event", "message", "run", "store", "model", "night"]
    return lines


@pytest.mark.thorough
def test_each_line_says_its_run_store_model_and_night(work: Workplace) -> None:
    job = work.job({"report": None})
    runs = set()
    for night in (1, 2):
        work.put(night)
        done = run_command("run", job, "--log", "json")
        lines = [*lines_of(done.err), *lines_of(done.out)]
        assert {(line["store"], line["model"]) for line in lines} == {(str(work.store), "model")}
        assert {line["night"] for line in lines} == {night}
        (run,) = {line["run"] for line in lines}
        assert re.fullmatch("[0-9a-f]{32}", run)
        runs.add(run)
    assert len(runs) == 2


@pytest.mark.samples
@pytest.mark.parametrize("command", ["run", "ingest", "train", "evaluate", "predict"])
def test_the_result_on_standard_output_is_a_line_of_json_too(work: Workplace, command: str) -> None:
    work.run_here()
    job = work.job({"predict.path": "held-out", "predict.output": "out"})
    done = run_command(command, job, "--log=json")
    (result,) = lines_of(done.out)
    assert (done.code, result["level"], result["event"]) == (0, "info", "command.result")
    assert result["snapshot"] == work.snapshot()
    assert result["night"] == {"ingest": None, "run": 2, "train": 2}.get(command, 1)  # the one that would be learned
    assert set(run_command(command, job, "--json").result) <= set(result)


@pytest.mark.thorough
def test_a_log_of_json_may_come_from_the_job_file(work: Workplace) -> None:
    (result,) = lines_of(run_command("run", work.job({"log": "json"})).out)
    assert result["rows_seen"] == ROWS


AS_JSON = "import os\nos.environ['RIDGESTREAM_LOG'] = 'json'"

Ending = tuple[int, str, list[str], Settings]

ENDINGS: dict[str, Ending] = {
    "an unknown option": (exit_codes.USAGE, "NoSuchOption", ["run", "{job}", "--nope"], {}),
    "an unknown command": (exit_codes.USAGE, "UsageError", ["dance"], {}),
    "an unknown key": (exit_codes.USAGE, "JobFileError", ["run", "{job}", "--set", "model.max_bases=5"], {}),
    "no partition": (exit_codes.DATA, "PartitionError", ["run", "{job}"], {"source.path": "nowhere"}),
    "no store": (exit_codes.STORE, "StoreError", ["train", "{job}"], {"store": "nowhere"}),
    "a store in use": (exit_codes.LOCKED, "StoreLocked", ["run", "{job}"], {}),
    "no memory": (exit_codes.MEMORY, "MemoryRefused", ["run", "{job}", "--new-model"], {"memory_limit": 1}),
    "no cluster": (exit_codes.CLUSTER, "ClusterError", ["run", "{job}", "--cluster", "127.0.0.1:9"], {}),
    "another model": (exit_codes.MODEL, "ModelError", ["run", "{job}"], {"model.max_basis": 9}),
    "held back": (exit_codes.HELD, "Held", ["run", "{job}"], {"model.guard": 0.0}),
    "no report": (exit_codes.UNREPORTED, "Unreported", ["run", "{job}"], {"report": "job.toml"}),
}
"""How a command may end: exit code, kind, arguments and changes of the job."""


@pytest.mark.samples
@pytest.mark.parametrize("name", ENDINGS)
def test_an_error_says_its_kind_and_exit_code(work: Workplace, name: str) -> None:
    code, kind, arguments, changes = ENDINGS[name]
    work.run_here()
    spoilt = draw_rows(1)
    work.put(1, set_column(spoilt, "label", [3 if label == 2 else 2 for label in spoilt["label"].to_pylist()]))
    job = str(work.job({"cluster_seconds": 0.5, **changes}))
    locked: AbstractContextManager[None] = nullcontext()
    if code == exit_codes.LOCKED:
        locked = open_store(work.store).lock()
    with locked:
        done = run_prepared(AS_JSON, *(text.format(job=job) for text in arguments))
    last = lines_of(done.err)[-1]
    assert (done.code, last["level"], last["exit_code"], last["kind"]) == (code, "error", code, kind), done
    assert re.fullmatch("[0-9a-f]{32}", last["run"])
    for line in lines_of(done.out):
        assert line["run"] == last["run"]


def test_an_unexpected_error_says_its_kind(work: Workplace) -> None:
    broken = "import ridgestream.jobs.commands.run\ndef run_job(*a, **n): raise ZeroDivisionError('0/0')\n"
    broken += "ridgestream.jobs.commands.run.run_job = run_job"
    done = run_prepared(broken, "run", work.job(), "--log", "json")
    last = lines_of(done.err)[-1]
    assert (last["exit_code"], last["kind"], last["store"]) == (1, "ZeroDivisionError", str(work.store))
