"""The ASGI middleware among many requests: one step within a process, whatever ends a request, and frameworks."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from leasehold.errors import StaleOwner
from leasehold.guards.fence import Fenced
from leasehold.guards.http import FencingMiddleware, fencing
from leasehold.guards.http.admission import ActiveRequests
from leasehold.guards.memory import FenceGuard
from tests.support.guards.http_tools import RESOURCE, A, Answer, ASGIService, B, memory, token


class Counter:
    """Read, think, write: what loses an update when two do it at once. Each fence thinks until it may go on."""

    def __init__(self) -> None:
        self.value = 0
        self.reached: dict[int, asyncio.Event] = {}
        self.go_on: dict[int, asyncio.Event] = {}

    def stop(self, fence: int) -> None:
        """Let this one stall between its read and its write."""
        self.reached[fence], self.go_on[fence] = asyncio.Event(), asyncio.Event()

    async def add_one(self, request: Any) -> None:
        """The handler."""
        fence, value = fencing(request).fence, self.value
        if fence in self.reached:
            self.reached[fence].set()
            await self.go_on[fence].wait()
        self.value = value + 1


async def settled() -> None:
    """Let everybody go as far as they can: checks of the memory guard take a thread."""
    for _ in range(20):
        await asyncio.sleep(0.002)


async def stalled_and_newer(
    service: ASGIService, guard: FenceGuard, counter: Counter
) -> tuple[asyncio.Task[Answer], asyncio.Task[Answer]]:
    """A is inside and stalls; B, with a newer fence, is at the door."""
    counter.stop(11)
    older = asyncio.create_task(service.request("POST", token(11)))
    await counter.reached[11].wait()
    newer = asyncio.create_task(service.request("POST", token(12, owner=B)))
    async with asyncio.timeout(10):
        while guard.seen(RESOURCE) != 12:
            await settled()
    await settled()
    return older, newer


async def overtaking(counter: Counter) -> int:
    """A stalls between read and write, B comes. What the counter says after two accepted requests."""
    service = ASGIService(guard := memory(), counter.add_one)
    older, newer = await stalled_and_newer(service, guard, counter)
    counter.go_on[11].set()
    assert [one.status for one in await asyncio.gather(older, newer)] == [200, 200]
    assert len(service.inside) == 0
    return counter.value


async def test_check_and_work_are_one_step() -> None:
    """A newer owner goes in when the work of an older one, which was let in before it, has ended: no lost update."""
    assert await overtaking(Counter()) == 2


async def test_without_the_waiting_an_update_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a door at which nobody waits: B's update is overwritten by A. So the test above can fail."""
    monkeypatch.setattr(ActiveRequests, "wait_for_earlier", lambda *_: True)
    assert await overtaking(Counter()) == 1


async def test_an_older_owner_that_comes_later_is_refused() -> None:
    """While B waits, its fence is remembered already: nobody older gets in before it."""
    counter = Counter()
    service = ASGIService(guard := memory(), counter.add_one)
    older, newer = await stalled_and_newer(service, guard, counter)
    assert (await service.request("POST", token(11))).kind == "stale-owner"
    assert not newer.done() and len(service.served) == 1
    counter.go_on[11].set()
    assert [one.status for one in await asyncio.gather(older, newer)] == [200, 200]


class SlowAnswer(FenceGuard):
    """A guard for asyncio that decides at once, and whose answer to one fence is long on its way."""

    __slots__ = ("arrived", "slow")

    def __init__(self, slow: int) -> None:
        super().__init__()
        self.slow, self.arrived = slow, asyncio.Event()

    async def check(self, *args: Any, **more: Any) -> None:  # type: ignore[override]  # awaited, as Guard allows
        """Decide, and then take long."""
        super().check(*args, **more)
        if args[0] == self.slow:
            await self.arrived.wait()


async def test_an_answer_of_the_guard_that_is_long_on_its_way() -> None:
    """A was accepted before B, and does not know yet. B sees it all the same, and lets it go first."""
    order: list[int] = []
    guard = SlowAnswer(slow=11)
    service = ASGIService(guard, lambda request: order.append(fencing(request).fence))
    older = asyncio.create_task(service.request("POST", token(11)))
    await settled()
    newer = asyncio.create_task(service.request("POST", token(12, owner=B)))
    await settled()
    assert order == []
    guard.arrived.set()
    await asyncio.gather(older, newer)
    assert order == [11, 12]


async def test_requests_of_one_holder_run_side_by_side() -> None:
    """And so do those of other resources."""
    counter = Counter()
    counter.stop(11)
    service = ASGIService(memory(), counter.add_one)
    first = asyncio.create_task(service.request("POST", token(11)))
    await counter.reached[11].wait()
    counter.reached[11].clear()
    second = asyncio.create_task(service.request("POST", token(11)))
    await counter.reached[11].wait()
    assert (await service.request("POST", token(50, resource="other"))).status == 200
    counter.go_on[11].set()
    await asyncio.gather(first, second)
    assert len(service.inside) == 0


