"""Who goes in and who is refused, in both flavours: tokens, methods, resources, and everything that can be garbled."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from leasehold._core import headers
from leasehold.errors import InvalidRequest, OutcomeUnknown, StaleOwner, StoreUnavailable
from leasehold.guards.http import Fencing, FencingMiddleware, WSGIFencingMiddleware, fencing
from leasehold.guards.memory import FenceGuard
from leasehold.guards.sql import FenceGuard as SQLFenceGuard
from leasehold.observe.events import Event, FencedOff
from tests.support.guards.http_tools import RESOURCE, A, ASGIService, B, Pairs, WSGIService, memory, token
from tests.support.tables import each

WRITES = ["POST", "PUT", "PATCH", "DELETE"]
MOST = 2**63 - 1


@pytest.fixture(params=[ASGIService, WSGIService], ids=["asgi", "wsgi"])
def service_class(request: pytest.FixtureRequest) -> Any:
    """Each flavour in turn."""
    return request.param


# ---------------------------------------------------------------- the token


@pytest.mark.parametrize("method", WRITES)
def test_a_write_needs_a_token(service_class: Any, method: str) -> None:
    """Without one it is refused with 409, and the problem says how to get one."""
    service = service_class(memory())
    answer = service.send(method, [])
    assert (answer.status, answer.kind) == (409, "missing-token")
    assert "lease.headers()" in answer.problem["detail"]
    assert service.served == []


def test_a_fresh_token_goes_in(service_class: Any) -> None:
    """The application is given what was presented, and guards take it like a lease."""
    service = service_class(guard := memory())
    assert service.send("POST", token(10)).status == 200
    assert service.send("POST", token(11, owner=B)).body == b"done"
    assert service.served == [Fencing(10, RESOURCE, A), Fencing(11, RESOURCE, B)]
    FenceGuard().check(service.served[0])
    assert guard.seen(RESOURCE) == 11 and len(service.inside) == 0


@each("method", [*WRITES, "GET", "OPTIONS"])
def test_a_stale_token_is_refused(service_class: Any, method: str) -> None:
    """Wherever it is presented, for reads too. Both fences are told, the kind, and no id."""
    heard: list[Event] = []
    guard = FenceGuard(observers=[heard.append])
    guard.check(10, resource=RESOURCE, owner=A)
    service = service_class(guard)
    answer = service.send(method, token(9, owner=B))
    assert (answer.status, answer.kind) == (409, "stale-owner")
    assert {key: answer.problem[key] for key in ("fence", "seen", "kind")} == {
        "fence": 9,
        "seen": 10,
        "kind": "report-export",
    }
    assert b"42" not in answer.body and b"acme" not in answer.body and b"host-" not in answer.body
    assert service.served == [] and len(service.inside) == 0
    assert [type(one) for one in heard] == [FencedOff]


def test_an_equal_token_of_another_owner(service_class: Any) -> None:
    """Is refused, and says so."""
    answer = service_class(memory()).send("POST", token(10, owner=B))
    assert (answer.status, answer.kind, answer.problem["seen"]) == (409, "stale-owner", 10)
    assert "another owner" in answer.problem["detail"]


def test_every_digit_counts(service_class: Any) -> None:
    """Of the highest fences, also in JSON."""
    service = service_class(FenceGuard())
    assert service.send("POST", token(MOST)).status == 200
    answer = service.send("POST", token(MOST - 1))
    assert (answer.problem["fence"], answer.problem["seen"]) == (MOST - 1, MOST)


def test_a_read_needs_no_token_and_presents_the_one_it_has(service_class: Any) -> None:
    """A holder presents its fence before its first read; from there on an older one is stale (trap 46)."""
    service = service_class(guard := memory())
    assert service.send("GET", []).status == 200
    assert service.send("GET", token(12, owner=B)).status == 200
    assert guard.seen(RESOURCE) == 12
    assert service.send("POST", token(10)).kind == "stale-owner"
    assert service.served == [None, Fencing(12, RESOURCE, B)]


def test_a_shared_token_reads_and_does_not_write(service_class: Any) -> None:
    """It is checked, and not remembered; for a method that writes it is refused."""
    service = service_class(guard := memory())
    assert service.send("GET", token(20, mode="shared", owner=B)).status == 200
    assert service.served == [Fencing(20, RESOURCE, B, True)] and guard.seen(RESOURCE) == 10
    assert service.send("GET", token(9, mode="shared", owner=B)).kind == "stale-owner"
    answer = service.send("POST", token(20, mode="shared", owner=B))
    assert (answer.status, answer.kind, answer.problem["fence"]) == (409, "read-only-token", 20)
    assert len(service.served) == 1


def test_other_methods(service_class: Any) -> None:
    """Which methods need a token is said at construction; how a client spells one does not matter."""
    service = service_class(memory(), methods=["delete", "M-SEARCH"])
    assert service.send("POST", []).status == 200
    assert [service.send(method, []).status for method in ("DELETE", "delete", "m-search")] == [409] * 3


def test_a_refused_head_has_no_body(service_class: Any) -> None:
    """As HTTP wants it."""
    answer = service_class(memory()).send("HEAD", token(9))
    assert (answer.status, answer.body) == (409, b"")


# ---------------------------------------------------------------- what is garbled

BAD_TOKENS = [
    "",
    "0",
    "-1",
    "+1",
    " 1",
    "01",
    "1.0",
    "1e3",
    "0x1",
    "abc",
    "10,10",
    "²",
    "\xff",
    str(MOST + 1),
    "9" * 400,
]
MALFORMED: dict[str, Pairs] = {
    **{f"token {text[:30]!r}": token(text) for text in BAD_TOKENS},
    "token twice": [*token(10), (headers.TOKEN, "11")],
    "same token twice": [*token(10), (headers.TOKEN, "10")],
    "mode twice": [*token(10, mode="shared"), (headers.MODE, "shared")],
    "no resource": token(10, resource=None),
    "empty resource": token(10, resource=""),
    "long resource": token(10, resource="x" * 513),
    "resource that is not UTF-8": token(10, resource="job:%FF"),
    "resource with NUL": token(10, resource="job:\0"),
    "empty owner": token(10, owner=""),
    "long owner": token(10, owner="x" * 513),
    "another mode": token(10, mode="exclusive"),
    "mode in capitals": token(10, mode="Shared"),
    "empty mode": token(10, mode=""),
}


@each("method", ["POST", "GET"])
@each("sent", MALFORMED.values(), ids=MALFORMED)
def test_garbled_headers(service_class: Any, sent: Pairs, method: str) -> None:
    """400, before the guard is asked and before the application is called; what was sent is not repeated."""
    guard = FenceGuard()
    service = service_class(guard)
    answer = service.send(method, sent)
    assert (answer.status, answer.kind) == (400, "malformed-token")
    assert service.served == [] and guard.seen(RESOURCE) is None
    assert b"xxx" not in answer.body and b"99999" not in answer.body


@pytest.mark.parametrize("sent", [token("10")[1:], [(headers.MODE, "shared")]])
def test_headers_without_a_token(service_class: Any, sent: Pairs) -> None:
    """Something has lost the token on the way: a write is refused as one without, and a read does not go in either."""
    service = service_class(FenceGuard())
    assert service.send("POST", sent).kind == "missing-token"
    assert service.send("GET", sent).kind == "malformed-token"


def test_headers_sent_twice_to_asgi() -> None:
    """An ASGI server hands over both, so it is found for every one of them."""
    for name, value in token(10):
        assert ASGIService(FenceGuard()).send("POST", [*token(10), (name, value)]).status == 400


def test_resources_as_they_are_sent(service_class: Any) -> None:
    """Spaces and letters that are not ASCII arrive as they were, from whoever encodes them and who does not."""
    service = service_class(FenceGuard())
    for fence, name in enumerate(["job:a b", "job:é", "job:%3A", "job:日本"], 1):
        sent = [*headers.encode(fence, name, A).items()]
        assert service.send("POST", sent).status == 200
        assert service.served[-1].resource == name
    raw = "job:é".encode().decode("latin-1")
    assert service.send("POST", token(1, resource=raw, owner=None)).kind == "stale-owner"


# ---------------------------------------------------------------- which resource

BY_PATH = {"/reports/{id:int}": RESOURCE[:-2] + "{id}", "/files/{name}/parts/{part}": "file:{name}:{part}"}


def test_a_fence_says_nothing_about_another_resource(service_class: Any) -> None:
    """What the path is about and what the lease is about must agree; ids are not told."""
    service = service_class(memory(), resource=BY_PATH)
    assert service.send("POST", token(11), "/reports/42").status == 200
    answer = service.send("POST", token(12), "/reports/43")
    assert (answer.status, answer.kind) == (400, "other-resource")
    assert b"42" not in answer.body and b"43" not in answer.body
    assert service.send("POST", token(12, resource="report-export:42"), "/reports/42").kind == "other-resource"
    answer = service.send("POST", token(12, resource="invoice:42"), "/reports/42")
    assert "kind invoice, and this request is about the kind report-export" in answer.problem["detail"]
    assert len(service.served) == 1


def test_the_header_may_be_left_to_the_path(service_class: Any) -> None:
    """Where the service knows what a request is about, a client may leave it out."""
    service = service_class(memory(), resource=BY_PATH)
    assert service.send("POST", token(11, resource=None), "/reports/42").status == 200
    assert service.send("POST", token(9, resource=None), "/reports/42").kind == "stale-owner"
    assert service.served == [Fencing(11, RESOURCE, A)]


SPELLINGS = ["42", "042", "42/", "0" + "0" * 99 + "42", "+42", " 42", "42\n", "4_2", "0__42", "42.0", "٤٢", "４２"]


@each("path", [f"/reports/{one}" for one in SPELLINGS])
def test_one_report_by_many_paths(service_class: Any, path: str) -> None:
    """What a router takes for the same number is the same resource: FastAPI and Flask are generous."""
    service = service_class(memory(), resource=BY_PATH)
    assert service.send("POST", token(9, resource=None), path).problem["seen"] == 10


@pytest.mark.parametrize(("path", "number"), [("-42", "-42"), ("0-42", "-42"), ("+0", "0")])
def test_numbers_below_zero(service_class: Any, path: str, number: str) -> None:
    """Some routers take them, so they are guarded."""
    service = service_class(FenceGuard(), resource=BY_PATH)
    assert service.send("POST", [], f"/reports/{path}").kind == "missing-token"
    assert service.send("POST", token(1, resource=None), f"/reports/{path}").status == 200
    assert service.served[0].resource == f"acme/report-export:{number}"


def test_a_whole_url_in_place_of_a_path() -> None:
    """HTTP allows it, uvicorn hands it on, and Quart takes its path: it is guarded like that."""
    service = ASGIService(memory(), resource=BY_PATH)
    assert service.send("POST", [], "http://service/reports/42").kind == "missing-token"
    assert service.send("POST", token(9, resource=None), "http://service/reports/42").kind == "stale-owner"


def test_ids_of_a_path_are_encoded_like_any_other(service_class: Any) -> None:
    """As hold.lock would name it."""
    service = service_class(FenceGuard(), resource=BY_PATH)
    assert service.send("POST", token(1, resource=None), "/files/a:b é/parts/{1}").status == 200
    assert service.served[0].resource == "file:a%3Ab é:%7B1%7D"


def test_a_path_below_a_mount(service_class: Any) -> None:
    """Patterns are about the path inside the application."""
    service = service_class(memory(), resource=BY_PATH)
    assert service.send("POST", token(9, resource=None), "/reports/42", root="/api/v1").kind == "stale-owner"
    assert service.send("POST", [], "/", root="/reports/42").status == 200


@pytest.mark.parametrize("path", ["/reports/" + "9" * 5000, "/files/" + "x" * 600 + "/parts/1"])
def test_a_path_that_names_nothing(service_class: Any, path: str) -> None:
    """It fits the pattern, and can be nobody's lease: refused, and not let through unguarded."""
    answer = service_class(memory(), resource=BY_PATH).send("POST", token(11, resource=None), path)
    assert (answer.status, answer.kind) == (400, "malformed-token")


