"""File locations: objects on a real S3-protocol server are listed, read and written like local files."""

import re
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.stores.faulty_proxy import Rule, faulty_proxy
from support.stores.object_store import BUCKET, KEYS, ObjectStore, object_store
from support.stores.partitions import mixed_columns, write_partition

from ridgestream.stores.errors.exceptions import PartitionError, StoreError
from ridgestream.stores.files.object_storage import StorageSettings
from ridgestream.stores.files.paths import (
    FileLocation,
    ObjectPath,
    open_file,
    parse_location,
    stamp_of,
    write_atomically,
)
from ridgestream.stores.parquet.partitions import (
    BATCH_ROWS,
    check_apart,
    check_unchanged,
    list_partitions,
    read_arrow_schema,
    read_batches,
)
from ridgestream.stores.parquet.predictions import read_provenance, write_predictions
from ridgestream.stores.repository.repository import Store
from ridgestream.stores.repository.store_location import StoreLocation

BASE = Path("/jobs")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set credentials in the environment, but neither a server's address nor a region."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def prefix(server: ObjectStore, tmp_path: Path) -> ObjectPath:
    return ObjectPath(server.location(tmp_path.name), StorageSettings(server.endpoint))


def put(server: ObjectStore, prefix: ObjectPath, folder: Path, names: list[str]) -> None:
    """Write the same files into a folder and below a prefix."""
    for rows, name in enumerate(names):
        path = write_partition(folder / name, mixed_columns(rows))
        server.put(f"{prefix.name}/{name}", path.read_bytes())


NAMES = [
    "part-10.parquet",
    "part-2.parquet",
    "day=1/with space.parquet",
    "day=1/100%25.parquet",
    "day=1/grün#1?&+.parquet",
    "_hidden/part-1.parquet",
    "day=1/.part-3.parquet",
    "_temporary.parquet",
    "notes.txt",
    "upper.PARQUET",
]


def test_a_prefix_is_listed_like_a_folder(server: ObjectStore, prefix: ObjectPath, tmp_path: Path) -> None:
    put(server, prefix, tmp_path / "rows", NAMES)
    local, remote = list_partitions(tmp_path / "rows"), list_partitions(prefix)
    assert [(file.name, file.size_bytes) for file in remote] == [(file.name, file.size_bytes) for file in local]
    assert len(local) == 5
    for one, other in zip(local, remote, strict=True):
        assert str(other.path) == f"{prefix}/{one.name}"
        assert read_arrow_schema(one).equals(read_arrow_schema(other))
        assert list(read_batches(one, None)) == list(read_batches(other, None))
        check_unchanged(other)


def test_a_single_object_is_a_source(server: ObjectStore, prefix: ObjectPath, tmp_path: Path) -> None:
    put(server, prefix, tmp_path, ["a b/rows 100%.data"])
    (file,) = list_partitions(prefix / "a b" / "rows 100%.data")
    assert (file.name, str(file.path)) == ("rows 100%.data", f"{prefix}/a b/rows 100%.data")


@pytest.mark.parametrize("ahead_bytes", [1, 20_000, 10**9])
def test_reading_ahead_does_not_change_the_rows(
    server: ObjectStore, prefix: ObjectPath, tmp_path: Path, ahead_bytes: int
) -> None:
    """Row groups and columns that cross the boundaries of reads ahead, and some that are larger than one."""
    path = tmp_path / "part-1.parquet"
    pq.write_table(pa.table(mixed_columns(20_000)), path, row_group_size=3000, compression="none")
    server.put(f"{prefix.name}/part-1.parquet", path.read_bytes())
    (local,), (remote,) = list_partitions(tmp_path), list_partitions(prefix)
    assert remote.size_bytes > 10 * 20_000
    batches = pq.ParquetFile(open_file(remote.path, ahead_bytes)).iter_batches(BATCH_ROWS)
    assert list(batches) == list(read_batches(remote, None)) == list(read_batches(local, None))


