"""What the environment changes of Python and of libraries changes no bit and no exit code, or is refused in words."""

import os
import re
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from support.jobs.jobs import (
    COMMAND,
    Workplace,
    assert_same_model,
    clean_environment,
    run_prepared,
    run_program,
)
from support.points import points

from ridgestream.jobs.cli import exit_codes, interpreter

FAILING = """
import numpy as np, pyarrow as pa
import ridgestream.jobs.cli.execution
import ridgestream.jobs.config.job_file
def fail(*arguments):
    {statement}
ridgestream.jobs.config.job_file.read_job = fail
"""
"""The command fails like this in mid run."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("undisturbed"))
    work.put_all(range(2))
    work.run_here()
    return work


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = Workplace(tmp_path)
    work.put_all(range(2))
    return work


WRONG = {
    "ZARR_DEFAULT_ZARR_FORMAT": "2",
    "ZARR_ARRAY__ORDER": "F",
    "ZARR_ARRAY__WRITE_EMPTY_CHUNKS": "True",
    "ZARR_CODEC_PIPELINE__BATCH_SIZE": "0",
    "ZARR_THREADING__MAX_WORKERS": "0",
    "NUMBA_DISABLE_JIT": "1",
    "NUMBA_OPT": "0",
    "NUMBA_BOUNDSCHECK": "1",
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_LOOP_VECTORIZE": "0",
    "PYTHONWARNINGS": "error",
    "PYTHONHASHSEED": "7",
    "PYTHONSAFEPATH": "1",
    "PYTHONDEVMODE": "1",
    "OMP_NUM_THREADS": "3",
    "OPENBLAS_NUM_THREADS": "0",
    "MKL_NUM_THREADS": "many",
    "NUMBA_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "nonsense",
    "ARROW_USER_SIMD_LEVEL": "NONE",
    "ICECHUNK_LOG": "trace",
    "DASK_CONFIG": "/nonexistent",
    "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "True",
    "DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE": "0.01",
    "DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD": "fork",
    "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "1ms",
    "TZ": "Pacific/Kiritimati",
    "LC_ALL": "C",
    "LANG": "tr_TR.UTF-8",
    "TMPDIR": "/nonexistent",
}


def run_in(work: Workplace, *arguments: str, **variables: str) -> None:
    """Run the job in an environment with these variables, and in a home that is not there."""
    environment = clean_environment(HOME="/nonexistent", XDG_CACHE_HOME=str(Path.home() / ".cache")) | variables
    done = run_program([COMMAND, "run", work.job(), "--json", *arguments], environment=environment)
    assert done.result["rows_seen"] == 400
    assert "Traceback" not in done.err


def test_no_variable_of_the_environment_changes_a_bit(work: Workplace, undisturbed: Workplace) -> None:
    run_in(work, **WRONG)
    assert_same_model(work.model(), undisturbed.model())


@pytest.mark.thorough
def test_compiled_code_is_the_same_whatever_numba_is_told(work: Workplace, undisturbed: Workplace) -> None:
    """Compiled afresh, in a working directory with numba's own file of settings."""
    (work.folder / ".numba_config.yaml").write_text("disable_jit: 1\nopt: 0\nboundscheck: 1\n")
    variables = {name: value for name, value in WRONG.items() if name.startswith("NUMBA")}
    environment = clean_environment(**variables, NUMBA_CACHE_DIR=str(work.folder / "cache"))
    done = run_program([COMMAND, "run", work.job(), "--json"], environment=environment, cwd=work.folder)
    assert done.code == 0, done
    assert_same_model(work.model(), undisturbed.model())


@pytest.mark.thorough
def test_no_variable_or_file_changes_a_run_on_local_workers(work: Workplace, undisturbed: Workplace) -> None:
    for library, text in {
        "dask": "distributed: {comm: {require-encryption: true}}",
        "zarr": "default_zarr_format: 2",
    }.items():
        (work.folder / "home" / ".config" / library).mkdir(parents=True)
        (work.folder / "home" / ".config" / library / "own.yaml").write_text(text)
    wrong = WRONG | {"TMPDIR": os.environ.get("TMPDIR", "/tmp")}  # noqa: S108 - workers need one
    run_in(work, "--cluster", "local:2", **wrong, HOME=str(work.folder / "home"))
    assert_same_model(work.model(), undisturbed.model())


@pytest.mark.parametrize("level", ["1", "2"])
def test_python_without_assertions_is_refused_at_the_door(work: Workplace, level: str) -> None:
    done = run_program([COMMAND, "run", work.job()], environment=clean_environment(PYTHONOPTIMIZE=level))
    assert done.code == exit_codes.USAGE
    assert done.err.startswith("ridgestream: Python leaves out assertions (python -O or PYTHONOPTIMIZE)")
    assert not work.store.exists()


