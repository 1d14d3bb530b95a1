"""A job run from Python: what it returns, what it raises, and what it leaves alone."""

import json
import logging
import pickle
import signal
import sys
import threading
import tomllib
import warnings
from pathlib import Path

import pytest
from support.jobs.jobs import Workplace, assert_same_model, draw_rows, read_model_at, set_column

import ridgestream
from ridgestream import JobFileError, PartitionError, RunResult, StoreLocked
from ridgestream.jobs.config.job_file import read_job
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    return Workplace.new(tmp_path / "work", range(1))


def test_nights_return_what_the_command_prints(work: Workplace, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ridgestream")
    job = work.job({"report": "reports", "model.guard": 0.0})
    first = ridgestream.run(job)
    assert (first.outcome, first.message, first.model) == ("done", "", "model")
    assert (first.new_partitions, first.new_rows, first.rows_seen) == (1, 200, 200)
    assert (first.snapshot, first.test_error) == (work.snapshot(), work.model().history[-1].test_error)
    assert first.report_page is not None
    assert Path(first.report_page).exists()
    assert json.loads(json.dumps(first.as_dict()))["facts"]["n_basis"] == first.n_basis
    assert pickle.loads(pickle.dumps(first)) == first  # noqa: S301
    assert any(record.message.startswith("train (rows_seen=200") for record in caplog.records), caplog.messages
    again = ridgestream.run(str(job))
    assert (again.outcome, again.new_rows, again.snapshot) == ("nothing_new", 0, first.snapshot)
    flipped = set_column(draw_rows(2), "label", [1 if label == 2 else 2 for label in draw_rows(2)["label"].to_pylist()])
    work.put(2, flipped)
    held = ridgestream.run(read_job(job, {}))
    assert (held.outcome, held.served_night) == ("held_back", 1)
    assert "the model of night 1 continues to be served" in held.message


def test_a_run_in_a_thread_of_a_program_leaves_the_program_alone(work: Workplace) -> None:
    state = _process_state()
    results: list[RunResult] = []
    settings = tomllib.loads(work.job({"store": str(work.store), "source.path": str(work.folder / "rows")}).read_text())
    changes = {"evaluate": None, "model.max_basis": 10, "model.kernel": {"gamma": 0.5}}
    thread = threading.Thread(target=lambda: results.append(ridgestream.run(settings, changes=changes)))
    thread.start()
    thread.join()
    assert _process_state() == state
    (result,) = results
    assert (result.outcome, result.n_basis, result.test_error) == ("done", 10, None)
    other = Workplace.new(work.folder / "other", range(1))
    other.run_here({"evaluate.path": None, "model.max_basis": 10, "model.kernel.gamma": 0.5})
    assert_same_model(read_model_at(work.store), other.model())


def _process_state() -> tuple[object, ...]:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)]
    loggers = [(list(logging.getLogger(name).handlers), logging.getLogger(name).level) for name in (None, "asyncio")]
    return handlers, loggers, sys.excepthook, warnings.showwarning, list(warnings.filters)


def test_errors_are_raised_by_their_kinds(work: Workplace) -> None:
    with pytest.raises(JobFileError, match=r"the job cannot be used:\n  store: is missing\n  source: is missing"):
        ridgestream.run({})
    with pytest.raises(JobFileError, match=r"there is no job file nothing\.toml"):
        ridgestream.run("nothing.toml")
    with pytest.raises(JobFileError, match="changes go with the path of a job file"):
        ridgestream.run(read_job(work.job(), {}), changes={"report": "none"})
    with pytest.raises(JobFileError, match=r"model\.name cannot be set: model is given a value, too"):
        ridgestream.run(work.job(), changes={"model": 3, "model.name": "m"})
    (work.folder / "rows" / "part-00.parquet").write_bytes(b"no Parquet")
    with pytest.raises(PartitionError, match=r"part-00\.parquet"):
        ridgestream.run(work.job())


def test_what_is_no_job_is_refused() -> None:
    with pytest.raises(JobFileError, match="the name of a recipe or a mapping of settings, not 5"):
        ridgestream.run(5)  # type: ignore[arg-type]


def test_a_store_in_use_is_waited_for_and_then_refused(work: Workplace) -> None:
    store = Store.open_or_create(StoreLocation(str(work.store)))
    with store.lock(), pytest.raises(StoreLocked, match="is being written by process"):
        ridgestream.run(work.job(), wait_seconds=0.01)
