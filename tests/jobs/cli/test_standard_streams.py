"""Standard streams that are closed, full, unread or poor in characters: no run depends on them."""

import subprocess
from pathlib import Path

import pytest
from support.jobs.jobs import COMMAND, Workplace, assert_same_model, clean_environment, run_command, run_prepared

from ridgestream.jobs.cli.exit_codes import OUTPUT_LOST, OUTPUT_UNREAD

STREAMS = {0: "stdin", 1: "stdout", 2: "stderr"}

TO = """
import io, os, sys
def point(stream, descriptor):
    os.dup2(descriptor, stream)
def unread(blocking=True):
    reading, writing = os.pipe()
    os.set_blocking(writing, blocking)
    return reading, writing
def gone():
    reading, writing = unread()
    os.close(reading)
    return writing
def stuffed():
    global reading
    reading, writing = unread(blocking=False)
    try:
        while True:
            os.write(writing, bytes(65536))
    except BlockingIOError:
        return writing
def ascii_only(stream):
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(io.FileIO(stream, "w", closefd=False)), encoding="ascii")
try:
    import ridgestream.jobs.console.standard_streams as streams
    streams.UNREAD_SECONDS = 0.05
except ModuleNotFoundError:
    pass
"""


def closed(*streams: int) -> str:
    return TO + "".join(f"os.close({stream}); sys.{STREAMS[stream]} = None\n" for stream in streams)


STATES = {
    "0 closed": (closed(0), 0),
    "1 closed": (closed(1), 0),
    "2 closed": (closed(2), 0),
    "all closed": (closed(0, 1, 2), 0),
    "1 on a full disk": (TO + "point(1, os.open('/dev/full', os.O_WRONLY))", OUTPUT_LOST),
    "2 on a full disk": (TO + "point(2, os.open('/dev/full', os.O_WRONLY))", 0),
    "1 of a reader that has gone": (TO + "point(1, gone())", OUTPUT_UNREAD),
    "2 of a reader that has gone": (TO + "point(2, gone())", 0),
    "both of a reader that has gone": (TO + "point(1, gone()); point(2, 1)", OUTPUT_UNREAD),
    "1 not blocking and unread": (TO + "point(1, stuffed())", OUTPUT_LOST),
    "2 not blocking and unread": (TO + "point(2, stuffed())", 0),
    "1 open for reading only": (TO + "point(1, os.open(os.devnull, os.O_RDONLY))", OUTPUT_LOST),
    "1 of an encoding that lacks characters": (TO + "ascii_only(1)", 0),
}
"""How a process is prepared, and the exit code of a command whose output is then what it is for."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    work = Workplace(tmp_path_factory.mktemp("undisturbed"))
    put_rows(work)
    work.run_here({"evaluate.path": None})
    return work


def put_rows(work: Workplace) -> None:
    """One partition whose name is more than ASCII."""
    work.put(0).rename(work.folder / "rows" / "Größe.parquet")


@pytest.mark.samples(3)
@pytest.mark.parametrize("state", STATES)
def test_no_stream_changes_a_run_and_only_output_that_is_wanted_changes_an_exit_code(
    tmp_path: Path, undisturbed: Workplace, state: str
) -> None:
    setup, code = STATES[state]
    work = Workplace(tmp_path)
    put_rows(work)
    job = work.job({"evaluate.path": None})
    assert run_prepared(setup, "run", job).code == 0
    assert_same_model(work.model(), undisturbed.model())
    commands: list[list[str | Path]] = [["run", job, "--json"], ["history", job], ["inspect", job]]
    for command in commands:
        done = run_prepared(setup, *command)
        assert done.code == code, (command, done)
        assert "Traceback" not in done.err


def test_an_encoding_that_lacks_characters_shows_them_as_escapes(undisturbed: Workplace) -> None:
    done = run_prepared(TO + "ascii_only(1)", "inspect", undisturbed.store)
    assert r"Gr\xf6\xdfe" in done.out


@pytest.mark.samples
@pytest.mark.parametrize("redirection", ["<&- >&- 2>&-", "2>&1 | head -1 >/dev/null; exit ${PIPESTATUS[0]}"])
def test_a_shell_may_close_the_streams_of_a_real_run(tmp_path: Path, redirection: str) -> None:
    work = Workplace(tmp_path)
    work.put_all(range(1), held_out=0)
    command = f"{COMMAND} ingest {work.job()} {redirection}"
    done = subprocess.run(["bash", "-c", command], env=clean_environment(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert run_command("inspect", work.store, "--json").result["rows"] == 200


def test_what_nobody_reads_of_a_help_text_is_no_error() -> None:
    assert run_prepared(TO + "point(1, gone())", "--help").code == 0