@pytest.mark.parametrize("wait", [0, "10ms"])
async def test_waiting_has_an_end(wait: Any) -> None:
    """Then it is 503 and nothing was done; it may try again."""
    counter = Counter()
    service = ASGIService(guard := memory(), counter.add_one, wait=wait)
    older, newer = await stalled_and_newer(service, guard, counter)
    answer = await newer
    assert (answer.status, answer.kind, answer.problem["fence"]) == (503, "earlier-owner-inside", 12)
    assert len(service.inside) == 1
    counter.go_on[11].set()
    await older
    assert (await service.request("POST", token(12, owner=B))).status == 200
    assert counter.value == 2


async def test_a_read_of_a_newer_holder_waits_too() -> None:
    """Its read comes after the older write, or that write would be lost."""
    counter = Counter()
    service = ASGIService(guard := memory(), counter.add_one)
    older, newer = await stalled_and_newer(service, guard, counter)
    reading = asyncio.create_task(service.request("GET", token(13, owner=B, mode="shared")))
    await settled()
    assert not reading.done()
    counter.go_on[11].set()
    assert [one.status for one in await asyncio.gather(older, newer, reading)] == [200, 200, 200]


# ---------------------------------------------------------------- whatever ends a request


async def test_a_cancelled_request_lets_the_next_go_in() -> None:
    """Cancelled inside, and cancelled while it waits: neither leaves anything behind."""
    counter = Counter()
    service = ASGIService(guard := memory(), counter.add_one)
    older, newer = await stalled_and_newer(service, guard, counter)
    waiting = asyncio.create_task(service.request("POST", token(13)))
    await settled()
    for task in (newer, older):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await waiting).status == 200
    assert len(service.inside) == 0


async def test_a_request_that_is_cancelled_during_the_check() -> None:
    """It has not been inside for anybody afterwards."""
    service = ASGIService(SlowAnswer(slow=11))
    asking = asyncio.create_task(service.request("POST", token(11)))
    await settled()
    assert len(service.inside) == 1
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(service.inside) == 0 and service.served == []


async def test_a_handler_that_raises_lets_the_next_go_in() -> None:
    """The error goes on its way to the server."""
    may_fail = asyncio.Event()

    async def work(request: Any) -> None:
        if fencing(request).fence == 11:
            await may_fail.wait()
            raise LookupError("no such report")

    service = ASGIService(memory(), work)
    older = asyncio.create_task(service.request("POST", token(11)))
    newer = asyncio.create_task(service.request("POST", token(12)))
    await settled()
    assert not newer.done()
    may_fail.set()
    with pytest.raises(LookupError):
        await older
    assert (await newer).status == 200 and len(service.inside) == 0


async def test_a_streamed_response_is_inside_until_its_end() -> None:
    """The first bytes are out, and the work goes on."""
    chunk, end = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        if fencing(scope).fence == 11:
            chunk.set()
            await end.wait()
        await send({"type": "http.response.body", "body": b"last"})

    service = ASGIService(memory())
    service.middleware.app = app
    older = asyncio.create_task(service.request("POST", token(11)))
    await chunk.wait()
    newer = asyncio.create_task(service.request("POST", token(12)))
    await settled()
    assert not newer.done()
    end.set()
    assert [one.body for one in await asyncio.gather(older, newer)] == [b"firstlast"] * 2


