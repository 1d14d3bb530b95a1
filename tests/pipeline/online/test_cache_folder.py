"""Machine code is cached in the user's cache, by a digest of all compiled sources, and never in the package."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from support.points import points

import ridgestream.pipeline
from ridgestream.pipeline.online.compiled import jit
from ridgestream.pipeline.online.compiled.cache_folder import UNUSED_DAYS, cache_folder, compiled_sources
from ridgestream.pipeline.online.compiled.jit import compiled
from ridgestream.pipeline.online.compiled.update import run_rows

PROGRAM = """
from pathlib import Path
import sys
from ridgestream.pipeline.online.compiled.jit import compiled
from numba import config
import functions

assert functions.twice(3) == 6
print(functions.twice.stats.cache_path)
print(config.CACHE_DIR)
"""
FUNCTIONS = """
from ridgestream.pipeline.online.compiled.jit import compiled

@compiled
def twice(x):
    return 2 * x
"""


def run_program(folder: Path, **environment: str) -> list[str]:
    """Compile a function in a new process; return where its code is cached, and numba's setting afterwards."""
    (folder / "functions.py").write_text(FUNCTIONS)
    command, variables = [sys.executable, "-c", PROGRAM], os.environ | environment
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


def test_the_learner_is_not_cached_in_the_package() -> None:
    package = Path(ridgestream.pipeline.__path__[0])
    folder = Path(run_rows.stats.cache_path)  # type: ignore[attr-defined]
    assert not folder.is_relative_to(package)
    assert folder.parent.name.startswith("ridgestream-")


def test_code_is_cached_in_the_users_cache(tmp_path: Path) -> None:
    cached, setting = run_program(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"), NUMBA_CACHE_DIR="")[:2]
    assert Path(cached).is_relative_to(tmp_path / "cache" / "ridgestream")
    assert {file.suffix for file in Path(cached).iterdir()} == {".nbi", ".nbc"}
    assert setting == "", "numba's own setting must be restored"
    assert not list(tmp_path.glob("__pycache__/*.nb?"))


def test_the_users_own_folder_for_numba_is_respected(tmp_path: Path) -> None:
    cached, setting = run_program(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "own"))[:2]
    assert Path(cached).parents[1] == tmp_path / "own"
    assert setting == str(tmp_path / "own")


def test_where_the_users_cache_cannot_be_written_numba_chooses_another_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cached = run_program(tmp_path, XDG_CACHE_HOME=str(tmp_path / "file"), NUMBA_CACHE_DIR="")[0]
    assert Path(cached) == tmp_path / "__pycache__"


def damage_all(folder: str, suffix: str, size: int) -> None:
    for file in Path(folder).glob(f"*{suffix}"):
        file.write_bytes(file.read_bytes()[:size])


@pytest.mark.thorough
@pytest.mark.parametrize(("suffix", "size"), points(product([".nbi", ".nbc"], [0, 20]), [(".nbi", 0), (".nbc", 20)]))
def test_a_damaged_cache_costs_a_compilation_and_is_written_again(tmp_path: Path, suffix: str, size: int) -> None:
    folder = run_program(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "own"))[0]
    whole = {file.name for file in Path(folder).iterdir()}
    damage_all(folder, suffix, size)
    run_program(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "own"))
    assert {file.name for file in Path(folder).iterdir()} >= whole
    run_program(tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "own"), PYTHONWARNINGS="error")


def test_no_machine_code_with_a_damaged_bit_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit of an instruction would be a crash, or another result; most of them are found by nobody else."""
    monkeypatch.setattr(jit, "_FOLDER", tmp_path)

    @compiled
    def thrice(x: int) -> int:
        return 3 * x

    assert thrice(2) == 6
    (file,), files = tmp_path.rglob("*.nbc"), thrice._cache._cache_file  # type: ignore[attr-defined]
    whole = file.read_bytes()
    assert files._load_data(file.name)
    for bit in np.random.default_rng(0).choice(8 * len(whole), 200):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"\.nbc is damaged"):
            files._load_data(file.name)


def fill(folder: Path) -> None:
    """Let no file of this process, and of those that it starts, have a byte: a full disk, or a quota."""
    del folder
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))


def put_a_file(folder: Path) -> None:
    (folder / "own").touch()


def put_folders(folder: Path) -> None:
    """Folders where the cache's files belong."""
    for file in list((folder / "own").rglob("*.nb?")):
        file.unlink()
        file.mkdir()


@pytest.mark.samples
@pytest.mark.parametrize("spoil", [fill, put_a_file, put_folders])
def test_a_cache_that_cannot_be_written_or_read_costs_a_compilation_alone(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "own"), "PYTHONDONTWRITEBYTECODE": "1"}
    if spoil is put_folders:
        run_program(tmp_path, **variables)
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    done = subprocess.run(
        [sys.executable, "-c", "import functions; print(functions.twice(3))"],
        cwd=tmp_path,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: spoil(tmp_path),
    )
    assert (done.returncode, done.stdout) == (0, "6\n"), done.stderr


def test_code_that_cannot_be_cached_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no compiled object yet")

    monkeypatch.setattr("numba.core.caching.CompileResultCacheImpl.reduce", fail)

    @compiled
    def thrice(x: int) -> int:
        return 3 * x

    with pytest.warns(RuntimeWarning, match="no compiled object yet"):
        assert thrice(2) == 6


def test_a_changed_source_gives_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sources = [tmp_path / source.name for source in compiled_sources()]
    for source, copy in zip(compiled_sources(), sources, strict=True):
        copy.write_bytes(source.read_bytes())
    folder = cache_folder(sources)
    assert folder == cache_folder(compiled_sources())
    for copy in sources:
        content = copy.read_bytes()
        copy.write_bytes(content + b"\n")
        assert cache_folder(sources) != folder, copy.name
        copy.write_bytes(content)
    assert cache_folder(sources) == folder


def test_every_compiled_source_is_in_the_digest() -> None:
    names = {source.name for source in compiled_sources()}
    assert {"kernels.py", "update.py", "swap_criterion.py", "swap.py", "kernel_column.py"} <= names


def test_folders_unused_for_long_are_deleted_when_a_new_one_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    old, recent, foreign = (tmp_path / "ridgestream" / name for name in ("ridgestream-a", "ridgestream-b", "other"))
    days_ago = time.time() - (UNUSED_DAYS + 1) * 86_400
    for folder in (old, recent, foreign):
        folder.mkdir(parents=True)
        if folder is not recent:
            os.utime(folder, (days_ago, days_ago))
    source = tmp_path / "source.py"
    source.touch()
    assert cache_folder([source])
    assert [folder.exists() for folder in (old, recent, foreign)] == [False, True, True]


def test_without_a_home_there_is_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert cache_folder(compiled_sources()) is None