@pytest.mark.parametrize("content", [b"", b"PAR1 but not Parquet", b"x" * 100])
def test_an_object_that_is_not_parquet_is_named(server: ObjectStore, prefix: ObjectPath, content: bytes) -> None:
    server.put(f"{prefix.name}/part-1.parquet", content)
    (file,) = list_partitions(prefix)
    with pytest.raises(PartitionError, match=rf"{prefix}/part-1\.parquet is (empty|not a readable Parquet file)"):
        read_arrow_schema(file)


def test_an_object_that_changed_or_is_gone_raises(server: ObjectStore, prefix: ObjectPath, tmp_path: Path) -> None:
    put(server, prefix, tmp_path, ["part-1.parquet"])
    (file,) = list_partitions(prefix)
    server.put(f"{prefix.name}/part-1.parquet", b"other")
    with pytest.raises(PartitionError, match=rf"{prefix}/part-1\.parquet was changed while it was read"):
        check_unchanged(file)
    prefix.files.delete_file(f"{prefix.path}/part-1.parquet")
    with pytest.raises(PartitionError, match=rf"{prefix}/part-1\.parquet is gone: no such object"):
        check_unchanged(file)
    with pytest.raises(PartitionError, match=rf"{prefix}/part-1\.parquet is not a readable Parquet file"):
        read_arrow_schema(file)


def test_an_empty_prefix_raises(server: ObjectStore, prefix: ObjectPath) -> None:
    with pytest.raises(PartitionError, match=rf"the source {prefix} does not exist: there is no object of that name"):
        list_partitions(prefix)
    server.put(f"{prefix.name}/notes.txt", b"")
    with pytest.raises(PartitionError, match=rf"the source {prefix} has no file whose name ends in \.parquet"):
        list_partitions(prefix)


def test_a_missing_bucket_is_reported(server: ObjectStore) -> None:
    location = ObjectPath("s3://no-such-bucket/rows", StorageSettings(server.endpoint))
    with pytest.raises(StoreError, match=r"s3://no-such-bucket/rows .* there is no bucket 'no-such-bucket'; make it"):
        list_partitions(location)
    with (
        pytest.raises(StoreError, match=r"there is no bucket 'no-such-bucket'; make it"),
        write_atomically(location) as sink,
    ):
        sink.write(b"x")
    with pytest.raises(StoreError, match=r"the store s3://no-such-bucket/rows: there is no bucket 'no-such-bucket'"):
        Store.open(StoreLocation(location.url, location.storage))


def test_an_unreachable_endpoint_is_reported() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # not listening
        endpoint = f"http://127.0.0.1:{bound.getsockname()[1]}"
        location = ObjectPath("s3://bucket/rows", StorageSettings(endpoint))
        with pytest.raises(StoreError, match=rf"s3://bucket/rows cannot be listed: {endpoint} cannot be reached"):
            list_partitions(location)
        with pytest.raises(StoreError, match=rf"the store s3://bucket/rows cannot be opened: {endpoint} cannot be"):
            Store.open(StoreLocation(location.url, location.storage))


@pytest.fixture
def refusing() -> Iterator[str]:
    """The endpoint of a server that denies every request."""

    class Handler(BaseHTTPRequestHandler):
        def refuse(self) -> None:
            body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = refuse  # noqa: N815

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            del format, arguments

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_denied_access_is_reported(refusing: str) -> None:
    location = ObjectPath("s3://bucket/rows", StorageSettings(refusing))
    message = r"s3://bucket/rows cannot be listed: access is denied .* do they reach the bucket 'bucket'"
    with pytest.raises(StoreError, match=message):
        list_partitions(location)
    with pytest.raises(StoreError, match=r"cannot be written: access is denied"), write_atomically(location) as sink:
        sink.write(b"x")
    message = (
        r"the store s3://bucket/rows cannot be read or written.*do the credentials of this process's environment reach"
    )
    with pytest.raises(StoreError, match=message):
        Store.open(StoreLocation(location.url, location.storage))


