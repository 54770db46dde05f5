"""The WSGI middleware: threads, responses that are still being made, and request bodies that nobody reads."""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Iterable, Iterator
from typing import Any
from wsgiref.handlers import SimpleHandler
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import pytest

from leasehold.errors import StaleOwner
from leasehold.guards.http import WSGIFencingMiddleware, fencing
from leasehold.guards.http.admission import ActiveRequests
from leasehold.guards.memory import FenceGuard
from tests.support.guards.http_tools import RESOURCE, Pairs, WSGIService, memory, serve, token
from tests.support.tables import each


def overtaking() -> int:
    """A stalls between read and write, B comes with a newer fence. The counter after two accepted requests."""
    value, reached, go_on = [0], threading.Event(), threading.Event()

    def work(environ: Any) -> None:
        before = value[0]
        if fencing(environ).fence == 11:
            reached.set()
            assert go_on.wait(60)
        value[0] = before + 1

    service = WSGIService(guard := memory(), work)
    answers: list[int] = []

    def send(fence: int) -> None:
        answers.append(service.send("POST", token(fence)).status)

    threads = [threading.Thread(target=send, args=(fence,)) for fence in (11, 12)]
    threads[0].start()
    assert reached.wait(60)
    threads[1].start()
    while guard.seen("acme/report-export:42") != 12:
        threads[1].join(0.01)
    threads[1].join(0.1)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert answers == [200, 200]
    assert len(service.inside) == 0
    return value[0]


def test_check_and_work_are_one_step() -> None:
    """A newer owner goes in when the work of an older one has ended: no lost update."""
    assert overtaking() == 2


