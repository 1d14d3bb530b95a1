"""Any bytes in place of a job file are its settings, or one message and exit code 2."""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.jobs.jobs import Workplace, clean_environment, run_command

from ridgestream.jobs.cli import exit_codes
from ridgestream.jobs.config.job_file import read_job
from ridgestream.jobs.config.toml_file import MOST_BYTES, read_toml
from ridgestream.jobs.config.values import JobFileError, parse_value

PLAIN = 'store = "store"\nsource.path = "rows"\nsource.target = "y"\n'

BROKEN = {
    "UTF-16": (PLAIN.encode("utf-16"), "it is text in UTF-16; save it as UTF-8"),
    "UTF-16 without a mark": (PLAIN.encode("utf-16-le"), "it is not text (there are null bytes)"),
    "UTF-32": (PLAIN.encode("utf-32"), "save it as UTF-8"),
    "Latin-1": (
        (PLAIN + "# Größe").encode("latin-1"),
        "can't decode byte 0xf6 in position",
    ),
    "only carriage returns": (PLAIN.replace("\n", "\r").encode(), "Expected newline or end of document"),
    "null bytes": (PLAIN.encode() + b"\0", "it is not text"),
    "an archive": (b"PK\x03\x04" + bytes(range(256)), "it is not text"),
    "an array 5,000 deep": (PLAIN.encode() + b"a = " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
    "an array 400 deep": (PLAIN.encode() + b"a = " + b"[" * 400 + b"]" * 400, "a: there is no such key"),
    "tables 5,000 deep": (PLAIN.encode() + b"[a" + b".a" * 5000 + b"]", "the job"),
    "a store 5,000 tables deep": (b"store." + b"a." * 5000 + b"a = 1", "the job"),
    "a number of 5,000 digits": (PLAIN.encode() + b"a = " + b"9" * 5000, "4300 digits"),
    "a date that is none": (PLAIN.encode() + b"a = 2026-02-30", "Invalid"),
    "half a string": (b'store = "sto', "Unterminated string"),
    "nothing": (b"", "store: is missing"),
    "too long": (PLAIN.encode() + b"#" * MOST_BYTES, "longer than 1,048,576 bytes"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_job_file_is_one_message(tmp_path: Path, kind: str) -> None:
    content, message = BROKEN[kind]
    file = tmp_path / "job.toml"
    file.write_bytes(content)
    with pytest.raises(JobFileError) as raised:
        read_job(file, {})
    assert message in str(raised.value)
    assert str(file) in str(raised.value)


@pytest.mark.samples
@pytest.mark.parametrize("kind", ["UTF-16", "an array 5,000 deep"])
def test_the_command_ends_with_the_code_of_a_job_file(tmp_path: Path, kind: str) -> None:
    (tmp_path / "job.toml").write_bytes(BROKEN[kind][0])
    done = run_command("run", tmp_path / "job.toml")
    assert (done.code, done.out) == (exit_codes.USAGE, "")
    assert done.err.startswith(f"ridgestream: the job {tmp_path / 'job.toml'} cannot be read")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_not_read(tmp_path: Path, kind: str) -> None:
    """Neither a pipe that nobody writes nor a device without an end."""
    path = Path("/dev/zero") if kind == "device" else tmp_path / "job.toml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    with pytest.raises(JobFileError, match=r"it is not a regular file|there is no job file"):
        read_job(path, {})


def test_a_file_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    with file.open("wb") as hole:
        hole.truncate(2**30)
    with pytest.raises(JobFileError, match="longer than"):
        read_job(file, {})


@pytest.mark.parametrize("content", [b"\xef\xbb\xbf" + PLAIN.encode(), PLAIN.replace("\n", "\r\n").encode()])
def test_a_byte_order_mark_and_the_line_ends_of_windows_are_read(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "job.toml"
    file.write_bytes(content)
    assert read_job(file, {}).source.target == "y"


@settings(max_examples=200, deadline=None)
@given(content=st.one_of(st.binary(max_size=100), st.text(max_size=50).map(lambda text: (PLAIN + text).encode())))
def test_any_bytes_are_settings_or_a_message(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.toml"
    file.write_bytes(content)
    with suppress(JobFileError):
        assert isinstance(read_toml(file), dict)


def test_a_flag_that_is_nested_too_deeply_is_a_message() -> None:
    with pytest.raises(JobFileError, match="nested too deeply"):
        parse_value("[" * 5000)


@pytest.mark.samples
@pytest.mark.parametrize("url", ["http://user:password@host", "http://[", "http://host:99999", "host:9000"])
def test_an_unusable_endpoint_of_the_environment_is_a_message_where_it_is_used(tmp_path: Path, url: str) -> None:
    work = Workplace(tmp_path)
    work.put(0)
    environment = clean_environment(AWS_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="key")  # noqa: S106
    job = work.job({"evaluate.path": None})
    done = run_command("run", job, "--store", "s3://bucket/store", environment=environment)
    assert done.code == exit_codes.STORE
    assert "the endpoint" in done.err
    assert "Traceback" not in done.err
    assert "password" not in done.err
    assert run_command("ingest", job, environment=environment).code == 0