def test_a_request_without_response_is_repeated(server: ObjectStore, prefix: ObjectPath, tmp_path: Path) -> None:
    put(server, prefix, tmp_path, ["part-1.parquet", "part-2.parquet"])
    dropped: list[str] = []
    with faulty_proxy(server.port) as proxy:

        def drop_next(method: str) -> None:
            proxy.arm(Rule("drop", only=method, at=1, then=lambda: dropped.append(method)))

        location = ObjectPath(prefix.url, StorageSettings(f"http://127.0.0.1:{proxy.port}"))
        drop_next("GET")
        files = list_partitions(location)
        drop_next("GET")
        assert sum(batch.num_rows for file in files for batch in read_batches(file, None)) == 1
        drop_next("PUT")
        with write_atomically(location / "out") as sink:
            sink.write(b"x")
    assert dropped == ["GET", "GET", "PUT"]
    assert server.get(f"{prefix.name}/out") == b"x"


def test_a_missing_region_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    location = ObjectPath("s3://bucket/rows")
    with pytest.raises(StoreError, match=r"no region is known for s3://bucket/rows: set storage\.region in the job"):
        list_partitions(location)
    with pytest.raises(StoreError, match=r"no region is known for .*s3://bucket/rows: set storage\.region in the job"):
        Store.open(StoreLocation(location.url))
    (tmp_path / "config").write_text("[default]\nregion = eu-north-1\n[profile other]\nregion = eu-south-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    assert StorageSettings().region_of("it") == "eu-north-1"
    monkeypatch.setenv("AWS_PROFILE", "other")
    assert StorageSettings().region_of("it") == "eu-south-1"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert StorageSettings().region_of("it") == "us-west-2"
    assert StorageSettings(region="eu-west-1").region_of("it") == "eu-west-1"


@pytest.mark.parametrize(
    "url",
    [
        "s3://me:hush@bucket/rows",
        "s3://AKIAHUSH@bucket/rows",
        "https://me:hush@host/rows",
        "abfs://box:hush@account.dfs.core.windows.net/rows",
        "s3://bucket/rows?X-Amz-Signature=hush",
        "abfs://box/rows?sv=2020&sig=hush",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(url: str) -> None:
    message = r"\*\*\*\S* has credentials in its URL, .* leave them to the environment"
    for attempt in (lambda: parse_location(url, BASE, "the source"), lambda: StoreLocation.parse(url, BASE)):
        with pytest.raises(StoreError, match=message) as caught:
            attempt()
        assert "hush" not in str(caught.value).lower()


def test_credentials_in_the_url_of_an_endpoint_are_refused_and_not_repeated() -> None:
    with pytest.raises(StoreError, match=r"the endpoint .*http://\*\*\*@host has credentials in its URL, ") as caught:
        StorageSettings("http://me:hush@host").endpoint  # noqa: B018
    assert "hush" not in str(caught.value)
    with pytest.raises(StoreError, match="the endpoint 'host:9000' must be a URL such as https://minio"):
        StorageSettings("host:9000").endpoint  # noqa: B018


@pytest.mark.parametrize(
    ("text", "location"),
    [
        ("rows", Path("/jobs/rows")),
        ("../rows/", Path("/rows")),
        ("/data/my rows", Path("/data/my rows")),
        ("file:///data/my%20rows%23%3F", Path("/data/my rows#?")),
        ("file:///data/a#b?c", Path("/data/a#b?c")),
        ("file:/data/rows", Path("/data/rows")),
        ("file://localhost/localhost", Path("/localhost")),
        ("s3://bucket/my rows/100%/", ObjectPath("s3://bucket/my rows/100%")),
        ("gs://bucket", ObjectPath("gs://bucket")),
        ("abfs://box@account.dfs.core.windows.net/x", ObjectPath("abfs://box@account.dfs.core.windows.net/x")),
    ],
)
def test_texts_are_parsed_as_locations(text: str, location: FileLocation) -> None:
    assert parse_location(text, BASE, "the source") == location


def test_keys_are_used_literally() -> None:
    url = ObjectPath("s3://bucket/a b/100%25#1?x").parsed
    assert (url.bucket, url.key, url.path) == ("bucket", "a b/100%25#1?x", "bucket/a b/100%25#1?x")
    azure = ObjectPath("abfs://box@account.dfs.core.windows.net/x").parsed
    assert (azure.bucket, azure.key, azure.account) == ("box", "x", "account")


@pytest.mark.parametrize("text", ["http://host/rows", "s3:///rows", "ftp://host/x", "s3://"])
def test_urls_without_a_location_are_refused(text: str) -> None:
    with pytest.raises(StoreError, match=rf"the source '{text}' must be a path, or a URL of s3, gs, gcs, abfs"):
        parse_location(text, BASE, "the source")


def test_an_object_appears_whole_or_not_at_all(server: ObjectStore, prefix: ObjectPath) -> None:
    def write(content: bytes, error: Exception | None) -> None:
        with write_atomically(prefix / "out") as sink:
            sink.write(content)
            assert server.keys(prefix.name) == before
            if error:
                raise error

    before: list[str] = []
    for size in (0, 10, 12 * 2**20):  # the last is a multipart upload
        with pytest.raises(RuntimeError, match="in the middle"):
            write(b"y" * size, RuntimeError("in the middle"))
        assert server.keys(prefix.name) == before
        write(b"x" * size, None)
        assert server.get(f"{prefix.name}/out") == b"x" * size
        assert stamp_of(prefix / "out").size_bytes == size
        before = ["out"]
    assert server.pending_uploads() == []


def test_the_provenance_of_predictions_is_read_from_their_files(prefix: ObjectPath, tmp_path: Path) -> None:
    schema = pa.schema({"prediction": pa.float64()})
    batch = pa.record_batch([pa.array([0.5] * 50_000)], schema=schema)
    for location in (prefix / "out", tmp_path / "out"):
        assert read_provenance(location) is None
        with write_predictions(location, schema) as predictions:
            for _ in range(6):
                predictions.write_batch(batch)
            predictions.set_provenance({"input": ["ü", 1]})
        assert read_provenance(location) == {"input": ["ü", 1]}
    file = pq.ParquetFile(tmp_path / "out")
    assert [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)] == [150_000, 150_000]
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other")
    with pytest.raises(PartitionError, match=r"other exists and was not written by predict, so it is not"):
        read_provenance(tmp_path / "other")


def test_an_output_inside_the_source_prefix_is_refused() -> None:
    source = ObjectPath(f"s3://{BUCKET}/rows")
    for output in (f"s3://{BUCKET}/rows", f"s3://{BUCKET}/rows/out"):
        with pytest.raises(PartitionError, match=re.escape(f"the output {output} lies in the source {source}")):
            check_apart(source, ObjectPath(output))
    for output in ("s3://other/rows/out", f"s3://{BUCKET}/rows-2", f"s3://{BUCKET}/rows/_out", f"gs://{BUCKET}/rows/x"):
        check_apart(source, ObjectPath(output))
    check_apart(source, BASE)
    check_apart(BASE, source)


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("gs://b/rows", "gcs://b/rows"),
        ("gcs://b/rows", "gs://b/rows/out"),
        ("abfs://box/rows", "az://box/rows/out"),
        ("abfs://box@one.dfs.core.windows.net/rows", "abfss://box@one.blob.core.windows.net/rows/out"),
    ],
)
def test_another_url_scheme_of_a_service_is_the_same_bucket(source: str, output: str) -> None:
    with pytest.raises(PartitionError, match=re.escape(f"the output {output} lies in the source {source}")):
        check_apart(ObjectPath(source), ObjectPath(output))
    other = ObjectPath("abfs://box@two.dfs.core.windows.net/rows")
    check_apart(ObjectPath("abfs://box@one.dfs.core.windows.net/rows"), other)


@pytest.mark.samples
@pytest.mark.parametrize("key", ["rows//x.parquet", "rows/a//x.parquet"])
def test_a_key_with_path_components_is_refused(server: ObjectStore, prefix: ObjectPath, key: str) -> None:
    connection = HTTPConnection("127.0.0.1", server.port)  # Arrow writes no such names
    connection.request("PUT", f"/{BUCKET}/{prefix.name}/{key}", b"x")
    assert connection.getresponse().status == 200
    connection.close()
    with pytest.raises(PartitionError, match="its name has an empty part, which no file can have; rename the object"):
        list_partitions(prefix / "rows")
