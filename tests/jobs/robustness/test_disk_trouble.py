"""Disk full, not writable, damaged: a clear error, the last commit as it was, and no trace once the cause is gone."""

import errno
import os
import re
import shutil
import sys
from collections.abc import Iterator
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
    """One night that went well, and partitions for the next."""
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


def assert_clear(done: Outcome, said: str) -> None:
    """One message, the exit code of the store, and nothing of how the program is made."""
    assert done.code == exit_codes.STORE, done
    assert re.search(said, done.err), done.err
    assert not re.search("Traceback|panicked|asyncio|Task exception", done.err), done.err
    *_, last = done.err.splitlines()
    assert last.startswith("ridgestream: ")


def assert_first_night_stands(work: Workplace, first_night: Workplace) -> None:
    assert_same_model(work.model(), first_night.model())
    assert len(run_inspect(StoreLocation(str(work.store)))["partitions"]) in (len(FIRST), len(FIRST) + len(NEW))


def assert_goes_on(work: Workplace, undisturbed: Workplace) -> None:
    """The same command finishes, and the store has nothing twice."""
    work.run_here(JOB)
    assert_same_model(work.model(), undisturbed.model())
    told = run_inspect(StoreLocation(str(work.store)))
    assert [partition["name"] for partition in told["partitions"]] == [f"part-{n:02d}.parquet" for n in range(6)]


@pytest.mark.parametrize("limit_bytes", [0, 300, 1_500, 3_000])
def test_no_file_may_be_larger(
    work: Workplace, first_night: Workplace, undisturbed: Workplace, limit_bytes: int
) -> None:
    done = run_limited(
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit_bytes}, {limit_bytes}))", "run", work.job(JOB)
    )
    assert_clear(done, f"{re.escape(str(work.store))}.* cannot be (read or )?written: .*(File too large|os error 27)")
    assert_first_night_stands(work, first_night)
    assert_goes_on(work, undisturbed)


def run_failing(work: Workplace, at: int, error: int, *arguments: str) -> tuple[Outcome, list[str]]:
    """Run a command whose calls to write into the store fail from one of them on; return those that it made, too."""
    log = work.folder / "log"
    trap = CallTrap([COMMAND, *arguments], work.store, lambda *_: None, at, log, clean_environment(), fails=error)
    code = trap.wait(120)
    return Outcome(code, log.with_name("log.out").read_text(), log.read_text()), trap.calls


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory, first_night: Workplace) -> list[str]:
    """What the second night writes."""
    work = copy_of(first_night, tmp_path_factory.mktemp("calls") / "work")
    done, calls = run_failing(work, 0, 0, "run", str(work.job(JOB)))
    assert done.code == 0
    return calls


@pytest.mark.parametrize("share", [0.05, 0.2, 0.4, 0.6, 0.8, 0.95])
def test_the_disk_is_full_from_some_moment_on(
    work: Workplace, first_night: Workplace, undisturbed: Workplace, calls: list[str], share: float
) -> None:
    done, made = run_failing(work, int(share * len(calls)), errno.ENOSPC, "run", str(work.job(JOB)))
    assert_clear(done, r"cannot be (read or )?written: .*No space left on device")
    assert len(made) < 2 * len(calls)  # it does not try for ever
    assert_first_night_stands(work, undisturbed if share > 0.9 else first_night)  # there, only the tag is missing
    assert_goes_on(work, undisturbed)


