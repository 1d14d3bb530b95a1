"""A proxy before an S3-protocol server: it counts the requests, and kills a process at one of them.

It looks at nothing but where a request and its answer end, so that what passes is what the storage engine said.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.jobs import PATIENCE

READS = ("GET", "HEAD")


class KillingProxy:
    """Requests that came, and at which of them whom to kill."""

    def __init__(self, port: int) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(port))
        self._server.daemon_threads = True
        self._mutex = threading.Lock()
        self.seen: list[str] = []
        self._at, self._forward, self._reads, self._group = 0, False, True, 0

    @property
    def port(self) -> int:
        return self._server.server_port

    def count_from_here(self) -> None:
        """Forget what has come, and kill nobody."""
        with self._mutex:
            self.seen, self._at = [], 0

    def arm(self, at: int, *, forward: bool, reads: bool = True) -> None:
        """Kill the target at the request number `at` from here, before its forwarding or after; reads may not count."""
        with self._mutex:
            self.seen, self._at, self._forward, self._reads, self._group = [], at, forward, reads, 0

    def aim(self, group: int) -> None:
        """Name the process group that is to be killed."""
        self._group = group

    def _comes(self, told: str) -> bool:
        """Count a request and tell whether it is the one."""
        with self._mutex:
            if not self._reads and told.startswith(READS):
                return False
            self.seen.append(told)
            return len(self.seen) == self._at

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._group, signal.SIGKILL)

    def _handler(self, port: int) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = PATIENCE

            def handle_one_request(self) -> None:
                with suppress(ConnectionError, TimeoutError):
                    super().handle_one_request()
                    return
                self.close_connection = True

            def _pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                it_is_this_one = proxy._comes(f"{self.command} {self.path}")
                if it_is_this_one and not proxy._forward:
                    proxy._kill()
                    self.close_connection = True
                    return
                connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                connection.request(self.command, self.path, body, dict(self.headers))
                answer = connection.getresponse()
                content = answer.read()
                connection.close()
                if it_is_this_one:
                    proxy._kill()
                self._give_back(answer, content)

            def _give_back(self, answer: HTTPResponse, content: bytes) -> None:
                self.send_response_only(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                del format, arguments

        return Handler


@contextmanager
def killing_proxy(port: int) -> Iterator[KillingProxy]:
    """Forward from a free port of loopback to `port`."""
    proxy = KillingProxy(port)
    thread = threading.Thread(target=proxy._server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy._server.shutdown()
        thread.join(PATIENCE)
        proxy._server.server_close()