async def test_a_stale_owner_after_the_response_has_begun() -> None:
    """It cannot be replaced any more: the error goes to the server, which ends the connection."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise StaleOwner("too late")

    service = ASGIService(memory())
    service.middleware.app = app
    with pytest.raises(StaleOwner, match="too late"):
        await service.request("POST", token(11))
    assert len(service.inside) == 0


# ---------------------------------------------------------------- guards, loops, other scopes


async def test_a_guard_that_blocks_does_not_hold_up_the_loop() -> None:
    """While one is asked, others are served. On the loop itself this test would stand still."""
    asked, answer = threading.Event(), threading.Event()

    class Slow(FenceGuard):
        def check(self, *args: Any, **more: Any) -> None:
            """It takes until the loop lets it go on."""
            asked.set()
            assert answer.wait(60)
            super().check(*args, **more)

    service = ASGIService(Slow())
    slow = asyncio.create_task(service.request("POST", token(11)))
    assert await asyncio.to_thread(asked.wait, 10)
    assert (await service.request("GET", [])).status == 200
    answer.set()
    assert (await slow).status == 200


async def test_a_guard_that_is_awaited_needs_no_thread() -> None:
    """A check that is no coroutine function may block, so the first one takes a thread. It has given something to
    await, so the others are called on the loop."""
    called: list[bool] = []

    class Awaited:
        def check(
            self,
            lease_or_fence: Fenced | int,
            *,
            resource: str | None = None,
            owner: str | None = None,
            shared: bool = False,
        ) -> Awaitable[None]:
            """Where is it called?"""
            called.append(threading.current_thread() is threading.main_thread())
            return asyncio.sleep(0)

    service = ASGIService(Awaited())
    for fence in (11, 12, 13):
        assert (await service.request("POST", token(fence))).status == 200
    assert called == [False, True, True]


def test_one_middleware_on_two_loops() -> None:
    """Who leaves on one loop wakes who waits on the other."""
    inside, may_end, order = threading.Event(), threading.Event(), list[int]()

    async def work(request: Any) -> None:
        fence = fencing(request).fence
        if fence == 11:
            inside.set()
            await asyncio.to_thread(may_end.wait, 10)
        order.append(fence)

    service = ASGIService(memory(), work)
    threads = [threading.Thread(target=service.send, args=("POST", token(fence))) for fence in (11, 12)]
    threads[0].start()
    assert inside.wait(60)
    threads[1].start()
    while len(service.inside) < 2:
        threads[1].join(0.01)
    threads[1].join(0.1)
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert order == [11, 12] and len(service.inside) == 0


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
async def test_other_scopes_go_through(kind: str) -> None:
    """Unguarded, and as they are."""
    seen: list[Any] = []

    async def app(*parts: Any) -> None:
        seen.extend(parts)

    scope: Any = {"type": kind}
    receive: Any = object()
    send: Any = object()
    await FencingMiddleware(app, FenceGuard())(scope, receive, send)
    assert seen[0] is scope and seen[1] is receive and seen[2] is send and scope == {"type": kind}


async def test_many_holders_at_once_lose_no_update() -> None:
    """Fences in any order, each read-modify-write with a pause in it: each accepted one is in the counter."""
    chance, value, accepted = random.Random(3), [0], list[int]()

    async def work(request: Any) -> None:
        before = value[0]
        await asyncio.sleep(chance.random() / 1000)
        value[0] = before + 1
        accepted.append(fencing(request).fence)

    service = ASGIService(FenceGuard(), work)
    fences = list(range(1, 101))
    for at in range(0, 100, 20):
        chance.shuffle(part := fences[at : at + 20])
        fences[at : at + 20] = part
    answers = await asyncio.gather(*[service.request("POST", token(fence)) for fence in fences])
    assert {one.status for one in answers} == {200, 409}
    assert value[0] == len(accepted) == [one.status for one in answers].count(200)
    assert accepted == sorted(accepted) and len(service.inside) == 0


# ---------------------------------------------------------------- Starlette


def site(guard: FenceGuard, **options: Any) -> Starlette:
    """An application as its users write it."""

    async def export(request: Request) -> Response:
        guard.check(fencing(request))
        return JSONResponse({"fence": fencing(request).fence}, background=BackgroundTask(lambda: None))

    def stale(request: Request) -> Response:
        raise StaleOwner("in a thread", fence=3, seen=4)

    routes = [Route("/reports/{report_id:int}", export, methods=["POST"]), Route("/stale", stale)]
    app = Starlette(routes=[*routes, Mount("/api", routes=routes)])
    app.add_middleware(FencingMiddleware, guard=guard, **options)
    return app


async def test_in_starlette() -> None:
    """add_middleware is all it takes, by the path too; a StaleOwner in a handler is 409, and not 500."""
    patterns = {"/reports/{id:int}": RESOURCE[:-2] + "{id}", "/api/reports/{id:int}": RESOURCE[:-2] + "{id}"}
    app = site(guard := memory(), resource=patterns)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        for path, fence in (("/reports/42", "11"), ("/api/reports/042", "12")):
            response = await client.post(path, headers={"X-Fencing-Token": fence})
            assert (response.status_code, response.json()) == (200, {"fence": int(fence)})
        stale = await client.post("/reports/42", headers=dict(token(10)))
        other = await client.post("/reports/43", headers=dict(token(13)))
        handler = await client.get("/stale")
    assert [one.json()["type"] for one in (stale, other, handler)] == [
        "urn:leasehold:stale-owner",
        "urn:leasehold:other-resource",
        "urn:leasehold:stale-owner",
    ]
    assert guard.seen(RESOURCE) == 12


def test_types_fit() -> None:
    """Checked by mypy: an application of Starlette is one, and so is a plain function."""

    async def plain(
        scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None: ...

    for app in (Starlette(), plain):
        FencingMiddleware(app, FenceGuard(), resource={"/": "settings"}, methods=["POST"], wait="5s")
    assert A != B
