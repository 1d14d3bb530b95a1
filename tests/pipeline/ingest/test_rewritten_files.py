"""Files that were rewritten: found whatever their size and time stamp; what only looks new is read and known again."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem
from support.jobs.jobs import Workplace, draw_rows, run_command, set_column
from support.stores.partitions import write_partition
from support.stores.stores import ledger_of, new_store

from ridgestream.jobs.cli import exit_codes
from ridgestream.pipeline.base.executor import InProcess
from ridgestream.pipeline.base.reporter import Silent
from ridgestream.pipeline.ingest.ingest import ingest
from ridgestream.stores.errors.exceptions import PartitionError
from ridgestream.stores.files.paths import ObjectPath
from ridgestream.stores.parquet.partitions import list_partitions
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.schema.schema import SchemaRequest

CHANGES = {"evaluate.path": None, "model.max_basis": 5}


def write_in_place(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def write_by_rename(path: Path, content: bytes) -> None:
    new = path.with_name("new")
    new.write_bytes(content)
    new.rename(path)


def delete_and_write(path: Path, content: bytes) -> None:
    path.unlink()
    path.write_bytes(content)


@pytest.mark.parametrize("write", [write_in_place, write_by_rename, delete_and_write])
def test_other_values_of_the_same_size_and_time_stamp_are_found(
    tmp_path: Path, write: Callable[[Path, bytes], None]
) -> None:
    """Package managers, image layers and version control of data set all time stamps alike."""
    work = Workplace(tmp_path)
    path = work.put(0)
    os.utime(path, ns=(1, 1))
    work.run_here(CHANGES)
    before = path.stat()
    rows = draw_rows(0)
    sink = pa.BufferOutputStream()
    pq.write_table(set_column(rows, "x0", pc.negate(rows["x0"])), sink)
    content = sink.getvalue().to_pybytes()
    assert len(content) == before.st_size
    write(path, content)
    os.utime(path, ns=(1, 1))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    outcome = run_command("run", work.job(CHANGES))
    assert outcome.code == exit_codes.DATA
    assert "was ingested with other values" in outcome.err


def chmod(path: Path) -> None:
    path.chmod(0o600)


def link(path: Path) -> None:
    os.link(path, path.with_name("copy.bak"))


def copy(path: Path) -> None:
    delete_and_write(path, path.read_bytes())


def touch(path: Path) -> None:
    path.touch()


@pytest.mark.parametrize("change", [chmod, link, copy, touch])
def test_the_same_values_are_known_again_without_a_word(tmp_path: Path, change: Callable[[Path], None]) -> None:
    work = Workplace(tmp_path)
    path = work.put(0)
    snapshot = work.run_here(CHANGES)["snapshot"]
    stamp = path.stat()
    change(path)
    if change is not touch:
        os.utime(path, ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))
    outcome = run_command("run", work.job(CHANGES), "--json")
    assert (outcome.result["new_partitions"], work.snapshot()) == (0, snapshot)
    assert "WARNING" not in outcome.err


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that takes the place of all object stores, so that the time stamps of its objects can be set."""
    files = SubTreeFileSystem(str(tmp_path), LocalFileSystem())
    monkeypatch.setattr(ObjectPath, "files", property(lambda _: files))
    return tmp_path / "bucket"


def put_object(bucket: Path, values: list[float], age_seconds: float) -> None:
    second = int(time.time() - age_seconds)
    os.utime(write_partition(bucket / "in" / "part-0.parquet", {"x": values, "y": [0.0, 1.0]}), (second, second))


def ingest_objects(store: Store) -> None:
    with store.lock():
        ingest(store, list_partitions(ObjectPath("s3://bucket/in")), SchemaRequest("y"), InProcess(), Silent())


@pytest.mark.parametrize("age_seconds", [-5, 0, 5])
def test_an_object_that_was_rewritten_within_its_second_is_found(bucket: Path, age_seconds: float) -> None:
    store = new_store(bucket.parent / "store")
    put_object(bucket, [1.0, 2.0], age_seconds)
    stamp = (bucket / "in" / "part-0.parquet").stat()
    ingest_objects(store)
    put_object(bucket, [3.0, 4.0], age_seconds)
    os.utime(bucket / "in" / "part-0.parquet", ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))
    with pytest.raises(PartitionError, match=r"s3://bucket/in/part-0\.parquet was ingested with other values"):
        ingest_objects(store)


def test_an_object_is_read_once_more_only_if_it_was_just_written(bucket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, read = new_store(bucket.parent / "store"), list[str]()
    opened = ObjectPath.files.fget  # type: ignore[attr-defined]

    def recorded(path: ObjectPath) -> Any:
        read.append(path.name)
        return opened(path)

    monkeypatch.setattr(ObjectPath, "files", property(recorded))
    put_object(bucket, [1.0, 2.0], age_seconds=0)
    ingest_objects(store)
    assert ledger_of(store).entries[0].identity == "recent"
    put_object(bucket, [1.0, 2.0], age_seconds=60)
    write_partition(bucket / "in" / "part-1.parquet", {"x": [5.0, 6.0], "y": [0.0, 1.0]})
    os.utime(bucket / "in" / "part-1.parquet", (0, 0))
    ingest_objects(store)
    assert [entry.identity for entry in ledger_of(store).entries] == ["", ""]
    read.clear()
    ingest_objects(store)
    assert "part-0.parquet" not in read
    assert "part-1.parquet" not in read