def test_a_program_without_assertions_opens_no_store(undisturbed: Workplace) -> None:
    code = f"""
from pathlib import Path
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation
Store.open(StoreLocation({str(undisturbed.store)!r}))
"""
    done = run_program([sys.executable, "-O", "-c", code])
    assert "StoreError" in done.err
    assert "unset PYTHONOPTIMIZE" in done.err
    assert "damaged" not in done.err


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ("raise MemoryError", exit_codes.MEMORY, "gets no more memory"),
        ("np.empty(2**59)", exit_codes.MEMORY, "Unable to allocate 4.00 EiB"),
        ("pa.allocate_buffer(2**59)", exit_codes.MEMORY, "gets no more memory"),
        ('raise RuntimeError("can\'t start new thread")', exit_codes.MEMORY, "can't start new thread"),
        ("raise OSError(12, 'Cannot allocate memory')", exit_codes.MEMORY, "Cannot allocate memory"),
        ("raise EOFError", exit_codes.UNEXPECTED, "EOFError"),
        ("raise BrokenPipeError(32, 'Broken pipe')", exit_codes.UNEXPECTED, "BrokenPipeError"),
        ("raise RecursionError('too deep')", exit_codes.UNEXPECTED, "too deep"),
        ("raise ImportError('no such library')", exit_codes.UNEXPECTED, "no such library"),
    ],
)
def test_an_error_from_anywhere_ends_with_its_code_and_words(
    work: Workplace, statement: str, code: int, message: str
) -> None:
    done = run_prepared(FAILING.format(statement=statement), "ingest", work.job())
    assert done.code == code, done
    assert message in done.err
    assert "Aborted" not in done.err
    assert ("Traceback" in done.err) == (code == exit_codes.UNEXPECTED)


LIMITS = {"RLIMIT_AS": (300, 600, 1000), "RLIMIT_DATA": (200, 400)}


@pytest.mark.parametrize(("limit", "megabytes"), [(name, size) for name, sizes in LIMITS.items() for size in sizes])
def test_a_limit_that_is_too_low_for_the_libraries_is_refused_at_once(
    work: Workplace, limit: str, megabytes: int
) -> None:
    """Icechunk would wait without end for threads that cannot start."""
    setup = f"import resource; resource.setrlimit(resource.{limit}, ({megabytes} * 10**6, -1))"
    done = run_prepared(setup, "run", work.job())
    assert done.code == exit_codes.MEMORY, done
    assert f"the process may use {megabytes:,} MB of" in done.err
    assert not work.store.exists()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("megabytes", "codes"),
    [
        (1500, {0}),
        *(pytest.param(m, {0, exit_codes.MEMORY}, marks=pytest.mark.thorough) for m in (1100, 1200, 1300)),
        *(pytest.param(m, {0}, marks=pytest.mark.thorough) for m in (2000, 3000)),
    ],
)
def test_a_limit_on_address_space_is_kept_or_refused(work: Workplace, megabytes: int, codes: set[int]) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (megabytes * 10**6, megabytes * 10**6))

    done = subprocess.run(
        [COMMAND, "run", str(work.job())], preexec_fn=limit, capture_output=True, timeout=120, check=False
    )
    assert done.returncode in codes, done
    assert b"Traceback" not in done.stderr
    assert b"damaged" not in done.stderr


BROKEN_YAML = {
    "a number as key": "1: 2",
    "a list": "- a",
    "no YAML": "array: {order: [}",
    "not UTF-8": b"\xff\xfe",
}


@pytest.mark.parametrize("content", points(BROKEN_YAML.values(), [BROKEN_YAML["a number as key"]]), ids=str)
def test_a_broken_configuration_of_zarr_is_refused_with_its_remedy(
    undisturbed: Workplace, tmp_path: Path, content: str | bytes
) -> None:
    file = tmp_path / "zarr.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = run_program([COMMAND, "inspect", undisturbed.store], environment=clean_environment(ZARR_CONFIG=str(file)))
    assert done.code == exit_codes.STORE
    assert re.fullmatch(r"ridgestream: Zarr cannot read .*; correct or remove them\n", done.err)


WARN = """
import warnings
from ridgestream.jobs.cli.interpreter import prepare_process
prepare_process()
warnings.warn("to change in the next release", FutureWarning)
print("continues")
"""


@pytest.mark.parametrize("given", [["-W", "error"], ["-W", "error::FutureWarning"], ["-X", "dev", "-W", "error"]])
def test_a_library_s_warning_stops_nothing_where_warnings_are_errors(given: list[str]) -> None:
    outcome = run_program([sys.executable, *given, "-c", WARN])
    assert (outcome.code, outcome.out) == (0, "continues\n"), outcome
    assert "message='a library warns' warning='to change in the next release'" in outcome.err


FREE = """
from pathlib import Path
from ridgestream.jobs.cli.interpreter import prepare_process
prepare_process()
import numpy as np
def resident():
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])
np.ones(3_500_000)  # glibc would keep blocks of its 28 MB from now on
blocks = [np.ones(3_500_000) for _ in range(4)]
before = resident()
del blocks[::2]
print(before - resident())
"""


def test_large_blocks_go_back_to_the_system_when_they_are_freed() -> None:
    outcome = run_program([sys.executable, "-c", FREE])
    assert int(outcome.out) > 50 * 10**6, outcome


def test_a_library_s_warning_is_a_line_of_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = interpreter._write_warning
        warnings.warn("the machine code cannot be used", RuntimeWarning, stacklevel=1)
    (line,) = capsys.readouterr().err.splitlines()
    for part in ("level='warning' event='library.warned'", "warning='the machine code cannot", "kind='RuntimeWarning'"):
        assert part in line
