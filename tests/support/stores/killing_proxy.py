"""A proxy in front of an S3-protocol server that counts requests and runs a function at one of them.

It only parses where a request and its response end, so everything else is forwarded byte for byte.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.jobs.jobs import PATIENCE


class KillingProxy:
    """Counts requests and runs a function at one of them."""

    def __init__(self, port: int) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(port))
        self._server.daemon_threads = True
        self._mutex = threading.Lock()
        self._strike: Callable[[], None] | None = None
        self._at, self._forward, self._only = 0, False, ""
        self.seen: list[str] = []

    @property
    def port(self) -> int:
        return self._server.server_port

    def arm(self, strike: Callable[[], None] | None, at: int, *, forward: bool, only: str = "") -> None:
        """Call `strike` at request number `at` from now: after forwarding it if `forward`, otherwise instead of that.

        Only requests whose method and path start with `only` are counted.
        """
        with self._mutex:
            self.seen, self._strike, self._at, self._forward, self._only = [], strike, at, forward, only

    def _count(self, request: str) -> Callable[[], None] | None:
        """Count a request and return the function to call if it is the chosen one."""
        with self._mutex:
            if not request.startswith(self._only):
                return None
            self.seen.append(request)
            return self._strike if len(self.seen) == self._at else None

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

            def _forward_request(self) -> None:
                body = _read_body(self)
                strike = proxy._count(f"{self.command} {self.path}")
                if strike and not proxy._forward:
                    strike()
                    self.close_connection = True
                    return
                connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("transfer-encoding", "expect")}
                connection.request(self.command, self.path, body, headers)
                response = connection.getresponse()
                content = response.read()
                connection.close()
                if strike:
                    strike()
                self._send_response(response, content)

            def _send_response(self, response: HTTPResponse, content: bytes) -> None:
                self.send_response_only(response.status, response.reason)
                for name, value in response.getheaders():
                    if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                        self.send_header(name, value)
                length = response.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward_request  # noqa: N815

            def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
                del format, arguments

        return Handler


def _read_body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding") != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length", 0)))
    body = b""
    while size := int(request.rfile.readline(), 16):
        body += request.rfile.read(size)
        request.rfile.readline()
    request.rfile.readline()
    return body


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
