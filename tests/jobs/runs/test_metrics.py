"""The metrics of runs, read back by Prometheus' own parser: of every command, of runs that fail or have nothing new."""

import json
import os
import signal
import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from support.jobs.jobs import ROWS, Settings, Workplace, draw_rows, open_store, run_command, run_prepared, set_column

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.runs.metrics import MEANINGS, RunMetrics

FILE = "night.prom"
Values = dict[str, float]


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    return work


def read(work: Workplace, command: str = "run", job: str = "job.toml") -> Values:
    """The values by name, or NAME.LABEL; checks the labels and that nothing else is in the folder."""
    values: Values = {}
    for family in text_string_to_metric_families((work.folder / FILE).read_text()):
        name = family.name.removeprefix("ridgestream_")
        assert (family.type, family.documentation) == ("gauge", MEANINGS[name])
        for sample in family.samples:
            labels = dict(sample.labels)
            assert Path(labels.pop("job")).name == job
            assert labels.pop("command") == command
            assert {labels.pop("store"), labels.pop("model")} in ({str(work.store), "model"}, {""})
            values[".".join([name, *labels.values()])] = sample.value
    assert [path.name for path in work.folder.iterdir() if FILE in path.name] == [FILE]
    return values


def metrics_of(work: Workplace, command: str, changes: Settings | None = None, *flags: str) -> tuple[int, Values]:
    done = run_command(command, work.job(changes), "--metrics", work.folder / FILE, *flags)
    return done.code, read(work, command)


def outcome(values: Values) -> str:
    (name,) = (name for name, value in values.items() if name.startswith("run_outcome.") and value)
    return name.removeprefix("run_outcome.")


def test_a_night_writes_what_the_store_and_the_run_say(work: Workplace) -> None:
    began = time.time()
    code, values = metrics_of(work, "run")
    record = work.model()
    night = record.history[-1]
    assert (code, outcome(values), values["run_exit_code"], values["run_success"]) == (0, "done", 0, 1)
    assert began <= values["last_success_timestamp_seconds"] == values["run_timestamp_seconds"] <= time.time()
    assert (values["store_rows"], values["store_partitions"]) == (2 * ROWS, 2)
    assert (values["run_new_rows"], values["run_new_partitions"]) == (2 * ROWS, 2)
    assert (values["model_rows"], values["model_basis_vectors"]) == (night.rows_seen, night.n_basis)
    assert values["model_test_error"] == night.test_error
    assert values["model_skill"] == 1 - (night.test_error or 0.0) / (night.trivial_error or 0.0)
    assert values["model_progressive_error"] == night.progressive_error
    assert (values["model_night"], values["model_suspect_partitions"], values["model_held_back"]) == (1, 0, 0)
    assert {"run_stage_seconds.ingest", "run_stage_seconds.train", "run_stage_seconds.evaluate"} <= values.keys()
    assert values["run_stage_rows.train"] == 2 * ROWS
    assert values["store_bytes"] > 1000
    assert values.keys() >= {name for name in MEANINGS if not name.startswith(("run_stage", "run_outcome", "info"))} - {
        "model_test_mse"
    }


@pytest.mark.samples
@pytest.mark.parametrize("command", ["run", "ingest", "train", "evaluate", "predict"])
def test_every_command_of_a_night_writes_them(work: Workplace, command: str) -> None:
    work.run_here()
    code, values = metrics_of(work, command, {"predict.path": "held-out", "predict.output": "out"})
    assert code == 0
    assert outcome(values) == ("done" if command in ("evaluate", "predict") else "nothing_new")
    assert (values["store_rows"], values["model_rows"]) == (2 * ROWS, 2 * ROWS)


Failure = tuple[Settings, tuple[str, ...], int, str]
FAILURES: dict[str, Failure] = {
    "no source": ({"source.path": "nowhere"}, (), exit_codes.DATA, "failed"),
    "no scheduler": ({"cluster_seconds": 0.2}, ("--cluster", "127.0.0.1:9"), exit_codes.CLUSTER, "failed"),
    "no memory": ({"memory_limit": 1}, ("--new-model",), exit_codes.MEMORY, "failed"),
    "another model": ({"model.max_basis": 9}, (), exit_codes.MODEL, "failed"),
    "a store in use": ({}, (), exit_codes.LOCKED, "failed"),
    "no report": ({"report": "job.toml", "model.regularization": 1e-3}, (), exit_codes.UNREPORTED, "unreported"),
    "held back": ({"model.guard": 0.0}, (), exit_codes.HELD, "held_back"),
}