@each("path", ["/", "/other", "/reports", "/reports/x", "/reports/4/2", "/areports/42", "/reports/4.2", "/reports/+"])
def test_other_paths_are_not_guarded(service_class: Any, path: str) -> None:
    """A mapping says what is guarded. Elsewhere no token is needed, and none is looked at."""
    service = service_class(memory(), resource=BY_PATH)
    assert service.send("POST", [], path).status == 200
    assert service.send("POST", token("garbled"), path).status == 200
    assert service.served == [None, None]


def test_uuids_in_a_path(service_class: Any) -> None:
    """In every spelling that a router knows they are one resource."""
    service = service_class(FenceGuard(), resource={"/u/{id:uuid}": "user:{id}"})
    plain = "0123456789abcdef0123456789abcdef"
    dashed = "01234567-89AB-cdef-0123-456789abcdef"
    for path in (plain, plain.upper(), dashed, f"{{{dashed}}}", f"urn:uuid:{dashed}"):
        assert service.send("POST", token(7, resource=None), f"/u/{path}").status == 200
    assert {one.resource for one in service.served} == {"user:01234567-89ab-cdef-0123-456789abcdef"}


def test_one_resource_for_everything(service_class: Any) -> None:
    """A name without fields, as lock.resource says it."""
    service = service_class(FenceGuard(), resource="settings:a%3Ab")
    assert service.send("POST", token(7, resource=None), "/any").status == 200
    assert service.send("POST", token(7, resource="settings:other"), "/any").kind == "other-resource"


