"""Whose key it is: nobody gets the response of somebody else."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import leasehold
from leasehold.errors import InvalidRequest
from leasehold.guards.fence import Fenced
from leasehold.patterns.idempotency import GLOBAL, IdempotencyMiddleware
from leasehold.patterns.results import MemoryResultStore
from tests.unit.patterns.idempotency.client import Client, Pairs, Shop

Hold = leasehold.AsyncLeasehold


async def bodies(client: Client, *several: Pairs) -> list[bytes]:
    """What each of them gets for the same key and the same body."""
    return [(await client.post(headers=headers)).body for headers in several]


@pytest.mark.parametrize("name", ["Authorization", "authorization", "X-API-Key", "x-api-key"])
async def test_a_header_says_who_asks(async_hold: Hold, name: str) -> None:
    """The same key of two callers is two keys, whichever header tells them apart, and however its name is written."""
    client = Client(async_hold, Shop(), caller=name)
    one, other = [(name.upper(), "a")], [(name.lower(), "b")]
    assert await bodies(client, one, other, one, other) == [b"number 1", b"number 2"] * 2


async def test_a_request_without_the_header(async_hold: Hold) -> None:
    """Nobody knows whose key it is: 400, nothing is served, and nothing shared. Without a key it goes through."""
    shop = Shop()
    client = Client(async_hold, shop, caller="X-API-Key")
    for headers in ([], [("X-API-Key", "")], [("x-api-key", " ")], [("Authorization", "Bearer a")]):
        refused = await client.post(headers=headers)
        assert (refused.status, refused.problem) == (400, "caller-unknown")
    assert shop.served == []
    assert (await client.post(None)).status == 201


async def test_the_same_text_in_another_header(async_hold: Hold) -> None:
    """Two middlewares with one coordinator: the tenant "7" is not the user "7"."""
    shop = Shop()
    tenants, users = (Client(async_hold, shop, caller=name) for name in ("x-tenant", "x-user"))
    headers = [("X-Tenant", "7"), ("X-User", "7")]
    assert [(await tenants.post(headers=headers)).body, (await users.post(headers=headers)).body] == [
        b"number 1",
        b"number 2",
    ]


async def test_a_header_that_comes_twice(async_hold: Hold) -> None:
    """Whoever sends two is neither of both."""
    client = Client(async_hold, Shop(), caller="x-user")
    one, two = [("X-User", "a")], [("X-User", "a"), ("X-User", "b")]
    assert await bodies(client, one, two, two) == [b"number 1", b"number 2", b"number 2"]


def of_tenant(scope: Any) -> Any:
    """A function of the scope."""
    return scope["tenant"]


async def of_tenant_later(scope: Any) -> Any:
    """One that is awaited."""
    await asyncio.sleep(0)
    return scope["tenant"]


@pytest.mark.parametrize("caller", [of_tenant, of_tenant_later], ids=["plain", "async"])
async def test_a_function_says_who_asks(async_hold: Hold, caller: Any) -> None:
    """A text; None or an empty one: it is not known, and the request is refused; anything else is a mistake."""
    shop = Shop()
    client = Client(async_hold, shop, caller=caller)
    got = [(await client.post(tenant=tenant)).body for tenant in ("a", "b", "a")]
    assert got == [b"number 1", b"number 2", b"number 1"]
    for nobody in (None, ""):
        assert (await client.post(tenant=nobody)).problem == "caller-unknown"
    with pytest.raises(InvalidRequest, match="the client, or None, not int"):
        await client.post(tenant=7)
    assert len(shop.served) == 2


@pytest.mark.parametrize("make", [lambda one: one, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])  # noqa: S301  # our own
async def test_everybody_is_one(async_hold: Hold, make: Callable[[object], Any]) -> None:
    """Where that is said, whoever knows the key gets its response; settings may have been copied."""
    client = Client(async_hold, Shop(), caller=make(GLOBAL))
    assert await bodies(client, [], [("Authorization", "a")], [("Authorization", "b")]) == [b"number 1"] * 3
    assert repr(GLOBAL) == "GLOBAL"


async def test_caller_and_key_are_not_mixed_up(async_hold: Hold) -> None:
    """Caller "ab" with key "c" is not "a" with "bc"."""
    client = Client(async_hold, Shop(), caller=lambda scope: str(scope["who"]))
    await client.post("c", who="ab")
    assert not (await client.post("bc", who="a")).replayed


async def test_neither_caller_nor_key_is_stored(async_hold: Hold) -> None:
    """What a result store and a store get to see is a digest of both."""
    seen: list[str] = []

    class Watched(MemoryResultStore):
        def write(self, lease: Fenced, text: str | None, keep: Any) -> None:
            seen.append(f"{lease.resource} {text}")
            super().write(lease, text, keep)

    client = Client(async_hold, Shop(), caller="authorization", store=Watched())
    assert (await client.post("secret-key", headers=[("Authorization", "Bearer secret")])).status == 201
    assert len(seen) == 2 and "secret" not in "".join(seen)


async def test_it_must_be_said(async_hold: Hold) -> None:
    """Without it all callers would be one, or those with a cookie or an API key: refused where it is made."""
    with pytest.raises(InvalidRequest, match=r'caller= says whose key .*"X-API-Key".*GLOBAL'):
        IdempotencyMiddleware(Shop(), async_hold)


@pytest.mark.parametrize(
    "caller", ["", "two words", "Authorization:", "é", 7, b"authorization", True, ["authorization"]]
)
async def test_what_says_nothing(async_hold: Hold, caller: Any) -> None:
    """Neither the name of a header nor a function."""
    with pytest.raises(InvalidRequest, match="caller="):
        Client(async_hold, Shop(), caller=caller)
