"""Which requests are served, which are answered from memory, and which are refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import leasehold
from leasehold.errors import InvalidRequest, NotAcquired
from leasehold.patterns.idempotency import GLOBAL, IdempotencyMiddleware
from tests.support.tables import each
from tests.unit.patterns.idempotency.client import Client, Pairs, Shop

Hold = leasehold.AsyncLeasehold


async def test_a_repetition(async_hold: Hold) -> None:
    """It is answered with the same status, headers and body, and is said to be a repetition; nothing is done again."""
    shop = Shop(headers=[("Content-Type", "text/plain"), ("x-a", "1"), ("link", "<a>"), ("link", "<b>"), ("x-é", "é")])
    shop.headers[-1] = ("x-latin", "é")
    client = Client(async_hold, shop)
    first, again = await client.post(), await client.post()
    assert (first.status, first.body, first.replayed) == (201, b"number 1", False)
    assert (again.status, again.body, again.replayed) == (201, b"number 1", True)
    assert again.header("link") == "<a>, <b>" and again.header("x-latin") == "é"
    assert again.header("content-type") == "text/plain" and again.header("content-length") == "8"
    assert shop.served == [b"body"]
    assert (await client.post("k-2")).body == b"number 2"


@pytest.mark.parametrize(
    "other", [{"body": b"other"}, {"path": "/refund"}, {"query": b"a=1"}, {"method": "PATCH"}, {"body": b""}]
)
async def test_the_same_key_for_another_request(async_hold: Hold, other: Any) -> None:
    """422 for another method, path, query or body; the first response stays."""
    shop = Shop()
    client = Client(async_hold, shop)
    first = await client.post()
    refused = await client.post(**other)
    assert (refused.status, refused.problem) == (422, "idempotency-key-reused")
    assert (await client.post()).body == first.body and len(shop.served) == 1


async def test_in_flight(async_hold: Hold) -> None:
    """The same request meanwhile is told 409 and when to come back; another body at once that it is another."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def work(*_: Any) -> None:
        begun.set()
        await go.wait()

    shop = Shop(work=work)
    client, patient = Client(async_hold, shop), Client(async_hold, shop, wait=None)
    first = asyncio.create_task(client.post())
    await begun.wait()
    busy = await client.post()
    assert (busy.status, busy.problem) == (409, "idempotency-key-in-use")
    assert (await patient.post(body=b"other")).status == 422
    waiting = asyncio.create_task(patient.post())
    await asyncio.sleep(0.01)
    go.set()
    assert (await first).body == (await waiting).body == b"number 1"
    assert (await waiting).replayed and len(shop.served) == 1


@each("key", ["", '""', "a b", 'a"b', '"a', '"a"b"', '"a\\"', '"a\\b"', "é", "a\x7f", "k" * 256])
async def test_malformed_keys(async_hold: Hold, key: str) -> None:
    """400, and nothing is done."""
    shop = Shop()
    refused = await Client(async_hold, shop).post(key)
    assert (refused.status, refused.problem) == (400, "idempotency-key-malformed")
    assert shop.served == []


async def test_two_keys(async_hold: Hold) -> None:
    """One request has one key."""
    refused = await Client(async_hold, Shop()).post("a", headers=[("idempotency-key", "a")])
    assert refused.status == 400


@pytest.mark.parametrize(
    ("written", "key"), [('"k-1"', "k-1"), (' "k-1" ', "k-1"), ('"a b"', None), (r'"a\"\\"', None)]
)
async def test_keys_in_quotes(async_hold: Hold, written: str, key: str | None) -> None:
    """A string of structured fields, as the draft of the IETF has it, is the same key as without its quotes."""
    shop = Shop()
    client = Client(async_hold, shop)
    assert (await client.post(written)).status == 201
    assert (await client.post(key or written)).replayed


async def test_without_a_key(async_hold: Hold) -> None:
    """It is served as ever; or refused, where one is required. Other methods need none, and are not looked at."""
    shop = Shop()
    for _ in range(2):
        assert not (await Client(async_hold, shop).post(None)).replayed
    strict = Client(async_hold, shop, required=True)
    refused = await strict.post(None)
    assert (refused.status, refused.problem) == (400, "idempotency-key-missing")
    for key in (None, "k-1", "k-1"):
        assert not (await strict.post(key, method="PUT")).replayed
    assert len(shop.served) == 5
    only = Client(async_hold, shop, methods=["put"])
    await only.post(method="PUT")
    assert (await only.post(method="PUT")).replayed


@pytest.mark.parametrize("status", [200, 204, 302, 400, 404, 409, 422])
async def test_responses_that_are_kept(async_hold: Hold, status: int) -> None:
    """Whatever is an answer."""
    client = Client(async_hold, Shop(status=status))
    assert (await client.post()).status == status
    again = await client.post()
    assert again.status == status and again.replayed
    assert (again.header("content-length") is None) == (status == 204)


@pytest.mark.parametrize("status", [307, 308, 401, 408, 425, 429, 500, 503])
async def test_responses_that_free_the_key(async_hold: Hold, status: int) -> None:
    """A failure of the service, and a request to come back, are not the answer: the repetition is served."""
    shop = Shop(status=status)
    client = Client(async_hold, shop)
    assert (await client.post()).status == status
    shop.status = 201
    assert (await client.post(body=b"other")).body == b"number 2"


async def test_a_rule_of_ones_own(async_hold: Hold) -> None:
    """``keeps`` says which."""
    shop = Shop(status=500)
    client = Client(async_hold, shop, keeps=lambda status: status == 500)
    await client.post()
    assert (await client.post()).replayed


