"""A real S3-protocol server for the tests: a process of its own on loopback, with a bucket."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

from support.jobs import PATIENCE

BUCKET = "ridgestream"


@dataclass(frozen=True)
class ObjectStore:
    """A server that keeps one bucket in its memory."""

    port: int
    process: "subprocess.Popen[bytes]" = field(repr=False)

    @property
    def environment(self) -> Mapping[str, str]:
        """What tells a process of the server and gives it keys."""
        return object_store_environment(self.port)

    def location(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"


def object_store_environment(port: int) -> dict[str, str]:
    """Return what sends S3 requests to a port of loopback."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def object_store(folder: Path) -> Iterator[ObjectStore]:
    """Start a server, make its bucket, and kill it at the end; what it says is in the folder's file server.log."""
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
