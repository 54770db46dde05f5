"""Clients that go away, leases that are lost, stores that are away, and applications that answer oddly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import leasehold
from leasehold.errors import InvalidRequest, LeaseLost, StoreUnavailable
from leasehold.testing import TurnableClock, expire, outage
from tests.patterns.idempotency.client import Client, Shop, got
from tests.patterns.once.broken import BrokenResultStore, done, failing

Hold = leasehold.AsyncLeasehold


def held(hold: Hold) -> Any:
    """The one lease that this coordinator has."""
    (one,) = hold._engine.watchdog.leases()
    return one.lease()


async def test_a_client_that_goes_before_it_has_said_all(async_hold: Hold) -> None:
    """Nothing is done, and the key is as good as new."""
    shop = Shop()
    client = Client(async_hold, shop)

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"idempotency-key", b"k-1")]}
    await client.app(scope, receive, None)  # type: ignore[arg-type]  # nothing is sent
    assert shop.served == [] and not (await client.post()).replayed


async def test_a_client_that_goes_while_it_is_served(async_hold: Hold) -> None:
    """The application is not told, does its work once, and whoever asks again gets the response."""
    told = []

    async def work(scope: Any, receive: Any, send: Any) -> None:
        listening = asyncio.create_task(receive())
        await asyncio.sleep(0.01)
        told.append(listening.done())
        listening.cancel()

    shop = Shop(work=work)
    client = Client(async_hold, shop)
    client.breaks = 0
    with pytest.raises(ValueError, match="not enough values"):  # there is no response
        await client.post()
    client.breaks = None
    again = await client.post()
    assert again.replayed and again.body == b"number 1" and told == [False]


async def test_a_client_that_goes_in_the_middle_of_a_large_response(async_hold: Hold) -> None:
    """The application comes to its end, and it is not done again."""
    shop = Shop(body=b"x" * 100)
    client = Client(async_hold, shop, max_response=1)
    client.breaks = 2
    await client.post()
    client.breaks = None
    assert (await client.post()).status == 410 and len(shop.served) == 1


async def test_the_end_of_the_response_is_told(async_hold: Hold) -> None:
    """An application that listens for the end hears it when its response is complete."""
    heard = []

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await Shop().answer(send)
        heard.append((await receive())["type"])

    await Client(async_hold, listening).post()
    assert heard == ["http.disconnect"]


async def test_work_after_the_response(async_hold: Hold) -> None:
    """The response goes out, and is there for others, before what the application does after it has ended."""
    go, out = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await Shop().answer(send)
        out.set()
        await go.wait()

    client = Client(async_hold, app)
    first = asyncio.create_task(client.post())
    await out.wait()
    assert got(client.sent).status == 201
    assert (await client.post()).replayed
    go.set()
    assert (await first).status == 201


async def test_a_lease_that_is_lost(async_hold: Hold) -> None:
    """The work is cancelled, the client is told to repeat the request, and the repetition is served."""
    lost = [True]

    async def work(*_: Any) -> None:
        if lost.pop():
            await asyncio.to_thread(expire, held(async_hold))
            await asyncio.sleep(30)

    lost.insert(0, False)
    client = Client(async_hold, Shop(work=work))
    refused = await client.post()
    assert (refused.status, refused.problem) == (503, "interrupted")
    again = await client.post()
    assert again.status == 201 and not again.replayed


async def test_a_lease_that_is_lost_in_the_middle_of_a_large_response(async_hold: Hold) -> None:
    """What has gone out cannot be taken back: the response is cut, and the loss is raised."""

    async def work(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 100, "more_body": True})
        await asyncio.to_thread(expire, held(async_hold))
        await asyncio.sleep(30)

    client = Client(async_hold, Shop(work=work), max_response=1)
    with pytest.raises(LeaseLost):
        await client.post()


async def test_a_late_one(async_hold: Hold) -> None:
    """Somebody has served it meanwhile: the first client is not given what was refused, but told to ask again."""
    results = BrokenResultStore()
    rival = Client(async_hold, Shop(body=b"of the rival"), store=results)

    async def work(*_: Any) -> None:
        lease = held(async_hold)
        lease._held.interrupt = None  # as if this process slept, and heard nothing
        await asyncio.to_thread(expire, lease)
        assert (await asyncio.create_task(rival.post())).body == b"of the rival"

    client = Client(async_hold, Shop(work=work), store=results)
    late = await client.post()
    assert (late.status, late.problem) == (503, "interrupted")
    assert (await client.post()).body == b"of the rival"


async def test_a_store_that_is_away(async_hold: Hold) -> None:
    """503, and nothing is done."""
    shop = Shop()
    client = Client(async_hold, shop)
    with outage(async_hold):
        refused = await client.post()
    assert (refused.status, refused.problem) == (503, "keys-unavailable")
    assert shop.served == [] and (await client.post()).status == 201


async def test_a_result_store_that_goes_away(async_hold: Hold, caplog: pytest.LogCaptureFixture) -> None:
    """The work is done, so its client gets the response; that it is not stored is logged."""
    results = BrokenResultStore()
    results.before = failing(StoreUnavailable("away"))
    client = Client(async_hold, Shop(), store=results, ttl=0.2)
    assert (await client.post()).body == b"number 1"
    assert "could not be stored" in caplog.text


async def test_a_response_that_the_result_store_does_not_take(
    async_hold: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    """The client gets it, the log says so, and it is not served again: 410."""
    results, shop = BrokenResultStore(), Shop()
    results.before = failing(InvalidRequest("not these letters"), when=lambda text: '"value"' in str(text))
    client = Client(async_hold, shop, store=results)
    assert (await client.post()).body == b"number 1"
    assert "not these letters" in caplog.text
    again = await client.post()
    assert (again.status, again.problem) == (410, "response-not-kept") and len(shop.served) == 1


async def test_a_result_store_that_is_away_when_a_key_is_freed(async_hold: Hold) -> None:
    """The response is the application's own, and the next may be served."""
    results, shop = BrokenResultStore(), Shop(status=500)
    results.before = failing(StoreUnavailable("away"), times=1, when=lambda text: text is None)
    client = Client(async_hold, shop, store=results)
    assert (await client.post()).status == 500
    shop.status = 201
    assert (await client.post()).status == 201
    assert sum(done(text) for text in results.written) == 1