@pytest.mark.samples
@pytest.mark.parametrize("name", FAILURES)
def test_a_run_that_fails_writes_them_and_the_last_success_is_read_from_the_store(work: Workplace, name: str) -> None:
    changes, flags, expected, result = FAILURES[name]
    work.run_here()
    succeeded_at = work.model().history[-1].finished_at
    (work.folder / FILE).write_text("# nonsense of an older run {")
    if name == "held back":
        for number in (2, 3, 4):
            rows = draw_rows(number)
            work.put(number, set_column(rows, "label", [1 if each == 2 else 2 for each in rows["label"].to_pylist()]))
    if expected == exit_codes.LOCKED:
        with open_store(work.store).lock():
            code, values = metrics_of(work, "run", changes, *flags)
    else:
        code, values = metrics_of(work, "run", changes, *flags)
    assert (code, values["run_exit_code"], values["run_success"], outcome(values)) == (expected, expected, 0, result)
    if result == "failed":
        assert values["last_success_timestamp_seconds"] == datetime.fromisoformat(succeeded_at).timestamp()
        assert values["model_rows"] == 2 * ROWS
    assert values["model_held_back"] == float(result == "held_back")


def test_a_run_without_a_store_or_with_a_wrong_job_file_writes_what_is_known(work: Workplace) -> None:
    code, values = metrics_of(work, "train")
    assert (code, values["run_exit_code"], values["store_readable"]) == (exit_codes.STORE, exit_codes.STORE, 0)
    assert "last_success_timestamp_seconds" not in values
    code, values = metrics_of(work, "run", {"model.max_bases": 3})
    assert (code, values["run_exit_code"], outcome(values)) == (exit_codes.USAGE, exit_codes.USAGE, "failed")


def test_a_run_that_is_stopped_or_ends_unexpectedly_writes_them(work: Workplace) -> None:
    imports = "import os, signal, time\nimport ridgestream.jobs.console.progress as progress\n"
    for what, code, result in (
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.2)", 128 + signal.SIGTERM, "stopped"),
        ("raise ZeroDivisionError", 1, "failed"),
    ):
        setup = f"{imports}def begin(self, *a, **n):\n    {what}\nprogress.LineReporter.begin = begin"
        done = run_prepared(setup, "run", work.job(), "--metrics", work.folder / FILE)
        values = read(work)
        assert (done.code, values["run_exit_code"], outcome(values)) == (code, code, result)


FULL = "import os\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
UNREAD = "import os\nends = os.pipe()\nos.dup2(ends[1], 1)\nos.close(ends[0])\nos.close(ends[1])"


@pytest.mark.parametrize(("setup", "code"), [(FULL, exit_codes.OUTPUT_LOST), (UNREAD, exit_codes.OUTPUT_UNREAD)])
def test_a_run_whose_output_is_lost_has_succeeded(work: Workplace, setup: str, code: int) -> None:
    """The night is committed: nobody is called at night because a disk for logs is full."""
    done = run_prepared(setup, "run", work.job(), "--json", "--metrics", work.folder / FILE)
    values = read(work)
    assert (done.code, values["run_exit_code"], values["run_success"], outcome(values)) == (code, code, 1, "done")
    assert values["last_success_timestamp_seconds"] == values["run_timestamp_seconds"]


@pytest.mark.thorough
def test_drift_is_counted_from_the_store_also_by_a_later_run_with_nothing_new(work: Workplace) -> None:
    work.run_here()
    rows = draw_rows(2)
    work.put(2, set_column(rows, "x1", [value * 3.28 for value in rows["x1"].to_pylist()]))
    assert metrics_of(work, "run")[1]["model_suspect_partitions"] == 1
    code, values = metrics_of(work, "run")
    assert (code, outcome(values), values["model_suspect_partitions"]) == (0, "nothing_new", 1)


@pytest.mark.parametrize("where", ["night.txt", "nowhere/night.prom"])
def test_a_file_that_the_collector_would_not_read_is_refused_before_anything_is_done(
    work: Workplace, where: str
) -> None:
    done = run_command("run", work.job(), "--metrics", work.folder / where)
    assert done.code == exit_codes.USAGE
    assert "--metrics" in done.err
    assert not work.store.exists()


def test_metrics_that_cannot_be_written_are_a_warning(work: Workplace) -> None:
    (work.folder / FILE).mkdir()
    done = run_command("run", work.job({"log": "json"}), "--metrics", work.folder / FILE)
    last = json.loads(done.err.splitlines()[-1])
    assert (done.code, last["level"], last["event"]) == (0, "warning", "metrics.not_written")
    assert work.model().learned == (0, 1)


@given(name=st.text(min_size=1))
@example(name="odd \udcff name")
def test_any_name_of_a_job_is_read_back_as_it_is(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    path = tmp_path_factory.getbasetemp() / f"any-{os.getpid()}.prom"
    RunMetrics("run", name).write(path, 3, "failed", reads_store=False)
    families = list(text_string_to_metric_families(path.read_bytes().decode()))
    names = {sample.labels["job"] for family in families for sample in family.samples}
    assert names == {name.encode("utf-8", "backslashreplace").decode()}