def test_without_the_waiting_an_update_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a door at which nobody waits. So the test above can fail."""
    monkeypatch.setattr(ActiveRequests, "wait_for_earlier", lambda *_: True)
    assert overtaking() == 1


def test_waiting_has_an_end() -> None:
    """Then it is 503, and nothing was done."""
    service = WSGIService(memory(), wait=0.01)
    visit = service.inside.enter("acme/report-export:42", 11)
    answer = service.send("POST", token(12))
    assert (answer.status, answer.kind, answer.headers["retry-after"]) == (503, "earlier-owner-inside", "1")
    assert service.served == [] and len(service.inside) == 1
    service.inside.leave(visit)
    assert service.send("POST", token(12)).status == 200


def test_eight_threads_lose_no_update() -> None:
    """Stale and fresh tokens in a race, each read-modify-write with a pause: every accepted one is in the counter."""
    value, accepted, refused = [0], list[int](), list[int]()
    pause = threading.Event()

    def work(environ: Any) -> None:
        before = value[0]
        pause.wait(0.0002)
        value[0] = before + 1
        accepted.append(fencing(environ).fence)

    service = WSGIService(FenceGuard(), work)
    chance = random.Random(8)
    fences = sorted(range(1, 401), key=lambda fence: fence + chance.randrange(30))  # almost in order, each once
    lanes = [fences[lane::8] for lane in range(8)]

    def send(lane: list[int]) -> None:
        for fence in lane:
            if service.send("POST", token(fence, owner=None)).status == 409:
                refused.append(fence)

    threads = [threading.Thread(target=send, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(accepted) + len(refused) == 400 and refused
    assert value[0] == len(accepted) and accepted == sorted(accepted)
    assert len(service.inside) == 0


# ---------------------------------------------------------------- responses that are still being made


class Chunks:
    """A body that is made bit by bit, and is closed by the server."""

    def __init__(self, *chunks: bytes | Exception) -> None:
        self._chunks, self.closed = iter(chunks), 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk = next(self._chunks)
        if isinstance(chunk, Exception):
            raise chunk
        return chunk

    def close(self) -> None:
        """Once."""
        self.closed += 1


def app_of(body: Iterable[bytes]) -> Any:
    """An application that has begun its response and hands over its body."""

    def app(environ: Any, start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [("Content-Type", "text/plain")])
        return body

    return app


def test_a_response_is_inside_until_it_is_closed() -> None:
    """A newer owner waits for its end."""
    service, body = WSGIService(memory(), wait=0), Chunks(b"first", b"last")
    service.middleware.app, other = app_of(body), service.middleware.app
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "HTTP_X_FENCING_TOKEN": "11"}
    environ["HTTP_X_FENCING_RESOURCE"] = "acme/report-export:42"
    chunks: Any = service.middleware(environ, lambda *_: lambda _: None)
    service.middleware.app = other
    assert next(chunks) == b"first"
    assert service.send("POST", token(12)).kind == "earlier-owner-inside"
    assert list(chunks) == [b"last"]
    chunks.close()
    assert body.closed == 1 and len(service.inside) == 0
    assert service.send("POST", token(12)).status == 200


def handled(app: Any, sent: Pairs, method: str = "POST") -> tuple[str, str]:
    """What the handler of wsgiref, a real one without a socket, writes for a request, and what it complains of."""
    environ: dict[str, Any] = {"REQUEST_METHOD": method}
    setup_testing_defaults(environ)
    environ.update((f"HTTP_{name.upper().replace('-', '_')}", value) for name, value in sent)
    environ.update({"CONTENT_LENGTH": "0", "QUERY_STRING": ""})
    written, complained = io.BytesIO(), io.StringIO()
    SimpleHandler(io.BytesIO(), written, complained, environ, multithread=False).run(app)
    return written.getvalue().decode(), complained.getvalue()


def test_a_stale_owner_while_the_body_is_made() -> None:
    """Before its first bytes it becomes 409; after them the server ends the response."""
    service = WSGIService(memory())
    service.middleware.app = app_of(early := Chunks(StaleOwner("too late", fence=11, seen=12)))
    written, complained = handled(service.middleware, token(11))
    assert written.startswith("HTTP/1.0 409 Conflict") and written.endswith("}") and '"seen": 12' in written
    assert not complained and early.closed == 1
    service.middleware.app = app_of(late := Chunks(b"first", StaleOwner("too late")))
    written, complained = handled(service.middleware, token(11))
    assert written.startswith("HTTP/1.0 200 OK") and written.endswith("first")
    assert "StaleOwner: too late" in complained and late.closed == 1
    assert len(service.inside) == 0


def test_the_error_is_told_to_the_server_where_a_response_is_replaced() -> None:
    """And nowhere else: some servers and test clients take it for a failure."""
    told: list[int] = []

    def start_response(*parts: Any) -> Any:
        told.append(len(parts))

    def begun(environ: Any, start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        raise StaleOwner("after it has begun")

    environ = {"REQUEST_METHOD": "GET", "PATH_INFO": "/"}
    service = WSGIService(memory(), lambda _: memory().check(9, resource="acme/report-export:42"))
    service.middleware({**environ, "HTTP_X_FENCING_TOKEN": "x"}, start_response)
    service.middleware(environ, start_response)
    service.middleware.app = begun
    service.middleware(environ, start_response)
    assert told == [2, 2, 2, 3]


def test_generators_as_applications() -> None:
    """Nothing of them runs before the first bytes are asked for: their StaleOwner is 409 all the same."""

    def app(environ: Any, start_response: Any) -> Iterator[bytes]:
        memory().check(9, resource="acme/report-export:42")
        start_response("200 OK", [])
        yield b"never"

    service = WSGIService(memory())
    service.middleware.app = app
    assert serve(service.middleware, "POST", token(11)).kind == "stale-owner"
    assert len(service.inside) == 0


def test_errors_while_the_body_is_made() -> None:
    """Other errors are the application's; what has no iterator, or fails in its close, leaves nothing behind."""

    class Unclosed(Chunks):
        def close(self) -> None:
            """It fails."""
            raise LookupError("close")

    nothing: Any = None
    service = WSGIService(memory())
    for body, kind in ((Chunks(KeyError("body")), KeyError), (nothing, TypeError), (Unclosed(b"a"), LookupError)):
        service.middleware.app = app_of(body)
        with pytest.raises(kind):
            serve(service.middleware, "POST", token(11))
        assert len(service.inside) == 0


