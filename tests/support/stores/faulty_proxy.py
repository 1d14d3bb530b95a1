"""A proxy in front of an S3-protocol server that counts requests and spoils those that a rule names.

It only parses where a request and its response end, so everything else is forwarded byte for byte.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from re import search
from typing import Literal

from support.jobs.jobs import PATIENCE
from support.stores.object_store import object_store_environment

Fault = Literal["drop", "lose", "cut", "silence", "strip", "refuse", "none"]
"""What happens to a request.

drop: it does not reach the server, and the connection is closed. lose: the server carries it out, and the connection is
closed before the answer. cut: the connection is closed after half of the answer's body. silence: it is never answered,
and does not reach the server. strip: it loses the headers that make it conditional. refuse: 403, without a reason.
"""

_CONDITIONS = ("if-match", "if-none-match")


@dataclass(frozen=True)
class Rule:
    """Which requests are spoiled, and how."""

    fault: Fault
    only: str = ""
    """A pattern of method and path, such as `PUT .*/refs/`."""
    at: int | None = None
    """Which of them, counted from 1; None for all."""
    conditional: bool = False
    """Whether only conditional requests count."""
    once: bool = False
    """Whether the next request of the same method and path is let through."""
    headers: tuple[str, ...] = _CONDITIONS
    """The headers that `strip` takes."""
    then: Callable[[], None] | None = None
    """Called after the server has answered, or where it does not reach the server, instead of that."""


NOTHING = Rule("none", at=0)


class FaultyProxy:
    """Counts requests and spoils those of its rule."""

    def __init__(self, port: int) -> None:
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": self, "upstream": port}))
        self._mutex = threading.Lock()
        self._rule, self._count = NOTHING, 0
        self._repeated = set[str]()
        self.closed = threading.Event()
        self.seen: list[str] = []
        self.spoiled: list[str] = []

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        return object_store_environment(self.port)

    def arm(self, rule: Rule = NOTHING) -> None:
        """Apply a rule from now on, and count from the start."""
        with self._mutex:
            self.seen, self.spoiled, self._rule, self._count = [], [], rule, 0
            self._repeated.clear()

    def judge(self, request: str, *, conditional: bool) -> Rule:
        """Count a request and return the rule that holds for it."""
        with self._mutex:
            self.seen.append(request)
            rule = self._rule
            if not search(rule.only, request) or (rule.conditional and not conditional):
                return NOTHING
            self._count += 1
            if rule.at is not None and rule.at != self._count:
                return NOTHING
            if rule.once and request in self._repeated:
                self._repeated.remove(request)
                return NOTHING
            self._repeated.add(request)
            self.spoiled.append(request)
            return rule

    def serve(self) -> None:
        self._server.serve_forever()

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128
    """Connections that may wait; Linux lets one beyond them wait for up to a minute before it tries again."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = PATIENCE
    proxy: FaultyProxy
    upstream: int

    def handle_one_request(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            super().handle_one_request()
            return
        self.close_connection = True

    def _pass_on(self) -> None:
        body, names = _read_body(self), {name.lower() for name in self.headers}
        rule = self.proxy.judge(f"{self.command} {self.path}", conditional=bool(names & set(_CONDITIONS)))
        if rule.fault == "refuse":
            self._answer(403, {}, b"")
        elif rule.fault in ("drop", "silence"):
            self._ignore(rule)
        else:
            self._forward(rule, body)

    def _ignore(self, rule: Rule) -> None:
        if rule.then:
            rule.then()
        if rule.fault == "silence":
            self.proxy.closed.wait(10 * PATIENCE)
        self.close_connection = True

    def _forward(self, rule: Rule, body: bytes) -> None:
        response, content = self._ask_server(body, rule.headers if rule.fault == "strip" else ())
        if rule.then:
            rule.then()
        if rule.fault == "lose":
            self.close_connection = True
            return
        whole = response.getheader("Content-Length") if self.command == "HEAD" else None
        sent = content[: len(content) // 2] if rule.fault == "cut" else content
        self._answer(response.status, dict(response.getheaders()), sent, whole or str(len(content)))
        self.close_connection |= rule.fault == "cut"

    def _ask_server(self, body: bytes, stripped: tuple[str, ...]) -> tuple[HTTPResponse, bytes]:
        left_out = ("transfer-encoding", "expect", *stripped)
        connection = HTTPConnection("127.0.0.1", self.upstream, timeout=PATIENCE)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
        connection.request(self.command, self.path, body, headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response, content

    def _answer(self, status: int, headers: Mapping[str, str], content: bytes, length: str = "0") -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("connection", "content-length", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        del format, arguments


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
def faulty_proxy(port: int) -> Iterator[FaultyProxy]:
    """Forward from a free port of loopback to `port`."""
    proxy = FaultyProxy(port)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(PATIENCE)