def test_a_function_names_it(service_class: Any) -> None:
    """Of the scope or the environ; None: this request is not guarded."""

    def named(request: Any) -> str | None:
        path = request.get("PATH_INFO") or request.get("path")
        return "whole" if path == "/whole" else None

    service = service_class(FenceGuard(), resource=named)
    assert service.send("POST", [], "/other").status == 200
    assert service.send("POST", [], "/whole").kind == "missing-token"
    assert service.send("POST", token(7, resource=None), "/whole").status == 200
    assert service.served[1].resource == "whole"


@each("wrong", [5, "", b"job", "x" * 513, ValueError("mine")])
def test_a_function_that_fails(service_class: Any, wrong: Any) -> None:
    """Its errors are the service's own: they go to the server, which answers 500, and nobody goes in."""

    def named(_: Any) -> Any:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    service = service_class(FenceGuard(), resource=named)
    with pytest.raises(ValueError, match=r"mine|resource must"):
        service.send("POST", token(7))
    assert service.served == [] and len(service.inside) == 0


# ---------------------------------------------------------------- a guard that cannot say


class Away:
    """A guard whose store is away."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def check(self, *_: Any, **__: Any) -> None:
        """It cannot say."""
        raise self.error


@pytest.mark.parametrize("error", [StoreUnavailable("no route to secret-host"), OutcomeUnknown("timed out")])
def test_a_guard_that_is_away(service_class: Any, error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """503 with Retry-After, and nobody goes in. The reason is in the log of the service, and not in the answer."""
    service = service_class(Away(error))
    answer = service.send("POST", token(11))
    assert (answer.status, answer.kind, answer.headers["retry-after"]) == (503, "guard-unavailable", "1")
    assert service.served == [] and len(service.inside) == 0
    assert str(error) in caplog.text and str(error).encode() not in answer.body


@pytest.mark.parametrize("error", [InvalidRequest("no transaction"), RuntimeError("a bug"), TypeError("another")])
def test_a_guard_that_is_broken(service_class: Any, error: Exception) -> None:
    """Whatever it raises, nobody goes in; the error goes to the server."""
    service = service_class(Away(error))
    with pytest.raises(type(error), match=str(error)):
        service.send("POST", token(11))
    assert service.served == [] and len(service.inside) == 0


# ---------------------------------------------------------------- the application's own check


def test_a_stale_owner_in_the_application(service_class: Any) -> None:
    """A handler checks in its own transaction, and its StaleOwner is the same 409; with and without a token."""
    own = FenceGuard()
    own.check(50, resource=RESOURCE, owner=B)
    service = service_class(memory(), lambda request: own.check(fencing(request)))
    answer = service.send("POST", token(20))
    assert (answer.status, answer.kind) == (409, "stale-owner")
    assert (answer.problem["fence"], answer.problem["seen"]) == (20, 50)
    assert len(service.inside) == 0

    def stale(_: Any) -> None:
        raise StaleOwner("of somebody else")

    service.work = stale
    answer = service.send("GET", [])
    assert answer.kind == "stale-owner" and "fence" not in answer.problem


def test_a_stale_owner_of_something_else(service_class: Any) -> None:
    """An application whose own lease is stale has failed. The client's is not, and must not be told so."""

    def stale(_: Any) -> None:
        raise StaleOwner("of its own", resource="nightly", fence=1, seen=2)

    service = service_class(memory(), stale)
    with pytest.raises(StaleOwner, match="of its own"):
        service.send("POST", token(20))
    assert len(service.inside) == 0


