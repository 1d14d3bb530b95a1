"""A real S3-protocol server for the tests: a separate process on loopback, with one bucket."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, unquote
from xml.etree import ElementTree as ET

from pyarrow.fs import S3FileSystem
from support.jobs.jobs import PATIENCE

BUCKET = "ridgestream"


@dataclass(frozen=True)
class ObjectStore:
    """A server that keeps one bucket in its memory."""

    port: int
    process: "subprocess.Popen[bytes]" = field(repr=False)

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables with the server's address and credentials."""
        return object_store_environment(self.port)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def location(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def put(self, key: str, content: bytes) -> None:
        """Write an object."""
        with self._files().open_output_stream(f"{BUCKET}/{key}") as stream:
            stream.write(content)

    def put_folder(self, folder: Path, prefix: str) -> str:
        """Write all files of a folder below a prefix and return its location."""
        for path in folder.rglob("*.parquet"):
            self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return self.location(prefix)

    def get(self, key: str) -> bytes:
        with self._files().open_input_stream(f"{BUCKET}/{key}") as stream:
            return bytes(stream.read())

    def media_type(self, key: str) -> str:
        """The Content-Type of an object."""
        with self._files().open_input_stream(f"{BUCKET}/{key}") as stream:
            return bytes(stream.metadata()["Content-Type"]).decode()

    def delete(self, key: str) -> None:
        """Delete an object."""
        self._files().delete_file(f"{BUCKET}/{key}")

    def _files(self) -> S3FileSystem:
        options = {"region": "us-east-1", "scheme": "http", "endpoint_override": f"127.0.0.1:{self.port}"}
        return S3FileSystem(access_key="key", secret_key="secret", **options)  # noqa: S106

    def keys(self, prefix: str) -> list[str]:
        """The names of all objects below a prefix, relative to it."""
        document = ET.fromstring(self._get(f"?list-type=2&prefix={quote(prefix)}/"))  # noqa: S314 (from moto)
        keys = [unquote(key.text or "") for key in document.iter() if key.tag.endswith("Key")]
        return sorted(key.removeprefix(f"{prefix}/") for key in keys)

    def pending_uploads(self) -> list[str]:
        """The names of multipart uploads that were neither completed nor aborted."""
        document = ET.fromstring(self._get("?uploads"))  # noqa: S314 (from moto)
        return [key.text or "" for key in document.iter() if key.tag.endswith("Key")]

    def _get(self, query: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", f"/{BUCKET}{query}")
        response = connection.getresponse()
        content = response.read()
        connection.close()
        assert response.status == 200, content
        return content


def object_store_environment(port: int) -> dict[str, str]:
    """Return environment variables that send S3 requests to a port on loopback."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Start a server, create its bucket, and kill it at the end; its output goes to server.log in `folder`."""
    program = Path(__file__).with_name("object_store_server.py")
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout
        port = int(process.stdout.readline())
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        connection.close()
        yield ObjectStore(port, process)
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
"""Credentials without the server's address."""
