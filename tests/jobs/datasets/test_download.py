"""Fetching the forest tables from a real server on the loopback, which serves the real data."""

import contextlib
import errno
import gzip
import hashlib
import http.server
import io
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from ridgestream.jobs.datasets import download as fetch
from ridgestream.jobs.datasets import forest

BUNDLED = Path(__file__).parents[2] / "data" / "forest"
NAMES = tuple(partition.name for partition in forest.PARTITIONS)


@dataclass(frozen=True)
class Answer:
    """What the server says to one request."""

    body: bytes = b""
    status: int = 200
    declared_bytes: int | None = None
    """The Content-Length, if it is not that of the body; -1 for none."""
    hang_up: bool = False
    hold: threading.Event | None = None
    """The last byte is sent only after this."""


@dataclass
class Site:
    """A server's pages: the answers to a path are given in turn, and the last of them again and again."""

    address: str
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def serve(self, path: str, *answers: Answer) -> str:
        self.answers[path] = list(answers)
        return self.address + path

    def next_answer(self, path: str) -> Answer:
        self.asked.append(path)
        answers = self.answers.get(path, [Answer(status=404)])
        return answers.pop(0) if len(answers) > 1 else answers[0]


def make_handler(site: Site) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = site.next_answer(self.path)
            if answer.hang_up:
                return
            self.send_response(answer.status)
            if answer.declared_bytes != -1:
                self.send_header("Content-Length", str(answer.declared_bytes or len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body[:-1])
            if answer.hold is not None:
                answer.hold.wait(30)
            with contextlib.suppress(ConnectionError):
                self.wfile.write(answer.body[-1:])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
            pass

    return Handler


@pytest.fixture
def site() -> Iterator[Site]:
    pages = Site("")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), make_handler(pages)) as server:
        pages.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield pages
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture(scope="module")
def bundled() -> dict[str, pa.Table]:
    return {name: pq.read_table(BUNDLED / name) for name in NAMES}


@pytest.fixture(scope="module")
def data(bundled: dict[str, pa.Table]) -> bytes:
    shuffled = pa.concat_tables(bundled.values()).combine_chunks()
    rows = shuffled.take(np.argsort(forest.shuffled_order()))
    text = io.BytesIO()
    pyarrow.csv.write_csv(rows, text, pyarrow.csv.WriteOptions(include_header=False))
    return text.getvalue()


@pytest.fixture(scope="module")
def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, compresslevel=1, mtime=0)


@pytest.fixture(scope="module")
def archive(gzipped: bytes) -> bytes:
    return zip_members({"covtype.info": b"Forest Covertype data", "covtype.data.gz": gzipped})


def zip_members(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as members_file:
        for name, content in members.items():
            members_file.writestr(name, content)
    return file.getvalue()


class Steps(list[tuple[str, int, int | None]]):
    """A report that keeps what it is told."""

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        self.append((stage, done, total))

    def last(self, stage: str) -> tuple[int, int | None]:
        return [(done, total) for name, done, total in self if name == stage][-1]


def run(destination: Path, url: str, *, retries: int = 0, report: Steps | None = None) -> fetch.FetchReport:
    return fetch.fetch_forest(
        destination, url=url, report=Steps() if report is None else report, retry_seconds=[0.0] * retries
    )


def stamp(path: Path) -> tuple[int, int]:
    return path.stat().st_ino, path.stat().st_mtime_ns


def files_below(folder: Path) -> list[str]:
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if not name.endswith(".lock"))


def assert_tables(destination: Path, bundled: dict[str, pa.Table]) -> None:
    assert files_below(destination) == sorted(NAMES)
    for name, table in bundled.items():
        found = pq.read_table(destination / name)
        assert found.schema.equals(table.schema, check_metadata=True)
        assert found.equals(table)


def start(destination: Path, url: str, before: str = "") -> subprocess.Popen[str]:
    """Start a fetch in another process, which prints each stage it reaches, and then its report."""
    code = f"""
import sys
from pathlib import Path
from ridgestream.jobs.datasets.download import fetch_forest
{before}
def report(stage, done, total):
    print(stage, flush=True)
print(fetch_forest(Path(sys.argv[1]), url=sys.argv[2], report=report, retry_seconds=()))
"""
    command = [sys.executable, "-W", "error", "-c", code, str(destination), url]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_bundled_tables_are_the_published_data_and_the_pinned_partitions(data: bytes) -> None:
    assert len(data) == forest.DATA_BYTES
    assert hashlib.sha256(data).hexdigest() == forest.DATA_SHA256
    assert forest.missing_partitions(BUNDLED) == ()