def test_other_errors_of_the_application(service_class: Any) -> None:
    """Are its own, even those of ours."""

    def away(_: Any) -> None:
        raise StoreUnavailable("its own store")

    service = service_class(memory(), away)
    with pytest.raises(StoreUnavailable, match="its own store"):
        service.send("POST", token(20))
    assert len(service.inside) == 0


def test_what_a_request_presented(service_class: Any) -> None:
    """From a scope, an environ, or a framework's request; where there is none it is a mistake, not a silent None."""
    presented = Fencing(10, RESOURCE, A)

    place = {"leasehold.fencing": presented}
    for request in (SimpleNamespace(scope=place), SimpleNamespace(environ=place), place):
        assert fencing(request) == presented
    service = service_class(memory(), fencing)
    with pytest.raises(InvalidRequest, match="presented no fence"):
        service.send("GET", [])
    for wrong in (None, {}, {"leasehold.fencing": "10"}, object()):
        with pytest.raises(InvalidRequest, match="presented no fence"):
            fencing(wrong)


# ---------------------------------------------------------------- at construction

WRONG: list[dict[str, Any]] = [
    {"guard": None},
    {"guard": object()},
    {"guard": SQLFenceGuard()},
    {"methods": ()},
    {"methods": "POST"},
    {"methods": ["POST", ""]},
    {"methods": [b"POST"]},
    {"methods": ["PO ST"]},
    {"wait": -1},
    {"wait": None},
    {"wait": "soon"},
    {"wait": True},
    {"resource": 5},
    {"resource": ""},
    {"resource": "report:{id}"},
    {"resource": {}},
    {"resource": {"reports/{id}": "report:{id}"}},
    {"resource": {5: "report"}},
    {"resource": {"/reports/{id}": 5}},
    {"resource": {"/reports/{id}": ""}},
    {"resource": {"/reports/{id}": "report:{other}"}},
    {"resource": {"/reports/{id}": "report:{id:int}"}},
    {"resource": {"/reports/{id}": "report:{id"}},
    {"resource": {"/reports/{id:float}": "report:{id}"}},
    {"resource": {"/reports/{1}": "report"}},
    {"resource": {"/reports/{}": "report"}},
    {"resource": {"/reports/{id}}": "report:{id}"}},
    {"resource": {"/reports/{id}/{id}": "report:{id}"}},
]


