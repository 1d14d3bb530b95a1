"""An S3-protocol server on loopback, a process of its own: moto's, with its writes one after the other.

Prints its port on the first line. What moto checks of If-Match and If-None-Match and what it then writes are two steps,
which another request could come between.
"""

import logging
import threading
from collections.abc import Iterable
from io import BytesIO
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


class OneAtATime:
    """A WSGI application that sees each request whole, and no two at once."""

    def __init__(self, application: Any) -> None:
        self._application, self._mutex = application, threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        length = -1 if environ.get("wsgi.input_terminated") else int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = BytesIO(body)  # here, so that nobody waits for a client that is stopped in the middle
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