def test_notice_states_the_checksum_of_each_bundled_file() -> None:
    notice = (BUNDLED / "NOTICE.md").read_text()
    assert "Jock A. Blackard and Colorado State University" in notice
    assert forest.DATA_SHA256 in notice
    for partition in forest.PARTITIONS:
        digest = hashlib.sha256((BUNDLED / partition.name).read_bytes()).hexdigest()
        assert f"| `{partition.name}` | {partition.stop - partition.start:,} | `{digest}` |" in notice


def test_a_fetch_makes_the_bundled_tables_and_a_second_one_does_nothing(
    site: Site, tmp_path: Path, archive: bytes, bundled: dict[str, pa.Table]
) -> None:
    url, steps, again = site.serve("/covtype.zip", Answer(archive)), Steps(), Steps()
    first = run(tmp_path / "deep" / "forest", url, report=steps)
    assert_tables(tmp_path / "deep" / "forest", bundled)
    assert (first.written, first.kept, first.downloaded_bytes) == (NAMES, (), len(archive))
    assert steps.last("download") == (len(archive), len(archive))
    assert steps.last("unpack") == (forest.DATA_BYTES, forest.DATA_BYTES)
    assert steps.last("write") == (11, 11)

    stamps = [stamp(tmp_path / "deep" / "forest" / name) for name in NAMES]
    second = run(tmp_path / "deep" / "forest", url, report=again)
    assert (second.written, second.kept, second.downloaded_bytes) == ((), NAMES, 0)
    assert [stamp(tmp_path / "deep" / "forest" / name) for name in NAMES] == stamps
    assert again == []
    assert site.asked == ["/covtype.zip"]


def test_wrong_tables_are_known_by_content_and_only_they_are_written_again(
    site: Site, tmp_path: Path, gzipped: bytes, bundled: dict[str, pa.Table]
) -> None:
    for name, table in bundled.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / name, compression="snappy")
    reordered = bundled["train/part-03.parquet"].take(np.arange(forest.N_PARTITION_ROWS)[::-1])
    pq.write_table(reordered, tmp_path / "train/part-03.parquet")
    (tmp_path / "train/part-04.parquet").write_bytes((BUNDLED / "train/part-04.parquet").read_bytes()[:-9])
    (tmp_path / "train/part-05.parquet").unlink()
    before = stamp(tmp_path / "test/part-00.parquet")

    found = run(tmp_path, site.serve("/covtype.data.gz", Answer(gzipped, declared_bytes=-1)))
    assert found.written == ("train/part-03.parquet", "train/part-04.parquet", "train/part-05.parquet")
    assert stamp(tmp_path / "test/part-00.parquet") == before
    assert_tables(tmp_path, bundled)


def test_a_null_or_a_renamed_column_makes_a_table_wrong(tmp_path: Path, bundled: dict[str, pa.Table]) -> None:
    partition, table = forest.PARTITIONS[0], bundled["test/part-00.parquet"]
    (tmp_path / "test").mkdir()
    with_null = pa.array([None, *table["Cover_Type"].to_pylist()[1:]], pa.uint8())
    for wrong in (table.set_column(54, "Cover_Type", with_null), table.rename_columns([*table.schema.names[:-1], "y"])):
        pq.write_table(wrong, tmp_path / partition.name)
        assert not forest.holds_partition(tmp_path, partition)


def test_two_fetches_at_once_take_turns_and_download_once(
    site: Site, tmp_path: Path, archive: bytes, bundled: dict[str, pa.Table]
) -> None:
    go = threading.Event()
    url = site.serve("/covtype.zip", Answer(archive, hold=go))
    with start(tmp_path / "forest", url) as one, start(tmp_path / "forest", url) as two:
        first_words = {one: (one.stdout or io.StringIO()).readline(), two: (two.stdout or io.StringIO()).readline()}
        go.set()
        outputs = [first_words[process] + process.communicate(timeout=60)[0] for process in (one, two)]
    assert (one.returncode, two.returncode) == (0, 0)
    assert sorted(words.strip() for words in first_words.values()) == ["download", "wait"]
    assert sorted("downloaded_bytes=0" in output for output in outputs) == [False, True]
    assert site.asked == ["/covtype.zip"]
    assert_tables(tmp_path / "forest", bundled)