@each("middleware", [FencingMiddleware, WSGIFencingMiddleware])
@each("wrong", WRONG, ids=range(len(WRONG)))
def test_what_makes_no_sense_is_said_at_construction(middleware: Any, wrong: dict[str, Any]) -> None:
    """Not at the first request."""
    with pytest.raises(InvalidRequest):
        middleware(lambda *_: None, **{"guard": FenceGuard(), **wrong})


async def test_async_functions_where_there_is_no_await() -> None:
    """An async function for resource=, or a guard for asyncio in WSGI: the error says what to take."""

    async def named(_: Any) -> str:
        return "settings"

    class Awaited:
        async def check(self, *_: Any, **__: Any) -> None:
            """Fine."""

    class Disguised:
        def check(self, *_: Any, **__: Any) -> Any:
            """A coroutine that one sees only when it is called."""
            return Awaited().check()

    app: Any = None
    wrong: Any = named
    with pytest.raises(InvalidRequest, match="not async"):
        FencingMiddleware(app, FenceGuard(), resource=wrong)
    with pytest.raises(InvalidRequest, match="cannot await"):
        WSGIFencingMiddleware(app, Awaited())
    service = WSGIService(Disguised())
    with pytest.raises(InvalidRequest, match="cannot await"):
        service.send("POST", token(11))
    assert service.served == []
    assert (await ASGIService(Disguised()).request("POST", token(11))).status == 200


def test_problems_are_json() -> None:
    """Plain JSON that every client reads."""
    answer = WSGIService(memory()).send("POST", token(9))
    assert json.loads(answer.body)["type"] == "urn:leasehold:stale-owner"