def test_it_keeps_the_protocol() -> None:
    """wsgiref's validator finds nothing, on either side of the middleware: served, streamed and refused."""
    service = WSGIService(memory())
    inner = service.middleware
    for body in ([b"done"], Chunks(b"a", b"b")):
        inner.app = validator(app_of(body))
        for sent, status in ((token(11), "200 OK"), (token(9), "409 Conflict"), ([], "409 Conflict")):
            written, complained = handled(validator(inner), sent)
            assert written.startswith(f"HTTP/1.0 {status}") and not complained
    written, _ = handled(WSGIFencingMiddleware(app_of([b"done"]), FenceGuard()), token(11))
    assert "Content-Length: 4" in written, "a list is handed on, so that the server can count it"


# ---------------------------------------------------------------- bodies of refused requests


class Input(io.BytesIO):
    """A body that notes how much of it was read."""

    def drained(self) -> int:
        """Bytes."""
        return self.tell()


@each(
    ("more", "read"),
    [
        ({"CONTENT_LENGTH": "300000"}, 300_000),
        ({"CONTENT_LENGTH": "999999999999"}, 400_000),
        ({"CONTENT_LENGTH": ""}, 0),
        ({}, 0),
        ({"wsgi.input_terminated": True}, 400_000),
        ({"CONTENT_LENGTH": "no number"}, 0),
    ],
)
def test_the_body_of_a_refused_request_is_read(more: dict[str, Any], read: int) -> None:
    """As much as was announced: a connection that is closed with unread bytes is reset, and the answer lost. Without
    a length nothing is read, unless the server marks the end."""
    body = Input(bytes(400_000))
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "wsgi.input": body, **more}
    WSGIService(memory()).middleware(environ, lambda *_: lambda _: None)
    assert body.drained() == read


def test_a_refused_request_that_stalls_keeps_nobody_out() -> None:
    """A stale owner that is frozen in the middle of its body is no longer inside: a newer one does not wait for it."""
    service = WSGIService(memory(), wait=0)
    newer: list[int] = []

    class Stalled(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            """Meanwhile somebody else comes."""
            newer.append(service.send("POST", token(11)).status)
            return b""

    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "wsgi.input": Stalled(), "CONTENT_LENGTH": "5"}
    environ.update({"HTTP_X_FENCING_TOKEN": "9", "HTTP_X_FENCING_RESOURCE": RESOURCE})
    assert b"stale-owner" in b"".join(service.middleware(environ, lambda *_: lambda _: None))
    assert newer == [200]


def test_a_client_that_has_gone() -> None:
    """What cannot be read is not read."""

    class Broken(io.BytesIO):
        def read(self, *_: Any) -> bytes:
            """The connection is gone."""
            raise ConnectionResetError

    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "wsgi.input": Broken(), "CONTENT_LENGTH": "5"}
    assert WSGIService(memory()).middleware(environ, lambda *_: lambda _: None)


def test_a_body_that_the_application_has_read_is_left_alone() -> None:
    """A read of what is no longer there would wait for ever on a socket."""

    def work(environ: Any) -> None:
        environ["wsgi.input"].read(5)
        raise StaleOwner("later")

    body = Input(b"12345and the next request")
    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": "/", "wsgi.input": body, "CONTENT_LENGTH": "5"}
    environ.update({"HTTP_X_FENCING_TOKEN": "11", "HTTP_X_FENCING_RESOURCE": "acme/report-export:42"})
    assert WSGIService(memory(), work).middleware(environ, lambda *_: lambda _: None)
    assert body.drained() == 5
