"""Jobs whose partitions, store, held-out rows, dictionary and predictions are all in an object store."""

import json
import os
import pickle
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.jobs.clusters import real_cluster
from support.jobs.jobs import (
    Workplace,
    assert_same_model,
    clean_environment,
    draw_rows,
    run_command,
    run_program,
    start_command,
    wait_until,
)
from support.points import points
from support.stores.faulty_proxy import Fault, Rule, faulty_proxy
from support.stores.object_store import BUCKET, KEYS, ObjectStore, object_store
from support.stores.stores import PicklingExecutor

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.commands.predict import run_predict
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.pipeline.prediction.predict import PredictTask
from ridgestream.stores.catalog.models import ModelRecord, require_model
from ridgestream.stores.errors.exceptions import StoreError
from ridgestream.stores.files.object_storage import StorageSettings
from ridgestream.stores.files.paths import ObjectPath
from ridgestream.stores.parquet.partitions import list_partitions
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
from ridgestream.stores.schema.schema import SchemaRequest

PARTITIONS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("server")) as server, pytest.MonkeyPatch.context() as patched:
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
            patched.delenv(name, raising=False)
        for name, value in KEYS.items():
            patched.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A finished run over local files, with predictions."""
    work = Workplace(tmp_path_factory.mktemp("local"))
    work.put_all(range(PARTITIONS), held_out=3)
    work.run_here()
    work.predict_here("held-out")
    return work


def in_object_store(
    server: ObjectStore, local: Workplace, folder: Path, changes: dict[str, Any] | None = None
) -> Workplace:
    """Upload the same partitions below a separate prefix and write a job file that uses only object storage."""
    name = folder.name
    settings = {
        "store": server.location(f"{name}/store"),
        "source.path": server.put_folder(local.folder / "rows", f"{name}/rows"),
        "evaluate.path": server.put_folder(local.folder / "held-out", f"{name}/held-out"),
        "predict.path": server.location(f"{name}/held-out"),
        "predict.output": server.location(f"{name}/predictions"),
        "storage.endpoint_url": server.endpoint,
    }
    work = Workplace(folder)
    work.job(settings | (changes or {}))
    return work


def model_of(server: ObjectStore, folder: Path) -> ModelRecord:
    location = StoreLocation(server.location(f"{folder.name}/store"), StorageSettings(server.endpoint))
    return require_model(Store.open(location).root(), "model")


def predictions_in(server: ObjectStore, folder: Path) -> pa.Table:
    names = server.keys(f"{folder.name}/predictions")
    tables = [pq.read_table(pa.BufferReader(server.get(f"{folder.name}/predictions/{name}"))) for name in names]
    return pa.concat_tables(tables)


@pytest.mark.parametrize("cluster", points(["none", "scheduler"], ["none"]))
def test_a_job_in_an_object_store_gives_the_bits_of_a_local_one(
    server: ObjectStore, local: Workplace, tmp_path: Path, cluster: str
) -> None:
    """Workers have credentials in their environment; tasks carry the server's address."""
    job = in_object_store(server, local, tmp_path).folder / "job.toml"
    if cluster != "scheduler":
        run_and_compare(server, local, tmp_path, job, cluster)
        return
    with real_cluster(tmp_path, 2) as running:
        run_and_compare(server, local, tmp_path, job, running.address)


def run_and_compare(server: ObjectStore, local: Workplace, folder: Path, job: Path, cluster: str) -> None:
    result = run_command("run", job, "--cluster", cluster, "--json").result
    assert result["partitions_consumed"] == PARTITIONS
    assert_same_model(model_of(server, folder), local.model())
    assert result["test_error"] == local.model().history[-1].test_error
    predicted = run_command("predict", job, "--cluster", cluster, "--json").result
    assert (predicted["written"], predicted["skipped"], predicted["rows"]) == (3, 0, 600)
    assert predictions_in(server, folder).equals(pq.read_table(local.folder / "predictions"))
    assert run_command("predict", job, "--cluster", cluster, "--json").result["skipped"] == 3
    second_run = run_command("run", job, "--cluster", cluster, "--json").result
    assert (second_run["new_partitions"], second_run["rows_seen"]) == (0, result["rows_seen"])


