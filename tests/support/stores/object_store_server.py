"""An S3-protocol server on loopback as a separate process: moto's, handling one request at a time.

Prints its port on the first line. moto checks If-Match and If-None-Match and then writes, in two steps; with
concurrent requests another write could happen between them.
"""

import logging
import threading
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


class OneAtATime:
    """A WSGI application that reads each request whole and handles one at a time."""

    def __init__(self, application: Any) -> None:
        self._application, self._mutex = application, threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        length = -1 if environ.get("wsgi.input_terminated") else int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = BytesIO(body)  # before the lock, so that a stopped client blocks nobody else
        with self._mutex:
            return [b"".join(self._application(environ, start_response))]


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    print(server.server_port, flush=True)  # noqa: T201
    server.serve_forever()


if __name__ == "__main__":
    main()
