"""Local workers: closed to other processes, one for each usable processor, whatever Dask is configured to."""

import asyncio
import os
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import dask.config
import psutil
import pytest
from distributed import Security
from distributed.comm.core import connect
from support.points import points

from ridgestream.jobs.cluster.dask_executor import DaskExecutor, open_executor
from ridgestream.jobs.cluster.local_cluster import count_local_workers

PATIENCE = 60.0


@pytest.fixture(scope="module")
def executor() -> Iterator[DaskExecutor]:
    wrong = {"distributed.comm.timeouts.connect": "1ms", "distributed.worker.memory.terminate": 0.01}
    with dask.config.set(wrong), open_executor("local:1", PATIENCE) as executor:
        assert isinstance(executor, DaskExecutor)
        yield executor


def listening() -> list[int]:
    """The ports of this process and of its children."""
    family = [psutil.Process(), *psutil.Process().children(recursive=True)]
    connections = [connection for process in family for connection in process.net_connections()]
    return [connection.laddr.port for connection in connections if connection.status == psutil.CONN_LISTEN]


async def greet(address: str, arguments: dict[str, Any]) -> None:
    """Connect as a client does, without the thread of one: a client that fails leaves it behind."""
    comm = await connect(address, timeout=1, **arguments)
    await comm.close()


@pytest.mark.parametrize(("scheme", "certificate"), [("tcp", False), ("tls", False), ("tls", True)])
def test_no_client_without_the_certificate_reaches_the_scheduler(
    executor: DaskExecutor, scheme: str, certificate: bool
) -> None:
    client = executor._workers._client
    asyncio.run(greet(client.scheduler.address, client.security.get_connection_args("client")))
    port = client.scheduler.address.rpartition(":")[2]
    arguments = Security.temporary().get_connection_args("client") if certificate else {}
    with pytest.raises((OSError, TypeError)):
        asyncio.run(greet(f"{scheme}://127.0.0.1:{port}", arguments))


@pytest.mark.parametrize("encrypted", points([False, True], [False]))
def test_no_port_answers_a_process_without_the_certificate(executor: DaskExecutor, encrypted: bool) -> None:
    """Neither the scheduler's nor one of a worker or of its nanny says a word of Dask's protocol."""
    assert list(executor.run(abs, [-1])) == [1]
    ports = listening()
    assert len(ports) >= 3
    assert {answer_of(port, encrypted=encrypted) for port in ports} <= {b"", b"HTTP/1.1 400 Bad Request"}
    assert list(executor.run(abs, [-2])) == [2]


def answer_of(port: int, *, encrypted: bool) -> bytes:
    """What a port answers to a stranger; nothing if it refuses the connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError), ExitStack() as stack:
        stream = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        stream = stack.enter_context(context.wrap_socket(stream)) if encrypted else stream
        stream.sendall(b"an answer, please\r\n\r\n")
        return stream.recv(100).partition(b"\r")[0]
    return b""


def test_no_server_of_a_local_cluster_has_a_page(executor: DaskExecutor) -> None:
    assert executor.count_workers() == 1
    for port in listening():
        for page in ("health", "info/main/workers.html", "json/counts.json", "metrics", "sysmon"):
            with pytest.raises((urllib.error.HTTPError, OSError)):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=5)


def test_there_are_as_many_workers_as_processors_that_may_be_used() -> None:
    """Affinity stands for quotas of control groups too: Dask's own function reads both."""
    code = f"""
import os
os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})
from ridgestream.jobs.cluster.local_cluster import count_local_workers
print(count_local_workers("local"), count_local_workers("local:3"), count_local_workers("none"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "3", "0"]


def test_a_quota_of_processors_limits_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dask.system._try_extract_cgroup_cpu_quota", lambda: (100_000, 100_000))
    assert count_local_workers("local") == 1


def test_a_broken_configuration_of_dask_is_a_cluster_error(tmp_path: Path) -> None:
    (tmp_path / "dask.yaml").write_text("distributed: [")
    code = "from ridgestream.jobs.cluster.dask_executor import open_executor\nwith open_executor('local:1', 1.0): pass"
    variables = os.environ | {"DASK_CONFIG": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=variables)
    assert "ClusterError: Dask cannot read its configuration" in done.stderr
