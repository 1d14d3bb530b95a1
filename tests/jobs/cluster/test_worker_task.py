"""Workers of a cluster: other versions, threads, memory, failures that pass, and losses, each with its name."""

import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import which
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distributed import Security
from support.jobs.clusters import Cluster, count_threads, fail_at_first, real_cluster, use_memory, wait_for_release
from support.jobs.jobs import PATIENCE, Workplace, assert_same_model, clean_environment, run_command, wait_until
from support.jobs.recording import Notes

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.cluster import retries
from ridgestream.jobs.cluster.cluster_error import ClusterError
from ridgestream.jobs.cluster.dask_executor import open_executor
from ridgestream.jobs.cluster.worker_task import Failed, perform, requirements_of
from ridgestream.jobs.commands.run import run_job
from ridgestream.jobs.config.cluster_options import ClusterOptions
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.requests import cluster_of
from ridgestream.jobs.config.values import JobFileError
from ridgestream.pipeline.base.errors import InputError
from ridgestream.pipeline.base.executor import Executor, MemoryNeed
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.stores.parquet.partitions import PartitionFile, list_partitions

BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "ridgestream":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocked())
"""
"""What makes a Python of one without ridgestream."""


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with real_cluster(tmp_path_factory.mktemp("cluster"), 0) as cluster:
        yield cluster


@pytest.fixture
def cluster(scheduler: Cluster) -> Iterator[Cluster]:
    """A scheduler whose workers are those of one test."""
    scheduler.wait_for(0)
    yield scheduler
    while scheduler.workers:
        worker = scheduler.workers.pop()
        worker.kill()
        worker.wait(PATIENCE)


def with_version(folder: Path, package: str, version: str) -> dict[str, str]:
    """The environment of a worker that has another version of a package."""
    if package == "ridgestream":
        (folder / "sitecustomize.py").write_text(f"import ridgestream; ridgestream.__version__ = {version!r}\n")
        return {"PYTHONPATH": str(folder)}
    return with_metadata(folder, package, version)


def with_metadata(folder: Path, package: str, version: str) -> dict[str, str]:
    """The environment of a process that finds a package's metadata of another version first."""
    place = folder / f"{package}-{version}.dist-info"
    place.mkdir()
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
    return {"PYTHONPATH": str(folder)}


def without_ridgestream(folder: Path) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text(BLOCKED)
    return {"PYTHONPATH": str(folder)}


def partitions_of(work: Workplace, count: int) -> tuple[PartitionFile, ...]:
    for number in range(count):
        work.put(number)
    return list_partitions(work.folder / "rows")


@pytest.mark.samples
@pytest.mark.parametrize("package", ["numpy", "ridgestream"])
def test_a_worker_with_other_versions_is_refused_by_its_name(cluster: Cluster, tmp_path: Path, package: str) -> None:
    cluster.start_worker()
    (good,) = cluster.wait_for(1)
    cluster.start_worker(environment=with_version(tmp_path, package, "99.1"))
    (bad,) = set(cluster.wait_for(2)) - {good}
    with pytest.raises(ClusterError, match=rf"{bad}: {package} 99\.1 \(here \d") as caught, _open(cluster):
        pass
    assert good not in str(caught.value)
    assert exit_codes.exit_code_of(caught.value) == exit_codes.CLUSTER


def test_metadata_of_another_version_in_the_working_directory_is_ignored(cluster: Cluster, tmp_path: Path) -> None:
    """Such as an installation leaves in a clone: what counts is the version of the code that runs."""
    cluster.start_worker(environment=with_metadata(tmp_path, "ridgestream", "99.1"))
    cluster.wait_for(1)
    notes = Notes()
    with _open(cluster, notes) as executor:
        assert list(executor.run(abs, [-1, -2])) == [1, 2]
    assert notes.facts("cluster.workers_connected")["workers"] == 1