@pytest.mark.parametrize("messages", [0, 1, 2])
async def test_an_application_that_does_not_answer(async_hold: Hold, messages: int) -> None:
    """What there is goes out, as if we were not there; it is not kept, and the key is free."""
    calls = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls.append(1)
        if messages > 0:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        if messages > 1:
            await send({"type": "http.response.body", "body": b"x", "more_body": True})

    client = Client(async_hold, app)
    for _ in range(2):
        try:
            await client.post()
        except ValueError:  # there is no response
            assert messages == 0
        assert len(client.sent) == messages
    assert len(calls) == 2


async def test_a_server_that_cancels(async_hold: Hold) -> None:
    """The work ends where it is; the repetition is served."""
    begun = asyncio.Event()

    async def work(*_: Any) -> None:
        begun.set()
        await asyncio.sleep(0 if len(shop.served) > 1 else 30)

    shop = Shop(work=work)
    client = Client(async_hold, shop)
    task = asyncio.create_task(client.post())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await client.post()).body == b"number 2"


async def test_a_request_that_hangs(async_hold: Hold, leasehold_clock: TurnableClock) -> None:
    """One that waits for its client to go away would wait for ever; after ``max_hold`` it is cancelled, its client is
    told 503, and the repetition is served (trap 5)."""
    begun = asyncio.Event()

    async def work(scope: Any, receive: Any, send: Any) -> None:
        begun.set()
        if len(shop.served) == 1:
            await receive()

    shop = Shop(work=work)
    client = Client(async_hold, shop, max_hold="1m")
    task = asyncio.create_task(client.post())
    await begun.wait()
    for _ in range(7):
        await asyncio.to_thread(leasehold_clock.advance, "10s")
    refused = await task
    assert (refused.status, refused.problem) == (503, "interrupted")
    assert (await client.post()).body == b"number 2"
