"""What S3 may answer, and which error of ours becomes of it. An impostor answers what it is told to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest

from leasehold.errors import InvalidRequest, LeaseholdError, OutcomeUnknown, StoreUnavailable, Unsupported
from leasehold.guards.s3 import Conflict, FenceGuard
from tests.support.servers.s3 import client

pytestmark = pytest.mark.slow

ERROR = '<?xml version="1.0"?><Error><Code>{code}</Code><Message>what it means</Message></Error>'
Answer = tuple[str, str]
OF_PUTS: list[tuple[Answer, type[LeaseholdError], str]] = [
    (("404 Not Found", "NoSuchBucket"), StoreUnavailable, "no bucket of this name"),
    (("403 Forbidden", "AccessDenied"), StoreUnavailable, "s3:PutObject"),
    (("503 Slow Down", "SlowDown"), StoreUnavailable, "fewer requests"),
    (("301 Moved", "PermanentRedirect"), StoreUnavailable, "another region"),
    (("400 Bad Request", "ExpiredToken"), StoreUnavailable, "ExpiredToken"),
    (("400 Bad Request", "MetadataTooLarge"), InvalidRequest, "MetadataTooLarge"),
    (("501 Not Implemented", "NotImplemented"), Unsupported, "conditional writes"),
    (("500 Internal Server Error", "InternalError"), OutcomeUnknown, "may have happened"),
    (("502 Bad Gateway", "a page of a proxy"), OutcomeUnknown, "may have happened"),
    (("409 Conflict", "ConditionalRequestConflict"), Conflict, "others write it all the time"),
]


class Silent(WSGIRequestHandler):
    """Not a line for each request; and a client that asks whether to send its bytes is told to, as by S3."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def answers() -> Iterator[tuple[dict[str, Answer], Any]]:
    """What is answered to each method, and a client of it. Nothing is there, and conditions are kept."""
    told: dict[str, Answer] = {"HEAD": ("404 Not Found", "404"), "GET": ("404 Not Found", "NoSuchKey")}

    def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        known = "probe" in environ["PATH_INFO"]
        status, code = ("412 No", "PreconditionFailed") if known else told[environ["REQUEST_METHOD"]]
        page = code if " " in code else ERROR.format(code=code)
        body = b"" if environ["REQUEST_METHOD"] == "HEAD" else page.encode()
        start_response(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
        return [body]

    server: WSGIServer = make_server("127.0.0.1", 0, application, handler_class=Silent)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    made = client(f"http://127.0.0.1:{server.server_port}", read_timeout=5)
    yield told, made
    made.close()
    server.shutdown()
    thread.join(60)
    server.server_close()


@pytest.mark.parametrize(("answer", "kind", "words"), OF_PUTS, ids=lambda one: one[1] if isinstance(one, tuple) else "")
def test_of_a_put(
    answers: tuple[dict[str, Answer], Any], answer: Answer, kind: type[LeaseholdError], words: str
) -> None:
    """Each is an error of ours that says what to do, with boto3's as its cause, and a definite no where it is one."""
    told, made = answers
    told["PUT"] = answer
    with pytest.raises(kind, match=words) as caught:
        FenceGuard(made, "bucket", attempts=2).put("report", b"A", 10, resource="report:42")
    assert kind is Conflict or caught.value.__cause__ is not None


@pytest.mark.parametrize("code", ["AccessDenied", "NoSuchBucket", "SlowDown"])
def test_of_a_read(answers: tuple[dict[str, Answer], Any], code: str) -> None:
    """Nothing can be known, nothing was written. A bucket that does not exist is not one in which nobody has been."""
    told, made = answers
    status = {"AccessDenied": "403 Forbidden", "NoSuchBucket": "404 Not Found", "SlowDown": "503 Slow Down"}[code]
    told["GET"] = (status, code)
    guard = FenceGuard(made, "bucket")
    with pytest.raises(StoreUnavailable, match=r"S3 \(bucket bucket\)"):
        guard.get("report", 10, resource="report:42")
    with pytest.raises(StoreUnavailable):
        guard.check(10, resource="report:42", shared=True)


def test_of_a_look(answers: tuple[dict[str, Answer], Any]) -> None:
    """Without s3:ListBucket a missing object is 'forbidden': the message says so, and nothing is written."""
    told, made = answers
    told["HEAD"] = ("403 Forbidden", "403")
    with pytest.raises(StoreUnavailable, match="s3:ListBucket"):
        FenceGuard(made, "bucket").put("report", b"A", 10, resource="report:42")


def test_what_boto3_does_not_take(answers: tuple[dict[str, Answer], Any]) -> None:
    """An argument that put_object does not know is a mistake of the caller, and nothing is sent."""
    _, made = answers
    with pytest.raises(InvalidRequest, match="cause") as caught:
        FenceGuard(made, "bucket").put("report", b"A", 10, resource="report:42", ContentTyp="text/csv")
    assert "ContentTyp" in str(caught.value.__cause__)


def test_a_no_to_the_last_of_several_tries_is_unknown(answers: tuple[dict[str, Answer], Any]) -> None:
    """Only the last answer is seen: "too many requests" then says nothing about the try before it."""
    told, made = answers
    told["PUT"] = ("503 Slow Down", "SlowDown")
    patient = client(made.meta.endpoint_url, retries={"total_max_attempts": 2, "mode": "standard"})
    with pytest.raises(OutcomeUnknown):
        FenceGuard(patient, "bucket").put("report", b"A", 10, resource="report:42")
    patient.close()