async def test_an_error_of_the_application(async_hold: Hold) -> None:
    """It is raised as it is, also one that looks like ours, and the key is free."""
    errors: list[Exception] = [KeyError("mine"), NotAcquired("mine", resource="other:1")]

    async def work(*_: Any) -> None:
        if errors:
            raise errors.pop(0)

    client = Client(async_hold, Shop(work=work))
    with pytest.raises(KeyError):
        await client.post()
    with pytest.raises(NotAcquired):
        await client.post()
    assert (await client.post()).status == 201


KEPT: Pairs = [("content-type", "text/plain"), ("etag", '"1"'), ("vary", "accept")]
DROPPED: Pairs = [
    ("Set-Cookie", "session=secret"), ("Date", "now"), ("Connection", "close, X-Hop"), ("X-Hop", "1"),
    ("Transfer-Encoding", "chunked"), ("Keep-Alive", "1"), ("Idempotency-Replayed", "false"), ("Content-Length", "999"),
]  # fmt: skip


async def test_headers_that_are_not_kept(async_hold: Hold) -> None:
    """Those of the connection and of the moment, and cookies, which are the first client's: it gets them."""
    client = Client(async_hold, Shop(headers=[*KEPT, *DROPPED]))
    first, again = await client.post(), await client.post()
    assert first.header("Set-Cookie") == "session=secret"
    assert sorted(again.headers) == sorted([*KEPT, ("content-length", "8"), ("idempotency-replayed", "true")])


async def test_headers_that_can_be_read_once(async_hold: Hold) -> None:
    """ASGI asks for an iterable, no more: both the first client and the later ones get them."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": iter([(b"x-a", b"1")])})
        await send({"type": "http.response.body", "body": b"all"})

    client = Client(async_hold, app)
    assert (await client.post()).header("x-a") == (await client.post()).header("x-a") == "1"


async def test_a_redirection_that_is_followed(async_hold: Hold) -> None:
    """A client sends the same request to where it is told, with the same key: it is served there."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await Shop(status=307 if scope["path"] == "/pay/" else 201)(scope, receive, send)

    client = Client(async_hold, app)
    assert [(await client.post(path=path)).status for path in ("/pay/", "/pay", "/pay")] == [307, 201, 201]


# ---------------------------------------------------------------- sizes


async def test_a_body_that_is_too_large(async_hold: Hold) -> None:
    """413, by what it announces or by what comes; nothing is done."""
    shop = Shop()
    client = Client(async_hold, shop, max_body=10)
    few, many = [("Content-Length", "11")], [("Content-Length", "9" * 5000)]
    for body, headers in ((b"", few), (b"", many), (b"x" * 11, []), ([b"x" * 6, b"x" * 6], [])):
        refused = await client.post(body=body, headers=headers)
        assert (refused.status, refused.problem) == (413, "body-too-large")
    assert shop.served == []
    assert (await client.post(body=[b"x" * 5, b"", b"x" * 5])).status == 201 and shop.served == [b"x" * 10]


async def test_a_response_that_is_too_large(async_hold: Hold) -> None:
    """It goes through as it comes, and it is known that it was served: 410, and nothing is done again."""
    shop = Shop(body=b"x" * 100)
    client = Client(async_hold, shop, max_response=50)
    first = await client.post()
    assert (first.status, first.body) == (201, b"x" * 100) and len(client.sent) == 3
    again = await client.post()
    assert (again.status, again.problem) == (410, "response-not-kept")
    assert b'"original_status": 201' in again.body and len(shop.served) == 1


# ---------------------------------------------------------------- what is not a plain request


async def test_other_scopes_go_through(async_hold: Hold) -> None:
    """Websockets and lifespan."""
    shop = Shop()
    for kind in ("websocket", "lifespan"):
        await Client(async_hold, shop).app({"type": kind}, None, None)  # type: ignore[arg-type]  # not called
    assert [scope["type"] for scope in shop.scopes] == ["websocket", "lifespan"]


async def test_extensions_of_the_server(async_hold: Hold) -> None:
    """What could not be stored is not offered to the application: files that the server sends, trailers."""
    shop, offered = Shop(), {"http.response.pathsend": {}, "http.response.trailers": {}, "tls": {"a": 1}}
    await Client(async_hold, shop).post(extensions=offered)
    assert shop.scopes[0]["extensions"] == {"tls": {"a": 1}}
    assert set(offered) == {"http.response.pathsend", "http.response.trailers", "tls"}


@each(
    ("options", "said"),
    [
        ({"keep": -1}, "keep"),
        ({"methods": []}, "methods"),
        ({"methods": "POST"}, "methods"),
        ({"keeps": 500}, "keeps is a function"),
        ({"max_body": -1}, "max_body"),
        ({"max_response": 2**30}, "max_response"),
        ({"max_body": True}, "max_body"),
        ({"kind": "{id}"}, "kind"),
        ({"required": 1}, "required"),
        ({"store": "redis"}, "store"),
    ],
)
async def test_bad_options(async_hold: Hold, options: Any, said: str) -> None:
    """Each is refused where the middleware is made."""
    with pytest.raises(InvalidRequest, match=said):
        Client(async_hold, Shop(), **options)


def test_a_coordinator_for_threads(hold: leasehold.Leasehold) -> None:
    """It would block the event loop: refused."""
    for wrong in (hold, "redis://localhost", None):
        with pytest.raises(InvalidRequest, match=r"leasehold\.aio"):
            IdempotencyMiddleware(Shop(), wrong, caller=GLOBAL)