def test_another_version_of_a_package_that_changes_no_result_is_a_warning(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_worker(environment=with_version(tmp_path, "pyarrow", "99.1"))
    (worker,) = cluster.wait_for(1)
    notes = Notes()
    with _open(cluster, notes) as executor:
        assert list(executor.run(abs, [-1, -2])) == [1, 2]
    warning = notes.facts("cluster.versions_differ")
    assert warning["workers"] == worker
    assert str(warning["differing"]).startswith("pyarrow 99.1 (here ")


@pytest.mark.thorough
def test_a_worker_without_ridgestream_is_refused_by_the_command(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_worker(environment=without_ridgestream(tmp_path))
    (bad,) = cluster.wait_for(1)
    work = Workplace(tmp_path)
    work.put_all(range(1))
    done = run_command("run", work.job(), "--cluster", cluster.address)
    assert done.code == exit_codes.CLUSTER
    assert f"{bad}: ridgestream missing (here " in done.err
    assert "Traceback" not in done.err
    assert not work.store.exists()


@pytest.mark.samples
@pytest.mark.parametrize(("lacks", "has"), [("numpy", "99.1"), ("ridgestream", "missing")])
def test_a_worker_that_comes_later_is_checked_too(cluster: Cluster, tmp_path: Path, lacks: str, has: str) -> None:
    first = cluster.start_worker()
    (good,) = cluster.wait_for(1)
    other = with_version(tmp_path, "numpy", "99.1") if lacks == "numpy" else without_ridgestream(tmp_path)
    with _open(cluster) as executor:
        assert list(executor.run(abs, [-1])) == [1]
        cluster.start_worker(environment=other)
        (bad,) = set(cluster.wait_for(2)) - {good}
        first.kill()
        with pytest.raises(ClusterError, match=rf"{bad}: {lacks} {has} \(here \d"):
            list(executor.run(abs, [-1]))


def test_a_task_checks_the_versions_of_its_worker() -> None:
    """Where it is done before anybody has looked at the worker."""
    requirements = requirements_of(1)
    assert perform(requirements, abs, -1) == 1
    other = replace(requirements, versions=(("python", "3.99"), ("numpy", "99.1")))
    failed = perform(other, abs, -1)
    assert isinstance(failed, Failed)
    assert re.fullmatch(r"python 3\.\d+ \(here 3\.99\); numpy \d\S+ \(here 99\.1\)", failed.unfit)


FAULTS = """
import resource
import numpy as np
from ridgestream.jobs.cluster.freed_memory import keep_freed_memory

def count():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.zeros(2**17)[::512] = 1.0  # 1 MB, each page of it
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = count()
keep_freed_memory()
count()
print(first, count())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such option")
def test_a_worker_reuses_memory_that_dask_would_have_it_return() -> None:
    environment = clean_environment() | {"MALLOC_TRIM_THRESHOLD_": "65536"}
    done = subprocess.run([sys.executable, "-c", FAULTS], env=environment, capture_output=True, text=True, check=True)
    first, then = map(int, done.stdout.split())
    assert first > 100 * 200
    assert then < 1000


@pytest.mark.thorough
def test_a_task_has_as_many_threads_of_blas_and_numba_as_the_job_says(cluster: Cluster) -> None:
    """By itself the worker would have three of each."""
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    cluster.start_worker("--nthreads", "2", environment=dict.fromkeys(names, "3"))
    cluster.wait_for(1)
    for threads in (1, 2):
        notes = Notes()
        with _open(cluster, notes, threads=threads) as executor:
            counts = list(executor.run(count_threads, range(6)))
        assert counts == [(threads, threads)] * 6
        facts = notes.facts("cluster.workers_connected")
        assert (facts["blas_threads"], facts["numba_threads"], facts["task_threads"]) == (threads, threads, 2)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "RETRY_SECONDS", 0.01)


@pytest.mark.thorough
@pytest.mark.usefixtures("quick")
def test_transient_errors_are_retried_with_a_growing_wait(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_worker()
    cluster.wait_for(1)
    notes = Notes()
    with _open(cluster, notes, retries=2) as executor:
        assert list(executor.run(fail_at_first, [(tmp_path, 2, "reset")])) == [3]
        events = notes.all("cluster.task_retried")
        assert [facts["wait_seconds"] for facts in events] == [0.01, 0.02]
        assert {facts["reason"] for facts in events} == {"the connection was reset"}
        _fails(executor, tmp_path / "often", "reset", 3, ConnectionResetError)
        _fails(executor, tmp_path / "damaged", "damaged", 1, InputError)
        _fails(executor, tmp_path / "gone", "gone", 1, FileNotFoundError)
        _fails(executor, tmp_path / "full", "full", 1, OSError)


def _fails(executor: Executor, notes: Path, name: str, tries: int, kind: type[Exception]) -> None:
    """A task that always fails is tried `tries` times."""
    notes.mkdir()
    with pytest.raises(kind, match=r"reset|nan|No such file|No space"):
        list(executor.run(fail_at_first, [(notes, 9, name)]))
    assert len(list(notes.iterdir())) == tries


@pytest.mark.thorough
@pytest.mark.usefixtures("quick")
def test_a_job_whose_reads_fail_now_and_then_gives_the_same_bits(cluster: Cluster, tmp_path: Path) -> None:
    """No partition is put into quarantine for it."""
    cluster.start_worker("--preload", "support.jobs.failing_worker")
    cluster.wait_for(1)
    here, there = (Workplace(tmp_path / name) for name in ("here", "there"))
    for work in (here, there):
        work.put_all(range(6))
    changes = {"source.on_bad": "quarantine", "model.refit": True}
    here.run_here(changes)
    notes = Notes()
    with _open(cluster, notes) as executor:
        result = run_job(read_job(there.job(changes), {}), executor, notes, 0.0, new_model=False)
    assert result["partitions_consumed"] == 6
    assert len(notes.all("cluster.task_retried")) >= 3
    assert_same_model(here.model(), there.model())


LOST = "cluster.worker_lost"


def kill_and_replace(cluster: Cluster, folder: Path, times: int) -> None:
    """Kill the worker that runs `wait_for_release`, `times` times, each time after a new worker has come."""
    for number in range(times):
        wait_until(lambda n=number: len(list(folder.glob("pid-*"))) > n)  # type: ignore[misc]
        cluster.start_worker()
        cluster.wait_for(2)
        cluster.workers[-2].kill()
    wait_until(lambda: len(list(folder.glob("pid-*"))) > times)
    (folder / "go").touch()


def next_while(results: Iterator[Any], act: Callable[[], None]) -> Any:
    """The next result, while something else is going on."""
    with ThreadPoolExecutor(1) as beside:
        acting = beside.submit(act)
        result = next(results)
        acting.result()
    return result


@pytest.mark.thorough
def test_the_warning_for_a_lost_worker_has_partition_rows_and_likely_cause(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_worker()
    (address,) = cluster.wait_for(1)
    (file,), notes = partitions_of(Workplace(tmp_path), 1), Notes()
    with _open(cluster, notes) as executor:
        results = executor.run(wait_for_release, [file], tmp_path)
        assert next_while(results, lambda: kill_and_replace(cluster, tmp_path, 1)) == file.size_bytes
    warning = notes.facts(LOST)
    assert warning["worker"] == address
    assert str(warning["doing"]).startswith("rows 0 to 199 of part-00.parquet, which need about 4")
    assert "ended from outside" in str(warning["likely_cause"])


@pytest.mark.thorough
def test_more_workers_may_be_lost_over_a_task_than_the_scheduler_allows(tmp_path: Path) -> None:
    (file,), notes = partitions_of(Workplace(tmp_path), 1), Notes()
    allowed = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with (
        real_cluster(tmp_path, 1, scheduler_environment=allowed) as cluster,
        _open(cluster, notes, lost_workers=2) as executor,
    ):
        results = executor.run(wait_for_release, [file], tmp_path)
        assert next_while(results, lambda: kill_and_replace(cluster, tmp_path, 2)) == file.size_bytes
    assert 1 <= len(notes.all(LOST)) <= 2  # the scheduler's word of the second may come after its result


@pytest.mark.thorough
def test_a_task_that_loses_more_workers_than_the_job_allows_is_given_up_by_its_name(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_worker()
    cluster.wait_for(1)
    (file,) = partitions_of(Workplace(tmp_path), 1)

    def kill_next() -> None:
        wait_until(lambda: list(tmp_path.glob("pid-*")))
        cluster.start_worker()
        cluster.workers[0].kill()

    expected = (
        r"rows 0 to 199 of part-00\.parquet, which need about 4\d\d MB of memory is given up after 1 workers were lost "
        r"over it \(cluster_options\.lost_workers = 0\); the likely cause: its process was ended from outside"
    )
    with _open(cluster, lost_workers=0) as executor, pytest.raises(ClusterError, match=expected):
        next_while(executor.run(wait_for_release, [file], tmp_path), kill_next)


@pytest.mark.thorough
def test_a_worker_that_its_nanny_ends_for_its_memory_is_reported_as_such(cluster: Cluster, tmp_path: Path) -> None:
    cluster.start_worker("--memory-limit", "400MB", nanny=True)
    cluster.wait_for(1)
    (file,) = partitions_of(Workplace(tmp_path), 1)
    expected = (
        r"of part-00\.parquet.*the likely cause: it came to its memory limit of 400 MB, using \d+ MB; give workers"
    )
    with _open(cluster, lost_workers=0) as executor, pytest.raises(ClusterError, match=expected):
        list(executor.run(use_memory, [file], 400_000_000))


@pytest.mark.thorough
def test_a_partition_that_does_not_fit_a_worker_is_refused_with_rows_and_bytes(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its one row group is decoded at once."""
    unpaused = {"DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False"}  # so much is what a worker has imported
    cluster.start_worker("--memory-limit", "460MB", environment=unpaused)
    (worker,) = cluster.wait_for(1)
    work, rng = Workplace(tmp_path), np.random.default_rng(0)
    work.put_all(range(1))
    work.run_here()
    before, model = work.snapshot(), work.model()
    work.put(1)
    columns = {name: rng.normal(size=60_000) for name in ("x0", "x1", "x2", "x3")}
    blob = [rng.bytes(750) for _ in range(60_000)]
    big = pa.table({**columns, "label": rng.integers(1, 4, 60_000), "photo": blob})
    path = work.put(2)
    pq.write_table(big, path, row_group_size=60_000)
    done = run_command("run", work.job(), "--cluster", cluster.address)
    assert done.code == exit_codes.MEMORY
    assert "ridgestream: the partition part-02.parquet (60,000 rows) needs 4" in done.err
    assert f"the worker {worker} may use 460 MB: give workers more, or write the partition in smaller row" in done.err
    assert work.snapshot() == before
    pq.write_table(big, path, row_group_size=2_000)
    assert run_command("run", work.job(), "--cluster", cluster.address, "--json").result["new_partitions"] == 2
    assert model.learned == work.model().learned[:1]


@pytest.mark.thorough
def test_a_worker_that_comes_later_with_less_memory_does_no_task_that_needs_more(cluster: Cluster) -> None:
    first = cluster.start_worker("--memory-limit", "1GB")
    (good,) = cluster.wait_for(1)
    with _open(cluster) as executor:
        executor.admit([MemoryNeed(900_000_000)])
        cluster.start_worker("--memory-limit", "600MB")
        cluster.wait_for(2)
        first.kill()
        with pytest.raises(ClusterError, match="it may use 600000000 bytes, and a task needs 900000000") as caught:
            list(executor.run(abs, [-1]))
    assert good not in str(caught.value)


@dataclass(frozen=True)
class Certificate:
    """A certificate that is its own authority, and its key."""

    cert: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """As Dask's commands take it."""
        return ("--tls-ca-file", str(self.cert), "--tls-cert", str(self.cert), "--tls-key", str(self.key))

    @property
    def keys(self) -> dict[str, Any]:
        """As a job file takes it."""
        names = {"tls_ca": self.cert, "tls_cert": self.cert, "tls_key": self.key}
        return {f"cluster_options.{name}": path.name for name, path in names.items()}


def certify(folder: Path, name: str) -> Certificate:
    made = Certificate(folder / f"{name}-cert.pem", folder / f"{name}-key.pem")
    what = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}"]
    where = ["-keyout", str(made.key), "-out", str(made.cert)]
    subprocess.run(["openssl", *what, *where], check=True, capture_output=True)
    return made


@pytest.mark.thorough
@pytest.mark.skipif(which("openssl") is None, reason="there is no command openssl")
def test_a_job_with_certificates_runs_on_a_cluster_that_asks_for_them(tmp_path: Path) -> None:
    """By the scheduler's file, whose path is taken from where the command is run."""
    work, ours, other = Workplace(tmp_path), certify(tmp_path, "ours"), certify(tmp_path, "other")
    work.put_all(range(2))
    security = Security(
        tls_ca_file=str(ours.cert),
        tls_client_cert=str(ours.cert),
        tls_client_key=str(ours.key),
        require_encryption=True,
    )
    options = ("--protocol", "tls", *ours.options)
    with real_cluster(tmp_path, 1, *ours.options, scheduler_options=options, security=security) as cluster:
        assert cluster.address.startswith("tls://")
        patience = {"cluster_seconds": 2}
        for keys in ({}, other.keys):
            done = run_command("run", work.job({**keys, **patience}), "--cluster", cluster.address)
            assert done.code == exit_codes.CLUSTER
            assert f"no scheduler answers at {cluster.address}" in done.err
            assert "cluster_options.tls_ca" in done.err
        result = run_command(
            "run", work.job(ours.keys), "--cluster", "file:scheduler.json", "--json", cwd=tmp_path
        ).result
    assert result["partitions_consumed"] == 2
    alone = Workplace(tmp_path / "alone")
    alone.put_all(range(2))
    alone.run_here()
    assert_same_model(alone.model(), work.model())


@pytest.mark.thorough
def test_certificates_go_together_with_each_other_and_with_an_address_that_asks_for_them(
    cluster: Cluster, tmp_path: Path
) -> None:
    work = Workplace(tmp_path)
    with pytest.raises(JobFileError, match="tls_ca, tls_cert and tls_key go together"):
        read_job(work.job({"cluster_options.tls_ca": "ca.pem"}), {})
    files = {f"cluster_options.tls_{name}": f"{name}.pem" for name in ("ca", "cert", "key")}
    for address, expected in ((cluster.address, "is not encrypted"), ("tls://127.0.0.1:1", f"no file {tmp_path}")):
        done = run_command("run", work.job({**files, "cluster": address}))
        assert done.code == exit_codes.CLUSTER
        assert expected in done.err


@pytest.mark.thorough
def test_a_schedulers_file_is_found_from_the_job_file_and_waited_for(cluster: Cluster, tmp_path: Path) -> None:
    """Only as long as the job says."""
    cluster.start_worker()
    cluster.wait_for(1)
    work = Workplace(tmp_path)
    work.put_all(range(1))
    job = {"cluster": "file:notes/scheduler.json", "cluster_seconds": 0.5}
    done = run_command("run", work.job(job))
    assert done.code == exit_codes.CLUSTER
    assert f"scheduler's file {tmp_path / 'notes' / 'scheduler.json'} names no address after 0.5 s" in done.err
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "scheduler.json").write_text(cluster.note.read_text())
    read = read_job(work.job(job), {})
    with open_executor(*cluster_of(read)) as executor:
        assert list(executor.run(abs, [-3])) == [3]


def _open(cluster: Cluster, notes: Notes | None = None, **options: Any) -> AbstractContextManager[Executor]:
    return open_executor(cluster.address, PATIENCE, ClusterOptions(**options), notes or Silent())
