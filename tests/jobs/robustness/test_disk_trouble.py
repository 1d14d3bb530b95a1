"""Full, read-only and damaged disks: a clear error, an intact last commit, and full recovery afterwards."""

import errno
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.jobs.jobs import (
    COMMAND,
    Outcome,
    Workplace,
    assert_same_model,
    bits_of,
    clean_environment,
    draw_rows,
    open_store,
    run_command,
    run_limited,
)
from support.points import points
from support.stores.storage_calls import CallTrap

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.commands.inspect import run_inspect
from ridgestream.stores.catalog.models import night_tag, require_model
from ridgestream.stores.errors.exceptions import ModelError, StoreError
from ridgestream.stores.errors.translation import prefix_errors, store_errors
from ridgestream.stores.repository.store_location import StoreLocation

ROWS = 60
JOB = {"evaluate.path": None, "model.max_basis": 10, "model.scaling_rows": ROWS}
FIRST, NEW = range(3), range(3, 6)
"""Partitions of the first night and of the second."""


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """One successful night, and partitions for the next."""
    work = Workplace(tmp_path_factory.mktemp("first"))
    for number in FIRST:
        work.put(number, draw_rows(number, ROWS))
    work.run_here(JOB)
    for number in NEW:
        work.put(number, draw_rows(number, ROWS))
    return work


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, first_night: Workplace) -> Workplace:
    work = copy_of(first_night, tmp_path_factory.mktemp("undisturbed") / "work")
    work.run_here(JOB)
    return work


@pytest.fixture
def work(tmp_path: Path, first_night: Workplace) -> Workplace:
    return copy_of(first_night, tmp_path / "work")


def copy_of(work: Workplace, folder: Path) -> Workplace:
    shutil.copytree(work.folder, folder)
    return Workplace(folder)


def assert_clear(outcome: Outcome, message: str) -> None:
    """Check for one message, the exit code of the store, and no internals."""
    assert outcome.code == exit_codes.STORE, outcome
    assert re.search(message, outcome.err), outcome.err
    assert not re.search("Traceback|panicked|asyncio|Task exception", outcome.err), outcome.err
    *_, last = outcome.err.splitlines()
    assert last.startswith("ridgestream: ")


def assert_first_night_stands(work: Workplace, first_night: Workplace) -> None:
    assert_same_model(work.model(), first_night.model())
    assert len(run_inspect(StoreLocation(str(work.store)))["partitions"]) in (len(FIRST), len(FIRST) + len(NEW))


def assert_recovers(work: Workplace, undisturbed: Workplace) -> None:
    """Check that the same command finishes, and that the store has every partition once."""
    work.run_here(JOB)
    assert_same_model(work.model(), undisturbed.model())
    summary = run_inspect(StoreLocation(str(work.store)))
    assert [partition["name"] for partition in summary["partitions"]] == [f"part-{n:02d}.parquet" for n in range(6)]


@pytest.mark.thorough
@pytest.mark.parametrize("limit_bytes", points([0, 300, 1_500, 3_000], [1_500]))
def test_a_limit_on_file_size_is_reported(
    work: Workplace, first_night: Workplace, undisturbed: Workplace, limit_bytes: int
) -> None:
    outcome = run_limited(
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))", "run", work.job(JOB)
    )
    assert_clear(
        outcome, f"{re.escape(str(work.store))}.* cannot be (read or )?written: .*(File too large|os error 27)"
    )
    assert_first_night_stands(work, first_night)
    assert_recovers(work, undisturbed)


def run_failing(work: Workplace, at: int, error: int, *arguments: str) -> tuple[Outcome, list[str]]:
    """Run a command whose writes to the store fail from call `at` on; return its outcome and its calls."""
    log = work.folder / "log"
    trap = CallTrap([COMMAND, *arguments], work.store, lambda *_: None, at, log, clean_environment(), fails=error)
    code = trap.wait(120)
    return Outcome(code, log.with_name("log.out").read_text(), log.read_text()), trap.calls


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory, first_night: Workplace) -> list[str]:
    """Calls with which the second night writes."""
    work = copy_of(first_night, tmp_path_factory.mktemp("calls") / "work")
    outcome, calls = run_failing(work, 0, 0, "run", str(work.job(JOB)))
    assert outcome.code == 0
    return calls


@pytest.mark.thorough
@pytest.mark.parametrize("share", points([0.05, 0.2, 0.4, 0.6, 0.8, 0.97], [0.2, 0.97]))
def test_a_disk_that_becomes_full_is_reported(
    work: Workplace, first_night: Workplace, undisturbed: Workplace, calls: list[str], share: float
) -> None:
    failing = int(share * len(calls))
    outcome, calls_made = run_failing(work, failing, errno.ENOSPC, "run", str(work.job(JOB)))
    assert_clear(outcome, r"cannot be (read or )?written: .*No space left on device")
    assert len(calls_made) < 2 * len(calls)  # it does not retry for ever
    is_committed = "rename /refs/branch.main/ref.json" not in calls[failing - 1 :]  # only the tag is missing
    assert_first_night_stands(work, undisturbed if is_committed else first_night)
    assert_recovers(work, undisturbed)