@pytest.mark.thorough
def test_a_second_night_works_and_a_changed_object_is_refused(
    server: ObjectStore, local: Workplace, tmp_path: Path
) -> None:
    job = in_object_store(server, local, tmp_path).folder / "job.toml"
    run_command("run", job, "--json")
    table = draw_rows(PARTITIONS)
    local_file = tmp_path / "new.parquet"
    pq.write_table(table, local_file)
    server.put(f"{tmp_path.name}/rows/part-04.parquet", local_file.read_bytes())
    pq.write_table(pq.read_table(local.folder / "rows" / "part-00.parquet"), local_file, compression="zstd")
    server.put(f"{tmp_path.name}/rows/part-00.parquet", local_file.read_bytes())  # the same rows, other bytes
    result = run_command("run", job, "--json").result
    assert (result["new_partitions"], result["rows_seen"]) == (1, 200 * (PARTITIONS + 1))
    pq.write_table(table.slice(1), local_file)
    server.put(f"{tmp_path.name}/rows/part-00.parquet", local_file.read_bytes())
    outcome = run_command("run", job)
    assert outcome.code == exit_codes.DATA
    assert f"{server.location(tmp_path.name)}/rows/part-00.parquet was ingested with other values" in outcome.err


@pytest.mark.thorough
def test_a_dictionary_can_be_read_from_an_object_store(server: ObjectStore, local: Workplace, tmp_path: Path) -> None:
    server.put(f"{tmp_path.name}/dictionary.parquet", (local.folder / "rows" / "part-00.parquet").read_bytes())
    fixed = {"model.selection": "fixed", "model.max_basis": None, "evaluate.path": None}
    dictionary = server.location(f"{tmp_path.name}/dictionary.parquet")
    job = in_object_store(server, local, tmp_path, {**fixed, "model.dictionary": dictionary}).folder / "job.toml"
    run_command("run", job, "--json")
    work = Workplace(tmp_path / "here")
    work.folder.mkdir()
    for number in range(PARTITIONS):
        work.put(number)
    work.run_here({**fixed, "model.dictionary": "rows/part-00.parquet"})
    assert_same_model(model_of(server, tmp_path), work.model())


@pytest.mark.thorough
def test_input_and_output_of_the_command_can_be_urls(server: ObjectStore, local: Workplace, tmp_path: Path) -> None:
    job = local.job({"storage.endpoint_url": server.endpoint}, name="job-with-urls.toml")
    source = server.put_folder(local.folder / "held-out", f"{tmp_path.name}/a b/100%")
    output = server.location(f"{tmp_path.name}/predictions")
    assert run_command("predict", job, source, output, "--json").result["written"] == 3
    assert predictions_in(server, tmp_path).equals(pq.read_table(local.folder / "predictions"))
    run_command("predict", job, source, tmp_path / "here", "--json")
    run_command("predict", job, (tmp_path / "here").as_uri(), tmp_path / "there")  # has no features
    assert pq.read_table(tmp_path / "here").equals(pq.read_table(local.folder / "predictions"))


