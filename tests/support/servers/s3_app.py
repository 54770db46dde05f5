"""moto's S3 as a program of its own:     python s3_app.py PORT [lock] [pause] [deaf]

moto looks at the conditions of a put and writes later, with nothing in between that keeps other threads out.

    lock    one request after the other, so that check and write are one step
    pause   stand still for a moment between the two, as a busy machine does now and then
    deaf    drop the conditions, as a store does that does not know them
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from io import BytesIO
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.s3.models import S3Backend
from werkzeug.serving import make_server

Application = Callable[..., Iterable[bytes]]
MOMENT = 0.05


def pausing() -> None:
    """Its own ``put_object`` comes after the look at the conditions."""
    write = S3Backend.put_object

    def slowly(*arguments: Any, **more: Any) -> Any:
        time.sleep(MOMENT)
        return write(*arguments, **more)

    setattr(S3Backend, "put_object", slowly)  # noqa: B010 # mypy lets nobody assign to a method


def serve(port: int, modes: set[str]) -> None:
    """Until it is killed."""
    inner: Application = DomainDispatcherApplication(create_backend_app)
    turns = threading.Lock() if "lock" in modes else nullcontext()

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if "deaf" in modes:
            environ = {
                name: text for name, text in environ.items() if name not in {"HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"}
            }
        # Before the lock: who sends its bytes late keeps nobody waiting.
        environ["wsgi.input"] = BytesIO(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))
        with turns:
            return inner(environ, start_response)

    if "pause" in modes:
        pausing()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # not a line for each request
    make_server("127.0.0.1", port, application, threaded=True).serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), set(sys.argv[2:]))