def broken_answers(data: bytes, gzipped: bytes, archive: bytes) -> dict[str, tuple[Answer, str]]:
    """Give the breakdowns by path: what the server answers, and what the error says came."""
    bent_archive = bytearray(archive)
    bent_archive[len(archive) // 2] ^= 1
    bent_data = gzip.compress(b"3" + data[1:], compresslevel=1)
    many_zeros = gzip.compress(bytes(1 << 20), compresslevel=1) * 4_000
    too_many = bytes(forest.DATA_BYTES + 1)
    n = len(archive)
    return {
        "/short": (Answer(archive[: n // 2], declared_bytes=n), rf"ends after {n // 2:,} of {n:,} bytes"),
        "/short-undeclared": (Answer(archive[: n // 2], declared_bytes=-1), r"damaged archive \(BadZipFile"),
        "/short-gzip": (Answer(gzipped[:-99]), r"damaged archive \(EOFError"),
        "/flipped-archive": (Answer(bytes(bent_archive)), r"damaged archive \((BadZipFile|error|BadGzipFile)"),
        "/flipped-data": (Answer(bent_data), r"got 75,169,317 bytes with sha256 [0-9a-f]{64}\. Run again"),
        "/other-data": (Answer(gzip.compress(b"1,2,3\n")), r"sha256 0a9371ce[0-9a-f]{56}, got 6 bytes with sha256"),
        "/missing": (Answer(status=404), r"HTTP Error 404: Not Found\. Check the address"),
        "/down": (Answer(status=500), r"HTTP Error 500"),
        "/hang-up": (Answer(hang_up=True), r"RemoteDisconnected"),
        "/no-member": (Answer(zip_members({"readme": b""})), r"zip file without it, whose members are \['readme'\]"),
        "/page": (Answer(b"<html>Please log in</html>"), r"neither zip nor gzip and begins with b'<htm'"),
        "/nothing": (Answer(declared_bytes=-1), r"neither zip nor gzip and begins with b''"),
        "/endless": (Answer(too_many), r"more bytes than all its data unpacked \(75,169,317\)"),
        "/bomb": (
            Answer(zip_members({"covtype.data.gz": many_zeros})),
            r"75,169,317 bytes .* got more bytes than that",
        ),
        "/wide": (
            Answer(zip_members({"covtype.data.gz": too_many}, zipfile.ZIP_DEFLATED)),
            r"a member of 75,169,318 bytes",
        ),
    }


def test_each_breakdown_says_what_came_and_leaves_no_file_and_a_good_run_succeeds(
    site: Site, tmp_path: Path, data: bytes, gzipped: bytes, archive: bytes, bundled: dict[str, pa.Table]
) -> None:
    destination = tmp_path / "forest"
    for path, (answer, came) in broken_answers(data, gzipped, archive).items():
        steps = Steps()
        with pytest.raises(fetch.FetchError, match=came):
            run(destination, site.serve(path, answer), report=steps)
        assert files_below(tmp_path) == [], path
        assert max((done for stage, done, _ in steps if stage == "unpack"), default=0) <= forest.DATA_BYTES
    run(destination, site.serve("/covtype.zip", Answer(archive)))
    assert_tables(destination, bundled)


def test_a_breakdown_leaves_the_right_tables_that_were_there(site: Site, tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    (tmp_path / "test/part-00.parquet").write_bytes((BUNDLED / "test/part-00.parquet").read_bytes())
    with pytest.raises(fetch.FetchError, match="HTTP Error 404"):
        run(tmp_path, site.address + "/missing")
    assert files_below(tmp_path) == ["test/part-00.parquet"]
    assert forest.holds_partition(tmp_path, forest.PARTITIONS[0])


def test_passing_faults_are_tried_again_and_lasting_ones_are_not(site: Site, tmp_path: Path) -> None:
    other = gzip.compress(b"1,2,3\n")
    faults = (Answer(status=503), Answer(hang_up=True), Answer(b"1", declared_bytes=9), Answer(status=429))
    with pytest.raises(fetch.FetchError, match="got 6 bytes"):
        run(tmp_path, site.serve("/flaky", *faults, Answer(other)), retries=4)
    with pytest.raises(fetch.FetchError, match="HTTP Error 503"):
        run(tmp_path, site.serve("/down", Answer(status=503)), retries=2)
    with pytest.raises(fetch.FetchError, match="HTTP Error 403"):
        run(tmp_path, site.serve("/forbidden", Answer(status=403)), retries=2)
    assert site.asked == ["/flaky"] * 5 + ["/down"] * 3 + ["/forbidden"]


def test_a_silent_server_is_given_up(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT_SECONDS", 0.1)
    go = threading.Event()
    with pytest.raises(fetch.FetchError, match="TimeoutError: timed out"):
        run(tmp_path, site.serve("/silent", Answer(b"PK", declared_bytes=9, hold=go)))
    go.set()
    assert files_below(tmp_path) == []


@pytest.mark.parametrize(
    ("url", "came"),
    [
        ("ftp://127.0.0.1/covtype.zip", "an address that is not http, https or file"),
        ("covtype.zip", "an address that is not http, https or file"),
        ("http://127.0.0.1:port/", "InvalidURL"),
        ("http://[/", "ValueError"),
        ("file:///nowhere/covtype.zip", "No such file or directory"),
    ],
)
def test_an_address_that_cannot_work_is_refused_at_once(tmp_path: Path, url: str, came: str) -> None:
    with pytest.raises(fetch.FetchError, match=came):
        fetch.fetch_forest(tmp_path, url=url, report=Steps(), retry_seconds=[1_000.0])


def test_a_fetch_that_was_killed_leaves_nothing_in_the_way_of_the_next(
    site: Site, tmp_path: Path, archive: bytes, bundled: dict[str, pa.Table]
) -> None:
    go, destination = threading.Event(), tmp_path / "forest"
    half = Answer(archive[: 2 * fetch.BLOCK_BYTES], declared_bytes=len(archive), hold=go)
    with start(destination, site.serve("/half", half)) as process:
        assert (process.stdout or io.StringIO()).readline() == "download\n"
        process.kill()
    go.set()
    assert process.returncode == -signal.SIGKILL
    assert files_below(destination) == [".fetch/archive"]

    (tmp_path / "covtype.zip").write_bytes(archive)
    run(destination, (tmp_path / "covtype.zip").as_uri())
    assert_tables(destination, bundled)


def test_a_disk_that_refuses_is_named_and_nothing_is_left(site: Site, tmp_path: Path, archive: bytes) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000_000, 40_000_000))"
    with start(tmp_path / "forest", site.serve("/covtype.zip", Answer(archive)), limit) as process:
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "unpack" in output
    assert "FetchError: Expected to write the forest tables to" in errors
    assert os.strerror(errno.EFBIG) in errors
    assert files_below(tmp_path) == []


def test_a_destination_that_is_a_file_is_refused(site: Site, tmp_path: Path) -> None:
    (tmp_path / "forest").write_text("mine")
    with pytest.raises(fetch.FetchError, match=r"Expected to write the forest tables to .*forest, got .*Error"):
        run(tmp_path / "forest", site.address + "/covtype.zip")
    assert (tmp_path / "forest").read_text() == "mine"


def test_a_full_disk_is_refused_before_the_download(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "NEEDED_BYTES", 1 << 60)
    with pytest.raises(fetch.FetchError, match=r"Expected 1,152,921,504,606,846,976 free bytes .* got [\d,]+\. Free"):
        run(tmp_path, site.address + "/covtype.zip")
    assert site.asked == []


def test_another_order_than_the_pinned_one_is_refused(
    site: Site, tmp_path: Path, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forest, "shuffled_order", lambda: np.arange(forest.N_ROWS))
    with pytest.raises(fetch.FetchError, match=r"test/part-00\.parquet with content sha256 .* versions of NumPy"):
        run(tmp_path, site.serve("/covtype.zip", Answer(archive)))
    assert files_below(tmp_path) == []