@pytest.mark.parametrize("error", [errno.EIO, errno.EROFS, errno.EDQUOT])
def test_the_disk_does_not_take_a_write(
    work: Workplace, first_night: Workplace, undisturbed: Workplace, calls: list[str], error: int
) -> None:
    done, _ = run_failing(work, len(calls) // 2, error, "run", str(work.job(JOB)))
    assert_clear(done, rf"cannot be (read or )?written: .*{os.strerror(error)}")
    assert_first_night_stands(work, first_night)
    assert_goes_on(work, undisturbed)


def test_a_file_system_that_is_mounted_read_only(
    work: Workplace, first_night: Workplace, undisturbed: Workplace
) -> None:
    """Who reads needs nothing of it; who writes is told at once."""
    done, _ = run_failing(work, 1, errno.EROFS, "run", str(work.job(JOB)))
    assert_clear(done, "cannot be written: Read-only file system")
    done, _ = run_failing(work, 1, errno.EROFS, "inspect", str(work.store), "--json")
    assert (done.code, done.err) == (0, "")
    done, _ = run_failing(
        work, 1, errno.EROFS, "predict", str(work.job(JOB)), str(work.folder / "rows"), str(work.folder / "predicted")
    )
    assert done.code == 0, done
    assert_first_night_stands(work, first_night)
    assert_goes_on(work, undisturbed)


FULL_DISK = """
import ctypes, os, pathlib, shutil, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
folder, job, size, command = sys.argv[1:]
store, aside = pathlib.Path(folder), pathlib.Path(folder).with_name("aside")
shutil.copytree(store, aside)
if libc.unshare(0x00020000) or libc.mount(b"none", b"/", None, 0x44000, None):  # own mounts, which nobody else sees
    sys.exit(77)
if libc.mount(b"tmpfs", os.fsencode(store), b"tmpfs", 0, f"size={size}".encode()):
    sys.exit(77)
shutil.copytree(aside, store, dirs_exist_ok=True)
done = subprocess.run([command, "run", job])
libc.umount2(os.fsencode(aside), 2)
shutil.rmtree(aside)
shutil.copytree(store, aside)
sys.exit(done.returncode)
"""


@pytest.mark.parametrize("spare_kib", [4, 40, 120])
def test_a_disk_that_is_full(work: Workplace, first_night: Workplace, undisturbed: Workplace, spare_kib: int) -> None:
    """A real one, where this process may mount it."""
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
    assert_goes_on(work, undisturbed)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, undisturbed: Workplace) -> Workplace:
    """Two nights, and a partition for a third."""
    work = copy_of(undisturbed, tmp_path_factory.mktemp("whole") / "work")
    work.put(6, draw_rows(6, ROWS))
    return work