@pytest.mark.thorough
@pytest.mark.parametrize("forward", points([False, True], [True]))
def test_a_killed_prediction_resumes_and_leaves_no_partial_file(
    server: ObjectStore, local: Workplace, tmp_path: Path, *, forward: bool
) -> None:
    """The process is killed at the second of three uploads, before or after the server receives it."""
    job = local.job(name="job-killed.toml")
    output = server.location(f"{tmp_path.name}/predictions")
    with faulty_proxy(server.port) as proxy:
        environment = clean_environment(**{**KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"})
        second = f"PUT /{BUCKET}/{tmp_path.name}/predictions/part-01"
        fault: Fault = "lose" if forward else "drop"
        proxy.arm(Rule(fault, only=second, at=1, then=lambda: os.kill(started.pid, signal.SIGKILL)))
        started = start_command(
            "predict", job, local.folder / "held-out", output, log=tmp_path / "log", environment=environment
        )
        wait_until(lambda: started.poll() is not None)
        assert started.returncode == -signal.SIGKILL
        finished = 1 + forward
        assert len(server.keys(f"{tmp_path.name}/predictions")) == finished
        assert server.pending_uploads() == []
        proxy.arm()
        result = run_command(
            "predict", job, local.folder / "held-out", output, "--json", environment=environment
        ).result
    assert (result["written"], result["skipped"], result["rows"]) == (3 - finished, finished, 600)
    assert predictions_in(server, tmp_path).equals(pq.read_table(local.folder / "predictions"))


@pytest.mark.thorough
def test_an_unreachable_location_is_reported_and_nothing_is_quarantined(
    server: ObjectStore, local: Workplace, tmp_path: Path
) -> None:
    job = in_object_store(server, local, tmp_path, {"source.on_bad": "quarantine"}).folder / "job.toml"
    outcome = run_command("run", job, "--set", "source.path=s3://no-such-bucket/rows")
    assert (outcome.code, outcome.err.count("there is no bucket 'no-such-bucket'")) == (exit_codes.STORE, 1)
    outcome = run_command("run", job, "--set", f"source.path={server.location('nothing')}")
    assert outcome.code == exit_codes.DATA
    assert f"the source {server.location('nothing')} does not exist" in outcome.err
    outcome = run_command("run", job, "--set", "storage.endpoint_url=http://127.0.0.1:1")
    assert outcome.code == exit_codes.STORE
    assert "http://127.0.0.1:1 cannot be reached" in outcome.err


@pytest.mark.thorough
def test_reports_beside_the_store_have_media_types_and_are_rewritten_if_missing(
    server: ObjectStore, local: Workplace, tmp_path: Path
) -> None:
    job = in_object_store(server, local, tmp_path, {"report": None}).folder / "job.toml"
    result = run_command("run", job, "--json").result
    pages = {kind: server.location(f"{tmp_path.name}/store-reports/model-0001.{kind}") for kind in ("json", "html")}
    assert result["report"] == pages
    contents = {kind: server.get(f"{tmp_path.name}/store-reports/model-0001.{kind}") for kind in pages}
    assert json.loads(contents["json"])["figures"]["test_error"] == result["test_error"]
    assert server.media_type(f"{tmp_path.name}/store-reports/model-0001.html") == "text/html; charset=utf-8"
    assert server.media_type(f"{tmp_path.name}/store-reports/model-0001.json") == "application/json"
    server.delete(f"{tmp_path.name}/store-reports/model-0001.html")
    assert run_command("run", job, "--json").result["report"] == pages
    assert server.get(f"{tmp_path.name}/store-reports/model-0001.html") == contents["html"]


@pytest.mark.thorough
def test_a_missing_bucket_for_reports_is_reported_after_the_night_is_committed(
    server: ObjectStore, local: Workplace, tmp_path: Path
) -> None:
    job = in_object_store(server, local, tmp_path, {"report": "s3://no-such-bucket/reports"}).folder / "job.toml"
    outcome = run_command("run", job, "--json")
    assert outcome.code == exit_codes.UNREPORTED
    assert "the report s3://no-such-bucket/reports/model-0001.json cannot be written: there is no bucket" in outcome.err
    assert model_of(server, tmp_path).history[-1].rows_seen == PARTITIONS * 200


@pytest.mark.thorough
def test_a_hanging_server_is_reported_and_the_same_command_resumes(
    server: ObjectStore, local: Workplace, tmp_path: Path
) -> None:
    """Partitions are local, so that only native code of the store waits for the server."""
    changes = {"source.path": str(local.folder / "rows"), "report": "none", "storage.request_seconds": 0.3}
    job = in_object_store(server, local, tmp_path, changes)
    freeze = f"""
import os, signal, sys
import ridgestream.jobs.cli.app, ridgestream.jobs.console.progress
real = ridgestream.jobs.console.progress.LineReporter.begin
def begin(self, step, total_rows, **facts):
    if step.code == "train":
        os.kill({server.process.pid}, signal.SIGSTOP)
    real(self, step, total_rows, **facts)
ridgestream.jobs.console.progress.LineReporter.begin = begin
ridgestream.jobs.cli.app.main()
"""
    try:
        outcome = run_program([sys.executable, "-c", freeze, "run", job.folder / "job.toml", "--log", "json"])
    finally:
        server.process.send_signal(signal.SIGCONT)
    last = json.loads(outcome.err.splitlines()[-1])
    assert (outcome.code, last["exit_code"], last["level"]) == (exit_codes.STORE, exit_codes.STORE, "error")
    assert f"of the store {server.location(tmp_path.name)}/store: no answer within 0.3 s" in last["message"]
    assert "asked 3 times" in last["message"]
    assert last["message"].endswith("What was committed stands, and the same command continues from there")
    job = in_object_store(server, local, tmp_path, {"source.path": str(local.folder / "rows"), "report": "none"})
    resumed = run_command("run", job.folder / "job.toml", "--json")
    assert "event='ingest' rows=0" in resumed.err, resumed
    assert_same_model(model_of(server, tmp_path), local.model())


SECRETS: list[tuple[dict[str, Any], str]] = [
    ({"source.path": "s3://me:hush@bucket/x"}, "source.path has credentials in its URL"),
    ({"store": "s3://me:hush@bucket/x"}, "store has credentials in its URL"),
    ({"predict.output": "s3://bucket/x?Signature=hush"}, "predict.output has credentials in its URL"),
    ({"storage.endpoint_url": "http://me:hush@host"}, "http://***@host has credentials in its URL"),
    ({"storage.secret_access_key": "hush"}, "secret_access_key would be a secret in a job file; each process"),
    ({"storage.endpoint_url": "host:9000"}, "the endpoint 'host:9000' must be a URL such as https://minio"),
]


@pytest.mark.parametrize(("changes", "message"), SECRETS)
def test_secrets_in_a_job_file_are_refused_and_not_repeated(
    local: Workplace, changes: dict[str, Any], message: str
) -> None:
    path = local.job({"predict.output": "out"} | changes, name="job-secret.toml")
    with pytest.raises((JobFileError, StoreError), match=re.escape(message)) as caught:
        run_predict(read_job(path, {}), local.folder / "held-out", None, InProcess(), Silent())
    assert "hush" not in str(caught.value)


def test_no_task_and_no_commit_contains_a_credential(
    server: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "hush-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-key")
    settings = StorageSettings(server.endpoint)
    pq.write_table(draw_rows(0), tmp_path / "part-0.parquet")
    source = ObjectPath(server.put_folder(tmp_path, f"{tmp_path.name}/rows"), settings)
    store = Store.create(StoreLocation(server.location(f"{tmp_path.name}/store"), settings))
    (file,) = list_partitions(source)
    with store.lock():
        ingest(store, (file,), SchemaRequest("label"), PicklingExecutor(), Silent())
    task = PredictTask(file, source / "out", ())
    sent = [pickle.dumps(each) for each in (task, store.repository.writable_session("main").fork())]
    keys = [key for key in server.keys(tmp_path.name) if not f"/{key}".endswith("/")]  # Arrow marks folders
    stored = [server.get(f"{tmp_path.name}/{key}") for key in keys]
    assert len(stored) > 5
    assert server.endpoint.encode() in sent[0]
    assert not [content for content in (*sent, *stored) if b"hush" in content]


def test_the_command_does_not_print_a_secret(local: Workplace) -> None:
    outcome = run_command("run", local.job({"storage.secret_access_key": "hush"}, name="job-secret.toml"))
    assert outcome.code == exit_codes.USAGE
    assert "secret_access_key would be a secret in a job file" in outcome.err
    assert "hush" not in outcome.err + outcome.out


def test_storage_can_be_set_in_the_environment_and_has_no_other_keys(
    local: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIDGESTREAM_STORAGE__REGION", "eu-north-1")
    job = read_job(local.job({"storage.anonymous": True}, name="job-storage.toml"), {})
    assert job.storage.settings == StorageSettings(None, "eu-north-1", anonymous=True)
    with pytest.raises(JobFileError, match=r"storage\.zone: there is no such key"):
        read_job(local.job({"storage.zone": "a"}, name="job-storage.toml"), {})
    assert json.loads(json.dumps(job.storage.model_dump()))["anonymous"] is True