@pytest.mark.thorough
@pytest.mark.parametrize("error", points([errno.EIO, errno.EROFS, errno.EDQUOT], [errno.EIO]))
def test_a_failing_write_is_reported(
    work: Workplace, first_night: Workplace, undisturbed: Workplace, calls: list[str], error: int
) -> None:
    outcome, _ = run_failing(work, len(calls) // 2, error, "run", str(work.job(JOB)))
    assert_clear(outcome, rf"cannot be (read or )?written: .*{os.strerror(error)}")
    assert_first_night_stands(work, first_night)
    assert_recovers(work, undisturbed)


@pytest.mark.thorough
def test_a_read_only_file_system_can_be_read_and_is_reported_to_writers(
    work: Workplace, first_night: Workplace, undisturbed: Workplace
) -> None:
    """Readers need no write access; a writer fails at once."""
    outcome, _ = run_failing(work, 1, errno.EROFS, "run", str(work.job(JOB)))
    assert_clear(outcome, "cannot be written: Read-only file system")
    outcome, _ = run_failing(work, 1, errno.EROFS, "inspect", str(work.store), "--json")
    assert (outcome.code, outcome.err) == (0, "")
    outcome, _ = run_failing(
        work, 1, errno.EROFS, "predict", str(work.job(JOB)), str(work.folder / "rows"), str(work.folder / "predicted")
    )
    assert outcome.code == 0, outcome
    assert_first_night_stands(work, first_night)
    assert_recovers(work, undisturbed)


FULL_DISK = """
import ctypes, os, pathlib, shutil, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
folder, job, size, command = sys.argv[1:]
store, aside = pathlib.Path(folder), pathlib.Path(folder).with_name("aside")
shutil.copytree(store, aside)
if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None):  # private mounts
    sys.exit(77)
if libc.mount(b"tmpfs", os.fsencode(store), b"tmpfs", 0, f"size={size}".encode()):
    sys.exit(77)
shutil.copytree(aside, store, dirs_exist_ok=True)
process = subprocess.run([command, "run", job])
libc.umount2(os.fsencode(aside), 2)
shutil.rmtree(aside)
shutil.copytree(store, aside)
sys.exit(process.returncode)
"""


@pytest.mark.thorough
@pytest.mark.parametrize("spare_kib", points([4, 40, 120], [40]))
def test_a_really_full_disk_is_reported(
    work: Workplace, first_night: Workplace, undisturbed: Workplace, spare_kib: int
) -> None:
    """Uses a real full disk, if this process may mount one."""
    used = sum(-(-path.stat().st_size // 4096) for path in work.store.rglob("*") if path.is_file()) * 4
    script = work.folder / "full.py"
    script.write_text(FULL_DISK)
    outcome = run_limited(
        "pass", str(script), work.store, work.job(JOB), f"{used + spare_kib}k", COMMAND, program=sys.executable
    )
    if outcome.code == 77:
        pytest.skip("no file system may be mounted here")
    assert_clear(outcome, "cannot be (read or )?written: .*No space left on device")
    shutil.rmtree(work.store)
    (work.folder / "aside").rename(work.store)
    assert_first_night_stands(work, first_night)
    assert_recovers(work, undisturbed)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, undisturbed: Workplace) -> Workplace:
    """Two successful nights, and a partition for a third."""
    work = copy_of(undisturbed, tmp_path_factory.mktemp("whole") / "work")
    work.put(6, draw_rows(6, ROWS))
    return work


def files_of_last_commit(work: Workplace) -> dict[str, Path]:
    """Return one file of each kind that the last commit needs."""
    store = open_store(work.store)
    chunks = sorted((work.store / "chunks").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    manifests = sorted((work.store / "manifests").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    return {
        "chunk": chunks[-1],
        "manifest": manifests[-1],
        "snapshot": work.store / "snapshots" / store.snapshot(),
        "branch": work.store / "refs" / "branch.main" / "ref.json",
    }


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "deleted":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    else:  # near the start of a snapshot: it has no checksum, and its texts may contain any byte
        content[100 if path.parent.name == "snapshots" else len(content) // 2] ^= 0x55
        path.write_bytes(content)


@pytest.mark.samples(3)
@pytest.mark.parametrize("how", ["a byte", "truncated", "deleted"])
@pytest.mark.parametrize("kind", ["chunk", "manifest", "snapshot", "branch"])
def test_damage_of_the_last_commit_raises_and_can_be_repaired(
    tmp_path: Path, whole: Workplace, kind: str, how: str
) -> None:
    work = copy_of(whole, tmp_path / "work")
    path = files_of_last_commit(work)[kind]
    sound = path.read_bytes()
    damage(path, how)
    contents = {
        file: file.read_bytes() for file in work.store.rglob("*") if file.is_file() and "readers" not in file.parts
    }
    with pytest.raises(StoreError, match=re.escape(str(work.store))):
        work.run_here(JOB)
    with pytest.raises(StoreError, match=re.escape(str(work.store))):
        run_inspect(StoreLocation(str(work.store)))
    for file, content in contents.items():  # nothing that can still be restored is deleted
        assert file.name in ("writer.json", "writer.lock") or file.read_bytes() == content
    path.write_bytes(sound)
    assert work.run_here(JOB)["new_partitions"] == 1


@pytest.mark.samples
@pytest.mark.parametrize(("kind", "how"), [("chunk", "a byte"), ("snapshot", "deleted"), ("branch", "deleted")])
def test_the_command_reports_damage(tmp_path: Path, whole: Workplace, kind: str, how: str) -> None:
    work = copy_of(whole, tmp_path / "work")
    damage(files_of_last_commit(work)[kind], how)
    assert_clear(run_command("run", work.job(JOB)), str(work.store))
    assert_clear(run_command("inspect", work.store), str(work.store))


def read_everything(store: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a reader sees of a store: the output of `inspect` and every value of the model."""
    record = require_model(open_store(store).root(), "model")
    return run_inspect(StoreLocation(str(store))), bits_of(record)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", points(range(2), [0]))
def test_a_damaged_byte_in_any_file_is_detected_or_harmless(tmp_path: Path, whole: Workplace, seed: int) -> None:
    work, rng = copy_of(whole, tmp_path / "work"), np.random.default_rng(seed)
    sound, refused = read_everything(work.store), set()
    files = [file for file in sorted(work.store.rglob("*")) if file.is_file() and "readers" not in file.parts]
    for file in files:
        content = file.read_bytes()
        if content:
            position = int(rng.integers(len(content)))
            file.write_bytes(content[:position] + bytes([content[position] ^ 0x55]) + content[position + 1 :])
            try:
                assert read_everything(work.store) == sound, file
            except (StoreError, ModelError):
                refused.add(file.parent.relative_to(work.store).parts[0])
            file.write_bytes(content)
    assert {"snapshots", "manifests", "chunks"} <= refused
    assert read_everything(work.store) == sound


@pytest.mark.parametrize("how", ["a byte", "deleted"])
def test_damage_of_files_that_only_a_merge_reads_is_harmless(tmp_path: Path, whole: Workplace, how: str) -> None:
    work = copy_of(whole, tmp_path / "work")
    for path in (work.store / "transactions").iterdir():
        damage(path, how)
    assert work.run_here(JOB)["new_partitions"] == 1


def test_undamaged_snapshots_can_be_read(tmp_path: Path, whole: Workplace, first_night: Workplace) -> None:
    """The second night is damaged, the first is intact."""
    work = copy_of(whole, tmp_path / "work")
    store = open_store(work.store)
    first = store.snapshot_of_tag(night_tag("model", 1))
    damage(work.store / "snapshots" / store.snapshot(), "deleted")
    repository_root = store.root(first)
    assert_same_model(require_model(repository_root, "model"), first_night.model())


def damage_first_segment(work: Workplace) -> Path:
    """Damage the first partition's values, which no later night reads, and return the file."""
    chunks = sorted((work.store / "chunks").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    damage(chunks[0], "a byte")
    return chunks[0]


def test_damage_of_learned_rows_is_detected_when_they_are_read(tmp_path: Path, whole: Workplace) -> None:
    work = copy_of(whole, tmp_path / "work")
    path = damage_first_segment(work)
    before = open_store(work.store).snapshot()
    with pytest.raises(StoreError, match="damaged data"):
        work.run_here(JOB, new_model=True)
    assert path.exists()
    root = open_store(work.store).root(before)
    assert require_model(root, "model").history[-1].number == 2


def test_a_panic_of_native_code_is_a_store_error() -> None:
    """Such an exception is not caught by `except Exception`."""

    class PanicException(BaseException):
        pass

    message = "/s cannot be read or written: index out of bounds"
    with pytest.raises(StoreError, match=f"the store {message}"), store_errors("the store /s"):
        raise PanicException("index out of bounds")
    with pytest.raises(StoreError, match=message), prefix_errors("/s"):
        raise PanicException("index out of bounds")
    with pytest.raises(KeyboardInterrupt, match="by hand"), prefix_errors("/s"), store_errors("the store /s"):
        raise KeyboardInterrupt("by hand")


def test_each_commit_is_on_disk_before_the_branch_points_to_it(calls: list[str]) -> None:
    """Checks the order of calls, which matters in a power cut; kill −9 does not show it, since the kernel survives."""
    kinds = [
        call for call in calls if not call.split()[1:] or not call.split()[1].startswith(("/readers", "/writer", "/."))
    ]
    branch_updates = [i for i, call in enumerate(kinds) if call == "rename /refs/branch.main/ref.json"]
    assert len(branch_updates) == 2
    for i in branch_updates:
        before = [call for call in kinds[:i] if "/refs/branch.main" not in call]
        assert before[-1].split()[0] == "syncfs", before[-5:]
        after = [call.split()[0] for call in kinds[i:]]
        assert "syncfs" in after