def of_last_commit(work: Workplace) -> dict[str, Path]:
    """A file of each kind that the last commit cannot be read without."""
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
    else:  # of a commit's listing at its beginning: it has no checksum, and a text in it may take any byte
        content[100 if path.parent.name == "snapshots" else len(content) // 2] ^= 0x55
        path.write_bytes(content)


@pytest.mark.parametrize("how", ["a byte", "truncated", "deleted"])
@pytest.mark.parametrize("kind", ["chunk", "manifest", "snapshot", "branch"])
def test_damage_of_the_last_commit(tmp_path: Path, whole: Workplace, kind: str, how: str) -> None:
    work = copy_of(whole, tmp_path / "work")
    path = of_last_commit(work)[kind]
    sound = path.read_bytes()
    damage(path, how)
    left = {file: file.read_bytes() for file in work.store.rglob("*") if file.is_file() and "readers" not in file.parts}
    with pytest.raises(StoreError, match=re.escape(str(work.store))):
        work.run_here(JOB)
    with pytest.raises(StoreError, match=re.escape(str(work.store))):
        run_inspect(StoreLocation(str(work.store)))
    for file, content in left.items():  # nothing is taken away of what can still be restored
        assert file.name in ("writer.json", "writer.lock") or file.read_bytes() == content
    path.write_bytes(sound)
    assert work.run_here(JOB)["new_partitions"] == 1


@pytest.mark.parametrize(("kind", "how"), [("chunk", "a byte"), ("snapshot", "deleted"), ("branch", "deleted")])
def test_the_command_reports_damage(tmp_path: Path, whole: Workplace, kind: str, how: str) -> None:
    work = copy_of(whole, tmp_path / "work")
    damage(of_last_commit(work)[kind], how)
    assert_clear(run_command("run", work.job(JOB)), str(work.store))
    assert_clear(run_command("inspect", work.store), str(work.store))


def seen(store: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a reader sees of a store: what `inspect` tells, and every value of the model."""
    record = require_model(open_store(store).root(), "model")
    return run_inspect(StoreLocation(str(store))), bits_of(record)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_byte_in_any_file_is_seen_or_does_not_matter(tmp_path: Path, whole: Workplace, seed: int) -> None:
    work, rng = copy_of(whole, tmp_path / "work"), np.random.default_rng(seed)
    sound, refused = seen(work.store), set()
    files = [file for file in sorted(work.store.rglob("*")) if file.is_file() and "readers" not in file.parts]
    for file in files:
        content = file.read_bytes()
        if content:
            place = int(rng.integers(len(content)))
            file.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
            try:
                assert seen(work.store) == sound, file
            except (StoreError, ModelError):
                refused.add(file.parent.relative_to(work.store).parts[0])
            file.write_bytes(content)
    assert {"snapshots", "manifests", "chunks"} <= refused
    assert seen(work.store) == sound


@pytest.mark.parametrize("how", ["a byte", "deleted"])
def test_damage_of_what_only_a_merge_would_read(tmp_path: Path, whole: Workplace, how: str) -> None:
    work = copy_of(whole, tmp_path / "work")
    for path in (work.store / "transactions").iterdir():
        damage(path, how)
    assert work.run_here(JOB)["new_partitions"] == 1


def test_what_damage_has_not_reached_can_be_read(tmp_path: Path, whole: Workplace, first_night: Workplace) -> None:
    """The second night is damaged: the first is as it was."""
    work = copy_of(whole, tmp_path / "work")
    store = open_store(work.store)
    first = store.snapshot_of_tag(night_tag("model", 1))
    damage(work.store / "snapshots" / store.snapshot(), "deleted")
    repository_root = store.root(first)
    assert_same_model(require_model(repository_root, "model"), first_night.model())


def damaged_segments(work: Workplace) -> Iterator[Path]:
    """Damage the first partition's values, which no later night reads."""
    chunks = sorted((work.store / "chunks").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    damage(chunks[0], "a byte")
    yield chunks[0]


def test_damage_of_learned_rows_is_found_when_they_are_read(tmp_path: Path, whole: Workplace) -> None:
    work = copy_of(whole, tmp_path / "work")
    (path,) = damaged_segments(work)
    before = open_store(work.store).snapshot()
    with pytest.raises(StoreError, match="damaged data"):
        work.run_here(JOB, new_model=True)
    assert path.exists()
    root = open_store(work.store).root(before)
    assert require_model(root, "model").history[-1].number == 2


def test_native_code_that_breaks_off_is_an_error_of_the_store() -> None:
    """Such an exception is none that Python's `except Exception` sees."""

    class PanicException(BaseException):
        pass

    said = "/s cannot be read or written: index out of bounds"
    with pytest.raises(StoreError, match=f"the store {said}"), store_errors("the store /s"):
        raise PanicException("index out of bounds")
    with pytest.raises(StoreError, match=said), prefix_errors("/s"):
        raise PanicException("index out of bounds")
    with pytest.raises(KeyboardInterrupt, match="by hand"), prefix_errors("/s"), store_errors("the store /s"):
        raise KeyboardInterrupt("by hand")


def test_each_commit_is_on_disk_before_the_branch_points_to_it(calls: list[str]) -> None:
    """What a power cut may not tear apart, as the calls are made: kill −9 does not tell, since the kernel lives on."""
    kinds = [
        told for told in calls if not told.split()[1:] or not told.split()[1].startswith(("/readers", "/writer", "/."))
    ]
    moved = [i for i, told in enumerate(kinds) if told == "rename /refs/branch.main/ref.json"]
    assert len(moved) == 2
    for i in moved:
        before = [told for told in kinds[:i] if "/refs/branch.main" not in told]
        assert before[-1].split()[0] == "syncfs", before[-5:]
        after = [told.split()[0] for told in kinds[i:]]
        assert "syncfs" in after
