"""Files that were rewritten: found whatever their size and time stamp; what only looks new is read and known again."""

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.jobs.jobs import Workplace, draw_rows, run_command, set_column

from ridgestream.jobs.cli import exit_codes

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
